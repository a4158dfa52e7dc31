// SPDX-License-Identifier: Apache-2.0
// How a message looks in a stream of bytes, and how it is taken out of one piece by piece.
//
// A frame is 16 bytes (a mark, the head's size, the number of blocks), the blocks' sizes, the head
// and the blocks. Nothing in it is believed: sizes have limits, and memory is taken block by block
// as the bytes come. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/collectives/transport.h"

namespace hekla::collectives {

// What goes before the blocks. INVALID_ARGUMENT: the message is above the limits.
Result<std::string> frame_of(const Message& message);

// A message on its way out: its frame, then its blocks, from the first byte that is still to be
// sent.
struct OutgoingMessage {
  std::string frame;
  Message message;
  CompletionRef sent;
  size_t part = 0;    // 0: the frame; else the block before
  size_t offset = 0;  // in the part

  std::span<const std::byte> rest() const {
    return (part == 0 ? std::as_bytes(std::span(frame)) : message.blocks[part - 1].bytes())
        .subspan(offset);
  }
  bool has_begun() const { return part > 0 || offset > 0; }
  bool is_done() const { return part > message.blocks.size(); }
  // To the next byte that is to be sent.
  void skip_empty() {
    while (!is_done() && rest().empty()) {
      ++part;
      offset = 0;
    }
  }
  size_t bytes() const {
    size_t sum = frame.size();
    for (const HostArray& block : message.blocks) sum += static_cast<size_t>(block.size_bytes());
    return sum;
  }
};

class FrameReader {
 public:
  // Memory for a block of that many bytes that follows what has come of the message; null: where
  // the reader takes it itself.
  using Place = std::function<std::shared_ptr<void>(const Message& begun, int64_t bytes)>;
  explicit FrameReader(Place place = {}) : place_(std::move(place)) { expect(bytes_of(fixed_)); }
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;

  // Where the next bytes go; never empty.
  std::span<std::byte> target() const { return target_; }
  // They are a block's.
  bool is_in_block() const { return part_ == Part::kBlock; }
  // The first `count` of them are there: a message where one is complete. DATA_LOSS: no frame;
  // RESOURCE_EXHAUSTED: no memory for a block. Not to be used after an error.
  Result<std::optional<Message>> advance(size_t count);
  // Lets go of what has come of a message. Not to be used any more.
  void drop() {
    target_ = {};
    message_ = {};
  }

 private:
  enum class Part : uint8_t { kFixed, kSizes, kHead, kBlock };
  static std::span<std::byte> bytes_of(auto& value) {
    return std::as_writable_bytes(std::span(&value, 1));
  }
  void expect(std::span<std::byte> bytes) { target_ = bytes; }
  Status next();
  Result<HostArray> block_of(int64_t bytes) const;

  struct Fixed {
    uint32_t mark = 0;
    uint32_t head_bytes = 0;
    uint32_t blocks = 0;
    uint32_t unused = 0;
  };
  friend Result<std::string> frame_of(const Message& message);

  const Place place_;
  Fixed fixed_;
  std::vector<int64_t> sizes_;
  Message message_;
  Part part_ = Part::kFixed;
  bool is_complete_ = false;
  std::span<std::byte> target_;
};

}  // namespace hekla::collectives
