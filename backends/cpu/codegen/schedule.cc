// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/codegen/schedule.h"

#include <algorithm>

namespace hekla::cpu {
namespace {

using kernel::Instruction;
using kernel::Op;

// Nanoseconds of one vector instruction, from the rates of a current core at 3 to 4 GHz: about two
// simple instructions a cycle, and what is done lane by lane counted per lane.
double cost(const kernel::Function& f, const LaneAnalysis& analysis, kernel::Value v, int lanes) {
  constexpr double kSimple = 0.15;
  const Instruction& inst = f[v];
  if (inst.op != Op::kStore && analysis.shape(v).kind != LaneKind::kVarying) {
    return analysis.level(v) == Level::kPoint ? kSimple : 0;
  }
  const double wide = bit_width(inst.type) == 64 ? 2 : 1;
  switch (inst.op) {
    case Op::kDiv:
    case Op::kSqrt:
      return 1.5 * wide;
    case Op::kDivS:
    case Op::kDivU:
    case Op::kRemS:
    case Op::kRemU:
      return wide == 1 ? 4 : 3.0 * lanes;
    case Op::kMulHighU:
      return wide == 1 ? 1 : 1.0 * lanes;
    case Op::kLoad:
    case Op::kStore: {
      const LaneShape index = analysis.shape(inst.arguments[0]);
      if (index.kind == LaneKind::kUniform) return kSimple;
      const bool is_vector = index.kind == LaneKind::kAffine && index.stride == 1;
      return is_vector ? 0.5 : 0.4 * lanes;
    }
    default:
      return kSimple * wide;
  }
}

double region_cost(const kernel::Function& f, const LaneAnalysis& analysis, int32_t number,
                   int lanes) {
  double total = 0;
  for (kernel::Value v : f.region(number).instructions) {
    const Instruction& inst = f[v];
    if (inst.op != Op::kFor) {
      total += cost(f, analysis, v, lanes);
      continue;
    }
    constexpr double kUnknownTrips = 16;
    const Instruction& count = f[inst.arguments[0]];
    double trips = kUnknownTrips;
    if (count.op == Op::kConstant) {
      trips = count.type == kernel::ScalarType::kI32
                  ? static_cast<double>(static_cast<int32_t>(count.immediate))
                  : static_cast<double>(static_cast<int64_t>(count.immediate));
    }
    total += std::max(trips, 0.0) *
             (0.3 + region_cost(f, analysis, static_cast<int32_t>(inst.immediate), lanes));
  }
  return total;
}

}  // namespace

Schedule make_schedule(const kernel::Kernel& kernel, const LaneAnalysis& analysis,
                       int vector_bits) {
  Schedule schedule;
  if (!kernel.grid.empty()) {
    schedule.row = kernel.grid.back();
    schedule.rows = kernel.points() / schedule.row;
  }
  constexpr int kLaneBits = 32;
  schedule.lanes = vector_bits / kLaneBits;
  while (schedule.lanes > schedule.row) schedule.lanes /= 2;

  // Units of about this size: long against the 0.1 us of handing one over, short against a launch.
  constexpr double kUnitNs = 4000;
  constexpr double kVectorOverheadNs = 0.5;
  constexpr double kRowOverheadNs = 5;
  const double vector_ns =
      kVectorOverheadNs + region_cost(kernel.body, analysis, 0, schedule.lanes);
  const double vectors = std::clamp(kUnitNs / vector_ns, 1.0, 1e12);
  int64_t chunk = static_cast<int64_t>(vectors) * schedule.lanes;
  if (chunk >= schedule.row) chunk = schedule.row;
  // Equal chunks, the last one not shorter than the others.
  schedule.chunks = std::max<int64_t>(1, schedule.row / chunk);
  if (schedule.chunks == 1) chunk = schedule.row;
  schedule.chunk = chunk;
  schedule.unit_ns =
      kRowOverheadNs + vector_ns * static_cast<double>(chunk) / static_cast<double>(schedule.lanes);
  return schedule;
}

}  // namespace hekla::cpu
