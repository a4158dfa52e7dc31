// SPDX-License-Identifier: Apache-2.0
// Buffers: queries, deletion, reading, copies, references from outside.
#include <fmt/ranges.h>

#include <utility>

#include "backends/pjrt/abi.h"
#include "backends/pjrt/host_layout.h"
#include "runtime/base/narrow_integers.h"

namespace hekla::pjrt {

PJRT_Buffer* make_buffer(const StateRef& state, MemoryObject* memory, PJRT_Device* device,
                         DType dtype, Dims dims, StorageRef storage, CompletionRef ready,
                         Order order) {
  auto buffer = std::make_unique<PJRT_Buffer>();
  buffer->state = state;
  buffer->device = device;
  buffer->memory = memory;
  buffer->dtype = dtype;
  buffer->dims = std::move(dims);
  buffer->order = std::move(order);
  buffer->storage = std::move(storage);
  buffer->ready = std::move(ready);
  return buffer.release();
}

Status deleted_or_donated() { return invalid_argument("Buffer has been deleted or donated"); }

Result<StorageRef> storage_of(PJRT_Buffer& buffer) {
  std::lock_guard lock(buffer.mutex);
  if (!buffer.is_usable()) return deleted_or_donated();
  return buffer.storage;
}

Result<TakenStorage> take_storage(PJRT_Buffer& buffer, bool may_take) {
  std::lock_guard lock(buffer.mutex);
  if (!buffer.is_usable()) return deleted_or_donated();
  if (!may_take || buffer.external_references > 0 || buffer.storage->holds > 0) {
    return TakenStorage{buffer.storage, false};
  }
  return TakenStorage{std::exchange(buffer.storage, nullptr), true};
}

void give_back(PJRT_Buffer& buffer, StorageRef storage) {
  std::lock_guard lock(buffer.mutex);
  if (!buffer.is_deleted) buffer.storage.swap(storage);
}

Result<std::pair<PJRT_Device*, MemoryObject*>> target_of(PJRT_Client* client, PJRT_Device* device,
                                                         PJRT_Memory* memory) {
  if (memory != nullptr) {
    auto* object = static_cast<MemoryObject*>(memory);
    if (object->devices.front()->state != client->state.get()) return of_another_client("memory");
    return std::pair(object->devices.front(), object);
  }
  if (device == nullptr) device = client->state->addressable_pointers.front();
  if (device->state != client->state.get()) return of_another_client("device");
  HEKLA_RETURN_IF_ERROR(local_index_of(*device).status());
  return std::pair(device, static_cast<MemoryObject*>(device->memories.front()));
}

Status of_another_client(std::string_view what) {
  return invalid_argument("the {} belongs to another client", what);
}

Status check_bits(const PJRT_Buffer& buffer, DType dtype) {
  if (dtype == buffer.dtype || !is_narrow_integer(dtype)) return ok_status();
  return unimplemented("{} is not seen as {}: it may have anything in the bits above",
                       shape_string(buffer.dtype, buffer.dims), dtype_name(dtype));
}

Status check_rank(size_t rank) {
  if (rank <= kMaxRank) return ok_status();
  return invalid_argument("rank {} is above {}", rank, kMaxRank);
}

Status check_shape(DType dtype, const int64_t* dims, size_t rank) {
  if (rank > 0 && dims == nullptr) return invalid_argument("dims is null");
  HEKLA_RETURN_IF_ERROR(check_rank(rank));
  return checked_bytes(dtype, {dims, rank}).status();
}

namespace {

Status Buffer_Destroy(PJRT_Buffer_Destroy_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_Destroy_Args, buffer);
  HEKLA_KEEP_IF_INHERITED(args->buffer);
  delete args->buffer;
  return ok_status();
}

Status Buffer_ElementType(PJRT_Buffer_ElementType_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_ElementType_Args, type);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  args->type = to_buffer_type(args->buffer->dtype);
  return ok_status();
}

Status Buffer_Dimensions(PJRT_Buffer_Dimensions_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_Dimensions_Args, num_dims);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  args->dims = args->buffer->dims.data();
  args->num_dims = args->buffer->dims.size();
  return ok_status();
}

