// SPDX-License-Identifier: Apache-2.0
// PJRT C API: executables, compilation and launches.
// Part of pjrt_c_api.h, which says what all of these headers have in common; include that one.
#pragma once

#include "plugin_api/pjrt_base.h"
#include "plugin_api/pjrt_client.h"

#ifdef __cplusplus
extern "C" {
#endif

// Since 0.52.
struct PJRT_ExecuteContext_Create_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_ExecuteContext* context;  // out
};
typedef PJRT_Error* PJRT_ExecuteContext_Create_Fn(PJRT_ExecuteContext_Create_Args* args);

// Since 0.52.
struct PJRT_ExecuteContext_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_ExecuteContext* context;  // in
};
typedef PJRT_Error* PJRT_ExecuteContext_Destroy_Fn(PJRT_ExecuteContext_Destroy_Args* args);

struct PJRT_Executable_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;  // in
};
typedef PJRT_Error* PJRT_Executable_Destroy_Fn(PJRT_Executable_Destroy_Args* args);

struct PJRT_LoadedExecutable_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;  // in
};
typedef PJRT_Error* PJRT_LoadedExecutable_Destroy_Fn(PJRT_LoadedExecutable_Destroy_Args* args);

// A new handle that the caller destroys. Do not use it after the loaded executable died unless the
// plugin is known to allow that: XLA's own CPU plugins crash.
struct PJRT_LoadedExecutable_GetExecutable_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* loaded_executable;  // in
  PJRT_Executable* executable;               // out
};
typedef PJRT_Error* PJRT_LoadedExecutable_GetExecutable_Fn(
    PJRT_LoadedExecutable_GetExecutable_Args* args);

// A serialized DeviceAssignmentProto; empty for a portable executable. The deleter must not be
// null. Since 0.79.
struct PJRT_LoadedExecutable_GetDeviceAssignment_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;                                                  // in
  const char* serialized_bytes;                                                       // out
  size_t serialized_bytes_size;                                                       // out
  PJRT_DeviceAssignmentSerialized* serialized_device_assignment;                      // out
  void (*serialized_device_assignment_deleter)(PJRT_DeviceAssignmentSerialized* da);  // out
};
typedef PJRT_Error* PJRT_LoadedExecutable_GetDeviceAssignment_Fn(
    PJRT_LoadedExecutable_GetDeviceAssignment_Args* args);

struct PJRT_Executable_Name_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;  // in
  const char* executable_name;  // out
  size_t executable_name_size;  // out
};
typedef PJRT_Error* PJRT_Executable_Name_Fn(PJRT_Executable_Name_Args* args);

struct PJRT_Executable_NumReplicas_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;  // in
  size_t num_replicas;          // out
};
typedef PJRT_Error* PJRT_Executable_NumReplicas_Fn(PJRT_Executable_NumReplicas_Args* args);

struct PJRT_Executable_NumPartitions_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;  // in
  size_t num_partitions;        // out
};
typedef PJRT_Error* PJRT_Executable_NumPartitions_Fn(PJRT_Executable_NumPartitions_Args* args);

// Since 0.96.
struct PJRT_LogicalDeviceIds {
  int replica;
  int partition;
};

struct PJRT_LoadedExecutable_AddressableDevices_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;        // in
  PJRT_Device* const* addressable_devices;  // out
  size_t num_addressable_devices;           // out
};
typedef PJRT_Error* PJRT_LoadedExecutable_AddressableDevices_Fn(
    PJRT_LoadedExecutable_AddressableDevices_Args* args);

// Since 0.96.
struct PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;                      // in
  PJRT_LogicalDeviceIds* addressable_device_logical_ids;  // out
  size_t num_addressable_device_logical_ids;              // out
};
typedef PJRT_Error* PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Fn(
    PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args* args);

struct PJRT_Executable_OptimizedProgram_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;  // in
  PJRT_Program* program;        // in/out
};
typedef PJRT_Error* PJRT_Executable_OptimizedProgram_Fn(
    PJRT_Executable_OptimizedProgram_Args* args);

struct PJRT_LoadedExecutable_Delete_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;  // in
};
typedef PJRT_Error* PJRT_LoadedExecutable_Delete_Fn(PJRT_LoadedExecutable_Delete_Args* args);

struct PJRT_LoadedExecutable_IsDeleted_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;  // in
  bool is_deleted;                    // out
};
typedef PJRT_Error* PJRT_LoadedExecutable_IsDeleted_Fn(PJRT_LoadedExecutable_IsDeleted_Args* args);

