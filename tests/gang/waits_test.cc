// SPDX-License-Identifier: Apache-2.0
// Gangs of which some device is late: its peers wait for it no longer than they are told to, and
// callbacks of a gang may launch gangs.
#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/gang/gang_fixture.h"

namespace hekla::runtime {
namespace {

// %sum: that of `value` over all partitions.
std::string sum_of(const std::string& value) {
  return R"(
    %sum = "stablehlo.all_reduce"()" +
         value + R"() ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {
      replica_groups = dense<[[0,1,2,3,4,5,6,7]]> : tensor<1x8xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 9, type = 1>, use_global_device_ids
    } : (tensor<4xf32>) -> tensor<4xf32>
)";
}

// The sum over all partitions, of which number 3 first goes through a loop.
const std::string kLateSum = R"(module @late_sum {
  func.func @main(%a: tensor<4xf32>, %steps: tensor<i32>) -> tensor<4xf32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %three = stablehlo.constant dense<3> : tensor<ui32>
    %half = stablehlo.constant dense<0.5> : tensor<4xf32>
    %p = stablehlo.partition_id : tensor<ui32>
    %is = stablehlo.compare EQ, %p, %three, UNSIGNED : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    %count = stablehlo.select %is, %steps, %one : tensor<i1>, tensor<i32>
    %r:2 = "stablehlo.while"(%zero, %a) ({
    ^bb0(%i: tensor<i32>, %x: tensor<4xf32>):
      %more = stablehlo.compare LT, %i, %count, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    }, {
    ^bb0(%i: tensor<i32>, %x: tensor<4xf32>):
      %next = stablehlo.add %i, %one : tensor<i32>
      %y = stablehlo.multiply %x, %half : tensor<4xf32>
      stablehlo.return %next, %y : tensor<i32>, tensor<4xf32>
    }) : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>))" +
                             sum_of("%r#1") + R"(    return %sum : tensor<4xf32>
  }
})";

const std::string kSum = R"(module @sum {
  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {)" +
                         sum_of("%a") + R"(    return %sum : tensor<4xf32>
  }
})";

// a -> what the host answers on channel 2, plus a.
constexpr std::string_view kAsk = R"(module @ask {
  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %t0 = stablehlo.create_token : !stablehlo.token
    %t1 = "stablehlo.send"(%a, %t0) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true, mhlo.frontend_attributes = {_xla_host_transfer_handler_name = "pjrt_rendezvous", _xla_host_transfer_rendezvous = "1"}} : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
    %r:2 = "stablehlo.recv"(%t1) {channel_handle = #stablehlo.channel_handle<handle = 2, type = 3>, is_host_transfer = true, mhlo.frontend_attributes = {_xla_host_transfer_handler_name = "pjrt_rendezvous", _xla_host_transfer_rendezvous = "2"}} : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
    %s = stablehlo.add %r#0, %a : tensor<4xf32>
    return %s : tensor<4xf32>
  }
})";

// The sum over all partitions of what the host answers, plus a.
const std::string kAskAndSum = R"(module @ask_and_sum {
  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %t0 = stablehlo.create_token : !stablehlo.token
    %t1 = "stablehlo.send"(%a, %t0) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true, mhlo.frontend_attributes = {_xla_host_transfer_handler_name = "pjrt_rendezvous", _xla_host_transfer_rendezvous = "1"}} : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
    %r:2 = "stablehlo.recv"(%t1) {channel_handle = #stablehlo.channel_handle<handle = 2, type = 3>, is_host_transfer = true, mhlo.frontend_attributes = {_xla_host_transfer_handler_name = "pjrt_rendezvous", _xla_host_transfer_rendezvous = "2"}} : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token))" +
                               sum_of("%r#0") + R"(    %s = stablehlo.add %sum, %a : tensor<4xf32>
    return %s : tensor<4xf32>
  }
})";