// The dimensions that the buffer's launch has given it; waits for that.
Result<const Dims*> unpadded_dims(PJRT_Buffer& buffer) {
  if (buffer.bounded.empty()) return &buffer.dims;
  {
    const std::lock_guard lock(buffer.mutex);
    if (buffer.unpadded != nullptr) return buffer.unpadded.get();
  }
  HEKLA_RETURN_IF_ERROR(buffer.state->check_process());
  HEKLA_RETURN_IF_ERROR(buffer.ready->await());
  auto dims = std::make_unique<Dims>(buffer.dims);
  for (size_t i = 0; i < buffer.bounded.size(); ++i) {
    int32_t size = 0;
    const CompletionRef done = Completion::make();
    buffer.state->backend->copy_to_host(buffer.sizes[i], 0, &size, sizeof(size), done);
    HEKLA_RETURN_IF_ERROR(done->await());
    int64_t& dim = (*dims)[buffer.bounded[i]];
    if (size < 0 || size > dim) {
      return internal_error("a launch gave dimension {} of {} the size {}", buffer.bounded[i],
                            shape_string(buffer.dtype, buffer.dims), size);
    }
    dim = size;
  }
  const std::lock_guard lock(buffer.mutex);
  if (buffer.unpadded == nullptr) buffer.unpadded = std::move(dims);
  return buffer.unpadded.get();
}

Status Buffer_UnpaddedDimensions(PJRT_Buffer_UnpaddedDimensions_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_UnpaddedDimensions_Args, num_dims);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  HEKLA_ASSIGN_OR_RETURN(const Dims* dims, unpadded_dims(*args->buffer));
  args->unpadded_dims = dims->data();
  args->num_dims = dims->size();
  return ok_status();
}

Status Buffer_DynamicDimensionIndices(PJRT_Buffer_DynamicDimensionIndices_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_DynamicDimensionIndices_Args, num_dynamic_dims);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  args->dynamic_dim_indices = args->buffer->bounded.data();
  args->num_dynamic_dims = args->buffer->bounded.size();
  return ok_status();
}

// Minor-to-major orders of row-major arrays, up to the rank that a query needs; static storage.
const int64_t* descending(size_t rank) {
  static const std::vector<int64_t>& numbers = *[] {
    auto* made = new std::vector<int64_t>(kMaxRank);
    for (size_t i = 0; i < kMaxRank; ++i) {
      (*made)[i] = static_cast<int64_t>(kMaxRank - 1 - i);
    }
    return made;
  }();
  return numbers.data() + (kMaxRank - rank);
}

Status Buffer_GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_GetMemoryLayout_Args, layout);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  const size_t rank = args->buffer->dims.size();
  const Order& order = args->buffer->order;
  args->layout = {};
  args->layout.struct_size = PJRT_STRUCT_SIZE(PJRT_Buffer_MemoryLayout, type);
  args->layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  args->layout.tiled.struct_size = PJRT_STRUCT_SIZE(PJRT_Buffer_MemoryLayout_Tiled, num_tiles);
  args->layout.tiled.minor_to_major = order.empty() ? descending(rank) : order.data();
  args->layout.tiled.minor_to_major_size = rank;
  return ok_status();
}

Status Buffer_OnDeviceSizeInBytes(PJRT_Buffer_OnDeviceSizeInBytes_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_OnDeviceSizeInBytes_Args, on_device_size_in_bytes);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  HEKLA_RETURN_IF_ERROR(storage_of(*args->buffer).status());
  args->on_device_size_in_bytes = static_cast<size_t>(args->buffer->size_bytes());
  return ok_status();
}

Status Buffer_Device(PJRT_Buffer_Device_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_Device_Args, device);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  args->device = args->buffer->device;
  return ok_status();
}

Status Buffer_Memory(PJRT_Buffer_Memory_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_Memory_Args, memory);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  args->memory = args->buffer->memory;
  return ok_status();
}

Status Buffer_Delete(PJRT_Buffer_Delete_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_Delete_Args, buffer);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  StorageRef freed;  // outside of the lock
  std::lock_guard lock(args->buffer->mutex);
  args->buffer->is_deleted = true;
  HEKLA_KEEP_IF_INHERITED(args->buffer);
  if (args->buffer->external_references == 0) freed.swap(args->buffer->storage);
  return ok_status();
}

