// SPDX-License-Identifier: Apache-2.0
// Calls on device buffers of this build's plugins, in the device's memory and through host arrays,
// against plain arithmetic; and what becomes of buffers that are freed, late, wrong or lost.
#include "runtime/process_group/device_arrays/device_group.h"

#include <unistd.h>

#include <barrier>
#include <cstdlib>
#include <numeric>

#include "runtime/process_group/testing/device_ranks.h"

namespace hekla::process_group {
namespace {

using runtime::Buffer;
using runtime::Client;
using std::chrono::milliseconds;
using std::chrono::seconds;

// First: it forks, and no test before it has made threads.
TEST(DeviceGroup, ALostRankIsNamed) {
  const std::vector<int> exits = on_processes(3, [](ProcessGroup& group) {
    const std::shared_ptr<ProcessGroup> shared(&group, [](ProcessGroup*) {});
    auto devices = DeviceGroup::create(shared);
    if (!devices.ok()) return 1;
    const Client client = make_client("cpu");
    const DeviceArray x = put(client, HostArray(DType::kF32, {300000}));
    if (!(*devices)->all_reduce(x).wait().ok()) return 2;
    if (group.rank() == 1) ::_exit(7);
    const Status status =
        (*devices)->all_reduce(x, ReduceOp::kSum, {.timeout = seconds(30)}).wait();
    if (status.ok() || !says(status, "rank 1") || !says(status, "all_reduce(sum) of f32[300000]")) {
      std::fprintf(stderr, "%s\n", status.to_string().c_str());
      return 3;
    }
    // The input is as it was, and free to go.
    return x->free().ok() && *x->is_freed() ? 0 : 4;
  });
  EXPECT_EQ(exits, (std::vector<int>{0, 7, 0}));
}

INSTANTIATE_TEST_SUITE_P(Ways, DeviceGroupOn, ways(), way_name);

// All operations of elements of one dtype, `count` for each rank.
void check_operations(DeviceGroup& group, const Client& client, const DevicePlace& part_place,
                      DType dtype, int64_t count) {
  const int size = group.size(), rank = group.rank(), root = size - 1;
  const auto self = static_cast<size_t>(rank);
  std::vector<HostArray> own, wide;
  for (int r = 0; r < size; ++r) {
    own.push_back(conformance_input(dtype, count, r, "own"));
    wide.push_back(
        conformance_input(dtype, size * count, r, "wide").with_shape(dtype, {size, count}));
  }
  const DeviceArray x = put(client, own[self]), w = put(client, wide[self]);
  const Dims gathered = {size, count};
  // Before any of it ends.
  const ReduceOp by = dtype == DType::kI1 ? ReduceOp::kBitOr : ReduceOp::kSum;
  const DeviceWork all = group.all_reduce(x, by), one = group.reduce(x, root, by),
                   sent = group.broadcast(x, 0), gather = group.all_gather(x),
                   at_root = group.gather(x, root), scattered = group.reduce_scatter(w, by),
                   dealt = group.scatter(part_place, rank == root ? w : nullptr, root),
                   exchanged = group.all_to_all(w);
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  const DeviceWork out = group.send(x, right, 5), in = group.receive(part_place, left, 5);
  // `sum` as the first of all, so that the sizes can differ between ranks.
  const DeviceWork given = rank == 0 ? group.broadcast(x, 0) : group.broadcast(part_place, 0);

  const HostArray sum = reference_reduce(by, own), sums = reference_reduce(by, wide);
  expect_array(all.result(), sum, all.call());
  if (rank == root) {
    expect_array(one.result(), sum, one.call());
    expect_array(at_root.result(), joined(own, gathered), at_root.call());
  } else {
    for (const DeviceWork& work : {one, at_root}) {
      const auto none = work.result();
      ASSERT_TRUE(none.ok()) << none.status().to_string();
      EXPECT_TRUE(none->is_empty());
    }
  }
  expect_array(sent.result(), own[0], sent.call());
  expect_array(given.result(), own[0], given.call());
  expect_array(gather.result(), joined(own, gathered), gather.call());
  expect_array(scattered.result(), rows_of(sums, rank * count, {1, count}), scattered.call());
  expect_array(dealt.result(), rows_of(wide[static_cast<size_t>(root)], rank * count, {count}),
               dealt.call());
  std::vector<HostArray> mine;
  for (const HostArray& each : wide) mine.push_back(rows_of(each, rank * count, {count}));
  expect_array(exchanged.result(), joined(mine, gathered), exchanged.call());
  EXPECT_TRUE(out.wait().ok()) << out.wait().to_string();
  expect_array(in.result(), own[static_cast<size_t>(left)], in.call());
  EXPECT_EQ(in.source(), left);
  // The inputs are as they were.
  EXPECT_EQ(difference(*x->to_host(), own[self]), "");
  EXPECT_EQ(difference(*w->to_host(), wide[self]), "");
}

TEST_P(DeviceGroupOn, OperationsGiveWhatArithmeticGives) {
  struct Case {
    int size;
    const char* shared_memory;
    std::vector<DType> dtypes;
  };
  const std::vector<DType> few = {DType::kF32, DType::kBF16, DType::kI1};
  const std::vector<Case> cases = {{1, "off", few},
                                   {2, "on", few},
                                   {2, "off", few},
                                   {3,
                                    "on",
                                    {DType::kI1, DType::kI4, DType::kUI8, DType::kI32, DType::kBF16,
                                     DType::kF32, DType::kF64, DType::kC64}},
                                   {4, "on", few}};
  for (const Case& one : cases) {
    Options group_options;
    group_options.shared_memory = one.shared_memory;
    on_device_ranks(
        one.size,
        [&](DeviceGroup& group) {
          for (const DType dtype : one.dtypes) {
            for (const int64_t bytes : {0, 1, 7, 4 << 10, (1 << 20) + 3}) {
              const int64_t count = bytes / dtype_bytes(dtype);
              if (bytes > 1 << 20 && (one.size > 2 || dtype != DType::kF32)) continue;
              check_operations(group, client(), place(dtype, {count}), dtype, count);
              if (HasFatalFailure()) return;
            }
          }
          const DeviceCounts counts = group.counts();
          if (is_direct()) {  // of some types
            EXPECT_GT(counts.read_in_place, counts.read_copied);
            EXPECT_GT(counts.written_in_place, counts.written_copied);
          } else {
            EXPECT_EQ(counts.read_in_place + counts.written_in_place, 0);
          }
        },
        options(), group_options);
  }
}

// Of some elements and of one, where a line of the cache has more.
TEST_P(DeviceGroupOn, CallsGoInParts) {
  for (const int64_t part_bytes : {100, 1}) {
    DeviceGroupOptions in_parts = options();
    in_parts.part_bytes = part_bytes;
    on_device_ranks(
        3,
        [&](DeviceGroup& group) {
          for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI1, DType::kI4}) {
            for (const int64_t bytes : {0, 1, 7, 100, 101, 1003}) {
              const int64_t count = bytes / dtype_bytes(dtype);
              check_operations(group, client(), place(dtype, {count}), dtype, count);
            }
          }
          // 1,003 bytes alone: of all_reduce, reduce and two broadcasts.
          EXPECT_GE(group.counts().parts, 4 * (1003 / std::max<int64_t>(4, part_bytes)));
          // Over the input's memory, and of a donated one.
          for (const bool donate : {false, true}) {
            std::vector<float> own(1000), wanted(1000);
            std::iota(own.begin(), own.end(), static_cast<float>(group.rank()));
            for (size_t i = 0; i < own.size(); ++i) wanted[i] = static_cast<float>(3 * i + 3);
            const DeviceArray x = put(floats(own));
            const DeviceWork work = group.all_reduce(x, ReduceOp::kSum, {.donate = donate});
            EXPECT_EQ(floats_of(work.result()), wanted);
            EXPECT_EQ(*x->is_freed(), donate);
          }
        },
        in_parts);
    if (HasFailure()) return;
  }
  DeviceGroupOptions whole = options();
  whole.part_bytes = 0;
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        const std::vector<float> ones(3 << 20, 1);
        EXPECT_EQ(floats_of(group.all_reduce(put(floats(ones))).result()),
                  std::vector<float>(3 << 20, 2));
        EXPECT_EQ(group.counts().parts, 0);
      },
      whole);
}

