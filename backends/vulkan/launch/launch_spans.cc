// SPDX-License-Identifier: Apache-2.0
// DeviceProgram: what a profiler is shown of a launch: when it ran and when each of its dispatches
// did, by the device's clock. Of dispatches that ran several times (iterations of loops) the last
// time is shown.
#include <algorithm>

#include "backends/vulkan/launch/device_program_run.h"
#include "runtime/base/log.h"

namespace hekla::vulkan {

TraceDetailRef DeviceProgram::detail_of(const LoweredDispatch& dispatch) {
  if (dispatch.pipeline == gate_pipeline(*program_)) {
    // Threads may come here while the process ends.
    static const auto* gate =
        new TraceDetailRef(std::make_shared<const TraceDetail>(TraceDetail{"loop gate", {}}));
    return *gate;
  }
  return details_.of(*dispatch.step, *program_->plan);
}

void DeviceProgram::show(Run& run, const Status& ended) {
  const int64_t now = Trace::now();
  const int device = device_->index();
  int64_t begin = run.begun_ns;
  int64_t end = now;
  const Slot* slot = run.slot;
  if (ended.ok() && slot != nullptr && slot->timestamps) {
    std::vector<std::pair<const LoweredRecording*, std::vector<double>>> groups;
    double last = 0;
    size_t number = 0;
    for (size_t p = 0; p < slot->recorded->parts.size(); ++p) {
      for (const LoweredRecording& recording : slot->recorded->parts[p].recordings) {
        Result<std::vector<double>> marks = slot->timestamps->read(number++);
        if (!marks.ok()) {
          return log_message(LogLevel::kWarning, "no times of the kernels of {}: {}",
                             program_->name, marks.status().message());
        }
        if (marks->empty()) continue;
        if (p == run.passed_part) last = std::max(last, marks->back());
        groups.emplace_back(&recording, *std::move(marks));
      }
    }
    if (last > 0) {
      // Launches that are one submission each follow each other on the device.
      const int64_t offset = is_split_ ? device_->clock().seen(run.passed_ns, last)
                                       : device_->clock().seen_in_order(
                                             run.passed_ns, groups.front().second.front(), last);
      const auto host_time = [offset](double ns) { return static_cast<int64_t>(ns) + offset; };
      bool is_first = !starts_on_host_;
      if (!slot->recorded->parts.back().host) end = host_time(last);
      for (const auto& [recording, marks] : groups) {
        // Of an earlier launch, on a way that this one did not take. The offset shrinks later.
        if (host_time(marks.back()) < run.begun_ns) continue;
        if (is_first) begin = std::max(begin, host_time(marks.front()));
        is_first = false;
        for (size_t i = 0; i + 1 < marks.size(); ++i) {
          Trace::add({TraceLine::kSteps, device, detail_of(recording->dispatches[i]),
                      host_time(marks[i]), host_time(marks[i + 1])});
        }
      }
    }
  }
  Trace::add({TraceLine::kLaunches,
              device,
              run.request.trace,
              begin,
              std::max(begin, end),
              {{"run_id", run.request.info.run_id}}});
}

}  // namespace hekla::vulkan
