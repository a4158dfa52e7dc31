// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/jit/kernel_compiler.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/testing/random_kernel.h"
#include "backends/cpu/jit/object_code.h"
#include "backends/cpu/jit/object_store.h"
#include "backends/cpu/jit/testing/kernel_levels.h"
#include "runtime/base/testing/instrumented.h"

namespace hekla::cpu {
namespace {

using kernel::Builder;
using kernel::Kernel;
using kernel::ScalarType;
using kernel::Value;
using kernel::testing::random_kernel;
using kernel::testing::TestKernel;

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
    for (uint64_t seed = 0; seed < testing::sweep<uint64_t>(50, 12); ++seed) {
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
