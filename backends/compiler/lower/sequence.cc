// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/sequence.h"

#include "backends/compiler/lower/attention.h"
#include "backends/compiler/lower/scores.h"

namespace hekla::lower {

using ir::OpCode;

Result<LoweredSequence> lower_sequence(const std::vector<const ir::Value*>& outputs,
                                       const std::function<bool(const ir::Value&)>& in_memory,
                                       const LowerOptions& options) {
  if (auto scores = lower_scores(outputs, in_memory, options)) return *std::move(scores);
  if (const ir::Operation* op = outputs.front()->defining_op()) {
    switch (op->code()) {
      case OpCode::kFft:
        return lower_fft(*op, outputs, in_memory, options);
      case OpCode::kReduce:
        if (is_staged_reduce(*op, options)) return lower_reduce(outputs, in_memory, options);
        break;
      case OpCode::kReduceWindow:
        if (is_cumulative(*op, options)) return lower_scan(*op, outputs, in_memory, options);
        break;
      case OpCode::kRngBitGenerator:
        return lower_random(*op, outputs, in_memory, options);
      case OpCode::kScatter:
        if (is_sequence_of_scatter(*op, options))
          return lower_scatter(*op, outputs, in_memory, options);
        break;
      case OpCode::kSort:
        return lower_sort(*op, outputs, in_memory, options);
      default:
        break;
    }
  }
  if (auto attention = lower_attention(outputs, in_memory, options)) return *std::move(attention);
  if (auto rows = lower_rows(outputs, in_memory, options)) return *std::move(rows);
  LoweredSequence sequence;
  HEKLA_ASSIGN_OR_RETURN(LoweredKernel single, lower_kernel(outputs, in_memory, options));
  sequence.kernels.push_back(std::move(single));
  return sequence;
}

}  // namespace hekla::lower
