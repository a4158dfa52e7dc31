// SPDX-License-Identifier: Apache-2.0
// Attention as one kernel (backends/compiler/lower/attention.h) in random programs: it gives other
// bits than its operations do one by one, so it is held to a bound instead. Pure.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/compiler/lower/attention.h"
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

}  // namespace hekla::testing
