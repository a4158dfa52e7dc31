// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/commit/recovery.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "runtime/base/host.h"
#include "runtime/base/io/memory_io.h"
#include "runtime/base/io/scripted_io.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/commit/testing/sample_save.h"
#include "runtime/rendezvous/lease.h"

namespace hekla::checkpoint {
namespace {

constexpr char kNonce[] = "00112233";

std::string at(std::string_view name) { return join_path(kRoot, name); }

// Step `step` as a save leaves it that died before its last rename.
void unfinished(Io& io, int64_t step, bool with_commit) {
  ASSERT_TRUE(save_sample(io, kRoot, step).ok());
  const std::string nonce = read_step(io, at(step_name(step)), step)->nonce;
  if (!with_commit) {
    ASSERT_TRUE(unlink_file(io, at(step_name(step)) + "/COMMIT").ok());
  }
  ASSERT_TRUE(rename_path(io, at(step_name(step)), at(temporary_name(step, nonce))).ok());
}

TEST(Recovery, AdoptsWhatWasCommitted) {
  for (const bool adopt : {true, false}) {
    MemoryIo io;
    ASSERT_TRUE(save_sample(io, kRoot, 1).ok());
    unfinished(io, 2, true);
    RecoveryOptions options;
    options.adopt = adopt;
    const auto report = recover(io, kRoot, options);
    EXPECT_EQ(report->newest, adopt ? 2 : 1);
    EXPECT_EQ(report->adopted.size(), adopt ? 1u : 0u);
    EXPECT_EQ(*check_samples(io, kRoot), adopt ? 2 : 1);
  }
}

TEST(Recovery, DeletesWhatWasNot) {
  MemoryIo io;
  ASSERT_TRUE(save_sample(io, kRoot, 1).ok());
  unfinished(io, 2, false);
  ASSERT_TRUE(make_folders(io, at(".trash-aa/data")).ok());
  const auto report = recover(io, kRoot);
  EXPECT_EQ(report->newest, 1);
  EXPECT_EQ(report->deleted.size(), 2u);
  EXPECT_EQ(list_folder(io, kRoot)->size(), 3u);  // ROOT.json, LATEST, step 1
}

TEST(Recovery, WhatFailsTheCloserLookIsNotAdopted) {
  MemoryIo io;
  unfinished(io, 2, true);
  RecoveryOptions options;
  options.verify = [](const std::string&, const CommitRecord&) { return data_loss("bad digest"); };
  EXPECT_EQ(recover(io, kRoot, options)->newest, -1);
}

TEST(Recovery, LiveSavesAreLeftAlone) {
  MemoryIo io;
  ASSERT_TRUE(make_folders(io, at(temporary_name(2, kNonce))).ok());
  {
    const auto owner = rendezvous::Lease::hold(io, at(owner_name(kNonce)), "2");
    ASSERT_TRUE(owner.ok());
    io.advance(int64_t{1'000'000'000} * 1000000);  // however old it is
    const auto report = recover(io, kRoot);
    EXPECT_TRUE(report->deleted.empty());
    ASSERT_EQ(report->left.size(), 1u);
    EXPECT_NE(report->left[0].find("live process"), std::string::npos);
    EXPECT_TRUE(find_file(io, at(temporary_name(2, kNonce)))->has_value());
  }
  EXPECT_EQ(recover(io, kRoot)->deleted.size(), 1u);
  EXPECT_FALSE(find_file(io, at(temporary_name(2, kNonce)))->has_value());
}

TEST(Recovery, WhatIsNoStepIsPutAside) {
  MemoryIo io;
  ASSERT_TRUE(save_sample(io, kRoot, 1).ok());
  ASSERT_TRUE(save_sample(io, kRoot, 2).ok());
  ASSERT_TRUE(unlink_file(io, at("step-000000000002/index.bin")).ok());
  const auto report = recover(io, kRoot);
  EXPECT_EQ(report->newest, 1);
  ASSERT_EQ(report->quarantined.size(), 1u);
  EXPECT_NE(report->quarantined[0].find("index.bin is missing"), std::string::npos);
  const std::string bad = report->quarantined[0].substr(0, report->quarantined[0].find(':'));
  EXPECT_TRUE(find_file(io, at(bad) + "/COMMIT")->has_value());  // nothing of it is deleted
}

TEST(Recovery, ADiskThatDoesNotAnswerCondemnsNothing) {
  MemoryIo memory;
  ASSERT_TRUE(save_sample(memory, kRoot, 1).ok());
  ScriptedIo io(memory);
  io.add({.path = "step-", .count = 1000, .error = EIO});
  const auto report = recover(io, kRoot);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->left.size(), 1u);
  EXPECT_EQ(*check_samples(memory, kRoot), 1);
}

TEST(Recovery, AReplacedStepComesBack) {
  MemoryIo io;
  ASSERT_TRUE(save_sample(io, kRoot, 1).ok());
  ASSERT_TRUE(rename_path(io, at(step_name(1)), at(old_name(1, kNonce))).ok());
  const auto report = recover(io, kRoot);
  EXPECT_EQ(report->restored, std::vector<int64_t>{1});
  EXPECT_EQ(*check_samples(io, kRoot), 1);
}

TEST(Recovery, ADryRunTouchesNothing) {
  MemoryIo io;
  unfinished(io, 1, true);
  unfinished(io, 2, false);
  ASSERT_TRUE(make_folders(io, at("step-000000000009")).ok());
  const uint64_t before = io.fingerprint();
  RecoveryOptions options;
  options.dry_run = true;
  const auto report = recover(io, kRoot, options);
  EXPECT_EQ(io.fingerprint(), before);
  EXPECT_EQ(report->adopted, std::vector<int64_t>{1});
  EXPECT_EQ(report->deleted.size(), 1u);
  EXPECT_EQ(report->quarantined.size(), 1u);
  EXPECT_EQ(report->newest, 1);
}

// Recovery fails at any call; the next one ends its work.
TEST(Recovery, MayBeInterruptedAnywhere) {
  for (int64_t call = 1;; ++call) {
    MemoryIo memory;
    ASSERT_TRUE(save_sample(memory, kRoot, 1).ok());
    ASSERT_TRUE(rename_path(memory, at(step_name(1)), at(old_name(1, kNonce))).ok());
    unfinished(memory, 2, true);
    unfinished(memory, 3, false);
    ScriptedIo io(memory);
    io.add({.changes_only = true, .first = call, .count = 100000, .error = EIO});
    static_cast<void>(recover(io, kRoot));
    if (io.faults() == 0) break;
    const auto report = recover(memory, kRoot);
    EXPECT_EQ(report->newest, 2) << call;
    EXPECT_EQ(*check_samples(memory, kRoot), 2);
    EXPECT_EQ(list_steps(memory, kRoot)->size(), 2u);
    ASSERT_LT(call, 200);
  }
}

}  // namespace
}  // namespace hekla::checkpoint
