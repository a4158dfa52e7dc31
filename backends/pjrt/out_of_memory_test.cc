// SPDX-License-Identifier: Apache-2.0
// What calls leave behind when memory runs out in the middle: an error, nothing lost, no event that
// never comes. Each case runs with one allocation more until it needs no more.
#include <functional>
#include <string>
#include <string_view>

#include "backends/pjrt/testing/fake_client.h"
#include "backends/pjrt/testing/scarce_memory.h"

namespace hekla::pjrt {
namespace {

using hekla::testing::ScarceMemory;
using testing::make;
using testing::ok;
using testing::take;

// The first argument is given up for the first result.
constexpr std::string_view kProgram = R"(
func.func @main(%0: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %1: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %2 = stablehlo.add %0, %1 : tensor<4xf32>
  return %2, %1 : tensor<4xf32>, tensor<4xf32>
})";

class OutOfMemoryTest : public testing::FakeClientTest {
 protected:
  OutOfMemoryTest() { semantics_ = PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes; }
  ~OutOfMemoryTest() override {
    FakeExecutable::play_launch = nullptr;
    destroy(input_);
    if (executable_ != nullptr) {
      auto args = make<PJRT_LoadedExecutable_Destroy_Args>();
      args.executable = executable_;
      EXPECT_TRUE(ok(api_.PJRT_LoadedExecutable_Destroy(&args)));
    }
  }

  // Calls with 0, 1, 2 ... allocations until it succeeds. Each error must say that memory is out.
  template <typename Args>
  void until_it_succeeds(PJRT_Error* (*slot)(Args*), const std::function<Args()>& arguments,
                         const std::function<void(const Args&, bool)>& look) {
    for (int64_t count = 0;; ++count) {
      ASSERT_LT(count, 1000);
      Args args = arguments();
      PJRT_Error* error = nullptr;
      bool was_missed = false;
      {
        const ScarceMemory scarce(count);
        error = slot(&args);
        was_missed = ScarceMemory::was_missed();
      }
      const int code = take(error).code;
      if (code != PJRT_Error_Code_OK) {
        EXPECT_EQ(code, PJRT_Error_Code_RESOURCE_EXHAUSTED);
      }
      look(args, code == PJRT_Error_Code_OK);
      if (!was_missed) {
        EXPECT_EQ(code, PJRT_Error_Code_OK);
        return;
      }
    }
  }

  bool is_deleted(PJRT_Buffer* buffer) {
    auto args = make<PJRT_Buffer_IsDeleted_Args>();
    args.buffer = buffer;
    EXPECT_TRUE(ok(api_.PJRT_Buffer_IsDeleted(&args)));
    return args.is_deleted;
  }
  bool is_right(PJRT_Buffer* buffer) {
    float got[kCount] = {};
    auto args = make<PJRT_Buffer_ToHostBuffer_Args>();
    args.src = buffer;
    args.dst = got;
    args.dst_size = sizeof(got);
    if (!ok(api_.PJRT_Buffer_ToHostBuffer(&args))) return false;
    destroy(args.event);
    return std::memcmp(got, values_, sizeof(got)) == 0;
  }
  PJRT_Client_Compile_Args compile_args() {
    program_ = make<PJRT_Program>();
    program_.code = code_.data();
    program_.code_size = code_.size();
    program_.format = format_.data();
    program_.format_size = format_.size();
    auto args = make<PJRT_Client_Compile_Args>();
    args.client = client_;
    args.program = &program_;
    return args;
  }
  void compile() {
    auto args = compile_args();
    ASSERT_TRUE(ok(api_.PJRT_Client_Compile(&args)));
    executable_ = args.executable;
  }
  // One launch on `arguments_`.
  PJRT_LoadedExecutable_Execute_Args execute_args() {
    options_ = make<PJRT_ExecuteOptions>();
    for (size_t i = 0; i < 2; ++i) results_[i] = nullptr;
    event_ = nullptr;
    auto args = make<PJRT_LoadedExecutable_Execute_Args>();
    args.executable = executable_;
    args.options = &options_;
    args.num_devices = 1;
    args.num_args = 2;
    args.argument_lists = &argument_list_;
    args.output_lists = &result_list_;
    args.device_complete_events = &event_;
    return args;
  }

