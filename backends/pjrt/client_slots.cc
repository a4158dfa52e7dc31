// SPDX-License-Identifier: Apache-2.0
// Clients: creation, devices, assignment, registration of host memory.
#include <utility>

#include "backends/pjrt/abi.h"

namespace hekla::pjrt {
namespace {

void* get_user_data(PJRT_Memory* memory, const void* key) {
  auto* object = static_cast<MemoryObject*>(memory);
  std::lock_guard lock(object->user_mutex);
  auto it = object->user_data.find(key);
  return it == object->user_data.end() ? nullptr : it->second.data;
}

void set_user_data(PJRT_Memory* memory, const void* key, void* data, void (*destroy)(void*)) {
  auto* object = static_cast<MemoryObject*>(memory);
  MemoryObject::UserData old;
  const Status status = status_of_work([&] {
    std::lock_guard lock(object->user_mutex);
    old = std::exchange(object->user_data[key], {data, destroy});
    return ok_status();
  });
  // Nobody can be told: the value is as good as replaced.
  if (!status.ok()) old = {data, destroy};
  if (old.data != nullptr && old.destroy != nullptr) old.destroy(old.data);
}

constexpr PJRT_Memory_FunctionTable kMemoryTable = {
    PJRT_STRUCT_SIZE(PJRT_Memory_FunctionTable, set_user_data),
    nullptr,
    sizeof(PJRT_Memory),
    get_user_data,
    set_user_data,
};

void make_devices(ClientState& state) {
  for (auto& description : state.topology->descriptions) {
    auto device = std::make_unique<PJRT_Device>();
    device->description = description.get();
    device->state = &state;
    const bool is_own = description->process_index == state.process.index;
    if (is_own) {
      device->local_index = static_cast<int>(state.addressable_pointers.size());
      state.addressable_pointers.push_back(device.get());
      set_traced_name(device->local_index, description->debug_string);
    }
    for (size_t k = 0; is_own && k < description->kinds.size(); ++k) {
      auto memory = std::make_unique<MemoryObject>();
      memory->vtable = &kMemoryTable;
      memory->id = static_cast<int>(state.memories.size());
      memory->kind = description->kinds[k].name;
      memory->kind_id = description->kinds[k].id;
      memory->kind_index = k;
      memory->debug_string =
          fmt::format("{} memory of {}", memory->kind, description->debug_string);
      memory->to_string = fmt::format("Memory(id={}, kind={}, device={})", memory->id, memory->kind,
                                      description->debug_string);
      memory->devices = {device.get()};
      device->memories.push_back(memory.get());
      state.memory_pointers.push_back(memory.get());
      state.memories.push_back(std::move(memory));
    }
    state.device_pointers.push_back(device.get());
    state.devices.push_back(std::move(device));
  }
}

Status Client_Create(PJRT_Client_Create_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_Create_Args, client);
  args->client = nullptr;
  HEKLA_ASSIGN_OR_RETURN(Options options, read_options(args->create_options, args->num_options));
  auto client = std::make_unique<PJRT_Client>();
  client->state = ClientState::make();
  ClientState& state = *client->state;
  HEKLA_ASSIGN_OR_RETURN(state.process, take_process_options(options));
  HEKLA_RETURN_IF_ERROR(gang_option_table(state.gang).take(options));
  GangNetworkOptions network;
  HEKLA_RETURN_IF_ERROR(gang_network_option_table(network).take(options));
  // The callbacks hold garbage where there is one process.
  if (state.process.count > 1) {
    HEKLA_ASSIGN_OR_RETURN(state.store, make_key_value_store(*args));
  }
  HEKLA_ASSIGN_OR_RETURN(state.backend, backend_factory().create(options));
  if (state.backend->devices().empty()) {
    return failed_precondition("no {} device is there", backend_factory().platform_name);
  }
  std::vector<DeviceInfo> own = state.backend->devices();
  if (state.process.partition_index >= 0) {
    for (DeviceInfo& device : own) {
      device.attributes.emplace_back("partition_index", state.process.partition_index);
    }
  }
  std::vector<std::vector<DeviceInfo>> devices;
  if (state.store == nullptr) {
    devices.push_back(std::move(own));
  } else {
    // Before the devices: who sees those finds it.
    state.network =
        GangNetwork::create(state.store, backend_factory().platform_name, state.process, network);
    HEKLA_ASSIGN_OR_RETURN(devices, exchange_devices(*state.store, backend_factory().platform_name,
                                                     state.process, std::move(own)));
    state.network->meet();
  }
  state.topology = make_topology(*state.backend, devices);
  make_devices(state);
  args->client = client.release();
  return ok_status();
}

Status Client_Destroy(PJRT_Client_Destroy_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_Destroy_Args, client);
  HEKLA_KEEP_IF_INHERITED(args->client);
  delete args->client;
  return ok_status();
}