// Partition 3 goes through %steps iterations and fails at a check; the others are in a convolution,
// and then in a loop of %rounds softmaxes over rows.
constexpr std::string_view kFailsWhileOthersWork = R"(module @fails_while_others_work {
  func.func @main(%a: tensor<f32>, %steps: tensor<i32>, %rounds: tensor<i32>) -> tensor<f32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %three = stablehlo.constant dense<3> : tensor<ui32>
    %yes = stablehlo.constant dense<true> : tensor<i1>
    %p = stablehlo.partition_id : tensor<ui32>
    %is = stablehlo.compare EQ, %p, %three, UNSIGNED : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    %not = stablehlo.not %is : tensor<i1>
    %r = "stablehlo.if"(%is) ({
      %l:2 = "stablehlo.while"(%zero, %a) ({
      ^bb0(%i: tensor<i32>, %x: tensor<f32>):
        %more = stablehlo.compare LT, %i, %steps, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %more : tensor<i1>
      }, {
      ^bb0(%i: tensor<i32>, %x: tensor<f32>):
        %next = stablehlo.add %i, %one : tensor<i32>
        %y = stablehlo.multiply %x, %x : tensor<f32>
        stablehlo.return %next, %y : tensor<i32>, tensor<f32>
      }) : (tensor<i32>, tensor<f32>) -> (tensor<i32>, tensor<f32>)
      stablehlo.return %l#1 : tensor<f32>
    }, {
      %x = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<1x$Nx$Nx$Nx8xf32>
      %k = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<$Kx$Kx$Kx8x8xf32>
      %c = "stablehlo.convolution"(%x, %k) {
        window_strides = array<i64: 1, 1, 1>, feature_group_count = 1 : i64, batch_group_count = 1 : i64,
        dimension_numbers = #stablehlo.conv<[b, 0, 1, 2, f]x[0, 1, 2, i, o]->[b, 0, 1, 2, f]>
      } : (tensor<1x$Nx$Nx$Nx8xf32>, tensor<$Kx$Kx$Kx8x8xf32>) -> tensor<1x$Ox$Ox$Ox8xf32>
      %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %none = stablehlo.constant dense<0.0> : tensor<f32>
      %peak = stablehlo.reduce(%c init: %low) applies stablehlo.maximum across dimensions = [0, 1, 2, 3, 4] : (tensor<1x$Ox$Ox$Ox8xf32>, tensor<f32>) -> tensor<f32>
      %rows = stablehlo.broadcast_in_dim %peak, dims = [] : (tensor<f32>) -> tensor<$Rx$Cxf32>
      %l:2 = "stablehlo.while"(%zero, %rows) ({
      ^bb0(%i: tensor<i32>, %v: tensor<$Rx$Cxf32>):
        %more = stablehlo.compare LT, %i, %rounds, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %more : tensor<i1>
      }, {
      ^bb0(%i: tensor<i32>, %v: tensor<$Rx$Cxf32>):
        %next = stablehlo.add %i, %one : tensor<i32>
        %m = stablehlo.reduce(%v init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<$Rx$Cxf32>, tensor<f32>) -> tensor<$Rxf32>
        %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<$Rxf32>) -> tensor<$Rx$Cxf32>
        %d = stablehlo.subtract %v, %mb : tensor<$Rx$Cxf32>
        %e = stablehlo.exponential %d : tensor<$Rx$Cxf32>
        %s = stablehlo.reduce(%e init: %none) applies stablehlo.add across dimensions = [1] : (tensor<$Rx$Cxf32>, tensor<f32>) -> tensor<$Rxf32>
        %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<$Rxf32>) -> tensor<$Rx$Cxf32>
        %q = stablehlo.divide %e, %sb : tensor<$Rx$Cxf32>
        stablehlo.return %next, %q : tensor<i32>, tensor<$Rx$Cxf32>
      }) : (tensor<i32>, tensor<$Rx$Cxf32>) -> (tensor<i32>, tensor<$Rx$Cxf32>)
      %all = stablehlo.reduce(%l#1 init: %none) applies stablehlo.add across dimensions = [0, 1] : (tensor<$Rx$Cxf32>, tensor<f32>) -> tensor<f32>
      stablehlo.return %all : tensor<f32>
    }) : (tensor<i1>) -> tensor<f32>
    %first = stablehlo.is_finite %r : (tensor<f32>) -> tensor<i1>
    %any = stablehlo.or %first, %yes : tensor<i1>
    %good = stablehlo.and %any, %not : tensor<i1>
    check.expect_eq %good, %yes : tensor<i1>, tensor<i1>
    return %r : tensor<f32>
  }
})";

