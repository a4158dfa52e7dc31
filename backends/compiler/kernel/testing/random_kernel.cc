// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/testing/random_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/testing/random_parts.h"

namespace hekla::kernel::testing {
namespace {

using enum ScalarType;

std::vector<int64_t> random_grid(Random& random, int max_points) {
  const auto rank = static_cast<size_t>(random.below(5));
  std::vector<int64_t> grid;
  int64_t left = std::max(1, max_points);
  for (size_t d = 0; d < rank; ++d) {
    // Between and at powers of two, which vectors, words and tiles divide.
    constexpr int64_t kSizes[] = {1,  2,  3,  4,  5,  7,  8,   9,   13,  16,
                                  17, 32, 33, 64, 65, 96, 129, 257, 320, 400};
    int64_t size = kSizes[random.below(std::size(kSizes))];
    if (size > left) size = 1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(left)));
    grid.push_back(size);
    left /= size;
  }
  return grid;
}

// Gives the grid a dimension of 2, 4 ... 64 points; which.
int add_team(Random& random, std::vector<int64_t>& grid) {
  const auto at = static_cast<int>(random.below(grid.size() + 1));
  grid.insert(grid.begin() + at, int64_t{2} << random.below(6));
  return at;
}

class Generator {
 public:
  Generator(uint64_t seed, const RandomOptions& options)
      : options_(options),
        random_(seed),
        grid_(random_grid(random_, options.max_points)),
        team_(options.teams ? add_team(random_, grid_) : -1),
        index_type_(options.i64 && random_.chance(30) ? kI64 : kI32),
        b_(static_cast<int>(grid_.size()), index_type_) {
    types_ = {kBool, kI32, kF32};
    if (options.i64) types_.push_back(kI64);
    if (options.f64) types_.push_back(kF64);
    test_.kernel.name = fmt::format("random_{}", seed);
    test_.kernel.grid = grid_;
    test_.kernel.index_type = index_type_;
  }

  TestKernel run() {
    for (int64_t size : grid_) points_ *= size;
    // What builders know of sizes changes the arithmetic of indices, and no result.
    if (random_.chance(50)) {
      for (size_t d = 0; d < grid_.size(); ++d) b_.set_grid_size(static_cast<int>(d), grid_[d]);
    }
    linear_ = b_.index(0);
    for (size_t d = 0; d < grid_.size(); ++d) {
      linear_ = b_.add(b_.mul(linear_, b_.index(grid_[d])), b_.grid_index(static_cast<int>(d)));
    }
    for (ScalarType t : types_) {
      push(b_.constant_bits(t, random_.bits(t)));
      push(t == kBool ? b_.binary(Op::kEq, linear_, b_.index(1)) : load(t));
    }
    for (size_t d = 0; d < grid_.size(); ++d) push(b_.grid_index(static_cast<int>(d)));
    if (team_ >= 0) exchange();
    make_ops(options_.ops, 0);
    // Outputs of several types, and an update in place.
    update_in_place(random_.chance(50) ? kF32 : kI32);
    for (ScalarType t : types_) {
      if (t != kBool) store(pick(t), linear_, points_);
    }
    test_.kernel.body = b_.finish();
    return std::move(test_);
  }

 private:
  using Pools = std::array<std::vector<Value>, 5>;

  std::vector<Value>& pool(ScalarType t) { return pools_[static_cast<size_t>(t)]; }
  void push(Value v) { pool(b_.type(v)).push_back(v); }

  // Half of the time one of the newest, so that chains become long.
  Value pick(ScalarType t) {
    std::vector<Value>& values = pool(t);
    const size_t n = values.size();
    if (n > 4 && random_.chance(50)) return values[n - 1 - random_.below(4)];
    return values[random_.below(n)];
  }
  ScalarType any_type() { return types_[random_.below(types_.size())]; }

  Value as_index(Value i32) {
    return index_type_ == kI32 ? i32 : b_.convert(Op::kZeroExtend, kI64, i32);
  }

