// SPDX-License-Identifier: Apache-2.0
// Programs that send to their host and receive from it.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "plugin_api/conformance/check.h"
#include "plugin_api/conformance/programs.h"
#include "plugin_api/conformance/session.h"

namespace hekla::conformance {
namespace {

using Floats = std::vector<float>;

// a f32[4] -> what the host answers on channel 2 to a on channel 1, plus 1.
constexpr std::string_view kAsk = R"(module @ask {
  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %t0 = stablehlo.create_token : !stablehlo.token
    %t1 = "stablehlo.send"(%a, %t0) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true, mhlo.frontend_attributes = {_xla_host_transfer_handler_name = "pjrt_rendezvous", _xla_host_transfer_rendezvous = "1"}} : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
    %r:2 = "stablehlo.recv"(%t1) {channel_handle = #stablehlo.channel_handle<handle = 2, type = 3>, is_host_transfer = true, mhlo.frontend_attributes = {_xla_host_transfer_handler_name = "pjrt_rendezvous", _xla_host_transfer_rendezvous = "2"}} : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
    %one = stablehlo.constant dense<1.0> : tensor<4xf32>
    %s = stablehlo.add %r#0, %one : tensor<4xf32>
    return %s : tensor<4xf32>
  }
})";
// a f32[4] -> a; five times, sends the iteration's number (i32) on channel 1, then twice that on 2.
constexpr std::string_view kTell = R"(module @tell {
  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %five = stablehlo.constant dense<5> : tensor<i32>
    %t = stablehlo.create_token : !stablehlo.token
    %r:2 = "stablehlo.while"(%zero, %t) ({
    ^bb0(%i: tensor<i32>, %u: !stablehlo.token):
      %more = stablehlo.compare LT, %i, %five, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    }, {
    ^bb0(%i: tensor<i32>, %u: !stablehlo.token):
      %next = stablehlo.add %i, %one : tensor<i32>
      %twice = stablehlo.add %i, %i : tensor<i32>
      %u1 = "stablehlo.send"(%i, %u) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true, mhlo.frontend_attributes = {_xla_host_transfer_handler_name = "pjrt_rendezvous", _xla_host_transfer_rendezvous = "1"}} : (tensor<i32>, !stablehlo.token) -> !stablehlo.token
      %u2 = "stablehlo.send"(%twice, %u1) {channel_handle = #stablehlo.channel_handle<handle = 2, type = 2>, is_host_transfer = true, mhlo.frontend_attributes = {_xla_host_transfer_handler_name = "pjrt_rendezvous", _xla_host_transfer_rendezvous = "2"}} : (tensor<i32>, !stablehlo.token) -> !stablehlo.token
      stablehlo.return %next, %u2 : tensor<i32>, !stablehlo.token
    }) : (tensor<i32>, !stablehlo.token) -> (tensor<i32>, !stablehlo.token)
    return %a : tensor<4xf32>
  }
})";

// The callbacks of one channel. What they throw is kept and thrown again by the check.
struct Channel {
  int64_t id = 0;
  // Answers with an error's words; empty: none.
  std::function<std::string(const PJRT_Chunk& chunk, size_t total, bool done)> on_send;
  std::function<void(PJRT_CopyToDeviceStream* stream)> on_receive;
};

PJRT_Error* call_send(PJRT_Chunk* chunk, PJRT_CallbackError* make_error, size_t total, bool done,
                      void* self) {
  const auto& channel = *static_cast<const Channel*>(self);
  const std::string error = channel.on_send(*chunk, total, done);
  if (chunk->deleter != nullptr) chunk->deleter(chunk->data, chunk->deleter_arg);
  if (error.empty()) return nullptr;
  return (*make_error)(PJRT_Error_Code_INTERNAL, error.data(), error.size());
}

void call_receive(PJRT_CopyToDeviceStream* stream, void* self) {
  static_cast<const Channel*>(self)->on_receive(stream);
}

