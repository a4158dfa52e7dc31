// SPDX-License-Identifier: Apache-2.0
// The forms in which every device shows a launch plan to people and programs. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/compiler/plan/launch_plan.h"

namespace hekla::plan {

// "plan", "kernels" and "implementations" as text, and as JSON where ":json" stands behind the
// name; nullopt: another form, which is the device's own affair. `implementations` gives the plan's
// decisions and behind them the device's, of each kernel and contraction; called where needed.
//
// JSON, all sizes and offsets in bytes:
//   plan             {arena_bytes, arenas: [bytes], constants: [bytes], inputs: [bytes],
//                    outputs: [{bytes, may_take_input}], steps: [step]}; arena_bytes: of all
//     step           {kind, text, reads: [slice], writes: [slice], lists: [[step]]}; `text` as in
//                    the text form; `lists` what the step runs: a loop's body, a while's condition
//                    and body, a branch's cases
//     slice          {space, index, offset, bytes}; space: input, output, arena, constant, launch
//   kernels          [{name, grid, operands: [{bytes, is_read, is_written}], code}], by number
//   implementations  [{step, implementations: [{name, is_taken, refusal}]}], in the order of asking
std::optional<std::string> artefact(std::string_view form, const LaunchPlan& plan,
                                    const std::function<std::vector<Decision>()>& implementations);

}  // namespace hekla::plan