// While another call waits behind it, with nobody that waits, and when the group is left.
TEST_P(DeviceGroupOn, PartsKeepTheOrderOfCalls) {
  DeviceGroupOptions in_parts = options();
  in_parts.part_bytes = 4 << 10;
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        const size_t count = 100000;
        const std::vector<float> ones(count, 1), twos(count, 2);
        Completion told;
        Late late(client());
        const DeviceWork before = group.all_reduce(late.buffer);
        const DeviceWork first = group.all_reduce(put(floats(ones)));
        const DeviceWork second = group.all_reduce(put(floats(twos)));
        first.then([&](const Status& status) { told.complete(status); });
        EXPECT_FALSE(second.test());
        EXPECT_EQ(second.wait(milliseconds(1)).code(), StatusCode::kDeadlineExceeded);
        late.come(*put(floats({1, 2, 3, 4})));
        EXPECT_TRUE(told.await().ok());
        EXPECT_EQ(floats_of(second.result()), std::vector<float>(count, 4));
        EXPECT_EQ(floats_of(first.result()), twos);
        EXPECT_EQ(floats_of(before.result()), (std::vector<float>{2, 4, 6, 8}));
        EXPECT_EQ(group.counts().parts, 2 * 98);
        // Left behind.
        static_cast<void>(group.all_reduce(put(floats(ones))));
      },
      in_parts);
  // Other ranks hear of one that stops in the middle.
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        const DeviceWork work = group.all_reduce(put(floats(std::vector<float>(100000, 1))));
        if (group.rank() == 1) group.abort("enough");
        const Status status = work.wait(seconds(60));
        EXPECT_TRUE(status.ok() || says(status, "enough")) << status.to_string();
      },
      in_parts);
}

