// SPDX-License-Identifier: Apache-2.0
// Host to device: whole arrays, parts through a transfer manager, other ways to make buffers, and
// the chunk streams of host callbacks.
#include "backends/pjrt/abi.h"
#include "backends/pjrt/host_layout.h"
#include "runtime/base/narrow_integers.h"

// Buffers that the host fills part by part.
struct PJRT_AsyncHostToDeviceTransferManager {
  struct Entry {
    hekla::pjrt::StorageRef storage;
    hekla::DType dtype = hekla::DType::kInvalid;
    hekla::Dims dims;
    hekla::pjrt::Order order;
    int64_t size_bytes = 0;
    hekla::CompletionRef ready;
    bool is_retrieved = false;
    bool is_last_sent = false;
    // Completions of the parts that are under way.
    std::vector<hekla::CompletionRef> parts;
  };
  hekla::pjrt::StateRef state;
  PJRT_Device* device = nullptr;
  hekla::pjrt::MemoryObject* memory = nullptr;
  std::mutex mutex;
  std::vector<Entry> entries;  // guarded by mutex
};

// A placeholder that waits for its real buffer.
struct PJRT_FulfillAliasBufferCallback {
  hekla::pjrt::StateRef state;
  hekla::pjrt::StorageRef storage;
  hekla::DType dtype = hekla::DType::kInvalid;
  hekla::pjrt::Order order;
  int64_t size_bytes = 0;
  hekla::CompletionRef ready;
};

namespace hekla::pjrt {
namespace {

constexpr const char* kFromHost = "host to device";

Status Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_BufferFromHostBuffer_Args, buffer);
  HEKLA_REQUIRE_HANDLE(args, client);
  HEKLA_RETURN_IF_ERROR(args->client->state->check_process());
  HEKLA_ASSIGN_OR_RETURN(DType dtype, to_dtype(args->type));
  if (dtype == DType::kInvalid) return invalid_argument("tokens have no host data");
  HEKLA_RETURN_IF_ERROR(check_shape(dtype, args->dims, args->num_dims));
  const Dims dims(args->dims, args->dims + args->num_dims);
  HEKLA_ASSIGN_OR_RETURN(int64_t bytes, checked_bytes(dtype, dims));
  HEKLA_ASSIGN_OR_RETURN(Order order, read_layout(args->device_layout, dtype, dims));
  if (args->data == nullptr && bytes > 0) {
    return invalid_argument("no data for {}", shape_string(dtype, dims));
  }
  switch (args->host_buffer_semantics) {
    case PJRT_HostBufferSemantics_kImmutableOnlyDuringCall:
    case PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes:
    case PJRT_HostBufferSemantics_kImmutableZeroCopy:
    case PJRT_HostBufferSemantics_kMutableZeroCopy:
      break;
    default:
      return invalid_argument("there are no host buffer semantics {}",
                              static_cast<int>(args->host_buffer_semantics));
  }
  std::vector<int64_t> strides;
  if (args->byte_strides == nullptr && args->num_byte_strides > 0) {
    return invalid_argument("{} strides at null", args->num_byte_strides);
  }
  if (args->num_byte_strides > 0) {
    if (args->num_byte_strides != args->num_dims) {
      return invalid_argument("{} strides for rank {}", args->num_byte_strides, args->num_dims);
    }
    strides.assign(args->byte_strides, args->byte_strides + args->num_byte_strides);
  }
  // The elements in the order in which they will lie on the device.
  const Dims dims_there = in_memory(dims, order);
  if (strides.empty()) strides = dense_strides(dtype, dims);
  strides = in_memory(strides, order);
  const StateRef& state = args->client->state;
  HEKLA_ASSIGN_OR_RETURN(auto target, target_of(args->client, args->device, args->memory));
  HEKLA_ASSIGN_OR_RETURN(
      StorageRef storage,
      state->backend->allocate(target.first->local_index, target.second->kind_index, bytes));
  CompletionRef done = Completion::make();
  const bool is_dense = strides == dense_strides(dtype, dims_there) && !is_narrow_integer(dtype);
  const void* source = args->data;
  if (!is_dense && bytes > 0) {
    auto dense = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(bytes));
    gather_strided(static_cast<const std::byte*>(args->data), strides, dims_there,
                   dtype_bytes(dtype), dense->data());
    extend_narrow_integers(dtype, *dense);
    source = dense->data();
    done->on_done([dense](const Status&) {});  // keeps the bytes until then
  }
  // The host's bytes are free once they were read; an error of the transfer is the buffer's.
  const bool is_read_in_call =
      !is_dense || args->host_buffer_semantics == PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  CompletionRef released = is_read_in_call ? Completion::ready() : Completion::make();
  if (!is_read_in_call) {
    done->on_done([released](const Status&) { released->complete(ok_status()); });
  }
  // All that may fail comes before the copy: after an error the caller may free the bytes.
  std::unique_ptr<PJRT_Event> event(make_event(std::move(released), state));
  std::unique_ptr<PJRT_Buffer> buffer(make_buffer(state, target.second, target.first, dtype, dims,
                                                  storage, done, std::move(order)));
  if (bytes == 0) {
    done->complete(ok_status());
  } else {
    begin_or_fail(done, [&] {
      show_transfer(*target.first, kFromHost, bytes, done);
      state->backend->copy_from_host(source, storage, 0, bytes, done);
    });
  }
  if (is_dense && is_read_in_call) static_cast<void>(done->await());
  args->done_with_host_buffer = event.release();
  args->buffer = buffer.release();
  return ok_status();
}

