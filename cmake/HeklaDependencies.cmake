# SPDX-License-Identifier: Apache-2.0
# Libraries of checkpoints that bring no CMake package, as targets HeklaDependencies::zstd, ::xxhash
# and ::hdf5. Read by the build and, installed, by HeklaConfig.cmake: each machine finds its own.
# HeklaDependencies_MISSING lists those that are not there.
set(HeklaDependencies_MISSING)
function(hekla_dependency name)
  if(TARGET HeklaDependencies::${name})
    return()
  endif()
  string(TOUPPER HEKLA_${name}_LIBRARY variable)
  find_library(${variable} NAMES ${ARGN} PATH_SUFFIXES hdf5/serial)
  mark_as_advanced(${variable})
  if(NOT ${variable})
    set(HeklaDependencies_MISSING ${HeklaDependencies_MISSING} ${name} PARENT_SCOPE)
    return()
  endif()
  add_library(HeklaDependencies::${name} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(HeklaDependencies::${name} PROPERTIES IMPORTED_LOCATION ${${variable}})
endfunction()

hekla_dependency(zstd zstd)
hekla_dependency(xxhash xxhash)
hekla_dependency(hdf5 hdf5_serial hdf5)
