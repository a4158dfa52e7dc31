// SPDX-License-Identifier: Apache-2.0
// Devices that may take subnormal numbers for zero, as Vulkan permits without
// shaderDenormPreserveFloat32 or 64: what their results may then be.
//
// Narrow floats with f32's range of exponents (bf16, tf32) are computed in f32 and share its rule.
// f16 and narrower formats have no number, and no product or quotient of two, that is subnormal in
// f32. Pure.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/base/host_array.h"
#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::testing {

// Which floats keep their subnormal numbers in arithmetic.
struct KeptSubnormals {
  bool f32 = true;
  bool f64 = true;
  bool all() const { return f32 && f64; }
};

// From the attribute `subnormals_as_zero` of a device, "f32", "f64" or "f32,f64"; "" where it keeps
// all.
KeptSubnormals parse_kept_subnormals(std::string_view attribute);

// Numbers of this type with a smaller magnitude, but for zero, may be taken for zero; 0 when none
// may. `dtype` is the part of a complex type.
double zero_below(DType dtype, KeptSubnormals kept);

// Which zero a negative subnormal number becomes.
enum class ZeroSign { kOfTheNumber, kPositive };

// The array with zeros for such numbers.
HostArray with_zeros(HostArray array, KeptSubnormals kept, ZeroSign sign);

// The program with zeros for such numbers in the results of all operations in regions, and of those
// in functions other than the entry. What the entry's own operations take and give is the caller's.
Result<std::shared_ptr<ir::Module>> with_zeros(const ir::Module& module, KeptSubnormals kept,
                                               ZeroSign sign);

// Whether an operation moves its operands' elements and does no arithmetic with them: it keeps
// subnormal numbers on all devices.
bool only_moves(ir::OpCode code);

}  // namespace hekla::testing
