// SPDX-License-Identifier: Apache-2.0
// Collectives of a program that all its devices run, made fewer: equal ones are one, those of a
// loop that give the same each time run in front of it, and small ones of a kind, group and type
// become one with several operands. The partitioner's own and those that users wrote alike.
//
// What each gives has the same bits. All devices have this program, so the order in which they come
// to its collectives stays the same on all of them, though not the one that it was; where devices
// run programs of their own, nothing of this may be done. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "backends/compiler/spmd/partition_schedule.h"
#include "runtime/program/ir/ir.h"

namespace hekla::spmd {

// In the order in which they help each other, with clean_up in between. Collectives in other
// operations' regions than loops and branches (async_start's) stay as they are.
void arrange_collectives(ir::Module& module, const PartitionSchedule& schedule,
                         PartitionCounts& counts);

// Each of them gives how many collectives it did away with, or moved.

// A collective of the same operands and groups as one in front of it, in its block or around.
int64_t merge_collectives(ir::Module& module);
// Out of loops: a collective whose operands come from outside, from what a loop carries unchanged,
// or from pure operations on such, which go with it. It then runs also where the loop does not.
// Results of at most `most_bytes` in all, of each loop, since they stay in memory as long as it
// runs; those of the pure operations count where the loop goes on asking for them.
int64_t hoist_collectives(ir::Module& module, int64_t most_bytes);
// all_reduces and all_gathers between which nobody asks for any of them, of `most_bytes` operands
// in all. They stand where the first is asked for, but never behind a loop or what has side
// effects. What is made of them has the locations of all.
int64_t combine_collectives(ir::Module& module, int64_t most_bytes);

}  // namespace hekla::spmd
