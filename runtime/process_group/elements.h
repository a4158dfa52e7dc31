// SPDX-License-Identifier: Apache-2.0
// Elements, ConstElements: dense elements in host memory that a process group reads or writes.
// Plain values.
//
// The memory belongs to the caller, who leaves it alone until the Work of the call is done. With an
// `owner` that keeps it alive the group sends from it as it is, and after a call that failed may
// hold the owner for a while longer; without one it sends a copy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/base/dtype.h"
#include "runtime/base/host_array.h"

namespace hekla::process_group {

// The dtype of a C++ type that is one.
template <typename T>
inline constexpr DType kDTypeOf = DType::kInvalid;
template <>
inline constexpr DType kDTypeOf<bool> = DType::kI1;
template <>
inline constexpr DType kDTypeOf<int8_t> = DType::kI8;
template <>
inline constexpr DType kDTypeOf<int16_t> = DType::kI16;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::kI32;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::kI64;
template <>
inline constexpr DType kDTypeOf<uint8_t> = DType::kUI8;
template <>
inline constexpr DType kDTypeOf<uint16_t> = DType::kUI16;
template <>
inline constexpr DType kDTypeOf<uint32_t> = DType::kUI32;
template <>
inline constexpr DType kDTypeOf<uint64_t> = DType::kUI64;
template <>
inline constexpr DType kDTypeOf<float> = DType::kF32;
template <>
inline constexpr DType kDTypeOf<double> = DType::kF64;

struct Elements {
  void* data = nullptr;
  DType dtype = DType::kInvalid;
  int64_t count = 0;
  std::shared_ptr<const void> owner = {};

  std::byte* bytes() const { return static_cast<std::byte*>(data); }
  int64_t size_bytes() const { return count * dtype_bytes(dtype); }
  // `count` elements from `first` on, which are there.
  Elements part(int64_t first, int64_t elements) const {
    return {count == 0 ? data : bytes() + first * dtype_bytes(dtype), dtype, elements, owner};
  }
};

struct ConstElements {
  const void* data = nullptr;
  DType dtype = DType::kInvalid;
  int64_t count = 0;
  std::shared_ptr<const void> owner = {};

  ConstElements() = default;
  ConstElements(const void* from, DType type, int64_t elements,
                std::shared_ptr<const void> kept_by = {})
      : data(from), dtype(type), count(elements), owner(std::move(kept_by)) {}
  ConstElements(const Elements& other)
      : data(other.data), dtype(other.dtype), count(other.count), owner(other.owner) {}

  const std::byte* bytes() const { return static_cast<const std::byte*>(data); }
  int64_t size_bytes() const { return count * dtype_bytes(dtype); }
  ConstElements part(int64_t first, int64_t elements) const {
    return {count == 0 ? data : bytes() + first * dtype_bytes(dtype), dtype, elements, owner};
  }
};

template <typename T>
Elements elements(std::span<T> values) {
  static_assert(kDTypeOf<T> != DType::kInvalid);
  return {values.data(), kDTypeOf<T>, static_cast<int64_t>(values.size())};
}
template <typename T>
ConstElements elements(std::span<const T> values) {
  static_assert(kDTypeOf<T> != DType::kInvalid);
  return {values.data(), kDTypeOf<T>, static_cast<int64_t>(values.size())};
}
// Of an array whose bytes become its own first, see HostArray::mutable_data.
inline Elements elements(HostArray& array) {
  return {array.mutable_data(), array.dtype(), array.size()};
}
// The array keeps its bytes alive.
inline ConstElements elements(const HostArray& array) {
  return {array.data(), array.dtype(), array.size(), std::make_shared<HostArray>(array)};
}

}  // namespace hekla::process_group
