// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/processes.h"

#include <bit>
#include <utility>

#include "backends/pjrt/abi.h"
#include "runtime/base/protobuf_wire.h"

namespace hekla::pjrt {
namespace {

// As long as XLA's clients wait for each other's devices.
constexpr std::chrono::minutes kExchangeTimeout(2);
constexpr int64_t kMaxProcesses = 1 << 16;
constexpr size_t kMaxDevicesOfProcess = 1 << 16;

PJRT_Error* callback_error(PJRT_Error_Code code, const char* message, size_t size) {
  return to_error(status_of(code, message, size));
}
PJRT_CallbackError kCallbackError = callback_error;

Status take_error(PJRT_Error* error, std::string_view what, std::string_view key) {
  if (error == nullptr) return ok_status();
  const std::unique_ptr<ErrorObject> object(static_cast<ErrorObject*>(error));
  return object->status.with_context(fmt::format("{} '{}'", what, key));
}

template <class Args>
std::string take_value(const Args& args) {
  std::string value;
  if (args.value != nullptr) value.assign(args.value, args.value_size);
  if (args.value_deleter_callback != nullptr) args.value_deleter_callback(args.value);
  return value;
}

class CallbackStore : public KeyValueStore {
 public:
  explicit CallbackStore(const PJRT_Client_Create_Args& args)
      : get_(args.kv_get_callback),
        put_(args.kv_put_callback),
        get_arg_(args.kv_get_user_arg),
        put_arg_(args.kv_put_user_arg) {
    if (HEKLA_COVERS(&args, PJRT_Client_Create_Args, kv_try_get_user_arg)) {
      try_get_ = args.kv_try_get_callback;
      try_get_arg_ = args.kv_try_get_user_arg;
    }
  }

  Result<std::string> get(std::string_view key, std::chrono::milliseconds timeout) override {
    PJRT_KeyValueGetCallback_Args args = {};
    args.struct_size = sizeof(args);
    args.key = key.data();
    args.key_size = key.size();
    args.timeout_in_ms = static_cast<int>(timeout.count());
    args.callback_error = &kCallbackError;
    args.user_arg = get_arg_;
    HEKLA_RETURN_IF_ERROR(take_error(get_(&args), "waiting for the key", key));
    return take_value(args);
  }

  Result<std::string> try_get(std::string_view key) override {
    if (try_get_ == nullptr) {
      return unimplemented("the client's key-value store has no try_get; API 0.61 brought it");
    }
    PJRT_KeyValueTryGetCallback_Args args = {};
    args.struct_size = sizeof(args);
    args.key = key.data();
    args.key_size = key.size();
    args.callback_error = &kCallbackError;
    args.user_arg = try_get_arg_;
    HEKLA_RETURN_IF_ERROR(take_error(try_get_(&args), "reading the key", key));
    return take_value(args);
  }

  Status put(std::string_view key, std::string_view value) override {
    PJRT_KeyValuePutCallback_Args args = {};
    args.struct_size = sizeof(args);
    args.key = key.data();
    args.key_size = key.size();
    args.value = value.data();
    args.value_size = value.size();
    args.callback_error = &kCallbackError;
    args.user_arg = put_arg_;
    return take_error(put_(&args), "writing the key", key);
  }

 private:
  PJRT_KeyValueGetCallback get_;
  PJRT_KeyValuePutCallback put_;
  PJRT_KeyValueTryGetCallback try_get_ = nullptr;
  void* get_arg_;
  void* put_arg_;
  void* try_get_arg_ = nullptr;
};

// A device: 1 kind, 2 type name, 3 attributes, 4 kinds of memory, 5 whether it is host memory. An
// attribute: 1 name, then 2 text, 3 integer or 4 list of integers.
wire::Writer write_device(const DeviceInfo& info) {
  wire::Writer device;
  device.bytes(1, info.kind);
  device.bytes(2, info.type_name);
  for (const auto& [name, value] : info.attributes) {
    wire::Writer attribute;
    attribute.bytes(1, name);
    if (const auto* text = std::get_if<std::string>(&value)) attribute.bytes(2, *text);
    if (const auto* number = std::get_if<int64_t>(&value)) {
      attribute.varint(3, static_cast<uint64_t>(*number));
    }
    if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) attribute.packed(4, *list);
    device.message(3, attribute);
  }
  for (const std::string& kind : info.memory_kinds) device.bytes(4, kind);
  device.boolean(5, info.is_host_memory);
  return device;
}

Result<DeviceInfo> read_device(std::string_view bytes) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> fields, wire::parse_fields(bytes));
  DeviceInfo info;
  info.memory_kinds.clear();
  for (const wire::Field& field : fields) {
    if (field.number == 1) info.kind = field.bytes;
    if (field.number == 2) info.type_name = field.bytes;
    if (field.number == 4) info.memory_kinds.emplace_back(field.bytes);
    if (field.number == 5) info.is_host_memory = field.value != 0;
    if (field.number != 3) continue;
    HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> parts, wire::parse_fields(field.bytes));
    std::string name;
    OptionValue value;
    for (const wire::Field& part : parts) {
      if (part.number == 1) name = part.bytes;
      if (part.number == 2) value = std::string(part.bytes);
      if (part.number == 3) value = static_cast<int64_t>(part.value);
      if (part.number != 4) continue;
      HEKLA_ASSIGN_OR_RETURN(value, wire::parse_varints(part));
    }
    info.attributes.emplace_back(std::move(name), std::move(value));
  }
  if (info.memory_kinds.empty()) return invalid_argument("a device without memory");
  return info;
}

