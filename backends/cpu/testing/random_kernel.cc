// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/testing/random_kernel.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "backends/compiler/kernel/builder.h"

namespace hekla::cpu {
namespace {

using kernel::Access;
using kernel::Builder;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;

constexpr ScalarType kTypes[] = {ScalarType::kBool, ScalarType::kI32, ScalarType::kI64,
                                 ScalarType::kF32, ScalarType::kF64};
// Trips of loops that store: each point owns this many neighbouring elements.
constexpr int64_t kTrips = 3;

class Generator {
 public:
  Generator(uint64_t seed, bool with_fma)
      : random_(seed),
        with_fma_(with_fma),
        grid_(make_grid()),
        b_(static_cast<int>(grid_.size()), pick(2) == 0 ? ScalarType::kI32 : ScalarType::kI64),
        values_(std::size(kTypes)) {}

  RandomKernel make() {
    linear_ = b_.index(0);
    for (size_t d = 0; d < grid_.size(); ++d) {
      linear_ = b_.add(b_.mul(linear_, b_.index(grid_[d])), b_.grid_index(static_cast<int>(d)));
      know(b_.grid_index(static_cast<int>(d)));
    }
    for (int64_t size : grid_) points_ *= size;
    know(linear_);
    for (ScalarType type : kTypes) know(constant(type));
    // An operand that every point updates, and others that are read in all ways.
    update_ = add_operand(ScalarType::kF32, 4, points_, true, true);
    know(b_.load(ScalarType::kF32, {update_, 4}, linear_));
    for (int i = 0; i < 4; ++i) add_input();
    steps(3 + pick(25), 0);
    b_.store({update_, 4}, linear_, value(ScalarType::kF32));
    const int stores = 3 + pick(6);
    for (int i = 0; i < stores; ++i) add_store();
    RandomKernel result = std::move(made_);
    result.kernel.name = "random";
    result.kernel.grid = grid_;
    result.kernel.index_type = b_.index_type();
    result.kernel.body = b_.finish();
    return result;
  }

 private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }

  kernel::ScalarType random_type() { return kTypes[pick(std::size(kTypes))]; }

  std::vector<int64_t> make_grid() {
    constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 65};
    std::vector<int64_t> grid(static_cast<size_t>(pick(5)));
    int64_t points = 1;
    for (size_t d = grid.size(); d-- > 0;) {
      do {
        grid[d] = kSizes[pick(std::size(kSizes))];
      } while (points * grid[d] > 3000);
      points *= grid[d];
    }
    return grid;
  }

  std::vector<Value>& known(ScalarType type) { return values_[static_cast<size_t>(type)]; }
  void know(Value v) { known(b_.type(v)).push_back(v); }

  Value constant(ScalarType type) {
    const auto& edges = edge_values(type);
    return b_.constant_bits(type, edges[static_cast<size_t>(pick(static_cast<int>(edges.size())))]);
  }

  // Recent values more often than old ones, so that chains get long.
  Value value(ScalarType type) {
    if (pick(8) == 0) return constant(type);
    const auto& all = known(type);
    const int size = static_cast<int>(all.size());
    const int from = pick(2) == 0 ? std::max(0, size - 4) : 0;
    return all[static_cast<size_t>(from + pick(size - from))];
  }

  int32_t add_operand(ScalarType type, uint8_t bytes, int64_t elements, bool read, bool write) {
    const int64_t size = elements * bytes;
    made_.kernel.operands.push_back({size, read, write});
    made_.kinds.push_back(type == ScalarType::kF32   ? ElementKind::kF32
                          : type == ScalarType::kF64 ? ElementKind::kF64
                                                     : ElementKind::kBits);
    std::vector<std::byte> bytes_of(static_cast<size_t>(size));
    for (int64_t i = 0; i < elements; ++i) {
      const auto& edges = edge_values(type);
      uint64_t bits = edges[static_cast<size_t>(pick(static_cast<int>(edges.size())))];
      if (pick(3) != 0) {
        const double small = static_cast<double>(static_cast<int64_t>(random_() % 20001) - 10000);
        if (type == ScalarType::kF32) {
          bits = std::bit_cast<uint32_t>(static_cast<float>(small / 64));
        } else if (type == ScalarType::kF64) {
          bits = std::bit_cast<uint64_t>(small / 64);
        } else {
          bits = pick(2) == 0 ? static_cast<uint64_t>(static_cast<int64_t>(small)) : random_();
        }
      }
      std::memcpy(bytes_of.data() + i * bytes, &bits, bytes);
    }
    made_.contents.push_back(std::move(bytes_of));
    return static_cast<int32_t>(made_.kernel.operands.size()) - 1;
  }