TEST_P(DeviceGroupOn, SplitsMayBeUneven) {
  on_device_ranks(
      3,
      [&](DeviceGroup& group) {
        // Rank r sends p + r rows to rank p: of r, two elements each.
        const int rank = group.rank();
        std::vector<int64_t> in_rows, out_rows;
        std::vector<float> own, wanted;
        for (int p = 0; p < 3; ++p) {
          in_rows.push_back(p + rank);
          out_rows.push_back(p + rank);
          for (int i = 0; i < 2 * (p + rank); ++i) own.push_back(static_cast<float>(10 * rank + p));
          for (int i = 0; i < 2 * (p + rank); ++i) {
            wanted.push_back(static_cast<float>(10 * p + rank));
          }
        }
        const int64_t rows = 3 * rank + 3;
        const DeviceArray x = put(HostArray::from<float>(DType::kF32, {rows, 2}, own));
        auto result = group.all_to_all(x, out_rows, in_rows).result();
        ASSERT_TRUE(result.ok()) << result.status().to_string();
        EXPECT_EQ(result->dims(), (Dims{rows, 2}));
        EXPECT_EQ(floats_of(std::move(result)), wanted);
      },
      options());
}

// The address of the host's memory, which the group reads and writes itself.
TEST_P(DeviceGroupOn, MemoryOfTheHostIsNotCopied) {
  const bool direct = is_direct();
  if (GetParam().plugin == "cpu" && GetParam().host_memory == "auto") {
    ASSERT_TRUE(direct);
  }
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        constexpr int64_t kCount = 300000;
        const auto self = static_cast<float>(group.rank() + 1);
        const HostArray ones = floats(std::vector<float>(kCount, self));
        const DeviceArray x = put(ones);
        ASSERT_TRUE(x->ready()->await().ok());
        const Result<void*> before = x->host_address();
        std::vector<float> wanted(kCount, 3);
        EXPECT_EQ(floats_of(group.all_reduce(x).result()), wanted);
        ASSERT_TRUE(group.all_gather(x).wait().ok());
        // In place: the result is where the input was.
        auto sum = group.all_reduce(x, ReduceOp::kSum, {.donate = true}).result();
        ASSERT_TRUE(sum.ok()) << sum.status().to_string();
        EXPECT_TRUE(*x->is_freed());
        if (direct) {
          EXPECT_EQ(*sum->host_address(), *before);
        }
        EXPECT_EQ(floats_of(std::move(sum)), wanted);
        const DeviceCounts counts = group.counts();
        EXPECT_EQ(counts.read_in_place, direct ? 3 : 0);
        EXPECT_EQ(counts.written_in_place, direct ? 3 : 0);
        EXPECT_EQ(counts.read_copied, direct ? 0 : 3);
        EXPECT_EQ(counts.written_copied, direct ? 0 : 3);
        EXPECT_EQ(counts.reused, direct ? 1 : 0);
      },
      options());
}

