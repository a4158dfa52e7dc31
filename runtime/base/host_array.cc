// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/host_array.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace hekla {
namespace {

// Cache-line alignment, which also satisfies every vector instruction set.
constexpr size_t kAlignment = 64;
// Arrays from this size on begin with a page: direct I/O takes them without a copy.
constexpr size_t kLargeBytes = size_t{64} << 10;
constexpr size_t kPage = 4096;

std::shared_ptr<void> allocate_bytes(int64_t bytes, bool zero) {
  const size_t size = static_cast<size_t>(bytes);
  const size_t alignment = size >= kLargeBytes ? kPage : kAlignment;
  const size_t rounded = (size + alignment) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) return nullptr;
  if (zero) std::memset(memory, 0, rounded);
  return std::shared_ptr<void>(memory, std::free);
}

}  // namespace

int64_t element_count(std::span<const int64_t> dims) {
  // A zero anywhere makes the count zero, however large the product of the others would be.
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return 0;
  int64_t count = 1;
  for (int64_t dim : dims) count *= dim;
  return count;
}

Result<int64_t> checked_bytes(DType dtype, std::span<const int64_t> dims) {
  constexpr int64_t kLimit = int64_t{1} << 62;
  int64_t bytes = dtype_bytes(dtype);
  bool is_empty = false;
  for (int64_t dim : dims) {
    if (dim < 0) {
      return out_of_range("{} has a negative dimension", shape_string(dtype, dims));
    }
    is_empty = is_empty || dim == 0;
  }
  if (is_empty) return 0;
  for (int64_t dim : dims) {
    if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > kLimit) {
      return out_of_range("{} takes more than 2^62 bytes", shape_string(dtype, dims));
    }
  }
  return bytes;
}

std::string shape_string(DType dtype, std::span<const int64_t> dims) {
  return fmt::format("{}[{}]", dtype_name(dtype), fmt::join(dims, ","));
}

HostArray::HostArray(DType dtype, Dims dims) {
  *this = HostArray::allocate(dtype, std::move(dims)).value();
}

Result<HostArray> HostArray::allocate(DType dtype, Dims dims, bool zero) {
  HEKLA_ASSIGN_OR_RETURN(int64_t bytes, checked_bytes(dtype, dims));
  std::shared_ptr<void> memory = allocate_bytes(bytes, zero);
  if (memory == nullptr) {
    return resource_exhausted("no host memory for {} ({} bytes)", shape_string(dtype, dims), bytes);
  }
  return adopt(dtype, std::move(dims), std::move(memory));
}

HostArray HostArray::adopt(DType dtype, Dims dims, std::shared_ptr<void> memory) {
  const void* const data = memory.get();
  HostArray array = wrap(dtype, std::move(dims), std::move(memory), data);
  array.is_owned_ = true;
  return array;
}

HostArray HostArray::wrap(DType dtype, Dims dims, std::shared_ptr<const void> owner,
                          const void* data) {
  HostArray array;
  array.dtype_ = dtype;
  array.dims_ = std::move(dims);
  array.size_ = element_count(array.dims_);
  array.owner_ = std::move(owner);
  array.data_ = static_cast<const std::byte*>(data);
  return array;
}

std::byte* HostArray::mutable_data() {
  if (!is_unique()) {
    std::shared_ptr<void> memory = allocate_bytes(size_bytes(), false);
    if (memory == nullptr) die_of_bad_result(resource_exhausted("no host memory for {}", shape()));
    if (size_bytes() > 0) std::memcpy(memory.get(), data_, static_cast<size_t>(size_bytes()));
    data_ = static_cast<const std::byte*>(memory.get());
    owner_ = std::move(memory);
    is_owned_ = true;
  }
  return const_cast<std::byte*>(data_);
}

HostArray HostArray::with_shape(DType dtype, Dims dims) const {
  HostArray array = *this;
  array.dtype_ = dtype;
  array.dims_ = std::move(dims);
  array.size_ = element_count(array.dims_);
  if (array.size_bytes() != size_bytes()) {
    die_of_bad_result(internal_error("{} cannot be seen as {}", shape(), array.shape()));
  }
  return array;
}

bool HostArray::identical(const HostArray& other) const {
  return dtype_ == other.dtype_ && dims_ == other.dims_ &&
         (size_bytes() == 0 ||
          std::memcmp(data_, other.data_, static_cast<size_t>(size_bytes())) == 0);
}

}  // namespace hekla
