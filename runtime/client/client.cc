// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "runtime/base/log.h"
#include "runtime/client/client_state.h"
#include "runtime/client/client_store.h"
#include "runtime/client/element_type.h"

namespace hekla::runtime {
namespace {

// Live attributes with it change all the time.
constexpr std::string_view kCounterPrefix = "counter.";

std::string to_string(const char* text, size_t size) {
  return text == nullptr ? std::string() : std::string(text, size);
}

struct Version {
  std::array<int64_t, 3> numbers{};
  std::string to_string() const { return fmt::format("{}", fmt::join(numbers, ".")); }
};

// The StableHLO version of a portable artifact, from the producer that stands behind the magic
// number and the container's version: "StableHLO_v1.13.7".
std::optional<Version> artifact_version(std::string_view program) {
  constexpr std::string_view kMagic = "ML\xefR";
  constexpr std::string_view kProducer = "StableHLO_v";
  constexpr size_t kLongestHead = 32;
  if (!program.starts_with(kMagic)) return std::nullopt;
  const size_t at = program.substr(0, kLongestHead).find(kProducer);
  if (at == std::string_view::npos) return std::nullopt;
  Version version;
  const char* next = program.data() + at + kProducer.size();
  const char* end = program.data() + std::min(program.size(), at + kLongestHead);
  for (int64_t& number : version.numbers) {
    const auto [rest, error] = std::from_chars(next, end, number);
    if (error != std::errc()) return std::nullopt;
    next = rest == end ? end : rest + 1;
  }
  return version;
}

// What the plugin says it reads; none if it does not say.
std::optional<Version> readable_version(const Plugin& plugin) {
  for (const auto& [name, value] : plugin.attributes()) {
    const auto* list = std::get_if<std::vector<int64_t>>(&value);
    if (name != "stablehlo_current_version" || list == nullptr || list->size() != 3) continue;
    return Version{{(*list)[0], (*list)[1], (*list)[2]}};
  }
  return std::nullopt;
}

// XLA's compiler reads its input as a C++ string of at most this length.
constexpr size_t kMaxProgram = std::numeric_limits<int32_t>::max();

}  // namespace

ClientState::~ClientState() {
  if (client == nullptr) return;
  HEKLA_PJRT_ARGS(PJRT_Client_Destroy_Args, args, client);
  args.client = client;
  if (Status status = HEKLA_PJRT_CALL(*plugin, PJRT_Client_Destroy, &args); !status.ok()) {
    log_message(LogLevel::kWarning, "{}", status.to_string());
  }
}

Status ClientState::read() {
  HEKLA_PJRT_ARGS(PJRT_Client_PlatformName_Args, name, platform_name_size);
  name.client = client;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*plugin, PJRT_Client_PlatformName, &name));
  platform = to_string(name.platform_name, name.platform_name_size);

  HEKLA_PJRT_ARGS(PJRT_Client_PlatformVersion_Args, version, platform_version_size);
  version.client = client;
  if (HEKLA_PJRT_CALL(*plugin, PJRT_Client_PlatformVersion, &version).ok()) {
    platform_version = to_string(version.platform_version, version.platform_version_size);
  }
  HEKLA_PJRT_ARGS(PJRT_Client_ProcessIndex_Args, process, process_index);
  process.client = client;
  if (HEKLA_PJRT_CALL(*plugin, PJRT_Client_ProcessIndex, &process).ok()) {
    process_index = process.process_index;
  }

  HEKLA_PJRT_ARGS(PJRT_Client_Devices_Args, all, num_devices);
  all.client = client;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*plugin, PJRT_Client_Devices, &all));
  for (size_t i = 0; i < all.num_devices; ++i) {
    PJRT_Device* handle = all.devices[i];
    devices.push_back(Device(this, handle));
    HEKLA_RETURN_IF_ERROR(read_device(handle, device_facts[handle]));
  }
  HEKLA_PJRT_ARGS(PJRT_Client_AddressableDevices_Args, local, num_addressable_devices);
  local.client = client;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*plugin, PJRT_Client_AddressableDevices, &local));
  for (size_t i = 0; i < local.num_addressable_devices; ++i) {
    HEKLA_ASSIGN_OR_RETURN(const Device device, find_device(local.addressable_devices[i]));
    HEKLA_RETURN_IF_ERROR(read_memories(device.handle(), device_facts[device.handle()]));
    addressable_devices.push_back(device);
  }
  if (addressable_devices.empty()) {
    return not_found("plugin '{}' found no device that this process can use", plugin->name());
  }
  return ok_status();
}

