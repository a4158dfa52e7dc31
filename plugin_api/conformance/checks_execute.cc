// SPDX-License-Identifier: Apache-2.0
// Launches, donation, launches in flight.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "plugin_api/conformance/check.h"
#include "plugin_api/conformance/programs.h"
#include "plugin_api/conformance/session.h"

namespace hekla::conformance {
namespace {

using Floats = std::vector<float>;

PJRT_Buffer* one_to_four(Session& s) { return s.upload_f32({1, 2, 3, 4}, {4}); }

void check_add(Session& s) {
  const auto outputs = s.run(s.compile(kAdd), {one_to_four(s), one_to_four(s)});
  require_equal(outputs.size(), 1, "outputs");
  require(s.download_f32(outputs[0], 4) == Floats({2, 4, 6, 8}), "wrong result");
  auto device = make_args<PJRT_Buffer_Device_Args>();
  device.buffer = outputs[0];
  s.call(HEKLA_SLOT(PJRT_Buffer_Device), &device);
  require(device.device == s.device(), "the output is on another device");
}

void check_outputs(Session& s) {
  const auto outputs = s.run(s.compile(kTwoOutputs), {s.upload_f32({1, -2, 3, 4}, {4})});
  require_equal(outputs.size(), 3, "outputs");
  require(s.download_f32(outputs[0], 1) == Floats({6}), "wrong sum");
  require(s.download_f32(outputs[1], 4) == Floats({2, -4, 6, 8}), "wrong double");
  require(s.download(outputs[2], 4) == std::vector<uint8_t>({1, 0, 1, 1}), "wrong comparison");
}

void check_no_arguments(Session& s) {
  require(s.download_f32(s.run(s.compile(kConstant), {})[0], 4) == Floats({1, 2, 3, 4}),
          "wrong result");
}

void check_identity(Session& s) {
  PJRT_Buffer* input = one_to_four(s);
  const auto outputs = s.run(s.compile(kIdentity), {input});
  require(outputs[0] != input, "the output has the handle of the input");
  s.delete_buffer(input);
  require(s.download_f32(outputs[0], 4) == Floats({1, 2, 3, 4}),
          "the output changed when the input was deleted");
}

void check_same_argument(Session& s) {
  PJRT_Buffer* input = one_to_four(s);
  require(s.download_f32(s.run(s.compile(kAdd), {input, input})[0], 4) == Floats({2, 4, 6, 8}),
          "wrong result");
  require(!s.is_deleted(input), "an argument was deleted without donation");
}

void check_execute_zero_size(Session& s) {
  HostData host;
  host.dims = {0, 3};
  const auto outputs = s.run(s.compile(kEmpty), {s.upload(host)});
  require_equal(outputs.size(), 2, "outputs");
  s.download(outputs[0], 0);
  require(s.download_f32(outputs[1], 1) == Floats({0}), "the sum of nothing is not zero");
}

void check_matmul(Session& s) {
  PJRT_Buffer* a = s.upload_f32({1, 2, 3, 4, 5, 6}, {2, 3});
  PJRT_Buffer* b = s.upload_f32({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {3, 4});
  require(s.download_f32(s.run(s.compile(kMatmul), {a, b})[0], 8) ==
              Floats({38, 44, 50, 56, 83, 98, 113, 128}),
          "wrong result");
}

void check_loop(Session& s) {
  const Floats ones(256 * 256, 0.0f);
  const auto outputs = s.run(s.compile(kLong), {s.upload_f32(ones, {256, 256})});
  for (float value : s.download_f32(outputs[0], ones.size())) {
    require(value == 2.0f, "wrong result of a loop: " + std::to_string(value));
  }
}

void check_output_event(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kAddOne);
  Launch launch = s.execute(executable, {one_to_four(s)});
  ReadyCounter counter(s);
  s.on_ready(launch.done, &counter);
  s.destroy_event(launch.done);
  require_equal(counter.wait(1), 1, "calls of the device-complete callback");
  if (auto error = counter.error()) fail(error->text());
  if (auto error = s.finish_event(s.ready_event(launch.outputs[0]))) fail(error->text());
}

void check_no_event(Session& s) {
  LaunchOptions options;
  options.want_event = false;
  const auto outputs = s.run(s.compile(kAddOne), {one_to_four(s)}, options);
  require(s.download_f32(outputs[0], 4) == Floats({2, 3, 4, 5}), "wrong result");
}

void check_launch_id(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kAddOne);
  for (int id : {0, -1234567, 2147483647}) {
    LaunchOptions options;
    options.launch_id = id;
    options.call_location = "program.py:12";
    require(
        s.download_f32(s.run(executable, {one_to_four(s)}, options)[0], 4) == Floats({2, 3, 4, 5}),
        "wrong result");
  }
}

void check_context(Session& s) {
  s.client();
  auto create = make_args<PJRT_ExecuteContext_Create_Args>();
  s.call_optional(HEKLA_SLOT(PJRT_ExecuteContext_Create), &create);
  require(create.context != nullptr, "the context is null");
  auto destroy = make_args<PJRT_ExecuteContext_Destroy_Args>();
  destroy.context = create.context;
  s.call(HEKLA_SLOT(PJRT_ExecuteContext_Destroy), &destroy);
}

// The launch must fail somewhere, with words, and leave the process and the client usable.
void require_refused(Session& s, PJRT_LoadedExecutable* executable,
                     const std::vector<PJRT_Buffer*>& arguments, const std::string& what,
                     const LaunchOptions& options = {}) {
  const auto error = s.execute_error(executable, arguments, options);
  require(error.has_value(), what + " was accepted");
  require(!error->message.empty(), what + " was refused without words");
}

void check_wrong_count(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kAdd);
  PJRT_Buffer* input = one_to_four(s);
  require_refused(s, executable, {input}, "one argument for two");
  require_refused(s, executable, {input, input, input}, "three arguments for two");
  require_refused(s, executable, {}, "no argument for two");
  check_add(s);
}

