// SPDX-License-Identifier: Apache-2.0
// Attention without its scores in memory (backends/compiler/lower/attention.h, scores.h) in random
// programs: it gives other bits than its operations do one by one, so it is held to a bound
// instead. Pure.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/compiler/lower/scores.h"
#include "runtime/base/host_array.h"
#include "runtime/program/ir/ir.h"

namespace hekla::testing {

// Those of the program's entry that a device with teams computes so.
std::vector<lower::Attention> attentions_of(const ir::Module& module);

// The program that returns the attention's result and nothing else; it has the same arguments.
std::unique_ptr<ir::Module> attention_alone(const ir::Module& module,
                                            const lower::Attention& attention);

// Empty when `got` is within rounding of what the operations gave one by one (`values`: of each
// value of the entry, the attention's own among them); otherwise element and values in words.
// Rows of sums that are not finite may be anything that is not finite.
std::string attention_difference(const lower::Attention& attention,
                                 const std::unordered_map<const ir::Value*, HostArray>& values,
                                 const HostArray& got);

// The scores that a device with teams makes again for gradients: those of the program's entry.
std::vector<lower::RecomputedScores> recomputed_scores_of(const ir::Module& module);

// The program that returns the products of these scores and nothing else, in their order.
std::unique_ptr<ir::Module> gradients_alone(const ir::Module& module,
                                            const lower::RecomputedScores& scores);

// The same as attention_difference of these products.
std::string gradient_difference(const lower::RecomputedScores& scores,
                                const std::unordered_map<const ir::Value*, HostArray>& values,
                                const std::vector<HostArray>& got);

}  // namespace hekla::testing
