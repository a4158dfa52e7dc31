// SPDX-License-Identifier: Apache-2.0
// A PJRT plugin that stands in front of another one, says on stderr what the client compiles and
// launches, and passes everything on. TRACED_PLUGIN is the path of the other library.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "plugin_api/pjrt_c_api.h"

namespace {

const PJRT_Api* traced = nullptr;

PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
  const PJRT_Program& program = *args->program;
  std::fprintf(stderr, "trace: compile %zu bytes of %.*s\n", program.code_size,
               static_cast<int>(program.format_size), program.format);
  return traced->PJRT_Client_Compile(args);
}

PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  std::fprintf(stderr, "trace: launch with %zu arguments\n", args->num_args);
  return traced->PJRT_LoadedExecutable_Execute(args);
}

const PJRT_Api* traced_api() {
  const char* path = std::getenv("TRACED_PLUGIN");
  void* library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* entry = library == nullptr ? nullptr : dlsym(library, "GetPjrtApi");
  if (entry == nullptr) {
    std::fprintf(stderr, "trace: TRACED_PLUGIN: %s\n", path == nullptr ? "not set" : dlerror());
    return nullptr;
  }
  return reinterpret_cast<const PJRT_Api* (*)()>(entry)();
}

// The other plugin's table with slots of ours. Both may be of other versions than this header: the
// smaller size holds.
const PJRT_Api* make_api() {
  traced = traced_api();
  if (traced == nullptr) return nullptr;
  static PJRT_Api api;
  const size_t size = std::min(traced->struct_size, sizeof api);
  std::memcpy(&api, traced, size);
  api.struct_size = size;
  api.PJRT_Client_Compile = compile;
  api.PJRT_LoadedExecutable_Execute = execute;
  return &api;
}

}  // namespace

const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api* const api = make_api();
  return api;
}
