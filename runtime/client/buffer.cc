// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "runtime/base/log.h"
#include "runtime/client/client_state.h"
#include "runtime/client/element_type.h"

namespace hekla::runtime {
namespace {

// Plugins differ in what they leave in the unused bits of one-byte forms; HostArray does not.
void canonicalize(HostArray& array) {
  const int bits = dtype_bits(array.dtype());
  if (bits >= 8 || array.size() == 0) return;
  auto* data = array.mutable_as<uint8_t>();
  const auto mask = static_cast<uint8_t>((1u << bits) - 1);
  const bool is_signed = is_signed_integer(array.dtype());
  for (int64_t i = 0; i < array.size(); ++i) {
    if (array.dtype() == DType::kI1) {
      data[i] = data[i] != 0;
      continue;
    }
    data[i] &= mask;
    if (is_signed && (data[i] >> (bits - 1)) != 0) data[i] |= static_cast<uint8_t>(~mask);
  }
}

}  // namespace

Result<Buffer> Buffer::adopt(std::shared_ptr<ClientState> state, PJRT_Buffer* handle) {
  if (handle == nullptr) {
    return internal_error("plugin '{}' gave a null buffer", state->plugin->name());
  }
  Buffer buffer;
  buffer.state_ = std::move(state);
  buffer.handle_ = handle;  // from here on destroyed with `buffer`
  const Plugin& plugin = *buffer.state_->plugin;
  HEKLA_PJRT_ARGS(PJRT_Buffer_ElementType_Args, type, type);
  type.buffer = handle;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(plugin, PJRT_Buffer_ElementType, &type));
  buffer.dtype_ = from_buffer_type(type.type);
  HEKLA_PJRT_ARGS(PJRT_Buffer_Dimensions_Args, dims, num_dims);
  dims.buffer = handle;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(plugin, PJRT_Buffer_Dimensions, &dims));
  buffer.dims_.assign(dims.dims, dims.dims + dims.num_dims);
  return buffer;
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    destroy();
    state_ = std::move(other.state_);
    handle_ = std::exchange(other.handle_, nullptr);
    dtype_ = std::exchange(other.dtype_, DType::kInvalid);
    dims_ = std::move(other.dims_);
  }
  return *this;
}

void Buffer::destroy() {
  if (handle_ == nullptr) return;
  HEKLA_PJRT_ARGS(PJRT_Buffer_Destroy_Args, args, buffer);
  args.buffer = std::exchange(handle_, nullptr);
  if (Status status = HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_Destroy, &args); !status.ok()) {
    log_message(LogLevel::kWarning, "{}", status.to_string());
  }
}

Result<Device> Buffer::device() const {
  if (is_empty()) return failed_precondition("an empty buffer has no device");
  HEKLA_PJRT_ARGS(PJRT_Buffer_Device_Args, args, device);
  args.buffer = handle_;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_Device, &args));
  return state_->find_device(args.device);
}

Result<Memory> Buffer::memory() const {
  if (is_empty()) return failed_precondition("an empty buffer has no memory");
  HEKLA_PJRT_ARGS(PJRT_Buffer_Memory_Args, args, memory);
  args.buffer = handle_;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_Memory, &args));
  return state_->find_memory(args.memory);
}

Result<int64_t> Buffer::on_device_bytes() const {
  if (is_empty()) return 0;
  HEKLA_PJRT_ARGS(PJRT_Buffer_OnDeviceSizeInBytes_Args, args, on_device_size_in_bytes);
  args.buffer = handle_;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_OnDeviceSizeInBytes, &args));
  return static_cast<int64_t>(args.on_device_size_in_bytes);
}

Result<Event> Buffer::ready() const {
  if (is_empty()) return Event();
  HEKLA_PJRT_ARGS(PJRT_Buffer_ReadyEvent_Args, args, event);
  args.buffer = handle_;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_ReadyEvent, &args));
  return Event(state_->plugin, args.event);
}

