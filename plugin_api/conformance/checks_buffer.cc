// SPDX-License-Identifier: Apache-2.0
// Buffers: queries, deletion, reads, copies, references.
#include <algorithm>
#include <numeric>

#include "plugin_api/conformance/check.h"
#include "plugin_api/conformance/programs.h"
#include "plugin_api/conformance/session.h"

namespace hekla::conformance {
namespace {

void check_buffer_queries(Session& s) {
  PJRT_Buffer* buffer = s.upload_f32(counted(6), {2, 3});
  auto dims = make_args<PJRT_Buffer_Dimensions_Args>();
  dims.buffer = buffer;
  s.call(HEKLA_SLOT(PJRT_Buffer_Dimensions), &dims);
  require(
      std::vector<int64_t>(dims.dims, dims.dims + dims.num_dims) == std::vector<int64_t>({2, 3}),
      "wrong dimensions");
  auto type = make_args<PJRT_Buffer_ElementType_Args>();
  type.buffer = buffer;
  s.call(HEKLA_SLOT(PJRT_Buffer_ElementType), &type);
  require_equal(type.type, PJRT_Buffer_Type_F32, "element type");
  auto device = make_args<PJRT_Buffer_Device_Args>();
  device.buffer = buffer;
  s.call(HEKLA_SLOT(PJRT_Buffer_Device), &device);
  require(device.device == s.device(), "the buffer names another device");
  auto memory = make_args<PJRT_Buffer_Memory_Args>();
  memory.buffer = buffer;
  auto error = s.try_call(HEKLA_SLOT(PJRT_Buffer_Memory), &memory);
  if (error) {
    require(error->code == PJRT_Error_Code_UNIMPLEMENTED, error->text());
  } else {
    require(memory.memory == s.default_memory(s.device()), "the buffer names another memory");
  }
  auto size = make_args<PJRT_Buffer_OnDeviceSizeInBytes_Args>();
  size.buffer = buffer;
  s.call(HEKLA_SLOT(PJRT_Buffer_OnDeviceSizeInBytes), &size);
  require(size.on_device_size_in_bytes >= 24,
          "on-device size " + std::to_string(size.on_device_size_in_bytes));
}

void check_unpadded(Session& s) {
  PJRT_Buffer* buffer = s.upload_f32(counted(6), {2, 3});
  auto args = make_args<PJRT_Buffer_UnpaddedDimensions_Args>();
  args.buffer = buffer;
  // PyTorch/XLA calls it for every transfer.
  s.call(HEKLA_SLOT(PJRT_Buffer_UnpaddedDimensions), &args);
  require(std::vector<int64_t>(args.unpadded_dims, args.unpadded_dims + args.num_dims) ==
              std::vector<int64_t>({2, 3}),
          "wrong unpadded dimensions");
}

void check_dynamic(Session& s) {
  auto args = make_args<PJRT_Buffer_DynamicDimensionIndices_Args>();
  args.buffer = s.upload_f32(counted(6), {2, 3});
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_DynamicDimensionIndices), &args);
  require_equal(args.num_dynamic_dims, 0, "dynamic dimensions");
}

void check_delete(Session& s) {
  PJRT_Buffer* buffer = s.upload_f32(counted(4), {4});
  require(!s.is_deleted(buffer), "a new buffer is deleted");
  s.delete_buffer(buffer);
  require(s.is_deleted(buffer), "the buffer is not deleted");
  s.delete_buffer(buffer);
  require(s.is_deleted(buffer), "the buffer is not deleted after the second delete");
  const auto error = s.download_error(buffer, 16);
  require(error.has_value(), "a deleted buffer can be read");
  require(!error->message.empty(), "an error without words");
}

void check_delete_ready_event(Session& s) {
  PJRT_Buffer* buffer = s.upload_f32(counted(4), {4});
  s.delete_buffer(buffer);
  // An error return would end the client's process.
  PJRT_Event* event = s.ready_event(buffer);
  auto error = s.finish_event(event);
  require(error.has_value(), "the ready event of a deleted buffer brought no error");
}

void check_delete_while_read(Session& s) {
  const std::vector<float> values = counted(1 << 20);
  PJRT_Buffer* buffer = s.upload_f32(values, {1 << 20});
  std::vector<float> back(values.size());
  auto args = make_args<PJRT_Buffer_ToHostBuffer_Args>();
  args.src = buffer;
  args.dst = back.data();
  args.dst_size = back.size() * sizeof(float);
  s.call(HEKLA_SLOT(PJRT_Buffer_ToHostBuffer), &args);
  s.delete_buffer(buffer);
  if (auto error = s.finish_event(args.event)) fail(error->text());
  require(back == values, "a delete broke a read that had begun");
}

