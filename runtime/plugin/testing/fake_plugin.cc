// SPDX-License-Identifier: Apache-2.0
// A tiny PJRT plugin for tests, built once per kind of behaviour (FAKE_KIND): most are broken in
// one way. It has one device and computes nothing.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "plugin_api/pjrt_c_api.h"

#define FAKE_works 0
#define FAKE_no_symbol 1
#define FAKE_null_table 2
#define FAKE_old_minor 3
#define FAKE_other_major 4
#define FAKE_minor_56 5
#define FAKE_short_table 6
#define FAKE_tiny_table 7
#define FAKE_init_fails 8
#define FAKE_create_fails 9
#define FAKE_init_aborts 10
#define FAKE_init_hangs 11
#define FAKE_no_device 12
#define FAKE_undefined_symbol 13

struct FakeError : PJRT_Error {
  PJRT_Error_Code code;
  const char* text;
};

namespace {

PJRT_Error* fail(PJRT_Error_Code code, const char* text) {
  auto* error = new FakeError;
  error->vtable = nullptr;
  error->code = code;
  error->text = text;
  return error;
}

void error_destroy(PJRT_Error_Destroy_Args* args) { delete static_cast<FakeError*>(args->error); }
void error_message(PJRT_Error_Message_Args* args) {
  args->message = static_cast<const FakeError*>(args->error)->text;
  args->message_size = std::strlen(args->message);
}
PJRT_Error* error_code(PJRT_Error_GetCode_Args* args) {
  args->code = static_cast<const FakeError*>(args->error)->code;
  return nullptr;
}

PJRT_Error* initialize(PJRT_Plugin_Initialize_Args*) {
  if (FAKE_KIND == FAKE_init_fails) {
    return fail(PJRT_Error_Code_UNAVAILABLE, "the fake driver is not running");
  }
  if (FAKE_KIND == FAKE_init_aborts) {
    std::fprintf(stderr, "F0000 fake.cc:1] Check failed: chips detected\n");
    std::abort();
  }
  if (FAKE_KIND == FAKE_init_hangs) {
    for (;;) pause();
  }
  return nullptr;
}

const int64_t kVersion[] = {1, 13, 7};
PJRT_Error* attributes(PJRT_Plugin_Attributes_Args* args) {
  static PJRT_NamedValue values[2] = {};
  values[0].name = "stablehlo_current_version";
  values[0].name_size = std::strlen(values[0].name);
  values[0].type = PJRT_NamedValue_kInt64List;
  values[0].int64_array_value = kVersion;
  values[0].value_size = 3;
  values[1].name = "initialize_skips";
  values[1].name_size = std::strlen(values[1].name);
  values[1].type = PJRT_NamedValue_kString;
  const char* skip = std::getenv("TPU_SKIP_MDS_QUERY");
  values[1].string_value = skip == nullptr ? "" : skip;
  values[1].value_size = std::strlen(values[1].string_value);
  args->attributes = values;
  args->num_attributes = 2;
  return nullptr;
}

int client_storage, device_storage, description_storage;
PJRT_Device* const kDevices[] = {reinterpret_cast<PJRT_Device*>(&device_storage)};

PJRT_Error* client_create(PJRT_Client_Create_Args* args) {
  if (FAKE_KIND == FAKE_create_fails) {
    return fail(PJRT_Error_Code_FAILED_PRECONDITION, "No visible fake devices.");
  }
  for (size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue& option = args->create_options[i];
    if (std::strncmp(option.name, "fail", option.name_size) == 0 && option.bool_value) {
      return fail(PJRT_Error_Code_INVALID_ARGUMENT, "asked to fail by an option");
    }
  }
  args->client = reinterpret_cast<PJRT_Client*>(&client_storage);
  return nullptr;
}
PJRT_Error* client_destroy(PJRT_Client_Destroy_Args*) { return nullptr; }
PJRT_Error* platform_name(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = "fake";
  args->platform_name_size = 4;
  return nullptr;
}
PJRT_Error* devices(PJRT_Client_Devices_Args* args) {
  args->devices = kDevices;
  args->num_devices = FAKE_KIND == FAKE_no_device ? 0 : 1;
  return nullptr;
}
PJRT_Error* addressable_devices(PJRT_Client_AddressableDevices_Args* args) {
  args->addressable_devices = kDevices;
  args->num_addressable_devices = FAKE_KIND == FAKE_no_device ? 0 : 1;
  return nullptr;
}
PJRT_Error* description(PJRT_Device_GetDescription_Args* args) {
  args->device_description = reinterpret_cast<PJRT_DeviceDescription*>(&description_storage);
  return nullptr;
}
PJRT_Error* description_id(PJRT_DeviceDescription_Id_Args* args) {
  args->id = 7;
  return nullptr;
}
PJRT_Error* description_kind(PJRT_DeviceDescription_Kind_Args* args) {
  args->device_kind = "fake device";
  args->device_kind_size = 11;
  return nullptr;
}

PJRT_Api make_table() {
  PJRT_Api api = {};
  api.struct_size = PJRT_STRUCT_SIZE(PJRT_Api, PJRT_TopologyDescription_GetMemorySpaceKindIds);
  if (FAKE_KIND == FAKE_short_table) api.struct_size = offsetof(PJRT_Api, PJRT_Client_Create);
  if (FAKE_KIND == FAKE_tiny_table) api.struct_size = offsetof(PJRT_Api, pjrt_api_version);
  api.pjrt_api_version.struct_size = PJRT_STRUCT_SIZE(PJRT_Api_Version, minor_version);
  api.pjrt_api_version.major_version = FAKE_KIND == FAKE_other_major ? 1 : 0;
  api.pjrt_api_version.minor_version = FAKE_KIND == FAKE_old_minor  ? 28
                                       : FAKE_KIND == FAKE_minor_56 ? 56
                                                                    : 114;
  api.PJRT_Error_Destroy = error_destroy;
  api.PJRT_Error_Message = error_message;
  api.PJRT_Error_GetCode = error_code;
  api.PJRT_Plugin_Initialize = initialize;
  api.PJRT_Plugin_Attributes = attributes;
  api.PJRT_Client_Create = client_create;
  api.PJRT_Client_Destroy = client_destroy;
  api.PJRT_Client_PlatformName = platform_name;
  api.PJRT_Client_Devices = devices;
  api.PJRT_Client_AddressableDevices = addressable_devices;
  api.PJRT_Device_GetDescription = description;
  api.PJRT_DeviceDescription_Id = description_id;
  api.PJRT_DeviceDescription_Kind = description_kind;
  return api;
}

}  // namespace

#if FAKE_KIND == FAKE_undefined_symbol
extern "C" int hekla_symbol_that_nobody_defines();
#endif

#if FAKE_KIND != FAKE_no_symbol
extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi(void) {
#if FAKE_KIND == FAKE_undefined_symbol
  hekla_symbol_that_nobody_defines();
#endif
  static const PJRT_Api api = make_table();
  return FAKE_KIND == FAKE_null_table ? nullptr : &api;
}
#else
extern "C" __attribute__((visibility("default"))) const void* hekla_unused() {
  static const PJRT_Api api = make_table();
  return &api;
}
#endif
