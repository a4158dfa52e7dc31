// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/bytecode/tensor_data.h"

#include <cstring>

namespace hekla::stablehlo {
namespace {

// Below this copying costs nothing and alignment need not be thought of.
constexpr size_t kInPlaceBytes = 4096;

HostArray splat_of(DType dtype, std::string_view element) {
  HostArray array(dtype, {});
  std::memcpy(array.mutable_data(), element.data(), element.size());
  return array;
}

// Senders leave anything in the upper bits of narrow elements; ours are extended as their type
// says.
std::byte extended(DType dtype, std::byte element) {
  const int bits = dtype_bits(dtype);
  const unsigned low = std::to_integer<unsigned>(element) & ((1U << bits) - 1);
  const bool is_negative = is_signed_integer(dtype) && (low >> (bits - 1)) != 0;
  return static_cast<std::byte>(is_negative ? low | (0xffU << bits) : low);
}

HostArray narrow_elements(HostArray array) {
  std::byte* data = array.mutable_data();
  for (int64_t i = 0; i < array.size(); ++i) data[i] = extended(array.dtype(), data[i]);
  return array;
}

// Packed and unpacked forms both exist; see stablehlo_bytecode.md §3.3.
Result<HostArray> bool_elements(const ir::Type& type, int64_t count, std::string_view blob) {
  const size_t n = static_cast<size_t>(count);
  const uint8_t first = blob.empty() ? 0 : static_cast<uint8_t>(blob[0]);
  const auto splat = [&](bool value) { return HostArray::scalar<uint8_t>(DType::kI1, value); };
  if (blob.size() == 1 && n > 1) {
    if (first == 0xff) return splat(true);
    if (first == 0x00) return splat(false);
    if (n > 8) return splat(true);
  }
  if (blob.size() != n && blob.size() != (n + 7) / 8) {
    return invalid_argument("bytecode: {} bytes do not hold {}", blob.size(), type.to_string());
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray array, HostArray::allocate(DType::kI1, type.dims(), false));
  uint8_t* out = array.mutable_as<uint8_t>();
  // One element in one byte reads the same either way.
  const bool is_packed = blob.size() != n;
  for (size_t i = 0; i < n; ++i) {
    out[i] = is_packed ? (static_cast<uint8_t>(blob[i / 8]) >> (i % 8)) & 1 : blob[i] != 0;
  }
  return array;
}

}  // namespace

Result<HostArray> stored_elements(const ir::Type& type, std::string_view blob,
                                  std::shared_ptr<const void> owner) {
  if (!type.is_static_tensor()) {
    return invalid_argument("bytecode: dense elements need a static tensor type, not {}",
                            type.to_string());
  }
  const DType dtype = type.dtype();
  const Result<int64_t> checked = checked_bytes(dtype, type.dims());
  if (!checked.ok()) return invalid_argument("bytecode: {}", checked.status().message());
  const int64_t bytes = *checked;
  const size_t width = static_cast<size_t>(dtype_bytes(dtype));
  const int64_t count = bytes / static_cast<int64_t>(width);
  if (count == 0) {
    if (blob.size() > width) {
      return invalid_argument("bytecode: {} bytes for {}, which has no elements", blob.size(),
                              type.to_string());
    }
    return HostArray(dtype, type.dims());
  }
  if (dtype == DType::kI1) return bool_elements(type, count, blob);
  if (blob.size() == width && count > 1) return splat_of(dtype, blob);
  if (static_cast<int64_t>(blob.size()) != bytes) {
    return invalid_argument("bytecode: {} bytes do not hold {}, which takes {}", blob.size(),
                            type.to_string(), bytes);
  }
  const bool is_aligned = reinterpret_cast<uintptr_t>(blob.data()) % 16 == 0;
  if (owner != nullptr && is_aligned && blob.size() >= kInPlaceBytes) {
    return HostArray::wrap(dtype, type.dims(), std::move(owner), blob.data());
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray array, HostArray::allocate(dtype, type.dims(), false));
  std::memcpy(array.mutable_data(), blob.data(), blob.size());
  return array;
}

Result<HostArray> tensor_elements(const ir::Type& type, std::string_view blob,
                                  std::shared_ptr<const void> owner) {
  const bool is_narrow = dtype_bits(type.dtype()) < 8 && type.dtype() != DType::kI1;
  if (!is_narrow) return stored_elements(type, blob, std::move(owner));
  HEKLA_ASSIGN_OR_RETURN(HostArray array, stored_elements(type, blob));
  return narrow_elements(std::move(array));
}

}  // namespace hekla::stablehlo
