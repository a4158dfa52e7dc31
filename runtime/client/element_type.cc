// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/element_type.h"

namespace hekla::runtime {
namespace {

struct Pair {
  DType dtype;
  PJRT_Buffer_Type type;
  int since = 0;  // the minor version in which the type appeared, above the oldest that is loaded
};
constexpr Pair kPairs[] = {
    {DType::kI1, PJRT_Buffer_Type_PRED},
    {DType::kI2, PJRT_Buffer_Type_S2, 53},
    {DType::kI4, PJRT_Buffer_Type_S4},
    {DType::kI8, PJRT_Buffer_Type_S8},
    {DType::kI16, PJRT_Buffer_Type_S16},
    {DType::kI32, PJRT_Buffer_Type_S32},
    {DType::kI64, PJRT_Buffer_Type_S64},
    {DType::kUI2, PJRT_Buffer_Type_U2, 53},
    {DType::kUI4, PJRT_Buffer_Type_U4},
    {DType::kUI8, PJRT_Buffer_Type_U8},
    {DType::kUI16, PJRT_Buffer_Type_U16},
    {DType::kUI32, PJRT_Buffer_Type_U32},
    {DType::kUI64, PJRT_Buffer_Type_U64},
    {DType::kF4E2M1FN, PJRT_Buffer_Type_F4E2M1FN, 63},
    {DType::kF6E2M3FN, PJRT_Buffer_Type_F6E2M3FN, 114},
    {DType::kF6E3M2FN, PJRT_Buffer_Type_F6E3M2FN, 114},
    {DType::kF8E3M4, PJRT_Buffer_Type_F8E3M4, 55},
    {DType::kF8E4M3, PJRT_Buffer_Type_F8E4M3, 55},
    {DType::kF8E4M3FN, PJRT_Buffer_Type_F8E4M3FN},
    {DType::kF8E4M3FNUZ, PJRT_Buffer_Type_F8E4M3FNUZ},
    {DType::kF8E4M3B11FNUZ, PJRT_Buffer_Type_F8E4M3B11FNUZ},
    {DType::kF8E5M2, PJRT_Buffer_Type_F8E5M2},
    {DType::kF8E5M2FNUZ, PJRT_Buffer_Type_F8E5M2FNUZ},
    {DType::kF8E8M0FNU, PJRT_Buffer_Type_F8E8M0FNU, 63},
    {DType::kBF16, PJRT_Buffer_Type_BF16},
    {DType::kF16, PJRT_Buffer_Type_F16},
    {DType::kF32, PJRT_Buffer_Type_F32},
    {DType::kF64, PJRT_Buffer_Type_F64},
    {DType::kC64, PJRT_Buffer_Type_C64},
    {DType::kC128, PJRT_Buffer_Type_C128},
};

}  // namespace

PJRT_Buffer_Type to_buffer_type(DType dtype) {
  for (const Pair& pair : kPairs) {
    if (pair.dtype == dtype) return pair.type;
  }
  return PJRT_Buffer_Type_INVALID;
}

int buffer_type_since(PJRT_Buffer_Type type) {
  for (const Pair& pair : kPairs) {
    if (pair.type == type) return pair.since;
  }
  return 0;
}

DType from_buffer_type(PJRT_Buffer_Type type) {
  for (const Pair& pair : kPairs) {
    if (pair.type == type) return pair.dtype;
  }
  return DType::kInvalid;
}

}  // namespace hekla::runtime
