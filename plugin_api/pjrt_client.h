// SPDX-License-Identifier: Apache-2.0
// PJRT C API: clients, transfers into a device, buffers' layouts.
// Part of pjrt_c_api.h, which says what all of these headers have in common; include that one.
#pragma once

#include "plugin_api/pjrt_base.h"

#ifdef __cplusplus
extern "C" {
#endif

// The callee hands over `value`; the caller copies it and calls the deleter. Plugins of the
// reference kind leave struct_size unset in the three key-value structs. Since 0.2.
struct PJRT_KeyValueGetCallback_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* key;                                               // in
  size_t key_size;                                               // in
  int timeout_in_ms;                                             // in
  PJRT_CallbackError* callback_error;                            // in
  void* user_arg;                                                // in
  char* value;                                                   // out
  size_t value_size;                                             // out
  PJRT_KeyValueGetCallback_ValueDeleter value_deleter_callback;  // out
};

// Since 0.61.
struct PJRT_KeyValueTryGetCallback_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* key;                                                  // in
  size_t key_size;                                                  // in
  PJRT_CallbackError* callback_error;                               // in
  void* user_arg;                                                   // in
  char* value;                                                      // out
  size_t value_size;                                                // out
  PJRT_KeyValueTryGetCallback_ValueDeleter value_deleter_callback;  // out
};

// Since 0.2.
struct PJRT_KeyValuePutCallback_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* key;                     // in
  size_t key_size;                     // in
  const char* value;                   // in
  size_t value_size;                   // in
  PJRT_CallbackError* callback_error;  // in
  void* user_arg;                      // in
};

// With a single process the six kv_ fields hold garbage and must not be touched.
struct PJRT_Client_Create_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_NamedValue* create_options;            // in
  size_t num_options;                               // in
  PJRT_KeyValueGetCallback kv_get_callback;         // in, since 0.2
  void* kv_get_user_arg;                            // in, since 0.2
  PJRT_KeyValuePutCallback kv_put_callback;         // in, since 0.2
  void* kv_put_user_arg;                            // in, since 0.2
  PJRT_Client* client;                              // out
  PJRT_KeyValueTryGetCallback kv_try_get_callback;  // in, since 0.61
  void* kv_try_get_user_arg;                        // in, since 0.61
};
typedef PJRT_Error* PJRT_Client_Create_Fn(PJRT_Client_Create_Args* args);

struct PJRT_Client_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;  // in
};
typedef PJRT_Error* PJRT_Client_Destroy_Fn(PJRT_Client_Destroy_Args* args);

struct PJRT_Client_PlatformName_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;        // in
  const char* platform_name;  // out
  size_t platform_name_size;  // out
};
typedef PJRT_Error* PJRT_Client_PlatformName_Fn(PJRT_Client_PlatformName_Args* args);

struct PJRT_Client_ProcessIndex_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;  // in
  int process_index;    // out
};
typedef PJRT_Error* PJRT_Client_ProcessIndex_Fn(PJRT_Client_ProcessIndex_Args* args);

struct PJRT_Client_PlatformVersion_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;           // in
  const char* platform_version;  // out
  size_t platform_version_size;  // out
};
typedef PJRT_Error* PJRT_Client_PlatformVersion_Fn(PJRT_Client_PlatformVersion_Args* args);

// The topology belongs to the client; do not destroy it.
// Since 0.36.
struct PJRT_Client_TopologyDescription_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;                 // in
  PJRT_TopologyDescription* topology;  // out
};
typedef PJRT_Error* PJRT_Client_TopologyDescription_Fn(PJRT_Client_TopologyDescription_Args* args);

// Handles are identities: each device has one pointer for the life of the client, in every answer.
struct PJRT_Client_Devices_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;          // in
  PJRT_Device* const* devices;  // out
  size_t num_devices;           // out
};
typedef PJRT_Error* PJRT_Client_Devices_Fn(PJRT_Client_Devices_Args* args);

struct PJRT_Client_AddressableDevices_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;                      // in
  PJRT_Device* const* addressable_devices;  // out
  size_t num_addressable_devices;           // out
};
typedef PJRT_Error* PJRT_Client_AddressableDevices_Fn(PJRT_Client_AddressableDevices_Args* args);

