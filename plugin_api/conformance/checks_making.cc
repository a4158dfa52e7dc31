// SPDX-License-Identifier: Apache-2.0
// Other ways to make buffers: uninitialised, error, alias, view, and streaming transfers.
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "plugin_api/conformance/check.h"
#include "plugin_api/conformance/programs.h"
#include "plugin_api/conformance/session.h"

namespace hekla::conformance {
namespace {

constexpr int64_t kDims[] = {4};

void check_uninitialized(Session& s) {
  TiledLayout layout({0});
  auto args = make_args<PJRT_Client_CreateUninitializedBuffer_Args>();
  args.client = s.client();
  args.shape_dims = kDims;
  args.shape_num_dims = 1;
  args.shape_element_type = PJRT_Buffer_Type_F32;
  args.shape_layout = &layout.layout;
  args.device = s.device();
  s.call_optional(HEKLA_SLOT(PJRT_Client_CreateUninitializedBuffer), &args);
  require(args.buffer != nullptr, "the buffer is null");
  s.own(args.buffer);
  if (auto error = s.finish_event(s.ready_event(args.buffer))) fail(error->text());
  s.download(args.buffer, 16);
}

void require_error(const std::optional<ErrorInfo>& error, const std::string& words,
                   const std::string& what) {
  require(error.has_value(), what + " brought no error");
  require(error->message.find(words) != std::string::npos,
          what + " brought another error: " + error->text());
}

void check_error_buffer(Session& s) {
  PJRT_Buffer* buffer = s.error_buffer(PJRT_Error_Code_RESOURCE_EXHAUSTED, "a planned failure");
  const auto error = s.finish_event(s.ready_event(buffer));
  require_error(error, "a planned failure", "the ready event");
  require_equal(error->code, PJRT_Error_Code_RESOURCE_EXHAUSTED, "code");
  require_error(s.download_error(buffer, 16), "a planned failure", "a read");
  require_error(s.execute_error(s.compile(kAddOne), {buffer}), "a planned failure", "a launch");
}

struct Alias {
  PJRT_Buffer* buffer;
  PJRT_FulfillAliasBufferCallback* callback;
};

Alias make_alias(Session& s) {
  TiledLayout layout({0});
  auto args = make_args<PJRT_Client_CreateAliasBuffer_Args>();
  args.client = s.client();
  args.memory = s.default_memory(s.device());
  args.shape_dims = kDims;
  args.shape_num_dims = 1;
  args.shape_element_type = PJRT_Buffer_Type_F32;
  args.shape_layout = &layout.layout;
  s.call_optional(HEKLA_SLOT(PJRT_Client_CreateAliasBuffer), &args);
  require(args.alias_buffer != nullptr && args.fulfill_alias_buffer_cb != nullptr,
          "the alias buffer or its callback is null");
  s.own(args.alias_buffer);
  return {args.alias_buffer, args.fulfill_alias_buffer_cb};
}

void check_alias(Session& s) {
  Alias alias = make_alias(s);
  PJRT_Event* ready = s.ready_event(alias.buffer);
  require(!s.is_ready(ready), "the placeholder is ready before it is fulfilled");
  PJRT_Buffer* real = s.upload_f32({1, 2, 3, 4}, {4});
  auto args = make_args<PJRT_Client_FulfillAliasBuffer_Args>();
  args.client = s.client();
  args.buffer = real;
  args.status_code = PJRT_Error_Code_OK;
  args.fulfill_alias_buffer_cb = alias.callback;
  s.call(HEKLA_SLOT(PJRT_Client_FulfillAliasBuffer), &args);
  if (auto error = s.finish_event(ready)) fail(error->text());
  require(s.download_f32(alias.buffer, 4) == std::vector<float>({1, 2, 3, 4}), "wrong values");
  const auto outputs = s.run(s.compile(kAddOne), {alias.buffer});
  require(s.download_f32(outputs[0], 4) == std::vector<float>({2, 3, 4, 5}), "wrong result");
}

void check_alias_error(Session& s) {
  Alias alias = make_alias(s);
  const std::string message = "never to be filled";
  auto args = make_args<PJRT_Client_FulfillAliasBuffer_Args>();
  args.client = s.client();
  args.status_code = PJRT_Error_Code_ABORTED;
  args.error_message = message.data();
  args.error_message_size = message.size();
  args.fulfill_alias_buffer_cb = alias.callback;
  // XLA's plugins hand the caller's own status back from this call.
  if (auto error = s.try_call(HEKLA_SLOT(PJRT_Client_FulfillAliasBuffer), &args)) {
    require_error(error, message, "PJRT_Client_FulfillAliasBuffer");
    s.remark("the call returns the error, too");
  }
  require_error(s.finish_event(s.ready_event(alias.buffer)), message, "the placeholder");
}

struct ViewEnd {
  std::atomic<int> calls{0};
  std::atomic<void*> pointer{nullptr};
};

void view(Session& s, bool with_callback) {
  PJRT_Buffer* base = s.upload_f32({1, 2, 3, 4}, {4});
  if (auto error = s.finish_event(s.ready_event(base))) fail(error->text());
  auto pointer = make_args<PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args>();
  pointer.buffer = base;
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_OpaqueDeviceMemoryDataPointer), &pointer);
  ViewEnd end;
  TiledLayout layout({0});
  auto args = make_args<PJRT_Client_CreateViewOfDeviceBuffer_Args>();
  args.client = s.client();
  args.device_buffer_ptr = pointer.device_memory_ptr;
  args.dims = kDims;
  args.num_dims = 1;
  args.element_type = PJRT_Buffer_Type_F32;
  args.layout = &layout.layout;
  args.device = s.device();
  args.memory = s.default_memory(s.device());
  if (with_callback) args.on_delete_callback_arg = &end;
  const auto on_delete = [](void* ptr, void* arg) {
    static_cast<ViewEnd*>(arg)->pointer = ptr;
    ++static_cast<ViewEnd*>(arg)->calls;
  };
  if (with_callback) args.on_delete_callback = on_delete;
  s.call_optional(HEKLA_SLOT(PJRT_Client_CreateViewOfDeviceBuffer), &args);
  require(args.buffer != nullptr, "the view is null");
  s.own(args.buffer);
  require(s.download_f32(args.buffer, 4) == std::vector<float>({1, 2, 3, 4}), "wrong values");
  const auto outputs = s.run(s.compile(kAddOne), {args.buffer});
  require(s.download_f32(outputs[0], 4) == std::vector<float>({2, 3, 4, 5}), "wrong result");
  require_equal(end.calls, 0, "delete callbacks while the view lives");
  s.destroy_buffer(args.buffer);
  if (!with_callback) return;
  for (int i = 0; i < 200 && end.calls == 0; ++i) {
    s.finish_event(s.ready_event(base));  // gives other threads a moment
    usleep(10000);
  }
  require_equal(end.calls, 1, "delete callbacks after the view died");
  require(end.pointer == pointer.device_memory_ptr, "the delete callback got another pointer");
}