Status Buffer_IsDeleted(PJRT_Buffer_IsDeleted_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_IsDeleted_Args, is_deleted);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  std::lock_guard lock(args->buffer->mutex);
  args->is_deleted = !args->buffer->is_usable();
  return ok_status();
}

Status Buffer_IsOnCpu(PJRT_Buffer_IsOnCpu_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_IsOnCpu_Args, is_on_cpu);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  args->is_on_cpu = args->buffer->device->description->info.is_host_memory;
  return ok_status();
}

Status Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_ReadyEvent_Args, event);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  const Result<StorageRef> storage = storage_of(*args->buffer);
  // A deleted buffer's event is ready with the error: clients take an error return for fatal.
  args->event = make_event(storage.ok() ? args->buffer->ready : Completion::ready(storage.status()),
                           args->buffer->state);
  return ok_status();
}

void set_sizes_of(const PJRT_Buffer& source, PJRT_Buffer& copy) {
  copy.bounded = source.bounded;
  copy.sizes = source.sizes;
}

// Copies [offset, offset + bytes) to `target` once the buffer is ready, which completes `done`. The
// caller makes all that it gives its own caller before: that one may free `target` after an error.
void read_bytes(PJRT_Buffer& buffer, StorageRef storage, int64_t offset, void* target,
                int64_t bytes, CompletionRef done) {
  buffer.ready->on_done([state = buffer.state, storage = std::move(storage), offset, target, bytes,
                         done = std::move(done), device = buffer.device](const Status& status) {
    if (!status.ok() || bytes == 0) {
      done->complete(status);
      return;
    }
    begin_or_fail(done, [&] {
      show_transfer(*device, "device to host", bytes, done);
      state->backend->copy_to_host(storage, offset, target, bytes, done);
    });
  });
}

// Whether elements at these strides lie within `size` bytes from the first one on.
Status check_reach(const std::vector<int64_t>& strides, const Dims& dims, int64_t element,
                   size_t size) {
  int64_t end = element;
  bool fits = true;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0) return ok_status();
    if (dims[i] == 1) continue;
    int64_t reach = 0;
    fits = fits && strides[i] >= 0 && !__builtin_mul_overflow(dims[i] - 1, strides[i], &reach) &&
           !__builtin_add_overflow(end, reach, &end);
  }
  if (fits && static_cast<size_t>(end) <= size) return ok_status();
  return invalid_argument("elements [{}] at the strides [{}] are not all within dst_size, {} bytes",
                          fmt::join(dims, ","), fmt::join(strides, ","), size);
}

// Of an array with bounded dimensions: what the launch has filled, which it waits for.
Status read_unpadded(PJRT_Buffer_ToHostBuffer_Args* args) {
  PJRT_Buffer& buffer = *args->src;
  HEKLA_ASSIGN_OR_RETURN(StorageRef storage, storage_of(buffer));
  HEKLA_ASSIGN_OR_RETURN(const Dims* dims, unpadded_dims(buffer));
  const int64_t element = dtype_bytes(buffer.dtype);
  const auto bytes = static_cast<size_t>(element_count(*dims) * element);
  if (args->dst == nullptr) {
    args->dst_size = bytes;
    args->event = nullptr;
    return ok_status();
  }
  if (args->dst_size < bytes) {
    return invalid_argument("dst_size {} is below the {} bytes of {}", args->dst_size, bytes,
                            shape_string(buffer.dtype, *dims));
  }
  HEKLA_ASSIGN_OR_RETURN(auto strides, layout_strides(args->host_layout, buffer.dtype, *dims));
  if (!strides.has_value()) strides = dense_strides(buffer.dtype, *dims);
  HEKLA_RETURN_IF_ERROR(check_reach(*strides, *dims, element, args->dst_size));
  auto padded = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(buffer.size_bytes()));
  auto dense = std::make_shared<std::vector<std::byte>>(bytes);
  CompletionRef done = Completion::make();
  CompletionRef read = Completion::make();
  std::unique_ptr<PJRT_Event> event(make_event(done, buffer.state));
  read->on_done([padded, dense, element, dims = *dims, strides = *strides,
                 from = dense_strides(buffer.dtype, buffer.dims),
                 target = static_cast<std::byte*>(args->dst), done](const Status& status) {
    begin_or_fail(done, [&] {
      if (status.ok() && !dense->empty()) {
        gather_strided(padded->data(), from, dims, element, dense->data());
        scatter_strided(dense->data(), strides, dims, element, target);
      }
      done->complete(status);
    });
  });
  read_bytes(buffer, std::move(storage), 0, padded->data(), buffer.size_bytes(), std::move(read));
  args->event = event.release();
  return ok_status();
}

