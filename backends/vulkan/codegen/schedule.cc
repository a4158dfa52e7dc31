// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/schedule.h"

#include <algorithm>
#include <bit>

namespace hekla::vulkan::codegen {
namespace {

using kernel::Op;

// A CPU device runs a workgroup on one thread, and each start of 8 lanes (the look-up of addresses
// among it) costs as much as 20 to 50 element accesses: few lanes that loop over many points, but
// enough workgroups to share out over the cores.
constexpr int64_t kCpuGroups = 256;
constexpr int64_t kCpuPoints = 1024;
constexpr uint32_t kCpuLanes = 64;  // at most
// A GPU hides latency with many invocations; several points for each only when there are plenty.
constexpr uint32_t kGpuWorkgroup = 256;
constexpr uint32_t kGpuPoints = 4;
constexpr int64_t kGpuPlenty = int64_t{1} << 20;

// The guard costs 5 % of a copy and pays from about ten operations on.
constexpr int kLongChain = 10;

}  // namespace

Schedule choose_schedule(const kernel::Kernel& kernel, const Target& t) {
  const int64_t points = kernel.points();
  const uint32_t most = std::max(1u, std::min(t.max_workgroup_invocations, t.max_workgroup_size_x));
  Schedule s;
  if (t.is_cpu) {
    s.workgroup_size = std::clamp(t.subgroup_size, 1u, kCpuLanes);
    const int64_t share = points / (kCpuGroups * s.workgroup_size);
    s.points_per_invocation = static_cast<uint32_t>(std::clamp<int64_t>(share, 1, kCpuPoints));
  } else {
    s.workgroup_size = kGpuWorkgroup;
    s.points_per_invocation = points >= kGpuPlenty ? kGpuPoints : 1;
  }
  s.workgroup_size = std::min(s.workgroup_size, std::bit_floor(most));
  if (t.workgroup_size != 0) s.workgroup_size = std::min(t.workgroup_size, most);
  if (t.points_per_invocation != 0) s.points_per_invocation = t.points_per_invocation;
  const int64_t per_group = int64_t{s.workgroup_size} * s.points_per_invocation;
  s.group_count = points / per_group + (points % per_group != 0 ? 1 : 0);
  return s;
}

std::vector<bool> chain_stores(const kernel::Function& f) {
  // Lengths of the longest chains. Values come before their uses but for carried ones: what comes
  // out of a loop is no chain, since it goes through the loop's variables.
  std::vector<int> length(f.size(), 0);
  std::vector<bool> result(f.size(), false);
  for (size_t i = 0; i < f.size(); ++i) {
    const kernel::Instruction& inst = f[static_cast<kernel::Value>(i)];
    switch (inst.op) {
      case Op::kConstant:
      case Op::kParameter:
      case Op::kLoad:
      case Op::kFor:
      case Op::kForResult:
        break;
      case Op::kStore:
        result[i] = length[static_cast<size_t>(inst.arguments[1])] >= kLongChain;
        break;
      default:
        for (kernel::Value a : inst.arguments) {
          length[i] = std::max(length[i], length[static_cast<size_t>(a)]);
        }
        length[i] += 1;
    }
  }
  return result;
}

std::vector<bool> foldable_values(const kernel::Function& f) {
  std::vector<bool> result(f.size(), false);
  auto at = [&](kernel::Value v) { return static_cast<bool>(result[static_cast<size_t>(v)]); };
  // A loop's parameters come before the loop, so they are found through the loop.
  std::vector<const kernel::Instruction*> loops(f.region_count(), nullptr);
  for (size_t i = 0; i < f.size(); ++i) {
    const kernel::Instruction& inst = f[static_cast<kernel::Value>(i)];
    if (inst.op == Op::kFor) loops[inst.immediate] = &inst;
  }
  // An unrolled loop knows what it starts with and what is yielded.
  auto carried = [&](const kernel::Instruction& loop, uint64_t which) {
    const kernel::RegionBody& region = f.region(static_cast<int32_t>(loop.immediate));
    return at(region.yields[which]) || at(loop.arguments[which + 1]);
  };
  auto is_foldable = [&](const kernel::Instruction& inst) {
    if (kernel::is_float(inst.type) && inst.op != Op::kConstant) return false;
    switch (inst.op) {
      case Op::kConstant:
        return true;
      case Op::kParameter: {
        const kernel::Instruction* loop = loops[static_cast<size_t>(inst.region)];
        return loop == nullptr || inst.immediate == 0 || carried(*loop, inst.immediate - 1);
      }
      case Op::kForResult:
        return carried(f[inst.arguments[0]], inst.immediate);
      case Op::kLoad:
      case Op::kStore:
      case Op::kFor:
        return false;
      default:
        return std::all_of(inst.arguments.begin(), inst.arguments.end(), at);
    }
  };
  // Yields come after their parameters: again until nothing is new, mostly twice.
  for (bool is_new = true; is_new;) {
    is_new = false;
    for (size_t i = 0; i < f.size(); ++i) {
      if (result[i] || !is_foldable(f[static_cast<kernel::Value>(i)])) continue;
      result[i] = is_new = true;
    }
  }
  return result;
}

}  // namespace hekla::vulkan::codegen
