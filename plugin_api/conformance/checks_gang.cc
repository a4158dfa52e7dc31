// SPDX-License-Identifier: Apache-2.0
// Launches of one program on several devices: replicas, partitions, errors of one of them.
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "plugin_api/conformance/check.h"
#include "plugin_api/conformance/programs.h"
#include "plugin_api/conformance/session.h"

namespace hekla::conformance {
namespace {

using Floats = std::vector<float>;

// a f32[4] -> a + the partition's number, which is a donated.
constexpr std::string_view kAddPartition = R"(module @add_partition {
  func.func @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
    %p = stablehlo.partition_id : tensor<ui32>
    %f = stablehlo.convert %p : (tensor<ui32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %r = stablehlo.add %a, %b : tensor<4xf32>
    return %r : tensor<4xf32>
  }
})";
constexpr std::string_view kAddReplica = R"(module @add_replica {
  func.func @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
    %p = stablehlo.replica_id : tensor<ui32>
    %f = stablehlo.convert %p : (tensor<ui32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %r = stablehlo.add %a, %b : tensor<4xf32>
    return %r : tensor<4xf32>
  }
})";
// (a f32[4], steps i32) -> a after so many steps of x = x / 2 + 1.
constexpr std::string_view kSteps = R"(module @steps {
  func.func @main(%a: tensor<4xf32>, %steps: tensor<i32>) -> tensor<4xf32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %half = stablehlo.constant dense<0.5> : tensor<4xf32>
    %ones = stablehlo.constant dense<1.0> : tensor<4xf32>
    %r:2 = "stablehlo.while"(%zero, %a) ({
    ^bb0(%i: tensor<i32>, %x: tensor<4xf32>):
      %more = stablehlo.compare LT, %i, %steps, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    }, {
    ^bb0(%i: tensor<i32>, %x: tensor<4xf32>):
      %next = stablehlo.add %i, %one : tensor<i32>
      %scaled = stablehlo.multiply %x, %half : tensor<4xf32>
      %moved = stablehlo.add %scaled, %ones : tensor<4xf32>
      stablehlo.return %next, %moved : tensor<i32>, tensor<4xf32>
    }) : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>)
    return %r#1 : tensor<4xf32>
  }
})";

// An executable on all devices, and its launches.
class Gang {
 public:
  // `is_reversed`: partition 0 is on the last device.
  Gang(Session& s, std::string_view program, bool is_replicated, bool is_reversed = false)
      : s_(s), devices_(s.addressable_devices()) {
    s.device(1);  // needs two
    if (is_reversed) std::reverse(devices_.begin(), devices_.end());
    CompileSettings settings;
    settings.device_ids.clear();
    for (PJRT_Device* device : devices_) settings.device_ids.push_back(s.device_id(device));
    const int count = static_cast<int>(devices_.size());
    (is_replicated ? settings.replicas : settings.partitions) = count;
    settings.use_spmd_partitioning = false;
    PJRT_LoadedExecutable* executable = nullptr;
    if (auto error =
            s.try_compile(program, "mlir", compile_options(settings), &executable, nullptr)) {
      if (error->code == PJRT_Error_Code_UNIMPLEMENTED) throw NotOffered{error->text()};
      fail("compiling for " + std::to_string(count) + " devices: " + error->text());
    }
    executable_ = executable;
  }

  size_t size() const { return devices_.size(); }
  PJRT_Device* device(size_t d) const { return devices_[d]; }

  // arguments[d] for the d-th device.
  std::optional<ErrorInfo> try_launch(const std::vector<std::vector<PJRT_Buffer*>>& arguments) {
    outputs_.assign(size(), nullptr);
    events_.assign(size(), nullptr);
    std::vector<PJRT_Buffer* const*> lists;
    std::vector<PJRT_Buffer**> output_lists;
    for (size_t d = 0; d < size(); ++d) {
      lists.push_back(arguments[d].data());
      output_lists.push_back(&outputs_[d]);
    }
    auto options = make_args<PJRT_ExecuteOptions>();
    auto args = make_args<PJRT_LoadedExecutable_Execute_Args>();
    args.executable = executable_;
    args.options = &options;
    args.argument_lists = lists.data();
    args.num_devices = size();
    args.num_args = arguments[0].size();
    args.output_lists = output_lists.data();
    args.device_complete_events = events_.data();
    auto error = s_.try_call(HEKLA_SLOT(PJRT_LoadedExecutable_Execute), &args);
    for (size_t d = 0; d < size() && !error; ++d) {
      require(outputs_[d] != nullptr && events_[d] != nullptr, "an output or event is null");
      s_.own(outputs_[d]);
    }
    return error;
  }
  void launch(const std::vector<std::vector<PJRT_Buffer*>>& arguments) {
    if (auto error = try_launch(arguments)) fail("the launch: " + error->text());
  }
  std::optional<ErrorInfo> finish(size_t d) { return s_.finish_event(events_[d]); }
  PJRT_Buffer* output(size_t d) const { return outputs_[d]; }