Result<HostArray> Buffer::to_host(Deadline deadline) const {
  if (is_empty()) return failed_precondition("an empty buffer cannot be read");
  if (dtype_ == DType::kInvalid) {
    return unimplemented("a token, or an element type newer than this runtime, cannot be read");
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray array, HostArray::allocate(dtype_, dims_, false));
  // Row-major is asked for in words: a null layout means the plugin's own order. Without Layouts in
  // old plugins the field is still there (0.8).
  std::vector<int64_t> minor_to_major(dims_.size());
  for (size_t i = 0; i < minor_to_major.size(); ++i) {
    minor_to_major[i] = static_cast<int64_t>(minor_to_major.size() - 1 - i);
  }
  PJRT_Buffer_MemoryLayout layout = {};
  layout.struct_size = PJRT_STRUCT_SIZE(PJRT_Buffer_MemoryLayout, type);
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_STRUCT_SIZE(PJRT_Buffer_MemoryLayout_Tiled, num_tiles);
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  HEKLA_PJRT_ARGS(PJRT_Buffer_ToHostBuffer_Args, args, event);
  args.src = handle_;
  args.host_layout = &layout;
  std::byte nothing{};  // a null destination would ask for the size
  args.dst = array.size_bytes() == 0 ? &nothing : array.mutable_data();
  args.dst_size = static_cast<size_t>(array.size_bytes());
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_ToHostBuffer, &args));
  const Event event(state_->plugin, args.event);
  const Status status = event.await(deadline);
  if (status.code() == StatusCode::kDeadlineExceeded && !deadline.is_never()) {
    // The plugin may still write; a copy of the array keeps its memory.
    (void)event.on_ready([kept = array](const Status&) {});
  }
  HEKLA_RETURN_IF_ERROR(status);
  canonicalize(array);
  return array;
}

bool Buffer::is_raw_host_layout() const {
  if (is_empty() || dtype_ == DType::kInvalid || dtype_bits(dtype_) < 8) return false;
  HEKLA_PJRT_ARGS(PJRT_Buffer_GetMemoryLayout_Args, args, layout);
  args.layout.struct_size = PJRT_STRUCT_SIZE(PJRT_Buffer_MemoryLayout, type);
  args.buffer = handle_;
  if (!HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_GetMemoryLayout, &args).ok()) return false;
  const size_t rank = dims_.size();
  if (args.layout.type == PJRT_Buffer_MemoryLayout_Type_Tiled) {
    const PJRT_Buffer_MemoryLayout_Tiled& tiled = args.layout.tiled;
    if (tiled.num_tiles != 0 || tiled.minor_to_major_size != rank) return false;
    for (size_t i = 0; i < rank; ++i) {
      if (tiled.minor_to_major[i] != static_cast<int64_t>(rank - 1 - i)) return false;
    }
    return true;
  }
  const PJRT_Buffer_MemoryLayout_Strides& strides = args.layout.strides;
  if (strides.num_byte_strides != rank) return false;
  int64_t dense = dtype_bytes(dtype_);
  for (size_t i = rank; i-- > 0;) {
    if (strides.byte_strides[i] != dense) return false;
    dense *= dims_[i];
  }
  return true;
}

Result<Event> Buffer::copy_raw(int64_t offset, std::span<std::byte> into) const {
  if (is_empty()) return failed_precondition("an empty buffer cannot be read");
  HEKLA_PJRT_ARGS(PJRT_Buffer_CopyRawToHost_Args, args, event);
  args.buffer = handle_;
  args.dst = into.data();
  args.offset = offset;
  args.transfer_size = static_cast<int64_t>(into.size());
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_CopyRawToHost, &args));
  return Event(state_->plugin, args.event);
}

bool Buffer::is_kept_by_references() const {
  return !is_empty() && find_inspection(*state_->plugin) != nullptr;
}

Status Buffer::add_reference() const {
  if (is_empty()) return failed_precondition("an empty buffer has no references");
  HEKLA_PJRT_ARGS(PJRT_Buffer_IncreaseExternalReferenceCount_Args, args, buffer);
  args.buffer = handle_;
  return HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_IncreaseExternalReferenceCount, &args);
}

Status Buffer::drop_reference() const {
  if (is_empty()) return failed_precondition("an empty buffer has no references");
  HEKLA_PJRT_ARGS(PJRT_Buffer_DecreaseExternalReferenceCount_Args, args, buffer);
  args.buffer = handle_;
  return HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_DecreaseExternalReferenceCount, &args);
}

bool Buffer::is_on_host() const {
  if (is_empty()) return false;
  HEKLA_PJRT_ARGS(PJRT_Buffer_IsOnCpu_Args, args, is_on_cpu);
  args.buffer = handle_;
  return HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_IsOnCpu, &args).ok() && args.is_on_cpu;
}

