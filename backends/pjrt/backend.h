// SPDX-License-Identifier: Apache-2.0
// Backend: what a kind of device implements to stand behind the PJRT C API.
//
// The C API layer of this folder owns handles, argument checking, host layouts, donation rules,
// events and memory accounting by kind; a Backend owns devices, their memory, compiled programs and
// launches. One Backend serves one client; it is created by a factory and destroyed after all
// storages and executables that came from it. Every function may be called from several threads.
//
// Work is asynchronous: functions that take a `done` completion return at once, or soon, and the
// backend completes it from a thread of its own, also with errors. What the standard library throws
// (std::bad_alloc) counts as an error of the call; on threads of its own a backend catches it.
// docs/adding_a_backend.md walks through the smallest implementation, backends/reference/plugin.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "backends/compiler/compile.h"
#include "backends/ffi/launch.h"
#include "backends/pjrt/gang.h"
#include "runtime/base/async/completion.h"
#include "runtime/base/host_array.h"
#include "runtime/base/host_transfers.h"
#include "runtime/base/trace.h"
#include "runtime/program/ir/ir.h"

namespace hekla::pjrt {

// A device attribute, or an option of a client: string, integer, list, float or flag. Devices may
// have the first three kinds only.
using OptionValue = std::variant<std::string, int64_t, std::vector<int64_t>, float, bool>;
using Options = std::vector<std::pair<std::string, OptionValue>>;

struct DeviceInfo {
  std::string kind;       // model: "Hekla reference evaluator"
  std::string type_name;  // "ReferenceDevice", which prints as ReferenceDevice(id=0)
  Options attributes;
  // Kinds of memory; the first is the default and is called "device".
  std::vector<std::string> memory_kinds = {"device"};
  // Whether the host reads device memory through Storage::host_pointer at full speed.
  bool is_host_memory = false;
};

// Memory of one buffer, on one device. Shared by buffers, launches and copies that use it; freed
// with the last of them.
class Storage {
 public:
  virtual ~Storage() = default;
  virtual int64_t size_bytes() const = 0;
  // Where the bytes are visible to the host and stay as long as this object; null otherwise. Valid
  // once the storage has been written.
  virtual void* host_pointer() { return nullptr; }
  // Who will read the bytes as they are: while there are some no launch may consume the storage.
  std::atomic<int64_t> holds{0};
};
using StorageRef = std::shared_ptr<Storage>;

struct MemoryStats {
  int64_t bytes_in_use = 0;
  int64_t peak_bytes_in_use = 0;
  int64_t bytes_limit = 0;
  int64_t allocation_count = 0;
  int64_t largest_allocation_bytes = 0;
  // Of arrays in the host's kinds of memory; -1: not counted apart from the device's own.
  int64_t host_bytes_in_use = -1;
  int64_t peak_host_bytes_in_use = -1;
};

struct LaunchInput {
  StorageRef storage;
  // When the storage may be read; an error here makes the launch fail with it.
  CompletionRef ready;
  // The caller gives the storage up: its memory may become an output's.
  bool is_donated = false;
};

class CollectiveCounters;

struct Launch {
  int device = 0;  // among this process's
  std::vector<LaunchInput> inputs;
  int64_t replica = 0;
  int64_t partition = 0;
  int64_t launch_id = 0;
  uint32_t number = 0;  // how often the executable was launched before
  // Null where the program runs on one device. Once it is aborted the launch ends soon: it starts
  // no further step, and waits for nothing that may never come.
  GangRef gang;
  // Where the program meets its host; null where it does not. Its calls may block for long and
  // launch programs on the same device, so they hold up no launch but this one.
  std::shared_ptr<HostTransfers> transfers;
  // Of the device; null: nobody counts.
  std::shared_ptr<CollectiveCounters> collectives;
  // For functions of the user's.
  ffi::LaunchInfo info;
  // What profilers call it; null: none watches.
  TraceDetailRef trace;
  // Completed by the backend when all outputs are written, or with the launch's error.
  CompletionRef done;
  // The backend's answer: one per flat result of the entry function, tokens included (of size 0).
  std::vector<StorageRef> outputs;
};

struct CompileRequest {
  std::shared_ptr<const ir::Module> module;  // of one device, verified
  int64_t replica_count = 1;
  int64_t partition_count = 1;
  // Global device ids: of replica r and partition p at r * partition_count + p.
  std::vector<int64_t> device_assignment;
  // Whether devices wait for each other inside of the program. All of them are this process's then,
  // and every launch is a gang's.
  bool has_collectives = false;
  // Per flat result: the kind of memory that it is to lie in, by its number in
  // DeviceInfo::memory_kinds.
  std::vector<size_t> result_kinds;
  CompilerOptions options;
  // Equal programs with equal compile options have equal ones, others do not; empty: unknown.
  std::string fingerprint;
  // This process's devices of the assignment, by their numbers among its devices; empty: all. A
  // program without collectives may be launched on the others, too.
  std::vector<int> devices;
};

struct ProgramStats {
  int64_t generated_code_bytes = 0;
  int64_t temporary_bytes = 0;
  double flops = 0;
};

// A compiled program; may be launched many times at once.
class BackendExecutable {
 public:
  virtual ~BackendExecutable() = default;
  virtual ProgramStats stats() const = 0;
  // Enqueues all launches or none, each on another device, moving their inputs out and setting
  // their outputs. Does not wait for anything. Launches of a device whose inputs are there begin in
  // the order of the calls; one that waits for inputs, its own or a peer's, lets later ones pass,
  // since a callback may make the input with the help of those. With a gang each must come to run
  // although its peers do nothing but wait for it. An error means that nothing was enqueued and
  // `launches` are as they were; no `done` is then completed.
  virtual Status launch(std::span<Launch> launches) = 0;
  // What was made of the program, in one of the forms of plugin_api/hekla_inspection.h.
  // UNIMPLEMENTED: a form that this backend has not; lists those that it has.
  virtual Result<std::string> artefact(std::string_view form) const {
    return unimplemented("this device shows no form '{}' of an executable", form);
  }
  // Counts by name, as there.
  virtual std::vector<std::pair<std::string, int64_t>> statistics() const { return {}; }
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const std::string& platform_name() const = 0;  // "reference"
  virtual const std::string& platform_version() const = 0;
  virtual const std::vector<DeviceInfo>& devices() const = 0;