struct BufferShape {
  DType dtype = DType::kInvalid;
  Dims dims;
  Order order;
  int64_t bytes = 0;
};

// Of a call that names a shape and a layout.
template <typename Args>
Result<BufferShape> shape_of(const Args& args) {
  BufferShape shape;
  HEKLA_ASSIGN_OR_RETURN(shape.dtype, to_dtype(args.shape_element_type));
  HEKLA_RETURN_IF_ERROR(check_shape(shape.dtype, args.shape_dims, args.shape_num_dims));
  shape.dims.assign(args.shape_dims, args.shape_dims + args.shape_num_dims);
  HEKLA_ASSIGN_OR_RETURN(shape.order, read_layout(args.shape_layout, shape.dtype, shape.dims));
  HEKLA_ASSIGN_OR_RETURN(shape.bytes, checked_bytes(shape.dtype, shape.dims));
  return shape;
}

Status Client_CreateUninitializedBuffer(PJRT_Client_CreateUninitializedBuffer_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_CreateUninitializedBuffer_Args, buffer);
  HEKLA_REQUIRE_HANDLE(args, client);
  HEKLA_RETURN_IF_ERROR(args->client->state->check_process());
  HEKLA_ASSIGN_OR_RETURN(const BufferShape shape, shape_of(*args));
  HEKLA_ASSIGN_OR_RETURN(auto target, target_of(args->client, args->device, args->memory));
  HEKLA_ASSIGN_OR_RETURN(StorageRef storage,
                         args->client->state->backend->allocate(
                             target.first->local_index, target.second->kind_index, shape.bytes));
  args->buffer = make_buffer(args->client->state, target.second, target.first, shape.dtype,
                             shape.dims, std::move(storage), Completion::ready(), shape.order);
  return ok_status();
}

Status Client_CreateErrorBuffer(PJRT_Client_CreateErrorBuffer_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_CreateErrorBuffer_Args, buffer);
  HEKLA_REQUIRE_HANDLE(args, client);
  if (args->error_code == PJRT_Error_Code_OK) {
    return invalid_argument("an error buffer needs an error");
  }
  HEKLA_ASSIGN_OR_RETURN(DType dtype, to_dtype(args->shape_element_type));
  HEKLA_RETURN_IF_ERROR(check_shape(dtype, args->shape_dims, args->shape_num_dims));
  Dims dims(args->shape_dims, args->shape_dims + args->shape_num_dims);
  HEKLA_ASSIGN_OR_RETURN(auto target, target_of(args->client, nullptr, args->memory));
  // Nobody ever reads it: no memory for its elements.
  HEKLA_ASSIGN_OR_RETURN(StorageRef storage,
                         args->client->state->backend->allocate(target.first->local_index,
                                                                target.second->kind_index, 0));
  args->buffer = make_buffer(args->client->state, target.second, target.first, dtype,
                             std::move(dims), std::move(storage),
                             Completion::ready(status_of(args->error_code, args->error_message,
                                                         args->error_message_size)));
  return ok_status();
}