std::string replaced(std::string text, std::string_view from, int64_t number) {
  const std::string to = std::to_string(number);
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

PJRT_Error* let_go(PJRT_Chunk* chunk, PJRT_CallbackError*, size_t, bool, void*) {
  if (chunk->deleter != nullptr) chunk->deleter(chunk->data, chunk->deleter_arg);
  return nullptr;
}

// A device's host: answers on channel 2 with four numbers, when and as `answer` says.
struct Host {
  const PJRT_Api* api = nullptr;
  std::function<float()> answer;

  static void receive(PJRT_CopyToDeviceStream* stream, void* self) {
    static_cast<Host*>(self)->fill(stream);
  }
  void fill(PJRT_CopyToDeviceStream* stream) const {
    auto* values = new std::array<float, 4>;
    values->fill(answer());
    PJRT_Chunk chunk = {};
    chunk.data = values->data();
    chunk.size = sizeof(*values);
    chunk.deleter = [](void*, void* array) { delete static_cast<std::array<float, 4>*>(array); };
    chunk.deleter_arg = values;
    PJRT_CopyToDeviceStream_AddChunk_Args add = {};
    add.struct_size = sizeof(add);
    add.stream = stream;
    add.chunk = &chunk;
    destroy(api->PJRT_CopyToDeviceStream_AddChunk(&add));
    if (add.transfer_complete != nullptr) {
      PJRT_Event_Destroy_Args event = {};
      event.struct_size = sizeof(event);
      event.event = add.transfer_complete;
      destroy(api->PJRT_Event_Destroy(&event));
    }
    PJRT_CopyToDeviceStream_Destroy_Args end = {};
    end.struct_size = sizeof(end);
    end.stream = stream;
    destroy(api->PJRT_CopyToDeviceStream_Destroy(&end));
  }
  void destroy(PJRT_Error* error) const {
    if (error == nullptr) return;
    PJRT_Error_Destroy_Args args = {};
    args.struct_size = sizeof(args);
    args.error = error;
    api->PJRT_Error_Destroy(&args);
  }
};

LaunchOptions meeting(std::vector<Host>& hosts) {
  LaunchOptions options;
  for (Host& host : hosts) {
    options.sends.push_back({{1, nullptr, let_go}});
    options.receives.push_back({{2, &host, Host::receive}});
  }
  return options;
}

std::vector<std::vector<const Buffer*>> each_of(const std::vector<Buffer>& buffers) {
  std::vector<std::vector<const Buffer*>> lists;
  for (const Buffer& buffer : buffers) lists.push_back({&buffer});
  return lists;
}

class GangWaitsTest : public GangFixture {
 protected:
  // The output of a launch on device 3 alone, which is there when `release` is called.
  Buffer held(const std::shared_ptr<std::promise<void>>& release) {
    CompileOptions options;
    options.device_ids = {client_->addressable_devices()[3].id()};
    auto ask = client_->compile(kAsk, options);
    EXPECT_TRUE(ask.ok()) << ask.status().to_string();
    asks_.push_back(*std::move(ask));
    holders_.push_back(std::make_unique<std::vector<Host>>(1));
    auto until = std::make_shared<std::shared_future<void>>(release->get_future());
    holders_.back()->front() = {&client_->plugin().api(), [until] {
                                  until->wait();
                                  return 1.0F;
                                }};
    const Buffer one = upload(floats({4}, 1), 3);
    const std::vector<const Buffer*> arguments = {&one};
    auto launch = asks_.back().launch(std::span(&arguments, 1), meeting(*holders_.back()));
    EXPECT_TRUE(launch.ok()) << launch.status().to_string();
    Buffer output = std::move(launch->outputs[0][0]);
    held_.push_back(*std::move(launch));
    return output;
  }
  void TearDown() override {
    for (const Launch& launch : held_) EXPECT_TRUE(launch.await(minute()).ok());
  }
  // A sum over all devices, launched, whose input on device 3 is there when `release` is called.
  struct LateSum {
    std::shared_ptr<std::promise<void>> release = std::make_shared<std::promise<void>>();
    std::vector<Buffer> a;
    std::optional<Buffer> late;
    std::optional<Executable> sum;
    std::optional<Launch> launch;
  };
  void launch_late_sum(LateSum& to) {
    auto sum = compile(kSum);
    ASSERT_TRUE(sum.ok()) << sum.status().to_string();
    to.sum.emplace(*std::move(sum));
    to.a = upload_to_all(floats({4}, 1));
    to.late.emplace(held(to.release));
    std::vector<std::vector<const Buffer*>> arguments = each_of(to.a);
    arguments[3] = {&*to.late};
    auto launch = to.sum->launch(arguments);
    ASSERT_TRUE(launch.ok()) << launch.status().to_string();
    to.launch.emplace(*std::move(launch));
  }
  static Deadline minute() { return Deadline::in(std::chrono::seconds(120)); }

  std::vector<Executable> asks_;
  std::vector<std::unique_ptr<std::vector<Host>>> holders_;
  std::vector<Launch> held_;
};

TEST_P(GangWaitsTest, ADeadlineNamesTheDeviceThatDoesNotComeToACollective) {
  make_client({{"gang_deadline_seconds", int64_t{1}}});
  auto executable = compile(kLateSum);
  ASSERT_TRUE(executable.ok()) << executable.status().to_string();
  const std::vector<Buffer> a = upload_to_all(floats({4}, 1));
  const std::vector<Buffer> steps =
      upload_to_all(HostArray::from<int32_t>(DType::kI32, {}, std::vector<int32_t>{INT32_MAX}));
  std::vector<std::vector<const Buffer*>> arguments;
  for (size_t d = 0; d < kDevices; ++d) arguments.push_back({&a[d], &steps[d]});
  auto launch = executable->launch(arguments);
  ASSERT_TRUE(launch.ok()) << launch.status().to_string();
  for (const Event& done : launch->done) {
    const Status status = done.await(minute());
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    for (const std::string& text : {std::string("late_sum on 8 devices"), std::string("all_reduce"),
                                    "for " + device_name(3), device_name(3) + " runs"}) {
      EXPECT_NE(status.message().find(text), std::string::npos) << status.to_string();
    }
  }
}

// The host of device 3 answers late.
TEST_P(GangWaitsTest, TheLogNamesWhoIsLateOnce) {
  make_client({{"gang_warning_seconds", int64_t{1}}});
  auto sum = compile(kAskAndSum);
  ASSERT_TRUE(sum.ok()) << sum.status().to_string();
  const std::vector<Buffer> a = upload_to_all(floats({4}, 1));
  const auto release = std::make_shared<std::promise<void>>();
  const std::shared_future<void> released = release->get_future();
  std::vector<Host> hosts(kDevices, Host{&client_->plugin().api(), [] { return 2.0F; }});
  hosts[3].answer = [&] {
    released.wait();
    return 2.0F;
  };
  testing::internal::CaptureStderr();
  auto launch = sum->launch(each_of(a), meeting(hosts));
  std::string log;
  const Deadline deadline = minute();
  while (launch.ok() && log.find("wait for others") == std::string::npos && !deadline.expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    log += testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
  }
  release->set_value();
  const Status end = launch.ok() ? launch->await(minute()) : launch.status();
  log += testing::internal::GetCapturedStderr();
  ASSERT_TRUE(end.ok()) << end.to_string();
  const size_t first = log.find("ask_and_sum on 8 devices: some wait for others");
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("wait for others", first + 60), std::string::npos) << log;
  EXPECT_NE(log.find(device_name(3) + " runs, and has come to no other device so far"),
            std::string::npos)
      << log;
  EXPECT_EQ(launch->outputs[5][0].to_host()->as<float>()[0], 17);
}

