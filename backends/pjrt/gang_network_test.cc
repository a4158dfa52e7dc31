// SPDX-License-Identifier: Apache-2.0
// Networks of several processes, all in this one.
#include "backends/pjrt/gang_network.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/rendezvous/testing/put_once.h"

namespace hekla::pjrt {
namespace {

constexpr std::chrono::seconds kLong{20};

HostArray some_bytes(int64_t count, uint8_t value) {
  return HostArray::from<uint8_t>(DType::kUI8, {count},
                                  std::vector<uint8_t>(static_cast<size_t>(count), value));
}

// One process's side of a launch.
struct Side {
  explicit Side(GangNetwork& network, const GangProgramRef& program) {
    gang->on_abort([done = ended](const Status& status) { done->complete(status); });
    network.begin(gang, program);
  }
  GangLink& link() const { return *gang->link(); }
  Status end() const {
    for (int i = 0; i < 2000 && !ended->is_done(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return ended->status();
  }
  // Sends one array to each other process and waits for theirs.
  void exchange(const GangProgram& program, uint8_t value) {
    link().listen([to = heard](int from, const std::string& head, std::vector<HostArray> blocks) {
      const std::lock_guard lock(to->mutex);
      if (head.empty()) {
        ++to->finished;
      } else {
        to->sum += from * 1000 + blocks[0].as<uint8_t>()[4];
        ++to->count;
      }
      to->changed.notify_all();
    });
    for (const int process : program.processes) {
      if (process != link().own_process()) link().send(process, "part", {some_bytes(5, value)});
    }
  }

  GangRef gang = std::make_shared<Gang>();
  CompletionRef ended = Completion::make();
  // Shared with an event that may be under way when this is gone.
  struct Heard {
    std::mutex mutex;
    std::condition_variable changed;
    int sum = 0, count = 0, finished = 0;  // guarded by mutex
  };
  const std::shared_ptr<Heard> heard = std::make_shared<Heard>();
};

struct Networks {
  explicit Networks(int count) {
    for (int p = 0; p < count; ++p) {
      ProcessOptions process;
      process.index = p;
      process.count = count;
      all.push_back(GangNetwork::create(store, "fake", process, {}));
    }
  }
  Networks& connect(const GangProgramRef& program) {
    for (const int p : program->processes) {
      const Status status = (*this)[p].connect(*program);
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    return *this;
  }
  GangNetwork& operator[](int p) { return *all[static_cast<size_t>(p)]; }

  std::shared_ptr<rendezvous::testing::PutOnce> store =
      std::make_shared<rendezvous::testing::PutOnce>();
  std::vector<std::shared_ptr<GangNetwork>> all;
};

GangProgramRef program(std::string name, std::vector<int> processes,
                       const std::string& signature = "") {
  auto made = std::make_shared<GangProgram>();
  made->signature = signature.empty() ? name : signature;
  made->name = std::move(name);
  made->process_of = processes;
  made->processes = std::move(processes);
  return made;
}

bool says(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string::npos;
}

TEST(GangNetwork, WhatIsSentForALaunchIsHeardInIt) {
  const auto step = program("step", {0, 1, 2});
  Networks networks(3);
  networks.connect(step);
  // The others begin later: what has come waits for them. Launch by launch.
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<Side>> sides;
    for (int p = 0; p < 3; ++p) {
      sides.push_back(std::make_unique<Side>(networks[p], step));
      sides.back()->exchange(*step, static_cast<uint8_t>(10 * p + round));
    }
    for (const auto& side : sides) {
      side->link().finish();
      EXPECT_TRUE(side->link().flushed()->await().ok());
    }
    for (int p = 0; p < 3; ++p) {
      Side& side = *sides[static_cast<size_t>(p)];
      std::unique_lock lock(side.heard->mutex);
      side.heard->changed.wait_for(
          lock, kLong, [&] { return side.heard->count == 2 && side.heard->finished == 2; });
      EXPECT_EQ(side.heard->sum, 1010 * (3 - p) + 2 * round) << p;
      EXPECT_EQ(side.heard->finished, 2);
      EXPECT_FALSE(side.ended->is_done());
    }
  }
}

TEST(GangNetwork, SetsOfProcessesCountTheirLaunchesApart) {
  Networks networks(3);
  const auto two = program("two", {0, 1}), others = program("others", {1, 2});
  networks.connect(two).connect(others);
  // Process 1 launches them in another order than 0 and 2 together.
  Side a(networks[0], two), b(networks[2], others), c(networks[1], others), d(networks[1], two);
  for (Side* side : {&a, &d}) side->exchange(*two, 1);
  for (Side* side : {&b, &c}) side->exchange(*others, 2);
  for (Side* side : {&a, &b, &c, &d}) {
    std::unique_lock lock(side->heard->mutex);
    EXPECT_TRUE(
        side->heard->changed.wait_for(lock, kLong, [&] { return side->heard->count == 1; }));
  }
}

TEST(GangNetwork, DifferentProgramsEndOnAllProcesses) {
  const auto one = program("jit_train", {0, 1, 2}), other = program("jit_eval", {0, 1, 2});
  Networks networks(3);
  networks.connect(one);
  Side first(networks[0], one), second(networks[1], other), third(networks[2], one);
  for (const Side* side : {&first, &second, &third}) {
    const Status status = side->end();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    for (const char* text : {"processes 0, 1, 2 launch different programs", "jit_train process ",
                             "jit_eval process 1", "in the same order"}) {
      EXPECT_TRUE(says(status, text)) << text << "\n" << status.to_string();
    }
  }
  // The next launch is another matter.
  Side again(networks[0], one), too(networks[1], one);
  again.exchange(*one, 1);
  too.exchange(*one, 1);
  std::unique_lock lock(too.heard->mutex);
  EXPECT_TRUE(too.heard->changed.wait_for(lock, kLong, [&] { return too.heard->count == 1; }));
}

TEST(GangNetwork, TheSameNameWithAnotherTextIsAnotherProgram) {
  const auto one = program("jit_f", {0, 1}, "a"), other = program("jit_f", {0, 1}, "b");
  Networks networks(2);
  networks.connect(one);
  const Side first(networks[0], one), second(networks[1], other);
  EXPECT_TRUE(says(first.end(), "of the same name and another text")) << first.end().to_string();
}

TEST(GangNetwork, AnErrorEndsTheLaunchEverywhere) {
  const auto step = program("step", {0, 1, 2});
  Networks networks(3);
  networks.connect(step);
  const Side first(networks[0], step), second(networks[1], step);
  first.gang->abort(resource_exhausted("fake:0: no memory"));
  EXPECT_EQ(second.end().to_string(), "RESOURCE_EXHAUSTED: fake:0: no memory");
  // Who launches later hears of it too.
  const Side third(networks[2], step);
  EXPECT_EQ(third.end().to_string(), "RESOURCE_EXHAUSTED: fake:0: no memory");
}

TEST(GangNetwork, AProcessThatIsLostEndsWhatNeedsIt) {
  const auto step = program("step", {0, 1, 2}), pair = program("pair", {0, 1});
  Networks networks(3);
  networks.connect(step).connect(pair);
  const Side waits(networks[0], step), well(networks[0], pair);
  const Side theirs(networks[2], step);
  // It ended its part of one launch.
  const Side ended(networks[1], pair);
  ended.link().finish();
  EXPECT_TRUE(ended.link().flushed()->await().ok());
  {
    // Its links keep a network alive.
    const auto leaver = GangNetwork::create(networks.store, "leaver", {1, 3, -1}, {});
    const auto left = GangNetwork::create(networks.store, "leaver", {0, 3, -1}, {});
    const auto both = program("both", {0, 1});
    ASSERT_TRUE(left->connect(*both).ok());
    const Side lonely(*left, both);
    EXPECT_FALSE(lonely.ended->is_done());
    const_cast<std::shared_ptr<GangNetwork>&>(leaver).reset();
    EXPECT_EQ(lonely.end().code(), StatusCode::kUnavailable);
    EXPECT_TRUE(says(lonely.end(), "process 1 (pid ")) << lonely.end().to_string();
    EXPECT_TRUE(says(lonely.end(), "has ended"));
    // And later launches.
    const Side later(*left, both);
    EXPECT_TRUE(says(later.end(), "has ended"));
  }
  EXPECT_FALSE(well.ended->is_done());
}

TEST(GangNetwork, TheEndOfAProcessThatHasDoneItsPartIsNoError) {
  const auto both = program("both", {0, 1});
  const auto store = std::make_shared<rendezvous::testing::PutOnce>();
  const auto first = GangNetwork::create(store, "fake", {0, 2, -1}, {});
  auto second = GangNetwork::create(store, "fake", {1, 2, -1}, {});
  ASSERT_TRUE(first->connect(*both).ok());
  ASSERT_TRUE(second->connect(*both).ok());
  // One is under way when the other ends, one begins later; the third is too much.
  const Side running(*first, both);
  for (int launch = 0; launch < 2; ++launch) {
    Side done(*second, both);
    done.exchange(*both, 7);
    done.link().finish();
    EXPECT_TRUE(done.link().flushed()->await().ok());
  }
  second.reset();
  Side late(*first, both);
  late.exchange(*both, 7);
  {
    std::unique_lock lock(late.heard->mutex);
    EXPECT_TRUE(
        late.heard->changed.wait_for(lock, kLong, [&] { return late.heard->finished == 1; }));
    EXPECT_EQ(late.heard->count, 1);
  }
  const Side too_much(*first, both);
  EXPECT_EQ(too_much.end().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(running.ended->is_done());
  EXPECT_FALSE(late.ended->is_done());
}

TEST(GangNetwork, TurnsAreTakenInTheOrderOfTheLaunches) {
  const auto both = program("both", {0, 1});
  Networks networks(2);
  networks.connect(both);
  std::vector<std::unique_ptr<Side>> sides;
  std::vector<CompletionRef> inputs;
  std::vector<int> order;
  for (int i = 0; i < 4; ++i) {
    sides.push_back(std::make_unique<Side>(networks[0], both));
    inputs.push_back(Completion::make());
    sides.back()->gang->post_when({inputs.back()}, [&order, i] { order.push_back(i); });
  }
  inputs[2]->complete(ok_status());
  inputs[1]->complete(ok_status());
  EXPECT_TRUE(order.empty());
  inputs[0]->complete(ok_status());
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  // An aborted one does not hold up the others.
  sides.push_back(std::make_unique<Side>(networks[0], both));
  sides.back()->gang->post_when({}, [&order] { order.push_back(4); });
  EXPECT_EQ(order.size(), 3U);
  sides[3]->gang->abort(cancelled("by the caller"));
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  // A long queue is no deep recursion.
  const CompletionRef gate = Completion::make();
  int count = 0;
  for (int i = 0; i < 20000; ++i) {
    sides.back()->link().post_in_order(i == 0 ? gate : Completion::ready(), [&] { ++count; });
  }
  gate->complete(ok_status());
  EXPECT_EQ(count, 20000);
}

TEST(GangNetwork, WhatIsKnownOfOthersIsSaid) {
  const auto step = program("step", {0, 1}), other = program("other", {1, 2});
  Networks networks(3);
  networks.connect(step).connect(other);
  const Side first(networks[0], step);
  EXPECT_EQ(first.link().describe(1), "has launched nothing over several processes so far");
  const Side unrelated(networks[1], other), theirs(networks[2], other);
  const auto comes_to = [](const Side& side, const std::string& text) {
    for (int i = 0; i < 2000 && side.link().describe(1) != text; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return side.link().describe(1) == text;
  };
  EXPECT_TRUE(comes_to(theirs, "has launched it"));
  const Side second(networks[1], step);
  EXPECT_TRUE(comes_to(first, "has launched it"));
  const Side again(networks[0], step);
  EXPECT_EQ(again.link().describe(1), "has not launched it yet; it launched step last");
}

TEST(GangNetwork, WhoCannotBeReachedIsNamed) {
  const auto step = program("step", {0, 1});
  const auto store = std::make_shared<rendezvous::testing::PutOnce>();
  const auto first = GangNetwork::create(store, "fake", {0, 2, -1}, {});
  ASSERT_TRUE(store->put("hekla/fake/process/0/1", "nonsense").ok());
  const Status status = first->connect(*step);
  EXPECT_TRUE(says(status, "step has collectives over the devices of processes 0, 1"))
      << status.to_string();
  store->is_down = true;
  const auto down = GangNetwork::create(store, "fake", {0, 2, -1}, {});
  EXPECT_EQ(down->connect(*step).code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace hekla::pjrt
