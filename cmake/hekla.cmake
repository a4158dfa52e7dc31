# SPDX-License-Identifier: Apache-2.0
# The project's build rules in one place: language level, warnings, sanitizers, and three functions
# that every folder uses.
#
#   hekla_library(NAME [HOT] [COLD] [READER] SOURCES ... DEPS ...)   a static library; its headers are
#                                              included from the repository root ("runtime/base/status.h")
#                                              HOT: optimized under sanitizers; COLD: less otherwise;
#                                              READER: of foreign bytes, with all checks of UBSan
#   hekla_test(NAME SOURCES ... DEPS ... [LABELS slow])   one GoogleTest program, run by ctest
#   hekla_test_cost(NAMES ...)   when ctest starts other tests that take long
#   hekla_plugin(NAME SOURCES ... DEPS ...)    build/lib/hekla/NAME.so, exporting GetPjrtApi alone

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
# Installed libraries find what lies beside them wherever they are moved; see cmake/install.cmake.
set(CMAKE_INSTALL_RPATH "$ORIGIN")
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME Runtime)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# -g1 keeps line numbers for backtraces and sanitizers at a third of the link time of -g.
# To optimize instrumented code takes longer than to compile it, so only what is HOT, loops over
# data and what reads programs, which fuzzers do a million times and deep down the stack, is optimized
# there, by -O2: clang's -O1 inlines nothing and takes no less time. Nothing with ThreadSanitizer, whose
# tests loop over little. GoogleTest's macros are most of what a test compiles: to optimize them costs a
# fifth of the time.
if(HEKLA_SANITIZER)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O0 -g1")
  if(HEKLA_SANITIZER MATCHES thread)
    set(HEKLA_HOT_OPTIMIZATION -O0)
  else()
    set(HEKLA_HOT_OPTIMIZATION -O2)
  endif()
  set(HEKLA_HOT_TEST_OPTIMIZATION ${HEKLA_HOT_OPTIMIZATION})
else()
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
  set(HEKLA_HOT_TEST_OPTIMIZATION -O1)
endif()
# Tests that would run longer for it than their compilation takes less are HOT.
set(HEKLA_TEST_OPTIMIZATION -O0)
# GCC collects its garbage when its heap has grown by half a gigabyte, which it hardly does: 3 to 15 %
# of a compilation for 60 to 150 MB more.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>)
# Floating-point results are part of the promise: no contraction into fused multiply-add.
add_compile_options(-Wall -Wextra -Werror -Wno-missing-field-initializers -ffp-contract=off)

# Most of a compilation goes into the headers, which the sources of a library share: eight sources
# together take half the time of eight apart. So names must be distinct in a whole library,
# anonymous namespaces included. Those who edit may prefer OFF, which compiles one source after a
# change instead of sixteen.
option(HEKLA_UNITY "Compile the sources of a library together" ON)
set(CMAKE_UNITY_BUILD ${HEKLA_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)

# It links in a third of the time of GNU's.
find_program(LLD_PROGRAM ld.lld)
if(LLD_PROGRAM)
  add_link_options(-fuse-ld=lld)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Two checkouts share one cache: paths are relative in what is hashed and in debug information.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
      CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)
endif()

if(HEKLA_SANITIZER)
  add_compile_options(-fsanitize=${HEKLA_SANITIZER} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HEKLA_SANITIZER})
  add_compile_definitions(HEKLA_SANITIZED)
  # LeakSanitizer guesses where the C library keeps a library's thread-local variables that came with
  # dlopen, and reads nonsense where such a block happens to begin 16 bytes into a page: one process in
  # some hundred dies of it. Variables in the space that every thread has anyway need no guess.
  if(HEKLA_SANITIZER MATCHES address)
    add_compile_options(-ftls-model=initial-exec)
  endif()
  # UBSan's checks of each access through a pointer are a third of a compilation without optimization. A null
  # or a stale one ends at AddressSanitizer as well, and what could lie at an odd address are the bytes of
  # others: only what reads them, READER and HOT, has all checks.
  if(HEKLA_SANITIZER MATCHES undefined)
    set(HEKLA_FEWER_CHECKS -fno-sanitize=null,alignment,vptr,object-size)
  endif()
  # GCC 12 reports std::variant's storage as uninitialized once it is instrumented; its manual says
  # that this warning is unreliable together with sanitizers.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()