class CallbackHost {
 public:
  // An executable on `count` devices, replicas of each other.
  CallbackHost(Session& s, std::string_view program, size_t count = 1) : s_(s) {
    CompileSettings settings;
    settings.device_ids.clear();
    for (size_t d = 0; d < count; ++d) {
      devices_.push_back(s.device(d));
      settings.device_ids.push_back(s.device_id(devices_.back()));
    }
    settings.replicas = static_cast<int>(count);
    if (auto error =
            s.try_compile(program, "mlir", compile_options(settings), &executable_, nullptr)) {
      if (error->code == PJRT_Error_Code_UNIMPLEMENTED) throw NotOffered{error->text()};
      fail("compiling a program with host transfers: " + error->text());
    }
  }

  // The device's channels: sends, then receives.
  std::optional<ErrorInfo> try_launch(std::vector<std::vector<Channel>>& sends,
                                      std::vector<std::vector<Channel>>& receives) {
    const size_t count = devices_.size();
    outputs_.assign(count, nullptr);
    events_.assign(count, nullptr);
    std::vector<std::vector<PJRT_SendCallbackInfo>> send_infos(count);
    std::vector<std::vector<PJRT_RecvCallbackInfo>> receive_infos(count);
    std::vector<PJRT_SendCallbackInfo*> send_lists;
    std::vector<PJRT_RecvCallbackInfo*> receive_lists;
    std::vector<PJRT_Buffer*> arguments;
    for (PJRT_Device* device : devices_) {
      arguments.push_back(s_.upload_f32({1, 2, 3, 4}, {4}, device));
    }
    std::vector<PJRT_Buffer* const*> lists;
    std::vector<PJRT_Buffer**> output_lists;
    for (size_t d = 0; d < count; ++d) {
      for (Channel& channel : sends[d]) send_infos[d].push_back({channel.id, &channel, call_send});
      for (Channel& channel : receives[d]) {
        receive_infos[d].push_back({channel.id, &channel, call_receive});
      }
      send_lists.push_back(send_infos[d].data());
      receive_lists.push_back(receive_infos[d].data());
      lists.push_back(&arguments[d]);
      output_lists.push_back(&outputs_[d]);
    }
    auto options = make_args<PJRT_ExecuteOptions>();
    options.send_callbacks = send_lists.data();
    options.recv_callbacks = receive_lists.data();
    options.num_send_ops = sends[0].size();
    options.num_recv_ops = receives[0].size();
    options.use_major_to_minor_data_layout_for_callbacks = true;
    auto args = make_args<PJRT_LoadedExecutable_Execute_Args>();
    args.executable = executable_;
    args.options = &options;
    args.argument_lists = lists.data();
    args.num_devices = count;
    args.num_args = 1;
    args.output_lists = output_lists.data();
    args.device_complete_events = events_.data();
    auto error = s_.try_call(HEKLA_SLOT(PJRT_LoadedExecutable_Execute), &args);
    for (size_t d = 0; d < count && !error; ++d) s_.own(outputs_[d]);
    return error;
  }
  std::optional<ErrorInfo> finish(size_t d = 0) { return s_.finish_event(events_[d]); }
  Floats output(size_t d = 0) { return s_.download_f32(outputs_[d], 4); }

  // One device: the error of the call or of the launch.
  std::optional<ErrorInfo> run(std::vector<Channel> sends, std::vector<Channel> receives) {
    std::vector<std::vector<Channel>> all_sends = {std::move(sends)};
    std::vector<std::vector<Channel>> all_receives = {std::move(receives)};
    if (auto error = try_launch(all_sends, all_receives)) return error;
    return finish();
  }

