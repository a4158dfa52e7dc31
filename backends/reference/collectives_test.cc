// SPDX-License-Identifier: Apache-2.0
// Collectives inside of programs: control flow, calls, errors, asynchronous forms. Values of every
// collective against numpy are in tests/evaluator/collectives.py.
#include <gtest/gtest.h>

#include "backends/reference/evaluator.h"
#include "backends/reference/test_program.h"
#include "runtime/program/stablehlo/text/text_reader.h"

namespace hekla::reference {
namespace {

using Devices = std::vector<std::vector<HostArray>>;

Result<Devices> run(std::string_view text, Devices inputs, ir::DeviceGrid grid,
                    const EvaluateOptions& options = {}) {
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Module> module, stablehlo::read_text(text));
  HEKLA_RETURN_IF_ERROR(ir::verify(*module));
  HEKLA_RETURN_IF_ERROR(check_supported(*module, grid));
  return evaluate_devices(*module, std::move(inputs), grid, options);
}

// Device d gets the number d + 1.
Devices numbers(int64_t count) {
  Devices inputs;
  for (int64_t i = 0; i < count; ++i) {
    inputs.push_back({HostArray::scalar<int32_t>(DType::kI32, static_cast<int32_t>(i + 1))});
  }
  return inputs;
}

std::vector<int32_t> first_results(const Devices& devices) {
  std::vector<int32_t> values;
  for (const auto& results : devices) values.push_back(results[0].as<int32_t>()[0]);
  return values;
}

// An all_reduce of the operand, with the attributes' rest given.
std::string sum_of(std::string_view result, std::string_view operand, std::string_view attributes) {
  return fmt::format(R"({} = "stablehlo.all_reduce"({}) <{{{}}}> ({{
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %s = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %s : tensor<i32>
  }}) : (tensor<i32>) -> tensor<i32>)",
                     result, operand, attributes);
}

const char kReplicas4[] = "replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>";

TEST(Collectives, IdsAreThoseOfTheDevice) {
  const auto results = run(R"(func.func @main() -> (tensor<ui32>, tensor<ui32>) {
    %0 = stablehlo.replica_id : tensor<ui32>
    %1 = stablehlo.partition_id : tensor<ui32>
    return %0, %1 : tensor<ui32>, tensor<ui32>
  })",
                           Devices(6), {2, 3});
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  for (uint32_t d = 0; d < 6; ++d) {
    EXPECT_EQ((*results)[d][0].as<uint32_t>()[0], d / 3);
    EXPECT_EQ((*results)[d][1].as<uint32_t>()[0], d % 3);
  }
}

TEST(Collectives, RunInLoopsAndFunctions) {
  // Five times x = sum over the replicas of x, by a function that is called twice per iteration:
  // each call multiplies by four once the values are equal.
  const std::string text = fmt::format(R"(
    func.func @main(%x: tensor<i32>) -> tensor<i32> {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %five = stablehlo.constant dense<5> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<i32>
      cond {{
        %c = stablehlo.compare LT, %i, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        %n = stablehlo.add %i, %one : tensor<i32>
        %w = func.call @sum(%v) : (tensor<i32>) -> tensor<i32>
        %y = func.call @sum(%w) : (tensor<i32>) -> tensor<i32>
        stablehlo.return %n, %y : tensor<i32>, tensor<i32>
      }}
      return %r#1 : tensor<i32>
    }}
    func.func private @sum(%x: tensor<i32>) -> tensor<i32> {{
      {}
      return %0 : tensor<i32>
    }})",
                                       sum_of("%0", "%x", kReplicas4));
  const auto results = run(text, numbers(4), {4, 1});
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  EXPECT_EQ(first_results(*results), std::vector<int32_t>(4, 10 << 18));
}

TEST(Collectives, BranchesMayDifferBetweenGroups) {
  // Replicas 0 and 1 sum, 2 and 3 multiply.
  const char* text = R"(func.func @main(%x: tensor<i32>) -> tensor<i32> {
    %id = stablehlo.replica_id : tensor<ui32>
    %two = stablehlo.constant dense<2> : tensor<ui32>
    %low = stablehlo.compare LT, %id, %two : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    %r = "stablehlo.if"(%low) ({
      %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}> ({
      ^bb0(%a: tensor<i32>, %b: tensor<i32>):
        %s = stablehlo.add %a, %b : tensor<i32>
        stablehlo.return %s : tensor<i32>
      }) : (tensor<i32>) -> tensor<i32>
      stablehlo.return %0 : tensor<i32>
    }, {
      %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}> ({
      ^bb0(%a: tensor<i32>, %b: tensor<i32>):
        %s = stablehlo.multiply %a, %b : tensor<i32>
        stablehlo.return %s : tensor<i32>
      }) : (tensor<i32>) -> tensor<i32>
      stablehlo.return %0 : tensor<i32>
    }) : (tensor<i1>) -> tensor<i32>
    return %r : tensor<i32>
  })";
  const auto results = run(text, numbers(4), {4, 1});
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  EXPECT_EQ(first_results(*results), std::vector<int32_t>({3, 3, 12, 12}));
}

