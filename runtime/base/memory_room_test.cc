// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/memory_room.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace hekla {
namespace {

constexpr int64_t kMega = int64_t{1} << 20;

// A machine of 1,000 MiB, of which 600 are available.
class Machine : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* const info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::path(::testing::TempDir()) /
            ("memory_room_" + std::to_string(::getpid()) + info->name());
    put("/proc/meminfo",
        "MemTotal:        1024000 kB\nMemFree: 1 kB\nMemAvailable:     614400 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(
        (root_.string() + path).substr(0, (root_.string() + path).rfind('/')));
    std::ofstream(root_.string() + path) << text;
  }
  MemoryRoom room() const { return memory_room(root_.string()); }

  std::filesystem::path root_;
};

using MemoryRoomTest = Machine;

TEST_F(MemoryRoomTest, WithoutGroupsItIsTheHosts) {
  EXPECT_EQ(room().limit.bytes, 1000 * kMega);
  EXPECT_EQ(room().limit.whose, "the host's");
  EXPECT_EQ(room().left.bytes, 600 * kMega);
}

TEST_F(MemoryRoomTest, TheLeastLimitUpwardsCounts) {
  put("/proc/self/cgroup", "0::/jobs/7/step\n");
  put("/proc/self/mountinfo",
      "24 1 0:22 / /proc rw - proc proc rw\n"
      "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  put("/sys/fs/cgroup/jobs/7/step/memory.max", "max\n");
  put("/sys/fs/cgroup/jobs/7/memory.max", "209715200\n");      // 200 MiB
  put("/sys/fs/cgroup/jobs/7/memory.current", "157286400\n");  // 150, a third of it files
  put("/sys/fs/cgroup/jobs/7/memory.stat",
      "anon 1\ninactive_file 41943040\nactive_file 10485760\n");
  put("/sys/fs/cgroup/jobs/memory.max", "419430400\n");
  put("/sys/fs/cgroup/jobs/memory.current", "403701760\n");  // 385 of 400: less is left there
  EXPECT_EQ(room().limit.bytes, 200 * kMega);
  EXPECT_EQ(room().limit.whose, "the control group's /jobs/7");
  EXPECT_EQ(room().left.bytes, 15 * kMega);
  EXPECT_EQ(room().left.whose, "the control group's /jobs");
  put("/sys/fs/cgroup/jobs/memory.current", "0\n");
  EXPECT_EQ(room().left.bytes, 100 * kMega);
}

TEST_F(MemoryRoomTest, GroupsOfVersionOneAsAContainerSeesThem) {
  // The path is the host's, the mount begins at the container's group.
  put("/proc/self/cgroup", "9:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n");
  put("/proc/self/mountinfo",
      "40 30 0:34 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
      "41 30 0:35 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "16777216\n");
  EXPECT_EQ(room().limit.bytes, 64 * kMega);
  EXPECT_EQ(room().left.bytes, 48 * kMega);
  // No limit.
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(room().limit.bytes, 1000 * kMega);
}

TEST_F(MemoryRoomTest, AMountThatThePathDoesNotNameIsTheOwnGroup) {
  put("/proc/self/cgroup", "0::/\n");
  put("/proc/self/mountinfo", "30 24 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  put("/sys/fs/cgroup/memory.max", "1048576\n");
  put("/sys/fs/cgroup/memory.current", "2097152\n");
  EXPECT_EQ(room().limit.bytes, kMega);
  EXPECT_EQ(room().left.bytes, 0);
}

TEST(MemoryRoom, OfThisMachineThereIsSome) {
  const MemoryRoom room = memory_room();
  EXPECT_GT(room.limit.bytes, 16 * kMega);
  EXPECT_FALSE(room.limit.whose.empty());
  EXPECT_LE(room.left.bytes, room.limit.bytes);
}

}  // namespace
}  // namespace hekla