  // Adds a chunk of `size` bytes; its error, if any. Also checks that it is let go of.
  std::optional<ErrorInfo> add(PJRT_CopyToDeviceStream* stream, const void* data, size_t size) {
    auto* copy = new std::vector<char>(size);
    if (size > 0) std::memcpy(copy->data(), data, size);
    PJRT_Chunk chunk = {};
    chunk.data = copy->data();
    chunk.size = size;
    chunk.deleter = [](void*, void* owner) { delete static_cast<std::vector<char>*>(owner); };
    chunk.deleter_arg = copy;
    return add_chunk(stream, chunk);
  }
  std::optional<ErrorInfo> add_chunk(PJRT_CopyToDeviceStream* stream, PJRT_Chunk chunk) {
    auto args = make_args<PJRT_CopyToDeviceStream_AddChunk_Args>();
    args.stream = stream;
    args.chunk = &chunk;
    auto error = s_.try_call(HEKLA_SLOT(PJRT_CopyToDeviceStream_AddChunk), &args);
    if (!error && args.transfer_complete != nullptr)
      error = s_.finish_event(args.transfer_complete);
    return error;
  }
  void destroy(PJRT_CopyToDeviceStream* stream) {
    auto args = make_args<PJRT_CopyToDeviceStream_Destroy_Args>();
    args.stream = stream;
    s_.call(HEKLA_SLOT(PJRT_CopyToDeviceStream_Destroy), &args);
  }
  int64_t total_bytes(PJRT_CopyToDeviceStream* stream) {
    auto args = make_args<PJRT_CopyToDeviceStream_TotalBytes_Args>();
    args.stream = stream;
    s_.call(HEKLA_SLOT(PJRT_CopyToDeviceStream_TotalBytes), &args);
    return args.total_bytes;
  }
  int64_t granule(PJRT_CopyToDeviceStream* stream) {
    auto args = make_args<PJRT_CopyToDeviceStream_GranuleSize_Args>();
    args.stream = stream;
    s_.call(HEKLA_SLOT(PJRT_CopyToDeviceStream_GranuleSize), &args);
    return args.granule_size_in_bytes;
  }
  int64_t current_bytes(PJRT_CopyToDeviceStream* stream) {
    auto args = make_args<PJRT_CopyToDeviceStream_CurrentBytes_Args>();
    args.stream = stream;
    s_.call(HEKLA_SLOT(PJRT_CopyToDeviceStream_CurrentBytes), &args);
    return args.current_bytes;
  }

  // The usual answer: channel 1's values doubled, on channel 2.
  Channel doubling_send() {
    return {1,
            [this](const PJRT_Chunk& chunk, size_t total, bool done) -> std::string {
              if (chunk.size != 16 || total != 16 || !done) return "not one chunk of 16 bytes";
              values_.resize(4);
              std::memcpy(values_.data(), chunk.data, 16);
              for (float& value : values_) value *= 2;
              return "";
            },
            {}};
  }
  Channel answer() {
    return {2, {}, [this](PJRT_CopyToDeviceStream* stream) {
              static_cast<void>(add(stream, values_.data(), 16));
              destroy(stream);
            }};
  }

 private:
  Session& s_;
  std::vector<PJRT_Device*> devices_;
  PJRT_LoadedExecutable* executable_ = nullptr;
  std::vector<PJRT_Buffer*> outputs_;
  std::vector<PJRT_Event*> events_;
  Floats values_;
};

void require_answer(CallbackHost& host, const std::optional<ErrorInfo>& error) {
  if (error) fail("the launch: " + error->text());
  require(host.output() == Floats({3, 5, 7, 9}), "wrong result");
}

void check_callback_round_trip(Session& s) {
  CallbackHost host(s, kAsk);
  for (int i = 0; i < 3; ++i) {
    require_answer(host, host.run({host.doubling_send()}, {host.answer()}));
  }
}

void check_callback_late_chunks(Session& s) {
  CallbackHost host(s, kAsk);
  std::thread late;
  std::string wrong;
  const Channel answer = {2, {}, [&](PJRT_CopyToDeviceStream* stream) {
                            late = std::thread([&, stream] {
                              std::this_thread::sleep_for(std::chrono::milliseconds(50));
                              const float values[] = {2, 4, 6, 8, 10};
                              if (host.total_bytes(stream) != 16) wrong = "total bytes";
                              if (16 % host.granule(stream) != 0) wrong = "granule";
                              if (host.current_bytes(stream) != 0) wrong = "bytes at the start";
                              if (!host.add(stream, values, 20))
                                wrong = "a chunk too long is taken";
                              if (host.granule(stream) <= 8) {
                                if (host.add(stream, values, 8)) wrong = "half is refused";
                                if (host.current_bytes(stream) != 8) wrong = "bytes after half";
                                if (host.add(stream, values + 2, 8)) wrong = "the rest is refused";
                              } else if (host.add(stream, values, 16)) {
                                wrong = "all is refused";
                              }
                              if (host.current_bytes(stream) != 16) wrong = "bytes at the end";
                              host.destroy(stream);
                            });
                          }};
  const auto error = host.run({host.doubling_send()}, {answer});
  if (late.joinable()) late.join();
  require(wrong.empty(), wrong);
  require_answer(host, error);
}

