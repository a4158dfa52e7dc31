// SPDX-License-Identifier: Apache-2.0
// Pieces of equal work for whoever runs EvaluateOptions::for_each.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/reference/evaluator.h"

namespace hekla::reference {

// Calls body(begin, end) on parts of [0, count) that are worth a task each, where each of `count`
// takes `work` element operations. The parts follow from both numbers alone.
template <typename F>
void for_ranges(const ForEach& for_each, int64_t count, double work, const F& body) {
  constexpr double kTaskWork = 50e3;
  const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(kTaskWork / (work + 1)));
  const int64_t tasks = (count + grain - 1) / grain;
  if (!for_each || tasks < 2) {
    if (count > 0) body(0, count);
    return;
  }
  for_each(tasks, [&](int64_t i) { body(i * grain, std::min(count, (i + 1) * grain)); });
}

}  // namespace hekla::reference