  // The type of memory elements and their size.
  std::pair<ScalarType, uint8_t> element() {
    switch (pick(6)) {
      case 0:
        return {ScalarType::kI32, 1};
      case 1:
        return {ScalarType::kI32, 2};
      case 2:
        return {ScalarType::kI32, 4};
      case 3:
        return {ScalarType::kI64, 8};
      case 4:
        return {ScalarType::kF32, 4};
      default:
        return {ScalarType::kF64, 8};
    }
  }

  // Any integer as an index below `elements`.
  Value bounded(Value any, int64_t elements) {
    const ScalarType type = b_.type(any);
    const Value rest = b_.binary(Op::kRemU, any, b_.integer(type, elements));
    if (type == b_.index_type()) return rest;
    return type == ScalarType::kI32 ? b_.convert(Op::kZeroExtend, ScalarType::kI64, rest)
                                    : b_.convert(Op::kTruncate, ScalarType::kI32, rest);
  }

  Value integer_value() { return value(pick(2) == 0 ? ScalarType::kI32 : ScalarType::kI64); }

  void add_input() {
    const auto [type, bytes] = element();
    Access access{0, bytes, bytes <= 2 && pick(2) == 0};
    const int64_t factor = pick(3) == 0 ? 2 : 1;
    const int64_t elements = points_ * factor;
    access.operand = add_operand(type, bytes, elements, true, false);
    inputs_.push_back({access, type, elements});
    know(b_.load(type, access, b_.mul(linear_, b_.index(factor))));
  }

  void load_somewhere() {
    const Input& input = inputs_[static_cast<size_t>(pick(static_cast<int>(inputs_.size())))];
    Value index = linear_;
    switch (pick(5)) {
      case 0:
        index = b_.sub(b_.index(input.elements - 1), linear_);
        break;
      case 1:
        index = b_.index(pick(static_cast<int>(input.elements)));
        break;
      case 2:
        index = grid_.empty() ? linear_ : b_.grid_index(pick(static_cast<int>(grid_.size())));
        break;
      default:
        index = bounded(integer_value(), input.elements);
    }
    know(b_.load(input.type, input.access, index));
  }

  void steps(int count, int depth) {
    for (int i = 0; i < count; ++i) {
      switch (pick(12)) {
        case 0:
          load_somewhere();
          break;
        case 1:
          if (depth < 2) loop(depth);
          break;
        case 2:
        case 3:
          convert();
          break;
        case 4:
          select();
          break;
        default:
          arithmetic();
      }
    }
  }

  void select() {
    const ScalarType type = random_type();
    know(b_.select(value(ScalarType::kBool), value(type), value(type)));
  }

  void arithmetic() {
    const ScalarType type = random_type();
    const Value a = value(type);
    const Value b = value(type);
    if (type == ScalarType::kBool) {
      constexpr Op kOps[] = {Op::kAnd, Op::kOr, Op::kXor, Op::kEq, Op::kNe};
      return know(b_.binary(kOps[pick(std::size(kOps))], a, b));
    }
    if (is_integer(type)) {
      constexpr Op kOps[] = {Op::kAdd,  Op::kAdd,  Op::kSub,  Op::kMul, Op::kMulHighU, Op::kDivS,
                             Op::kDivU, Op::kRemS, Op::kRemU, Op::kAnd, Op::kOr,       Op::kXor,
                             Op::kEq,   Op::kNe,   Op::kLtS,  Op::kLeS, Op::kLtU,      Op::kLeU};
      if (pick(5) == 0) {
        constexpr Op kShifts[] = {Op::kShl, Op::kShrU, Op::kShrS};
        const Value n = b_.binary(Op::kAnd, b, b_.integer(type, bit_width(type) - 1));
        return know(b_.binary(kShifts[pick(std::size(kShifts))], a, n));
      }
      return know(b_.binary(kOps[pick(std::size(kOps))], a, b));
    }
    constexpr Op kUnary[] = {Op::kNeg,  Op::kAbs,   Op::kSqrt,     Op::kFloor,
                             Op::kCeil, Op::kTrunc, Op::kRoundEven};
    constexpr Op kBinary[] = {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv,
                              Op::kEq,  Op::kNe,  Op::kLt,  Op::kLe};
    const int kind = pick(8);
    if (kind < 3) return know(b_.unary(kUnary[pick(std::size(kUnary))], a));
    if (kind == 3 && with_fma_) return know(b_.fma(a, b, value(type)));
    know(b_.binary(kBinary[pick(std::size(kBinary))], a, b));
  }

