// SPDX-License-Identifier: Apache-2.0
#include "tools/run/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/run/compare.h"

namespace hekla::tools {
namespace {

constexpr int64_t kShownElements = 8;

}  // namespace

ArrayStats array_stats(const HostArray& array) {
  ArrayStats stats;
  const int64_t count = array.size() * (is_complex(array.dtype()) ? 2 : 1);
  for (int64_t k = 0; k < count; ++k) {
    const double value = element(array, k);
    if (std::isnan(value)) {
      ++stats.nans;
    } else if (std::isinf(value)) {
      ++stats.infinities;
    } else {
      stats.min = stats.finite == 0 ? value : std::min(stats.min, value);
      stats.max = stats.finite == 0 ? value : std::max(stats.max, value);
      ++stats.finite;
      // A running mean cannot overflow.
      stats.mean += (value - stats.mean) / static_cast<double>(stats.finite);
    }
  }
  return stats;
}

std::string describe(const HostArray& array) {
  std::string text = array.shape();
  if (array.size() <= kShownElements) {
    text += " [";
    for (int64_t k = 0; k < array.size(); ++k) {
      text += fmt::format("{}{}", k == 0 ? "" : ", ", element_text(array, k));
    }
    return text + "]";
  }
  const ArrayStats stats = array_stats(array);
  if (stats.finite > 0) {
    text += fmt::format(" min {:.6g}, max {:.6g}, mean {:.6g}", stats.min, stats.max, stats.mean);
  }
  if (stats.nans > 0) text += fmt::format(", {} NaN", stats.nans);
  if (stats.infinities > 0) text += fmt::format(", {} infinite", stats.infinities);
  return text;
}

}  // namespace hekla::tools
