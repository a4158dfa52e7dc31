// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/upload.h"

#include <utility>

#include "runtime/base/log.h"
#include "runtime/client/client_state.h"

namespace hekla::runtime {

Result<Upload> Client::begin_upload(DType dtype, const Dims& dims, const Memory& memory) const {
  HEKLA_PJRT_ARGS(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args, args, transfer_manager);
  PJRT_ShapeSpec shape = {};
  shape.struct_size = sizeof(shape);
  HEKLA_ASSIGN_OR_RETURN(shape.element_type, state_->buffer_type(dtype));
  HEKLA_RETURN_IF_ERROR(checked_bytes(dtype, dims).status());
  shape.dims = dims.data();
  shape.num_dims = dims.size();
  args.client = state_->client;
  args.shape_specs = &shape;
  args.num_shape_specs = 1;
  args.memory = memory.handle();
  HEKLA_RETURN_IF_ERROR(
      HEKLA_PJRT_CALL(*state_->plugin, PJRT_Client_CreateBuffersForAsyncHostToDevice, &args));
  Upload upload(state_, args.transfer_manager);
  HEKLA_PJRT_ARGS(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args, got, buffer_out);
  got.transfer_manager = args.transfer_manager;
  HEKLA_RETURN_IF_ERROR(
      HEKLA_PJRT_CALL(*state_->plugin, PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer, &got));
  HEKLA_ASSIGN_OR_RETURN(upload.buffer_, Buffer::adopt(state_, got.buffer_out));
  return upload;
}

Upload::Upload(Upload&& other) noexcept
    : state_(std::move(other.state_)),
      manager_(std::exchange(other.manager_, nullptr)),
      buffer_(std::move(other.buffer_)) {}

Upload::~Upload() {
  if (manager_ == nullptr) return;
  HEKLA_PJRT_ARGS(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args, args, transfer_manager);
  args.transfer_manager = manager_;
  const Status status =
      HEKLA_PJRT_CALL(*state_->plugin, PJRT_AsyncHostToDeviceTransferManager_Destroy, &args);
  if (!status.ok()) {
    log_message(LogLevel::kWarning, "a transfer manager of plugin '{}' stays: {}",
                state_->plugin->name(), status.to_string());
  }
}

Result<Event> Upload::write(int64_t offset, std::span<const std::byte> from, bool is_last) {
  HEKLA_PJRT_ARGS(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args, args,
                  done_with_h2d_transfer);
  static constexpr std::byte kNothing{};  // an empty part has an address all the same
  args.transfer_manager = manager_;
  args.data = from.empty() ? &kNothing : from.data();
  args.offset = offset;
  args.transfer_size = static_cast<int64_t>(from.size());
  args.is_last_transfer = is_last;
  HEKLA_RETURN_IF_ERROR(
      HEKLA_PJRT_CALL(*state_->plugin, PJRT_AsyncHostToDeviceTransferManager_TransferData, &args));
  return Event(state_->plugin, args.done_with_h2d_transfer);
}

}  // namespace hekla::runtime
