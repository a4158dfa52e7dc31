// SPDX-License-Identifier: Apache-2.0
// Holds: the values of a buffer as they are now, readable later, whatever is launched afterwards.
//
// Hekla's own extension of the PJRT C API, for those who have no PJRT_Buffer: users of a client
// that shows addresses of buffers alone, as JAX's Array.unsafe_buffer_pointer() does. While a
// thread has switched holds on, PJRT_Buffer_UnsafePointer answers it with a new hold instead of an
// address. It waits neither for the contents nor for a copy. The buffer may then be deleted; a
// launch that would consume it works on a copy of it instead.
#pragma once

#include "plugin_api/pjrt_c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

// Far from the types that OpenXLA gives out, which count from 0.
enum { Hekla_Extension_Type_Holds = 901 };

typedef struct Hekla_Hold Hekla_Hold;

// For the calling thread, which switches it off again.
typedef struct Hekla_Holds_Switch_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  bool is_on;  // in
} Hekla_Holds_Switch_Args;

// The hold that is meant by what PJRT_Buffer_UnsafePointer said; null when it is none of this
// plugin's.
typedef struct Hekla_Hold_Find_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  uintptr_t pointer;   // in
  Hekla_Hold* hold;    // out
  int64_t size_bytes;  // out; dense, row major, whole bytes for each element
} Hekla_Hold_Find_Args;

// Copies bytes [offset, offset + size_bytes) to `into`. Waits until they are there; errors of
// whatever computes them come out of this.
typedef struct Hekla_Hold_Read_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  Hekla_Hold* hold;    // in
  int64_t offset;      // in
  int64_t size_bytes;  // in
  void* into;          // in
} Hekla_Hold_Read_Args;

// Nobody reads it any more.
typedef struct Hekla_Hold_Release_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  Hekla_Hold* hold;  // in
} Hekla_Hold_Release_Args;

typedef PJRT_Error* Hekla_Holds_Switch_Fn(Hekla_Holds_Switch_Args* args);
typedef PJRT_Error* Hekla_Hold_Find_Fn(Hekla_Hold_Find_Args* args);
typedef PJRT_Error* Hekla_Hold_Read_Fn(Hekla_Hold_Read_Args* args);
typedef PJRT_Error* Hekla_Hold_Release_Fn(Hekla_Hold_Release_Args* args);

typedef struct Hekla_Holds_Extension {
  PJRT_Extension_Base base;
  Hekla_Holds_Switch_Fn* holds_switch;
  Hekla_Hold_Find_Fn* hold_find;
  Hekla_Hold_Read_Fn* hold_read;
  Hekla_Hold_Release_Fn* hold_release;
} Hekla_Holds_Extension;

#ifdef __cplusplus
}  // extern "C"
#endif