void check_wrong_shape(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kAdd);
  for (const auto& [count, dims] :
       {std::pair<size_t, std::vector<int64_t>>{3, {3}}, {8, {8}}, {4, {2, 2}}, {1, {}}}) {
    require_refused(s, executable, {one_to_four(s), s.upload_f32(Floats(count, 1.0f), dims)},
                    "an argument of rank " + std::to_string(dims.size()) + " with " +
                        std::to_string(count) + " elements for f32[4]");
  }
  check_add(s);
}

void check_wrong_type(Session& s) {
  const std::vector<int32_t> values = {1, 2, 3, 4};
  HostData host;
  host.type = PJRT_Buffer_Type_S32;
  host.dims = {4};
  host.data = values.data();
  require_refused(s, s.compile(kAdd), {one_to_four(s), s.upload(host)}, "s32[4] for f32[4]");
  check_add(s);
}

void check_deleted_argument(Session& s) {
  PJRT_Buffer* input = one_to_four(s);
  s.delete_buffer(input);
  require_refused(s, s.compile(kAdd), {one_to_four(s), input}, "a deleted argument");
  check_add(s);
}

void check_wrong_device(Session& s) {
  PJRT_Buffer* there = s.upload_f32({1, 2, 3, 4}, {4}, s.device(1));
  require_refused(s, s.compile(kAddOne), {there}, "an argument on another device");
}

void check_wrong_device_count(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kAddOne);
  PJRT_Buffer* input = one_to_four(s);
  auto options = make_args<PJRT_ExecuteOptions>();
  PJRT_Buffer* const list[] = {input};
  PJRT_Buffer* const* lists[] = {list, list};
  PJRT_Buffer* outputs[2][2] = {};
  PJRT_Buffer** output_lists[] = {outputs[0], outputs[1]};
  for (size_t devices : {0, 2}) {
    auto args = make_args<PJRT_LoadedExecutable_Execute_Args>();
    args.executable = executable;
    args.options = &options;
    args.argument_lists = lists;
    args.num_devices = devices;
    args.num_args = 1;
    args.output_lists = output_lists;
    s.call_fails(HEKLA_SLOT(PJRT_LoadedExecutable_Execute), &args, 0,
                 std::to_string(devices) + " devices for an executable of one");
    require(outputs[0][0] == nullptr, "a failed Execute wrote outputs");
  }
}

