// SPDX-License-Identifier: Apache-2.0
// Native code computes what the plan's oracle computes, bit for bit: every artifact is compiled,
// its plan run by the plan interpreter and as native code, on one thread and on the pool.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "backends/compiler/compile.h"
#include "backends/compiler/plan/visit.h"
#include "backends/cpu/execute/block_pool.h"
#include "backends/cpu/execute/program.h"
#include "backends/cpu/threads/thread_pool.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"
#include "runtime/program/stablehlo/testing/artifacts.h"
#include "tests/compiler/plan_interpreter.h"
#include "tests/compiler/row_programs.h"
#include "tests/compiler/runnable.h"

namespace hekla::testing {
namespace {

// Scalar instructions that the plan interpreter gets through in a second or two.
constexpr double kMaxWork = 1e8;

using Outputs = std::vector<std::vector<std::byte>>;

HostArray random_array(const ir::Type& type, std::mt19937_64& random) {
  HostArray array(type.dtype(), type.dims());
  const DType part = complex_part(type.dtype());
  const int64_t width = dtype_bytes(part);
  for (int64_t at = 0; at < array.size_bytes(); at += width) {
    uint64_t bits = random() % (part == DType::kI1 ? 2 : 4);
    if (is_float(part)) {
      bits = float_to_bits(part, 0.25 + static_cast<double>(random() % 1536) / 1024);
    }
    std::memcpy(array.mutable_data() + at, &bits, static_cast<size_t>(width));
  }
  return array;
}

Result<Outputs> run_native(const cpu::Program& program, const std::vector<HostArray>& inputs,
                           bool is_parallel) {
  const plan::LaunchPlan& plan = program.plan();
  Outputs outputs;
  cpu::LaunchMemory memory;
  for (const HostArray& input : inputs) memory.inputs.push_back(input.data());
  for (const int64_t bytes : plan.output_bytes) outputs.emplace_back(static_cast<size_t>(bytes));
  for (auto& output : outputs) memory.outputs.push_back(output.data());
  std::vector<cpu::Block> arenas;
  for (const int64_t bytes : plan.arenas) {
    arenas.emplace_back();
    if (bytes > 0) {
      HEKLA_ASSIGN_OR_RETURN(arenas.back(), cpu::BlockPool::process_pool().allocate(bytes));
      // What is read before it was written shows.
      std::memset(arenas.back().data(), 0x5a, static_cast<size_t>(bytes));
    }
    memory.arenas.push_back(arenas.back().data());
  }
  cpu::RunOptions options;
  options.is_parallel = is_parallel;
  Status status;
  if (is_parallel) {
    cpu::ThreadPool::process_pool().run([&] { status = program.run(memory, options); });
  } else {
    status = program.run(memory, options);
  }
  HEKLA_RETURN_IF_ERROR(status);
  return outputs;
}

// The first element that differs; NaNs are equal.
int64_t first_difference(DType dtype, const std::vector<std::byte>& a,
                         const std::vector<std::byte>& b) {
  const DType part = complex_part(dtype);
  const int64_t width = dtype_bytes(part);
  for (int64_t at = 0; at < static_cast<int64_t>(a.size()); at += width) {
    const std::byte* x = a.data() + at;
    const std::byte* y = b.data() + at;
    if (std::memcmp(x, y, static_cast<size_t>(width)) == 0) continue;
    auto is_nan = [&](const std::byte* bytes) {
      uint64_t bits = 0;
      std::memcpy(&bits, bytes, static_cast<size_t>(width));
      return is_float(part) && std::isnan(float_from_bits(part, bits));
    };
    if (!is_nan(x) || !is_nan(y)) return at / width;
  }
  return -1;
}

class Artifacts : public ::testing::TestWithParam<std::string> {};

// The plan without code of the device's own, interpreted, against the device's plan as native code.
void compare(const std::shared_ptr<const ir::Module>& module) {
  static const auto compiler = cpu::KernelCompiler::create().value();
  const auto plan = compile_program(module);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  // Contractions and transforms have code of their own, which keeps the order of the kernels' sums.
  plan::DeviceTraits traits;
  traits.has_contractions = true;
  traits.has_transforms = true;
  traits.scatters_in_order = true;
  const auto native_plan = compile_program(module, {}, traits);
  ASSERT_TRUE(native_plan.ok()) << native_plan.status().message();
  const auto program = cpu::Program::create(*native_plan, *compiler);
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  ASSERT_LE(plan_work(**plan), kMaxWork) << "too long for the interpreter";
  std::mt19937_64 random(1);
  std::vector<HostArray> inputs;
  for (const ir::Type& type : module->entry()->type.elements()) {
    inputs.push_back(random_array(type, random));
  }
  const auto want = run_plan(**plan, inputs);
  ASSERT_TRUE(want.ok()) << want.status().to_string();
  for (const bool is_parallel : {false, true}) {
    const auto got = run_native(**program, inputs, is_parallel);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    for (size_t i = 0; i < want->size(); ++i) {
      const ir::Type& type = module->entry()->type.results()[i];
      if (!type.is_tensor()) continue;
      EXPECT_EQ(first_difference(type.dtype(), (*want)[i], (*got)[i]), -1)
          << "output " << i << (is_parallel ? ", on the pool" : "") << "\n"
          << plan::to_string(**native_plan);
    }
  }
}

TEST_P(Artifacts, NativeCodeComputesWhatTheOracleDoes) {
  Result<std::unique_ptr<ir::Module>> read =
      stablehlo::read_program(stablehlo::testing::read_artifact(GetParam() + ".mlirbc"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  const std::shared_ptr<const ir::Module> module = std::move(*read);
  ASSERT_TRUE(ir::verify(*module).ok());
  ASSERT_EQ(can_run(*module), !not_run().contains(GetParam()));
  if (can_run(*module)) compare(module);
}

// Products with vectors, whose sums are several: in every layout, and with operands that the
// generated kernel computes itself, few operations and many.
TEST(Dots, WithVectorsHaveTheSameSumsInEveryForm) {
  const auto program = [](const std::string& x, const std::string& y, const std::string& result,
                          const std::string& numbers, const std::string& before) {
    return "func.func @main(%a: tensor<" + x + "xf32>, %y: tensor<" + y + "xf32>) -> tensor<" +
           result + "f32> {\n" + before + "  %r = stablehlo.dot_general %x, %y, " + numbers +
           " : (tensor<" + x + "xf32>, tensor<" + y + "xf32>) -> tensor<" + result +
           "f32>\n  return %r : tensor<" + result + "f32>\n}\n";
  };
  const auto unary = [](const std::string& name, const std::string& to, const std::string& from,
                        const std::string& dims) {
    return "  %" + to + " = stablehlo." + name + " %" + from + " : tensor<" + dims + "xf32>\n";
  };
  struct Shape {
    const char* x;
    const char* y;
    const char* result;
    const char* numbers;
  };
  for (const auto& [x, y, result, numbers] :
       {Shape{"131", "131", "", "contracting_dims = [0] x [0]"},
        Shape{"70x131", "131", "70x", "contracting_dims = [1] x [0]"},
        Shape{"131", "70x131", "70x", "contracting_dims = [0] x [1]"},
        Shape{"131x70", "131", "70x", "contracting_dims = [0] x [0]"},
        Shape{"1x640", "640x70", "1x70x", "contracting_dims = [1] x [0]"},
        Shape{"5x40x96", "5x96", "5x40x",
              "batching_dims = [0] x [0], contracting_dims = [2] x [1]"},
        Shape{"3x67", "67", "3x", "contracting_dims = [1] x [0]"}}) {
    for (const int length : {0, 1, 9}) {
      std::string before = unary("negate", length == 0 ? "x" : "b0", "a", x);
      for (int i = 0; i < length; ++i) {
        before +=
            unary(i % 2 == 0 ? "abs" : "sqrt", i + 1 == length ? "x" : "b" + std::to_string(i + 1),
                  "b" + std::to_string(i), x);
      }
      const std::string text = program(x, y, result, numbers, before);
      SCOPED_TRACE(text);
      Result<std::unique_ptr<ir::Module>> read = stablehlo::read_program(text);
      ASSERT_TRUE(read.ok()) << read.status().message();
      compare(std::move(*read));
    }
  }
}

// Either operand's parts stand alone in the products, by the result's last dimension; the result
// is transposed or not.
TEST(Dots, OfComplexNumbersHaveTheSameSumsInEveryForm) {
  struct Shape {
    const char* x;
    const char* y;
    const char* result;
    const char* transposed;  // by `permutation`
    const char* permutation;
    const char* numbers;
  };
  for (const auto& [x, y, result, transposed, permutation, numbers] :
       {Shape{"20x70", "70x24", "20x24", "24x20", "1, 0", "contracting_dims = [1] x [0]"},
        Shape{"70x20", "24x70", "20x24", "24x20", "1, 0", "contracting_dims = [0] x [1]"},
        Shape{"3x40x50", "3x50x9", "3x40x9", "40x3x9", "1, 0, 2",
              "batching_dims = [0] x [0], contracting_dims = [2] x [1]"},
        Shape{"8x30x90", "1x90", "8x30x1", "1x8x30", "2, 0, 1", "contracting_dims = [2] x [1]"},
        Shape{"5x13x90", "5x90x17", "13x17", "17x13", "1, 0",
              "contracting_dims = [0, 2] x [0, 1]"}}) {
    for (const std::string part : {"f32", "f64"}) {
      const auto tensor = [&](const std::string& dims) {
        return "tensor<" + dims + "xcomplex<" + part + ">>";
      };
      const std::string text =
          "func.func @main(%x: " + tensor(x) + ", %y: " + tensor(y) + ") -> (" + tensor(result) +
          ", " + tensor(transposed) + ") {\n  %z = stablehlo.negate %x : " + tensor(x) +
          "\n  %r = stablehlo.dot_general %x, %y, " + numbers + " : (" + tensor(x) + ", " +
          tensor(y) + ") -> " + tensor(result) + "\n  %s = stablehlo.dot_general %z, %y, " +
          numbers + " : (" + tensor(x) + ", " + tensor(y) + ") -> " + tensor(result) +
          "\n  %t = stablehlo.transpose %s, dims = [" + permutation + "] : (" + tensor(result) +
          ") -> " + tensor(transposed) + "\n  return %r, %t : " + tensor(result) + ", " +
          tensor(transposed) + "\n}\n";
      SCOPED_TRACE(text);
      Result<std::unique_ptr<ir::Module>> read = stablehlo::read_program(text);
      ASSERT_TRUE(read.ok()) << read.status().message();
      compare(std::move(*read));
    }
  }
}

// Gradients by the kernels of channels-first convolutions, which sum over images outside of the
// window (lower::sums_features_first), and neighbours of theirs that do not.
TEST(Convolutions, ThatSumOverImagesHaveTheSameSumsInEveryForm) {
  struct Case {
    const char* numbers;  // of the images, the window and the result
    const char* lhs;
    const char* rhs;
    const char* window;
    const char* result;
  };
  for (const auto& [numbers, lhs, rhs, window, result] :
       {Case{"[f, b, 0, 1]x[i, o, 0, 1]->[b, f, 0, 1]", "3x8x9x10", "3x12x9x10",
             "pad = [[1, 1], [1, 1]]", "8x12x3x3"},
        Case{"[f, b, 0, 1]x[i, o, 0, 1]->[f, b, 0, 1]", "3x8x11x12", "3x12x5x6",
             "pad = [[0, 0], [1, 0]], rhs_dilate = [2, 2]", "12x8x3x3"},
        Case{"[f, b, 0]x[i, o, 0]->[0, b, f]", "2x9x70", "2x17x64", "reverse = [1]", "7x9x17"},
        Case{"[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]", "3x9x10x8", "3x9x10x12",
             "pad = [[1, 1], [1, 1]]", "3x3x8x12"},
        Case{"[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]", "3x9x10x8", "3x9x10x12", "", "1x1x8x12"},
        Case{"[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]", "3x9x10x8", "3x5x5x12",
             "pad = [[0, 0], [0, -1]], rhs_dilate = [2, 2]", "1x1x8x12"},
        Case{"[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", "8x5x5x12", "5x5x12x16", "", "8x1x1x16"},
        Case{"[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]", "4x8x3x3", "12x8x3x3",
             "pad = [[1, 1], [1, 1]]", "4x12x3x3"}}) {
    for (const std::string type : {"f32", "bf16", "complex<f32>"}) {
      const std::string a = std::string("tensor<") + lhs + "x" + type + ">";
      const std::string b = std::string("tensor<") + rhs + "x" + type + ">";
      const std::string to =
          std::string("tensor<") + result + "x" + (type == "bf16" ? "f32" : type) + ">";
      const std::string text =
          "func.func @main(%a: " + a + ", %b: " + b + ") -> " + to +
          " {\n  %r = stablehlo.convolution(%a, %b) dim_numbers = " + numbers + ", window = {" +
          window + "} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (" + a + ", " +
          b + ") -> " + to + "\n  return %r : " + to + "\n}\n";
      SCOPED_TRACE(text);
      Result<std::unique_ptr<ir::Module>> read = stablehlo::read_program(text);
      ASSERT_TRUE(read.ok()) << read.status().message();
      compare(std::move(*read));
    }
  }
}

// Transforms of whole lines, of every type, in several dimensions, of operands in memory and of
// such as are computed.
TEST(Transforms, OfWholeLinesHaveTheBitsOfKernels) {
  struct Case {
    const char* type;
    const char* dims;  // of the operand
    const char* lengths;
    const char* result;
  };
  for (const char* part : {"f32", "f64"}) {
    const std::string complex = std::string("complex<") + part + ">";
    for (const auto& [type, dims, lengths, result] :
         {Case{"FFT", "17x120", "120", "17x120"},
          Case{"FFT", "3x128x3", "128, 3", "3x128x3"},
          Case{"IFFT", "2x256x17", "256, 17", "2x256x17"},
          Case{"FFT", "17x512", "17, 512", "17x512"},
          Case{"IFFT", "14x33", "14, 33", "14x33"},
          Case{"FFT", "2x23", "23", "2x23"},
          Case{"RFFT", "4x18x16", "4, 18, 16", "4x18x9"},
          Case{"RFFT", "33x64", "33, 64", "33x33"},
          Case{"IRFFT", "5x9x17", "9, 32", "5x9x32"},
          Case{"IRFFT", "20x8", "15", "20x15"},
          Case{"IRFFT", "9x1", "9, 1", "9x1"},
          Case{"FFT", "17x31", "31", "17x31"},
          Case{"IFFT", "2x61x3", "61, 3", "2x61x3"},
          Case{"FFT", "3x232x2", "232, 2", "3x232x2"},
          Case{"RFFT", "3x19x2", "19, 2", "3x19x2"},
          Case{"RFFT", "33x62", "62", "33x32"},
          Case{"RFFT", "17x111", "111", "17x56"},
          Case{"RFFT", "16x4x100", "4, 100", "16x4x51"},
          Case{"IRFFT", "17x32", "62", "17x62"},
          Case{"IRFFT", "3x9x31", "9, 60", "3x9x60"},
          Case{"IRFFT", "9x29", "9, 57", "9x57"}}) {
      const bool from_real = std::string(type) == "RFFT", to_real = std::string(type) == "IRFFT";
      const std::string from = std::string(dims) + "x" + (from_real ? part : complex);
      const std::string to = std::string(result) + "x" + (to_real ? part : complex);
      for (const bool is_computed : {false, true}) {
        const std::string text =
            "func.func @main(%a: tensor<" + from + ">) -> tensor<" + to + "> {\n" +
            (is_computed ? "  %x = stablehlo.multiply %a, %a : tensor<" + from + ">\n" : "") +
            "  %r = stablehlo.fft " + (is_computed ? "%x" : "%a") + ", type = " + type +
            ", length = [" + lengths + "] : (tensor<" + from + ">) -> tensor<" + to + ">\n" +
            "  return %r : tensor<" + to + ">\n}\n";
        SCOPED_TRACE(text);
        Result<std::unique_ptr<ir::Module>> read = stablehlo::read_program(text);
        ASSERT_TRUE(read.ok()) << read.status().message();
        const std::shared_ptr<const ir::Module> module = std::move(*read);
        plan::DeviceTraits traits;
        traits.has_transforms = true;
        const auto plan = compile_program(module, {}, traits);
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        EXPECT_NE(plan::to_string(**plan).find("transform "), std::string::npos);
        EXPECT_NE(plan::decisions_string((*plan)->decisions).find("whole lines: taken"),
                  std::string::npos);
        compare(module);
      }
    }
  }
}

// Of lines that have no elements, and of no lines.
TEST(Transforms, OfNothing) {
  for (const auto& [type, from, lengths, to] :
       {std::array{"FFT", "4x0xcomplex<f32>", "0", "4x0xcomplex<f32>"},
        std::array{"IFFT", "0x4xcomplex<f32>", "0, 4", "0x4xcomplex<f32>"},
        std::array{"RFFT", "4x0xf32", "0", "4x0xcomplex<f32>"},
        std::array{"FFT", "0x8x8xcomplex<f64>", "8, 8", "0x8x8xcomplex<f64>"}}) {
    Result<std::unique_ptr<ir::Module>> read = stablehlo::read_program(
        std::string("func.func @main(%a: tensor<") + from + ">) -> tensor<" + to +
        "> {\n  %r = stablehlo.fft %a, type = " + type + ", length = [" + lengths + "] : (tensor<" +
        from + ">) -> tensor<" + to + ">\n  return %r : tensor<" + to + ">\n}\n");
    ASSERT_TRUE(read.ok()) << read.status().message();
    compare(std::move(*read));
  }
}

// Few long lines, long lines and large primes.
TEST(Transforms, SomeLinesGoThroughKernels) {
  for (const auto& [dims, reason] :
       {std::pair("7x2048", "7 lines, fewer than 8, of 2048, longer than 512"),
        std::pair("15x1536", "15 lines, fewer than 16, of 1536, longer than 512"),
        std::pair("9x64", "dense lines along one dimension"),
        std::pair("9x8192", "lines of 8192, longer than 4096"),
        std::pair("9x67", "lines of 67, which has a prime factor above 61")}) {
    const std::string type = "tensor<" + std::string(dims) + "xcomplex<f32>>";
    const std::string length = std::string(dims).substr(std::string(dims).find('x') + 1);
    Result<std::unique_ptr<ir::Module>> read = stablehlo::read_program(
        "func.func @main(%a: " + type + ") -> " + type +
        " {\n  %r = stablehlo.fft %a, type = FFT, length = [" + length + "] : (" + type + ") -> " +
        type + "\n  return %r : " + type + "\n}\n");
    ASSERT_TRUE(read.ok()) << read.status().message();
    plan::DeviceTraits traits;
    traits.has_transforms = true;
    const auto plan =
        compile_program(std::shared_ptr<const ir::Module>(std::move(*read)), {}, traits);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_NE(plan::decisions_string((*plan)->decisions).find(reason), std::string::npos)
        << plan::decisions_string((*plan)->decisions);
    EXPECT_EQ(plan::to_string(**plan).find("transform "), std::string::npos);
  }
}

int64_t count_led(const plan::LaunchPlan& plan) {
  int64_t count = 0;
  plan::for_each_step(plan.steps, [&](const plan::Step& step) {
    const auto* rows = std::get_if<plan::RowsStep>(&step.what);
    if (rows != nullptr && rows->is_led()) ++count;
  });
  return count;
}

// Rows in blocks, at any instruction set, on one thread and on the pool, against one kernel after
// the other.
TEST(RowGroups, BlocksOfRowsGiveTheBitsOfWholeKernels) {
  std::vector<std::shared_ptr<cpu::KernelCompiler>> compilers;
  for (const char* level : {"native", "sse2", "avx2"}) {
    if (auto compiler = cpu::KernelCompiler::create(level); compiler.ok()) {
      compilers.push_back(std::move(*compiler));
    }
  }
  ASSERT_FALSE(compilers.empty());
  int64_t led_groups = 0;
  for (const RowProgram& program : row_programs()) {
    SCOPED_TRACE(program.name);
    Result<std::unique_ptr<ir::Module>> read = stablehlo::read_program(program.text);
    ASSERT_TRUE(read.ok()) << read.status().message();
    const std::shared_ptr<const ir::Module> module = std::move(*read);
    const std::vector<HostArray> inputs = row_inputs(program.text);
    std::vector<std::shared_ptr<const plan::LaunchPlan>> plans;
    for (const plan::RowGroups which :
         {plan::RowGroups::kNone, plan::RowGroups::kAll, plan::RowGroups::kAllLed}) {
      CompilerOptions options;
      options.plan.row_groups = which;
      plan::DeviceTraits traits;
      traits.has_contractions = true;
      const auto plan = compile_program(module, options, traits);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      plans.push_back(*plan);
    }
    led_groups += count_led(*plans.back());
    for (const auto& compiler : compilers) {
      Outputs want;
      for (const auto& plan : plans) {
        const auto native = cpu::Program::create(plan, *compiler);
        ASSERT_TRUE(native.ok()) << native.status().to_string();
        for (const bool is_parallel : {false, true}) {
          const auto got = run_native(**native, inputs, is_parallel);
          ASSERT_TRUE(got.ok()) << got.status().to_string();
          if (want.empty()) want = *got;
          for (size_t i = 0; i < want.size(); ++i) {
            const DType dtype = module->entry()->type.results()[i].dtype();
            ASSERT_EQ(first_difference(dtype, want[i], (*got)[i]), -1) << "output " << i << "\n"
                                                                       << plan::to_string(*plan);
          }
        }
      }
    }
  }
  // The products of row_programs, attention's among them.
  EXPECT_GE(led_groups, 14);
}

// A product hands its rows on where its other operand is large and what follows is one pass over
// memory, and not where a row is too long; the memory of a donated residual is the result's.
TEST(RowGroups, AProductLeadsWhatFollowsIt) {
  const auto plan_of = [](const std::string& text) {
    Result<std::unique_ptr<ir::Module>> read = stablehlo::read_program(text);
    EXPECT_TRUE(read.ok()) << read.status().message();
    plan::DeviceTraits traits;
    traits.has_contractions = true;
    auto plan = compile_program(std::shared_ptr<const ir::Module>(std::move(*read)), {}, traits);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return *plan;
  };
  EXPECT_EQ(count_led(*plan_of(product(1, 512, 1024, 512, false, false))), 1);
  EXPECT_EQ(count_led(*plan_of(product(1, 512, 1024, 512, false, true))), 1);
  EXPECT_EQ(count_led(*plan_of(product(1, 512, 1024, 2048, false, false))), 0);
  EXPECT_EQ(count_led(*plan_of(product(1, 64, 1024, 64, false, false))), 0);
  std::string donated = product(1, 512, 1024, 512, false, false);
  const std::string argument = "%r: tensor<1x512x512xf32>";
  donated.insert(donated.find(argument) + argument.size(), " {tf.aliasing_output = 0 : i32}");
  const auto plan = plan_of(donated);
  EXPECT_EQ(count_led(*plan), 1) << plan::to_string(*plan);
  EXPECT_EQ(plan->output_input, std::vector<int32_t>{3}) << plan::to_string(*plan);
}

// What attention keeps in memory besides its arguments and result does not grow with the square of
// its length, in whatever order its dimensions lie and whether it is causal or not.
TEST(RowGroups, ScoresOfAttentionAreNeverInMemory) {
  const auto compiler = cpu::KernelCompiler::create().value();
  const auto whole = [](int64_t length, bool causal) {
    return attention(8, length, length, 64, causal);
  };
  // (batch, length, heads, width), as jax.nn.dot_product_attention has it.
  const auto interleaved = [](int64_t n, bool causal) {
    return interleaved_attention(2, n, 4, 64, causal);
  };
  for (const int64_t length : {1024, 1000, 2048}) {
    for (const bool causal : {false, true}) {
      for (const std::string& text : {whole(length, causal), interleaved(length, causal)}) {
        SCOPED_TRACE(text);
        Result<std::unique_ptr<ir::Module>> read = stablehlo::read_program(text);
        ASSERT_TRUE(read.ok()) << read.status().message();
        plan::DeviceTraits traits;
        traits.has_contractions = true;
        const auto plan =
            compile_program(std::shared_ptr<const ir::Module>(std::move(*read)), {}, traits);
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        const auto program = cpu::Program::create(*plan, *compiler);
        ASSERT_TRUE(program.ok()) << program.status().to_string();
        // A copy of queries, keys or values would be 8 * 64 * 4 bytes for each of them.
        EXPECT_LE((*program)->arena_bytes(), length * 3 * 8 * 64 * 4) << plan::to_string(**plan);
        EXPECT_GE((*plan)->arena_bytes(), 8 * length * length * 4);
        EXPECT_NE(plan::decisions_string((*plan)->decisions)
                      .find("a few rows at a time, with the steps around it: taken"),
                  std::string::npos);
      }
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Artifacts,
                         ::testing::ValuesIn(stablehlo::testing::artifact_names(".mlirbc")),
                         test_name);

}  // namespace
}  // namespace hekla::testing
