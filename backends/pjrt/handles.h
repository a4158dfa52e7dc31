// SPDX-License-Identifier: Apache-2.0
// The objects behind the C API's handles. Internal to this folder.
//
// A client's devices, memories and callback thread live in ClientState, which buffers, events and
// executables share, so that handles may be destroyed in any order.
//
// The child of a fork() has none of the client's threads: there all that would start work or wait
// is refused (ClientState::check_process), and what is destroyed is left as it is.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/ffi/launch.h"
#include "backends/pjrt/backend.h"
#include "backends/pjrt/collective_counters.h"
#include "backends/pjrt/communicator.h"
#include "backends/pjrt/compile_options.h"
#include "backends/pjrt/gang_inputs.h"
#include "backends/pjrt/gang_network.h"
#include "backends/pjrt/layouts.h"
#include "backends/pjrt/partition.h"
#include "backends/pjrt/processes.h"
#include "plugin_api/pjrt_extensions.h"
#include "runtime/base/async/brief_wait.h"
#include "runtime/base/async/fork_mark.h"
#include "runtime/base/async/serial_queue.h"

namespace hekla::pjrt {

// Named values with the memory that they point to; addresses stay when it is not moved from.
struct NamedValues {
  std::deque<std::pair<std::string, OptionValue>> owned;
  std::vector<PJRT_NamedValue> values;
  void add(std::string name, OptionValue value);
};

struct ErrorObject : PJRT_Error {
  Status status;
};

struct ClientState;

struct MemoryObject : PJRT_Memory {
  int id = 0;
  std::string kind;
  int kind_id = 0;
  size_t kind_index = 0;  // among the device's kinds
  std::string debug_string;
  std::string to_string;
  std::vector<PJRT_Device*> devices;
  // Values that the client keeps with a memory, by key.
  struct UserData {
    void* data = nullptr;
    void (*destroy)(void*) = nullptr;
  };
  std::mutex user_mutex;
  std::map<const void*, UserData> user_data;  // guarded by user_mutex
  ~MemoryObject();
};

}  // namespace hekla::pjrt

struct PJRT_Device_Attributes {
  hekla::pjrt::NamedValues values;
};

struct PJRT_DeviceDescription {
  int id = 0;  // global: counted over all processes
  int process_index = 0;
  std::string debug_string;  // "reference:0"
  std::string to_string;     // "ReferenceDevice(id=0)"
  hekla::pjrt::DeviceInfo info;
  hekla::pjrt::NamedValues attributes;
  // Kinds for the MemoryDescriptions extension; default first.
  struct Kind {
    std::string name;
    int id = 0;
  };
  std::vector<Kind> kinds;
  std::vector<const PJRT_MemoryDescription*> kind_pointers;
};

struct PJRT_Device {
  PJRT_DeviceDescription* description = nullptr;  // owned by the topology
  hekla::pjrt::ClientState* state = nullptr;      // owner of this device
  std::vector<PJRT_Memory*> memories;             // none of another process's device
  // Among this process's devices, by which the backend knows it; -1: another process's.
  int local_index = -1;
  // Shared with launches.
  std::shared_ptr<hekla::pjrt::CollectiveCounters> collectives =
      std::make_shared<hekla::pjrt::CollectiveCounters>();
  bool is_addressable() const { return local_index >= 0; }
};

struct PJRT_TopologyDescription {
  std::string platform_name;
  std::string platform_version;
  std::vector<std::unique_ptr<PJRT_DeviceDescription>> descriptions;
  std::vector<PJRT_DeviceDescription*> pointers;
  std::vector<int> memory_kind_ids;  // of all devices, each once
  hekla::pjrt::NamedValues attributes;
};

namespace hekla::pjrt {

struct ClientState {
  // Its end waits for its threads, and does nothing where they are those of a parent process.
  static std::shared_ptr<ClientState> make();
  ClientState(const ClientState&) = delete;
  ClientState& operator=(const ClientState&) = delete;
  // The communicators first: launches that the backend waits for may wait for devices that are
  // never launched again.
  ~ClientState() { communicators.clear(); }
  bool is_inherited() const { return made_in.is_inherited(); }
  // FAILED_PRECONDITION: this process is a fork of the client's.
  Status check_process() const;

  const ForkMark made_in;
  std::mutex gang_mutex;  // held while a gang of several processes is numbered and enqueued
  ProcessOptions process;
  GangOptions gang;
  GangInputs gang_inputs;
  std::shared_ptr<KeyValueStore> store;  // null: one process
  std::shared_ptr<GangNetwork> network;  // the same; shared with launches
  std::mutex communicators_mutex;
  // Guarded by communicators_mutex; by replica count and device ids.
  std::map<std::pair<int64_t, std::vector<int64_t>>, std::shared_ptr<Communicator>> communicators;
  std::unique_ptr<Backend> backend;
  std::shared_ptr<PJRT_TopologyDescription> topology;
  std::vector<std::unique_ptr<PJRT_Device>> devices;
  std::vector<PJRT_Device*> device_pointers;
  std::vector<PJRT_Device*> addressable_pointers;  // this process's, by local index
  std::vector<std::unique_ptr<MemoryObject>> memories;
  std::vector<PJRT_Memory*> memory_pointers;
  SerialQueue callbacks{{.starts_now = true, .takes_signals = true}};

