// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/commit/steps.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <thread>

#include "runtime/base/io/memory_io.h"
#include "runtime/base/io/scripted_io.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/testing/sample_save.h"

namespace hekla::checkpoint {
namespace {

TEST(Names, RoundTrip) {
  EXPECT_EQ(step_name(1000), "step-000000001000");
  EXPECT_EQ(parse_step_name("step-000000001000"), 1000);
  EXPECT_FALSE(parse_step_name("step-1000"));
  EXPECT_FALSE(parse_step_name("step-00000000100x"));
  EXPECT_FALSE(parse_step_name(".bad-step-000000001000-ab"));
  const auto save = parse_temporary_name(temporary_name(7, "ab12"));
  ASSERT_TRUE(save);
  EXPECT_EQ(save->step, 7);
  EXPECT_EQ(save->nonce, "ab12");
  EXPECT_FALSE(parse_temporary_name(".tmp-000000000007-"));
  EXPECT_FALSE(parse_temporary_name(".tmp-000000000007-../x"));
  EXPECT_TRUE(parse_old_name(old_name(7, "ab12")));
  EXPECT_FALSE(parse_old_name(temporary_name(7, "ab12")));
}

TEST(Root, IsMadeOnceAndRead) {
  MemoryIo io;
  std::vector<std::string> uuids(8);
  std::vector<std::thread> threads;
  for (std::string& uuid : uuids) {
    threads.emplace_back([&] { uuid = open_root(io, kRoot, {{"who", "test"}})->run_uuid; });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& uuid : uuids) EXPECT_EQ(uuid, uuids[0]);
  EXPECT_EQ(open_root(io, kRoot)->metadata.at("who"), "test");
  EXPECT_EQ(list_folder(io, kRoot)->size(), 1u);
}

TEST(Root, NeedsNoLinks) {
  MemoryIo memory;
  ScriptedIo io(memory);
  io.add({.call = IoCall::kLink, .count = 100, .error = EPERM});
  const auto made = open_root(io, kRoot);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(open_root(io, kRoot)->run_uuid, made->run_uuid);
}

TEST(Root, WhatIsNotOursIsRefused) {
  for (const std::string text :
       {"", "{", "[]", R"({"format":"other","major":1,"minor":0,"run_uuid":"x"})",
        R"({"format":"hekla-checkpoint","major":"1","minor":0,"run_uuid":"x"})"}) {
    MemoryIo io;
    ASSERT_TRUE(make_folders(io, kRoot).ok());
    ASSERT_TRUE(create_file(io, "/run/ROOT.json", text).ok());
    EXPECT_EQ(open_root(io, kRoot).status().code(), StatusCode::kDataLoss) << text;
  }
  MemoryIo io;
  ASSERT_TRUE(make_folders(io, kRoot).ok());
  ASSERT_TRUE(create_file(io, "/run/ROOT.json",
                          R"({"format":"hekla-checkpoint","major":2,"minor":0,"run_uuid":"x"})")
                  .ok());
  EXPECT_EQ(open_root(io, kRoot).status().code(), StatusCode::kUnimplemented);
}

TEST(Steps, DamageIsNamed) {
  const std::string folder = "/run/step-000000000001";
  struct Damage {
    std::function<void(Io&)> act;
    StatusCode code;
    std::string words;
  };
  const Damage damages[] = {
      {[&](Io& io) { io.unlink(folder + "/COMMIT"); }, StatusCode::kNotFound, "COMMIT"},
      {[&](Io& io) { io.unlink(folder + "/data/rank-0-1.bin"); }, StatusCode::kDataLoss,
       "rank-0-1.bin is missing"},
      {[&](Io& io) { ASSERT_TRUE(replace_file(io, folder + "/index.bin", "short").ok()); },
       StatusCode::kDataLoss, "index.bin has 5 bytes, its step's COMMIT says 500"},
      {[&](Io& io) {
         std::string text = *read_file(io, folder + "/COMMIT", 10000);
         text[text.size() / 2] ^= 1;
         ASSERT_TRUE(replace_file(io, folder + "/COMMIT", text).ok());
       },
       StatusCode::kDataLoss, "COMMIT"},
      {[&](Io& io) {
         const std::string text = *read_file(io, "/run/step-000000000002/COMMIT", 10000);
         ASSERT_TRUE(replace_file(io, folder + "/COMMIT", text).ok());
       },
       StatusCode::kDataLoss, "is of step 2, not of step 1"},
  };
  for (const Damage& damage : damages) {
    MemoryIo io;
    ASSERT_TRUE(save_sample(io, kRoot, 1).ok());
    ASSERT_TRUE(save_sample(io, kRoot, 2).ok());
    damage.act(io);
    const Status status = read_step(io, folder, 1).status();
    EXPECT_EQ(status.code(), damage.code) << status.to_string();
    EXPECT_NE(status.message().find(damage.words), std::string::npos) << status.message();
    const auto steps = list_steps(io, kRoot);
    ASSERT_EQ(steps->size(), 2u);
    EXPECT_FALSE(steps->at(0).status.ok());
    EXPECT_TRUE(steps->at(1).status.ok());
  }
}

TEST(Steps, PinnedAndLeasedOnesStay) {
  MemoryIo io;
  for (int64_t step = 1; step <= 3; ++step) ASSERT_TRUE(save_sample(io, kRoot, step).ok());
  ASSERT_TRUE(pin_step(io, kRoot, 1).ok());
  ASSERT_TRUE(pin_step(io, kRoot, 1).ok());
  EXPECT_TRUE(list_steps(io, kRoot)->at(0).is_pinned);
  EXPECT_EQ(delete_step(io, kRoot, 1).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(unpin_step(io, kRoot, 1).ok());
  EXPECT_TRUE(delete_step(io, kRoot, 1).ok());
  EXPECT_EQ(delete_step(io, kRoot, 1).code(), StatusCode::kNotFound);
  {
    const auto first = StepLease::acquire(io, kRoot, 2), second = StepLease::acquire(io, kRoot, 2);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_TRUE(first->is_held());
    EXPECT_EQ(delete_step(io, kRoot, 2).code(), StatusCode::kUnavailable);
  }
  EXPECT_TRUE(delete_step(io, kRoot, 2).ok());
  EXPECT_EQ(StepLease::acquire(io, kRoot, 2).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(pin_step(io, kRoot, 2).code(), StatusCode::kNotFound);
  EXPECT_EQ(*check_samples(io, kRoot), 3);
}

TEST(Steps, LeasesWorkWithoutFlock) {
  MemoryIo memory;
  ScriptedIo io(memory);
  io.add({.call = IoCall::kLock, .count = 100000, .error = EOPNOTSUPP});
  ASSERT_TRUE(save_sample(memory, kRoot, 1).ok());
  {
    const auto lease = StepLease::acquire(io, kRoot, 1);
    ASSERT_TRUE(lease.ok());
    EXPECT_TRUE(lease->is_held());
    EXPECT_EQ(delete_step(io, kRoot, 1).code(), StatusCode::kUnavailable);
  }
  EXPECT_TRUE(delete_step(io, kRoot, 1).ok());
}

TEST(Steps, AReadOnlyFolderIsReadWithoutALease) {
  MemoryIo memory;
  ScriptedIo io(memory);
  ASSERT_TRUE(save_sample(memory, kRoot, 1).ok());
  io.add({.call = IoCall::kLock, .count = 100000, .error = EOPNOTSUPP});
  io.add({.changes_only = true, .count = 100000, .error = EROFS});
  const auto lease = StepLease::acquire(io, kRoot, 1);
  ASSERT_TRUE(lease.ok());
  EXPECT_FALSE(lease->is_held());
}

}  // namespace
}  // namespace hekla::checkpoint