void check_callback_huge_chunk(Session& s) {
  CallbackHost host(s, kAsk);
  std::string wrong;
  const Channel answer = {2, {}, [&](PJRT_CopyToDeviceStream* stream) {
                            float values[] = {2, 4, 6, 8};
                            for (const size_t size : {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX - 15}) {
                              PJRT_Chunk chunk = {};
                              chunk.data = values;
                              chunk.size = size;
                              chunk.deleter = [](void*, void*) {};
                              if (!host.add_chunk(stream, chunk)) wrong = "it is taken";
                              if (host.current_bytes(stream) != 0) wrong = "it is counted";
                            }
                            if (host.add(stream, values, 16)) wrong = "the next one is refused";
                            host.destroy(stream);
                          }};
  const auto error = host.run({host.doubling_send()}, {answer});
  require(wrong.empty(), wrong);
  require_answer(host, error);
}

void check_callback_order(Session& s) {
  CallbackHost host(s, kTell);
  std::vector<int32_t> seen;
  const auto note = [&](int64_t id) {
    return Channel{id,
                   [&](const PJRT_Chunk& chunk, size_t total, bool) -> std::string {
                     if (chunk.size != 4 || total != 4) return "not 4 bytes";
                     std::memcpy(&seen.emplace_back(), chunk.data, 4);
                     return "";
                   },
                   {}};
  };
  if (auto error = host.run({note(2), note(1)}, {})) fail("the launch: " + error->text());
  require(seen == std::vector<int32_t>({0, 0, 1, 2, 2, 4, 3, 6, 4, 8}),
          "sends out of order, or not each once");
}

void check_callback_error(Session& s) {
  CallbackHost host(s, kAsk);
  const Channel bad = {
      1, [](const PJRT_Chunk&, size_t, bool) { return "the host's own words"; }, {}};
  const auto error = host.run({bad}, {host.answer()});
  require(error.has_value(), "the launch ended well");
  require(error->message.find("the host's own words") != std::string::npos,
          "another error: " + error->text());
  require_answer(host, host.run({host.doubling_send()}, {host.answer()}));
}

void check_callback_stream_dropped(Session& s) {
  CallbackHost host(s, kAsk);
  const float half[] = {1, 2};
  for (const size_t size : {size_t{0}, sizeof(half)}) {
    const Channel dropped = {2, {}, [&](PJRT_CopyToDeviceStream* stream) {
                               if (size > 0) static_cast<void>(host.add(stream, half, size));
                               host.destroy(stream);
                             }};
    require(host.run({host.doubling_send()}, {dropped}).has_value(),
            "a launch that got " + std::to_string(size) + " of 16 bytes ended well");
  }
  require_answer(host, host.run({host.doubling_send()}, {host.answer()}));
}

void check_callback_missing(Session& s) {
  CallbackHost host(s, kAsk);
  require(host.run({}, {}).has_value(), "a launch without callbacks ended well");
  require(host.run({host.doubling_send()}, {}).has_value(),
          "a launch without a receive callback ended well");
  require_answer(host, host.run({host.doubling_send()}, {host.answer()}));
}

