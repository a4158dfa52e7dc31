// SPDX-License-Identifier: Apache-2.0
// Device descriptions, devices and memories.
#include "backends/pjrt/abi.h"

namespace hekla::pjrt {
namespace {

void give(const std::string& text, const char*& data, size_t& size) {
  data = text.c_str();
  size = text.size();
}

Status DeviceDescription_Id(PJRT_DeviceDescription_Id_Args* args) {
  HEKLA_REQUIRE(args, PJRT_DeviceDescription_Id_Args, id);
  HEKLA_REQUIRE_HANDLE(args, device_description);
  args->id = args->device_description->id;
  return ok_status();
}

Status DeviceDescription_ProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args* args) {
  HEKLA_REQUIRE(args, PJRT_DeviceDescription_ProcessIndex_Args, process_index);
  HEKLA_REQUIRE_HANDLE(args, device_description);
  args->process_index = args->device_description->process_index;
  return ok_status();
}

Status DeviceDescription_Attributes(PJRT_DeviceDescription_Attributes_Args* args) {
  HEKLA_REQUIRE(args, PJRT_DeviceDescription_Attributes_Args, attributes);
  HEKLA_REQUIRE_HANDLE(args, device_description);
  args->attributes = args->device_description->attributes.values.data();
  args->num_attributes = args->device_description->attributes.values.size();
  return ok_status();
}

Status DeviceDescription_Kind(PJRT_DeviceDescription_Kind_Args* args) {
  HEKLA_REQUIRE(args, PJRT_DeviceDescription_Kind_Args, device_kind_size);
  HEKLA_REQUIRE_HANDLE(args, device_description);
  give(args->device_description->info.kind, args->device_kind, args->device_kind_size);
  return ok_status();
}

Status DeviceDescription_DebugString(PJRT_DeviceDescription_DebugString_Args* args) {
  HEKLA_REQUIRE(args, PJRT_DeviceDescription_DebugString_Args, debug_string_size);
  HEKLA_REQUIRE_HANDLE(args, device_description);
  give(args->device_description->debug_string, args->debug_string, args->debug_string_size);
  return ok_status();
}

Status DeviceDescription_ToString(PJRT_DeviceDescription_ToString_Args* args) {
  HEKLA_REQUIRE(args, PJRT_DeviceDescription_ToString_Args, to_string_size);
  HEKLA_REQUIRE_HANDLE(args, device_description);
  give(args->device_description->to_string, args->to_string, args->to_string_size);
  return ok_status();
}

Status Device_GetDescription(PJRT_Device_GetDescription_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Device_GetDescription_Args, device_description);
  HEKLA_REQUIRE_HANDLE(args, device);
  args->device_description = args->device->description;
  return ok_status();
}

Status Device_IsAddressable(PJRT_Device_IsAddressable_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Device_IsAddressable_Args, is_addressable);
  HEKLA_REQUIRE_HANDLE(args, device);
  args->is_addressable = args->device->is_addressable();
  return ok_status();
}

Status Device_LocalHardwareId(PJRT_Device_LocalHardwareId_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Device_LocalHardwareId_Args, local_hardware_id);
  HEKLA_REQUIRE_HANDLE(args, device);
  args->local_hardware_id = args->device->local_index;
  return ok_status();
}

Status Device_AddressableMemories(PJRT_Device_AddressableMemories_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Device_AddressableMemories_Args, num_memories);
  HEKLA_REQUIRE_HANDLE(args, device);
  args->memories = args->device->memories.data();
  args->num_memories = args->device->memories.size();
  return ok_status();
}

Status Device_DefaultMemory(PJRT_Device_DefaultMemory_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Device_DefaultMemory_Args, memory);
  HEKLA_REQUIRE_HANDLE(args, device);
  HEKLA_RETURN_IF_ERROR(local_index_of(*args->device).status());
  args->memory = args->device->memories.front();
  return ok_status();
}

