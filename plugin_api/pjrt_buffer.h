// SPDX-License-Identifier: Apache-2.0
// PJRT C API: buffers and streams of chunks.
// Part of pjrt_c_api.h, which says what all of these headers have in common; include that one.
#pragma once

#include "plugin_api/pjrt_base.h"
#include "plugin_api/pjrt_client.h"

#ifdef __cplusplus
extern "C" {
#endif

struct PJRT_Buffer_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;  // in
};
typedef PJRT_Error* PJRT_Buffer_Destroy_Fn(PJRT_Buffer_Destroy_Args* args);

// Since 0.5.
struct PJRT_Buffer_ElementType_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;    // in
  PJRT_Buffer_Type type;  // out
};
typedef PJRT_Error* PJRT_Buffer_ElementType_Fn(PJRT_Buffer_ElementType_Args* args);

// The array lives as long as the buffer.
// Since 0.6.
struct PJRT_Buffer_Dimensions_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;  // in
  const int64_t* dims;  // out
  size_t num_dims;      // out
};
typedef PJRT_Error* PJRT_Buffer_Dimensions_Fn(PJRT_Buffer_Dimensions_Args* args);

// Since 0.7.
struct PJRT_Buffer_UnpaddedDimensions_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;           // in
  const int64_t* unpadded_dims;  // out
  size_t num_dims;               // out
};
typedef PJRT_Error* PJRT_Buffer_UnpaddedDimensions_Fn(PJRT_Buffer_UnpaddedDimensions_Args* args);

// Since 0.11.
struct PJRT_Buffer_DynamicDimensionIndices_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;                // in
  const size_t* dynamic_dim_indices;  // out
  size_t num_dynamic_dims;            // out
};
typedef PJRT_Error* PJRT_Buffer_DynamicDimensionIndices_Fn(
    PJRT_Buffer_DynamicDimensionIndices_Args* args);

// Since 0.10.
struct PJRT_Buffer_GetMemoryLayout_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;              // in
  PJRT_Buffer_MemoryLayout layout;  // out
};
typedef PJRT_Error* PJRT_Buffer_GetMemoryLayout_Fn(PJRT_Buffer_GetMemoryLayout_Args* args);

// dst null asks for dst_size and returns no event. Otherwise the event fires when dst is filled and
// carries the error of the buffer, if it has one, also for arrays without elements.
struct PJRT_Buffer_ToHostBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* src;                       // in
  PJRT_Buffer_MemoryLayout* host_layout;  // in, since 0.8
  void* dst;                              // in/out
  size_t dst_size;                        // in/out
  PJRT_Event* event;                      // out
};
typedef PJRT_Error* PJRT_Buffer_ToHostBuffer_Fn(PJRT_Buffer_ToHostBuffer_Args* args);

struct PJRT_Buffer_OnDeviceSizeInBytes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;             // in
  size_t on_device_size_in_bytes;  // out
};
typedef PJRT_Error* PJRT_Buffer_OnDeviceSizeInBytes_Fn(PJRT_Buffer_OnDeviceSizeInBytes_Args* args);

// Frees the memory when its users are done and keeps the handle; twice is harmless.
struct PJRT_Buffer_Delete_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;  // in
};
typedef PJRT_Error* PJRT_Buffer_Delete_Fn(PJRT_Buffer_Delete_Args* args);

struct PJRT_Buffer_IsDeleted_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;  // in
  bool is_deleted;      // out
};
typedef PJRT_Error* PJRT_Buffer_IsDeleted_Fn(PJRT_Buffer_IsDeleted_Args* args);

// Since 0.56.
struct PJRT_Buffer_CopyRawToHost_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;    // in
  void* dst;              // in/out
  int64_t offset;         // in
  int64_t transfer_size;  // in
  PJRT_Event* event;      // out
};
typedef PJRT_Error* PJRT_Buffer_CopyRawToHost_Fn(PJRT_Buffer_CopyRawToHost_Args* args);

// Since 0.84.
struct PJRT_Buffer_CopyRawToHostFuture_Callback_Args {
  size_t struct_size;
  void* callback_data;         // in
  PJRT_Error_Code error_code;  // in
  const char* error_message;   // in
  size_t error_message_size;   // in
  void* dst;                   // in
};

// The caller later calls future_ready_callback with the destination or an error; then the copy
// runs. Since 0.84.
struct PJRT_Buffer_CopyRawToHostFuture_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;                                                                 // in
  int64_t offset;                                                                      // in
  int64_t transfer_size;                                                               // in
  PJRT_Event* event;                                                                   // out
  void* callback_data;                                                                 // out
  void (*future_ready_callback)(PJRT_Buffer_CopyRawToHostFuture_Callback_Args* args);  // out
};
typedef PJRT_Error* PJRT_Buffer_CopyRawToHostFuture_Fn(PJRT_Buffer_CopyRawToHostFuture_Args* args);

struct PJRT_Buffer_CopyToDevice_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;      // in
  PJRT_Device* dst_device;  // in
  PJRT_Buffer* dst_buffer;  // out
};
typedef PJRT_Error* PJRT_Buffer_CopyToDevice_Fn(PJRT_Buffer_CopyToDevice_Args* args);