TEST(Collectives, ADivergentLoopIsAnErrorAndNotAHang) {
  // As many iterations as the device's number.
  const std::string text = fmt::format(R"(
    func.func @main(%x: tensor<i32>) -> tensor<i32> {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<i32>
      cond {{
        %c = stablehlo.compare LT, %i, %x : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        %n = stablehlo.add %i, %one : tensor<i32>
        {}
        stablehlo.return %n, %0 : tensor<i32>, tensor<i32>
      }}
      return %r#1 : tensor<i32>
    }})",
                                       sum_of("%0", "%v", kReplicas4));
  const Status status = run(text, numbers(4), {4, 1}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
  EXPECT_NE(status.message().find("stablehlo.all_reduce"), std::string::npos);
  EXPECT_NE(status.message().find("device 0 (replica 0, partition 0), which has finished"),
            std::string::npos)
      << status.to_string();
}

TEST(Collectives, AnErrorOfOneDeviceEndsAll) {
  const std::string text = fmt::format(R"(
    func.func @main(%x: tensor<i32>) -> tensor<i32> {{
      %three = stablehlo.constant dense<3> : tensor<i32>
      %id = stablehlo.replica_id : tensor<ui32>
      %i = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
      %low = stablehlo.minimum %i, %three : tensor<i32>
      %r = "stablehlo.case"(%low) ({{
        stablehlo.return %x : tensor<i32>
      }}, {{
        stablehlo.custom_call @check.expect_eq(%x, %three) {{has_side_effect = true}} : (tensor<i32>, tensor<i32>) -> ()
        stablehlo.return %x : tensor<i32>
      }}, {{
        stablehlo.return %x : tensor<i32>
      }}) : (tensor<i32>) -> tensor<i32>
      {}
      return %0 : tensor<i32>
    }})",
                                       sum_of("%0", "%r", kReplicas4));
  const Status status = run(text, numbers(4), {4, 1}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
  EXPECT_EQ(status.message().find("device 1 (replica 1, partition 0) failed"), 0U)
      << status.to_string();
}

TEST(Collectives, AsynchronousOnesOverlap) {
  // Both are under way before either ends; the region captures a value.
  const char* text = R"(func.func @main(%x: tensor<i32>) -> (tensor<i32>, tensor<2xi32>) {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %row = stablehlo.reshape %x : (tensor<i32>) -> tensor<1xi32>
    %f = "stablehlo.async_start"(%x) ({
    ^bb0(%p: tensor<i32>):
      %0 = "stablehlo.all_reduce"(%p) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
      ^bb0(%a: tensor<i32>, %b: tensor<i32>):
        %s = stablehlo.add %a, %b : tensor<i32>
        %t = stablehlo.add %s, %one : tensor<i32>
        stablehlo.return %t : tensor<i32>
      }) : (tensor<i32>) -> tensor<i32>
      stablehlo.return %0 : tensor<i32>
    }) : (tensor<i32>) -> !stablehlo.future<tensor<i32>>
    %g = "stablehlo.async_start"(%row) ({
    ^bb0(%p: tensor<1xi32>):
      %0 = "stablehlo.all_gather"(%p) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<1xi32>) -> tensor<2xi32>
      stablehlo.return %0 : tensor<2xi32>
    }) : (tensor<1xi32>) -> !stablehlo.future<tensor<2xi32>>
    %1 = "stablehlo.async_done"(%g) : (!stablehlo.future<tensor<2xi32>>) -> tensor<2xi32>
    %2 = "stablehlo.async_done"(%f) : (!stablehlo.future<tensor<i32>>) -> tensor<i32>
    return %2, %1 : tensor<i32>, tensor<2xi32>
  })";
  const auto results = run(text, numbers(2), {2, 1});
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  for (const auto& device : *results) {
    EXPECT_EQ(device[0].as<int32_t>()[0], 4);
    EXPECT_EQ(values_of<int32_t>(device[1]), std::vector<int32_t>({1, 2}));
  }
}

