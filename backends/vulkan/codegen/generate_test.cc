// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include <glslang/SPIRV/spirv.hpp>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/testing/random_kernel.h"
#include "backends/vulkan/codegen/schedule.h"
#include "backends/vulkan/codegen/testing/contraction_kernel.h"
#include "backends/vulkan/codegen/tile.h"
#include "backends/vulkan/snapshot/snapshot.h"

namespace hekla::vulkan {
namespace {

using kernel::Builder;
using kernel::Kernel;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;
using kernel::testing::TestKernel;

constexpr ScalarType kI32 = ScalarType::kI32;
constexpr ScalarType kI64 = ScalarType::kI64;
constexpr ScalarType kF32 = ScalarType::kF32;
constexpr ScalarType kF64 = ScalarType::kF64;

Target full_target() {
  Target t;
  t.device = "a test device";
  t.int64 = t.float64 = t.storage_8 = t.storage_16 = true;
  t.f32 = t.f64 = {.signed_zero_inf_nan_preserve = true, .rounding_rte = true};
  t.max_workgroup_invocations = t.max_workgroup_size_x = 1024;
  return t;
}

// y = op(x) over n elements of `type`, which lie in memory as such.
Kernel elementwise(int64_t n, ScalarType type, int operations, ScalarType index = kI32) {
  Builder b(1, index);
  const auto bytes = static_cast<uint8_t>(kernel::bit_width(type) / 8);
  Value v = b.load(type, {0, bytes}, b.grid_index(0));
  for (int i = 0; i < operations; ++i) v = b.mul(v, b.add(v, b.integer(type, i + 1)));
  b.store({1, bytes}, b.grid_index(0), v);
  Kernel k;
  k.name = "chain";
  k.grid = {n};
  k.index_type = index;
  k.operands = {{n * bytes, true, false}, {n * bytes, false, true}};
  k.body = b.finish();
  return k;
}

struct Instruction {
  spv::Op op;
  std::vector<uint32_t> words;  // operands, with type and result
};

std::vector<Instruction> parse(const Shader& shader) {
  std::vector<Instruction> result;
  constexpr size_t kHeader = 5;
  for (size_t at = kHeader; at < shader.words.size();) {
    const uint32_t first = shader.words[at];
    const uint32_t count = first >> spv::WordCountShift;
    result.push_back({static_cast<spv::Op>(first & spv::OpCodeMask),
                      {shader.words.begin() + static_cast<ptrdiff_t>(at) + 1,
                       shader.words.begin() + static_cast<ptrdiff_t>(at + count)}});
    at += count;
  }
  return result;
}

size_t count(const Shader& shader, spv::Op op, int operand = -1, uint32_t value = 0) {
  const std::vector<Instruction> all = parse(shader);
  return static_cast<size_t>(std::count_if(all.begin(), all.end(), [&](const Instruction& i) {
    return i.op == op && (operand < 0 || i.words[static_cast<size_t>(operand)] == value);
  }));
}

size_t decorated(const Shader& shader, spv::Decoration decoration) {
  return count(shader, spv::OpDecorate, 1, decoration);
}

Shader must_generate(const Kernel& kernel, const Target& target) {
  const Result<Shader> shader = generate(kernel, target);
  EXPECT_TRUE(shader.ok()) << shader.status().message();
  if (!shader.ok()) return {};
  const Status status = validate(shader->words);
  EXPECT_TRUE(status.ok()) << status.message() << "\n" << disassemble(shader->words);
  return *shader;
}

TEST(Generate, RandomKernelsGiveValidModules) {
  kernel::testing::RandomOptions options;
  options.fma = true;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Target target = full_target();
    target.is_cpu = seed % 2 == 0;
    target.splits_store_chains = seed % 3 == 0;
    target.folds_zeros = seed % 4 == 0;
    target.masks_bits_wrongly = seed % 3 == 1;
    if (seed % 5 == 0) target.max_narrow_bytes = 64;
    if (seed % 7 == 0) target.max_narrow_points = 5;
    options.teams = seed % 5 == 1;
    target.subgroup_shuffle = seed % 10 == 1;
    must_generate(kernel::testing::random_kernel(seed, options).kernel, target);
  }
}

TEST(Generate, EveryFloatOperationForbidsContraction) {
  kernel::testing::RandomOptions options;
  options.fma = true;
  const std::set<spv::Op> kFloatOps = {spv::OpFAdd,        spv::OpFSub,        spv::OpFMul,
                                       spv::OpFDiv,        spv::OpFConvert,    spv::OpConvertFToS,
                                       spv::OpConvertFToU, spv::OpConvertSToF, spv::OpConvertUToF,
                                       spv::OpFNegate};
  size_t seen = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Shader shader =
        must_generate(kernel::testing::random_kernel(seed, options).kernel, full_target());
    std::set<uint32_t> strict;
    for (const Instruction& i : parse(shader)) {
      if (i.op == spv::OpDecorate && i.words[1] == spv::DecorationNoContraction) {
        strict.insert(i.words[0]);
      }
      // Extended instructions on integers are the search for the highest bit alone.
      constexpr uint32_t kFindUMsb = 75;
      if (!kFloatOps.contains(i.op) && !(i.op == spv::OpExtInst && i.words[3] != kFindUMsb)) {
        continue;
      }
      EXPECT_TRUE(strict.contains(i.words[1])) << seed << ": opcode " << i.op;
      ++seen;
    }
  }
  EXPECT_GT(seen, 300u);
}