TEST_P(DeviceGroupOn, DonatedInputsAreGone) {
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        const DeviceCallOptions donates = {.donate = true};
        const auto fresh = [&] { return put(floats({1, 2, 3, 4})); };
        const std::vector<float> own = {1, 2, 3, 4}, twice = {2, 4, 6, 8};
        DeviceArray x = fresh();
        EXPECT_EQ(floats_of(group.broadcast(x, 1, donates).result()), own);
        EXPECT_TRUE(*x->is_freed());
        x = fresh();
        const DeviceWork reduced = group.reduce(x, 0, ReduceOp::kSum, donates);
        if (group.rank() == 0) {
          EXPECT_EQ(floats_of(reduced.result()), twice);
        }
        EXPECT_TRUE(reduced.wait().ok());
        EXPECT_TRUE(*x->is_freed());
        x = fresh();
        EXPECT_EQ(floats_of(group.reduce_scatter(x, ReduceOp::kSum, donates).result()),
                  group.rank() == 0 ? (std::vector<float>{2, 4}) : (std::vector<float>{6, 8}));
        EXPECT_TRUE(*x->is_freed());
        // What somebody refers to stays for them.
        x = fresh();
        ASSERT_TRUE(x->add_reference().ok());
        EXPECT_EQ(floats_of(group.all_reduce(x, ReduceOp::kSum, donates).result()), twice);
        EXPECT_TRUE(*x->is_freed());
        EXPECT_TRUE(x->drop_reference().ok());
        // Again: it is not there any more.
        EXPECT_EQ(group.all_reduce(x, ReduceOp::kSum, donates).wait().code(),
                  StatusCode::kInvalidArgument);
      },
      options());
}

TEST_P(DeviceGroupOn, CallsWaitForTheirInputsInTheirOrder) {
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        const auto self = static_cast<float>(group.rank());
        Late late(client());
        const DeviceArray there = put(floats({1, 1, 1, 1}));
        // Of one shape and kind, so that no check tells them apart.
        const DeviceWork first = group.all_reduce(late.buffer), second = group.all_reduce(there);
        const DeviceWork sent = group.send(there, 1 - group.rank());
        const auto taken = group.receive(place(DType::kF32, {4}), 1 - group.rank());
        Completion told;
        first.then([&](const Status& status) { told.complete(status); });
        EXPECT_FALSE(first.test());
        EXPECT_EQ(second.wait(milliseconds(20)).code(), StatusCode::kDeadlineExceeded);
        // Messages do not wait for them.
        EXPECT_TRUE(sent.wait().ok());
        EXPECT_EQ(floats_of(taken.result()), (std::vector<float>{1, 1, 1, 1}));
        EXPECT_FALSE(second.test());
        late.come(*put(floats({self, 5, 6, 7})));
        EXPECT_EQ(floats_of(second.result()), (std::vector<float>{2, 2, 2, 2}));
        EXPECT_EQ(floats_of(first.result()), (std::vector<float>{1, 10, 12, 14}));
        EXPECT_EQ(first.result().status().code(), StatusCode::kFailedPrecondition);
        // By the thread that ended the call, which may be behind one that waits.
        EXPECT_TRUE(told.await().ok());
        // A callback of a call that has ended.
        bool is_told = false;
        second.then([&](const Status&) { is_told = true; });
        EXPECT_TRUE(is_told);
      },
      options());
}