  int32_t add_operand(Element element, int64_t count, bool is_read, bool is_written,
                      const char* label) {
    test_.kernel.operands.push_back({count * element.bytes, is_read, is_written});
    test_.elements.push_back(element);
    test_.labels.push_back(label);
    std::vector<std::byte> memory;
    for (int64_t i = 0; i < count; ++i) {
      const ScalarType t = element.type;
      uint64_t bits = is_read ? random_.bits(t) : 0xa5a5a5a5a5a5a5a5;
      if (is_read && random_.chance(10)) {
        const std::vector<uint64_t> edges = edge_values(t);
        bits = edges[random_.below(edges.size())];
      }
      append_bits(&memory, bits, element.bytes);
    }
    test_.contents.push_back(std::move(memory));
    return static_cast<int32_t>(test_.elements.size()) - 1;
  }

  Element random_element(ScalarType t, bool may_be_narrow) {
    Element element{t, static_cast<uint8_t>(bit_width(t) / 8)};
    if (t == kI32 && may_be_narrow && random_.chance(40))
      element.bytes = random_.chance(50) ? 1 : 2;
    return element;
  }

  // At an index whose digits are grid indices, iterations of the loops around and bounded numbers
  // that the kernel computes, in any order. A number that a loop carries makes it the load of a
  // merge: one of the digits may be the column, and still columns do not read side by side.
  Value load_by_digits(ScalarType t) {
    struct Digit {
      Value value;
      int64_t extent;
    };
    std::vector<Digit> digits;
    const auto add = [&](Value value, int64_t extent) {
      const auto at = static_cast<ptrdiff_t>(random_.below(digits.size() + 1));
      digits.insert(digits.begin() + at, {value, extent});
    };
    for (size_t d = 0; d < grid_.size(); ++d) {
      if (random_.chance(60)) add(b_.grid_index(static_cast<int>(d)), grid_[d]);
    }
    for (const auto& [iteration, trips] : open_loops_) {
      if (random_.chance(60)) add(iteration, trips);
    }
    if (random_.chance(60)) {
      const auto extent = static_cast<int64_t>(1 + random_.below(9));
      const bool is_carried = !carried_.empty() && random_.chance(60);
      const Value cursor = is_carried ? carried_[random_.below(carried_.size())] : pick(kI32);
      add(as_index(b_.binary(Op::kRemU, cursor, b_.integer(kI32, extent))), extent);
    }
    constexpr int64_t kMostElements = 1 << 14;
    Value index = b_.index(0);
    int64_t count = 1;
    for (const Digit& digit : digits) {
      if (count * digit.extent > kMostElements) continue;
      index = b_.add(b_.mul(index, b_.index(digit.extent)), digit.value);
      count *= digit.extent;
    }
    const Element element = random_element(t, options_.narrow_loads);
    const int32_t operand = add_operand(element, count, true, false, "digits");
    return b_.load(t, {operand, element.bytes, element.bytes < 4 && random_.chance(50)}, index);
  }

  // A grid index, sometimes that of a point at its side, clamped as pads and stencils do.
  Value shifted_index(size_t d) {
    const Value index = b_.grid_index(static_cast<int>(d));
    if (!random_.chance(15)) return index;
    const Value moved = b_.add(index, b_.index(static_cast<int64_t>(random_.below(7)) - 3));
    const Value last = b_.index(grid_[d] - 1), zero = b_.index(0);
    const Value at_most = b_.select(b_.binary(Op::kLtS, last, moved), last, moved);
    return b_.select(b_.binary(Op::kLtS, at_most, zero), zero, at_most);
  }

  // Elementwise, broadcast along some dimensions, or at a computed place.
  Value load(ScalarType t) {
    if (!pool(kI32).empty() && random_.chance(open_loops_.empty() ? 20 : 60)) {
      return load_by_digits(t);
    }
    const Element element = random_element(t, options_.narrow_loads);
    Value index = b_.index(0);
    int64_t count = 1;
    const bool is_gather = random_.chance(20) && !pool(kI32).empty();
    if (is_gather) {
      count = 1 + static_cast<int64_t>(random_.below(50));
      index = as_index(b_.binary(Op::kRemU, pick(kI32), b_.integer(kI32, count)));
    } else {
      // Dimensions in any order, each taken or not; a stride of 1 or 2 and a start.
      std::vector<size_t> order;
      for (size_t d = 0; d < grid_.size(); ++d) {
        if (random_.chance(75))
          order.insert(order.begin() + static_cast<ptrdiff_t>(random_.below(order.size() + 1)), d);
      }
      for (size_t d : order) {
        index = b_.add(b_.mul(index, b_.index(grid_[d])), shifted_index(d));
        count *= grid_[d];
      }
      const auto stride = static_cast<int64_t>(1 + random_.below(2));
      const auto start = static_cast<int64_t>(random_.below(4));
      index = b_.add(b_.mul(index, b_.index(stride)), b_.index(start));
      count = (count - 1) * stride + 1 + start;
    }
    const int32_t operand = add_operand(element, count, true, false, is_gather ? "table" : "input");
    return b_.load(t, {operand, element.bytes, element.bytes < 4 && random_.chance(50)}, index);
  }

