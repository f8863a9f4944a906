# Keeps the rooms apart: each is compiled with clang's layering check (-fmodules-decluse). To clang a
# room is a module with all the headers of its folder, and an include of a header of a module that it
# does not use is an error. Nothing is compiled as a module.

# headrace_room_name(VARIABLE FOLDER): the name of its library, and of its module.
function(headrace_room_name variable folder)
  string(REPLACE "/" "_" name "headrace_${folder}")
  string(REPLACE "headrace_." "headrace_top" name "${name}")
  set(${variable} ${name} PARENT_SCOPE)
endfunction()

# headrace_headers_alone(VARIABLE FOLDER): a source that includes the headers without a source of
# their own, which nothing in the room might compile; none if there are no such headers.
function(headrace_headers_alone variable folder)
  file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.h)
  list(FILTER headers EXCLUDE REGEX "_test_support\\.h$")
  set(includes "")
  foreach(header ${headers})
    string(REGEX REPLACE "\\.h$" ".cc" source ${header})
    if(NOT EXISTS ${source})
      cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/src)
      string(APPEND includes "#include \"${header}\"\n")
    endif()
  endforeach()
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${folder}/headers_alone.cc)
  if(includes STREQUAL "")
    set(file "")
  else()
    file(CONFIGURE OUTPUT ${file} CONTENT "${includes}" @ONLY)
  endif()
  set(${variable} ${file} PARENT_SCOPE)
endfunction()

# headrace_keep_layers(): tells clang all rooms. Call once, after the last one.
function(headrace_keep_layers)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.h *.cc)
  foreach(file ${files})
    cmake_path(GET file PARENT_PATH folder)
    if(NOT "${folder}" STREQUAL "" AND NOT folder IN_LIST HEADRACE_ROOMS)
      message(FATAL_ERROR "src/headrace/${folder} is no room: add it with headrace_add_room()")
    endif()
  endforeach()
  set(map "")
  foreach(folder ${HEADRACE_ROOMS})
    headrace_room_name(room ${folder})
    string(APPEND map "module ${room} {\n  umbrella \"${CMAKE_CURRENT_SOURCE_DIR}/${folder}\"\n")
    foreach(used ${${room}_INCLUDES})
      headrace_room_name(used_room ${used})
      string(APPEND map "  use ${used_room}\n")
    endforeach()
    string(APPEND map "}\n")
  endforeach()
  # By another name when it changes, and relative: a compiler cache hashes the name alone.
  string(REPLACE "${CMAKE_CURRENT_SOURCE_DIR}" "" rooms "${map}")
  string(SHA256 hash "${rooms}")
  string(SUBSTRING ${hash} 0 12 hash)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/rooms-${hash}.modulemap)
  file(CONFIGURE OUTPUT ${file} CONTENT "${map}" @ONLY)
  if(CMAKE_GENERATOR MATCHES "Ninja")  # which compiles in the build folder
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${CMAKE_BINARY_DIR})
  endif()
  foreach(folder ${HEADRACE_ROOMS})
    headrace_room_name(room ${folder})
    target_compile_options(${room} PRIVATE
      "SHELL:-Xclang -fno-cxx-modules" -fmodules-decluse
      -fmodule-name=${room} -fmodule-map-file=${file})
  endforeach()
endfunction()
