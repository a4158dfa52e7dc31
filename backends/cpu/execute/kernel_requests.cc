// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/execute/kernel_requests.h"

#include <algorithm>

#include "backends/compiler/plan/visit.h"

namespace hekla::cpu {

using plan::Slice;

std::vector<bool> kernels_in_place(const plan::LaunchPlan& plan) {
  std::vector<bool> result(plan.kernels.size(), false);
  plan::for_each_step(plan.steps, [&](const plan::Step& each) {
    const auto* step = std::get_if<plan::KernelStep>(&each.what);
    if (step == nullptr) return;
    const auto number = static_cast<size_t>(step->kernel);
    const auto& operands = plan.kernels[number].operands;
    for (size_t w = 0; w < operands.size(); ++w) {
      if (!operands[w].is_written) continue;
      const Slice& written = step->operands[w];
      for (size_t r = 0; r < operands.size(); ++r) {
        if (!operands[r].is_read) continue;
        const Slice& read = step->operands[r];
        const bool taken = written.space == Slice::Space::kOutput &&
                           read.space == Slice::Space::kInput &&
                           plan.output_input[static_cast<size_t>(written.index)] == read.index;
        if (written == read || taken) result[number] = true;
      }
    }
  });
  return result;
}

size_t RequestList::find(int32_t kernel, const RowBlocks& wanted) const {
  const auto it = std::find_if(requests.begin(), requests.end(), [&](const auto& request) {
    return request.kernel == requests[static_cast<size_t>(kernel)].kernel &&
           request.blocks == wanted;
  });
  return static_cast<size_t>(it - requests.begin());
}

RequestList list_requests(const plan::LaunchPlan& plan, int vector_bits,
                          plan::PersistentLoops loops, uint64_t schedule_seed) {
  const std::vector<bool> in_place = kernels_in_place(plan);
  RequestList list;
  std::vector<const plan::RowsStep*> in_blocks;
  plan::for_each_step(plan.steps, [&](const plan::Step& step) {
    const auto* rows = std::get_if<plan::RowsStep>(&step.what);
    if (rows == nullptr) return;
    const RowBlocks blocks = choose_blocks(*rows, plan, vector_bits);
    if (blocks.rows == 0) return;
    list.blocks.emplace_back(rows, blocks);
    in_blocks.push_back(rows);
  });
  list.loops = find_persistent_loops(plan, in_place, in_blocks, vector_bits, loops, schedule_seed);
  std::vector<bool> is_whole(plan.kernels.size(), false);
  plan::for_each_step(plan.steps, [&](const plan::Step& step) {
    if (list.loops.contains(step)) return false;
    if (const auto* kernel = std::get_if<plan::KernelStep>(&step.what)) {
      is_whole[static_cast<size_t>(kernel->kernel)] = true;
    }
    const auto* rows = std::get_if<plan::RowsStep>(&step.what);
    return std::find(in_blocks.begin(), in_blocks.end(), rows) == in_blocks.end();
  });
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    KernelRequest& request = list.requests.emplace_back();
    request.kernel = &plan.kernels[i];
    request.may_alias = in_place[i];
    request.schedule_seed = schedule_seed;
    request.needs_code = is_whole[i];
  }
  // A kernel that never runs as a whole has its first blocks in its place.
  for (const auto& [group, blocks] : list.blocks) {
    for (const plan::Step& step : group->steps) {
      const auto* kernel = std::get_if<plan::KernelStep>(&step.what);
      if (kernel == nullptr) continue;
      const int32_t number = kernel->kernel;
      const auto at = static_cast<size_t>(number);
      if (list.find(number, blocks) < list.requests.size()) continue;
      if (!is_whole[at] && list.requests[at].blocks.rows == 0) {
        list.requests[at].blocks = blocks;
        list.requests[at].needs_code = true;
      } else {
        list.requests.push_back({&plan.kernels[at], in_place[at], blocks, schedule_seed});
      }
    }
  }
  return list;
}

}  // namespace hekla::cpu
