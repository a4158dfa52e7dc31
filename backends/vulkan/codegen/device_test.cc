// SPDX-License-Identifier: Apache-2.0
// Generated shaders on the system's Vulkan device against the kernel interpreter, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/interpreter.h"
#include "backends/vulkan/codegen/generate.h"
#include "backends/vulkan/codegen/schedule.h"
#include "backends/vulkan/codegen/testing/contraction_kernel.h"
#include "backends/vulkan/codegen/testing/denormals.h"
#include "backends/vulkan/codegen/testing/on_device.h"
#include "backends/vulkan/codegen/testing/transpose_kernel.h"
#include "backends/vulkan/device/testing/test_device.h"
#include "runtime/base/testing/instrumented.h"

namespace hekla::vulkan {
namespace {

using kernel::Op;
using kernel::ScalarType;
using kernel::testing::Buffers;
using kernel::testing::OpCase;
using kernel::testing::TestKernel;
using testing::OnDevice;
using testing::RunOptions;

std::map<ScalarType, std::vector<OpCase>> cases_by_type() {
  std::map<ScalarType, std::vector<OpCase>> groups;
  for (const OpCase& c : kernel::testing::all_op_cases()) {
    if (c.op != Op::kFma) groups[c.from].push_back(c);
  }
  return groups;
}

// Of each row of x [rows, iterations]: the sum of x * x + 1 and of more sums, the place of the last
// element that is greater than the one before, and whether an odd number of them is positive, as a
// truth value that goes from iteration to iteration. In place: the sums take the rows' first
// elements' place.
TestKernel row_kernel(ScalarType type, int64_t rows, int64_t iterations, bool is_in_place) {
  const auto bytes = static_cast<uint8_t>(kernel::bit_width(type) / 8);
  kernel::Builder b(1, ScalarType::kI32);
  const kernel::Value row = b.grid_index(0), first = b.mul(row, b.index(iterations));
  const kernel::Value one = kernel::is_float(type) ? b.real(type, 1) : b.integer(type, 1);
  const kernel::Value none = kernel::is_float(type) ? b.real(type, 0) : b.integer(type, 0);
  const Op less = kernel::is_float(type) ? Op::kLt : Op::kLtS;
  const std::vector<kernel::Value> results = b.loop(
      b.index(iterations), {none, none, b.index(-1), b.boolean(false)},
      [&](kernel::Value iteration, const std::vector<kernel::Value>& carried) {
        const kernel::Value x = b.load(type, {0, bytes}, b.add(first, iteration));
        const kernel::Value rises = b.binary(less, carried[1], x);
        return std::vector<kernel::Value>{b.add(carried[0], b.add(b.mul(x, x), one)), x,
                                          b.select(rises, iteration, carried[2]),
                                          b.binary(Op::kXor, carried[3], b.binary(less, none, x))};
      });
  const kernel::Value sum =
      b.loop(b.index(3), {results[0]}, [&](kernel::Value, const std::vector<kernel::Value>& outer) {
        const kernel::Value again =
            b.loop(b.index(iterations), {none},
                   [&](kernel::Value iteration, const std::vector<kernel::Value>& c) {
                     return std::vector<kernel::Value>{
                         b.add(c[0], b.load(type, {0, bytes}, b.add(first, iteration)))};
                   })[0];
        return std::vector<kernel::Value>{b.sub(b.add(outer[0], again), one)};
      })[0];
  b.store({is_in_place ? 0 : 1, bytes}, is_in_place ? first : row, sum);
  b.store({2, 4}, row, results[2]);
  b.store({3, 4}, row, b.convert(Op::kBoolToInt, ScalarType::kI32, results[3]));
  TestKernel test;
  test.kernel.name = "rows";
  test.kernel.grid = {rows};
  test.kernel.body = b.finish();
  for (int i = 0; i < 4; ++i) {
    const ScalarType element = i < 2 ? type : ScalarType::kI32;
    const int64_t size = rows * (i == 0 ? iterations : 1) * kernel::bit_width(element) / 8;
    test.kernel.operands.push_back({size, i == 0, i > 0 || is_in_place, false});
    test.elements.push_back({element, static_cast<uint8_t>(kernel::bit_width(element) / 8)});
    test.labels.emplace_back("operand");
    test.contents.emplace_back(static_cast<size_t>(size));
  }
  for (int64_t i = 0; i < rows * iterations; ++i) {
    const int64_t number = i * 7919 % 31 - 15;
    const auto put = [&](auto value) {
      std::memcpy(&test.contents[0][static_cast<size_t>(i) * sizeof(value)], &value, sizeof(value));
    };
    if (type == ScalarType::kI32) put(static_cast<int32_t>(number));
    if (type == ScalarType::kF32) put(static_cast<float>(number) * 0.3F);
    if (type == ScalarType::kF64) put(static_cast<double>(number) * 0.3);
  }
  return test;
}

// "200" or "1000+200" in HEKLA_RANDOM_KERNELS: how many, and from which seed on.
std::pair<uint64_t, uint64_t> seeds(uint64_t count) {
  const char* text = std::getenv("HEKLA_RANDOM_KERNELS");
  if (text == nullptr) return {0, count};
  char* end = nullptr;
  const uint64_t number = std::strtoull(text, &end, 10);
  if (*end != '+') return {0, number};
  return {number, number + std::strtoull(end + 1, nullptr, 10)};
}

TEST_F(OnDevice, OpsAtEdgeValues) {
  for (const auto& [from, cases] : cases_by_type()) {
    EXPECT_EQ(difference(kernel::testing::op_kernel(cases), target()), "");
  }
}

TEST_F(OnDevice, RandomKernels) {
  const auto [first, last] = seeds(60);
  for (uint64_t seed = first; seed < last; ++seed) {
    EXPECT_EQ(difference(kernel::testing::random_kernel(seed), target()), "") << seed;
  }
}

// Any right schedule of a kernel, also those that its size or this device would not be given. Each
// kind is among them.
TEST_F(OnDevice, DrawnSchedules) {
  std::map<std::string_view, int> counts;
  for (const std::string_view name : codegen::schedule_names()) counts[name] = 0;
  constexpr uint64_t kKernels = hekla::testing::sweep(70, 10);
  const auto [first, last] = seeds(kKernels);
  for (uint64_t seed = first; seed < last; ++seed) {
    for (const uint64_t draw : {2 * seed + 1, 2 * seed + 2}) {
      Target t = target();
      t.schedule_seed = draw;
      const TestKernel test =
          seed % 4 == 0   ? testing::contraction_kernel(testing::random_contraction(seed), seed)
          : seed % 8 == 3 ? testing::transpose_kernel(seed)
                          : kernel::testing::random_kernel(seed, {.teams = seed % 4 == 1});
      kernel::Implementations asked;
      const codegen::Schedule schedule =
          codegen::choose_schedule(kernel::IndexAnalysis(test.kernel), t, &asked);
      const std::string_view name = codegen::schedule_name(schedule);
      ++counts[name];
      EXPECT_EQ(difference(test, t), "")
          << "kernel " << seed << ", schedule " << draw << ", " << name;
      // What was taken is what runs.
      const std::string taken(asked.taken());
      EXPECT_EQ(taken.ends_with("in shared memory"),
                schedule.staged_depth > 0 || schedule.transposed_loads > 0)
          << name;
      EXPECT_EQ(taken.starts_with("transposed"), schedule.transposed_loads > 0) << name;
      EXPECT_EQ(taken == "subgroup per point", schedule.shares_point) << name;
      EXPECT_EQ(taken == "teams of a workgroup", schedule.team_points > 0) << name;
      EXPECT_EQ(taken == "points", !schedule.is_tiled && !schedule.shares_point &&
                                       schedule.team_points == 0 && schedule.transposed_loads == 0)
          << name;
    }
  }
  for (const auto& [name, count] : counts) {
    const bool needs_lanes =
        name.find("lanes") != std::string_view::npos || name.find("subgroup") != name.npos;
    if (last - first < 50 || (needs_lanes && !target().subgroup_shuffle)) continue;
    EXPECT_GT(count, 0) << name;
  }
}

// Operands in other orders than their results: as a GPU is given them, and in tiles of any size.
TEST_F(OnDevice, Transposes) {
  constexpr uint64_t kKernels = hekla::testing::sweep(40, 10);
  const auto [first, last] = seeds(kKernels);
  int transposed = 0;
  for (uint64_t seed = first; seed < last; ++seed) {
    const TestKernel test = testing::transpose_kernel(seed);
    for (const uint64_t draw : {uint64_t{0}, 2 * seed + 1, 2 * seed + 2}) {
      Target t = target();
      t.is_cpu = false;
      t.schedule_seed = draw;
      const codegen::Schedule schedule =
          codegen::choose_schedule(kernel::IndexAnalysis(test.kernel), t);
      transposed += schedule.transposed_loads > 0 ? 1 : 0;
      EXPECT_EQ(difference(test, t), "")
          << "kernel " << seed << ", schedule " << draw << ", " << schedule_name(schedule);
    }
  }
  EXPECT_GT(transposed, static_cast<int>(last - first) / 2);
}

// What other devices have or lack, on this one.

TEST_F(OnDevice, ExactByIntegersAtEdgeValues) {
  Target t = target();
  for (FloatTarget* f : {&t.f32, &t.f64}) {
    f->exact_division = f->exact_square_root = f->exact_rounding = false;
  }
  for (const ScalarType type : {ScalarType::kF32, ScalarType::kF64}) {
    std::vector<OpCase> cases;
    for (const Op op : {Op::kDiv, Op::kSqrt, Op::kFloor, Op::kCeil, Op::kTrunc, Op::kRoundEven}) {
      cases.push_back({op, type, type});
    }
    for (uint64_t seed = 1; seed < hekla::testing::sweep(4, 2); ++seed) {
      EXPECT_EQ(difference(kernel::testing::op_kernel(cases, seed), t), "");
    }
  }
}

// What a target with a fused multiply-add is trusted with: that it is one, and that division takes
// no more than that.
TEST_F(OnDevice, FusedMultiplyAddAndDivision) {
  const Target t = target();
  if (!t.f32.fused_multiply_add) GTEST_SKIP() << t.device << " is not trusted with it";
  constexpr int64_t kPoints = 1 << 20;
  kernel::Builder b(1, ScalarType::kI32);
  std::vector<kernel::Value> v;
  for (int32_t i = 0; i < 3; ++i) v.push_back(b.load(ScalarType::kF32, {i, 4}, b.grid_index(0)));
  b.store({3, 4}, b.grid_index(0), b.div(v[0], v[1]));
  b.store({4, 4}, b.grid_index(0), b.fma(v[0], v[1], v[2]));
  TestKernel test;
  test.kernel.name = "division";
  test.kernel.grid = {kPoints};
  test.kernel.body = b.finish();
  for (int i = 0; i < 5; ++i) {
    test.kernel.operands.push_back({kPoints * 4, i < 3, i >= 3, false});
    test.elements.push_back({ScalarType::kF32, 4});
    test.labels.emplace_back(i == 3 ? "quotient" : "fused");
    test.contents.emplace_back(size_t{kPoints} * 4);
  }
  for (const uint32_t exponents : {1U, 40U, 200U}) {
    std::mt19937 random(exponents);
    for (size_t i = 0; i < size_t{3} * kPoints; ++i) {
      const uint32_t bits = random();
      const uint32_t exponent = 127 - exponents / 2 + random() % exponents;
      const uint32_t word = (bits & 0x807fffff) | exponent << 23;
      std::memcpy(&test.contents[i / kPoints][i % kPoints * 4], &word, sizeof(word));
    }
    EXPECT_EQ(difference(test, t), "") << exponents;
  }
}

TEST_F(OnDevice, GpuSchedules) {
  Target t = target();
  t.is_cpu = t.splits_store_chains = false;
  for (uint64_t seed = 100; seed < 110; ++seed) {
    t.workgroup_size = seed % 2 == 0 ? 0 : 96;
    t.points_per_invocation = static_cast<uint32_t>(seed % 4);
    EXPECT_EQ(difference(kernel::testing::random_kernel(seed), t), "") << seed;
  }
}

// Points that exchange values: as this device does it, as a GPU does, and without subgroups.
TEST_F(OnDevice, Teams) {
  for (uint64_t seed = 0; seed < hekla::testing::sweep(24, 9); ++seed) {
    Target t = target();
    if (seed % 3 == 1) t.is_cpu = t.splits_store_chains = false;
    if (seed % 3 == 2) t.subgroup_shuffle = false;
    const TestKernel test = kernel::testing::random_kernel(seed, {.teams = true});
    EXPECT_EQ(difference(test, t), "") << seed;
  }
}

// Kernels with loops of few points, which a GPU's subgroups do together.
TEST_F(OnDevice, PointsSharedByLanes) {
  Target t = target();
  if (!t.subgroup_shuffle) GTEST_SKIP() << t.device << " has no subgroups of one size";
  t.is_cpu = t.splits_store_chains = false;
  for (const int64_t iterations : {16, 31, 32, 33, 100}) {
    for (const ScalarType type : {ScalarType::kI32, ScalarType::kF32, ScalarType::kF64}) {
      for (const bool is_in_place : {false, true}) {
        const TestKernel test = row_kernel(type, 37, iterations, is_in_place);
        EXPECT_TRUE(codegen::choose_schedule(kernel::IndexAnalysis(test.kernel), t).shares_point);
        EXPECT_EQ(difference(test, t), "") << iterations << " iterations";
      }
    }
  }
}

// Many of them, which load the iterations of a block together.
TEST_F(OnDevice, IterationsThroughSharedMemory) {
  Target t = target();
  t.is_cpu = t.splits_store_chains = false;
  int number = 0;
  for (const int64_t iterations : {32, 45, 96}) {
    for (const ScalarType type : {ScalarType::kI32, ScalarType::kF32, ScalarType::kF64}) {
      for (const bool is_in_place : {false, true}) {
        // 5 and the six of a number of iterations have no common divisor: each of the values
        // occurs.
        if (number++ % hekla::testing::sweep(1, 5) != 0) continue;
        const TestKernel test = row_kernel(type, 5001, iterations, is_in_place);
        EXPECT_GT(codegen::choose_schedule(kernel::IndexAnalysis(test.kernel), t).staged_depth, 0u);
        EXPECT_EQ(difference(test, t), "") << iterations << " iterations";
      }
    }
  }
}

// The tiles of CPU devices, with contiguous columns and without, and of GPUs in shared memory of
// different sizes: the same bits as point by point.
TEST_F(OnDevice, TiledContractions) {
  int tiled = 0, staged = 0;
  constexpr uint64_t kKernels = hekla::testing::sweep(60, 15);
  for (uint64_t seed = 0; seed < kKernels; ++seed) {
    const TestKernel test = testing::contraction_kernel(testing::random_contraction(seed), seed);
    Target t = target();
    if (seed % 3 == 1) {
      t.tile_columns = 1 + static_cast<uint32_t>(seed / 3 % 5);
      t.tile_rows = 1 + static_cast<uint32_t>(seed / 15 % 3);
      t.subgroup_shuffle = seed % 2 == 0;
    } else if (seed % 3 == 2) {
      t.is_cpu = t.splits_store_chains = false;
      t.max_workgroup_invocations = t.max_workgroup_size_x = seed % 2 == 0 ? 1024 : 128;
      t.max_shared_memory_bytes = seed % 4 == 0 ? 32768 : 4096;
    }
    const codegen::Schedule s = codegen::choose_schedule(kernel::IndexAnalysis(test.kernel), t);
    tiled += s.is_tiled ? 1 : 0;
    staged += s.staged_depth > 0 ? 1 : 0;
    EXPECT_EQ(difference(test, t), "") << seed;
  }
  EXPECT_GT(tiled, static_cast<int>(kKernels) * 3 / 4);
  EXPECT_EQ(staged, static_cast<int>(target().is_cpu ? kKernels / 3 : kKernels));
}

// Contiguous elements of 1, 2 and 4 bytes, at every alignment, loaded and stored in words that hold
// several.
TEST_F(OnDevice, RunsOfContiguousElements) {
  constexpr int64_t kRows = 3, kColumns = 72, kPadding = 8;
  for (const uint8_t bytes : {1, 2, 4}) {
    for (const int64_t offset : {0, 1, 2, 4}) {
      kernel::Builder b(2, ScalarType::kI32);
      const kernel::Value row = b.grid_index(0), column = b.grid_index(1);
      const kernel::Value to = b.add(b.mul(row, b.index(kColumns)), column);
      const kernel::Value from = b.add(b.mul(row, b.index(kColumns + kPadding)), column);
      const kernel::Value x =
          b.load(ScalarType::kI32, {0, bytes, offset % 2 == 0}, b.add(from, b.index(offset)));
      const kernel::Value y = b.load(ScalarType::kI32, {1, bytes, false}, row);
      b.store({2, bytes}, to, b.add(x, b.mul(y, column)));
      b.store({3, 4}, to, x);
      TestKernel test;
      test.kernel.name = "runs";
      test.kernel.grid = {kRows, kColumns};
      test.kernel.body = b.finish();
      const int64_t sizes[] = {kRows * (kColumns + kPadding) * bytes, kRows * bytes,
                               kRows * kColumns * bytes, kRows * kColumns * 4};
      for (size_t i = 0; i < 4; ++i) {
        test.kernel.operands.push_back({sizes[i], i < 2, i >= 2, false});
        test.elements.push_back({ScalarType::kI32, i < 3 ? bytes : uint8_t{4}});
        test.labels.emplace_back("operand");
        std::vector<std::byte>& memory = test.contents.emplace_back();
        for (int64_t k = 0; k < sizes[i]; ++k) memory.push_back(std::byte(k * 37 + 11));
      }
      const bool are_joined = target().is_cpu && (bytes < 4 || target().int64);
      EXPECT_GT(codegen::choose_schedule(kernel::IndexAnalysis(test.kernel), target()).columns,
                are_joined ? 1u : 0u);
      EXPECT_EQ(difference(test, target()), "") << int{bytes} << " bytes from " << offset;
    }
  }
}

// As many points as get several each on a GPU, in words of 64 bits.
TEST_F(OnDevice, PlentyOfPoints) {
  constexpr int64_t kRows = 1 << 10, kColumns = 1 << 10;
  Target t = target();
  t.is_cpu = t.splits_store_chains = false;
  kernel::Builder b(2, ScalarType::kI32);
  const kernel::Value at = b.add(b.mul(b.grid_index(0), b.index(kColumns)), b.grid_index(1));
  const kernel::Value x = b.load(ScalarType::kF32, {0, 4}, at);
  const kernel::Value y = b.load(ScalarType::kI32, {1, 2, true}, b.grid_index(1));
  b.store({2, 4}, at, b.add(b.mul(x, x), b.convert(Op::kSIntToFloat, ScalarType::kF32, y)));
  b.store({3, 2}, at, b.add(y, b.grid_index(0)));
  TestKernel test;
  test.kernel.name = "plenty";
  test.kernel.grid = {kRows, kColumns};
  test.kernel.body = b.finish();
  const int64_t sizes[] = {kRows * kColumns * 4, kColumns * 2, kRows * kColumns * 4,
                           kRows * kColumns * 2};
  for (size_t i = 0; i < 4; ++i) {
    test.kernel.operands.push_back({sizes[i], i < 2, i >= 2, false});
    test.elements.push_back(i % 2 == 0 ? kernel::testing::Element{ScalarType::kF32, 4}
                                       : kernel::testing::Element{ScalarType::kI32, 2});
    test.labels.emplace_back("operand");
    std::vector<std::byte>& memory = test.contents.emplace_back();
    for (int64_t k = 0; k < sizes[i]; ++k) {
      // Moderate floats: the upper byte is 0x40.
      memory.push_back(i == 0 && k % 4 == 3 ? std::byte{0x40} : std::byte(k * 37 + 11));
    }
  }
  EXPECT_EQ(codegen::choose_schedule(kernel::IndexAnalysis(test.kernel), t).columns > 1,
            t.int64 || !t.storage_16);
  EXPECT_EQ(difference(test, t), "");
}

TEST_F(OnDevice, GridsInPieces) {
  Target t = target();
  t.workgroup_size = 8;
  t.points_per_invocation = 1;
  for (uint64_t seed = 110; seed < 115; ++seed) {
    const RunOptions options{.max_groups = 17, .max_x = 2, .max_y = 8};
    EXPECT_EQ(difference(kernel::testing::random_kernel(seed), t, options), "") << seed;
  }
}

TEST_F(OnDevice, WideAddressesAndPoints) {
  Target t = target();
  if (!t.int64) GTEST_SKIP() << t.device << " has no 64-bit integers";
  t.max_narrow_bytes = 100;
  t.max_narrow_points = 10;
  for (uint64_t seed = 120; seed < 130; ++seed) {
    EXPECT_EQ(difference(kernel::testing::random_kernel(seed), t), "") << seed;
  }
}

TEST_F(OnDevice, WithoutNarrowStorage) {
  for (uint64_t seed = 130; seed < 150; ++seed) {
    Target t = target();
    t.storage_8 = t.storage_8 && seed % 4 == 0;
    t.storage_16 = t.storage_16 && seed % 4 == 1;
    if (seed % 2 == 0) t.is_cpu = t.splits_store_chains = false;
    EXPECT_EQ(difference(kernel::testing::random_kernel(seed), t), "") << seed;
  }
}

// Bytes whose neighbours in a word are written by other invocations and other workgroups.
TEST_F(OnDevice, BytesWithoutNarrowStorage) {
  for (const int64_t columns : {1, 5, 64, 1001}) {
    kernel::Builder b(2, ScalarType::kI32);
    const kernel::Value at = b.add(b.mul(b.grid_index(0), b.index(columns)), b.grid_index(1));
    const kernel::Value x = b.load(ScalarType::kI32, {0, 1, true}, at);
    b.store({1, 1}, at, b.mul(x, x));
    b.store({2, 2}, at, b.add(x, b.index(300)));
    TestKernel test;
    test.kernel.name = "bytes";
    test.kernel.grid = {37, columns};
    test.kernel.body = b.finish();
    for (const uint8_t bytes : {1, 1, 2}) {
      const int64_t size = 37 * columns * bytes;
      test.kernel.operands.push_back({size, test.elements.empty(), !test.elements.empty(), false});
      test.elements.push_back({ScalarType::kI32, bytes});
      test.labels.emplace_back("operand");
      std::vector<std::byte>& memory = test.contents.emplace_back();
      for (int64_t i = 0; i < size; ++i) memory.push_back(std::byte(i * 73 + 5));
    }
    for (const bool is_cpu : {true, false}) {
      Target t = target();
      t.storage_8 = t.storage_16 = false;
      t.is_cpu = is_cpu;
      EXPECT_EQ(difference(test, t), "") << columns;
    }
  }
}

// With and without f64 of the device, whose bits need integers as long.
TEST_F(OnDevice, WithoutLongIntegers) {
  for (uint64_t seed = 140; seed < 160; ++seed) {
    Target t = target();
    t.int64 = false;
    t.float64 = t.float64 && seed % 2 == 0;
    t.f64.exact_rounding = seed % 4 == 0 && rounds_doubles_right();
    kernel::testing::RandomOptions options;
    options.i64 = seed % 4 != 0;
    options.f64 = seed % 3 != 0;
    EXPECT_EQ(difference(kernel::testing::random_kernel(seed, options), t), "") << seed;
  }
}

TEST_F(OnDevice, WithoutDoubles) {
  Target t = target();
  t.float64 = false;
  for (uint64_t seed = 160; seed < 170; ++seed) {
    EXPECT_EQ(difference(kernel::testing::random_kernel(seed), t), "") << seed;
  }
}

// Kernels that the device cannot run have its bits on the host.
TEST_F(OnDevice, FmaIsRoundedAsTheTargetSays) {
  for (const bool has_f64 : {true, false}) {
    Target t = target();
    t.float64 &= has_f64;
    if (!(t.f32.fused_multiply_add || t.f32.split_multiply_add)) {
      GTEST_SKIP() << t.device << ": not known";
    }
    for (const ScalarType type : {ScalarType::kF32, ScalarType::kF64}) {
      EXPECT_EQ(difference(kernel::testing::op_kernel({OpCase{Op::kFma, type, type}}), t), "");
    }
    kernel::testing::RandomOptions options;
    options.fma = true;
    for (uint64_t seed = 500; seed < 530; ++seed) {
      EXPECT_EQ(difference(kernel::testing::random_kernel(seed, options), t), "") << seed;
    }
  }
}

// kFma may be rounded once or twice, and nothing else.
TEST_F(OnDevice, FmaIsFusedOrNot) {
  for (const ScalarType type : {ScalarType::kF32, ScalarType::kF64}) {
    const OpCase fma{Op::kFma, type, type};
    const TestKernel fused = kernel::testing::op_kernel({fma});
    // The same operands, multiplied and added.
    TestKernel twice = fused;
    kernel::Builder b(1, ScalarType::kI32);
    const auto bytes = fused.elements[0].bytes;
    std::vector<kernel::Value> v;
    for (int32_t k = 0; k < 3; ++k) v.push_back(b.load(type, {k, bytes}, b.grid_index(0)));
    b.store({3, bytes}, b.grid_index(0), b.add(b.mul(v[0], v[1]), v[2]));
    twice.kernel.body = b.finish();

    Buffers once = fused.contents, both = fused.contents, actual = fused.contents;
    ASSERT_TRUE(interpret(fused.kernel, kernel::testing::spans(once)).ok());
    ASSERT_TRUE(interpret(twice.kernel, kernel::testing::spans(both)).ok());
    const Result<Shader> shader = generate(fused.kernel, target());
    ASSERT_TRUE(shader.ok() && runner_->run(*shader, actual).ok());
    // Where the device agrees with the unfused result, the fused one is as good; so it is where it
    // may have taken denormals for zero in either.
    Buffers flushed = fused.contents;
    if (!testing::keeps_denormals(target_)) {
      const testing::FlushDenormals flush;
      ASSERT_TRUE(interpret(twice.kernel, kernel::testing::spans(flushed)).ok());
    }
    const auto is_same = [&](const std::byte* a, const std::byte* b) {
      const auto is_nan = [&](const std::byte* x) {
        double wide = 0;
        float narrow = 0;
        if (bytes == 8) std::memcpy(&wide, x, bytes);
        if (bytes == 4) std::memcpy(&narrow, x, bytes);
        return std::isnan(bytes == 8 ? wide : narrow);
      };
      return std::memcmp(a, b, bytes) == 0 || (is_nan(a) && is_nan(b));
    };
    for (size_t i = 0; i < actual[3].size(); i += bytes) {
      if (is_same(&actual[3][i], &both[3][i]) || is_same(&actual[3][i], &flushed[3][i])) {
        std::memcpy(&actual[3][i], &once[3][i], bytes);
      }
    }
    leave_out_denormals(fused, once, actual);
    EXPECT_EQ(kernel::testing::difference(fused, once, actual), "");
  }
}

// Runs of several words, of whole elements and of parts, one word at a time.
TEST_F(OnDevice, WithoutPointerCasts) {
  for (uint64_t seed = 0; seed < hekla::testing::sweep(24, 6); ++seed) {
    Target t = target();
    t.casts_pointers = t.int64 = t.float64 = t.storage_8 = t.storage_16 = false;
    if (seed % 3 == 0) t.is_cpu = t.splits_store_chains = false;
    testing::ContractionShape shape = testing::random_contraction(seed);
    if (seed % 4 == 0) shape.columns = 64;
    EXPECT_EQ(difference(testing::contraction_kernel(shape, seed), t), "") << seed;
    EXPECT_EQ(difference(kernel::testing::random_kernel(seed), t), "") << seed;
  }
}

}  // namespace
}  // namespace hekla::vulkan