void check_callback_launches_inside(Session& s) {
  CallbackHost outer(s, kAsk), inner(s, kAsk);
  PJRT_LoadedExecutable* plain = s.compile(kAddOne);
  std::string wrong;
  const Channel nested = {2, {}, [&](PJRT_CopyToDeviceStream* stream) {
                            const auto error = inner.run({inner.doubling_send()}, {inner.answer()});
                            if (error) wrong = error->text();
                            const Floats values = inner.output();
                            const auto more = s.run(plain, {s.upload_f32(values, {4})});
                            const Floats sums = s.download_f32(more[0], 4);
                            static_cast<void>(outer.add(stream, sums.data(), 16));
                            outer.destroy(stream);
                          }};
  const auto error = outer.run({outer.doubling_send()}, {nested});
  if (error) fail("the launch: " + error->text());
  require(wrong.empty(), wrong);
  require(outer.output() == Floats({5, 7, 9, 11}), "wrong result");
}

void check_callback_gang(Session& s) {
  CallbackHost host(s, kAsk, 2);
  // Each device has callbacks of its own.
  std::vector<std::vector<Channel>> sends(2), receives(2);
  for (size_t d = 0; d < 2; ++d) {
    sends[d] = {{1, [](const PJRT_Chunk&, size_t, bool) { return ""; }, {}}};
    receives[d] = {{2, {}, [&host, d](PJRT_CopyToDeviceStream* stream) {
                      const Floats values(4, static_cast<float>(d) * 10);
                      static_cast<void>(host.add(stream, values.data(), 16));
                      host.destroy(stream);
                    }}};
  }
  if (auto error = host.try_launch(sends, receives)) fail("the launch: " + error->text());
  for (size_t d = 0; d < 2; ++d) {
    if (auto error = host.finish(d)) fail("the launch: " + error->text());
    require(host.output(d) == Floats(4, static_cast<float>(d) * 10 + 1), "wrong result");
  }
}

void check_callback_gang_error(Session& s) {
  CallbackHost host(s, kAsk, 2);
  // The second never hears from its host.
  PJRT_CopyToDeviceStream* waiting = nullptr;
  std::vector<std::vector<Channel>> sends(2), receives(2);
  sends[0] = {{1, [](const PJRT_Chunk&, size_t, bool) { return "the first broke"; }, {}}};
  receives[0] = {host.answer()};
  sends[1] = {{1, [](const PJRT_Chunk&, size_t, bool) { return ""; }, {}}};
  receives[1] = {{2, {}, [&](PJRT_CopyToDeviceStream* stream) { waiting = stream; }}};
  if (auto error = host.try_launch(sends, receives)) fail("the launch: " + error->text());
  for (size_t d = 0; d < 2; ++d) {
    const auto error = host.finish(d);
    require(error.has_value(), "number " + std::to_string(d) + " ended without an error");
    require(error->message.find("the first broke") != std::string::npos,
            "number " + std::to_string(d) + " ended with another error: " + error->text());
  }
  if (waiting == nullptr) return;
  const float late[] = {1, 2, 3, 4};
  static_cast<void>(host.add(waiting, late, 16));  // harmless, whatever it says
  host.destroy(waiting);
}

constexpr Check kCallbackChecks[] = {
    {"callback-round-trip", "What a program sends reaches its host whole, and the answer it.",
     check_callback_round_trip},
    {"callback-late-chunks",
     "A stream takes chunks later and from another thread, up to its total.",
     check_callback_late_chunks},
    {"callback-huge-chunk", "A chunk of more bytes than any memory has is refused.",
     check_callback_huge_chunk},
    {"callback-order", "Sends run in the order of their tokens, in loops too, each once.",
     check_callback_order},
    {"callback-error", "An error of a send callback ends the launch, in its words.",
     check_callback_error},
    {"callback-stream-dropped", "A stream that is destroyed before it is full fails the launch.",
     check_callback_stream_dropped},
    {"callback-missing", "A launch without a callback for a channel is an error.",
     check_callback_missing},
    {"callback-launches-inside", "A callback may launch on the same device and wait.",
     check_callback_launches_inside},
    {"callback-gang", "Each device of a launch has callbacks of its own.", check_callback_gang},
    {"callback-gang-error", "An error of one device's callback ends the other's wait for its host.",
     check_callback_gang_error},
};

}  // namespace

std::span<const Check> callback_checks() { return kCallbackChecks; }

}  // namespace hekla::conformance
