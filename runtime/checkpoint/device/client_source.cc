// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/device/client_source.h"

#include <optional>
#include <utility>

#include "runtime/base/copy_bytes.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/sharding/box.h"

namespace hekla::checkpoint {
namespace {

using runtime::Buffer;

// Holds the buffer by an external reference and reads it late.
class ReferencedSource final : public ArraySource {
 public:
  ReferencedSource(std::shared_ptr<const Buffer> buffer, int64_t bytes)
      : buffer_(std::move(buffer)), bytes_(bytes), is_raw_(buffer_->is_raw_host_layout()) {}
  ~ReferencedSource() override {
    if (const Status status = buffer_->drop_reference(); !status.ok()) {
      log_message(LogLevel::kWarning, "checkpoint: a device buffer keeps a reference: {}",
                  status.to_string());
    }
  }

  const std::byte* host_data() const override { return nullptr; }
  bool is_mutable() const override { return false; }
  int64_t size_bytes() const override { return bytes_; }
  Status read(int64_t offset, std::span<std::byte> into, std::stop_token) override {
    if (is_raw_) {
      const Result<runtime::Event> copied = buffer_->copy_raw(offset, into);
      // The memory of `into` is the caller's again when this returns: no way out before the end.
      if (copied.ok()) return copied->await();
      if (copied.status().code() != StatusCode::kUnimplemented) return copied.status();
      is_raw_ = false;
    }
    if (!array_) {
      HEKLA_ASSIGN_OR_RETURN(HostArray array, buffer_->to_host());
      array_ = std::move(array);
    }
    copy_bytes(into.data(), array_->data() + offset, static_cast<int64_t>(into.size()));
    return ok_status();
  }

 private:
  const std::shared_ptr<const Buffer> buffer_;
  const int64_t bytes_;
  bool is_raw_;
  std::optional<HostArray> array_;  // once it was fetched as a whole
};

}  // namespace

Result<std::shared_ptr<ArraySource>> client_source(std::shared_ptr<const Buffer> buffer) {
  if (buffer == nullptr || buffer->is_empty()) {
    return invalid_argument("a device buffer to be saved is empty");
  }
  if (buffer->dtype() == DType::kInvalid) {
    return unimplemented("a token, or an element type newer than this runtime, cannot be saved");
  }
  HEKLA_ASSIGN_OR_RETURN(const bool is_freed, buffer->is_freed());
  if (is_freed)
    return invalid_argument("the device buffer {} was freed or donated", buffer->shape());
  HEKLA_ASSIGN_OR_RETURN(const int64_t bytes, checked_bytes(buffer->dtype(), buffer->dims()));
  if (buffer->is_kept_by_references()) {
    HEKLA_RETURN_IF_ERROR(buffer->add_reference());
    return std::shared_ptr<ArraySource>(
        std::make_shared<ReferencedSource>(std::move(buffer), bytes));
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray array, buffer->to_host());
  return host_source(std::move(array));
}

Status add_buffer(State* state, std::string name, std::shared_ptr<const Buffer> buffer) {
  Result<std::shared_ptr<ArraySource>> source = client_source(buffer);
  if (!source.ok()) return source.status().with_context("tensor \"" + name + "\"");
  StateTensor tensor;
  tensor.info = {std::move(name), buffer->dtype(), buffer->dims(), ""};
  tensor.arrays.push_back({whole_box(buffer->dims()), {}, std::move(*source)});
  state->tensors.push_back(std::move(tensor));
  return ok_status();
}

}  // namespace hekla::checkpoint
