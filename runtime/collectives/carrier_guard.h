// SPDX-License-Identifier: Apache-2.0
// For libraries behind carrier.h: what they throw, as the words of an Error. Plain functions.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>

#include "runtime/collectives/carrier.h"

namespace hekla::collectives::carrier {

// As much of `what` as there is room for, without the place in a source file that Gloo's words
// begin with ("[file:line] ").
inline void say(Error* error, const char* what) {
  const char* text = what;
  if (*text == '[') {
    if (const char* end = std::strstr(text, "] "); end != nullptr) text = end + 2;
  }
  const size_t size = std::min(std::strlen(text), sizeof(error->text) - 1);
  std::memcpy(error->text, text, size);
  error->text[size] = '\0';
}

// What `run` returns, or `failed` and what it threw.
template <typename Value, typename Run>
Value guarded(Error* error, Value failed, const Run& run) {
  try {
    return run();
  } catch (const std::exception& thrown) {
    say(error, thrown.what());
  } catch (...) {
    say(error, "an error of an unknown type");
  }
  return failed;
}

}  // namespace hekla::collectives::carrier
