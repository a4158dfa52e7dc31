// SPDX-License-Identifier: Apache-2.0
// The profiler extension: recordings of what this plugin's devices do, for clients that write
// traces. Its callers leave struct sizes unset; their options say nothing of devices like these.
#include <map>
#include <mutex>

#include "backends/pjrt/abi.h"
#include "backends/pjrt/xspace.h"
#include "runtime/base/trace.h"

// A session of a client. One thread at a time.
struct PLUGIN_Profiler {
  hekla::TraceRecording recording;
  std::string collected;  // an XSpace
};

struct PLUGIN_Profiler_Error {
  std::string message;
};

namespace hekla::pjrt {
namespace {

struct DeviceNames {
  std::mutex mutex;
  std::map<int64_t, std::string> names;  // guarded by mutex
};

DeviceNames& device_names() {
  static auto* made = new DeviceNames;
  return *made;
}

std::string device_name(int64_t index) {
  DeviceNames& all = device_names();
  const std::lock_guard lock(all.mutex);
  const auto it = all.names.find(index);
  return it != all.names.end() ? it->second
                               : fmt::format("{}:{}", backend_factory().platform_name, index);
}

void error_destroy(PLUGIN_Profiler_Error_Destroy_Args* args) { delete args->error; }

void error_message(PLUGIN_Profiler_Error_Message_Args* args) {
  args->message = args->error->message.c_str();
  args->message_size = args->error->message.size();
}

PLUGIN_Profiler_Error* error_code(PLUGIN_Profiler_Error_GetCode_Args* args) {
  args->code = static_cast<int>(StatusCode::kInternal);
  return nullptr;
}

// No exception passes.
PLUGIN_Profiler_Error* guarded(const auto& work) {
  try {
    work();
    return nullptr;
  } catch (const std::exception& error) {
    return new PLUGIN_Profiler_Error{fmt::format("the profiler failed: {}", error.what())};
  }
}

PLUGIN_Profiler_Error* create(PLUGIN_Profiler_Create_Args* args) {
  return guarded([&] { args->profiler = new PLUGIN_Profiler; });
}

PLUGIN_Profiler_Error* destroy(PLUGIN_Profiler_Destroy_Args* args) {
  delete args->profiler;
  return nullptr;
}

PLUGIN_Profiler_Error* start(PLUGIN_Profiler_Start_Args* args) {
  return guarded([&] { args->profiler->recording.start(); });
}

PLUGIN_Profiler_Error* stop(PLUGIN_Profiler_Stop_Args* args) {
  return guarded([&] { args->profiler->recording.stop(); });
}

// Once for the bytes, or twice: some callers ask for the size first.
PLUGIN_Profiler_Error* collect_data(PLUGIN_Profiler_CollectData_Args* args) {
  return guarded([&] {
    PLUGIN_Profiler& profiler = *args->profiler;
    profiler.recording.stop();
    profiler.collected = xspace(profiler.recording, device_name);
    args->buffer = reinterpret_cast<uint8_t*>(profiler.collected.data());
    args->buffer_size_in_bytes = profiler.collected.size();
  });
}

PLUGIN_Profiler_Api profiler_api = {
    // jaxlib up to 0.10 demands exactly the size of the first eight functions.
    PJRT_STRUCT_SIZE(PLUGIN_Profiler_Api, collect_data),
    nullptr,
    error_destroy,
    error_message,
    error_code,
    create,
    destroy,
    start,
    stop,
    collect_data,
    nullptr,
    nullptr,
    nullptr,
};

PJRT_Profiler_Extension profiler_node = {
    {PJRT_STRUCT_SIZE(PJRT_Profiler_Extension, traceme_context_id), PJRT_Extension_Type_Profiler,
     nullptr},  // extension_chain() hangs the next one here
    &profiler_api,
    0,
};

}  // namespace

PJRT_Extension_Base* profiler_extension() { return &profiler_node.base; }

void set_traced_name(int local_index, const std::string& name) {
  DeviceNames& all = device_names();
  const std::lock_guard lock(all.mutex);
  all.names[local_index] = name;
}

void show_transfer(const PJRT_Device& device, const char* what, int64_t bytes,
                   const CompletionRef& done) {
  if (!Trace::is_on()) return;
  done->on_done([index = device.local_index, what, bytes, begin = Trace::now()](const Status&) {
    Trace::add({TraceLine::kTransfers,
                index,
                std::make_shared<const TraceDetail>(TraceDetail{what, {}}),
                begin,
                Trace::now(),
                {{"bytes_accessed", bytes}}});
  });
}

}  // namespace hekla::pjrt
