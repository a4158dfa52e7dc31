// SPDX-License-Identifier: Apache-2.0
#include "runtime/collectives/frame.h"

#include <utility>

#include "runtime/base/staging.h"

namespace hekla::collectives {
namespace {

constexpr uint32_t kMark = 0x4b656b48;

}  // namespace

Result<std::string> frame_of(const Message& message) {
  if (message.head.size() > Message::kMaxHeadBytes || message.blocks.size() > Message::kMaxBlocks) {
    return invalid_argument("a message of {} blocks with a head of {} bytes; {} and {} is the most",
                            message.blocks.size(), message.head.size(), Message::kMaxBlocks,
                            Message::kMaxHeadBytes);
  }
  const FrameReader::Fixed fixed{kMark, static_cast<uint32_t>(message.head.size()),
                                 static_cast<uint32_t>(message.blocks.size()), 0};
  std::string frame(reinterpret_cast<const char*>(&fixed), sizeof(fixed));
  for (const HostArray& block : message.blocks) {
    const int64_t size = block.size_bytes();
    if (size > Message::kMaxBlockBytes) {
      return invalid_argument("a block of {} bytes in a message; {} is the most", size,
                              Message::kMaxBlockBytes);
    }
    frame.append(reinterpret_cast<const char*>(&size), sizeof(size));
  }
  return frame + message.head;
}

Result<std::optional<Message>> FrameReader::advance(size_t count) {
  target_ = target_.subspan(count);
  while (target_.empty()) {
    HEKLA_RETURN_IF_ERROR(next());
    if (!is_complete_) continue;
    is_complete_ = false;
    part_ = Part::kFixed;
    expect(bytes_of(fixed_));
    return std::optional(std::exchange(message_, Message{}));
  }
  return std::optional<Message>();
}

Result<HostArray> FrameReader::block_of(int64_t bytes) const {
  if (place_) {
    std::shared_ptr<void> memory = place_(message_, bytes);
    if (memory != nullptr) return HostArray::adopt(DType::kUI8, {bytes}, std::move(memory));
  }
  Result<HostArray> block = Staging::allocate(DType::kUI8, {bytes});
  if (!block.ok()) return block.status().with_context("receiving a message");
  return block;
}

Status FrameReader::next() {
  switch (part_) {
    case Part::kFixed:
      if (fixed_.mark != kMark || fixed_.head_bytes > Message::kMaxHeadBytes ||
          fixed_.blocks > Message::kMaxBlocks) {
        return data_loss("what came is no message");
      }
      sizes_.assign(fixed_.blocks, 0);
      part_ = Part::kSizes;
      expect(std::as_writable_bytes(std::span(sizes_)));
      return ok_status();
    case Part::kSizes:
      for (const int64_t size : sizes_) {
        if (size < 0 || size > Message::kMaxBlockBytes) {
          return data_loss("a message with a block of {} bytes", size);
        }
      }
      message_.head.assign(fixed_.head_bytes, '\0');
      part_ = Part::kHead;
      expect(std::as_writable_bytes(std::span(message_.head)));
      return ok_status();
    case Part::kHead:
    case Part::kBlock:
      part_ = Part::kBlock;
      is_complete_ = message_.blocks.size() == sizes_.size();
      if (is_complete_) return ok_status();
      const int64_t size = sizes_[message_.blocks.size()];
      HEKLA_ASSIGN_OR_RETURN(HostArray block, block_of(size));
      message_.blocks.push_back(std::move(block));
      expect({message_.blocks.back().mutable_data(), static_cast<size_t>(size)});
      return ok_status();
  }
  return internal_error("a frame without parts");
}

}  // namespace hekla::collectives
