// SPDX-License-Identifier: Apache-2.0
// random_program: well-typed StableHLO programs made at random.
//
// Programs of several operations that feed each other, of odd shapes (zero sizes and rank 0 among
// them) and all element types, with random attributes, regions, loops and branches. They verify.
// The same seed and options give the same program and inputs on every machine. Pure.
//
// What StableHLO leaves open does not occur, so that two right devices differ by rounding alone:
// the payload and sign of a NaN are not looked at (bitcasts and TOTALORDER see finite inputs only),
// sorts with ties are stable, and regions, loops and functions hold operations whose results are
// exact (docs/numerics.md), since an error in a loop may grow to any size.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/program/ir/ir.h"

namespace hekla::testing {

struct GenerateOptions {
  int ops = 9;                 // about; operands come on top
  int64_t max_elements = 400;  // of one array, about
  bool loops = false;          // mostly operations whose kernels have loops
  bool attention = false;      // an attention, and nothing else
  bool edits = false;          // a loop that changes parts of arrays, and nothing else
};

// Mostly many operations on small arrays, in every fifth program fewer on some 10^3 and in every
// twentieth a few on some 10^4 to 10^5 elements: sizes at which devices choose other schedules.
GenerateOptions mixed_sizes(uint64_t seed);

struct RandomProgram {
  std::shared_ptr<ir::Module> module;
  std::vector<HostArray> inputs;  // one per argument of the entry
};

RandomProgram random_program(uint64_t seed, const GenerateOptions& options = {});

}  // namespace hekla::testing
