// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/log.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace hekla {
namespace {

LogLevel level_from_environment() {
  const char* text = std::getenv("HEKLA_LOG");
  const std::string_view level = text == nullptr ? "info" : text;
  if (level == "error") return LogLevel::kError;
  if (level == "warning") return LogLevel::kWarning;
  if (level == "verbose") return LogLevel::kVerbose;
  return LogLevel::kInfo;
}

}  // namespace

bool log_enabled(LogLevel level) {
  static const LogLevel kLevel = level_from_environment();
  return level <= kLevel;
}

void log_line(LogLevel level, std::string_view message) {
  const char* prefix = level == LogLevel::kError     ? "hekla: error: "
                       : level == LogLevel::kWarning ? "hekla: warning: "
                                                     : "hekla: ";
  const std::string line = std::string(prefix).append(message).append("\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace hekla
