// SPDX-License-Identifier: Apache-2.0
// Every artifact decodes to its truth: JSON that MLIR's own reader of the same bytes agrees with.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/program/stablehlo/bytecode/raw_module.h"
#include "runtime/program/stablehlo/bytecode/vhlo_json.h"
#include "runtime/program/stablehlo/testing/artifacts.h"

namespace hekla::stablehlo {
namespace {

using nlohmann::json;

// "/module/regions/0/0/ops/3/props/value/hex: 00 | 01"; empty when equal.
std::string json_difference(const json& actual, const json& expected, const std::string& path) {
  const auto describe = [&] {
    return path + ": " + actual.dump().substr(0, 300) + " | " + expected.dump().substr(0, 300);
  };
  if (actual.type() != expected.type() &&
      !(actual.is_number_integer() && expected.is_number_integer())) {
    return describe();
  }
  if (expected.is_object()) {
    for (const auto& [key, value] : expected.items()) {
      if (!actual.contains(key)) return path + "/" + key + " is missing";
      std::string inner = json_difference(actual[key], value, path + "/" + key);
      if (!inner.empty()) return inner;
    }
    for (const auto& [key, value] : actual.items()) {
      if (!expected.contains(key)) return path + "/" + key + " should not be there";
    }
    return "";
  }
  if (expected.is_array()) {
    if (actual.size() != expected.size()) return describe();
    for (size_t i = 0; i < expected.size(); ++i) {
      std::string inner = json_difference(actual[i], expected[i], path + "/" + std::to_string(i));
      if (!inner.empty()) return inner;
    }
    return "";
  }
  return actual == expected ? "" : describe();
}

class Truth : public ::testing::TestWithParam<std::string> {};

TEST_P(Truth, DecodesToIt) {
  const std::string bytes = testing::read_artifact(GetParam() + ".mlirbc");
  Result<RawModule> module = read_bytecode(bytes);
  ASSERT_TRUE(module.ok()) << module.status().to_string();
  Result<std::string> text = vhlo_json(*module);
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  json expected = json::parse(testing::read_artifact(GetParam() + ".json"));
  // What no reader can know: how the file was made.
  for (const char* key : {"artifact", "note", "platform", "made_with"}) expected.erase(key);
  EXPECT_EQ(json_difference(json::parse(*text), expected, ""), "");
}

INSTANTIATE_TEST_SUITE_P(Artifacts, Truth, ::testing::ValuesIn(testing::artifact_names(".mlirbc")),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace hekla::stablehlo
