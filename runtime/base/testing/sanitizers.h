// SPDX-License-Identifier: Apache-2.0
// For tests: what they are built with, where it cannot see into a library that is not.
#pragma once

namespace hekla {

#if defined(__has_feature)
inline constexpr bool kHasThreadSanitizer = __has_feature(thread_sanitizer);
#else
inline constexpr bool kHasThreadSanitizer = false;
#endif

}  // namespace hekla