void check_null_lists(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kAddOne);
  PJRT_Buffer* const list[] = {one_to_four(s)};
  PJRT_Buffer* outputs[] = {nullptr};
  auto options = make_args<PJRT_ExecuteOptions>();
  for (const bool has_arguments : {false, true}) {
    PJRT_Buffer* const* lists[] = {has_arguments ? list : nullptr};
    PJRT_Buffer** output_lists[] = {has_arguments ? nullptr : outputs};
    auto args = make_args<PJRT_LoadedExecutable_Execute_Args>();
    args.executable = executable;
    args.options = &options;
    args.argument_lists = lists;
    args.num_devices = 1;
    args.num_args = 1;
    args.output_lists = output_lists;
    s.call_fails(HEKLA_SLOT(PJRT_LoadedExecutable_Execute), &args, 0,
                 has_arguments ? "a null list of outputs" : "a null list of arguments");
  }
  check_add(s);
}

void check_execute_device(Session& s) {
  CompileSettings settings;
  settings.device_ids = {s.device_id(s.device())};
  LaunchOptions options;
  options.execute_device = s.device();
  const auto outputs =
      s.run(s.compile(kAddOne, compile_options(settings)), {one_to_four(s)}, options);
  require(s.download_f32(outputs[0], 4) == Floats({2, 3, 4, 5}), "wrong result");
}

void check_all_devices(Session& s) {
  s.device(1);  // needs two
  CompileSettings settings;
  settings.replicas = 2;
  settings.device_ids = {s.device_id(s.device(0)), s.device_id(s.device(1))};
  PJRT_LoadedExecutable* executable = s.compile(kAddOne, compile_options(settings));
  PJRT_Buffer* const first[] = {s.upload_f32({1, 2, 3, 4}, {4}, s.device(0))};
  PJRT_Buffer* const second[] = {s.upload_f32({5, 6, 7, 8}, {4}, s.device(1))};
  PJRT_Buffer* const* lists[] = {first, second};
  PJRT_Buffer* outputs[2] = {};
  PJRT_Buffer** output_lists[] = {&outputs[0], &outputs[1]};
  PJRT_Event* events[2] = {};
  auto options = make_args<PJRT_ExecuteOptions>();
  auto args = make_args<PJRT_LoadedExecutable_Execute_Args>();
  args.executable = executable;
  args.options = &options;
  args.argument_lists = lists;
  args.num_devices = 2;
  args.num_args = 1;
  args.output_lists = output_lists;
  args.device_complete_events = events;
  s.call(HEKLA_SLOT(PJRT_LoadedExecutable_Execute), &args);
  for (int i = 0; i < 2; ++i) {
    require(outputs[i] != nullptr && events[i] != nullptr, "an output or event is null");
    s.own(outputs[i]);
    if (auto error = s.finish_event(events[i])) fail(error->text());
    auto where = make_args<PJRT_Buffer_Device_Args>();
    where.buffer = outputs[i];
    s.call(HEKLA_SLOT(PJRT_Buffer_Device), &where);
    require(where.device == s.device(i), "an output is on another device");
  }
  require(s.download_f32(outputs[0], 4) == Floats({2, 3, 4, 5}), "wrong result on device 0");
  require(s.download_f32(outputs[1], 4) == Floats({6, 7, 8, 9}), "wrong result on device 1");
}

// ---- Donation.

void donates(Session& s, std::string_view code) {
  PJRT_LoadedExecutable* executable = s.compile(code);
  PJRT_Buffer* donated = one_to_four(s);
  PJRT_Buffer* kept = one_to_four(s);
  const auto outputs = s.run(executable, {donated, kept});
  require(s.download_f32(outputs[0], 4) == Floats({2, 4, 6, 8}), "wrong result");
  require(s.is_deleted(donated), "the donated input is not deleted");
  require(!s.is_deleted(kept), "the other input is deleted");
  require(s.download_f32(kept, 4) == Floats({1, 2, 3, 4}), "the other input changed");
  require(s.download_error(donated, 16).has_value(), "a donated input can be read");
  require_refused(s, executable, {donated, kept}, "a donated argument");
}

void check_donation_alias(Session& s) { donates(s, kDonateAlias); }
void check_donation_any(Session& s) { donates(s, kDonateAny); }