// A view of the memory of four f32, which must not be written.
PJRT_Buffer* view_of(Session& s, PJRT_Buffer* base) {
  if (auto error = s.finish_event(s.ready_event(base))) fail(error->text());
  auto pointer = make_args<PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args>();
  pointer.buffer = base;
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_OpaqueDeviceMemoryDataPointer), &pointer);
  TiledLayout layout({0});
  auto args = make_args<PJRT_Client_CreateViewOfDeviceBuffer_Args>();
  args.client = s.client();
  args.device_buffer_ptr = pointer.device_memory_ptr;
  args.dims = kDims;
  args.num_dims = 1;
  args.element_type = PJRT_Buffer_Type_F32;
  args.layout = &layout.layout;
  args.device = s.device();
  args.memory = s.default_memory(s.device());
  s.call_optional(HEKLA_SLOT(PJRT_Client_CreateViewOfDeviceBuffer), &args);
  require(args.buffer != nullptr, "the view is null");
  s.own(args.buffer);
  return args.buffer;
}

// Once its view is gone the memory is its owner's, who does with it what he likes.
void check_view_result(Session& s) {
  PJRT_Buffer* base = s.upload_f32({1, 2, 3, 4}, {4});
  PJRT_Buffer* seen = view_of(s, base);
  const auto outputs = s.run(s.compile(kIdentity), {seen});
  s.destroy_buffer(seen);
  s.destroy_buffer(base);
  for (int i = 0; i < 64; ++i) s.upload_f32({9, 9, 9, 9}, {4});  // which may take the memory
  require(s.download_f32(outputs[0], 4) == std::vector<float>({1, 2, 3, 4}),
          "a result changed after the viewed memory was freed");
}

