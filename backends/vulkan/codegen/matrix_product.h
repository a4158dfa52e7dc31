// SPDX-License-Identifier: Apache-2.0
// A contraction as a compute shader on matrix units (VK_KHR_cooperative_matrix at subgroup scope).
//
// Called as generate.h says, with three operands: lhs, rhs and out. Sums of floats are in f32, in
// the device's order within a matrix product and from 0 on between them; integers wrap. It wants
// subgroups of Target::matrix_subgroup_size lanes, all of them there. Pure; any thread.
#pragma once

#include "backends/compiler/kernel/contraction.h"
#include "backends/vulkan/codegen/generate.h"

namespace hekla::vulkan {

// UNIMPLEMENTED, in words: the device has no matrix units for the operands' types, or its
// Target::matrix_tile does not fit them.
Result<Shader> generate_product(const kernel::Contraction& contraction, const Target& target);

}  // namespace hekla::vulkan
