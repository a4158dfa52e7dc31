// SPDX-License-Identifier: Apache-2.0
// How the functions of Hekla's C libraries report: a code, and a message for the calling thread.
// Each library that includes this has messages of its own. No exception passes.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "runtime/base/status.h"

namespace hekla::c_report {

// Of this thread's last call that failed.
inline std::string& last_error() {
  thread_local std::string text;
  return text;
}

inline int report(const Status& status) {
  if (status.ok()) return 0;
  last_error() = status.message();
  return static_cast<int>(status.code());
}

// The body of a C function: a Status, and no memory as an error instead of an exception.
template <typename Body>
int run(const Body& body) noexcept {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report(resource_exhausted("out of memory"));
  } catch (const std::exception& error) {
    return report(internal_error("{}", error.what()));
  }
}

}  // namespace hekla::c_report
