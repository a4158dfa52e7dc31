// SPDX-License-Identifier: Apache-2.0
// The extensions of the PJRT C API that Hekla's plugins serve or its loader uses.
//
// PJRT_Api.extension_start is a list of nodes that begin with PJRT_Extension_Base. Clients cast a
// node by its type without looking at its size, so a plugin publishes whole nodes only. The
// profiler's table is published with the size of its first eight slots: jaxlib up to 0.10 refuses
// any other.
#pragma once

#include "plugin_api/pjrt_c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- Layouts (version 4): Device layouts of buffers and of executable parameters and outputs.

typedef struct PJRT_Layouts_MemoryLayout PJRT_Layouts_MemoryLayout;
typedef struct PJRT_Layouts_SerializedLayout PJRT_Layouts_SerializedLayout;
typedef struct PJRT_Layouts_MemoryLayout_Destroy_Args PJRT_Layouts_MemoryLayout_Destroy_Args;
typedef struct PJRT_Layouts_MemoryLayout_Serialize_Args PJRT_Layouts_MemoryLayout_Serialize_Args;
typedef struct PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args
    PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args;
typedef struct PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args
    PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args;
typedef struct PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args
    PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args;
typedef struct PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args
    PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args;
typedef struct PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args
    PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args;
typedef struct PJRT_Layouts_Extension PJRT_Layouts_Extension;

typedef PJRT_Error* PJRT_Layouts_MemoryLayout_Destroy_Fn(
    PJRT_Layouts_MemoryLayout_Destroy_Args* args);
typedef PJRT_Error* PJRT_Layouts_MemoryLayout_Serialize_Fn(
    PJRT_Layouts_MemoryLayout_Serialize_Args* args);
typedef PJRT_Error* PJRT_Layouts_PJRT_Client_GetDefaultLayout_Fn(
    PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args* args);
typedef PJRT_Error* PJRT_Layouts_PJRT_Buffer_MemoryLayout_Fn(
    PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args* args);
typedef PJRT_Error* PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Fn(
    PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args* args);
typedef PJRT_Error* PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Fn(
    PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args* args);
typedef PJRT_Error* PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Fn(
    PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args* args);

struct PJRT_Layouts_MemoryLayout_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Layouts_MemoryLayout* layout;  // in
};

struct PJRT_Layouts_MemoryLayout_Serialize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Layouts_MemoryLayout* layout;                                           // in
  const char* serialized_bytes;                                                // out
  size_t serialized_bytes_size;                                                // out
  PJRT_Layouts_SerializedLayout* serialized_layout;                            // out
  void (*serialized_layout_deleter)(PJRT_Layouts_SerializedLayout* s_layout);  // out
};

struct PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;                // in
  PJRT_Layouts_MemoryLayout* layout;  // out
};

struct PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;                // in
  PJRT_Buffer_Type type;              // in
  const int64_t* dims;                // in
  size_t num_dims;                    // in
  PJRT_Layouts_MemoryLayout* layout;  // out
};

struct PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology_description;  // in
  PJRT_Buffer_Type type;                           // in
  const int64_t* dims;                             // in
  size_t num_dims;                                 // in
  PJRT_Layouts_MemoryLayout* layout;               // out
};

struct PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;          // in
  size_t num_outputs;                   // out
  PJRT_Layouts_MemoryLayout** layouts;  // out
};

struct PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;          // in
  size_t num_parameters;                // out
  PJRT_Layouts_MemoryLayout** layouts;  // out
};

struct PJRT_Layouts_Extension {
  PJRT_Extension_Base base;
  PJRT_Layouts_MemoryLayout_Destroy_Fn* PJRT_Layouts_MemoryLayout_Destroy;
  PJRT_Layouts_MemoryLayout_Serialize_Fn* PJRT_Layouts_MemoryLayout_Serialize;
  PJRT_Layouts_PJRT_Client_GetDefaultLayout_Fn* PJRT_Layouts_PJRT_Client_GetDefaultLayout;
  PJRT_Layouts_PJRT_Buffer_MemoryLayout_Fn* PJRT_Layouts_PJRT_Buffer_MemoryLayout;
  PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Fn* PJRT_Layouts_PJRT_Topology_GetDefaultLayout;
  PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Fn* PJRT_Layouts_PJRT_Executable_GetOutputLayouts;
  PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Fn*
      PJRT_Layouts_PJRT_Executable_GetParameterLayouts;
};

