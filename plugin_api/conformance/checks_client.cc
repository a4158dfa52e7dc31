// SPDX-License-Identifier: Apache-2.0
// Clients and topologies.
#include <algorithm>
#include <thread>

#include "plugin_api/conformance/check.h"
#include "plugin_api/conformance/programs.h"
#include "plugin_api/conformance/session.h"

namespace hekla::conformance {
namespace {

void check_create(Session& s) {
  require(!s.addressable_devices(s.create_client()).empty(),
          "the client has no addressable device; creation should have failed with words");
}

void check_garbage_callbacks(Session& s) {
  auto args = make_args<PJRT_Client_Create_Args>();
  // Clients leave these uninitialised when there is one process.
  const auto garbage = reinterpret_cast<void*>(static_cast<uintptr_t>(0x13));
  std::memcpy(&args.kv_get_callback, &garbage, sizeof(garbage));
  std::memcpy(&args.kv_put_callback, &garbage, sizeof(garbage));
  std::memcpy(&args.kv_try_get_callback, &garbage, sizeof(garbage));
  args.kv_get_user_arg = args.kv_put_user_arg = args.kv_try_get_user_arg = garbage;
  if (auto error = s.try_create_client(&args)) fail("PJRT_Client_Create: " + error->text());
  PJRT_Buffer* buffer = s.upload_f32({1, 2}, {2}, nullptr, args.client);
  require(s.download_f32(buffer, 2) == std::vector<float>({1, 2}), "wrong values");
}

void check_unknown_option(Session& s) {
  s.initialize();
  auto option = make_args<PJRT_NamedValue>();
  constexpr std::string_view kName = "an_option_that_no_plugin_has";
  constexpr std::string_view kValue = "x";
  option.name = kName.data();
  option.name_size = kName.size();
  option.type = PJRT_NamedValue_kString;
  option.string_value = kValue.data();
  option.value_size = kValue.size();
  auto args = make_args<PJRT_Client_Create_Args>();
  args.create_options = &option;
  args.num_options = 1;
  auto error = s.try_call(HEKLA_SLOT(PJRT_Client_Create), &args);
  if (error) {
    require_equal(error->code, PJRT_Error_Code_INVALID_ARGUMENT, "code for an unknown option");
    require(!error->message.empty(), "refused without words");
    s.remark("refused");
    return;
  }
  s.remark("ignored");
  s.destroy_client(args.client);
}

void check_recreate(Session& s) {
  for (int i = 0; i < 8; ++i) {
    PJRT_Client* client = s.create_client();
    PJRT_Buffer* buffer = s.upload_f32({1, 2}, {2}, nullptr, client);
    require(s.download_f32(buffer, 2) == std::vector<float>({1, 2}), "wrong values");
    s.destroy_buffer(buffer);
    s.destroy_client(client);
  }
}

void check_platform(Session& s) {
  require(!s.platform_name(s.client()).empty(), "the platform has no name");
  auto args = make_args<PJRT_Client_PlatformVersion_Args>();
  args.client = s.client();
  s.call(HEKLA_SLOT(PJRT_Client_PlatformVersion), &args);
  require(args.platform_version != nullptr, "the platform version is null");
  s.remark(s.platform_name(s.client()));
}

void check_process_index(Session& s) {
  auto args = make_args<PJRT_Client_ProcessIndex_Args>();
  args.client = s.client();
  args.process_index = -7;
  s.call(HEKLA_SLOT(PJRT_Client_ProcessIndex), &args);
  require_equal(args.process_index, 0, "process index of the only process");
}

void check_devices(Session& s) {
  const std::vector<PJRT_Device*> all = s.devices();
  require(!all.empty(), "the device list is empty");
  require(s.devices() == all, "the device list changed");
  require(std::set<PJRT_Device*>(all.begin(), all.end()).size() == all.size(),
          "a device pointer appears twice");
  std::set<int> ids;
  for (PJRT_Device* device : all) {
    const int id = s.device_id(device);
    require(id >= 0, "device id " + std::to_string(id));
    require(ids.insert(id).second, "device id " + std::to_string(id) + " appears twice");
  }
  const std::vector<PJRT_Device*> local = s.addressable_devices();
  require(!local.empty(), "no addressable device");
  for (PJRT_Device* device : local) {
    require(std::find(all.begin(), all.end(), device) != all.end(),
            "an addressable device is not in the device list");
    auto args = make_args<PJRT_Device_IsAddressable_Args>();
    args.device = device;
    s.call(HEKLA_SLOT(PJRT_Device_IsAddressable), &args);
    require(args.is_addressable, "an addressable device says that it is not");
  }
  s.remark(std::to_string(local.size()) + " addressable devices");
}

void check_lookup(Session& s) {
  int largest = 0;
  for (PJRT_Device* device : s.devices()) {
    auto args = make_args<PJRT_Client_LookupDevice_Args>();
    args.client = s.client();
    args.id = s.device_id(device);
    largest = std::max(largest, args.id);
    s.call(HEKLA_SLOT(PJRT_Client_LookupDevice), &args);
    require(args.device == device, "the id of a device does not lead back to it");
  }
  for (int id : {-1, largest + 1}) {
    auto args = make_args<PJRT_Client_LookupDevice_Args>();
    args.client = s.client();
    args.id = id;
    s.call_fails(HEKLA_SLOT(PJRT_Client_LookupDevice), &args, PJRT_Error_Code_INVALID_ARGUMENT,
                 "id " + std::to_string(id));
  }
}

void check_lookup_addressable(Session& s) {
  for (PJRT_Device* device : s.addressable_devices()) {
    auto hardware = make_args<PJRT_Device_LocalHardwareId_Args>();
    hardware.device = device;
    s.call(HEKLA_SLOT(PJRT_Device_LocalHardwareId), &hardware);
    auto args = make_args<PJRT_Client_LookupAddressableDevice_Args>();
    args.client = s.client();
    args.local_hardware_id = hardware.local_hardware_id;
    s.call(HEKLA_SLOT(PJRT_Client_LookupAddressableDevice), &args);
    require(args.addressable_device == device, "local hardware id " +
                                                   std::to_string(hardware.local_hardware_id) +
                                                   " does not lead back to its device");
  }
  auto args = make_args<PJRT_Client_LookupAddressableDevice_Args>();
  args.client = s.client();
  args.local_hardware_id = -1;
  s.call_fails(HEKLA_SLOT(PJRT_Client_LookupAddressableDevice), &args,
               PJRT_Error_Code_INVALID_ARGUMENT, "local hardware id -1");
}

std::vector<int> assignment(Session& s, int replicas, int partitions) {
  std::vector<int> ids(static_cast<size_t>(replicas) * partitions, -1);
  auto args = make_args<PJRT_Client_DefaultDeviceAssignment_Args>();
  args.client = s.client();
  args.num_replicas = replicas;
  args.num_partitions = partitions;
  args.default_assignment = ids.data();
  args.default_assignment_size = ids.size();
  s.call(HEKLA_SLOT(PJRT_Client_DefaultDeviceAssignment), &args);
  return ids;
}

void check_assignment(Session& s) {
  const int id = assignment(s, 1, 1)[0];
  std::set<int> known;
  for (PJRT_Device* device : s.devices()) known.insert(s.device_id(device));
  require(known.count(id) == 1, "the default device of 1 x 1 is unknown: " + std::to_string(id));
  // Two replicas are asked for on machines with one device, too.
  const std::vector<int> two = assignment(s, 2, 1);
  require(two[0] >= 0 && two[1] >= 0 && two[0] != two[1],
          "2 x 1 gave " + std::to_string(two[0]) + ", " + std::to_string(two[1]));
}

void check_assignment_errors(Session& s) {
  struct Case {
    int replicas, partitions;
    size_t room;
    int code;
  };
  // 65536 x 65537 overflows 32 bits to 65536.
  const Case cases[] = {{4, 2, 7, PJRT_Error_Code_FAILED_PRECONDITION},
                        {65536, 65537, 65536, PJRT_Error_Code_FAILED_PRECONDITION},
                        {-1, 2, 4, PJRT_Error_Code_INVALID_ARGUMENT},
                        {2, 0, 4, PJRT_Error_Code_INVALID_ARGUMENT}};
  for (const Case& c : cases) {
    std::vector<int> ids(c.room);
    auto args = make_args<PJRT_Client_DefaultDeviceAssignment_Args>();
    args.client = s.client();
    args.num_replicas = c.replicas;
    args.num_partitions = c.partitions;
    args.default_assignment = ids.data();
    args.default_assignment_size = ids.size();
    s.call_fails(HEKLA_SLOT(PJRT_Client_DefaultDeviceAssignment), &args, c.code,
                 std::to_string(c.replicas) + " x " + std::to_string(c.partitions) +
                     " with room for " + std::to_string(c.room));
  }
}

void check_process_info(Session& s) {
  auto info = make_args<PJRT_ProcessInfo>();
  info.state = PJRT_ProcessState_kConnected;
  info.incarnation_id = 1;
  auto args = make_args<PJRT_Client_UpdateGlobalProcessInfo_Args>();
  args.client = s.client();
  args.process_infos = &info;
  args.num_process_infos = 1;
  s.call(HEKLA_SLOT(PJRT_Client_UpdateGlobalProcessInfo), &args);
}

void check_dma(Session& s) {
  std::vector<uint8_t> memory(1 << 16);
  auto map = make_args<PJRT_Client_DmaMap_Args>();
  map.client = s.client();
  map.data = memory.data();
  map.size = memory.size();
  s.call_optional(HEKLA_SLOT(PJRT_Client_DmaMap), &map);
  auto unmap = make_args<PJRT_Client_DmaUnmap_Args>();
  unmap.client = s.client();
  unmap.data = memory.data();
  s.call(HEKLA_SLOT(PJRT_Client_DmaUnmap), &unmap);
}

// Calls a query twice over different garbage; an output that was not written differs.
template <class Args, class Fill, class... Fields>
void require_written(Session& s, PJRT_Error* (*PJRT_Api::*member)(Args*), const char* name,
                     Fill fill, Fields... fields) {
  if (s.find(member) == nullptr) return;
  Args runs[2];
  for (int i = 0; i < 2; ++i) {
    std::memset(static_cast<void*>(&runs[i]), i == 0 ? 0x5a : 0xa5, sizeof(Args));
    runs[i].struct_size = sizeof(Args);
    runs[i].extension_start = nullptr;
    fill(runs[i]);
    if (auto error = s.try_call(member, name, &runs[i])) {
      if (error->code == PJRT_Error_Code_UNIMPLEMENTED) return;
      fail(std::string(name) + ": " + error->text());
    }
  }
  const auto check = [&](auto field) {
    require(std::memcmp(&(runs[0].*field), &(runs[1].*field), sizeof(runs[0].*field)) == 0,
            std::string(name) + " leaves an output unwritten");
  };
  (check(fields), ...);
}

#define WRITTEN(function, object, value, ...)                                               \
  require_written(                                                                          \
      s, HEKLA_SLOT(PJRT_##function), [&](PJRT_##function##_Args& a) { a.object = value; }, \
      __VA_ARGS__)
#define FIELD(function, name) &PJRT_##function##_Args::name

void check_outputs_written(Session& s) {
  PJRT_Client* client = s.client();
  WRITTEN(Client_PlatformName, client, client, FIELD(Client_PlatformName, platform_name),
          FIELD(Client_PlatformName, platform_name_size));
  WRITTEN(Client_PlatformVersion, client, client, FIELD(Client_PlatformVersion, platform_version),
          FIELD(Client_PlatformVersion, platform_version_size));
  WRITTEN(Client_ProcessIndex, client, client, FIELD(Client_ProcessIndex, process_index));
  WRITTEN(Client_Devices, client, client, FIELD(Client_Devices, devices),
          FIELD(Client_Devices, num_devices));
  WRITTEN(Client_AddressableDevices, client, client,
          FIELD(Client_AddressableDevices, addressable_devices),
          FIELD(Client_AddressableDevices, num_addressable_devices));
  WRITTEN(Client_AddressableMemories, client, client,
          FIELD(Client_AddressableMemories, addressable_memories),
          FIELD(Client_AddressableMemories, num_addressable_memories));
  WRITTEN(Client_TopologyDescription, client, client, FIELD(Client_TopologyDescription, topology));

  PJRT_Device* device = s.device();
  WRITTEN(Device_GetDescription, device, device, FIELD(Device_GetDescription, device_description));
  WRITTEN(Device_IsAddressable, device, device, FIELD(Device_IsAddressable, is_addressable));
  WRITTEN(Device_LocalHardwareId, device, device, FIELD(Device_LocalHardwareId, local_hardware_id));
  WRITTEN(Device_AddressableMemories, device, device, FIELD(Device_AddressableMemories, memories),
          FIELD(Device_AddressableMemories, num_memories));
  WRITTEN(Device_DefaultMemory, device, device, FIELD(Device_DefaultMemory, memory));
  WRITTEN(Device_MemoryStats, device, device, FIELD(Device_MemoryStats, bytes_in_use),
          FIELD(Device_MemoryStats, peak_bytes_in_use_is_set),
          FIELD(Device_MemoryStats, num_allocs_is_set),
          FIELD(Device_MemoryStats, largest_alloc_size_is_set),
          FIELD(Device_MemoryStats, bytes_limit_is_set),
          FIELD(Device_MemoryStats, bytes_reserved_is_set),
          FIELD(Device_MemoryStats, peak_bytes_reserved_is_set),
          FIELD(Device_MemoryStats, bytes_reservable_limit_is_set),
          FIELD(Device_MemoryStats, largest_free_block_bytes_is_set),
          FIELD(Device_MemoryStats, pool_bytes_is_set),
          FIELD(Device_MemoryStats, peak_pool_bytes_is_set));
  if (s.minor() >= 113) {
    WRITTEN(Device_MemoryStats, device, device,
            FIELD(Device_MemoryStats, peak_allocated_bytes_is_set));
  }
  PJRT_DeviceDescription* description = s.description(device);
  WRITTEN(DeviceDescription_Id, device_description, description, FIELD(DeviceDescription_Id, id));
  WRITTEN(DeviceDescription_ProcessIndex, device_description, description,
          FIELD(DeviceDescription_ProcessIndex, process_index));
  WRITTEN(DeviceDescription_Attributes, device_description, description,
          FIELD(DeviceDescription_Attributes, num_attributes),
          FIELD(DeviceDescription_Attributes, attributes));
  WRITTEN(DeviceDescription_Kind, device_description, description,
          FIELD(DeviceDescription_Kind, device_kind),
          FIELD(DeviceDescription_Kind, device_kind_size));
  WRITTEN(DeviceDescription_DebugString, device_description, description,
          FIELD(DeviceDescription_DebugString, debug_string),
          FIELD(DeviceDescription_DebugString, debug_string_size));
  WRITTEN(DeviceDescription_ToString, device_description, description,
          FIELD(DeviceDescription_ToString, to_string),
          FIELD(DeviceDescription_ToString, to_string_size));
  if (PJRT_Memory* memory = s.default_memory(device)) {
    WRITTEN(Memory_Id, memory, memory, FIELD(Memory_Id, id));
    WRITTEN(Memory_Kind, memory, memory, FIELD(Memory_Kind, kind), FIELD(Memory_Kind, kind_size));
    WRITTEN(Memory_Kind_Id, memory, memory, FIELD(Memory_Kind_Id, kind_id));
    WRITTEN(Memory_DebugString, memory, memory, FIELD(Memory_DebugString, debug_string),
            FIELD(Memory_DebugString, debug_string_size));
    WRITTEN(Memory_ToString, memory, memory, FIELD(Memory_ToString, to_string),
            FIELD(Memory_ToString, to_string_size));
    WRITTEN(Memory_AddressableByDevices, memory, memory,
            FIELD(Memory_AddressableByDevices, devices),
            FIELD(Memory_AddressableByDevices, num_devices));
  }
  PJRT_Buffer* buffer = s.upload_f32({1, 2, 3, 4}, {2, 2});
  WRITTEN(Buffer_ElementType, buffer, buffer, FIELD(Buffer_ElementType, type));
  WRITTEN(Buffer_Dimensions, buffer, buffer, FIELD(Buffer_Dimensions, dims),
          FIELD(Buffer_Dimensions, num_dims));
  WRITTEN(Buffer_UnpaddedDimensions, buffer, buffer,
          FIELD(Buffer_UnpaddedDimensions, unpadded_dims),
          FIELD(Buffer_UnpaddedDimensions, num_dims));
  WRITTEN(Buffer_DynamicDimensionIndices, buffer, buffer,
          FIELD(Buffer_DynamicDimensionIndices, num_dynamic_dims));
  WRITTEN(Buffer_OnDeviceSizeInBytes, buffer, buffer,
          FIELD(Buffer_OnDeviceSizeInBytes, on_device_size_in_bytes));
  WRITTEN(Buffer_IsDeleted, buffer, buffer, FIELD(Buffer_IsDeleted, is_deleted));
  WRITTEN(Buffer_IsOnCpu, buffer, buffer, FIELD(Buffer_IsOnCpu, is_on_cpu));
  WRITTEN(Buffer_Device, buffer, buffer, FIELD(Buffer_Device, device));
  WRITTEN(Buffer_Memory, buffer, buffer, FIELD(Buffer_Memory, memory));

  PJRT_LoadedExecutable* loaded = s.compile(kTwoOutputs);
  WRITTEN(LoadedExecutable_IsDeleted, executable, loaded,
          FIELD(LoadedExecutable_IsDeleted, is_deleted));
  WRITTEN(LoadedExecutable_AddressableDevices, executable, loaded,
          FIELD(LoadedExecutable_AddressableDevices, addressable_devices),
          FIELD(LoadedExecutable_AddressableDevices, num_addressable_devices));
  WRITTEN(LoadedExecutable_AddressableDeviceLogicalIds, executable, loaded,
          FIELD(LoadedExecutable_AddressableDeviceLogicalIds, num_addressable_device_logical_ids));
  PJRT_Executable* executable = s.executable_of(loaded);
  WRITTEN(Executable_Name, executable, executable, FIELD(Executable_Name, executable_name),
          FIELD(Executable_Name, executable_name_size));
  WRITTEN(Executable_NumReplicas, executable, executable,
          FIELD(Executable_NumReplicas, num_replicas));
  WRITTEN(Executable_NumPartitions, executable, executable,
          FIELD(Executable_NumPartitions, num_partitions));
  WRITTEN(Executable_NumOutputs, executable, executable, FIELD(Executable_NumOutputs, num_outputs));
  WRITTEN(Executable_SizeOfGeneratedCodeInBytes, executable, executable,
          FIELD(Executable_SizeOfGeneratedCodeInBytes, size_in_bytes));
  WRITTEN(Executable_OutputElementTypes, executable, executable,
          FIELD(Executable_OutputElementTypes, output_types),
          FIELD(Executable_OutputElementTypes, num_output_types));
  WRITTEN(Executable_OutputDimensions, executable, executable,
          FIELD(Executable_OutputDimensions, num_outputs), FIELD(Executable_OutputDimensions, dims),
          FIELD(Executable_OutputDimensions, dim_sizes));
  WRITTEN(Executable_OutputMemoryKinds, executable, executable,
          FIELD(Executable_OutputMemoryKinds, num_outputs),
          FIELD(Executable_OutputMemoryKinds, memory_kinds),
          FIELD(Executable_OutputMemoryKinds, memory_kind_sizes));
  WRITTEN(Executable_Fingerprint, executable, executable,
          FIELD(Executable_Fingerprint, executable_fingerprint_size));
}

void check_concurrent_queries(Session& s) {
  s.client();
  PJRT_Buffer* buffer = s.upload_f32({1, 2, 3, 4}, {2, 2});
  PJRT_LoadedExecutable* loaded = s.compile(kTwoOutputs);
  PJRT_Executable* executable = s.executable_of(loaded);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      try {
        for (int i = 0; i < 50; ++i) {
          for (PJRT_Device* device : s.devices()) s.device_id(device);
          auto dims = make_args<PJRT_Buffer_Dimensions_Args>();
          dims.buffer = buffer;
          s.call(HEKLA_SLOT(PJRT_Buffer_Dimensions), &dims);
          if (dims.num_dims != 2 || dims.dims[0] != 2) ++wrong;
          auto types = make_args<PJRT_Executable_OutputElementTypes_Args>();
          types.executable = executable;
          s.call(HEKLA_SLOT(PJRT_Executable_OutputElementTypes), &types);
          if (types.num_output_types != 3) ++wrong;
          s.finish_event(s.ready_event(buffer));
        }
      } catch (const Failure&) {
        ++wrong;
      } catch (const NotOffered&) {
        ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  require_equal(wrong, 0, "wrong answers under eight threads");
}

// ---- Topology.

PJRT_TopologyDescription* client_topology(Session& s) {
  auto args = make_args<PJRT_Client_TopologyDescription_Args>();
  args.client = s.client();
  s.call_optional(HEKLA_SLOT(PJRT_Client_TopologyDescription), &args);
  require(args.topology != nullptr, "PJRT_Client_TopologyDescription returned null");
  return args.topology;
}

size_t describe_topology(Session& s, PJRT_TopologyDescription* topology) {
  auto name = make_args<PJRT_TopologyDescription_PlatformName_Args>();
  name.topology = topology;
  s.call(HEKLA_SLOT(PJRT_TopologyDescription_PlatformName), &name);
  require(std::string(name.platform_name, name.platform_name_size) == s.platform_name(s.client()),
          "topology and client have different platform names");
  auto version = make_args<PJRT_TopologyDescription_PlatformVersion_Args>();
  version.topology = topology;
  s.call(HEKLA_SLOT(PJRT_TopologyDescription_PlatformVersion), &version);
  require(version.platform_version != nullptr, "the topology's platform version is null");
  auto attributes = make_args<PJRT_TopologyDescription_Attributes_Args>();
  attributes.topology = topology;
  s.call(HEKLA_SLOT(PJRT_TopologyDescription_Attributes), &attributes);
  for (size_t i = 0; i < attributes.num_attributes; ++i) {
    const PJRT_NamedValue& value = attributes.attributes[i];
    require(value.name != nullptr && value.name[value.name_size] == '\0',
            "a topology attribute's name does not end in a NUL");
  }
  auto descriptions = make_args<PJRT_TopologyDescription_GetDeviceDescriptions_Args>();
  descriptions.topology = topology;
  s.call(HEKLA_SLOT(PJRT_TopologyDescription_GetDeviceDescriptions), &descriptions);
  std::set<int> ids;
  for (size_t i = 0; i < descriptions.num_descriptions; ++i) {
    auto id = make_args<PJRT_DeviceDescription_Id_Args>();
    id.device_description = descriptions.descriptions[i];
    s.call(HEKLA_SLOT(PJRT_DeviceDescription_Id), &id);
    require(ids.insert(id.id).second, "a device id appears twice in the topology");
  }
  for (PJRT_Device* device : s.devices()) {
    require(ids.count(s.device_id(device)) == 1, "a device of the client is not in the topology");
  }
  return descriptions.num_descriptions;
}

void check_topology(Session& s) {
  PJRT_TopologyDescription* topology = client_topology(s);
  require_equal(describe_topology(s, topology), s.devices().size(), "devices in the topology");
  require(client_topology(s) == topology, "the client's topology changed its address");
}

void check_topology_serialize(Session& s) {
  PJRT_TopologyDescription* topology = client_topology(s);
  auto out = make_args<PJRT_TopologyDescription_Serialize_Args>();
  out.topology = topology;
  s.call_optional(HEKLA_SLOT(PJRT_TopologyDescription_Serialize), &out);
  require(out.serialized_topology_deleter != nullptr, "the deleter is null");
  const std::string bytes(out.serialized_bytes, out.serialized_bytes_size);
  out.serialized_topology_deleter(out.serialized_topology);
  auto in = make_args<PJRT_TopologyDescription_Deserialize_Args>();
  in.serialized_topology = bytes.data();
  in.serialized_topology_size = bytes.size();
  s.call_optional(HEKLA_SLOT(PJRT_TopologyDescription_Deserialize), &in);
  require(in.topology != nullptr, "deserializing returned null");
  require_equal(describe_topology(s, in.topology), s.devices().size(),
                "devices after a round trip");
  auto destroy = make_args<PJRT_TopologyDescription_Destroy_Args>();
  destroy.topology = in.topology;
  s.call(HEKLA_SLOT(PJRT_TopologyDescription_Destroy), &destroy);
}

void check_topology_garbage(Session& s) {
  const std::string bytes = "\x07these bytes are no topology \xff\xff\xff";
  auto in = make_args<PJRT_TopologyDescription_Deserialize_Args>();
  in.serialized_topology = bytes.data();
  in.serialized_topology_size = bytes.size();
  s.call_fails(HEKLA_SLOT(PJRT_TopologyDescription_Deserialize), &in, 0, "garbage");
}

void check_topology_fingerprint(Session& s) {
  uint64_t values[2];
  for (uint64_t& value : values) {
    auto args = make_args<PJRT_TopologyDescription_Fingerprint_Args>();
    args.topology = client_topology(s);
    s.call_optional(HEKLA_SLOT(PJRT_TopologyDescription_Fingerprint), &args);
    value = args.fingerprint;
  }
  require(values[0] == values[1], "the fingerprint changed");
}

void check_topology_create(Session& s) {
  s.initialize();
  for (std::string_view name : {"", "a name that no plugin has"}) {
    auto args = make_args<PJRT_TopologyDescription_Create_Args>();
    args.topology_name = name.data();
    args.topology_name_size = name.size();
    if (auto error = s.try_call(HEKLA_SLOT(PJRT_TopologyDescription_Create), &args)) {
      require(!error->message.empty(), "an error without words");
      s.remark(code_name(error->code));
      continue;
    }
    require(args.topology != nullptr, "success with a null topology");
    auto destroy = make_args<PJRT_TopologyDescription_Destroy_Args>();
    destroy.topology = args.topology;
    s.call(HEKLA_SLOT(PJRT_TopologyDescription_Destroy), &destroy);
    s.remark("created");
  }
}

void check_topology_kinds(Session& s) {
  auto args = make_args<PJRT_TopologyDescription_GetMemorySpaceKindIds_Args>();
  args.topology = client_topology(s);
  s.call_optional(HEKLA_SLOT(PJRT_TopologyDescription_GetMemorySpaceKindIds), &args);
  const std::set<int> ids(args.memory_space_kind_ids,
                          args.memory_space_kind_ids + args.num_memory_space_kind_ids);
  for (PJRT_Memory* memory : s.memories(s.device())) {
    auto kind = make_args<PJRT_Memory_Kind_Id_Args>();
    kind.memory = memory;
    s.call(HEKLA_SLOT(PJRT_Memory_Kind_Id), &kind);
    require(ids.count(kind.kind_id) == 1,
            "the kind id of " + s.memory_kind(memory) + " is not in the topology");
  }
}

void check_canonical_shape(Session& s) {
  PJRT_Memory* memory = s.default_memory(s.device());
  if (memory == nullptr) throw NotOffered{"the plugin has no memories"};
  auto kind = make_args<PJRT_Memory_Kind_Id_Args>();
  kind.memory = memory;
  s.call(HEKLA_SLOT(PJRT_Memory_Kind_Id), &kind);
  TiledLayout layout({1, 0});
  const int64_t dims[] = {2, 3};
  auto args = make_args<PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args>();
  args.topology = client_topology(s);
  args.memory_space_kind_id = kind.kind_id;
  args.dims = dims;
  args.num_dims = 2;
  args.element_type = PJRT_Buffer_Type_F32;
  args.layout = &layout.layout;
  s.call_optional(HEKLA_SLOT(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace), &args);
  require(args.serialized_shape_deleter != nullptr, "the deleter is null");
  std::vector<wire::Field> fields;
  const bool parsed = parse_proto({args.serialized_shape, args.serialized_shape_size}, &fields);
  args.serialized_shape_deleter(args.serialized_shape);
  require(parsed, "the answer is no ShapeProto");
  // Field 2 is the element type; F32 is 11 there.
  const auto type = std::find_if(fields.begin(), fields.end(),
                                 [](const wire::Field& field) { return field.number == 2; });
  require(type != fields.end() && type->value == 11, "the ShapeProto's element type is not F32");
}

void check_compile_topology(Session& s) {
  auto program = make_args<PJRT_Program>();
  std::string code(kAddOne);
  program.code = code.data();
  program.code_size = code.size();
  program.format = "mlir";
  program.format_size = 4;
  const std::string options = compile_options({});
  auto args = make_args<PJRT_Compile_Args>();
  args.topology = client_topology(s);
  args.program = &program;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  s.call_optional(HEKLA_SLOT(PJRT_Compile), &args);
  require(args.executable != nullptr, "PJRT_Compile returned a null executable");
  auto load = make_args<PJRT_Client_Load_Args>();
  load.client = s.client();
  load.executable = args.executable;
  load.compile_options = options.data();
  load.compile_options_size = options.size();
  s.call_optional(HEKLA_SLOT(PJRT_Client_Load), &load);
  require(load.loaded_executable != nullptr, "PJRT_Client_Load returned null");
  s.own(load.loaded_executable);
  s.destroy_executable(args.executable);
  PJRT_Buffer* input = s.upload_f32({1, 2, 3, 4}, {4});
  const auto outputs = s.run(load.loaded_executable, {input});
  require(s.download_f32(outputs[0], 4) == std::vector<float>({2, 3, 4, 5}), "wrong result");
}

constexpr Check kClientChecks[] = {
    {"client-create",
     "A client is created without options and without key-value callbacks, and has a device.",
     check_create},
    {"client-garbage-callbacks",
     "With one process the key-value callback fields are not touched, whatever they hold.",
     check_garbage_callbacks},
    {"client-unknown-option", "An unknown option is refused with INVALID_ARGUMENT or ignored.",
     check_unknown_option},
    {"client-recreate", "Clients can be created and destroyed many times in one process.",
     check_recreate},
    {"platform-name", "The platform has a name and a version.", check_platform},
    {"process-index", "The process index of a single process is 0.", check_process_index},
    {"devices",
     "Devices have unique stable pointers and unique ids; addressable ones are among them.",
     check_devices},
    {"lookup-device", "An id leads to its device; -1 and unknown ids are INVALID_ARGUMENT.",
     check_lookup},
    {"lookup-addressable-device", "A local hardware id leads to its device; -1 is an error.",
     check_lookup_addressable},
    {"default-device-assignment",
     "Default assignments name known devices; two replicas are assigned even on one device.",
     check_assignment},
    {"default-device-assignment-errors",
     "Too little room is FAILED_PRECONDITION (computed in 64 bits), counts below 1 are "
     "INVALID_ARGUMENT.",
     check_assignment_errors},
    {"global-process-info", "Updates about processes are accepted.", check_process_info},
    {"dma-map", "A host range can be registered and released.", check_dma},
    {"outputs-written",
     "Every query writes all of its outputs, whatever the memory held before the call.",
     check_outputs_written},
    {"concurrent-queries", "Queries on one object are safe from several threads.",
     check_concurrent_queries},
};

constexpr Check kTopologyChecks[] = {
    {"topology", "The client's topology is stable and describes the platform and every device.",
     check_topology},
    {"topology-serialize", "A topology survives serialization.", check_topology_serialize},
    {"topology-garbage", "Garbage is no topology and ends in an error.", check_topology_garbage},
    {"topology-fingerprint", "The fingerprint of a topology is stable.",
     check_topology_fingerprint},
    {"topology-create", "A topology is created from a name, or refused with words.",
     check_topology_create},
    {"topology-memory-kinds", "The topology lists the kind id of every memory.",
     check_topology_kinds},
    {"topology-canonical-shape",
     "The canonical shape in a memory is a ShapeProto of the same type.", check_canonical_shape},
    {"compile-for-topology", "A program compiled for a topology can be loaded and run.",
     check_compile_topology},
};

}  // namespace

std::span<const Check> client_checks() { return kClientChecks; }
std::span<const Check> topology_checks() { return kTopologyChecks; }

}  // namespace hekla::conformance