  std::vector<std::vector<PJRT_Buffer*>> upload_each(const Floats& values) {
    std::vector<std::vector<PJRT_Buffer*>> arguments;
    for (PJRT_Device* device : devices_) {
      arguments.push_back({s_.upload_f32(values, {4}, device)});
    }
    return arguments;
  }

 private:
  Session& s_;
  std::vector<PJRT_Device*> devices_;
  PJRT_LoadedExecutable* executable_ = nullptr;
  std::vector<PJRT_Buffer*> outputs_;
  std::vector<PJRT_Event*> events_;
};

void check_numbers(Session& s, Gang& gang) {
  constexpr int kLaunches = 10;  // one after the other, each on the results of the one before
  auto arguments = gang.upload_each({0, 1, 2, 3});
  for (int i = 0; i < kLaunches; ++i) {
    gang.launch(arguments);
    for (size_t d = 0; d < gang.size(); ++d) {
      if (auto error = gang.finish(d)) fail(error->text());
      auto where = make_args<PJRT_Buffer_Device_Args>();
      where.buffer = gang.output(d);
      s.call(HEKLA_SLOT(PJRT_Buffer_Device), &where);
      require(where.device == gang.device(d), "an output is on another device");
      arguments[d] = {gang.output(d)};
    }
  }
  for (size_t d = 0; d < gang.size(); ++d) {
    const float sum = kLaunches * static_cast<float>(d);
    require(s.download_f32(gang.output(d), 4) == Floats({sum, sum + 1, sum + 2, sum + 3}),
            "wrong result at number " + std::to_string(d));
  }
  s.remark(std::to_string(gang.size()) + " devices");
}

void check_partitions(Session& s) {
  Gang gang(s, kAddPartition, /*is_replicated=*/false);
  check_numbers(s, gang);
}
void check_replicas(Session& s) {
  Gang gang(s, kAddReplica, /*is_replicated=*/true);
  check_numbers(s, gang);
}
void check_assignment_order(Session& s) {
  Gang gang(s, kAddPartition, /*is_replicated=*/false, /*is_reversed=*/true);
  check_numbers(s, gang);
}

void check_refused(Session& s) {
  Gang gang(s, kAddPartition, /*is_replicated=*/false);
  const auto good = gang.upload_each({0, 1, 2, 3});
  auto bad = good;
  bad.back() = {s.upload_f32({1, 2, 3}, {3}, gang.device(gang.size() - 1))};
  auto error = gang.try_launch(bad);
  require(error.has_value(), "an argument of another shape on the last device is accepted");
  for (size_t d = 0; d < gang.size(); ++d) {
    require(gang.output(d) == nullptr, "a failed Execute wrote outputs");
    require(!s.is_deleted(good[d][0]), "a failed Execute consumed a donated argument");
  }
  auto deleted = good;
  deleted.back() = {s.upload_f32({1, 2, 3, 4}, {4}, gang.device(gang.size() - 1))};
  s.delete_buffer(deleted.back()[0]);
  error = gang.try_launch(deleted);
  require(error.has_value(), "a deleted argument on the last device is accepted");
  for (size_t d = 0; d < gang.size(); ++d) {
    require(!s.is_deleted(good[d][0]), "a failed Execute consumed a donated argument");
  }
  gang.launch(good);
  for (size_t d = 0; d < gang.size(); ++d) {
    if (auto e = gang.finish(d)) fail(e->text());
    const auto sum = static_cast<float>(d);
    require(s.download_f32(gang.output(d), 4) == Floats({sum, sum + 1, sum + 2, sum + 3}),
            "wrong result after a refused launch");
  }
}

// A scalar of one device whose making fails when fail() is called.
class FailingScalar {
 public:
  FailingScalar(Session& s, PJRT_Device* device) : s_(s) {
    spec_ = make_args<PJRT_ShapeSpec>();
    spec_.element_type = PJRT_Buffer_Type_S32;
    auto args = make_args<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>();
    args.client = s.client();
    args.shape_specs = &spec_;
    args.num_shape_specs = 1;
    args.memory = s.default_memory(device);
    s.call_optional(HEKLA_SLOT(PJRT_Client_CreateBuffersForAsyncHostToDevice), &args);
    manager_ = args.transfer_manager;
    auto retrieve = make_args<PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args>();
    retrieve.transfer_manager = manager_;
    s.call(HEKLA_SLOT(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer), &retrieve);
    buffer_ = retrieve.buffer_out;
    s.own(buffer_);
  }
  PJRT_Buffer* buffer() const { return buffer_; }
  void fail_now(const std::string& message) {
    auto args = make_args<PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args>();
    args.transfer_manager = manager_;
    args.error_code = PJRT_Error_Code_DATA_LOSS;
    args.error_message = message.data();
    args.error_message_size = message.size();
    s_.call_optional(HEKLA_SLOT(PJRT_AsyncHostToDeviceTransferManager_SetBufferError), &args);
  }
  void destroy() {
    auto args = make_args<PJRT_AsyncHostToDeviceTransferManager_Destroy_Args>();
    args.transfer_manager = manager_;
    s_.call(HEKLA_SLOT(PJRT_AsyncHostToDeviceTransferManager_Destroy), &args);
  }

