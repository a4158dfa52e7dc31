// SPDX-License-Identifier: Apache-2.0
// Launch plans compute what the reference evaluator computes: every artifact and every real program
// is compiled, its plan run by the plan interpreter, and all outputs compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string_view>

#include "backends/compiler/compile.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"
#include "runtime/program/stablehlo/testing/artifacts.h"
#include "tests/compiler/plan_interpreter.h"
#include "tests/compiler/runnable.h"

namespace hekla::testing {
namespace {

// Scalar instructions that the plan interpreter gets through in a few seconds.
constexpr double kMaxWork = 3e8;

// Small values that keep most programs in their domain: floats in [0.25, 1.75), integers 0 to 3.
HostArray random_array(const ir::Type& type, std::mt19937_64& random) {
  HostArray array(type.dtype(), type.dims());
  const int64_t width = dtype_bytes(complex_part(type.dtype()));
  const int64_t count = array.size_bytes() / std::max<int64_t>(width, 1);
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = random() % 4;
    const DType part = complex_part(type.dtype());
    if (part == DType::kI1) bits &= 1;
    if (is_float(part)) {
      bits = float_to_bits(part, 0.25 + static_cast<double>(random() % 1536) / 1024);
    }
    std::memcpy(array.mutable_data() + i * width, &bits, static_cast<size_t>(width));
  }
  return array;
}

// Of each part. Integers and booleans must be equal.
void expect_close(const HostArray& want, const std::vector<std::byte>& got,
                  const std::string& name) {
  ASSERT_EQ(static_cast<size_t>(want.size_bytes()), got.size()) << name;
  const DType part = complex_part(want.dtype());
  const int64_t width = dtype_bytes(part);
  if (width == 0) return;
  const int mantissa = is_float(part) ? float_format(part).mantissa_bits : 0;
  double scale = 0;
  const int64_t count = want.size_bytes() / width;
  auto value = [&](const std::byte* bytes) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes, static_cast<size_t>(width));
    return is_float(part) ? float_from_bits(part, bits) : static_cast<double>(bits);
  };
  for (int64_t i = 0; i < count; ++i) {
    const double w = value(want.data() + i * width);
    if (std::isfinite(w)) scale = std::max(scale, std::fabs(w));
  }
  int wrong = 0;
  for (int64_t i = 0; i < count && wrong < 3; ++i) {
    const double w = value(want.data() + i * width);
    const double g = value(got.data() + i * width);
    if (w == g || (std::isnan(w) && std::isnan(g))) continue;
    const double tolerance = is_float(part) ? std::ldexp(1, 6 - mantissa) * scale : 0;
    if (!(std::fabs(w - g) <= tolerance)) {
      ++wrong;
      ADD_FAILURE() << name << ": element " << i << " is " << g << " instead of " << w;
    }
  }
}

// Real programs that take the interpreter or the evaluator minutes: their plans are made and
// verified here, and run by the devices' tests. The test fails when one of them is short.
const std::set<std::string_view>& too_long() {
  static const std::set<std::string_view> kNames = {"gpt_forward", "gpt_train_step"};
  return kNames;
}

void compare(const std::string& bytes, const std::string& name) {
  Result<std::unique_ptr<ir::Module>> read = stablehlo::read_program(bytes);
  ASSERT_TRUE(read.ok()) << name << ": " << read.status().message();
  const std::shared_ptr<const ir::Module> module = std::move(*read);
  ASSERT_TRUE(ir::verify(*module).ok()) << name;
  if (not_run().contains(name)) {
    EXPECT_FALSE(can_run(*module)) << name << " runs now: take it off the list";
    return;
  }
  ASSERT_TRUE(can_run(*module)) << name << ": " << reference::check_supported(*module).message();
  CompilerOptions options;
  options.verify_passes = true;
  options.plan.row_groups = plan::RowGroups::kAll;
  const auto plan = compile_program(module, options);
  ASSERT_TRUE(plan.ok()) << name << ": " << plan.status().message();
  if (too_long().contains(name)) {
    EXPECT_GT(plan_work(**plan), kMaxWork) << name << " is short now: take it off the list";
    return;
  }
  ASSERT_LE(plan_work(**plan), kMaxWork) << name << ": too long for the interpreter";
  std::mt19937_64 random(1);
  std::vector<HostArray> inputs;
  for (const ir::Type& type : module->entry()->type.elements()) {
    inputs.push_back(random_array(type, random));
  }
  const auto want = reference::evaluate(*module, inputs);
  const auto got = run_plan(**plan, inputs);
  ASSERT_TRUE(want.ok()) << name << ": " << want.status().message();
  ASSERT_TRUE(got.ok()) << name << ": " << got.status().message() << "\n"
                        << plan::to_string(**plan);
  ASSERT_EQ(want->size(), got->size());
  for (size_t i = 0; i < want->size(); ++i) {
    if ((*want)[i].dtype() == DType::kInvalid) continue;
    expect_close((*want)[i], (*got)[i], name + " output " + std::to_string(i));
  }
  // Where values are changes none.
  options.plan.arena_limit_bytes = 1000;
  const auto apart = compile_program(module, options);
  ASSERT_TRUE(apart.ok()) << name << ": " << apart.status().message();
  if ((*apart)->arenas.size() > 1) {
    const auto same = run_plan(**apart, inputs);
    ASSERT_TRUE(same.ok()) << name << ": " << same.status().message();
    EXPECT_EQ(*same, *got) << name << "\n" << plan::to_string(**apart);
  }
  if (::testing::Test::HasFailure()) std::printf("%s\n", plan::to_string(**plan).c_str());
}

class Artifacts : public ::testing::TestWithParam<std::string> {};

TEST_P(Artifacts, PlanComputesWhatTheEvaluatorDoes) {
  compare(stablehlo::testing::read_artifact(GetParam() + ".mlirbc"), GetParam());
}

class RealPrograms : public ::testing::TestWithParam<std::string> {};

TEST_P(RealPrograms, PlanComputesWhatTheEvaluatorDoes) {
  compare(stablehlo::testing::read_real_program(GetParam()), GetParam());
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
INSTANTIATE_TEST_SUITE_P(All, RealPrograms,
                         ::testing::ValuesIn(stablehlo::testing::real_program_names()), test_name);

}  // namespace
}  // namespace hekla::testing
