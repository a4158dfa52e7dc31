// SPDX-License-Identifier: Apache-2.0
// compare, select, clamp, bitcast_convert.
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

#include "backends/reference/elementwise/elementwise.h"
#include "backends/reference/elementwise/loops.h"
#include "backends/reference/kernels/scalar_ops.h"

namespace hekla::reference {
namespace {

template <typename T, typename Load>
Result<HostArray> compare_loop(Direction direction, const HostArray& a, const HostArray& b,
                               Load load) {
  HEKLA_ASSIGN_OR_RETURN(HostArray out, HostArray::allocate(DType::kI1, a.dims(), false));
  const T* x = a.as<T>();
  const T* y = b.as<T>();
  uint8_t* result = out.mutable_as<uint8_t>();
  const int64_t n = a.size();
  // The direction is chosen outside of the loop.
  const auto run = [&](auto f) {
    for (int64_t i = 0; i < n; ++i) result[i] = f(load(x[i]), load(y[i])) ? 1 : 0;
  };
  switch (direction) {
    case Direction::kEq:
      run([](auto p, auto q) { return p == q; });
      break;
    case Direction::kNe:
      run([](auto p, auto q) { return p != q; });
      break;
    case Direction::kGe:
      run([](auto p, auto q) { return p >= q; });
      break;
    case Direction::kGt:
      run([](auto p, auto q) { return p > q; });
      break;
    case Direction::kLe:
      run([](auto p, auto q) { return p <= q; });
      break;
    case Direction::kLt:
      run([](auto p, auto q) { return p < q; });
      break;
  }
  return out;
}

// The bits of a float as an integer that orders like the float, by sign and magnitude.
template <typename S>
S total_order_key(S bits) {
  constexpr S kMax = std::numeric_limits<S>::max();
  return bits < 0 ? static_cast<S>(bits ^ kMax) : bits;
}

Result<HostArray> compare_total_order(Direction direction, const HostArray& a, const HostArray& b) {
  switch (dtype_bytes(a.dtype())) {
    case 8:
      return compare_loop<int64_t>(direction, a, b, total_order_key<int64_t>);
    case 4:
      return compare_loop<int32_t>(direction, a, b, total_order_key<int32_t>);
    case 2:
      return compare_loop<int16_t>(direction, a, b, total_order_key<int16_t>);
    default: {
      // Below eight bits the sign is not the byte's top bit.
      const int shift = 8 - dtype_bits(a.dtype());
      if (!float_format(a.dtype()).has_sign) {
        return compare_loop<uint8_t>(direction, a, b, [](uint8_t bits) { return bits; });
      }
      // The one NaN of the FNUZ formats has the sign set: it is the lowest of all.
      if (float_format(a.dtype()).specials == FloatFormat::Specials::kUnsignedZero) {
        return compare_loop<uint8_t>(direction, a, b, [](uint8_t bits) {
          const int8_t stored = static_cast<int8_t>(bits);
          return stored == -128 ? -129 : static_cast<int>(total_order_key(stored));
        });
      }
      return compare_loop<uint8_t>(direction, a, b, [shift](uint8_t bits) {
        return total_order_key(static_cast<int8_t>(static_cast<uint8_t>(bits << shift)));
      });
    }
  }
}

// Equal by parts; ordered by real part first, then by imaginary part.
Result<HostArray> compare_complex(Direction direction, const HostArray& a, const HostArray& b) {
  return visit_complex(a.dtype(), [&](auto codec) -> Result<HostArray> {
    using C = typename decltype(codec)::Compute;
    HEKLA_ASSIGN_OR_RETURN(HostArray out, HostArray::allocate(DType::kI1, a.dims(), false));
    uint8_t* result = out.mutable_as<uint8_t>();
    const auto holds = [direction](C x, C y) {
      switch (direction) {
        case Direction::kEq:
          return x == y;
        case Direction::kNe:
          return x != y;
        case Direction::kGe:
          return x == y || ordered_less(y, x);
        case Direction::kGt:
          return ordered_less(y, x);
        case Direction::kLe:
          return x == y || ordered_less(x, y);
        case Direction::kLt:
          return ordered_less(x, y);
      }
      return false;
    };
    for (int64_t i = 0; i < a.size(); ++i) result[i] = holds(a.as<C>()[i], b.as<C>()[i]) ? 1 : 0;
    return out;
  });
}

}  // namespace

Result<Direction> direction_from_name(std::string_view name) {
  constexpr std::string_view kNames[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<Direction>(i);
  }
  return invalid_argument("there is no comparison direction {}", name);
}

Result<HostArray> compare(Direction direction, bool total_order, const HostArray& a,
                          const HostArray& b) {
  const DType dtype = a.dtype();
  if (is_complex(dtype)) return compare_complex(direction, a, b);
  if (is_float(dtype)) {
    if (total_order) return compare_total_order(direction, a, b);
    return visit_float(dtype, [&](auto codec) {
      using S = typename decltype(codec)::Storage;
      return compare_loop<S>(direction, a, b, [&](S v) { return codec.load(v); });
    });
  }
  if (dtype == DType::kI1) {
    return compare_loop<uint8_t>(direction, a, b, [](uint8_t v) { return v != 0; });
  }
  return visit_integer(dtype, [&](auto codec) {
    using S = typename decltype(codec)::Storage;
    return compare_loop<S>(direction, a, b, [](S v) { return v; });
  });
}

Result<HostArray> select(const HostArray& predicate, HostArray on_true, HostArray on_false) {
  const uint8_t* p = predicate.as<uint8_t>();
  if (predicate.size() == 1 && on_true.size() != 1) return p[0] != 0 ? on_true : on_false;
  const int64_t n = on_true.size();
  return visit_element_size(on_true.dtype(), [&](auto type) -> Result<HostArray> {
    using T = typename decltype(type)::type;
    // Writing over either operand leaves the elements that are already right.
    if (!on_true.is_unique() && on_false.is_unique()) {
      T* out = on_false.mutable_as<T>();
      const T* x = on_true.as<T>();
      for (int64_t i = 0; i < n; ++i) out[i] = p[i] != 0 ? x[i] : out[i];
      return std::move(on_false);
    }
    const T* y = on_false.as<T>();
    T* out = on_true.mutable_as<T>();
    for (int64_t i = 0; i < n; ++i) out[i] = p[i] != 0 ? out[i] : y[i];
    return std::move(on_true);
  });
}

Result<HostArray> clamp(const HostArray& low, HostArray x, const HostArray& high) {
  // min(max(low, x), high), as StableHLO says: `high` wins where the limits cross; limits are
  // broadcast where they are scalars.
  const auto full = [&](const HostArray& limit) -> Result<HostArray> {
    if (limit.size() == x.size() || x.size() == 0) return limit;
    HEKLA_ASSIGN_OR_RETURN(HostArray out, HostArray::allocate(x.dtype(), x.dims(), false));
    const size_t width = static_cast<size_t>(dtype_bytes(x.dtype()));
    std::byte* bytes = out.mutable_data();
    for (int64_t i = 0; i < x.size(); ++i) {
      std::memcpy(bytes + static_cast<size_t>(i) * width, limit.data(), width);
    }
    return out;
  };
  if (x.size() == 0) return x;
  HEKLA_ASSIGN_OR_RETURN(HostArray lower, full(low));
  HEKLA_ASSIGN_OR_RETURN(HostArray upper, full(high));
  HEKLA_ASSIGN_OR_RETURN(HostArray cut, binary(ir::OpCode::kMaximum, std::move(x), lower));
  return binary(ir::OpCode::kMinimum, std::move(cut), upper);
}

Result<HostArray> bitcast_convert(HostArray x, DType result, const Dims& result_dims) {
  const DType from = x.dtype();
  const int from_bits = dtype_bits(from);
  const int to_bits = dtype_bits(result);
  const bool whole_bytes = from_bits % 8 == 0 && to_bits % 8 == 0;
  if (whole_bytes) return x.with_shape(result, result_dims);
  if (from_bits == to_bits) {
    // Equal narrow widths: integers are extended to their byte, floats are not.
    HEKLA_ASSIGN_OR_RETURN(HostArray out, HostArray::allocate(result, result_dims, false));
    const uint8_t mask = static_cast<uint8_t>((1 << to_bits) - 1);
    const int shift = 8 - to_bits;
    for (int64_t i = 0; i < x.size(); ++i) {
      uint8_t bits = x.as<uint8_t>()[i] & mask;
      if (is_signed_integer(result)) {
        bits =
            static_cast<uint8_t>(static_cast<int8_t>(static_cast<uint8_t>(bits << shift)) >> shift);
      }
      out.mutable_as<uint8_t>()[i] = bits;
    }
    return out;
  }
  // Parts of less than a byte: the least significant part comes first.
  HEKLA_ASSIGN_OR_RETURN(HostArray out, HostArray::allocate(result, result_dims));
  const int wide_bits = std::max(from_bits, to_bits);
  const int narrow_bits = std::min(from_bits, to_bits);
  const int64_t parts = wide_bits / narrow_bits;
  const uint8_t mask = static_cast<uint8_t>((1 << narrow_bits) - 1);
  const bool splits = from_bits > to_bits;
  const HostArray& wide = splits ? x : out;
  const int64_t wide_bytes = dtype_bytes(wide.dtype());
  const uint8_t* in = x.as<uint8_t>();
  uint8_t* bytes = out.mutable_as<uint8_t>();
  const int shift = 8 - narrow_bits;
  for (int64_t i = 0; i < wide.size(); ++i) {
    for (int64_t k = 0; k < parts; ++k) {
      const int64_t bit = k * narrow_bits;
      const int64_t byte = i * wide_bytes + bit / 8;
      if (splits) {
        uint8_t part = static_cast<uint8_t>(in[byte] >> (bit % 8)) & mask;
        if (is_signed_integer(result)) {
          part = static_cast<uint8_t>(static_cast<int8_t>(static_cast<uint8_t>(part << shift)) >>
                                      shift);
        }
        bytes[i * parts + k] = part;
      } else {
        bytes[byte] = static_cast<uint8_t>(bytes[byte] | (in[i * parts + k] & mask) << (bit % 8));
      }
    }
  }
  return out;
}

}  // namespace hekla::reference
