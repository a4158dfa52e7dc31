// SPDX-License-Identifier: Apache-2.0
// Kernel: one device function over a grid, the unit that generators compile and plans launch.
//
// The body runs once for every point of the grid, in any order and in parallel; points share no
// memory that one of them writes; points of a team (Op::kShuffleXor) may exchange values. Grid
// dimensions are outermost first: the last one is the one whose neighbours should run together
// (vector lanes, invocations of a subgroup), since its loads and stores are mostly consecutive. A
// grid with a zero is never launched. Plain data.
#pragma once

#include <string>
#include <vector>

#include "backends/compiler/kernel/scalar.h"

namespace hekla::kernel {

// A buffer of a kernel. Its start is aligned to 16 bytes at least, and to 64 unless it is memory of
// the caller or a part of a value. Bytes beyond `bytes` are not the kernel's: they are neither read
// nor written.
struct KernelOperand {
  int64_t bytes = 0;
  bool is_read = false;
  bool is_written = false;
  // Each point reads only elements of it that the point itself writes, to an output with elements
  // of the same size and number: the output may be the same memory.
  bool is_pointwise = false;
};

struct Kernel {
  std::string name;  // for people: "add_multiply_reduce"; not unique
  std::vector<int64_t> grid;
  // Type of the body's parameters, the grid indices: kI32 when everything fits, kI64 otherwise.
  ScalarType index_type = ScalarType::kI32;
  std::vector<KernelOperand> operands;
  Function body;

  int64_t points() const;
};

// Canonical text of all but the name; equal text, equal code.
std::string to_string(const Kernel& kernel);

}  // namespace hekla::kernel
