// SPDX-License-Identifier: Apache-2.0
// Devices and memories.
#include <algorithm>

#include "plugin_api/conformance/check.h"
#include "plugin_api/conformance/session.h"

namespace hekla::conformance {
namespace {

void check_description(Session& s) {
  for (PJRT_Device* device : s.addressable_devices()) {
    PJRT_DeviceDescription* description = s.description(device);
    require(s.description(device) == description, "the description changed its address");
    auto process = make_args<PJRT_DeviceDescription_ProcessIndex_Args>();
    process.device_description = description;
    s.call(HEKLA_SLOT(PJRT_DeviceDescription_ProcessIndex), &process);
    require_equal(process.process_index, 0, "process index of an addressable device");
    auto kind = make_args<PJRT_DeviceDescription_Kind_Args>();
    kind.device_description = description;
    s.call(HEKLA_SLOT(PJRT_DeviceDescription_Kind), &kind);
    require(kind.device_kind != nullptr && kind.device_kind_size > 0, "the device has no kind");
    auto debug = make_args<PJRT_DeviceDescription_DebugString_Args>();
    debug.device_description = description;
    s.call(HEKLA_SLOT(PJRT_DeviceDescription_DebugString), &debug);
    require(debug.debug_string != nullptr && debug.debug_string_size > 0, "no debug string");
    auto text = make_args<PJRT_DeviceDescription_ToString_Args>();
    text.device_description = description;
    s.call(HEKLA_SLOT(PJRT_DeviceDescription_ToString), &text);
    require(text.to_string != nullptr && text.to_string_size > 0, "no string form");
  }
}

void require_attributes(const PJRT_NamedValue* attributes, size_t count) {
  std::set<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    const PJRT_NamedValue& value = attributes[i];
    require(value.name != nullptr && value.name_size > 0, "an attribute without a name");
    const std::string name(value.name, value.name_size);
    require(value.name[value.name_size] == '\0', name + " does not end in a NUL");
    require(names.insert(name).second, name + " appears twice");
    // Clients end the process for the other types.
    require(value.type == PJRT_NamedValue_kString || value.type == PJRT_NamedValue_kInt64 ||
                value.type == PJRT_NamedValue_kInt64List,
            name + " has type " + std::to_string(value.type) +
                "; only string, int64 and int64 list are legal here");
    require(value.type != PJRT_NamedValue_kInt64 || value.value_size == 1,
            name + " is an int64 with value_size " + std::to_string(value.value_size));
  }
}

void check_description_attributes(Session& s) {
  for (PJRT_Device* device : s.devices()) {
    auto args = make_args<PJRT_DeviceDescription_Attributes_Args>();
    args.device_description = s.description(device);
    s.call(HEKLA_SLOT(PJRT_DeviceDescription_Attributes), &args);
    require_attributes(args.attributes, args.num_attributes);
  }
}

void check_device_attributes(Session& s) {
  for (PJRT_Device* device : s.devices()) {
    auto args = make_args<PJRT_Device_GetAttributes_Args>();
    args.device = device;
    // Clients accept a null slot but no error.
    s.call(HEKLA_SLOT(PJRT_Device_GetAttributes), &args);
    require_attributes(args.attributes, args.num_attributes);
    require(args.attributes_deleter != nullptr, "the deleter is null, which clients call");
    args.attributes_deleter(args.device_attributes);
  }
}

void check_local_hardware_id(Session& s) {
  std::set<int> ids;
  for (PJRT_Device* device : s.addressable_devices()) {
    auto args = make_args<PJRT_Device_LocalHardwareId_Args>();
    args.device = device;
    args.local_hardware_id = -9;
    s.call(HEKLA_SLOT(PJRT_Device_LocalHardwareId), &args);
    require(args.local_hardware_id >= 0,
            "local hardware id " + std::to_string(args.local_hardware_id));
    require(ids.insert(args.local_hardware_id).second, "a local hardware id appears twice");
  }
}

PJRT_Device_MemoryStats_Args stats(Session& s) {
  auto args = make_args<PJRT_Device_MemoryStats_Args>();
  args.device = s.device();
  s.call_optional(HEKLA_SLOT(PJRT_Device_MemoryStats), &args);
  return args;
}

void check_memory_stats(Session& s) {
  const auto before = stats(s);
  require(before.bytes_in_use >= 0, "bytes_in_use is negative");
  const std::vector<float> values(1 << 20, 1.0f);
  PJRT_Buffer* buffer = s.upload_f32(values, {1 << 20}, s.device());
  const auto with = stats(s);
  const int64_t size = static_cast<int64_t>(values.size() * sizeof(float));
  require(with.bytes_in_use >= size, "bytes_in_use is " + std::to_string(with.bytes_in_use) +
                                         " beside a buffer of " + std::to_string(size));
  if (with.bytes_limit_is_set) {
    require(with.bytes_limit >= with.bytes_in_use, "bytes_limit is below bytes_in_use");
  }
  if (with.peak_bytes_in_use_is_set) {
    require(with.peak_bytes_in_use >= with.bytes_in_use, "the peak is below bytes_in_use");
  }
  s.destroy_buffer(buffer);
  require(stats(s).bytes_in_use <= with.bytes_in_use - size,
          "bytes_in_use did not fall when the buffer was destroyed");
}

void check_clear_stats(Session& s) {
  auto args = make_args<PJRT_Device_ClearMemoryStats_Args>();
  args.device = s.device();
  s.call_optional(HEKLA_SLOT(PJRT_Device_ClearMemoryStats), &args);
}

void check_poison(Session& s) {
  auto args = make_args<PJRT_Device_PoisonExecution_Args>();
  args.device = s.device();
  args.launch_id = 123456;
  args.error_code = PJRT_Error_Code_ABORTED;
  args.error_message = "poisoned";
  args.error_message_size = 8;
  args.poisoned = true;
  s.call_optional(HEKLA_SLOT(PJRT_Device_PoisonExecution), &args);
  require(!args.poisoned, "a launch that does not exist was poisoned");
}

void check_tracking_event(Session& s) {
  auto args = make_args<PJRT_Device_CreateAsyncTrackingEvent_Args>();
  args.device = s.device();
  args.description = "work";
  args.description_size = 4;
  // An error here ends the client's process; a null event is a legal answer.
  s.call(HEKLA_SLOT(PJRT_Device_CreateAsyncTrackingEvent), &args);
  if (args.event == nullptr) {
    s.remark("null event");
    return;
  }
  auto destroy = make_args<PJRT_AsyncTrackingEvent_Destroy_Args>();
  destroy.event = args.event;
  s.call(HEKLA_SLOT(PJRT_AsyncTrackingEvent_Destroy), &destroy);
}

// ---- Memories.

void check_memories(Session& s) {
  auto all = make_args<PJRT_Client_AddressableMemories_Args>();
  all.client = s.client();
  s.call_optional(HEKLA_SLOT(PJRT_Client_AddressableMemories), &all);
  const std::set<PJRT_Memory*> known(all.addressable_memories,
                                     all.addressable_memories + all.num_addressable_memories);
  require(!known.empty(), "the client has no memory");
  std::set<std::string> kinds;
  for (PJRT_Device* device : s.addressable_devices()) {
    kinds.clear();
    const auto memories = s.memories(device);
    require(!memories.empty(), "a device has no memory");
    require(s.memories(device) == memories, "the memory list of a device changed");
    for (PJRT_Memory* memory : memories) {
      require(known.count(memory) == 1, "a device's memory is not in the client's list");
      const std::string kind = s.memory_kind(memory);
      require(!kind.empty(), "a memory has an empty kind");
      require(kinds.insert(kind).second, "two memories of kind " + kind + " on one device");
      auto devices = make_args<PJRT_Memory_AddressableByDevices_Args>();
      devices.memory = memory;
      s.call(HEKLA_SLOT(PJRT_Memory_AddressableByDevices), &devices);
      require(std::find(devices.devices, devices.devices + devices.num_devices, device) !=
                  devices.devices + devices.num_devices,
              "AddressableByDevices of " + kind + " does not list its device");
    }
    PJRT_Memory* memory = s.default_memory(device);
    require(std::find(memories.begin(), memories.end(), memory) != memories.end(),
            "the default memory is not in the device's list");
  }
  s.remark(join({kinds.begin(), kinds.end()}));
}

void check_memory_kind_ids(Session& s) {
  std::map<std::string, int> ids;
  for (PJRT_Device* device : s.addressable_devices()) {
    for (PJRT_Memory* memory : s.memories(device)) {
      auto args = make_args<PJRT_Memory_Kind_Id_Args>();
      args.memory = memory;
      s.call(HEKLA_SLOT(PJRT_Memory_Kind_Id), &args);
      require(args.kind_id != 0, "a memory has kind id 0");
      const auto [known, added] = ids.emplace(s.memory_kind(memory), args.kind_id);
      require(known->second == args.kind_id, "two ids for kind " + known->first);
    }
  }
  std::set<int> distinct;
  for (const auto& [kind, id] : ids) {
    require(distinct.insert(id).second, "two kinds have the id of " + kind);
  }
}

void check_memory_strings(Session& s) {
  std::set<int> ids;
  auto all = make_args<PJRT_Client_AddressableMemories_Args>();
  all.client = s.client();
  s.call_optional(HEKLA_SLOT(PJRT_Client_AddressableMemories), &all);
  for (size_t i = 0; i < all.num_addressable_memories; ++i) {
    auto id = make_args<PJRT_Memory_Id_Args>();
    id.memory = all.addressable_memories[i];
    s.call(HEKLA_SLOT(PJRT_Memory_Id), &id);
    require(ids.insert(id.id).second, "a memory id appears twice");
    auto debug = make_args<PJRT_Memory_DebugString_Args>();
    debug.memory = all.addressable_memories[i];
    s.call(HEKLA_SLOT(PJRT_Memory_DebugString), &debug);
    require(debug.debug_string != nullptr && debug.debug_string_size > 0, "no debug string");
    auto text = make_args<PJRT_Memory_ToString_Args>();
    text.memory = all.addressable_memories[i];
    s.call(HEKLA_SLOT(PJRT_Memory_ToString), &text);
    require(text.to_string != nullptr && text.to_string_size > 0, "no string form");
  }
}

void check_default_memory(Session& s) {
  PJRT_Memory* memory = s.default_memory(s.device());
  if (memory == nullptr) throw NotOffered{"the plugin has no memories"};
  const std::string kind = s.memory_kind(memory);
  if (kind != "device") throw NotOffered{"the default kind is " + kind};
}

std::atomic<int> destroyed_values{0};

void check_memory_user_data(Session& s) {
  if (s.minor() < 105) throw NotOffered{"memory objects have a function table since API 0.105"};
  PJRT_Memory* memory = s.default_memory(s.device());
  require(memory != nullptr, "no default memory");
  const PJRT_Memory_FunctionTable* table = memory->vtable;
  if (table == nullptr || table->get_user_data == nullptr || table->set_user_data == nullptr) {
    throw NotOffered{"the function table of memories is empty"};
  }
  static const char kFirst = 'a';
  static const char kSecond = 'a';
  int one = 1;
  int two = 2;
  const auto dtor = [](void*) { ++destroyed_values; };
  require(table->get_user_data(memory, &kFirst) == nullptr, "a value before one was set");
  table->set_user_data(memory, &kFirst, &one, dtor);
  require(table->get_user_data(memory, &kFirst) == &one, "the value does not come back");
  require(table->get_user_data(memory, &kSecond) == nullptr, "keys are compared by content");
  table->set_user_data(memory, &kFirst, &two, dtor);
  require(table->get_user_data(memory, &kFirst) == &two, "the new value does not come back");
  require_equal(destroyed_values, 1, "destructors run for a replaced value");
  s.destroy_client(s.client());
  require_equal(destroyed_values, 2, "destructors run after the client died");
}

constexpr Check kDeviceChecks[] = {
    {"device-description", "Every addressable device has a kind, two strings and process index 0.",
     check_description},
    {"description-attributes",
     "Attributes of descriptions are strings, int64 and int64 lists with unique NUL-terminated "
     "names.",
     check_description_attributes},
    {"device-attributes", "The same holds for live attributes, and their deleter is callable.",
     check_device_attributes},
    {"local-hardware-id", "Addressable devices have unique local hardware ids from 0 up.",
     check_local_hardware_id},
    {"memory-stats",
     "bytes_in_use covers a live buffer, falls when it dies, and stays in its limits.",
     check_memory_stats},
    {"clear-memory-stats", "Peak counters can be reset.", check_clear_stats},
    {"poison-execution",
     "Poisoning a launch that does not exist reports that nothing was poisoned.", check_poison},
    {"async-tracking-event", "Creating an async tracking event succeeds; a null event is enough.",
     check_tracking_event},
};

constexpr Check kMemoryChecks[] = {
    {"memories",
     "Each device has one memory per kind, lists agree in both directions, and the default is "
     "listed.",
     check_memories},
    {"memory-kind-ids", "Kind ids are not zero, equal for equal kinds and distinct for others.",
     check_memory_kind_ids},
    {"memory-strings", "Memories have unique ids, a debug string and a string form.",
     check_memory_strings},
    {"default-memory-kind", "The default memory is of kind \"device\".", check_default_memory},
    {"memory-user-data",
     "Since 0.105 a memory keeps values under pointer keys and destroys each exactly once.",
     check_memory_user_data},
};

}  // namespace

std::span<const Check> device_checks() { return kDeviceChecks; }
std::span<const Check> memory_checks() { return kMemoryChecks; }

}  // namespace hekla::conformance
