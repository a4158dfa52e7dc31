// SPDX-License-Identifier: Apache-2.0
// What `hekla` ends with beside 0. `hekla ckpt` has its own (tools/ckpt_command.cc).
#pragma once

namespace hekla::tools {

inline constexpr int kCheckFailed = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kDeviceError = 3;

}  // namespace hekla::tools