Status ClientState::read_device(PJRT_Device* handle, DeviceFacts& facts) {
  HEKLA_PJRT_ARGS(PJRT_Device_GetDescription_Args, get, device_description);
  get.device = handle;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*plugin, PJRT_Device_GetDescription, &get));
  PJRT_DeviceDescription* description = get.device_description;

  HEKLA_PJRT_ARGS(PJRT_DeviceDescription_Id_Args, id, id);
  id.device_description = description;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*plugin, PJRT_DeviceDescription_Id, &id));
  facts.id = id.id;
  // The rest informs; a plugin without it still computes.
  HEKLA_PJRT_ARGS(PJRT_DeviceDescription_ProcessIndex_Args, process, process_index);
  process.device_description = description;
  if (HEKLA_PJRT_CALL(*plugin, PJRT_DeviceDescription_ProcessIndex, &process).ok()) {
    facts.process_index = process.process_index;
  }
  HEKLA_PJRT_ARGS(PJRT_Device_IsAddressable_Args, addressable, is_addressable);
  addressable.device = handle;
  if (HEKLA_PJRT_CALL(*plugin, PJRT_Device_IsAddressable, &addressable).ok()) {
    facts.is_addressable = addressable.is_addressable;
  }
  HEKLA_PJRT_ARGS(PJRT_DeviceDescription_Kind_Args, kind, device_kind_size);
  kind.device_description = description;
  if (HEKLA_PJRT_CALL(*plugin, PJRT_DeviceDescription_Kind, &kind).ok()) {
    facts.kind = to_string(kind.device_kind, kind.device_kind_size);
  }
  HEKLA_PJRT_ARGS(PJRT_DeviceDescription_DebugString_Args, debug, debug_string_size);
  debug.device_description = description;
  if (HEKLA_PJRT_CALL(*plugin, PJRT_DeviceDescription_DebugString, &debug).ok()) {
    facts.debug_string = to_string(debug.debug_string, debug.debug_string_size);
  }
  HEKLA_PJRT_ARGS(PJRT_DeviceDescription_Attributes_Args, attributes, attributes);
  attributes.device_description = description;
  if (HEKLA_PJRT_CALL(*plugin, PJRT_DeviceDescription_Attributes, &attributes).ok()) {
    for (size_t i = 0; i < attributes.num_attributes; ++i) {
      facts.attributes.push_back(from_named_value(attributes.attributes[i]));
    }
  }
  read_live_attributes(handle, facts);
  return ok_status();
}

void ClientState::read_live_attributes(PJRT_Device* handle, DeviceFacts& facts) const {
  HEKLA_PJRT_ARGS(PJRT_Device_GetAttributes_Args, args, attributes_deleter);
  args.device = handle;
  if (!HEKLA_PJRT_CALL(*plugin, PJRT_Device_GetAttributes, &args).ok()) return;
  Options live;
  for (size_t i = 0; i < args.num_attributes; ++i) {
    auto attribute = from_named_value(args.attributes[i]);
    if (!attribute.first.starts_with(kCounterPrefix)) live.push_back(std::move(attribute));
  }
  facts.attributes = merge_options(std::move(facts.attributes), live);
  if (args.attributes_deleter != nullptr) args.attributes_deleter(args.device_attributes);
}

