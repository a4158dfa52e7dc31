// SPDX-License-Identifier: Apache-2.0
// Native kernels whose lanes load and store apart from each other, against the interpreter.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/interpreter.h"
#include "backends/compiler/kernel/testing/random_kernel.h"
#include "backends/cpu/jit/testing/kernel_levels.h"

namespace hekla::cpu {
namespace {

using kernel::Builder;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;
using kernel::testing::Buffers;
using kernel::testing::random_kernel;
using kernel::testing::TestKernel;

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

// Loads `from` elements apart, backwards below 0, and stores that lie `to` apart, of which `stored`
// side by side are written: all of them, or not; in reversed order, to each of `planes` that lie
// one behind the other. `blocks`: runs of 8 points that lie apart by more.
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
  const Value forward = b.add(b.mul(b.grid_index(0), b.index(row)), at);
  const Value in = from < 0 ? b.sub(b.index(kRows * row - 1), forward) : forward;
  const int64_t step = from < 0 ? -from : from;
  const Value out = b.add(b.mul(b.grid_index(0), b.index(most)), place);
  for (int64_t plane = planes; plane-- > 0;) {
    const Value here = b.add(out, b.index(plane * kRows * most));
    for (int64_t k = stored; k-- > 0;) {
      const Value x = b.load(type, {0, width}, b.add(b.mul(in, b.index(step)), b.index(k % step)));
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
  const int64_t counts[] = {kRows * row * step, planes * kRows * most * to};
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
                                                 {2, 32, 4, 1},
                                                 {-2, 2, 2, 1},
                                                 {-3, 4, 3, 1}}) {
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

// Elements of `parts` numbers, side by side, are added to places that are loaded: all parts are
// read before they are written, or one after the other, or each sees the number before it as just
// written.
TEST_P(Levels, PartsAddedInLoops) {
  enum class Order { kTogether, kInTurns, kChained };
  for (const Order order : {Order::kTogether, Order::kInTurns, Order::kChained}) {
    struct Case {
      int64_t row, parts, bytes;
    };
    for (const Case& c : {Case{1, 2, 4},
                          {3, 2, 4},
                          {8, 2, 4},
                          {16, 4, 4},
                          {21, 2, 4},
                          {64, 2, 4},
                          {33, 4, 8},
                          {4, 2, 8},
                          {8, 3, 4},
                          {40, 2, 8}}) {
      const int64_t row = c.row, parts = c.parts, bytes = c.bytes;
      constexpr int64_t kPlaces = 5;
      constexpr int64_t kUpdates = 50;
      const ScalarType type = bytes == 8 ? ScalarType::kF64 : kF32;
      const auto width = static_cast<uint8_t>(bytes);
      Builder b(1, kI32);
      b.set_updated(2);
      const Value lane = b.grid_index(0);
      b.loop(b.index(kUpdates), {}, [&](Value k, const std::vector<Value>&) {
        const Value place = b.load(kI32, {0, 4}, k);
        const auto first_part = [&](Value line) {
          return b.mul(b.add(b.mul(line, b.index(row)), lane), b.index(parts));
        };
        std::vector<Value> updates;
        for (int64_t i = 0; i < parts; ++i) {
          updates.push_back(b.load(type, {1, width}, b.add(first_part(k), b.index(i))));
        }
        const Value is_inside = b.binary(Op::kLtU, place, b.index(kPlaces));
        b.loop(b.convert(Op::kBoolToInt, kI32, is_inside), {},
               [&](Value, const std::vector<Value>&) {
                 const auto at = [&](int64_t i) { return b.add(first_part(place), b.index(i)); };
                 const auto load = [&](int64_t i) { return b.load(type, {2, width}, at(i)); };
                 std::vector<Value> before;
                 for (int64_t i = 0; i < parts && order == Order::kTogether; ++i) {
                   before.push_back(load(i));
                 }
                 for (int64_t i = 0; i < parts; ++i) {
                   Value x = order == Order::kTogether ? before[static_cast<size_t>(i)] : load(i);
                   if (order == Order::kChained && i > 0) x = b.sub(x, load(i - 1));
                   b.store({2, width}, at(i), b.add(x, updates[static_cast<size_t>(i)]));
                 }
                 return std::vector<Value>{};
               });
        return std::vector<Value>{};
      });
      TestKernel test;
      test.elements = {{kI32, 4}, {type, width}, {type, width}};
      test.labels = {"places", "updates", "sums"};
      const int64_t counts[] = {kUpdates, kUpdates * row * parts, kPlaces * row * parts};
      std::mt19937 random(static_cast<uint32_t>(row));
      for (size_t i = 0; i < 3; ++i) {
        const int64_t size = i == 0 ? 4 : bytes;
        test.kernel.operands.push_back({counts[i] * size, true, i == 2});
        std::vector<std::byte> content(static_cast<size_t>(counts[i] * size));
        for (int64_t k = 0; k < counts[i]; ++k) {
          const auto place = static_cast<int32_t>(random() % (kPlaces + 2)) - 1;
          const double wide = static_cast<double>(random() % 1000) / 8;
          const auto narrow = static_cast<float>(wide);
          const void* from = &wide;
          if (i == 0) from = &place;
          if (i != 0 && bytes == 4) from = &narrow;
          std::memcpy(&content[static_cast<size_t>(k * size)], from, static_cast<size_t>(size));
        }
        test.contents.push_back(std::move(content));
      }
      test.kernel.name = "add_parts";
      test.kernel.grid = {row};
      test.kernel.body = b.finish();
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

}  // namespace
}  // namespace hekla::cpu
