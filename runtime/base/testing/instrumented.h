// SPDX-License-Identifier: Apache-2.0
// How much of a sweep over values a test does: all of it in ordinary builds, a part where code is
// instrumented by a sanitizer and some twenty times as slow. Instrumented builds look for faults in
// the code on the way, ordinary ones also at each value. Pure.
#pragma once

namespace hekla::testing {

#ifdef HEKLA_SANITIZED
inline constexpr bool kInstrumented = true;
#else
inline constexpr bool kInstrumented = false;
#endif

// The number of values, or the step from one to the next.
template <typename T>
constexpr T sweep(T whole, T instrumented) {
  return kInstrumented ? instrumented : whole;
}

}  // namespace hekla::testing