Status ClientState::read_memories(PJRT_Device* handle, DeviceFacts& facts) {
  HEKLA_PJRT_ARGS(PJRT_Device_AddressableMemories_Args, list, num_memories);
  list.device = handle;
  if (!HEKLA_PJRT_CALL(*plugin, PJRT_Device_AddressableMemories, &list).ok()) return ok_status();
  for (size_t i = 0; i < list.num_memories; ++i) {
    PJRT_Memory* memory = list.memories[i];
    facts.memories.push_back(Memory(this, memory));
    MemoryFacts& known = memory_facts[memory];
    HEKLA_PJRT_ARGS(PJRT_Memory_Kind_Args, kind, kind_size);
    kind.memory = memory;
    if (HEKLA_PJRT_CALL(*plugin, PJRT_Memory_Kind, &kind).ok()) {
      known.kind = to_string(kind.kind, kind.kind_size);
    }
    HEKLA_PJRT_ARGS(PJRT_Memory_Id_Args, id, id);
    id.memory = memory;
    if (HEKLA_PJRT_CALL(*plugin, PJRT_Memory_Id, &id).ok()) known.id = id.id;
  }
  HEKLA_PJRT_ARGS(PJRT_Device_DefaultMemory_Args, preferred, memory);
  preferred.device = handle;
  if (!facts.memories.empty() &&
      HEKLA_PJRT_CALL(*plugin, PJRT_Device_DefaultMemory, &preferred).ok() &&
      memory_facts.contains(preferred.memory)) {
    facts.default_memory = preferred.memory;
  }
  return ok_status();
}

Result<Device> ClientState::find_device(PJRT_Device* handle) const {
  if (!device_facts.contains(handle)) {
    return internal_error("plugin '{}' returned a device that is not in its list of devices",
                          plugin->name());
  }
  return Device(this, handle);
}

Result<Memory> ClientState::find_memory(PJRT_Memory* handle) const {
  if (!memory_facts.contains(handle)) {
    return internal_error("plugin '{}' returned a memory that is not in its list of memories",
                          plugin->name());
  }
  return Memory(this, handle);
}

const std::string& Memory::kind() const { return state_->memory_facts.at(handle_).kind; }
int Memory::id() const { return state_->memory_facts.at(handle_).id; }

int Device::id() const { return state_->device_facts.at(handle_).id; }
int Device::process_index() const { return state_->device_facts.at(handle_).process_index; }
bool Device::is_addressable() const { return state_->device_facts.at(handle_).is_addressable; }
const std::string& Device::kind() const { return state_->device_facts.at(handle_).kind; }
const std::string& Device::debug_string() const {
  return state_->device_facts.at(handle_).debug_string;
}
const Options& Device::attributes() const { return state_->device_facts.at(handle_).attributes; }
std::string Device::string_attribute(std::string_view name) const {
  for (const auto& [key, value] : attributes()) {
    if (key == name && std::holds_alternative<std::string>(value)) {
      return std::get<std::string>(value);
    }
  }
  return "";
}
const std::vector<Memory>& Device::memories() const {
  return state_->device_facts.at(handle_).memories;
}

Result<Memory> Device::default_memory() const {
  PJRT_Memory* memory = state_->device_facts.at(handle_).default_memory;
  if (memory == nullptr) return not_found("device {} has no default memory", debug_string());
  return Memory(state_, memory);
}

Result<MemoryStats> Device::memory_stats() const {
  HEKLA_PJRT_ARGS(PJRT_Device_MemoryStats_Args, args, peak_allocated_bytes_is_set);
  args.device = handle_;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*state_->plugin, PJRT_Device_MemoryStats, &args));
  MemoryStats stats;
  stats.bytes_in_use = args.bytes_in_use;
  if (args.peak_bytes_in_use_is_set) stats.peak_bytes_in_use = args.peak_bytes_in_use;
  if (args.bytes_limit_is_set) stats.bytes_limit = args.bytes_limit;
  return stats;
}

std::vector<std::pair<std::string, int64_t>> Device::counters() const {
  HEKLA_PJRT_ARGS(PJRT_Device_GetAttributes_Args, args, attributes_deleter);
  args.device = handle_;
  std::vector<std::pair<std::string, int64_t>> counters;
  if (!HEKLA_PJRT_CALL(*state_->plugin, PJRT_Device_GetAttributes, &args).ok()) return counters;
  for (size_t i = 0; i < args.num_attributes; ++i) {
    const auto [name, value] = from_named_value(args.attributes[i]);
    const auto* count = std::get_if<int64_t>(&value);
    if (count == nullptr || !name.starts_with(kCounterPrefix)) continue;
    counters.emplace_back(name.substr(kCounterPrefix.size()), *count);
  }
  if (args.attributes_deleter != nullptr) args.attributes_deleter(args.device_attributes);
  return counters;
}