  Value without_nan(Value v, double instead) {
    return b_.select(b_.binary(Op::kEq, v, v), v, b_.real(b_.type(v), instead));
  }

  void convert() {
    switch (pick(9)) {
      case 0:
        return know(b_.convert(Op::kSignExtend, ScalarType::kI64, value(ScalarType::kI32)));
      case 1:
        return know(b_.convert(Op::kZeroExtend, ScalarType::kI64, value(ScalarType::kI32)));
      case 2:
        return know(b_.convert(Op::kTruncate, ScalarType::kI32, value(ScalarType::kI64)));
      case 3:
        return know(b_.convert(Op::kBoolToInt, pick(2) == 0 ? ScalarType::kI32 : ScalarType::kI64,
                               value(ScalarType::kBool)));
      case 4:
        return know(b_.convert(pick(2) == 0 ? Op::kSIntToFloat : Op::kUIntToFloat,
                               pick(2) == 0 ? ScalarType::kF32 : ScalarType::kF64,
                               integer_value()));
      case 5: {
        const ScalarType from = pick(2) == 0 ? ScalarType::kF32 : ScalarType::kF64;
        const ScalarType to = pick(2) == 0 ? ScalarType::kI32 : ScalarType::kI64;
        const bool is_signed = pick(2) == 0;
        // The largest float below the limit of the type.
        const int bits = bit_width(to) - (is_signed ? 1 : 0);
        const double most = from == ScalarType::kF32 ? std::nextafter(std::ldexp(1.0f, bits), 0.0f)
                            : to == ScalarType::kI32 ? std::ldexp(1.0, bits) - 1
                                                     : std::nextafter(std::ldexp(1.0, bits), 0);
        const double least = is_signed ? -std::ldexp(1.0, bits) : 0;
        Value v = without_nan(value(from), 7);
        v = b_.select(b_.binary(Op::kLt, v, b_.real(from, least)), b_.real(from, least), v);
        v = b_.select(b_.binary(Op::kLt, b_.real(from, most), v), b_.real(from, most), v);
        return know(b_.convert(is_signed ? Op::kFloatToSInt : Op::kFloatToUInt, to, v));
      }
      case 6:
        return know(pick(2) == 0
                        ? b_.convert(Op::kFloatResize, ScalarType::kF64, value(ScalarType::kF32))
                        : b_.convert(Op::kFloatResize, ScalarType::kF32, value(ScalarType::kF64)));
      case 7:
        return know(pick(2) == 0
                        ? b_.convert(Op::kBitcast, ScalarType::kF32, value(ScalarType::kI32))
                        : b_.convert(Op::kBitcast, ScalarType::kF64, value(ScalarType::kI64)));
      default: {
        // A NaN's payload is not specified, so it must not become an integer.
        const ScalarType from = pick(2) == 0 ? ScalarType::kF32 : ScalarType::kF64;
        const ScalarType to = from == ScalarType::kF32 ? ScalarType::kI32 : ScalarType::kI64;
        return know(b_.convert(Op::kBitcast, to, without_nan(value(from), 1)));
      }
    }
  }

  // At most kTrips: constant, of the row, or of the point.
  Value trip_count() {
    switch (pick(4)) {
      case 0:
        return b_.index(pick(kTrips + 1));
      case 1:
        return bounded(
            b_.index_type() == ScalarType::kI32 ? value(ScalarType::kI32) : value(ScalarType::kI64),
            kTrips + 1);
      case 2:
        return bounded(grid_.empty() ? linear_ : b_.grid_index(0), kTrips + 1);
      default:
        return bounded(linear_, kTrips + 1);
    }
  }

  void loop(int depth) {
    const Value count = trip_count();
    std::vector<Value> initial;
    const int carried = 1 + pick(3);
    for (int i = 0; i < carried; ++i) initial.push_back(value(random_type()));
    std::vector<std::vector<Value>> outside = values_;
    const bool stores = depth == 0 && pick(3) == 0;
    int32_t target = 0;
    const auto [type, bytes] = element();
    if (stores) target = add_operand(type, bytes, points_ * kTrips, false, true);
    const std::vector<Value> results =
        b_.loop(count, initial, [&](Value iteration, const std::vector<Value>& now) {
          know(iteration);
          for (Value v : now) know(v);
          // The last iteration reads the last element, so lanes that are done would read outside.
          const Input& input = inputs_[static_cast<size_t>(pick(static_cast<int>(inputs_.size())))];
          if (input.elements >= kTrips) {
            const Value from = b_.sub(b_.index(input.elements), count);
            know(b_.load(input.type, input.access, b_.add(from, iteration)));
          }
          steps(1 + pick(8), depth + 1);
          if (stores) {
            const Value at = b_.add(b_.mul(linear_, b_.index(kTrips)), iteration);
            b_.store({target, bytes}, at, value(type));
          }
          std::vector<Value> next;
          for (Value v : initial) next.push_back(value(b_.type(v)));
          return next;
        });
    values_ = std::move(outside);
    for (Value v : results) know(v);
  }

