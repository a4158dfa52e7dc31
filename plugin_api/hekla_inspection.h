// SPDX-License-Identifier: Apache-2.0
// What a plugin shows of an executable: the code that was made of a program, and counts.
//
// Hekla's own extension of the PJRT C API. A client that knows its type finds a node
// Hekla_Inspection_Extension in PJRT_Api.extension_start; others pass it by. Every plugin may serve
// it. Texts are for people and change from release to release.
#pragma once

#include "plugin_api/pjrt_c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

// Far from the types that OpenXLA gives out, which count from 0.
enum { Hekla_Extension_Type_Inspection = 900 };

typedef struct Hekla_Inspection_Holder Hekla_Inspection_Holder;

// One form of the executable. Forms of Hekla's plugins: "plan" (the steps of a launch), "kernels"
// (scalar code), "schedules" (how each kernel runs), "implementations" (why so), "llvm" and "asm"
// (CPU), "spirv-asm" and "spirv:N" (Vulkan; the second is the binary module of kernel N).
// "plan:json", "kernels:json" and "implementations:json" are the same as JSON.
// UNIMPLEMENTED lists the forms that there are.
typedef struct Hekla_Executable_Artefact_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;                        // in
  const char* form;                                         // in
  size_t form_size;                                         // in
  const char* bytes;                                        // out, owned by holder
  size_t bytes_size;                                        // out
  Hekla_Inspection_Holder* holder;                          // out
  void (*holder_deleter)(Hekla_Inspection_Holder* holder);  // out
} Hekla_Executable_Artefact_Args;

// Counts of the executable and of its launches so far, int64 each. Names of Hekla's plugins:
// kernels, steps, host_steps, compiled_kernels, loaded_kernels (from the cache on disk),
// code_bytes, arenas, arena_bytes (of all), constant_bytes, host_steps_run, launches, submissions,
// dispatches.
typedef struct Hekla_Executable_Statistics_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;                        // in
  const PJRT_NamedValue* values;                            // out, owned by holder
  size_t num_values;                                        // out
  Hekla_Inspection_Holder* holder;                          // out
  void (*holder_deleter)(Hekla_Inspection_Holder* holder);  // out
} Hekla_Executable_Statistics_Args;

typedef PJRT_Error* Hekla_Executable_Artefact_Fn(Hekla_Executable_Artefact_Args* args);
typedef PJRT_Error* Hekla_Executable_Statistics_Fn(Hekla_Executable_Statistics_Args* args);

typedef struct Hekla_Inspection_Extension {
  PJRT_Extension_Base base;
  Hekla_Executable_Artefact_Fn* executable_artefact;
  Hekla_Executable_Statistics_Fn* executable_statistics;
} Hekla_Inspection_Extension;

#ifdef __cplusplus
}  // extern "C"
#endif
