// SPDX-License-Identifier: Apache-2.0
// PJRT C API: topology descriptions.
// Part of pjrt_c_api.h, which says what all of these headers have in common; include that one.
#pragma once

#include "plugin_api/pjrt_base.h"
#include "plugin_api/pjrt_client.h"

#ifdef __cplusplus
extern "C" {
#endif

struct PJRT_TopologyDescription_Create_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* topology_name;              // in
  size_t topology_name_size;              // in
  const PJRT_NamedValue* create_options;  // in
  size_t num_options;                     // in
  PJRT_TopologyDescription* topology;     // out
};
typedef PJRT_Error* PJRT_TopologyDescription_Create_Fn(PJRT_TopologyDescription_Create_Args* args);

struct PJRT_TopologyDescription_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology;  // in
};
typedef PJRT_Error* PJRT_TopologyDescription_Destroy_Fn(
    PJRT_TopologyDescription_Destroy_Args* args);

struct PJRT_TopologyDescription_PlatformVersion_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology;  // in
  const char* platform_version;        // out
  size_t platform_version_size;        // out
};
typedef PJRT_Error* PJRT_TopologyDescription_PlatformVersion_Fn(
    PJRT_TopologyDescription_PlatformVersion_Args* args);

struct PJRT_TopologyDescription_PlatformName_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_TopologyDescription* topology;  // in
  const char* platform_name;                 // out
  size_t platform_name_size;                 // out
};
typedef PJRT_Error* PJRT_TopologyDescription_PlatformName_Fn(
    PJRT_TopologyDescription_PlatformName_Args* args);

struct PJRT_TopologyDescription_GetDeviceDescriptions_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_TopologyDescription* topology;     // in
  PJRT_DeviceDescription* const* descriptions;  // out
  size_t num_descriptions;                      // out
};
typedef PJRT_Error* PJRT_TopologyDescription_GetDeviceDescriptions_Fn(
    PJRT_TopologyDescription_GetDeviceDescriptions_Args* args);

// Since 0.22.
struct PJRT_TopologyDescription_Serialize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology;                                                 // in
  const char* serialized_bytes;                                                       // out
  size_t serialized_bytes_size;                                                       // out
  PJRT_SerializedTopology* serialized_topology;                                       // out
  void (*serialized_topology_deleter)(PJRT_SerializedTopology* serialized_topology);  // out
};
typedef PJRT_Error* PJRT_TopologyDescription_Serialize_Fn(
    PJRT_TopologyDescription_Serialize_Args* args);

// Since 0.75.
struct PJRT_TopologyDescription_Deserialize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* serialized_topology;     // in
  size_t serialized_topology_size;     // in
  PJRT_TopologyDescription* topology;  // out
};
typedef PJRT_Error* PJRT_TopologyDescription_Deserialize_Fn(
    PJRT_TopologyDescription_Deserialize_Args* args);

// Since 0.27.
struct PJRT_TopologyDescription_Attributes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology;  // in
  const PJRT_NamedValue* attributes;   // out
  size_t num_attributes;               // out
};
typedef PJRT_Error* PJRT_TopologyDescription_Attributes_Fn(
    PJRT_TopologyDescription_Attributes_Args* args);

// Since 0.101.
struct PJRT_TopologyDescription_Fingerprint_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_TopologyDescription* topology;  // in
  uint64_t fingerprint;                      // out
};
typedef PJRT_Error* PJRT_TopologyDescription_Fingerprint_Fn(
    PJRT_TopologyDescription_Fingerprint_Args* args);

// Since 0.109.
struct PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_TopologyDescription* topology;       // in
  int memory_space_kind_id;                       // in
  const int64_t* dims;                            // in
  size_t num_dims;                                // in
  PJRT_Buffer_Type element_type;                  // in
  const PJRT_Buffer_MemoryLayout* layout;         // in
  const char* serialized_shape;                   // out
  size_t serialized_shape_size;                   // out
  void (*serialized_shape_deleter)(const char*);  // out
};
typedef PJRT_Error* PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Fn(
    PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args* args);

// Since 0.110.
struct PJRT_TopologyDescription_GetMemorySpaceKindIds_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_TopologyDescription* topology;  // in
  const int* memory_space_kind_ids;          // out
  size_t num_memory_space_kind_ids;          // out
};
typedef PJRT_Error* PJRT_TopologyDescription_GetMemorySpaceKindIds_Fn(
    PJRT_TopologyDescription_GetMemorySpaceKindIds_Args* args);

#ifdef __cplusplus
}  // extern "C"
#endif
