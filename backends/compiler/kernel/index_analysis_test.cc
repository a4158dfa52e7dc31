// SPDX-License-Identifier: Apache-2.0
// What IndexAnalysis says of random kernels, held to what the interpreter computes at every point
// and iteration.
#include "backends/compiler/kernel/index_analysis.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/testing/observed_values.h"
#include "backends/compiler/kernel/testing/random_parts.h"

namespace hekla::kernel {
namespace {

using testing::ObservedValues;
using testing::Random;
using testing::TestKernel;
using enum ScalarType;

// Kernels of index arithmetic: sums, products, shifts, quotients, remainders, masks, clamps and
// selections of grid indices, iterations, what loops carry and what memory holds, in both widths,
// in loops within loops. Most numbers are small, and some wrap.
class IndexKernels {
 public:
  explicit IndexKernels(uint64_t seed)
      : random_(seed),
        type_(random_.chance(30) ? kI64 : kI32),
        grid_(draw_grid()),
        b_(static_cast<int>(grid_.size()), type_) {
    test_.kernel.name = fmt::format("index_{}", seed);
    test_.kernel.grid = grid_;
    test_.kernel.index_type = type_;
  }

  TestKernel run() {
    linear_ = b_.index(0);
    int64_t points = 1;
    const bool tells_sizes = random_.chance(50);
    for (size_t d = 0; d < grid_.size(); ++d) {
      if (tells_sizes) b_.set_grid_size(static_cast<int>(d), grid_[d]);
      const Value index = b_.grid_index(static_cast<int>(d));
      linear_ = b_.add(b_.mul(linear_, b_.index(grid_[d])), index);
      points *= grid_[d];
      integers_.push_back(index);
    }
    integers_.push_back(linear_);
    conditions_.push_back(b_.binary(Op::kLtS, linear_, b_.index(points / 2)));
    cell_ = add_operand(points, 4, true);
    b_.set_updated(cell_);
    make(24, 0);
    b_.store({cell_, 4}, linear_, narrow(any()));
    test_.kernel.body = b_.finish();
    return std::move(test_);
  }

 private:
  std::vector<int64_t> draw_grid() {
    std::vector<int64_t> grid;
    int64_t left = 96;
    for (uint64_t rank = random_.below(4); rank > 0; --rank) {
      constexpr int64_t kSizes[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 33, 48, 96};
      const int64_t size = std::min(left, kSizes[random_.below(std::size(kSizes))]);
      grid.push_back(size);
      left /= size;
    }
    return grid;
  }

  int32_t add_operand(int64_t count, uint8_t bytes, bool is_written) {
    test_.kernel.operands.push_back({count * bytes, true, is_written});
    test_.elements.push_back({kI32, bytes});
    test_.labels.push_back("table");
    std::vector<std::byte> memory;
    for (int64_t i = 0; i < count; ++i) {
      testing::append_bits(&memory, random_.chance(60) ? random_.below(9) : random_.next(), bytes);
    }
    test_.contents.push_back(std::move(memory));
    return static_cast<int32_t>(test_.contents.size()) - 1;
  }

  Value any() {
    const size_t n = integers_.size();
    if (n > 4 && random_.chance(50)) return integers_[n - 1 - random_.below(4)];
    return integers_[random_.below(n)];
  }
  Value any_condition() { return conditions_[random_.below(conditions_.size())]; }
  Value narrow(Value v) { return b_.type(v) == kI32 ? v : b_.convert(Op::kTruncate, kI32, v); }
  Value as(ScalarType type, Value v) {
    if (b_.type(v) == type) return v;
    if (type == kI32) return narrow(v);
    return b_.convert(random_.chance(50) ? Op::kSignExtend : Op::kZeroExtend, kI64, v);
  }
  int64_t number() {
    constexpr int64_t kNumbers[] = {1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 7, 15, 31, 0, -1};
    if (random_.chance(92)) return kNumbers[random_.below(std::size(kNumbers))];
    return static_cast<int64_t>(random_.next() >> random_.below(64));
  }

  Value load() {
    if (random_.chance(30)) return b_.load(kI32, {cell_, 4}, linear_);
    constexpr uint8_t kBytes[] = {1, 2, 4};
    const auto count = static_cast<int64_t>(1 + random_.below(20));
    const Access access{add_operand(count, kBytes[random_.below(3)], false), 0, false};
    const auto bytes = static_cast<uint8_t>(test_.elements.back().bytes);
    const Value index = any();
    const Value inside = b_.binary(Op::kRemU, index, b_.integer(b_.type(index), count));
    return b_.load(kI32, {access.operand, bytes, bytes < 4 && random_.chance(50)}, inside);
  }

