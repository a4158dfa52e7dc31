// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/plugin.h"

#include <gtest/gtest.h>

#include <fstream>

#include "runtime/plugin/testing/fake.h"

namespace hekla::runtime {
namespace {

struct Broken {
  const char* kind;
  StatusCode code;
  const char* words;
};

class BrokenPlugin : public testing::TestWithParam<Broken> {};

TEST_P(BrokenPlugin, IsRefusedWithItsOwnReason) {
  auto plugin = Plugin::load("broken", fake(GetParam().kind));
  ASSERT_FALSE(plugin.ok());
  EXPECT_EQ(plugin.status().code(), GetParam().code) << plugin.status().to_string();
  EXPECT_NE(plugin.status().message().find(GetParam().words), std::string::npos)
      << plugin.status().to_string();
  EXPECT_NE(plugin.status().message().find(fake(GetParam().kind)), std::string::npos)
      << "the message names the library";
  // The failure is remembered: initialising a library twice is not allowed.
  EXPECT_EQ(Plugin::load("again", fake(GetParam().kind)).status().to_string(),
            plugin.status().to_string());
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, BrokenPlugin,
    testing::Values(
        Broken{"no_symbol", StatusCode::kFailedPrecondition, "no symbol GetPjrtApi"},
        Broken{"null_table", StatusCode::kFailedPrecondition, "returned null"},
        Broken{"old_minor", StatusCode::kFailedPrecondition, "version 0.28"},
        Broken{"other_major", StatusCode::kFailedPrecondition, "version 1.114"},
        Broken{"minor_56", StatusCode::kFailedPrecondition, "version 0.56"},
        Broken{"short_table", StatusCode::kFailedPrecondition, "function table"},
        Broken{"tiny_table", StatusCode::kFailedPrecondition, "function table has 16 bytes"},
        Broken{"init_fails", StatusCode::kUnavailable, "the fake driver is not running"},
        Broken{"undefined_symbol", StatusCode::kFailedPrecondition,
               "hekla_symbol_that_nobody_defines"}),
    [](const auto& info) { return std::string(info.param.kind); });

TEST(Plugin, AMissingFileIsNotFound) {
  auto plugin = Plugin::load("gone", "/nonexistent/plugin.so");
  EXPECT_EQ(plugin.status().code(), StatusCode::kNotFound);
  EXPECT_NE(plugin.status().message().find("/nonexistent/plugin.so"), std::string::npos);
}

TEST(Plugin, AFileThatIsNoLibraryGivesTheLinkersReason) {
  const std::string path = testing::TempDir() + "not_a_library.so";
  std::ofstream(path) << "not a library";
  auto plugin = Plugin::load("text", path);
  EXPECT_EQ(plugin.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(plugin.status().message().find("dynamic linker"), std::string::npos);
}

TEST(Plugin, LoadsOnceAndKnowsItsAttributes) {
  auto plugin = Plugin::load("works", fake("works"));
  ASSERT_TRUE(plugin.ok()) << plugin.status().to_string();
  EXPECT_EQ((*plugin)->api_minor(), 114);
  ASSERT_FALSE((*plugin)->attributes().empty());
  EXPECT_EQ((*plugin)->attributes()[0].second, OptionValue(std::vector<int64_t>{1, 13, 7}));
  auto again = Plugin::load("other name", fake("works"));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(plugin->get(), again->get());
}

TEST(Plugin, AMissingSlotIsUnimplemented) {
  auto plugin = Plugin::load("works", fake("works"));
  ASSERT_TRUE(plugin.ok());
  EXPECT_FALSE((*plugin)->has(&PJRT_Api::PJRT_Client_Compile));
  HEKLA_PJRT_ARGS(PJRT_Client_Compile_Args, args, executable);
  const Status status = HEKLA_PJRT_CALL(**plugin, PJRT_Client_Compile, &args);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("PJRT_Client_Compile"), std::string::npos);
}

TEST(Plugin, LibtpuIsToldNotToAskTheMetadataServer) {
  unsetenv("TPU_SKIP_MDS_QUERY");
  auto plugin = Plugin::load("tpu", HEKLA_BINARY_DIR "/tests/plugins/libtpu_fake.so");
  ASSERT_TRUE(plugin.ok()) << plugin.status().to_string();
  EXPECT_EQ((*plugin)->attributes()[1].second, OptionValue(std::string("1")));
}

}  // namespace
}  // namespace hekla::runtime
