// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/device_arrays/device_memory.h"

#include <algorithm>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/staging.h"

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

int64_t DeviceInput::count() const { return element_count(held_->buffer->dims()); }

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
    // Into memory that has been in use, where the plugin copies bytes as they are.
    std::vector<runtime::Event> events;
    const Result<ConstElements> whole = begin_read(std::max<int64_t>(1, count), events);
    for (const runtime::Event& event : events) HEKLA_RETURN_IF_ERROR(event.await());
    if (whole.status().code() == StatusCode::kUnimplemented) {
      HEKLA_ASSIGN_OR_RETURN(HostArray array, source.to_host());
      host_ = std::make_shared<HostArray>(std::move(array));
    } else if (!whole.ok()) {
      return whole.status();
    }
  }
  if (held_->is_freed_late) HEKLA_RETURN_IF_ERROR(held_->buffer->free());
  held_->is_freed_late = false;
  if (is_direct_) return ConstElements(address, dtype, count, held_);
  return ConstElements(host_->data(), dtype, count, host_);
}

Result<ConstElements> DeviceInput::begin_read(int64_t part_elements,
                                              std::vector<runtime::Event>& arrivals) {
  const Buffer& source = held_->source();
  if (!is_copied() || held_->is_freed_late || !source.is_raw_host_layout()) {
    return unimplemented("no copies of parts");
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray array, Staging::allocate(source.dtype(), source.dims()));
  auto kept = std::make_shared<HostArray>(std::move(array));
  const auto all = static_cast<size_t>(kept->size_bytes());
  const auto part = static_cast<size_t>(part_elements * dtype_bytes(source.dtype()));
  std::byte* const data = kept->mutable_data();
  std::vector<runtime::Event> begun;
  for (size_t at = 0; at < all; at += part) {
    Result<runtime::Event> event =
        source.copy_raw(static_cast<int64_t>(at), {data + at, std::min(part, all - at)});
    // A plugin that cannot call back gets a wait instead: the copy writes what is kept here.
    const auto keep = [kept, held = held_](const Status&) {};
    if (event.ok() && !event->on_ready(keep).ok()) static_cast<void>(event->await());
    if (!event.ok()) {
      for (const runtime::Event& each : begun) static_cast<void>(each.await());
      return event.status();
    }
    begun.push_back(*std::move(event));
  }
  arrivals = std::move(begun);
  host_ = kept;
  return ConstElements(host_->data(), host_->dtype(), host_->size(), host_);
}

Result<std::shared_ptr<DeviceUpload>> DeviceUpload::begin(std::shared_ptr<HostArray> array,
                                                          const DevicePlace& place,
                                                          int64_t part_elements) {
  HEKLA_ASSIGN_OR_RETURN(runtime::Upload upload,
                         place.client.begin_upload(place.dtype, place.dims, place.memory));
  if (!upload.buffer().is_raw_host_layout()) return unimplemented("no copies of parts");
  return std::shared_ptr<DeviceUpload>(new DeviceUpload(std::move(upload), std::move(array),
                                                        part_elements * dtype_bytes(place.dtype)));
}

DeviceUpload::DeviceUpload(runtime::Upload upload, std::shared_ptr<HostArray> array,
                           int64_t part_bytes)
    : array_(std::move(array)),
      part_bytes_(static_cast<size_t>(part_bytes)),
      upload_(std::move(upload)),
      is_sent_((static_cast<size_t>(array_->size_bytes()) + part_bytes_ - 1) / part_bytes_),
      left_(is_sent_.size()) {}

void DeviceUpload::send(int64_t k) {
  const std::lock_guard lock(mutex_);
  send_locked(static_cast<size_t>(k));
}

void DeviceUpload::send_locked(size_t k) {
  if (is_sent_[k] || !status_.ok()) return;
  is_sent_[k] = true;
  --left_;
  const size_t at = k * part_bytes_, all = static_cast<size_t>(array_->size_bytes());
  Result<runtime::Event> event = upload_.write(
      static_cast<int64_t>(at),
      {std::as_const(*array_).data() + at, std::min(part_bytes_, all - at)}, left_ == 0);
  status_ = event.status();
  // The bytes, and whose they are to be, stay until they have been read.
  const auto keep = [self = shared_from_this()](const Status&) {};
  if (event.ok() && !event->on_ready(keep).ok()) static_cast<void>(event->await());
}

Result<Buffer> DeviceUpload::finish() {
  const std::lock_guard lock(mutex_);
  for (size_t k = 0; k < is_sent_.size(); ++k) send_locked(k);
  HEKLA_RETURN_IF_ERROR(status_);
  return upload_.take();
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
  HEKLA_ASSIGN_OR_RETURN(HostArray array, Staging::allocate(place.dtype, place.dims));
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

DeviceOutput DeviceOutput::through(std::shared_ptr<DeviceUpload> upload) {
  DeviceOutput output;
  output.host_ = upload->array();
  output.upload_ = std::move(upload);
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
  if (upload_ != nullptr) return upload_->finish();
  return place_->client.to_device(*host_, place_->memory);
}

}  // namespace hekla::process_group