  void make_one() {
    const Value x = any();
    const ScalarType type = b_.type(x);
    const Value c = b_.integer(type, number());
    const Value y = random_.chance(60) ? c : as(type, any());
    const auto pick = [&](std::initializer_list<Op> ops) {
      return ops.begin()[random_.below(ops.size())];
    };
    switch (random_.below(12)) {
      case 0:
      case 1:
      case 2:
        return integers_.push_back(
            b_.binary(pick({Op::kAdd, Op::kAdd, Op::kSub}), x, as(type, any())));
      case 3:
        return integers_.push_back(b_.binary(pick({Op::kAdd, Op::kSub}), x, c));
      case 4:
        return integers_.push_back(b_.mul(x, y));
      case 5:
      case 6: {
        const Op op = pick({Op::kDivU, Op::kDivS, Op::kRemU, Op::kRemS});
        return integers_.push_back(b_.binary(op, x, testing::safe_divisor(b_, y)));
      }
      case 7: {
        const Value few = b_.integer(type, static_cast<int64_t>(random_.below(7)));
        const Value count =
            random_.chance(80) ? few : b_.bit_and(as(type, any()), b_.integer(type, 31));
        return integers_.push_back(b_.binary(pick({Op::kShl, Op::kShrU, Op::kShrS}), x, count));
      }
      case 8:
        return integers_.push_back(b_.binary(pick({Op::kAnd, Op::kOr, Op::kXor}), x, y));
      case 9: {
        conditions_.push_back(
            b_.binary(pick({Op::kLtS, Op::kLeS, Op::kLtU, Op::kLeU, Op::kEq, Op::kNe}), x, y));
        if (random_.chance(20)) {
          conditions_.push_back(
              b_.binary(pick({Op::kAnd, Op::kOr, Op::kXor}), conditions_.back(), any_condition()));
        }
        if (random_.chance(50)) return;
        const bool is_swapped = random_.chance(50);
        return integers_.push_back(
            b_.select(conditions_.back(), is_swapped ? y : x, is_swapped ? x : y));
      }
      case 10: {
        if (random_.chance(30)) {
          return integers_.push_back(b_.convert(Op::kBoolToInt, type, any_condition()));
        }
        const Value other = random_.chance(50) ? b_.add(x, c) : y;
        return integers_.push_back(b_.select(any_condition(), x, other));
      }
      default:
        return integers_.push_back(random_.chance(50) ? load() : as(type == kI32 ? kI64 : kI32, x));
    }
  }

  void make_loop(int count, int depth) {
    const std::vector<Value> outer = integers_, outer_conditions = conditions_;
    const Value trips = random_.chance(60) ? b_.index(static_cast<int64_t>(random_.below(6)))
                                           : b_.bit_and(as(type_, any()), b_.index(3));
    std::vector<Value> initial;
    for (uint64_t i = random_.below(4); i > 0; --i) {
      initial.push_back(random_.chance(20)   ? any_condition()
                        : random_.chance(50) ? b_.integer(type_, number())
                                             : any());
    }
    const std::vector<Value> results =
        b_.loop(trips, initial, [&](Value iteration, const std::vector<Value>& carried) {
          integers_.push_back(iteration);
          const auto list = [&](Value v) -> std::vector<Value>& {
            return b_.type(v) == kBool ? conditions_ : integers_;
          };
          for (const Value v : carried) list(v).push_back(v);
          make(count, depth + 1);
          if (random_.chance(40)) {
            const Value old = b_.load(kI32, {cell_, 4}, linear_);
            b_.store({cell_, 4}, linear_, b_.add(old, narrow(any())));
          }
          std::vector<Value> next;
          for (const Value v : carried) {
            if (b_.type(v) == kBool) {
              next.push_back(any_condition());
            } else if (random_.chance(40)) {
              const Value step =
                  random_.chance(70) ? b_.integer(b_.type(v), number()) : as(b_.type(v), any());
              const Value moved = b_.add(v, step);
              next.push_back(random_.chance(50) ? moved : b_.select(any_condition(), moved, v));
            } else {
              next.push_back(as(b_.type(v), any()));
            }
          }
          return next;
        });
    integers_ = outer;
    conditions_ = outer_conditions;
    for (const Value v : results) (b_.type(v) == kBool ? conditions_ : integers_).push_back(v);
  }

  void make(int count, int depth) {
    for (int i = 0; i < count; ++i) {
      if (depth < 2 && count > 7 && random_.chance(12)) {
        make_loop(count / 2, depth);
        i += count / 2;
      } else {
        make_one();
      }
    }
  }

