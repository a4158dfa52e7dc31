// SPDX-License-Identifier: Apache-2.0
// Element types between the C API's numbers and ours.
#include "backends/pjrt/abi.h"

namespace hekla::pjrt {

PJRT_Buffer_Type to_buffer_type(DType dtype) {
  switch (dtype) {
    case DType::kInvalid:
      return PJRT_Buffer_Type_TOKEN;
    case DType::kI1:
      return PJRT_Buffer_Type_PRED;
    case DType::kI2:
      return PJRT_Buffer_Type_S2;
    case DType::kI4:
      return PJRT_Buffer_Type_S4;
    case DType::kI8:
      return PJRT_Buffer_Type_S8;
    case DType::kI16:
      return PJRT_Buffer_Type_S16;
    case DType::kI32:
      return PJRT_Buffer_Type_S32;
    case DType::kI64:
      return PJRT_Buffer_Type_S64;
    case DType::kUI2:
      return PJRT_Buffer_Type_U2;
    case DType::kUI4:
      return PJRT_Buffer_Type_U4;
    case DType::kUI8:
      return PJRT_Buffer_Type_U8;
    case DType::kUI16:
      return PJRT_Buffer_Type_U16;
    case DType::kUI32:
      return PJRT_Buffer_Type_U32;
    case DType::kUI64:
      return PJRT_Buffer_Type_U64;
    case DType::kF4E2M1FN:
      return PJRT_Buffer_Type_F4E2M1FN;
    case DType::kF6E2M3FN:
      return PJRT_Buffer_Type_F6E2M3FN;
    case DType::kF6E3M2FN:
      return PJRT_Buffer_Type_F6E3M2FN;
    case DType::kF8E3M4:
      return PJRT_Buffer_Type_F8E3M4;
    case DType::kF8E4M3:
      return PJRT_Buffer_Type_F8E4M3;
    case DType::kF8E4M3FN:
      return PJRT_Buffer_Type_F8E4M3FN;
    case DType::kF8E4M3FNUZ:
      return PJRT_Buffer_Type_F8E4M3FNUZ;
    case DType::kF8E4M3B11FNUZ:
      return PJRT_Buffer_Type_F8E4M3B11FNUZ;
    case DType::kF8E5M2:
      return PJRT_Buffer_Type_F8E5M2;
    case DType::kF8E5M2FNUZ:
      return PJRT_Buffer_Type_F8E5M2FNUZ;
    case DType::kF8E8M0FNU:
      return PJRT_Buffer_Type_F8E8M0FNU;
    case DType::kBF16:
      return PJRT_Buffer_Type_BF16;
    case DType::kF16:
      return PJRT_Buffer_Type_F16;
    case DType::kTF32:  // no type of its own: the same bits as f32
    case DType::kF32:
      return PJRT_Buffer_Type_F32;
    case DType::kF64:
      return PJRT_Buffer_Type_F64;
    case DType::kC64:
      return PJRT_Buffer_Type_C64;
    case DType::kC128:
      return PJRT_Buffer_Type_C128;
  }
  return PJRT_Buffer_Type_INVALID;
}

Result<DType> to_dtype(PJRT_Buffer_Type type) {
  if (type == PJRT_Buffer_Type_TOKEN) return DType::kInvalid;
  for (int i = 1; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (dtype != DType::kTF32 && to_buffer_type(dtype) == type) return dtype;
  }
  return invalid_argument("element type {} is unknown or has no arrays", static_cast<int>(type));
}

}  // namespace hekla::pjrt
