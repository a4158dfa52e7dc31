// SPDX-License-Identifier: Apache-2.0
// ByteReader: bounded reading of MLIR bytecode's scalars from a span of the file.
//
// The first failed read makes the reader fail for good: it then returns zeros and empty spans, and
// `status()` says what was wanted and at which file offset. So decoders read a whole record and
// look at the status once. Borrowed bytes; not shared between threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace hekla::stablehlo {

class ByteReader {
 public:
  ByteReader() = default;
  // `file` is the whole file, [begin, end) what may be read.
  ByteReader(std::string_view file, size_t begin, size_t end)
      : file_(file), position_(begin), end_(end) {}

  bool ok() const { return ok_; }
  Status status() const;
  // Marks the reader as failed at the present position.
  void fail(std::string reason);
  size_t position() const { return position_; }
  size_t remaining() const { return ok_ ? end_ - position_ : 0; }
  bool at_end() const { return remaining() == 0; }

  uint8_t byte();
  uint64_t varint();
  int64_t svarint();
  // The number of an entry in some table; fails beyond 32 bits.
  uint32_t reference();
  // A count of things that take at least `least_bytes` bytes each; fails when they cannot be there.
  size_t count(size_t least_bytes = 1);
  std::string_view bytes(uint64_t size);
  // An APInt of at most 64 bits, zero-extended; wider ones fail.
  uint64_t ap_int(int width);
  // Up to a NUL, which is consumed and not returned.
  std::string_view terminated_string();
  // Skips filler until the file offset is a multiple of `alignment`.
  void align(uint64_t alignment);
  // Fails unless everything was read.
  void expect_end(std::string_view what);
  // A reader of the next `size` bytes, which this one skips.
  ByteReader sub(uint64_t size);

 private:
  std::string_view file_;
  size_t position_ = 0;
  size_t end_ = 0;
  bool ok_ = true;
  std::string reason_;
};

}  // namespace hekla::stablehlo
