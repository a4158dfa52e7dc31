// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/commit/committer.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/host.h"
#include "runtime/base/io/memory_io.h"
#include "runtime/base/io/scripted_io.h"
#include "runtime/base/io/temporary_folder.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/recovery.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/commit/testing/sample_save.h"

namespace hekla::checkpoint {
namespace {

using std::chrono::milliseconds;

// Names in the root that a finished or failed save may leave.
std::vector<std::string> rests(Io& io) {
  std::vector<std::string> names;
  const auto entries = list_folder(io, kRoot);
  for (const DirectoryEntry& entry : *entries) {
    if (entry.name.starts_with(".")) names.push_back(entry.name);
  }
  return names;
}

TEST(Commit, AStepIsThereOnAllRanks) {
  TemporaryFolder folder;
  for (const int world : {1, 4}) {
    const std::string root = folder.file(std::to_string(world));
    ASSERT_TRUE(save_sample(posix_io(), root, 1000, world).ok());
    ASSERT_TRUE(save_sample(posix_io(), root, 2000, world).ok());
    const auto steps = list_steps(posix_io(), root);
    ASSERT_EQ(steps->size(), 2u);
    const CommitRecord& record = (*steps)[1].record;
    EXPECT_EQ(record.step, 2000);
    EXPECT_EQ(record.world_size, world);
    EXPECT_EQ(record.layout_hash, 17u);
    EXPECT_EQ(record.run_uuid, open_root(posix_io(), root)->run_uuid);
    EXPECT_EQ(record.files.size(), static_cast<size_t>(2 * world + 1));
    EXPECT_EQ(*check_samples(posix_io(), root), 2000);
    EXPECT_EQ(*read_file(posix_io(), join_path(root, kLatestFile), 100), "step-000000002000\n");
    // ROOT.json, LATEST and the steps: nothing else is left.
    EXPECT_EQ(list_folder(posix_io(), root)->size(), 4u);
  }
}

TEST(Commit, PhasesComeInOrder) {
  MemoryIo io;
  CommitOptions options = quick_options();
  std::vector<Phase> phases;
  options.on_phase = [&](Phase phase) { phases.push_back(phase); };
  ASSERT_TRUE(save_sample({&io}, kRoot, 1, options)[0].ok());
  EXPECT_EQ(phases,
            (std::vector<Phase>{Phase::kPlan, Phase::kAllocate, Phase::kSnapshot, Phase::kWrite,
                                Phase::kCommit, Phase::kPublish, Phase::kDone}));
}

TEST(Commit, AnExistingStepIsReplacedOnlyWhenAsked) {
  MemoryIo io;
  ASSERT_TRUE(save_sample(io, kRoot, 1).ok());
  const std::string nonce = list_steps(io, kRoot)->at(0).record.nonce;
  EXPECT_EQ(save_sample(io, kRoot, 1).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(list_steps(io, kRoot)->at(0).record.nonce, nonce);
  ASSERT_TRUE(save_sample(io, kRoot, 1, 2, /*overwrite=*/true).ok());
  EXPECT_NE(list_steps(io, kRoot)->at(0).record.nonce, nonce);
  EXPECT_EQ(*check_samples(io, kRoot), 1);
  EXPECT_TRUE(rests(io).empty());
  // Not under the eyes of a reader.
  const auto lease = StepLease::acquire(io, kRoot, 1);
  EXPECT_EQ(save_sample(io, kRoot, 1, 2, /*overwrite=*/true).code(), StatusCode::kUnavailable);
  EXPECT_EQ(*check_samples(io, kRoot), 1);
  EXPECT_TRUE(rests(io).empty());
}

TEST(Commit, AFolderThatIsNoStepMakesWay) {
  MemoryIo io;
  ASSERT_TRUE(make_folders(io, "/run/step-000000000001/data").ok());
  ASSERT_TRUE(save_sample(io, kRoot, 1).ok());
  EXPECT_EQ(*check_samples(io, kRoot), 1);
  ASSERT_EQ(rests(io).size(), 1u);
  EXPECT_TRUE(rests(io)[0].starts_with(".bad-step-000000000001-"));
}

TEST(Commit, WithoutFolderRenames) {
  MemoryIo memory;
  ScriptedIo io(memory);
  io.add({.call = IoCall::kRename, .path = "step-", .count = 1000, .error = EXDEV});
  io.add({.call = IoCall::kRename, .path = ".tmp-", .count = 1000, .error = EXDEV});
  CommitOptions options = quick_options();
  options.atomic_rename = false;
  for (const Status& status : save_sample({&io, &io}, kRoot, 1, options)) {
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  EXPECT_EQ(*check_samples(memory, kRoot), 1);
}

// One rank's payload fails in one phase: all ranks say why, and nothing is left.
TEST(Abort, AFailureOnOneRankIsEveryRanks) {
  for (const Phase phase : {Phase::kAllocate, Phase::kSnapshot, Phase::kWrite, Phase::kCommit}) {
    for (const int culprit : {0, 2}) {
      if (phase == Phase::kCommit && culprit != 0) continue;
      MemoryIo io;
      ASSERT_TRUE(save_sample(io, kRoot, 1, 3).ok());
      const auto statuses = save_sample({&io, &io, &io}, kRoot, 2, quick_options(), false,
                                        [&](int rank, SampleSave& payload, SaveRequest&) {
                                          payload.hook = [=](Phase now, const SaveSite&) {
                                            if (rank != culprit || now != phase) return ok_status();
                                            return resource_exhausted("the bucket is full");
                                          };
                                        });
      for (const Status& status : statuses) {
        EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
        const std::string expected =
            fmt::format("step 2, {}, rank {} ({}), after", phase_name(phase), culprit, host_name());
        EXPECT_NE(status.message().find(expected), std::string::npos) << status.message();
        EXPECT_NE(status.message().find("the bucket is full"), std::string::npos);
      }
      EXPECT_EQ(*check_samples(io, kRoot), 1);
      EXPECT_TRUE(rests(io).empty());
      ASSERT_TRUE(save_sample(io, kRoot, 2, 3).ok());  // the next save works
      EXPECT_EQ(*check_samples(io, kRoot), 2);
    }
  }
}

TEST(Abort, WhoeverStillWritesIsStopped) {
  MemoryIo io;
  const auto statuses = save_sample(
      {&io, &io}, kRoot, 1, quick_options(), false,
      [&](int rank, SampleSave& payload, SaveRequest&) {
        payload.hook = [=](Phase phase, const SaveSite& site) {
          if (phase != Phase::kWrite) return ok_status();
          if (rank == 1) return internal_error("rank 1 broke");
          std::mutex mutex;
          std::condition_variable_any wake;
          std::unique_lock lock(mutex);
          // Ends when the site's stop is requested; the bound is the test's.
          const bool stopped = !wake.wait_for(lock, site.stop, std::chrono::seconds(20), [] {
            return false;
          }) && site.stop.stop_requested();
          return stopped ? cancelled("stopped") : internal_error("nobody stopped rank 0");
        };
      });
  for (const Status& status : statuses) {
    EXPECT_NE(status.message().find("rank 1 broke"), std::string::npos) << status.message();
  }
}

TEST(Abort, RanksThatDoNotComeAreNamed) {
  MemoryIo io;
  CommitOptions options = quick_options();
  options.allocate_deadline = milliseconds(100);
  const auto statuses = save_sample({&io, &io, &io}, kRoot, 1, options, false,
                                    [&](int rank, SampleSave& payload, SaveRequest&) {
                                      payload.hook = [=](Phase phase, const SaveSite& site) {
                                        if (rank != 1 || phase != Phase::kAllocate)
                                          return ok_status();
                                        while (!site.stop.stop_requested()) {
                                          std::this_thread::sleep_for(milliseconds(5));
                                        }
                                        return cancelled("stopped");
                                      };
                                    });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_NE(status.message().find("files to be made: no word from rank 1 (of 3 ranks)"),
              std::string::npos)
        << status.message();
  }
  EXPECT_TRUE(rests(io).empty());
}

TEST(Abort, LayoutsAndStepsMustAgree) {
  for (const bool same_step : {true, false}) {
    MemoryIo io;
    const auto statuses = save_sample({&io, &io}, kRoot, 1, quick_options(), false,
                                      [&](int rank, SampleSave&, SaveRequest& request) {
                                        request.layout_text = fmt::format("w: f32[{}]", rank);
                                        if (rank == 0) return;
                                        if (same_step) request.layout_hash = 18;
                                        if (!same_step) request.step = 3;
                                      });
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
      EXPECT_NE(status.message().find(same_step ? "here w: f32[1]; there w: f32[0]"
                                                : "rank 1 saves step 3 while rank 0 saves step 1"),
                std::string::npos)
          << status.message();
    }
  }
}

TEST(Abort, TheCallerMayGiveUp) {
  MemoryIo io;
  std::stop_source stop;
  const auto statuses = save_sample({&io, &io}, kRoot, 1, quick_options(), false,
                                    [&](int rank, SampleSave& payload, SaveRequest& request) {
                                      if (rank == 1) request.stop = stop.get_token();
                                      payload.hook = [&stop, rank](Phase phase, const SaveSite&) {
                                        if (rank == 1 && phase == Phase::kSnapshot) {
                                          stop.request_stop();
                                        }
                                        return ok_status();
                                      };
                                    });
  // The save may have been past the point of no return for rank 0 already; both agree.
  EXPECT_EQ(statuses[0].ok(), statuses[1].ok());
  EXPECT_EQ(*check_samples(io, kRoot), statuses[0].ok() ? 1 : -1);
}

// Every call of every rank fails once, with each errno: the error is named, the step of before or
// the new one is there, nothing hangs, and the next save works.
TEST(Faults, EveryFailingCallIsCleanAndTheNextSaveWorks) {
  constexpr int kWorld = 3;
  int64_t points = 0, failures = 0;
  for (const int error : {EIO, ENOSPC, EROFS}) {
    for (int rank = 0; rank < kWorld; ++rank) {
      for (int64_t call = 1;; ++call) {
        MemoryIo memory;
        ASSERT_TRUE(save_sample(memory, kRoot, 1, kWorld).ok());
        std::vector<std::unique_ptr<ScriptedIo>> scripted;
        std::vector<Io*> ios;
        for (int r = 0; r < kWorld; ++r) {
          ios.push_back(scripted.emplace_back(std::make_unique<ScriptedIo>(memory)).get());
        }
        ScriptedIo& culprit = *scripted[static_cast<size_t>(rank)];
        culprit.add({.changes_only = true, .first = call, .error = error});
        const auto statuses = save_sample(ios, kRoot, 2);
        if (culprit.faults() == 0) break;
        ++points;
        for (const auto& io : scripted) EXPECT_EQ(io->open_files(), 0);
        const bool ok = statuses[0].ok();
        for (const Status& status : statuses) EXPECT_EQ(status.ok(), ok) << status.to_string();
        if (!ok) {
          ++failures;
          for (const Status& status : statuses) {
            EXPECT_NE(status.message().find(fmt::format("rank {}", rank)), std::string::npos)
                << status.message();
            EXPECT_NE(status.message().find(fmt::format("errno {}", error)), std::string::npos)
                << status.message();
            EXPECT_NE(status.message().find(kRoot), std::string::npos);
          }
        }
        const Result<int64_t> newest = check_samples(memory, kRoot);
        ASSERT_TRUE(newest.ok()) << newest.status().to_string();
        EXPECT_EQ(*newest, ok ? 2 : 1) << "rank " << rank << " call " << call;
        const auto report = recover(memory, kRoot);
        ASSERT_TRUE(report.ok());
        EXPECT_EQ(report->newest, ok ? 2 : 1);
        EXPECT_TRUE(rests(memory).empty());
        ASSERT_TRUE(save_sample(memory, kRoot, 3, kWorld).ok());
        EXPECT_EQ(*check_samples(memory, kRoot), 3);
      }
    }
  }
  EXPECT_GT(points, 150);
  EXPECT_GT(failures, 130);
}

TEST(Faults, ADiskOfAnySizeFillsUpCleanly) {
  int64_t failures = 0;
  for (int64_t room = 0;; room += 700) {
    MemoryIo io;
    ASSERT_TRUE(save_sample(io, kRoot, 1, 2).ok());
    FileSystemSpace space;
    io.set_capacity(int64_t{1} << 30);
    io.space("/", &space);
    io.set_capacity(space.total_bytes - space.free_bytes + room);
    const auto statuses = save_sample({&io, &io}, kRoot, 2);
    io.set_capacity(-1);
    ASSERT_EQ(*check_samples(io, kRoot), statuses[0].ok() ? 2 : 1);
    EXPECT_EQ(statuses[0].ok(), statuses[1].ok());
    if (statuses[0].ok()) break;
    ++failures;
    EXPECT_EQ(statuses[0].code(), StatusCode::kResourceExhausted) << statuses[0].to_string();
    ASSERT_TRUE(save_sample(io, kRoot, 2, 2).ok());
    EXPECT_EQ(*check_samples(io, kRoot), 2);
  }
  EXPECT_GT(failures, 10);
}

}  // namespace
}  // namespace hekla::checkpoint