// Devices that meet wait for the inputs of all before they hold anything up.
TEST_P(GangWaitsTest, AGangThatWaitsForAnInputLetsOthersPass) {
  LateSum late;
  launch_late_sum(late);
  ASSERT_TRUE(late.launch.has_value());
  auto second = late.sum->launch(each_of(late.a));
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_TRUE(second->await(minute()).ok());
  EXPECT_FALSE(*late.launch->done[0].is_ready());
  late.release->set_value();
  EXPECT_TRUE(late.launch->await(minute()).ok());
  EXPECT_EQ(late.launch->outputs[0][0].to_host()->as<float>()[0], 9);
}

TEST_P(GangWaitsTest, ADeadlineNamesTheDeviceWhoseInputDoesNotCome) {
  make_client({{"gang_deadline_seconds", int64_t{1}}});
  LateSum late;
  launch_late_sum(late);
  ASSERT_TRUE(late.launch.has_value());
  for (const Event& done : late.launch->done) {
    const Status status = done.await(minute());
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    for (const std::string& text :
         {std::string("8 devices has not begun"), device_name(3) + " lacks argument 0, f32[4]"}) {
      EXPECT_NE(status.message().find(text), std::string::npos) << status.to_string();
    }
    EXPECT_EQ(status.message().find(device_name(5) + " lacks"), std::string::npos);
  }
  late.release->set_value();
}

