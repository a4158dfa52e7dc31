// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/plugin.h"

#include "backends/pjrt/abi.h"

namespace hekla::pjrt {
namespace {

const BackendFactory* the_factory = nullptr;

PJRT_Api make_table() {
  PJRT_Api api = {};
  // The end of the last slot, which is the end of the struct.
  api.struct_size = sizeof(PJRT_Api);
  api.extension_start = extension_chain();
  api.pjrt_api_version.struct_size = PJRT_STRUCT_SIZE(PJRT_Api_Version, minor_version);
  api.pjrt_api_version.major_version = PJRT_API_MAJOR;
  api.pjrt_api_version.minor_version = PJRT_API_MINOR;
  add_error_and_event_slots(api);
  add_client_slots(api);
  add_device_slots(api);
  add_topology_slots(api);
  add_buffer_slots(api);
  add_transfer_slots(api);
  add_stream_slots(api);
  add_executable_slots(api);
  add_execute_slots(api);
  return api;
}

}  // namespace

const BackendFactory& backend_factory() { return *the_factory; }

const PJRT_Api* plugin_table(const BackendFactory& factory) {
  static const PJRT_Api table = [&] {
    the_factory = &factory;
    return make_table();
  }();
  return &table;
}

}  // namespace hekla::pjrt
