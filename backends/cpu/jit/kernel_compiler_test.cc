// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/jit/kernel_compiler.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/interpreter.h"
#include "backends/compiler/kernel/testing/random_kernel.h"
#include "backends/cpu/jit/object_code.h"
#include "backends/cpu/jit/object_store.h"
#include "backends/cpu/testing/guarded_memory.h"
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

constexpr ScalarType kI32 = ScalarType::kI32;
constexpr ScalarType kI64 = ScalarType::kI64;
constexpr ScalarType kF32 = ScalarType::kF32;

// One compiler per instruction set; null where this processor does not run it.
std::shared_ptr<KernelCompiler> compiler(const std::string& level) {
  static std::map<std::string, std::shared_ptr<KernelCompiler>> all;
  auto it = all.find(level);
  if (it == all.end()) {
    Result<std::shared_ptr<KernelCompiler>> made = KernelCompiler::create(level);
    it = all.emplace(level, made.ok() ? *made : nullptr).first;
  }
  return it->second;
}

class Levels : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    compiler_ = compiler(GetParam());
    if (compiler_ == nullptr) GTEST_SKIP() << "this processor has no " << GetParam();
  }
  std::shared_ptr<const CompiledKernels> compile(const std::vector<const Kernel*>& kernels) {
    std::vector<KernelRequest> requests;
    for (const Kernel* kernel : kernels) requests.push_back({kernel, false});
    auto code = compiler_->compile(requests);
    if (!code.ok()) {
      ADD_FAILURE() << code.status().to_string();
      return nullptr;
    }
    return *code;
  }
  std::shared_ptr<KernelCompiler> compiler_;
};

// Runs the units in ranges of random sizes, in guarded memory.
Buffers run(const CompiledKernel& code, const Buffers& contents, bool guard_end, uint64_t seed) {
  std::vector<GuardedMemory> memory;
  std::vector<const void*> pointers;
  for (const auto& bytes : contents) {
    memory.emplace_back(static_cast<int64_t>(bytes.size()), guard_end);
    if (!bytes.empty()) std::memcpy(memory.back().bytes().data(), bytes.data(), bytes.size());
    pointers.push_back(memory.back().bytes().data());
  }
  std::mt19937_64 random(seed);
  const int64_t units = code.schedule.units();
  for (int64_t begin = 0; begin < units;) {
    const int64_t count = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(units));
    const int64_t end = std::min(units, begin + count);
    code.function(pointers.data(), begin, end);
    begin = end;
  }
  Buffers result;
  for (const GuardedMemory& m : memory) result.emplace_back(m.bytes().begin(), m.bytes().end());
  return result;
}

void expect_as_interpreted(const CompiledKernel& code, const TestKernel& test, uint64_t seed) {
  Buffers expected = test.contents;
  const Status status = interpret(test.kernel, kernel::testing::spans(expected));
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (const bool guard_end : {false, true}) {
    const Buffers actual = run(code, test.contents, guard_end, seed);
    ASSERT_EQ(kernel::testing::difference(test, expected, actual), "") << "seed " << seed << "\n"
                                                                       << to_string(test.kernel);
  }
}

bool has_fma(const std::string& level) { return level != "sse2"; }

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

TestKernel transposing(int64_t rows, int64_t columns, int bytes);