// A driver of a GPU ended the process over some of them.
TEST(Generate, LoopsCarryNoTruthValuesAsSuch) {
  int carried = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const kernel::Kernel kernel = kernel::testing::random_kernel(seed).kernel;
    for (const kernel::RegionBody& region : kernel.body.regions()) {
      for (const kernel::Value v : region.parameters) {
        carried += kernel.body.type(v) == ScalarType::kBool ? 1 : 0;
      }
    }
    const Result<Shader> shader = generate(kernel, full_target());
    ASSERT_TRUE(shader.ok()) << shader.status().message();
    const std::string text = disassemble(shader->words);
    EXPECT_EQ(text.find("OpPhi %bool"), std::string::npos) << seed;
  }
  EXPECT_GT(carried, 10);
}

// Compilers of drivers take long over many loops. Stores stay in loops.
TEST(Generate, WhatRunsOnceOrNotIsABranch) {
  for (const bool stores : {false, true}) {
    Builder b(1, kI32);
    const Value x = b.load(kF32, {0, 4}, b.grid_index(0));
    const Value is_negative = b.binary(Op::kLt, x, b.constant_bits(kF32, 0));
    const std::vector<Value> last =
        b.loop(b.convert(Op::kBoolToInt, kI32, is_negative), {x},
               [&](Value, const std::vector<Value>& carried) {
                 if (stores) b.store({1, 4}, b.grid_index(0), carried[0]);
                 return std::vector<Value>{b.mul(carried[0], carried[0])};
               });
    b.store({2, 4}, b.grid_index(0), last[0]);
    Kernel k;
    k.name = "rarely";
    k.grid = {64};
    k.index_type = kI32;
    k.operands = {{256, true, false}, {256, false, true}, {256, false, true}};
    k.body = b.finish();
    const Shader shader = must_generate(k, full_target());
    EXPECT_EQ(count(shader, spv::OpLoopMerge), stores ? 1u : 0u) << disassemble(shader.words);
  }
}

