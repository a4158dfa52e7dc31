// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/manager/policies.h"

#include <algorithm>
#include <cmath>

namespace hekla::checkpoint {

std::vector<int64_t> deletable(std::span<const KeptStep> steps, const Retention& retention,
                               int64_t now_seconds) {
  if (retention.keeps_all() || steps.empty()) return {};
  std::set<int64_t> kept = {steps.back().step};
  const auto count = static_cast<int64_t>(steps.size());
  for (int64_t i = std::max<int64_t>(0, count - std::max<int64_t>(retention.last.value_or(0), 0));
       i < count; ++i) {
    kept.insert(steps[static_cast<size_t>(i)].step);
  }
  std::optional<int64_t> last_time;
  for (const KeptStep& step : steps) {
    if (step.is_pinned || retention.steps.count(step.step) != 0) kept.insert(step.step);
    if (retention.every_steps > 0 && step.step % retention.every_steps == 0) kept.insert(step.step);
    if (retention.every_time.count() > 0 &&
        (!last_time || step.seconds - *last_time >= retention.every_time.count())) {
      kept.insert(step.step);
      last_time = step.seconds;
    }
    if (retention.newer_than.count() > 0 &&
        now_seconds - step.seconds < retention.newer_than.count()) {
      kept.insert(step.step);
    }
  }
  if (retention.best) {
    std::vector<std::pair<double, int64_t>> ranked;  // best first, the newer one of equals
    for (const KeptStep& step : steps) {
      const auto metric = step.metrics.find(retention.best->metric);
      const bool has_metric = metric != step.metrics.end() && !std::isnan(metric->second);
      if (has_metric) {
        ranked.emplace_back(retention.best->is_lowest_best ? metric->second : -metric->second,
                            -step.step);
      } else if (retention.best->keep_without_metric) {
        kept.insert(step.step);
      }
    }
    std::sort(ranked.begin(), ranked.end());
    const auto best_count = static_cast<size_t>(std::max<int64_t>(retention.best->count, 0));
    for (size_t i = 0; i < std::min(best_count, ranked.size()); ++i) {
      kept.insert(-ranked[i].second);
    }
  }
  std::vector<int64_t> gone;
  for (const KeptStep& step : steps) {
    if (kept.count(step.step) == 0) gone.push_back(step.step);
  }
  // The oldest of them go; what min_valid wants stays.
  const int64_t most = std::max<int64_t>(0, count - std::max<int64_t>(retention.min_valid, 1));
  if (static_cast<int64_t>(gone.size()) > most) gone.resize(static_cast<size_t>(most));
  return gone;
}

}  // namespace hekla::checkpoint
