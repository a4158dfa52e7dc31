// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/jit/kernel_compiler.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/interpreter.h"
#include "backends/cpu/jit/object_code.h"
#include "backends/cpu/jit/object_store.h"
#include "backends/cpu/testing/guarded_memory.h"
#include "backends/cpu/testing/random_kernel.h"

namespace hekla::cpu {
namespace {

using kernel::Access;
using kernel::Builder;
using kernel::Kernel;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;

constexpr ScalarType kBool = ScalarType::kBool;
constexpr ScalarType kI32 = ScalarType::kI32;
constexpr ScalarType kI64 = ScalarType::kI64;
constexpr ScalarType kF32 = ScalarType::kF32;
constexpr ScalarType kF64 = ScalarType::kF64;

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

class Levels : public testing::TestWithParam<const char*> {
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

using Contents = std::vector<std::vector<std::byte>>;

Contents interpreted(const Kernel& kernel, Contents contents) {
  std::vector<std::span<std::byte>> operands(contents.begin(), contents.end());
  const Status status = interpret(kernel, operands);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return contents;
}

// Runs the units in ranges of random sizes, in guarded memory.
Contents run(const CompiledKernel& code, const Contents& contents, bool guard_end, uint64_t seed) {
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
  Contents result;
  for (const GuardedMemory& m : memory) result.emplace_back(m.bytes().begin(), m.bytes().end());
  return result;
}

TEST_P(Levels, RandomKernelsDoWhatTheInterpreterDoes) {
  const bool with_fma = std::string(GetParam()) != "sse2";
  // HEKLA_RANDOM_KERNELS: more of them, for a long run.
  const char* more = std::getenv("HEKLA_RANDOM_KERNELS");
  const uint64_t count = more != nullptr ? std::strtoull(more, nullptr, 10) : 400;
  constexpr uint64_t kAtOnce = 16;
  for (uint64_t first = 0; first < count; first += kAtOnce) {
    std::vector<RandomKernel> kernels;
    std::vector<const Kernel*> requests;
    for (uint64_t i = 0; i < kAtOnce; ++i) {
      kernels.push_back(make_random_kernel(first + i, with_fma));
    }
    for (const RandomKernel& made : kernels) {
      const Status verified = verify(made.kernel.body);
      ASSERT_TRUE(verified.ok()) << verified.to_string();
      requests.push_back(&made.kernel);
    }
    const auto code = compile(requests);
    ASSERT_NE(code, nullptr);
    for (uint64_t i = 0; i < kAtOnce; ++i) {
      const RandomKernel& made = kernels[i];
      const Contents expected = interpreted(made.kernel, made.contents);
      const Contents got = run(code->kernels[i], made.contents, i % 2 == 0, first + i);
      for (size_t k = 0; k < expected.size(); ++k) {
        const int64_t at = first_difference(made.kinds[k], expected[k], got[k]);
        ASSERT_EQ(at, -1) << "seed " << first + i << ", operand " << k << ", byte " << at << "\n"
                          << to_string(made.kernel);
      }
    }
  }
}

// A kernel with one op on all combinations of its arguments' edge values.
struct OpCase {
  Op op;
  ScalarType from;
  ScalarType to;
  int arity;
};

uint8_t bytes_of(ScalarType type) { return bit_width(type) == 64 ? 8 : 4; }

Value load_as(Builder& b, ScalarType type, int32_t operand, Value index) {
  if (type != kBool) return b.load(type, {operand, bytes_of(type)}, index);
  return b.binary(Op::kNe, b.load(kI32, {operand, 4}, index), b.integer(kI32, 0));
}

std::vector<std::byte> packed(const std::vector<uint64_t>& values, size_t bytes) {
  std::vector<std::byte> result(values.size() * bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    std::memcpy(result.data() + i * bytes, &values[i], bytes);
  }
  return result;
}

bool fits(const OpCase& c, uint64_t bits) {
  double value = 0;
  if (c.from == kF64) {
    std::memcpy(&value, &bits, 8);
  } else {
    float narrow = 0;
    std::memcpy(&narrow, &bits, 4);
    value = narrow;
  }
  const double limit = bit_width(c.to) == 32 ? 4294967296.0 : 18446744073709551616.0;
  return c.op == Op::kFloatToSInt ? value >= -limit / 2 && value < limit / 2
                                  : value > -1 && value < limit;
}

TEST_P(Levels, EveryOpAtItsEdges) {
  std::vector<OpCase> cases;
  auto add = [&](std::initializer_list<Op> ops, std::initializer_list<ScalarType> types,
                 int arity) {
    for (Op op : ops) {
      const bool compares = op >= Op::kEq && op <= Op::kLeU;
      for (ScalarType t : types) cases.push_back({op, t, compares ? kBool : t, arity});
    }
  };
  add({Op::kAdd, Op::kSub, Op::kMul}, {kI32, kI64, kF32, kF64}, 2);
  add({Op::kMulHighU, Op::kDivS, Op::kDivU, Op::kRemS, Op::kRemU, Op::kLtS, Op::kLeS, Op::kLtU,
       Op::kLeU},
      {kI32, kI64}, 2);
  add({Op::kShl, Op::kShrU, Op::kShrS}, {kI32, kI64}, 2);
  add({Op::kDiv, Op::kLt, Op::kLe}, {kF32, kF64}, 2);
  add({Op::kAnd, Op::kOr, Op::kXor}, {kBool, kI32, kI64}, 2);
  add({Op::kEq, Op::kNe}, {kBool, kI32, kI64, kF32, kF64}, 2);
  add({Op::kNeg, Op::kAbs, Op::kSqrt, Op::kFloor, Op::kCeil, Op::kTrunc, Op::kRoundEven},
      {kF32, kF64}, 1);
  if (std::string(GetParam()) != "sse2") add({Op::kFma}, {kF32, kF64}, 3);
  cases.insert(cases.end(), {{Op::kSignExtend, kI32, kI64, 1},
                             {Op::kZeroExtend, kI32, kI64, 1},
                             {Op::kTruncate, kI64, kI32, 1},
                             {Op::kFloatResize, kF32, kF64, 1},
                             {Op::kFloatResize, kF64, kF32, 1},
                             {Op::kBitcast, kI32, kF32, 1},
                             {Op::kBitcast, kF64, kI64, 1},
                             {Op::kBoolToInt, kBool, kI32, 1},
                             {Op::kBoolToInt, kBool, kI64, 1}});
  for (ScalarType integer : {kI32, kI64}) {
    for (ScalarType real : {kF32, kF64}) {
      cases.push_back({Op::kSIntToFloat, integer, real, 1});
      cases.push_back({Op::kUIntToFloat, integer, real, 1});
      cases.push_back({Op::kFloatToSInt, real, integer, 1});
      cases.push_back({Op::kFloatToUInt, real, integer, 1});
    }
  }

  std::vector<Kernel> kernels(cases.size());
  std::vector<Contents> contents(cases.size());
  std::vector<const Kernel*> requests;
  for (size_t n = 0; n < cases.size(); ++n) {
    const OpCase& c = cases[n];
    std::vector<uint64_t> edges = edge_values(c.from);
    if (c.op == Op::kFloatToSInt || c.op == Op::kFloatToUInt) {
      std::erase_if(edges, [&](uint64_t bits) { return !fits(c, bits); });
    }
    size_t points = 1;
    for (int i = 0; i < c.arity; ++i) points *= edges.size();
    Builder b(1, kI32);
    std::vector<Value> arguments;
    size_t every = 1;
    for (int i = 0; i < c.arity; ++i) {
      std::vector<uint64_t> values;
      for (size_t p = 0; p < points; ++p) values.push_back(edges[p / every % edges.size()]);
      every *= edges.size();
      contents[n].push_back(packed(values, bytes_of(c.from)));
      arguments.push_back(load_as(b, c.from, i, b.grid_index(0)));
    }
    if (c.op == Op::kShl || c.op == Op::kShrU || c.op == Op::kShrS) {
      arguments[1] = b.bit_and(arguments[1], b.integer(c.from, bit_width(c.from) - 1));
    }
    Value result = arguments[0];
    if (c.arity == 3) {
      result = b.fma(arguments[0], arguments[1], arguments[2]);
    } else if (c.arity == 2) {
      result = b.binary(c.op, arguments[0], arguments[1]);
    } else if (c.op >= Op::kSignExtend) {
      result = b.convert(c.op, c.to, arguments[0]);
    } else {
      result = b.unary(c.op, arguments[0]);
    }
    if (c.to == kBool) result = b.convert(Op::kBoolToInt, kI32, result);
    const uint8_t bytes = bytes_of(c.to);
    b.store({c.arity, bytes}, b.grid_index(0), result);
    contents[n].push_back(std::vector<std::byte>(points * bytes));
    kernels[n].grid = {static_cast<int64_t>(points)};
    for (const auto& content : contents[n]) {
      const bool is_result = &content == &contents[n].back();
      kernels[n].operands.push_back({static_cast<int64_t>(content.size()), !is_result, is_result});
    }
    kernels[n].name = kernel::op_name(c.op);
    kernels[n].body = b.finish();
    requests.push_back(&kernels[n]);
  }
  const auto code = compile(requests);
  ASSERT_NE(code, nullptr);
  for (size_t n = 0; n < cases.size(); ++n) {
    const Contents expected = interpreted(kernels[n], contents[n]);
    const Contents got = run(code->kernels[n], contents[n], n % 2 == 0, n);
    const ElementKind kind = cases[n].to == kF32   ? ElementKind::kF32
                             : cases[n].to == kF64 ? ElementKind::kF64
                                                   : ElementKind::kBits;
    EXPECT_EQ(first_difference(kind, expected.back(), got.back()), -1)
        << kernels[n].name << " " << scalar_type_name(cases[n].from) << " to "
        << scalar_type_name(cases[n].to);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Levels, testing::Values("sse2", "avx2", "avx512", "native"),
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
  const std::string folder = testing::TempDir() + "/cpu_objects_" + std::to_string(getpid());
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
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const RandomKernel made = make_random_kernel(seed, true);
      const LaneAnalysis analysis(made.kernel);
      const Schedule schedule = make_schedule(made.kernel, analysis, target->vector_bits);
      const KernelCode code{made.kernel, analysis, schedule, *target, seed % 2 == 0};
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
