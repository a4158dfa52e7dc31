// SPDX-License-Identifier: Apache-2.0
// One line about an array: its shape, and its values or their range. Pure.
#pragma once

#include <string>

#include "runtime/base/host_array.h"

namespace hekla::tools {

struct ArrayStats {
  double min = 0;  // of the finite elements; of complex arrays over all parts
  double max = 0;
  double mean = 0;
  int64_t finite = 0;
  int64_t nans = 0;
  int64_t infinities = 0;
};
ArrayStats array_stats(const HostArray& array);

// "f32[2] [1, 2]" for up to eight elements, else "f32[9,9] min 0, max 1, mean 0.5, 3 NaN".
std::string describe(const HostArray& array);

}  // namespace hekla::tools
