# Chooses clang 19 or newer when nothing else was asked for, and refuses every other compiler.
# Included before project(), so that plain `pip install .` needs no settings. The reason is in
# docs/decisions/2026-11-21-clang-19.md.
if(NOT DEFINED CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX})
  find_program(HEADRACE_CLANGXX NAMES clang++-21 clang++-20 clang++-19 clang++)
  find_program(HEADRACE_CLANG NAMES clang-21 clang-20 clang-19 clang)
  if(HEADRACE_CLANGXX AND HEADRACE_CLANG)
    set(CMAKE_CXX_COMPILER "${HEADRACE_CLANGXX}")
    set(CMAKE_C_COMPILER "${HEADRACE_CLANG}")
  endif()
endif()

function(headrace_require_clang)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 19)
    message(FATAL_ERROR
      "headrace needs clang 19 or newer, found ${CMAKE_CXX_COMPILER_ID} "
      "${CMAKE_CXX_COMPILER_VERSION} (${CMAKE_CXX_COMPILER}). On Debian 12: apt-get install clang-19")
  endif()
endfunction()
