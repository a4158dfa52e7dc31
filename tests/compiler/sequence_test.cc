// SPDX-License-Identifier: Apache-2.0
// Operations that take several kernels: their plans have no host step and compute what the
// evaluator computes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "backends/compiler/compile.h"
#include "backends/compiler/plan/visit.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/stablehlo/read_program.h"
#include "tests/compiler/plan_interpreter.h"

namespace hekla::testing {
namespace {

bool has_host_step(const plan::Steps& steps) {
  return std::any_of(steps.begin(), steps.end(), plan::holds<plan::HostStep>);
}

// Floats in [-2, 2) with some zeros of both signs and NaNs when `edges`; integers in [0, 50), or
// what their type has of it.
HostArray random_array(const ir::Type& type, std::mt19937_64& random, bool edges) {
  HostArray array(type.dtype(), type.dims());
  const DType part = complex_part(type.dtype());
  const int64_t width = dtype_bytes(part);
  for (int64_t at = 0; at < array.size_bytes(); at += width) {
    const int width_bits = dtype_bits(part);
    uint64_t bits = random() % (part == DType::kI1 ? 2U
                                : width_bits < 8   ? 1U << (width_bits - 1)
                                                   : 50U);
    if (is_float(part)) {
      double value = static_cast<double>(random() % 4096) / 1024 - 2;
      if (edges && random() % 8 == 0) value = random() % 2 == 0 ? 0.0 : -0.0;
      if (edges && random() % 16 == 0) value = std::nan("");
      bits = float_to_bits(part, value);
    }
    std::memcpy(array.mutable_data() + at, &bits, static_cast<size_t>(width));
  }
  return array;
}

struct Case {
  std::shared_ptr<const plan::LaunchPlan> plan;
  std::vector<HostArray> inputs;
  std::vector<HostArray> want;
  std::vector<std::vector<std::byte>> got;
};

// What a plan is made for.
struct Device {
  plan::DeviceTraits traits;
  bool small_limits = false;
};

Device device_with_teams(int64_t points, int64_t words, bool small_limits) {
  Device device;
  device.traits.team_points = points;
  device.traits.team_words = words;
  device.traits.reduces_by_trees = true;
  device.small_limits = small_limits;
  return device;
}

// One without teams, and with teams of several sizes, with less and more memory than they want.
const std::vector<Device>& team_devices() {
  static const std::vector<Device> all = {{},
                                          device_with_teams(256, 12288, false),
                                          device_with_teams(256, 2000, false),
                                          device_with_teams(64, 8192, true),
                                          device_with_teams(8, 8192, true)};
  return all;
}

// The program by its plan and by the evaluator; fails the test when the plan has a host step.
void run_both(const std::string& text, bool edges, Case& run, const Device& device = {}) {
  Result<std::unique_ptr<ir::Module>> read = stablehlo::read_program(text);
  ASSERT_TRUE(read.ok()) << read.status().message() << "\n" << text;
  const std::shared_ptr<const ir::Module> module = std::move(*read);
  CompilerOptions options;
  options.verify_passes = true;
  options.plan.small_limits = device.small_limits;
  auto plan = compile_program(module, options, device.traits);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  run.plan = *plan;
  EXPECT_FALSE(has_host_step(run.plan->steps)) << plan::to_string(*run.plan);
  std::mt19937_64 random(7);
  for (const ir::Type& type : module->entry()->type.elements()) {
    run.inputs.push_back(random_array(type, random, edges));
  }
  auto want = reference::evaluate(*module, run.inputs);
  ASSERT_TRUE(want.ok()) << want.status().message();
  run.want = std::move(*want);
  auto got = run_plan(*run.plan, run.inputs);
  ASSERT_TRUE(got.ok()) << got.status().message();
  run.got = std::move(*got);
}

// Bit for bit.
void expect_same(const std::string& text, bool edges = true, const Device& device = {}) {
  Case run;
  run_both(text, edges, run, device);
  ASSERT_EQ(run.want.size(), run.got.size());
  for (size_t i = 0; i < run.want.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(run.want[i].bytes(), run.got[i])) << "output " << i << " of\n"
                                                                     << text;
  }
}

std::string tensor(const std::string& dims, const std::string& dtype) {
  return "tensor<" + dims + dtype + ">";
}

// A stable sort of `key` and one i32 along with it.
std::string sort_program(const std::string& dims, const std::string& dtype, int dim,
                         const std::string& comparator) {
  const std::string x = tensor(dims, dtype), i = tensor(dims, "i32");
  const std::string e = tensor("", dtype);
  return "func.func @main(%x: " + x + ", %i: " + i + ") -> (" + x + ", " + i + ") {\n" +
         "  %r:2 = \"stablehlo.sort\"(%x, %i) ({\n  ^bb0(%a: " + e + ", %b: " + e +
         ", %c: tensor<i32>, %d: tensor<i32>):\n" + comparator +
         "    stablehlo.return %p : tensor<i1>\n  }) {dimension = " + std::to_string(dim) +
         " : i64, is_stable = true} : (" + x + ", " + i + ") -> (" + x + ", " + i + ")\n" +
         "  func.return %r#0, %r#1 : " + x + ", " + i + "\n}\n";
}

std::string comparison(const std::string& what, const std::string& dtype) {
  const std::string e = tensor("", dtype);
  return "    %p = stablehlo.compare " + what + " : (" + e + ", " + e + ") -> tensor<i1>\n";
}

// The first `kept` of each line of a sort of 2 x `size`, and where they came from.
std::string head_program(int64_t size, int64_t kept, const std::string& dtype = "f32") {
  const std::string all = "2x" + std::to_string(size) + "x",
                    head = "2x" + std::to_string(kept) + "x";
  std::string text = sort_program(all, dtype, 1, comparison("GT, %a, %b", dtype));
  text = "func.func @main(%x: " + tensor(all, dtype) + ", %i: " + tensor(all, "i32") + ") -> (" +
         tensor(head, dtype) + ", " + tensor(head, "i32") + ") {\n" +
         text.substr(text.find("  %r:2"));
  text.erase(text.find("  func.return"));
  const auto slice = [&](const std::string& to, const std::string& from,
                         const std::string& element) {
    return "  " + to + " = stablehlo.slice " + from + " [0:2, 0:" + std::to_string(kept) + "] : (" +
           tensor(all, element) + ") -> " + tensor(head, element) + "\n";
  };
  return text + slice("%v", "%r#0", dtype) + slice("%p", "%r#1", "i32") +
         "  func.return %v, %p : " + tensor(head, dtype) + ", " + tensor(head, "i32") + "\n}\n";
}

void expect_same_on_devices(const std::string& text, bool edges = true) {
  for (const Device& device : team_devices()) {
    SCOPED_TRACE(std::to_string(device.traits.team_points) + " points");
    expect_same(text, edges, device);
  }
}

TEST(Sort, OfWhichOnlyTheHeadIsReadMergesNoMore) {
  for (const int64_t size : {1, 16, 17, 33, 100, 257, 1000}) {
    for (const int64_t kept : {1, 8, 16, 17, 40, 100, 999}) {
      if (kept <= size) expect_same_on_devices(head_program(size, kept), false);
    }
  }
  // Parts whose first few stay in registers, with rests that are too short for that or not, and
  // many equal elements: their order shows.
  for (const int64_t size : {256, 258, 262, 319, 320, 4000}) {
    for (const int64_t kept : {1, 2, 3, 5, 8}) {
      expect_same(head_program(size, kept), false);
      expect_same(head_program(size, kept, "i32"), false);
    }
  }
  const auto points = [](int64_t kept) {
    Case run;
    run_both(head_program(4000, kept), false, run);
    int64_t sum = 0;
    for (const kernel::Kernel& kernel : run.plan->kernels) {
      if (kernel.name == "sort_merge") sum += kernel.points();
    }
    return sum;
  };
  EXPECT_LT(points(8) * 4, points(4000));
}

TEST(Sort, IsStableAtEverySizeAndAlongEveryDimension) {
  for (const char* dims : {"1x", "2x", "3x", "15x", "16x", "17x", "33x", "100x", "257x"}) {
    expect_same_on_devices(sort_program(dims, "i32", 0, comparison("LT, %a, %b", "i32")));
    expect_same_on_devices(
        sort_program(dims, "f32", 0, comparison("GT, %a, %b, TOTALORDER", "f32")));
  }
  for (int dim : {0, 1, 2}) {
    expect_same_on_devices(sort_program("5x37x3x", "i8", dim, comparison("LT, %a, %b", "i8")));
    expect_same_on_devices(
        sort_program("37x2x21x", "bf16", dim, comparison("LT, %a, %b, TOTALORDER", "bf16")));
  }
  expect_same(sort_program("0x4x", "f32", 0, comparison("LT, %a, %b", "f32")));
}

// As JAX writes it: zeros are alike, and NaNs are.
TEST(Sort, ByDigitsOfKeysOfEveryType) {
  for (const char* dtype :
       {"i1",   "i4",  "ui4",  "i8",       "ui8",    "i16",        "ui16",          "i32",
        "ui32", "i64", "ui64", "f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E4M3B11FNUZ", "f8E5M2FNUZ",
        "bf16", "f16", "f32",  "f64"}) {
    const std::string order = dtype[0] == 'i' || dtype[0] == 'u' ? "" : ", TOTALORDER";
    expect_same_on_devices(
        sort_program("2x301x", dtype, 1, comparison("LT, %a, %b" + order, dtype)));
    expect_same_on_devices(sort_program("301x", dtype, 0, comparison("LT, %b, %a" + order, dtype)));
  }
  const std::string canonical =
      "    %z = stablehlo.constant dense<0.0> : tensor<f32>\n"
      "    %n = stablehlo.constant dense<0x7FC00000> : tensor<f32>\n"
      "    %a0 = stablehlo.compare EQ, %a, %z, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
      "    %a1 = stablehlo.select %a0, %z, %a : tensor<i1>, tensor<f32>\n"
      "    %a2 = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
      "    %a3 = stablehlo.select %a2, %n, %a1 : tensor<i1>, tensor<f32>\n"
      "    %b0 = stablehlo.compare EQ, %b, %z, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
      "    %b1 = stablehlo.select %b0, %z, %b : tensor<i1>, tensor<f32>\n"
      "    %b2 = stablehlo.compare NE, %b, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
      "    %b3 = stablehlo.select %b2, %n, %b1 : tensor<i1>, tensor<f32>\n";
  for (const char* dims : {"64x", "65x", "4095x", "4096x", "4097x", "12001x"}) {
    expect_same_on_devices(
        sort_program(dims, "f32", 0, canonical + comparison("LT, %a3, %b3, TOTALORDER", "f32")));
  }
}

// Comparators that look like an order of keys, and are another one or none.
TEST(Sort, ByDigitsWhereTheComparatorIsAnOrderOfKeysAlone) {
  const auto kernels = [](const std::string& comparator) {
    Case run;
    run_both(sort_program("3x211x", "f32", 1, comparator), false, run, team_devices()[1]);
    std::string names;
    for (const kernel::Kernel& kernel : run.plan->kernels) names += kernel.name + " ";
    return names;
  };
  const std::string total = "TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>\n";
  EXPECT_EQ(kernels("    %p = stablehlo.compare LT, %a, %b, " + total), "sort_lines ");
  EXPECT_EQ(kernels("    %x = stablehlo.negate %a : tensor<f32>\n    %y = stablehlo.negate %b : "
                    "tensor<f32>\n    %p = stablehlo.compare LT, %x, %y, " +
                    total),
            "sort_lines ");
  for (const std::string& other :
       {"    %p = stablehlo.compare LE, %a, %b, " + total,
        "    %x = stablehlo.negate %a : tensor<f32>\n    %p = stablehlo.compare LT, %x, %b, " +
            total,
        "    %p = stablehlo.compare LT, %a, %a, " + total,
        std::string("    %p = stablehlo.compare LT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> "
                    "tensor<i1>\n")}) {
    EXPECT_EQ(kernels(other).find("sort_lines"), std::string::npos) << other;
  }
}

TEST(Sort, TakesKeysAndPayloadsOfAllTypes) {
  expect_same_on_devices(R"(
func.func @main(%x: tensor<70xi1>, %y: tensor<70xui64>, %z: tensor<70xcomplex<f32>>,
                %w: tensor<70xf64>)
    -> (tensor<70xi1>, tensor<70xui64>, tensor<70xcomplex<f32>>, tensor<70xf64>) {
  %r:4 = "stablehlo.sort"(%x, %y, %z, %w) ({
  ^bb0(%a: tensor<i1>, %b: tensor<i1>, %c: tensor<ui64>, %d: tensor<ui64>,
       %e: tensor<complex<f32>>, %f: tensor<complex<f32>>, %g: tensor<f64>, %h: tensor<f64>):
    %lt = stablehlo.compare LT, %a, %b : (tensor<i1>, tensor<i1>) -> tensor<i1>
    %eq = stablehlo.compare EQ, %a, %b : (tensor<i1>, tensor<i1>) -> tensor<i1>
    %more = stablehlo.compare GT, %c, %d : (tensor<ui64>, tensor<ui64>) -> tensor<i1>
    %both = stablehlo.and %eq, %more : tensor<i1>
    %p = stablehlo.or %lt, %both : tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) {dimension = 0 : i64, is_stable = false}
    : (tensor<70xi1>, tensor<70xui64>, tensor<70xcomplex<f32>>, tensor<70xf64>)
      -> (tensor<70xi1>, tensor<70xui64>, tensor<70xcomplex<f32>>, tensor<70xf64>)
  func.return %r#0, %r#1, %r#2, %r#3
    : tensor<70xi1>, tensor<70xui64>, tensor<70xcomplex<f32>>, tensor<70xf64>
})");
}

TEST(Sort, AComparatorThatIsNoOrderGivesElementsOfTheLine) {
  for (const char* comparator :
       {"    %p = stablehlo.constant dense<true> : tensor<i1>\n",
        "    %p = stablehlo.constant dense<false> : tensor<i1>\n",
        "    %p = stablehlo.compare LE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>\n",
        "    %p = stablehlo.compare NE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>\n",
        "    %n = stablehlo.add %a, %b : tensor<f32>\n"
        "    %o = stablehlo.constant dense<0.1> : tensor<f32>\n"
        "    %p = stablehlo.compare LT, %n, %o : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"}) {
    Case run;
    run_both(sort_program("3x211x", "f32", 1, comparator), true, run);
    ASSERT_EQ(run.got.size(), 2u);
    for (int64_t line = 0; line < 3; ++line) {
      auto element = [&](const std::byte* bytes, int64_t i) {
        uint32_t bits = 0;
        std::memcpy(&bits, bytes + 4 * (line * 211 + i), 4);
        return bits;
      };
      for (int64_t i = 0; i < 211; ++i) {
        bool is_there = false;
        for (int64_t k = 0; k < 211 && !is_there; ++k) {
          is_there = element(run.got[0].data(), i) == element(run.inputs[0].data(), k) &&
                     element(run.got[1].data(), i) == element(run.inputs[1].data(), k);
        }
        EXPECT_TRUE(is_there) << comparator << "line " << line << ", place " << i;
      }
    }
  }
}

// The initial value is the reducer's identity: only then is it nothing to the result how often
// padding counts. reduce_window over the last dimension but one of [3, n, 2].
std::string window_program(int64_t n, int64_t window, int64_t low, int64_t high,
                           const std::string& dtype, const std::string& reducer) {
  const std::string x = tensor("3x" + std::to_string(n) + "x2x", dtype);
  const std::string y = tensor("3x" + std::to_string(n + low + high - window + 1) + "x2x", dtype);
  const std::string e = tensor("", dtype);
  return "func.func @main(%x: " + x + ") -> " + y + " {\n  %i = stablehlo.constant dense<" +
         (dtype == "f32" ? "0.0" : "0") + "> : " + e +
         "\n  %r = \"stablehlo.reduce_window\"(%x, %i) ({\n  ^bb0(%a: " + e + ", %b: " + e +
         "):\n" + reducer + "    stablehlo.return %p : " + e +
         "\n  }) {window_dimensions = array<i64: 1, " + std::to_string(window) +
         ", 1>, padding = dense<[[0, 0], [" + std::to_string(low) + ", " + std::to_string(high) +
         "], [0, 0]]> : tensor<3x2xi64>} : (" + x + ", " + e + ") -> " + y +
         "\n  func.return %r : " + y + "\n}\n";
}

TEST(Scan, CumulativeWindowsOfEverySizeAndBothDirections) {
  const std::string sum = "    %p = stablehlo.add %a, %b : tensor<i32>\n";
  // An associative reducer that does not commute: the first of both that is not 0.
  const std::string first =
      "    %z = stablehlo.constant dense<0> : tensor<i32>\n"
      "    %n = stablehlo.compare NE, %a, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
      "    %p = stablehlo.select %n, %a, %b : tensor<i1>, tensor<i32>\n";
  for (const int64_t n : {65, 100, 257, 16500}) {
    for (const std::string& reducer : {sum, first}) {
      for (const auto& [window, low, high] : std::vector<std::array<int64_t, 3>>{{n, n - 1, 0},
                                                                                 {n, 0, n - 1},
                                                                                 {n, n, -1},
                                                                                 {n, -1, n},
                                                                                 {n + 5, n + 2, 3},
                                                                                 {n, n - 5, 2}}) {
        // Seconds in the evaluator; and the last window is none of this kind.
        if (n == 16500 && (window != n || high == 2 || reducer == first)) continue;
        expect_same_on_devices(window_program(n, window, low, high, "i32", reducer));
      }
    }
  }
}

TEST(Scan, TheErrorOfALongSumStaysSmall) {
  constexpr int64_t kSize = 30000;
  for (const Device& device : team_devices()) {
    Case run;
    run_both(window_program(kSize, kSize, kSize - 1, 0, "f32",
                            "    %p = stablehlo.add %a, %b : tensor<f32>\n"),
             false, run, device);
    auto value = [](const std::byte* bytes, int64_t i) {
      float f = 0;
      std::memcpy(&f, bytes + 4 * i, 4);
      return static_cast<double>(f);
    };
    for (int64_t line = 0; line < 6; ++line) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < kSize; ++i) {
        const int64_t at = (line / 2 * kSize + i) * 2 + line % 2;
        sum += value(run.inputs[0].data(), at);
        size += std::fabs(value(run.inputs[0].data(), at));
        // Roundings in a row: two blocks and a line of block sums.
        ASSERT_NEAR(value(run.got[0].data(), at), sum, 450 * size * std::ldexp(1, -24));
      }
    }
  }
}

