// SPDX-License-Identifier: Apache-2.0
// PJRT C API: device descriptions, devices and memories.
// Part of pjrt_c_api.h, which says what all of these headers have in common; include that one.
#pragma once

#include "plugin_api/pjrt_base.h"

#ifdef __cplusplus
extern "C" {
#endif

// Since 0.105.
struct PJRT_Memory_FunctionTable {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  size_t instance_struct_size;
  void* (*get_user_data)(PJRT_Memory* memory, const void* key);
  void (*set_user_data)(PJRT_Memory* memory, const void* key, void* data, void (*dtor)(void*));
};

// Each memory begins with this pointer; null is legal, and so are null members.
// Since 0.105.
struct PJRT_Memory {
  const PJRT_Memory_FunctionTable* vtable;
};

struct PJRT_DeviceDescription_Id_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;  // in
  int id;                                      // out
};
typedef PJRT_Error* PJRT_DeviceDescription_Id_Fn(PJRT_DeviceDescription_Id_Args* args);

struct PJRT_DeviceDescription_ProcessIndex_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;  // in
  int process_index;                           // out
};
typedef PJRT_Error* PJRT_DeviceDescription_ProcessIndex_Fn(
    PJRT_DeviceDescription_ProcessIndex_Args* args);

// Strings, int64 and int64 lists only: clients end the process for other types.
struct PJRT_DeviceDescription_Attributes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;  // in
  size_t num_attributes;                       // out
  const PJRT_NamedValue* attributes;           // out
};
typedef PJRT_Error* PJRT_DeviceDescription_Attributes_Fn(
    PJRT_DeviceDescription_Attributes_Args* args);

struct PJRT_DeviceDescription_Kind_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;  // in
  const char* device_kind;                     // out
  size_t device_kind_size;                     // out
};
typedef PJRT_Error* PJRT_DeviceDescription_Kind_Fn(PJRT_DeviceDescription_Kind_Args* args);

struct PJRT_DeviceDescription_DebugString_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;  // in
  const char* debug_string;                    // out
  size_t debug_string_size;                    // out
};
typedef PJRT_Error* PJRT_DeviceDescription_DebugString_Fn(
    PJRT_DeviceDescription_DebugString_Args* args);

struct PJRT_DeviceDescription_ToString_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;  // in
  const char* to_string;                       // out
  size_t to_string_size;                       // out
};
typedef PJRT_Error* PJRT_DeviceDescription_ToString_Fn(PJRT_DeviceDescription_ToString_Args* args);

struct PJRT_Device_GetDescription_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;                         // in
  PJRT_DeviceDescription* device_description;  // out
};
typedef PJRT_Error* PJRT_Device_GetDescription_Fn(PJRT_Device_GetDescription_Args* args);

struct PJRT_Device_IsAddressable_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;  // in
  bool is_addressable;  // out
};
typedef PJRT_Error* PJRT_Device_IsAddressable_Fn(PJRT_Device_IsAddressable_Args* args);

struct PJRT_Device_LocalHardwareId_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;    // in
  int local_hardware_id;  // out
};
typedef PJRT_Error* PJRT_Device_LocalHardwareId_Fn(PJRT_Device_LocalHardwareId_Args* args);

// Since 0.13.
struct PJRT_Device_AddressableMemories_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;           // in
  PJRT_Memory* const* memories;  // out
  size_t num_memories;           // out
};
typedef PJRT_Error* PJRT_Device_AddressableMemories_Fn(PJRT_Device_AddressableMemories_Args* args);

// Since 0.17.
struct PJRT_Device_DefaultMemory_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;  // in
  PJRT_Memory* memory;  // out
};
typedef PJRT_Error* PJRT_Device_DefaultMemory_Fn(PJRT_Device_DefaultMemory_Args* args);

