// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/bytecode/byte_reader.h"

#include <bit>
#include <cstring>
#include <limits>

namespace hekla::stablehlo {

Status ByteReader::status() const {
  if (ok_) return ok_status();
  return invalid_argument("bytecode, offset {}: {}", position_, reason_);
}

void ByteReader::fail(std::string reason) {
  if (!ok_) return;
  ok_ = false;
  reason_ = std::move(reason);
}

uint8_t ByteReader::byte() {
  if (remaining() < 1) {
    fail("the data end early");
    return 0;
  }
  return static_cast<uint8_t>(file_[position_++]);
}

uint64_t ByteReader::varint() {
  if (remaining() < 1) {
    fail("the data end early");
    return 0;
  }
  const uint8_t first = static_cast<uint8_t>(file_[position_]);
  // The number of trailing zero bits of the first byte counts the bytes that follow.
  const size_t size = first == 0 ? 9 : static_cast<size_t>(std::countr_zero(first)) + 1;
  if (remaining() < size) {
    fail("the data end within a number");
    return 0;
  }
  uint64_t value = 0;
  if (first == 0) {
    std::memcpy(&value, file_.data() + position_ + 1, 8);
  } else {
    std::memcpy(&value, file_.data() + position_, size);
    value >>= size;
  }
  position_ += size;
  return value;
}

int64_t ByteReader::svarint() {
  const uint64_t value = varint();
  return static_cast<int64_t>((value >> 1) ^ (~(value & 1) + 1));
}

uint32_t ByteReader::reference() {
  const uint64_t value = varint();
  if (value > std::numeric_limits<uint32_t>::max())
    fail(fmt::format("there is no entry {}", value));
  return ok_ ? static_cast<uint32_t>(value) : 0;
}

size_t ByteReader::count(size_t least_bytes) {
  const uint64_t value = varint();
  if (ok_ && value > remaining() / least_bytes) {
    fail(fmt::format("{} entries cannot fit into {} bytes", value, remaining()));
    return 0;
  }
  return ok_ ? static_cast<size_t>(value) : 0;
}

std::string_view ByteReader::bytes(uint64_t size) {
  if (size > remaining()) {
    fail(fmt::format("{} bytes are wanted, {} are left", size, remaining()));
    return {};
  }
  std::string_view span = file_.substr(position_, size);
  position_ += size;
  return span;
}

uint64_t ByteReader::ap_int(int width) {
  if (width <= 8) return byte();
  if (width > 64) {
    fail(fmt::format("integers of {} bits are not supported", width));
    return 0;
  }
  const uint64_t value = static_cast<uint64_t>(svarint());
  return width == 64 ? value : value & ((uint64_t{1} << width) - 1);
}

std::string_view ByteReader::terminated_string() {
  const std::string_view rest = file_.substr(position_, remaining());
  const size_t end = rest.find('\0');
  if (end == std::string_view::npos) {
    fail("a string has no end");
    return {};
  }
  position_ += end + 1;
  return rest.substr(0, end);
}

void ByteReader::align(uint64_t alignment) {
  if (alignment == 0 || !std::has_single_bit(alignment)) {
    fail(fmt::format("alignment {} is no power of two", alignment));
    return;
  }
  const uint64_t padding = (~position_ + 1) & (alignment - 1);
  bytes(padding);
}

void ByteReader::expect_end(std::string_view what) {
  if (ok_ && remaining() != 0)
    fail(fmt::format("{} bytes are left over after {}", remaining(), what));
}

ByteReader ByteReader::sub(uint64_t size) {
  const size_t begin = position_;
  bytes(size);
  ByteReader reader(file_, begin, ok_ ? position_ : begin);
  if (!ok_) {
    reader.ok_ = false;
    reader.reason_ = reason_;
  }
  return reader;
}

}  // namespace hekla::stablehlo
