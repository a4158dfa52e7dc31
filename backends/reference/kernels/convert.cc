// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/convert.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <type_traits>

#include "backends/reference/kernels/dispatch.h"

namespace hekla::reference {
namespace {

// Elements go through one of five wide types that hold every source value exactly, a block at a
// time: 2 x 19 x 5 small loops instead of 19 x 19.
constexpr int64_t kBlock = 1024;

template <typename C>
struct WideOf {
  using Type = std::conditional_t<
      kIsComplex<C>, std::complex<double>,
      std::conditional_t<std::is_floating_point_v<C>, C,
                         std::conditional_t<std::is_signed_v<C>, int64_t, uint64_t>>>;
};

template <typename Int>
Int saturate(double value, int bits) {
  if (std::isnan(value)) return 0;
  constexpr bool kSigned = std::is_signed_v<Int>;
  const double limit = std::ldexp(1.0, kSigned ? bits - 1 : bits);  // first value that is too large
  if (value >= limit) {
    return static_cast<Int>(std::numeric_limits<Int>::max() >>
                            (static_cast<int>(sizeof(Int)) * 8 - bits));
  }
  if (value < (kSigned ? -limit : 0.0)) {
    return kSigned ? static_cast<Int>(std::numeric_limits<Int>::min() >>
                                      (static_cast<int>(sizeof(Int)) * 8 - bits))
                   : 0;
  }
  return static_cast<Int>(value);
}

// The nearest double for rounding further: integers above 2^53 are rounded to odd, so that a second
// rounding to at most 51 bits gives what one rounding would.
template <typename Int>
double sticky_double(Int value) {
  const bool negative = value < 0;
  uint64_t magnitude =
      negative ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  if ((magnitude >> 53) != 0 && (magnitude & 0x7ff) != 0) {
    magnitude = (magnitude & ~uint64_t{0x7ff}) | 0x800;
  }
  const double result = static_cast<double>(magnitude);
  return negative ? -result : result;
}

template <typename Codec, typename Wide>
typename Codec::Storage narrow(const Codec& codec, DType dtype, Wide value) {
  using Storage = typename Codec::Storage;
  using Compute = typename Codec::Compute;
  if constexpr (kIsComplex<Compute>) {
    using Part = typename Compute::value_type;
    if constexpr (kIsComplex<Wide>) {
      return Compute(static_cast<Part>(value.real()), static_cast<Part>(value.imag()));
    } else {
      return Compute(static_cast<Part>(value), 0);
    }
  } else if constexpr (kIsComplex<Wide>) {
    // The imaginary part is dropped, also for i1.
    return narrow(codec, dtype, value.real());
  } else if constexpr (std::is_same_v<Compute, bool>) {
    return codec.store(value != Wide(0));
  } else if constexpr (std::is_integral_v<Compute>) {
    if constexpr (std::is_integral_v<Wide>) {
      return codec.store(static_cast<Compute>(value));
    } else {
      return codec.store(saturate<Compute>(value, dtype_bits(dtype)));
    }
  } else if constexpr (std::is_same_v<Storage, Compute>) {  // f32, f64
    return static_cast<Compute>(value);
  } else if constexpr (std::is_same_v<Wide, float>) {
    return codec.store(value);
  } else if constexpr (std::is_same_v<Wide, double>) {
    return static_cast<Storage>(float_to_bits(dtype, value));
  } else {
    return static_cast<Storage>(float_to_bits(dtype, sticky_double(value)));
  }
}

template <typename Wide>
void narrow_block(DType dtype, int64_t count, const Wide* wide, std::byte* out) {
  visit_dtype(dtype, [&](auto codec) {
    auto* stored = reinterpret_cast<typename decltype(codec)::Storage*>(out);
    for (int64_t i = 0; i < count; ++i) stored[i] = narrow(codec, dtype, wide[i]);
  });
}

}  // namespace

DType compute_dtype(DType dtype) {
  return is_float(dtype) && dtype != DType::kF64 ? DType::kF32 : dtype;
}

Result<HostArray> convert_elements(const HostArray& array, DType dtype) {
  if (array.dtype() == dtype) return array;
  HEKLA_ASSIGN_OR_RETURN(HostArray result, HostArray::allocate(dtype, array.dims(), false));
  std::byte* out = result.mutable_data();
  const int64_t out_bytes = dtype_bytes(dtype);
  visit_dtype(array.dtype(), [&](auto codec) {
    using Codec = decltype(codec);
    using Wide = typename WideOf<typename Codec::Compute>::Type;
    Wide wide[kBlock];
    const auto* in = array.as<typename Codec::Storage>();
    for (int64_t start = 0; start < array.size(); start += kBlock) {
      const int64_t count = std::min(kBlock, array.size() - start);
      for (int64_t i = 0; i < count; ++i) {
        const auto value = codec.load(in[start + i]);
        if constexpr (kIsComplex<Wide>) {
          wide[i] = Wide(value.real(), value.imag());
        } else {
          wide[i] = static_cast<Wide>(value);
        }
      }
      narrow_block(dtype, count, wide, out + start * out_bytes);
    }
  });
  return result;
}

}  // namespace hekla::reference
