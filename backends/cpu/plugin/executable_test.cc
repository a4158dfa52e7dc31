// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/plugin/executable.h"

#include <gtest/gtest.h>

#include <numeric>

#include "backends/compiler/kernel/builder.h"
#include "backends/cpu/plugin/storage.h"

namespace hekla::cpu {
namespace {

using kernel::Builder;
using kernel::ScalarType;
using pjrt::Launch;
using pjrt::MemoryAccount;
using pjrt::StorageRef;
using Space = plan::Slice::Space;

constexpr int64_t kUnlimited = int64_t{1} << 40;

std::shared_ptr<KernelCompiler> compiler() {
  static const std::shared_ptr<KernelCompiler> made = KernelCompiler::create().value();
  return made;
}

// out = in + 1 through the arena; the output may take the input's memory.
std::shared_ptr<const Program> make_program(int64_t count) {
  Builder b(1, ScalarType::kI32);
  const kernel::Value x = b.load(ScalarType::kF32, {0, 4}, b.grid_index(0));
  b.store({1, 4}, b.grid_index(0), b.add(x, b.real(ScalarType::kF32, 0.5)));
  kernel::Kernel kernel;
  kernel.name = "add_half";
  kernel.grid = {count};
  kernel.operands = {{count * 4, true, false, true}, {count * 4, false, true}};
  kernel.body = b.finish();
  const int64_t bytes = count * 4;
  plan::LaunchPlan plan;
  plan.kernels = {std::move(kernel)};
  plan.input_bytes = {bytes};
  plan.output_bytes = {bytes};
  plan.output_input = {0};
  plan.arenas = {bytes};
  const plan::Slice in{Space::kInput, 0, 0, bytes}, out{Space::kOutput, 0, 0, bytes},
      between{Space::kArena, 0, 0, bytes};
  plan.steps = {{plan::KernelStep{0, {in, between}}}, {plan::KernelStep{0, {between, out}}}};
  return Program::create(std::make_shared<const plan::LaunchPlan>(std::move(plan)), *compiler())
      .value();
}

class Launches : public ::testing::Test {
 protected:
  static constexpr int64_t kCount = 1001;

  std::shared_ptr<CpuStorage> make_input(const std::shared_ptr<MemoryAccount>& account,
                                         int64_t count = kCount) {
    auto storage = std::make_shared<CpuStorage>(account, count * 4);
    EXPECT_TRUE(storage->allocate().ok());
    auto* values = static_cast<float*>(storage->host_pointer());
    std::iota(values, values + count, 0.0f);
    return storage;
  }

  std::vector<CpuDevice> devices() const { return {CpuDevice{account_}}; }

  static Result<std::vector<StorageRef>> launch_one(CpuExecutable& executable, Launch& launch) {
    HEKLA_RETURN_IF_ERROR(executable.launch({&launch, 1}));
    return std::move(launch.outputs);
  }

  static Launch make_launch(StorageRef input, CompletionRef ready, bool is_donated) {
    Launch launch;
    launch.inputs = {{std::move(input), std::move(ready), is_donated}};
    launch.done = Completion::make();
    return launch;
  }

  static void expect_values(const StorageRef& output, int64_t count = kCount) {
    const auto* values = static_cast<const float*>(output->host_pointer());
    ASSERT_NE(values, nullptr);
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(values[i], static_cast<float>(i) + 1);
  }

