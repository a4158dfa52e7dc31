// SPDX-License-Identifier: Apache-2.0
// Runs an expansion of backends/compiler/kernel/math over arrays, and makes inputs for it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backends/compiler/kernel/interpreter.h"
#include "backends/compiler/kernel/kernel.h"
#include "backends/compiler/kernel/math/element.h"
#include "runtime/base/host_array.h"

namespace hekla::kernel {

// Elements of the operands at one point to the result's; nullopt: no expansion.
using Expansion = std::function<std::optional<Element>(Builder&, const std::vector<Element>&)>;

// A kernel that loads an element of each operand, applies `expand` and stores an element of
// `result` into one operand more; nullopt when there is no expansion. Operands have one size.
std::optional<Kernel> make_kernel(DType result, const std::vector<HostArray>& operands,
                                  const Expansion& expand,
                                  ScalarType index_type = ScalarType::kI32);

// What that kernel computes, by the interpreter. Aborts when it is malformed.
std::optional<HostArray> run_expansion(DType result, const std::vector<HostArray>& operands,
                                       const Expansion& expand, Fma fma = Fma::kFused,
                                       ScalarType index_type = ScalarType::kI32);

// Every bit pattern up to 16 bits; for wider ones the edges and `random_count` random patterns, a
// part of them of moderate size.
HostArray interesting_values(DType dtype, int64_t random_count);
// Two arrays holding pairs: all of them up to 8 bits, edges with edges and random ones above.
std::pair<HostArray, HostArray> interesting_pairs(DType dtype, int64_t random_count);

// A function of an element or two of one dtype, at the edges and at random.
struct FunctionCase {
  std::string name;  // "stablehlo.tanh f16"
  DType dtype;
  std::vector<HostArray> operands;
  Expansion expand;
  Kernel kernel;  // from make_kernel
};
// Functions of all kinds for dtypes of all kinds: what a device is to compute with the bits of the
// scalar IR. Gives how many there are.
int for_each_function(const std::function<void(const FunctionCase&)>& check);

// The first few differences in words, empty when there are none. NaNs are all equal.
std::string differences(const HostArray& ours, const HostArray& wanted,
                        const std::vector<HostArray>& inputs);

}  // namespace hekla::kernel