  Random random_;
  ScalarType type_;
  std::vector<int64_t> grid_;
  Builder b_;
  Value linear_ = kNoValue;
  int32_t cell_ = 0;
  std::vector<Value> integers_, conditions_;
  TestKernel test_;
};

struct Claims {
  int same = 0, slopes = 0, carried_slopes = 0, exact = 0, bounds = 0, known = 0, resolved = 0,
      factors = 0, lines = 0, differences = 0;
};

class Check {
 public:
  using Position = ObservedValues::Position;
  using Variable = IndexAnalysis::Variable;

  Check(const TestKernel& test, const ObservedValues& observed, const IndexAnalysis& analysis,
        Claims& claims)
      : test_(test), f_(test.kernel.body), observed_(observed), a_(analysis), claims_(claims) {}

  void run() {
    for (Value v = 0; v < static_cast<Value>(f_.size()) && !::testing::Test::HasFailure(); ++v) {
      const Op op = f_[v].op;
      if (op == Op::kStore || op == Op::kFor || op == Op::kConstant || is_float(f_.type(v)))
        continue;
      read(v);
      check_value(v);
      for (const Variable x : variables(v)) check_variable(v, x);
      if (!is_integer(f_.type(v))) continue;
      for (size_t d = 0; d < test_.kernel.grid.size(); ++d) check_dimension(v, static_cast<int>(d));
      check_line(v);
    }
    for (size_t r = 0; r < f_.region_count(); ++r) check_differences(static_cast<int32_t>(r));
  }

 private:
  // Iterations of the loops around, outermost first.
  std::vector<int32_t> regions_around(Value v) const {
    std::vector<int32_t> regions;
    for (int32_t r = f_[v].region; r > 0; r = f_.region(r).parent)
      regions.insert(regions.begin(), r);
    return regions;
  }

  bool is_in_box(const Position& position) const {
    for (size_t d = 0; d < a_.box().size(); ++d) {
      if (position[d] < a_.box()[d].begin || position[d] >= a_.box()[d].end) return false;
    }
    return true;
  }

  void read(Value v) {
    seen_.clear();
    for (const auto& [position, value] : observed_.of(v)) {
      if (is_in_box(position)) seen_.emplace_back(position, value);
    }
  }

  std::vector<Variable> variables(Value v) const {
    std::vector<Variable> all;
    for (size_t d = 0; d < a_.box().size(); ++d) all.push_back(a_.dimension(static_cast<int>(d)));
    if (a_.blocks().dimension >= 0) all.push_back(a_.block_number());
    for (const int32_t r : regions_around(v)) all.push_back(a_.iteration(r));
    return all;
  }

  // A variable at a position, and the position without it.
  std::pair<int64_t, Position> take(Value v, Variable x, Position position) const {
    const auto rank = static_cast<int>(a_.box().size());
    const bool is_block = x == a_.block_number() && a_.blocks().dimension >= 0;
    if (x < rank || is_block) {
      const auto d = static_cast<size_t>(is_block ? a_.blocks().dimension : x);
      if (static_cast<int>(d) != a_.blocks().dimension)
        return {std::exchange(position[d], 0), position};
      const int64_t size = a_.blocks().size, index = position[d];
      position[d] = is_block ? index % size : index / size;
      return {is_block ? index / size : index % size, position};
    }
    const std::vector<int32_t> around = regions_around(v);
    const auto it = std::find(around.begin(), around.end(), x - rank);
    const auto at = static_cast<size_t>(rank + (it - around.begin()));
    return {std::exchange(position[at], 0), position};
  }

  std::string say(Value v) const {
    std::string box;
    for (const Range& r : a_.box()) box += fmt::format(" {}...{}", r.begin, r.end);
    return fmt::format("%{} ({}), box{}, blocks of {} along {}, of\n{}", v, op_name(f_[v].op), box,
                       a_.blocks().size, a_.blocks().dimension, to_string(test_.kernel));
  }

  int64_t wrapped(Value v, __int128 x) const {
    const auto bits = static_cast<uint64_t>(x);
    return f_.type(v) == kI32 ? static_cast<int32_t>(static_cast<uint32_t>(bits))
                              : static_cast<int64_t>(bits);
  }

