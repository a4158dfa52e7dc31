// SPDX-License-Identifier: Apache-2.0
// How a message looks in a stream of bytes, and how it is taken out of one piece by piece.
//
// A frame is 16 bytes (a mark, the head's size, the number of blocks), the blocks' sizes, the head
// and the blocks. Nothing in it is believed: sizes have limits, and memory is taken block by block
// as the bytes come. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/collectives/transport.h"

namespace hekla::collectives {

// What goes before the blocks. INVALID_ARGUMENT: the message is above the limits.
Result<std::string> frame_of(const Message& message);

class FrameReader {
 public:
  FrameReader() { expect(bytes_of(fixed_)); }
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;

  // Where the next bytes go; never empty.
  std::span<std::byte> target() const { return target_; }
  // The first `count` of them are there: a message where one is complete. DATA_LOSS: no frame;
  // RESOURCE_EXHAUSTED: no memory for a block. Not to be used after an error.
  Result<std::optional<Message>> advance(size_t count);

 private:
  enum class Part : uint8_t { kFixed, kSizes, kHead, kBlock };
  static std::span<std::byte> bytes_of(auto& value) {
    return std::as_writable_bytes(std::span(&value, 1));
  }
  void expect(std::span<std::byte> bytes) { target_ = bytes; }
  Status next();

  struct Fixed {
    uint32_t mark = 0;
    uint32_t head_bytes = 0;
    uint32_t blocks = 0;
    uint32_t unused = 0;
  };
  friend Result<std::string> frame_of(const Message& message);

  Fixed fixed_;
  std::vector<int64_t> sizes_;
  Message message_;
  Part part_ = Part::kFixed;
  bool is_complete_ = false;
  std::span<std::byte> target_;
};

}  // namespace hekla::collectives
