// SPDX-License-Identifier: Apache-2.0
// What a process group promises beside its results, which conformance/ checks: order, deadlines,
// who is named, what stays untouched.
#include "runtime/process_group/process_group.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <numeric>

#include "runtime/process_group/group_memory.h"
#include "runtime/process_group/objects.h"
#include "runtime/process_group/testing/ways.h"

namespace hekla::process_group {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using enum ReduceOp;

class ProcessGroupBy : public ByWays {};

INSTANTIATE_TEST_SUITE_P(Ways, ProcessGroupBy, kWays, name_of);

// The same bits on all ranks, whatever the sizes that choose how it is done.
TEST(ProcessGroup, SumsHaveOneOrder) {
  constexpr int64_t kCount = 5003;
  constexpr int kRanks = 4;
  std::string bits;
  for (const auto& [flat, segment] :
       {std::pair<int64_t, int64_t>{1 << 20, 1}, {0, 1 << 20}, {0, 64}, {7, 3}, {6000, 4096}}) {
    Options options;
    options.flat_bytes = flat;
    options.segment_bytes = segment * 4;
    options.shared_flat_bytes = flat;
    options.shared_slot_bytes = segment;
    // Through shared memory, by messages, and on hosts of two and three ranks.
    for (const int ranks_per_host : {-1, 0, 2, 3}) {
      options.shared_memory = ranks_per_host < 0 ? "on" : "off";
      options.ranks_per_host = ranks_per_host;
      options.early_pieces = ranks_per_host + 1;
      std::vector<std::string> all(kRanks);
      on_ranks(
          kRanks,
          [&](ProcessGroup& group) {
            std::vector<float> x = noise(kCount, group.rank());
            ASSERT_TRUE(group.all_reduce(elements(std::span(x))).wait().ok());
            // Alone as within the whole: some elements from the middle.
            std::vector<float> part = noise(kCount, group.rank());
            part = {part.begin() + 1000, part.begin() + 1013};
            ASSERT_TRUE(group.all_reduce(elements(std::span(part))).wait().ok());
            EXPECT_EQ(bytes_of(part), bytes_of({x.begin() + 1000, x.begin() + 1013}));
            all[static_cast<size_t>(group.rank())] = bytes_of(x);
          },
          options);
      for (const std::string& one : all) {
        if (bits.empty()) bits = one;
        EXPECT_TRUE(one == bits) << ranks_per_host << " " << flat << " " << segment;
      }
    }
  }
}

// Also where pieces of an array come before the call has been compared.
TEST_P(ProcessGroupBy, CallsThatDifferFailOnAllRanksAndNameThem) {
  for (const size_t count : {100, 30'000}) {
    on_ranks(3, [count](ProcessGroup& group) {
      std::vector<float> x(count, 1), before = x;
      std::vector<int32_t> other(count, 1);
      const bool is_odd = group.rank() == 1;
      const Status status = is_odd ? group.broadcast(elements(std::span(other)), 1).wait()
                                   : group.all_reduce(elements(std::span(x))).wait();
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
      EXPECT_TRUE(says(status, fmt::format("broadcast(root 1) of i32[{}]", count)))
          << status.to_string();
      EXPECT_TRUE(says(status, "rank 1 calls")) << status.to_string();
      EXPECT_TRUE(says(status, fmt::format("all_reduce(sum) of f32[{}]", count)))
          << status.to_string();
      EXPECT_EQ(x, before);
      // For good.
      EXPECT_EQ(group.barrier().wait().code(), StatusCode::kFailedPrecondition);
      EXPECT_FALSE(group.status().ok());
    });
  }
}

TEST_P(ProcessGroupBy, SizesTypesAndReductionsThatDifferAreNamed) {
  const std::vector<std::pair<std::function<Work(ProcessGroup&, Elements)>, std::string>> odd = {
      {[](ProcessGroup& g, Elements x) { return g.all_reduce(x.part(0, 7)); },
       "all_reduce(sum) of f32[7]"},
      {[](ProcessGroup& g, Elements x) {
         x.dtype = DType::kI32;
         return g.all_reduce(x);
       },
       "all_reduce(sum) of i32[8]"},
      {[](ProcessGroup& g, Elements x) { return g.all_reduce(x, kMax); },
       "all_reduce(max) of f32[8]"},
      {[](ProcessGroup& g, Elements x) { return g.all_reduce(x, Reduction::premul_sum(2)); },
       "all_reduce(premul_sum(2)) of f32[8]"},
      {[](ProcessGroup& g, Elements) { return g.barrier(); }, "barrier"}};
  for (const auto& [call, name] : odd) {
    on_ranks(2, [&, &call = call, &name = name](ProcessGroup& group) {
      std::vector<float> x(8, 1);
      const Elements all = elements(std::span(x));
      const Status status = (group.rank() == 0 ? call(group, all) : group.all_reduce(all)).wait();
      EXPECT_TRUE(says(status, "rank 0 calls " + name)) << status.to_string();
    });
  }
}

TEST_P(ProcessGroupBy, WhoDoesNotComeIsNamedAtTheDeadline) {
  std::atomic<int> done = 0;
  on_ranks(3, [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      while (done < 2) std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    const Status status = group.monitored_barrier(milliseconds(100));
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.to_string();
    EXPECT_TRUE(says(status, "waits in vain for rank 1")) << status.to_string();
    EXPECT_TRUE(says(status, "whose last call is 0, barrier")) << status.to_string();
    ++done;
  });
}

TEST_P(ProcessGroupBy, RefusedArgumentsChangeNothing) {
  on_ranks(2, [](ProcessGroup& group) {
    std::vector<float> x(6, 1), y(3);
    const auto whole = elements(std::span(x)), half = elements(std::span(y));
    const auto refused = [](const Work& work, std::string_view text) {
      EXPECT_EQ(work.error().code(), StatusCode::kInvalidArgument) << work.error().to_string();
      EXPECT_TRUE(says(work.error(), text)) << work.error().to_string();
    };
    refused(group.all_reduce(whole, kBitAnd), "band of f32: bits are those of integers");
    refused(group.broadcast(whole, 2), "rank 2 in a group of 2");
    refused(group.all_gather(half, whole), "an input of 6 elements in 1 parts");
    refused(group.all_reduce(half, whole), "an output of 3");
    refused(group.all_reduce({nullptr, DType::kF32, 4}), "f32[4] without memory");
    refused(group.all_reduce({x.data(), DType::kInvalid, 4}), "without a dtype");
    refused(group.all_reduce(whole.part(1, 3), whole.part(0, 3)), "the output overlaps");
    refused(group.all_to_all(whole, whole, {1, 5}, {3, 3, 0}), "3 input splits for 2 ranks");
    refused(group.all_to_all(whole, whole, {1, 4}, {3, 3}), "splits make 5 of 6");
    refused(group.send(half, -1), "rank -1");
    EXPECT_FALSE(group.new_group({0, 0}).ok());
    ASSERT_TRUE(group.all_reduce(whole).wait().ok());
    EXPECT_EQ(x[5], 2);
  });
}

// What one rank alone refuses: the others are in the call already, come to it later, or refuse it
// as well.
TEST_P(ProcessGroupBy, WhatOneRankRefusesEndsTheOthersAtOnce) {
  const auto refuse_one = [](ProcessGroup& group, std::vector<float>& x, int rank) {
    const auto all = elements(std::span(x));
    return group.rank() == rank ? group.all_reduce(all.part(0, 5), all) : group.all_reduce(all);
  };
  for (const bool is_late : {false, true}) {
    std::atomic<bool> has_refused = false;
    on_ranks(3, [&](ProcessGroup& group) {
      std::vector<float> x(6, 1), before = x;
      // All refuse two, some in other words, and go on.
      EXPECT_EQ(group.broadcast(elements(std::span(x)), 3).wait().code(),
                StatusCode::kInvalidArgument);
      EXPECT_EQ(group.reduce(elements(std::span(x)), 3 + group.rank()).wait().code(),
                StatusCode::kInvalidArgument);
      ASSERT_TRUE(group.barrier().wait().ok());
      while (is_late && group.rank() != 1 && !has_refused) std::this_thread::yield();
      const auto begin = std::chrono::steady_clock::now();
      const Status status = refuse_one(group, x, 1).wait();
      has_refused = has_refused || group.rank() == 1;
      if (group.rank() == 1) {
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        return;
      }
      EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20));
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
      EXPECT_TRUE(says(status, "all_reduce(sum) of f32[6]: rank 1 has refused it"))
          << status.to_string();
      EXPECT_TRUE(says(status, "an output of 5")) << status.to_string();
      EXPECT_EQ(x, before);
      EXPECT_FALSE(group.status().ok());
    });
  }
}