Status Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_ToHostBuffer_Args, event);
  HEKLA_REQUIRE_HANDLE(args, src);
  PJRT_Buffer& buffer = *args->src;
  HEKLA_RETURN_IF_ERROR(buffer.state->check_process());
  if (!buffer.bounded.empty()) return read_unpadded(args);
  if (args->dst == nullptr) {
    args->dst_size = static_cast<size_t>(buffer.size_bytes());
    args->event = nullptr;
    return ok_status();
  }
  HEKLA_ASSIGN_OR_RETURN(StorageRef storage, storage_of(buffer));
  HEKLA_ASSIGN_OR_RETURN(auto strides,
                         layout_strides(args->host_layout, buffer.dtype, buffer.dims));
  // Without a layout the caller gets the device's.
  const Dims dims = in_memory(buffer.dims, buffer.order);
  if (args->host_layout != nullptr && !buffer.order.empty()) {
    if (!strides.has_value()) strides = dense_strides(buffer.dtype, buffer.dims);
    *strides = in_memory(*strides, buffer.order);
    if (*strides == dense_strides(buffer.dtype, dims)) strides.reset();
  }
  const int64_t bytes = buffer.size_bytes();
  if (args->dst_size < static_cast<size_t>(bytes)) {
    return invalid_argument("dst_size {} is below the {} bytes of {}", args->dst_size, bytes,
                            shape_string(buffer.dtype, buffer.dims));
  }
  CompletionRef done = Completion::make();
  std::unique_ptr<PJRT_Event> event(make_event(done, buffer.state));
  if (!strides.has_value()) {
    read_bytes(buffer, std::move(storage), 0, args->dst, bytes, std::move(done));
    args->event = event.release();
    return ok_status();
  }
  HEKLA_RETURN_IF_ERROR(check_reach(*strides, dims, dtype_bytes(buffer.dtype), args->dst_size));
  // Through dense bytes on the host, then into the caller's order.
  auto dense = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(bytes));
  CompletionRef read = Completion::make();
  read->on_done([dense, strides = *strides, dims, dtype = buffer.dtype,
                 target = static_cast<std::byte*>(args->dst), done](const Status& status) {
    begin_or_fail(done, [&] {
      if (status.ok()) {
        scatter_strided(dense->data(), strides, dims, dtype_bytes(dtype), target);
      }
      done->complete(status);
    });
  });
  read_bytes(buffer, std::move(storage), 0, dense->data(), bytes, std::move(read));
  args->event = event.release();
  return ok_status();
}

Status check_range(const PJRT_Buffer& buffer, int64_t offset, int64_t bytes) {
  if (offset >= 0 && bytes >= 0 && offset <= buffer.size_bytes() &&
      bytes <= buffer.size_bytes() - offset) {
    return ok_status();
  }
  return invalid_argument("{} bytes at offset {} are outside of the {} bytes of {}", bytes, offset,
                          buffer.size_bytes(), shape_string(buffer.dtype, buffer.dims));
}

Status Buffer_CopyRawToHost(PJRT_Buffer_CopyRawToHost_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_CopyRawToHost_Args, event);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  HEKLA_RETURN_IF_ERROR(args->buffer->state->check_process());
  HEKLA_ASSIGN_OR_RETURN(StorageRef storage, storage_of(*args->buffer));
  HEKLA_RETURN_IF_ERROR(check_range(*args->buffer, args->offset, args->transfer_size));
  if (args->dst == nullptr && args->transfer_size > 0) return invalid_argument("dst is null");
  CompletionRef done = Completion::make();
  std::unique_ptr<PJRT_Event> event(make_event(done, args->buffer->state));
  read_bytes(*args->buffer, std::move(storage), args->offset, args->dst, args->transfer_size,
             std::move(done));
  args->event = event.release();
  return ok_status();
}

// What the caller hands back with the destination of a raw copy.
struct RawCopy {
  StateRef state;
  StorageRef storage;
  CompletionRef ready;
  int64_t offset = 0;
  int64_t bytes = 0;
  CompletionRef done;
};