  void add_store() {
    const auto [type, bytes] = element();
    const int32_t operand = add_operand(type, bytes, points_ * 2, false, true);
    Value index = linear_;
    switch (pick(4)) {
      case 0:
        index = b_.mul(linear_, b_.index(2));
        break;
      case 1:
        index = b_.sub(b_.index(points_ * 2 - 1), linear_);
        break;
      default:
        break;
    }
    b_.store({operand, bytes}, index, value(type));
  }

  struct Input {
    Access access;
    ScalarType type;
    int64_t elements;
  };

  std::mt19937_64 random_;
  const bool with_fma_;
  const std::vector<int64_t> grid_;
  Builder b_;
  std::vector<std::vector<Value>> values_;  // that may be used here, by type
  Value linear_ = 0;
  int64_t points_ = 1;
  int32_t update_ = 0;
  std::vector<Input> inputs_;
  RandomKernel made_;
};

template <typename F>
bool same_float(const std::byte* a, const std::byte* b) {
  F x, y;
  std::memcpy(&x, a, sizeof(F));
  std::memcpy(&y, b, sizeof(F));
  return (std::isnan(x) && std::isnan(y)) || std::memcmp(a, b, sizeof(F)) == 0;
}

}  // namespace

RandomKernel make_random_kernel(uint64_t seed, bool with_fma) {
  return Generator(seed, with_fma).make();
}

const std::vector<uint64_t>& edge_values(ScalarType type) {
  auto f32 = [](std::initializer_list<float> values) {
    std::vector<uint64_t> bits;
    for (float v : values) bits.push_back(std::bit_cast<uint32_t>(v));
    return bits;
  };
  auto f64 = [](std::initializer_list<double> values) {
    std::vector<uint64_t> bits;
    for (double v : values) bits.push_back(std::bit_cast<uint64_t>(v));
    return bits;
  };
  using L32 = std::numeric_limits<float>;
  using L64 = std::numeric_limits<double>;
  static const std::vector<uint64_t> values[] = {
      {0, 1},
      {0, 1, 2, 3, 7, 31, 100, 0x7fff, 0x8000, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0x80000001,
       0xfffffffe, 0xffffffff, 0x12345678},
      {0, 1, 2, 3, 63, 1000, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, 0x7fffffffffffffff,
       0x8000000000000000, 0x8000000000000001, 0xfffffffffffffffe, 0xffffffffffffffff,
       0x123456789abcdef0},
      f32({0.0f,
           -0.0f,
           1.0f,
           -1.0f,
           0.5f,
           -0.5f,
           1.5f,
           2.5f,
           -2.5f,
           3.75f,
           1e-3f,
           16777216.0f,
           16777217.0f,
           2147483520.0f,
           1e10f,
           -1e10f,
           1e38f,
           L32::max(),
           L32::lowest(),
           L32::min(),
           L32::denorm_min(),
           -1e-40f,
           L32::infinity(),
           -L32::infinity(),
           L32::quiet_NaN()}),
      f64({0.0,
           -0.0,
           1.0,
           -1.0,
           0.5,
           -0.5,
           1.5,
           2.5,
           -2.5,
           3.75,
           0.1,
           4503599627370497.5,
           9007199254740993.0,
           2147483647.0,
           1e19,
           -1e19,
           3e38,
           1e300,
           L64::max(),
           L64::lowest(),
           L64::min(),
           L64::denorm_min(),
           -1e-310,
           L64::infinity(),
           -L64::infinity(),
           L64::quiet_NaN()}),
  };
  return values[static_cast<size_t>(type)];
}

int64_t first_difference(ElementKind kind, const std::vector<std::byte>& a,
                         const std::vector<std::byte>& b) {
  const int64_t step = kind == ElementKind::kF64 ? 8 : kind == ElementKind::kF32 ? 4 : 1;
  for (int64_t i = 0; i < static_cast<int64_t>(a.size()); i += step) {
    const bool same = kind == ElementKind::kF32   ? same_float<float>(&a[i], &b[i])
                      : kind == ElementKind::kF64 ? same_float<double>(&a[i], &b[i])
                                                  : a[i] == b[i];
    if (!same) return i;
  }
  return -1;
}

}  // namespace hekla::cpu
