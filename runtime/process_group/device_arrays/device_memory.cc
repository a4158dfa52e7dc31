// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/device_arrays/device_memory.h"

#include <utility>

#include "runtime/base/log.h"

namespace hekla::process_group {

using runtime::Buffer;

bool is_direct(const Buffer& buffer) { return buffer.is_raw_host_layout() && buffer.is_on_host(); }

Status check_has_elements(DType dtype) {
  if (dtype != DType::kInvalid) return ok_status();
  return unimplemented("a token, or an element type newer than this runtime, has no elements");
}

// The buffer, and what keeps its values.
struct DeviceInput::Held {
  explicit Held(DeviceArray x) : buffer(std::move(x)) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (!has_reference) return;
    if (const Status status = buffer->drop_reference(); !status.ok()) {
      log_message(LogLevel::kWarning, "process group: a device buffer keeps a reference: {}",
                  status.to_string());
    }
  }
  // Which is there also when its owner has freed the buffer.
  const Buffer& source() const { return alias.is_empty() ? *buffer : alias; }

  const DeviceArray buffer;
  Buffer alias;
  bool has_reference = false;
  bool is_freed_late = false;
};

Result<DeviceInput> DeviceInput::take(const DeviceArray& x, bool may_be_direct, bool is_freed,
                                      Deadline deadline) {
  if (x == nullptr || x->is_empty()) return invalid_argument("the device buffer is empty");
  HEKLA_RETURN_IF_ERROR(check_has_elements(x->dtype()));
  HEKLA_ASSIGN_OR_RETURN(const bool was_freed, x->is_freed());
  if (was_freed) {
    return invalid_argument("the device buffer {} was freed or donated", x->shape());
  }
  if (x->has_bounded_dims()) {
    return unimplemented("the device buffer {} has bounded dimensions", x->shape());
  }
  DeviceInput input;
  input.held_ = std::make_shared<Held>(x);
  Held& held = *input.held_;
  const bool is_kept = x->is_kept_by_references();
  input.is_direct_ = may_be_direct && is_direct(*x);
  if (is_kept || input.is_direct_) {
    const Status referenced = x->add_reference();
    held.has_reference = referenced.ok();
    if (!referenced.ok() && referenced.code() != StatusCode::kUnimplemented) return referenced;
  }
  if (held.has_reference && is_kept) {
    Result<Buffer> alias = x->alias();
    if (alias.ok()) {
      held.alias = std::move(*alias);
    } else if (alias.status().code() != StatusCode::kUnimplemented) {
      return alias.status();
    }
  }
  if (!held.has_reference) {
    // Whatever is launched next may consume it.
    input.is_direct_ = false;
    HEKLA_ASSIGN_OR_RETURN(HostArray array, x->to_host(deadline));
    input.host_ = std::make_shared<HostArray>(std::move(array));
  }
  held.is_freed_late = is_freed && held.alias.is_empty() && input.host_ == nullptr;
  if (is_freed && !held.is_freed_late) HEKLA_RETURN_IF_ERROR(x->free());
  return input;
}

DeviceInput DeviceInput::own(std::shared_ptr<Buffer> buffer) {
  DeviceInput input;
  input.held_ = std::make_shared<Held>(std::move(buffer));
  input.is_direct_ = true;
  return input;
}

Result<runtime::Event> DeviceInput::ready() const {
  if (host_ != nullptr) return runtime::Event();
  return held_->source().ready();
}

Result<ConstElements> DeviceInput::read() {
  const Buffer& source = held_->source();
  const DType dtype = held_->buffer->dtype();
  const int64_t count = element_count(held_->buffer->dims());
  const void* address = nullptr;
  if (is_direct_ && count > 0) {
    const Result<void*> found = source.host_address();
    if (found.ok()) {
      address = *found;
    } else if (found.status().code() == StatusCode::kUnimplemented) {
      is_direct_ = false;
    } else {
      return found.status();
    }
  }
  if (!is_direct_ && host_ == nullptr) {
    HEKLA_ASSIGN_OR_RETURN(HostArray array, source.to_host());
    host_ = std::make_shared<HostArray>(std::move(array));
  }
  if (held_->is_freed_late) HEKLA_RETURN_IF_ERROR(held_->buffer->free());
  held_->is_freed_late = false;
  if (is_direct_) return ConstElements(address, dtype, count, held_);
  return ConstElements(host_->data(), dtype, count, host_);
}

Result<DeviceOutput> DeviceOutput::make(const DevicePlace& place, bool may_be_direct) {
  if (may_be_direct && dtype_bits(place.dtype) >= 8) {
    Result<Buffer> buffer = place.client.allocate(place.dtype, place.dims, place.memory);
    if (buffer.ok() && is_direct(*buffer) &&
        (element_count(place.dims) == 0 || buffer->host_address().ok())) {
      return over(std::make_shared<Buffer>(std::move(*buffer)));
    }
    if (!buffer.ok() && buffer.status().code() != StatusCode::kUnimplemented) {
      return buffer.status();
    }
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray array, HostArray::allocate(place.dtype, place.dims, false));
  return through(std::make_shared<HostArray>(std::move(array)), place);
}

DeviceOutput DeviceOutput::over(std::shared_ptr<Buffer> buffer) {
  DeviceOutput output;
  output.buffer_ = std::move(buffer);
  return output;
}

DeviceOutput DeviceOutput::given(Buffer buffer) {
  return over(std::make_shared<Buffer>(std::move(buffer)));
}

DeviceOutput DeviceOutput::through(std::shared_ptr<HostArray> array, const DevicePlace& place) {
  DeviceOutput output;
  output.host_ = std::move(array);
  output.place_ = place;
  return output;
}

Result<Elements> DeviceOutput::elements() {
  if (buffer_ == nullptr) {
    return Elements{host_->mutable_data(), host_->dtype(), host_->size(), host_};
  }
  const int64_t count = element_count(buffer_->dims());
  void* address = nullptr;
  if (count > 0) {
    HEKLA_ASSIGN_OR_RETURN(address, buffer_->host_address());
  }
  return Elements{address, buffer_->dtype(), count, buffer_};
}

Result<Buffer> DeviceOutput::take() {
  if (buffer_ != nullptr) return std::move(*buffer_);
  return place_->client.to_device(*host_, place_->memory);
}

}  // namespace hekla::process_group