void check_ready_events(Session& s) {
  PJRT_Buffer* buffer = s.upload_f32(counted(4), {4});
  PJRT_Event* first = s.ready_event(buffer);
  PJRT_Event* second = s.ready_event(buffer);
  require(first != second, "two calls returned one event handle, which is destroyed twice");
  s.destroy_event(first);
  if (auto error = s.finish_event(second)) fail(error->text());
}

void check_external_reference(Session& s) {
  PJRT_Buffer* buffer = s.upload_f32(counted(4), {4});
  auto up = make_args<PJRT_Buffer_IncreaseExternalReferenceCount_Args>();
  up.buffer = buffer;
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_IncreaseExternalReferenceCount), &up);
  auto down = make_args<PJRT_Buffer_DecreaseExternalReferenceCount_Args>();
  down.buffer = buffer;
  s.call(HEKLA_SLOT(PJRT_Buffer_DecreaseExternalReferenceCount), &down);
  s.call_fails(HEKLA_SLOT(PJRT_Buffer_DecreaseExternalReferenceCount), &down,
               PJRT_Error_Code_INVALID_ARGUMENT, "a count of zero");
}

bool on_cpu(Session& s, PJRT_Buffer* buffer) {
  auto args = make_args<PJRT_Buffer_IsOnCpu_Args>();
  args.buffer = buffer;
  s.call(HEKLA_SLOT(PJRT_Buffer_IsOnCpu), &args);
  return args.is_on_cpu;
}

void check_delete_reference(Session& s) {
  constexpr size_t kCount = 1 << 16;
  const std::vector<float> values = counted(kCount);
  PJRT_Buffer* buffer = s.upload_f32(values, {kCount});
  auto up = make_args<PJRT_Buffer_IncreaseExternalReferenceCount_Args>();
  up.buffer = buffer;
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_IncreaseExternalReferenceCount), &up);
  if (auto error = s.finish_event(s.ready_event(buffer))) fail(error->text());
  auto pointer = make_args<PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args>();
  pointer.buffer = buffer;
  if (on_cpu(s, buffer)) {
    s.call_optional(HEKLA_SLOT(PJRT_Buffer_OpaqueDeviceMemoryDataPointer), &pointer);
  }
  s.delete_buffer(buffer);
  require(s.is_deleted(buffer), "the buffer is not deleted");
  require(s.download_error(buffer, kCount * sizeof(float)).has_value(),
          "a deleted buffer can be read");
  // Would take the memory if it were free.
  for (int i = 0; i < 4; ++i) s.upload_f32(std::vector<float>(kCount, -1.0f), {kCount});
  if (pointer.device_memory_ptr != nullptr) {
    require(std::memcmp(pointer.device_memory_ptr, values.data(), kCount * sizeof(float)) == 0,
            "memory with an external reference did not outlive the delete of its buffer");
  }
  auto down = make_args<PJRT_Buffer_DecreaseExternalReferenceCount_Args>();
  down.buffer = buffer;
  s.call(HEKLA_SLOT(PJRT_Buffer_DecreaseExternalReferenceCount), &down);
}

void check_opaque_pointer(Session& s) {
  const std::vector<float> values = counted(6);
  PJRT_Buffer* buffer = s.upload_f32(values, {2, 3});
  auto up = make_args<PJRT_Buffer_IncreaseExternalReferenceCount_Args>();
  up.buffer = buffer;
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_IncreaseExternalReferenceCount), &up);
  if (auto error = s.finish_event(s.ready_event(buffer))) fail(error->text());
  auto args = make_args<PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args>();
  args.buffer = buffer;
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_OpaqueDeviceMemoryDataPointer), &args);
  require(args.device_memory_ptr != nullptr, "the pointer is null");
  if (on_cpu(s, buffer)) {
    require(std::memcmp(args.device_memory_ptr, values.data(), 24) == 0,
            "a buffer on the CPU has other bytes at its pointer");
  }
  auto down = make_args<PJRT_Buffer_DecreaseExternalReferenceCount_Args>();
  down.buffer = buffer;
  s.call(HEKLA_SLOT(PJRT_Buffer_DecreaseExternalReferenceCount), &down);
}