  // Another value where this one is.
  std::optional<int64_t> other(Value v, const Position& position) const {
    if (f_[v].op == Op::kConstant) return number(f_.type(v), f_[v].immediate);
    const auto count = static_cast<ptrdiff_t>(a_.box().size() + regions_around(v).size());
    const Position outer(position.begin(), position.begin() + count);
    const auto it = observed_.of(v).find(outer);
    if (it == observed_.of(v).end()) return std::nullopt;
    return it->second;
  }

  void check_value(Value v) {
    const Bounds bounds = a_.bounds(v);
    const Bounds all = bounds_of(f_.type(v));
    const Value resolved = a_.resolved(v);
    const int64_t factor = is_integer(f_.type(v)) ? a_.factor(v) : 1;
    claims_.bounds += bounds.low != all.low || bounds.high != all.high;
    claims_.known += a_.known(v) >= 0;
    claims_.resolved += resolved != v;
    claims_.factors += factor > 1;
    const Op op = f_[v].op;
    const bool is_sum = op == Op::kAdd || op == Op::kSub || op == Op::kMul;
    claims_.exact += is_sum && bounds.is_exact;
    for (const auto& [position, value] : seen_) {
      ASSERT_GE(value, bounds.low) << say(v);
      ASSERT_LE(value, bounds.high) << say(v);
      if (a_.known(v) >= 0) {
        ASSERT_EQ(a_.known(v), value) << say(v);
      }
      ASSERT_EQ(value % factor, 0) << "factor " << factor << " of " << say(v);
      if (resolved != v) {
        const auto it = other(resolved, position);
        ASSERT_TRUE(it && *it == value) << "is %" << resolved << ": " << say(v);
      }
      if (is_sum && bounds.is_exact && is_integer(f_.type(v))) {
        const __int128 x = *other(f_[v].arguments[0], position);
        const __int128 y = *other(f_[v].arguments[1], position);
        const __int128 exact = op == Op::kAdd ? x + y : op == Op::kSub ? x - y : x * y;
        ASSERT_TRUE(exact == value) << "wraps: " << say(v);
      }
    }
  }

  void check_variable(Value v, Variable x) {
    const std::optional<int64_t> slope = a_.slope(v, x);
    if (!a_.depends(v, x)) {
      ++claims_.same;
      ASSERT_EQ(slope, 0) << say(v);
    }
    claims_.slopes += slope.value_or(0) != 0;
    if (slope.value_or(0) != 0 && f_[v].op != Op::kParameter) {
      for (const Value y : f_.region(f_[v].region).parameters) {
        if (f_[v].region > 0 && y != f_.region(f_[v].region).parameters[0])
          ++claims_.carried_slopes;
      }
    }
    std::map<Position, std::pair<int64_t, int64_t>> first;
    for (const auto& [position, value] : seen_) {
      const auto [at, rest] = take(v, x, position);
      for (const int64_t multiple : {2, 8}) {
        if (!is_integer(f_.type(v)) || at % multiple != 0) continue;
        const int64_t factor = a_.factor(v, x, multiple);
        ASSERT_EQ(value % factor, 0) << "factor " << factor << " at multiples of " << multiple
                                     << " of variable " << x << ": " << say(v);
      }
      if (!slope) continue;
      const auto [it, is_new] = first.try_emplace(rest, at, value);
      const __int128 expected = it->second.second + __int128{*slope} * (at - it->second.first);
      ASSERT_EQ(wrapped(v, expected), value)
          << "slope " << *slope << " along variable " << x << ": " << say(v);
    }
  }

  void check_dimension(Value v, int d) {
    const std::optional<int64_t> slope = a_.slope_of_dimension(v, d);
    if (!slope && a_.depends_on_dimension(v, d)) return;
    ASSERT_TRUE(slope.has_value()) << say(v);
    std::map<Position, std::pair<int64_t, int64_t>> first;
    for (const auto& [position, value] : seen_) {
      Position rest = position;
      const int64_t at = std::exchange(rest[static_cast<size_t>(d)], 0);
      const auto [it, is_new] = first.try_emplace(rest, at, value);
      const __int128 expected = it->second.second + __int128{*slope} * (at - it->second.first);
      ASSERT_EQ(wrapped(v, expected), value)
          << "slope " << *slope << " along dimension " << d << ": " << say(v);
    }
  }

