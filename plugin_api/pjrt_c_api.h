// SPDX-License-Identifier: Apache-2.0
// The PJRT C API, version 0.114, declared for Hekla's plugins and for programs that load plugins.
//
// A plugin exports one function, GetPjrtApi, which returns a table of function pointers. The table
// and all argument structs only grow at their end, so a caller and a plugin of different versions
// work together as long as both look at struct_size before they touch a field:
//   - struct_size is the end offset of the last field that the writer knows (PJRT_STRUCT_SIZE);
//     that may be below sizeof;
//   - "in" fields are set by the caller; "out" fields arrive uninitialised and are written by the
//     callee on success, all of them, flags and deleters included;
//   - "since" is the minor version in which a field, struct or enumerator appeared;
//   - functions return null for success or an error that the caller destroys; strings and arrays
//     that come out live as long as the object they describe, unless a deleter comes with them.
// Layouts are those of LP64 targets. The header is plain C, includes nothing of Hekla, and owns
// nothing. tests/abi compares every offset, size and value with a description of the interface.
#pragma once

#include "plugin_api/pjrt_base.h"
#include "plugin_api/pjrt_buffer.h"
#include "plugin_api/pjrt_client.h"
#include "plugin_api/pjrt_device.h"
#include "plugin_api/pjrt_executable.h"
#include "plugin_api/pjrt_topology.h"

#define PJRT_API_MAJOR 0
#define PJRT_API_MINOR 114

// The end offset of a field: what a caller that knows `type` up to `last_field` writes into
// struct_size, and what struct_size must reach for that field to be there.
#ifdef __cplusplus
#define PJRT_STRUCT_SIZE(type, last_field) \
  (offsetof(type, last_field) + sizeof(static_cast<type*>(nullptr)->last_field))
#else
#define PJRT_STRUCT_SIZE(type, last_field) \
  (offsetof(type, last_field) + sizeof(((type*)0)->last_field))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct PJRT_Api PJRT_Api;
struct PJRT_Api {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Api_Version pjrt_api_version;