void check_unsafe_pointer(Session& s) {
  auto args = make_args<PJRT_Buffer_UnsafePointer_Args>();
  args.buffer = s.upload_f32(counted(6), {2, 3});
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_UnsafePointer), &args);
  require(args.buffer_pointer != 0, "the pointer is null");
}

void check_memory_layout(Session& s) {
  auto args = make_args<PJRT_Buffer_GetMemoryLayout_Args>();
  args.buffer = s.upload_f32(counted(6), {2, 3});
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_GetMemoryLayout), &args);
  if (args.layout.type == PJRT_Buffer_MemoryLayout_Type_Tiled) {
    require_equal(args.layout.tiled.minor_to_major_size, 2, "length of minor_to_major");
    const int64_t* order = args.layout.tiled.minor_to_major;
    require(order[0] + order[1] == 1 && order[0] * order[1] == 0,
            "minor_to_major is no permutation");
  } else {
    require_equal(args.layout.type, PJRT_Buffer_MemoryLayout_Type_Strides, "layout type");
    require_equal(args.layout.strides.num_byte_strides, 2, "number of strides");
  }
}

// ---- Reads.

void check_size_query(Session& s) {
  auto args = make_args<PJRT_Buffer_ToHostBuffer_Args>();
  args.src = s.upload_f32(counted(6), {2, 3});
  s.call(HEKLA_SLOT(PJRT_Buffer_ToHostBuffer), &args);
  require_equal(args.dst_size, 24, "dst_size");
  require(args.event == nullptr, "a size query returned an event");
}

void check_too_small(Session& s) {
  std::vector<uint8_t> bytes(64, 0x3c);
  auto args = make_args<PJRT_Buffer_ToHostBuffer_Args>();
  args.src = s.upload_f32(counted(6), {2, 3});
  args.dst = bytes.data();
  args.dst_size = 23;
  s.call_fails(HEKLA_SLOT(PJRT_Buffer_ToHostBuffer), &args, PJRT_Error_Code_INVALID_ARGUMENT,
               "23 of 24 bytes");
  require(std::count(bytes.begin(), bytes.end(), 0x3c) == 64, "the refused read wrote");
}

std::vector<float> as_floats(const std::vector<uint8_t>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void check_layouts(Session& s) {
  PJRT_Buffer* buffer = s.upload_f32(counted(24), {2, 3, 4});
  require(s.download_f32(buffer, 24) == counted(24), "the natural order is not row-major");
  std::vector<int64_t> order = {0, 1, 2};
  do {
    TiledLayout layout(order);
    // Element (i, j, k) of the host array lies where the order says.
    const int64_t dims[] = {2, 3, 4};
    std::vector<float> want(24);
    for (int64_t i = 0; i < 2; ++i) {
      for (int64_t j = 0; j < 3; ++j) {
        for (int64_t k = 0; k < 4; ++k) {
          const int64_t index[] = {i, j, k};
          int64_t at = 0;
          int64_t stride = 1;
          for (int64_t axis : order) {
            at += index[axis] * stride;
            stride *= dims[axis];
          }
          want[static_cast<size_t>(at)] = static_cast<float>((i * 3 + j) * 4 + k + 1);
        }
      }
    }
    require(as_floats(s.download(buffer, 96, &layout.layout)) == want,
            "wrong values for minor_to_major {" + std::to_string(order[0]) + "," +
                std::to_string(order[1]) + "," + std::to_string(order[2]) + "}");
  } while (std::next_permutation(order.begin(), order.end()));
}

void check_strides_layout(Session& s) {
  PJRT_Buffer* buffer = s.upload_f32(counted(6), {2, 3});
  auto layout = make_args<PJRT_Buffer_MemoryLayout>();
  const int64_t strides[] = {4, 8};  // column-major
  layout.type = PJRT_Buffer_MemoryLayout_Type_Strides;
  layout.strides.byte_strides = strides;
  layout.strides.num_byte_strides = 2;
  std::vector<uint8_t> bytes(24);
  auto args = make_args<PJRT_Buffer_ToHostBuffer_Args>();
  args.src = buffer;
  args.host_layout = &layout;
  args.dst = bytes.data();
  args.dst_size = bytes.size();
  if (auto error = s.try_call(HEKLA_SLOT(PJRT_Buffer_ToHostBuffer), &args)) {
    require(error->code == PJRT_Error_Code_UNIMPLEMENTED ||
                error->code == PJRT_Error_Code_INVALID_ARGUMENT,
            error->text());
    require(!error->message.empty(), "refused without words");
    throw NotOffered{error->text()};
  }
  if (auto error = s.finish_event(args.event)) fail(error->text());
  require(as_floats(bytes) == std::vector<float>({1, 4, 2, 5, 3, 6}), "wrong values");
}

void check_many_reads(Session& s) {
  const std::vector<float> values = counted(10000);
  PJRT_Buffer* buffer = s.upload_f32(values, {10000});
  constexpr int kReads = 32;
  std::vector<std::vector<float>> back(kReads, std::vector<float>(values.size()));
  std::vector<PJRT_Event*> events;
  for (auto& target : back) {
    auto args = make_args<PJRT_Buffer_ToHostBuffer_Args>();
    args.src = buffer;
    args.dst = target.data();
    args.dst_size = target.size() * sizeof(float);
    s.call(HEKLA_SLOT(PJRT_Buffer_ToHostBuffer), &args);
    events.push_back(args.event);
  }
  for (int i = 0; i < kReads; ++i) {
    if (auto error = s.finish_event(events[i])) fail(error->text());
    require(back[i] == values, "wrong values in one of several reads");
  }
}

void check_raw(Session& s) {
  PJRT_Buffer* buffer = s.upload_f32(counted(8), {8});
  std::vector<float> back(3);
  auto args = make_args<PJRT_Buffer_CopyRawToHost_Args>();
  args.buffer = buffer;
  args.dst = back.data();
  args.offset = 8;
  args.transfer_size = 12;
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_CopyRawToHost), &args);
  if (auto error = s.finish_event(args.event)) fail(error->text());
  require(back == std::vector<float>({3, 4, 5}), "wrong values");
}