Result<Client> Client::create(std::shared_ptr<const Plugin> plugin, const Options& options,
                              std::shared_ptr<rendezvous::KeyValueStore> store) {
  auto state = std::make_shared<ClientState>();
  state->plugin = std::move(plugin);
  state->store = std::move(store);
  const std::vector<PJRT_NamedValue> values = to_named_values(options);
  HEKLA_PJRT_ARGS(PJRT_Client_Create_Args, args, kv_try_get_user_arg);
  args.create_options = values.data();
  args.num_options = values.size();
  if (state->store != nullptr) set_store(args, *state->store);
  Status status = HEKLA_PJRT_CALL(*state->plugin, PJRT_Client_Create, &args);
  if (status.ok() && args.client == nullptr) {
    status = internal_error("PJRT_Client_Create gave a null client");
  }
  if (status.ok()) {
    state->client = args.client;
    status = state->read();
  }
  if (!status.ok()) {
    return status.with_context(fmt::format("plugin '{}'", state->plugin->name()));
  }
  return Client(std::move(state));
}

const Plugin& Client::plugin() const { return *state_->plugin; }
const std::string& Client::platform() const { return state_->platform; }
const std::string& Client::platform_version() const { return state_->platform_version; }
int Client::process_index() const { return state_->process_index; }
const std::vector<Device>& Client::devices() const { return state_->devices; }
const std::vector<Device>& Client::addressable_devices() const {
  return state_->addressable_devices;
}
PJRT_Client* Client::handle() const { return state_->client; }

Result<Device> Client::device(int id) const {
  std::string ids;
  for (const Device& device : devices()) {
    if (device.id() == id) return device;
    ids += fmt::format("{}{}", ids.empty() ? "" : ", ", device.id());
  }
  return not_found("plugin '{}' has no device {}; there are: {}", plugin().name(), id, ids);
}

Result<Buffer> Client::to_device(const HostArray& array, const Device& device) const {
  // Newer plugins prefer a memory; old ones know devices alone.
  Result<Memory> memory = device.default_memory();
  if (memory.ok()) return upload(array, nullptr, memory->handle());
  return upload(array, device.handle(), nullptr);
}

Result<Buffer> Client::to_device(const HostArray& array, const Memory& memory) const {
  return upload(array, nullptr, memory.handle());
}

Result<Buffer> Client::upload(const HostArray& array, PJRT_Device* device,
                              PJRT_Memory* memory) const {
  const Plugin& plugin = *state_->plugin;
  HEKLA_PJRT_ARGS(PJRT_Client_BufferFromHostBuffer_Args, args, buffer);
  args.client = state_->client;
  args.data = array.data();
  HEKLA_ASSIGN_OR_RETURN(args.type, state_->buffer_type(array.dtype()));
  args.dims = array.dims().data();
  args.num_dims = array.dims().size();
  // The array's storage is shared and immutable while `kept` lives.
  args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
  args.device = device;
  args.memory = memory;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(plugin, PJRT_Client_BufferFromHostBuffer, &args));
  const Event done(state_->plugin, args.done_with_host_buffer);
  // A plugin that refuses the callback gets a wait instead.
  if (!done.on_ready([kept = array](const Status&) {}).ok()) (void)done.await();
  return Buffer::adopt(state_, args.buffer);
}

Result<Buffer> Client::adopt(PJRT_Buffer* handle) const { return Buffer::adopt(state_, handle); }

Result<PJRT_Buffer_Type> ClientState::buffer_type(DType dtype) const {
  const PJRT_Buffer_Type type = to_buffer_type(dtype);
  if (type == PJRT_Buffer_Type_INVALID) {
    return invalid_argument("dtype {} cannot cross the PJRT C API", dtype_name(dtype));
  }
  if (const int since = buffer_type_since(type); plugin->api_minor() < since) {
    return unimplemented("dtype {} came with version 0.{} of the PJRT C API; plugin '{}' has 0.{}",
                         dtype_name(dtype), since, plugin->name(), plugin->api_minor());
  }
  return type;
}

