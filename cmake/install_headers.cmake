# SPDX-License-Identifier: Apache-2.0
# Run by `cmake --install`: installs HEKLA_PUBLIC_HEADERS of HEKLA_SOURCE_DIR and every header of ours
# that they include, below include/hekla.
cmake_minimum_required(VERSION 3.25)
set(remaining ${HEKLA_PUBLIC_HEADERS})
set(installed)
while(remaining)
  list(POP_FRONT remaining header)
  if(header IN_LIST installed)
    continue()
  endif()
  list(APPEND installed ${header})
  cmake_path(GET header PARENT_PATH folder)
  file(INSTALL "${HEKLA_SOURCE_DIR}/${header}"
       DESTINATION "${CMAKE_INSTALL_PREFIX}/include/hekla/${folder}")
  file(STRINGS "${HEKLA_SOURCE_DIR}/${header}" lines REGEX "^ *# *include \"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[^\"]*\"([^\"]*)\".*" "\\1" included "${line}")
    list(APPEND remaining ${included})
  endforeach()
endwhile()