void check_donation_refused(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kDonateAlias);
  PJRT_Buffer* input = one_to_four(s);
  LaunchOptions options;
  options.non_donatable = {0};
  const auto outputs = s.run(executable, {input, one_to_four(s)}, options);
  require(s.download_f32(outputs[0], 4) == Floats({2, 4, 6, 8}), "wrong result");
  require(!s.is_deleted(input), "an input listed as non-donatable is deleted");
  require(s.download_f32(input, 4) == Floats({1, 2, 3, 4}),
          "an input listed as non-donatable was overwritten");
}

// Launches with one buffer for both parameters: either a refusal, which leaves the buffer, or a
// copy; never a wrong result.
void donates_twice(Session& s, std::string_view code, const std::vector<Floats>& expected) {
  PJRT_LoadedExecutable* executable = s.compile(code);
  PJRT_Buffer* input = one_to_four(s);
  Launch launch;
  if (auto error = s.try_execute(executable, {input, input}, {}, &launch)) {
    require(!error->message.empty(), "refused without words");
    require(!s.is_deleted(input), "a launch that was refused deleted its argument");
    require(s.download_f32(input, 4) == Floats({1, 2, 3, 4}),
            "a launch that was refused changed its argument");
    s.remark("refused: " + code_name(error->code));
    return;
  }
  if (auto error = s.finish_event(launch.done)) {
    s.remark("refused by the event: " + code_name(error->code));
    return;
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    require(s.download_f32(launch.outputs[i], 4) == expected[i],
            "wrong result " + std::to_string(i));
  }
  s.remark("copied");
}

void check_donation_twice(Session& s) { donates_twice(s, kDonateAlias, {{2, 4, 6, 8}}); }
void check_donation_both(Session& s) {
  donates_twice(s, kDonateBoth, {{2, 3, 4, 5}, {1, 4, 9, 16}});
}

void check_donation_reference(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kDonateAlias);
  PJRT_Buffer* input = one_to_four(s);
  if (auto error = s.finish_event(s.ready_event(input))) fail(error->text());
  auto up = make_args<PJRT_Buffer_IncreaseExternalReferenceCount_Args>();
  up.buffer = input;
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_IncreaseExternalReferenceCount), &up);
  auto pointer = make_args<PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args>();
  pointer.buffer = input;
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_OpaqueDeviceMemoryDataPointer), &pointer);
  Launch launch;
  auto error = s.try_execute(executable, {input, one_to_four(s)}, {}, &launch);
  if (!error) error = s.finish_event(launch.done);
  if (error) {
    s.remark("refused: " + code_name(error->code));
  } else {
    require(s.download_f32(launch.outputs[0], 4) == Floats({2, 4, 6, 8}), "wrong result");
    s.remark("ran");
  }
  auto cpu = make_args<PJRT_Buffer_IsOnCpu_Args>();
  cpu.buffer = input;
  s.call(HEKLA_SLOT(PJRT_Buffer_IsOnCpu), &cpu);
  if (cpu.is_on_cpu) {
    const Floats want = {1, 2, 3, 4};
    require(std::memcmp(pointer.device_memory_ptr, want.data(), 16) == 0,
            "memory with an external reference was overwritten");
  }
  auto down = make_args<PJRT_Buffer_DecreaseExternalReferenceCount_Args>();
  down.buffer = input;
  s.call(HEKLA_SLOT(PJRT_Buffer_DecreaseExternalReferenceCount), &down);
}