 private:
  ClientState() = default;
};
using StateRef = std::shared_ptr<ClientState>;

// The flat parameters and results of a program, in the C API's form.
struct ArrayInfo {
  DType dtype = DType::kInvalid;  // kInvalid: a token
  Dims dims;
  std::string memory_kind = "device";
  Order order;
  // Those whose size is a launch's; `dims` has their bounds.
  std::vector<size_t> bounded;
  int64_t size_bytes() const {
    return dtype == DType::kInvalid ? 0 : element_count(dims) * dtype_bytes(dtype);
  }
};

// What PJRT_Executable and PJRT_LoadedExecutable share; immutable.
struct Program {
  std::string name;
  std::string code;     // as the client sent it, or one device's (OneDeviceShardings)
  std::string options;  // serialized CompileOptionsProto
  CompileOptions parsed_options;
  CompilerOptions compiler_options;
  std::string fingerprint;
  PartitionedProgram partitioned;
  // The same on arrays as they lie in memory, with the sizes of bounded dimensions behind all other
  // parameters and results: what is compiled.
  std::shared_ptr<const ir::Module> in_memory;
  // Of one device.
  std::vector<ArrayInfo> parameters;
  std::vector<ArrayInfo> results;
  std::vector<bool> is_donated;  // per parameter
  bool asks_for_host_compute = false;
  // Query results, which must live as long as the executable.
  std::vector<PJRT_Buffer_Type> result_types;
  std::vector<int64_t> result_dims;
  std::vector<size_t> result_ranks;
  std::vector<const char*> result_kinds, parameter_kinds;
  std::vector<size_t> result_kind_sizes, parameter_kind_sizes;
  NamedValues cost;
  std::vector<std::string> parameter_shardings, result_shardings;
  std::vector<const char*> parameter_sharding_pointers, result_sharding_pointers;
  std::vector<size_t> parameter_sharding_sizes, result_sharding_sizes;
  std::vector<std::unique_ptr<PJRT_Layouts_MemoryLayout>> layouts;
  std::vector<PJRT_Layouts_MemoryLayout*> parameter_layouts, result_layouts;
  std::string device_assignment;  // serialized DeviceAssignmentProto
  ProgramStats stats;

  struct Printed {
    std::string_view format;  // "mlir", or "hlo_with_config" of what came as HLO
    std::string_view code;
  };
  // For clients that read an executable's program: one device's, with its shardings. Made when
  // first asked for; any thread.
  Printed optimized() const;

 private:
  mutable std::once_flag made_optimized_;
  mutable std::string_view optimized_format_ = "mlir";
  mutable std::string optimized_;
};

// Of the flat parameters and results of a program that is one device's already: an executable was
// serialized behind the client's own functions for partitioning.
struct OneDeviceShardings {
  std::vector<sharding::HloSharding> parameters, results;
};

// With `one_device` the program is not partitioned again, and has had custom partitions.
Result<std::shared_ptr<Program>> make_program(std::string_view code, std::string_view options,
                                              const OneDeviceShardings* one_device = nullptr);

}  // namespace hekla::pjrt

struct PJRT_Layouts_MemoryLayout {
  std::string text;
};

struct PJRT_Client {
  hekla::pjrt::StateRef state;
};

struct PJRT_Event {
  hekla::CompletionRef completion;
  hekla::pjrt::StateRef state;  // for its callback thread; null for events without a client
};

struct PJRT_Buffer {
  hekla::pjrt::StateRef state;
  PJRT_Device* device = nullptr;
  hekla::pjrt::MemoryObject* memory = nullptr;
  hekla::DType dtype = hekla::DType::kInvalid;  // kInvalid: a token
  hekla::Dims dims;
  hekla::pjrt::Order order;
  hekla::CompletionRef ready;
  // Dimensions that have a size of their own, at most that of `dims`, and where it lies, a scalar
  // s32.
  std::vector<size_t> bounded;
  std::vector<hekla::pjrt::StorageRef> sizes;

  std::mutex mutex;  // guards what follows
  // With those sizes, once somebody has asked for them; then it stays as it is.
  std::unique_ptr<const hekla::Dims> unpadded;
  // Null while a launch has it that consumes it, and once nobody needs it.
  hekla::pjrt::StorageRef storage;
  // Deleted buffers cannot be used; those with references from outside keep their storage.
  bool is_deleted = false;
  int64_t external_references = 0;
  bool is_usable() const { return storage != nullptr && !is_deleted; }
  int64_t size_bytes() const {
    return dtype == hekla::DType::kInvalid ? 0
                                           : hekla::element_count(dims) * hekla::dtype_bytes(dtype);
  }
};

struct PJRT_Executable {
  std::shared_ptr<const hekla::pjrt::Program> program;
};

struct PJRT_LoadedExecutable {
  hekla::pjrt::StateRef state;
  std::shared_ptr<const hekla::pjrt::Program> program;
  std::vector<PJRT_Device*> devices;  // in the order of Execute
  std::vector<PJRT_LogicalDeviceIds> logical_ids;
  std::shared_ptr<const hekla::pjrt::GangNames> gang_names;  // null: one device
  hekla::pjrt::GangProgramRef gang_program;  // null: its devices meet none of other processes
  std::vector<int64_t> device_ids;  // of all processes, by replica * partition_count + partition
  std::mutex mutex;
  std::shared_ptr<hekla::pjrt::BackendExecutable> executable;  // guarded by mutex; null: deleted
  std::atomic<uint32_t> launches = 0;
  hekla::BriefWait brief;  // for launches that call their host
};

struct PJRT_ExecuteContext {
  // Launches keep what was there when they began.
  std::shared_ptr<hekla::ffi::UserData> user_data = std::make_shared<hekla::ffi::UserData>();
};