void start_raw_copy(PJRT_Buffer_CopyRawToHostFuture_Callback_Args* args) {
  if (args == nullptr || args->callback_data == nullptr) return;
  std::unique_ptr<RawCopy> owned(static_cast<RawCopy*>(args->callback_data));
  const CompletionRef done = owned->done;
  void* const target = args->dst;
  const Status status = status_of_work([&]() -> Status {
    HEKLA_RETURN_IF_ERROR(
        status_of(args->error_code, args->error_message, args->error_message_size));
    if (target == nullptr && owned->bytes > 0) return invalid_argument("dst is null");
    HEKLA_RETURN_IF_ERROR(owned->state->check_process());
    const CompletionRef ready = owned->ready;
    ready->on_done([copy = std::shared_ptr<RawCopy>(std::move(owned)), target](const Status& s) {
      if (!s.ok() || copy->bytes == 0) {
        copy->done->complete(s);
        return;
      }
      begin_or_fail(copy->done, [&] {
        copy->state->backend->copy_to_host(copy->storage, copy->offset, target, copy->bytes,
                                           copy->done);
      });
    });
    return ok_status();
  });
  if (!status.ok()) done->complete(status);
}

Status Buffer_CopyRawToHostFuture(PJRT_Buffer_CopyRawToHostFuture_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_CopyRawToHostFuture_Args, future_ready_callback);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  HEKLA_ASSIGN_OR_RETURN(StorageRef storage, storage_of(*args->buffer));
  HEKLA_RETURN_IF_ERROR(check_range(*args->buffer, args->offset, args->transfer_size));
  std::unique_ptr<RawCopy> copy(new RawCopy{args->buffer->state, std::move(storage),
                                            args->buffer->ready, args->offset, args->transfer_size,
                                            Completion::make()});
  args->event = make_event(copy->done, args->buffer->state);
  args->callback_data = copy.release();
  args->future_ready_callback = start_raw_copy;
  return ok_status();
}

Result<PJRT_Buffer*> copy_to(PJRT_Buffer& source, PJRT_Device* device, MemoryObject* memory) {
  if (!source.bounded.empty() && device != source.device) {
    return unimplemented("{} has bounded dynamic dimensions: it is copied to no other device",
                         shape_string(source.dtype, source.dims));
  }
  const StateRef state = source.state;
  HEKLA_RETURN_IF_ERROR(state->check_process());
  HEKLA_ASSIGN_OR_RETURN(StorageRef from, storage_of(source));
  const int64_t bytes = source.size_bytes();
  HEKLA_ASSIGN_OR_RETURN(StorageRef to,
                         state->backend->allocate(device->local_index, memory->kind_index, bytes));
  CompletionRef done = Completion::make();
  std::unique_ptr<PJRT_Buffer> copy(
      make_buffer(state, memory, device, source.dtype, source.dims, to, done, source.order));
  set_sizes_of(source, *copy);
  source.ready->on_done([state, from, to, bytes, done, device](const Status& status) {
    if (!status.ok() || bytes == 0) {
      done->complete(status);
      return;
    }
    begin_or_fail(done, [&] {
      show_transfer(*device, "device to device", bytes, done);
      state->backend->copy(from, to, bytes, done);
    });
  });
  return copy.release();
}

Status Buffer_CopyToDevice(PJRT_Buffer_CopyToDevice_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_CopyToDevice_Args, dst_buffer);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  HEKLA_REQUIRE_HANDLE(args, dst_device);
  if (args->dst_device->state != args->buffer->state.get()) {
    return unimplemented("copies between clients go through the host");
  }
  HEKLA_RETURN_IF_ERROR(local_index_of(*args->dst_device).status());
  auto* memory = static_cast<MemoryObject*>(args->dst_device->memories.front());
  HEKLA_ASSIGN_OR_RETURN(args->dst_buffer, copy_to(*args->buffer, args->dst_device, memory));
  return ok_status();
}

Status Buffer_CopyToMemory(PJRT_Buffer_CopyToMemory_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_CopyToMemory_Args, dst_buffer);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  HEKLA_REQUIRE_HANDLE(args, dst_memory);
  auto* memory = static_cast<MemoryObject*>(args->dst_memory);
  PJRT_Device* device = memory->devices.front();
  if (device->state != args->buffer->state.get()) {
    return unimplemented("copies between clients go through the host");
  }
  HEKLA_ASSIGN_OR_RETURN(args->dst_buffer, copy_to(*args->buffer, device, memory));
  return ok_status();
}

