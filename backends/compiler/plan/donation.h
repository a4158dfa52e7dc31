// SPDX-License-Identifier: Apache-2.0
// choose_donations: which outputs may take the memory of donated inputs. Pure.
#pragma once

#include "backends/compiler/plan/launch_plan.h"
#include "runtime/program/ir/ir.h"

namespace hekla::plan {

// Fills LaunchPlan::output_input from the entry function's argument attributes: tf.aliasing_output
// names the output, jax.buffer_donor lets any output of as many bytes have the memory. An output
// takes an input only if no step reads the input once one has written the output; a kernel that
// updates it in place, and the copy of the one to the other, may do both. The last step of making a
// plan.
void choose_donations(const ir::Function& entry, LaunchPlan& plan);

}  // namespace hekla::plan