// Any right schedule of a kernel, also those that its size would not be given. Each kind is among
// them.
TEST_P(Levels, DrawnSchedules) {
  kernel::testing::RandomOptions options;
  options.fma = has_fma(GetParam());
  std::map<std::string_view, int> counts;
  for (const std::string_view name : schedule_names()) counts[name] = 0;
  const char* more = std::getenv("HEKLA_RANDOM_KERNELS");
  const uint64_t count = more != nullptr ? std::strtoull(more, nullptr, 10) : 60;
  for (uint64_t seed = 0; seed < count; ++seed) {
    // Few random ones read transposed what is large enough for tiles.
    const auto size = static_cast<int64_t>(4 + seed % 64);
    const TestKernel test = seed % 8 == 0 ? transposing(size, 80 - size, seed % 16 == 0 ? 4 : 8)
                                          : random_kernel(seed, options);
    std::vector<KernelRequest> requests;
    for (const uint64_t draw : {2 * seed + 1, 2 * seed + 2}) {
      requests.push_back({&test.kernel, false, {}, draw});
    }
    const auto code = compiler_->compile(requests);
    ASSERT_TRUE(code.ok()) << code.status().to_string();
    for (size_t i = 0; i < requests.size(); ++i) {
      kernel::Implementations asked;
      const KernelPlan plan =
          plan_kernel(test.kernel, compiler_->target().vector_bits, {}, requests[i].schedule_seed,
                      TileUse::kChosen, StridedUse::kShuffles, &asked);
      ++counts[schedule_name(plan)];
      EXPECT_EQ(asked.taken(), schedule_name(plan)) << to_string(asked.asked());
      expect_as_interpreted((*code)->kernels[i], test, seed);
      if (HasFatalFailure()) return;
    }
  }
  for (const auto& [name, found] : counts) {
    // Blocks come from launch plans, see below.
    if (name != "blocks of rows") {
      EXPECT_GT(found, 0) << name;
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

// A block's points are those of its rows and no others.
TEST(KernelCompiler, ABlockWritesItsRows) {
  const auto compiler = KernelCompiler::create().value();
  kernel::Builder b(2, ScalarType::kI32);
  const Value at = b.add(b.mul(b.grid_index(0), b.index(50)), b.grid_index(1));
  b.store({0, 4}, at, b.integer(ScalarType::kI32, 7));
  Kernel kernel;
  kernel.grid = {40, 50};
  kernel.operands = {{8000, false, true}};
  kernel.body = b.finish();
  std::vector<KernelRequest> requests;
  for (const RowBlocks& blocks : {RowBlocks{40, 8}, RowBlocks{40, 3}, RowBlocks{80, 3},
                                  RowBlocks{2000, 10}, RowBlocks{2000, 100}, RowBlocks{20, 1}}) {
    if (has_blocks(kernel, compiler->target().vector_bits, blocks)) {
      requests.push_back({&kernel, false, blocks});
    }
  }
  ASSERT_GE(requests.size(), 4u);
  const auto code = compiler->compile(requests).value();
  for (size_t i = 0; i < requests.size(); ++i) {
    const RowBlocks& blocks = requests[i].blocks;
    const Schedule& schedule = code->kernels[i].schedule;
    const int64_t row = 2000 / blocks.rows;
    for (int64_t block = 0; block < blocks.count(); ++block) {
      std::vector<int32_t> out(2000);
      const void* pointers[] = {out.data()};
      const bool is_last = block + 1 == blocks.count();
      code->kernels[i].function(pointers, block * schedule.block_units,
                                is_last ? schedule.units() : (block + 1) * schedule.block_units);
      const int64_t begin = block * blocks.size * row;
      const int64_t end = is_last ? 2000 : begin + blocks.size * row;
      for (int64_t p = 0; p < 2000; ++p) {
        ASSERT_EQ(out[static_cast<size_t>(p)], p >= begin && p < end ? 7 : 0)
            << blocks.rows << " rows by " << blocks.size << ", block " << block << ", point " << p;
      }
    }
  }
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

// A transpose of all but the first dimension, added to what is there.
TestKernel transposing(int64_t rows, int64_t columns, int bytes) {
  const ScalarType type = bytes == 8 ? kI64 : kI32;
  const auto width = static_cast<uint8_t>(bytes);
  Builder b(3, kI32);
  for (int d = 0; d < 3; ++d)
    b.set_grid_size(d, std::array{int64_t{2}, rows, columns}[static_cast<size_t>(d)]);
  const Value plane = b.mul(b.grid_index(0), b.index(rows * columns));
  const Value from = b.add(b.mul(b.grid_index(2), b.index(rows)), b.grid_index(1));
  const Value to = b.add(plane, b.add(b.mul(b.grid_index(1), b.index(columns)), b.grid_index(2)));
  const Value old = b.load(type, {1, width}, to);
  b.store({1, width}, to, b.add(b.load(type, {0, width}, b.add(plane, from)), old));
  TestKernel test;
  test.elements = {{type, width}, {type, width}};
  test.labels = {"from", "to"};
  std::mt19937 random(static_cast<uint32_t>(columns));
  for (int i = 0; i < 2; ++i) {
    test.kernel.operands.push_back({2 * rows * columns * bytes, true, i == 1});
    std::vector<std::byte> content(static_cast<size_t>(2 * rows * columns * bytes));
    for (std::byte& byte : content) byte = static_cast<std::byte>(random());
    test.contents.push_back(std::move(content));
  }
  test.kernel.name = "transpose";
  test.kernel.grid = {2, rows, columns};
  test.kernel.body = b.finish();
  return test;
}

// Transposes of all but the first dimension, in tiles whose rows and lanes have rests, of several
// widths; and of what is written over, where no point may run twice.
TEST_P(Levels, TransposesInTiles) {
  int staged = 0;
  for (const int bytes : {1, 2, 4, 8}) {
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
             {4, 64}, {16, 40}, {21, 33}, {50, 7}, {130, 1000}}) {
      const TestKernel test = transposing(rows, columns, bytes);
      for (const TileUse tiles : {TileUse::kChosen, TileUse::kNotStaged, TileUse::kNone}) {
        const KernelRequest request{&test.kernel, false, {}, 0, tiles};
        const auto code = compiler_->compile({&request, 1});
        ASSERT_TRUE(code.ok()) << code.status().to_string();
        const Schedule& schedule = (*code)->kernels[0].schedule;
        EXPECT_TRUE(schedule.tile_rows == 1 || tiles != TileUse::kNone);
        EXPECT_TRUE(schedule.staged.empty() || (tiles == TileUse::kChosen && bytes == 4));
        staged += schedule.staged.empty() ? 0 : 1;
        expect_as_interpreted((*code)->kernels[0], test, 1);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GE(staged, 3);
}

// The same block by block of rows, whose tiles lie in a block. A block touches its rows alone.
TEST_P(Levels, TransposesInTilesOfBlocks) {
  int tiled = 0;
  for (const auto& [planes, rows, columns] : std::vector<std::array<int64_t, 3>>{
           {1, 64, 40}, {1, 65, 16}, {1, 24, 100}, {3, 16, 33}, {2, 32, 64}, {4, 12, 70}}) {
    const int64_t all = planes * rows;
    Builder b(3, kI32);
    const std::array<int64_t, 3> grid{planes, rows, columns};
    for (int d = 0; d < 3; ++d) b.set_grid_size(d, grid[static_cast<size_t>(d)]);
    const Value row = b.add(b.mul(b.grid_index(0), b.index(rows)), b.grid_index(1));
    const Value to = b.add(b.mul(row, b.index(columns)), b.grid_index(2));
    const Value from = b.add(b.mul(b.grid_index(2), b.index(all)), row);
    b.store({2, 4}, to, b.add(b.load(kI32, {0, 4}, from), b.load(kI32, {1, 4}, to)));
    TestKernel test;
    std::mt19937 random(static_cast<uint32_t>(all));
    for (int i = 0; i < 3; ++i) {
      test.kernel.operands.push_back({all * columns * 4, i < 2, i == 2});
      std::vector<std::byte> content(static_cast<size_t>(all * columns * 4));
      for (std::byte& byte : content) byte = static_cast<std::byte>(random());
      test.contents.push_back(std::move(content));
    }
    test.kernel.name = "transpose";
    test.kernel.grid = {planes, rows, columns};
    test.kernel.body = b.finish();
    Buffers expected = test.contents;
    ASSERT_TRUE(interpret(test.kernel, kernel::testing::spans(expected)).ok());
    for (const int64_t size : {1, 4, 8, 12, 16, 24, 32}) {
      const RowBlocks blocks{all, size};
      if (size > all || !has_blocks(test.kernel, compiler_->target().vector_bits, blocks)) continue;
      for (const TileUse tiles : {TileUse::kChosen, TileUse::kNotStaged, TileUse::kNone}) {
        const KernelRequest request{&test.kernel, false, blocks, 0, tiles};
        const auto code = compiler_->compile({&request, 1});
        ASSERT_TRUE(code.ok()) << code.status().to_string();
        const CompiledKernel& compiled = (*code)->kernels[0];
        tiled += compiled.schedule.tile_rows > 1 ? 1 : 0;
        for (int64_t block = 0; block < blocks.count(); ++block) {
          const bool is_last = block + 1 == blocks.count();
          const int64_t begin = block * size * columns * 4;
          const int64_t end = (is_last ? all : (block + 1) * size) * columns * 4;
          Buffers actual = test.contents;
          const void* pointers[] = {actual[0].data(), actual[1].data(), actual[2].data()};
          const int64_t first = block * compiled.schedule.block_units;
          compiled.function(
              pointers, first,
              is_last ? compiled.schedule.units() : first + compiled.schedule.block_units);
          for (int64_t p = 0; p < all * columns * 4; ++p) {
            const auto at = static_cast<size_t>(p);
            ASSERT_EQ(actual[2][at], p >= begin && p < end ? expected[2][at] : test.contents[2][at])
                << planes << " x " << rows << " x " << columns << " by " << size << ", block "
                << block << ", byte " << p;
          }
        }
      }
    }
  }
  EXPECT_GT(tiled, 8);
}

// Loads `from` elements apart and stores that lie `to` apart, of which `stored` side by side are
// written: all of them, or not; in reversed order, to each of `planes` that lie one behind the
// other. `blocks`: runs of 8 points that lie apart by more.
TestKernel strided(int64_t row, int64_t from, int64_t to, int64_t stored, int64_t planes, int bytes,
                   bool blocks) {
  const ScalarType type = bytes == 8 ? kI64 : kI32;
  const auto width = static_cast<uint8_t>(bytes);
  constexpr int64_t kRows = 2, kRun = 8;
  Builder b(2, kI32);
  b.set_grid_size(0, kRows);
  b.set_grid_size(1, row);
  const Value at = b.grid_index(1);
  Value place = at;
  int64_t most = row;
  if (blocks) {
    const Value run = b.binary(Op::kDivU, at, b.index(kRun));
    place = b.add(b.mul(run, b.index(2 * kRun)), b.sub(at, b.mul(run, b.index(kRun))));
    most = 2 * row + kRun;
  }
  const Value in = b.add(b.mul(b.grid_index(0), b.index(row)), at);
  const Value out = b.add(b.mul(b.grid_index(0), b.index(most)), place);
  for (int64_t plane = planes; plane-- > 0;) {
    const Value here = b.add(out, b.index(plane * kRows * most));
    for (int64_t k = stored; k-- > 0;) {
      const Value x = b.load(type, {0, width}, b.add(b.mul(in, b.index(from)), b.index(k % from)));
      const Value y = b.mul(b.add(x, b.integer(type, 3 + plane)), b.integer(type, 2 * k + 1));
      // As the parts of complex numbers lie.
      const Value pair = b.mul(b.add(b.mul(here, b.index(to / 2)), b.index(k / 2)), b.index(2));
      b.store({1, width}, k % 2 == 0 ? pair : b.add(pair, b.index(1)), y);
    }
  }
  TestKernel test;
  test.elements = {{type, width}, {type, width}};
  test.labels = {"from", "to"};
  std::mt19937 random(static_cast<uint32_t>(row));
  const int64_t counts[] = {kRows * row * from, planes * kRows * most * to};
  for (int i = 0; i < 2; ++i) {
    test.kernel.operands.push_back({counts[i] * bytes, i == 0, i == 1});
    std::vector<std::byte> content(static_cast<size_t>(counts[i] * bytes));
    for (std::byte& byte : content) byte = static_cast<std::byte>(random());
    test.contents.push_back(std::move(content));
  }
  test.kernel.name = "strided";
  test.kernel.grid = {kRows, row};
  test.kernel.body = b.finish();
  return test;
}

TEST_P(Levels, StridedLoadsAndStores) {
  for (const bool blocks : {false, true}) {
    for (const int bytes : {1, 2, 4, 8}) {
      for (const int64_t row : {1, 7, 16, 17, 48}) {
        if (blocks && row % 8 != 0) continue;
        for (const auto& [from, to, stored, planes] :
             std::vector<std::array<int64_t, 4>>{{3, 2, 2, 3},
                                                 {2, 2, 1, 1},
                                                 {5, 4, 4, 1},
                                                 {4, 4, 3, 2},
                                                 {8, 8, 8, 2},
                                                 {16, 16, 16, 1},
                                                 {2, 32, 4, 1}}) {
          const TestKernel test = strided(row, from, to, stored, planes, bytes, blocks);
          for (const StridedUse use : {StridedUse::kShuffles, StridedUse::kByLane}) {
            KernelRequest request{&test.kernel};
            request.strided = use;
            const auto code = compiler_->compile({&request, 1});
            ASSERT_TRUE(code.ok()) << code.status().to_string();
            expect_as_interpreted((*code)->kernels[0], test, static_cast<uint64_t>(row));
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// One point, or a row of them, adds numbers to places that are loaded: it reads what it wrote.
TEST_P(Levels, PointsReadWhatTheyWrote) {
  for (const int64_t row : {1, 3, 8, 21, 64}) {
    constexpr int64_t kPlaces = 5;
    constexpr int64_t kUpdates = 50;
    Builder b(1, kI32);
    b.set_updated(2);
    const Value lane = b.grid_index(0);
    b.loop(b.index(kUpdates), {}, [&](Value k, const std::vector<Value>&) {
      const Value place = b.load(kI32, {0, 4}, k);
      const Value is_inside = b.binary(Op::kLtU, place, b.index(kPlaces));
      b.loop(b.convert(Op::kBoolToInt, kI32, is_inside), {}, [&](Value, const std::vector<Value>&) {
        const Value at = b.add(b.mul(place, b.index(row)), lane);
        const Value x = b.load(kF32, {1, 4}, b.add(b.mul(k, b.index(row)), lane));
        // The first place as well, whose index does not change.
        const Value first = b.load(kF32, {2, 4}, lane);
        b.store({2, 4}, lane, b.mul(first, b.real(kF32, 0.5)));
        b.store({2, 4}, at, b.add(b.load(kF32, {2, 4}, at), x));
        return std::vector<Value>{};
      });
      return std::vector<Value>{};
    });
    TestKernel test;
    test.elements = {{kI32, 4}, {kF32, 4}, {kF32, 4}};
    test.labels = {"places", "updates", "sums"};
    const int64_t counts[] = {kUpdates, kUpdates * row, kPlaces * row};
    std::mt19937 random(static_cast<uint32_t>(row));
    for (size_t i = 0; i < 3; ++i) {
      test.kernel.operands.push_back({counts[i] * 4, true, i == 2});
      std::vector<std::byte> content(static_cast<size_t>(counts[i]) * 4);
      for (int64_t k = 0; k < counts[i]; ++k) {
        // Some places are outside.
        const auto place = static_cast<int32_t>(random() % (kPlaces + 2)) - 1;
        const float value = static_cast<float>(random() % 1000) / 8;
        std::memcpy(&content[static_cast<size_t>(k) * 4],
                    i == 0 ? static_cast<const void*>(&place) : &value, 4);
      }
      test.contents.push_back(std::move(content));
    }
    test.kernel.name = "add_to_places";
    test.kernel.grid = {row};
    test.kernel.body = b.finish();
    const auto code = compile({&test.kernel});
    ASSERT_NE(code, nullptr);
    expect_as_interpreted(code->kernels[0], test, 1);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Levels, ::testing::Values("sse2", "avx2", "avx512", "native"),
                         [](const auto& info) { return std::string(info.param); });

// y[i] = x[i] + 1 over `count` elements.
Kernel add_one(int64_t count) {
  Builder b(1, kI32);
  const Value x = b.load(kF32, {0, 4}, b.grid_index(0));
  b.store({1, 4}, b.grid_index(0), b.add(x, b.real(kF32, 1)));
  Kernel kernel;
  kernel.name = "add_one";
  kernel.grid = {count};
  kernel.operands = {{count * 4, true, false}, {count * 4, false, true}};
  kernel.body = b.finish();
  return kernel;
}

TEST(KernelCompiler, EqualKernelsAreCompiledOnce) {
  const auto native = compiler("native");
  const Kernel a = add_one(100);
  Kernel b = add_one(100);
  b.name = "another";
  const Kernel c = add_one(101);
  const KernelRequest requests[] = {{&a, false}, {&b, false}, {&c, false}};
  const auto first = native->compile(requests);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ((*first)->compiled_count, 2);
  EXPECT_EQ((*first)->kernels[0].function, (*first)->kernels[1].function);
  const auto second = native->compile(std::span(requests, 2));
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*second)->compiled_count, 0);
  EXPECT_EQ((*second)->kernels[0].function, (*first)->kernels[0].function);
}

TEST(KernelCompiler, CodeGoesWithItsLastUser) {
  const auto native = compiler("native");
  const Kernel kernel = add_one(77);
  const KernelRequest requests[] = {{&kernel, false}};
  auto first = native->compile(requests);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ((*first)->compiled_count, 1);
  first = invalid_argument("dropped");
  const auto second = native->compile(requests);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*second)->compiled_count, 1);
}

// Rows that end within a vector, in place: no point may run twice.
TEST(KernelCompiler, UpdatesInPlaceWhereTheCallerSaysSo) {
  const auto native = compiler("native");
  constexpr int64_t kCount = 1003;
  const Kernel kernel = add_one(kCount);
  const KernelRequest requests[] = {{&kernel, true}};
  const auto code = native->compile(requests);
  ASSERT_TRUE(code.ok());
  std::vector<float> data(kCount, 1.0f);
  const void* operands[] = {data.data(), data.data()};
  (*code)->kernels[0].function(operands, 0, (*code)->kernels[0].schedule.units());
  EXPECT_EQ(data, std::vector<float>(kCount, 2.0f));
}

// A later process is a later compiler here: it shares nothing with the first but the folder.
TEST(KernelCompiler, KeepsCodeOnDisk) {
  const std::string folder = ::testing::TempDir() + "/cpu_objects_" + std::to_string(getpid());
  std::filesystem::remove_all(folder);
  std::vector<Kernel> kernels;
  std::vector<KernelRequest> requests;
  for (int64_t i = 0; i < 20; ++i) kernels.push_back(add_one(50 + i));
  for (const Kernel& kernel : kernels) requests.push_back({&kernel, false});
  auto compile_anew = [&](std::span<const KernelRequest> wanted) {
    const auto made = KernelCompiler::create("native", folder);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    const auto code = (*made)->compile(wanted);
    EXPECT_TRUE(code.ok()) << code.status().to_string();
    return *code;
  };
  EXPECT_EQ(compile_anew(requests)->compiled_count, 20);
  const auto second = compile_anew(requests);
  EXPECT_EQ(second->compiled_count, 0);
  EXPECT_EQ(second->loaded_count, 20);
  std::vector<float> x(69, 1.0f), y(69);
  const void* operands[] = {x.data(), y.data()};
  second->kernels[19].function(operands, 0, second->kernels[19].schedule.units());
  EXPECT_EQ(y, std::vector<float>(69, 2.0f));
  // Another set of kernels is another entry.
  EXPECT_EQ(compile_anew(std::span(requests).first(5))->compiled_count, 5);
  // Damage is found: the code is made again.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) std::filesystem::resize_file(entry.path(), 100);
  }
  EXPECT_EQ(compile_anew(requests)->compiled_count, 20);
  EXPECT_EQ(compile_anew(requests)->loaded_count, 20);
  std::filesystem::remove_all(folder);
}

TEST(ObjectStore, UnpacksWhatItPackedAndRefusesTheRest) {
  const ObjectFile a{{"one", "two"}, std::string("\0binary", 7)};
  const ObjectFile b{{}, ""};
  const ObjectFile* objects[] = {&a, &b};
  const std::vector<std::byte> bytes = ObjectStore::pack(objects);
  const auto back = ObjectStore::unpack(bytes);
  ASSERT_TRUE(back.has_value());
  ASSERT_EQ(back->size(), 2u);
  EXPECT_EQ((*back)[0].symbols, a.symbols);
  EXPECT_EQ((*back)[0].bytes, a.bytes);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ObjectStore::unpack(std::span(bytes).first(size)).has_value()) << size;
  }
}

TEST(KernelCompiler, AGridWithAZeroHasNoUnits) {
  const auto native = compiler("native");
  const Kernel kernel = add_one(0);
  const KernelRequest requests[] = {{&kernel, false}};
  const auto code = native->compile(requests);
  ASSERT_TRUE(code.ok()) << code.status().to_string();
  EXPECT_EQ((*code)->kernels[0].schedule.units(), 0);
}

TEST(KernelCompiler, CodeOutlivesTheCompiler) {
  auto made = KernelCompiler::create();
  ASSERT_TRUE(made.ok());
  const Kernel kernel = add_one(8);
  const KernelRequest requests[] = {{&kernel, false}};
  const auto code = (*made)->compile(requests);
  ASSERT_TRUE(code.ok());
  made = invalid_argument("dropped");
  std::vector<float> x(8, 1.0f), y(8);
  const void* operands[] = {x.data(), y.data()};
  (*code)->kernels[0].function(operands, 0, 1);
  EXPECT_EQ(y, std::vector<float>(8, 2.0f));
}

TEST(KernelCompiler, ShowsItsCode) {
  const auto native = compiler("native");
  const Kernel kernel = add_one(1000);
  const auto llvm = native->llvm_text({&kernel, false});
  ASSERT_TRUE(llvm.ok());
  EXPECT_NE(llvm->find("fadd <"), std::string::npos) << *llvm;
  const auto assembly = native->assembly_text({&kernel, false});
  ASSERT_TRUE(assembly.ok());
  EXPECT_NE(assembly->find("ret"), std::string::npos);
}

// Code for machines that this one is not can at least be generated.
TEST(ObjectWriter, CompilesRandomKernelsForEveryLevel) {
  for (const char* level : {"sse2", "avx2", "avx512"}) {
    const Result<Target> target = make_target(level);
    if (!target.ok()) GTEST_SKIP() << target.status().message();
    const auto writer = ObjectWriter::create(*target);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    for (uint64_t seed = 0; seed < testing::sweep(50, 12); ++seed) {
      const TestKernel made = random_kernel(seed);
      const KernelPlan plan = plan_kernel(made.kernel, target->vector_bits);
      const KernelCode code{made.kernel, plan, *target, seed % 2 == 0};
      const auto object = (*writer)->object_file({{code, "kernel"}});
      ASSERT_TRUE(object.ok()) << level << ", seed " << seed << ": " << object.status().to_string();
    }
  }
}

TEST(KernelCompiler, NamesTheLevelsThereAre) {
  const auto made = KernelCompiler::create("avx7");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(made.status().message().find("avx512"), std::string::npos);
}

}  // namespace
}  // namespace hekla::cpu
