// SPDX-License-Identifier: Apache-2.0
// The C functions as a program of another language calls them: a store of its own, two ranks as
// threads.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/process_group/c_api/process_group_c.h"

namespace {

constexpr int kCancelled = 1, kInvalidArgument = 3, kDeadlineExceeded = 4, kNotFound = 5,
              kFailedPrecondition = 9;

struct Values {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
  int released = 0;
};

int get_value(void* context, const char* key, int64_t timeout_ms, hekla_group_value* value) {
  auto& all = *static_cast<Values*>(context);
  std::unique_lock lock(all.mutex);
  all.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                       [&] { return all.values.contains(key); });
  if (!all.values.contains(key)) {
    hekla_group_set_error("there is no such key");
    return timeout_ms == 0 ? kNotFound : kDeadlineExceeded;
  }
  const std::string& found = all.values[key];
  hekla_group_value_set(value, found.data(), static_cast<int64_t>(found.size()));
  return 0;
}

int put_value(void* context, const char* key, const void* value, int64_t bytes) {
  auto& all = *static_cast<Values*>(context);
  const std::lock_guard lock(all.mutex);
  all.values[key] = {static_cast<const char*>(value), static_cast<size_t>(bytes)};
  all.changed.notify_all();
  return 0;
}

void release_values(void* context) {
  auto& all = *static_cast<Values*>(context);
  const std::lock_guard lock(all.mutex);
  ++all.released;
}

hekla_group* open_group(Values& values, int rank, int size) {
  const hekla_group_store store = {&values, get_value, put_value, release_values};
  hekla_group* group = nullptr;
  EXPECT_EQ(hekla_group_create(&store, rank, size, "two", nullptr, 20000, &group), 0)
      << hekla_group_error();
  return group;
}

