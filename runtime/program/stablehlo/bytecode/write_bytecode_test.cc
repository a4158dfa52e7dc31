// SPDX-License-Identifier: Apache-2.0
// What was written reads back as the same program: every artifact, at the newest version of VHLO
// and at older ones, or a refusal that names the version that is needed. tests/jax/test_bytecode.py
// holds the same files to MLIR's own reader.
#include "runtime/program/stablehlo/bytecode/write_bytecode.h"

#include <gtest/gtest.h>

#include "runtime/program/ir/compare.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/bytecode/raw_module.h"
#include "runtime/program/stablehlo/bytecode/vhlo_to_ir.h"
#include "runtime/program/stablehlo/testing/artifacts.h"
#include "runtime/program/stablehlo/testing/sample_modules.h"

namespace hekla::stablehlo {
namespace {

std::unique_ptr<ir::Module> read(std::string_view bytes) {
  Result<RawModule> raw = read_bytecode(bytes);
  if (!raw.ok()) die_of_bad_result(raw.status());
  Result<std::unique_ptr<ir::Module>> module = vhlo_to_ir(*raw, nullptr);
  if (!module.ok()) die_of_bad_result(module.status());
  return *std::move(module);
}

// The locations of all operations, in order.
std::string locations(const ir::Module& module) {
  std::string text;
  for (const auto& function : module.functions) {
    ir::walk(function->body(),
             [&](const ir::Operation& op) { text += ir::location_string(op.location()) + "\n"; });
  }
  return text;
}

bool has_unknown_operations(const ir::Module& module) {
  bool found = false;
  for (const auto& function : module.functions) {
    ir::walk(function->body(), [&](const ir::Operation& op) {
      found |= op.code() == ir::OpCode::kUnknown || op.name().starts_with("check.");
    });
  }
  return found;
}

class Written : public ::testing::TestWithParam<std::string> {};

TEST_P(Written, ReadsBackAsTheSameProgram) {
  const std::string bytes = testing::read_artifact(GetParam() + ".mlirbc");
  const std::unique_ptr<ir::Module> module = read(bytes);
  const Result<std::string> written = write_bytecode(*module);
  if (has_unknown_operations(*module)) {
    EXPECT_EQ(written.status().code(), StatusCode::kUnimplemented);
    return;
  }
  ASSERT_TRUE(written.ok()) << written.status().to_string();
  const std::unique_ptr<ir::Module> again = read(*written);
  EXPECT_EQ(ir::first_difference(*module, *again).value_or(""), "");
  EXPECT_EQ(locations(*module), locations(*again));
}

TEST_P(Written, AnOlderVersionSaysTheSameOrNamesWhatItLacks) {
  const std::string bytes = testing::read_artifact(GetParam() + ".mlirbc");
  const std::unique_ptr<ir::Module> module = read(bytes);
  if (has_unknown_operations(*module)) return;
  bool was_written = false;
  for (int minor : {0, 1, 4, 5, 8, 9, 11, 13, 16, 17, 20}) {
    const Result<std::string> written = write_bytecode(*module, {1, minor, 0});
    if (!written.ok()) {
      EXPECT_FALSE(was_written) << "1." << minor << " but not older";
      EXPECT_EQ(written.status().code(), StatusCode::kUnimplemented);
      EXPECT_NE(written.status().message().find("needs VHLO 1."), std::string::npos)
          << written.status().to_string();
      continue;
    }
    was_written = true;
    EXPECT_EQ(ir::first_difference(*module, *read(*written)).value_or(""), "") << "1." << minor;
  }
  EXPECT_TRUE(was_written);
}

INSTANTIATE_TEST_SUITE_P(Artifacts, Written,
                         ::testing::ValuesIn(testing::artifact_names(".mlirbc")),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

TEST(WriteBytecode, VersionsOutsideOfWhatIsWrittenAreRefused) {
  const ir::Module empty;
  for (const VhloVersion version : {VhloVersion{0, 19, 0}, {1, 20, 1}, {2, 0, 0}}) {
    EXPECT_EQ(write_bytecode(empty, version).status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace hekla::stablehlo