  void store(Value v, Value index, int64_t count) {
    const Element element = random_element(b_.type(v), options_.narrow_stores);
    const int32_t operand = add_operand(element, count, false, true, "output");
    b_.store({operand, element.bytes}, index, v);
  }

  void update_in_place(ScalarType t) {
    const Element element{t, 4};
    const int32_t operand = add_operand(element, points_, true, true, "in place");
    const Value old = b_.load(t, {operand, 4}, linear_);
    b_.store({operand, 4}, linear_, b_.add(old, pick(t)));
  }

  // A float whose NaN has known bits: the bits of computed NaNs are the device's own.
  Value with_known_nan(Value v) {
    const ScalarType t = b_.type(v);
    const uint64_t nan = t == kF32 ? 0x7fc00000 : 0x7ff8000000000000;
    return b_.select(b_.binary(Op::kNe, v, v), b_.constant_bits(t, nan), v);
  }

  void make_op() {
    const auto op =
        static_cast<Op>(static_cast<int>(Op::kAdd) +
                        static_cast<int>(random_.below(static_cast<uint64_t>(Op::kBitcast) -
                                                       static_cast<uint64_t>(Op::kAdd) + 1)));
    if (op == Op::kFma && !options_.fma) return;
    if ((op == Op::kDiv || op == Op::kSqrt) && !options_.division_and_square_root) return;
    ScalarType from = any_type();
    ScalarType to = any_type();
    for (int i = 0; i < 100 && !is_allowed(op, to, from); ++i) {
      from = any_type();
      to = any_type();
    }
    if (!is_allowed(op, to, from)) return;
    const Value a = pick(from);
    switch (op) {
      case Op::kSelect:
        return push(b_.select(pick(kBool), a, pick(from)));
      case Op::kFma:
        return push(b_.fma(a, pick(from), pick(from)));
      case Op::kDivS:
      case Op::kDivU:
      case Op::kRemS:
      case Op::kRemU:
        return push(b_.binary(op, a, safe_divisor(b_, pick(from))));
      case Op::kShl:
      case Op::kShrU:
      case Op::kShrS:
        return push(
            b_.binary(op, a, b_.bit_and(pick(from), b_.integer(from, bit_width(from) - 1))));
      case Op::kNeg:
      case Op::kAbs:
      case Op::kSqrt:
      case Op::kFloor:
      case Op::kCeil:
      case Op::kTrunc:
      case Op::kRoundEven:
        return push(b_.unary(op, a));
      case Op::kFloatToSInt:
      case Op::kFloatToUInt:
        return push(b_.convert(op, to, fitting(b_, op, to, a)));
      case Op::kHalfToFloat:
        return push(b_.convert(op, to, b_.bit_and(a, b_.integer(from, 0xffff))));
      case Op::kFloatToHalf:
      case Op::kBitcast:
        return push(b_.convert(op, to, is_float(from) ? with_known_nan(a) : a));
      case Op::kSignExtend:
      case Op::kZeroExtend:
      case Op::kTruncate:
      case Op::kBoolToInt:
      case Op::kSIntToFloat:
      case Op::kUIntToFloat:
      case Op::kFloatResize:
        return push(b_.convert(op, to, a));
      default:
        return push(b_.binary(op, a, pick(from)));
    }
  }

  void exchange() {
    const auto size = static_cast<uint64_t>(grid_[static_cast<size_t>(team_)]);
    const auto levels = static_cast<uint64_t>(std::countr_zero(size));
    const auto distance = uint32_t{1} << random_.below(levels);
    push(b_.shuffle_xor(pick(any_type()), {team_, distance}));
  }