Status Buffer_Bitcast(PJRT_Buffer_Bitcast_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_Bitcast_Args, out_buffer);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  PJRT_Buffer& buffer = *args->buffer;
  HEKLA_ASSIGN_OR_RETURN(StorageRef storage, storage_of(buffer));
  HEKLA_ASSIGN_OR_RETURN(DType dtype, to_dtype(args->element_type));
  HEKLA_RETURN_IF_ERROR(check_shape(dtype, args->dims, args->num_dims));
  Dims dims(args->dims, args->dims + args->num_dims);
  HEKLA_ASSIGN_OR_RETURN(int64_t bytes, checked_bytes(dtype, dims));
  HEKLA_ASSIGN_OR_RETURN(auto strides, layout_strides(args->device_layout, dtype, dims));
  if (bytes != buffer.size_bytes() || strides.has_value() || !buffer.order.empty() ||
      !buffer.bounded.empty()) {
    return invalid_argument("{} cannot be seen as a row-major {}",
                            shape_string(buffer.dtype, buffer.dims), shape_string(dtype, dims));
  }
  HEKLA_RETURN_IF_ERROR(check_bits(buffer, dtype));
  args->out_buffer = make_buffer(buffer.state, buffer.memory, buffer.device, dtype, std::move(dims),
                                 std::move(storage), buffer.ready);
  return ok_status();
}

Result<void*> host_pointer(PJRT_Buffer& buffer) {
  HEKLA_RETURN_IF_ERROR(buffer.state->check_process());
  HEKLA_ASSIGN_OR_RETURN(StorageRef storage, storage_of(buffer));
  HEKLA_RETURN_IF_ERROR(buffer.ready->await());
  void* pointer = storage->host_pointer();
  if (pointer == nullptr) return unimplemented("this memory has no address for the host");
  return pointer;
}

Status Buffer_UnsafePointer(PJRT_Buffer_UnsafePointer_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_UnsafePointer_Args, buffer_pointer);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  if (wants_holds()) {
    HEKLA_ASSIGN_OR_RETURN(args->buffer_pointer, make_hold(*args->buffer));
    return ok_status();
  }
  HEKLA_ASSIGN_OR_RETURN(void* pointer, host_pointer(*args->buffer));
  args->buffer_pointer = reinterpret_cast<uintptr_t>(pointer);
  return ok_status();
}

Status Buffer_OpaqueDeviceMemoryDataPointer(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args, device_memory_ptr);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  HEKLA_ASSIGN_OR_RETURN(args->device_memory_ptr, host_pointer(*args->buffer));
  return ok_status();
}

Status Buffer_IncreaseExternalReferenceCount(
    PJRT_Buffer_IncreaseExternalReferenceCount_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_IncreaseExternalReferenceCount_Args, buffer);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  std::lock_guard lock(args->buffer->mutex);
  if (!args->buffer->is_usable()) return deleted_or_donated();
  ++args->buffer->external_references;
  return ok_status();
}

Status Buffer_DecreaseExternalReferenceCount(
    PJRT_Buffer_DecreaseExternalReferenceCount_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_DecreaseExternalReferenceCount_Args, buffer);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  PJRT_Buffer& buffer = *args->buffer;
  StorageRef freed;  // outside of the lock
  std::lock_guard lock(buffer.mutex);
  if (buffer.external_references == 0) {
    return invalid_argument(
        "Attempting to decrease reference on a buffer with zero reference count.");
  }
  --buffer.external_references;
  HEKLA_KEEP_IF_INHERITED(&buffer);
  if (buffer.external_references == 0 && buffer.is_deleted) freed.swap(buffer.storage);
  return ok_status();
}

// What the caller hands back when its dependency is done. One that does not come about ends too:
// what waits for it and for the buffer would hold both, and they it, for ever.
struct Donation {
  CompletionRef dependency = Completion::make();

  Donation() = default;
  Donation(const Donation&) = delete;
  Donation& operator=(const Donation&) = delete;
  ~Donation() { dependency->complete(ok_status()); }
};