struct PJRT_Client_LookupDevice_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;  // in
  int id;               // in
  PJRT_Device* device;  // out
};
typedef PJRT_Error* PJRT_Client_LookupDevice_Fn(PJRT_Client_LookupDevice_Args* args);

struct PJRT_Client_LookupAddressableDevice_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;              // in
  int local_hardware_id;            // in
  PJRT_Device* addressable_device;  // out
};
typedef PJRT_Error* PJRT_Client_LookupAddressableDevice_Fn(
    PJRT_Client_LookupAddressableDevice_Args* args);

// Since 0.73.
struct PJRT_ProcessInfo {
  size_t struct_size;  // since 0.75
  int task_id;
  uint64_t incarnation_id;
  PJRT_ProcessState state;
  int error_code;
  const char* error_message;
  size_t error_message_size;
};

// Since 0.73.
struct PJRT_Client_UpdateGlobalProcessInfo_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;              // in
  PJRT_ProcessInfo* process_infos;  // in
  size_t num_process_infos;         // in
};
typedef PJRT_Error* PJRT_Client_UpdateGlobalProcessInfo_Fn(
    PJRT_Client_UpdateGlobalProcessInfo_Args* args);

// Since 0.20.
struct PJRT_Client_AddressableMemories_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;                       // in
  PJRT_Memory* const* addressable_memories;  // out
  size_t num_addressable_memories;           // out
};
typedef PJRT_Error* PJRT_Client_AddressableMemories_Fn(PJRT_Client_AddressableMemories_Args* args);

// As an input the code is read only. As the output of OptimizedProgram it is filled in two calls:
// with null code the size and the format come back, then the bytes are written to `code`.
struct PJRT_Program {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  char* code;  // out
  size_t code_size;
  const char* format;
  size_t format_size;
};

struct PJRT_Client_Compile_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;                // in
  const PJRT_Program* program;        // in
  const char* compile_options;        // in
  size_t compile_options_size;        // in
  PJRT_LoadedExecutable* executable;  // out
};
typedef PJRT_Error* PJRT_Client_Compile_Fn(PJRT_Client_Compile_Args* args);

// Since 0.95.
struct PJRT_Client_Load_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;                       // in
  PJRT_Executable* executable;               // in
  const char* compile_options;               // in
  size_t compile_options_size;               // in
  PJRT_LoadedExecutable* loaded_executable;  // out
};
typedef PJRT_Error* PJRT_Client_Load_Fn(PJRT_Client_Load_Args* args);

// Fills num_replicas x num_partitions device ids, row-major. The product needs 64 bits.
struct PJRT_Client_DefaultDeviceAssignment_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;             // in
  int num_replicas;                // in
  int num_partitions;              // in
  size_t default_assignment_size;  // in
  int* default_assignment;         // in/out
};
typedef PJRT_Error* PJRT_Client_DefaultDeviceAssignment_Fn(
    PJRT_Client_DefaultDeviceAssignment_Args* args);

// Since 0.67.
struct PJRT_Client_DmaMap_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;  // in
  void* data;           // in
  size_t size;          // in
};
typedef PJRT_Error* PJRT_Client_DmaMap_Fn(PJRT_Client_DmaMap_Args* args);

// Since 0.67.
struct PJRT_Client_DmaUnmap_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;  // in
  void* data;           // in
};
typedef PJRT_Error* PJRT_Client_DmaUnmap_Fn(PJRT_Client_DmaUnmap_Args* args);

// Since 0.60.
struct PJRT_AsyncHostToDeviceTransferManager_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;  // in
};
typedef PJRT_Error* PJRT_AsyncHostToDeviceTransferManager_Destroy_Fn(
    PJRT_AsyncHostToDeviceTransferManager_Destroy_Args* args);

// Since 0.60.
struct PJRT_AsyncHostToDeviceTransferManager_TransferData_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;  // in
  int buffer_index;                                         // in
  const void* data;                                         // in
  int64_t offset;                                           // in
  int64_t transfer_size;                                    // in
  bool is_last_transfer;                                    // in
  PJRT_Event* done_with_h2d_transfer;                       // out
};
typedef PJRT_Error* PJRT_AsyncHostToDeviceTransferManager_TransferData_Fn(
    PJRT_AsyncHostToDeviceTransferManager_TransferData_Args* args);

