// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/registry.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/plugin/testing/fake.h"

namespace hekla::runtime {
namespace {

class RegistryTest : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name :
         {"HEKLA_PLUGIN_PATH", "PJRT_NAMES_AND_LIBRARY_PATHS", "PJRT_LIBRARY_PATH"}) {
      unsetenv(name);
    }
  }
  static void set(const char* name, const std::string& value) {
    setenv(name, value.c_str(), /*overwrite=*/1);
  }
};

TEST_F(RegistryTest, KnowsTheBuiltInPluginsByName) {
  const Registry registry = Registry::from_environment();
  std::vector<std::string> names;
  for (const PluginEntry& entry : registry.list()) {
    names.push_back(entry.name);
    EXPECT_FALSE(entry.is_foreign);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"vulkan", "cpu", "reference"}));
}

TEST_F(RegistryTest, TheCpuHasItsNameInJaxAsAnAlias) {
  EXPECT_EQ(Registry::from_environment().find("TBB")->name, "cpu");
  set("HEKLA_PLUGIN_PATH", "tbb=" + fake("works"));
  EXPECT_EQ(Registry::from_environment().find("tbb")->path, fake("works"));
}

TEST_F(RegistryTest, ReadsHeklasAndJaxsVariables) {
  set("HEKLA_PLUGIN_PATH", "Mine=" + fake("works") + ":" + fake("no_device"));
  set("PJRT_NAMES_AND_LIBRARY_PATHS", "theirs:" + fake("create_fails") + ",mine:/other.so");
  const Registry registry = Registry::from_environment();
  ASSERT_TRUE(registry.find("MINE").ok());
  EXPECT_EQ(registry.find("mine")->path, fake("works"));
  EXPECT_EQ(registry.find("fake_no_device")->path, fake("no_device"));
  EXPECT_EQ(registry.find("Theirs")->path, fake("create_fails"));
  ASSERT_EQ(registry.problems().size(), 1u);
  EXPECT_NE(registry.problems()[0].find("'mine'"), std::string::npos);
}

TEST_F(RegistryTest, BadVariablesAreReportedAndTheRestIsUsed) {
  set("HEKLA_PLUGIN_PATH", "=x:/nonexistent:a=" + fake("works"));
  set("PJRT_NAMES_AND_LIBRARY_PATHS", "no-colon,:path,b:" + fake("works"));
  const Registry registry = Registry::from_environment();
  EXPECT_TRUE(registry.find("a").ok());
  EXPECT_TRUE(registry.find("b").ok());
  EXPECT_EQ(registry.problems().size(), 4u);
}

TEST_F(RegistryTest, AnUnknownNameListsWhatThereIs) {
  set("HEKLA_PLUGIN_PATH", "mine=" + fake("works"));
  const Registry registry = Registry::from_environment();
  const Status status = registry.find("quantum").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  for (const char* word : {"'quantum'", "mine", "vulkan", "reference", "HEKLA_PLUGIN_PATH"}) {
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
}

TEST_F(RegistryTest, AMissingLibraryIsNamed) {
  set("HEKLA_PLUGIN_PATH", "gone=/nonexistent/lib.so");
  const Registry registry = Registry::from_environment();
  const Status status = registry.find("gone").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("/nonexistent/lib.so"), std::string::npos);
  EXPECT_EQ(registry.find("/nonexistent/lib.so").status().code(), StatusCode::kNotFound);
}

TEST_F(RegistryTest, PathsNeedNoRegistration) {
  const Registry registry = Registry::from_environment();
  auto entry = registry.find(fake("works"));
  ASSERT_TRUE(entry.ok());
  EXPECT_TRUE(entry->is_foreign);
}

TEST_F(RegistryTest, ExplicitRegistrationWins) {
  set("HEKLA_PLUGIN_PATH", "mine=/nonexistent/lib.so");
  Registry registry = Registry::from_environment();
  ASSERT_TRUE(registry.register_plugin("MINE", fake("works")).ok());
  EXPECT_EQ(registry.find("mine")->path, fake("works"));
  EXPECT_TRUE(registry.register_plugin("mine", fake("works")).ok());
  EXPECT_EQ(registry.register_plugin("mine", fake("no_device")).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(registry.register_plugin(" ", fake("works")).code(), StatusCode::kInvalidArgument);
}

TEST(NameOfLibrary, DropsWhatAllLibrariesHave) {
  EXPECT_EQ(name_of_library("/x/pjrt_plugin_xpu.so"), "xpu");
  EXPECT_EQ(name_of_library("/x/libpjrt_cpu.so"), "cpu");
  EXPECT_EQ(name_of_library("/x/pjrt_c_api_cpu_plugin.so"), "cpu");
  EXPECT_EQ(name_of_library("libtpu.so"), "tpu");
}

}  // namespace
}  // namespace hekla::runtime