void check_view_donated(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kDonateAlias);
  PJRT_Buffer* base = s.upload_f32({1, 2, 3, 4}, {4});
  Launch launch;
  auto error =
      s.try_execute(executable, {view_of(s, base), s.upload_f32({1, 2, 3, 4}, {4})}, {}, &launch);
  if (!error) error = s.finish_event(launch.done);
  if (error) {
    s.remark("refused: " + code_name(error->code));
  } else {
    require(s.download_f32(launch.outputs[0], 4) == std::vector<float>({2, 4, 6, 8}),
            "wrong result");
  }
  require(s.download_f32(base, 4) == std::vector<float>({1, 2, 3, 4}),
          "a launch wrote into viewed memory");
}

// Memory at any address: what a device cannot use it refuses.
void check_view_misaligned(Session& s) {
  constexpr size_t kCount = 256 * 256;
  const std::vector<float> values(kCount, 2.0f);
  std::vector<uint8_t> memory(sizeof(float) * kCount + 64);
  const int64_t dims[] = {256, 256};
  PJRT_LoadedExecutable* executable = s.compile(kLong);
  const auto want =
      s.download_f32(s.run(executable, {s.upload_f32(values, {256, 256})})[0], kCount);
  std::string refused;
  for (const size_t offset : {size_t{1}, size_t{2}, size_t{4}, size_t{20}}) {
    std::memcpy(memory.data() + offset, values.data(), sizeof(float) * kCount);
    auto args = make_args<PJRT_Client_CreateViewOfDeviceBuffer_Args>();
    args.client = s.client();
    args.device = s.device();
    args.device_buffer_ptr = memory.data() + offset;
    args.dims = dims;
    args.num_dims = 2;
    args.element_type = PJRT_Buffer_Type_F32;
    if (auto error = s.try_call(HEKLA_SLOT(PJRT_Client_CreateViewOfDeviceBuffer), &args)) {
      require(!error->message.empty(), "refused without words");
      refused = error->text();
      continue;
    }
    s.own(args.buffer);
    require(s.download_f32(args.buffer, kCount) == values, "wrong values of a view");
    const auto outputs = s.run(executable, {args.buffer});
    require(s.download_f32(outputs[0], kCount) == want,
            "a wrong result of a view at " + std::to_string(offset) + " bytes");
    s.destroy_buffer(args.buffer);
  }
  if (!refused.empty()) s.remark("refused: " + refused);
}

void check_view(Session& s) { view(s, true); }
void check_view_without_callback(Session& s) { view(s, false); }

// ---- Streaming transfers.

