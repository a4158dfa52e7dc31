// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/collectives_under_way.h"

#include <gtest/gtest.h>

#include <thread>

#include "backends/reference/device_exchange.h"
#include "runtime/program/stablehlo/text/text_reader.h"

namespace hekla::reference {
namespace {

std::unique_ptr<ir::Module> sum_of_two() {
  return std::move(*stablehlo::read_text(R"(func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }) : (tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32> })"));
}

std::unique_ptr<ir::Module> swap_of_two() {
  return std::move(*stablehlo::read_text(R"(func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    %0 = "stablehlo.collective_permute"(%x) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> : (tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32> })"));
}

// A device of a launch on two: its lane, and what it has under way.
struct Member {
  Member(int64_t id, DeviceExchange* exchange, bool has_lane = true)
      : under_way(has_lane ? &lane : nullptr) {
    options.replica_id = id;
    options.exchange = exchange;
  }
  Status start(int32_t number, const ir::Module& program, std::vector<float>& from,
               std::vector<float>& to) {
    const std::span<std::byte> in[] = {std::as_writable_bytes(std::span(from))};
    const std::span<std::byte> out[] = {std::as_writable_bytes(std::span(to))};
    return under_way.start(number, program, in, out, options);
  }
  EvaluateOptions options;
  SerialQueue lane;
  CollectivesUnderWay under_way;
};

TEST(CollectivesUnderWay, ADeviceGoesOnWhileItsPeerHasNotCome) {
  const auto program = sum_of_two(), swap = swap_of_two();
  DeviceExchange exchange({2, 1});
  std::vector<float> in0{1, 2}, in1{10, 20}, sum0(2), sum1(2), other0(2), other1(2);
  Member first(0, &exchange), second(1, &exchange);
  // All of it on this thread: nothing but an await may wait for the peer.
  ASSERT_TRUE(first.start(0, *program, in0, sum0).ok());
  ASSERT_TRUE(first.start(1, *swap, in0, other0).ok());
  ASSERT_TRUE(second.start(5, *program, in1, sum1).ok());
  ASSERT_TRUE(second.start(6, *swap, in1, other1).ok());
  // Not in the order of the starts.
  for (const int32_t number : {1, 0}) ASSERT_TRUE(first.under_way.await(number).ok());
  for (const int32_t number : {5, 6}) ASSERT_TRUE(second.under_way.await(number).ok());
  EXPECT_EQ(sum0, (std::vector<float>{11, 22}));
  EXPECT_EQ(sum1, sum0);
  EXPECT_EQ(other0, in1);
  EXPECT_EQ(other1, in0);
}

TEST(CollectivesUnderWay, AloneItHasEndedWhenItStarts) {
  const auto program = std::move(*stablehlo::read_text(
      R"(func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    %0 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0]]> : tensor<1x1xi64>}> : (tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32> })"));
  std::vector<float> in{3, 4}, out(2);
  Member member(0, nullptr, /*has_lane=*/false);
  ASSERT_TRUE(member.start(0, *program, in, out).ok());
  EXPECT_EQ(out, in);
  EXPECT_FALSE(member.start(0, *program, in, out).ok()) << "it is under way";
  EXPECT_TRUE(member.under_way.await(0).ok());
  EXPECT_FALSE(member.under_way.await(0).ok()) << "it has ended";
}

TEST(CollectivesUnderWay, APeerThatHasFinishedEndsTheWait) {
  const auto program = sum_of_two();
  DeviceExchange exchange({2, 1});
  std::vector<float> in{1, 2}, out(2);
  Member member(0, &exchange);
  ASSERT_TRUE(member.start(0, *program, in, out).ok());
  std::thread peer([&] { static_cast<void>(exchange.finish(1, ok_status())); });
  const Status end = member.under_way.await(0);
  peer.join();
  EXPECT_EQ(end.code(), StatusCode::kFailedPrecondition) << end.to_string();
  EXPECT_NE(end.message().find("has finished"), std::string::npos) << end.to_string();
}

TEST(CollectivesUnderWay, TwoThatAwaitDifferentThingsAreFound) {
  const auto program = sum_of_two();
  DeviceExchange exchange({2, 1});
  std::vector<float> in{1, 2}, out0(2), out1(2);
  Member first(0, &exchange), second(1, &exchange);
  ASSERT_TRUE(first.start(0, *program, in, out0).ok());
  std::thread peer([&] {
    // Never started by the other one.
    const DeviceExchange::Site site{3, "all_gather at b.py:2"};
    const auto ticket = exchange.post(1, site, {0, 1}, {});
    EXPECT_EQ(exchange.collect(1, site, *ticket).status().code(), StatusCode::kFailedPrecondition);
  });
  const Status end = first.under_way.await(0);
  peer.join();
  EXPECT_NE(end.message().find("b.py:2"), std::string::npos) << end.to_string();
}

TEST(CollectivesUnderWay, ALaunchThatEndsCallsOffWhatItStarted) {
  const auto program = sum_of_two();
  for (int round = 0; round < 50; ++round) {
    DeviceExchange exchange({2, 1});
    std::vector<float> in{1, 2}, out(2);
    Member member(0, &exchange);
    ASSERT_TRUE(member.start(0, *program, in, out).ok());
    ASSERT_TRUE(member.start(1, *program, in, out).ok());
  }
}

TEST(CollectivesUnderWay, AnAbortEndsTheWait) {
  const auto program = sum_of_two();
  DeviceExchange exchange({2, 1});
  std::vector<float> in{1, 2}, out(2);
  Member member(0, &exchange);
  ASSERT_TRUE(member.start(0, *program, in, out).ok());
  std::thread other([&] { exchange.abort(data_loss("gone")); });
  EXPECT_NE(member.under_way.await(0).message().find("gone"), std::string::npos);
  other.join();
}

}  // namespace
}  // namespace hekla::reference
