// SPDX-License-Identifier: Apache-2.0
// Calls on device buffers that go together, and gradients in buckets, against a reference that
// folds element by element; and what becomes of a block of which one call goes wrong.
#include <barrier>

#include "runtime/process_group/device_arrays/device_gradients.h"
#include "runtime/process_group/testing/device_ranks.h"

namespace hekla::process_group {
namespace {

using runtime::Buffer;
using std::chrono::milliseconds;
using std::chrono::seconds;

class DeviceBlocks : public DeviceGroupOn {
 protected:
  // Those that the plugin has.
  static std::vector<DType> dtypes() {
    std::vector<DType> all;
    for (int i = 0; i < kDTypeCount; ++i) {
      const auto dtype = static_cast<DType>(i);
      if (dtype == DType::kInvalid) continue;
      const auto& device = client().addressable_devices()[0];
      if (client().to_device(HostArray(dtype, {1}), device).ok()) all.push_back(dtype);
    }
    return all;
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, DeviceBlocks, ways(), way_name);

ReduceOp reduction_of(DType dtype) {
  return dtype == DType::kI1 ? ReduceOp::kBitOr : ReduceOp::kSum;
}

// A call of a block, and what it gives on this rank; no elements: nothing.
struct Expected {
  DeviceWork work;
  std::optional<HostArray> wanted;
};

// All operations for elements of one dtype, `count` for each rank.
void add_calls(DeviceGroup& group, const runtime::Client& client, const DevicePlace& part,
               std::vector<Expected>& calls) {
  const int size = group.size(), rank = group.rank(), root = size - 1;
  const DType dtype = part.dtype;
  const int64_t count = part.dims[0];
  const auto self = static_cast<size_t>(rank);
  std::vector<HostArray> own, wide, mine;
  for (int r = 0; r < size; ++r) {
    own.push_back(conformance_input(dtype, count, r, "own"));
    wide.push_back(
        conformance_input(dtype, size * count, r, "wide").with_shape(dtype, {size, count}));
    mine.push_back(rows_of(wide.back(), rank * count, {count}));
  }
  const ReduceOp by = reduction_of(dtype);
  const Dims gathered = {size, count};
  // Freed before the block ends: a call holds its input.
  const DeviceArray x = put(client, own[self]), w = put(client, wide[self]);
  const std::optional<HostArray> none;
  const auto at_root = [&](HostArray array) {
    return rank == root ? std::optional<HostArray>(std::move(array)) : none;
  };
  calls.push_back({group.all_reduce(x, by), reference_reduce(by, own)});
  calls.push_back({group.reduce(x, root, by), at_root(reference_reduce(by, own))});
  calls.push_back({group.broadcast(x, 0), own[0]});
  calls.push_back({group.all_gather(x), joined(own, gathered)});
  calls.push_back({group.gather(x, root), at_root(joined(own, gathered))});
  calls.push_back({group.scatter(part, rank == root ? w : nullptr, root),
                   rows_of(wide[static_cast<size_t>(root)], rank * count, {count})});
  calls.push_back(
      {group.reduce_scatter(w, by), rows_of(reference_reduce(by, wide), rank * count, {1, count})});
  calls.push_back({group.all_to_all(w), joined(mine, gathered)});
  calls.push_back({group.all_reduce(w, by, {.donate = true}), reference_reduce(by, wide)});
}

void expect_calls(const std::vector<Expected>& calls) {
  for (const Expected& one : calls) {
    if (one.wanted) {
      expect_array(one.work.result(), *one.wanted, one.work.call());
      continue;
    }
    const auto nothing = one.work.result();
    ASSERT_TRUE(nothing.ok()) << nothing.status().to_string();
    EXPECT_TRUE(nothing->is_empty()) << one.work.call();
  }
}

// All dtypes in one block, none to a page of elements each, and calls that go by themselves.
TEST_P(DeviceBlocks, GiveWhatArithmeticGives) {
  struct Case {
    int size;
    const char* shared_memory;
    int64_t coalesced_bytes;
  };
  const std::vector<DType> all = dtypes();
  EXPECT_GE(all.size(), GetParam().plugin == "cpu" ? 20U : 8U);
  for (const auto& [size, shared_memory, coalesced_bytes] :
       {Case{2, "on", 256 << 10}, Case{2, "off", 256 << 10}, Case{4, "on", 256 << 10},
        Case{4, "on", 0}, Case{1, "off", 256 << 10}}) {
    Options group_options;
    group_options.shared_memory = shared_memory;
    group_options.coalesced_bytes = coalesced_bytes;
    on_device_ranks(
        size,
        [&](DeviceGroup& group) {
          std::vector<Expected> calls;
          ASSERT_TRUE(group.begin_coalescing().ok());
          for (const int64_t bytes : {0, 1, 7, 4 << 10}) {
            for (const DType dtype : all) {
              if (bytes > 7 && dtype != DType::kF32 && dtype != DType::kBF16) continue;
              const int64_t count =
                  std::max<int64_t>(bytes > 0 ? 1 : 0, bytes / dtype_bytes(dtype));
              add_calls(group, client(), place(dtype, {count}), calls);
            }
          }
          // Too large to go with others.
          add_calls(group, client(), place(DType::kF32, {70001}), calls);
          const DeviceWork block = group.end_coalescing();
          EXPECT_TRUE(block.wait().ok()) << block.wait().to_string();
          expect_calls(calls);
        },
        options(), group_options);
    if (HasFailure()) return;
  }
}

TEST_P(DeviceBlocks, WaitForAllInputsAndKeepTheOrderOfCalls) {
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        const auto self = static_cast<float>(group.rank());
        Late late(client());
        const DeviceArray there = put(floats({1, 1, 1, 1}));
        ASSERT_TRUE(group.begin_coalescing().ok());
        EXPECT_EQ(group.begin_coalescing().code(), StatusCode::kFailedPrecondition);
        const DeviceWork first = group.all_reduce(there), second = group.all_reduce(late.buffer);
        const DeviceWork sent = group.send(there, 1 - group.rank());
        const auto taken = group.receive(place(DType::kF32, {4}), 1 - group.rank());
        // Messages go at once.
        EXPECT_TRUE(sent.wait().ok());
        EXPECT_TRUE(taken.wait().ok());
        for (const DeviceWork& work : {first, second}) {
          EXPECT_TRUE(says(work.wait(), "goes together with others that have not gone yet"));
          EXPECT_EQ(work.wait(milliseconds(1)).code(), StatusCode::kFailedPrecondition);
          EXPECT_FALSE(work.test());
        }
        Completion told;
        first.then([&](const Status& status) { told.complete(status); });
        const DeviceWork block = group.end_coalescing();
        const DeviceWork after = group.all_reduce(there);
        EXPECT_EQ(first.wait(milliseconds(20)).code(), StatusCode::kDeadlineExceeded);
        EXPECT_EQ(block.wait(milliseconds(1)).code(), StatusCode::kDeadlineExceeded);
        EXPECT_FALSE(block.test());
        EXPECT_FALSE(after.test());
        late.come(*put(floats({self, 5, 6, 7})));
        EXPECT_EQ(floats_of(after.result()), (std::vector<float>{2, 2, 2, 2}));
        EXPECT_TRUE(block.wait(seconds(60)).ok());
        EXPECT_TRUE(block.test());
        EXPECT_EQ(floats_of(second.result()), (std::vector<float>{1, 10, 12, 14}));
        EXPECT_EQ(floats_of(first.result()), (std::vector<float>{2, 2, 2, 2}));
        EXPECT_EQ(floats_of(taken.result()), (std::vector<float>{1, 1, 1, 1}));
        EXPECT_TRUE(told.await().ok());
        const auto nothing = block.result();
        EXPECT_TRUE(nothing.ok() && nothing->is_empty());
        // None, and one without calls.
        EXPECT_EQ(group.end_coalescing().wait().code(), StatusCode::kFailedPrecondition);
        ASSERT_TRUE(group.begin_coalescing().ok());
        EXPECT_TRUE(group.end_coalescing().wait().ok());
        EXPECT_TRUE(group.barrier().wait().ok());
      },
      options());
}

// Nobody waits but for the callback.
TEST_P(DeviceBlocks, EndWithoutAWaiter) {
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        ASSERT_TRUE(group.begin_coalescing().ok());
        const DeviceWork sum = group.all_reduce(put(floats({1, 2})));
        const DeviceWork block = group.end_coalescing();
        Completion told;
        block.then([&](const Status& status) { told.complete(status); });
        EXPECT_TRUE(told.await_until(Deadline::in(seconds(60))));
        EXPECT_TRUE(told.status().ok()) << told.status().to_string();
        EXPECT_TRUE(sum.test());
        EXPECT_EQ(floats_of(sum.result()), (std::vector<float>{2, 4}));
      },
      options());
}