// Of each output, the largest distance to the evaluator's over its largest element.
void expect_near(const std::string& text, double tolerance) {
  Case run;
  run_both(text, false, run);
  for (size_t i = 0; i < run.want.size(); ++i) {
    const DType part = complex_part(run.want[i].dtype());
    const int64_t width = dtype_bytes(part);
    ASSERT_EQ(run.want[i].size_bytes(), static_cast<int64_t>(run.got[i].size()));
    double error = 0, scale = 0;
    for (int64_t at = 0; at < run.want[i].size_bytes(); at += width) {
      uint64_t want = 0, got = 0;
      std::memcpy(&want, run.want[i].data() + at, static_cast<size_t>(width));
      std::memcpy(&got, run.got[i].data() + at, static_cast<size_t>(width));
      if (want == got) continue;
      const double w = float_from_bits(part, want), g = float_from_bits(part, got);
      error = std::fabs(w - g) <= error ? error : std::fabs(w - g);
      scale = std::max(scale, std::fabs(w));
    }
    EXPECT_LE(error, tolerance * scale) << "output " << i << " of\n" << text;
  }
}

// Where the sum leaves the type's range its rounding error does too; what comes after is finite.
TEST(Sums, OnesThatOverflowAreInfinite) {
  for (const std::string dtype : {"f16", "bf16", "f32", "f64", "complex<f32>"}) {
    for (const int64_t length : {130, 1000, 20'000}) {
      for (const int dim : {0, 1}) {
        const std::string dims =
            dim == 0 ? std::to_string(length) + "x3x" : "3x" + std::to_string(length) + "x";
        const std::string x = tensor(dims, dtype), line = tensor("3x", dtype),
                          one = tensor("", dtype);
        const auto splat = [&](const std::string& number) {
          return dtype == "complex<f32>" ? "dense<(" + number + ", 1.0)>" : "dense<" + number + ">";
        };
        const std::string large = dtype == "f16" ? "6.0e4" : dtype == "f64" ? "1.7e308" : "3.0e38";
        const std::string text =
            "func.func @main(%x: " + x + ") -> (" + line + ", " + one + ") {\n" +
            "  %zero = stablehlo.constant " + splat("0.0") + " : " + one + "\n" +
            "  %ones = stablehlo.constant " + splat("1.0") + " : " + x + "\n" +
            "  %large = stablehlo.constant " + splat(large) + " : " + x + "\n" +
            "  %n = stablehlo.iota dim = " + std::to_string(dim) + " : " + tensor(dims, "i32") +
            "\n  %m = stablehlo.constant dense<40> : " + tensor(dims, "i32") +
            "\n  %p = stablehlo.compare LT, %n, %m : (" + tensor(dims, "i32") + ", " +
            tensor(dims, "i32") + ") -> " + tensor(dims, "i1") +
            "\n  %y = stablehlo.select %p, %large, %ones : " + tensor(dims, "i1") + ", " + x +
            "\n  %r = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = "
            "[" +
            std::to_string(dim) + "] : (" + x + ", " + one + ") -> " + line +
            "\n  %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = "
            "[0, 1] : (" +
            x + ", " + one + ") -> " + one + "\n  func.return %r, %s : " + line + ", " + one +
            "\n}\n";
        for (const Device& device : team_devices()) {
          SCOPED_TRACE(fmt::format("{} {} dim {} teams of {}", dtype, length, dim,
                                   device.traits.team_points));
          // The sum of imaginary parts is rounded; real parts are infinite.
          Case run;
          run_both(text, false, run, device);
          for (size_t i = 0; i < run.want.size(); ++i) {
            const DType part = complex_part(run.want[i].dtype());
            const auto width = static_cast<size_t>(dtype_bytes(run.want[i].dtype()));
            for (size_t at = 0; at < run.got[i].size(); at += width) {
              uint64_t bits = 0;
              std::memcpy(&bits, run.got[i].data() + at, static_cast<size_t>(dtype_bytes(part)));
              EXPECT_TRUE(std::isinf(float_from_bits(part, bits)));
            }
          }
        }
      }
    }
  }
}

// The error of a transform grows with the logarithm of its length (Gentleman and Sande, 1966).
TEST(Fft, EveryLengthAndType) {
  for (const int n : {1, 2, 3, 8, 12, 16, 23, 29, 30, 64, 97, 210, 961}) {
    const std::string whole = "3x" + std::to_string(n) + "x";
    const std::string half = "3x" + std::to_string(n / 2 + 1) + "x";
    for (const auto& [type, from, to] : std::vector<std::array<std::string, 3>>{
             {"FFT", tensor(whole, "complex<f32>"), tensor(whole, "complex<f32>")},
             {"IFFT", tensor(whole, "complex<f64>"), tensor(whole, "complex<f64>")},
             {"RFFT", tensor(whole, "f64"), tensor(half, "complex<f64>")},
             {"IRFFT", tensor(half, "complex<f32>"), tensor(whole, "f32")}}) {
      const bool is_f64 = to.find("f64") != std::string::npos;
      expect_near("func.func @main(%x: " + from + ") -> " + to +
                      " {\n  %r = stablehlo.fft %x, type = " + type + ", length = [" +
                      std::to_string(n) + "] : (" + from + ") -> " + to +
                      "\n  func.return %r : " + to + "\n}\n",
                  std::ldexp(2 + std::log2(n), is_f64 ? -52 : -23));
    }
  }
}

TEST(Fft, SeveralDimensions) {
  expect_near(R"(
func.func @main(%x: tensor<2x4x6x9xf32>, %y: tensor<5x31x3xcomplex<f64>>)
    -> (tensor<2x4x6x5xcomplex<f32>>, tensor<5x31x4xf64>) {
  %r = stablehlo.fft %x, type = RFFT, length = [4, 6, 9]
    : (tensor<2x4x6x9xf32>) -> tensor<2x4x6x5xcomplex<f32>>
  %s = stablehlo.fft %y, type = IRFFT, length = [31, 4]
    : (tensor<5x31x3xcomplex<f64>>) -> tensor<5x31x4xf64>
  func.return %r, %s : tensor<2x4x6x5xcomplex<f32>>, tensor<5x31x4xf64>
})",
              std::ldexp(4, -23));
}

