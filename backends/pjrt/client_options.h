// SPDX-License-Identifier: Apache-2.0
// Client options that several backends have, read in one way. Pure but for the environment.
#pragma once

#include <string>

#include "backends/pjrt/backend.h"

namespace hekla::pjrt {

// An integer, which may come as text, from options given as text. INVALID_ARGUMENT names the
// option.
Result<int64_t> integer_option(const std::string& name, const OptionValue& value);
// A flag, which may come as 0, 1 or as text: "true", "false", "1", "0".
Result<bool> flag_option(const std::string& name, const OptionValue& value);
// `fallback` where the variable is not set or empty.
Result<int64_t> integer_from_environment(const char* name, int64_t fallback);

// What all our backends know.
struct CommonOptions {
  int64_t device_count = 1;        // num_devices, HEKLA_NUM_DEVICES
  int64_t memory_limit_bytes = 0;  // of each device; memory_limit_bytes, HEKLA_MEMORY_LIMIT
};
// From the environment; the limit is `memory_bytes` where it says nothing.
Result<CommonOptions> common_options(int64_t memory_bytes);
// Takes the option in when it is a common one, else says false. `device`: "reference device".
Result<bool> take_common_option(const std::string& name, const OptionValue& value,
                                const char* device, CommonOptions& options);
// INVALID_ARGUMENT: numbers outside of what there may be.
Status check(const CommonOptions& options);

}  // namespace hekla::pjrt
