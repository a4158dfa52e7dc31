// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/io/priority.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>
#include <thread>

#include "runtime/base/io/scripted_io.h"
#include "runtime/base/io/temporary_folder.h"
#include "runtime/checkpoint/io/writer.h"

namespace hekla::checkpoint {
namespace {

int my_nice() { return ::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid))); }

TEST(Priority, IsThereWhileSomebodyHoldsIt) {
  const auto priority = std::make_shared<Priority>();
  int changes = 0;
  {
    const Priority::Watch watch(priority, [&changes] { ++changes; });
    Priority::Hold kept;
    {
      const Priority::Hold first(priority);
      EXPECT_TRUE(priority->is_raised());
      Priority::Hold second(priority);
      kept = std::move(second);
    }
    EXPECT_TRUE(priority->is_raised());
    EXPECT_EQ(changes, 1);
    kept = Priority::Hold();
    EXPECT_FALSE(priority->is_raised());
    EXPECT_EQ(changes, 2);
  }
  const Priority::Hold unseen(priority);
  EXPECT_EQ(changes, 2);
}

TEST(Priority, OneThreadIsLoweredAndNoOther) {
  const int before = my_nice();
  int lowered = 0, policy = -1;
  std::thread([&] {
    lower_this_thread();
    lowered = my_nice();
    policy = ::sched_getscheduler(0);
    lower_this_thread();  // may be done again
    EXPECT_EQ(my_nice(), lowered);
  }).join();
  EXPECT_EQ(policy, SCHED_BATCH);
  EXPECT_TRUE(lowered > before || before >= 15) << before << " " << lowered;
  EXPECT_EQ(my_nice(), before);
  EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
}

// Which threads write: those of low priority, but while somebody waits.
TEST(Priority, DecidesWhoseTurnItIsToWrite) {
  if (my_nice() >= 15) GTEST_SKIP() << "this process has a low priority already";
  const TemporaryFolder folder;
  ScriptedIo io(posix_io());
  std::mutex mutex;
  std::set<int> nices;
  io.before_call = [&](IoCall call) {
    if (call != IoCall::kPwrite) return;
    const std::lock_guard lock(mutex);
    nices.insert(my_nice());
  };
  WriterOptions options;
  options.threads = 2;
  options.item_bytes = int64_t{1} << 20;
  options.staging_bytes = options.item_bytes;
  options.background = true;
  const auto pool = WriterPool::create(io, options);
  ASSERT_TRUE(pool.ok()) << pool.status().to_string();
  const std::vector<std::byte> data(size_t{8} << 20);
  int number = 0;
  const auto nices_of_a_file = [&] {
    nices.clear();
    const auto size = static_cast<int64_t>(data.size());
    auto writer = FileWriter::create(**pool, folder.file(std::to_string(++number)), size, 8);
    EXPECT_TRUE(writer.ok()) << writer.status().to_string();
    (*writer)->add({data.data(), size, 0, 0});
    const Status status = (*writer)->drain();
    EXPECT_TRUE(status.ok()) << status.to_string();
    return nices;
  };
  const int mine = my_nice();
  std::set<int> found = nices_of_a_file();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_GT(*found.begin(), mine);
  {
    const Priority::Hold hold((*pool)->priority());
    EXPECT_EQ(nices_of_a_file(), std::set<int>{mine});
  }
  found = nices_of_a_file();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_GT(*found.begin(), mine);
}

// What is under way goes on when priority comes and goes all the time.
TEST(Priority, LosesNothingWhileItChanges) {
  const TemporaryFolder folder;
  WriterOptions options;
  options.threads = 2;
  options.item_bytes = int64_t{1} << 20;
  options.staging_bytes = options.item_bytes;
  options.background = true;
  const auto pool = WriterPool::create(posix_io(), options);
  ASSERT_TRUE(pool.ok()) << pool.status().to_string();
  const std::vector<std::byte> data(size_t{16} << 20, std::byte{7});
  const auto size = static_cast<int64_t>(data.size());
  std::jthread changes([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const Priority::Hold hold((*pool)->priority());
      std::this_thread::yield();
    }
  });
  for (int number = 0; number < 4; ++number) {
    auto writer = FileWriter::create(**pool, folder.file(std::to_string(number)), size, 16);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    (*writer)->add({data.data(), size, 0, 0});
    ASSERT_TRUE((*writer)->drain().ok());
    EXPECT_EQ((*writer)->bytes_written(), size);
  }
}

}  // namespace
}  // namespace hekla::checkpoint
