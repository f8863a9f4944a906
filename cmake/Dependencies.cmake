# Third-party libraries of the engine; all come from Debian 12 (tools/apt-packages.txt names them).
option(HEADRACE_STATIC_DEPS "Link third-party archives where the system has them" OFF)

if(HEADRACE_STATIC_DEPS)
  # isal and simdjson have no archives in Debian; auditwheel puts their shared ones into the wheel.
  find_library(HEADRACE_SSL_ARCHIVE NAMES libssl.a)
  find_library(HEADRACE_ZLIB_ARCHIVE NAMES libz.a)
  if(HEADRACE_SSL_ARCHIVE)
    set(OPENSSL_USE_STATIC_LIBS ON)
  endif()
  if(HEADRACE_ZLIB_ARCHIVE)
    set(ZLIB_USE_STATIC_LIBS ON)
  endif()
endif()
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED)
find_package(OpenSSL 3 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(simdjson REQUIRED)
find_package(pugixml REQUIRED)
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