// Dropped, freed, and consumed by a launch while the call has not begun.
TEST_P(DeviceGroupOn, ACallKeepsWhatItsInputHeld) {
  const auto doubled = client().compile(R"(module @double {
    func.func @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
      %0 = stablehlo.add %a, %a : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  })");
  ASSERT_TRUE(doubled.ok()) << doubled.status().to_string();
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        Late late(client());
        const HostArray own = floats({1, 2, 3, 4});
        const std::vector<float> twice = {2, 4, 6, 8};
        // The calls below wait behind it.
        const DeviceWork first = group.all_reduce(late.buffer);
        DeviceArray dropped = put(own);
        const DeviceArray freed = put(own);
        std::vector<Buffer> consumed;
        consumed.push_back(std::move(*client().to_device(own, client().addressable_devices()[0])));
        const DeviceWork of_dropped = group.all_reduce(dropped);
        const DeviceWork of_freed = group.all_reduce(freed);
        const auto shared = std::make_shared<Buffer>(std::move(consumed[0]));
        const DeviceWork of_consumed = group.all_reduce(shared);
        dropped.reset();
        EXPECT_TRUE(freed->free().ok());
        // The call has a share of it, so a launch takes it through its handle.
        const std::vector<const Buffer*> arguments = {shared.get()};
        auto launch = doubled->launch(std::span(&arguments, 1));
        ASSERT_TRUE(launch.ok()) << launch.status().to_string();
        EXPECT_EQ(floats_of(std::move(launch->outputs[0][0])), twice);
        late.come(*put(own));
        for (const DeviceWork& work : {first, of_dropped, of_freed, of_consumed}) {
          EXPECT_EQ(floats_of(work.result()), twice) << work.call();
        }
        // Freed while its own contents have not come.
        Late other(client());
        const DeviceWork of_late = group.all_reduce(other.buffer);
        EXPECT_TRUE(other.buffer->free().ok());
        other.come(*put(own));
        EXPECT_EQ(floats_of(of_late.result()), twice);
      },
      options());
}

TEST_P(DeviceGroupOn, WhatOneRankRefusesIsSaidOnAll) {
  struct Case {
    std::string text;
    StatusCode code;
    std::function<DeviceWork(DeviceGroup&)> call;
  };
  const std::vector<Case> cases = {
      {"the device buffer f32[4] was freed or donated", StatusCode::kInvalidArgument,
       [&](DeviceGroup& group) {
         const DeviceArray x = put(floats({1, 2, 3, 4}));
         EXPECT_TRUE(x->free().ok());
         return group.all_reduce(x);
       }},
      {"the device buffer is empty", StatusCode::kInvalidArgument,
       [&](DeviceGroup& group) { return group.all_reduce(nullptr); }},
      {"bits are those of integers", StatusCode::kInvalidArgument,
       [&](DeviceGroup& group) {
         return group.all_reduce(put(floats({1, 2, 3, 4})), ReduceOp::kBitAnd);
       }},
      {"the first dimension of f32[3] in 2 equal parts", StatusCode::kInvalidArgument,
       [&](DeviceGroup& group) {
         return group.reduce_scatter(put(floats({1, 2, 3})));
       }},
      {"the root has no device buffer to send", StatusCode::kInvalidArgument,
       [&](DeviceGroup& group) { return group.broadcast(place(DType::kF32, {4}), group.rank()); }},
      {"input splits make 5 rows of f32[4]", StatusCode::kInvalidArgument,
       [&](DeviceGroup& group) {
         return group.all_to_all(put(floats({1, 2, 3, 4})), {2, 2}, {2, 3});
       }},
      {"a disk is full", StatusCode::kInternal,
       [&](DeviceGroup& group) {
         Late late(client());
         late.fail("a disk is full");
         return group.all_reduce(late.buffer);
       }},
      {"the contents of its input have not come", StatusCode::kDeadlineExceeded,
       [&](DeviceGroup& group) {
         static std::vector<Late>& never = *new std::vector<Late>;
         never.emplace_back(client());
         return group.all_reduce(never.back().buffer, ReduceOp::kSum,
                                 {.timeout = milliseconds(30)});
       }},
  };
  for (const Case& one : cases) {
    std::barrier all(2);
    on_device_ranks(
        2,
        [&](DeviceGroup& group) {
          const DeviceWork work =
              group.rank() == 1 ? one.call(group) : group.all_reduce(put(floats({1, 2, 3, 4})));
          const Status status = work.wait();
          EXPECT_TRUE(says(status, one.text)) << status.to_string();
          if (group.rank() == 1) {
            EXPECT_EQ(status.code(), one.code) << status.to_string();
          } else {
            EXPECT_TRUE(says(status, "rank 1 has refused it")) << status.to_string();
            EXPECT_TRUE(says(status, "all_reduce(sum) of f32[4] on ")) << status.to_string();
          }
          EXPECT_EQ(work.error().code(), status.code());
          EXPECT_FALSE(work.result().ok());
          all.arrive_and_wait();
        },
        options());
  }
}