// Of a reference and a donation at the same time one comes first: a reference that was granted
// keeps the buffer, whatever the launch does.
void check_donation_race(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kDonateAlias);
  s.num_outputs(executable);
  PJRT_Buffer* other = one_to_four(s);
  PJRT_Buffer* input = one_to_four(s);
  auto reference = make_args<PJRT_Buffer_IncreaseExternalReferenceCount_Args>();
  reference.buffer = input;
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_IncreaseExternalReferenceCount), &reference);

  constexpr int kRounds = 2000;
  constexpr int kNoMore = kRounds + 1;
  constexpr int kLongestDelay = 3000;  // iterations of an empty loop: longer than a launch takes
  std::atomic<int> asked{0}, started{0}, answered{0};
  std::atomic<bool> is_granted{false};
  // Both come out of it within a few nanoseconds where each has a core.
  const auto wait_for = [](const std::atomic<int>& counter, int value) {
    constexpr int kSpins = 10'000;
    for (int i = 0; counter.load() < value; ++i) {
      if (i >= kSpins) std::this_thread::yield();
    }
  };
  std::thread referrer([&] {
    for (int round = 1; round <= kRounds; ++round) {
      wait_for(asked, round);
      if (asked == kNoMore) return;
      started = round;
      for (std::atomic<int> delay{round * 37 % kLongestDelay}; delay > 0;) --delay;
      auto up = make_args<PJRT_Buffer_IncreaseExternalReferenceCount_Args>();
      up.buffer = input;
      PJRT_Error* error = s.api()->PJRT_Buffer_IncreaseExternalReferenceCount(&up);
      is_granted = error == nullptr;
      s.take(error);
      answered = round;
    }
  });
  const struct Joining {
    std::thread& thread;
    std::atomic<int>& asked;
    ~Joining() {
      asked = kNoMore;
      thread.join();
    }
  } joining{referrer, asked};
  int granted = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (int round = 1; round <= kRounds && std::chrono::steady_clock::now() < end; ++round) {
    input = one_to_four(s);
    asked = round;
    wait_for(started, round);
    Launch launch;
    auto error = s.try_execute(executable, {input, other}, {}, &launch);
    if (!error) error = s.finish_event(launch.done);
    wait_for(answered, round);
    if (is_granted) {
      ++granted;
      require(!s.is_deleted(input), "a launch consumed a buffer with an external reference");
      require(s.download_f32(input, 4) == Floats({1, 2, 3, 4}),
              "memory with an external reference was overwritten");
      auto down = make_args<PJRT_Buffer_DecreaseExternalReferenceCount_Args>();
      down.buffer = input;
      s.call(HEKLA_SLOT(PJRT_Buffer_DecreaseExternalReferenceCount), &down);
    }
    if (!error) s.destroy_buffer(launch.outputs[0]);
    s.destroy_buffer(input);
  }
  s.remark(std::to_string(granted) + " references came first");
}

void check_donation_failed_launch(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kDonateAlias);
  PJRT_Buffer* input = one_to_four(s);
  PJRT_Buffer* wrong = s.upload_f32({1, 2, 3}, {3});
  Launch launch;
  auto error = s.try_execute(executable, {input, wrong}, {}, &launch);
  if (!error) {
    error = s.finish_event(launch.done);
    require(error.has_value(), "f32[3] for f32[4] was accepted");
    throw NotOffered{"the launch fails asynchronously: " + error->text()};
  }
  require(!s.is_deleted(input), "a launch that failed at once consumed its input");
  require(s.download_f32(input, 4) == Floats({1, 2, 3, 4}), "the input changed");
}

void check_donation_chain(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kDonateAlias);
  PJRT_Buffer* step = one_to_four(s);
  PJRT_Buffer* state = s.upload_f32({0, 0, 0, 0}, {4});
  for (int i = 0; i < 100; ++i) {
    Launch launch = s.execute(executable, {state, step});
    s.destroy_event(launch.done);
    s.destroy_buffer(state);  // as clients drop donated handles at once
    state = launch.outputs[0];
  }
  require(s.download_f32(state, 4) == Floats({100, 200, 300, 400}), "wrong result");
}

void check_donation_while_read(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kDonateAlias);
  for (int i = 0; i < 20; ++i) {
    PJRT_Buffer* input = one_to_four(s);
    Floats back(4);
    auto args = make_args<PJRT_Buffer_ToHostBuffer_Args>();
    args.src = input;
    args.dst = back.data();
    args.dst_size = 16;
    s.call(HEKLA_SLOT(PJRT_Buffer_ToHostBuffer), &args);
    Launch launch = s.execute(executable, {input, one_to_four(s)});
    if (auto error = s.finish_event(args.event)) fail(error->text());
    require(back == Floats({1, 2, 3, 4}), "a donation overwrote a read that had begun");
    if (auto error = s.finish_event(launch.done)) fail(error->text());
  }
}