void check_raw_bad_range(Session& s) {
  PJRT_Buffer* buffer = s.upload_f32(counted(8), {8});
  for (auto [offset, size] : {std::pair<int64_t, int64_t>{24, 16}, {-4, 8}, {0, 1 << 20}}) {
    std::vector<uint8_t> back(1 << 20);
    auto args = make_args<PJRT_Buffer_CopyRawToHost_Args>();
    args.buffer = buffer;
    args.dst = back.data();
    args.offset = offset;
    args.transfer_size = size;
    auto error = s.try_call(HEKLA_SLOT(PJRT_Buffer_CopyRawToHost), &args);
    if (!error) error = s.finish_event(args.event);
    require(error.has_value(), "bytes " + std::to_string(offset) + " to " +
                                   std::to_string(offset + size) + " of 32 were copied");
    if (error->code == PJRT_Error_Code_UNIMPLEMENTED) throw NotOffered{error->message};
  }
}

void check_raw_future(Session& s) {
  PJRT_Buffer* buffer = s.upload_f32(counted(8), {8});
  std::vector<float> back(3);
  auto args = make_args<PJRT_Buffer_CopyRawToHostFuture_Args>();
  args.buffer = buffer;
  args.offset = 8;
  args.transfer_size = 12;
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_CopyRawToHostFuture), &args);
  require(args.event != nullptr && args.future_ready_callback != nullptr,
          "the event or the callback is null");
  require(!s.is_ready(args.event), "the copy ended before its destination was known");
  auto ready = make_args<PJRT_Buffer_CopyRawToHostFuture_Callback_Args>();
  ready.callback_data = args.callback_data;
  ready.dst = back.data();
  args.future_ready_callback(&ready);
  if (auto error = s.finish_event(args.event)) fail(error->text());
  require(back == std::vector<float>({3, 4, 5}), "wrong values");

  s.call(HEKLA_SLOT(PJRT_Buffer_CopyRawToHostFuture), &args);
  ready.callback_data = args.callback_data;
  ready.dst = nullptr;
  ready.error_code = PJRT_Error_Code_CANCELLED;
  ready.error_message = "no room";
  ready.error_message_size = 7;
  args.future_ready_callback(&ready);
  require(s.finish_event(args.event).has_value(), "an error of the destination was lost");
}

void check_raw_future_null(Session& s) {
  auto args = make_args<PJRT_Buffer_CopyRawToHostFuture_Args>();
  args.buffer = s.upload_f32(counted(8), {8});
  args.transfer_size = 12;
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_CopyRawToHostFuture), &args);
  auto ready = make_args<PJRT_Buffer_CopyRawToHostFuture_Callback_Args>();
  ready.callback_data = args.callback_data;
  args.future_ready_callback(&ready);
  require(s.finish_event(args.event).has_value(), "a copy to nowhere brought no error");
}

// ---- Copies.

