# One interface target with the flags that every C++ target of this project is built with.
add_library(headrace_options INTERFACE)
target_compile_options(headrace_options INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Wthread-safety $<$<BOOL:${HEADRACE_WERROR}>:-Werror>
  -Wno-error=deprecated-declarations
  -fno-omit-frame-pointer)
if(HEADRACE_SANITIZE)
  target_compile_options(headrace_options INTERFACE
    -fsanitize=${HEADRACE_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(headrace_options INTERFACE -fsanitize=${HEADRACE_SANITIZE})
endif()
if(HEADRACE_BUILD_FUZZERS)
  target_compile_options(headrace_options INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(headrace_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
# The standard library checks indices, iterators and empty optionals.
if(HEADRACE_HARDENING OR HEADRACE_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_definitions(headrace_options INTERFACE _GLIBCXX_ASSERTIONS)
endif()
# Not beside sanitizers, which check more and replace the functions that _FORTIFY_SOURCE checks.
if(HEADRACE_HARDENING AND NOT HEADRACE_SANITIZE)
  target_compile_options(headrace_options INTERFACE -fstack-protector-strong)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")  # it needs an optimising compiler
    target_compile_options(headrace_options INTERFACE
      $<$<NOT:$<BOOL:$<TARGET_PROPERTY:HEADRACE_UNOPTIMISED>>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>)
  endif()
  # The loader resolves all functions at once; their addresses are read-only from then on.
  target_link_options(headrace_options INTERFACE -Wl,-z,relro,-z,now)
endif()
find_program(HEADRACE_LLD NAMES ld.lld-21 ld.lld-20 ld.lld-19 ld.lld)
if(HEADRACE_LLD)
  target_link_options(headrace_options INTERFACE "--ld-path=${HEADRACE_LLD}")
endif()
find_program(HEADRACE_CCACHE ccache)
if(HEADRACE_CCACHE)
  # One cache for every checkout: paths inside this one are made relative before they are looked up
  # (a cached object may name another checkout in its debug information).
  set(CMAKE_CXX_COMPILER_LAUNCHER
      env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros "${HEADRACE_CCACHE}")
endif()
