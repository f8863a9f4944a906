# `cmake --install BUILD --component cpp`: the engine, its headers and find_package(headrace).
# It is the system's OpenSSL that find_package(headrace) links.
if(HEADRACE_AWS_LC)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(HEADRACE_CONFIG_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/headrace")

install(TARGETS headrace_engine EXPORT headraceTargets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT cpp)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/src/headrace"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT cpp
  FILES_MATCHING PATTERN "*.h")
install(EXPORT headraceTargets NAMESPACE headrace::
  DESTINATION "${HEADRACE_CONFIG_DIR}" COMPONENT cpp)
configure_package_config_file(cmake/headraceConfig.cmake.in
  "${CMAKE_CURRENT_BINARY_DIR}/headraceConfig.cmake"
  INSTALL_DESTINATION "${HEADRACE_CONFIG_DIR}")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/headraceConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/headraceConfig.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/headraceConfigVersion.cmake"
  DESTINATION "${HEADRACE_CONFIG_DIR}" COMPONENT cpp)