// Of a loop's head, phis alone are used behind the loop: SwiftShader gives other values as they
// were in the first iteration when it unrolls.
TEST(Generate, PhisAloneLeaveLoops) {
  size_t loops = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Target t = full_target();
    t.is_cpu = seed % 2 == 0;
    const Shader shader = must_generate(kernel::testing::random_kernel(seed).kernel, t);
    std::set<uint32_t> of_block;                    // ids of this block, but of phis
    std::map<uint32_t, std::set<uint32_t>> closed;  // by merge block: ids of the head
    std::set<uint32_t> gone;
    for (const Instruction& i : parse(shader)) {
      if (i.op == spv::OpLabel) {
        of_block.clear();
        if (const auto at = closed.find(i.words[0]); at != closed.end()) {
          gone.insert(at->second.begin(), at->second.end());
        }
        continue;
      }
      if (i.op == spv::OpLoopMerge) {
        closed[i.words[0]] = of_block;
        ++loops;
      }
      if (i.op == spv::OpINotEqual || i.op == spv::OpSLessThan) of_block.insert(i.words[1]);
      if (i.op != spv::OpSelect && i.op != spv::OpPhi && i.op != spv::OpLogicalNotEqual) continue;
      for (size_t k = 2; k < i.words.size(); ++k) {
        EXPECT_FALSE(gone.contains(i.words[k])) << seed << ": " << i.words[k];
      }
    }
  }
  EXPECT_GT(loops, 50u);
}

TEST(Generate, FloatModesAreThoseOfTheTarget) {
  Target t = full_target();
  t.f64.denorm_preserve = true;
  t.f64.rounding_rte = false;
  const Shader f64 = must_generate(elementwise(100, kF64, 1), t);
  EXPECT_EQ(count(f64, spv::OpExecutionMode, 1, spv::ExecutionModeDenormPreserve), 1u);
  EXPECT_EQ(count(f64, spv::OpExecutionMode, 1, spv::ExecutionModeRoundingModeRTE), 0u);
  EXPECT_EQ(count(f64, spv::OpExecutionMode, 1, spv::ExecutionModeSignedZeroInfNanPreserve), 1u);
  const Shader integers = must_generate(elementwise(100, kI32, 1), t);
  EXPECT_EQ(count(integers, spv::OpExecutionMode), 1u) << "the size of the workgroup alone";
}

TEST(Generate, NamesAllThatTheDeviceLacks) {
  Target t = full_target();
  t.int64 = t.float64 = false;
  constexpr int64_t kPoints = int64_t{1} << 32;
  Kernel k = elementwise(kPoints, kF64, 1, kI64);
  k.name = "wide";
  const Status status = generate(k, t).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(
      status.message(),
      "kernel wide needs shaderFloat64, shaderInt64, shaderInt64 (for a grid of 4294967296 "
      "points), shaderInt64 (for an operand of 34359738368 bytes), which a test device lacks; "
      "without: kernel wide counts its grid or its operands in 64 bits");
  EXPECT_EQ(must_generate(k, full_target()).required_features,
            (std::vector<std::string>{"bufferDeviceAddress", "shaderFloat64", "shaderInt64"}));
}

TEST(Generate, WhatIsMissingIsNotUsed) {
  Target t = full_target();
  t.int64 = t.float64 = t.storage_8 = t.storage_16 = false;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    t.is_cpu = seed % 2 == 0;
    const Shader shader = must_generate(kernel::testing::random_kernel(seed).kernel, t);
    EXPECT_EQ(shader.required_features, std::vector<std::string>{"bufferDeviceAddress"});
    for (const spv::Capability c :
         {spv::CapabilityInt64, spv::CapabilityFloat64, spv::CapabilityInt16, spv::CapabilityInt8,
          spv::CapabilityStorageBuffer8BitAccess, spv::CapabilityStorageBuffer16BitAccess}) {
      EXPECT_EQ(count(shader, spv::OpCapability, 0, c), 0u) << c;
    }
  }
}