// ---- MemoryDescriptions (version 1): Memory kinds of a device known from a topology only (compile
// without hardware).

typedef struct PJRT_MemoryDescription PJRT_MemoryDescription;
typedef struct PJRT_DeviceDescription_MemoryDescriptions_Args
    PJRT_DeviceDescription_MemoryDescriptions_Args;
typedef struct PJRT_MemoryDescription_Kind_Args PJRT_MemoryDescription_Kind_Args;
typedef struct PJRT_MemoryDescriptions_Extension PJRT_MemoryDescriptions_Extension;

typedef PJRT_Error* PJRT_DeviceDescription_MemoryDescriptions_Fn(
    PJRT_DeviceDescription_MemoryDescriptions_Args* args);
typedef PJRT_Error* PJRT_MemoryDescription_Kind_Fn(PJRT_MemoryDescription_Kind_Args* args);

struct PJRT_DeviceDescription_MemoryDescriptions_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;                // in
  const PJRT_MemoryDescription* const* memory_descriptions;  // out
  size_t num_memory_descriptions;                            // out
  size_t default_memory_index;                               // out
};

struct PJRT_MemoryDescription_Kind_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_MemoryDescription* memory_description;  // in
  const char* kind;                                  // out
  size_t kind_size;                                  // out
  int kind_id;                                       // out
};

struct PJRT_MemoryDescriptions_Extension {
  PJRT_Extension_Base base;
  PJRT_DeviceDescription_MemoryDescriptions_Fn* PJRT_DeviceDescription_MemoryDescriptions;
  PJRT_MemoryDescription_Kind_Fn* PJRT_MemoryDescription_Kind;
};

// ---- Shardings (version 1): Serialized OpSharding of every parameter and output of an executable.

typedef struct PJRT_Shardings_PJRT_Executable_ParameterShardings_Args
    PJRT_Shardings_PJRT_Executable_ParameterShardings_Args;
typedef struct PJRT_Shardings_PJRT_Executable_OutputShardings_Args
    PJRT_Shardings_PJRT_Executable_OutputShardings_Args;
typedef struct PJRT_Shardings_Extension PJRT_Shardings_Extension;

typedef PJRT_Error* PJRT_Shardings_PJRT_Executable_ParameterShardings_Fn(
    PJRT_Shardings_PJRT_Executable_ParameterShardings_Args* args);
typedef PJRT_Error* PJRT_Shardings_PJRT_Executable_OutputShardings_Fn(
    PJRT_Shardings_PJRT_Executable_OutputShardings_Args* args);

struct PJRT_Shardings_PJRT_Executable_ParameterShardings_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;   // in
  size_t num_parameters;         // out
  const char* const* shardings;  // out
  const size_t* sharding_sizes;  // out
};

struct PJRT_Shardings_PJRT_Executable_OutputShardings_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;   // in
  size_t num_outputs;            // out
  const char* const* shardings;  // out
  const size_t* sharding_sizes;  // out
};

struct PJRT_Shardings_Extension {
  PJRT_Extension_Base base;
  PJRT_Shardings_PJRT_Executable_ParameterShardings_Fn*
      PJRT_Shardings_PJRT_Executable_ParameterShardings;
  PJRT_Shardings_PJRT_Executable_OutputShardings_Fn* PJRT_Shardings_PJRT_Executable_OutputShardings;
};

// ---- FFI (version 3): Typed custom-call handlers and per-execution user data.

