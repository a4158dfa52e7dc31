// SPDX-License-Identifier: Apache-2.0
// What a transport promises, over each engine.
#include "runtime/collectives/transport.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <ostream>
#include <thread>

#include "runtime/base/host.h"
#include "runtime/base/testing/child.h"
#include "runtime/collectives/carrier_library.h"
#include "runtime/collectives/network_transport.h"
#include "runtime/collectives/shared_memory.h"
#include "runtime/collectives/testing/processes.h"

namespace hekla::collectives {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

template <typename Engine>
Member member_of(std::unique_ptr<Engine> engine) {
  Engine* const own = engine.get();
  return {std::move(engine), [own] { return own->card(); },
          [own](int process, std::string_view card) { return own->connect(process, card); }};
}

MakeMember over_memory(uint64_t ring_bytes) {
  return [ring_bytes](int rank, int size, Transport::Events events, const Timing& timing) {
    return member_of(*SharedMemory::create(rank, size, std::move(events),
                                           {ring_bytes, timing.beat, timing.silence}));
  };
}

Member over_carrier(CarrierKind kind, int rank, int size, Transport::Events events,
                    const Timing& timing) {
  NetworkOptions options;
  options.carrier = *carrier_table(kind);
  options.address = "127.0.0.1";
  options.beat = timing.beat;
  options.silence = timing.silence;
  std::vector<int> peers;
  for (int p = 0; p < size; ++p) {
    if (p != rank) peers.push_back(p);
  }
  return member_of(*NetworkTransport::create(rank, size, peers, std::move(events), options));
}

MakeMember over_network(CarrierKind kind) {
  return [kind](int rank, int size, Transport::Events events, const Timing& timing) {
    return over_carrier(kind, rank, size, std::move(events), timing);
  };
}

struct Engine {
  const char* name;
  MakeMember make;
  std::optional<CarrierKind> carrier = {};
};

void PrintTo(const Engine& engine, std::ostream* to) { *to << engine.name; }

class AnyTransport : public testing::TestWithParam<Engine> {
 protected:
  void SetUp() override {
    if (!GetParam().carrier) return;
    const Status carrier = carrier_table(*GetParam().carrier).status();
    if (!carrier.ok()) GTEST_SKIP() << carrier.message();
  }
  const MakeMember& make() const { return GetParam().make; }
};

// Of processes that are forked.
class AnyTransportFaults : public AnyTransport {
 protected:
  void SetUp() override {
    AnyTransport::SetUp();
    if (GetParam().carrier != CarrierKind::kUcx) return;
    // Threads of tests before may still hold UCX's locks, which a fork would copy held.
    const auto end = std::chrono::steady_clock::now() + kSoon;
    while (count_threads() > 1 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

 private:
  static int64_t count_threads() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  }
};

const auto kEngines = testing::Values(
    Engine{"SmallRings", over_memory(4096)}, Engine{"SharedMemory", over_memory(uint64_t{1} << 20)},
    Engine{"Gloo", over_network(CarrierKind::kGloo), CarrierKind::kGloo}
#ifdef HEKLA_WITH_UCX
    ,
    Engine{"Ucx", over_network(CarrierKind::kUcx), CarrierKind::kUcx}
#endif
);
std::string name_of(const testing::TestParamInfo<Engine>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Engines, AnyTransport, kEngines, name_of);
INSTANTIATE_TEST_SUITE_P(Engines, AnyTransportFaults, kEngines, name_of);

// From each process to each other, twice.
void send_between(const Processes& processes, const std::vector<int64_t>& sizes) {
  const int size = static_cast<int>(processes.all.size());
  std::vector<CompletionRef> all_sent;
  for (int round = 0; round < 2; ++round) {
    for (int p = 0; p < size; ++p) {
      for (int q = 0; q < size; ++q) {
        if (p == q) continue;
        for (const int64_t bytes : sizes) {
          all_sent.push_back(Completion::make());
          processes[p].send(
              q, {std::to_string(bytes), {pattern(bytes, p, q), pattern(bytes / 2, q, p)}},
              all_sent.back());
        }
      }
    }
  }
  for (const CompletionRef& sent : all_sent) EXPECT_TRUE(sent->await().ok());
}

void expect_sent_between(Processes& processes, const std::vector<int64_t>& sizes) {
  const int size = static_cast<int>(processes.all.size());
  for (int p = 0; p < size; ++p) {
    for (int q = 0; q < size; ++q) {
      if (p == q) continue;
      const auto messages = processes.ears[static_cast<size_t>(q)].wait_for(p, 2 * sizes.size());
      ASSERT_EQ(messages.size(), 2 * sizes.size());
      for (size_t m = 0; m < messages.size(); ++m) {
        const int64_t bytes = sizes[m % sizes.size()];
        EXPECT_EQ(messages[m].head, std::to_string(bytes));
        ASSERT_EQ(messages[m].blocks.size(), 2U);
        EXPECT_TRUE(messages[m].blocks[0].identical(pattern(bytes, p, q)));
        EXPECT_TRUE(messages[m].blocks[1].identical(pattern(bytes / 2, q, p)));
      }
    }
  }
}

TEST_P(AnyTransport, MessagesArriveWholeAndInOrder) {
  // About the sizes of a piece, too.
  const std::vector<int64_t> sizes = {0, 1, 7, 4096, 65536, 65536 + 1, 2 * 65536, (1 << 20) + 3};
  for (int size = 1; size <= 4; ++size) {
    Processes processes(make(), size);
    send_between(processes, sizes);
    expect_sent_between(processes, sizes);
  }
}

#ifndef HEKLA_SANITIZED
TEST_P(AnyTransport, LargeMessagesArrive) {
  const std::vector<int64_t> sizes = {64 << 20, 3, (20 << 20) + 5};
  Processes processes(make(), 2);
  send_between(processes, sizes);
  expect_sent_between(processes, sizes);
}
#endif

TEST_P(AnyTransport, SeveralThreadsSend) {
  Processes processes(make(), 2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        processes[0].send(1, {std::to_string(t), {pattern(i * 37 + i % 3 * 40000, t, i)}}, nullptr);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto messages = processes.ears[1].wait_for(0, 800);
  ASSERT_EQ(messages.size(), 800U);
  std::vector<int> next(4);
  for (const Message& message : messages) {
    const int t = std::stoi(message.head);
    const int i = next[static_cast<size_t>(t)]++;
    EXPECT_TRUE(message.blocks[0].identical(pattern(i * 37 + i % 3 * 40000, t, i)));
  }
}

TEST_P(AnyTransport, WhoLeavesIsNamedAndItsMessagesArrive) {
  Processes processes(make(), 3);
  const CompletionRef sent = Completion::make();
  processes[1].send(0, {"last", {pattern(3 << 20, 1, 0)}}, sent);
  ASSERT_TRUE(sent->await().ok());
  processes.all[1].transport.reset();
  const Status why = processes.ears[0].wait_for_loss(1);
  EXPECT_EQ(why.code(), StatusCode::kUnavailable);
  EXPECT_EQ(why.message(),
            fmt::format("process 1 (pid {} on {}) has ended", ::getpid(), host_name()));
  EXPECT_EQ(processes.ears[0].wait_for(1, 1).size(), 1U);
  EXPECT_FALSE(processes.ears[2].wait_for_loss(1).ok());
  EXPECT_EQ(processes[0].status(1).message(), why.message());
  // The others go on.
  EXPECT_TRUE(processes[0].status(2).ok());
  const CompletionRef to_lost = Completion::make();
  processes[0].send(1, {"who hears?", {}}, to_lost);
  EXPECT_EQ(to_lost->await().message(), why.message());
  processes[0].send(2, {"still", {}}, nullptr);
  EXPECT_EQ(processes.ears[2].wait_for(0, 1).size(), 1U);
}

TEST_P(AnyTransport, WhatNobodyTakesDoesNotHoldUpTheSenderOrItsEnd) {
  Ear ears[2];
  Member first = make()(0, 2, ears[0].events(), {});
  Member second = make()(1, 2, ears[1].events(), {});
  // The second does not know the first, so it takes nothing.
  ASSERT_TRUE(first.connect(1, second.card()).ok());
  const CompletionRef sent = Completion::make();
  first.transport->send(1, {"much", {pattern(5 << 20, 0, 1)}}, sent);
  EXPECT_FALSE(sent->is_done());
  EXPECT_EQ(second.transport->status(0).code(), StatusCode::kFailedPrecondition);
  first.transport.reset();
  EXPECT_EQ(sent->await().code(), StatusCode::kCancelled);
}

TEST_P(AnyTransport, NothingIsLeft) {
  { Processes processes(make(), 2); }  // what is opened once stays open
  const size_t files = open_files();
  { Processes processes(make(), 3); }
  EXPECT_EQ(open_files(), files);
}

// A transport that its own event destroys, on whichever thread it is called: large messages may
// have one of their own.
void expect_event_may_end_it(const MakeMember& make, int64_t bytes) {
  Ear ear;
  const CompletionRef gone = Completion::make();
  struct Owner {
    std::mutex mutex;  // what the kernel orders between processes no checker sees
    Member first;
  };
  const auto owner = std::make_shared<Owner>();  // the event may outlive the test
  Transport::Events events;
  events.received = [owner, gone](int, const Message&) {
    const std::lock_guard lock(owner->mutex);
    owner->first.transport.reset();
    gone->complete(ok_status());
  };
  events.lost = [](int, const Status&) {};
  Member second = make(1, 2, ear.events(), {});
  {
    const std::lock_guard lock(owner->mutex);
    owner->first = make(0, 2, std::move(events), {});
    ASSERT_TRUE(owner->first.connect(1, second.card()).ok());
    ASSERT_TRUE(second.connect(0, owner->first.card()).ok());
  }
  second.transport->send(0, {"end", {pattern(bytes, 1, 0)}}, nullptr);
  EXPECT_TRUE(gone->await().ok());
  EXPECT_FALSE(ear.wait_for_loss(0).ok());
}

TEST_P(AnyTransport, AnEventMayEndIt) {
  expect_event_may_end_it(make(), 0);
  expect_event_may_end_it(make(), 3 << 20);
}

// Of a process that sends its last words and ends by `end` while others send it much.
void expect_named_when_it_ends(const MakeMember& make, void (*end)()) {
  Board board;
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank) {
    children.push_back(start_child([&, rank] {
      Ear ear;
      const Member own = join(make, board, rank, 3, ear);
      // Its last words come first; what is sent to it then is nobody's.
      if (rank == 2) {
        for (int p = 0; p < 2; ++p) {
          const CompletionRef sent = Completion::make();
          own.transport->send(p, {"last", {pattern(300 << 10, 2, p)}}, sent);
          static_cast<void>(sent->await());
        }
        end();
      }
      const CompletionRef sent = Completion::make();
      own.transport->send(2, {"much", {pattern(8 << 20, rank, 2)}}, sent);
      const auto begin = std::chrono::steady_clock::now();
      const Status why = ear.wait_for_loss(2);
      if (!contains(why, "process 2 (pid ") || !contains(why, "has died")) return 1;
      if (std::chrono::steady_clock::now() - begin > seconds(5)) return 2;
      static_cast<void>(sent->await());
      if (ear.wait_for(2, 1).size() != 1) return 3;
      if (!own.transport->status(1 - rank).ok()) return 4;
      const CompletionRef late = Completion::make();
      own.transport->send(2, {"late", {}}, late);
      if (late->await().ok()) return 5;
      // Not before the other has seen the same.
      board.arrive();
      board.wait_until_arrived(5);
      return 0;
    }));
  }
  EXPECT_EQ(wait_for_child(children[0]), 0);
  EXPECT_EQ(wait_for_child(children[1]), 0);
  static_cast<void>(wait_for_child(children[2]));
}

TEST_P(AnyTransportFaults, AKilledProcessIsNamedOnAllOthersSoon) {
  expect_named_when_it_ends(make(), [] { ::raise(SIGKILL); });
}

TEST_P(AnyTransportFaults, AProcessThatExitsWithoutAWordIsNamedOnAllOthersSoon) {
  expect_named_when_it_ends(make(), [] { ::_exit(3); });
}

TEST_P(AnyTransportFaults, AStoppedProcessIsNamedAndHearsOfItLater) {
  Board board;
  const Timing timing{milliseconds(10), milliseconds(300)};
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.push_back(start_child([&, rank] {
      Ear ear;
      const Member own = join(make(), board, rank, 2, ear, timing);
      const CompletionRef sent = Completion::make();
      own.transport->send(1 - rank, {std::to_string(::getpid()), {}}, sent);
      const std::vector<Message> told = ear.wait_for(1 - rank, 1);
      if (told.size() != 1 || !sent->await().ok()) return 4;
      if (rank == 1) ::raise(SIGSTOP);
      if (rank == 0) {
        std::chrono::nanoseconds silent(0);
        while (!ear.has_lost(1)) {
          silent = std::max(silent, own.transport->silent_for(1));
          std::this_thread::sleep_for(milliseconds(1));
        }
        if (silent < milliseconds(100)) return 5;
      }
      const Status why = ear.wait_for_loss(1 - rank);
      if (rank == 1) return contains(why, "has given up on this process") ? 0 : 1;
      if (why.code() != StatusCode::kDeadlineExceeded) return 2;
      if (!contains(why, "process 1 (pid ") || !contains(why, "no sign of life")) return 3;
      ::kill(static_cast<pid_t>(std::stoi(told[0].head)), SIGCONT);
      board.arrive();
      std::this_thread::sleep_for(milliseconds(200));
      return 0;
    }));
  }
  EXPECT_EQ(wait_for_child(children[0]), 0);
  EXPECT_EQ(wait_for_child(children[1]), 0);
}

// A pause of a whole group, as of a machine that sleeps, is nobody's loss.
TEST_P(AnyTransportFaults, AGroupThatWasStoppedGoesOn) {
  Board board;
  const Timing timing{milliseconds(10), milliseconds(500)};
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.push_back(start_child([&, rank] {
      Ear ear;
      const Member own = join(make(), board, rank, 2, ear, timing);
      own.transport->send(1 - rank, {"before", {}}, nullptr);
      if (ear.wait_for(1 - rank, 1).size() != 1) return 1;
      board.arrive();
      board.wait_until_arrived(5);
      own.transport->send(1 - rank, {"after", {}}, nullptr);
      if (ear.wait_for(1 - rank, 2).size() != 2 || ear.has_lost(1 - rank)) return 2;
      board.arrive();
      board.wait_until_arrived(7);
      return 0;
    }));
  }
  board.wait_until_arrived(4);
  for (const pid_t child : children) ::kill(child, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(1500));
  for (const pid_t child : children) ::kill(child, SIGCONT);
  board.arrive();
  EXPECT_EQ(wait_for_child(children[0]), 0);
  EXPECT_EQ(wait_for_child(children[1]), 0);
}

}  // namespace
}  // namespace hekla::collectives