Result<std::vector<DeviceInfo>> read_devices(std::string_view bytes) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> fields, wire::parse_fields(bytes));
  std::vector<DeviceInfo> devices;
  for (const wire::Field& field : fields) {
    if (field.number != 1) continue;
    HEKLA_ASSIGN_OR_RETURN(DeviceInfo device, read_device(field.bytes));
    devices.push_back(std::move(device));
  }
  if (devices.empty() || devices.size() > kMaxDevicesOfProcess) {
    return invalid_argument("a process with {} devices", devices.size());
  }
  return devices;
}

std::string topology_key(const std::string& platform, int64_t process) {
  return fmt::format("hekla/{}/devices/{}", platform, process);
}

}  // namespace

Result<std::shared_ptr<KeyValueStore>> make_key_value_store(const PJRT_Client_Create_Args& args) {
  if (!HEKLA_COVERS(&args, PJRT_Client_Create_Args, kv_put_user_arg) ||
      args.kv_get_callback == nullptr || args.kv_put_callback == nullptr) {
    return invalid_argument(
        "a client of several processes (num_nodes) needs the key-value callbacks of "
        "PJRT_Client_Create, by which they find each other");
  }
  return std::shared_ptr<KeyValueStore>(std::make_shared<CallbackStore>(args));
}

OptionTable process_option_table(ProcessOptions& options) {
  OptionTable table;
  table.integer("node_id", "", options.index, {0, kMaxProcesses - 1}, "0",
                "which of the processes this is; `jax.distributed` sets it");
  table.integer("num_nodes", "", options.count, {1, kMaxProcesses}, "1",
                "processes of the run; above 1 the client brings a key-value store");
  table.integer("partition_index", "", options.partition_index, {-1}, "none",
                "an attribute of the process's devices, which JAX reads back");
  return table;
}

Result<ProcessOptions> take_process_options(Options& options) {
  ProcessOptions process;
  HEKLA_RETURN_IF_ERROR(process_option_table(process).take(options));
  if (process.index >= process.count) {
    return invalid_argument("node_id is {}, and there are {} processes (num_nodes)", process.index,
                            process.count);
  }
  return process;
}

Result<std::vector<std::vector<DeviceInfo>>> exchange_devices(KeyValueStore& store,
                                                              const std::string& platform,
                                                              const ProcessOptions& process,
                                                              std::vector<DeviceInfo> own) {
  wire::Writer message;
  for (const DeviceInfo& device : own) message.message(1, write_device(device));
  const std::string key = topology_key(platform, process.index);
  if (const Status put = store.put(key, message.text()); !put.ok()) {
    // A second client of the process says the same again, which stores may refuse.
    const Result<std::string> known = store.try_get(key);
    if (!known.ok() || *known != message.text()) return put;
  }
  std::vector<std::vector<DeviceInfo>> all;
  for (int64_t p = 0; p < process.count; ++p) {
    if (p == process.index) {
      all.push_back(std::move(own));
      continue;
    }
    const auto what = [&] { return fmt::format("the devices of process {}", p); };
    Result<std::string> text = store.get(topology_key(platform, p), kExchangeTimeout);
    if (!text.ok()) return text.status().with_context(what());
    Result<std::vector<DeviceInfo>> devices = read_devices(*text);
    if (!devices.ok()) return devices.status().with_context(what());
    all.push_back(*std::move(devices));
  }
  return all;
}

}  // namespace hekla::pjrt