PJRT_Buffer* copy_to_memory(Session& s, PJRT_Buffer* buffer, PJRT_Memory* memory) {
  auto args = make_args<PJRT_Buffer_CopyToMemory_Args>();
  args.buffer = buffer;
  args.dst_memory = memory;
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_CopyToMemory), &args);
  require(args.dst_buffer != nullptr, "the copy is null");
  require(args.dst_buffer != buffer, "the copy has the handle of its source");
  s.own(args.dst_buffer);
  auto where = make_args<PJRT_Buffer_Memory_Args>();
  where.buffer = args.dst_buffer;
  s.call(HEKLA_SLOT(PJRT_Buffer_Memory), &where);
  require(where.memory == memory, "the copy names another memory");
  return args.dst_buffer;
}

void check_copy_to_memory(Session& s) {
  PJRT_Memory* home = s.default_memory(s.device());
  if (home == nullptr) throw NotOffered{"the plugin has no memories"};
  for (PJRT_Device* device : s.addressable_devices()) {
    for (PJRT_Memory* memory : s.memories(device)) {
      PJRT_Buffer* source = s.upload_f32(counted(100), {10, 10});
      PJRT_Buffer* copy = copy_to_memory(s, source, memory);
      s.delete_buffer(source);  // the copy must be independent, also while it runs
      require(s.download_f32(copy, 100) == counted(100),
              "wrong values in memory " + s.memory_kind(memory));
      require(s.download_f32(copy_to_memory(s, copy, home), 100) == counted(100),
              "wrong values on the way back from " + s.memory_kind(memory));
    }
  }
}

void check_copy_deleted(Session& s) {
  PJRT_Memory* home = s.default_memory(s.device());
  if (home == nullptr) throw NotOffered{"the plugin has no memories"};
  PJRT_Buffer* source = s.upload_f32(counted(4), {4});
  s.delete_buffer(source);
  auto args = make_args<PJRT_Buffer_CopyToMemory_Args>();
  args.buffer = source;
  args.dst_memory = home;
  auto error = s.try_call(HEKLA_SLOT(PJRT_Buffer_CopyToMemory), &args);
  if (!error) {
    s.own(args.dst_buffer);
    error = s.finish_event(s.ready_event(args.dst_buffer));
  }
  require(error.has_value(), "a deleted buffer was copied");
}

void check_copy_to_device(Session& s) {
  PJRT_Device* other = s.device(1);
  auto args = make_args<PJRT_Buffer_CopyToDevice_Args>();
  args.buffer = s.upload_f32(counted(10), {10});
  args.dst_device = other;
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_CopyToDevice), &args);
  require(args.dst_buffer != nullptr, "the copy is null");
  s.own(args.dst_buffer);
  auto where = make_args<PJRT_Buffer_Device_Args>();
  where.buffer = args.dst_buffer;
  s.call(HEKLA_SLOT(PJRT_Buffer_Device), &where);
  require(where.device == other, "the copy is on another device");
  require(s.download_f32(args.dst_buffer, 10) == counted(10), "wrong values");
}

void check_bitcast(Session& s) {
  PJRT_Buffer* source = s.upload_f32({1, 2, 3, 4}, {4});
  const int64_t dims[] = {2, 2};
  TiledLayout layout({1, 0});
  auto args = make_args<PJRT_Buffer_Bitcast_Args>();
  args.buffer = source;
  args.element_type = PJRT_Buffer_Type_U32;
  args.dims = dims;
  args.num_dims = 2;
  args.device_layout = &layout.layout;
  s.call_optional(HEKLA_SLOT(PJRT_Buffer_Bitcast), &args);
  require(args.out_buffer != nullptr, "the new buffer is null");
  s.own(args.out_buffer);
  auto type = make_args<PJRT_Buffer_ElementType_Args>();
  type.buffer = args.out_buffer;
  s.call(HEKLA_SLOT(PJRT_Buffer_ElementType), &type);
  require_equal(type.type, PJRT_Buffer_Type_U32, "element type");
  const auto bytes = s.download(args.out_buffer, 16);
  require(as_floats(bytes) == std::vector<float>({1, 2, 3, 4}), "the bits changed");
  const int64_t wrong[] = {3};
  args.dims = wrong;
  args.num_dims = 1;
  args.device_layout = nullptr;
  s.call_fails(HEKLA_SLOT(PJRT_Buffer_Bitcast), &args, 0, "another number of bytes");
}

