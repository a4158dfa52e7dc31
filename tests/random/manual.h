// SPDX-License-Identifier: Apache-2.0
// Programs of one device as the body of a manual computation over one axis of a mesh, which leaves
// the other axes free: each partition along it runs the program on data of its own.
//
// Pure; any thread.
#pragma once

#include <memory>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/program/ir/ir.h"

namespace hekla::testing {

// The axis of the mesh; programs that have it are meant to run so, and cut nothing by it
// themselves.
inline constexpr const char* kManualAxis = "m";

// How many partitions that is; 1 where the module's mesh has no such axis.
int64_t manual_copies(const ir::Module& module);

// The program in a manual computation: each parameter and result has one more dimension in front,
// of manual_copies(module) elements, which that axis cuts. Shardings of parameters, results and
// values in between are as in `module`. Collectives among the copies stand behind some operations
// (manual_collectives.h) and change nothing. Parameters and results must be arrays of known shape.
std::unique_ptr<ir::Module> in_manual_computation(const ir::Module& module);

// Arrays of one shape along a new first dimension, and one of them again.
HostArray stacked(const std::vector<HostArray>& arrays);
HostArray nth_of(const HostArray& stack, size_t i);
// The elements in row-major order, each one place further, the last one first.
HostArray rotated(const HostArray& array);

}  // namespace hekla::testing