class Stream {
 public:
  Stream(Session& session, std::vector<std::vector<int64_t>> shapes)
      : s_(session), shapes_(std::move(shapes)) {
    for (const auto& dims : shapes_) {
      // Clients leave the size field unset.
      PJRT_ShapeSpec spec;
      std::memset(static_cast<void*>(&spec), 0, sizeof(spec));
      spec.struct_size = 0x77777777;
      spec.dims = dims.data();
      spec.num_dims = dims.size();
      spec.element_type = PJRT_Buffer_Type_F32;
      specs_.push_back(spec);
    }
    PJRT_Memory* memory = s_.default_memory(s_.device());
    if (memory == nullptr) throw NotOffered{"the plugin has no memories"};
    auto args = make_args<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>();
    args.client = s_.client();
    args.shape_specs = specs_.data();
    args.num_shape_specs = specs_.size();
    args.memory = memory;
    s_.call_optional(HEKLA_SLOT(PJRT_Client_CreateBuffersForAsyncHostToDevice), &args);
    require(args.transfer_manager != nullptr, "the transfer manager is null");
    manager_ = args.transfer_manager;
  }

  PJRT_AsyncHostToDeviceTransferManager* manager() const { return manager_; }

  PJRT_Buffer* retrieve(int index) {
    auto args = make_args<PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args>();
    args.transfer_manager = manager_;
    args.buffer_index = index;
    s_.call(HEKLA_SLOT(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer), &args);
    require(args.buffer_out != nullptr, "the retrieved buffer is null");
    s_.own(args.buffer_out);
    return args.buffer_out;
  }

  // Sends elements [first, first + count).
  void send(int index, const float* data, int64_t first, int64_t count, bool last) {
    auto args = make_args<PJRT_AsyncHostToDeviceTransferManager_TransferData_Args>();
    args.transfer_manager = manager_;
    args.buffer_index = index;
    args.data = data + first;
    args.offset = first * static_cast<int64_t>(sizeof(float));
    args.transfer_size = count * static_cast<int64_t>(sizeof(float));
    args.is_last_transfer = last;
    s_.call(HEKLA_SLOT(PJRT_AsyncHostToDeviceTransferManager_TransferData), &args);
    require(args.done_with_h2d_transfer != nullptr, "the transfer's event is null");
    if (auto error = s_.finish_event(args.done_with_h2d_transfer)) fail(error->text());
  }

  void destroy() {
    auto args = make_args<PJRT_AsyncHostToDeviceTransferManager_Destroy_Args>();
    args.transfer_manager = manager_;
    s_.call(HEKLA_SLOT(PJRT_AsyncHostToDeviceTransferManager_Destroy), &args);
  }

 private:
  Session& s_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<PJRT_ShapeSpec> specs_;
  PJRT_AsyncHostToDeviceTransferManager* manager_ = nullptr;
};

void check_stream(Session& s) {
  Stream stream(s, {{8}, {2, 3}});
  auto count = make_args<PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args>();
  count.transfer_manager = stream.manager();
  s.call(HEKLA_SLOT(PJRT_AsyncHostToDeviceTransferManager_BufferCount), &count);
  require_equal(count.buffer_count, 2, "buffer count");
  auto size = make_args<PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args>();
  size.transfer_manager = stream.manager();
  size.buffer_index = 1;
  s.call(HEKLA_SLOT(PJRT_AsyncHostToDeviceTransferManager_BufferSize), &size);
  require(size.buffer_size >= 24, "buffer size " + std::to_string(size.buffer_size));
  auto device = make_args<PJRT_AsyncHostToDeviceTransferManager_Device_Args>();
  device.transfer_manager = stream.manager();
  s.call(HEKLA_SLOT(PJRT_AsyncHostToDeviceTransferManager_Device), &device);
  require(device.device_out == s.device(), "the manager names another device");

  PJRT_Buffer* first = stream.retrieve(0);
  PJRT_Buffer* second = stream.retrieve(1);
  PJRT_Event* ready = s.ready_event(first);
  require(!s.is_ready(ready), "the buffer is ready before its data came");
  const std::vector<float> values = counted(8);
  stream.send(0, values.data(), 5, 3, false);
  stream.send(1, values.data(), 0, 6, true);
  stream.send(0, values.data(), 0, 5, true);
  if (auto error = s.finish_event(ready)) fail(error->text());
  stream.destroy();
  require(s.download_f32(first, 8) == values, "wrong values in the first buffer");
  require(s.download_f32(second, 6) == counted(6), "wrong values in the second buffer");
}