// Hands a buffer over once, ready or not; it outlives the manager.
// Since 0.62.
struct PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;  // in
  int buffer_index;                                         // in
  PJRT_Buffer* buffer_out;                                  // out
};
typedef PJRT_Error* PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Fn(
    PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args* args);

// Since 0.62.
struct PJRT_AsyncHostToDeviceTransferManager_Device_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;  // in
  PJRT_Device* device_out;                                  // out
};
typedef PJRT_Error* PJRT_AsyncHostToDeviceTransferManager_Device_Fn(
    PJRT_AsyncHostToDeviceTransferManager_Device_Args* args);

// Since 0.62.
struct PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;  // in
  size_t buffer_count;                                      // out
};
typedef PJRT_Error* PJRT_AsyncHostToDeviceTransferManager_BufferCount_Fn(
    PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args* args);

// Since 0.62.
struct PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;  // in
  int buffer_index;                                         // in
  size_t buffer_size;                                       // out
};
typedef PJRT_Error* PJRT_AsyncHostToDeviceTransferManager_BufferSize_Fn(
    PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args* args);

// Since 0.62.
struct PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;  // in
  int buffer_index;                                         // in
  PJRT_Error_Code error_code;                               // in
  const char* error_message;                                // in
  size_t error_message_size;                                // in
};
typedef PJRT_Error* PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Fn(
    PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args* args);

// Since 0.62.
struct PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;  // in
  const PJRT_NamedValue* transfer_metadata;                 // in
  size_t num_metadata;                                      // in
};
typedef PJRT_Error* PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Fn(
    PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args* args);

// Since 0.4.
struct PJRT_Buffer_MemoryLayout_Tiled {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const int64_t* minor_to_major;
  size_t minor_to_major_size;
  const int64_t* tile_dims;
  const size_t* tile_dim_sizes;
  size_t num_tiles;
};

// Since 0.4.
struct PJRT_Buffer_MemoryLayout_Strides {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const int64_t* byte_strides;
  size_t num_byte_strides;
};

// Clients leave struct_size of this record and of its members unset; do not look at it.
// Since 0.4.
struct PJRT_Buffer_MemoryLayout {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  union {
    PJRT_Buffer_MemoryLayout_Tiled tiled;
    PJRT_Buffer_MemoryLayout_Strides strides;
  };
  PJRT_Buffer_MemoryLayout_Type type;
};

// Since 0.83.
struct PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;  // in
  int buffer_index;                                         // in
  const void* data;                                         // in
  const int64_t* shape_dims;                                // in
  size_t shape_num_dims;                                    // in
  PJRT_Buffer_Type shape_element_type;                      // in
  PJRT_Buffer_MemoryLayout* shape_layout;                   // in
  PJRT_Event* done_with_h2d_transfer;                       // out
};
typedef PJRT_Error* PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Fn(
    PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args* args);

// Since 0.69.
struct PJRT_Client_CreateUninitializedBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;                     // in
  const int64_t* shape_dims;               // in
  size_t shape_num_dims;                   // in
  PJRT_Buffer_Type shape_element_type;     // in
  PJRT_Buffer_MemoryLayout* shape_layout;  // in
  PJRT_Device* device;                     // in
  PJRT_Memory* memory;                     // in
  PJRT_Buffer* buffer;                     // out
};
typedef PJRT_Error* PJRT_Client_CreateUninitializedBuffer_Fn(
    PJRT_Client_CreateUninitializedBuffer_Args* args);

// Since 0.82.
struct PJRT_Client_CreateErrorBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;                     // in
  PJRT_Error_Code error_code;              // in
  const char* error_message;               // in
  size_t error_message_size;               // in
  const int64_t* shape_dims;               // in
  size_t shape_num_dims;                   // in
  PJRT_Buffer_Type shape_element_type;     // in
  PJRT_Buffer_MemoryLayout* shape_layout;  // in
  PJRT_Memory* memory;                     // in
  PJRT_Buffer* buffer;                     // out
  const PJRT_NamedValue* payload;          // in, since 0.103
  size_t num_payload;                      // in, since 0.103
};
typedef PJRT_Error* PJRT_Client_CreateErrorBuffer_Fn(PJRT_Client_CreateErrorBuffer_Args* args);

