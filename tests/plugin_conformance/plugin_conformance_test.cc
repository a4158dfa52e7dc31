// SPDX-License-Identifier: Apache-2.0
// One test per check of the conformance suite, against one of our plugins: nothing may fail, crash
// or run out of time, and only what is listed here may be declined.
//
// Arguments of the program: the library, then client create options as key=value, beside those of
// GoogleTest.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugin_api/conformance/conformance.h"

namespace hekla::conformance {
namespace {

std::string library;
std::vector<std::pair<std::string, std::string>> create_options;

// What a plugin of ours may decline, with the reason.
const std::set<std::string_view>& may_be_declined() {
  static const std::set<std::string_view> kNames = {
      "host-buffer-mutable-zero-copy",  // clients never send it
      "compile-mhlo-text",              // the mhlo dialect has no portable form
      "compile-for-topology",           // needs a device to compile for
      "topology-create",                //
      "topology-canonical-shape",       // layouts of the reference device are row-major
      "dma-map",                        // host memory needs no registration here
      "poison-execution",               // launches do not collect errors from outside
      "copy-to-device",                 // with one device there is no other
      "serialize-override",             //
      "execute-wrong-device",           //
      "execute-two-replicas",           //
      "gang-partitions",                //
      "gang-replicas",                  //
      "gang-assignment",                //
      "gang-refused",                   //
      "gang-waiting-alone",             //
      "gang-error",                     //
      "gang-user-data",                 //
      "callback-gang",                  //
      "callback-gang-error",            //
      "dtype-s1",                       // StableHLO has no integers of one bit besides i1
      "dtype-u1",                       //
      "host-memory-allocator",          // ordinary host memory serves
  };
  return kNames;
}

// What needs memory that the host sees, which an option takes away.
bool needs_host_visible_memory(std::string_view name) {
  return name == "opaque-pointer" || name == "unsafe-pointer" ||
         name == "donation-external-reference" || name == "view-of-device-buffer" ||
         name == "view-without-callback" || name == "view-donated" || name == "view-result";
}

bool is_staging() {
  return std::count(create_options.begin(), create_options.end(),
                    std::pair<std::string, std::string>("vulkan_staging", "1")) > 0;
}

class PluginConformance : public testing::TestWithParam<std::string> {};

TEST_P(PluginConformance, Holds) {
  Options options;
  options.filter = GetParam();
  options.create_options = create_options;
  options.timeout_seconds = 120;  // sanitizers and a busy machine
  const auto results = run_all(library, options, {});
  ASSERT_EQ(results.size(), 1u);
  const Result& result = results[0];
  if (result.outcome == Outcome::kNotOffered && may_be_declined().count(result.name) == 1) return;
  if (result.outcome == Outcome::kNotOffered && is_staging() &&
      needs_host_visible_memory(result.name)) {
    return;
  }
  EXPECT_EQ(result.outcome, Outcome::kPass) << format_row(result) << "\n" << result.output;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const CheckInfo& info : list()) all.push_back(info.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Checks, PluginConformance, testing::ValuesIn(names()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace hekla::conformance

int main(int argc, char** argv) {
  hekla::conformance::run_if_child(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s PLUGIN.so [key=value...] [GoogleTest arguments]\n", argv[0]);
    return 2;
  }
  hekla::conformance::library = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string option = argv[i];
    const size_t equals = option.find('=');
    if (equals == 0 || equals == std::string::npos) {
      std::fprintf(stderr, "%s is no key=value\n", argv[i]);
      return 2;
    }
    hekla::conformance::create_options.emplace_back(option.substr(0, equals),
                                                    option.substr(equals + 1));
  }
  return RUN_ALL_TESTS();
}