void check_stream_pending_argument(Session& s) {
  PJRT_LoadedExecutable* executable = s.compile(kAddOne);
  Stream stream(s, {{4}});
  PJRT_Buffer* input = stream.retrieve(0);
  // A plugin that waits for the argument here never returns.
  Launch launch = s.execute(executable, {input});
  require(!s.is_ready(launch.done), "the launch ended before its argument came");
  const std::vector<float> values = {1, 2, 3, 4};
  stream.send(0, values.data(), 0, 4, true);
  if (auto error = s.finish_event(launch.done)) fail(error->text());
  require(s.download_f32(launch.outputs[0], 4) == std::vector<float>({2, 3, 4, 5}), "wrong result");
  stream.destroy();
}

void check_stream_error(Session& s) {
  Stream stream(s, {{4}});
  PJRT_Buffer* buffer = stream.retrieve(0);
  auto args = make_args<PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args>();
  args.transfer_manager = stream.manager();
  args.buffer_index = 0;
  args.error_code = PJRT_Error_Code_UNAVAILABLE;
  args.error_message = "the source went away";
  args.error_message_size = 20;
  s.call(HEKLA_SLOT(PJRT_AsyncHostToDeviceTransferManager_SetBufferError), &args);
  require_error(s.finish_event(s.ready_event(buffer)), "the source went away", "the buffer");
  stream.destroy();
}

// Clients end the process when the call fails, so it may succeed too.
void check_stream_error_ok(Session& s) {
  Stream stream(s, {{4}});
  PJRT_Buffer* buffer = stream.retrieve(0);
  auto args = make_args<PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args>();
  args.transfer_manager = stream.manager();
  args.error_code = PJRT_Error_Code_OK;
  if (s.try_call(HEKLA_SLOT(PJRT_AsyncHostToDeviceTransferManager_SetBufferError), &args)) {
    const std::vector<float> values = counted(4);
    stream.send(0, values.data(), 0, 4, true);
    require(s.download_f32(buffer, 4) == values, "wrong values");
  } else {
    require(s.finish_event(s.ready_event(buffer)).has_value(),
            "the buffer is ready, and nobody has written it");
  }
  stream.destroy();
}

void check_stream_metadata(Session& s) {
  Stream stream(s, {{4}});
  auto value = make_args<PJRT_NamedValue>();
  value.name = "key";
  value.name_size = 3;
  value.type = PJRT_NamedValue_kString;
  value.string_value = "value";
  value.value_size = 5;
  auto args = make_args<PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args>();
  args.transfer_manager = stream.manager();
  args.transfer_metadata = &value;
  args.num_metadata = 1;
  s.call(HEKLA_SLOT(PJRT_AsyncHostToDeviceTransferManager_AddMetadata), &args);
  PJRT_Buffer* buffer = stream.retrieve(0);
  const std::vector<float> values = counted(4);
  stream.send(0, values.data(), 0, 4, true);
  require(s.download_f32(buffer, 4) == values, "wrong values");
  stream.destroy();
}

void check_stream_literal(Session& s) {
  Stream stream(s, {{2, 3}});
  PJRT_Buffer* buffer = stream.retrieve(0);
  const std::vector<float> values = counted(6);
  const int64_t dims[] = {2, 3};
  TiledLayout layout({1, 0});
  auto args = make_args<PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args>();
  args.transfer_manager = stream.manager();
  args.data = values.data();
  args.shape_dims = dims;
  args.shape_num_dims = 2;
  args.shape_element_type = PJRT_Buffer_Type_F32;
  args.shape_layout = &layout.layout;
  auto error = s.try_call(HEKLA_SLOT(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral), &args);
  if (error) {
    // Leaves no buffer waiting for data that will not come.
    stream.send(0, values.data(), 0, 6, true);
    stream.destroy();
    s.refuse_unless_unimplemented("TransferLiteral", *error);
  }
  if (auto failed = s.finish_event(args.done_with_h2d_transfer)) fail(failed->text());
  require(s.download_f32(buffer, 6) == values, "wrong values");
  stream.destroy();
}

