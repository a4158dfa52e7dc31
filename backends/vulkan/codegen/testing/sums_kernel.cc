// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/testing/sums_kernel.h"

#include <cstring>
#include <random>

#include "backends/compiler/kernel/builder.h"

namespace hekla::vulkan::testing {

using kernel::Builder;
using kernel::Op;
using kernel::ScalarType;
using kernel::SumsAccess;
using kernel::TeamMemory;
using kernel::Value;

namespace {

constexpr uint32_t kTeamDimension = 1;
constexpr uint32_t kPad = 4;

class SumsBuilder {
 public:
  SumsBuilder(const SumsCase& c, uint32_t lanes)
      : c_(c),
        points_(c.subgroups * lanes),
        right_lines_(c.is_by_column ? c.columns : c.depth),
        right_words_((c.is_by_column ? c.depth : c.columns) / 2),
        b_(2, ScalarType::kI32),
        left_{kTeamDimension, 0, c.rows * (c.depth / 2 + kPad)},
        right_{kTeamDimension, 1, right_lines_ * (right_words_ + kPad)},
        factors_{kTeamDimension, 2, c.rows},
        result_{kTeamDimension, 3, c.rows * (c.strip + kPad)} {}

  kernel::Function build() {
    b_.set_grid_size(0, c_.teams);
    b_.set_grid_size(1, points_);
    fetch(left_, 0, c_.rows, c_.depth / 2);
    fetch(right_, 1, right_lines_, right_words_);
    each(c_.rows, [&](Value row) {
      const Value word = b_.load(ScalarType::kI32, {2, 4, false}, of_team(c_.rows, row));
      b_.team_store(factors_, row, word);
    });
    SumsAccess sums;
    sums.dimension = kTeamDimension;
    sums.rows = c_.rows;
    sums.columns = c_.columns;
    sums.is_bf16 = c_.dtype == DType::kBF16;
    const Value zero = b_.index(0);
    b_.sums(Op::kSumsClear, sums, {});
    SumsAccess product = sums;
    product.left = left_.array;
    product.right = right_.array;
    product.is_by_column = c_.is_by_column;
    product.depth = c_.depth;
    product.left_pitch = c_.depth / 2 + kPad;
    product.right_pitch = right_words_ + kPad;
    SumsAccess scale = sums;
    scale.left = factors_.array;
    // In a loop, as kernels have them.
    b_.loop(b_.index(2), {}, [&](Value, const std::vector<Value>&) {
      b_.sums(Op::kSumsScale, scale, {zero});
      b_.sums(Op::kSumsMultiply, product, {zero, zero});
      return std::vector<Value>();
    });
    for (uint32_t first = 0; first < c_.columns; first += c_.strip) {
      SumsAccess leave = sums;
      leave.left = result_.array;
      leave.left_pitch = c_.strip + kPad;
      leave.first = first;
      leave.depth = c_.strip;
      b_.sums(Op::kSumsStore, leave, {zero});
      each(c_.rows * c_.strip, [&](Value number) {
        const Value row = b_.binary(Op::kDivU, number, b_.index(c_.strip));
        const Value column = b_.binary(Op::kRemU, number, b_.index(c_.strip));
        const Value word =
            b_.team_load(result_, b_.add(b_.mul(row, b_.index(c_.strip + kPad)), column));
        const Value to = b_.add(b_.mul(row, b_.index(c_.columns)), b_.add(column, b_.index(first)));
        b_.store({3, 4, false}, of_team(c_.rows * c_.columns, to), word);
      });
    }
    return b_.finish();
  }

 private:
  Value of_team(uint32_t size, Value at) {
    return b_.add(b_.mul(b_.grid_index(0), b_.index(size)), at);
  }

  // Numbers below `count`, a multiple of the points, one after the other.
  void each(uint32_t count, const std::function<void(Value number)>& what) {
    for (uint32_t n = 0; n < count / points_; ++n) {
      what(b_.add(b_.grid_index(1), b_.index(n * points_)));
    }
  }

  void fetch(const TeamMemory& to, int32_t operand, uint32_t lines, uint32_t words) {
    each(lines * words / 4, [&](Value unit) {
      const Value line = b_.binary(Op::kDivU, unit, b_.index(words / 4));
      const Value at = b_.mul(b_.binary(Op::kRemU, unit, b_.index(words / 4)), b_.index(4));
      std::array<Value, 4> loaded{};
      for (int i = 0; i < 4; ++i) {
        const Value from = of_team(lines * words, b_.add(b_.mul(unit, b_.index(4)), b_.index(i)));
        loaded[static_cast<size_t>(i)] = b_.load(ScalarType::kI32, {operand, 4, false}, from);
      }
      b_.team_store_wide(to, b_.add(b_.mul(line, b_.index(words + kPad)), at), loaded);
    });
  }

  const SumsCase& c_;
  const uint32_t points_, right_lines_, right_words_;
  Builder b_;
  const TeamMemory left_, right_, factors_, result_;
};

}  // namespace

std::vector<SumsCase> sums_cases(const MatrixShape& shape) {
  std::vector<SumsCase> cases;
  // Numbers of units and of sums are multiples of the points.
  for (const uint32_t subgroups : {1U, 2U}) {
    for (const bool is_by_column : {false, true}) {
      SumsCase c{shape.operands, 2, subgroups};
      c.rows = 2 * subgroups * shape.rows;
      c.columns = 4 * shape.columns;
      c.depth = 4 * shape.depth;
      c.strip = is_by_column ? c.columns : 2 * shape.columns;
      c.is_by_column = is_by_column;
      cases.push_back(c);
    }
  }
  return cases;
}

SumsKernel sums_kernel(const SumsCase& c, uint32_t lanes, uint64_t seed) {
  SumsKernel made;
  const int64_t halves[] = {int64_t{c.rows} * c.depth, int64_t{c.depth} * c.columns};
  std::mt19937_64 random(seed);
  for (const int64_t count : halves) {
    std::vector<std::byte> memory(static_cast<size_t>(c.teams * count * 2));
    for (size_t at = 0; at < memory.size(); at += 2) {
      const uint64_t bits = float_to_bits(c.dtype, static_cast<double>(random() % 9) - 4);
      std::memcpy(&memory[at], &bits, 2);
    }
    made.contents.push_back(std::move(memory));
  }
  std::vector<std::byte> factors(size_t{c.teams} * c.rows * 4);
  for (size_t at = 0; at < factors.size(); at += 4) {
    const float factor = random() % 2 == 0 ? 0.5F : 2.0F;
    std::memcpy(&factors[at], &factor, 4);
  }
  made.contents.push_back(std::move(factors));
  made.contents.emplace_back(size_t{c.teams} * c.rows * c.columns * 4, std::byte{0x5a});
  made.kernel.name = "sums";
  made.kernel.grid = {c.teams, int64_t{c.subgroups} * lanes};
  for (size_t i = 0; i < made.contents.size(); ++i) {
    const bool is_result = i + 1 == made.contents.size();
    made.kernel.operands.push_back(
        {static_cast<int64_t>(made.contents[i].size()), !is_result, is_result});
  }
  made.kernel.body = SumsBuilder(c, lanes).build();
  return made;
}

}  // namespace hekla::vulkan::testing