typedef struct PJRT_FFI_Type_Info PJRT_FFI_Type_Info;
typedef struct PJRT_FFI_Type_Register_Args PJRT_FFI_Type_Register_Args;
typedef struct PJRT_FFI_UserData PJRT_FFI_UserData;
typedef struct PJRT_FFI_UserData_Add_Args PJRT_FFI_UserData_Add_Args;
typedef struct PJRT_FFI_Register_Handler_Args PJRT_FFI_Register_Handler_Args;
typedef struct PJRT_FFI_Extension PJRT_FFI_Extension;

typedef enum {
  PJRT_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE = 1,
} PJRT_FFI_Handler_TraitsBits;

typedef PJRT_Error* PJRT_FFI_Type_Register_Fn(PJRT_FFI_Type_Register_Args* args);
typedef PJRT_Error* PJRT_FFI_UserData_Add_Fn(PJRT_FFI_UserData_Add_Args* args);
typedef PJRT_Error* PJRT_FFI_Register_Handler_Fn(PJRT_FFI_Register_Handler_Args* args);

struct PJRT_FFI_Type_Info {
  void (*deleter)(void* object);
  void (*serialize)();
  void (*deserialize)();
};

struct PJRT_FFI_Type_Register_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* type_name;          // in
  size_t type_name_size;          // in
  int64_t type_id;                // in/out
  PJRT_FFI_Type_Info* type_info;  // in
};

struct PJRT_FFI_UserData {
  int64_t type_id;
  void* data;
};

struct PJRT_FFI_UserData_Add_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_ExecuteContext* context;  // in
  PJRT_FFI_UserData user_data;   // in
};

struct PJRT_FFI_Register_Handler_Args {
  size_t struct_size;
  const char* target_name;             // in
  size_t target_name_size;             // in
  void* handler;                       // in
  const char* platform_name;           // in
  size_t platform_name_size;           // in
  PJRT_FFI_Handler_TraitsBits traits;  // in
};

struct PJRT_FFI_Extension {
  PJRT_Extension_Base base;
  PJRT_FFI_Type_Register_Fn* type_register;
  PJRT_FFI_UserData_Add_Fn* user_data_add;
  PJRT_FFI_Register_Handler_Fn* register_handler;
};

// ---- Gpu (version 3): custom-call targets by name, typed ones of all stages and untyped ones.

typedef struct PJRT_Gpu_Register_Custom_Call_Args PJRT_Gpu_Register_Custom_Call_Args;
typedef struct PJRT_Gpu_Custom_Call PJRT_Gpu_Custom_Call;

typedef PJRT_Error* PJRT_Gpu_Register_Custom_Call(PJRT_Gpu_Register_Custom_Call_Args* args);

struct PJRT_Gpu_Register_Custom_Call_Args {
  size_t struct_size;
  const char* function_name;  // in
  size_t function_name_size;  // in
  int api_version;            // in; 0: untyped, 1: typed
  void* handler_instantiate;  // in
  void* handler_prepare;      // in
  void* handler_initialize;   // in
  void* handler_execute;      // in
  uint32_t traits;            // in
};

struct PJRT_Gpu_Custom_Call {
  PJRT_Extension_Base base;
  PJRT_Gpu_Register_Custom_Call* custom_call;
  bool custom_call_handles_traits;
};

// ---- CustomPartitioner (version 1): Registration of sharding callbacks for custom calls.

typedef struct JAX_CustomCallPartitioner_string JAX_CustomCallPartitioner_string;
typedef struct JAX_CustomCallPartitioner_aval JAX_CustomCallPartitioner_aval;
typedef struct JAX_CustomCallPartitioner_version_and_error
    JAX_CustomCallPartitioner_version_and_error;
typedef struct JAX_CustomCallPartitioner_Partition_Args JAX_CustomCallPartitioner_Partition_Args;
typedef struct JAX_CustomCallPartitioner_InferShardingFromOperands_Args
    JAX_CustomCallPartitioner_InferShardingFromOperands_Args;
typedef struct JAX_CustomCallPartitioner_PropagateUserSharding_Args
    JAX_CustomCallPartitioner_PropagateUserSharding_Args;
