// SPDX-License-Identifier: Apache-2.0
// A plugin that is broken in one way, chosen by a definition at build time. What is not broken
// returns UNIMPLEMENTED with words. For the tests of the conformance runner.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "plugin_api/pjrt_c_api.h"

namespace {

constexpr char kMessage[] = "the test plugin does nothing";
PJRT_Error the_error = {nullptr};

// For every slot, with its own type. Some return nothing.
template <typename Result, typename Args>
Result unimplemented(Args*) {
  return static_cast<Result>(&the_error);
}

void error_destroy(PJRT_Error_Destroy_Args*) {}

void error_message(PJRT_Error_Message_Args* args) {
  args->message = kMessage;
  args->message_size = std::strlen(kMessage);
}

PJRT_Error* error_code(PJRT_Error_GetCode_Args* args) {
  args->code = PJRT_Error_Code_UNIMPLEMENTED;
  return nullptr;
}

PJRT_Error* initialize(PJRT_Plugin_Initialize_Args*) { return nullptr; }

[[maybe_unused]] PJRT_Error* client_create(PJRT_Client_Create_Args*) {
#if defined(BROKEN_HANGS)
  while (true) pause();
#elif defined(BROKEN_ABORTS)
  static const char kWords[] = "words before the end\n";
  if (write(2, kWords, sizeof(kWords) - 1) < 0) return &the_error;
  std::abort();
#elif defined(BROKEN_EXITS)
  _exit(0);
#elif defined(BROKEN_THROWS)
  throw 7;
#else
  return &the_error;
#endif
}

PJRT_Api make_api() {
  PJRT_Api api;
  std::memset(static_cast<void*>(&api), 0, sizeof(api));
  api.struct_size = sizeof(api);
  api.pjrt_api_version.struct_size = sizeof(PJRT_Api_Version);
  api.pjrt_api_version.major_version = PJRT_API_MAJOR;
  api.pjrt_api_version.minor_version = PJRT_API_MINOR;
#define HEKLA_SLOT_INFO(name, since, null) api.name = unimplemented;
#include "plugin_api/conformance/slots.inc"
#undef HEKLA_SLOT_INFO
  api.PJRT_Error_Destroy = error_destroy;
  api.PJRT_Error_Message = error_message;
  api.PJRT_Error_GetCode = error_code;
  api.PJRT_Plugin_Initialize = initialize;
  api.PJRT_Client_Create = client_create;
#if defined(BROKEN_NULL_SLOT)
  api.PJRT_Buffer_IsOnCpu = nullptr;
  api.PJRT_Client_Load = nullptr;
#elif defined(BROKEN_OLD)
  api.pjrt_api_version.minor_version = 28;
#elif defined(BROKEN_SHORT_TABLE)
  api.struct_size = offsetof(PJRT_Api, PJRT_Client_Compile);
#endif
  return api;
}

}  // namespace

#if defined(BROKEN_NO_SYMBOL)
#define ENTRY_POINT SomethingElse
#else
#define ENTRY_POINT GetPjrtApi
#endif

extern "C" __attribute__((visibility("default"))) const PJRT_Api* ENTRY_POINT(void) {
  [[maybe_unused]] static const PJRT_Api kApi = make_api();
#if defined(BROKEN_NULL_TABLE)
  return nullptr;
#else
  return &kApi;
#endif
}
