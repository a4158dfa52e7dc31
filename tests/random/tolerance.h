// SPDX-License-Identifier: Apache-2.0
// How far a device's result of one operation may lie from the evaluator's on the same operands.
//
// The rules are those of docs/numerics.md. Movement, integers, comparisons, conversions and basic
// arithmetic: the same bits, all NaNs being equal. Functions: their bound in units of the last
// place. Sums, products of matrices and convolutions: what rounding in any order may give, n units
// of the sum of the magnitudes for n terms, which the evaluator computes from the operands'
// absolute values: each kind of device has an order of its own. Transforms and factorisations: by
// size.
//
// A device that may take subnormal numbers for zero (subnormals.h) may also give, element by
// element, what the operation gives with zeros for them in its operands and in the results of the
// operations of its regions, zero for a result that is subnormal, and any of several operands that
// then compare equal. Terms of sums may be zero too, which widens their tolerance. Operations that
// only move elements keep subnormal numbers on every device.
//
// A device that multiplies f32 by pieces of a narrower type (kernel::Pieces) may leave out of each
// product what an algorithm of the operation allows, and what is too small for the type. Pure.
#pragma once

#include <string>
#include <vector>

#include "backends/compiler/passes/isolate.h"
#include "runtime/base/dtype.h"
#include "runtime/base/host_array.h"
#include "runtime/base/status.h"
#include "tests/random/subnormals.h"

namespace hekla::testing {

// Empty when `got` is a right result of the operation on `inputs` (those of `single`); otherwise
// result, element, values and tolerance in words. `is_cut`: the program runs in parts, so that sums
// in its loops and branches may be taken in any order, too. An error: the evaluator's.
Result<std::string> difference(const passes::SingleOperation& single,
                               const std::vector<HostArray>& inputs,
                               const std::vector<HostArray>& got, KeptSubnormals kept = {},
                               bool is_cut = false, DType pieces = DType::kF32);

// The first element whose bits differ, in words; empty when there is none. NaNs are equal.
std::string bit_difference(const HostArray& got, const HostArray& want);

}  // namespace hekla::testing