// It is out of step with those that have made the call, though it goes on with the same one.
TEST_P(ProcessGroupBy, WhoHasRefusedACallMeetsNobodyInIt) {
  on_ranks(2, [](ProcessGroup& group) {
    std::vector<float> x(6, 1);
    const auto all = elements(std::span(x));
    if (group.rank() == 1) {
      EXPECT_FALSE(group.all_reduce(all, kBitAnd).wait().ok());
    }
    const Status status = group.all_reduce(all).wait();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
    EXPECT_TRUE(says(status, "rank 1 has refused it, all_reduce(band) of f32[6]"))
        << status.to_string();
  });
}

TEST_P(ProcessGroupBy, RefusalsByOthersMeans) {
  on_ranks(2, [](ProcessGroup& group) {
    if (group.rank() == 1) {
      group.refuse("a sum of apples", invalid_argument("and of pears"));
      EXPECT_FALSE(broadcast_object(group, "", 2).ok());
      EXPECT_FALSE(group.new_group({0, 0}).ok());
      return;
    }
    group.refuse("a sum of pears", invalid_argument("and of apples"));
    EXPECT_FALSE(broadcast_object(group, "", 3).ok());
    const Status status = group.new_group({0, 1}).status();
    EXPECT_TRUE(says(status, "rank 1 has refused it, new_group: ranks 0")) << status.to_string();
  });
}