  // Uninitialized memory of the given kind. RESOURCE_EXHAUSTED names sizes and the limit.
  virtual Result<StorageRef> allocate(int device, size_t memory_kind, int64_t bytes) = 0;
  // Host memory that the backend may use in place: `release` runs when the storage goes. nullopt
  // semantics by UNIMPLEMENTED: the caller then allocates and copies.
  virtual Result<StorageRef> wrap_host_memory(int device, void* data, int64_t bytes,
                                              std::function<void()> release) = 0;
  virtual MemoryStats memory_stats(int device) const = 0;
  virtual void reset_peak_memory(int device) = 0;
  // What the device has done so far, by name: "launches", "submissions" ... Served as live
  // attributes "counter.launches" ... of the device.
  virtual std::vector<std::pair<std::string, int64_t>> counters(int) const { return {}; }

  // Copies; `source` and `target` stay valid until `done`. Offsets and sizes were checked.
  virtual void copy_from_host(const void* source, const StorageRef& target, int64_t target_offset,
                              int64_t bytes, CompletionRef done) = 0;
  virtual void copy_to_host(const StorageRef& source, int64_t source_offset, void* target,
                            int64_t bytes, CompletionRef done) = 0;
  virtual void copy(const StorageRef& source, const StorageRef& target, int64_t bytes,
                    CompletionRef done) = 0;

  virtual Result<std::unique_ptr<BackendExecutable>> compile(const CompileRequest& request) = 0;
};

// A kind of backend, known before there is a client.
struct BackendFactory {
  const char* platform_name;
  // INVALID_ARGUMENT: an option that it does not know or cannot use; FAILED_PRECONDITION: no
  // device.
  Result<std::unique_ptr<Backend>> (*create)(const Options& options);
};

}  // namespace hekla::pjrt