// Since 0.77.
struct PJRT_Client_CreateAliasBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;                                       // in
  PJRT_Memory* memory;                                       // in
  const int64_t* shape_dims;                                 // in
  size_t shape_num_dims;                                     // in
  PJRT_Buffer_Type shape_element_type;                       // in
  PJRT_Buffer_MemoryLayout* shape_layout;                    // in
  PJRT_Buffer* alias_buffer;                                 // out
  PJRT_FulfillAliasBufferCallback* fulfill_alias_buffer_cb;  // out
};
typedef PJRT_Error* PJRT_Client_CreateAliasBuffer_Fn(PJRT_Client_CreateAliasBuffer_Args* args);

// Since 0.77.
struct PJRT_Client_FulfillAliasBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;                                       // in
  PJRT_Buffer* buffer;                                       // in
  PJRT_Error_Code status_code;                               // in
  const char* error_message;                                 // in
  size_t error_message_size;                                 // in
  PJRT_FulfillAliasBufferCallback* fulfill_alias_buffer_cb;  // in
};
typedef PJRT_Error* PJRT_Client_FulfillAliasBuffer_Fn(PJRT_Client_FulfillAliasBuffer_Args* args);

// byte_strides may be null (dense row-major), negative or zero; data points at the logical first
// element. Sub-byte types take one byte per element on the host. done_with_host_buffer must never
// be null. One of device and memory is set; memory wins.
struct PJRT_Client_BufferFromHostBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;                             // in
  const void* data;                                // in
  PJRT_Buffer_Type type;                           // in
  const int64_t* dims;                             // in
  size_t num_dims;                                 // in
  const int64_t* byte_strides;                     // in
  size_t num_byte_strides;                         // in
  PJRT_HostBufferSemantics host_buffer_semantics;  // in
  PJRT_Device* device;                             // in
  PJRT_Memory* memory;                             // in, since 0.23
  PJRT_Buffer_MemoryLayout* device_layout;         // in, since 0.4
  PJRT_Event* done_with_host_buffer;               // out
  PJRT_Buffer* buffer;                             // out
};
typedef PJRT_Error* PJRT_Client_BufferFromHostBuffer_Fn(
    PJRT_Client_BufferFromHostBuffer_Args* args);

// The plugin calls on_delete_callback (may be null) when it no longer uses the memory.
// Since 0.33.
struct PJRT_Client_CreateViewOfDeviceBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;                                                  // in
  void* device_buffer_ptr;                                              // in
  const int64_t* dims;                                                  // in
  size_t num_dims;                                                      // in
  PJRT_Buffer_Type element_type;                                        // in
  PJRT_Buffer_MemoryLayout* layout;                                     // in
  PJRT_Device* device;                                                  // in
  void (*on_delete_callback)(void* device_buffer_ptr, void* user_arg);  // in
  void* on_delete_callback_arg;                                         // in
  intptr_t stream;                                                      // in
  PJRT_Buffer* buffer;                                                  // out
  PJRT_Memory* memory;                                                  // in, since 0.66
};
typedef PJRT_Error* PJRT_Client_CreateViewOfDeviceBuffer_Fn(
    PJRT_Client_CreateViewOfDeviceBuffer_Args* args);

// struct_size is not always set.
// Since 0.60.
struct PJRT_ShapeSpec {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const int64_t* dims;
  size_t num_dims;
  PJRT_Buffer_Type element_type;
};

// Since 0.60.
struct PJRT_Client_CreateBuffersForAsyncHostToDevice_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;                                      // in
  PJRT_ShapeSpec* shape_specs;                              // in
  size_t num_shape_specs;                                   // in
  PJRT_Buffer_MemoryLayout** device_layouts;                // in
  size_t num_device_layouts;                                // in
  PJRT_Memory* memory;                                      // in
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;  // out
};
typedef PJRT_Error* PJRT_Client_CreateBuffersForAsyncHostToDevice_Fn(
    PJRT_Client_CreateBuffersForAsyncHostToDevice_Args* args);

#ifdef __cplusplus
}  // extern "C"
#endif