TEST_P(ProcessGroupBy, ASendThatIsRefusedFailsAtItsReceiver) {
  on_ranks(2, [](ProcessGroup& group) {
    std::vector<float> x(6, 1);
    if (group.rank() == 1) {
      EXPECT_FALSE(group.send({nullptr, DType::kF32, 6}, 0, 7).wait().ok());
    } else {
      const Status status = group.receive(elements(std::span(x)), 1, 7).wait();
      EXPECT_TRUE(
          says(status, "from rank 1 with tag 7: rank 1 has refused to send: f32[6] without"))
          << status.to_string();
    }
    EXPECT_TRUE(group.barrier().wait().ok());
  });
}

TEST_P(ProcessGroupBy, SplitsThatDoNotMeetAreNamed) {
  on_ranks(2, [](ProcessGroup& group) {
    std::vector<int32_t> in(4), out(4);
    const std::vector<int64_t> out_splits =
        group.rank() == 0 ? std::vector<int64_t>{2, 2} : std::vector<int64_t>{1, 3};
    const Status status =
        group
            .all_to_all(elements(std::span(out)), elements(std::span(in)), out_splits,
                        group.rank() == 0 ? std::vector<int64_t>{2, 2} : std::vector<int64_t>{1, 3})
            .wait();
    EXPECT_TRUE(says(status, "elements for rank")) << status.to_string();
  });
}

TEST_P(ProcessGroupBy, MessagesMatchByTagAndOrder) {
  on_ranks(2, [](ProcessGroup& group) {
    const int other = 1 - group.rank();
    std::vector<int32_t> in(4);
    const auto at = [&](size_t i) { return elements(std::span(in).subspan(i, 1)); };
    // Asked for in another order than sent, before and after they come.
    std::vector<Work> works;
    works.push_back(group.receive(at(0), other, 7));
    works.push_back(group.receive(at(1), other, 5));
    const int32_t values[] = {1, 2, 3, 4};
    for (int i = 0; i < 4; ++i) {
      works.push_back(group.send(elements(std::span(values).subspan(static_cast<size_t>(i), 1)),
                                 other, i < 2 ? 5 : 7));
    }
    for (const Work& work : works) EXPECT_TRUE(work.wait(seconds(20)).ok());
    ASSERT_TRUE(group.barrier().wait().ok());
    Work any = group.receive(at(2), ProcessGroup::kAnyRank, 7);
    EXPECT_TRUE(any.wait().ok());
    EXPECT_EQ(any.source(), other);
    EXPECT_TRUE(group.receive(at(3), other, 5).wait().ok());
    EXPECT_EQ(in, (std::vector<int32_t>{3, 1, 4, 2}));
  });
}

TEST_P(ProcessGroupBy, MessagesThatDoNotFitOrNeverComeAreErrorsOfTheirOwn) {
  on_ranks(2, [](ProcessGroup& group) {
    std::vector<float> x(8, 3);
    const int other = 1 - group.rank();
    EXPECT_TRUE(group.send(elements(std::span(x)), other, 1).wait().ok());
    const Status status = group.receive(elements(std::span(x).first(4)), other, 1).wait();
    EXPECT_TRUE(says(status, "receive of f32[4] from rank")) << status.to_string();
    EXPECT_TRUE(says(status, "sent f32[8] with tag 1")) << status.to_string();
    const Work late = group.receive(elements(std::span(x)), other, 2, milliseconds(50));
    EXPECT_EQ(late.wait(milliseconds(1)).code(), StatusCode::kDeadlineExceeded);
    EXPECT_FALSE(late.wait(seconds(20)).ok());
    EXPECT_TRUE(says(late.error(), "nothing came from rank")) << late.error().to_string();
    EXPECT_TRUE(group.barrier().wait().ok());
  });
}

