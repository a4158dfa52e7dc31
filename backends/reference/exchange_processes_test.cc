// SPDX-License-Identifier: Apache-2.0
// Devices of several processes in one launch.
#include "backends/reference/testing/exchange_processes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include "backends/reference/exchange_message.h"

namespace hekla::reference {
namespace {

using Arrays = DeviceExchange::Arrays;

const DeviceExchange::Site kSum{1, "all_reduce at a.py:1"};
const DeviceExchange::Site kGather{2, "all_gather at b.py:2"};

Arrays one_number(int32_t value) { return {HostArray::scalar<int32_t>(DType::kI32, value)}; }

bool says(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string::npos;
}

// A thread for each device; an error of one ends all, as a gang does it.
std::vector<Status> run_all(ExchangeProcesses& processes, size_t count,
                            const std::function<Status(DeviceExchange&, int64_t)>& body) {
  std::vector<Status> ends(count);
  std::vector<std::thread> threads;
  for (size_t d = 0; d < count; ++d) {
    threads.emplace_back([&, d] {
      const auto device = static_cast<int64_t>(d);
      DeviceExchange& exchange = processes.of(device);
      ends[d] = exchange.finish(device, body(exchange, device));
      if (!ends[d].ok()) processes.abort(ends[d]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

TEST(ExchangeProcesses, MembersSeeEachOtherInTheOrderOfTheGroup) {
  ExchangeProcesses processes({2, 2}, {0, 1, 0, 2});
  const std::vector<std::vector<int64_t>> groups = {{3, 0}, {1, 2}};
  const auto ends = run_all(processes, 4, [&](DeviceExchange& exchange, int64_t device) -> Status {
    const auto& members = device % 3 == 0 ? groups[0] : groups[1];
    for (int32_t round = 0; round < 100; ++round) {
      HEKLA_ASSIGN_OR_RETURN(auto ticket,
                             exchange.post(device, kSum, members,
                                           one_number(static_cast<int32_t>(device) + 10 * round)));
      HEKLA_ASSIGN_OR_RETURN(auto brought, exchange.collect(device, kSum, ticket));
      for (size_t i = 0; i < members.size(); ++i) {
        const int32_t expected = static_cast<int32_t>(members[i]) + 10 * round;
        if (brought[i][0].as<int32_t>()[0] != expected) return data_loss("round {}", round);
      }
    }
    return ok_status();
  });
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.to_string();
}

TEST(ExchangeProcesses, AProcessHandsOverOnceForAllItsDevices) {
  ExchangeProcesses processes({8, 1}, {0, 0, 0, 0, 1, 1, 1, 1});
  std::atomic<int> messages = 0, blocks = 0;
  processes.on_message = [&](int, int, size_t count) {
    messages += count > 0;  // others say how far a process has come
    blocks += static_cast<int>(count);
  };
  const auto ends = run_all(processes, 8, [&](DeviceExchange& exchange, int64_t device) -> Status {
    // All of them, then each process by itself, which is nobody else's business.
    HEKLA_ASSIGN_OR_RETURN(auto ticket,
                           exchange.post(device, kSum, {0, 1, 2, 3, 4, 5, 6, 7}, one_number(1)));
    HEKLA_RETURN_IF_ERROR(exchange.collect(device, kSum, ticket).status());
    const std::vector<int64_t> own =
        device < 4 ? std::vector<int64_t>{0, 1, 2, 3} : std::vector<int64_t>{4, 5, 6, 7};
    HEKLA_ASSIGN_OR_RETURN(ticket, exchange.post(device, kGather, own, one_number(1)));
    return exchange.collect(device, kGather, ticket).status();
  });
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.to_string();
  EXPECT_EQ(messages, 2);
  EXPECT_EQ(blocks, 8);
}

TEST(ExchangeProcesses, MessagesArriveInOrder) {
  ExchangeProcesses processes({4, 1}, {0, 1, 1, 0});
  const auto ends = run_all(processes, 4, [&](DeviceExchange& exchange, int64_t device) -> Status {
    for (int32_t i = 0; i < 50; ++i) {
      HEKLA_RETURN_IF_ERROR(exchange.send(device, kSum, {7}, (device + 1) % 4, one_number(i)));
    }
    for (int32_t i = 0; i < 50; ++i) {
      HEKLA_ASSIGN_OR_RETURN(Arrays arrays, exchange.receive(device, kSum, {7}, (device + 3) % 4));
      if (arrays[0].as<int32_t>()[0] != i) return data_loss("message {}", i);
    }
    return ok_status();
  });
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.to_string();
}

TEST(ExchangeProcesses, OneThatHasFinishedIsNotWaitedFor) {
  ExchangeProcesses processes({3, 1}, {0, 0, 1});
  const auto ends = run_all(processes, 3, [&](DeviceExchange& exchange, int64_t device) -> Status {
    if (device == 2) return ok_status();
    HEKLA_ASSIGN_OR_RETURN(auto ticket, exchange.post(device, kSum, {0, 1, 2}, one_number(1)));
    return exchange.collect(device, kSum, ticket).status();
  });
  EXPECT_TRUE(ends[2].ok());
  for (int d = 0; d < 2; ++d) {
    EXPECT_EQ(ends[d].code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(says(ends[d], "device 2 (replica 2, partition 0), which has finished"))
        << ends[d].to_string();
  }
}

// Each waits for the other; nobody sees it from one process alone.
TEST(ExchangeProcesses, EndlessWaitsOverProcessesAreFound) {
  for (const bool third_computes : {false, true}) {
    ExchangeProcesses processes({4, 1}, {0, 0, 1, 2});
    std::atomic<bool> is_early = false;
    const auto ends =
        run_all(processes, 4, [&](DeviceExchange& exchange, int64_t device) -> Status {
          if (device == 3) {
            // Who computes may yet come.
            if (third_computes) std::this_thread::sleep_for(std::chrono::milliseconds(300));
            is_early = !exchange.status().ok() && third_computes;
            return ok_status();
          }
          const DeviceExchange::Site& site = device == 2 ? kGather : kSum;
          HEKLA_ASSIGN_OR_RETURN(auto ticket,
                                 exchange.post(device, site, {0, 1, 2}, one_number(1)));
          return exchange.collect(device, site, ticket).status();
        });
    EXPECT_FALSE(is_early);
    for (int d = 0; d < 3; ++d) {
      EXPECT_EQ(ends[d].code(), StatusCode::kFailedPrecondition);
      for (const char* text :
           {"wait for each other without end", "waits at all_reduce at a.py:1 for",
            "which waits at all_gather at b.py:2"}) {
        EXPECT_TRUE(says(ends[d], text)) << text << "\n" << ends[d].to_string();
      }
    }
  }
}

// Long waits that end: no stop is for good while a message is under way.
TEST(ExchangeProcesses, LongWaitsAreNotTakenForEndlessOnes) {
  ExchangeProcesses processes({3, 1}, {0, 1, 2});
  const auto ends = run_all(processes, 3, [&](DeviceExchange& exchange, int64_t device) -> Status {
    for (int round = 0; round < 4; ++round) {
      if (device == round % 3) std::this_thread::sleep_for(std::chrono::milliseconds(150));
      const std::vector<int64_t> members =
          round % 2 == 0 ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{0, 1};
      if (std::ranges::find(members, device) == members.end()) continue;
      HEKLA_ASSIGN_OR_RETURN(auto ticket, exchange.post(device, kSum, members, one_number(1)));
      HEKLA_RETURN_IF_ERROR(exchange.collect(device, kSum, ticket).status());
    }
    return ok_status();
  });
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.to_string();
}

TEST(StuckProcesses, AllMustStandStillAndHaveWhatWasSent) {
  ProcessState waits, finished;
  waits.waiting.push_back({0, "all_reduce at a.py:1", {1}});
  waits.counts[1] = {3, 2};
  finished.counts[0] = {2, 3};
  StuckProcesses stuck;
  stuck.set(0, waits);
  EXPECT_FALSE(stuck.endless({0, 1}));
  stuck.set(1, finished);
  ASSERT_TRUE(stuck.endless({0, 1}));
  EXPECT_FALSE(stuck.endless({0, 1, 2}));
  finished.counts[0].sent = 3;  // what the first has not got yet
  stuck.set(1, finished);
  EXPECT_FALSE(stuck.endless({0, 1}));
  finished.counts[0].sent = 2;
  stuck.set(1, finished);
  stuck.goes_on(0);
  EXPECT_FALSE(stuck.endless({0, 1}));
  stuck.set(0, *ProcessState::read(waits.text()));
  EXPECT_EQ(stuck.endless({0, 1})->front().where, "all_reduce at a.py:1");
  waits.waiting.clear();
  stuck.set(0, waits);
  EXPECT_FALSE(stuck.endless({0, 1}));  // all have ended
}

TEST(ExchangeProcesses, WhatNobodyReceivesIsAnError) {
  ExchangeProcesses processes({2, 1}, {0, 1});
  DeviceExchange& first = processes.of(0);
  DeviceExchange& second = processes.of(1);
  EXPECT_TRUE(first.send(0, kSum, {1}, 1, one_number(5)).ok());
  EXPECT_EQ(second.finish(1, ok_status()).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(says(second.status(), "a.py:1")) << second.status().to_string();

  ExchangeProcesses later({2, 1}, {0, 1});
  EXPECT_TRUE(later.of(1).finish(1, ok_status()).ok());
  const Status end = later.of(0).send(0, kSum, {1}, 1, one_number(5));
  EXPECT_TRUE(says(end, "which has finished")) << end.to_string();
}

TEST(ExchangeProcesses, AChannelSaysWhoSendsToWhom) {
  ExchangeProcesses processes({2, 1}, {0, 1});
  EXPECT_EQ(processes.of(0).send(0, kSum, {1}, std::nullopt, one_number(5)).code(),
            StatusCode::kUnimplemented);
  const Status end = processes.of(1).receive(1, kSum, {1}, std::nullopt).status();
  EXPECT_TRUE(says(end, "source_target_pairs")) << end.to_string();
}

TEST(ExchangeProcesses, WhoWaitsTooLongNamesTheOtherProcess) {
  WaitLimits limits;
  limits.deadline = std::chrono::milliseconds(50);
  limits.program = "step";
  limits.devices = {"dev:a", "dev:b", "dev:c"};
  ExchangeProcesses processes({1, 3}, {0, 1, 2}, limits);
  // One comes to another operation, one to none.
  EXPECT_TRUE(processes.of(1).post(1, kGather, {0, 1}, one_number(1)).ok());
  DeviceExchange& exchange = processes.of(0);
  exchange.begin(0);
  const auto ticket = exchange.post(0, kSum, {0, 1, 2}, one_number(1));
  ASSERT_TRUE(ticket.ok());
  const Status end = exchange.collect(0, kSum, *ticket).status();
  EXPECT_EQ(end.code(), StatusCode::kDeadlineExceeded);
  for (const char* text :
       {"step on 3 devices", "s at all_reduce at a.py:1, time 1, for dev:b, dev:c",
        "dev:b is process 1's, which runs it; it last came to all_gather at b.py",
        "dev:c is process 2's, which is only played"}) {
    EXPECT_TRUE(says(end, text)) << text << "\n" << end.to_string();
  }
}

TEST(ExchangeProcesses, WhatDoesNotBelongHereEndsTheLaunch) {
  ExchangeMessage good;
  good.site = 1;
  good.members = {0, 1};
  good.where = "all_reduce at a.py:1";
  good.parts = {{1, one_number(5)}};
  const auto refuse = [&](const std::function<void(ExchangeMessage&)>& change) {
    ExchangeProcesses processes({2, 1}, {0, 1});
    ExchangeMessage message = good;
    change(message);
    std::vector<HostArray> blocks;
    for (const HostArray& block : message.blocks()) {
      blocks.push_back(block.with_shape(DType::kUI8, {block.size_bytes()}));
    }
    processes.of(0).deliver(1, message.head(), blocks);
    return processes.of(0).status().code();
  };
  EXPECT_EQ(refuse([](ExchangeMessage&) {}), StatusCode::kOk);
  EXPECT_EQ(refuse([](auto& m) { m.parts[0].device = 0; }), StatusCode::kDataLoss);
  EXPECT_EQ(refuse([](auto& m) { m.parts[0].device = 2; }), StatusCode::kDataLoss);
  EXPECT_EQ(refuse([](auto& m) { m.parts.push_back(m.parts[0]); }), StatusCode::kDataLoss);
  EXPECT_EQ(refuse([](auto& m) { m.members = {1}; }), StatusCode::kDataLoss);
  EXPECT_EQ(refuse([](auto& m) { m.members = {0, 0, 1}; }), StatusCode::kDataLoss);
  EXPECT_EQ(refuse([](auto& m) { m.members = {0, 7}; }), StatusCode::kDataLoss);
  EXPECT_EQ(refuse([](auto& m) { m.members = {0}; }), StatusCode::kDataLoss);
  EXPECT_EQ(refuse([](auto& m) { m.round = -1; }), StatusCode::kDataLoss);
  EXPECT_EQ(refuse([](auto& m) {
              m.kind = ExchangeMessage::Kind::kMail;
              m.target = 1;
            }),
            StatusCode::kDataLoss);
}

// Devices that are launched one by one, of two processes.
TEST(ExchangeProcessesByOrder, TheNthOfAGroupMeetsAndWhoIsLostIsNamed) {
  ExchangeProcesses processes({2, 1}, {0, 1}, {}, DeviceExchange::Matching::kByOrder);
  const auto rounds = [&](int64_t device, int32_t first, int32_t last) -> Status {
    DeviceExchange& exchange = processes.of(device);
    for (int32_t value = first; value < last; ++value) {
      HEKLA_ASSIGN_OR_RETURN(auto ticket, exchange.post(device, kSum, {0, 1}, one_number(value)));
      HEKLA_ASSIGN_OR_RETURN(auto brought, exchange.collect(device, kSum, ticket));
      for (const Arrays& one : brought) {
        if (one[0].as<int32_t>()[0] != value) return data_loss("{}", value);
      }
    }
    return ok_status();
  };
  std::thread other([&] {
    const Status end = rounds(1, 0, 50);
    EXPECT_TRUE(end.ok()) << end.to_string();
    processes.lose(1, unavailable("process 1 (pid 7 on blue) has died"));
  });
  // What it brought is there, although the process may be gone.
  const Status there = rounds(0, 0, 50);
  EXPECT_TRUE(there.ok()) << there.to_string();
  const Status end = rounds(0, 50, 51);
  other.join();
  EXPECT_EQ(end.code(), StatusCode::kUnavailable) << end.to_string();
  EXPECT_TRUE(says(end, "process 1 (pid 7 on blue) has died")) << end.to_string();
  EXPECT_TRUE(says(end, kSum.name)) << end.to_string();
}

TEST(ExchangeProcessesByOrder, AnotherOperationIsNamedOnTheOther) {
  ExchangeProcesses processes({2, 1}, {0, 1}, {}, DeviceExchange::Matching::kByOrder);
  ASSERT_TRUE(processes.of(0).post(0, kSum, {0, 1}, one_number(1)).ok());
  const Status status = processes.of(1).post(1, kGather, {0, 1}, one_number(1)).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  for (const char* text : {"all_reduce at a.py:1", "all_gather at b.py:2"}) {
    EXPECT_TRUE(says(status, text)) << status.to_string();
  }
}

TEST(ExchangeProcessesByOrder, PermutesMeetInTheirOrder) {
  ExchangeProcesses processes({2, 1}, {0, 1}, {}, DeviceExchange::Matching::kByOrder);
  const DeviceExchange::Channel one{0, 11}, two{0, 12};
  ASSERT_TRUE(processes.of(0).send(0, kSum, one, 1, one_number(1)).ok());
  ASSERT_TRUE(processes.of(0).send(0, kGather, two, 1, one_number(2)).ok());
  const auto first = processes.of(1).receive(1, kSum, one, 0);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  const Status other = processes.of(1).receive(1, kSum, one, 0).status();
  EXPECT_TRUE(says(other, "all_gather at b.py:2")) << other.to_string();
}

TEST(ExchangeMessage, NonsenseIsAnErrorAndDoesNoHarm) {
  ExchangeMessage message;
  message.members = {0, 1, 5};
  message.where = "all_reduce at a.py:1";
  message.parts = {{1, {HostArray(DType::kF32, {2, 3}), HostArray(DType::kI4, {0})}}, {5, {}}};
  const std::string head = message.head();
  const auto blocks = [] {
    return std::vector<HostArray>{HostArray(DType::kUI8, {24}), HostArray(DType::kUI8, {0})};
  };
  const auto read = ExchangeMessage::read(head, blocks());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->members, message.members);
  ASSERT_EQ(read->parts.size(), 2U);
  EXPECT_EQ(read->parts[0].arrays[0].shape(), "f32[2,3]");
  EXPECT_EQ(read->parts[0].arrays[1].shape(), "i4[0]");
  EXPECT_FALSE(ExchangeMessage::read(head, {}).ok());
  auto more = blocks();
  more.push_back(more[0]);
  EXPECT_FALSE(ExchangeMessage::read(head, more).ok());
  auto other = blocks();
  other[0] = HostArray(DType::kUI8, {23});
  EXPECT_FALSE(ExchangeMessage::read(head, other).ok());
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string changed = head;
    for (int i = 0; i < 2; ++i) changed[random() % changed.size()] = static_cast<char>(random());
    static_cast<void>(ExchangeMessage::read(changed, blocks()));
  }
}

}  // namespace
}  // namespace hekla::reference