  // What the points of a team store at places of their own, and what they add anywhere, is seen
  // anywhere.
  void share() {
    const int64_t size = grid_[static_cast<size_t>(team_)];
    const auto words = static_cast<uint32_t>(2 * size);
    const kernel::TeamMemory memory{team_, static_cast<uint32_t>(random_.below(2)), words};
    Value point = b_.grid_index(team_);
    if (b_.type(point) == kI64) point = b_.convert(Op::kTruncate, kI32, point);
    const auto anywhere = [&] {
      return b_.bit_and(pick(kI32), b_.integer(kI32, static_cast<int64_t>(words) - 1));
    };
    const Value place = b_.bit_xor(
        b_.mul(point, b_.integer(kI32, 2)),
        b_.integer(kI32, static_cast<int64_t>(random_.below(static_cast<uint64_t>(words)))));
    b_.team_store(memory, place, pick(kI32));
    b_.team_store(memory, b_.bit_xor(place, b_.integer(kI32, 1)), pick(kI32));
    for (uint64_t i = random_.below(3); i > 0; --i) b_.team_add(memory, anywhere(), pick(kI32));
    for (uint64_t i = 1 + random_.below(3); i > 0; --i) push(b_.team_load(memory, anywhere()));
  }

  void make_loop(int ops, int depth) {
    // Sometimes as long as what loads of several iterations together ask for.
    const auto constant =
        static_cast<int64_t>(random_.below(depth == 0 && random_.chance(20) ? 40 : 6));
    const bool is_constant = random_.chance(60);
    const bool outer_shares = std::exchange(shares_, shares_ && is_constant && constant > 0);
    const Value count =
        is_constant ? b_.index(constant) : as_index(b_.bit_and(pick(kI32), b_.integer(kI32, 3)));
    std::vector<Value> initial;
    for (uint64_t i = random_.below(4); i > 0; --i) initial.push_back(pick(any_type()));
    const Pools outer = pools_;
    const std::vector<Value> results =
        b_.loop(count, initial, [&](Value iteration, const std::vector<Value>& carried) {
          const std::vector<Value> outer_carried = carried_;
          push(iteration);
          for (Value v : carried) {
            push(v);
            if (b_.type(v) == kI32) carried_.push_back(v);
          }
          if (is_constant && constant > 0) open_loops_.emplace_back(iteration, constant);
          make_ops(ops, depth + 1);
          if (is_constant && depth == 0 && random_.chance(30)) {
            const Value index = b_.add(b_.mul(linear_, b_.index(constant)), iteration);
            store(pick(kF32), index, points_ * constant);
          }
          std::vector<Value> next;
          for (Value v : carried) next.push_back(pick(b_.type(v)));
          if (is_constant && constant > 0) open_loops_.pop_back();
          carried_ = outer_carried;
          return next;
        });
    pools_ = outer;
    shares_ = outer_shares;
    for (Value v : results) push(v);
  }

  void make_ops(int count, int depth) {
    for (int i = 0; i < count; ++i) {
      if (shares_ && random_.chance(15)) {
        if (random_.chance(40)) {
          share();
        } else {
          exchange();
        }
      } else if (random_.chance(depth == 0 ? 8 : 15)) {
        const ScalarType t = any_type();
        if (t != kBool) push(load(t));
      } else if (depth < 2 && count > 8 && random_.chance(6)) {
        make_loop(count / 3, depth);
        i += count / 3;
      } else {
        make_op();
      }
    }
  }

  const RandomOptions options_;
  Random random_;
  std::vector<int64_t> grid_;
  const int team_;            // the dimension along which points exchange values; -1: they do not
  bool shares_ = team_ >= 0;  // whether they may, in the loops around
  ScalarType index_type_;
  Builder b_;
  std::vector<ScalarType> types_;
  int64_t points_ = 1;
  Value linear_ = kNoValue;
  Pools pools_;
  std::vector<std::pair<Value, int64_t>>
      open_loops_;              // iterations and trip counts, outermost first
  std::vector<Value> carried_;  // numbers that the open loops carry, of kI32
  TestKernel test_;
};

}  // namespace

TestKernel random_kernel(uint64_t seed, const RandomOptions& options) {
  return Generator(seed, options).run();
}

}  // namespace hekla::kernel::testing