Status Client_PlatformName(PJRT_Client_PlatformName_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_PlatformName_Args, platform_name_size);
  HEKLA_REQUIRE_HANDLE(args, client);
  const std::string& name = args->client->state->topology->platform_name;
  args->platform_name = name.c_str();
  args->platform_name_size = name.size();
  return ok_status();
}

Status Client_PlatformVersion(PJRT_Client_PlatformVersion_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_PlatformVersion_Args, platform_version_size);
  HEKLA_REQUIRE_HANDLE(args, client);
  const std::string& version = args->client->state->topology->platform_version;
  args->platform_version = version.c_str();
  args->platform_version_size = version.size();
  return ok_status();
}

Status Client_ProcessIndex(PJRT_Client_ProcessIndex_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_ProcessIndex_Args, process_index);
  HEKLA_REQUIRE_HANDLE(args, client);
  args->process_index = static_cast<int>(args->client->state->process.index);
  return ok_status();
}

Status Client_TopologyDescription(PJRT_Client_TopologyDescription_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_TopologyDescription_Args, topology);
  HEKLA_REQUIRE_HANDLE(args, client);
  args->topology = args->client->state->topology.get();
  return ok_status();
}

Status Client_Devices(PJRT_Client_Devices_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_Devices_Args, num_devices);
  HEKLA_REQUIRE_HANDLE(args, client);
  args->devices = args->client->state->device_pointers.data();
  args->num_devices = args->client->state->device_pointers.size();
  return ok_status();
}

Status Client_AddressableDevices(PJRT_Client_AddressableDevices_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_AddressableDevices_Args, num_addressable_devices);
  HEKLA_REQUIRE_HANDLE(args, client);
  args->addressable_devices = args->client->state->addressable_pointers.data();
  args->num_addressable_devices = args->client->state->addressable_pointers.size();
  return ok_status();
}

// Global ids and local ones both count from 0.
Result<PJRT_Device*> find_device(const std::vector<PJRT_Device*>& devices, int id) {
  if (id < 0 || id >= static_cast<int>(devices.size())) {
    return invalid_argument("No matching device found for device_id {}", id);
  }
  return devices[static_cast<size_t>(id)];
}

Status Client_LookupDevice(PJRT_Client_LookupDevice_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_LookupDevice_Args, device);
  HEKLA_REQUIRE_HANDLE(args, client);
  HEKLA_ASSIGN_OR_RETURN(args->device, find_device(args->client->state->device_pointers, args->id));
  return ok_status();
}

Status Client_LookupAddressableDevice(PJRT_Client_LookupAddressableDevice_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_LookupAddressableDevice_Args, addressable_device);
  HEKLA_REQUIRE_HANDLE(args, client);
  HEKLA_ASSIGN_OR_RETURN(
      args->addressable_device,
      find_device(args->client->state->addressable_pointers, args->local_hardware_id));
  return ok_status();
}

Status Client_AddressableMemories(PJRT_Client_AddressableMemories_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_AddressableMemories_Args, num_addressable_memories);
  HEKLA_REQUIRE_HANDLE(args, client);
  args->addressable_memories = args->client->state->memory_pointers.data();
  args->num_addressable_memories = args->client->state->memory_pointers.size();
  return ok_status();
}

Status Client_UpdateGlobalProcessInfo(PJRT_Client_UpdateGlobalProcessInfo_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_UpdateGlobalProcessInfo_Args, num_process_infos);
  return ok_status();  // whether the others are alive is not watched here
}

Status Client_DefaultDeviceAssignment(PJRT_Client_DefaultDeviceAssignment_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_DefaultDeviceAssignment_Args, default_assignment);
  HEKLA_REQUIRE_HANDLE(args, client);
  const int64_t replicas = args->num_replicas;
  const int64_t partitions = args->num_partitions;
  if (replicas <= 0 || partitions <= 0) {
    return invalid_argument(
        "PJRT_Client_DefaultDeviceAssignment: `num_replicas` and `num_partitions` must be "
        "positive, got {} and {}",
        replicas, partitions);
  }
  const int64_t count = replicas * partitions;
  if (args->default_assignment_size < static_cast<size_t>(count)) {
    return failed_precondition(
        "PJRT_Client_DefaultDeviceAssignment: `default_assignment_size` {} < `num_replicas * "
        "num_partitions`, {} * {} = {}",
        args->default_assignment_size, replicas, partitions, count);
  }
  HEKLA_REQUIRE_HANDLE(args, default_assignment);
  for (int64_t i = 0; i < count; ++i) {
    args->default_assignment[i] = default_device_id(*args->client->state, count, i);
  }
  return ok_status();
}