typedef struct JAX_CustomCallPartitioner_Callbacks JAX_CustomCallPartitioner_Callbacks;
typedef struct PJRT_Register_Custom_Partitioner_Args PJRT_Register_Custom_Partitioner_Args;
typedef struct PJRT_Register_Batch_Partitionable_Args PJRT_Register_Batch_Partitionable_Args;
typedef struct PJRT_Custom_Partitioner_Extension PJRT_Custom_Partitioner_Extension;

typedef PJRT_Error* PJRT_Register_Custom_Partitioner(PJRT_Register_Custom_Partitioner_Args* args);
typedef PJRT_Error* PJRT_Register_Batch_Partitionable(PJRT_Register_Batch_Partitionable_Args* args);

struct JAX_CustomCallPartitioner_string {
  const char* data;
  size_t size;
};

struct JAX_CustomCallPartitioner_aval {
  JAX_CustomCallPartitioner_string shape;
  bool has_sharding;
  JAX_CustomCallPartitioner_string sharding;
};

struct JAX_CustomCallPartitioner_version_and_error {
  int64_t api_version;
  void* data;                      // out
  void (*cleanup_fn)(void* data);  // out
  bool has_error;
  PJRT_Error_Code code;                        // out
  JAX_CustomCallPartitioner_string error_msg;  // out
};

struct JAX_CustomCallPartitioner_Partition_Args {
  JAX_CustomCallPartitioner_version_and_error header;  // in
  size_t num_args;                                     // in
  JAX_CustomCallPartitioner_aval* op_args;             // in
  JAX_CustomCallPartitioner_aval op_result;            // in
  JAX_CustomCallPartitioner_string backend_config;     // in
  JAX_CustomCallPartitioner_string mlir_module;        // out
  JAX_CustomCallPartitioner_string* args_sharding;     // out
  JAX_CustomCallPartitioner_string result_sharding;    // out
};

struct JAX_CustomCallPartitioner_InferShardingFromOperands_Args {
  JAX_CustomCallPartitioner_version_and_error header;  // in
  size_t num_args;                                     // in
  JAX_CustomCallPartitioner_aval* op_args;             // in
  JAX_CustomCallPartitioner_string result_shape;       // in
  JAX_CustomCallPartitioner_string backend_config;     // in
  bool has_result_sharding;                            // out
  JAX_CustomCallPartitioner_string result_sharding;    // out
};

struct JAX_CustomCallPartitioner_PropagateUserSharding_Args {
  JAX_CustomCallPartitioner_version_and_error header;  // in
  JAX_CustomCallPartitioner_string backend_config;     // in
  JAX_CustomCallPartitioner_string result_shape;       // in
  JAX_CustomCallPartitioner_string result_sharding;    // in/out
};

struct JAX_CustomCallPartitioner_Callbacks {
  int64_t version;
  void* private_data;
  void (*dtor)(JAX_CustomCallPartitioner_Callbacks* data);
  void (*partition)(JAX_CustomCallPartitioner_Callbacks* data,
                    JAX_CustomCallPartitioner_Partition_Args* args);
  void (*infer_sharding)(JAX_CustomCallPartitioner_Callbacks* data,
                         JAX_CustomCallPartitioner_InferShardingFromOperands_Args* args);
  void (*propagate_user_sharding)(JAX_CustomCallPartitioner_Callbacks* data,
                                  JAX_CustomCallPartitioner_PropagateUserSharding_Args* args);
  bool can_side_effecting_have_replicated_sharding;
};

struct PJRT_Register_Custom_Partitioner_Args {
  size_t struct_size;
  const char* name;                                // in
  size_t name_size;                                // in
  JAX_CustomCallPartitioner_Callbacks* callbacks;  // in
};

struct PJRT_Register_Batch_Partitionable_Args {
  size_t struct_size;
  const char* name;  // in
  size_t name_size;  // in
};

struct PJRT_Custom_Partitioner_Extension {
  PJRT_Extension_Base base;
  PJRT_Register_Custom_Partitioner* register_custom_partitioner;
  PJRT_Register_Batch_Partitionable* register_batch_partitionable;
};

