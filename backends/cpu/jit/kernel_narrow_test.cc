// SPDX-License-Identifier: Apache-2.0
// Native kernels on integers of 8 and 16 bits, whose lanes are as narrow, against the interpreter.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <vector>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/interpreter.h"
#include "backends/compiler/kernel/testing/random_kernel.h"
#include "backends/cpu/codegen/narrow_values.h"
#include "backends/cpu/jit/testing/kernel_levels.h"

namespace hekla::cpu {
namespace {

using kernel::Builder;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;
using kernel::testing::TestKernel;

// Operations of all kinds on what is loaded, in loops too, whose values go to all kinds of users.
class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed), b_(1, kI32) {}

  TestKernel make(int64_t row) {
    const Value at = b_.grid_index(0);
    TestKernel test;
    const int64_t most = row * 5;
    for (int i = 0; i < 3; ++i) {
      const auto bytes = static_cast<uint8_t>(any(6) == 0 ? 4 : 1 << any(2));
      // Mostly narrow ones; the last one is written.
      test.elements.push_back({kI32, bytes});
      test.labels.push_back(i == 0 ? "a" : i == 1 ? "b" : "c");
      test.kernel.operands.push_back({most * bytes, i != 2, i == 2});
      std::vector<std::byte> content(static_cast<size_t>(most * bytes));
      for (std::byte& byte : content) {
        constexpr int kEdges[] = {0, 1, 0x7f, 0x80, 0xff, 0xfe};
        byte = static_cast<std::byte>(any(3) == 0 ? kEdges[any(6)] : static_cast<int>(any(256)));
      }
      test.contents.push_back(std::move(content));
      bytes_[i] = bytes;
    }
    values_ = {load(0, at), load(1, at), b_.integer(kI32, any(300))};
    some_operations(4 + any(10));
    if (any(2) == 0) {
      // Two values are carried: one that is chosen from others, one that is computed.
      const std::vector<Value> outside = values_;
      const std::vector<Value> last =
          b_.loop(any(3) == 0 ? b_.convert(Op::kBoolToInt, kI32, condition()) : b_.index(any(5)),
                  {pick(), pick()}, [&](Value i, const std::vector<Value>& carried) {
                    values_.push_back(load(any(2), b_.add(b_.mul(i, b_.index(row)), at)));
                    values_.push_back(carried[0]);
                    values_.push_back(carried[1]);
                    const Value x = pick();
                    const Op less = any(2) == 0 ? Op::kLtS : Op::kLtU;
                    const Value chosen = b_.select(b_.binary(less, carried[0], x), x, carried[0]);
                    some_operations(any(6));
                    const Value computed = pick();
                    values_ = outside;
                    return std::vector<Value>{chosen, computed};
                  });
      values_.insert(values_.end(), last.begin(), last.end());
      some_operations(any(6));
    }
    b_.store({2, bytes_[2]}, at, values_.back());
    for (int k = any(3); k > 0; --k) {
      b_.store({2, bytes_[2]}, b_.add(at, b_.index((1 + k) * row)), pick());
    }
    if (any(4) == 0) {
      const Value as_float = b_.convert(Op::kSIntToFloat, kF32, pick());
      b_.store({2, bytes_[2]}, b_.add(at, b_.index(row)),
               b_.convert(Op::kBitcast, kI32, b_.mul(as_float, b_.real(kF32, 0.5))));
    }
    test.kernel.name = "narrow";
    test.kernel.grid = {row};
    test.kernel.body = b_.finish();
    return test;
  }