// A x with a large diagonal, so that it has a factor and a well-conditioned inverse.
std::string with_diagonal(const std::string& type, const std::string& dims,
                          const std::string& batch_dims, int64_t n) {
  const std::string rows = "tensor<" + dims + "i32>";
  return "  %row = stablehlo.iota dim = " + batch_dims + " : " + rows +
         "\n  %col = stablehlo.iota dim = " + std::to_string(std::stoi(batch_dims) + 1) + " : " +
         rows + "\n  %eq = stablehlo.compare EQ, %row, %col : (" + rows + ", " + rows +
         ") -> tensor<" + dims + "i1>\n  %big = stablehlo.constant dense<" + std::to_string(3 * n) +
         ".0> : " + type + "\n  %a = stablehlo.select %eq, %big, %x : tensor<" + dims + "i1>, " +
         type + "\n";
}

TEST(Cholesky, BothTrianglesAndManyBlocks) {
  for (const bool lower : {true, false}) {
    for (const int64_t n : {1, 2, 5, 64, 65, 150}) {
      const std::string dims = "2x" + std::to_string(n) + "x" + std::to_string(n) + "x";
      const std::string type = tensor(dims, n == 5 ? "f64" : "f32");
      expect_near("func.func @main(%x: " + type + ") -> " + type + " {\n" +
                      with_diagonal(type, dims, "1", n) +
                      "  %r = stablehlo.cholesky %a, lower = " + (lower ? "true" : "false") +
                      " : " + type + "\n  func.return %r : " + type + "\n}\n",
                  std::ldexp(8, n == 5 ? -52 : -23));
    }
  }
}