struct PJRT_Chunk {
  void* data;
  size_t size;
  void (*deleter)(void* data, void* deleter_arg);
  void* deleter_arg;
};

struct PJRT_SendCallbackInfo {
  int64_t channel_id;
  void* user_arg;
  PJRT_SendCallback send_callback;
};

struct PJRT_RecvCallbackInfo {
  int64_t channel_id;
  void* user_arg;
  PJRT_RecvCallback recv_callback;
};

// Since 0.112.
struct PJRT_HloOutputCallbackInfo {
  void* user_arg;
  PJRT_HloOutputCallback callback;
  int64_t callback_id;
  size_t num_operands;
};

// Arrives with every size from 72 bytes (jaxlib 0.4.38) to 160 (0.12): read what struct_size
// covers. extension_start is garbage in the 72-byte form.
struct PJRT_ExecuteOptions {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_SendCallbackInfo** send_callbacks;
  PJRT_RecvCallbackInfo** recv_callbacks;
  size_t num_send_ops;
  size_t num_recv_ops;
  int launch_id;
  const int64_t* non_donatable_input_indices;         // since 0.39
  size_t num_non_donatable_input_indices;             // since 0.39
  PJRT_ExecuteContext* context;                       // since 0.64
  const char* call_location;                          // since 0.76
  size_t num_tasks;                                   // since 0.78
  int* task_ids;                                      // since 0.78
  int64_t* incarnation_ids;                           // since 0.78
  PJRT_MultiSlice_Config* multi_slice_config;         // since 0.97
  bool use_major_to_minor_data_layout_for_callbacks;  // since 0.108
  PJRT_HloOutputCallbackInfo* hlo_output_callbacks;   // since 0.112
  size_t num_hlo_output_callbacks;                    // since 0.112
};

// The caller allocates both lists; the plugin writes owned handles, on success only. Errors of the
// work itself reach the outputs and the events, not the return value.
struct PJRT_LoadedExecutable_Execute_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;          // in
  PJRT_ExecuteOptions* options;               // in
  PJRT_Buffer* const* const* argument_lists;  // in
  size_t num_devices;                         // in
  size_t num_args;                            // in
  PJRT_Buffer** const* output_lists;          // in/out
  PJRT_Event** device_complete_events;        // in/out
  PJRT_Device* execute_device;                // in
};
typedef PJRT_Error* PJRT_LoadedExecutable_Execute_Fn(PJRT_LoadedExecutable_Execute_Args* args);

struct PJRT_Executable_NumOutputs_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;  // in
  size_t num_outputs;           // out
};
typedef PJRT_Error* PJRT_Executable_NumOutputs_Fn(PJRT_Executable_NumOutputs_Args* args);

struct PJRT_Executable_SizeOfGeneratedCodeInBytes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;  // in
  int64_t size_in_bytes;        // out
};
typedef PJRT_Error* PJRT_Executable_SizeOfGeneratedCodeInBytes_Fn(
    PJRT_Executable_SizeOfGeneratedCodeInBytes_Args* args);

// Since 0.35.
struct PJRT_Executable_Fingerprint_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;         // in
  const char* executable_fingerprint;  // out
  size_t executable_fingerprint_size;  // out
};
typedef PJRT_Error* PJRT_Executable_Fingerprint_Fn(PJRT_Executable_Fingerprint_Args* args);

// Since 0.2.
struct PJRT_Executable_GetCostAnalysis_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;        // in
  size_t num_properties;              // out
  const PJRT_NamedValue* properties;  // out
};
typedef PJRT_Error* PJRT_Executable_GetCostAnalysis_Fn(PJRT_Executable_GetCostAnalysis_Args* args);

// Since 0.40.
struct PJRT_Executable_GetCompiledMemoryStats_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;                // in
  int64_t generated_code_size_in_bytes;       // out
  int64_t argument_size_in_bytes;             // out
  int64_t output_size_in_bytes;               // out
  int64_t alias_size_in_bytes;                // out
  int64_t temp_size_in_bytes;                 // out
  int64_t host_generated_code_size_in_bytes;  // out, since 0.43
  int64_t host_argument_size_in_bytes;        // out, since 0.43
  int64_t host_output_size_in_bytes;          // out, since 0.43
  int64_t host_alias_size_in_bytes;           // out, since 0.43
  int64_t host_temp_size_in_bytes;            // out, since 0.43
  int64_t peak_memory_in_bytes;               // out, since 0.72
  int64_t total_size_in_bytes;                // out, since 0.90
  int64_t total_allocation_bytes;             // out, since 0.104
  int64_t indefinite_allocations;             // out, since 0.104
  int64_t peak_unpadded_heap_bytes;           // out, since 0.104
};
typedef PJRT_Error* PJRT_Executable_GetCompiledMemoryStats_Fn(
    PJRT_Executable_GetCompiledMemoryStats_Args* args);