void check_donate_dependency(Session& s) {
  PJRT_Buffer* input = one_to_four(s);
  auto args = make_args<PJRT_Buffer_DonateWithControlDependency_Args>();
  args.buffer = input;
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_DonateWithControlDependency), &args);
  require(args.out_buffer != nullptr && args.dependency_ready_callback != nullptr,
          "the buffer or the callback is null");
  s.own(args.out_buffer);
  require(s.is_deleted(input), "the input is not consumed");
  PJRT_Event* ready = s.ready_event(args.out_buffer);
  require(!s.is_ready(ready), "the new buffer is ready before its dependency");
  auto callback = make_args<PJRT_Buffer_DonateWithControlDependency_Callback_Args>();
  callback.callback_data = args.callback_data;
  args.dependency_ready_callback(&callback);
  if (auto error = s.finish_event(ready)) fail(error->text());
  require(s.download_f32(args.out_buffer, 4) == Floats({1, 2, 3, 4}), "wrong values");
}

// ---- In flight.

void check_many_launches(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kAddOne);
  PJRT_Buffer* value = s.upload_f32({0, 0, 0, 0}, {4});
  std::vector<PJRT_Event*> events;
  for (int i = 0; i < 300; ++i) {
    Launch launch = s.execute(executable, {value});
    events.push_back(launch.done);
    value = launch.outputs[0];
  }
  for (PJRT_Event* event : events) {
    if (auto error = s.finish_event(event)) fail(error->text());
  }
  require(s.download_f32(value, 4) == Floats({300, 300, 300, 300}), "wrong result of a chain");
}

void check_error_argument(Session& s) {
  PJRT_Buffer* failed = s.error_buffer(PJRT_Error_Code_DATA_LOSS, "lost on the way");
  PJRT_LoadedExecutable* executable = s.compile(kAddOne);
  Launch launch;
  if (auto error = s.try_execute(executable, {failed}, {}, &launch)) {
    require(error->message.find("lost on the way") != std::string::npos, error->text());
    s.remark("refused by the call");
    return;
  }
  auto done = s.finish_event(launch.done);
  require(done.has_value(), "the device-complete event has no error");
  // Through a second launch, too.
  Launch second = s.execute(executable, {launch.outputs[0]});
  s.finish_event(second.done);
  for (PJRT_Buffer* buffer : {launch.outputs[0], second.outputs[0]}) {
    const auto error = s.finish_event(s.ready_event(buffer));
    require(error.has_value(), "an output of a failed argument has no error");
    require(error->message.find("lost on the way") != std::string::npos, error->text());
  }
}

void check_drop_inputs(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kLong);
  const Floats zeros(256 * 256, 0.0f);
  PJRT_Buffer* input = s.upload_f32(zeros, {256, 256});
  Launch first = s.execute(executable, {input});
  Launch second = s.execute(executable, {first.outputs[0]});
  s.destroy_event(first.done);
  s.destroy_event(second.done);
  s.destroy_buffer(input);
  s.destroy_buffer(first.outputs[0]);
  s.destroy_executable(executable);
  const Floats values = s.download_f32(second.outputs[0], zeros.size());
  require(values[0] == 2.0f && values.back() == 2.0f,
          "a launch in flight lost its inputs or its executable");
}

void check_drop_outputs(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kLong);
  const Floats zeros(256 * 256, 0.0f);
  PJRT_Buffer* input = s.upload_f32(zeros, {256, 256});
  for (int i = 0; i < 3; ++i) {
    Launch launch = s.execute(executable, {input});
    s.destroy_buffer(launch.outputs[0]);
    if (auto error = s.finish_event(launch.done)) fail(error->text());
  }
}

void check_threads(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kAdd);
  s.num_outputs(executable);
  std::mutex mutex;
  std::string reason;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      try {
        for (int i = 0; i < 25; ++i) {
          const float value = static_cast<float>(t * 100 + i);
          PJRT_Buffer* a = s.upload_f32(Floats(4, value), {4});
          PJRT_Buffer* b = s.upload_f32(Floats(4, 1.0f), {4});
          const auto outputs = s.run(executable, {a, b});
          require(s.download_f32(outputs[0], 4) == Floats(4, value + 1), "wrong result");
          for (PJRT_Buffer* buffer : {a, b, outputs[0]}) s.destroy_buffer(buffer);
        }
      } catch (const Failure& failure) {
        std::lock_guard lock(mutex);
        reason = failure.reason;
      } catch (const NotOffered& refusal) {
        std::lock_guard lock(mutex);
        reason = refusal.reason;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  require(reason.empty(), reason);
}

