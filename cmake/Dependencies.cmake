# Third-party libraries of the engine. All but AWS-LC come from Debian 12 (tools/apt-packages.txt names them).
option(HEADRACE_STATIC_DEPS "Link archives, also libstdc++, where the system has them" OFF)

if(HEADRACE_STATIC_DEPS)
  # isal and simdjson have no archives in Debian; auditwheel puts their shared ones into the wheel.
  find_library(HEADRACE_ZLIB_ARCHIVE NAMES libz.a)
  if(HEADRACE_ZLIB_ARCHIVE)
    set(ZLIB_USE_STATIC_LIBS ON)
  endif()
endif()
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED)
# The fault server is built with the system's OpenSSL in any case: client and server share no code then.
set(HEADRACE_AWS_LC "" CACHE PATH
  "Where tools/aws_lc.sh has built AWS-LC, which is then linked in place of the system's OpenSSL")
add_library(headrace_tls INTERFACE)
if(HEADRACE_AWS_LC)
  target_include_directories(headrace_tls SYSTEM INTERFACE "${HEADRACE_AWS_LC}/include")
  target_link_libraries(headrace_tls INTERFACE
    "${HEADRACE_AWS_LC}/lib/libssl.a" "${HEADRACE_AWS_LC}/lib/libcrypto.a" Threads::Threads)
else()
  find_package(OpenSSL 3 REQUIRED)
  target_link_libraries(headrace_tls INTERFACE OpenSSL::SSL OpenSSL::Crypto)
endif()
find_package(ZLIB REQUIRED)
find_package(simdjson REQUIRED)
find_package(pugixml REQUIRED)
set(HEADRACE_PUGIXML pugixml::pugixml)
if(HEADRACE_STATIC_DEPS AND TARGET pugixml::static)
  set(HEADRACE_PUGIXML pugixml::static)
endif()
# It changes the layout of simdjson::dom::parser, so every file must see it, also a test that
# includes simdjson.h without linking it: two layouts in one program crash in the optimised build.
add_compile_definitions(SIMDJSON_THREADS_ENABLED=1)
find_library(HEADRACE_ISAL NAMES isal REQUIRED)
find_path(HEADRACE_ISAL_INCLUDE NAMES isa-l/crc.h isa-l.h REQUIRED)
add_library(headrace_isal INTERFACE)
target_link_libraries(headrace_isal INTERFACE "${HEADRACE_ISAL}")
target_include_directories(headrace_isal SYSTEM INTERFACE "${HEADRACE_ISAL_INCLUDE}")
# Headers alone: what is used of it is compiled into the engine.
find_path(HEADRACE_XXHASH_INCLUDE NAMES xxhash.h REQUIRED)
add_library(headrace_xxhash INTERFACE)
target_include_directories(headrace_xxhash SYSTEM INTERFACE "${HEADRACE_XXHASH_INCLUDE}")
# Debian's zstd comes with no CMake package.
if(HEADRACE_STATIC_DEPS)
  find_library(HEADRACE_ZSTD NAMES libzstd.a zstd REQUIRED)
else()
  find_library(HEADRACE_ZSTD NAMES zstd REQUIRED)
endif()
find_path(HEADRACE_ZSTD_INCLUDE NAMES zstd.h REQUIRED)
add_library(headrace_zstd INTERFACE)
target_link_libraries(headrace_zstd INTERFACE "${HEADRACE_ZSTD}")
target_include_directories(headrace_zstd SYSTEM INTERFACE "${HEADRACE_ZSTD_INCLUDE}")
