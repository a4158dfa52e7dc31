// SPDX-License-Identifier: Apache-2.0
// probe_plugin: whether a plugin library works, found out in a child process.
//
// A foreign library may abort, hang or find no device; the child pays for it, not this process. The
// child loads the library, creates a client, counts its devices and ends. It is killed at the time
// limit together with what it started. Blocking; may be called from any thread. The child is a
// fork: where this process has opened a device before, a driver may refuse it there (NVIDIA's
// does).
#pragma once

#include <chrono>
#include <string>

#include "runtime/base/status.h"
#include "runtime/plugin/options.h"

namespace hekla::runtime {

struct ProbeResult {
  enum class Outcome { kWorks, kError, kCrashed, kTimedOut };
  Outcome outcome = Outcome::kError;
  StatusCode code = StatusCode::kUnknown;  // of kError
  // Why not; for a crash the signal and the last line that the library printed. Empty if it works.
  std::string message;
  // Known if it works.
  int api_minor = 0;
  std::string platform;
  int device_count = 0;
  std::string device_kind;  // of the first device

  bool works() const { return outcome == Outcome::kWorks; }
  // "works: cpu, 4 devices", "crashed: signal 6 (Aborted) ...".
  std::string to_string() const;
};

// 60 seconds unless HEKLA_PROBE_SECONDS says otherwise.
std::chrono::milliseconds default_probe_limit();

ProbeResult probe_plugin(const std::string& path, const Options& options = {},
                         std::chrono::milliseconds limit = default_probe_limit());

}  // namespace hekla::runtime