 private:
  int any(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }
  Value pick() {
    // Mostly what is new.
    const auto size = static_cast<int>(values_.size());
    return values_[static_cast<size_t>(any(2) == 0 ? size - 1 - any(std::min(size, 3))
                                                   : any(size))];
  }
  Value number(int64_t x) { return b_.integer(kI32, x); }
  Value load(int operand, Value at) {
    const uint8_t bytes = bytes_[operand];
    return b_.load(kI32, {operand, bytes, bytes < 4 && any(2) == 0}, at);
  }
  Value condition() {
    constexpr Op kCompare[] = {Op::kEq, Op::kNe, Op::kLtS, Op::kLeS, Op::kLtU, Op::kLeU};
    return b_.binary(kCompare[any(6)], pick(), any(2) == 0 ? pick() : number(any(600) - 300));
  }
  void some_operations(int count) {
    for (int i = 0; i < count; ++i) values_.push_back(operation());
  }
  Value operation() {
    constexpr int kMasks[] = {1, 0x1f, 0x55, 0xff, 0x7fff, 0xffff};
    constexpr int kDivisors[] = {2, 3, 7, 10, 100, 255, -3, -128};
    switch (any(13)) {
      case 0:
        return b_.add(pick(), pick());
      case 1:
        return b_.sub(pick(), pick());
      case 2:
        return b_.mul(pick(), any(2) == 0 ? pick() : number(any(20) - 5));
      case 3:
        return b_.binary(Op::kAnd, pick(), number(kMasks[any(6)]));
      case 4: {
        constexpr Op kBits[] = {Op::kAnd, Op::kOr, Op::kXor};
        return b_.binary(kBits[any(3)], pick(), pick());
      }
      case 5: {
        constexpr Op kShifts[] = {Op::kShl, Op::kShrU, Op::kShrS};
        return b_.binary(kShifts[any(3)], pick(), number(1 + any(12)));
      }
      case 6: {
        // By a number that differs from lane to lane.
        const Value count = b_.binary(Op::kAnd, pick(), number(any(2) == 0 ? 7 : 15));
        return b_.binary(any(2) == 0 ? Op::kShl : Op::kShrU, pick(), count);
      }
      case 7: {
        // Wrapped to a narrow type.
        const Value unused = number(any(2) == 0 ? 16 : 24);
        return b_.binary(Op::kShrS, b_.binary(Op::kShl, pick(), unused), unused);
      }
      case 8:
        return b_.select(condition(), pick(), pick());
      case 9:
        return b_.convert(Op::kBoolToInt, kI32, condition());
      case 10: {
        // A remainder as it is made from a quotient.
        const Value x = pick(), divisor = number(kDivisors[any(8)]);
        return b_.sub(x, b_.mul(b_.binary(Op::kDivS, x, divisor), divisor));
      }
      case 11: {
        constexpr Op kDivide[] = {Op::kDivS, Op::kRemS};
        return b_.binary(kDivide[any(2)], pick(), number(kDivisors[any(8)]));
      }
      default: {
        constexpr Op kDivide[] = {Op::kDivU, Op::kRemU};
        return b_.binary(kDivide[any(2)], pick(), number(kDivisors[any(6)]));
      }
    }
  }

  std::mt19937_64 random_;
  Builder b_;
  std::vector<Value> values_;
  uint8_t bytes_[3] = {};
};

TEST_P(Levels, NarrowLanes) {
  const char* asked = std::getenv("HEKLA_RANDOM_KERNELS");
  const int count = asked == nullptr ? 150 : std::atoi(asked);
  constexpr int64_t kRows[] = {1, 7, 16, 33, 64, 100, 131, 256};
  int narrow = 0;
  for (int seed = 0; seed < count; ++seed) {
    const int64_t row = kRows[seed % 8];
    const TestKernel test = Maker(static_cast<uint64_t>(seed)).make(row);
    KernelRequest request{&test.kernel};
    request.schedule_seed = seed % 3 == 0 ? static_cast<uint64_t>(seed) : 0;
    const auto code = compiler_->compile({&request, 1});
    ASSERT_TRUE(code.ok()) << code.status().to_string();
    expect_as_interpreted((*code)->kernels[0], test, static_cast<uint64_t>(seed));
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    const LaneAnalysis lanes(test.kernel, 0);
    const NarrowValues values(test.kernel.body, lanes);
    for (size_t v = 0; v < test.kernel.body.size(); ++v) {
      const auto value = static_cast<Value>(v);
      const bool is_computed = test.kernel.body[value].op != Op::kLoad;
      narrow += is_computed && values.width(value) < NarrowValues::kWide ? 1 : 0;
    }
  }
  EXPECT_GT(narrow, count / 2);
}

}  // namespace
}  // namespace hekla::cpu
