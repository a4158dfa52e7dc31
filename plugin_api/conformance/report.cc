// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "plugin_api/conformance/conformance.h"

namespace hekla::conformance {
namespace {

std::string json_quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      // Text of a plugin may be no UTF-8; every byte is shown as the code point of its value.
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// One line, bounded, for a row.
std::string flat(std::string text, size_t limit) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  if (text.size() > limit) text = text.substr(0, limit - 3) + "...";
  return text;
}

}  // namespace

std::string format_row(const Result& result) {
  char head[128];
  std::snprintf(head, sizeof(head), "%-38s %-11s %6.2f s", result.name.c_str(),
                std::string(outcome_name(result.outcome)).c_str(), result.seconds);
  std::string row = head;
  if (!result.detail.empty()) row += "  " + flat(result.detail, 300);
  if (!result.output.empty()) {
    const size_t kept = std::min<size_t>(result.output.size(), 400);
    row += "\n    output: " + flat(result.output.substr(result.output.size() - kept), 400);
  }
  return row;
}

std::string format_summary(const std::vector<Result>& results) {
  const auto count = [&](Outcome outcome) {
    return std::to_string(std::count_if(results.begin(), results.end(), [&](const Result& result) {
      return result.outcome == outcome;
    }));
  };
  return std::to_string(results.size()) + " checks: " + count(Outcome::kPass) + " passed, " +
         count(Outcome::kFail) + " failed, " + count(Outcome::kNotOffered) + " not offered, " +
         count(Outcome::kCrashed) + " crashed, " + count(Outcome::kTimedOut) + " timed out";
}

std::string format_json(const std::string& library, const std::string& description,
                        const std::vector<Result>& results) {
  std::string text = "{\n  \"library\": " + json_quoted(library) +
                     ",\n  \"description\": " + json_quoted(description) +
                     ",\n  \"conforms\": " + (conforms(results) ? "true" : "false") +
                     ",\n  \"results\": [";
  for (size_t i = 0; i < results.size(); ++i) {
    const Result& result = results[i];
    std::string outcome(outcome_name(result.outcome));
    std::transform(outcome.begin(), outcome.end(), outcome.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    char seconds[32];
    std::snprintf(seconds, sizeof(seconds), "%.3f", result.seconds);
    text += std::string(i ? "," : "") + "\n    {\"name\": " + json_quoted(result.name) +
            ", \"outcome\": " + json_quoted(outcome) + ", \"seconds\": " + seconds +
            ", \"detail\": " + json_quoted(result.detail);
    if (!result.output.empty()) text += ", \"output\": " + json_quoted(result.output);
    text += "}";
  }
  return text + "\n  ]\n}\n";
}

std::string format_list() {
  std::string text;
  std::string group;
  for (const CheckInfo& info : list()) {
    if (info.group != group) {
      group = info.group;
      text += (text.empty() ? "" : "\n") + std::string("### ") + group + " (guide " +
              info.sections + ")\n\n| check | promise |\n|---|---|\n";
    }
    text += "| `" + info.name + "` | " + info.promise + " |\n";
  }
  return text;
}

}  // namespace hekla::conformance