Status Device_MemoryStats(PJRT_Device_MemoryStats_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Device_MemoryStats_Args, peak_pool_bytes_is_set);
  HEKLA_REQUIRE_HANDLE(args, device);
  HEKLA_ASSIGN_OR_RETURN(const int index, local_index_of(*args->device));
  const MemoryStats stats = args->device->state->backend->memory_stats(index);
  args->bytes_in_use = stats.bytes_in_use;
  args->peak_bytes_in_use = stats.peak_bytes_in_use;
  args->peak_bytes_in_use_is_set = true;
  args->num_allocs = stats.allocation_count;
  args->num_allocs_is_set = true;
  args->largest_alloc_size = stats.largest_allocation_bytes;
  args->largest_alloc_size_is_set = true;
  args->bytes_limit = stats.bytes_limit;
  args->bytes_limit_is_set = true;
  // What is not the device's own: the host's memory that is kept for its arrays.
  const bool has_host_bytes = stats.host_bytes_in_use >= 0;
  args->bytes_reserved = has_host_bytes ? stats.host_bytes_in_use : 0;
  args->bytes_reserved_is_set = has_host_bytes;
  args->peak_bytes_reserved = has_host_bytes ? stats.peak_host_bytes_in_use : 0;
  args->peak_bytes_reserved_is_set = has_host_bytes;
  args->bytes_reservable_limit = 0;
  args->bytes_reservable_limit_is_set = false;
  args->largest_free_block_bytes = 0;
  args->largest_free_block_bytes_is_set = false;
  args->pool_bytes = 0;
  args->pool_bytes_is_set = false;
  args->peak_pool_bytes = 0;
  args->peak_pool_bytes_is_set = false;
  if (HEKLA_COVERS(args, PJRT_Device_MemoryStats_Args, peak_allocated_bytes_is_set)) {
    args->peak_allocated_bytes = stats.peak_bytes_in_use;
    args->peak_allocated_bytes_is_set = true;
  }
  return ok_status();
}

Status Device_ClearMemoryStats(PJRT_Device_ClearMemoryStats_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Device_ClearMemoryStats_Args, device);
  HEKLA_REQUIRE_HANDLE(args, device);
  HEKLA_ASSIGN_OR_RETURN(const int index, local_index_of(*args->device));
  args->device->state->backend->reset_peak_memory(index);
  return ok_status();
}

Status Device_PoisonExecution(PJRT_Device_PoisonExecution_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Device_PoisonExecution_Args, poisoned);
  args->poisoned = false;
  return unimplemented("a running launch cannot be made to fail from outside");
}

void delete_attributes(PJRT_Device_Attributes* attributes) { delete attributes; }

Status Device_GetAttributes(PJRT_Device_GetAttributes_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Device_GetAttributes_Args, attributes_deleter);
  HEKLA_REQUIRE_HANDLE(args, device);
  auto live = std::make_unique<PJRT_Device_Attributes>();
  for (const auto& [name, value] : args->device->description->attributes.owned) {
    live->values.add(name, value);
  }
  const Backend& backend = *args->device->state->backend;
  if (args->device->is_addressable()) {
    for (const auto& [name, value] : backend.counters(args->device->local_index)) {
      live->values.add("counter." + name, value);
    }
    for (const auto& [name, value] : args->device->collectives->values()) {
      live->values.add("counter." + name, value);
    }
  }
  args->attributes = live->values.values.data();
  args->num_attributes = live->values.values.size();
  args->device_attributes = live.release();
  args->attributes_deleter = delete_attributes;
  return ok_status();
}

Status Device_CreateAsyncTrackingEvent(PJRT_Device_CreateAsyncTrackingEvent_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Device_CreateAsyncTrackingEvent_Args, event);
  args->event = nullptr;  // callers accept none, and take an error for fatal
  return ok_status();
}

Status AsyncTrackingEvent_Destroy(PJRT_AsyncTrackingEvent_Destroy_Args* args) {
  HEKLA_REQUIRE(args, PJRT_AsyncTrackingEvent_Destroy_Args, event);
  return ok_status();
}

const MemoryObject& memory_of(PJRT_Memory* memory) { return *static_cast<MemoryObject*>(memory); }

Status Memory_Id(PJRT_Memory_Id_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Memory_Id_Args, id);
  HEKLA_REQUIRE_HANDLE(args, memory);
  args->id = memory_of(args->memory).id;
  return ok_status();
}

