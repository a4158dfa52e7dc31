// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "plugin_api/conformance/conformance.h"

namespace hekla::conformance {
namespace {

// Text of a plugin may be no UTF-8; every byte is shown as the code point of its value.
std::string as_utf8(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xc0 | byte >> 6);
      text += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
  return text;
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
  using json = nlohmann::ordered_json;
  json rows = json::array();
  for (const Result& result : results) {
    std::string outcome(outcome_name(result.outcome));
    std::transform(outcome.begin(), outcome.end(), outcome.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    json row = {{"name", as_utf8(result.name)},
                {"outcome", outcome},
                {"seconds", std::round(result.seconds * 1000) / 1000},
                {"detail", as_utf8(result.detail)}};
    if (!result.output.empty()) row["output"] = as_utf8(result.output);
    rows.push_back(std::move(row));
  }
  const json report = {{"library", as_utf8(library)},
                       {"description", as_utf8(description)},
                       {"conforms", conforms(results)},
                       {"results", std::move(rows)}};
  return report.dump(2, ' ', /*ensure_ascii=*/true) + "\n";
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
