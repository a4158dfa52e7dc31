// SPDX-License-Identifier: Apache-2.0
// Client: a plugin's devices, memories, buffers and executables with C++ ownership.
//
// Every object owns its handle of the C API and keeps the client alive, so they may be destroyed in
// any order. All are movable and not copyable, except Client, whose copies are the same client, and
// Device and Memory, which are cheap views that are valid as long as it. Launches and transfers are
// asynchronous; their errors come out of the Event, or of whatever reads the result. Objects may be
// used from several threads as long as nobody moves or destroys them meanwhile. Errors of the
// plugin come back with their code; a function that the plugin lacks gives UNIMPLEMENTED.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/client/compile_options.h"
#include "runtime/client/event.h"
#include "runtime/plugin/plugin.h"
#include "runtime/rendezvous/key_value_store.h"

namespace hekla::runtime {

class Buffer;
class Client;
class Executable;
struct ClientState;  // the plugin, the client handle, its devices and memories

class Memory {
 public:
  const std::string& kind() const;  // "device", "pinned_host", "unpinned_host"
  int id() const;
  PJRT_Memory* handle() const { return handle_; }

 private:
  friend class Client;
  friend class Device;
  friend class Buffer;
  friend struct ClientState;
  Memory(const ClientState* state, PJRT_Memory* handle) : state_(state), handle_(handle) {}
  const ClientState* state_;
  PJRT_Memory* handle_;
};

// Numbers of one device; those that the plugin does not tell are empty.
struct MemoryStats {
  int64_t bytes_in_use = 0;
  std::optional<int64_t> peak_bytes_in_use;
  std::optional<int64_t> bytes_limit;
};

class Device {
 public:
  int id() const;  // global, non-negative
  int process_index() const;
  bool is_addressable() const;      // by this process
  const std::string& kind() const;  // the model
  const std::string& debug_string() const;
  // The description's attributes and, from 0.92 on, the live device's.
  const Options& attributes() const;
  // The value of a string attribute, or "".
  std::string string_attribute(std::string_view name) const;
  const std::vector<Memory>& memories() const;
  // NOT_FOUND when the plugin has no memories.
  Result<Memory> default_memory() const;
  Result<MemoryStats> memory_stats() const;
  // What the device has done since its client was made, by name: "launches", "submissions" ...;
  // empty for plugins that do not say.
  std::vector<std::pair<std::string, int64_t>> counters() const;
  PJRT_Device* handle() const { return handle_; }
  bool operator==(const Device& other) const { return handle_ == other.handle_; }

 private:
  friend class Client;
  friend class Buffer;
  friend class Executable;
  friend struct ClientState;
  Device(const ClientState* state, PJRT_Device* handle) : state_(state), handle_(handle) {}
  const ClientState* state_;
  PJRT_Device* handle_;
};

class Upload;

class Buffer {
 public:
  Buffer() = default;  // empty
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { destroy(); }

  bool is_empty() const { return handle_ == nullptr; }
  // kInvalid for tokens and for types newer than this runtime.
  DType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  std::string shape() const { return shape_string(dtype_, dims_); }

  Result<Device> device() const;
  Result<Memory> memory() const;
  Result<int64_t> on_device_bytes() const;
  // Becomes ready when the contents are there, with the error of whatever computes them.
  Result<Event> ready() const;
  // Waits for the contents and copies them, dense and row-major. Types below eight bits take one
  // byte each. After DEADLINE_EXCEEDED the copy may still be running; nothing is lost by it.
  Result<HostArray> to_host(Deadline deadline = Deadline::never()) const;
  // Whether device memory holds the elements as HostArray does, so that copy_raw gives them: dense,
  // row-major, whole bytes. False also where the plugin does not tell.
  bool is_raw_host_layout() const;
  // Copies bytes [offset, offset + into.size()) of device memory; `into` must stay until the event
  // is ready, which also waits for the contents. UNIMPLEMENTED before version 0.57.
  Result<Event> copy_raw(int64_t offset, std::span<std::byte> into) const;
  // An external reference: while there is one, no launch may consume the buffer. Where
  // is_kept_by_references() (Hekla's plugins), such a launch works on a copy; other plugins may
  // refuse it.
  bool is_kept_by_references() const;
  Status add_reference() const;
  Status drop_reference() const;
  // Whether the plugin says that the host reads and writes this memory as its own.
  bool is_on_host() const;
  // Where it does: waits for the contents and gives their address. The memory stays as long as this
  // buffer is neither freed nor consumed, or has a reference. UNIMPLEMENTED where there is none.
  Result<void*> host_address() const;
  // Some dimensions have a size of their own, below that of dims().
  bool has_bounded_dims() const;
  // Another buffer on the same memory and contents, which stays when this one is freed; what
  // consumes this one changes both, unless it has references. UNIMPLEMENTED where plugins or
  // layouts have none.
  Result<Buffer> alias() const;
  // Hands memory and contents over to a new buffer; this one is freed. FAILED_PRECONDITION: it has
  // references; UNIMPLEMENTED before version 0.88.
  Result<Buffer> donate() const;
  // An independent copy in another memory or device of the same client.
  Result<Buffer> copy_to(const Memory& memory) const;
  Result<Buffer> copy_to(const Device& device) const;
  // Gives the device memory back once running launches are done; also true after donation.
  Status free() const;
  Result<bool> is_freed() const;
  // What it is a buffer of; not of an empty one.
  Client client() const;
  PJRT_Buffer* handle() const { return handle_; }

 private:
  friend class Client;
  friend class Executable;
  // Takes ownership and asks for dtype and dimensions.
  static Result<Buffer> adopt(std::shared_ptr<ClientState> state, PJRT_Buffer* handle);
  void destroy();

