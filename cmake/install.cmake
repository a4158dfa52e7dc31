# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where, besides what folders say of their own libraries:
#
#   bin/hekla, lib/hekla/*.so          component Runtime: all that a program needs to run
#   include/hekla, lib/hekla/*.a, lib/cmake/Hekla    component Development: for find_package(Hekla)
#
# A prefix may be moved: programs and libraries find each other by their own place.
include(CMakePackageConfigHelpers)

# Headers that C++ programs and plugins include, from the repository's root. What these include is
# installed with them, and nothing else.
set(HEKLA_PUBLIC_HEADERS
  plugin_api/pjrt_c_api.h plugin_api/pjrt_extensions.h plugin_api/hekla_holds.h
  plugin_api/hekla_group_backend.h plugin_api/hekla_inspection.h
  runtime/base/log.h runtime/npy/npy.h
  runtime/plugin/probe.h runtime/plugin/registry.h
  runtime/client/open.h runtime/client/upload.h
  runtime/program/builder/graph_builder.h runtime/program/stablehlo/read_program.h
  runtime/program/stablehlo/bytecode/write_bytecode.h runtime/program/stablehlo/text/print.h
  runtime/process_group/init.h runtime/process_group/backend_registry.h
  runtime/process_group/data_parallel/sharded_optimizer.h
  runtime/process_group/device_arrays/device_gradients.h
  runtime/process_group/objects.h runtime/process_group/c_api/process_group_c.h
  runtime/checkpoint/c_api/checkpoint_c.h
  runtime/checkpoint/manager/checkpoint_manager.h runtime/checkpoint/device/client_source.h)
set(client hekla_runtime_client hekla_npy)
set(program hekla_builder hekla_stablehlo)
set(group hekla_process_group hekla_process_group_device)
set(checkpoint hekla_checkpoint_manager hekla_checkpoint_device)

# Appends the libraries of ours among `ARGN`, and those that they stand on, to `result`.
function(hekla_own_libraries result)
  set(found ${${result}})
  foreach(name IN LISTS ARGN)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" name "${name}")
    if(name MATCHES "^hekla_" AND NOT name IN_LIST found)
      list(APPEND found ${name})
      get_target_property(below ${name} INTERFACE_LINK_LIBRARIES)
      hekla_own_libraries(found ${below})
    endif()
  endforeach()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

set(exported)
hekla_own_libraries(exported ${client} ${program} ${group} ${checkpoint})
foreach(library IN LISTS exported)
  string(REPLACE "hekla_" "" name ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:include/hekla>)
  target_compile_features(${library} INTERFACE cxx_std_20)
endforeach()
foreach(component client program group checkpoint)
  add_library(hekla_component_${component} INTERFACE)
  target_link_libraries(hekla_component_${component} INTERFACE ${${component}})
  set_target_properties(hekla_component_${component} PROPERTIES EXPORT_NAME ${component})
  list(APPEND exported hekla_component_${component})
endforeach()

install(TARGETS ${exported} EXPORT HeklaTargets
        ARCHIVE DESTINATION lib/hekla COMPONENT Development)
install(EXPORT HeklaTargets NAMESPACE Hekla:: DESTINATION lib/cmake/Hekla COMPONENT Development)
configure_package_config_file(cmake/HeklaConfig.cmake.in HeklaConfig.cmake
                              INSTALL_DESTINATION lib/cmake/Hekla)
write_basic_package_version_file(HeklaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/HeklaConfig.cmake ${PROJECT_BINARY_DIR}/HeklaConfigVersion.cmake
              cmake/HeklaDependencies.cmake
        DESTINATION lib/cmake/Hekla COMPONENT Development)
# Headers include others: which ones is read when they are installed.
install(CODE "set(HEKLA_SOURCE_DIR \"${PROJECT_SOURCE_DIR}\")
set(HEKLA_PUBLIC_HEADERS \"${HEKLA_PUBLIC_HEADERS}\")" COMPONENT Development)
install(SCRIPT cmake/install_headers.cmake COMPONENT Development)
