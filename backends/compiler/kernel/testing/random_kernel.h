// SPDX-License-Identifier: Apache-2.0
// Kernels for tests of code generators: random ones, and every op of the scalar IR at edge values.
//
// A generator's test runs `kernel` on its device over a copy of `contents`, runs `interpret` over
// another copy, and gives both to `difference`. All kernels are well-typed and stay within what
// scalar.h defines: divisors are not 0, shift counts are below the width, floats that become
// integers fit, no access leaves its operand. The same seed gives the same kernel on every machine.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/compiler/kernel/kernel.h"

namespace hekla::kernel::testing {

// What an operand's memory holds, so that differences can be shown and NaNs be told.
struct Element {
  ScalarType type = ScalarType::kI32;  // kI32 for 1 and 2 bytes
  uint8_t bytes = 4;
};

using Buffers = std::vector<std::vector<std::byte>>;

struct TestKernel {
  Kernel kernel;
  std::vector<Element> elements;    // one per operand
  std::vector<std::string> labels;  // one per operand, for messages: "input", "f32 div"
  Buffers contents;                 // before the launch; outputs start as a pattern of bytes
};

struct RandomOptions {
  // Which types occur beside bool, i32 and f32.
  bool i64 = true;
  bool f64 = true;
  // Memory of 1 and 2 bytes: loads, and stores.
  bool narrow_loads = true;
  bool narrow_stores = true;
  // kFma, whose result a device may round twice.
  bool fma = false;
  bool division_and_square_root = true;
  // Points exchange values along a dimension of 2 to 64 points.
  bool teams = false;
  int ops = 40;          // about; address arithmetic comes on top
  int max_points = 400;  // of the grid
};

// Elementwise, broadcast and gather loads, loads along loops and at what loops carry, all ops and
// conversions, counted loops with constant and loaded trip counts, operands updated in place, grids
// of rank 0 to 4 with odd sizes and powers of two.
TestKernel random_kernel(uint64_t seed, const RandomOptions& options = {});

// One op on given types.
struct OpCase {
  Op op = Op::kAdd;
  ScalarType type = ScalarType::kI32;  // of the result
  ScalarType from = ScalarType::kI32;  // of the argument (of a select: of what is chosen)
};
std::string to_string(const OpCase& op_case);  // "f32 div", "i32 from f64 float_to_s"

// Every op but constants, parameters, memory and loops, on all its types.
std::vector<OpCase> all_op_cases();

// Zeros, ones, extremes, powers of two and their neighbours; of floats also infinities, NaNs with
// payloads, denormals, halves and numbers that round in every direction.
std::vector<uint64_t> edge_values(ScalarType type);

// A kernel that applies each case to every pair of edge values and to random ones, with one output
// operand per case, which is labelled with its name. All cases have the same `from`. Arguments
// outside of an op's domain are replaced by ones inside.
TestKernel op_kernel(const std::vector<OpCase>& cases, uint64_t seed = 1);

// The first element that differs in an operand that the kernel writes, in words; empty when there
// is none. Two NaNs are equal, whatever their bits, in operands of floats.
std::string difference(const TestKernel& test, const Buffers& expected, const Buffers& actual);

std::vector<std::span<std::byte>> spans(Buffers& buffers);

}  // namespace hekla::kernel::testing
