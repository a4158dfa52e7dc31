// SPDX-License-Identifier: Apache-2.0
// DType and the C API's element types. Pure functions.
#pragma once

#include <optional>

#include "plugin_api/pjrt_c_api.h"
#include "runtime/base/dtype.h"

namespace hekla::runtime {

// PJRT_Buffer_Type_INVALID where the C API has no such type (tf32).
PJRT_Buffer_Type to_buffer_type(DType dtype);
// The minor version of the C API in which a type appeared; 0 for those of version 0.29 and older.
int buffer_type_since(PJRT_Buffer_Type type);
// kInvalid for INVALID, TOKEN, one-bit integers and types newer than this header.
DType from_buffer_type(PJRT_Buffer_Type type);

}  // namespace hekla::runtime
