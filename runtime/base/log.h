// SPDX-License-Identifier: Apache-2.0
// Log lines on standard error: "hekla: <message>".
//
// HEKLA_LOG chooses the level: error, warning, info (default) or verbose. A line is written with
// one call, so lines of several threads do not mix. Logging never fails.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace hekla {

enum class LogLevel { kError, kWarning, kInfo, kVerbose };

bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view message);

template <typename... Args>
void log_message(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace hekla