// What SwiftShader says of itself, as far as a Target looks.
DeviceSnapshot swiftshader() {
  DeviceSnapshot s;
  s.name = "SwiftShader Device (Subzero)";
  s.type = DeviceType::kCpu;
  s.driver_name = "SwiftShader driver";
  s.driver_id = 10;
  s.subgroup = {4, 4, 4, {"basic", "shuffle"}};
  s.float_controls.signed_zero_inf_nan_preserve = {true, true, true};
  s.limits.max_workgroup_invocations = 256;
  s.limits.max_workgroup_size = {256, 256, 64};
  s.limits.max_shared_memory_bytes = 32768;
  return s;
}

// Ids of the types that are pointers.
std::set<uint32_t> pointer_types(const Shader& shader) {
  std::set<uint32_t> types;
  for (const Instruction& i : parse(shader)) {
    if (i.op == spv::OpTypePointer || i.op == spv::OpTypeForwardPointer) types.insert(i.words[0]);
  }
  return types;
}

size_t pointer_casts(const Shader& shader) {
  const std::set<uint32_t> pointers = pointer_types(shader);
  const std::vector<Instruction> all = parse(shader);
  return static_cast<size_t>(std::count_if(all.begin(), all.end(), [&](const Instruction& i) {
    return i.op == spv::OpBitcast && pointers.contains(i.words[0]);
  }));
}

// SwiftShader ends the process over them.
TEST(Generate, NoPointerIsCastWhereTheDriverCannot) {
  DeviceSnapshot s = swiftshader();
  for (const bool has_all : {false, true}) {
    s.features.i64 = s.features.f64 = s.features.storage_8 = s.features.storage_16 = has_all;
    for (const DeviceType type : {DeviceType::kCpu, DeviceType::kDiscrete}) {
      s.type = type;
      const Target t = make_target(s);
      EXPECT_FALSE(t.casts_pointers);
      for (uint64_t seed = 0; seed < 30; ++seed) {
        const testing::ContractionShape shape = testing::random_contraction(seed);
        EXPECT_EQ(pointer_casts(must_generate(testing::contraction_kernel(shape, seed).kernel, t)),
                  0u)
            << seed;
        EXPECT_EQ(pointer_casts(must_generate(kernel::testing::random_kernel(seed).kernel, t)), 0u)
            << seed;
      }
      // Columns side by side, of words and of parts of words.
      for (const bool is_narrow : {false, true}) {
        testing::ContractionShape shape;
        shape.rows = shape.columns = shape.depth = 64;
        shape.is_narrow = is_narrow;
        shape.is_float = !is_narrow;
        EXPECT_EQ(pointer_casts(must_generate(testing::contraction_kernel(shape, 1).kernel, t)),
                  0u);
      }
    }
  }
  testing::ContractionShape shape;
  shape.rows = shape.columns = shape.depth = 64;
  s.driver_id = 13;
  s.type = DeviceType::kCpu;
  EXPECT_GT(
      pointer_casts(must_generate(testing::contraction_kernel(shape, 1).kernel, make_target(s))),
      0u)
      << "other drivers load several words at once";
}

TEST(Generate, ModulesThatTheDriverCannotCompileAreRefused) {
  Target t = full_target();
  const Kernel k = elementwise(1000, kF32, 100);
  t.max_module_bytes = static_cast<int64_t>(must_generate(k, t).words.size() * sizeof(uint32_t));
  EXPECT_TRUE(generate(k, t).ok());
  --t.max_module_bytes;
  const Status status = generate(k, t).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("bytes of SPIR-V, and a test device compiles"),
            std::string::npos);
  EXPECT_GT(make_target(swiftshader()).max_module_bytes, 0);
}

