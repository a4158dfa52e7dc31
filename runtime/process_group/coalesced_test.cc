// SPDX-License-Identifier: Apache-2.0
// Calls between begin_coalescing and end_coalescing: they go together, with the results and bits of
// calls by themselves, and none goes where one is refused.
#include "runtime/process_group/coalesced.h"

#include <gtest/gtest.h>

#include "runtime/process_group/objects.h"
#include "runtime/process_group/testing/ways.h"

namespace hekla::process_group {
namespace {

using enum ReduceOp;
using std::chrono::milliseconds;
using std::chrono::seconds;

class CoalescedBy : public ByWays {};

INSTANTIATE_TEST_SUITE_P(Ways, CoalescedBy, kWays, name_of);

// More than what goes as one, less, and what never does; messages among them.
TEST_P(CoalescedBy, CallsThatGoTogether) {
  for (const int64_t most : {0, 100, 1 << 20}) {
    Options options;
    options.coalesced_bytes = most;
    on_ranks(
        3,
        [](ProcessGroup& group) {
          const int rank = group.rank(), next = (rank + 1) % 3, before = (rank + 2) % 3;
          const uint64_t calls = group.sequence();
          std::vector<std::vector<float>> sums(20);
          std::vector<int64_t> ids(3), most_ids(7, rank), root(5, rank);
          std::vector<double> rows(6, rank), row(2);
          const int64_t id = 10 + rank;
          int32_t sent = rank, got = -1;
          ASSERT_TRUE(group.begin_coalescing().ok());
          EXPECT_EQ(group.begin_coalescing().code(), StatusCode::kFailedPrecondition);
          std::vector<Work> works;
          for (size_t i = 0; i < sums.size(); ++i) {
            sums[i].assign(i * 7, static_cast<float>(rank + 1) * static_cast<float>(i));
            works.push_back(group.all_reduce(elements(std::span(sums[i]))));
          }
          works.push_back(group.all_reduce(elements(std::span(most_ids)), kMax));
          works.push_back(
              group.all_gather(elements(std::span(ids)), ConstElements(&id, DType::kI64, 1)));
          works.push_back(group.send({&sent, DType::kI32, 1}, next));
          works.push_back(group.receive({&got, DType::kI32, 1}, before));
          works.push_back(group.broadcast(elements(std::span(root)), 2));
          works.push_back(
              group.reduce_scatter(elements(std::span(row)), elements(std::span(rows)), kSum));
          works.push_back(group.barrier());
          EXPECT_TRUE(says(works[3].wait(), "have not gone yet"));
          EXPECT_EQ(ids[0], 0);
          const Work all = group.end_coalescing();
          ASSERT_TRUE(all.wait().ok()) << all.error().to_string();
          for (const Work& work : works) EXPECT_TRUE(work.wait().ok()) << work.call();
          for (size_t i = 0; i < sums.size(); ++i) {
            for (const float x : sums[i]) EXPECT_EQ(x, 6 * static_cast<float>(i));
          }
          EXPECT_EQ(ids, (std::vector<int64_t>{10, 11, 12}));
          EXPECT_EQ(most_ids, std::vector<int64_t>(7, 2));
          EXPECT_EQ(root, std::vector<int64_t>(5, 2));
          EXPECT_EQ(row, std::vector<double>(2, 3));
          EXPECT_EQ(got, before);
          EXPECT_GE(group.sequence() - calls, 4U);
          EXPECT_EQ(group.end_coalescing().error().code(), StatusCode::kFailedPrecondition);
          ASSERT_TRUE(group.begin_coalescing().ok());
          EXPECT_TRUE(group.end_coalescing().wait().ok());
        },
        options);
  }
}

TEST_P(CoalescedBy, CoalescedSumsOfAKindAreOneCallWithTheSameBits) {
  on_ranks(3, [](ProcessGroup& group) {
    std::vector<float> x = noise(4000, group.rank()), y = x;
    ASSERT_TRUE(group.all_reduce(elements(std::span(x))).wait().ok());
    const uint64_t calls = group.sequence();
    ASSERT_TRUE(group.begin_coalescing().ok());
    for (size_t i = 0; i < 40; ++i) {
      static_cast<void>(group.all_reduce(elements(std::span(y).subspan(i * 100, 100))));
    }
    ASSERT_TRUE(group.end_coalescing().wait().ok());
    EXPECT_EQ(group.sequence(), calls + 1);
    EXPECT_EQ(bytes_of(x), bytes_of(y));
  });
}

TEST_P(CoalescedBy, CoalescedCallsThatDifferOrAreRefused) {
  on_ranks(2, [](ProcessGroup& group) {
    std::vector<float> x(8, 1), before = x;
    const Elements all = elements(std::span(x));
    ASSERT_TRUE(group.begin_coalescing().ok());
    // As many elements, cut otherwise.
    const Work first = group.all_reduce(all.part(0, group.rank() == 0 ? 3 : 5));
    static_cast<void>(group.all_reduce(all.part(0, group.rank() == 0 ? 5 : 3)));
    const Status status = group.end_coalescing().wait();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
    EXPECT_TRUE(says(status, "differs: rank 0 calls")) << status.to_string();
    EXPECT_EQ(first.wait().code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(says(first.wait(), "2 calls at once: all_reduce(sum) of f32["))
        << first.wait().to_string();
    EXPECT_EQ(x, before);
  });
  on_ranks(2, [](ProcessGroup& group) {
    std::vector<float> x(8, 1), before = x;
    const Elements all = elements(std::span(x));
    ASSERT_TRUE(group.begin_coalescing().ok());
    const Work first = group.all_reduce(all);
    static_cast<void>(group.rank() == 1 ? group.broadcast(all, 7) : group.broadcast(all, 1));
    const Status status = group.end_coalescing().wait();
    EXPECT_TRUE(says(status, "rank 7 in a group of 2")) << status.to_string();
    EXPECT_TRUE(group.rank() == 1 || says(status, "rank 1 has refused it")) << status.to_string();
    EXPECT_FALSE(first.wait().ok());
    EXPECT_EQ(x, before);
  });
}

TEST_P(CoalescedBy, WhatWaitsHasNoPlaceInABlock) {
  on_ranks(2, [](ProcessGroup& group) {
    const std::vector<std::function<Status()>> calls = {
        [&] {
          return group.new_group({0, 1}).status();
        },
        [&] { return group.split(0, 0).status(); },
        [&] { return group.monitored_barrier(); },
        [&] { return all_gather_objects(group, "x").status(); },
        [&] { return gather_objects(group, "x", 0).status(); },
        [&] { return broadcast_object(group, "x", 0).status(); },
        [&] {
          return scatter_object(group, {"x", "y"}, 0).status();
        },
    };
    for (const auto& call : calls) {
      ASSERT_TRUE(group.begin_coalescing().ok());
      for (const Status& status : {call(), group.end_coalescing(seconds(20)).wait()}) {
        EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
        EXPECT_TRUE(says(status, "between begin_coalescing and end_coalescing"))
            << status.to_string();
      }
      EXPECT_TRUE(call().ok());
    }
  });
}

TEST_P(CoalescedBy, WorksOfSeveralAreHeldAsTheirParts) {
  on_ranks(2, [](ProcessGroup& group) {
    std::vector<float> x(8, 1);
    ASSERT_TRUE(group.begin_coalescing().ok());
    const Work one = group.all_reduce(elements(std::span(x)));
    const Work all = Work::all("some", {Work("none", ok_status()), Work::all("one", {one})});
    EXPECT_EQ(all.wait(milliseconds(100)).code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(group.end_coalescing().wait().ok());
    EXPECT_TRUE(all.wait().ok());
    EXPECT_EQ(x[7], 2);
  });
}

TEST_P(CoalescedBy, WhatIsRefusedInABlockIsTheBlocksError) {
  on_ranks(2, [](ProcessGroup& group) {
    std::vector<float> x(8, 1), before = x;
    const Elements all = elements(std::span(x));
    for (const bool is_send : {false, true}) {
      ASSERT_TRUE(group.begin_coalescing().ok());
      static_cast<void>(is_send ? group.send(all, 99) : group.receive(all, 99));
      const Status status = group.end_coalescing().wait();
      EXPECT_TRUE(says(status, "rank 99 in a group of 2")) << status.to_string();
    }
    // By a caller that checks for itself.
    ASSERT_TRUE(group.begin_coalescing().ok());
    const Work made = group.all_reduce(all);
    if (group.rank() == 1) group.refuse("all_reduce", invalid_argument("an odd number"));
    const Status status = group.end_coalescing(seconds(20)).wait();
    EXPECT_TRUE(says(status, "an odd number")) << status.to_string();
    EXPECT_FALSE(made.wait().ok());
    EXPECT_EQ(x, before);
  });
}

}  // namespace
}  // namespace hekla::process_group
