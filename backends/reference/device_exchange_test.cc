// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/device_exchange.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <latch>
#include <thread>

namespace hekla::reference {
namespace {

using Site = DeviceExchange::Site;
using Arrays = DeviceExchange::Arrays;

const Site kA{1, "all_reduce at a.py:1"};
const Site kB{2, "all_gather at b.py:2"};

Arrays number(int32_t value) { return {HostArray::scalar<int32_t>(DType::kI32, value)}; }

// Runs `body` for each device in a thread; what it returns is the device's end.
std::vector<Status> run(DeviceExchange& exchange, const std::function<Status(int64_t)>& body) {
  std::vector<Status> ends(static_cast<size_t>(exchange.grid().size()));
  std::vector<std::thread> threads;
  for (int64_t device = 0; device < exchange.grid().size(); ++device) {
    threads.emplace_back([&, device] {
      const Status end = body(device);
      ends[static_cast<size_t>(device)] = exchange.finish(device, end);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

Result<std::vector<Arrays>> meet(DeviceExchange& exchange, int64_t device, const Site& site,
                                 const std::vector<int64_t>& members, int32_t value) {
  HEKLA_ASSIGN_OR_RETURN(auto ticket, exchange.post(device, site, members, number(value)));
  return exchange.collect(device, site, ticket);
}

bool contains(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string::npos;
}

TEST(DeviceExchange, MembersSeeEachOtherInTheOrderOfTheGroup) {
  DeviceExchange exchange({2, 2});
  const std::vector<std::vector<int64_t>> groups = {{3, 0}, {1, 2}};
  const auto ends = run(exchange, [&](int64_t device) -> Status {
    const auto& members = device % 3 == 0 ? groups[0] : groups[1];
    for (int32_t round = 0; round < 200; ++round) {
      HEKLA_ASSIGN_OR_RETURN(auto brought, meet(exchange, device, kA, members,
                                                static_cast<int32_t>(device) + 10 * round));
      for (size_t i = 0; i < members.size(); ++i) {
        const int32_t expected = static_cast<int32_t>(members[i]) + 10 * round;
        if (brought[i][0].as<int32_t>()[0] != expected) return data_loss("round {}", round);
      }
    }
    return ok_status();
  });
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.to_string();
  EXPECT_TRUE(exchange.status().ok());
}

TEST(DeviceExchange, WhatWasBroughtStaysWhenItsOwnerWrites) {
  DeviceExchange exchange({2, 1});
  const auto ends = run(exchange, [&](int64_t device) -> Status {
    HostArray mine = HostArray::scalar<int32_t>(DType::kI32, static_cast<int32_t>(device));
    HEKLA_ASSIGN_OR_RETURN(auto ticket, exchange.post(device, kA, {0, 1}, {mine}));
    mine.mutable_as<int32_t>()[0] = -1;
    HEKLA_ASSIGN_OR_RETURN(auto brought, exchange.collect(device, kA, ticket));
    mine.mutable_as<int32_t>()[0] = -2;
    for (int32_t i = 0; i < 2; ++i) {
      if (brought[static_cast<size_t>(i)][0].as<int32_t>()[0] != i) return data_loss("{}", i);
    }
    return ok_status();
  });
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.to_string();
}

TEST(DeviceExchange, PostedBeforeItIsCollected) {
  // Each starts two collectives and ends them in the other order.
  DeviceExchange exchange({4, 1});
  const std::vector<int64_t> all = {0, 1, 2, 3};
  const auto ends = run(exchange, [&](int64_t device) -> Status {
    const bool is_even = device % 2 == 0;
    const Site& first = is_even ? kA : kB;
    const Site& second = is_even ? kB : kA;
    HEKLA_ASSIGN_OR_RETURN(auto one, exchange.post(device, first, all, number(1)));
    HEKLA_ASSIGN_OR_RETURN(auto two, exchange.post(device, second, all, number(2)));
    HEKLA_RETURN_IF_ERROR(exchange.collect(device, second, two).status());
    return exchange.collect(device, first, one).status();
  });
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.to_string();
}

TEST(DeviceExchange, DifferentCollectivesAreAnErrorOnEveryDevice) {
  DeviceExchange exchange({1, 3});
  const std::vector<int64_t> all = {0, 1, 2};
  const auto ends = run(exchange, [&](int64_t device) {
    return meet(exchange, device, device == 1 ? kB : kA, all, 0).status();
  });
  for (const Status& end : ends) {
    EXPECT_EQ(end.code(), StatusCode::kFailedPrecondition) << end.to_string();
    EXPECT_TRUE(contains(end, "waits at all_reduce at a.py:1 for")) << end.to_string();
    EXPECT_TRUE(
        contains(end, "device 1 (replica 0, partition 1), which waits at all_gather at b.py:2"))
        << end.to_string();
  }
}

TEST(DeviceExchange, AMissingMemberIsAnError) {
  DeviceExchange exchange({3, 1});
  const auto ends = run(exchange, [&](int64_t device) {
    if (device == 2) return ok_status();
    return meet(exchange, device, kA, {0, 1, 2}, 0).status();
  });
  EXPECT_TRUE(ends[2].ok());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ends[i].code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(contains(ends[i], "device 2 (replica 2, partition 0), which has finished"))
        << ends[i].to_string();
  }
}

TEST(DeviceExchange, OneMeetingTooManyIsAnError) {
  // A loop with another number of iterations on one device.
  DeviceExchange exchange({4, 1});
  const auto ends = run(exchange, [&](int64_t device) {
    Status status;
    for (int i = 0; i < (device == 3 ? 6 : 5) && status.ok(); ++i) {
      status = meet(exchange, device, kA, {0, 1, 2, 3}, 0).status();
    }
    return status;
  });
  EXPECT_EQ(ends[3].code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(contains(ends[3], "has finished")) << ends[3].to_string();
}

TEST(DeviceExchange, AFailureEndsTheOthers) {
  DeviceExchange exchange({8, 1});
  const std::vector<int64_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto ends = run(exchange, [&](int64_t device) {
    if (device == 5) return resource_exhausted("no memory");
    return meet(exchange, device, kA, all, 0).status();
  });
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(ends[i].code(), StatusCode::kResourceExhausted);
    if (i != 5) {
      EXPECT_TRUE(contains(ends[i], "device 5 (replica 5, partition 0) failed: no memory"));
    }
  }
}

TEST(DeviceExchange, AbortWakesEverybody) {
  DeviceExchange exchange({4, 1});
  std::thread killer([&] { exchange.abort(cancelled("by the caller")); });
  const auto ends = run(exchange, [&](int64_t device) {
    Status status;
    while (status.ok()) status = meet(exchange, device, kA, {0, 1, 2, 3}, 0).status();
    return status;
  });
  killer.join();
  for (const Status& end : ends) EXPECT_EQ(end.code(), StatusCode::kCancelled);
  // What comes later hears of it too.
  EXPECT_EQ(meet(exchange, 0, kB, {0}, 0).status().code(), StatusCode::kCancelled);
}

TEST(DeviceExchange, AWaitForOneThatWaitsForAThirdCanEnd) {
  DeviceExchange exchange({3, 1});
  const auto ends = run(exchange, [&](int64_t device) -> Status {
    if (device < 2) HEKLA_RETURN_IF_ERROR(meet(exchange, device, kA, {0, 1}, 0).status());
    if (device > 0) HEKLA_RETURN_IF_ERROR(meet(exchange, device, kB, {1, 2}, 0).status());
    return ok_status();
  });
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.to_string();
}

TEST(DeviceExchange, MessagesArriveInOrder) {
  DeviceExchange exchange({4, 1});
  const auto ends = run(exchange, [&](int64_t device) -> Status {
    for (int32_t i = 0; i < 100; ++i) {
      HEKLA_RETURN_IF_ERROR(exchange.send(device, kA, {7}, (device + 1) % 4, number(i)));
    }
    for (int32_t i = 0; i < 100; ++i) {
      HEKLA_ASSIGN_OR_RETURN(Arrays arrays, exchange.receive(device, kA, {7}, (device + 3) % 4));
      if (arrays[0].as<int32_t>()[0] != i) return data_loss("message {}", i);
    }
    return ok_status();
  });
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.to_string();
}

TEST(DeviceExchange, AChannelWithoutPairsHasOneSenderAndOneReceiver) {
  DeviceExchange good({2, 1});
  for (const Status& end : run(good, [&](int64_t device) {
         if (device == 0) return good.send(0, kA, {1}, std::nullopt, number(5));
         return good.receive(1, kA, {1}, std::nullopt).status();
       })) {
    EXPECT_TRUE(end.ok()) << end.to_string();
  }
  DeviceExchange nobody({2, 1});
  for (const Status& end : run(nobody, [&](int64_t device) {
         return nobody.receive(device, kA, {1}, std::nullopt).status();
       })) {
    EXPECT_EQ(end.code(), StatusCode::kFailedPrecondition) << end.to_string();
  }
}

TEST(DeviceExchange, MessagesThatNobodyReceivesAreAnError) {
  DeviceExchange exchange({2, 1});
  run(exchange, [&](int64_t device) {
    return device == 0 ? exchange.send(0, kA, {1}, 1, number(5)) : ok_status();
  });
  EXPECT_EQ(exchange.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(contains(exchange.status(), "a.py:1")) << exchange.status().to_string();
}

TEST(DeviceExchange, WhoWaitsTooLongForADeviceThatRunsNamesIt) {
  using std::chrono::milliseconds;
  DeviceExchange exchange({1, 4}, {.deadline = milliseconds(50),
                                   .program = "step",
                                   .devices = {"dev:a", "dev:b", "dev:c", "dev:d"}});
  const auto ends = run(exchange, [&](int64_t device) -> Status {
    if (device == 3) {  // never begins; ends when it hears of the end
      while (exchange.status().ok()) std::this_thread::sleep_for(milliseconds(1));
      return exchange.status();
    }
    exchange.begin(device);
    HEKLA_RETURN_IF_ERROR(meet(exchange, device, kB, {0, 1, 2}, 1).status());
    if (device == 2) {
      while (exchange.status().ok()) std::this_thread::sleep_for(milliseconds(1));
      return exchange.status();
    }
    return meet(exchange, device, kA, {0, 1, 2, 3}, 2).status();
  });
  for (const Status& end : ends) {
    EXPECT_EQ(end.code(), StatusCode::kDeadlineExceeded) << end.to_string();
    for (const char* text :
         {"step on 4 devices", "dev:a, dev:b waited 0.", "s at all_reduce at a.py:1",
          "time 1, for dev:c, dev:d", "dev:c runs; it last came to all_gather at b.py:2",
          "dev:d has not begun"}) {
      EXPECT_TRUE(contains(end, text)) << text << "\n" << end.to_string();
    }
  }
}

TEST(DeviceExchange, AMessageIsWaitedForNoLongerThanAMeeting) {
  using std::chrono::milliseconds;
  DeviceExchange exchange({2, 1}, {.deadline = milliseconds(50)});
  std::latch begun(2);
  const auto ends = run(exchange, [&](int64_t device) -> Status {
    exchange.begin(device);
    begun.arrive_and_wait();
    if (device == 0) return exchange.receive(0, kA, {1, 0}, 1).status();
    while (exchange.status().ok()) std::this_thread::sleep_for(milliseconds(1));
    return exchange.status();
  });
  EXPECT_EQ(ends[0].code(), StatusCode::kDeadlineExceeded) << ends[0].to_string();
  EXPECT_TRUE(contains(ends[0], "runs, and has come to no other device so far"))
      << ends[0].to_string();
}

// Patience counts from the wait at hand: each of these is short, all together are not.
TEST(DeviceExchange, ManyShortWaitsAreNoLongOne) {
  using std::chrono::milliseconds;
  DeviceExchange exchange({2, 1}, {.deadline = std::chrono::seconds(1)});
  const auto ends = run(exchange, [&](int64_t device) -> Status {
    for (int32_t round = 0; round < 12; ++round) {
      if (device == 1) std::this_thread::sleep_for(milliseconds(100));
      HEKLA_RETURN_IF_ERROR(meet(exchange, device, kA, {0, 1}, round).status());
    }
    return ok_status();
  });
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.to_string();
}

TEST(DeviceExchange, WhatALaneWaitsForCountsOnceItsDeviceHasNothingElseToDo) {
  using std::chrono::milliseconds;
  DeviceExchange exchange({2, 1}, {.deadline = milliseconds(100)});
  const auto ends = run(exchange, [&](int64_t device) -> Status {
    if (device == 1) {
      while (exchange.status().ok()) std::this_thread::sleep_for(milliseconds(1));
      return exchange.status();
    }
    HEKLA_ASSIGN_OR_RETURN(auto ticket, exchange.post(0, kA, {0, 1}, number(1)));
    Status lane_end;
    std::thread lane([&] {
      lane_end = exchange.collect(0, kA, ticket, DeviceExchange::Thread::kLane).status();
    });
    std::this_thread::sleep_for(milliseconds(250));
    const Status so_far = exchange.status();
    exchange.set_waits_for_lane(0, true);
    lane.join();
    exchange.set_waits_for_lane(0, false);
    EXPECT_TRUE(so_far.ok()) << so_far.to_string();
    return lane_end;
  });
  EXPECT_EQ(ends[0].code(), StatusCode::kDeadlineExceeded) << ends[0].to_string();
}

TEST(DeviceExchange, AWarningIsLoggedOnceALaunch) {
  using std::chrono::milliseconds;
  DeviceExchange exchange({2, 1}, {.warn_after = milliseconds(30)});
  testing::internal::CaptureStderr();
  const auto ends = run(exchange, [&](int64_t device) -> Status {
    for (int32_t round = 0; round < 3; ++round) {
      if (device == 1) std::this_thread::sleep_for(milliseconds(120));
      HEKLA_RETURN_IF_ERROR(meet(exchange, device, kA, {0, 1}, round).status());
    }
    return ok_status();
  });
  const std::string log = testing::internal::GetCapturedStderr();
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.to_string();
  const size_t first = log.find("some wait for others");
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("some wait for others", first + 1), std::string::npos) << log;
}

// Devices that are launched one by one: launches begin and end when they like.
DeviceExchange by_order(int64_t replicas, std::chrono::nanoseconds deadline = {}) {
  WaitLimits limits;
  limits.deadline = deadline;
  return DeviceExchange({replicas, 1}, limits, nullptr, DeviceExchange::Matching::kByOrder);
}

TEST(DeviceExchangeByOrder, TheNthOfAGroupMeets) {
  DeviceExchange exchange = by_order(3);
  std::vector<std::thread> threads;
  std::vector<int32_t> sums(3);
  for (int64_t device = 0; device < 3; ++device) {
    threads.emplace_back([&, device] {
      for (int32_t round = 0; round < 100; ++round) {
        // Device 2 is in every second only, and its program has another name for it.
        const bool is_all = round % 2 == 0;
        if (device == 2 && !is_all) continue;
        const Site site{7, device == 2 ? "other" : "all_reduce"};
        const std::vector<int64_t> members =
            is_all ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{0, 1};
        const auto brought = meet(exchange, device, site, members, round);
        ASSERT_TRUE(brought.ok()) << brought.status().to_string();
        for (const Arrays& one : *brought) {
          sums[static_cast<size_t>(device)] += one[0].as<int32_t>()[0];
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums, (std::vector<int32_t>{3 * 2450 + 2 * 2500, 3 * 2450 + 2 * 2500, 3 * 2450}));
}

TEST(DeviceExchangeByOrder, AnotherOperationIsAnErrorOnBoth) {
  DeviceExchange exchange = by_order(2);
  std::vector<Status> ends(2);
  std::vector<std::thread> threads;
  for (int64_t device = 0; device < 2; ++device) {
    threads.emplace_back([&, device] {
      ends[static_cast<size_t>(device)] =
          meet(exchange, device, device == 0 ? kA : kB, {0, 1}, 0).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& end : ends) {
    EXPECT_EQ(end.code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(contains(end, kA.name)) << end.to_string();
    EXPECT_TRUE(contains(end, kB.name)) << end.to_string();
  }
}

TEST(DeviceExchangeByOrder, MessagesOfAPairKeepTheirOrder) {
  DeviceExchange exchange = by_order(2);
  const DeviceExchange::Channel one{0, 1}, two{0, 2};
  ASSERT_TRUE(exchange.send(0, kA, one, 1, number(5)).ok());
  ASSERT_TRUE(exchange.send(0, kB, two, 1, number(6)).ok());
  const auto first = exchange.receive(1, kA, one, 0);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ((*first)[0].as<int32_t>()[0], 5);
  const Status wrong = exchange.receive(1, kA, one, 0).status();
  EXPECT_EQ(wrong.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(contains(wrong, kB.name)) << wrong.to_string();
}

TEST(DeviceExchangeByOrder, OneThatDoesNotComeIsWaitedForUntilTheDeadline) {
  DeviceExchange exchange = by_order(2, std::chrono::milliseconds(50));
  const Status end = meet(exchange, 0, kA, {0, 1}, 0).status();
  EXPECT_EQ(end.code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(contains(end, "device 1 (replica 1, partition 0)")) << end.to_string();
  EXPECT_TRUE(contains(end, kA.name)) << end.to_string();
}

TEST(DeviceExchangeByOrder, WaitsThatNobodyCanEndAreFound) {
  DeviceExchange exchange = by_order(3);
  std::vector<Status> ends(2);
  std::vector<std::thread> threads;
  for (int64_t device = 0; device < 2; ++device) {
    threads.emplace_back([&, device] {
      const std::vector<int64_t> members =
          device == 0 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{1, 0};
      ends[static_cast<size_t>(device)] = meet(exchange, device, kA, members, 0).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& end : ends) {
    EXPECT_EQ(end.code(), StatusCode::kFailedPrecondition) << end.to_string();
    EXPECT_TRUE(contains(end, "wait for each other without end")) << end.to_string();
  }
}

}  // namespace
}  // namespace hekla::reference