// Since 0.32.
struct PJRT_Buffer_CopyToMemory_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;      // in
  PJRT_Memory* dst_memory;  // in
  PJRT_Buffer* dst_buffer;  // out
};
typedef PJRT_Error* PJRT_Buffer_CopyToMemory_Fn(PJRT_Buffer_CopyToMemory_Args* args);

// Since 0.98.
struct PJRT_Buffer_Bitcast_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;                      // in
  PJRT_Buffer_Type element_type;            // in
  const int64_t* dims;                      // in
  size_t num_dims;                          // in
  PJRT_Buffer_MemoryLayout* device_layout;  // in
  PJRT_Buffer* out_buffer;                  // out
};
typedef PJRT_Error* PJRT_Buffer_Bitcast_Fn(PJRT_Buffer_Bitcast_Args* args);

struct PJRT_Buffer_IsOnCpu_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;  // in
  bool is_on_cpu;       // out
};
typedef PJRT_Error* PJRT_Buffer_IsOnCpu_Fn(PJRT_Buffer_IsOnCpu_Args* args);

struct PJRT_Buffer_Device_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;  // in
  PJRT_Device* device;  // out
};
typedef PJRT_Error* PJRT_Buffer_Device_Fn(PJRT_Buffer_Device_Args* args);

// Since 0.24.
struct PJRT_Buffer_Memory_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;  // in
  PJRT_Memory* memory;  // out
};
typedef PJRT_Error* PJRT_Buffer_Memory_Fn(PJRT_Buffer_Memory_Args* args);

// A new handle for each call. A deleted buffer gives an event with an error, not an error.
struct PJRT_Buffer_ReadyEvent_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;  // in
  PJRT_Event* event;    // out
};
typedef PJRT_Error* PJRT_Buffer_ReadyEvent_Fn(PJRT_Buffer_ReadyEvent_Args* args);

struct PJRT_Buffer_UnsafePointer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;       // in
  uintptr_t buffer_pointer;  // out
};
typedef PJRT_Error* PJRT_Buffer_UnsafePointer_Fn(PJRT_Buffer_UnsafePointer_Args* args);

// A buffer with external references is neither freed nor donated.
// Since 0.19.
struct PJRT_Buffer_IncreaseExternalReferenceCount_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;  // in
};
typedef PJRT_Error* PJRT_Buffer_IncreaseExternalReferenceCount_Fn(
    PJRT_Buffer_IncreaseExternalReferenceCount_Args* args);

// Since 0.19.
struct PJRT_Buffer_DecreaseExternalReferenceCount_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;  // in
};
typedef PJRT_Error* PJRT_Buffer_DecreaseExternalReferenceCount_Fn(
    PJRT_Buffer_DecreaseExternalReferenceCount_Args* args);

// Since 0.19.
struct PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;      // in
  void* device_memory_ptr;  // out
};
typedef PJRT_Error* PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Fn(
    PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args* args);

// Since 0.88.
struct PJRT_Buffer_DonateWithControlDependency_Callback_Args {
  size_t struct_size;
  void* callback_data;         // in
  PJRT_Error_Code error_code;  // in
  const char* error_message;   // in
  size_t error_message_size;   // in
};

// Since 0.88.
struct PJRT_Buffer_DonateWithControlDependency_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;  // in
  void* callback_data;  // out
  void (*dependency_ready_callback)(
      PJRT_Buffer_DonateWithControlDependency_Callback_Args* args);  // out
  PJRT_Buffer* out_buffer;                                           // out
};
typedef PJRT_Error* PJRT_Buffer_DonateWithControlDependency_Fn(
    PJRT_Buffer_DonateWithControlDependency_Args* args);

// Since 0.11.
struct PJRT_CopyToDeviceStream_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_CopyToDeviceStream* stream;  // in
};
typedef PJRT_Error* PJRT_CopyToDeviceStream_Destroy_Fn(PJRT_CopyToDeviceStream_Destroy_Args* args);

// Takes ownership of the chunk.
struct PJRT_CopyToDeviceStream_AddChunk_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_CopyToDeviceStream* stream;  // in
  PJRT_Chunk* chunk;                // in
  PJRT_Event* transfer_complete;    // out
};
typedef PJRT_Error* PJRT_CopyToDeviceStream_AddChunk_Fn(
    PJRT_CopyToDeviceStream_AddChunk_Args* args);

struct PJRT_CopyToDeviceStream_TotalBytes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_CopyToDeviceStream* stream;  // in
  int64_t total_bytes;              // out
};
typedef PJRT_Error* PJRT_CopyToDeviceStream_TotalBytes_Fn(
    PJRT_CopyToDeviceStream_TotalBytes_Args* args);

struct PJRT_CopyToDeviceStream_GranuleSize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_CopyToDeviceStream* stream;  // in
  int64_t granule_size_in_bytes;    // out
};
typedef PJRT_Error* PJRT_CopyToDeviceStream_GranuleSize_Fn(
    PJRT_CopyToDeviceStream_GranuleSize_Args* args);

struct PJRT_CopyToDeviceStream_CurrentBytes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_CopyToDeviceStream* stream;  // in
  int64_t current_bytes;            // out
};
typedef PJRT_Error* PJRT_CopyToDeviceStream_CurrentBytes_Fn(
    PJRT_CopyToDeviceStream_CurrentBytes_Args* args);

#ifdef __cplusplus
}  // extern "C"
#endif