Status Client_CreateAliasBuffer(PJRT_Client_CreateAliasBuffer_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_CreateAliasBuffer_Args, fulfill_alias_buffer_cb);
  HEKLA_REQUIRE_HANDLE(args, client);
  HEKLA_RETURN_IF_ERROR(args->client->state->check_process());
  HEKLA_ASSIGN_OR_RETURN(const BufferShape shape, shape_of(*args));
  HEKLA_ASSIGN_OR_RETURN(auto target, target_of(args->client, nullptr, args->memory));
  HEKLA_ASSIGN_OR_RETURN(StorageRef storage,
                         args->client->state->backend->allocate(
                             target.first->local_index, target.second->kind_index, shape.bytes));
  auto callback = std::make_unique<PJRT_FulfillAliasBufferCallback>();
  callback->state = args->client->state;
  callback->storage = storage;
  callback->dtype = shape.dtype;
  callback->order = shape.order;
  callback->size_bytes = shape.bytes;
  callback->ready = Completion::make();
  args->alias_buffer = make_buffer(args->client->state, target.second, target.first, shape.dtype,
                                   shape.dims, std::move(storage), callback->ready, shape.order);
  args->fulfill_alias_buffer_cb = callback.release();
  return ok_status();
}

Status fulfill(const PJRT_Client_FulfillAliasBuffer_Args& args,
               const std::shared_ptr<PJRT_FulfillAliasBufferCallback>& callback) {
  if (args.status_code != PJRT_Error_Code_OK) {
    callback->ready->complete(
        status_of(args.status_code, args.error_message, args.error_message_size));
    return ok_status();
  }
  if (args.buffer == nullptr) return invalid_argument("no buffer to fulfill the alias with");
  if (args.buffer->state != callback->state) return of_another_client("buffer");
  HEKLA_RETURN_IF_ERROR(callback->state->check_process());
  HEKLA_ASSIGN_OR_RETURN(const StorageRef source, storage_of(*args.buffer));
  if (args.buffer->size_bytes() != callback->size_bytes || args.buffer->order != callback->order ||
      !args.buffer->bounded.empty()) {
    return invalid_argument(
        "{} does not have the {} bytes of its placeholder, or not its layout, or bounded "
        "dimensions",
        shape_string(args.buffer->dtype, args.buffer->dims), callback->size_bytes);
  }
  HEKLA_RETURN_IF_ERROR(check_bits(*args.buffer, callback->dtype));
  args.buffer->ready->on_done([source, callback](const Status& status) {
    if (!status.ok() || callback->size_bytes == 0) {
      callback->ready->complete(status);
      return;
    }
    begin_or_fail(callback->ready, [&] {
      callback->state->backend->copy(source, callback->storage, callback->size_bytes,
                                     callback->ready);
    });
  });
  return ok_status();
}

Status Client_FulfillAliasBuffer(PJRT_Client_FulfillAliasBuffer_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_FulfillAliasBuffer_Args, fulfill_alias_buffer_cb);
  HEKLA_REQUIRE_HANDLE(args, fulfill_alias_buffer_cb);
  // The call consumes the callback, and whoever waits for the alias hears of what is wrong.
  std::unique_ptr<PJRT_FulfillAliasBufferCallback> callback(args->fulfill_alias_buffer_cb);
  const CompletionRef ready = callback->ready;
  const Status status = status_of_work([&] { return fulfill(*args, std::move(callback)); });
  if (!status.ok()) ready->complete(status);
  return status;
}

