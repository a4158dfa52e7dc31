// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/text/scanner.h"

#include <algorithm>
#include <charconv>

namespace hekla::stablehlo {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '$' || c == '.'; }

}  // namespace

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

void Scanner::skip_blanks() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      ++position_;
    } else if (c == '/' && position_ + 1 < text_.size() && text_[position_ + 1] == '/') {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else {
      return;
    }
  }
}

bool Scanner::at_end() {
  skip_blanks();
  return position_ >= text_.size();
}

char Scanner::peek() {
  skip_blanks();
  return raw();
}

bool Scanner::peek_text(std::string_view expected) {
  skip_blanks();
  return text_.substr(position_).starts_with(expected);
}

bool Scanner::accept(char c) {
  if (peek() != c || c == '\0') return false;
  ++position_;
  return true;
}

bool Scanner::accept(std::string_view punctuation) {
  if (!peek_text(punctuation)) return false;
  position_ += punctuation.size();
  return true;
}

bool Scanner::accept_word(std::string_view expected) {
  if (!peek_text(expected)) return false;
  const size_t end = position_ + expected.size();
  if (end < text_.size() && is_word(text_[end])) return false;
  position_ = end;
  return true;
}

std::string_view Scanner::word() {
  skip_blanks();
  if (!is_letter(raw())) return {};
  const size_t start = position_;
  while (position_ < text_.size() && is_word(text_[position_])) ++position_;
  return text_.substr(start, position_ - start);
}

std::string_view Scanner::suffix_name() {
  const size_t start = position_;
  while (position_ < text_.size() && (is_word(text_[position_]) || text_[position_] == '-')) {
    // "->" ends a name.
    if (text_[position_] == '-' && position_ + 1 < text_.size() && text_[position_ + 1] == '>') {
      break;
    }
    ++position_;
  }
  return text_.substr(start, position_ - start);
}

Result<std::string> Scanner::string() {
  const size_t start = position_;
  HEKLA_RETURN_IF_ERROR(expect('"'));
  std::string value;
  while (position_ < text_.size()) {
    const char c = text_[position_++];
    if (c == '"') return value;
    if (c != '\\') {
      value += c;
      continue;
    }
    const char escape = raw();
    if (escape == 'n') {
      value += '\n';
      ++position_;
    } else if (escape == 't') {
      value += '\t';
      ++position_;
    } else if (escape == '\\' || escape == '"') {
      value += escape;
      ++position_;
    } else {
      const int high = hex_digit(escape);
      const int low = position_ + 1 < text_.size() ? hex_digit(text_[position_ + 1]) : -1;
      if (high < 0 || low < 0) return error_at(position_, "unknown escape in a string");
      value += static_cast<char>(high * 16 + low);
      position_ += 2;
    }
  }
  return error_at(start, "this string has no end");
}

std::string_view Scanner::number() {
  skip_blanks();
  const size_t start = position_;
  if (raw() == '-' || raw() == '+') ++position_;
  if (!is_digit(raw())) {
    position_ = start;
    return {};
  }
  if (raw() == '0' && position_ + 1 < text_.size() &&
      (text_[position_ + 1] == 'x' || text_[position_ + 1] == 'X') &&
      position_ + 2 < text_.size() && hex_digit(text_[position_ + 2]) >= 0) {
    position_ += 2;
    while (position_ < text_.size() && hex_digit(text_[position_]) >= 0) ++position_;
    return text_.substr(start, position_ - start);
  }
  while (is_digit(raw())) ++position_;
  if (raw() == '.') {
    ++position_;
    while (is_digit(raw())) ++position_;
  }
  if (raw() == 'e' || raw() == 'E') {
    const size_t mark = position_++;
    if (raw() == '-' || raw() == '+') ++position_;
    if (!is_digit(raw())) position_ = mark;
    while (is_digit(raw())) ++position_;
  }
  return text_.substr(start, position_ - start);
}

Result<int64_t> Scanner::integer() {
  skip_blanks();
  const size_t start = position_;
  std::string_view digits = number();
  int64_t value = 0;
  // from_chars takes no plus.
  if (digits.starts_with('+')) digits.remove_prefix(1);
  const bool is_hex = digits.starts_with("0x") || digits.starts_with("0X");
  if (is_hex) digits.remove_prefix(2);
  const auto [end, code] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, is_hex ? 16 : 10);
  if (digits.empty() || code != std::errc() || end != digits.data() + digits.size()) {
    position_ = start;
    return error("an integer of 64 bits");
  }
  return value;
}

Result<std::string_view> Scanner::balanced() {
  skip_blanks();
  const size_t start = position_;
  std::string open;
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == '"') {
      HEKLA_RETURN_IF_ERROR(string().status());
      continue;
    }
    if (c == '/' && text_.substr(position_).starts_with("//")) {
      skip_blanks();
      continue;
    }
    ++position_;
    if (c == '<' || c == '(' || c == '[' || c == '{') {
      open += c;
    } else if (c == '>' && position_ >= 2 && text_[position_ - 2] == '-') {
      continue;  // an arrow
    } else if (c == '>' || c == ')' || c == ']' || c == '}') {
      const char partner = c == '>' ? '<' : c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open.empty() || open.back() != partner) {
        return error_at(position_ - 1, "this bracket has no partner");
      }
      open.pop_back();
      if (open.empty()) return text_.substr(start, position_ - start);
    }
  }
  return error_at(start, "this bracket is never closed");
}

Status Scanner::expect(char c) {
  if (accept(c)) return ok_status();
  return error(fmt::format("'{}'", c));
}

Status Scanner::expect(std::string_view punctuation) {
  if (accept(punctuation)) return ok_status();
  return error(fmt::format("'{}'", punctuation));
}

Status Scanner::error(std::string_view expected) const {
  Scanner here = *this;
  here.skip_blanks();
  std::string_view found = text_.substr(here.position_, 24);
  found = found.substr(0, found.find('\n'));
  return error_at(here.position_, found.empty()
                                      ? fmt::format("expected {}, found the end", expected)
                                      : fmt::format("expected {}, found '{}'", expected, found));
}

Status Scanner::error_at(size_t position, std::string_view message) const {
  const std::string_view before = text_.substr(0, position);
  const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const size_t line_start = before.rfind('\n');
  const size_t column = line_start == std::string_view::npos ? position + 1 : position - line_start;
  return invalid_argument("text {}:{}: {}", line, column, message);
}

}  // namespace hekla::stablehlo