// Where the schedule that is chosen first repeats too much of a kernel, another does not.
TEST(Generate, ModulesThatAreTooLongAreMadeWithoutRepetition) {
  testing::ContractionShape shape;
  const Kernel k = testing::contraction_kernel(shape, 1).kernel;
  const Target any = full_target();
  const Shader chosen = must_generate(k, any);
  Target limited = any;
  limited.max_module_bytes = static_cast<int64_t>(chosen.words.size() * sizeof(uint32_t)) - 1;
  const Shader shorter = must_generate(k, limited);
  EXPECT_LT(shorter.words.size(), chosen.words.size());
  EXPECT_EQ(shorter.schedule, "points");
  ASSERT_FALSE(shorter.implementations.empty());
  EXPECT_EQ(shorter.implementations[0].name, std::string(chosen.schedule) + ", as chosen at first");
}

// Of a product on a GPU both operands come from shared memory in words of four elements, as many as
// there is room for; where a word of four rows finds none, single rows may.
TEST(Generate, ProductsOnGpusTakeWordsFromSharedMemory) {
  testing::ContractionShape shape;
  shape.rows = 4096;
  shape.columns = 1024;
  shape.depth = 64;
  shape.tile_rows = 8;
  const Kernel k = testing::contraction_kernel(shape, 1).kernel;
  Target gpu = full_target();
  gpu.is_cpu = false;
  gpu.max_workgroup_invocations = gpu.max_workgroup_size_x = 1024;
  const auto arrays = [&](uint32_t shared_bytes) {
    gpu.max_shared_memory_bytes = shared_bytes;
    const Shader shader = must_generate(k, gpu);
    EXPECT_EQ(shader.schedule, "shared memory");
    EXPECT_TRUE(validate(shader.words).ok());
    return count(shader, spv::OpVariable, 2, spv::StorageClassWorkgroup);
  };
  EXPECT_EQ(arrays(48 << 10), 3u);  // two of four rows each, one of the columns
  EXPECT_EQ(arrays(9'000), 2u);     // of the rows
  EXPECT_EQ(arrays(6'000), 2u);     // four rows together, and one by itself
}

TEST(Generate, TheNameDoesNotMatter) {
  Kernel k = elementwise(1000, kF32, 3);
  const Shader one = must_generate(k, full_target());
  k.name = "another";
  EXPECT_EQ(one.words, must_generate(k, full_target()).words);
  Target other = full_target();
  other.device = "another";
  EXPECT_EQ(one.words, must_generate(k, other).words);
}

TEST(Generate, ThreadsGiveTheSameWords) {
  const Kernel k = kernel::testing::random_kernel(3).kernel;
  const std::vector<uint32_t> words = must_generate(k, full_target()).words;
  std::vector<std::vector<uint32_t>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] { result = generate(k, full_target())->words; });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, words);
}

TEST(Generate, BigGridsAndOperandsTakeLongIntegers) {
  constexpr int64_t kPoints = (int64_t{1} << 33) + 5;
  const Kernel k = elementwise(kPoints, kF32, 1, kI64);
  const Shader shader = must_generate(k, full_target());
  const int64_t per_group = (kPoints + shader.group_count - 1) / shader.group_count;
  EXPECT_GE(shader.group_count * per_group, kPoints);
  EXPECT_EQ(count(shader, spv::OpConvertUToPtr), 2u);
  Target t = full_target();
  t.int64 = false;
  const Status status = generate(k, t).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("a grid of 8589934597 points"), std::string::npos);
  // Small ones stay with access chains.
  EXPECT_EQ(count(must_generate(elementwise(100, kF32, 1), full_target()), spv::OpConvertUToPtr),
            0u);
  t = full_target();
  t.workgroup_size = t.points_per_invocation = 1;
  EXPECT_EQ(generate(k, t).status().code(), StatusCode::kUnimplemented) << "too many workgroups";
}

TEST(Generate, OnlyOperandsThatCannotShareMemoryAreRestricted) {
  // Equal sizes: input and output may be the same slice of a launch.
  const Shader shared = must_generate(elementwise(100, kF32, 1), full_target());
  EXPECT_EQ(decorated(shared, spv::DecorationAliasedPointer), 2u);
  Kernel k = elementwise(100, kF32, 1);
  k.operands[0].bytes += 4;
  const Shader apart = must_generate(k, full_target());
  EXPECT_EQ(decorated(apart, spv::DecorationRestrictPointer), 2u);
  EXPECT_GT(count(apart, spv::OpMemberDecorate, 2, spv::DecorationNonWritable),
            count(shared, spv::OpMemberDecorate, 2, spv::DecorationNonWritable));
}