Status Client_CreateViewOfDeviceBuffer(PJRT_Client_CreateViewOfDeviceBuffer_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_CreateViewOfDeviceBuffer_Args, buffer);
  HEKLA_REQUIRE_HANDLE(args, client);
  HEKLA_RETURN_IF_ERROR(args->client->state->check_process());
  HEKLA_ASSIGN_OR_RETURN(DType dtype, to_dtype(args->element_type));
  HEKLA_RETURN_IF_ERROR(check_shape(dtype, args->dims, args->num_dims));
  const Dims dims(args->dims, args->dims + args->num_dims);
  HEKLA_ASSIGN_OR_RETURN(Order order, read_layout(args->layout, dtype, dims));
  HEKLA_ASSIGN_OR_RETURN(int64_t bytes, checked_bytes(dtype, dims));
  if (args->device_buffer_ptr == nullptr && bytes > 0) {
    return invalid_argument("no memory to view");
  }
  if (is_narrow_integer(dtype)) {
    return unimplemented(
        "memory of others is not viewed as {}: it may have anything in the bits above",
        dtype_name(dtype));
  }
  PJRT_Memory* memory = HEKLA_COVERS(args, PJRT_Client_CreateViewOfDeviceBuffer_Args, memory)
                            ? args->memory
                            : nullptr;
  HEKLA_ASSIGN_OR_RETURN(auto target, target_of(args->client, args->device, memory));
  std::function<void()> release;
  if (args->on_delete_callback != nullptr) {
    release = [callback = args->on_delete_callback, pointer = args->device_buffer_ptr,
               user_arg = args->on_delete_callback_arg] { callback(pointer, user_arg); };
  }
  HEKLA_ASSIGN_OR_RETURN(StorageRef storage, args->client->state->backend->wrap_host_memory(
                                                 target.first->local_index, args->device_buffer_ptr,
                                                 bytes, std::move(release)));
  args->buffer = make_buffer(args->client->state, target.second, target.first, dtype, dims,
                             std::move(storage), Completion::ready(), std::move(order));
  return ok_status();
}

Status Client_CreateBuffersForAsyncHostToDevice(
    PJRT_Client_CreateBuffersForAsyncHostToDevice_Args* args) {
  HEKLA_REQUIRE(args, PJRT_Client_CreateBuffersForAsyncHostToDevice_Args, transfer_manager);
  HEKLA_REQUIRE_HANDLE(args, client);
  HEKLA_RETURN_IF_ERROR(args->client->state->check_process());
  if (args->shape_specs == nullptr && args->num_shape_specs > 0) {
    return invalid_argument("{} shapes at null", args->num_shape_specs);
  }
  auto manager = std::make_unique<PJRT_AsyncHostToDeviceTransferManager>();
  manager->state = args->client->state;
  HEKLA_ASSIGN_OR_RETURN(auto target, target_of(args->client, nullptr, args->memory));
  manager->device = target.first;
  manager->memory = target.second;
  for (size_t i = 0; i < args->num_shape_specs; ++i) {
    const PJRT_ShapeSpec& spec = args->shape_specs[i];
    PJRT_AsyncHostToDeviceTransferManager::Entry entry;
    HEKLA_ASSIGN_OR_RETURN(entry.dtype, to_dtype(spec.element_type));
    HEKLA_RETURN_IF_ERROR(check_shape(entry.dtype, spec.dims, spec.num_dims));
    entry.dims.assign(spec.dims, spec.dims + spec.num_dims);
    if (args->device_layouts != nullptr && i < args->num_device_layouts) {
      HEKLA_ASSIGN_OR_RETURN(entry.order,
                             read_layout(args->device_layouts[i], entry.dtype, entry.dims));
    }
    HEKLA_ASSIGN_OR_RETURN(entry.size_bytes, checked_bytes(entry.dtype, entry.dims));
    HEKLA_ASSIGN_OR_RETURN(
        entry.storage, manager->state->backend->allocate(
                           target.first->local_index, target.second->kind_index, entry.size_bytes));
    entry.ready = Completion::make();
    manager->entries.push_back(std::move(entry));
  }
  args->transfer_manager = manager.release();
  return ok_status();
}

