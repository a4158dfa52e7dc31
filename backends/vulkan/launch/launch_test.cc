// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <random>

#include "backends/vulkan/device/testing/fault_injection.h"
#include "backends/vulkan/device/testing/test_device.h"
#include "backends/vulkan/launch/device_program.h"
#include "backends/vulkan/launch/testing/count_groups.comp.h"
#include "backends/vulkan/launch/testing/multiply_add.comp.h"

namespace hekla::vulkan {
namespace {

using Space = Slice::Space;
using Words = std::vector<uint32_t>;

Slice input(int64_t index, int64_t bytes, int64_t offset = 0) {
  return {Space::kInput, index, offset, bytes};
}
Slice output(int64_t index, int64_t bytes, int64_t offset = 0) {
  return {Space::kOutput, index, offset, bytes};
}
Slice arena(int64_t offset, int64_t bytes) { return {Space::kArena, 0, offset, bytes}; }

// to = factor * a + b on n words.
DispatchStep multiply_add(Slice a, Slice b, Slice to, uint32_t factor) {
  const auto n = static_cast<uint32_t>(to.bytes / 4);
  return {0, {a, b, to}, {false, false, true}, {(n + 63) / 64, 1, 1}, {n, factor}, "multiply_add"};
}

// Both ways of memory: zero-copy and staged.
class LaunchTest : public ::testing::TestWithParam<bool> {
 protected:
  void open(LogicalDeviceOptions options = {}, DeviceOptions device_options = {}) {
    device_options.use_host_visible_memory = GetParam();
    HEKLA_VULKAN_TEST_DEVICE(device, device_options);
    std::shared_ptr<Pipelines> pipelines = *Pipelines::create(device, "");
    device_ = *LogicalDevice::create(device, pipelines, 0, options);
  }
  void TearDown() override {
    if (!device_) return;
    device_->close();
    EXPECT_TRUE(testing::no_validation_messages());
  }

  static LaunchProgram program() {
    LaunchProgram p;
    p.name = "test";
    p.kernels.resize(2);
    p.kernels[0].words.assign(std::begin(kmultiply_add_spirv), std::end(kmultiply_add_spirv));
    p.kernels[1].words.assign(std::begin(kcount_groups_spirv), std::end(kcount_groups_spirv));
    return p;
  }
  std::shared_ptr<DeviceProgram> load(LaunchProgram p, ProgramOptions options = {}) {
    options.check_barriers = true;
    auto loaded =
        DeviceProgram::load(device_, std::make_shared<LaunchProgram>(std::move(p)), options);
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    return *loaded;
  }
  AllocationRef upload(const Words& words) {
    AllocationRef memory = *device_->memory().allocate(static_cast<int64_t>(words.size() * 4));
    std::promise<void> done;
    device_->transfers().upload(words.data(), memory, 0, memory->bytes(), [&](const Status& s) {
      EXPECT_TRUE(s.ok());
      done.set_value();
    });
    done.get_future().wait();
    return memory;
  }
  Words download(const AllocationRef& memory) {
    Words words(static_cast<size_t>(memory->bytes() / 4));
    std::promise<void> done;
    device_->transfers().download(memory, 0, words.data(), memory->bytes(), [&](const Status& s) {
      EXPECT_TRUE(s.ok());
      done.set_value();
    });
    done.get_future().wait();
    return words;
  }
  static LaunchInput ready_input(AllocationRef memory, bool is_donated = false) {
    return {std::move(memory), Completion::ready(), Completion::ready(), is_donated};
  }
  struct Launched {
    Status status;
    LaunchOutputs outputs;
    CompletionRef done;
  };
  Launched start(DeviceProgram& p, std::vector<LaunchInput> inputs) {
    LaunchRequest request;
    request.inputs = std::move(inputs);
    request.done = Completion::make();
    CompletionRef done = request.done;
    Result<LaunchOutputs> outputs = p.launch(request);
    if (!outputs.ok()) return {outputs.status(), {}, nullptr};
    return {ok_status(), std::move(*outputs), std::move(done)};
  }

