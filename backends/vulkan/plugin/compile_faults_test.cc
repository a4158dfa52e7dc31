// SPDX-License-Identifier: Apache-2.0
// A StableHLO program under errors of the driver: each call from its pipelines to its results fails
// once.
#include <gtest/gtest.h>

#include <future>

#include "backends/vulkan/codegen/target.h"
#include "backends/vulkan/device/testing/fault_injection.h"
#include "backends/vulkan/device/testing/test_device.h"
#include "backends/vulkan/launch/device_program.h"
#include "backends/vulkan/plugin/compile.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::vulkan {
namespace {

// A contraction, a sort, a gather with a constant, a loop whose iterations the data decide and a
// branch. For x = 0, 1, ... 15 in rows of four: 40 iterations that add 1 each, then the larger of
// two sums.
constexpr const char* kProgram = R"(
func.func @main(%x: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<f32>) {
  %order = stablehlo.constant dense<[[3], [2], [1], [0]]> : tensor<4x1xi32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %limit = stablehlo.constant dense<40.0> : tensor<f32>
  %sorted = "stablehlo.sort"(%x) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %gt = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %gt : tensor<i1>
  }) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %turned = "stablehlo.gather"(%sorted, %order) <{
      dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
      start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>}>
      : (tensor<4x4xf32>, tensor<4x1xi32>) -> tensor<4x4xf32>
  %product = stablehlo.dot_general %turned, %x, contracting_dims = [1] x [0]
      : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %loop:2 = stablehlo.while(%t = %zero, %y = %product) : tensor<f32>, tensor<4x4xf32>
    cond {
      %less = stablehlo.compare LT, %t, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %next = stablehlo.add %t, %one : tensor<f32>
      %ones = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<4x4xf32>
      %more = stablehlo.add %y, %ones : tensor<4x4xf32>
      stablehlo.return %next, %more : tensor<f32>, tensor<4x4xf32>
    }
  %sum = stablehlo.reduce(%loop#1 init: %zero) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<4x4xf32>, tensor<f32>) -> tensor<f32>
  %is_large = stablehlo.compare GT, %sum, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %chosen = "stablehlo.if"(%is_large) ({
      stablehlo.return %sum : tensor<f32>
  }, {
      stablehlo.return %zero : tensor<f32>
  }) : (tensor<i1>) -> tensor<f32>
  return %loop#1, %chosen : tensor<4x4xf32>, tensor<f32>
}
)";

class Sweep {
 public:
  Status open(std::shared_ptr<Device> device) {
    device_ = std::move(device);
    HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<Pipelines> pipelines, Pipelines::create(device_, ""));
    HEKLA_ASSIGN_OR_RETURN(logical_, LogicalDevice::create(device_, pipelines, 0, {}));
    return ok_status();
  }

  // Compiles, loads, uploads, launches, downloads and compares.
  Status run() {
    HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<const ir::Module> module,
                           stablehlo::read_program(kProgram));
    HEKLA_RETURN_IF_ERROR(ir::verify(*module));
    pjrt::CompileRequest request;
    request.module = std::move(module);
    DeviceSnapshot snapshot = device_->snapshot();
    snapshot.features = device_->plan().features;
    HEKLA_ASSIGN_OR_RETURN(auto program,
                           compile_program(request, make_target(snapshot), int64_t{1} << 30));
    ProgramOptions options;
    options.check_barriers = true;
    HEKLA_ASSIGN_OR_RETURN(const auto loaded,
                           DeviceProgram::load(logical_, std::move(program), options));
    std::vector<float> x(16);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    HEKLA_ASSIGN_OR_RETURN(const AllocationRef input, logical_->memory().allocate(64));
    HEKLA_RETURN_IF_ERROR(wait([&](Transfers::Done done) {
      logical_->transfers().upload(x.data(), input, 0, 64, std::move(done));
    }));
    LaunchRequest launch;
    launch.inputs = {{input, Completion::ready(), Completion::ready(), false}};
    launch.done = Completion::make();
    const CompletionRef done = launch.done;
    HEKLA_ASSIGN_OR_RETURN(const LaunchOutputs outputs, loaded->launch(launch));
    HEKLA_RETURN_IF_ERROR(done->await());
    float sum = 0;
    HEKLA_RETURN_IF_ERROR(wait([&](Transfers::Done finished) {
      logical_->transfers().download(outputs.memory[1], 0, &sum, 4, std::move(finished));
    }));
    // Rows sorted downwards and turned, times x, summed: sum_k (sum_i row_i[k]) * (sum_j x[k][j]),
    // all exact; and 40 for each of 16 elements.
    float want = 16 * 40;
    for (int k = 0; k < 4; ++k) {
      float column = 0;
      float row = 0;
      for (int i = 0; i < 4; ++i) {
        column += x[static_cast<size_t>(4 * i + 3 - k)];
        row += x[static_cast<size_t>(4 * k + i)];
      }
      want += column * row;
    }
    return sum == want ? ok_status() : internal_error("the sum is {}, not {}", sum, want);
  }

  Device& device() { return *device_; }
  void close() {
    if (logical_) logical_->close();
    logical_.reset();
    device_.reset();
  }

 private:
  static Status wait(const std::function<void(Transfers::Done)>& transfer) {
    std::promise<Status> promise;
    transfer([&](const Status& status) { promise.set_value(status); });
    return promise.get_future().get();
  }

  std::shared_ptr<Device> device_;
  std::shared_ptr<LogicalDevice> logical_;
};

// Out of memory: an error, and the next run is right. Device lost: an error, and the next run says
// so.
TEST(CompileFaults, EachCallOfTheDriver) {
  for (const VkResult fault : {VK_ERROR_OUT_OF_DEVICE_MEMORY, VK_ERROR_DEVICE_LOST}) {
    int struck = 0;
    int failed = 0;
    bool has_struck = true;
    for (int call = 0; has_struck; ++call) {
      ASSERT_LT(call, 2000) << "the sequence of calls does not end";
      // Pipelines are kept by what makes them: a device for each run meets all calls.
      HEKLA_VULKAN_TEST_DEVICE(device, {});
      Sweep sweep;
      testing::Faults& faults = testing::inject_faults(*device);
      ASSERT_TRUE(sweep.open(std::move(device)).ok());
      faults.arm(call, fault);
      const Status status = sweep.run();
      has_struck = faults.has_struck;
      faults.disarm();
      struck += has_struck ? 1 : 0;
      failed += status.ok() ? 0 : 1;
      EXPECT_NE(status.code(), StatusCode::kInternal) << faults.where << status.to_string();
      const Status again = sweep.run();
      if (fault == VK_ERROR_DEVICE_LOST && has_struck) {
        EXPECT_EQ(again.code(), StatusCode::kUnavailable) << faults.where << again.to_string();
      } else {
        EXPECT_TRUE(again.ok()) << again.to_string();
      }
      sweep.close();
    }
    EXPECT_GT(struck, 40);
    EXPECT_GT(failed, 20);
  }
  EXPECT_TRUE(testing::no_validation_messages());
}

}  // namespace
}  // namespace hekla::vulkan