using Manager = PJRT_AsyncHostToDeviceTransferManager;

// The caller holds the manager's lock.
Result<Manager::Entry*> entry_of(Manager& manager, int index) {
  if (index < 0 || index >= static_cast<int>(manager.entries.size())) {
    return invalid_argument("there is no buffer {}, the transfer manager has {}", index,
                            manager.entries.size());
  }
  return &manager.entries[static_cast<size_t>(index)];
}

Status Manager_Destroy(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args* args) {
  HEKLA_REQUIRE(args, PJRT_AsyncHostToDeviceTransferManager_Destroy_Args, transfer_manager);
  if (args->transfer_manager == nullptr) return ok_status();
  HEKLA_KEEP_IF_INHERITED(args->transfer_manager);
  for (Manager::Entry& entry : args->transfer_manager->entries) {
    // Whoever waits for data that can no longer come gets told.
    if (!entry.is_last_sent) {
      entry.ready->complete(cancelled("the transfer manager went before the last part came"));
    }
  }
  delete args->transfer_manager;
  return ok_status();
}

// What a part is made of.
struct PartData {
  const void* bytes = nullptr;
  int64_t size = 0;
  std::shared_ptr<std::vector<std::byte>> owner;  // null: the caller keeps the bytes
};

// Writes one part and, after the last, makes the buffer ready. The event is of the part.
Result<PJRT_Event*> send_part(Manager& manager, int index, PartData data, int64_t offset,
                              bool is_last) {
  // Whoever hears that the buffer is ready may destroy the manager.
  const StateRef state = manager.state;
  const PJRT_Device& device = *manager.device;
  HEKLA_RETURN_IF_ERROR(state->check_process());
  const CompletionRef done = Completion::make();
  std::unique_ptr<PJRT_Event> event(make_event(done, state));
  std::vector<CompletionRef> parts;
  std::unique_lock lock(manager.mutex);
  HEKLA_ASSIGN_OR_RETURN(Manager::Entry * entry, entry_of(manager, index));
  if (entry->is_last_sent) {
    return failed_precondition("buffer {} had its last part, or an error", index);
  }
  if (offset < 0 || data.size < 0 || offset > entry->size_bytes ||
      data.size > entry->size_bytes - offset) {
    return invalid_argument("{} bytes at offset {} are outside of the {} bytes of buffer {}",
                            data.size, offset, entry->size_bytes, index);
  }
  if (data.bytes == nullptr && data.size > 0) return invalid_argument("no data");
  entry->parts.push_back(done);
  entry->is_last_sent = is_last;
  if (is_last) parts = std::move(entry->parts);
  const StorageRef storage = entry->storage;
  const CompletionRef ready = entry->ready;
  const DType dtype = entry->dtype;
  lock.unlock();
  // All that may fail comes before the copy: after an error the caller may free the bytes.
  const Status prepared = status_of_work([&] {
    if (is_narrow_integer(dtype) && data.size > 0) {
      const auto* first = static_cast<const std::byte*>(data.bytes);
      data.owner = std::make_shared<std::vector<std::byte>>(first, first + data.size);
      extend_narrow_integers(dtype, *data.owner);
      data.bytes = data.owner->data();
    }
    if (data.owner != nullptr) {
      done->on_done([owner = data.owner](const Status&) {});  // keeps the bytes until then
    }
    if (is_last) {
      Completion::all(std::move(parts))->on_done([ready](const Status& s) { ready->complete(s); });
    }
    return ok_status();
  });
  if (!prepared.ok()) {
    done->complete(prepared);
    if (is_last) ready->complete(prepared);
    return prepared;
  }
  if (data.size == 0) {
    done->complete(ok_status());
  } else {
    begin_or_fail(done, [&] {
      show_transfer(device, kFromHost, data.size, done);
      state->backend->copy_from_host(data.bytes, storage, offset, data.size, done);
    });
  }
  return event.release();
}