// Bits above those of a type must not be seen, whatever the bytes held before.
void check_bitcast_narrow(Session& s) {
  const std::vector<uint8_t> bytes = {0xff, 0x10, 0x07, 0x88};
  HostData host;
  host.type = PJRT_Buffer_Type_U8;
  host.dims = {4};
  host.data = bytes.data();
  const int64_t dims[] = {4};
  auto args = make_args<PJRT_Buffer_Bitcast_Args>();
  args.buffer = s.upload(host);
  args.element_type = PJRT_Buffer_Type_U4;
  args.dims = dims;
  args.num_dims = 1;
  if (auto error = s.try_call(HEKLA_SLOT(PJRT_Buffer_Bitcast), &args)) {
    require(!error->message.empty(), "refused without words");
    s.remark("refused: " + code_name(error->code));
    return;
  }
  s.own(args.out_buffer);
  constexpr std::string_view kWiden = R"(module @widen {
  func.func @main(%a: tensor<4xui4>) -> tensor<4xui8> {
    %0 = stablehlo.convert %a : (tensor<4xui4>) -> tensor<4xui8>
    return %0 : tensor<4xui8>
  }
})";
  const auto outputs = s.run(s.compile(kWiden), {args.out_buffer});
  require(s.download(outputs[0], 4) == std::vector<uint8_t>({0x0f, 0x00, 0x07, 0x08}),
          "values of four bits have more than four");
}

constexpr Check kBufferChecks[] = {
    {"buffer-queries", "A buffer knows its type, dimensions, device, memory and size.",
     check_buffer_queries},
    {"buffer-unpadded-dimensions", "Unpadded dimensions are those of the array.", check_unpadded},
    {"buffer-dynamic-dimensions", "An ordinary array has no dynamic dimensions.", check_dynamic},
    {"buffer-delete", "Deleting marks a buffer, may be repeated, and makes reads fail with words.",
     check_delete},
    {"buffer-deleted-ready-event", "The ready event of a deleted buffer carries an error.",
     check_delete_ready_event},
    {"buffer-delete-during-read", "A read that has begun survives the delete of its buffer.",
     check_delete_while_read},
    {"buffer-ready-events", "Each call returns its own ready event.", check_ready_events},
    {"external-reference", "References can be counted up and down; below zero is INVALID_ARGUMENT.",
     check_external_reference},
    {"buffer-delete-reference",
     "Memory with an external reference outlives the delete of its buffer.",
     check_delete_reference},
    {"opaque-pointer",
     "The device pointer is not null, and on the CPU it shows the values in row-major order.",
     check_opaque_pointer},
    {"unsafe-pointer", "The unsafe pointer is not null.", check_unsafe_pointer},
    {"buffer-memory-layout", "The memory layout is a permutation or strides of the right length.",
     check_memory_layout},
};

constexpr Check kDownloadChecks[] = {
    {"to-host-size-query", "A read without destination returns the size and no event.",
     check_size_query},
    {"to-host-too-small", "Too small a destination is INVALID_ARGUMENT and stays untouched.",
     check_too_small},
    {"to-host-layouts",
     "Every minor-to-major order is delivered, with garbage in the layout's size fields.",
     check_layouts},
    {"to-host-strides", "A strides layout is delivered or refused with words.",
     check_strides_layout},
    {"to-host-many", "Many reads of one buffer can be in flight.", check_many_reads},
    {"raw-copy", "A range of raw bytes can be copied.", check_raw},
    {"raw-copy-bad-range", "Raw bytes outside of the buffer are refused.", check_raw_bad_range},
    {"raw-copy-future", "A raw copy waits for its destination and takes an error instead.",
     check_raw_future},
    {"raw-copy-future-null", "A raw copy whose destination turns out to be null is an error.",
     check_raw_future_null},
};

constexpr Check kCopyChecks[] = {
    {"copy-to-memory",
     "A copy to any memory of any device, its own included, is independent of its source.",
     check_copy_to_memory},
    {"copy-deleted", "Copying a deleted buffer is an error.", check_copy_deleted},
    {"copy-to-device", "A copy to another device holds the same values.", check_copy_to_device},
    {"bitcast", "A bitcast keeps the bits and refuses another size.", check_bitcast},
    {"bitcast-narrow",
     "Bytes seen as elements of fewer bits are refused, or their other bits are not seen.",
     check_bitcast_narrow},
};

}  // namespace

std::span<const Check> buffer_checks() { return kBufferChecks; }
std::span<const Check> download_checks() { return kDownloadChecks; }
std::span<const Check> copy_checks() { return kCopyChecks; }

}  // namespace hekla::conformance
