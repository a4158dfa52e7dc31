// SPDX-License-Identifier: Apache-2.0
// What the fuzzers of readers ask of each error: a code that says whose fault it is, and words.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "runtime/base/status.h"

namespace hekla {

// Ends the process where `status` is an error without words or of another code than
// INVALID_ARGUMENT, or UNIMPLEMENTED where that is allowed.
inline void check_clear(const Status& status, bool allows_unimplemented = false) {
  if (status.ok()) return;
  const bool is_clear = status.code() == StatusCode::kInvalidArgument ||
                        (allows_unimplemented && status.code() == StatusCode::kUnimplemented);
  if (is_clear && !status.message().empty()) return;
  std::fprintf(stderr, "not a clear error: %s\n", status.to_string().c_str());
  std::abort();
}

}  // namespace hekla
