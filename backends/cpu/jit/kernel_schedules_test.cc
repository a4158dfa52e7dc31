// SPDX-License-Identifier: Apache-2.0
// Native kernels against the interpreter: operations, blocks of rows, loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/interpreter.h"
#include "backends/compiler/kernel/testing/random_kernel.h"
#include "backends/cpu/jit/testing/kernel_levels.h"
#include "runtime/base/testing/instrumented.h"

namespace hekla::cpu {
namespace {

using kernel::Builder;
using kernel::Kernel;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;
using kernel::testing::Buffers;
using kernel::testing::random_kernel;
using kernel::testing::TestKernel;

TEST_P(Levels, RandomKernelsDoWhatTheInterpreterDoes) {
  kernel::testing::RandomOptions options;
  options.fma = has_fma(GetParam());
  // HEKLA_RANDOM_KERNELS: more of them, for a long run.
  const char* more = std::getenv("HEKLA_RANDOM_KERNELS");
  const uint64_t count =
      more != nullptr ? std::strtoull(more, nullptr, 10) : testing::sweep(200, 48);
  constexpr uint64_t kAtOnce = 16;
  for (uint64_t first = 0; first < count; first += kAtOnce) {
    std::vector<TestKernel> tests;
    std::vector<const Kernel*> requests;
    for (uint64_t i = 0; i < kAtOnce; ++i) tests.push_back(random_kernel(first + i, options));
    for (const TestKernel& test : tests) requests.push_back(&test.kernel);
    const auto code = compile(requests);
    ASSERT_NE(code, nullptr);
    for (uint64_t i = 0; i < kAtOnce; ++i) {
      expect_as_interpreted(code->kernels[i], tests[i], first + i);
      if (HasFatalFailure()) return;
    }
  }
}

// Blocks of rows, one by one in any order, are all points of the grid.
TEST_P(Levels, BlocksOfRowsAreTheWholeGrid) {
  kernel::testing::RandomOptions options;
  options.fma = has_fma(GetParam());
  int blocked = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const TestKernel test = random_kernel(seed, options);
    std::vector<KernelRequest> requests;
    for (int64_t rows = 2; rows <= std::min<int64_t>(test.kernel.points(), 60); ++rows) {
      for (const int64_t size : {1, 2, 3, 8}) {
        const RowBlocks blocks{rows, size};
        if (!has_blocks(test.kernel, compiler_->target().vector_bits, blocks)) continue;
        requests.push_back({&test.kernel, false, blocks});
      }
    }
    if (requests.empty()) continue;
    // Some of each kernel's: equal code stands for blocks of several sizes.
    std::mt19937_64 random(seed);
    std::shuffle(requests.begin(), requests.end(), random);
    requests.resize(std::min<size_t>(requests.size(), 4));
    const auto code = compiler_->compile(requests);
    ASSERT_TRUE(code.ok()) << code.status().to_string();
    Buffers expected = test.contents;
    ASSERT_TRUE(interpret(test.kernel, kernel::testing::spans(expected)).ok());
    for (size_t i = 0; i < requests.size(); ++i, ++blocked) {
      const RowBlocks& blocks = requests[i].blocks;
      const CompiledKernel& compiled = (*code)->kernels[i];
      ASSERT_GT(compiled.schedule.block_units, 0);
      std::vector<int64_t> order(static_cast<size_t>(blocks.count()));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      Buffers actual = test.contents;
      std::vector<const void*> pointers;
      for (auto& bytes : actual) pointers.push_back(bytes.data());
      for (const int64_t block : order) {
        const int64_t begin = block * compiled.schedule.block_units;
        const bool is_last = block + 1 == blocks.count();
        compiled.function(
            pointers.data(), begin,
            is_last ? compiled.schedule.units() : begin + compiled.schedule.block_units);
      }
      ASSERT_EQ(kernel::testing::difference(test, expected, actual), "")
          << "seed " << seed << ", " << blocks.rows << " rows by " << blocks.size << "\n"
          << to_string(test.kernel);
    }
  }
  EXPECT_GT(blocked, 50);
}

TEST_P(Levels, EveryOpAtItsEdges) {
  std::map<ScalarType, std::vector<kernel::testing::OpCase>> cases;
  for (const kernel::testing::OpCase& c : kernel::testing::all_op_cases()) {
    // Without the instruction it is rounded twice.
    if (c.op == Op::kFma && !has_fma(GetParam())) continue;
    cases[c.from].push_back(c);
  }
  for (const auto& [from, of_type] : cases) {
    const TestKernel test = op_kernel(of_type);
    const auto code = compile({&test.kernel});
    ASSERT_NE(code, nullptr);
    expect_as_interpreted(code->kernels[0], test, 1);
  }
}

// What lanes do apart: each point of a row of `row` owns kTrips elements of the output, of which a
// loop writes as many as the point's number says, from the end of the input; what lanes that are
// done would read lies outside of it. The other outputs are written from the end to the start and
// with gaps.
TestKernel diverging(int64_t row, ScalarType index_type) {
  constexpr int64_t kTrips = 5;
  constexpr int64_t kRows = 3;
  const int64_t points = kRows * row;
  Builder b(2, index_type);
  const Value linear = b.add(b.mul(b.grid_index(0), b.index(row)), b.grid_index(1));
  const Value count = b.binary(Op::kRemU, linear, b.index(kTrips + 1));
  const std::vector<Value> results = b.loop(
      count, {b.integer(kI32, 1), b.real(kF32, 0)},
      [&](Value iteration, const std::vector<Value>& now) {
        const Value from = b.add(b.sub(b.index(points), count), iteration);
        const Value x = b.load(kF32, {0, 4}, from);
        const Value reversed = b.load(kF32, {0, 4}, b.sub(b.index(points - 1), linear));
        const Value narrow = b.load(kI32, {1, 1, true}, linear);
        // A loop within, with as many trips as this one has behind it.
        const Value inner =
            b.loop(iteration, {now[0]}, [&](Value, const std::vector<Value>& inner_now) {
              return std::vector<Value>{b.add(b.mul(inner_now[0], b.integer(kI32, 3)), narrow)};
            })[0];
        b.store({2, 4}, b.add(b.mul(linear, b.index(kTrips)), iteration), b.mul(x, reversed));
        return std::vector<Value>{inner, b.add(now[1], x)};
      });
  b.store({3, 4}, b.sub(b.index(points - 1), linear), results[1]);
  b.store({4, 2}, b.mul(linear, b.index(3)), results[0]);
  TestKernel test;
  test.elements = {{kF32, 4}, {kI32, 1}, {kF32, 4}, {kF32, 4}, {kI32, 2}};
  test.labels = {"input", "narrow input", "of iterations", "reversed", "with gaps"};
  const int64_t counts[] = {points, points, points * kTrips, points, points * 3 - 2};
  std::mt19937 random(static_cast<uint32_t>(row));
  for (size_t i = 0; i < std::size(counts); ++i) {
    const int64_t bytes = counts[i] * test.elements[i].bytes;
    test.kernel.operands.push_back({bytes, i < 2, i >= 2});
    std::vector<std::byte> content(static_cast<size_t>(bytes), std::byte{0xa5});
    if (i == 0) {
      for (int64_t k = 0; k < points; ++k) {
        const float value = static_cast<float>(random() % 1000) / 8;
        std::memcpy(&content[static_cast<size_t>(k) * 4], &value, 4);
      }
    } else if (i == 1) {
      for (std::byte& byte : content) byte = static_cast<std::byte>(random());
    }
    test.contents.push_back(std::move(content));
  }
  test.kernel.name = "diverging";
  test.kernel.grid = {kRows, row};
  test.kernel.index_type = index_type;
  test.kernel.body = b.finish();
  return test;
}

TEST_P(Levels, LanesThatAreDoneTouchNothing) {
  for (const ScalarType index_type : {kI32, kI64}) {
    for (const int64_t row : {1, 2, 3, 4, 7, 8, 9, 16, 21, 64, 100}) {
      const TestKernel test = diverging(row, index_type);
      ASSERT_TRUE(verify(test.kernel.body).ok()) << verify(test.kernel.body).to_string();
      const auto code = compile({&test.kernel});
      ASSERT_NE(code, nullptr);
      expect_as_interpreted(code->kernels[0], test, static_cast<uint64_t>(row));
    }
  }
}

// Sums over rows, a row per lane: regular rows, and rows whose start is loaded. The rows have
// `columns` elements, of which as many are summed as `count` says: a number, or -1 for a loaded
// one.
TestKernel sum_rows(int64_t rows, int64_t columns, int64_t count, bool loads_start) {
  Builder b(1, kI32);
  const Value row = b.grid_index(0);
  Value start = b.mul(row, b.index(columns));
  if (loads_start) start = b.load(kI32, {2, 4}, row);
  const Value trips = count >= 0 ? b.index(count) : b.load(kI32, {3, 4}, b.index(0));
  const std::vector<Value> sums = b.loop(
      trips, {b.real(kF32, 0), b.integer(kI32, 0)}, [&](Value k, const std::vector<Value>& now) {
        const Value x = b.load(kF32, {0, 4}, b.add(start, k));
        const Value y = b.load(kI32, {1, 4}, b.add(k, start));
        return std::vector<Value>{b.add(b.mul(now[0], b.real(kF32, 0.75)), x),
                                  b.add(now[1], b.mul(y, k))};
      });
  b.store({4, 4}, row, sums[0]);
  b.store({5, 4}, row, sums[1]);
  TestKernel test;
  test.elements = {{kF32, 4}, {kI32, 4}, {kI32, 4}, {kI32, 4}, {kF32, 4}, {kI32, 4}};
  test.labels = {"f32", "i32", "starts", "count", "f32 sums", "i32 sums"};
  const int64_t sizes[] = {rows * columns, rows * columns, rows, 1, rows, rows};
  std::mt19937 random(static_cast<uint32_t>(columns));
  for (size_t i = 0; i < std::size(sizes); ++i) {
    test.kernel.operands.push_back({sizes[i] * 4, i < 4, i >= 4});
    std::vector<std::byte> content;
    for (int64_t k = 0; k < sizes[i]; ++k) {
      uint32_t bits = random();
      if (i == 0) bits = std::bit_cast<uint32_t>(static_cast<float>(random() % 1000) / 512);
      if (i == 2) bits = static_cast<uint32_t>((rows - 1 - k) * columns);
      if (i == 3) bits = static_cast<uint32_t>(columns);
      const auto* bytes = reinterpret_cast<const std::byte*>(&bits);
      content.insert(content.end(), bytes, bytes + 4);
    }
    test.contents.push_back(std::move(content));
  }
  test.kernel.name = "sum_rows";
  test.kernel.grid = {rows};
  test.kernel.body = b.finish();
  return test;
}

TEST_P(Levels, RowsAreSummedInOrder) {
  for (const int64_t rows : {4, 8, 9, 33}) {
    for (const int64_t columns : {1, 7, 8, 16, 37}) {
      for (const int64_t count : {int64_t{0}, columns, columns / 2, int64_t{-1}}) {
        for (const bool loads_start : {false, true}) {
          const TestKernel test = sum_rows(rows, columns, count, loads_start);
          const auto code = compile({&test.kernel});
          ASSERT_NE(code, nullptr);
          expect_as_interpreted(code->kernels[0], test, 1);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Levels, ::testing::Values("sse2", "avx2", "avx512", "native"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hekla::cpu