// ---- HostMemoryAllocator (version 0): Pinned host memory for the framework.

typedef struct PJRT_HostMemoryAllocator_Allocate_Args PJRT_HostMemoryAllocator_Allocate_Args;
typedef struct PJRT_HostMemoryAllocator_Extension PJRT_HostMemoryAllocator_Extension;

typedef PJRT_Error* (*PJRT_HostMemoryAllocator_Allocate)(
    PJRT_HostMemoryAllocator_Allocate_Args* args);
typedef PJRT_Error* PJRT_HostMemoryAllocator_Allocate_Fn(
    PJRT_HostMemoryAllocator_Allocate_Args* args);

struct PJRT_HostMemoryAllocator_Allocate_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;                    // in
  size_t size;                            // in
  int numa_node;                          // in
  uint8_t* ptr;                           // out
  void (*deleter)(void* ptr, void* arg);  // out
  void* deleter_arg;                      // out
};

struct PJRT_HostMemoryAllocator_Extension {
  PJRT_Extension_Base base;
  PJRT_HostMemoryAllocator_Allocate allocate;
};

// ---- ProfilerApi (version 1): Vtable used by the Profiler extension; has its own error and handle
// types.

typedef struct PLUGIN_Profiler PLUGIN_Profiler;
typedef struct PLUGIN_Profiler_Error PLUGIN_Profiler_Error;
typedef struct PLUGIN_Profiler_ConsumeResult PLUGIN_Profiler_ConsumeResult;
typedef struct PLUGIN_Profiler_Error_Destroy_Args PLUGIN_Profiler_Error_Destroy_Args;
typedef struct PLUGIN_Profiler_Error_Message_Args PLUGIN_Profiler_Error_Message_Args;
typedef struct PLUGIN_Profiler_Error_GetCode_Args PLUGIN_Profiler_Error_GetCode_Args;
typedef struct PLUGIN_Profiler_Create_Args PLUGIN_Profiler_Create_Args;
typedef struct PLUGIN_Profiler_Destroy_Args PLUGIN_Profiler_Destroy_Args;
typedef struct PLUGIN_Profiler_Start_Args PLUGIN_Profiler_Start_Args;
typedef struct PLUGIN_Profiler_Stop_Args PLUGIN_Profiler_Stop_Args;
typedef struct PLUGIN_Profiler_CollectData_Args PLUGIN_Profiler_CollectData_Args;
typedef struct PLUGIN_Profiler_Consume_Args PLUGIN_Profiler_Consume_Args;
typedef struct PLUGIN_Profiler_ConsumeResult_Destroy_Args
    PLUGIN_Profiler_ConsumeResult_Destroy_Args;
typedef struct PLUGIN_Profiler_Serialize_Args PLUGIN_Profiler_Serialize_Args;
typedef struct PLUGIN_Profiler_Api PLUGIN_Profiler_Api;

typedef void PLUGIN_Profiler_Error_Destroy_Fn(PLUGIN_Profiler_Error_Destroy_Args* args);
typedef void PLUGIN_Profiler_Error_Message_Fn(PLUGIN_Profiler_Error_Message_Args* args);
typedef PLUGIN_Profiler_Error* PLUGIN_Profiler_Error_GetCode_Fn(
    PLUGIN_Profiler_Error_GetCode_Args* args);
typedef PLUGIN_Profiler_Error* PLUGIN_Profiler_Create_Fn(PLUGIN_Profiler_Create_Args* args);
typedef PLUGIN_Profiler_Error* PLUGIN_Profiler_Destroy_Fn(PLUGIN_Profiler_Destroy_Args* args);
typedef PLUGIN_Profiler_Error* PLUGIN_Profiler_Start_Fn(PLUGIN_Profiler_Start_Args* args);
typedef PLUGIN_Profiler_Error* PLUGIN_Profiler_Stop_Fn(PLUGIN_Profiler_Stop_Args* args);
typedef PLUGIN_Profiler_Error* PLUGIN_Profiler_CollectData_Fn(
    PLUGIN_Profiler_CollectData_Args* args);
