// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/sharding/cursor.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace hekla::sharding {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// -1 for no hexadecimal digit.
int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void Cursor::skip_blanks() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      ++position_;
    } else if (text_.substr(position_, 2) == "//") {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else if (text_.substr(position_, 2) == "/*") {
      const size_t end = text_.find("*/", position_ + 2);
      position_ = end == std::string_view::npos ? text_.size() : end + 2;
    } else {
      break;
    }
  }
}

bool Cursor::at_end() {
  skip_blanks();
  return position_ == text_.size();
}

char Cursor::peek() {
  skip_blanks();
  return position_ < text_.size() ? text_[position_] : '\0';
}

bool Cursor::accept(std::string_view expected) {
  skip_blanks();
  if (!text_.substr(position_).starts_with(expected)) return false;
  position_ += expected.size();
  return true;
}

Status Cursor::expect(std::string_view expected) {
  if (accept(expected)) return ok_status();
  return error(fmt::format("'{}'", expected));
}

std::string_view Cursor::word() {
  skip_blanks();
  const size_t start = position_;
  while (position_ < text_.size() && is_letter(text_[position_])) ++position_;
  return text_.substr(start, position_ - start);
}

Result<int64_t> Cursor::integer() {
  skip_blanks();
  int64_t value = 0;
  const char* begin = text_.data() + position_;
  const auto [end, problem] = std::from_chars(begin, text_.data() + text_.size(), value);
  if (problem == std::errc::result_out_of_range) {
    return error_at(position_, "a number beyond 64 bits");
  }
  if (problem != std::errc()) return error("a number");
  position_ += static_cast<size_t>(end - begin);
  return value;
}

Result<std::string> Cursor::string() {
  if (peek() != '"') return error("a name in double quotes");
  const size_t start = position_++;
  std::string value;
  while (position_ < text_.size() && text_[position_] != '"') {
    char c = text_[position_++];
    if (c == '\\') {
      const char next = position_ < text_.size() ? text_[position_] : '\0';
      const char after = position_ + 1 < text_.size() ? text_[position_ + 1] : '\0';
      if (next == '"' || next == '\\') {
        c = next;
        position_ += 1;
      } else if (next == 'n' || next == 't') {
        c = next == 'n' ? '\n' : '\t';
        position_ += 1;
      } else if (hex_value(next) >= 0 && hex_value(after) >= 0) {
        c = static_cast<char>(hex_value(next) * 16 + hex_value(after));
        position_ += 2;
      } else {
        return error_at(position_ - 1, "an unknown escape in a name");
      }
    }
    value += c;
  }
  if (position_ == text_.size()) return error_at(start, "a name without closing quotes");
  ++position_;
  return value;
}

Result<std::string> Cursor::symbol() {
  HEKLA_RETURN_IF_ERROR(expect("@"));
  if (position_ < text_.size() && text_[position_] == '"') return string();
  const size_t start = position_;
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (!is_letter(c) && !is_digit(c) && c != '$' && c != '.' && c != '-') break;
    ++position_;
  }
  if (position_ == start) return error("a name behind @");
  return std::string(text_.substr(start, position_ - start));
}

Status Cursor::skip_braces() {
  const size_t start = position_;
  HEKLA_RETURN_IF_ERROR(expect("{"));
  size_t depth = 1;
  while (position_ < text_.size() && depth > 0) {
    const char c = text_[position_];
    if (c == '"') {
      HEKLA_RETURN_IF_ERROR(string().status());
      continue;
    }
    if (c == '{') ++depth;
    if (c == '}') --depth;
    ++position_;
  }
  return depth == 0 ? ok_status() : error_at(start, "a brace without its partner");
}

Status Cursor::error(std::string_view expected) {
  skip_blanks();
  constexpr size_t kShown = 20;
  const std::string_view found = text_.substr(position_, kShown);
  if (found.empty()) {
    return error_at(position_, fmt::format("expected {}, found the end", expected));
  }
  std::string shown;
  for (char c : found) shown += c >= 0x20 && c < 0x7f ? c : '?';
  return error_at(position_, fmt::format("expected {}, found '{}'", expected, shown));
}

Status Cursor::error_at(size_t position, std::string_view message) {
  error_position_ = position;
  error_reason_ = message;
  return invalid_argument("sharding text at {}: {}", position, message);
}

}  // namespace hekla::sharding