Result<Buffer> Client::allocate(DType dtype, const Dims& dims, const Memory& memory) const {
  HEKLA_PJRT_ARGS(PJRT_Client_CreateUninitializedBuffer_Args, args, buffer);
  args.client = state_->client;
  HEKLA_ASSIGN_OR_RETURN(args.shape_element_type, state_->buffer_type(dtype));
  // Plugins of others end the process.
  HEKLA_RETURN_IF_ERROR(checked_bytes(dtype, dims).status());
  args.shape_dims = dims.data();
  args.shape_num_dims = dims.size();
  args.memory = memory.handle();
  HEKLA_RETURN_IF_ERROR(
      HEKLA_PJRT_CALL(*state_->plugin, PJRT_Client_CreateUninitializedBuffer, &args));
  return Buffer::adopt(state_, args.buffer);
}

Result<Executable> Client::compile(std::string_view program, CompileOptions options,
                                   std::string_view format) const {
  if (program.size() > kMaxProgram) {
    return invalid_argument("a program of {} bytes; the limit is {}", program.size(), kMaxProgram);
  }
  if (options.num_replicas < 1 || options.num_partitions < 1 || options.num_replicas > INT32_MAX ||
      options.num_partitions > INT32_MAX) {
    return invalid_argument("{} replicas of {} partitions", options.num_replicas,
                            options.num_partitions);
  }
  const auto needed = static_cast<size_t>(options.num_replicas * options.num_partitions);
  if (options.device_ids.empty() && !options.is_portable) {
    const std::vector<Device>& some =
        needed > addressable_devices().size() ? devices() : addressable_devices();
    if (needed > some.size()) {
      return invalid_argument(
          "the program needs {} devices ({} replicas of {} partitions), plugin '{}' has {}; more "
          "logical devices may be had with the client option num_devices",
          needed, options.num_replicas, options.num_partitions, plugin().name(), some.size());
    }
    for (size_t i = 0; i < needed; ++i) options.device_ids.push_back(some[i].id());
  } else if (!options.is_portable && options.device_ids.size() != needed) {
    return invalid_argument("{} device ids for {} replicas of {} partitions",
                            options.device_ids.size(), options.num_replicas,
                            options.num_partitions);
  }
  const std::string serialized = serialize_compile_options(options);
  // The field is mutable in C because OptimizedProgram fills it; a compiler only reads.
  HEKLA_PJRT_ARGS(PJRT_Program, source, format_size);
  source.code = const_cast<char*>(program.data());
  source.code_size = program.size();
  source.format = format.data();
  source.format_size = format.size();
  HEKLA_PJRT_ARGS(PJRT_Client_Compile_Args, args, executable);
  args.client = state_->client;
  args.program = &source;
  args.compile_options = serialized.data();
  args.compile_options_size = serialized.size();
  if (Status status = HEKLA_PJRT_CALL(*state_->plugin, PJRT_Client_Compile, &args); !status.ok()) {
    const std::optional<Version> written = artifact_version(program);
    const std::optional<Version> readable = readable_version(plugin());
    if (written && readable && written->numbers > readable->numbers) {
      return unimplemented("the program is StableHLO {}, plugin '{}' reads up to {}: {}",
                           written->to_string(), plugin().name(), readable->to_string(),
                           status.message());
    }
    return status;
  }
  return Executable::adopt(state_, args.executable);
}

Result<Executable> Client::deserialize(std::string_view bytes) const {
  HEKLA_PJRT_ARGS(PJRT_Executable_DeserializeAndLoad_Args, args, load_options);
  args.client = state_->client;
  args.serialized_executable = bytes.data();
  args.serialized_executable_size = bytes.size();
  HEKLA_RETURN_IF_ERROR(
      HEKLA_PJRT_CALL(*state_->plugin, PJRT_Executable_DeserializeAndLoad, &args));
  return Executable::adopt(state_, args.loaded_executable);
}

}  // namespace hekla::runtime
