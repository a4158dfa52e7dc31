// SPDX-License-Identifier: Apache-2.0
// The profiler extension: recordings of what this plugin's devices do, for clients that write
// traces. Its callers leave struct sizes unset; their options say nothing of devices like these.
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

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

// Transfers that began while somebody recorded. Whoever waits for one may stop the recording before
// the thread that ended it comes to say so here: what is done by then counts.
class Transfers {
 public:
  void begin(TraceSpan span, const CompletionRef& done) {
    uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = next_++;
      under_way_.emplace(number, std::pair(std::move(span), done));
    }
    done->on_done([this, number](const Status&) {
      const std::lock_guard lock(mutex_);
      const auto it = under_way_.find(number);
      if (it != under_way_.end()) end(it);
    });
  }

  void end_those_done() {
    const std::lock_guard lock(mutex_);
    for (auto it = under_way_.begin(); it != under_way_.end();) {
      it = it->second.second->is_done() ? end(it) : std::next(it);
    }
  }

 private:
  using UnderWay = std::map<uint64_t, std::pair<TraceSpan, CompletionRef>>;

  // Under the lock, so that no recording stops between the two.
  UnderWay::iterator end(UnderWay::iterator it) {
    TraceSpan& span = it->second.first;
    span.end_ns = Trace::now();
    Trace::add(std::move(span));
    return under_way_.erase(it);
  }

  std::mutex mutex_;
  uint64_t next_ = 0;   // guarded by mutex_
  UnderWay under_way_;  // guarded by mutex_
};

Transfers& transfers() {
  static auto* made = new Transfers;
  return *made;
}

void stop(TraceRecording& recording) {
  transfers().end_those_done();
  recording.stop();
}

// Made when the table is, since later there may be no memory for it.
PLUGIN_Profiler_Error& out_of_memory_error() {
  static auto* const made = new PLUGIN_Profiler_Error{"the profiler is out of host memory"};
  return *made;
}

void error_destroy(PLUGIN_Profiler_Error_Destroy_Args* args) {
  if (args->error != &out_of_memory_error()) delete args->error;
}

void error_message(PLUGIN_Profiler_Error_Message_Args* args) {
  if (args->error == nullptr) {
    args->message = "";
    args->message_size = 0;
    return;
  }
  args->message = args->error->message.c_str();
  args->message_size = args->error->message.size();
}

PLUGIN_Profiler_Error* error_code(PLUGIN_Profiler_Error_GetCode_Args* args) {
  args->code = static_cast<int>(StatusCode::kInternal);
  return nullptr;
}

// No exception passes.
PLUGIN_Profiler_Error* guarded(const auto& work) {
  const Status status = status_of_work([&] {
    work();
    return ok_status();
  });
  if (status.ok()) return nullptr;
  try {
    return new PLUGIN_Profiler_Error{fmt::format("the profiler failed: {}", status.message())};
  } catch (const std::exception&) {
    return &out_of_memory_error();
  }
}

// Of a call on a session.
PLUGIN_Profiler_Error* guarded(PLUGIN_Profiler* profiler, const auto& work) {
  return guarded([&] {
    if (profiler == nullptr) throw std::invalid_argument("there is no session");
    work();
  });
}

PLUGIN_Profiler_Error* create(PLUGIN_Profiler_Create_Args* args) {
  return guarded([&] { args->profiler = new PLUGIN_Profiler; });
}

PLUGIN_Profiler_Error* destroy(PLUGIN_Profiler_Destroy_Args* args) {
  return guarded([&] { delete args->profiler; });
}

PLUGIN_Profiler_Error* start(PLUGIN_Profiler_Start_Args* args) {
  return guarded(args->profiler, [&] { args->profiler->recording.start(); });
}

PLUGIN_Profiler_Error* stop(PLUGIN_Profiler_Stop_Args* args) {
  return guarded(args->profiler, [&] { stop(args->profiler->recording); });
}

// Once for the bytes, or twice: some callers ask for the size first.
PLUGIN_Profiler_Error* collect_data(PLUGIN_Profiler_CollectData_Args* args) {
  return guarded(args->profiler, [&] {
    PLUGIN_Profiler& profiler = *args->profiler;
    stop(profiler.recording);
    profiler.collected = xspace(profiler.recording,
                                first_plane_number(backend_factory().platform_name), device_name);
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

PJRT_Extension_Base* profiler_extension() {
  static_cast<void>(out_of_memory_error());
  return &profiler_node.base;
}

void set_traced_name(int local_index, const std::string& name) {
  DeviceNames& all = device_names();
  const std::lock_guard lock(all.mutex);
  all.names[local_index] = name;
}

void show_transfer(const PJRT_Device& device, const char* what, int64_t bytes,
                   const CompletionRef& done) {
  if (!Trace::is_on()) return;
  transfers().begin({TraceLine::kTransfers,
                     device.local_index,
                     std::make_shared<const TraceDetail>(TraceDetail{what, {}}),
                     Trace::now(),
                     0,
                     {{"bytes_accessed", bytes}}},
                    done);
}

}  // namespace hekla::pjrt
