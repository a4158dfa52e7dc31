// SPDX-License-Identifier: Apache-2.0
// Upload: a buffer whose contents a program writes part by part, while others of its parts are
// still made. Made by Client::begin_upload.
//
// Owns the plugin's transfer manager and, until take(), the buffer; keeps its client alive. A
// buffer whose upload goes before its last part ends with an error, as does whatever reads it.
// Calls of one upload need an order; parts on their way are the plugin's.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "runtime/client/client.h"
#include "runtime/client/event.h"

namespace hekla::runtime {

class Upload {
 public:
  Upload(Upload&& other) noexcept;
  Upload& operator=(Upload&& other) = delete;
  ~Upload();

  // Whose contents come with the last part. Parts are bytes of its memory: of rows of the array
  // only where it is_raw_host_layout().
  const Buffer& buffer() const { return buffer_; }
  // Bytes from `offset` on; `from` stays until the event is ready. After the last part there is no
  // other; a part may be empty. INVALID_ARGUMENT: outside of the buffer, with our plugins.
  Result<Event> write(int64_t offset, std::span<const std::byte> from, bool is_last);
  // Hands the buffer over, also before its contents have come.
  Buffer take() { return std::move(buffer_); }

 private:
  friend class Client;
  Upload(std::shared_ptr<ClientState> state, PJRT_AsyncHostToDeviceTransferManager* manager)
      : state_(std::move(state)), manager_(manager) {}

  std::shared_ptr<ClientState> state_;
  PJRT_AsyncHostToDeviceTransferManager* manager_;
  Buffer buffer_;
};

}  // namespace hekla::runtime