TEST(Generate, RefusesABodyOfAnotherRank) {
  Kernel k = elementwise(100, kF32, 1);
  k.grid = {10, 10};
  EXPECT_EQ(generate(k, full_target()).status().code(), StatusCode::kInternal);
}

TEST(Schedule, CoversTheGridWithinTheLimits) {
  for (const bool is_cpu : {false, true}) {
    for (const int64_t points : {1, 7, 64, 1000, 4096, 100'000, 5'000'000, 2'000'000'000}) {
      Target t = full_target();
      t.is_cpu = is_cpu;
      t.subgroup_size = 8;
      t.max_workgroup_invocations = 128;
      const codegen::Schedule s =
          codegen::choose_schedule(kernel::IndexAnalysis(elementwise(points, kF32, 1)), t);
      const int64_t per_group =
          int64_t{s.workgroup_size} * s.points_per_invocation * s.columns * s.rows;
      EXPECT_EQ(points % s.columns, 0);
      EXPECT_GE(s.group_count * per_group, points);
      EXPECT_LT((s.group_count - 1) * per_group, points);
      EXPECT_LE(s.workgroup_size, 128u);
    }
  }
  Kernel empty = elementwise(0, kF32, 1);
  EXPECT_EQ(must_generate(empty, full_target()).group_count, 0);
}

TEST(Schedule, ContiguousColumnsGoInWordsOf64Bits) {
  Target t = full_target();
  t.is_cpu = true;
  t.subgroup_size = 8;
  const auto longs = [&](const Kernel& k) {
    const Shader shader = must_generate(k, t);
    return std::count(shader.required_features.begin(), shader.required_features.end(),
                      "shaderInt64");
  };
  EXPECT_EQ(longs(elementwise(1000, kF32, 1)), 1);
  EXPECT_EQ(longs(elementwise(1001, kF32, 1)), 0)
      << "an odd last dimension has columns that are not joined";
  t.is_cpu = false;
  EXPECT_EQ(longs(elementwise(1000, kF32, 1)), 0);
}

TEST(Schedule, KnowsWhatDividesAnIndex) {
  Builder b(2, kI32);
  const Value row = b.grid_index(0), column = b.grid_index(1);
  const Value even = b.add(b.mul(row, b.index(12)), column);
  const Value odd = b.add(even, b.index(1));
  const Value shifted = b.add(even, b.index(6));
  for (const Value v : {even, odd, shifted}) b.store({0, 4}, v, b.index(1));
  Kernel kernel;
  kernel.grid = {10, 80};
  kernel.body = b.finish();
  const kernel::IndexAnalysis index(kernel);
  EXPECT_EQ(index.factor(even, index.dimension(1), 8), 4);
  EXPECT_EQ(index.factor(odd, index.dimension(1), 8), 1);
  EXPECT_EQ(index.factor(shifted, index.dimension(1), 8), 2);
  EXPECT_EQ(index.factor(even), 1);
}