// A literal is all of its buffer: of another shape it would leave some of it unset.
void check_stream_literal_shape(Session& s) {
  Stream stream(s, {{2, 3}});
  PJRT_Buffer* buffer = stream.retrieve(0);
  const std::vector<float> values = counted(6);
  const int64_t dims[] = {2};
  TiledLayout layout({0});
  auto args = make_args<PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args>();
  args.transfer_manager = stream.manager();
  args.data = values.data();
  args.shape_dims = dims;
  args.shape_num_dims = 1;
  args.shape_element_type = PJRT_Buffer_Type_F32;
  args.shape_layout = &layout.layout;
  s.call_fails(HEKLA_SLOT(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral), &args, 0,
               "a literal that is smaller than its buffer");
  // The buffer still waits for its data.
  stream.send(0, values.data(), 0, 6, true);
  require(s.download_f32(buffer, 6) == values, "wrong values");
  stream.destroy();
}

void check_stream_bad_range(Session& s) {
  Stream stream(s, {{4}});
  stream.retrieve(0);
  const std::vector<float> values = counted(64);
  auto args = make_args<PJRT_AsyncHostToDeviceTransferManager_TransferData_Args>();
  args.transfer_manager = stream.manager();
  args.data = values.data();
  args.offset = 8;
  args.transfer_size = 128;
  s.call_fails(HEKLA_SLOT(PJRT_AsyncHostToDeviceTransferManager_TransferData), &args, 0,
               "bytes behind the end of the buffer");
  stream.destroy();
}

constexpr Check kMakingChecks[] = {
    {"uninitialized-buffer",
     "A buffer without contents is made from a device and a layout with garbage in its size "
     "fields.",
     check_uninitialized},
    {"error-buffer", "An error buffer passes its code and words to events, reads and launches.",
     check_error_buffer},
    {"alias-buffer", "A placeholder is pending until it is fulfilled, then shares the values.",
     check_alias},
    {"alias-buffer-error", "A placeholder fulfilled with an error carries it.", check_alias_error},
    {"view-of-device-buffer",
     "A view of device memory works as a buffer and its delete callback runs exactly once.",
     check_view},
    {"view-without-callback", "A view of device memory needs no delete callback.",
     check_view_without_callback},
    {"view-misaligned", "A view of memory at any address has the right values or is refused.",
     check_view_misaligned},
    {"view-result", "What a launch made of a view stays when the view and its memory are gone.",
     check_view_result},
    {"view-donated", "A view that is donated leaves the memory as it is.", check_view_donated},
};

constexpr Check kStreamChecks[] = {
    {"async-host-to-device",
     "Parts arrive in any order; a buffer is ready after its last part and outlives the manager.",
     check_stream},
    {"async-pending-argument",
     "A launch with an argument that is still being filled returns at once and runs later.",
     check_stream_pending_argument},
    {"async-buffer-error", "An error set on a streamed buffer reaches its ready event.",
     check_stream_error},
    {"async-error-ok", "An error that says OK does not make a streamed buffer ready.",
     check_stream_error_ok},
    {"async-metadata", "Metadata of a transfer is accepted.", check_stream_metadata},
    {"async-literal", "A whole literal can be transferred.", check_stream_literal},
    {"async-literal-shape", "A literal of another shape than its buffer is refused.",
     check_stream_literal_shape},
    {"async-bad-range", "Bytes behind the end of a streamed buffer are refused.",
     check_stream_bad_range},
};

}  // namespace

std::span<const Check> buffer_creation_checks() { return kMakingChecks; }
std::span<const Check> stream_transfer_checks() { return kStreamChecks; }

}  // namespace hekla::conformance