TEST(Cholesky, WithoutAFactorTheTriangleIsNoNumber) {
  expect_near(R"(
func.func @main(%x: tensor<3x70x70xf32>) -> tensor<3x70x70xi1> {
  %r = stablehlo.cholesky %x, lower = true : tensor<3x70x70xf32>
  %n = stablehlo.compare NE, %r, %r : (tensor<3x70x70xf32>, tensor<3x70x70xf32>) -> tensor<3x70x70xi1>
  func.return %n : tensor<3x70x70xi1>
})",
              0);
}

TEST(TriangularSolve, AllFlagsAndOnlyTheNamedTriangle) {
  for (const int64_t n : {1, 3, 70}) {
    for (int flags = 0; flags < 8; ++flags) {
      for (const char* transpose : {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"}) {
        const bool left = (flags & 1) != 0, lower = (flags & 2) != 0, unit = (flags & 4) != 0;
        const std::string dims = "2x" + std::to_string(n) + "x" + std::to_string(n) + "x";
        const std::string a = tensor(dims, "f32");
        const std::string b = tensor(
            left ? "2x" + std::to_string(n) + "x4x" : "2x4x" + std::to_string(n) + "x", "f32");
        // What must not be read is no number.
        const std::string kept = std::string(lower ? "GE" : "LE");
        expect_near("func.func @main(%x: " + a + ", %b: " + b + ") -> " + b + " {\n" +
                        with_diagonal(a, dims, "1", n) + "  %k = stablehlo.compare " + kept +
                        ", %row, %col : (" + tensor(dims, "i32") + ", " + tensor(dims, "i32") +
                        ") -> " + tensor(dims, "i1") +
                        "\n  %nan = stablehlo.constant dense<0x7fc00000> : " + a +
                        "\n  %s = stablehlo.constant dense<" + std::to_string(3 * n) +
                        ".0> : " + a + "\n  %scaled = stablehlo.divide %a, %s : " + a +
                        "\n  %t = stablehlo.select %k, %scaled, %nan : " + tensor(dims, "i1") +
                        ", " + a + "\n  %r = \"stablehlo.triangular_solve\"(%t, %b) {left_side = " +
                        (left ? "true" : "false") + ", lower = " + (lower ? "true" : "false") +
                        ", unit_diagonal = " + (unit ? "true" : "false") +
                        ", transpose_a = #stablehlo<transpose " + transpose + ">} : (" + a + ", " +
                        b + ") -> " + b + "\n  func.return %r : " + b + "\n}\n",
                    std::ldexp(8, -23));
      }
    }
  }
}

// The evaluator's bits are jaxlib's (tests/jax, tests/evaluator).
TEST(RandomBits, AllAlgorithmsStatesAndWidths) {
  for (const auto& [algorithm, state] :
       std::vector<std::array<std::string, 2>>{{"THREE_FRY", "tensor<2xui64>"},
                                               {"PHILOX", "tensor<2xui64>"},
                                               {"PHILOX", "tensor<3xui64>"},
                                               {"DEFAULT", "tensor<2xui64>"},
                                               {"THREE_FRY", "tensor<4xui32>"}}) {
    for (const char* to :
         {"tensor<ui32>", "tensor<7xui32>", "tensor<3x4x5xui32>", "tensor<3x5xui32>",
          "tensor<9x2xui64>", "tensor<5xui64>", "tensor<13xui16>", "tensor<4x3xui8>",
          "tensor<0x3xui32>", "tensor<6xf32>"}) {
      expect_same("func.func @main(%s: " + state + ") -> (" + state + ", " + to +
                  ") {\n  %n, %r = stablehlo.rng_bit_generator %s, algorithm = " + algorithm +
                  " : (" + state + ") -> (" + state + ", " + to +
                  ")\n  func.return %n, %r : " + state + ", " + to + "\n}\n");
      // The counter's last values, from a constant: the sum goes over.
      if (state != "tensor<4xui32>") {
        expect_same("func.func @main() -> (" + state + ", " + to +
                    ") {\n  %s = stablehlo.constant dense<18446744073709551614> : " + state +
                    "\n  %n, %r = stablehlo.rng_bit_generator %s, algorithm = " + algorithm +
                    " : (" + state + ") -> (" + state + ", " + to +
                    ")\n  func.return %n, %r : " + state + ", " + to + "\n}\n");
      }
    }
  }
}

// `numbers`: scatter dimension numbers; the reducer is any on %a and %b that gives %p.
std::string scatter_program(const std::string& x, const std::string& i, const std::string& u,
                            const std::string& dtype, const std::string& numbers,
                            const std::string& reducer, const std::string& index = "i32") {
  const std::string type = tensor(x, dtype), updates = tensor(u, dtype), e = tensor("", dtype);
  const std::string indices = tensor(i, index);
  // Some indices below 0, some beyond the end.
  return "func.func @main(%x: " + type + ", %j: " + indices + ", %u: " + updates + ") -> " + type +
         " {\n  %o = stablehlo.constant dense<3> : " + indices +
         "\n  %i = stablehlo.subtract %j, %o : " + indices +
         "\n  %r = \"stablehlo.scatter\"(%x, %i, %u) ({\n  ^bb0(%a: " + e + ", %b: " + e + "):\n" +
         reducer + "    stablehlo.return %p : " + e +
         "\n  }) {scatter_dimension_numbers = #stablehlo.scatter<" + numbers +
         ">, indices_are_sorted = false, unique_indices = false} : (" + type + ", " + indices +
         ", " + updates + ") -> " + type + "\n  func.return %r : " + type + "\n}\n";
}

// With the updates sorted, and gone through in order.
void expect_same_scatter(const std::string& text, bool edges = true) {
  for (const bool in_order : {false, true}) {
    plan::DeviceTraits traits;
    traits.scatters_in_order = in_order;
    expect_same(text, edges, {traits, false});
  }
}

// Reducers for which the order of the updates shows.
TEST(Scatter, ManyUpdatesAreTakenInOrder) {
  const std::string last = "    %p = stablehlo.add %b, %b : tensor<i32>\n";
  const std::string mixed =
      "    %c = stablehlo.constant dense<3> : tensor<i32>\n"
      "    %m = stablehlo.multiply %a, %c : tensor<i32>\n"
      "    %p = stablehlo.add %m, %b : tensor<i32>\n";
  for (const std::string& reducer : {last, mixed}) {
    // Single elements of a line.
    expect_same_scatter(
        scatter_program("45x", "3000x1x", "3000x", "i32",
                        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
                        "index_vector_dim = 1",
                        reducer));
    // Rows; the windows of the updates come first.
    expect_same_scatter(scatter_program("45x33x", "300x1x", "33x300x", "i32",
                                        "update_window_dims = [0], inserted_window_dims = [0], "
                                        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
                                        reducer));
    // Windows that move in one dimension and lie in a part of another.
    expect_same_scatter(
        scatter_program("45x9x", "11x30x1x", "11x30x5x7x", "i32",
                        "update_window_dims = [2, 3], scatter_dims_to_operand_dims = [0], "
                        "index_vector_dim = 2",
                        reducer));
    // Indices of two dimensions in another order, and a window over all of the third.
    expect_same_scatter(
        scatter_program("45x6x47x", "2x90x", "90x6x", "i32",
                        "update_window_dims = [1], inserted_window_dims = [0, 2], "
                        "scatter_dims_to_operand_dims = [2, 0], index_vector_dim = 0",
                        reducer));
    // Batches.
    expect_same_scatter(
        scatter_program("4x45x5x", "300x4x1x", "300x4x5x", "i32",
                        "update_window_dims = [2], inserted_window_dims = [1], "
                        "input_batching_dims = [0], scatter_indices_batching_dims = [1], "
                        "scatter_dims_to_operand_dims = [1], index_vector_dim = 2",
                        reducer));
  }
}

TEST(Scatter, FloatsAddUpInOrder) {
  expect_same_scatter(
      scatter_program("45x", "4000x1x", "4000x", "f32",
                      "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
                      "index_vector_dim = 1",
                      "    %p = stablehlo.add %a, %b : tensor<f32>\n"),
      false);
}

TEST(Scatter, IndicesOfAllTypesStayOutside) {
  for (const char* index : {"i8", "ui8", "i16", "ui32", "i64", "ui64"}) {
    expect_same_scatter(scatter_program("45x3x", "700x1x", "700x3x", "bf16",
                                        "update_window_dims = [1], inserted_window_dims = [0], "
                                        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
                                        "    %p = stablehlo.maximum %a, %b : tensor<bf16>\n",
                                        index));
  }
}

// The operand is read after the scatter, and by what computes its updates: it must not be
// overwritten.
TEST(Scatter, ReadersOfTheOperandSeeItAsItWas) {
  expect_same_scatter(
      "func.func @main(%y: tensor<64xf32>, %j: tensor<300x1xi32>, %v: tensor<300xf32>) -> "
      "(tensor<64xf32>, tensor<64xf32>) {\n"
      "  %x = stablehlo.negate %y : tensor<64xf32>\n"
      "  %s = stablehlo.slice %x [3:4] : (tensor<64xf32>) -> tensor<1xf32>\n"
      "  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<1xf32>) -> tensor<300xf32>\n"
      "  %u = stablehlo.multiply %v, %b : tensor<300xf32>\n"
      "  %r = \"stablehlo.scatter\"(%x, %j, %u) ({\n  ^bb0(%a: tensor<f32>, %c: tensor<f32>):\n"
      "    %p = stablehlo.add %a, %c : tensor<f32>\n    stablehlo.return %p : tensor<f32>\n"
      "  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], "
      "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, "
      "unique_indices = false} : (tensor<64xf32>, tensor<300x1xi32>, tensor<300xf32>) -> "
      "tensor<64xf32>\n"
      "  %t = stablehlo.subtract %r, %x : tensor<64xf32>\n"
      "  func.return %r, %t : tensor<64xf32>, tensor<64xf32>\n}\n",
      false);
}

// Updates of one operand are computed from elements of the other, which the same scatter changes.
TEST(Scatter, SeveralOperandsThatUpdatesAreMadeOf) {
  const std::string line = "tensor<64xf32>", list = "tensor<300xf32>", places = "tensor<300x1xi32>";
  expect_same_scatter(
      "func.func @main(%y: " + line + ", %z: " + line + ", %j: " + places + ", %k: " + places +
          ", %w: " + list + ") -> (" + line + ", " + line +
          ") {\n  %a = stablehlo.negate %y : " + line + "\n  %b = stablehlo.negate %z : " + line +
          "\n  %g = \"stablehlo.gather\"(%b, %k) " +
          "{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = "
          "[0], index_vector_dim = 1>, slice_sizes = array<i64: 1>} : (" +
          line + ", " + places + ") -> " + list + "\n  %u = stablehlo.add %g, %g : " + list +
          "\n  %r:2 = \"stablehlo.scatter\"(%a, %b, %j, %u, %w) ({\n"
          "  ^bb0(%c: tensor<f32>, %d: tensor<f32>, %e: tensor<f32>, %f: tensor<f32>):\n"
          "    %p = stablehlo.add %c, %e : tensor<f32>\n"
          "    %q = stablehlo.multiply %d, %f : tensor<f32>\n"
          "    stablehlo.return %p, %q : tensor<f32>, tensor<f32>\n"
          "  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], "
          "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} : (" +
          line + ", " + line + ", " + places + ", " + list + ", " + list + ") -> (" + line + ", " +
          line + ")\n  %s = stablehlo.negate %r#0 : " + line + "\n  %t = stablehlo.negate %r#1 : " +
          line + "\n  func.return %s, %t : " + line + ", " + line + "\n}\n",
      false);
}

std::string draw_program(const std::string& dtype, const std::string& distribution) {
  const std::string d = "tensor<" + dtype + ">", grid = "tensor<3x70x" + dtype + ">";
  const std::string kind = ", distribution = " + distribution + " : (" + d + ", " + d + ", tensor<";
  return "func.func @main(%a: " + d + ", %b: " + d + ") -> (" + grid + ", " + d + ") {\n" +
         "  %s = stablehlo.constant dense<[3, 70]> : tensor<2xi64>\n" +
         "  %t = stablehlo.constant dense<> : tensor<0xi64>\n" + "  %r = stablehlo.rng %a, %b, %s" +
         kind + "2xi64>) -> " + grid + "\n" + "  %q = stablehlo.rng %a, %b, %t" + kind +
         "0xi64>) -> " + d + "\n" + "  func.return %r, %q : " + grid + ", " + d + "\n}\n";
}

TEST(Rng, EveryTypeAndDistribution) {
  for (const char* dtype : {"f64", "f32", "bf16", "f16", "i32", "ui64", "i8", "ui8", "i4", "i1"}) {
    expect_same(draw_program(dtype, "UNIFORM"));
  }
  for (const char* dtype : {"f32", "bf16", "f16"}) expect_same(draw_program(dtype, "NORMAL"));
  expect_near(draw_program("f64", "NORMAL"), 1e-13);
}

// Each iteration of a loop and each branch draws on from where the one before ended.
TEST(Rng, LoopsAndBranchesCountTheirDraws) {
  expect_same(R"(
func.func @main(%a: tensor<f32>, %b: tensor<f32>, %w: tensor<i1>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %s = stablehlo.constant dense<4> : tensor<1xi64>
  %first = stablehlo.rng %a, %b, %s, distribution = UNIFORM
    : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
  %i = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %five = stablehlo.constant dense<5> : tensor<i32>
  %sums:2 = stablehlo.while(%k = %i, %sum = %first) : tensor<i32>, tensor<4xf32>
    cond {
      %p = stablehlo.compare LT, %k, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %n = stablehlo.rng %a, %b, %s, distribution = UNIFORM
        : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
      %m = "stablehlo.if"(%w) ({
        %x = stablehlo.rng %a, %b, %s, distribution = NORMAL
          : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
        stablehlo.return %x : tensor<4xf32>
      }, {
        stablehlo.return %n : tensor<4xf32>
      }) : (tensor<i1>) -> tensor<4xf32>
      %t = stablehlo.add %sum, %n : tensor<4xf32>
      %u = stablehlo.add %t, %m : tensor<4xf32>
      %j = stablehlo.add %k, %one : tensor<i32>
      stablehlo.return %j, %u : tensor<i32>, tensor<4xf32>
    }
  %last = stablehlo.rng %a, %b, %s, distribution = UNIFORM
    : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
  func.return %first, %sums#1, %last : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
})");
}

// What still needs the host, and why; a case that has kernels now belongs to the tests above.
TEST(HostSteps, TheGapsThatAreLeft) {
  const std::vector<std::array<std::string, 2>> gaps = {
      {"a sort's comparator hands no count of draws on", R"(
func.func @main(%x: tensor<9xf32>) -> tensor<9xf32> {
  %r = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.constant dense<> : tensor<0xi64>
    %n = stablehlo.rng %a, %b, %s, distribution = UNIFORM
      : (tensor<f32>, tensor<f32>, tensor<0xi64>) -> tensor<f32>
    %p = stablehlo.compare LT, %n, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) {dimension = 0 : i64} : (tensor<9xf32>) -> tensor<9xf32>
  func.return %r : tensor<9xf32>
})"},
      {"the package's rules make loops of it before it gets here", R"(
func.func @main(%a: tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>) {
  %r:2 = stablehlo.custom_call @Qr(%a) : (tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>)
  func.return %r#0, %r#1 : tensor<4x3xf32>, tensor<3xf32>
})"},
      {"JAX sends top_k as a composite of a sort", R"(
func.func @main(%a: tensor<9xf32>) -> (tensor<3xf32>, tensor<3xi32>) {
  %r:2 = stablehlo.custom_call @mhlo.topk(%a)
    {mhlo.attributes = {k = 3 : i64, largest = true}} : (tensor<9xf32>) -> (tensor<3xf32>, tensor<3xi32>)
  func.return %r#0, %r#1 : tensor<3xf32>, tensor<3xi32>
})"},
  };
  for (const auto& [reason, text] : gaps) {
    Result<std::unique_ptr<ir::Module>> read = stablehlo::read_program(text);
    ASSERT_TRUE(read.ok()) << read.status().message() << "\n" << text;
    const auto plan = compile_program(std::shared_ptr<const ir::Module>(std::move(*read)));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_TRUE(has_host_step((*plan)->steps)) << "no gap any more: " << reason << text;
  }
}

TEST(Bitcast, BetweenWidths) {
  expect_same(R"(
func.func @main(%x: tensor<3x4xf64>, %y: tensor<5x2xui32>, %z: tensor<4x2xui8>)
    -> (tensor<3x4x2xf32>, tensor<3x4x8xui8>, tensor<3x4x4xbf16>, tensor<5xf64>, tensor<4xf16>) {
  %a = stablehlo.bitcast_convert %x : (tensor<3x4xf64>) -> tensor<3x4x2xf32>
  %b = stablehlo.bitcast_convert %x : (tensor<3x4xf64>) -> tensor<3x4x8xui8>
  %c = stablehlo.bitcast_convert %x : (tensor<3x4xf64>) -> tensor<3x4x4xbf16>
  %d = stablehlo.bitcast_convert %y : (tensor<5x2xui32>) -> tensor<5xf64>
  %e = stablehlo.bitcast_convert %z : (tensor<4x2xui8>) -> tensor<4xf16>
  func.return %a, %b, %c, %d, %e
    : tensor<3x4x2xf32>, tensor<3x4x8xui8>, tensor<3x4x4xbf16>, tensor<5xf64>, tensor<4xf16>
})",
              false);
}

}  // namespace
}  // namespace hekla::testing