typedef PLUGIN_Profiler_Error* PLUGIN_Profiler_Consume_Fn(PLUGIN_Profiler_Consume_Args* args);
typedef void PLUGIN_Profiler_ConsumeResult_Destroy_Fn(
    PLUGIN_Profiler_ConsumeResult_Destroy_Args* args);
typedef PLUGIN_Profiler_Error* PLUGIN_Profiler_Serialize_Fn(PLUGIN_Profiler_Serialize_Args* args);

struct PLUGIN_Profiler_Error_Destroy_Args {
  size_t struct_size;
  void* priv;
  PLUGIN_Profiler_Error* error;  // in
};

struct PLUGIN_Profiler_Error_Message_Args {
  size_t struct_size;
  void* priv;
  const PLUGIN_Profiler_Error* error;  // in
  const char* message;                 // out
  size_t message_size;                 // out
};

struct PLUGIN_Profiler_Error_GetCode_Args {
  size_t struct_size;
  void* priv;
  const PLUGIN_Profiler_Error* error;  // in
  int code;                            // out
};

struct PLUGIN_Profiler_Create_Args {
  size_t struct_size;
  const char* options;        // in
  size_t options_size;        // in
  PLUGIN_Profiler* profiler;  // out
};

struct PLUGIN_Profiler_Destroy_Args {
  size_t struct_size;
  PLUGIN_Profiler* profiler;  // in
};

struct PLUGIN_Profiler_Start_Args {
  size_t struct_size;
  PLUGIN_Profiler* profiler;  // in
};

struct PLUGIN_Profiler_Stop_Args {
  size_t struct_size;
  PLUGIN_Profiler* profiler;  // in
};

struct PLUGIN_Profiler_CollectData_Args {
  size_t struct_size;
  PLUGIN_Profiler* profiler;    // in
  uint8_t* buffer;              // in/out
  size_t buffer_size_in_bytes;  // out
};

struct PLUGIN_Profiler_Consume_Args {
  size_t struct_size;
  PLUGIN_Profiler* profiler;              // in
  PLUGIN_Profiler_ConsumeResult* result;  // out
};

struct PLUGIN_Profiler_ConsumeResult_Destroy_Args {
  size_t struct_size;
  PLUGIN_Profiler_ConsumeResult* consume_result;  // in
};

struct PLUGIN_Profiler_Serialize_Args {
  size_t struct_size;
  PLUGIN_Profiler* profiler;                      // in
  PLUGIN_Profiler_ConsumeResult* consume_result;  // in
  const uint8_t* serialized_bytes;                // out
  size_t serialized_size;                         // out
};

struct PLUGIN_Profiler_Api {
  size_t struct_size;
  void* priv;
  PLUGIN_Profiler_Error_Destroy_Fn* error_destroy;
  PLUGIN_Profiler_Error_Message_Fn* error_message;
  PLUGIN_Profiler_Error_GetCode_Fn* error_get_code;
  PLUGIN_Profiler_Create_Fn* create;
  PLUGIN_Profiler_Destroy_Fn* destroy;
  PLUGIN_Profiler_Start_Fn* start;
  PLUGIN_Profiler_Stop_Fn* stop;
  PLUGIN_Profiler_CollectData_Fn* collect_data;
  PLUGIN_Profiler_Consume_Fn* consume;
  PLUGIN_Profiler_ConsumeResult_Destroy_Fn* consume_result_destroy;
  PLUGIN_Profiler_Serialize_Fn* serialize;
};

// ---- Profiler (version 1): Lets the host collect device traces; also used as an argument
// extension carrying a trace context id.

typedef struct PJRT_Profiler_Extension PJRT_Profiler_Extension;

struct PJRT_Profiler_Extension {
  PJRT_Extension_Base base;
  PLUGIN_Profiler_Api* profiler_api;
  int64_t traceme_context_id;
};

#ifdef __cplusplus
}  // extern "C"
#endif