// While a call before it waits.
TEST_P(DeviceGroupOn, ARefusedCallHasEndedAtOnce) {
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        Late late(client());
        const DeviceWork first = group.all_reduce(late.buffer, ReduceOp::kSum, {.donate = true});
        EXPECT_TRUE(*late.buffer->is_freed());
        const DeviceWork wrong = group.all_reduce(nullptr);
        EXPECT_TRUE(wrong.test());
        EXPECT_EQ(wrong.wait().code(), StatusCode::kInvalidArgument);
        EXPECT_EQ(wrong.result().status().code(), StatusCode::kInvalidArgument);
        late.come(*put(floats({1, 2, 3, 4})));
        EXPECT_EQ(floats_of(first.result()), (std::vector<float>{2, 4, 6, 8}));
        // Both have refused it: nothing has happened.
        EXPECT_EQ(floats_of(group.all_reduce(put(floats({1}))).result()), std::vector<float>{2});
      },
      options());
}

TEST_P(DeviceGroupOn, ARefusedMessageFailsAtItsReceiver) {
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        const DeviceArray x = put(floats({1, 2, 3, 4}));
        if (group.rank() == 0) {
          EXPECT_TRUE(x->free().ok());
          EXPECT_EQ(group.send(x, 1).wait().code(), StatusCode::kInvalidArgument);
        } else {
          const Status status = group.receive(place(DType::kF32, {4}), 0).wait();
          EXPECT_TRUE(says(status, "rank 0 has refused to send")) << status.to_string();
          EXPECT_TRUE(says(status, "f32[4] was freed or donated")) << status.to_string();
          EXPECT_TRUE(says(status, "f32[4] in memory \"device\"")) << status.to_string();
        }
        // Nothing else has happened.
        EXPECT_TRUE(group.barrier().wait().ok());
      },
      options());
}

TEST_P(DeviceGroupOn, CallsThatDifferAreNamed) {
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        const std::vector<float> values(group.rank() == 0 ? 4 : 5, 1);
        const Status status = group.all_reduce(put(floats(values))).wait();
        EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
        EXPECT_TRUE(says(status, "rank 1 calls all_reduce(sum) of f32[5]")) << status.to_string();
      },
      options());
}

TEST_P(DeviceGroupOn, AnotherLayoutIsReadAsRowMajor) {
  const auto transposed = [&](const HostArray& array) {
    HEKLA_PJRT_ARGS(PJRT_Client_BufferFromHostBuffer_Args, args, buffer);
    const int64_t minor_to_major[] = {0, 1};
    PJRT_Buffer_MemoryLayout layout = {};
    layout.struct_size = PJRT_STRUCT_SIZE(PJRT_Buffer_MemoryLayout, type);
    layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
    layout.tiled.struct_size = PJRT_STRUCT_SIZE(PJRT_Buffer_MemoryLayout_Tiled, num_tiles);
    layout.tiled.minor_to_major = minor_to_major;
    layout.tiled.minor_to_major_size = 2;
    args.client = client().handle();
    args.data = array.data();
    args.type = PJRT_Buffer_Type_F32;
    args.dims = array.dims().data();
    args.num_dims = 2;
    args.device_layout = &layout;
    args.device = client().addressable_devices()[0].handle();
    args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
    const Status made = HEKLA_PJRT_CALL(client().plugin(), PJRT_Client_BufferFromHostBuffer, &args);
    if (!made.ok()) die_of_bad_result(made);
    const runtime::Event done(
        std::shared_ptr<const runtime::Plugin>(&client().plugin(), [](const auto*) {}),
        args.done_with_host_buffer);
    EXPECT_TRUE(done.await().ok());
    auto adopted = client().adopt(args.buffer);
    if (!adopted.ok()) die_of_bad_result(adopted.status());
    return std::make_shared<Buffer>(std::move(*adopted));
  };
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        const std::vector<float> values = {1, 2, 3, 4, 5, 6};
        const auto x = transposed(HostArray::from<float>(DType::kF32, {2, 3}, values));
        EXPECT_FALSE(x->is_raw_host_layout());
        auto sum = group.all_reduce(x, ReduceOp::kSum, {.donate = group.rank() == 0}).result();
        ASSERT_TRUE(sum.ok()) << sum.status().to_string();
        EXPECT_TRUE(sum->is_raw_host_layout());
        EXPECT_EQ(floats_of(std::move(sum)), (std::vector<float>{2, 4, 6, 8, 10, 12}));
        EXPECT_EQ(*x->is_freed(), group.rank() == 0);
        EXPECT_EQ(group.counts().read_copied, 1);
      },
      options());
}