Result<void*> Buffer::host_address() const {
  if (is_empty()) return failed_precondition("an empty buffer has no address");
  if (!is_on_host()) {
    return unimplemented("plugin '{}' has {} in memory that is not the host's",
                         state_->plugin->name(), shape());
  }
  HEKLA_ASSIGN_OR_RETURN(const Event contents, ready());
  HEKLA_RETURN_IF_ERROR(contents.await());
  HEKLA_PJRT_ARGS(PJRT_Buffer_UnsafePointer_Args, args, buffer_pointer);
  args.buffer = handle_;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_UnsafePointer, &args));
  return reinterpret_cast<void*>(args.buffer_pointer);
}

bool Buffer::has_bounded_dims() const {
  if (is_empty()) return false;
  HEKLA_PJRT_ARGS(PJRT_Buffer_DynamicDimensionIndices_Args, args, num_dynamic_dims);
  args.buffer = handle_;
  return HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_DynamicDimensionIndices, &args).ok() &&
         args.num_dynamic_dims > 0;
}

Result<Buffer> Buffer::alias() const {
  if (is_empty()) return failed_precondition("an empty buffer has no other");
  HEKLA_PJRT_ARGS(PJRT_Buffer_Bitcast_Args, args, out_buffer);
  args.buffer = handle_;
  args.element_type = to_buffer_type(dtype_);
  args.dims = dims_.data();
  args.num_dims = dims_.size();
  // Plugins refuse another layout as they refuse another size.
  const Status status = HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_Bitcast, &args);
  if (status.code() == StatusCode::kInvalidArgument) return unimplemented("{}", status.message());
  HEKLA_RETURN_IF_ERROR(status);
  return adopt(state_, args.out_buffer);
}

Result<Buffer> Buffer::donate() const {
  if (is_empty()) return failed_precondition("an empty buffer has nothing to hand over");
  HEKLA_PJRT_ARGS(PJRT_Buffer_DonateWithControlDependency_Args, args, out_buffer);
  args.buffer = handle_;
  HEKLA_RETURN_IF_ERROR(
      HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_DonateWithControlDependency, &args));
  // Nothing else is to be waited for.
  HEKLA_PJRT_ARGS(PJRT_Buffer_DonateWithControlDependency_Callback_Args, done, error_message_size);
  done.callback_data = args.callback_data;
  done.error_code = PJRT_Error_Code_OK;
  args.dependency_ready_callback(&done);
  return adopt(state_, args.out_buffer);
}

Client Buffer::client() const {
  if (is_empty()) die_of_bad_result(failed_precondition("an empty buffer has no client"));
  return Client(state_);
}

Result<Buffer> Buffer::copy_to(const Memory& memory) const {
  if (is_empty()) return failed_precondition("an empty buffer cannot be copied");
  HEKLA_PJRT_ARGS(PJRT_Buffer_CopyToMemory_Args, args, dst_buffer);
  args.buffer = handle_;
  args.dst_memory = memory.handle();
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_CopyToMemory, &args));
  return adopt(state_, args.dst_buffer);
}

Result<Buffer> Buffer::copy_to(const Device& device) const {
  if (is_empty()) return failed_precondition("an empty buffer cannot be copied");
  Result<Memory> memory = device.default_memory();
  if (memory.ok() && state_->plugin->has(&PJRT_Api::PJRT_Buffer_CopyToMemory)) {
    return copy_to(*memory);
  }
  HEKLA_PJRT_ARGS(PJRT_Buffer_CopyToDevice_Args, args, dst_buffer);
  args.buffer = handle_;
  args.dst_device = device.handle();
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_CopyToDevice, &args));
  return adopt(state_, args.dst_buffer);
}

Status Buffer::free() const {
  if (is_empty()) return ok_status();
  HEKLA_PJRT_ARGS(PJRT_Buffer_Delete_Args, args, buffer);
  args.buffer = handle_;
  return HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_Delete, &args);
}

Result<bool> Buffer::is_freed() const {
  if (is_empty()) return true;
  HEKLA_PJRT_ARGS(PJRT_Buffer_IsDeleted_Args, args, is_deleted);
  args.buffer = handle_;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*state_->plugin, PJRT_Buffer_IsDeleted, &args));
  return args.is_deleted;
}

}  // namespace hekla::runtime