TEST(Schedule, FindsLoadsOfContiguousElements) {
  Builder b(1, kI32);
  const Value even = b.mul(b.grid_index(0), b.index(16));
  std::vector<Value> loads;
  Value sum = b.real(kF32, 0);
  for (const int64_t place : {0, 1, 2, 4, 5, 8, 9, 10, 11}) {
    loads.push_back(b.load(kF32, {0, 4}, b.add(even, b.index(place))));
    sum = b.add(sum, loads.back());
  }
  // Contiguous elements of another operand, and at an odd index.
  sum = b.add(sum, b.load(kF32, {1, 4}, b.add(even, b.index(3))));
  b.store({2, 4}, b.grid_index(0), sum);
  Kernel kernel;
  kernel.grid = {10};
  kernel.body = b.finish();
  using Groups = std::map<Value, std::vector<Value>>;
  const kernel::IndexAnalysis index(kernel);
  EXPECT_EQ(codegen::adjacent_loads(index, 8, 4), (Groups{{loads[0], {loads[1]}},
                                                          {loads[3], {loads[4]}},
                                                          {loads[5], {loads[6]}},
                                                          {loads[7], {loads[8]}}}));
  EXPECT_EQ(codegen::adjacent_loads(index, 16, 1),
            (Groups{{loads[0], {loads[1]}},
                    {loads[3], {loads[4]}},
                    {loads[5], {loads[6], loads[7], loads[8]}}}));
}

TEST(Schedule, GuardsStoresOfLongChains) {
  Target t = full_target();
  t.splits_store_chains = true;
  auto selections = [&](int operations) {
    return count(must_generate(elementwise(256, kF32, operations), t), spv::OpSelectionMerge);
  };
  EXPECT_EQ(selections(1), 1u);
  EXPECT_EQ(selections(20), 2u);
}

// The lanes of a subgroup that pass values to each other behind a division must come there
// together: a division that takes one of two ways takes the same one in all of them.
TEST(Generate, LanesThatPassValuesBranchTogether) {
  constexpr int64_t kRows = 37, kIterations = 64;
  Builder b(1, kI32);
  const Value row = b.mul(b.grid_index(0), b.index(kIterations));
  const Value sum = b.loop(
      b.index(kIterations), {b.real(kF32, 0)}, [&](Value iteration, const std::vector<Value>& c) {
        const Value x = b.load(kF32, {0, 4}, b.add(row, iteration));
        return std::vector<Value>{b.add(c[0], b.div(x, b.add(x, b.real(kF32, 1))))};
      })[0];
  b.store({1, 4}, b.grid_index(0), sum);
  Kernel k;
  k.name = "rows";
  k.grid = {kRows};
  k.operands = {{kRows * kIterations * 4, true, false}, {kRows * 4, false, true}};
  k.body = b.finish();
  Target t = full_target();
  t.f32.fused_multiply_add = true;
  t.subgroup_size = 32;
  for (const bool has_lanes : {false, true}) {
    t.subgroup_shuffle = has_lanes;
    kernel::Implementations asked;
    EXPECT_EQ(codegen::choose_schedule(kernel::IndexAnalysis(k), t, &asked).shares_point,
              has_lanes);
    const kernel::Implementation& way = asked.asked()[4];
    EXPECT_EQ(way.name, "subgroup per point");
    EXPECT_EQ(way.refusal, has_lanes ? "" : "the device has no subgroup shuffles");
    size_t votes = 0;
    std::set<uint32_t> voted;
    for (const Instruction& i : parse(must_generate(k, t))) {
      if (i.op != spv::OpGroupNonUniformAll) continue;
      ++votes;
      voted.insert(i.words[1]);
    }
    EXPECT_EQ(votes > 0, has_lanes);
    // Both ways are there, behind a branch on what was voted for.
    size_t branches = 0;
    for (const Instruction& i : parse(must_generate(k, t))) {
      branches += i.op == spv::OpBranchConditional && voted.contains(i.words[0]) ? 1 : 0;
    }
    EXPECT_EQ(branches, votes);
  }
}

TEST(Validate, SaysWhatIsWrong) {
  Shader shader = must_generate(elementwise(100, kF32, 1), full_target());
  EXPECT_NE(disassemble(shader.words).find("OpFMul"), std::string::npos);
  shader.words.pop_back();
  const Status status = validate(shader.words);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("not valid"), std::string::npos);
  EXPECT_TRUE(disassemble({}).starts_with("; this is no SPIR-V module"));
}