TEST_P(DeviceGroupOn, CallsLeftBehindEnd) {
  std::vector<std::optional<DeviceWork>> kept(2), waiting(2);
  std::vector<Late> late;
  for (int r = 0; r < 2; ++r) late.emplace_back(client());
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        const auto self = static_cast<size_t>(group.rank());
        kept[self] = group.all_reduce(put(floats({1, 2})));
        EXPECT_TRUE(kept[self]->wait().ok());
        waiting[self] = group.all_reduce(late[self].buffer);
      },
      options());
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(waiting[r]->wait().code(), StatusCode::kCancelled);
    EXPECT_EQ(floats_of(kept[r]->result()), (std::vector<float>{2, 4}));
    late[r].come(*put(floats({1, 2, 3, 4})));
  }
}

// Nobody waits: who asks or is called hears of the end all the same.
TEST_P(DeviceGroupOn, CallsEndWithoutAWaiter) {
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        const int other = 1 - group.rank();
        const DeviceWork received = group.receive(place(DType::kF32, {2}), other);
        const DeviceWork sent = group.send(put(floats({1, 2})), other);
        const auto end = [](const DeviceWork& work) {
          const Deadline deadline = Deadline::in(seconds(30));
          while (!work.test() && !deadline.expired()) std::this_thread::sleep_for(milliseconds(1));
          EXPECT_TRUE(work.test()) << work.call();
        };
        end(sent);
        end(received);
        EXPECT_EQ(floats_of(received.result()), (std::vector<float>{1, 2}));
        Completion told;
        const DeviceWork sum = group.all_reduce(put(floats({1, 2})));
        sum.then([&](const Status& status) { told.complete(status); });
        EXPECT_TRUE(told.await_until(Deadline::in(seconds(30))));
      },
      options());
}

// An input may wait for the rank that is lost.
TEST_P(DeviceGroupOn, CallsEndWithTheGroupWhileTheirInputsAreOut) {
  std::barrier all(2);
  on_device_ranks(
      2,
      [&](DeviceGroup& group) {
        static std::vector<std::unique_ptr<Late>>& never = *new std::vector<std::unique_ptr<Late>>;
        if (group.rank() == 0) {
          never.push_back(std::make_unique<Late>(client()));
          const DeviceWork waits = group.all_reduce(never.back()->buffer);
          const DeviceWork next = group.all_reduce(put(floats({1, 2, 3, 4})));
          for (const DeviceWork& work : {waits, next}) {
            const Status status = work.wait(seconds(30));
            EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.to_string();
            EXPECT_TRUE(says(status, "rank 1 has aborted")) << status.to_string();
            EXPECT_TRUE(says(status, "enough")) << status.to_string();
          }
        } else {
          group.abort("enough");
        }
        all.arrive_and_wait();
      },
      options());
}

// Each rank has its own kind of device.
TEST(DeviceGroup, DevicesOfSeveralKindsMeet) {
  const std::vector<std::string> plugins = {"cpu", "reference"};
  on_device_ranks(2, [&](DeviceGroup& group) {
    const Client& client = client_of(plugins[static_cast<size_t>(group.rank())]);
    EXPECT_EQ(floats_of(group.all_reduce(put(client, floats({1, 2, 3}))).result()),
              (std::vector<float>{2, 4, 6}));
  });
}

TEST(DeviceGroup, OptionsThatAreNoneAreNamedOnAllRanks) {
  on_ranks(2, [&](ProcessGroup& group) {
    const std::shared_ptr<ProcessGroup> shared(&group, [](ProcessGroup*) {});
    const auto made =
        DeviceGroup::create(shared, {.host_memory = group.rank() == 0 ? "auto" : "never"});
    EXPECT_TRUE(says(made.status(), "host_memory \"never\"")) << made.status().to_string();
  });
}

}  // namespace
}  // namespace hekla::process_group
