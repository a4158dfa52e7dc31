// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/open.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace hekla::runtime {
namespace {

std::string fake(const std::string& kind) {
  return HEKLA_BINARY_DIR "/tests/plugins/fake_" + kind + ".so";
}

class OpenTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("PJRT_DEVICE");
    unsetenv("HEKLA_CLIENT_OPTIONS");
    const std::string path = "good=" + fake("works") + ":aborting=" + fake("init_aborts") +
                             ":empty=" + fake("create_fails");
    setenv("HEKLA_PLUGIN_PATH", path.c_str(), 1);
  }
  void TearDown() override {
    for (const char* name : {"PJRT_DEVICE", "HEKLA_CLIENT_OPTIONS", "HEKLA_PLUGIN_PATH"}) {
      unsetenv(name);
    }
  }
};

TEST_F(OpenTest, OpensANamedPluginInAnyCase) {
  const Registry registry = Registry::from_environment();
  auto client = open_client("Good", {}, registry);
  ASSERT_TRUE(client.ok()) << client.status().to_string();
  EXPECT_EQ(client->platform(), "fake");
  ASSERT_EQ(client->addressable_devices().size(), 1u);
  EXPECT_EQ(client->addressable_devices()[0].id(), 7);
  EXPECT_EQ(client->addressable_devices()[0].kind(), "fake device");
  EXPECT_FALSE(client->addressable_devices()[0].default_memory().ok());
  EXPECT_TRUE(client->device(7).ok());
  EXPECT_NE(client->device(3).status().message().find("there are: 7"), std::string::npos);
}

TEST_F(OpenTest, PjrtDeviceChooses) {
  const Registry registry = Registry::from_environment();
  setenv("PJRT_DEVICE", "GOOD", 1);
  EXPECT_TRUE(open_client("", {}, registry).ok());
  setenv("PJRT_DEVICE", fake("works").c_str(), 1);
  EXPECT_TRUE(open_client("", {}, registry).ok());
  setenv("PJRT_DEVICE", "quantum", 1);
  const Status status = open_client("", {}, registry).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("PJRT_DEVICE"), std::string::npos);
  EXPECT_NE(status.message().find("good"), std::string::npos) << "it lists what is there";
}

TEST_F(OpenTest, AnAbortingPluginLeavesThisProcessAlive) {
  const Registry registry = Registry::from_environment();
  const Status status = open_client("aborting", {}, registry).status();
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_NE(status.message().find("signal 6"), std::string::npos) << status.to_string();
}

TEST_F(OpenTest, ADriverWithoutADeviceKeepsItsWords) {
  const Registry registry = Registry::from_environment();
  const Status status = open_client("empty", {}, registry).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("No visible fake devices."), std::string::npos);
}

TEST_F(OpenTest, OptionsOfTheCallWinOverTheEnvironment) {
  const Registry registry = Registry::from_environment();
  setenv("HEKLA_CLIENT_OPTIONS", "fail=true", 1);
  EXPECT_EQ(open_client("good", {}, registry).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(open_client("good", {{"fail", false}}, registry).ok());
  setenv("HEKLA_CLIENT_OPTIONS", "nonsense", 1);
  EXPECT_NE(open_client("good", {}, registry).status().message().find("HEKLA_CLIENT_OPTIONS"),
            std::string::npos);
}

}  // namespace
}  // namespace hekla::runtime