void finish_donation(PJRT_Buffer_DonateWithControlDependency_Callback_Args* args) {
  if (args == nullptr || args->callback_data == nullptr) return;
  const std::unique_ptr<Donation> donation(static_cast<Donation*>(args->callback_data));
  begin_or_fail(donation->dependency, [&] {
    donation->dependency->complete(
        status_of(args->error_code, args->error_message, args->error_message_size));
  });
}

Status Buffer_DonateWithControlDependency(PJRT_Buffer_DonateWithControlDependency_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Buffer_DonateWithControlDependency_Args, out_buffer);
  HEKLA_REQUIRE_HANDLE(args, buffer);
  PJRT_Buffer& buffer = *args->buffer;
  HEKLA_RETURN_IF_ERROR(buffer.state->check_process());
  // First all that may fail, then the taking.
  auto donation = std::make_unique<Donation>();
  std::unique_ptr<PJRT_Buffer> heir(
      make_buffer(buffer.state, buffer.memory, buffer.device, buffer.dtype, buffer.dims, nullptr,
                  Completion::all({buffer.ready, donation->dependency}), buffer.order));
  set_sizes_of(buffer, *heir);
  HEKLA_ASSIGN_OR_RETURN(TakenStorage taken, take_storage(buffer, true));
  if (!taken.is_taken) {
    return failed_precondition("the buffer is referred to from outside and cannot be donated");
  }
  heir->storage = std::move(taken.storage);
  args->callback_data = donation.release();
  args->dependency_ready_callback = finish_donation;
  args->out_buffer = heir.release();
  return ok_status();
}

}  // namespace

void add_buffer_slots(PJRT_Api& api) {
  api.PJRT_Buffer_Destroy = Slot<Buffer_Destroy>::call;
  api.PJRT_Buffer_ElementType = Slot<Buffer_ElementType>::call;
  api.PJRT_Buffer_Dimensions = Slot<Buffer_Dimensions>::call;
  api.PJRT_Buffer_UnpaddedDimensions = Slot<Buffer_UnpaddedDimensions>::call;
  api.PJRT_Buffer_DynamicDimensionIndices = Slot<Buffer_DynamicDimensionIndices>::call;
  api.PJRT_Buffer_GetMemoryLayout = Slot<Buffer_GetMemoryLayout>::call;
  api.PJRT_Buffer_OnDeviceSizeInBytes = Slot<Buffer_OnDeviceSizeInBytes>::call;
  api.PJRT_Buffer_Device = Slot<Buffer_Device>::call;
  api.PJRT_Buffer_Memory = Slot<Buffer_Memory>::call;
  api.PJRT_Buffer_Delete = Slot<Buffer_Delete>::call;
  api.PJRT_Buffer_IsDeleted = Slot<Buffer_IsDeleted>::call;
  api.PJRT_Buffer_CopyToDevice = Slot<Buffer_CopyToDevice>::call;
  api.PJRT_Buffer_ToHostBuffer = Slot<Buffer_ToHostBuffer>::call;
  api.PJRT_Buffer_IsOnCpu = Slot<Buffer_IsOnCpu>::call;
  api.PJRT_Buffer_ReadyEvent = Slot<Buffer_ReadyEvent>::call;
  api.PJRT_Buffer_UnsafePointer = Slot<Buffer_UnsafePointer>::call;
  api.PJRT_Buffer_IncreaseExternalReferenceCount =
      Slot<Buffer_IncreaseExternalReferenceCount>::call;
  api.PJRT_Buffer_DecreaseExternalReferenceCount =
      Slot<Buffer_DecreaseExternalReferenceCount>::call;
  api.PJRT_Buffer_OpaqueDeviceMemoryDataPointer = Slot<Buffer_OpaqueDeviceMemoryDataPointer>::call;
  api.PJRT_Buffer_CopyToMemory = Slot<Buffer_CopyToMemory>::call;
  api.PJRT_Buffer_CopyRawToHost = Slot<Buffer_CopyRawToHost>::call;
  api.PJRT_Buffer_CopyRawToHostFuture = Slot<Buffer_CopyRawToHostFuture>::call;
  api.PJRT_Buffer_DonateWithControlDependency = Slot<Buffer_DonateWithControlDependency>::call;
  api.PJRT_Buffer_Bitcast = Slot<Buffer_Bitcast>::call;
}

}  // namespace hekla::pjrt