  std::shared_ptr<LogicalDevice> device_;
};

// llvmpipe (Mesa 22.3) frees the mutex of a fence that a thread of its own may still be in: a race
// within the driver, which thousands of timestamps show.
#if defined(__has_feature)
constexpr bool kHasThreadSanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool kHasThreadSanitizer = false;
#endif

Words ramp(size_t n, uint32_t start = 0) {
  Words words(n);
  for (size_t i = 0; i < n; ++i) words[i] = start + static_cast<uint32_t>(i);
  return words;
}

TEST_P(LaunchTest, AChainOfDispatchesIsOneSubmission) {
  open();
  if (!device_) return;
  constexpr int64_t kBytes = 4 * 1000;
  LaunchProgram p = program();
  p.input_bytes = {kBytes, kBytes};
  p.outputs = {{kBytes}};
  p.arena_bytes = 2 * 4096;
  p.constants.emplace_back(kBytes);
  const Words constant(1000, 5);
  std::memcpy(p.constants[0].data(), constant.data(), kBytes);
  p.steps = {
      multiply_add(input(0, kBytes), input(1, kBytes), arena(0, kBytes), 2),
      multiply_add(arena(0, kBytes), {Space::kConstant, 0, 0, kBytes}, arena(4096, kBytes), 3),
      multiply_add(arena(4096, kBytes), arena(0, kBytes), output(0, kBytes), 7)};
  const auto loaded = load(p);
  const AllocationRef a = upload(ramp(1000));
  const AllocationRef b = upload(ramp(1000, 50));
  for (int i = 0; i < 3; ++i) {
    Launched l = start(*loaded, {ready_input(a), ready_input(b)});
    ASSERT_TRUE(l.status.ok());
    ASSERT_TRUE(l.done->await().ok());
    const Words c = download(l.outputs.memory[0]);
    for (uint32_t k = 0; k < 1000; ++k) {
      const uint32_t t = 2 * k + (50 + k);
      ASSERT_EQ(c[k], 7 * (3 * t + 5) + t);
    }
  }
  EXPECT_EQ(device_->counters().launches, 3);
  EXPECT_EQ(device_->counters().submissions, 3);
  EXPECT_EQ(device_->counters().dispatches, 9);
  EXPECT_EQ(device_->counters().barriers, 6);
  EXPECT_EQ(device_->counters().recordings, 1);
  EXPECT_EQ(device_->counters().host_steps, 0);
}

TEST_P(LaunchTest, LaunchesFollowEachOtherInFlight) {
  open();
  if (!device_) return;
  constexpr int64_t kBytes = 4 * 256;
  LaunchProgram p = program();
  p.input_bytes = {kBytes};
  p.outputs = {{kBytes}};
  p.arena_bytes = kBytes;
  p.steps = {multiply_add(input(0, kBytes), input(0, kBytes), arena(0, kBytes), 1),
             multiply_add(arena(0, kBytes), input(0, kBytes), output(0, kBytes), 1)};
  ProgramOptions options;
  options.max_slots = 3;
  const auto loaded = load(p, options);
  // Each launch reads the one before; the caller waits for none.
  LaunchInput next = ready_input(upload(ramp(256)));
  std::vector<Launched> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(start(*loaded, {next}));
    ASSERT_TRUE(all.back().status.ok());
    next = {all.back().outputs.memory[0], all.back().outputs.submitted, all.back().done, false};
  }
  uint32_t factor = 1;
  for (Launched& l : all) {
    ASSERT_TRUE(l.done->await().ok());
    factor *= 3;
    const Words words = download(l.outputs.memory[0]);
    for (uint32_t k = 0; k < 256; ++k) ASSERT_EQ(words[k], factor * k);
  }
  EXPECT_EQ(device_->counters().submissions, 20);
  EXPECT_LE(device_->counters().recordings, 3);
}

TEST_P(LaunchTest, ADonatedInputBecomesTheOutputAndAnotherIsCopied) {
  open();
  if (!device_) return;
  constexpr int64_t kBytes = 4 * 300;
  LaunchProgram p = program();
  p.input_bytes = {kBytes, 4};
  p.outputs = {{kBytes, 0}};
  // Adds in place to a part of the output, which begins as the input.
  p.steps = {multiply_add(input(1, 4), output(0, 4, 400), output(0, 4, 400), 1)};
  const auto loaded = load(p);
  const AllocationRef one = upload({1});
  AllocationRef a = upload(ramp(300));
  const Allocation* memory = a.get();

  Launched kept = start(*loaded, {ready_input(a), ready_input(one)});
  ASSERT_TRUE(kept.done->await().ok());
  EXPECT_NE(kept.outputs.memory[0].get(), memory);
  EXPECT_EQ(download(a), ramp(300));
  Words wanted = ramp(300);
  wanted[100] += 1;
  EXPECT_EQ(download(kept.outputs.memory[0]), wanted);
  EXPECT_EQ(device_->counters().alias_copies, 1);

  LaunchInput next = ready_input(std::move(a), true);
  for (int i = 0; i < 10; ++i) {
    Launched l = start(*loaded, {next, ready_input(one)});
    ASSERT_TRUE(l.status.ok());
    EXPECT_EQ(l.outputs.memory[0].get(), memory);
    next = {l.outputs.memory[0], l.outputs.submitted, l.done, true};
  }
  ASSERT_TRUE(next.ready->await().ok());
  wanted[100] += 9;
  EXPECT_EQ(download(next.memory), wanted);
  EXPECT_EQ(device_->counters().alias_copies, 1);
}

TEST_P(LaunchTest, CopiesAndFillsAreRightToTheByte) {
  open();
  if (!device_) return;
  std::mt19937 random(9);
  constexpr int64_t kBytes = 6000;
  for (int round = 0; round < 12; ++round) {
    std::vector<std::byte> content(kBytes);
    for (std::byte& b : content) b = static_cast<std::byte>(random());
    std::vector<std::byte> wanted = content;
    LaunchProgram p = program();
    p.input_bytes = {kBytes};
    p.outputs = {{kBytes, 0}};
    for (int i = 0; i < 12; ++i) {
      const auto bytes = static_cast<int64_t>(random() % (i % 3 == 0 ? 3000 : 12));
      const auto from = static_cast<int64_t>(random() % static_cast<uint32_t>(kBytes - bytes));
      const auto to = static_cast<int64_t>(random() % static_cast<uint32_t>(kBytes - bytes));
      if (random() % 3 == 0) {
        const auto pattern = static_cast<uint32_t>(random());
        p.steps.emplace_back(FillStep{output(0, bytes, to), pattern});
        for (int64_t k = 0; k < bytes; ++k) {
          wanted[to + k] = static_cast<std::byte>(pattern >> (8 * (k % 4)));
        }
      } else if (std::max(from, to) >= std::min(from, to) + bytes) {
        p.steps.emplace_back(CopyStep{output(0, bytes, from), output(0, bytes, to)});
        std::copy_n(wanted.begin() + from, bytes, wanted.begin() + to);
      }
    }
    const auto loaded = load(p);
    Words words(kBytes / 4);
    std::memcpy(words.data(), content.data(), kBytes);
    Launched l = start(*loaded, {ready_input(upload(words), round % 2 == 0)});
    ASSERT_TRUE(l.done->await().ok());
    const Words got = download(l.outputs.memory[0]);
    ASSERT_EQ(std::memcmp(got.data(), wanted.data(), kBytes), 0) << round;
  }
}

TEST_P(LaunchTest, GridsBeyondTheLimitsAreFolded) {
  open();
  if (!device_) return;
  const std::vector<std::array<uint32_t, 3>> grids = {
      {5, 1, 1}, {1000, 1, 1}, {11, 1, 1}, {3, 25, 2}, {2, 3, 17}};
  for (const auto& grid : grids) {
    const int64_t groups = int64_t{grid[0]} * grid[1] * grid[2];
    LaunchProgram p = program();
    p.outputs = {{groups * 4}};
    p.steps = {FillStep{output(0, groups * 4), 0},
               DispatchStep{1, {output(0, groups * 4)}, {true}, grid, {}, "count"}};
    ProgramOptions options;
    options.max_group_count = {10, 12, 16};
    const auto loaded = load(p, options);
    Launched l = start(*loaded, {});
    ASSERT_TRUE(l.done->await().ok());
    EXPECT_EQ(download(l.outputs.memory[0]), Words(static_cast<size_t>(groups), 1));
  }
}

TEST_P(LaunchTest, HostStepsRunBetweenPartsOfTheDevice) {
  open();
  if (!device_) return;
  constexpr int64_t kBytes = 4 * 100;
  LaunchProgram p = program();
  p.input_bytes = {kBytes};
  p.outputs = {{kBytes}, {0}};
  p.arena_bytes = 2 * kBytes;
  HostStep square;
  square.name = "square";
  square.operands = {arena(0, kBytes), arena(kBytes, kBytes), output(1, 0)};
  square.is_written = {false, true, true};
  square.run = [](const HostCall& call) -> Status {
    EXPECT_EQ(call.operands.size(), 3u);
    EXPECT_EQ(call.replica, 0);
    const auto* from = reinterpret_cast<const uint32_t*>(call.operands[0].data);
    auto* to = reinterpret_cast<uint32_t*>(call.operands[1].data);
    for (int i = 0; i < 100; ++i) to[i] = from[i] * from[i];
    if (from[0] == 4242 * 2) return invalid_argument("no squares of {}", from[0]);
    return ok_status();
  };
  p.steps = {multiply_add(input(0, kBytes), input(0, kBytes), arena(0, kBytes), 1), square,
             multiply_add(arena(kBytes, kBytes), arena(0, kBytes), output(0, kBytes), 1)};
  const auto loaded = load(p);
  std::vector<Launched> all;
  for (uint32_t i = 0; i < 12; ++i) {
    all.push_back(start(*loaded, {ready_input(upload(ramp(100, i)))}));
    ASSERT_TRUE(all.back().status.ok());
  }
  for (uint32_t i = 0; i < 12; ++i) {
    ASSERT_TRUE(all[i].done->await().ok());
    const Words words = download(all[i].outputs.memory[0]);
    for (uint32_t k = 0; k < 100; ++k) ASSERT_EQ(words[k], 4 * (i + k) * (i + k) + 2 * (i + k));
  }
  EXPECT_EQ(device_->counters().host_steps, 12);
  EXPECT_EQ(device_->counters().submissions, 24);

  // Its error is the launch's, and that of what reads it.
  Launched bad = start(*loaded, {ready_input(upload(ramp(100, 4242)))});
  Launched after =
      start(*loaded, {{bad.outputs.memory[0], bad.outputs.submitted, bad.done, false}});
  EXPECT_EQ(bad.done->await().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(bad.done->status().message().find("host step square"), std::string::npos);
  EXPECT_EQ(after.done->await().code(), StatusCode::kInvalidArgument);
}

// A loop that the data ends: the counter goes down by one each turn; its low byte is the condition.
TEST_P(LaunchTest, LoopsTurnOnTheDeviceUntilTheDataEndsThem) {
  open();
  if (!device_) return;
  LaunchProgram p = program();
  p.input_bytes = {4, 4};
  p.outputs = {{4}, {4}};
  p.arena_bytes = 512;
  LoopStep loop;
  loop.name = "while";
  loop.condition = output(0, 1);
  // By way of the arena, so that turns wait for each other.
  loop.body = {multiply_add(output(0, 4), input(1, 4), arena(0, 4), 1),
               CopyStep{arena(0, 4), output(0, 4)},
               multiply_add(output(1, 4), output(1, 4), arena(256, 4), 2),
               CopyStep{arena(256, 4), output(1, 4)}};
  p.steps = {CopyStep{input(0, 4), output(0, 4)}, FillStep{output(1, 4), 1}, loop,
             multiply_add(output(1, 4), output(0, 4), output(1, 4), 5)};
  const auto loaded = load(p);
  const AllocationRef minus_one = upload({~0U});
  // 51 turns of four dispatches and a gate are a piece. A launch begins with as many pieces as the
  // one before needed, and goes on with as many again.
  const std::pair<uint32_t, int> runs[] = {{0, 1},   {1, 1},   {2, 1},   {50, 1},  {51, 1},
                                           {52, 2},  {102, 1}, {153, 2}, {153, 1}, {250, 2},
                                           {250, 1}, {3, 1},   {60, 2}};
  for (const auto& [turns, submissions] : runs) {
    const int64_t before = device_->counters().submissions;
    Launched l = start(*loaded, {ready_input(upload({turns})), ready_input(minus_one)});
    ASSERT_TRUE(l.done->await().ok());
    uint32_t power = 1;
    for (uint32_t i = 0; i < turns; ++i) power *= 3;
    EXPECT_EQ(download(l.outputs.memory[0])[0], 0u) << turns;
    EXPECT_EQ(download(l.outputs.memory[1])[0], 5 * power) << turns;
    EXPECT_EQ(device_->counters().submissions - before, submissions) << turns;
  }
  EXPECT_EQ(device_->counters().host_steps, 0);
}

LaunchProgram endless_program(LaunchProgram p) {
  p.input_bytes = {4, 4};
  p.outputs = {{4}};
  LoopStep loop;
  loop.name = "while";
  loop.condition = output(0, 1);
  loop.body = {multiply_add(output(0, 4), input(1, 4), output(0, 4), 1)};
  p.steps = {CopyStep{input(0, 4), output(0, 4)}, loop};
  return p;
}

TEST_P(LaunchTest, LoopsThatDoNotEndAreEndedByTheTimeout) {
  DeviceOptions options;
  options.launch_timeout_seconds = 3;
  open({}, options);
  if (!device_) return;
  const auto loaded = load(endless_program(program()));
  const AllocationRef zero = upload({0}), one = upload({1}), minus_one = upload({~0U});
  Launched endless = start(*loaded, {ready_input(one), ready_input(zero)});
  ASSERT_EQ(endless.done->await().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(endless.done->status().message().find("vulkan_launch_timeout"), std::string::npos);
  // Nothing is left on the device, which goes on.
  Launched next = start(*loaded, {ready_input(one), ready_input(minus_one)});
  ASSERT_TRUE(next.done->await().ok()) << next.done->status().to_string();
  EXPECT_EQ(download(next.outputs.memory[0])[0], 0u);
}

// Drivers of devices that are not there accept all work and do none of it.
TEST_P(LaunchTest, ADriverThatRunsNothingIsNoEndlessLoop) {
  open();
  if (!device_) return;
  const auto loaded = load(endless_program(program()));
  const AllocationRef one = upload({1}), minus_one = upload({~0U});
  static PFN_vkQueueSubmit submit = nullptr;
  DeviceFunctions& functions = device_->device().mutable_functions();
  submit = functions.QueueSubmit;
  functions.QueueSubmit = [](VkQueue queue, uint32_t count, const VkSubmitInfo* infos,
                             VkFence fence) {
    std::vector<VkSubmitInfo> empty(infos, infos + count);
    for (VkSubmitInfo& info : empty) info.commandBufferCount = 0;
    return submit(queue, count, empty.data(), fence);
  };
  Launched l = start(*loaded, {ready_input(one), ready_input(minus_one)});
  EXPECT_EQ(l.done->await().code(), StatusCode::kInternal);
  EXPECT_NE(l.done->status().message().find("does not run what it is given"), std::string::npos);
  functions.QueueSubmit = submit;
}

TEST_P(LaunchTest, CountedLoopsStayInOneSubmissionUnlessTheyAreHuge) {
  open();
  if (!device_) return;
  LaunchProgram p = program();
  p.input_bytes = {4};
  p.outputs = {{4}};
  ProgramOptions options;
  const auto run = [&](int64_t turns, int64_t inner) {
    const DispatchStep step = multiply_add(output(0, 4), input(0, 4), output(0, 4), 3);
    LoopStep loop;
    loop.trip_count = turns;
    if (inner == 1) {
      loop.body = {step};
    } else {
      loop.body = {std::make_shared<LoopStep>(LoopStep{"inner", {step}, inner, {}})};
    }
    p.steps = {FillStep{output(0, 4), 1}, loop, FillStep{{Space::kArena, 0, 0, 0}, 0}};
    const auto loaded = load(p, options);
    const int64_t before = device_->counters().submissions;
    Launched l = start(*loaded, {ready_input(upload({1}))});
    EXPECT_TRUE(l.done->await().ok());
    uint32_t wanted = 1;
    for (int64_t i = 0; i < turns * inner; ++i) wanted = 3 * wanted + 1;
    EXPECT_EQ(download(l.outputs.memory[0])[0], wanted) << turns << " of " << inner;
    return device_->counters().submissions - before;
  };
  EXPECT_EQ(run(0, 1), 1);
  EXPECT_EQ(run(1000, 1), 1);
  EXPECT_EQ(run(2500, 1), 1);  // one recording, twice, and the rest
  EXPECT_EQ(run(7, 30), 1);    // all written out
  EXPECT_EQ(run(3, 1100), 1);  // gates
  options.max_dispatches_per_submission = 1000;
  EXPECT_EQ(run(1500, 1), 4);  // seven pieces of 64 turns at a time
}

// Programs of nested loops and branches, decided by values that they compute.
class RandomControl {
 public:
  explicit RandomControl(uint32_t seed) : random_(seed) {}

  static constexpr int64_t kWords = 8;  // of output 0, each in 256 bytes
  static Slice word(int64_t i) { return output(0, 4, 256 * i); }
  static Slice minus_one() { return input(0, 4); }

  std::vector<DeviceStep> steps(int depth) {
    std::vector<DeviceStep> out;
    const uint32_t count = pick(depth == 0 ? 6 : 4);
    for (uint32_t i = 0; i < count; ++i) add(depth, out);
    return out;
  }

  static void interpret(const std::vector<DeviceStep>& steps, Words& words) {
    const auto at = [&](const Slice& s) -> uint32_t& {
      static uint32_t constant;
      constant = ~0U;
      return s.space == Space::kInput ? constant : words[static_cast<size_t>(s.offset / 4)];
    };
    for (const DeviceStep& step : steps) {
      if (const auto* d = std::get_if<DispatchStep>(&step)) {
        at(d->operands[2]) = d->constants[1] * at(d->operands[0]) + at(d->operands[1]);
      } else if (const auto* c = std::get_if<CopyStep>(&step)) {
        at(c->to) = at(c->from);
      } else if (const auto* f = std::get_if<FillStep>(&step)) {
        at(f->to) = f->pattern;
      } else if (const auto* l = std::get_if<std::shared_ptr<const LoopStep>>(&step)) {
        const LoopStep& loop = **l;
        for (int64_t i = 0;
             loop.condition ? (at(*loop.condition) & 0xff) != 0 : i < loop.trip_count; ++i) {
          interpret(loop.body, words);
        }
      } else {
        const BranchStep& branch = *std::get<std::shared_ptr<const BranchStep>>(step);
        const uint32_t value = at(branch.selector);
        const auto last = static_cast<uint32_t>(branch.branches.size() - 1);
        interpret(branch.branches[branch.selector.bytes == 1 ? ((value & 0xff) != 0 ? 0 : 1)
                                                             : std::min(value, last)],
                  words);
      }
    }
  }

 private:
  uint32_t pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  Slice any() { return word(pick(kWords)); }

  void add(int depth, std::vector<DeviceStep>& out) {
    const uint32_t kind = depth >= 3 ? pick(3) : pick(7);
    if (kind <= 1) {
      // The operands are apart, or the target is the first of them.
      const uint32_t to = pick(kWords), from = pick(kWords);
      if (from == to) return;
      out.emplace_back(multiply_add(word(to), word(from), word(to), 1 + pick(3)));
    } else if (kind == 2) {
      out.emplace_back(FillStep{any(), pick(5)});
    } else if (kind == 3) {
      LoopStep loop{"for", steps(depth + 1), static_cast<int64_t>(pick(6)), {}};
      if (pick(4) == 0) loop.trip_count *= 40;
      out.emplace_back(std::make_shared<const LoopStep>(std::move(loop)));
    } else if (kind == 4) {
      // Counts down in a word of its own.
      const Slice count = output(0, 4, 256 * (kWords + counters_++ % 64));
      LoopStep loop{"while", steps(depth + 1), 0, count};
      loop.condition->bytes = 1;
      loop.body.emplace_back(multiply_add(count, minus_one(), count, 1));
      out.emplace_back(FillStep{count, depth == 0 && pick(3) == 0 ? 70 + pick(60) : pick(5)});
      out.emplace_back(std::make_shared<const LoopStep>(std::move(loop)));
    } else {
      BranchStep branch{"branch", any(), {}};
      const uint32_t branches = kind == 5 ? 2 : 1 + pick(4);
      if (kind == 5) branch.selector.bytes = 1;
      for (uint32_t i = 0; i < branches; ++i) branch.branches.push_back(steps(depth + 1));
      out.emplace_back(std::make_shared<const BranchStep>(std::move(branch)));
    }
  }

  std::mt19937 random_;
  int64_t counters_ = 0;
};

TEST_P(LaunchTest, AnyNestOfLoopsAndBranchesRunsOnTheDevice) {
  open();
  if (!device_) return;
  const int64_t bytes = 256 * (RandomControl::kWords + 64);
  const AllocationRef minus_one = upload({~0U});
  for (uint32_t seed = 0; seed < 40; ++seed) {
    LaunchProgram p = program();
    p.input_bytes = {4};
    p.outputs = {{bytes}};
    const auto body = std::make_shared<LoopStep>(LoopStep{"once", RandomControl(seed).steps(0), 1});
    p.steps = {FillStep{output(0, bytes), seed}, *body};
    const auto loaded = load(p);
    Words wanted(static_cast<size_t>(bytes / 4), seed);
    RandomControl::interpret(body->body, wanted);
    const int64_t before = device_->counters().submissions;
    for (int i = 0; i < 2; ++i) {
      Launched l = start(*loaded, {ready_input(minus_one)});
      ASSERT_TRUE(l.done->await().ok());
      ASSERT_EQ(download(l.outputs.memory[0]), wanted) << "seed " << seed;
    }
    EXPECT_LE(device_->counters().submissions - before, 16) << "seed " << seed;
  }
  EXPECT_EQ(device_->counters().host_steps, 0);
}

TEST_P(LaunchTest, TheLastUserMayBeOneOfTheDevicesThreads) {
  open();
  if (!device_) return;
  std::promise<void> dropped;
  const std::weak_ptr<LogicalDevice> gone = device_;
  LogicalDevice* device = device_.get();
  device->worker().post([last = std::move(device_), &dropped]() mutable {
    last.reset();
    dropped.set_value();
  });
  dropped.get_future().wait();
  EXPECT_TRUE(gone.expired());
}

TEST_P(LaunchTest, ALaunchWaitsForItsInputsAndTakesTheirErrors) {
  open();
  if (!device_) return;
  LaunchProgram p = program();
  p.input_bytes = {40};
  p.outputs = {{40}};
  p.steps = {multiply_add(input(0, 40), input(0, 40), output(0, 40), 1)};
  const auto loaded = load(p);
  AllocationRef memory = upload(ramp(10));
  const CompletionRef late = Completion::make();
  Launched l = start(*loaded, {{memory, late, late, false}});
  // Others overtake it.
  ASSERT_TRUE(start(*loaded, {ready_input(memory)}).done->await().ok());
  EXPECT_FALSE(l.done->is_done());
  EXPECT_EQ(memory->unordered_readers, 1);
  late->complete(ok_status());
  ASSERT_TRUE(l.done->await().ok());
  EXPECT_EQ(download(l.outputs.memory[0])[3], 6u);
  EXPECT_EQ(memory->unordered_readers, 0);

  const CompletionRef bad = Completion::make();
  Launched f = start(*loaded, {{memory, bad, bad, false}});
  bad->complete(data_loss("the cat ate it"));
  EXPECT_EQ(f.done->await().code(), StatusCode::kDataLoss);
  EXPECT_EQ(f.outputs.submitted->await().code(), StatusCode::kDataLoss);

  // An input that never comes does not keep the device from closing.
  const CompletionRef never = Completion::make();
  Launched n = start(*loaded, {{memory, never, never, false}});
  device_->close();
  never->complete(ok_status());
  EXPECT_EQ(n.done->await().code(), StatusCode::kCancelled);
}

TEST_P(LaunchTest, OutOfMemoryIsTheLaunchsErrorAndWorkInFlightGivesItsMemory) {
  LogicalDeviceOptions options;
  options.memory_limit_bytes = 1 << 20;
  open(options);
  if (!device_) return;
  constexpr int64_t kBytes = 300 << 10;
  LaunchProgram p = program();
  p.input_bytes = {4};
  p.outputs = {{kBytes}};
  p.steps = {FillStep{output(0, kBytes), 1}};
  const auto loaded = load(p);
  const AllocationRef a = upload({1});
  // Outputs that nobody keeps: each launch in flight gives its memory to the next.
  for (int i = 0; i < 30; ++i) {
    Launched l = start(*loaded, {ready_input(a)});
    ASSERT_TRUE(l.status.ok()) << i << l.status.to_string();
  }
  std::vector<Launched> kept;
  for (int i = 0; i < 3; ++i) kept.push_back(start(*loaded, {ready_input(a)}));
  const Launched full = start(*loaded, {ready_input(a)});
  EXPECT_EQ(full.status.code(), StatusCode::kResourceExhausted);
  kept.pop_back();
  EXPECT_TRUE(start(*loaded, {ready_input(a)}).status.ok());
}

TEST_P(LaunchTest, AProfileSaysWhatRan) {
  open();
  if (!device_) return;
  constexpr int64_t kBytes = 4 * 500;
  LaunchProgram p = program();
  p.kernels[0].name = "multiply_add";
  p.input_bytes = {kBytes};
  p.outputs = {{kBytes}};
  p.arena_bytes = kBytes;
  p.steps = {FillStep{arena(0, kBytes), 3},
             multiply_add(input(0, kBytes), arena(0, kBytes), output(0, kBytes), 2),
             multiply_add(input(0, kBytes), arena(0, kBytes), output(0, kBytes), 2)};
  ProgramOptions options;
  options.profile = true;
  const auto loaded = load(std::move(p), options);
  const AllocationRef a = upload(ramp(500));
  for (int launch = 0; launch < 2; ++launch) {
    ::testing::internal::CaptureStderr();
    const Launched l = start(*loaded, {ready_input(a)});
    const bool is_done = l.status.ok() && l.done->await().ok();
    const std::string text = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(is_done);
    EXPECT_NE(text.find("profile of test: "), std::string::npos) << text;
    EXPECT_NE(text.find("us on the device, 3 dispatches"), std::string::npos) << text;
    EXPECT_NE(text.find("2 x kernel 0 multiply_add"), std::string::npos) << text;
    EXPECT_NE(text.find("1 x fill"), std::string::npos) << text;
  }
}

// Out of memory and device lost at each call of the driver, from loading a program over an upload,
// a launch with a loop of several submissions, a branch and a host step, to a download: an error,
// no hang, no crash; after the first the next launch works, after the second it says why not.
// Losses need a device each, so every third call will do; HEKLA_ALL_FAULTS=1: every one.
TEST_P(LaunchTest, FaultsOfTheDriverAtEachCall) {
  constexpr int64_t kBytes = 4 * 500;
  LaunchProgram p = program();
  p.input_bytes = {kBytes, 4};
  p.outputs = {{kBytes}, {4}};
  p.arena_bytes = kBytes + 256;
  HostStep host;
  host.name = "nothing";
  host.operands = {arena(0, kBytes)};
  host.is_written = {true};
  host.run = [](const HostCall&) { return ok_status(); };
  LoopStep loop;
  loop.condition = output(1, 1);
  loop.body = {multiply_add(output(1, 4), input(1, 4), output(1, 4), 1)};
  const BranchStep branch = {
      "branch",
      output(1, 4),
      {{multiply_add(arena(0, kBytes), arena(0, kBytes), output(0, kBytes), 1)},
       {FillStep{output(0, kBytes), 9}}}};
  p.steps = {FillStep{output(1, 4), 150},
             multiply_add(input(0, kBytes), input(0, kBytes), arena(0, kBytes), 1), host, loop,
             branch};
  const auto transfer = [](const std::function<void(Transfers::Done)>& what) {
    std::promise<Status> promise;
    what([&](const Status& status) { promise.set_value(status); });
    return promise.get_future().get();
  };
  const auto run = [&]() -> Status {
    ProgramOptions options;
    options.profile = GetParam() && !kHasThreadSanitizer;
    HEKLA_ASSIGN_OR_RETURN(
        const auto loaded,
        DeviceProgram::load(device_, std::make_shared<LaunchProgram>(p), options));
    const Words words = ramp(500);
    HEKLA_ASSIGN_OR_RETURN(const AllocationRef a, device_->memory().allocate(kBytes));
    HEKLA_ASSIGN_OR_RETURN(const AllocationRef minus_one, device_->memory().allocate(4));
    HEKLA_RETURN_IF_ERROR(transfer([&](Transfers::Done done) {
      device_->transfers().upload(words.data(), a, 0, kBytes, std::move(done));
    }));
    const uint32_t one_less = ~0U;
    HEKLA_RETURN_IF_ERROR(transfer([&](Transfers::Done done) {
      device_->transfers().upload(&one_less, minus_one, 0, 4, std::move(done));
    }));
    Launched l = start(*loaded, {ready_input(a), ready_input(minus_one)});
    HEKLA_RETURN_IF_ERROR(l.status);
    HEKLA_RETURN_IF_ERROR(l.done->await());
    Words result(500);
    HEKLA_RETURN_IF_ERROR(transfer([&](Transfers::Done done) {
      device_->transfers().download(l.outputs.memory[0], 0, result.data(), kBytes, std::move(done));
    }));
    if (result[7] != 4 * words[7]) return internal_error("a wrong result");
    return ok_status();
  };
  const bool is_long = std::getenv("HEKLA_ALL_FAULTS") != nullptr;
  for (const VkResult fault :
       {VK_ERROR_OUT_OF_DEVICE_MEMORY, VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_DEVICE_LOST}) {
    int struck = 0;
    int failed = 0;
    const int stride = fault == VK_ERROR_DEVICE_LOST && !is_long ? 3 : 1;
    bool has_struck = true;
    for (int call = 0; has_struck; call += stride) {
      ASSERT_LT(call, 500) << "the sequence of calls does not end";
      if (!device_) open();
      if (!device_) return;
      testing::Faults& faults = testing::inject_faults(device_->device());
      faults.arm(call, fault);
      const Status status = run();
      has_struck = faults.has_struck;
      faults.disarm();
      struck += has_struck ? 1 : 0;
      failed += status.ok() ? 0 : 1;
      EXPECT_NE(status.code(), StatusCode::kInternal) << faults.where << status.to_string();
      const Status again = run();
      if (fault == VK_ERROR_DEVICE_LOST && has_struck) {
        // A loss during the last wait of all may come after the work is done.
        EXPECT_EQ(again.code(), StatusCode::kUnavailable) << faults.where;
      } else {
        EXPECT_TRUE(again.ok()) << again.to_string();
      }
      if (fault == VK_ERROR_DEVICE_LOST || !has_struck) {
        device_->close();
        device_.reset();
      }
    }
    EXPECT_GT(struck, 20 / stride);
    EXPECT_GT(failed, 12 / stride);
  }
}

INSTANTIATE_TEST_SUITE_P(, LaunchTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "ZeroCopy" : "Staged"; });

}  // namespace
}  // namespace hekla::vulkan