  PJRT_Error_Destroy_Fn* PJRT_Error_Destroy;
  PJRT_Error_Message_Fn* PJRT_Error_Message;
  PJRT_Error_GetCode_Fn* PJRT_Error_GetCode;
  PJRT_Plugin_Initialize_Fn* PJRT_Plugin_Initialize;  // since 0.13
  PJRT_Plugin_Attributes_Fn* PJRT_Plugin_Attributes;  // since 0.9
  PJRT_Event_Destroy_Fn* PJRT_Event_Destroy;
  PJRT_Event_IsReady_Fn* PJRT_Event_IsReady;
  PJRT_Event_Error_Fn* PJRT_Event_Error;
  PJRT_Event_Await_Fn* PJRT_Event_Await;
  PJRT_Event_OnReady_Fn* PJRT_Event_OnReady;
  PJRT_Client_Create_Fn* PJRT_Client_Create;
  PJRT_Client_Destroy_Fn* PJRT_Client_Destroy;
  PJRT_Client_PlatformName_Fn* PJRT_Client_PlatformName;
  PJRT_Client_ProcessIndex_Fn* PJRT_Client_ProcessIndex;
  PJRT_Client_PlatformVersion_Fn* PJRT_Client_PlatformVersion;
  PJRT_Client_Devices_Fn* PJRT_Client_Devices;
  PJRT_Client_AddressableDevices_Fn* PJRT_Client_AddressableDevices;
  PJRT_Client_LookupDevice_Fn* PJRT_Client_LookupDevice;
  PJRT_Client_LookupAddressableDevice_Fn* PJRT_Client_LookupAddressableDevice;
  PJRT_Client_AddressableMemories_Fn* PJRT_Client_AddressableMemories;  // since 0.20
  PJRT_Client_Compile_Fn* PJRT_Client_Compile;
  PJRT_Client_DefaultDeviceAssignment_Fn* PJRT_Client_DefaultDeviceAssignment;
  PJRT_Client_BufferFromHostBuffer_Fn* PJRT_Client_BufferFromHostBuffer;
  PJRT_DeviceDescription_Id_Fn* PJRT_DeviceDescription_Id;
  PJRT_DeviceDescription_ProcessIndex_Fn* PJRT_DeviceDescription_ProcessIndex;
  PJRT_DeviceDescription_Attributes_Fn* PJRT_DeviceDescription_Attributes;
  PJRT_DeviceDescription_Kind_Fn* PJRT_DeviceDescription_Kind;
  PJRT_DeviceDescription_DebugString_Fn* PJRT_DeviceDescription_DebugString;
  PJRT_DeviceDescription_ToString_Fn* PJRT_DeviceDescription_ToString;
  PJRT_Device_GetDescription_Fn* PJRT_Device_GetDescription;
  PJRT_Device_IsAddressable_Fn* PJRT_Device_IsAddressable;
  PJRT_Device_LocalHardwareId_Fn* PJRT_Device_LocalHardwareId;
  PJRT_Device_AddressableMemories_Fn* PJRT_Device_AddressableMemories;  // since 0.13
  PJRT_Device_DefaultMemory_Fn* PJRT_Device_DefaultMemory;              // since 0.17
  PJRT_Device_MemoryStats_Fn* PJRT_Device_MemoryStats;
  PJRT_Memory_Id_Fn* PJRT_Memory_Id;                                      // since 0.16
  PJRT_Memory_Kind_Fn* PJRT_Memory_Kind;                                  // since 0.14
  PJRT_Memory_DebugString_Fn* PJRT_Memory_DebugString;                    // since 0.15
  PJRT_Memory_ToString_Fn* PJRT_Memory_ToString;                          // since 0.15
  PJRT_Memory_AddressableByDevices_Fn* PJRT_Memory_AddressableByDevices;  // since 0.20
  PJRT_Executable_Destroy_Fn* PJRT_Executable_Destroy;
  PJRT_Executable_Name_Fn* PJRT_Executable_Name;
  PJRT_Executable_NumReplicas_Fn* PJRT_Executable_NumReplicas;
  PJRT_Executable_NumPartitions_Fn* PJRT_Executable_NumPartitions;
  PJRT_Executable_NumOutputs_Fn* PJRT_Executable_NumOutputs;
  PJRT_Executable_SizeOfGeneratedCodeInBytes_Fn* PJRT_Executable_SizeOfGeneratedCodeInBytes;
  PJRT_Executable_GetCostAnalysis_Fn* PJRT_Executable_GetCostAnalysis;      // since 0.2
  PJRT_Executable_OutputMemoryKinds_Fn* PJRT_Executable_OutputMemoryKinds;  // since 0.18
  PJRT_Executable_OptimizedProgram_Fn* PJRT_Executable_OptimizedProgram;
  PJRT_Executable_Serialize_Fn* PJRT_Executable_Serialize;
  PJRT_LoadedExecutable_Destroy_Fn* PJRT_LoadedExecutable_Destroy;
  PJRT_LoadedExecutable_GetExecutable_Fn* PJRT_LoadedExecutable_GetExecutable;
  PJRT_LoadedExecutable_AddressableDevices_Fn* PJRT_LoadedExecutable_AddressableDevices;
  PJRT_LoadedExecutable_Delete_Fn* PJRT_LoadedExecutable_Delete;
  PJRT_LoadedExecutable_IsDeleted_Fn* PJRT_LoadedExecutable_IsDeleted;
  PJRT_LoadedExecutable_Execute_Fn* PJRT_LoadedExecutable_Execute;
  PJRT_Executable_DeserializeAndLoad_Fn* PJRT_Executable_DeserializeAndLoad;
  PJRT_LoadedExecutable_Fingerprint_Fn* PJRT_LoadedExecutable_Fingerprint;  // since 0.28
  PJRT_Buffer_Destroy_Fn* PJRT_Buffer_Destroy;
  PJRT_Buffer_ElementType_Fn* PJRT_Buffer_ElementType;                          // since 0.5
  PJRT_Buffer_Dimensions_Fn* PJRT_Buffer_Dimensions;                            // since 0.6
  PJRT_Buffer_UnpaddedDimensions_Fn* PJRT_Buffer_UnpaddedDimensions;            // since 0.7
  PJRT_Buffer_DynamicDimensionIndices_Fn* PJRT_Buffer_DynamicDimensionIndices;  // since 0.11
  PJRT_Buffer_GetMemoryLayout_Fn* PJRT_Buffer_GetMemoryLayout;                  // since 0.10
  PJRT_Buffer_OnDeviceSizeInBytes_Fn* PJRT_Buffer_OnDeviceSizeInBytes;
  PJRT_Buffer_Device_Fn* PJRT_Buffer_Device;
  PJRT_Buffer_Memory_Fn* PJRT_Buffer_Memory;  // since 0.24
  PJRT_Buffer_Delete_Fn* PJRT_Buffer_Delete;
  PJRT_Buffer_IsDeleted_Fn* PJRT_Buffer_IsDeleted;
  PJRT_Buffer_CopyToDevice_Fn* PJRT_Buffer_CopyToDevice;
  PJRT_Buffer_ToHostBuffer_Fn* PJRT_Buffer_ToHostBuffer;
  PJRT_Buffer_IsOnCpu_Fn* PJRT_Buffer_IsOnCpu;
  PJRT_Buffer_ReadyEvent_Fn* PJRT_Buffer_ReadyEvent;
  PJRT_Buffer_UnsafePointer_Fn* PJRT_Buffer_UnsafePointer;
  PJRT_Buffer_IncreaseExternalReferenceCount_Fn*
      PJRT_Buffer_IncreaseExternalReferenceCount;  // since 0.19
  PJRT_Buffer_DecreaseExternalReferenceCount_Fn*
      PJRT_Buffer_DecreaseExternalReferenceCount;  // since 0.19
  PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Fn*
      PJRT_Buffer_OpaqueDeviceMemoryDataPointer;                        // since 0.19
  PJRT_CopyToDeviceStream_Destroy_Fn* PJRT_CopyToDeviceStream_Destroy;  // since 0.11
  PJRT_CopyToDeviceStream_AddChunk_Fn* PJRT_CopyToDeviceStream_AddChunk;
  PJRT_CopyToDeviceStream_TotalBytes_Fn* PJRT_CopyToDeviceStream_TotalBytes;
  PJRT_CopyToDeviceStream_GranuleSize_Fn* PJRT_CopyToDeviceStream_GranuleSize;
  PJRT_CopyToDeviceStream_CurrentBytes_Fn* PJRT_CopyToDeviceStream_CurrentBytes;
  PJRT_TopologyDescription_Create_Fn* PJRT_TopologyDescription_Create;
  PJRT_TopologyDescription_Destroy_Fn* PJRT_TopologyDescription_Destroy;
  PJRT_TopologyDescription_PlatformName_Fn* PJRT_TopologyDescription_PlatformName;
  PJRT_TopologyDescription_PlatformVersion_Fn* PJRT_TopologyDescription_PlatformVersion;
  PJRT_TopologyDescription_GetDeviceDescriptions_Fn* PJRT_TopologyDescription_GetDeviceDescriptions;
  PJRT_TopologyDescription_Serialize_Fn* PJRT_TopologyDescription_Serialize;    // since 0.22
  PJRT_TopologyDescription_Attributes_Fn* PJRT_TopologyDescription_Attributes;  // since 0.27
  PJRT_Compile_Fn* PJRT_Compile;
  PJRT_Executable_OutputElementTypes_Fn* PJRT_Executable_OutputElementTypes;          // since 0.29
  PJRT_Executable_OutputDimensions_Fn* PJRT_Executable_OutputDimensions;              // since 0.29
  PJRT_Buffer_CopyToMemory_Fn* PJRT_Buffer_CopyToMemory;                              // since 0.32
  PJRT_Client_CreateViewOfDeviceBuffer_Fn* PJRT_Client_CreateViewOfDeviceBuffer;      // since 0.33
  PJRT_Executable_Fingerprint_Fn* PJRT_Executable_Fingerprint;                        // since 0.35
  PJRT_Client_TopologyDescription_Fn* PJRT_Client_TopologyDescription;                // since 0.36
  PJRT_Executable_GetCompiledMemoryStats_Fn* PJRT_Executable_GetCompiledMemoryStats;  // since 0.40
  PJRT_Memory_Kind_Id_Fn* PJRT_Memory_Kind_Id;                                        // since 0.48
  PJRT_ExecuteContext_Create_Fn* PJRT_ExecuteContext_Create;                          // since 0.52
  PJRT_ExecuteContext_Destroy_Fn* PJRT_ExecuteContext_Destroy;                        // since 0.52
  PJRT_Buffer_CopyRawToHost_Fn* PJRT_Buffer_CopyRawToHost;                            // since 0.56
  PJRT_AsyncHostToDeviceTransferManager_Destroy_Fn*
      PJRT_AsyncHostToDeviceTransferManager_Destroy;  // since 0.60
  PJRT_AsyncHostToDeviceTransferManager_TransferData_Fn*
      PJRT_AsyncHostToDeviceTransferManager_TransferData;  // since 0.60
  PJRT_Client_CreateBuffersForAsyncHostToDevice_Fn*
      PJRT_Client_CreateBuffersForAsyncHostToDevice;  // since 0.60
  PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Fn*
      PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer;  // since 0.62
  PJRT_AsyncHostToDeviceTransferManager_Device_Fn*
      PJRT_AsyncHostToDeviceTransferManager_Device;  // since 0.62
  PJRT_AsyncHostToDeviceTransferManager_BufferCount_Fn*
      PJRT_AsyncHostToDeviceTransferManager_BufferCount;  // since 0.62
  PJRT_AsyncHostToDeviceTransferManager_BufferSize_Fn*
      PJRT_AsyncHostToDeviceTransferManager_BufferSize;  // since 0.62
  PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Fn*
      PJRT_AsyncHostToDeviceTransferManager_SetBufferError;  // since 0.62
  PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Fn*
      PJRT_AsyncHostToDeviceTransferManager_AddMetadata;                            // since 0.62
  PJRT_Client_DmaMap_Fn* PJRT_Client_DmaMap;                                        // since 0.67
  PJRT_Client_DmaUnmap_Fn* PJRT_Client_DmaUnmap;                                    // since 0.67
  PJRT_Client_CreateUninitializedBuffer_Fn* PJRT_Client_CreateUninitializedBuffer;  // since 0.69
  PJRT_Client_UpdateGlobalProcessInfo_Fn* PJRT_Client_UpdateGlobalProcessInfo;      // since 0.73
  PJRT_TopologyDescription_Deserialize_Fn* PJRT_TopologyDescription_Deserialize;    // since 0.75
  PJRT_Client_CreateAliasBuffer_Fn* PJRT_Client_CreateAliasBuffer;                  // since 0.77
  PJRT_Client_FulfillAliasBuffer_Fn* PJRT_Client_FulfillAliasBuffer;                // since 0.77
  PJRT_LoadedExecutable_GetDeviceAssignment_Fn*
      PJRT_LoadedExecutable_GetDeviceAssignment;                    // since 0.79
  PJRT_Client_CreateErrorBuffer_Fn* PJRT_Client_CreateErrorBuffer;  // since 0.82
  PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Fn*
      PJRT_AsyncHostToDeviceTransferManager_TransferLiteral;                      // since 0.83
  PJRT_Buffer_CopyRawToHostFuture_Fn* PJRT_Buffer_CopyRawToHostFuture;            // since 0.84
  PJRT_Device_PoisonExecution_Fn* PJRT_Device_PoisonExecution;                    // since 0.85
  PJRT_Device_CreateAsyncTrackingEvent_Fn* PJRT_Device_CreateAsyncTrackingEvent;  // since 0.86
  PJRT_AsyncTrackingEvent_Destroy_Fn* PJRT_AsyncTrackingEvent_Destroy;            // since 0.86
  PJRT_Executable_GetCompileOptions_Fn* PJRT_Executable_GetCompileOptions;        // since 0.87
  PJRT_Buffer_DonateWithControlDependency_Fn*
      PJRT_Buffer_DonateWithControlDependency;              // since 0.88
  PJRT_Event_Create_Fn* PJRT_Event_Create;                  // since 0.89
  PJRT_Event_Set_Fn* PJRT_Event_Set;                        // since 0.89
  PJRT_Device_GetAttributes_Fn* PJRT_Device_GetAttributes;  // since 0.92
  PJRT_Client_Load_Fn* PJRT_Client_Load;                    // since 0.95
  PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Fn*
      PJRT_LoadedExecutable_AddressableDeviceLogicalIds;                          // since 0.96
  PJRT_Buffer_Bitcast_Fn* PJRT_Buffer_Bitcast;                                    // since 0.98
  PJRT_Error_ForEachPayload_Fn* PJRT_Error_ForEachPayload;                        // since 0.99
  PJRT_TopologyDescription_Fingerprint_Fn* PJRT_TopologyDescription_Fingerprint;  // since 0.101
  PJRT_Executable_ParameterMemoryKinds_Fn* PJRT_Executable_ParameterMemoryKinds;  // since 0.102
  PJRT_Device_ClearMemoryStats_Fn* PJRT_Device_ClearMemoryStats;                  // since 0.106
  PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Fn*
      PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace;  // since 0.109
  PJRT_TopologyDescription_GetMemorySpaceKindIds_Fn*
      PJRT_TopologyDescription_GetMemorySpaceKindIds;  // since 0.110
};

// The one symbol of a plugin.
const PJRT_Api* GetPjrtApi(void);

#ifdef __cplusplus
}  // extern "C"
#endif
