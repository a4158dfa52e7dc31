// SPDX-License-Identifier: Apache-2.0
// From a DType known at run time to C++ types: `visit_dtype` calls a generic function with the
// codec of the dtype. A codec names two types and converts between them:
//
//   Storage   what lies in memory (one element of a HostArray)
//   Compute   what arithmetic is done in: the type itself for i8..ui64, f32, f64, complex; float
//   for
//             all smaller floats; bool for i1; (u)int8_t for the integers below eight bits
//   load()    Storage -> Compute, exact
//   store()   Compute -> Storage: rounds to nearest even, wraps integers below eight bits
//
//   visit_dtype(array.dtype(), [&](auto codec) {
//     using Codec = decltype(codec);
//     const auto* in = array.as<typename Codec::Storage>();
//     auto* out = result.mutable_as<typename Codec::Storage>();
//     for (int64_t i = 0; i < n; ++i) out[i] = codec.store(wrapping_add(codec.load(in[i]), one));
//   });
//
// All floats of at most eight bits share one codec type, so a visit costs 19 instantiations. Code
// that only moves elements uses `visit_element_size` (5 instantiations). Everything is stateless
// and thread-safe. An invalid dtype is a broken invariant and aborts.
#pragma once

#include <bit>
#include <complex>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

namespace hekla::reference {

// The 256 values of a float dtype of at most eight bits; borrowed from static storage.
const float* small_float_table(DType dtype);

struct BoolCodec {
  using Storage = uint8_t;
  using Compute = bool;
  bool load(uint8_t stored) const { return stored != 0; }
  uint8_t store(bool value) const { return value ? 1 : 0; }
};

template <typename T>
struct PlainCodec {
  using Storage = T;
  using Compute = T;
  T load(T stored) const { return stored; }
  T store(T value) const { return value; }
};

// i2 and i4, sign-extended to a byte.
struct NarrowSignedCodec {
  using Storage = int8_t;
  using Compute = int8_t;
  int shift;  // 8 - width
  int8_t load(int8_t stored) const { return stored; }
  int8_t store(int8_t value) const {
    return static_cast<int8_t>(static_cast<int8_t>(static_cast<uint8_t>(value) << shift) >> shift);
  }
};

// ui2 and ui4, zero-extended to a byte.
struct NarrowUnsignedCodec {
  using Storage = uint8_t;
  using Compute = uint8_t;
  uint8_t mask;
  uint8_t load(uint8_t stored) const { return stored; }
  uint8_t store(uint8_t value) const { return value & mask; }
};

// f4, f6 and f8 kinds.
struct SmallFloatCodec {
  using Storage = uint8_t;
  using Compute = float;
  DType dtype;
  const float* table;
  float load(uint8_t stored) const { return table[stored]; }
  uint8_t store(float value) const { return static_cast<uint8_t>(float_to_bits(dtype, value)); }
};

struct BFloat16Codec {
  using Storage = uint16_t;
  using Compute = float;
  float load(uint16_t stored) const {
    return std::bit_cast<float>(static_cast<uint32_t>(stored) << 16);
  }
  uint16_t store(float value) const {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 31) != 0 ? 0xffc0 : 0x7fc0;
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
};

struct Float16Codec {
  using Storage = uint16_t;
  using Compute = float;
  float load(uint16_t stored) const {
    const uint32_t sign = static_cast<uint32_t>(stored & 0x8000u) << 16;
    const uint32_t magnitude = stored & 0x7fffu;
    if (magnitude >= 0x7c00u) {
      return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    }
    // Scaling by 2^112 moves the exponent to f32's bias and normalises subnormals exactly.
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | sign);
  }
  uint16_t store(float value) const {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00;
    if (magnitude >= 0x477ff000u) return sign | 0x7c00;  // 65520 and above round to infinity
    if (magnitude < 0x38800000u) {
      // Below 2^-14: adding 0.5 leaves the subnormal's bits, rounded, at the mantissa's low end.
      const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
      return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded) - 0x3f000000u);
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23);
    return sign | static_cast<uint16_t>(rounded >> 13);
  }
};

struct Tf32Codec {
  using Storage = uint32_t;
  using Compute = float;
  float load(uint32_t stored) const { return std::bit_cast<float>(stored); }
  uint32_t store(float value) const {
    return static_cast<uint32_t>(float_to_bits(DType::kTF32, value));
  }
};

template <typename F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kI1:
      return f(BoolCodec{});
    case DType::kI2:
      return f(NarrowSignedCodec{6});
    case DType::kI4:
      return f(NarrowSignedCodec{4});
    case DType::kI8:
      return f(PlainCodec<int8_t>{});
    case DType::kI16:
      return f(PlainCodec<int16_t>{});
    case DType::kI32:
      return f(PlainCodec<int32_t>{});
    case DType::kI64:
      return f(PlainCodec<int64_t>{});
    case DType::kUI2:
      return f(NarrowUnsignedCodec{0x3});
    case DType::kUI4:
      return f(NarrowUnsignedCodec{0xf});
    case DType::kUI8:
      return f(PlainCodec<uint8_t>{});
    case DType::kUI16:
      return f(PlainCodec<uint16_t>{});
    case DType::kUI32:
      return f(PlainCodec<uint32_t>{});
    case DType::kUI64:
      return f(PlainCodec<uint64_t>{});
    case DType::kF4E2M1FN:
    case DType::kF6E2M3FN:
    case DType::kF6E3M2FN:
    case DType::kF8E3M4:
    case DType::kF8E4M3:
    case DType::kF8E4M3FN:
    case DType::kF8E4M3FNUZ:
    case DType::kF8E4M3B11FNUZ:
    case DType::kF8E5M2:
    case DType::kF8E5M2FNUZ:
    case DType::kF8E8M0FNU:
      return f(SmallFloatCodec{dtype, small_float_table(dtype)});
    case DType::kBF16:
      return f(BFloat16Codec{});
    case DType::kF16:
      return f(Float16Codec{});
    case DType::kTF32:
      return f(Tf32Codec{});
    case DType::kF32:
      return f(PlainCodec<float>{});
    case DType::kF64:
      return f(PlainCodec<double>{});
    case DType::kC64:
      return f(PlainCodec<std::complex<float>>{});
    case DType::kC128:
      return f(PlainCodec<std::complex<double>>{});
    case DType::kInvalid:
      break;
  }
  die_of_bad_result(internal_error("an array without a dtype reached a kernel"));
}

// 16 bytes that are only moved.
struct Bytes16 {
  uint64_t words[2];
};

// Calls f(std::type_identity<T>{}) with an unsigned integer type (or Bytes16) of the element's
// size.
template <typename F>
decltype(auto) visit_element_size(DType dtype, F&& f) {
  switch (dtype_bytes(dtype)) {
    case 1:
      return f(std::type_identity<uint8_t>{});
    case 2:
      return f(std::type_identity<uint16_t>{});
    case 4:
      return f(std::type_identity<uint32_t>{});
    case 8:
      return f(std::type_identity<uint64_t>{});
    case 16:
      return f(std::type_identity<Bytes16>{});
    default:
      die_of_bad_result(internal_error("an array without a dtype reached a kernel"));
  }
}

template <typename T>
inline constexpr bool kIsComplex = false;
template <typename T>
inline constexpr bool kIsComplex<std::complex<T>> = true;

}  // namespace hekla::reference
