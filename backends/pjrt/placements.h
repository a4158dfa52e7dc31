// SPDX-License-Identifier: Apache-2.0
// Placements: the kinds of memory and the layouts that a program asks for inside of itself.
//
// A client says where a value is to lie with custom calls annotate_device_placement, in which order
// with LayoutConstraint, which give their operand back; and the same of a result with attributes of
// the entry. Values within a launch lie where and how the plan puts them, in the device's memory;
// so the calls are taken out before the partitioner and the compiler see them, once the results
// that come from one have what it says. Pure.
#pragma once

#include "runtime/program/ir/ir.h"

namespace hekla::pjrt {

// A result of the entry without `mhlo.memory_kind` that comes from an annotation, or is an argument
// with a kind, gets that kind; one whose `mhlo.layout_mode` is "auto" that comes from a constraint
// its layout. Then none of both is left. The module is verified and has an entry.
void take_placements(ir::Module& module);

// Of one device's program, where they say nothing any more: clients cannot print them.
void erase_sharding_constraints(ir::Module& module);

// Whether some of it is to be computed by the host (JAX's compute_on("device_host")).
bool asks_for_host_compute(const ir::Module& module);

}  // namespace hekla::pjrt