Status Manager_TransferData(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args* args) {
  HEKLA_REQUIRE(args, PJRT_AsyncHostToDeviceTransferManager_TransferData_Args,
                done_with_h2d_transfer);
  HEKLA_REQUIRE_HANDLE(args, transfer_manager);
  HEKLA_ASSIGN_OR_RETURN(
      args->done_with_h2d_transfer,
      send_part(*args->transfer_manager, args->buffer_index,
                {args->data, args->transfer_size, nullptr}, args->offset, args->is_last_transfer));
  return ok_status();
}

Status Manager_TransferLiteral(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args* args) {
  HEKLA_REQUIRE(args, PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args,
                done_with_h2d_transfer);
  HEKLA_REQUIRE_HANDLE(args, transfer_manager);
  HEKLA_ASSIGN_OR_RETURN(DType dtype, to_dtype(args->shape_element_type));
  HEKLA_RETURN_IF_ERROR(check_shape(dtype, args->shape_dims, args->shape_num_dims));
  const Dims dims(args->shape_dims, args->shape_dims + args->shape_num_dims);
  HEKLA_ASSIGN_OR_RETURN(int64_t bytes, checked_bytes(dtype, dims));
  HEKLA_ASSIGN_OR_RETURN(auto strides, layout_strides(args->shape_layout, dtype, dims));
  Order order;
  {
    Manager& manager = *args->transfer_manager;
    const std::lock_guard lock(manager.mutex);
    HEKLA_ASSIGN_OR_RETURN(const Manager::Entry* entry, entry_of(manager, args->buffer_index));
    if (dtype != entry->dtype || dims != entry->dims) {
      return invalid_argument("the literal is {}, buffer {} is {}", shape_string(dtype, dims),
                              args->buffer_index, shape_string(entry->dtype, entry->dims));
    }
    order = entry->order;
  }
  if (!strides.has_value()) strides = dense_strides(dtype, dims);
  const Dims dims_there = in_memory(dims, order);
  *strides = in_memory(*strides, order);
  const void* data = args->data;
  std::shared_ptr<std::vector<std::byte>> dense;
  const bool is_dense = *strides == dense_strides(dtype, dims_there) && !is_narrow_integer(dtype);
  if (!is_dense && bytes > 0 && data != nullptr) {
    dense = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(bytes));
    gather_strided(static_cast<const std::byte*>(data), *strides, dims_there, dtype_bytes(dtype),
                   dense->data());
    extend_narrow_integers(dtype, *dense);
    data = dense->data();
  }
  HEKLA_ASSIGN_OR_RETURN(args->done_with_h2d_transfer,
                         send_part(*args->transfer_manager, args->buffer_index,
                                   {data, bytes, std::move(dense)}, 0, /*is_last=*/true));
  return ok_status();
}

Status Manager_RetrieveBuffer(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args* args) {
  HEKLA_REQUIRE(args, PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args, buffer_out);
  HEKLA_REQUIRE_HANDLE(args, transfer_manager);
  Manager& manager = *args->transfer_manager;
  std::lock_guard lock(manager.mutex);
  HEKLA_ASSIGN_OR_RETURN(Manager::Entry * entry, entry_of(manager, args->buffer_index));
  if (entry->is_retrieved) {
    return failed_precondition("buffer {} was retrieved before", args->buffer_index);
  }
  args->buffer_out = make_buffer(manager.state, manager.memory, manager.device, entry->dtype,
                                 entry->dims, entry->storage, entry->ready, entry->order);
  entry->is_retrieved = true;
  return ok_status();
}

Status Manager_Device(PJRT_AsyncHostToDeviceTransferManager_Device_Args* args) {
  HEKLA_REQUIRE(args, PJRT_AsyncHostToDeviceTransferManager_Device_Args, device_out);
  HEKLA_REQUIRE_HANDLE(args, transfer_manager);
  args->device_out = args->transfer_manager->device;
  return ok_status();
}