  std::string code_{kProgram}, format_{"mlir"};
  PJRT_Program program_ = {};
  PJRT_LoadedExecutable* executable_ = nullptr;
  PJRT_Buffer* input_ = nullptr;
  PJRT_Buffer* arguments_[2] = {};
  PJRT_Buffer* results_[2] = {};
  PJRT_Event* event_ = nullptr;
  PJRT_ExecuteOptions options_ = {};
  PJRT_Buffer* const* argument_list_ = arguments_;
  PJRT_Buffer** result_list_ = results_;
};

TEST_F(OutOfMemoryTest, Upload) {
  for (const int64_t stride : {4, -4}) {
    until_it_succeeds<PJRT_Client_BufferFromHostBuffer_Args>(
        api_.PJRT_Client_BufferFromHostBuffer,
        [&] {
          auto args = upload_args();
          if (stride < 0) args.data = values_ + kCount - 1;
          args.byte_strides = &stride;
          args.num_byte_strides = 1;
          return args;
        },
        [&](const auto& args, bool is_ok) {
          if (!is_ok) {
            EXPECT_EQ(args.buffer, nullptr);
            EXPECT_EQ(args.done_with_host_buffer, nullptr);
            EXPECT_EQ(FakeStorage::alive, 0);
            return;
          }
          destroy(args.done_with_host_buffer);
          destroy(args.buffer);
        });
  }
}

TEST_F(OutOfMemoryTest, Download) {
  input_ = upload();
  const int64_t strides[] = {8};
  PJRT_Buffer_MemoryLayout layout = {};
  layout.type = PJRT_Buffer_MemoryLayout_Type_Strides;
  layout.strides.byte_strides = strides;
  layout.strides.num_byte_strides = 1;
  float got[2 * kCount] = {};
  for (PJRT_Buffer_MemoryLayout* one : {static_cast<PJRT_Buffer_MemoryLayout*>(nullptr), &layout}) {
    until_it_succeeds<PJRT_Buffer_ToHostBuffer_Args>(
        api_.PJRT_Buffer_ToHostBuffer,
        [&] {
          auto args = make<PJRT_Buffer_ToHostBuffer_Args>();
          args.src = input_;
          args.dst = got;
          args.dst_size = sizeof(got);
          args.host_layout = one;
          return args;
        },
        [&](const auto& args, bool is_ok) {
          if (!is_ok) {
            EXPECT_EQ(args.event, nullptr);
            return;
          }
          EXPECT_TRUE(args.event->completion->is_done());
          destroy(args.event);
        });
  }
}

TEST_F(OutOfMemoryTest, ExecuteLosesNoDonatedInput) {
  compile();
  arguments_[0] = upload();
  arguments_[1] = input_ = upload();
  until_it_succeeds<PJRT_LoadedExecutable_Execute_Args>(
      api_.PJRT_LoadedExecutable_Execute, [&] { return execute_args(); },
      [&](const auto&, bool is_ok) {
        if (!is_ok) {
          EXPECT_EQ(results_[0], nullptr);
          EXPECT_EQ(results_[1], nullptr);
          EXPECT_EQ(event_, nullptr);
          EXPECT_TRUE(is_right(arguments_[0]));
          EXPECT_EQ(FakeStorage::alive, 2);
          return;
        }
        EXPECT_TRUE(is_deleted(arguments_[0]));
        EXPECT_TRUE(event_->completion->is_done());
        destroy(event_);
        for (PJRT_Buffer* result : results_) destroy(result);
      });
  destroy(arguments_[0]);
}

// A backend that throws, or refuses, after it was handed the inputs.
TEST_F(OutOfMemoryTest, ABackendThatThrowsLosesNoDonatedInput) {
  compile();
  arguments_[0] = upload();
  arguments_[1] = input_ = upload();
  const std::function<Status(std::span<Launch>)> failures[] = {
      [](std::span<Launch>) -> Status { throw std::bad_alloc(); },
      [](std::span<Launch>) -> Status { throw std::runtime_error("the backend broke"); },
      [](std::span<Launch>) -> Status { throw 1; },
      [](std::span<Launch>) { return unavailable("the device is busy"); },
  };
  for (const auto& failure : failures) {
    FakeExecutable::play_launch = failure;
    auto args = execute_args();
    EXPECT_FALSE(ok(api_.PJRT_LoadedExecutable_Execute(&args)));
    EXPECT_EQ(results_[0], nullptr);
    EXPECT_EQ(event_, nullptr);
    EXPECT_TRUE(is_right(arguments_[0]));
    EXPECT_EQ(FakeStorage::alive, 2);
  }
  destroy(arguments_[0]);
}

TEST_F(OutOfMemoryTest, DonationWithDependency) {
  for (int64_t count = 0;; ++count) {
    ASSERT_LT(count, 1000);
    PJRT_Buffer* const buffer = upload();
    auto args = make<PJRT_Buffer_DonateWithControlDependency_Args>();
    args.buffer = buffer;
    PJRT_Error* error = nullptr;
    {
      const ScarceMemory scarce(count);
      error = api_.PJRT_Buffer_DonateWithControlDependency(&args);
    }
    const bool is_ok = ok(error);
    if (!is_ok) {
      EXPECT_TRUE(is_right(buffer));
    }
    if (is_ok) {
      EXPECT_TRUE(is_deleted(buffer));
      auto ready = make<PJRT_Buffer_DonateWithControlDependency_Callback_Args>();
      ready.callback_data = args.callback_data;
      ready.error_code = PJRT_Error_Code_ABORTED;
      const std::string_view why = "longer than what a string keeps inside of itself";
      ready.error_message = why.data();
      ready.error_message_size = why.size();
      {
        const ScarceMemory scarce(0);
        args.dependency_ready_callback(&ready);
      }
      EXPECT_TRUE(args.out_buffer->ready->is_done());
      EXPECT_FALSE(args.out_buffer->ready->status().ok());
      destroy(args.out_buffer);
    }
    destroy(buffer);
    if (is_ok) return;
  }
}

TEST_F(OutOfMemoryTest, RawCopyToAFuture) {
  input_ = upload();
  float got[kCount] = {};
  bool is_right = false;
  for (int64_t count = 0; !is_right; ++count) {
    ASSERT_LT(count, 1000);
    auto args = make<PJRT_Buffer_CopyRawToHostFuture_Args>();
    args.buffer = input_;
    args.transfer_size = sizeof(got);
    PJRT_Error* error = nullptr;
    {
      const ScarceMemory scarce(count);
      error = api_.PJRT_Buffer_CopyRawToHostFuture(&args);
    }
    if (!ok(error)) continue;
    for (int64_t more = 0; !is_right; ++more) {
      ASSERT_LT(more, 1000);
      if (more > 0) {
        ASSERT_TRUE(ok(api_.PJRT_Buffer_CopyRawToHostFuture(&args)));
      }
      auto ready = make<PJRT_Buffer_CopyRawToHostFuture_Callback_Args>();
      ready.callback_data = args.callback_data;
      ready.dst = got;
      {
        const ScarceMemory scarce(more);
        args.future_ready_callback(&ready);
      }
      ASSERT_TRUE(args.event->completion->is_done());
      is_right = args.event->completion->status().ok();
      destroy(args.event);
    }
  }
  EXPECT_EQ(std::memcmp(got, values_, sizeof(got)), 0);
}

TEST_F(OutOfMemoryTest, Alias) {
  input_ = upload();
  bool is_right = false;
  for (int64_t count = 0; !is_right; ++count) {
    ASSERT_LT(count, 1000);
    auto args = make<PJRT_Client_CreateAliasBuffer_Args>();
    args.client = client_;
    args.memory = nullptr;
    args.shape_dims = &kCount;
    args.shape_num_dims = 1;
    args.shape_element_type = PJRT_Buffer_Type_F32;
    ASSERT_TRUE(ok(api_.PJRT_Client_CreateAliasBuffer(&args)));
    auto fulfill = make<PJRT_Client_FulfillAliasBuffer_Args>();
    fulfill.client = client_;
    fulfill.buffer = input_;
    fulfill.fulfill_alias_buffer_cb = args.fulfill_alias_buffer_cb;
    PJRT_Error* error = nullptr;
    {
      const ScarceMemory scarce(count);
      error = api_.PJRT_Client_FulfillAliasBuffer(&fulfill);
    }
    is_right = ok(error);
    EXPECT_TRUE(args.alias_buffer->ready->is_done());
    EXPECT_EQ(args.alias_buffer->ready->status().ok(), is_right);
    destroy(args.alias_buffer);
  }
}

TEST_F(OutOfMemoryTest, PartsOfATransfer) {
  bool is_right = false;
  for (int64_t count = 0; !is_right; ++count) {
    ASSERT_LT(count, 1000);
    PJRT_AsyncHostToDeviceTransferManager* const parts = manager(PJRT_Buffer_Type_S4);
    PJRT_Buffer* const buffer = retrieve(parts);
    auto part = make<PJRT_AsyncHostToDeviceTransferManager_TransferData_Args>();
    part.transfer_manager = parts;
    part.data = values_;
    part.transfer_size = kCount;
    part.is_last_transfer = true;
    PJRT_Error* error = nullptr;
    {
      const ScarceMemory scarce(count);
      error = api_.PJRT_AsyncHostToDeviceTransferManager_TransferData(&part);
    }
    is_right = ok(error);
    if (is_right) destroy(part.done_with_h2d_transfer);
    // The part was not sent, or the buffer hears of it.
    destroy(parts);
    EXPECT_TRUE(buffer->ready->is_done());
    EXPECT_EQ(buffer->ready->status().ok(), is_right);
    destroy(buffer);
  }
}

TEST_F(OutOfMemoryTest, CopyToMemory) {
  input_ = upload();
  until_it_succeeds<PJRT_Buffer_CopyToMemory_Args>(
      api_.PJRT_Buffer_CopyToMemory,
      [&] {
        auto args = make<PJRT_Buffer_CopyToMemory_Args>();
        args.buffer = input_;
        args.dst_memory = input_->memory;
        return args;
      },
      [&](const auto& args, bool is_ok) {
        if (!is_ok) {
          EXPECT_EQ(FakeStorage::alive, 1);
          return;
        }
        destroy(args.dst_buffer);
      });
}

TEST_F(OutOfMemoryTest, EveryReadyCallbackComesOnce) {
  bool is_right = false;
  for (int64_t count = 0; !is_right; ++count) {
    ASSERT_LT(count, 1000);
    const CompletionRef completion = Completion::make();
    PJRT_Event* const event = make_event(completion, client_->state);
    std::atomic<int> calls = 0;
    auto args = make<PJRT_Event_OnReady_Args>();
    args.event = event;
    args.user_arg = &calls;
    args.callback = [](PJRT_Error* error, void* counter) {
      if (error != nullptr) {
        auto destroy = make<PJRT_Error_Destroy_Args>();
        destroy.error = error;
        FakeBackend::api().PJRT_Error_Destroy(&destroy);
      }
      ++*static_cast<std::atomic<int>*>(counter);
    };
    const Status status = unavailable("the words of this error are longer than a short string");
    PJRT_Error* error = nullptr;
    {
      const ScarceMemory scarce(count);
      error = api_.PJRT_Event_OnReady(&args);
      completion->complete(status);
      is_right = !ScarceMemory::was_missed();
    }
    const int wanted = ok(error) ? 1 : 0;
    client_->state->callbacks.drain();
    EXPECT_EQ(calls, wanted);
    destroy(event);
  }
}

TEST_F(OutOfMemoryTest, UserDataOfAMemory) {
  PJRT_Memory* const memory = client_->state->memory_pointers.front();
  int destroyed = 0;
  {
    const ScarceMemory scarce(0);
    memory->vtable->set_user_data(memory, this, &destroyed,
                                  [](void* counter) { ++*static_cast<int*>(counter); });
  }
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(memory->vtable->get_user_data(memory, this), nullptr);
}

TEST_F(OutOfMemoryTest, Programs) {
  // There are thousands of allocations: some of the cases.
  for (int64_t count = 0;; count += 1 + count / 16) {
    ASSERT_LT(count, 1'000'000);
    auto args = compile_args();
    PJRT_Error* error = nullptr;
    {
      const ScarceMemory scarce(count);
      error = api_.PJRT_Client_Compile(&args);
    }
    executable_ = args.executable;
    if (ok(error)) return;
    EXPECT_EQ(args.executable, nullptr);
  }
}

}  // namespace
}  // namespace hekla::pjrt