  void check_line(Value v) {
    const std::vector<Variable> all = variables(v);
    std::vector<std::vector<Variable>> sets{all};
    for (const Variable x : all) sets.push_back({x});
    for (const auto& set : sets) {
      const auto line = a_.line(v, set);
      if (!line) continue;
      ++claims_.lines;
      std::map<Position, __int128> first;
      for (const auto& [position, value] : seen_) {
        __int128 rest = value;
        Position others = position;
        for (size_t i = 0; i < set.size(); ++i) {
          rest -= __int128{line->slopes[i]} * take(v, set[i], position).first;
          // Blocks: the index within goes first, and leaves the block's number.
          const bool is_last_part = set[i] == a_.block_number() && set.size() > 1;
          if (is_last_part && a_.blocks().dimension >= 0) {
            others[static_cast<size_t>(a_.blocks().dimension)] = 0;
          } else {
            others = take(v, set[i], others).second;
          }
        }
        ASSERT_TRUE(rest >= line->low && rest <= line->high) << say(v);
        if (!line->is_flat) continue;
        const auto [it, is_new] = first.try_emplace(others, rest);
        ASSERT_TRUE(it->second == rest) << "rest of a line: " << say(v);
      }
    }
  }

  void check_differences(int32_t region) {
    std::map<std::vector<std::pair<Value, int64_t>>, Value> by_terms[2];
    for (const Value v : f_.region(region).instructions) {
      if (f_[v].op == Op::kStore || f_[v].op == Op::kFor || !is_integer(f_.type(v))) continue;
      std::vector<std::pair<Value, int64_t>> terms;
      for (const auto& term : a_.terms(v)) terms.emplace_back(term.term, term.factor);
      const auto [it, is_new] = by_terms[f_.type(v) == kI64].try_emplace(terms, v);
      if (is_new) continue;
      ++claims_.differences;
      read(v);
      for (const auto& [position, value] : seen_) {
        const __int128 expected =
            __int128{*other(it->second, position)} + a_.constant(v) - a_.constant(it->second);
        ASSERT_EQ(wrapped(v, expected), value) << "beside %" << it->second << ": " << say(v);
      }
    }
  }

  const TestKernel& test_;
  const Function& f_;
  const ObservedValues& observed_;
  const IndexAnalysis& a_;
  Claims& claims_;
  std::vector<std::pair<Position, int64_t>> seen_;
};

void check(const TestKernel& test, uint64_t seed, Claims& claims) {
  const ObservedValues observed(test);
  const Kernel& kernel = test.kernel;
  const auto run = [&](const IndexAnalysis& analysis) {
    Check(test, observed, analysis, claims).run();
  };
  run(IndexAnalysis(kernel));
  Random random(seed);
  for (int d = 0; d < static_cast<int>(kernel.grid.size()); ++d) {
    constexpr int64_t kSizes[] = {1, 4, 6, 8};
    run(IndexAnalysis(kernel, IndexBlocks{d, kSizes[random.below(std::size(kSizes))]}));
  }
  if (kernel.points() == 0) return;
  Box box;
  for (const int64_t size : kernel.grid) {
    const auto begin = static_cast<int64_t>(random.below(static_cast<uint64_t>(size)));
    const auto left = static_cast<uint64_t>(size - begin);
    box.push_back({begin, begin + 1 + static_cast<int64_t>(random.below(left))});
  }
  run(IndexAnalysis(kernel, box));
  if (!box.empty()) run(IndexAnalysis(kernel, box, IndexBlocks{0, 4}));
}

#ifdef HEKLA_SANITIZED
constexpr uint64_t kCount = 30;
#else
constexpr uint64_t kCount = 300;
#endif

void expect_some(const Claims& claims, int least) {
  EXPECT_GT(claims.same, least);
  EXPECT_GT(claims.slopes, least);
  EXPECT_GT(claims.exact, least);
  EXPECT_GT(claims.bounds, least);
  EXPECT_GT(claims.known, least / 10);
  EXPECT_GT(claims.resolved, least / 20);
  EXPECT_GT(claims.factors, least);
  EXPECT_GT(claims.lines, least);
  EXPECT_GT(claims.differences, least / 10);
}

TEST(IndexAnalysis, IsRightAboutIndexArithmetic) {
  Claims claims;
  for (uint64_t seed = 1; seed <= kCount && !HasFailure(); ++seed) {
    check(IndexKernels(seed).run(), seed, claims);
  }
  expect_some(claims, static_cast<int>(kCount));
  EXPECT_GT(claims.carried_slopes, static_cast<int>(kCount));
}

TEST(IndexAnalysis, IsRightAboutRandomKernels) {
  Claims claims;
  for (uint64_t seed = 1; seed <= kCount / 3 && !HasFailure(); ++seed) {
    testing::RandomOptions options;
    options.max_points = 60;
    check(testing::random_kernel(seed, options), seed, claims);
  }
  expect_some(claims, static_cast<int>(kCount / 3));
}

}  // namespace
}  // namespace hekla::kernel