// Since 0.29.
struct PJRT_Executable_OutputElementTypes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;     // in
  PJRT_Buffer_Type* output_types;  // out
  size_t num_output_types;         // out
};
typedef PJRT_Error* PJRT_Executable_OutputElementTypes_Fn(
    PJRT_Executable_OutputElementTypes_Args* args);

// Since 0.29.
struct PJRT_Executable_OutputDimensions_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;  // in
  size_t num_outputs;           // out
  const int64_t* dims;          // out
  const size_t* dim_sizes;      // out
};
typedef PJRT_Error* PJRT_Executable_OutputDimensions_Fn(
    PJRT_Executable_OutputDimensions_Args* args);

// Since 0.102.
struct PJRT_Executable_ParameterMemoryKinds_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;      // in
  size_t num_parameters;            // out
  const char* const* memory_kinds;  // out
  const size_t* memory_kind_sizes;  // out
};
typedef PJRT_Error* PJRT_Executable_ParameterMemoryKinds_Fn(
    PJRT_Executable_ParameterMemoryKinds_Args* args);

// Never empty strings, and the kinds of the buffers that Execute returns; clients end the process
// otherwise.
// Since 0.18.
struct PJRT_Executable_OutputMemoryKinds_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;      // in
  size_t num_outputs;               // out
  const char* const* memory_kinds;  // out
  const size_t* memory_kind_sizes;  // out
};
typedef PJRT_Error* PJRT_Executable_OutputMemoryKinds_Fn(
    PJRT_Executable_OutputMemoryKinds_Args* args);

// The deleter must not be null.
struct PJRT_Executable_Serialize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_Executable* executable;                                       // in
  const char* serialized_bytes;                                            // out, since 0.20
  size_t serialized_bytes_size;                                            // out, since 0.20
  PJRT_SerializedExecutable* serialized_executable;                        // out
  void (*serialized_executable_deleter)(PJRT_SerializedExecutable* exec);  // out, since 0.20
};
typedef PJRT_Error* PJRT_Executable_Serialize_Fn(PJRT_Executable_Serialize_Args* args);

// Since 0.87.
struct PJRT_Executable_GetCompileOptions_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;                                                         // in
  const char* serialized_bytes;                                                        // out
  size_t serialized_bytes_size;                                                        // out
  PJRT_SerializedCompileOptions* serialized_compile_options;                           // out
  void (*serialized_compile_options_deleter)(PJRT_SerializedCompileOptions* options);  // out
};
typedef PJRT_Error* PJRT_Executable_GetCompileOptions_Fn(
    PJRT_Executable_GetCompileOptions_Args* args);

// Since 0.111.
struct PJRT_LoadOptions {
  size_t struct_size;
  const int32_t* computation_origin;
  size_t computation_origin_size;
  PJRT_MultiSlice_Config* multi_slice_config;
};

struct PJRT_Executable_DeserializeAndLoad_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;                                // in
  const char* serialized_executable;                  // in
  size_t serialized_executable_size;                  // in
  PJRT_LoadedExecutable* loaded_executable;           // out
  const char* overridden_serialized_compile_options;  // in, since 0.71
  size_t overridden_serialized_compile_options_size;  // in, since 0.71
  PJRT_LoadOptions* load_options;                     // in, since 0.111
};
typedef PJRT_Error* PJRT_Executable_DeserializeAndLoad_Fn(
    PJRT_Executable_DeserializeAndLoad_Args* args);

// Since 0.28.
struct PJRT_LoadedExecutable_Fingerprint_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;   // in
  const char* executable_fingerprint;  // out
  size_t executable_fingerprint_size;  // out
};
typedef PJRT_Error* PJRT_LoadedExecutable_Fingerprint_Fn(
    PJRT_LoadedExecutable_Fingerprint_Args* args);

struct PJRT_Compile_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_TopologyDescription* topology;  // in
  const PJRT_Program* program;               // in
  const char* compile_options;               // in
  size_t compile_options_size;               // in
  PJRT_Client* client;                       // in
  PJRT_Executable* executable;               // out
};
typedef PJRT_Error* PJRT_Compile_Fn(PJRT_Compile_Args* args);

#ifdef __cplusplus
}  // extern "C"
#endif