Status Memory_Kind(PJRT_Memory_Kind_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Memory_Kind_Args, kind_size);
  HEKLA_REQUIRE_HANDLE(args, memory);
  give(memory_of(args->memory).kind, args->kind, args->kind_size);
  return ok_status();
}

Status Memory_Kind_Id(PJRT_Memory_Kind_Id_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Memory_Kind_Id_Args, kind_id);
  HEKLA_REQUIRE_HANDLE(args, memory);
  args->kind_id = memory_of(args->memory).kind_id;
  return ok_status();
}

Status Memory_DebugString(PJRT_Memory_DebugString_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Memory_DebugString_Args, debug_string_size);
  HEKLA_REQUIRE_HANDLE(args, memory);
  give(memory_of(args->memory).debug_string, args->debug_string, args->debug_string_size);
  return ok_status();
}

Status Memory_ToString(PJRT_Memory_ToString_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Memory_ToString_Args, to_string_size);
  HEKLA_REQUIRE_HANDLE(args, memory);
  give(memory_of(args->memory).to_string, args->to_string, args->to_string_size);
  return ok_status();
}

Status Memory_AddressableByDevices(PJRT_Memory_AddressableByDevices_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Memory_AddressableByDevices_Args, num_devices);
  HEKLA_REQUIRE_HANDLE(args, memory);
  const auto& devices = memory_of(args->memory).devices;
  args->devices = devices.data();
  args->num_devices = devices.size();
  return ok_status();
}

}  // namespace

Result<int> local_index_of(const PJRT_Device& device) {
  if (device.is_addressable()) return device.local_index;
  return invalid_argument("{} belongs to process {}, which alone can use it",
                          device.description->debug_string, device.description->process_index);
}

void add_device_slots(PJRT_Api& api) {
  api.PJRT_DeviceDescription_Id = Slot<DeviceDescription_Id>::call;
  api.PJRT_DeviceDescription_ProcessIndex = Slot<DeviceDescription_ProcessIndex>::call;
  api.PJRT_DeviceDescription_Attributes = Slot<DeviceDescription_Attributes>::call;
  api.PJRT_DeviceDescription_Kind = Slot<DeviceDescription_Kind>::call;
  api.PJRT_DeviceDescription_DebugString = Slot<DeviceDescription_DebugString>::call;
  api.PJRT_DeviceDescription_ToString = Slot<DeviceDescription_ToString>::call;
  api.PJRT_Device_GetDescription = Slot<Device_GetDescription>::call;
  api.PJRT_Device_IsAddressable = Slot<Device_IsAddressable>::call;
  api.PJRT_Device_LocalHardwareId = Slot<Device_LocalHardwareId>::call;
  api.PJRT_Device_AddressableMemories = Slot<Device_AddressableMemories>::call;
  api.PJRT_Device_DefaultMemory = Slot<Device_DefaultMemory>::call;
  api.PJRT_Device_MemoryStats = Slot<Device_MemoryStats>::call;
  api.PJRT_Device_ClearMemoryStats = Slot<Device_ClearMemoryStats>::call;
  api.PJRT_Device_PoisonExecution = Slot<Device_PoisonExecution>::call;
  api.PJRT_Device_GetAttributes = Slot<Device_GetAttributes>::call;
  api.PJRT_Device_CreateAsyncTrackingEvent = Slot<Device_CreateAsyncTrackingEvent>::call;
  api.PJRT_AsyncTrackingEvent_Destroy = Slot<AsyncTrackingEvent_Destroy>::call;
  api.PJRT_Memory_Id = Slot<Memory_Id>::call;
  api.PJRT_Memory_Kind = Slot<Memory_Kind>::call;
  api.PJRT_Memory_Kind_Id = Slot<Memory_Kind_Id>::call;
  api.PJRT_Memory_DebugString = Slot<Memory_DebugString>::call;
  api.PJRT_Memory_ToString = Slot<Memory_ToString>::call;
  api.PJRT_Memory_AddressableByDevices = Slot<Memory_AddressableByDevices>::call;
}

}  // namespace hekla::pjrt