  std::shared_ptr<ClientState> state_;
  PJRT_Buffer* handle_ = nullptr;
  DType dtype_ = DType::kInvalid;
  Dims dims_;
};

struct LaunchOptions {
  // Inputs that the program would consume and must not.
  std::vector<int64_t> non_donatable_inputs;
  // Equal on all processes for the same launch; 0 for none.
  int launch_id = 0;
  // Of the executable's devices the only one that is launched; there are arguments, callbacks and
  // outputs for one device then. Devices that meet in the program are each launched so, in any
  // order.
  std::optional<size_t> device = {};
  // Where the program meets its host: each device's callbacks, as many on all; empty: none. What
  // they point to stays until the launch has ended.
  std::vector<std::vector<PJRT_SendCallbackInfo>> sends = {};
  std::vector<std::vector<PJRT_RecvCallbackInfo>> receives = {};
};

// What a launch returns at once: outputs[d][o] on the executable's d-th device.
struct Launch {
  std::vector<std::vector<Buffer>> outputs;
  // One per device, ready when its part has ended.
  std::vector<Event> done;
  // Waits for all devices; the first error.
  Status await(Deadline deadline = Deadline::never()) const;
};

class Executable {
 public:
  Executable(Executable&& other) noexcept { *this = std::move(other); }
  Executable& operator=(Executable&& other) noexcept;
  ~Executable() { destroy(); }

  const std::string& name() const { return name_; }
  // Its devices in this process, in the order of a launch.
  const std::vector<Device>& devices() const { return devices_; }
  size_t output_count() const { return output_count_; }
  struct OutputShape {
    DType dtype = DType::kInvalid;
    Dims dims;
  };
  // Of one device. UNIMPLEMENTED where the plugin does not tell.
  Result<std::vector<OutputShape>> output_shapes() const;
  Result<std::string> fingerprint() const;
  Result<std::string> serialize() const;
  // What the plugin made of the program, and counts: plugin_api/hekla_inspection.h. UNIMPLEMENTED
  // from plugins that do not show it.
  Result<std::string> artefact(std::string_view form) const;
  Result<std::vector<std::pair<std::string, int64_t>>> statistics() const;

  // arguments[d] are the inputs for the d-th device; donated ones are freed afterwards. Returns
  // before the work is done. INVALID_ARGUMENT: wrong number of devices; the plugin checks the rest.
  Result<Launch> launch(std::span<const std::vector<const Buffer*>> arguments,
                        const LaunchOptions& options = {}) const;
  // For executables of one device.
  Result<Launch> launch(std::span<const Buffer> arguments, const LaunchOptions& options = {}) const;
  PJRT_LoadedExecutable* handle() const { return handle_; }

 private:
  friend class Client;
  Executable() = default;
  static Result<Executable> adopt(std::shared_ptr<ClientState> state,
                                  PJRT_LoadedExecutable* handle);
  Status read_description();
  void destroy();

  std::shared_ptr<ClientState> state_;
  PJRT_LoadedExecutable* handle_ = nullptr;
  PJRT_Executable* executable_ = nullptr;  // the part without devices, owned
  std::string name_;
  std::vector<Device> devices_;
  size_t output_count_ = 0;
};

class Client {
 public:
  // NOT_FOUND when the plugin finds no device. `store`: how the processes of a run find each other,
  // where this client is one of several (the options node_id and num_nodes); null: it is one alone.
  // Then waits for the others, two minutes at most with our plugins.
  static Result<Client> create(std::shared_ptr<const Plugin> plugin, const Options& options = {},
                               std::shared_ptr<rendezvous::KeyValueStore> store = nullptr);

  const Plugin& plugin() const;
  const std::string& platform() const;
  const std::string& platform_version() const;
  int process_index() const;
  const std::vector<Device>& devices() const;              // of all processes
  const std::vector<Device>& addressable_devices() const;  // of this one
  // The device with a global id; NOT_FOUND lists the ids.
  Result<Device> device(int id) const;

  // Copies an array to a device's default memory, or to a memory. `array` is kept until the plugin
  // has read it. INVALID_ARGUMENT for dtypes that the C API cannot name, UNIMPLEMENTED for those
  // that came after the plugin.
  Result<Buffer> to_device(const HostArray& array, const Device& device) const;
  Result<Buffer> to_device(const HostArray& array, const Memory& memory) const;
  // Takes over a buffer of this client that the C API has given.
  Result<Buffer> adopt(PJRT_Buffer* handle) const;
  // With any contents. UNIMPLEMENTED where the plugin has no such call.
  Result<Buffer> allocate(DType dtype, const Dims& dims, const Memory& memory) const;

  // A buffer that is written in parts (upload.h). UNIMPLEMENTED before version 0.62.
  Result<Upload> begin_upload(DType dtype, const Dims& dims, const Memory& memory) const;

  // `program` is StableHLO: a portable artifact or text ("mlir"), or with another `format` what the
  // plugin takes under that name (ours "hlo" and "hlo_with_config"). Without device ids the first
  // addressable devices are taken, or, where these are too few, the first of all processes.
  // UNIMPLEMENTED when a portable artifact is refused and newer than what the plugin reads.
  Result<Executable> compile(std::string_view program, CompileOptions options = {},
                             std::string_view format = "mlir") const;
  Result<Executable> deserialize(std::string_view bytes) const;
  PJRT_Client* handle() const;

 private:
  friend class Buffer;
  explicit Client(std::shared_ptr<ClientState> state) : state_(std::move(state)) {}
  Result<Buffer> upload(const HostArray& array, PJRT_Device* device, PJRT_Memory* memory) const;
  std::shared_ptr<ClientState> state_;
};

}  // namespace hekla::runtime