// bytes_in_use is mandatory; every _is_set flag must be written.
struct PJRT_Device_MemoryStats_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;                   // in
  int64_t bytes_in_use;                  // out
  int64_t peak_bytes_in_use;             // out
  bool peak_bytes_in_use_is_set;         // out
  int64_t num_allocs;                    // out
  bool num_allocs_is_set;                // out
  int64_t largest_alloc_size;            // out
  bool largest_alloc_size_is_set;        // out
  int64_t bytes_limit;                   // out
  bool bytes_limit_is_set;               // out
  int64_t bytes_reserved;                // out
  bool bytes_reserved_is_set;            // out
  int64_t peak_bytes_reserved;           // out
  bool peak_bytes_reserved_is_set;       // out
  int64_t bytes_reservable_limit;        // out
  bool bytes_reservable_limit_is_set;    // out
  int64_t largest_free_block_bytes;      // out
  bool largest_free_block_bytes_is_set;  // out
  int64_t pool_bytes;                    // out
  bool pool_bytes_is_set;                // out
  int64_t peak_pool_bytes;               // out
  bool peak_pool_bytes_is_set;           // out
  int64_t peak_allocated_bytes;          // out, since 0.113
  bool peak_allocated_bytes_is_set;      // out, since 0.113
};
typedef PJRT_Error* PJRT_Device_MemoryStats_Fn(PJRT_Device_MemoryStats_Args* args);

// Since 0.106.
struct PJRT_Device_ClearMemoryStats_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;  // in
};
typedef PJRT_Error* PJRT_Device_ClearMemoryStats_Fn(PJRT_Device_ClearMemoryStats_Args* args);

// Since 0.85.
struct PJRT_Device_PoisonExecution_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;             // in
  int32_t launch_id;               // in
  PJRT_Error_Code error_code;      // in
  const char* error_message;       // in
  size_t error_message_size;       // in
  bool poisoned;                   // out
  const PJRT_NamedValue* payload;  // in, since 0.100
  size_t num_payload;              // in, since 0.100
};
typedef PJRT_Error* PJRT_Device_PoisonExecution_Fn(PJRT_Device_PoisonExecution_Args* args);

// Clients call the deleter without a look, also for zero attributes.
// Since 0.92.
struct PJRT_Device_GetAttributes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;                                                    // in
  const PJRT_NamedValue* attributes;                                      // out
  size_t num_attributes;                                                  // out
  PJRT_Device_Attributes* device_attributes;                              // out
  void (*attributes_deleter)(PJRT_Device_Attributes* device_attributes);  // out
};
typedef PJRT_Error* PJRT_Device_GetAttributes_Fn(PJRT_Device_GetAttributes_Args* args);

// Must succeed; a null event is accepted.
// Since 0.86.
struct PJRT_Device_CreateAsyncTrackingEvent_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;             // in
  const char* description;         // in
  size_t description_size;         // in
  PJRT_AsyncTrackingEvent* event;  // out
};
typedef PJRT_Error* PJRT_Device_CreateAsyncTrackingEvent_Fn(
    PJRT_Device_CreateAsyncTrackingEvent_Args* args);

// Since 0.86.
struct PJRT_AsyncTrackingEvent_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncTrackingEvent* event;  // in
};
typedef PJRT_Error* PJRT_AsyncTrackingEvent_Destroy_Fn(PJRT_AsyncTrackingEvent_Destroy_Args* args);

// Since 0.16.
struct PJRT_Memory_Id_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;  // in
  int id;               // out
};
typedef PJRT_Error* PJRT_Memory_Id_Fn(PJRT_Memory_Id_Args* args);

// Since 0.14.
struct PJRT_Memory_Kind_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;  // in
  const char* kind;     // out
  size_t kind_size;     // out
};
typedef PJRT_Error* PJRT_Memory_Kind_Fn(PJRT_Memory_Kind_Args* args);

// Not zero, equal for equal kinds; may be negative.
// Since 0.48.
struct PJRT_Memory_Kind_Id_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;  // in
  int kind_id;          // out
};
typedef PJRT_Error* PJRT_Memory_Kind_Id_Fn(PJRT_Memory_Kind_Id_Args* args);

// Since 0.15.
struct PJRT_Memory_DebugString_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;       // in
  const char* debug_string;  // out
  size_t debug_string_size;  // out
};
typedef PJRT_Error* PJRT_Memory_DebugString_Fn(PJRT_Memory_DebugString_Args* args);

// Since 0.15.
struct PJRT_Memory_ToString_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;    // in
  const char* to_string;  // out
  size_t to_string_size;  // out
};
typedef PJRT_Error* PJRT_Memory_ToString_Fn(PJRT_Memory_ToString_Args* args);

// Since 0.20.
struct PJRT_Memory_AddressableByDevices_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;          // in
  PJRT_Device* const* devices;  // out
  size_t num_devices;           // out
};
typedef PJRT_Error* PJRT_Memory_AddressableByDevices_Fn(
    PJRT_Memory_AddressableByDevices_Args* args);

#ifdef __cplusplus
}  // extern "C"
#endif
