// SPDX-License-Identifier: Apache-2.0
// Flight records of processes that are killed, stuck or wrong, and what is said of them.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/io/file.h"
#include "runtime/base/io/temporary_folder.h"
#include "runtime/base/testing/child.h"
#include "runtime/process_group/flight/flight_analysis.h"
#include "runtime/process_group/flight/flight_recorder.h"
#include "runtime/process_group/init.h"

namespace hekla::process_group {
namespace {

bool before_long(const std::function<bool()>& is_so) {
  for (int i = 0; i < 3000 && !is_so(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return is_so();
}

std::vector<FlightRecord> records_in(const std::string& folder) {
  std::vector<FlightRecord> records;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    auto record = FlightRecord::read(entry.path().string());
    if (record.ok()) records.push_back(*std::move(record));
  }
  return records;
}

Call reduction_of(int64_t count) {
  Call call;
  call.operation = Operation::kAllReduce;
  call.dtype = DType::kF32;
  call.count = count;
  return call;
}

TEST(FlightRecorder, WhatIsWrittenOutlivesAProcessThatIsKilled) {
  const TemporaryFolder folder;
  EXPECT_EQ(run_child([&] {
              auto recorder = *FlightRecorder::create(folder.path(), 3, 8);
              recorder->add_group(7, "world", 3, 8);
              const uint64_t first =
                  recorder->made(flight::Kind::kCollective, 7, 0, reduction_of(5));
              recorder->began(first);
              recorder->ended(first, ok_status());
              const uint64_t second = recorder->made(flight::Kind::kReceive, 7, 9, reduction_of(2));
              recorder->ended(second, unavailable("{}", std::string(500, 'x')));
              recorder->began(recorder->made(flight::Kind::kCollective, 7, 1, reduction_of(6)));
              return ::raise(SIGKILL);
            }),
            -SIGKILL);
  const auto records = records_in(folder.path());
  ASSERT_EQ(records.size(), 1U);
  const FlightRecord& record = records[0];
  EXPECT_EQ(record.rank, 3);
  EXPECT_EQ(record.size, 8);
  EXPECT_FALSE(record.has_ended);
  ASSERT_EQ(record.groups.size(), 1U);
  EXPECT_EQ(record.groups[0].name, "world");
  ASSERT_EQ(record.calls.size(), 3U);
  EXPECT_EQ(record.calls[0].state, flight::State::kDone);
  EXPECT_EQ(record.calls[0].call, reduction_of(5));
  EXPECT_EQ(record.calls[1].state, flight::State::kFailed);
  EXPECT_GT(record.calls[1].error.size(), 100U);
  EXPECT_EQ(record.calls[2].state, flight::State::kRunning);
  EXPECT_EQ(record.calls[2].to_string("world"), "call 1 of group world, all_reduce(sum) of f32[6]");
}

TEST(FlightRecorder, TheNewestCallsAreKeptAndAnEndIsSeen) {
  const TemporaryFolder folder;
  {
    auto recorder = *FlightRecorder::create(folder.path(), 0, 1);
    for (uint64_t i = 0; i < flight::kCalls + 100; ++i) {
      recorder->made(flight::Kind::kCollective, 1, i, reduction_of(1));
    }
    recorder->ended(1, ok_status());  // overwritten long ago
  }
  const auto records = records_in(folder.path());
  ASSERT_EQ(records.size(), 1U);
  EXPECT_TRUE(records[0].has_ended);
  ASSERT_EQ(records[0].calls.size(), size_t{flight::kCalls});
  EXPECT_EQ(records[0].calls.front().sequence, 100U);
  EXPECT_EQ(records[0].calls.back().sequence, flight::kCalls + 99U);
  EXPECT_TRUE(records[0].calls[0].is_open());
}

TEST(FlightRecorder, AForkedChildHasARecordOfItsOwn) {
  const TemporaryFolder folder;
  EXPECT_EQ(run_child([&] {
              ::setenv("HEKLA_FLIGHT_DIR", folder.path().c_str(), 1);
              FlightRecorder* const own = FlightRecorder::of_process();
              own->add_group(7, "world", 0, 1);
              const uint64_t call = own->made(flight::Kind::kCollective, 7, 0, reduction_of(1));
              // What the child does to it is not seen, nor that the child ends.
              if (run_child([&] {
                    own->ended(call, ok_status());
                    FlightRecorder* const other = FlightRecorder::of_process();
                    if (other == own) return 1;
                    other->add_group(8, "child's", 0, 1);
                    FlightRecorder::end_process();
                    return 0;
                  }) != 0) {
                return 1;
              }
              return ::raise(SIGKILL);
            }),
            -SIGKILL);
  auto records = records_in(folder.path());
  ASSERT_EQ(records.size(), 2U);
  if (records[0].has_ended) std::swap(records[0], records[1]);
  EXPECT_FALSE(records[0].has_ended);
  ASSERT_EQ(records[0].calls.size(), 1U);
  EXPECT_TRUE(records[0].calls[0].is_open());
  EXPECT_TRUE(records[1].has_ended);
  ASSERT_EQ(records[1].groups.size(), 1U);
  EXPECT_EQ(records[1].groups[0].name, "child's");
}

TEST(FlightRecorder, AGroupThatIsMadeAgainIsAnotherOne) {
  const TemporaryFolder folder;
  auto recorder = *FlightRecorder::create(folder.path(), 0, 2);
  EXPECT_EQ(recorder->add_group(7, "world", 0, 2), 7U);
  recorder->remove_group(7);
  EXPECT_TRUE(records_in(folder.path())[0].has_no_groups);
  EXPECT_NE(recorder->add_group(7, "world", 0, 2), 7U);
  const auto record = records_in(folder.path())[0];
  EXPECT_FALSE(record.has_no_groups);
  ASSERT_EQ(record.groups.size(), 2U);
  EXPECT_EQ(record.groups[1].name, "world#2");
}

TEST(FlightRecorder, PlacesOfGroupsThatAreClosedAreUsedAgain) {
  const TemporaryFolder folder;
  auto recorder = *FlightRecorder::create(folder.path(), 0, 1);
  recorder->add_group(1, "world", 0, 1);
  for (uint64_t id = 2; id < 1000; ++id) {
    recorder->remove_group(recorder->add_group(id, std::to_string(id), 0, 1));
  }
  std::set<std::string> names;
  const auto records = records_in(folder.path());
  for (const auto& group : records[0].groups) names.insert(group.name);
  EXPECT_EQ(names.size(), size_t{flight::kGroups});
  EXPECT_TRUE(names.contains("world"));
  EXPECT_TRUE(names.contains("999"));
}

TEST(FlightRecord, NonsenseIsNoRecord) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.flight");
  EXPECT_EQ(FlightRecord::read(path).status().code(), StatusCode::kDataLoss);
  std::mt19937 random(1);
  for (int round = 0; round < 5; ++round) {
    std::string bytes(sizeof(flight::File), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    std::memcpy(bytes.data(), &flight::kMark, sizeof(flight::kMark));
    ASSERT_TRUE(replace_file(posix_io(), path, bytes).ok());
    const auto record = FlightRecord::read(path);
    ASSERT_TRUE(record.ok());
    static_cast<void>(analyse_flight({*record, *record}, {}).to_string());
    bytes[0] ^= 1;
    ASSERT_TRUE(replace_file(posix_io(), path, bytes).ok());
    EXPECT_EQ(FlightRecord::read(path).status().code(), StatusCode::kDataLoss);
  }
}

// Ranks as processes that do what `body` says in one group and then wait to be killed; who leaves
// `body` has made a file.
class StuckRanks {
 public:
  using Body = std::function<void(ProcessGroup& world)>;
  StuckRanks(int size, const Body& body) {
    for (int rank = 0; rank < size; ++rank) {
      children_.push_back(start_child([&, rank] {
        ::setenv("HEKLA_FLIGHT_DIR", folder_.file("flight").c_str(), 1);
        ::setenv("RANK", std::to_string(rank).c_str(), 1);
        ::setenv("WORLD_SIZE", std::to_string(size).c_str(), 1);
        ::setenv("HEKLA_STORE", ("file:" + folder_.file("store")).c_str(), 1);
        const auto world = init_process_group();
        if (!world.ok()) return 1;
        body(**world);
        static_cast<void>(create_file(posix_io(), folder_.file(std::to_string(rank)), ""));
        std::this_thread::sleep_for(std::chrono::seconds(100));
        return 0;
      }));
    }
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_TRUE(
          before_long([&] { return std::filesystem::exists(folder_.file(std::to_string(rank))); }));
    }
  }
  ~StuckRanks() {
    for (size_t rank = 0; rank < children_.size(); ++rank) kill(static_cast<int>(rank));
  }
  void kill(int rank) {
    pid_t& child = children_[static_cast<size_t>(rank)];
    if (child < 0) return;
    ::kill(child, SIGKILL);
    wait_for_child(child);
    child = -1;
  }
  std::string says() const {
    const auto found = explain_flight(folder_.file("flight"));
    return found.ok() ? found->to_string() : found.status().to_string();
  }

 private:
  const TemporaryFolder folder_;
  std::vector<pid_t> children_;
};

// Arrays that calls under way write to.
Elements values(size_t count) {
  static std::array<float, 4> all = {};
  return elements(std::span<float>(all.data(), count));
}

// Until a thread waits for it, as far as can be seen.
void wait_elsewhere(const Work& work) {
  std::thread([work] { static_cast<void>(work.wait()); }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

TEST(FlightAnalysis, ReceivesThatNobodyWaitsForAreNoCircle) {
  StuckRanks ranks(2, [](ProcessGroup& world) {
    static Work early = world.receive(values(4), 1 - world.rank());
  });
  EXPECT_EQ(ranks.says().rfind("no rank waits for another", 0), 0U) << ranks.says();
  ranks.kill(1);
  EXPECT_TRUE(before_long([&] {
    return ranks.says().find("rank 1 died, in receive") != std::string::npos;
  })) << ranks.says();
}

TEST(FlightAnalysis, WhoHasNotComeIsNamedWithWhatItDoesInstead) {
  StuckRanks ranks(3, [](ProcessGroup& world) {
    static_cast<void>(world.barrier().wait());
    if (world.rank() == 2) {
      return wait_elsewhere(world.receive(values(4), 0, 5));
    }
    static Work work = world.all_reduce(values(4));
    work.then([](const Status&) {});  // runs it
  });
  const std::string wanted =
      "call 2 of group world, all_reduce(sum) of f32[4]: ranks 0-1 wait for rank 2, whose last "
      "there is "
      "call 1, barrier, which is in receive of f32[4] from rank 0 with tag 5 of group world\n";
  EXPECT_NE(ranks.says().find(wanted), std::string::npos) << ranks.says();
  EXPECT_NE(ranks.says().find("none of them can go on"), std::string::npos) << ranks.says();
  EXPECT_NE(ranks.says().find("): runs; in call 2 of group world"), std::string::npos)
      << ranks.says();
}

TEST(FlightAnalysis, WhoDiedIsNamedFirst) {
  StuckRanks ranks(3, [](ProcessGroup& world) {
    static_cast<void>(world.barrier().wait());
    if (world.rank() == 1) return;
    static Work work = world.broadcast(values(4), 0);
    work.then([](const Status&) {});
  });
  ranks.kill(1);
  EXPECT_EQ(ranks.says().rfind("rank 1 died, after call 1 of group world, barrier\n", 0), 0U)
      << ranks.says();
  EXPECT_TRUE(before_long([&] {
    return ranks.says().find(
               "broadcast(root 0) of f32[4]: ranks 0, 2 waited for rank 1, whose last "
               "there is call 1, barrier, which has died") != std::string::npos;
  })) << ranks.says();
  EXPECT_TRUE(before_long(
      [&] { return ranks.says().find("the first error, rank ") != std::string::npos; }));
}

TEST(FlightAnalysis, CallsThatDifferAreNamed) {
  StuckRanks ranks(2, [](ProcessGroup& world) {
    const auto count = static_cast<size_t>(world.rank() + 1);
    static_cast<void>(world.all_reduce(values(count)).wait());
  });
  EXPECT_NE(
      ranks.says().find("call 1 of group world differs: rank 0 calls all_reduce(sum) of f32[1]; "
                        "rank 1 calls all_reduce(sum) of f32[2]\n"),
      std::string::npos)
      << ranks.says();
}

// Not of what all refuse.
TEST(FlightAnalysis, WhoHasRefusedACallIsNamed) {
  StuckRanks ranks(2, [](ProcessGroup& world) {
    static_cast<void>(world.broadcast(values(4), 5).wait());
    static_cast<void>(world.barrier().wait());
    const Elements x = values(4);
    static_cast<void>(
        (world.rank() == 1 ? world.all_reduce(x, ReduceOp::kBitOr) : world.all_reduce(x)).wait());
  });
  EXPECT_NE(ranks.says().find("the first error, rank 1's refusal of call 2 of group world: "
                              "all_reduce(bor) of f32[4]: bor of f32"),
            std::string::npos)
      << ranks.says();
}

TEST(FlightAnalysis, RanksThatWaitForEachOtherAreACircle) {
  StuckRanks ranks(3, [](ProcessGroup& world) {
    wait_elsewhere(
        world.batch({ProcessGroup::Point::receive(values(4), (world.rank() + 1) % world.size())}));
  });
  EXPECT_NE(ranks.says().find("rank 0 waits for rank 1 waits for rank 2 waits for rank 0: none of "
                              "them can go on\n"),
            std::string::npos)
      << ranks.says();
}

TEST(FlightAnalysis, WhatTheLauncherSawIsSaid) {
  const TemporaryFolder folder;
  const std::string attempt = flight_folder(folder.path(), 1);
  for (int rank = 0; rank < 2; ++rank) {
    const auto recorder = *FlightRecorder::create(attempt, rank, 3);
    recorder->add_group(1, "world", rank, 3);
    recorder->made(flight::Kind::kCollective, 1, 0, reduction_of(1));
  }
  ASSERT_TRUE(FlightRecorder::create(flight_folder(folder.path(), 0), 0, 1).ok());
  note_flight_end(attempt, {7, false, "two\nlines"});  // the second makes no sense
  note_flight_end(attempt, {1, false, "signal 11 (Segmentation fault)"});
  note_flight_end(attempt, {0, true, "signal 15 (Terminated)"});
  const auto found = explain_flight(folder.path());
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->findings.size(), 2U) << found->to_string();
  EXPECT_EQ(found->findings[0],
            "rank 1 died of signal 11 (Segmentation fault), in call 0 of group world, "
            "all_reduce(sum) of f32[1]");
  EXPECT_EQ(found->findings[1],
            "call 0 of group world, all_reduce(sum) of f32[1]: ranks 0-1 wait for "
            "rank 2, of which there is no record here");
  // A launch within a rank of this one's writes there: its attempts are not this one's.
  ASSERT_TRUE(FlightRecorder::create(flight_folder(attempt, 0), 5, 8).ok());
  EXPECT_EQ(explain_flight(folder.path())->findings, found->findings);
  EXPECT_EQ(explain_attempt(attempt)->findings, found->findings);
  EXPECT_EQ(explain_flight(folder.file("none")).status().code(), StatusCode::kNotFound);
}

TEST(FlightAnalysis, ARunThatIsWellHasNoFindings) {
  StuckRanks ranks(2, [](ProcessGroup& world) { static_cast<void>(world.barrier().wait()); });
  EXPECT_EQ(ranks.says().rfind("no rank waits for another, none has died, no call has failed\n", 0),
            0U)
      << ranks.says();
}

}  // namespace
}  // namespace hekla::process_group