  std::shared_ptr<MemoryAccount> account_ =
      std::make_shared<MemoryAccount>("CPU device", kUnlimited);
};

TEST_F(Launches, DonatedMemoryBecomesTheOutputs) {
  CpuExecutable executable(make_program(kCount), devices(), compiler());
  auto input = make_input(account_);
  const void* memory = input->host_pointer();
  Launch launch = make_launch(std::move(input), Completion::ready(), true);
  const CompletionRef done = launch.done;
  const auto outputs = launch_one(executable, launch);
  ASSERT_TRUE(outputs.ok());
  ASSERT_TRUE(done->await().ok()) << done->status().to_string();
  EXPECT_EQ(outputs->front()->host_pointer(), memory);
  expect_values(outputs->front());
  EXPECT_EQ(account_->stats().bytes_in_use, kCount * 4);
}

TEST_F(Launches, DonatedMemoryThatOthersHoldStays) {
  CpuExecutable executable(make_program(kCount), devices(), compiler());
  const auto input = make_input(account_);
  Launch launch = make_launch(input, Completion::ready(), true);
  const CompletionRef done = launch.done;
  const auto outputs = launch_one(executable, launch);
  ASSERT_TRUE(outputs.ok());
  ASSERT_TRUE(done->await().ok());
  EXPECT_NE(outputs->front()->host_pointer(), input->host_pointer());
  EXPECT_EQ(static_cast<const float*>(input->host_pointer())[7], 7.0f);
  expect_values(outputs->front());
}

TEST_F(Launches, MemoryOfTheHostIsNeverTaken) {
  CpuExecutable executable(make_program(kCount), devices(), compiler());
  std::vector<float> host(kCount);
  std::iota(host.begin(), host.end(), 0.0f);
  bool is_released = false;
  auto input = std::make_shared<CpuStorage>(account_, kCount * 4);
  input->wrap(host.data(), [&] { is_released = true; });
  Launch launch = make_launch(std::move(input), Completion::ready(), true);
  const CompletionRef done = launch.done;
  const auto outputs = launch_one(executable, launch);
  ASSERT_TRUE(outputs.ok());
  ASSERT_TRUE(done->await().ok());
  EXPECT_TRUE(is_released);
  EXPECT_EQ(host[7], 7.0f);
  expect_values(outputs->front());
}

TEST_F(Launches, WaitForTheirInputsWithoutBlocking) {
  CpuExecutable executable(make_program(kCount), devices(), compiler());
  const CompletionRef ready = Completion::make();
  Launch launch = make_launch(make_input(account_), ready, false);
  const CompletionRef done = launch.done;
  const auto outputs = launch_one(executable, launch);
  ASSERT_TRUE(outputs.ok());
  EXPECT_FALSE(done->is_done());
  ready->complete(ok_status());
  ASSERT_TRUE(done->await().ok());
  expect_values(outputs->front());
}

TEST_F(Launches, ErrorsOfInputsReachWhatIsComputedFromThem) {
  CpuExecutable executable(make_program(kCount), devices(), compiler());
  const CompletionRef ready = Completion::make();
  Launch first = make_launch(make_input(account_), ready, false);
  const CompletionRef first_done = first.done;
  const auto outputs = launch_one(executable, first);
  ASSERT_TRUE(outputs.ok());
  Launch second = make_launch(outputs->front(), first_done, true);
  const CompletionRef second_done = second.done;
  ASSERT_TRUE(launch_one(executable, second).ok());
  ready->complete(data_loss("the transfer broke"));
  EXPECT_EQ(second_done->await().code(), StatusCode::kDataLoss);
}

TEST_F(Launches, ChainsOfLaunchesRunInOrder) {
  constexpr int64_t kLarge = 200'003;  // not inline
  CpuExecutable executable(make_program(kLarge), devices(), compiler());
  StorageRef value = make_input(account_, kLarge);
  CompletionRef ready = Completion::ready();
  constexpr int kLaunches = 50;
  for (int i = 0; i < kLaunches; ++i) {
    Launch launch = make_launch(std::move(value), ready, true);
    ready = launch.done;
    const auto outputs = launch_one(executable, launch);
    ASSERT_TRUE(outputs.ok());
    value = outputs->front();
  }
  ASSERT_TRUE(ready->await().ok());
  EXPECT_EQ(static_cast<const float*>(value->host_pointer())[3], 3.0f + kLaunches);
  // Each launch took the memory of the one before; the arenas are given back.
  EXPECT_EQ(account_->stats().bytes_in_use, kLarge * 4);
}

TEST_F(Launches, RunOutOfMemoryInWords) {
  const int64_t bytes = kCount * 4;
  // Room for the input alone: the output is refused at once.
  account_ = std::make_shared<MemoryAccount>("CPU device", bytes);
  CpuExecutable executable(make_program(kCount), devices(), compiler());
  Launch launch = make_launch(make_input(account_), Completion::ready(), false);
  const auto refused = launch_one(executable, launch);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(launch.inputs.size(), 1u);  // as it was
  launch.inputs.clear();
  EXPECT_EQ(account_->stats().bytes_in_use, 0);
  // Room for the output as well: the arena is missing, and the next launch is none the worse.
  account_ = std::make_shared<MemoryAccount>("CPU device", 2 * bytes);
  CpuExecutable other(make_program(kCount), devices(), compiler());
  Launch second = make_launch(make_input(account_), Completion::ready(), false);
  const CompletionRef done = second.done;
  ASSERT_TRUE(launch_one(other, second).ok());
  EXPECT_EQ(done->await().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(done->status().message().find("temporary memory"), std::string::npos);
  EXPECT_EQ(account_->stats().bytes_in_use, 0);
}

TEST_F(Launches, OfAGangAreAllEnqueuedOrNone) {
  const int64_t bytes = kCount * 4;
  const auto tight = std::make_shared<MemoryAccount>("CPU device", bytes);
  CpuExecutable executable(make_program(kCount), {CpuDevice{account_}, CpuDevice{tight}},
                           compiler());
  const auto gang = std::make_shared<pjrt::Gang>();
  std::vector<Launch> launches;
  launches.push_back(make_launch(make_input(account_), Completion::ready(), false));
  launches.push_back(make_launch(make_input(tight), Completion::ready(), false));
  for (size_t d = 0; d < 2; ++d) {
    launches[d].device = static_cast<int>(d);
    launches[d].gang = gang;
  }
  EXPECT_EQ(executable.launch(launches).code(), StatusCode::kResourceExhausted);
  for (const Launch& launch : launches) {
    EXPECT_EQ(launch.inputs.size(), 1U);
    EXPECT_TRUE(launch.outputs.empty());
    EXPECT_FALSE(launch.done->is_done());
  }
  EXPECT_EQ(account_->stats().bytes_in_use, bytes);
}

TEST_F(Launches, OfAGangThatIsCalledOffDoNotWaitForTheirInputs) {
  CpuExecutable executable(make_program(kCount), devices(), compiler());
  const auto gang = std::make_shared<pjrt::Gang>();
  Launch launch = make_launch(make_input(account_), Completion::make(), false);
  launch.gang = gang;
  const CompletionRef done = launch.done;
  ASSERT_TRUE(launch_one(executable, launch).ok());
  EXPECT_FALSE(done->is_done());
  gang->abort(data_loss("tbb:1: gone"));
  EXPECT_EQ(done->await().message(), "tbb:1: gone");
}

}  // namespace
}  // namespace hekla::cpu
