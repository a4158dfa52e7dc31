// SPDX-License-Identifier: Apache-2.0
// Every state that a power cut may leave during a save: the restart finds the previous or the new
// step, bit for bit, and saves again.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "runtime/base/io/memory_io.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/recovery.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/commit/testing/sample_save.h"

namespace hekla::checkpoint {
namespace {

// More random cuts with HEKLA_POWER_CUTS=n.
int64_t random_cuts() {
  const char* text = std::getenv("HEKLA_POWER_CUTS");
  return text == nullptr ? 10 : std::atoll(text);
}

struct Cuts {
  int64_t tried = 0, previous = 0, next = 0;
};

// Cuts during everything from `from` on; each leaves `previous` or `next` as the newest step.
Cuts check_all(const MemoryIo& disk, int64_t from, int64_t previous, int64_t next,
               int64_t committed_at, uint64_t seed) {
  Cuts cuts;
  cuts.tried = for_each_power_cut(
      disk, from, random_cuts(), seed, [&](const PowerCutPoint& point, MemoryIo& after) {
        const auto report = recover(after, kRoot);
        EXPECT_TRUE(report.ok()) << report.status().to_string();
        if (!report.ok()) return false;
        const Result<int64_t> newest = check_samples(after, kRoot);
        EXPECT_TRUE(newest.ok()) << newest.status().to_string();
        if (!newest.ok()) return false;
        const bool is_one_of_them = *newest == previous || *newest == next;
        EXPECT_TRUE(is_one_of_them) << *newest << " after " << point.changes << " changes";
        // What the save had promised to be durable is.
        const bool kept = point.changes < committed_at || *newest == next;
        EXPECT_TRUE(kept) << "lost after " << point.changes << " of " << committed_at;
        EXPECT_EQ(*newest, report->newest);
        (*newest == next ? cuts.next : cuts.previous) += 1;
        EXPECT_TRUE(report->quarantined.empty());
        if (point.changes % 8 == 0) {  // the next save works; some of them, for the time it takes
          EXPECT_TRUE(save_sample(after, kRoot, next + 1).ok());
          EXPECT_EQ(*check_samples(after, kRoot), next + 1);
        }
        return is_one_of_them && kept;
      });
  return cuts;
}

TEST(PowerCut, ASaveIsAllOrNothing) {
  MemoryIo disk;
  ASSERT_TRUE(save_sample(disk, kRoot, 1, 4).ok());
  const int64_t from = disk.journal_size();
  std::atomic<int64_t> committed_at{0};  // of the first rank that says so
  const auto statuses = save_sample({&disk, &disk, &disk, &disk}, kRoot, 2, [&] {
    CommitOptions options = quick_options();
    options.on_phase = [&](Phase phase) {
      int64_t unknown = 0;
      if (phase == Phase::kDone) {
        committed_at.compare_exchange_strong(unknown, disk.journal_size());
      }
    };
    return options;
  }());
  for (const Status& status : statuses) ASSERT_TRUE(status.ok());
  const Cuts cuts = check_all(disk, from, 1, 2, committed_at, 1);
  EXPECT_GT(cuts.tried, 1000);
  EXPECT_GT(cuts.previous, 100);
  EXPECT_GT(cuts.next, 10);
  RecordProperty("points", static_cast<int>(cuts.tried));
}

TEST(PowerCut, TheFirstSaveOfARunIsAllOrNothing) {
  MemoryIo disk;
  ASSERT_TRUE(open_root(disk, kRoot).ok());
  const int64_t from = disk.journal_size();
  ASSERT_TRUE(save_sample(disk, kRoot, 1, 2).ok());
  const Cuts cuts = check_all(disk, from, -1, 1, disk.journal_size(), 2);
  EXPECT_GT(cuts.tried, 200);
}

TEST(PowerCut, ReplacingAStepNeverLosesIt) {
  MemoryIo disk;
  ASSERT_TRUE(save_sample(disk, kRoot, 1, 2).ok());
  const std::string before = list_steps(disk, kRoot)->at(0).record.nonce;
  const int64_t from = disk.journal_size();
  ASSERT_TRUE(save_sample(disk, kRoot, 1, 2, /*overwrite=*/true).ok());
  const std::string after = list_steps(disk, kRoot)->at(0).record.nonce;
  int64_t old_ones = 0, new_ones = 0;
  for_each_power_cut(disk, from, random_cuts(), 3, [&](const PowerCutPoint& point, MemoryIo& left) {
    EXPECT_TRUE(recover(left, kRoot).ok());
    EXPECT_EQ(*check_samples(left, kRoot), 1) << point.changes;
    const auto steps = list_steps(left, kRoot);
    if (steps->size() != 1 || !steps->at(0).status.ok()) return false;
    const std::string nonce = steps->at(0).record.nonce;
    EXPECT_TRUE(nonce == before || nonce == after);
    (nonce == before ? old_ones : new_ones) += 1;
    return true;
  });
  EXPECT_GT(old_ones, 100);
  EXPECT_GT(new_ones, 5);
}

TEST(PowerCut, DeletingAStepIsAllOrNothing) {
  MemoryIo disk;
  ASSERT_TRUE(save_sample(disk, kRoot, 1, 2).ok());
  ASSERT_TRUE(save_sample(disk, kRoot, 2, 2).ok());
  const int64_t from = disk.journal_size();
  ASSERT_TRUE(delete_step(disk, kRoot, 1).ok());
  int64_t there = 0, gone = 0;
  for_each_power_cut(disk, from, random_cuts(), 4, [&](const PowerCutPoint&, MemoryIo& left) {
    const auto report = recover(left, kRoot);
    EXPECT_TRUE(report.ok() && report->quarantined.empty());
    EXPECT_EQ(*check_samples(left, kRoot), 2);
    (list_steps(left, kRoot)->size() == 2 ? there : gone) += 1;
    return true;
  });
  EXPECT_GE(there, 1);
  EXPECT_GE(gone, 5);
}

// Recovery itself loses power.
TEST(PowerCut, RecoveryMayBeCutToo) {
  MemoryIo disk;
  ASSERT_TRUE(save_sample(disk, kRoot, 1, 2).ok());
  ASSERT_TRUE(save_sample(disk, kRoot, 2, 2).ok());
  const std::string nonce = read_step(disk, "/run/step-000000000002", 2)->nonce;
  ASSERT_TRUE(rename_path(disk, "/run/step-000000000002", "/run/" + temporary_name(2, nonce)).ok());
  ASSERT_TRUE(rename_path(disk, "/run/step-000000000001", "/run/" + old_name(1, "aa")).ok());
  ASSERT_TRUE(sync_folder(disk, kRoot).ok());
  const int64_t from = disk.journal_size();
  ASSERT_TRUE(recover(disk, kRoot).ok());
  const int64_t tried =
      for_each_power_cut(disk, from, random_cuts(), 5, [&](const PowerCutPoint&, MemoryIo& left) {
        const auto report = recover(left, kRoot);
        EXPECT_EQ(report->newest, 2);
        EXPECT_EQ(*check_samples(left, kRoot), 2);
        EXPECT_EQ(list_steps(left, kRoot)->size(), 2u);
        return true;
      });
  EXPECT_GE(tried, 3);
}

}  // namespace
}  // namespace hekla::checkpoint