Status Client_DmaMap(PJRT_Client_DmaMap_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_DmaMap_Args, size);
  return unimplemented("registering host memory for direct access is not offered");
}

Status Client_DmaUnmap(PJRT_Client_DmaUnmap_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_DmaUnmap_Args, data);
  return unimplemented("registering host memory for direct access is not offered");
}

}  // namespace

std::shared_ptr<ClientState> ClientState::make() {
  return std::shared_ptr<ClientState>(new ClientState, [](ClientState* state) {
    if (!state->is_inherited()) delete state;
  });
}

Status ClientState::check_process() const {
  if (!is_inherited()) return ok_status();
  return failed_precondition(
      "this process is a fork of the one that made the client, without its threads: start it with "
      "'spawn' or 'forkserver' (multiprocessing), or make the client after the fork");
}

Result<Options> read_options(const PJRT_NamedValue* values, size_t count) {
  if (values == nullptr && count > 0) return invalid_argument("{} options at null", count);
  Options options;
  for (size_t i = 0; i < count; ++i) {
    const PJRT_NamedValue& value = values[i];
    if (value.name == nullptr || value.name_size == 0) {
      return invalid_argument("option {} has no name", i);
    }
    std::string name(value.name, value.name_size);
    switch (value.type) {
      case PJRT_NamedValue_kString:
        if (value.string_value == nullptr && value.value_size > 0) {
          return invalid_argument("option {}: {} bytes of text at null", name, value.value_size);
        }
        options.emplace_back(std::move(name),
                             std::string(text_of(value.string_value, value.value_size)));
        break;
      case PJRT_NamedValue_kInt64:
        options.emplace_back(std::move(name), value.int64_value);
        break;
      case PJRT_NamedValue_kInt64List:
        if (value.int64_array_value == nullptr && value.value_size > 0) {
          return invalid_argument("option {}: {} numbers at null", name, value.value_size);
        }
        options.emplace_back(std::move(name),
                             std::vector<int64_t>(value.int64_array_value,
                                                  value.int64_array_value + value.value_size));
        break;
      case PJRT_NamedValue_kFloat:
        options.emplace_back(std::move(name), value.float_value);
        break;
      case PJRT_NamedValue_kBool:
        options.emplace_back(std::move(name), value.bool_value);
        break;
      default:
        return invalid_argument("option {} has the unknown type {}", name,
                                static_cast<int>(value.type));
    }
  }
  return options;
}

int default_device_id(const ClientState& state, int64_t count, int64_t i) {
  const bool fits = count <= static_cast<int64_t>(state.addressable_pointers.size());
  const int first = fits ? state.addressable_pointers.front()->description->id : 0;
  return first + static_cast<int>(i);
}

MemoryObject::~MemoryObject() {
  for (auto& [key, value] : user_data) {
    if (value.data != nullptr && value.destroy != nullptr) value.destroy(value.data);
  }
}

void add_client_slots(PJRT_Api& api) {
  api.PJRT_Client_Create = Slot<Client_Create>::call;
  api.PJRT_Client_Destroy = Slot<Client_Destroy>::call;
  api.PJRT_Client_PlatformName = Slot<Client_PlatformName>::call;
  api.PJRT_Client_ProcessIndex = Slot<Client_ProcessIndex>::call;
  api.PJRT_Client_PlatformVersion = Slot<Client_PlatformVersion>::call;
  api.PJRT_Client_TopologyDescription = Slot<Client_TopologyDescription>::call;
  api.PJRT_Client_Devices = Slot<Client_Devices>::call;
  api.PJRT_Client_AddressableDevices = Slot<Client_AddressableDevices>::call;
  api.PJRT_Client_LookupDevice = Slot<Client_LookupDevice>::call;
  api.PJRT_Client_LookupAddressableDevice = Slot<Client_LookupAddressableDevice>::call;
  api.PJRT_Client_AddressableMemories = Slot<Client_AddressableMemories>::call;
  api.PJRT_Client_UpdateGlobalProcessInfo = Slot<Client_UpdateGlobalProcessInfo>::call;
  api.PJRT_Client_DefaultDeviceAssignment = Slot<Client_DefaultDeviceAssignment>::call;
  api.PJRT_Client_DmaMap = Slot<Client_DmaMap>::call;
  api.PJRT_Client_DmaUnmap = Slot<Client_DmaUnmap>::call;
}

}  // namespace hekla::pjrt