constexpr Check kExecuteChecks[] = {
    {"execute-add", "A launch gives the right result on the right device.", check_add},
    {"execute-several-outputs", "Several outputs of several types come in order.", check_outputs},
    {"execute-no-arguments", "A program without arguments runs.", check_no_arguments},
    {"execute-identity", "An output that is an input is a buffer of its own.", check_identity},
    {"execute-same-argument", "One buffer can be two arguments.", check_same_argument},
    {"execute-zero-size", "Programs on arrays without elements run.", check_execute_zero_size},
    {"execute-matmul", "A matrix product is right.", check_matmul},
    {"execute-loop", "A counted loop is right.", check_loop},
    {"execute-event", "The device-complete event fires once, also when destroyed early.",
     check_output_event},
    {"execute-no-event", "A launch without device_complete_events runs.", check_no_event},
    {"execute-launch-id", "Any launch id and a call location are accepted.", check_launch_id},
    {"execute-context", "An execute context can be created and destroyed.", check_context},
    {"execute-wrong-count", "A wrong number of arguments is an error.", check_wrong_count},
    {"execute-wrong-shape", "An argument of another shape is an error.", check_wrong_shape},
    {"execute-wrong-type", "An argument of another element type is an error.", check_wrong_type},
    {"execute-deleted-argument", "A deleted argument is an error.", check_deleted_argument},
    {"execute-wrong-device", "An argument on another device is an error.", check_wrong_device},
    {"execute-null-lists", "A device's list of arguments or outputs that is null is refused.",
     check_null_lists},
    {"execute-wrong-device-count", "A wrong number of devices is an error that writes nothing.",
     check_wrong_device_count},
    {"execute-on-device", "A launch can name its device.", check_execute_device},
    {"execute-two-replicas", "Two replicas run on two devices.", check_all_devices},
};

constexpr Check kDonationChecks[] = {
    {"donation-alias",
     "An input with tf.aliasing_output is deleted by the launch and refused by the next.",
     check_donation_alias},
    {"donation-donor", "An input with jax.buffer_donor is deleted by the launch.",
     check_donation_any},
    {"donation-non-donatable", "An input listed as non-donatable keeps its values.",
     check_donation_refused},
    {"donation-twice", "A donated input that is passed twice is refused or copied.",
     check_donation_twice},
    {"donation-both", "One buffer for two donated inputs is refused or copied.",
     check_donation_both},
    {"donation-external-reference",
     "A donated input with an external reference is refused or copied, not overwritten.",
     check_donation_reference},
    {"donation-race",
     "An external reference that is granted while a launch asks for the buffer keeps it.",
     check_donation_race},
    {"donation-failed-launch", "A launch that fails at once leaves its inputs valid.",
     check_donation_failed_launch},
    {"donation-chain", "A hundred launches pass one donated state along.", check_donation_chain},
    {"donation-during-read", "A donation does not overwrite a read that has begun.",
     check_donation_while_read},
    {"donate-with-dependency", "A buffer donated with a dependency is usable after its callback.",
     check_donate_dependency},
};

constexpr Check kFlightChecks[] = {
    {"many-launches-in-flight", "Three hundred dependent launches can be in flight.",
     check_many_launches},
    {"error-argument", "The error of an argument reaches every output, through two launches.",
     check_error_argument},
    {"inputs-dropped-in-flight", "Inputs and the executable may be destroyed while a launch runs.",
     check_drop_inputs},
    {"outputs-dropped-in-flight", "Outputs may be destroyed before they are computed.",
     check_drop_outputs},
    {"concurrent-launches", "Several threads upload, launch and read at the same time.",
     check_threads},
};

}  // namespace

std::span<const Check> execute_checks() { return kExecuteChecks; }
std::span<const Check> donation_checks() { return kDonationChecks; }
std::span<const Check> flight_checks() { return kFlightChecks; }

}  // namespace hekla::conformance