template <typename Body>
void on_two_ranks(Values& values, const Body& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      hekla_group* const group = open_group(values, rank, 2);
      ASSERT_NE(group, nullptr);
      body(group, rank);
      hekla_group_destroy(group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

int finish(hekla_group_work* work) {
  const int code = hekla_group_work_wait(work, -1);
  EXPECT_EQ(hekla_group_work_test(work), 1);
  hekla_group_work_destroy(work);
  return code;
}

hekla_group_array array_of(std::vector<float>& values) {
  return {values.data(), static_cast<int64_t>(values.size()), hekla_group_dtype("f32")};
}

TEST(ProcessGroupCApi, NumbersOfNames) {
  EXPECT_EQ(hekla_group_version(), HEKLA_GROUP_VERSION);
  EXPECT_GT(hekla_group_dtype("complex<f64>"), 0);
  EXPECT_EQ(hekla_group_dtype("f33"), 0);
  EXPECT_EQ(hekla_group_reduce_op("sum"), 0);
  EXPECT_EQ(hekla_group_reduce_op("mean"), -1);
}

TEST(ProcessGroupCApi, CollectivesMessagesAndWhoKeepsMemory) {
  Values values;
  on_two_ranks(values, [](hekla_group* group, int rank) {
    hekla_group_work* work = nullptr;
    std::vector<float> x(100000, static_cast<float>(rank + 1)), all(200000);
    const hekla_group_array in = array_of(x), out = array_of(all);
    const auto keep = static_cast<uint64_t>(rank + 7);
    ASSERT_EQ(hekla_group_all_gather(group, &out, &in, -1, keep, &work), 0) << hekla_group_error();
    ASSERT_EQ(finish(work), 0) << hekla_group_error();
    EXPECT_EQ(all.front(), 1);
    EXPECT_EQ(all.back(), 2);
    ASSERT_EQ(hekla_group_all_reduce(group, &in, &in, hekla_group_reduce_op("premul_sum"), 0.5, -1,
                                     0, &work),
              0);
    ASSERT_EQ(finish(work), 0) << hekla_group_error();
    EXPECT_EQ(x, std::vector<float>(100000, 1.5F));
    // A null array on the rank that has none.
    const hekla_group_array half = {x.data(), 50000, in.dtype};
    ASSERT_EQ(hekla_group_scatter(group, &half, rank == 1 ? &in : nullptr, 1, -1, 0, &work), 0);
    ASSERT_EQ(finish(work), 0) << hekla_group_error();
    ASSERT_EQ(rank == 0 ? hekla_group_send(group, &in, 1, 5, -1, 0, &work)
                        : hekla_group_receive(group, &in, -1, 5, -1, 0, &work),
              0);
    ASSERT_EQ(hekla_group_work_wait(work, -1), 0) << hekla_group_error();
    EXPECT_EQ(hekla_group_work_source(work), rank == 0 ? -1 : 0);
    hekla_group_work_destroy(work);
    int64_t calls = 0;
    EXPECT_EQ(hekla_group_sequence(group, &calls), 0);
    EXPECT_GT(calls, 2);
    hekla_group_close(group);
    EXPECT_EQ(hekla_group_barrier(group, -1, &work), kCancelled);
  });
  EXPECT_EQ(values.released, 2);
  uint64_t keeps[4] = {};
  EXPECT_EQ(hekla_group_finished(keeps, 1), 1);
  EXPECT_EQ(hekla_group_finished(keeps + 1, 3), 1);
  EXPECT_EQ((std::set<uint64_t>{keeps[0], keeps[1]}), (std::set<uint64_t>{7, 8}));
}

TEST(ProcessGroupCApi, ErrorsNameWhatIsWrong) {
  Values values;
  on_two_ranks(values, [](hekla_group* group, int rank) {
    hekla_group_work* work = nullptr;
    std::vector<float> x(8);
    hekla_group_array array = array_of(x);
    array.dtype = 99;
    EXPECT_EQ(hekla_group_broadcast(group, &array, 0, -1, 0, &work), kInvalidArgument);
    EXPECT_NE(std::string(hekla_group_error()).find("dtype 99"), std::string::npos);
    array = array_of(x);
    EXPECT_EQ(hekla_group_all_reduce(group, &array, &array, 55, 1, -1, 0, &work), kInvalidArgument);
    array.count = -1;
    EXPECT_EQ(hekla_group_broadcast(group, &array, 0, -1, 0, &work), kInvalidArgument);
    // Calls that differ: both are told, one through a callback.
    array.count = 8 - rank;
    ASSERT_EQ(hekla_group_broadcast(group, &array, 0, -1, 0, &work), 0);
    std::string told;
    ASSERT_EQ(hekla_group_work_wait(work, -1), kFailedPrecondition);
    ASSERT_EQ(hekla_group_work_then(
                  work,
                  [](void* into, int code, const char* message) {
                    *static_cast<std::string*>(into) = std::to_string(code) + " " + message;
                  },
                  &told),
              0);
    EXPECT_NE(told.find("rank 1 calls broadcast"), std::string::npos) << told;
    EXPECT_EQ(told.substr(0, 2), "9 ");
    hekla_group_work_destroy(work);
    EXPECT_EQ(hekla_group_status(group), kFailedPrecondition);
  });
  const hekla_group_store store = {&values, get_value, put_value, release_values};
  hekla_group* none = nullptr;
  EXPECT_EQ(hekla_group_create(&store, 2, 2, "none", nullptr, 100, &none), kInvalidArgument);
  EXPECT_EQ(hekla_group_create(&store, 0, 2, "alone", nullptr, 100, &none), kDeadlineExceeded);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(values.released, 4);
}

TEST(ProcessGroupC, WhatOneRankRefusesEndsTheOthersCall) {
  Values values;
  on_two_ranks(values, [](hekla_group* group, int rank) {
    float x[2] = {1, 2};
    const hekla_group_array good = {x, 2, hekla_group_dtype("f32")}, bad = {x, 2, 0};
    hekla_group_work* work = nullptr;
    const int sum = hekla_group_reduce_op("sum");
    if (rank == 1) {
      EXPECT_EQ(hekla_group_all_reduce(group, &bad, &bad, sum, 1, -1, 0, &work), kInvalidArgument);
      return;
    }
    ASSERT_EQ(hekla_group_all_reduce(group, &good, &good, sum, 1, -1, 0, &work), 0);
    EXPECT_EQ(finish(work), kFailedPrecondition);
    EXPECT_NE(std::string(hekla_group_error()).find("rank 1 has refused it, all_reduce: dtype 0"),
              std::string::npos)
        << hekla_group_error();
  });
}

}  // namespace