TEST_P(DeviceBlocks, WhatOneRankRefusesIsSaidOnAll) {
  struct Case {
    std::string text;
    std::function<DeviceWork(DeviceGroup&)> call;
  };
  const std::vector<Case> cases = {
      {"the device buffer f32[4] was freed or donated",
       [&](DeviceGroup& group) {
         const DeviceArray x = put(floats({1, 2, 3, 4}));
         EXPECT_TRUE(x->free().ok());
         return group.all_reduce(x);
       }},
      {"bits are those of integers",
       [&](DeviceGroup& group) {
         return group.all_reduce(put(floats({1, 2, 3, 4})), ReduceOp::kBitAnd);
       }},
      {"a disk is full",
       [&](DeviceGroup& group) {
         Late late(client());
         const DeviceWork work = group.all_reduce(late.buffer);
         late.fail("a disk is full");
         return work;
       }},
  };
  for (const Case& one : cases) {
    std::barrier all(2);
    on_device_ranks(
        2,
        [&](DeviceGroup& group) {
          ASSERT_TRUE(group.begin_coalescing().ok());
          std::vector<DeviceWork> works = {group.all_reduce(put(floats({1, 2})))};
          works.push_back(group.rank() == 1 ? one.call(group)
                                            : group.all_reduce(put(floats({1, 2, 3, 4}))));
          works.push_back(group.barrier());
          works.push_back(group.end_coalescing());
          for (const DeviceWork& work : works) {
            const Status status = work.wait();
            EXPECT_TRUE(says(status, one.text)) << work.call() << ": " << status.to_string();
            EXPECT_EQ(says(status, "rank 1 has refused it"), group.rank() == 0)
                << status.to_string();
            EXPECT_FALSE(work.result().ok());
          }
          all.arrive_and_wait();
        },
        options());
  }
  // Where all refuse it nothing has happened.
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        ASSERT_TRUE(group.begin_coalescing().ok());
        const DeviceWork good = group.all_reduce(put(floats({1, 2})));
        EXPECT_EQ(group.all_reduce(nullptr).wait().code(), StatusCode::kInvalidArgument);
        EXPECT_FALSE(group.end_coalescing().wait().ok());
        EXPECT_FALSE(good.wait().ok());
        EXPECT_EQ(floats_of(group.all_reduce(put(floats({1}))).result()), std::vector<float>{2});
      },
      options());
}