Status Manager_BufferCount(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args* args) {
  HEKLA_REQUIRE(args, PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args, buffer_count);
  HEKLA_REQUIRE_HANDLE(args, transfer_manager);
  args->buffer_count = args->transfer_manager->entries.size();
  return ok_status();
}

Status Manager_BufferSize(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args* args) {
  HEKLA_REQUIRE(args, PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args, buffer_size);
  HEKLA_REQUIRE_HANDLE(args, transfer_manager);
  std::lock_guard lock(args->transfer_manager->mutex);
  HEKLA_ASSIGN_OR_RETURN(Manager::Entry * entry,
                         entry_of(*args->transfer_manager, args->buffer_index));
  args->buffer_size = static_cast<size_t>(entry->size_bytes);
  return ok_status();
}

Status Manager_SetBufferError(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args* args) {
  HEKLA_REQUIRE(args, PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args,
                error_message_size);
  HEKLA_REQUIRE_HANDLE(args, transfer_manager);
  Status status = status_of(args->error_code, args->error_message, args->error_message_size);
  // Clients end the process if this call fails, and the buffer must not be ready without contents.
  if (status.ok()) {
    status = invalid_argument("an error was set on buffer {} of a transfer, and it said OK",
                              args->buffer_index);
  }
  CompletionRef ready;
  {
    std::lock_guard lock(args->transfer_manager->mutex);
    HEKLA_ASSIGN_OR_RETURN(Manager::Entry * entry,
                           entry_of(*args->transfer_manager, args->buffer_index));
    entry->is_last_sent = true;
    ready = entry->ready;
  }
  ready->complete(std::move(status));
  return ok_status();
}

Status Manager_AddMetadata(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args* args) {
  HEKLA_REQUIRE(args, PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args, num_metadata);
  return ok_status();  // metadata inform; there is nothing here that they would change
}

}  // namespace

void add_transfer_slots(PJRT_Api& api) {
  api.PJRT_Client_BufferFromHostBuffer = Slot<Client_BufferFromHostBuffer>::call;
  api.PJRT_Client_CreateUninitializedBuffer = Slot<Client_CreateUninitializedBuffer>::call;
  api.PJRT_Client_CreateErrorBuffer = Slot<Client_CreateErrorBuffer>::call;
  api.PJRT_Client_CreateAliasBuffer = Slot<Client_CreateAliasBuffer>::call;
  api.PJRT_Client_FulfillAliasBuffer = Slot<Client_FulfillAliasBuffer>::call;
  api.PJRT_Client_CreateViewOfDeviceBuffer = Slot<Client_CreateViewOfDeviceBuffer>::call;
  api.PJRT_Client_CreateBuffersForAsyncHostToDevice =
      Slot<Client_CreateBuffersForAsyncHostToDevice>::call;
  api.PJRT_AsyncHostToDeviceTransferManager_Destroy = Slot<Manager_Destroy>::call;
  api.PJRT_AsyncHostToDeviceTransferManager_TransferData = Slot<Manager_TransferData>::call;
  api.PJRT_AsyncHostToDeviceTransferManager_TransferLiteral = Slot<Manager_TransferLiteral>::call;
  api.PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer = Slot<Manager_RetrieveBuffer>::call;
  api.PJRT_AsyncHostToDeviceTransferManager_Device = Slot<Manager_Device>::call;
  api.PJRT_AsyncHostToDeviceTransferManager_BufferCount = Slot<Manager_BufferCount>::call;
  api.PJRT_AsyncHostToDeviceTransferManager_BufferSize = Slot<Manager_BufferSize>::call;
  api.PJRT_AsyncHostToDeviceTransferManager_SetBufferError = Slot<Manager_SetBufferError>::call;
  api.PJRT_AsyncHostToDeviceTransferManager_AddMetadata = Slot<Manager_AddMetadata>::call;
}

}  // namespace hekla::pjrt