TEST_P(ProcessGroupBy, BatchesAndCallbacks) {
  on_ranks(3, [](ProcessGroup& group) {
    std::vector<std::vector<float>> out(3), in(3, std::vector<float>(9));
    std::vector<ProcessGroup::Point> points;
    for (int p = 0; p < 3; ++p) {
      const auto at = static_cast<size_t>(p);
      out[at].assign(9, static_cast<float>(10 * group.rank() + p));
      points.push_back(ProcessGroup::Point::receive(elements(std::span(in[at])), p));
      points.push_back(ProcessGroup::Point::send(elements(std::span(out[at])), p));
    }
    std::atomic<int> called = 0;
    const Work work = group.batch(points);
    work.then([&](const Status& status) { called += status.ok() ? 1 : 100; });
    EXPECT_TRUE(work.wait().ok());
    EXPECT_TRUE(work.test());
    work.then([&](const Status& status) { called += status.ok() ? 1 : 100; });
    for (int p = 0; p < 3; ++p) {
      EXPECT_EQ(in[static_cast<size_t>(p)][8], static_cast<float>(10 * p + group.rank()));
    }
    while (called < 2) std::this_thread::yield();
    EXPECT_EQ(called, 2);
  });
}

TEST_P(ProcessGroupBy, GathersOfUnevenParts) {
  on_ranks(3, [](ProcessGroup& group) {
    std::vector<std::vector<int16_t>> out(3);
    std::vector<Elements> parts;
    for (size_t r = 0; r < 3; ++r) {
      out[r].assign(r * 40'000, -1);
      parts.push_back(elements(std::span(out[r])));
    }
    const auto self = static_cast<size_t>(group.rank());
    const std::vector<int16_t> own(self * 40'000, static_cast<int16_t>(self));
    ASSERT_TRUE(group.all_gather(parts, elements(std::span(own))).wait().ok());
    for (size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(out[r], std::vector<int16_t>(r * 40'000, static_cast<int16_t>(r)));
    }
    // In place, then other sizes than the ranks have.
    ASSERT_TRUE(group.all_gather(parts, parts[self]).wait().ok());
    EXPECT_EQ(out[self], own);
    EXPECT_EQ(group.all_gather(std::vector{parts[0]}, parts[self]).error().code(),
              StatusCode::kInvalidArgument);
    if (group.rank() == 1) parts[2].count -= 1;
    const Status status = group.all_gather(parts, parts[self]).wait();
    EXPECT_TRUE(says(status, "all_gather_uneven of i16[119999]")) << status.to_string();
  });
}

TEST_P(ProcessGroupBy, ManyCallsAreUnderWayAtOnce) {
  on_ranks(3, [](ProcessGroup& group) {
    std::vector<std::vector<int64_t>> values(50);
    std::vector<Work> works;
    for (int i = 0; i < 50; ++i) {
      auto& x = values[static_cast<size_t>(i)];
      x.assign(static_cast<size_t>(i) * 300, group.rank() + i);
      works.push_back(group.all_reduce(elements(std::span(x))));
    }
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(works[static_cast<size_t>(i)].wait().ok());
      for (const int64_t value : values[static_cast<size_t>(i)]) ASSERT_EQ(value, 3 + 3 * i);
    }
  });
}

// Sizes of objects come from other ranks, which hear of it.
TEST_P(ProcessGroupBy, ObjectsThatNoMemoryHoldsAreRefused) {
  const auto is_refused = [](const Status& status) {
    EXPECT_TRUE(says(status, "rank 1 has refused it")) << status.to_string();
  };
  const auto is_too_large = [](const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.to_string();
  };
  int64_t huge = int64_t{1} << 62;
  on_ranks(2, [&](ProcessGroup& group) {
    if (group.rank() == 1) return is_too_large(broadcast_object(group, "", 0).status());
    int64_t size = huge;
    EXPECT_TRUE(group.broadcast({&size, DType::kI64, 1}, 0).wait().ok());
    is_refused(group.broadcast({&size, DType::kI64, 1}, 0, seconds(20)).wait());
  });
  on_ranks(2, [&](ProcessGroup& group) {
    if (group.rank() == 1) return is_too_large(all_gather_objects(group, "").status());
    int64_t own[2] = {};
    const Elements all = elements(std::span<int64_t>(own));
    EXPECT_TRUE(group.all_gather(all, {&huge, DType::kI64, 1}).wait().ok());
    is_refused(
        group.all_gather({all.part(0, 1), all.part(1, 1)}, all.part(0, 1), seconds(20)).wait());
  });
  on_ranks(2, [&](ProcessGroup& group) {
    if (group.rank() == 1) return is_too_large(gather_objects(group, "", 1).status());
    EXPECT_TRUE(group.gather({}, {&huge, DType::kI64, 1}, 1).wait().ok());
    is_refused(group.barrier(seconds(20)).wait());
  });
  on_ranks(2, [&](ProcessGroup& group) {
    if (group.rank() == 1) return is_too_large(scatter_object(group, {}, 0).status());
    int64_t sizes[2] = {0, huge};
    EXPECT_TRUE(group.broadcast(elements(std::span<int64_t>(sizes)), 0).wait().ok());
    is_refused(group.barrier(seconds(20)).wait());
  });
}

TEST_P(ProcessGroupBy, ObjectsAreGatheredByOneRoot) {
  on_ranks(2, [](ProcessGroup& group) {
    const auto gathered = gather_objects(group, "own", group.rank());
    EXPECT_FALSE(gathered.ok());
    EXPECT_TRUE(says(gathered.status(), "root")) << gathered.status().to_string();
  });
}

TEST_P(ProcessGroupBy, ObjectsHaveAnyLength) {
  on_ranks(3, [](ProcessGroup& group) {
    const auto text = [](int rank, char what) {
      return std::string(static_cast<size_t>(rank) * 70'000, what);
    };
    const std::vector<std::string> wanted = {text(0, 'a'), text(1, 'a'), text(2, 'a')};
    const std::string own = wanted[static_cast<size_t>(group.rank())];
    const auto all = all_gather_objects(group, own);
    ASSERT_TRUE(all.ok()) << all.status().to_string();
    EXPECT_EQ(*all, wanted);
    const auto gathered = gather_objects(group, own, 1);
    ASSERT_TRUE(gathered.ok()) << gathered.status().to_string();
    EXPECT_EQ(*gathered, group.rank() == 1 ? wanted : std::vector<std::string>{});
    const auto sent = broadcast_object(group, own, 2);
    ASSERT_TRUE(sent.ok()) << sent.status().to_string();
    EXPECT_EQ(*sent, wanted[2]);
    const bool is_root = group.rank() == 1;
    const auto part = scatter_object(group, is_root ? wanted : std::vector<std::string>{}, 1);
    ASSERT_TRUE(part.ok()) << part.status().to_string();
    EXPECT_EQ(*part, own);
    // What is wrong is so on all ranks, and the group goes on.
    EXPECT_EQ(scatter_object(group, {"one"}, 1).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(broadcast_object(group, "", 3).status().code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(group.barrier().wait().ok());
  });
}

TEST_P(ProcessGroupBy, GroupsOfSomeRanksAndSplits) {
  on_ranks(4, [](ProcessGroup& world) {
    const auto pair = *world.new_group({3, 1});
    ASSERT_EQ(pair != nullptr, world.rank() % 2 == 1);
    if (pair != nullptr) {
      EXPECT_EQ(pair->rank(), world.rank() == 3 ? 0 : 1);
      EXPECT_EQ(pair->global_ranks(), (std::vector<int>{3, 1}));
      std::vector<int32_t> x = {world.rank()};
      ASSERT_TRUE(pair->broadcast(elements(std::span(x)), 0).wait().ok());
      EXPECT_EQ(x[0], 3);
    }
    // Of those that call alone, over the same connections.
    if (world.rank() >= 2) {
      const auto own = world.subgroup("two and three", {3, 2});
      ASSERT_TRUE(own.ok()) << own.status().to_string();
      std::vector<int32_t> rank = {world.rank()}, both(2);
      EXPECT_TRUE(
          (*own)
              ->all_gather(elements(std::span(both)), elements(std::span<const int32_t>(rank)))
              .wait()
              .ok());
      EXPECT_EQ(both, (std::vector<int32_t>{3, 2}));
      EXPECT_FALSE(world.subgroup("others", {0, 1}).ok());
    }
    // Again by a name that has been left, and by one like a name of new_group's.
    if (world.rank() < 2) {
      for (int round = 0; round < 3; ++round) {
        if (world.rank() == 1) std::this_thread::sleep_for(milliseconds(30));
        const auto again = world.subgroup(round < 2 ? "again" : "1", {0, 1}, seconds(10));
        ASSERT_TRUE(again.ok()) << again.status().to_string();
        const Status status = (*again)->barrier().wait();
        EXPECT_TRUE(status.ok()) << status.to_string();
      }
    }
    // In reverse order, and one of them within another.
    const auto half = *world.split(world.rank() / 2, -world.rank());
    EXPECT_EQ(half->rank(), 1 - world.rank() % 2);
    std::vector<int32_t> x = {1 << world.rank()};
    ASSERT_TRUE(half->all_reduce(elements(std::span(x))).wait().ok());
    EXPECT_EQ(x[0], world.rank() < 2 ? 3 : 12);
    const auto alone = *half->split(half->rank() == 0 ? 5 : -1, 0);
    ASSERT_EQ(alone != nullptr, half->rank() == 0);
    if (alone != nullptr) {
      EXPECT_EQ(alone->size(), 1);
      EXPECT_TRUE(alone->all_reduce(elements(std::span(x)), kAvg).wait().ok());
    }
    // One group ends, the others go on.
    if (half->rank() == 0) half->abort("enough");
    const Status ended = half->barrier().wait();
    EXPECT_EQ(ended.code(), StatusCode::kCancelled) << ended.to_string();
    EXPECT_TRUE(says(ended, "enough")) << ended.to_string();
    EXPECT_TRUE(world.barrier().wait().ok());
  });
}

TEST_P(ProcessGroupBy, WhoLeavesIsNamed) {
  on_ranks(2, [](ProcessGroup& group) {
    if (group.rank() == 1) return;
    std::vector<float> x(4);
    const Status status = group.all_reduce(elements(std::span(x))).wait(seconds(20));
    EXPECT_TRUE(says(status, "rank 1 of group world is gone")) << status.to_string();
    EXPECT_TRUE(says(status, "all_reduce(sum) of f32[4]")) << status.to_string();
    EXPECT_FALSE(group.receive(elements(std::span(x)), 1).wait(seconds(20)).ok());
  });
}

// A root that has nothing to wait for may be gone before the others have all of it.
TEST_P(ProcessGroupBy, WhatWasSentArrivesThoughItsRankLeavesAtOnce) {
  const std::vector<float> wanted = noise(2 << 20, 0);
  on_ranks(3, [&](ProcessGroup& group) {
    std::vector<float> x = group.rank() == 0 ? wanted : std::vector<float>(wanted.size());
    float word = 1;
    if (group.rank() != 0) {
      // Nothing else comes meanwhile.
      group.receive(elements(std::span(&word, 1)), 0).then([](const Status&) {
        std::this_thread::sleep_for(milliseconds(200));
      });
    }
    EXPECT_TRUE(group.barrier().wait().ok());
    for (const int other : {1, 2}) {
      if (group.rank() != 0) break;
      EXPECT_TRUE(group.send(elements(std::span<const float>(&word, 1)), other).wait().ok());
    }
    const Work work = group.broadcast(elements(std::span(x)), 0);
    EXPECT_TRUE(work.wait().ok()) << group.rank() << " " << work.wait().to_string();
    EXPECT_TRUE(x == wanted) << group.rank();
  });
}

// The same of one that leaves since the next call has failed, which the slow one has yet to make.
TEST_P(ProcessGroupBy, WhatWasSentArrivesThoughItsRankFailsNext) {
  const std::vector<float> wanted = noise(2 << 20, 0);
  on_ranks(3, [&](ProcessGroup& group) {
    std::vector<float> x = group.rank() == 0 ? wanted : std::vector<float>(wanted.size());
    float word = 1;
    if (group.rank() == 2) {
      group.receive(elements(std::span(&word, 1)), 0).then([](const Status&) {
        std::this_thread::sleep_for(milliseconds(200));
      });
    }
    EXPECT_TRUE(group.barrier().wait().ok());
    if (group.rank() == 0) {
      EXPECT_TRUE(group.send(elements(std::span<const float>(&word, 1)), 2).wait().ok());
    }
    const Work work = group.broadcast(elements(std::span(x)), 0);
    EXPECT_TRUE(work.wait().ok()) << group.rank() << " " << work.wait().to_string();
    EXPECT_TRUE(x == wanted) << group.rank();
    const Status next = group.rank() == 0 ? group.all_reduce(elements(std::span(&word, 1))).wait()
                                          : group.barrier().wait();
    EXPECT_TRUE(says(next, "rank 0")) << group.rank() << " " << next.to_string();
  });
}

TEST(ProcessGroup, WhoNeverComesIsNamedWhenItIsMade) {
  Options options;
  options.timeout = milliseconds(50);
  const auto group = ProcessGroup::create(std::make_shared<rendezvous::StoreKeyValues>(
                                              std::make_shared<rendezvous::LocalStore>(), "t/"),
                                          0, 2, options);
  EXPECT_EQ(group.status().code(), StatusCode::kDeadlineExceeded) << group.status().to_string();
  EXPECT_TRUE(says(group.status(), "process 1")) << group.status().to_string();
}

// Each way to go, in a small call and in the middle of a large one.
TEST_P(ProcessGroupBy, WhoDiesOrStopsIsNamedOnAllOthers) {
  for (const int64_t count : {5, 1 << 20}) {
    for (const int signal : {SIGKILL, SIGSTOP, 0}) {
      const seconds timeout(signal == SIGSTOP ? 1 : 60);
      const std::vector<int> exits = on_processes(3, [&](ProcessGroup& group) {
        std::vector<float> x(static_cast<size_t>(count), 1);
        if (group.rank() == 1 && signal == 0) ::_exit(0);
        if (group.rank() == 1) {
          const pid_t self = ::getpid();
          if (signal == SIGSTOP) {
            // Goes on when the others have given up, so that the test ends.
            start_child([self] {
              ::sleep(3);
              ::kill(self, SIGKILL);
              return 0;
            });
          }
          ::kill(self, signal);
        }
        const Status status =
            group.all_reduce(elements(std::span(x)), kSum, timeout).wait(seconds(80));
        if (status.ok()) return 1;
        if (!says(status, "rank 1")) return 2;
        return says(status, "all_reduce(sum) of f32[") ? 0 : 3;
      });
      EXPECT_EQ(exits, (std::vector<int>{0, signal == 0 ? 0 : -SIGKILL, 0}))
          << count << " " << signal;
    }
  }
}

// Rank 0 waits for nothing but a message that comes when the call is done on rank 1.
TEST_P(ProcessGroupBy, CallsGoOnThoughNobodyWaitsForThem) {
  on_ranks(2, [](ProcessGroup& group) {
    for (const int64_t count : {1, 100000}) {
      for (int i = 0; i < 20; ++i) {
        std::vector<float> x(static_cast<size_t>(count), 1), word(1);
        const Elements said = elements(std::span(word));
        const Work work = group.all_reduce(elements(std::span(x)));
        if (group.rank() == 0) {
          EXPECT_TRUE(group.receive(said, 1).wait(seconds(20)).ok());
        } else {
          EXPECT_TRUE(work.wait().ok());
          EXPECT_TRUE(group.send(said, 0).wait().ok());
        }
        EXPECT_TRUE(work.wait().ok());
        EXPECT_EQ(x.back(), 2);
        // Waited for at once, and by nobody but a callback.
        EXPECT_TRUE(group.barrier().wait().ok());
        std::atomic<bool> is_called = false;
        group.barrier().then([&](const Status& status) { is_called = status.ok(); });
        while (!is_called) std::this_thread::yield();
      }
    }
  });
}

TEST_P(ProcessGroupBy, WaitsMayEndBeforeTheCall) {
  std::atomic<bool> is_late = false;
  on_ranks(2, [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      while (!is_late) std::this_thread::yield();
    }
    const Work work = group.barrier();
    if (group.rank() == 0) {
      EXPECT_EQ(work.wait(milliseconds(5)).code(), StatusCode::kDeadlineExceeded);
      EXPECT_FALSE(work.test());
      is_late = true;
    }
    EXPECT_TRUE(work.wait().ok());
    // One that outlasts its call, which is the next or comes after one that takes long.
    EXPECT_TRUE(group.barrier(seconds(20)).wait(seconds(30)).ok());
    if (group.rank() == 1) {
      while (is_late) std::this_thread::yield();
    }
    const Work first = group.barrier(), second = group.barrier(milliseconds(1));
    if (group.rank() == 0) {
      EXPECT_FALSE(second.wait(milliseconds(5)).ok());
      EXPECT_FALSE(first.test());
      is_late = false;
    }
    EXPECT_TRUE(first.wait().ok());
  });
}

// Two threads of a rank wait for calls in whatever order, also when the group ends under them.
TEST_P(ProcessGroupBy, SeveralThreadsWait) {
  std::atomic<int> ended = 0;
  on_ranks(2, [&](ProcessGroup& group) {
    for (int i = 0; i < 50; ++i) {
      std::vector<int32_t> x(300, 1), y(5, 2);
      const Work first = group.all_reduce(elements(std::span(x)));
      const Work second = group.all_reduce(elements(std::span(y)));
      std::thread other([&] { EXPECT_TRUE(second.wait().ok()); });
      EXPECT_TRUE(first.wait().ok());
      other.join();
      EXPECT_EQ(x[299] + y[4], 6);
    }
    if (group.rank() == 1) {
      while (ended < 2) std::this_thread::yield();
      return;
    }
    const Work first = group.barrier(), second = group.barrier();
    const auto wait = [&](const Work& work) {
      const Status status = work.wait();
      EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.to_string();
      EXPECT_TRUE(says(status, "enough")) << status.to_string();
      ++ended;
    };
    std::thread one([&] { wait(first); }), two([&] { wait(second); });
    std::this_thread::sleep_for(milliseconds(5));
    group.abort("enough");
    one.join();
    two.join();
  });
}

TEST(ProcessGroup, MemoryThatCannotBeHadIsAReasonOrAnError) {
  Options options;
  options.shared_slot_bytes = int64_t{1} << 38;
  on_ranks(
      2, [](ProcessGroup& group) { EXPECT_TRUE(group.barrier().wait().ok()); }, options);
  options.shared_memory = "on";
  const auto store = std::make_shared<rendezvous::LocalStore>();
  const auto make = [&](int rank) {
    return ProcessGroup::create(std::make_shared<rendezvous::StoreKeyValues>(store, "t/"), rank, 2,
                                options)
        .status();
  };
  Status other;
  std::thread second([&] { other = make(1); });
  const Status own = make(0);
  second.join();
  for (const Status& status : {own, other}) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
    EXPECT_TRUE(says(status, "ranks of group world share no memory: rank 0: "))
        << status.to_string();
    EXPECT_TRUE(says(status, "more than a quarter of the ")) << status.to_string();
  }
  options.shared_memory = "maybe";
  EXPECT_EQ(make(0).code(), StatusCode::kInvalidArgument);
}

TEST(GroupMemory, WhatAContainerMayHaveBoundsIt) {
  const GroupMemory::Sizes sizes = {4, 16 << 10, 64 << 10};  // a little more than 2 MiB
  MemoryRoom room;
  room.limit = room.left = {int64_t{64} << 20, "the control group's /small"};
  EXPECT_TRUE(GroupMemory::create(sizes, room).ok());
  room.limit.bytes = int64_t{8} << 20;
  const Status small = GroupMemory::create(sizes, room).status();
  EXPECT_EQ(small.code(), StatusCode::kUnavailable) << small.to_string();
  EXPECT_TRUE(says(small, "more than a quarter of the control group's /small, of 8388608 bytes"))
      << small.to_string();
  room.limit.bytes = int64_t{64} << 20;
  room.left.bytes = int64_t{1} << 20;
  const Status full = GroupMemory::create(sizes, room).status();
  EXPECT_EQ(full.code(), StatusCode::kUnavailable) << full.to_string();
  EXPECT_TRUE(says(full, "of the control group's /small 1048576 are left: give less as"))
      << full.to_string();
}

TEST(GroupMemory, AllThatIsComparedOfACallIsInItsWords) {
  const Call call = {Operation::kReduce, DType::kBF16, kPremulSum, 3, 1000, 77, 99, 5};
  EXPECT_EQ(call_of_words(words_of(call)), call);
  for (const uint32_t refused : {6U, 5U + 256, 5U + (1U << 16), 5U + (1U << 24)}) {
    Call other = call;
    other.refused = refused;
    EXPECT_NE(words_of(other), words_of(call)) << refused;
  }
}

TEST(Head, ReadsWhatItWrites) {
  Head head;
  head.kind = Head::Kind::kAbort;
  head.group = 1;
  head.sequence = ~uint64_t{0};
  head.part = 5;
  head.call = {Operation::kReduce, DType::kBF16, kPremulSum, 3, 1000, 77, 99};
  head.text = "because";
  const std::string bytes = head.bytes();
  const Head read = *Head::read(bytes);
  EXPECT_EQ(read.bytes(), bytes);
  EXPECT_EQ(read.call, head.call);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(Head::read(std::string_view(bytes).substr(0, size)).ok());
  }
  // Whatever byte is wrong, it is an error or another head.
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string other = bytes;
      other[i] = static_cast<char>(value);
      const auto result = Head::read(other);
      if (!result.ok()) continue;
      EXPECT_EQ(result->bytes(), other);
      EXPECT_FALSE(result->call.to_string().empty());
    }
  }
}

}  // namespace
}  // namespace hekla::process_group
