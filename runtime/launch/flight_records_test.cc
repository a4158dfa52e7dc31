// SPDX-License-Identifier: Apache-2.0
// What a launch finds and leaves in a folder of flight records.
#include "runtime/launch/flight_records.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "runtime/base/host.h"
#include "runtime/base/io/file.h"
#include "runtime/base/io/temporary_folder.h"
#include "runtime/process_group/flight/flight_analysis.h"
#include "runtime/process_group/flight/flight_recorder.h"

namespace hekla::launch {
namespace {

namespace fs = std::filesystem;

TEST(FlightRecords, AnEarlierLaunchsAttemptsAreNotThisOnes) {
  const TemporaryFolder folder;
  for (const int attempt : {0, 3}) {
    const std::string old = process_group::flight_folder(folder.path(), attempt);
    ASSERT_TRUE(process_group::FlightRecorder::create(old, 7, 8).ok());
    process_group::note_flight_end(old, {7, false, "signal 9 (Killed)"});
  }
  const std::string first = process_group::flight_folder(folder.path(), 0);
  ASSERT_TRUE(create_file(posix_io(), first + "/notes", "a user's").ok());
  FlightRecords records(folder.path(), false);
  EXPECT_TRUE(fs::exists(first + "/notes"));
  EXPECT_FALSE(fs::exists(process_group::flight_folder(folder.path(), 3)));
  ASSERT_TRUE(process_group::FlightRecorder::create(records.begin(0), 0, 1).ok());
  const auto found = process_group::explain_flight(folder.path());
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->ranks.size(), 1U) << found->to_string();
  EXPECT_TRUE(found->ranks[0].starts_with("rank 0 ")) << found->to_string();
}

TEST(FlightRecords, WhatOtherMachinesWriteToASharedFolderStays) {
  const TemporaryFolder folder;
  const std::string attempt = process_group::flight_folder(folder.path(), 0);
  fs::create_directories(attempt);
  const std::string own = host_name(), other = "far-" + own;
  for (const std::string& host : {own, other}) {
    for (const std::string& name : {"rank1-" + host + "-12.flight", "ends-" + host}) {
      ASSERT_TRUE(create_file(posix_io(), attempt + "/" + name, "").ok());
    }
  }
  const FlightRecords records(folder.path(), true);
  EXPECT_FALSE(fs::exists(attempt + "/rank1-" + own + "-12.flight"));
  EXPECT_FALSE(fs::exists(attempt + "/ends-" + own));
  EXPECT_TRUE(fs::exists(attempt + "/rank1-" + other + "-12.flight"));
  EXPECT_TRUE(fs::exists(attempt + "/ends-" + other));
}

TEST(FlightRecords, RanksGetAWholePath) {
  const TemporaryFolder folder;
  const std::string relative = fs::relative(folder.path()).string();
  FlightRecords records(relative, false);
  EXPECT_EQ(records.begin(0), process_group::flight_folder(folder.path(), 0));
}

}  // namespace
}  // namespace hekla::launch
