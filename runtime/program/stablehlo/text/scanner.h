// SPDX-License-Identifier: Apache-2.0
// Scanner: a position in MLIR text, and the small steps that parsers are made of. Internal.
//
// MLIR's tokens depend on where one is (`2x3xf32` inside of a type is no number), so there is no
// token stream: parsers ask for what they expect. Blanks and comments are skipped before each step.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace hekla::stablehlo {

// Its value; -1 for no hexadecimal digit.
int hex_digit(char c);

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::string_view text() const { return text_; }
  size_t position() const { return position_; }
  void set_position(size_t position) { position_ = position; }
  bool at_end();
  // The next character after blanks, 0 at the end.
  char peek();
  // The next character as it stands, blanks included.
  char raw() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  bool peek_text(std::string_view expected);

  // Each consumes what it accepts.
  bool accept(char c);
  bool accept(std::string_view punctuation);
  // A whole word: not followed by a letter, digit or one of "_$.".
  bool accept_word(std::string_view word);
  // Letters, digits and "_$.", beginning with a letter or "_"; empty when there is none.
  std::string_view word();
  // What follows %, @, # or ^: letters, digits and "$._-".
  std::string_view suffix_name();
  // A string in quotes with its escapes resolved.
  Result<std::string> string();
  Result<int64_t> integer();
  // Digits, sign, point, exponent, or 0x...; empty when there is none.
  std::string_view number();
  // From the opening bracket at the position to behind its partner; strings and comments are
  // minded.
  Result<std::string_view> balanced();

  Status expect(char c);
  Status expect(std::string_view punctuation);
  // INVALID_ARGUMENT "text 3:14: expected ..., found ...".
  Status error(std::string_view expected) const;
  Status error_at(size_t position, std::string_view message) const;

 private:
  void skip_blanks();
  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace hekla::stablehlo
