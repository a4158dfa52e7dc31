// SPDX-License-Identifier: Apache-2.0
// The border of the C ABI from outside: structs of every size, nulls, numbers that wrap around,
// names of any bytes, threads that end what others read.
#include "backends/pjrt/abi.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>

#include "backends/pjrt/testing/fake_client.h"
#include "plugin_api/hekla_holds.h"
#include "plugin_api/hekla_inspection.h"

namespace hekla::pjrt {
namespace {

using testing::Answer;
using testing::make;
using testing::ok;
using testing::take;

// Two pages, behind which nothing can be read or written.
class GuardedMemory {
 public:
  GuardedMemory() {
    page_ = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    start_ = static_cast<std::byte*>(
        ::mmap(nullptr, 3 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(start_, MAP_FAILED);
    EXPECT_EQ(::mprotect(start_ + 2 * page_, page_, PROT_NONE), 0);
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() { ::munmap(start_, 3 * page_); }
  // The last `bytes`, zeroed.
  void* last(size_t bytes) {
    std::memset(start_, 0, 2 * page_);
    return start_ + 2 * page_ - bytes;
  }

 private:
  size_t page_ = 0;
  std::byte* start_ = nullptr;
};

// What a call with nothing but zeros has made.
template <typename Args>
void destroy_made(const Args& args) {
  const PJRT_Api& api = FakeBackend::api();
  if constexpr (std::is_same_v<Args, PJRT_Client_Create_Args>) {
    auto destroy = make<PJRT_Client_Destroy_Args>();
    destroy.client = args.client;
    EXPECT_TRUE(ok(api.PJRT_Client_Destroy(&destroy)));
  } else if constexpr (std::is_same_v<Args, PJRT_TopologyDescription_Create_Args>) {
    auto destroy = make<PJRT_TopologyDescription_Destroy_Args>();
    destroy.topology = args.topology;
    EXPECT_TRUE(ok(api.PJRT_TopologyDescription_Destroy(&destroy)));
  } else if constexpr (std::is_same_v<Args, PJRT_ExecuteContext_Create_Args>) {
    auto destroy = make<PJRT_ExecuteContext_Destroy_Args>();
    destroy.context = args.context;
    EXPECT_TRUE(ok(api.PJRT_ExecuteContext_Destroy(&destroy)));
  } else if constexpr (std::is_same_v<Args, PJRT_Event_Create_Args>) {
    auto destroy = make<PJRT_Event_Destroy_Args>();
    destroy.event = args.event;
    EXPECT_TRUE(ok(api.PJRT_Event_Destroy(&destroy)));
  } else if constexpr (std::is_same_v<Args, PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args> ||
                       std::is_same_v<Args, PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args>) {
    auto* const layouts =
        reinterpret_cast<const PJRT_Layouts_Extension*>(FakeBackend::api().extension_start);
    auto destroy = make<PJRT_Layouts_MemoryLayout_Destroy_Args>();
    destroy.layout = args.layout;
    EXPECT_TRUE(ok(layouts->PJRT_Layouts_MemoryLayout_Destroy(&destroy)));
  }
}

// Calls a slot with every size of its struct, absurd ones too, and otherwise with zeros.
template <typename Args>
void try_sizes(PJRT_Error* (*slot)(Args*), const char* name) {
  SCOPED_TRACE(name);
  GuardedMemory memory;
  // jaxlib up to 0.6 states less than it has room for.
  constexpr bool is_attributes = std::is_same_v<Args, PJRT_Plugin_Attributes_Args>;
  for (size_t size = sizeof(size_t); size <= sizeof(Args); ++size) {
    auto* const args = static_cast<Args*>(
        memory.last(is_attributes ? sizeof(Args) : (size + alignof(Args) - 1) & -alignof(Args)));
    args->struct_size = size;
    if (!ok(slot(args))) continue;
    // What is made lies within the struct.
    destroy_made(*args);
  }
  auto* const args = static_cast<Args*>(memory.last(sizeof(Args)));
  for (const size_t size : {size_t{0}, size_t{1}}) {
    args->struct_size = size;
    if (!is_attributes) static_cast<void>(take(slot(args)));
  }
  args->struct_size = std::numeric_limits<size_t>::max();
  if (ok(slot(args))) destroy_made(*args);
  if (!is_attributes) static_cast<void>(take(slot(nullptr)));
}
// Of slots without an error.
template <typename Args>
void try_sizes(void (*slot)(Args*), const char*) {
  GuardedMemory memory;
  auto* const args = static_cast<Args*>(memory.last(sizeof(Args)));
  args->struct_size = sizeof(Args);
  slot(args);
  slot(nullptr);
}

TEST(AbiTest, EverySlotTakesEverySize) {
  const PJRT_Api& api = FakeBackend::api();
#define HEKLA_SLOT_INFO(name, since, may_be_null) try_sizes(api.name, #name);
#include "plugin_api/conformance/slots.inc"
#undef HEKLA_SLOT_INFO
}

TEST(AbiTest, EveryFunctionOfAnExtensionTakesEverySize) {
#define TRY(node, member) try_sizes((node)->member, #member)
  for (const PJRT_Extension_Base* node = FakeBackend::api().extension_start; node != nullptr;
       node = node->next) {
    if (node->type == PJRT_Extension_Type_Layouts) {
      const auto* layouts = reinterpret_cast<const PJRT_Layouts_Extension*>(node);
      TRY(layouts, PJRT_Layouts_MemoryLayout_Destroy);
      TRY(layouts, PJRT_Layouts_MemoryLayout_Serialize);
      TRY(layouts, PJRT_Layouts_PJRT_Client_GetDefaultLayout);
      TRY(layouts, PJRT_Layouts_PJRT_Buffer_MemoryLayout);
      TRY(layouts, PJRT_Layouts_PJRT_Topology_GetDefaultLayout);
      TRY(layouts, PJRT_Layouts_PJRT_Executable_GetOutputLayouts);
      TRY(layouts, PJRT_Layouts_PJRT_Executable_GetParameterLayouts);
    } else if (node->type == PJRT_Extension_Type_Shardings) {
      const auto* shardings = reinterpret_cast<const PJRT_Shardings_Extension*>(node);
      TRY(shardings, PJRT_Shardings_PJRT_Executable_ParameterShardings);
      TRY(shardings, PJRT_Shardings_PJRT_Executable_OutputShardings);
    } else if (node->type == PJRT_Extension_Type_MemoryDescriptions) {
      const auto* kinds = reinterpret_cast<const PJRT_MemoryDescriptions_Extension*>(node);
      TRY(kinds, PJRT_DeviceDescription_MemoryDescriptions);
      TRY(kinds, PJRT_MemoryDescription_Kind);
    } else if (node->type == PJRT_Extension_Type_Custom_Partitioner) {
      const auto* partitioner = reinterpret_cast<const PJRT_Custom_Partitioner_Extension*>(node);
      TRY(partitioner, register_custom_partitioner);
      TRY(partitioner, register_batch_partitionable);
    } else if (node->type == PJRT_Extension_Type_FFI) {
      const auto* ffi = reinterpret_cast<const PJRT_FFI_Extension*>(node);
      TRY(ffi, type_register);
      TRY(ffi, user_data_add);
      TRY(ffi, register_handler);
    } else if (node->type == PJRT_Extension_Type_Gpu_Custom_Call) {
      const auto* calls = reinterpret_cast<const PJRT_Gpu_Custom_Call*>(node);
      TRY(calls, custom_call);
    } else if (node->type == static_cast<PJRT_Extension_Type>(Hekla_Extension_Type_Holds)) {
      const auto* holds = reinterpret_cast<const Hekla_Holds_Extension*>(node);
      TRY(holds, holds_switch);
      TRY(holds, hold_find);
      TRY(holds, hold_read);
      TRY(holds, hold_release);
    } else if (node->type == static_cast<PJRT_Extension_Type>(Hekla_Extension_Type_Inspection)) {
      const auto* inspection = reinterpret_cast<const Hekla_Inspection_Extension*>(node);
      TRY(inspection, executable_artefact);
      TRY(inspection, executable_statistics);
    }
  }
#undef TRY
}

TEST(AbiTest, TheProfilerTakesNulls) {
  for (const PJRT_Extension_Base* node = FakeBackend::api().extension_start; node != nullptr;
       node = node->next) {
    if (node->type != PJRT_Extension_Type_Profiler) continue;
    const PLUGIN_Profiler_Api& api =
        *reinterpret_cast<const PJRT_Profiler_Extension*>(node)->profiler_api;
    const auto is_refused = [&](PLUGIN_Profiler_Error* error) {
      auto message = make<PLUGIN_Profiler_Error_Message_Args>();
      message.error = error;
      api.error_message(&message);
      auto destroy = make<PLUGIN_Profiler_Error_Destroy_Args>();
      destroy.error = error;
      api.error_destroy(&destroy);
      return error != nullptr;
    };
    auto destroy = make<PLUGIN_Profiler_Destroy_Args>();
    EXPECT_FALSE(is_refused(api.destroy(&destroy)));
    auto start = make<PLUGIN_Profiler_Start_Args>();
    EXPECT_TRUE(is_refused(api.start(&start)));
    auto stop = make<PLUGIN_Profiler_Stop_Args>();
    EXPECT_TRUE(is_refused(api.stop(&stop)));
    auto collect = make<PLUGIN_Profiler_CollectData_Args>();
    EXPECT_TRUE(is_refused(api.collect_data(&collect)));
  }
}

using AbiOfAClientTest = testing::FakeClientTest;

TEST_F(AbiOfAClientTest, NothingWhereACountSaysThereIsSomething) {
  constexpr int kRefused = PJRT_Error_Code_INVALID_ARGUMENT;
  auto create = make<PJRT_Client_Create_Args>();
  create.num_options = 1;
  EXPECT_EQ(take(api_.PJRT_Client_Create(&create)).code, kRefused);
  auto topology = make<PJRT_TopologyDescription_Create_Args>();
  topology.num_options = 1;
  EXPECT_EQ(take(api_.PJRT_TopologyDescription_Create(&topology)).code, kRefused);

  auto upload = upload_args();
  upload.dims = nullptr;
  EXPECT_EQ(take(api_.PJRT_Client_BufferFromHostBuffer(&upload)).code, kRefused);
  upload = upload_args();
  upload.data = nullptr;
  EXPECT_EQ(take(api_.PJRT_Client_BufferFromHostBuffer(&upload)).code, kRefused);
  upload = upload_args();
  upload.num_byte_strides = 1;
  EXPECT_EQ(take(api_.PJRT_Client_BufferFromHostBuffer(&upload)).code, kRefused);

  auto shapes = make<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>();
  shapes.client = client_;
  shapes.num_shape_specs = 1;
  EXPECT_EQ(take(api_.PJRT_Client_CreateBuffersForAsyncHostToDevice(&shapes)).code, kRefused);

  auto program = make<PJRT_Program>();
  std::string code = "module {}", format = "mlir";
  program.code = code.data();
  program.code_size = code.size();
  program.format = format.data();
  program.format_size = format.size();
  auto compile = make<PJRT_Client_Compile_Args>();
  compile.client = client_;
  compile.program = &program;
  compile.compile_options_size = 10;
  EXPECT_EQ(take(api_.PJRT_Client_Compile(&compile)).code, kRefused);
  compile.compile_options_size = 0;
  program.format = nullptr;
  EXPECT_EQ(take(api_.PJRT_Client_Compile(&compile)).code, kRefused);
  program.format = format.data();
  program.code = nullptr;
  EXPECT_EQ(take(api_.PJRT_Client_Compile(&compile)).code, kRefused);
}

TEST_F(AbiOfAClientTest, TopologiesOfMoreDevicesThanThereCanBe) {
  std::string text = "hekla topology 2\nfake\nfake 1\n";
  for (int i = 0; i < 100'000; ++i) text += "256 ";
  text.back() = '\n';
  auto args = make<PJRT_TopologyDescription_Deserialize_Args>();
  args.serialized_topology = text.data();
  args.serialized_topology_size = text.size();
  EXPECT_EQ(take(api_.PJRT_TopologyDescription_Deserialize(&args)).code,
            PJRT_Error_Code_INVALID_ARGUMENT);
}

TEST_F(AbiOfAClientTest, NamesOfAnyBytes) {
  constexpr int kRefused = PJRT_Error_Code_INVALID_ARGUMENT;
  const std::string_view names[] = {
      "", {"\0", 1}, {"num_devices\0x", 13}, "\xff\xfe{}%s", {"\xc3", 1}};
  const auto create = [&](const PJRT_NamedValue& value) {
    auto args = make<PJRT_Client_Create_Args>();
    args.create_options = &value;
    args.num_options = 1;
    const Answer answer = take(api_.PJRT_Client_Create(&args));
    EXPECT_EQ(args.client, nullptr);
    auto topology = make<PJRT_TopologyDescription_Create_Args>();
    topology.create_options = &value;
    topology.num_options = 1;
    EXPECT_EQ(take(api_.PJRT_TopologyDescription_Create(&topology)).code, kRefused);
    return answer;
  };
  for (const std::string_view name : names) {
    auto value = make<PJRT_NamedValue>();
    value.name = name.data();
    value.name_size = name.size();
    value.type = PJRT_NamedValue_kInt64;
    value.value_size = 1;
    const Answer answer = create(value);
    EXPECT_EQ(answer.code, kRefused);
    // The whole name, whatever is in it.
    if (!name.empty()) {
      EXPECT_NE(answer.message.find(name), std::string::npos) << answer.message;
    }
  }
  auto value = make<PJRT_NamedValue>();
  value.name_size = 4;
  EXPECT_EQ(create(value).code, kRefused);
  value.name = "num_devices";
  value.name_size = 11;
  value.type = PJRT_NamedValue_kString;
  value.value_size = 3;
  EXPECT_EQ(create(value).code, kRefused);
  value.value_size = 0;
  EXPECT_EQ(create(value).code, kRefused);
  value.type = PJRT_NamedValue_kInt64List;
  value.value_size = 3;
  EXPECT_EQ(create(value).code, kRefused);
  value.type = static_cast<decltype(value.type)>(77);
  EXPECT_EQ(create(value).code, kRefused);
}

TEST_F(AbiOfAClientTest, CodesThatThereAreNot) {
  auto made = make<PJRT_Event_Create_Args>();
  ASSERT_TRUE(ok(api_.PJRT_Event_Create(&made)));
  auto set = make<PJRT_Event_Set_Args>();
  set.event = made.event;
  set.error_code = static_cast<PJRT_Error_Code>(1234);
  set.error_message_size = 10;
  EXPECT_TRUE(ok(api_.PJRT_Event_Set(&set)));
  auto error = make<PJRT_Event_Error_Args>();
  error.event = made.event;
  EXPECT_EQ(take(api_.PJRT_Event_Error(&error)).code, PJRT_Error_Code_UNKNOWN);
  destroy(made.event);
}

TEST_F(AbiOfAClientTest, ASizeThatNoMemoryHasIsLargeEnough) {
  PJRT_Buffer* const buffer = upload();
  float got[kCount] = {};
  auto args = make<PJRT_Buffer_ToHostBuffer_Args>();
  args.src = buffer;
  args.dst = got;
  args.dst_size = std::numeric_limits<size_t>::max();
  ASSERT_TRUE(ok(api_.PJRT_Buffer_ToHostBuffer(&args)));
  destroy(args.event);
  EXPECT_EQ(std::memcmp(got, values_, sizeof(got)), 0);
  destroy(buffer);
  auto assignment = make<PJRT_Client_DefaultDeviceAssignment_Args>();
  int id = -1;
  assignment.client = client_;
  assignment.num_replicas = assignment.num_partitions = 1;
  assignment.default_assignment = &id;
  assignment.default_assignment_size = std::numeric_limits<size_t>::max();
  EXPECT_TRUE(ok(api_.PJRT_Client_DefaultDeviceAssignment(&assignment)));
  EXPECT_EQ(id, 0);
}

TEST_F(AbiOfAClientTest, RangesThatWrapAround) {
  constexpr int kRefused = PJRT_Error_Code_INVALID_ARGUMENT;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr std::pair<int64_t, int64_t> kRanges[] = {
      {1, kMost},  {kMost, 1},  {kMost, kMost},   {-1, 2}, {2, -1},
      {kLeast, 4}, {4, kLeast}, {kLeast, kLeast}, {17, 0}, {16, 1}};
  PJRT_Buffer* const buffer = upload();
  PJRT_AsyncHostToDeviceTransferManager* const parts = manager();
  for (const auto& [offset, size] : kRanges) {
    float got[kCount] = {};
    auto raw = make<PJRT_Buffer_CopyRawToHost_Args>();
    raw.buffer = buffer;
    raw.dst = got;
    raw.offset = offset;
    raw.transfer_size = size;
    EXPECT_EQ(take(api_.PJRT_Buffer_CopyRawToHost(&raw)).code, kRefused) << offset << " " << size;
    auto future = make<PJRT_Buffer_CopyRawToHostFuture_Args>();
    future.buffer = buffer;
    future.offset = offset;
    future.transfer_size = size;
    EXPECT_EQ(take(api_.PJRT_Buffer_CopyRawToHostFuture(&future)).code, kRefused);
    auto part = make<PJRT_AsyncHostToDeviceTransferManager_TransferData_Args>();
    part.transfer_manager = parts;
    part.data = values_;
    part.offset = offset;
    part.transfer_size = size;
    EXPECT_EQ(take(api_.PJRT_AsyncHostToDeviceTransferManager_TransferData(&part)).code, kRefused);
  }
  destroy(parts);
  destroy(buffer);
  // Products of dimensions.
  const int64_t dims[][3] = {
      {kMost, kMost, 4}, {int64_t{1} << 32, int64_t{1} << 32, 1}, {-1, 4, 4}, {kLeast, 2, 1}};
  for (const auto& each : dims) {
    auto args = upload_args();
    args.dims = each;
    args.num_dims = 3;
    EXPECT_FALSE(ok(api_.PJRT_Client_BufferFromHostBuffer(&args)));
    auto view = make<PJRT_Client_CreateViewOfDeviceBuffer_Args>();
    view.client = client_;
    view.device_buffer_ptr = values_;
    view.dims = each;
    view.num_dims = 3;
    view.element_type = PJRT_Buffer_Type_F32;
    EXPECT_FALSE(ok(api_.PJRT_Client_CreateViewOfDeviceBuffer(&view)));
  }
  // Of no elements, however large the product of the others would be.
  const int64_t empty[] = {kMost, 0, kMost};
  auto args = upload_args();
  args.dims = empty;
  args.num_dims = 3;
  ASSERT_TRUE(ok(api_.PJRT_Client_BufferFromHostBuffer(&args)));
  destroy(args.done_with_host_buffer);
  destroy(args.buffer);
}

TEST_F(AbiOfAClientTest, StridesStayWithinTheDestination) {
  PJRT_Buffer* const buffer = upload();
  float got[2 * kCount] = {};
  PJRT_Buffer_MemoryLayout layout = {};
  layout.type = PJRT_Buffer_MemoryLayout_Type_Strides;
  layout.strides.num_byte_strides = 1;
  auto args = make<PJRT_Buffer_ToHostBuffer_Args>();
  args.src = buffer;
  args.dst = got;
  args.dst_size = sizeof(got) - sizeof(float);
  args.host_layout = &layout;
  const auto code = [&](int64_t stride) {
    layout.strides.byte_strides = &stride;
    const int answer = take(api_.PJRT_Buffer_ToHostBuffer(&args)).code;
    if (answer == PJRT_Error_Code_OK) destroy(args.event);
    return answer;
  };
  EXPECT_EQ(code(8), PJRT_Error_Code_OK);
  EXPECT_EQ(got[6], 4);
  for (const int64_t stride : {int64_t{9}, int64_t{-4}, int64_t{1} << 62}) {
    EXPECT_EQ(code(stride), PJRT_Error_Code_INVALID_ARGUMENT) << stride;
  }
  destroy(buffer);
}

TEST_F(AbiOfAClientTest, AnErrorThatSaysOkMakesNothingReady) {
  PJRT_AsyncHostToDeviceTransferManager* const parts = manager();
  PJRT_Buffer* const buffer = retrieve(parts);
  auto args = make<PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args>();
  args.transfer_manager = parts;
  args.error_code = PJRT_Error_Code_OK;
  // Clients end the process if the call fails.
  EXPECT_TRUE(ok(api_.PJRT_AsyncHostToDeviceTransferManager_SetBufferError(&args)));
  EXPECT_TRUE(buffer->ready->is_done());
  EXPECT_FALSE(buffer->ready->status().ok());
  destroy(buffer);
  destroy(parts);
}

TEST_F(AbiOfAClientTest, AManagerMayGoWhileItSends) {
  PJRT_AsyncHostToDeviceTransferManager* const parts = manager();
  PJRT_Buffer* const buffer = retrieve(parts);
  buffer->ready->on_done([&](const Status&) { destroy(parts); });
  auto args = make<PJRT_AsyncHostToDeviceTransferManager_TransferData_Args>();
  args.transfer_manager = parts;
  args.data = values_;
  args.transfer_size = sizeof(values_);
  args.is_last_transfer = true;
  EXPECT_TRUE(ok(api_.PJRT_AsyncHostToDeviceTransferManager_TransferData(&args)));
  destroy(args.done_with_h2d_transfer);
  destroy(buffer);
}

// Callbacks that destroy what called them.
TEST_F(AbiOfAClientTest, AnEventMayGoInItsOwnCallback) {
  const auto destroy_event = [](PJRT_Error* error, void* event) {
    EXPECT_TRUE(ok(error));
    auto args = make<PJRT_Event_Destroy_Args>();
    args.event = static_cast<PJRT_Event*>(event);
    EXPECT_TRUE(ok(FakeBackend::api().PJRT_Event_Destroy(&args)));
  };
  for (const bool is_done_before : {false, true}) {
    auto made = make<PJRT_Event_Create_Args>();
    ASSERT_TRUE(ok(api_.PJRT_Event_Create(&made)));
    auto set = make<PJRT_Event_Set_Args>();
    set.event = made.event;
    if (is_done_before) {
      EXPECT_TRUE(ok(api_.PJRT_Event_Set(&set)));
    }
    auto args = make<PJRT_Event_OnReady_Args>();
    args.event = made.event;
    args.user_arg = made.event;
    args.callback = destroy_event;
    EXPECT_TRUE(ok(api_.PJRT_Event_OnReady(&args)));
    if (!is_done_before) {
      EXPECT_TRUE(ok(api_.PJRT_Event_Set(&set)));
    }
  }
  // On the client's thread.
  const CompletionRef completion = Completion::make();
  auto args = make<PJRT_Event_OnReady_Args>();
  args.event = make_event(completion, client_->state);
  args.user_arg = args.event;
  args.callback = destroy_event;
  EXPECT_TRUE(ok(api_.PJRT_Event_OnReady(&args)));
  completion->complete(ok_status());
  client_->state->callbacks.drain();
}

TEST_F(AbiOfAClientTest, HoldsMayBeReleasedWhileTheyAreRead) {
  const auto* holds = reinterpret_cast<const Hekla_Holds_Extension*>(holds_extension());
  PJRT_Buffer* const buffer = upload();
  for (int round = 0; round < 200; ++round) {
    const Result<uintptr_t> made = make_hold(*buffer);
    ASSERT_TRUE(made.ok());
    std::atomic<bool> is_released = false;
    std::thread reader([&] {
      bool was_there = true;
      while (was_there) {
        auto find = make<Hekla_Hold_Find_Args>();
        find.pointer = *made;
        EXPECT_TRUE(ok(holds->hold_find(&find)));
        was_there = find.hold != nullptr;
        EXPECT_EQ(find.size_bytes, was_there ? static_cast<int64_t>(sizeof(values_)) : 0);
        float got[kCount] = {};
        auto read = make<Hekla_Hold_Read_Args>();
        read.hold = reinterpret_cast<Hekla_Hold*>(*made);
        read.into = got;
        read.size_bytes = sizeof(got);
        if (ok(holds->hold_read(&read))) {
          EXPECT_EQ(std::memcmp(got, values_, sizeof(got)), 0);
        } else {
          was_there = was_there && !is_released;
        }
      }
    });
    std::this_thread::yield();
    auto release = make<Hekla_Hold_Release_Args>();
    release.hold = reinterpret_cast<Hekla_Hold*>(*made);
    EXPECT_TRUE(ok(holds->hold_release(&release)));
    is_released = true;
    reader.join();
    EXPECT_FALSE(ok(holds->hold_release(&release)));
  }
  destroy(buffer);
}

}  // namespace
}  // namespace hekla::pjrt