 private:
  Session& s_;
  PJRT_ShapeSpec spec_;
  PJRT_AsyncHostToDeviceTransferManager* manager_ = nullptr;
  PJRT_Buffer* buffer_ = nullptr;
};

void check_error_ends_all(Session& s) {
  using Clock = std::chrono::steady_clock;
  Gang gang(s, kSteps, /*is_replicated=*/false);
  const int32_t for_ever = INT32_MAX;
  auto arguments = gang.upload_each({1, 1, 1, 1});
  const size_t failing = gang.size() / 2;
  FailingScalar scalar(s, gang.device(failing));
  for (size_t d = 0; d < gang.size(); ++d) {
    HostData steps;
    steps.type = PJRT_Buffer_Type_S32;
    steps.data = &for_ever;
    steps.memory = s.default_memory(gang.device(d));
    arguments[d].push_back(d == failing ? scalar.buffer() : s.upload(steps));
  }
  gang.launch(arguments);
  // Long enough for the others to be in the middle of their steps.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const Clock::time_point start = Clock::now();
  scalar.fail_now("the input broke");
  for (size_t d = 0; d < gang.size(); ++d) {
    auto error = gang.finish(d);
    require(error.has_value(), "number " + std::to_string(d) + " ended without an error");
    require(error->message.find("the input broke") != std::string::npos,
            "number " + std::to_string(d) + " ended with another error: " + error->text());
    require(s.download_error(gang.output(d), 16).has_value(),
            "the output of number " + std::to_string(d) + " can be read");
  }
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  s.remark("all ended after " + std::to_string(took.count()) + " ms");
  // The promise is 100 ms on an idle machine.
  require(took < std::chrono::seconds(10),
          "the others went on for " + std::to_string(took.count()) + " ms");
  scalar.destroy();
  // The devices are none the worse.
  const int32_t two = 2;
  for (size_t d = 0; d < gang.size(); ++d) {
    HostData steps;
    steps.type = PJRT_Buffer_Type_S32;
    steps.data = &two;
    steps.memory = s.default_memory(gang.device(d));
    arguments[d][1] = s.upload(steps);
  }
  gang.launch(arguments);
  for (size_t d = 0; d < gang.size(); ++d) {
    if (auto error = gang.finish(d)) fail("after an error: " + error->text());
    require(s.download_f32(gang.output(d), 4) == Floats(4, 1.75f), "wrong result after an error");
  }
}

void check_assignment_twice(Session& s) {
  CompileSettings settings;
  settings.replicas = 2;
  const int id = s.device_id(s.device());
  settings.device_ids = {id, id};
  PJRT_LoadedExecutable* executable = nullptr;
  const auto error =
      s.try_compile(kAddOne, "mlir", compile_options(settings), &executable, nullptr);
  require(error.has_value(), "one device is assigned two replicas");
}

// a f32[4] -> the sum over both replicas.
constexpr std::string_view kSumOfTwo = R"(module @sum_of_two {
  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = "stablehlo.all_reduce"(%a) ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
})";

// A process whose other thread has failed ends although nobody will come to the collective.
void check_waiting_alone(Session& s) {
  s.device(1);  // needs two
  CompileSettings settings;
  settings.replicas = 2;
  settings.device_ids = {s.device_id(s.device(0)), s.device_id(s.device(1))};
  PJRT_LoadedExecutable* executable = nullptr;
  if (auto error =
          s.try_compile(kSumOfTwo, "mlir", compile_options(settings), &executable, nullptr)) {
    throw NotOffered{error->text()};
  }
  LaunchOptions options;
  options.execute_device = s.device(0);
  Launch launch;
  if (auto error = s.try_execute(executable, {s.upload_f32({1, 2, 3, 4}, {4})}, options, &launch)) {
    throw NotOffered{error->text()};
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  require(!s.is_ready(launch.done), "one of two devices ended its collective alone");
  s.destroy_event(launch.done);
  s.finish();  // buffers, the executable and the client go
}

constexpr Check kGangChecks[] = {
    {"gang-partitions", "Each partition runs on its device and knows its number.",
     check_partitions},
    {"gang-replicas", "Each replica runs on its device and knows its number.", check_replicas},
    {"gang-assignment", "Devices are those of the assignment, in its order.",
     check_assignment_order},
    {"gang-assignment-twice", "An assignment that names a device twice is refused.",
     check_assignment_twice},
    {"gang-refused",
     "A launch that is refused for one device leaves the inputs of all as they were.",
     check_refused},
    {"gang-waiting-alone",
     "A client can be destroyed while a device waits for one that was never launched.",
     check_waiting_alone},
    {"gang-error", "An error of one device soon ends the launch on all others, with that error.",
     check_error_ends_all},
};

}  // namespace

std::span<const Check> gang_checks() { return kGangChecks; }

}  // namespace hekla::conformance