TEST(Target, TrustsOnlyWhatWasMeasured) {
  DeviceSnapshot s;
  s.name = "llvmpipe (LLVM 15.0.6, 256 bits)";
  s.type = DeviceType::kCpu;
  s.driver_name = "llvmpipe";
  s.driver_info = "Mesa 22.3.6 (LLVM 15.0.6)";
  s.features.i64 = true;
  s.float_controls.rounding_rte = {true, true, false};
  const Target old = make_target(s);
  EXPECT_TRUE(old.is_cpu && old.splits_store_chains && old.folds_zeros && old.int64);
  EXPECT_TRUE(old.masks_bits_wrongly);
  EXPECT_EQ(subnormals_as_zero(old), "");  // kept, though not declared
  EXPECT_TRUE(old.f32.rounding_rte && !old.f64.rounding_rte);
  EXPECT_TRUE(old.f32.exact_division && old.f32.exact_rounding && !old.f64.exact_rounding);
  s.driver_info = "Mesa 25.0.7-2";
  EXPECT_FALSE(make_target(s).splits_store_chains);
  EXPECT_EQ(subnormals_as_zero(make_target(s)), "f32");  // f64 is emulated, with its own
  s.features.f64 = true;
  EXPECT_EQ(subnormals_as_zero(make_target(s)), "f32,f64");
  s.float_controls.denorm_preserve = {false, true, false};
  EXPECT_EQ(subnormals_as_zero(make_target(s)), "f64");
  s.float_controls.denorm_preserve = {};
  s.features.f64 = false;
  s.driver_info = "Mesa 26.2.1-1 (LLVM 22.1.8)";
  EXPECT_TRUE(make_target(s).masks_bits_wrongly);
  s.driver_name = "some GPU's";
  s.type = DeviceType::kDiscrete;
  const Target other = make_target(s);
  EXPECT_FALSE(other.is_cpu || other.folds_zeros || other.masks_bits_wrongly ||
               other.f32.exact_division || other.f64.exact_square_root ||
               other.f32.fused_multiply_add);
  s.driver_id = 4;  // NVIDIA's
  EXPECT_TRUE(make_target(s).f32.fused_multiply_add && !make_target(s).f64.fused_multiply_add);
  EXPECT_TRUE(make_target(s).packs_halves_wrongly && !other.packs_halves_wrongly);
}

// The greater one of bf16 numbers and zero, many of them.
TEST(Schedule, HalvesThatAreSelectedDoNotLieSideBySideWhereTheyArePackedWrongly) {
  kernel::Kernel kernel;
  kernel::Builder b(1, ScalarType::kI32);
  b.set_grid_size(0, 1 << 21);
  const Value bits = b.load(ScalarType::kI32, {0, 2, false}, b.grid_index(0));
  const Value x = b.convert(Op::kBitcast, ScalarType::kF32,
                            b.binary(Op::kShl, bits, b.integer(ScalarType::kI32, 16)));
  const Value zero = b.real(ScalarType::kF32, 0);
  const Value greater = b.select(b.binary(Op::kLt, zero, x), x, zero);
  b.store({1, 2, false}, b.grid_index(0),
          b.binary(Op::kShrU, b.convert(Op::kBitcast, ScalarType::kI32, greater),
                   b.integer(ScalarType::kI32, 16)));
  kernel.grid = {1 << 21};
  kernel.operands = {{2 << 21, true, false}, {2 << 21, false, true}};
  kernel.body = b.finish();
  const kernel::IndexAnalysis index(kernel);
  Target target;
  target.int64 = target.storage_8 = target.storage_16 = true;
  EXPECT_GT(codegen::choose_schedule(index, target).columns, 1u);
  target.packs_halves_wrongly = true;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    target.schedule_seed = seed;
    EXPECT_EQ(codegen::choose_schedule(index, target).columns, 1u) << seed;
  }
}

}  // namespace
}  // namespace hekla::vulkan
