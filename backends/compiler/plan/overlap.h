// SPDX-License-Identifier: Apache-2.0
// Overlap: what runs while a collective is under way.
//
// A collective starts as soon as what it reads is there and is awaited where somebody asks for what
// it gives, within its list of steps; what stands in between runs beside it. Nothing else changes
// its place. Where all devices of a launch run one plan, the order of the starts is the same on all
// of them, though not the program's; where they may not, it stays the program's. Pure.
#pragma once

#include "backends/compiler/plan/launch_plan.h"

namespace hekla::plan {

// Numbers the starts, and their dones, which stand right behind them.
void number_collectives(LaunchPlan& plan);

// Moves starts up, past each other only without `keeps_order`, and dones down. Run after it and
// before memory is assigned: slices of the arena are buffers of their own.
void overlap_collectives(LaunchPlan& plan, bool keeps_order);

}  // namespace hekla::plan