TEST_P(DeviceBlocks, ThoseThatAreLeftEnd) {
  std::vector<std::optional<DeviceWork>> open(2), waiting(2);
  std::vector<Late> late;
  for (int r = 0; r < 2; ++r) late.emplace_back(client());
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        const auto self = static_cast<size_t>(group.rank());
        ASSERT_TRUE(group.begin_coalescing().ok());
        waiting[self] = group.all_reduce(late[self].buffer);
        const DeviceWork block = group.end_coalescing();
        EXPECT_FALSE(block.test());
        ASSERT_TRUE(group.begin_coalescing().ok());
        open[self] = group.all_reduce(put(floats({1, 2})));
      },
      options());
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(waiting[r]->wait().code(), StatusCode::kCancelled);
    EXPECT_EQ(open[r]->wait().code(), StatusCode::kCancelled);
    late[r].come(*put(floats({1, 2, 3, 4})));
  }
}

// Parameters of several dtypes, in the order of a model.
struct Shape {
  DType dtype;
  Dims dims;
};
const std::vector<Shape> kShapes = {{DType::kF32, {3, 5}},    {DType::kBF16, {7}},
                                    {DType::kF32, {0}},       {DType::kF32, {300, 301}},
                                    {DType::kI32, {2, 2, 2}}, {DType::kF32, {}},
                                    {DType::kBF16, {2, 501}}, {DType::kF32, {1}}};