TEST(Collectives, RegionsMayComputeInAWiderType) {
  // 200 + 100 does not fit ui8.
  const char* text = R"(func.func @main(%x: tensor<2xui8>) -> tensor<2xui16> {
    %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
    ^bb0(%a: tensor<ui16>, %b: tensor<ui16>):
      %s = stablehlo.add %a, %b : tensor<ui16>
      stablehlo.return %s : tensor<ui16>
    }) : (tensor<2xui8>) -> tensor<2xui16>
    return %0 : tensor<2xui16>
  })";
  const auto results =
      run(text,
          {{array_of<uint8_t>(DType::kUI8, {200, 1})}, {array_of<uint8_t>(DType::kUI8, {100, 2})}},
          {2, 1});
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  EXPECT_EQ(values_of<uint16_t>((*results)[1][0]), std::vector<uint16_t>({300, 3}));
}

TEST(Collectives, QuantizedValuesMoveAndAdd) {
  const char* text = R"(
    func.func @main(%x: tensor<1x!quant.uniform<i8:f32, 0.5:3>>)
        -> (tensor<2x!quant.uniform<i8:f32, 0.5:3>>, tensor<1x!quant.uniform<i8:f32, 0.5:3>>,
            tensor<1x!quant.uniform<i8:f32, 0.5:3>>) {
      %0 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>}> : (tensor<1x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<2x!quant.uniform<i8:f32, 0.5:3>>
      %1 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
      ^bb0(%a: tensor<!quant.uniform<i8:f32, 0.5:3>>, %b: tensor<!quant.uniform<i8:f32, 0.5:3>>):
        %s = stablehlo.add %a, %b : tensor<!quant.uniform<i8:f32, 0.5:3>>
        stablehlo.return %s : tensor<!quant.uniform<i8:f32, 0.5:3>>
      }) : (tensor<1x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x!quant.uniform<i8:f32, 0.5:3>>
      %2 = "stablehlo.collective_permute"(%x) <{source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<1x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<1x!quant.uniform<i8:f32, 0.5:3>>
      return %0, %1, %2 : tensor<2x!quant.uniform<i8:f32, 0.5:3>>, tensor<1x!quant.uniform<i8:f32, 0.5:3>>, tensor<1x!quant.uniform<i8:f32, 0.5:3>>
    })";
  // 1 and 2 as reals; nobody sends to device 0, which gets the stored form of zero.
  const auto results =
      run(text, {{array_of<int8_t>(DType::kI8, {5})}, {array_of<int8_t>(DType::kI8, {7})}}, {2, 1});
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  for (const auto& device : *results) {
    EXPECT_EQ(values_of<int8_t>(device[0]), std::vector<int8_t>({7, 5}));
    EXPECT_EQ(values_of<int8_t>(device[1]), std::vector<int8_t>({9}));
  }
  EXPECT_EQ((*results)[0][2].as<int8_t>()[0], 3);
  EXPECT_EQ((*results)[1][2].as<int8_t>()[0], 5);
}

TEST(Collectives, GroupsThatDoNotFitTheLaunchAreRefused) {
  const auto refused = [](std::string_view attributes, ir::DeviceGrid grid) {
    const std::string text = fmt::format(
        "func.func @main(%x: tensor<i32>) -> tensor<i32> {{\n {}\n"
        "return %0 : tensor<i32> }}",
        sum_of("%0", "%x", attributes));
    return run(text, numbers(grid.size()), grid).status();
  };
  const Status beyond = refused(kReplicas4, {2, 2});
  EXPECT_EQ(beyond.code(), StatusCode::kUnimplemented);
  EXPECT_NE(beyond.message().find("replica 2; the launch has 2"), std::string::npos)
      << beyond.to_string();
  const Status missing = refused("replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>", {3, 1});
  EXPECT_NE(missing.message().find("replica 2 of 3 is in none"), std::string::npos)
      << missing.to_string();
  const Status channel =
      refused("replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids", {2, 1});
  EXPECT_EQ(channel.code(), StatusCode::kInvalidArgument) << channel.to_string();
  EXPECT_NE(channel.message().find("channel_handle above 0"), std::string::npos);
}

TEST(Collectives, ALaunchWithTheWrongNumberOfArgumentsIsRefused) {
  const Status status = run("func.func @main() { return }", Devices(3), {2, 2}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
}

TEST(Collectives, OneDeviceIsAGroupOfItsOwn) {
  const std::string text = fmt::format(
      "func.func @main(%x: tensor<i32>) -> tensor<i32> {{\n {}\n"
      "return %0 : tensor<i32> }}",
      sum_of("%0", "%x", "replica_groups = dense<0> : tensor<1x1xi64>"));
  std::unique_ptr<ir::Module> module = stablehlo::read_text(text).value();
  const auto result = evaluate(*module, {HostArray::scalar<int32_t>(DType::kI32, 7)});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ((*result)[0].as<int32_t>()[0], 7);
}

}  // namespace
}  // namespace hekla::reference