// Each callback of a gang launches gangs on the same devices and waits for them, while a gang that
// needs the outer one's results stands in line already; those launch again.
TEST_P(GangWaitsTest, ACallbackOfAGangLaunchesGangs) {
  auto outer = compile(kAskAndSum), inner = compile(kSum);
  ASSERT_TRUE(outer.ok() && inner.ok()) << outer.status().to_string();
  const std::vector<Buffer> a = upload_to_all(floats({4}, 1));
  const PJRT_Api* api = &client_->plugin().api();
  std::mutex mutex;
  std::vector<std::string> errors;
  const auto value_of = [&](const Result<Launch>& launch, size_t device) {
    const auto result = launch.ok() ? launch->outputs[device][0].to_host(minute())
                                    : Result<HostArray>(launch.status());
    if (result.ok()) return result->as<float>()[0];
    const std::lock_guard lock(mutex);
    errors.push_back(result.status().to_string());
    return -1.0F;
  };
  const auto launch_inner = [&](size_t device) {
    return value_of(inner->launch(each_of(a)), device);
  };
  for (const bool from_another_thread : {false, true}) {
    std::promise<void> stands_in_line;
    const std::shared_future<void> all_launched = stands_in_line.get_future();
    std::vector<Host> hosts(kDevices);
    std::vector<std::vector<Host>> nested(kDevices);
    for (size_t d = 0; d < kDevices; ++d) {
      hosts[d] = {api, [&, d] {
                    all_launched.wait();
                    float value = 0;
                    const auto work = [&] {
                      if (d != 2) {
                        value = launch_inner(d);
                        return;
                      }
                      // The inner one calls its hosts too, which launch once more.
                      nested[d] = std::vector<Host>(
                          kDevices, Host{api, [&, d] { return launch_inner(d) / 8; }});
                      value = value_of(outer->launch(each_of(a), meeting(nested[d])), d) - 1;
                    };
                    if (from_another_thread) {
                      std::thread(work).join();
                    } else {
                      work();
                    }
                    return value;
                  }};
    }
    auto launch = outer->launch(each_of(a), meeting(hosts));
    ASSERT_TRUE(launch.ok()) << launch.status().to_string();
    std::vector<std::vector<const Buffer*>> results;
    for (const auto& outputs : launch->outputs) results.push_back({&outputs[0]});
    auto next = inner->launch(results);
    stands_in_line.set_value();
    ASSERT_TRUE(next.ok()) << next.status().to_string();
    EXPECT_TRUE(launch->await(minute()).ok()) << launch->await(minute()).to_string();
    EXPECT_TRUE(next->await(minute()).ok());
    EXPECT_EQ(errors, std::vector<std::string>());
    EXPECT_EQ(launch->outputs[1][0].to_host()->as<float>()[0], 8 * 8 + 1);
    EXPECT_EQ(next->outputs[1][0].to_host()->as<float>()[0], 8 * (8 * 8 + 1));
  }
}

TEST_P(GangWaitsTest, AnErrorEndsDevicesThatAreInsideOfLongSteps) {
  using Clock = std::chrono::steady_clock;
  // The CPU would be busy with the convolutions for minutes and with the loops for hours. Other
  // devices end the operation that they are in, which is a short one here.
  const bool is_cpu = GetParam() == "pjrt_cpu";
  for (const bool is_in_convolution : {true, false}) {
    const bool is_large = is_cpu && is_in_convolution;
    const int64_t size = is_large ? 96 : 6, kernel = is_large ? 48 : 3;
    std::string text(kFailsWhileOthersWork);
    for (const auto& [name, number] :
         std::vector<std::pair<std::string_view, int64_t>>{{"$N", size},
                                                           {"$K", kernel},
                                                           {"$O", size - kernel + 1},
                                                           {"$R", is_cpu ? 2048 : 16},
                                                           {"$C", is_cpu ? 1024 : 32}}) {
      text = replaced(std::move(text), name, number);
    }
    auto executable = compile(text);
    ASSERT_TRUE(executable.ok()) << executable.status().to_string();
    std::vector<Buffer> a = upload_to_all(floats({}, 1));
    const auto number = [&](int32_t value) {
      return upload_to_all(HostArray::from<int32_t>(DType::kI32, {}, std::vector<int32_t>{value}));
    };
    const std::vector<Buffer> steps = number(is_cpu ? 200'000 : 50), rounds = number(INT32_MAX);
    std::vector<std::vector<const Buffer*>> arguments;
    for (size_t d = 0; d < kDevices; ++d) arguments.push_back({&a[d], &steps[d], &rounds[d]});
    auto launch = executable->launch(arguments);
    ASSERT_TRUE(launch.ok()) << launch.status().to_string();
    EXPECT_FALSE(launch->done[3].await(minute()).ok());
    // The promise is 100 ms on an idle machine; nobody waits for minutes.
    const Clock::time_point failed = Clock::now();
    for (const Event& done : launch->done) {
      const Status status = done.await(Deadline::in(std::chrono::seconds(60)));
      EXPECT_NE(status.code(), StatusCode::kDeadlineExceeded);
      EXPECT_NE(status.message().find(device_name(3)), std::string::npos) << status.to_string();
    }
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - failed);
    RecordProperty(is_in_convolution ? "convolution_milliseconds" : "rows_milliseconds",
                   std::to_string(took.count()));
  }
}

INSTANTIATE_TEST_SUITE_P(Plugins, GangWaitsTest, testing::Values(HEKLA_PLUGINS),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hekla::runtime