HostArray gradient_of(size_t i, int rank, int step) {
  const Shape& shape = kShapes[i];
  return conformance_input(shape.dtype, element_count(shape.dims), rank,
                           fmt::format("{} {}", i, step))
      .with_shape(shape.dtype, shape.dims);
}

class DeviceBuckets : public DeviceGroupOn {
 protected:
  static std::vector<DeviceParameter> parameters() {
    std::vector<DeviceParameter> all;
    for (size_t i = 0; i < kShapes.size(); ++i) {
      all.push_back({fmt::format("p{}", i), place(kShapes[i].dtype, kShapes[i].dims)});
    }
    return all;
  }
  // As GradientBuckets' test has it: the group is somebody else's.
  static void on_ranks(int size,
                       const std::function<void(const std::shared_ptr<DeviceGroup>&)>& body) {
    on_device_ranks(
        size,
        [&](DeviceGroup& group) {
          body(std::shared_ptr<DeviceGroup>(&group, [](DeviceGroup*) {}));
        },
        options());
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, DeviceBuckets, ways(), way_name);

TEST_P(DeviceBuckets, GiveAveragesWhateverTheirSizes) {
  for (const int size : {2, 4}) {
    for (const BucketSizes& sizes :
         {BucketSizes{1, 1}, BucketSizes{64, 4096}, BucketSizes{1 << 20, 1 << 20}}) {
      on_ranks(size, [&](const std::shared_ptr<DeviceGroup>& group) {
        auto made = DeviceGradients::create(group, parameters(), {.sizes = sizes});
        ASSERT_TRUE(made.ok()) << made.status().to_string();
        DeviceGradients& gradients = **made;
        // The one without elements goes with another.
        EXPECT_EQ(gradients.bucket_count() == kShapes.size() - 1, sizes.first == 1);
        for (int step = 0; step < 3; ++step) {
          for (size_t k = 0; k < kShapes.size(); ++k) {
            // From the end, then from the front, then anyhow.
            const size_t i = step == 0 ? kShapes.size() - 1 - k
                             : step == 1
                                 ? k
                                 : (3 * k + static_cast<size_t>(group->rank())) % kShapes.size();
            const DeviceArray own = put(gradient_of(i, group->rank(), step));
            const bool is_donated = step != 1;
            ASSERT_TRUE(gradients.ready(static_cast<int>(i), own, is_donated).ok());
            const Status again = gradients.ready(static_cast<int>(i), own);
            EXPECT_TRUE(says(again, "has come twice")) << again.to_string();
          }
          auto averages = gradients.finish();
          ASSERT_TRUE(averages.ok()) << averages.status().to_string();
          ASSERT_EQ(averages->size(), kShapes.size());
          for (size_t i = 0; i < kShapes.size(); ++i) {
            std::vector<HostArray> all;
            for (int r = 0; r < size; ++r) all.push_back(gradient_of(i, r, step));
            const HostArray wanted = reference_reduce(ReduceOp::kAvg, all);
            expect_array(std::move((*averages)[i]),
                         wanted.with_shape(kShapes[i].dtype, kShapes[i].dims),
                         fmt::format("p{} of step {}", i, step));
          }
        }
      });
      if (HasFailure()) return;
    }
  }
}

TEST_P(DeviceBuckets, WhatIsMissingIsZeroOrNamed) {
  on_ranks(2, [&](const std::shared_ptr<DeviceGroup>& group) {
    auto made = DeviceGradients::create(
        group, {{"a", place(DType::kF32, {2})}, {"b", place(DType::kF32, {3})}},
        {.sizes = {1, 1}, .by = ReduceOp::kSum, .missing_is_zero = true});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    ASSERT_TRUE((*made)->ready(0, put(floats({1, 2}))).ok());
    if (group->rank() == 0) {
      ASSERT_TRUE((*made)->ready(1, put(floats({3, 4, 5}))).ok());
    }
    auto sums = (*made)->finish();
    ASSERT_TRUE(sums.ok()) << sums.status().to_string();
    EXPECT_EQ(floats_of(std::move((*sums)[0])), (std::vector<float>{2, 4}));
    EXPECT_EQ(floats_of(std::move((*sums)[1])), (std::vector<float>{3, 4, 5}));
  });
  std::barrier all(2);
  on_ranks(2, [&](const std::shared_ptr<DeviceGroup>& group) {
    auto made = DeviceGradients::create(
        group, {{"a", place(DType::kF32, {2})}, {"b", place(DType::kF32, {3})}}, {.sizes = {1, 1}});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const Status wrong = (*made)->ready(0, put(floats({1, 2, 3})));
    EXPECT_TRUE(says(wrong, "parameter 0, a, is f32[3] where f32[2] belongs")) << wrong.to_string();
    EXPECT_EQ((*made)->ready(2, put(floats({1}))).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ((*made)->ready(0, nullptr).code(), StatusCode::kInvalidArgument);
    ASSERT_TRUE((*made)->ready(1, put(floats({3, 4, 5}))).ok());
    if (group->rank() == 0) {
      ASSERT_TRUE((*made)->ready(0, put(floats({1, 2}))).ok());
    }
    const auto sums = (*made)->finish();
    EXPECT_TRUE(says(sums.status(), "no gradient has come of 1 of 2 parameters: a"))
        << sums.status().to_string();
    EXPECT_EQ(says(sums.status(), "rank 1 has refused it"), group->rank() == 0);
    all.arrive_and_wait();
  });
}

TEST_P(DeviceBuckets, StepsThatAreAbandonedChangeNothing) {
  on_ranks(2, [&](const std::shared_ptr<DeviceGroup>& group) {
    auto made = DeviceGradients::create(
        group, {{"a", place(DType::kF32, {2})}, {"b", place(DType::kF32, {3})}},
        {.sizes = {1, 1}, .by = ReduceOp::kSum});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    ASSERT_TRUE((*made)->ready(1, put(floats({3, 4, 5}))).ok());
    (*made)->abandon(data_loss("no numbers"));
    // In a block of the program's.
    ASSERT_TRUE(group->begin_coalescing().ok());
    EXPECT_EQ((*made)->ready(1, put(floats({3, 4, 5}))).code(), StatusCode::kFailedPrecondition);
    EXPECT_FALSE(group->end_coalescing().wait().ok());
    ASSERT_TRUE((*made)->ready(1, put(floats({3, 4, 5}))).ok());
    ASSERT_TRUE((*made)->ready(0, put(floats({1, 2}))).ok());
    auto sums = (*made)->finish();
    ASSERT_TRUE(sums.ok()) << sums.status().to_string();
    EXPECT_EQ(floats_of(std::move((*sums)[1])), (std::vector<float>{6, 8, 10}));
  });
  on_ranks(2, [&](const std::shared_ptr<DeviceGroup>& group) {
    const DevicePlace own = place(DType::kF32, {group->rank() == 0 ? 2 : 3});
    const Status status = DeviceGradients::create(group, {{"a", own}}, {}).status();
    EXPECT_TRUE(says(status, "parameters of ranks 0 and 1 of group world differ"))
        << status.to_string();
  });
}

}  // namespace
}  // namespace hekla::process_group
