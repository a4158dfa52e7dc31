// SPDX-License-Identifier: Apache-2.0
// Launches of single devices: their order, their common error, and those of several processes.
#include "backends/pjrt/communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "runtime/rendezvous/testing/put_once.h"

namespace hekla::pjrt {
namespace {

const GangNames kNames{"2 x 1", {"fake:0", "fake:1"}};
const auto kStep = std::make_shared<const GangNames>(GangNames{"step", {"fake:0", "fake:1"}});

GangRef launch(Communicator& communicator, size_t device) {
  Result<GangRef> gang = communicator.gang_for(device, kStep);
  EXPECT_TRUE(gang.ok()) << gang.status().to_string();
  return *gang;
}

TEST(Communicator, ADeviceComesToItsLaunchesInTheirOrder) {
  Communicator communicator({}, kNames, nullptr, nullptr);
  std::vector<std::string> posted;
  const auto post = [&](const GangRef& gang, std::vector<CompletionRef> parts, const char* name) {
    gang->post_when(std::move(parts), [&posted, name] { posted.emplace_back(name); });
  };
  const CompletionRef late = Completion::make();
  const GangRef first = launch(communicator, 0), second = launch(communicator, 0);
  const GangRef other = launch(communicator, 1);
  post(first, {late}, "first");
  post(second, {}, "second");
  post(other, {}, "other");
  EXPECT_EQ(posted, std::vector<std::string>{"other"});
  late->complete(ok_status());
  EXPECT_EQ(posted, (std::vector<std::string>{"other", "first", "second"}));
}

TEST(Communicator, TheFirstErrorEndsAllLaunchesAndRefusesMore) {
  Communicator communicator({}, kNames, nullptr, nullptr);
  const GangRef first = launch(communicator, 0), second = launch(communicator, 1);
  EXPECT_EQ(first->whole(), second->whole());
  EXPECT_EQ(first->shared_state<int>([] { return std::make_shared<int>(3); }),
            second->shared_state<int>([] { return std::make_shared<int>(4); }));
  std::atomic<int> heard = 0;
  first->on_abort([&](const Status&) { ++heard; });
  second->on_abort([&](const Status&) { ++heard; });
  first->whole()->on_abort([&](const Status&) { ++heard; });
  second->abort(resource_exhausted("fake:1: no memory"));
  first->abort(internal_error("later"));
  EXPECT_EQ(heard, 3);
  EXPECT_EQ(first->status().to_string(), "RESOURCE_EXHAUSTED: fake:1: no memory");
  const Status refused = communicator.gang_for(0, kStep).status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("step on fake:0: an earlier launch of these 2 devices"),
            std::string::npos)
      << refused.to_string();
  EXPECT_NE(refused.message().find("fake:1: no memory"), std::string::npos);
}

TEST(Communicator, ALaunchThatHasEndedIsForgotten) {
  Communicator communicator({}, kNames, nullptr, nullptr);
  const std::weak_ptr<Gang> ended = launch(communicator, 0);
  EXPECT_TRUE(ended.expired());
  const GangRef next = launch(communicator, 0);
  next->abort(internal_error("off"));
  EXPECT_TRUE(next->is_aborted());
}

TEST(Communicator, ADeviceLeavesWithItsLastLaunch) {
  auto communicator = std::make_unique<Communicator>(GangOptions(), kNames, nullptr, nullptr);
  GangRef launched = launch(*communicator, 0);
  const GangRef whole = launched->whole();
  communicator.reset();
  std::vector<int64_t> left;
  whole->on_leave([&](int64_t device) { left.push_back(device); });
  EXPECT_EQ(left, std::vector<int64_t>{1});  // before anybody listened
  launched = nullptr;
  EXPECT_EQ(left, (std::vector<int64_t>{1, 0}));
  EXPECT_FALSE(whole->is_aborted());
}

// Two processes, each with one device.
struct Processes {
  explicit Processes(int communicator_count = 2) {
    auto made = std::make_shared<GangProgram>();
    made->name = "step";
    made->process_of = made->processes = {0, 1};
    program = std::move(made);
    for (int p = 0; p < 2; ++p) {
      ProcessOptions process;
      process.index = p;
      process.count = 2;
      networks[p] = GangNetwork::create(store, "fake", process, {});
    }
    for (int p = 0; p < 2; ++p) {
      EXPECT_TRUE(networks[p]->connect(*program).ok());
    }
    for (int p = 0; p < communicator_count; ++p) {
      communicators[p] =
          std::make_unique<Communicator>(GangOptions(), kNames, networks[p], program);
    }
  }
  Status loss() {
    const auto all = std::make_shared<Gang>();
    networks[0]->begin(all, program);
    return all->status();
  }
  // What process 0 hears at the end of process 1.
  CompletionRef hear(const GangRef& gang) {
    const CompletionRef left = Completion::make();
    gang->link()->listen([left](int from, const std::string& head, const std::vector<HostArray>&) {
      if (from == 1 && head.empty()) left->complete(ok_status());
    });
    return left;
  }

  std::shared_ptr<rendezvous::testing::PutOnce> store =
      std::make_shared<rendezvous::testing::PutOnce>();
  GangProgramRef program;
  std::shared_ptr<GangNetwork> networks[2];
  std::unique_ptr<Communicator> communicators[2];
};

TEST(Communicator, ProcessesHearOfErrorsWhateverTheyLaunch) {
  Processes processes;
  const GangRef first = launch(*processes.communicators[0], 0);
  const GangRef second = launch(*processes.communicators[1], 1);
  EXPECT_EQ(first->link()->own_process(), 0);
  EXPECT_EQ(first->link()->process_of(1), 1);
  const CompletionRef ended = Completion::make();
  second->on_abort([ended](const Status& status) { ended->complete(status); });
  first->abort(data_loss("fake:0: gone"));
  EXPECT_EQ(ended->await().to_string(), "DATA_LOSS: fake:0: gone");
  EXPECT_FALSE(processes.communicators[1]->gang_for(1, kStep).ok());
}

TEST(Communicator, AProcessThatLeavesIsNoError) {
  Processes processes;
  const GangRef gang = launch(*processes.communicators[0], 0);
  const CompletionRef left = processes.hear(gang);
  processes.communicators[1].reset();
  EXPECT_TRUE(left->await().ok());
  EXPECT_FALSE(gang->is_aborted());
}

TEST(Communicator, TheLossOfAProcessIsToldAndNoErrorByItself) {
  Processes processes(/*communicator_count=*/1);
  const GangRef gang = launch(*processes.communicators[0], 0);
  const CompletionRef left = processes.hear(gang);
  EXPECT_TRUE(gang->link()->loss_of(1).ok());
  // Before it has a communicator, which would say that it leaves.
  processes.networks[1].reset();
  EXPECT_TRUE(left->await().ok());
  EXPECT_EQ(gang->link()->loss_of(1).code(), StatusCode::kUnavailable);
  EXPECT_FALSE(gang->is_aborted());
}

TEST(Communicator, WhoIsLostBeforeIsHeardOfToo) {
  Processes processes(/*communicator_count=*/0);
  processes.networks[1].reset();
  for (int i = 0; i < 2000 && processes.loss().ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  Communicator late({}, kNames, processes.networks[0], processes.program);
  const GangRef gang = launch(late, 0);
  EXPECT_TRUE(processes.hear(gang)->await().ok());
}

}  // namespace
}  // namespace hekla::pjrt
