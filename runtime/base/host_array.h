// SPDX-License-Identifier: Apache-2.0
// HostArray: a dense row-major array in host memory; constants of programs, inputs and outputs of
// the evaluator, npy files.
//
// A HostArray is a value with shared storage: copies are cheap and read the same bytes. Writing
// goes through mutable_data(), which first makes the bytes this array's own; nobody else sees the
// change. Elements are laid out as dtype.h says. Different arrays may be used from different
// threads; one array like any other value. Making one can run out of memory: use `allocate` where
// the size comes from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

namespace hekla {

using Dims = std::vector<int64_t>;

// The product of the dimensions; 1 for rank 0. The caller knows that it fits (see checked_bytes).
int64_t element_count(std::span<const int64_t> dims);
// Bytes of a dense array, or OUT_OF_RANGE when a dimension is negative or the size exceeds 2^62.
Result<int64_t> checked_bytes(DType dtype, std::span<const int64_t> dims);
// "f32[2,3]", "i1[]".
std::string shape_string(DType dtype, std::span<const int64_t> dims);

class HostArray {
 public:
  HostArray() = default;  // dtype kInvalid, no bytes
  // Zero-filled; aborts when the memory is not there.
  HostArray(DType dtype, Dims dims);
  // Zero-filled, or uninitialized where every byte is about to be written.
  // OUT_OF_RANGE: a bad shape; RESOURCE_EXHAUSTED: no memory.
  static Result<HostArray> allocate(DType dtype, Dims dims, bool zero = true);
  // Reads foreign bytes in place: `owner` keeps them alive. `data` holds at least the dense size.
  static HostArray wrap(DType dtype, Dims dims, std::shared_ptr<const void> owner,
                        const void* data);
  // Takes `memory` over, which nobody else holds: written in place. It holds at least the dense
  // size.
  static HostArray adopt(DType dtype, Dims dims, std::shared_ptr<void> memory);
  template <typename T>
  static HostArray from(DType dtype, Dims dims, std::span<const T> values);
  template <typename T>
  static HostArray scalar(DType dtype, T value) {
    return from<T>(dtype, {}, std::span<const T>(&value, 1));
  }

  DType dtype() const { return dtype_; }
  const Dims& dims() const { return dims_; }
  int64_t rank() const { return static_cast<int64_t>(dims_.size()); }
  int64_t size() const { return size_; }  // elements
  int64_t size_bytes() const { return size_ * dtype_bytes(dtype_); }
  std::string shape() const { return shape_string(dtype_, dims_); }

  const std::byte* data() const { return data_; }
  std::byte* mutable_data();
  // Whether mutable_data() gives these bytes as they are, without a copy.
  bool is_unique() const { return is_owned_ && owner_.use_count() == 1; }
  // T must have the size of one element (for complex types also of one part).
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }
  template <typename T>
  T* mutable_as() {
    return reinterpret_cast<T*>(mutable_data());
  }
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_bytes())}; }
  // The same bytes under another shape of equal size, or dtype of equal element bytes.
  HostArray with_shape(DType dtype, Dims dims) const;
  // Same dtype, dims and bytes.
  bool identical(const HostArray& other) const;

 private:
  DType dtype_ = DType::kInvalid;
  Dims dims_;
  int64_t size_ = 0;
  std::shared_ptr<const void> owner_;  // shared by copies; unique and ours before any write
  bool is_owned_ = false;              // allocated here or adopted, so writable once unshared
  const std::byte* data_ = nullptr;
};

template <typename T>
HostArray HostArray::from(DType dtype, Dims dims, std::span<const T> values) {
  HostArray array(dtype, std::move(dims));
  if (static_cast<int64_t>(values.size_bytes()) != array.size_bytes()) {
    die_of_bad_result(internal_error("{} values do not fill {}", values.size(), array.shape()));
  }
  if (!values.empty()) std::memcpy(array.mutable_data(), values.data(), values.size_bytes());
  return array;
}

}  // namespace hekla