# Checks of the compiler's own work, which cost a quarter of the time of a compilation.
if(HEKLA_SANITIZER OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_definitions(HEKLA_CHECKS)
endif()

# What commands are made of, which wait for disks and devices, is COLD: -O1 takes three quarters of the
# time of -O2 (the command, hekla ckpt, the conformance suite: 49 s of processor time, and 67).
function(hekla_cold name)
  if(NOT HEKLA_SANITIZER AND CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    target_compile_options(${name} PRIVATE -O1)
  endif()
endfunction()

# hekla_library(NAME [HOT] [COLD] [READER] SOURCES ... DEPS ...)
function(hekla_library name)
  cmake_parse_arguments(ARG "HOT;COLD;READER" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  if(ARG_HOT AND HEKLA_SANITIZER)
    target_compile_options(${name} PRIVATE ${HEKLA_HOT_OPTIMIZATION})
  endif()
  if(NOT ARG_HOT AND NOT ARG_READER)
    target_compile_options(${name} PRIVATE ${HEKLA_FEWER_CHECKS})
  endif()
  if(ARG_COLD)
    hekla_cold(${name})
  endif()
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
endfunction()

# Tests that take longest, the longest first: ctest starts them first, so that all cores have work to
# the end. Its own record replaces this after a run. By the instrumented build, whose order is that
# of the ordinary one but for a few. Programs of GoogleTest among them have the label "long": tools/test.sh
# draws their cases where HEKLA_TEST_SHARE says so.
set(HEKLA_LONG_TESTS
    random_programs_schedules_vulkan vulkan_codegen_device_test random_programs_attention_vulkan
    random_programs_attention_gpu cpu_jit_test compiler_test vulkan_submissions_test
    random_programs_kept random_programs_vulkan_masked vulkan_launch_test
    process_group_test checkpoint_save_files_test checkpoint_kill_sweep_full checkpoint_kill_sweep_save_full
    random_programs_schedules_cpu bytecode_test conformance_pjrt_vulkan
    conformance_pjrt_vulkan_two_devices conformance_pjrt_vulkan_staging checkpoint_save_test
    random_programs_vulkan cpu_contraction_test vulkan_recorded_devices_test
    checkpoint_restore_test vulkan_codegen_test random_programs_cpu random_programs_kept_masked
    cpu_analysis_test checkpoint_kill_sweep_save_test checkpoint_commit_test conformance_pjrt_cpu
    conformance_pjrt_cpu_two_devices reference_kernels_test text_test)

# Says so to ctest; after add_test.
function(hekla_test_cost)
  list(LENGTH HEKLA_LONG_TESTS length)
  foreach(name IN LISTS ARGN)
    list(FIND HEKLA_LONG_TESTS ${name} at)
    if(at GREATER_EQUAL 0)
      math(EXPR cost "100 + ${length} - ${at}")
      set_tests_properties(${name} PROPERTIES COST ${cost})
      if(name MATCHES "_test$|^conformance_")
        set_property(TEST ${name} APPEND PROPERTY LABELS long)
      endif()
    endif()
  endforeach()
endfunction()

# hekla_test(NAME [HOT] SOURCES ... DEPS ... LABELS ...)
function(hekla_test name)
  if(NOT HEKLA_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "HOT" "" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_compile_options(${name} PRIVATE $<IF:$<BOOL:${ARG_HOT}>,${HEKLA_HOT_TEST_OPTIMIZATION},${HEKLA_TEST_OPTIMIZATION}>
                         ${HEKLA_FEWER_CHECKS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE HEKLA_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                             HEKLA_BINARY_DIR="${PROJECT_BINARY_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  if(slow IN_LIST ARG_LABELS)
    set_tests_properties(${name} PROPERTIES COST 10)  # early, so that none is left over at the end
  endif()
  hekla_test_cost(${name})
endfunction()

function(hekla_plugin name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} MODULE ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL
                      -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/plugin.map)
  set_target_properties(${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY
                        ${CMAKE_BINARY_DIR}/lib/hekla LINK_DEPENDS
                        ${PROJECT_SOURCE_DIR}/cmake/plugin.map)
  install(TARGETS ${name} LIBRARY DESTINATION lib/hekla)
endfunction()
