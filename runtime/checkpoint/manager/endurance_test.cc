// SPDX-License-Identifier: Apache-2.0
// Long runs and few descriptors: what 500 saves leave behind, and what 64 open files are enough
// for.
#include <dirent.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/io/temporary_folder.h"
#include "runtime/base/testing/child.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/manager/checkpoint_manager.h"
#include "runtime/checkpoint/restore/testing/written_state.h"
#include "runtime/checkpoint/restore/verify.h"
#include "runtime/rendezvous/file_store.h"

namespace hekla::checkpoint {
namespace {

// After these every pool, arena and cache has its size.
constexpr int64_t kWarmUp = 50;
constexpr int64_t kSaves = 500;
// A rank's save that forgot a page or 64 bytes of the heap would not pass: so much may either grow
// in one half of the saves. ctest switches off malloc's caches of each thread, which count as used
// and fill for long (GLIBC_TUNABLES in CMakeLists.txt).
constexpr int64_t kMaxHeap = int64_t{30} << 10;
constexpr int64_t kMaxPages = int64_t{900} << 10;

int64_t entries_of(const char* folder) {
  DIR* opened = ::opendir(folder);
  EXPECT_NE(opened, nullptr);
  int64_t count = 0;
  while (::readdir(opened) != nullptr) ++count;
  ::closedir(opened);
  return count;
}

// What malloc has given out, and the pages mapped without it. The process's size says less: malloc
// gives the free end of its arena back at times.
struct Footprint {
  int64_t heap = 0, other_pages = 0, descriptors = 0, threads = 0, keys = 0;
};

Footprint footprint() {
  Footprint now;
  long pages = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  EXPECT_EQ(std::fscanf(file, "%ld", &pages), 1);
  std::fclose(file);
  const struct mallinfo2 info = ::mallinfo2();
  now.heap = static_cast<int64_t>(info.uordblks + info.hblkhd);
  now.other_pages =
      pages * ::sysconf(_SC_PAGESIZE) - static_cast<int64_t>(info.arena + info.hblkhd);
  now.descriptors = entries_of("/proc/self/fd");
  now.threads = entries_of("/proc/self/task");
  return now;
}

// Small tensors, which travel with the metadata, and one that is written directly.
State state_of(int64_t step) {
  State state;
  for (int i = 0; i < 20; ++i) {
    std::vector<float> values(50, static_cast<float>(step + i));
    add_array(&state, fmt::format("layer/{}/bias", i),
              HostArray::from<float>(DType::kF32, {50}, values));
  }
  std::vector<float> values(50000, static_cast<float>(step));
  add_array(&state, "large", HostArray::from<float>(DType::kF32, {50000}, values));
  state.items["step"] = step;
  return state;
}

ManagerOptions small_options() {
  ManagerOptions options;
  options.retention.last = 2;
  options.busy_policy = BusyPolicy::kWait;
  options.saver.writer.item_bytes = int64_t{1} << 20;
  options.saver.writer.staging_bytes = int64_t{2} << 20;
  return options;
}

// Two ranks of one process save 500 times, in the background and in the foreground, and restore now
// and then.
TEST(Endurance, FiveHundredSavesLeaveMemoryDescriptorsAndStoreAsTheyWere) {
  constexpr int kWorld = 2;
  // mallinfo2 counts the pages of one arena and what mmap gave malloc, not the other arenas.
  ::mallopt(M_ARENA_MAX, 1);
  TemporaryFolder folder;
  const auto store = std::make_shared<rendezvous::LocalStore>();
  std::barrier together(kWorld);
  std::vector<Footprint> measured;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kWorld; ++rank) {
    ranks.emplace_back([&, rank] {
      auto group =
          rendezvous::Group::form(store, rank, kWorld, Deadline::in(std::chrono::seconds(30)));
      ASSERT_TRUE(group.ok());
      const auto manager = CheckpointManager::open(posix_io(), *std::move(group),
                                                   folder.file("run"), small_options());
      ASSERT_TRUE(manager.ok()) << manager.status().to_string();
      for (int64_t step = 1; step <= kWarmUp + kSaves; ++step) {
        if (step % 3 != 0) {
          const auto handle = (*manager)->save_async(step, state_of(step));
          ASSERT_TRUE(handle.ok()) << handle.status().to_string();
        } else {
          ASSERT_TRUE((*manager)->save(step, state_of(step)).ok());
        }
        if (step % 20 == 0) {
          ASSERT_TRUE((*manager)->wait().ok());
          const Result<Restored> restored = (*manager)->restore();
          ASSERT_TRUE(restored.ok()) << restored.status().to_string();
          ASSERT_EQ(std::get<int64_t>(restored->items.at("step")), step);
        }
        if ((step - kWarmUp) % (kSaves / 2) != 0) continue;
        ASSERT_TRUE((*manager)->wait().ok());
        together.arrive_and_wait();
        if (rank == 0) {
          measured.push_back(footprint());
          measured.back().keys = static_cast<int64_t>(store->get_all("")->size());
        }
        together.arrive_and_wait();
      }
      EXPECT_TRUE((*manager)->close().ok());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  ASSERT_EQ(measured.size(), 3u);
  const Footprint &before = measured[0], &middle = measured[1], &after = measured[2];
  EXPECT_LE(
      std::min(middle.other_pages - before.other_pages, after.other_pages - middle.other_pages),
      kMaxPages);
  EXPECT_LE(std::min(middle.heap - before.heap, after.heap - middle.heap), kMaxHeap);
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_EQ(after.keys, before.keys);
  EXPECT_EQ(entries_of(folder.file("run").c_str()), 2 + 5);  // ROOT.json, LATEST, LOCK, two steps
}

// Runs `body` in a process that may have so many files open; its exit status.
template <typename Body>
int with_descriptors(rlim_t limit, const Body& body) {
  return run_child(
      [&] {
        const rlimit limits{limit, limit};
        return ::setrlimit(RLIMIT_NOFILE, &limits) != 0 ? 100 : body();
      },
      /*limit_s=*/60);
}

TEST(Descriptors, SixtyFourAreEnoughToSaveAndToReadAHundredFiles) {
  constexpr int kFiles = 100;
  TemporaryFolder folder;
  const std::string step = folder.file("many");
  testing::State state;
  std::mt19937_64 random(1);
  state.add("rows", DType::kF32, {kFiles, 25000}, "mesh=(x:100) spec=(x,None)", random);
  const Status written = testing::write_state(step, state, kFiles, {"run", "nonce", 7});
  ASSERT_TRUE(written.ok()) << written.to_string();
  ASSERT_EQ(entries_of((step + "/data").c_str()), 2 + kFiles);
  const int status = with_descriptors(64, [&] {
    const auto reader = StepReader::open(posix_io(), step);
    if (!reader.ok()) return 1;
    const Result<HostArray> rows = (*reader)->read(0);
    if (!rows.ok() || !rows->identical(state.values[0])) return 2;
    const Result<VerifyReport> report = verify_step(posix_io(), step);
    if (!report.ok() || !report->problems.empty()) return 3;
    const auto manager = CheckpointManager::open(posix_io(), rendezvous::Group::alone(),
                                                 folder.file("run"), small_options());
    if (!manager.ok()) return 4;
    for (int64_t saved = 1; saved <= 5; ++saved) {
      if (!(*manager)->save(saved, state_of(saved)).ok()) return 5;
    }
    return (*manager)->close().ok() ? 0 : 6;
  });
  EXPECT_EQ(status, 0);
}

// None left: the save fails and says why, and the next one, when there are some, works.
TEST(Descriptors, RunningOutOfThemIsAnErrorOfOneSave) {
  TemporaryFolder folder;
  const int status = with_descriptors(64, [&] {
    const auto manager = CheckpointManager::open(posix_io(), rendezvous::Group::alone(),
                                                 folder.file("run"), small_options());
    if (!manager.ok() || !(*manager)->save(1, state_of(1)).ok()) return 1;
    std::vector<int> taken;
    while (true) {
      const int descriptor = ::dup(STDERR_FILENO);
      if (descriptor < 0) break;
      taken.push_back(descriptor);
    }
    const Status failed = (*manager)->save(2, state_of(2));
    for (const int descriptor : taken) ::close(descriptor);
    if (failed.ok()) return 2;
    const std::string text = failed.to_string();
    if (text.find("Too many open files") == std::string::npos) return 3;
    if (text.find("step 2") == std::string::npos || text.find("/run/") == std::string::npos) {
      return 4;
    }
    if (!(*manager)->save(3, state_of(3)).ok()) return 5;
    const Result<Restored> restored = (*manager)->restore();
    if (!restored.ok() || restored->step != 3) return 6;
    return (*manager)->close().ok() ? 0 : 7;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace hekla::checkpoint
