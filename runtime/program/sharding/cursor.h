// SPDX-License-Identifier: Apache-2.0
// Cursor: a position in the text of a sharding, and the steps that parsers are made of. Internal.
//
// Blanks and comments (// to the end of a line, /* */) are skipped before each step. Errors are
// INVALID_ARGUMENT with the byte.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace hekla::sharding {

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  size_t position() const { return position_; }
  bool at_end();
  // The next byte after blanks, 0 at the end.
  char peek();
  // Consumes `expected` if it stands here.
  bool accept(std::string_view expected);
  Status expect(std::string_view expected);
  // Letters and underscores; empty when there is none.
  std::string_view word();
  // Digits, with a minus sign or without.
  Result<int64_t> integer();
  // In double quotes, with MLIR's escapes.
  Result<std::string> string();
  // What follows @: a name, or a string.
  Result<std::string> symbol();
  // From an opening brace to behind its partner; strings are minded.
  Status skip_braces();

  Status error(std::string_view expected);
  Status error_at(size_t position, std::string_view message);
  // Of the last error.
  size_t error_position() const { return error_position_; }
  const std::string& error_reason() const { return error_reason_; }

 private:
  void skip_blanks();

  std::string_view text_;
  size_t position_ = 0;
  size_t error_position_ = 0;
  std::string error_reason_;
};

}  // namespace hekla::sharding
