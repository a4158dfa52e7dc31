// SPDX-License-Identifier: Apache-2.0
// Target: what the code generator knows about a device. Plain data, no handle; any thread.
//
// Made from a snapshot, with doubt on the safe side: a property that the Vulkan specification does
// not promise (correctly rounded division, say) is assumed only of drivers where it was measured.
// Tests and tuning override single fields.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"

namespace hekla::kernel {
struct FmaRounding;
}

namespace hekla::vulkan {

struct DeviceSnapshot;

// Arithmetic of one width.
struct FloatTarget {
  // Execution modes of VkPhysicalDeviceFloatControlsProperties.
  bool signed_zero_inf_nan_preserve = false;
  bool denorm_preserve = false;
  bool rounding_rte = false;
  // Vulkan allows 2.5 ULP for division and inherits the square root from 1 / inversesqrt; where
  // these are false the generator computes the correctly rounded result with integers.
  bool exact_division = false;
  bool exact_square_root = false;
  // GLSL.std.450 Fma is rounded once. Division can then be corrected in a few operations.
  bool fused_multiply_add = false;
  // It is a product and a sum, each rounded. Neither: not measured on this driver.
  bool split_multiply_add = false;
  // floor, ceil, trunc and roundEven; where false, done on bits.
  bool exact_rounding = false;
  bool operator==(const FloatTarget&) const = default;
};

// A product of cooperative matrices that a subgroup does at once: sums[rows, columns] += left[rows,
// depth] * right[depth, columns].
struct MatrixShape {
  DType operands = DType::kF16;
  DType sums = DType::kF32;
  uint32_t rows = 0, columns = 0, depth = 0;
  bool operator==(const MatrixShape&) const = default;
};

// How a product on matrix units is cut: what a workgroup does, and what one of its subgroups does;
// `depth` products of each sum go through shared memory at once, into one of `stages` places.
struct MatrixTile {
  uint32_t rows = 0, columns = 0, depth = 0;  // 0: chosen by the generator
  uint32_t subgroup_rows = 0, subgroup_columns = 0;
  uint32_t stages = 2;
  bool operator==(const MatrixTile&) const = default;
};

struct Target {
  std::string device;  // for messages
  bool is_cpu = false;
  bool int64 = false;
  bool float64 = false;
  bool storage_8 = false;
  bool storage_16 = false;
  FloatTarget f32;
  FloatTarget f64;
  // llvmpipe before Mesa 25 splits a chain of vector arithmetic that ends in a store into scalars;
  // a store under a condition that depends on the value does not let it.
  bool splits_store_chains = false;
  // llvmpipe takes x + 0 for x, x * 0 and 0 / x for 0 and x / 0 for anything at all, when it sees
  // the zero while it compiles; no decoration forbids it. llvmpipe 26 takes the larger bound for
  // what is between two of -|infinity - x|, when it sees the infinity. Both are hidden from it.
  bool folds_zeros = false;
  // LLVM makes one masked instruction of AVX-512 (VPTERNLOG) of c ? (a & m) | (b & ~m) : b, and
  // with the truth table of other operands when one of them comes from memory (llvm-project issue
  // 157929; measured: wrong with LLVM 22.1, and with 15 where b is computed and a comes from
  // memory by a shift, as in bf16 powers). Where one value of a selection is made by bits, the
  // other is hidden: it is then none of the operands.
  bool masks_bits_wrongly = false;
  // NVIDIA's compiler (580.159, measured on an H200): where one invocation makes both halves of a
  // word by selections of floats, as bf16 minima do, a NaN in one half spoils a number in the other
  // (0xffff for -1.9375 beside a NaN). Such columns do not lie side by side in an invocation.
  bool packs_halves_wrongly = false;
  // A control barrier without memory semantics keeps writes to shared memory behind the reads
  // before it, as it does on NVIDIA and llvmpipe; the memory model promises that of whole barriers
  // alone.
  bool execution_barriers_suffice = false;
  // SwiftShader ends the process when it compiles a cast of a pointer to one of another type.
  // Without casts operands are words of 32 bits alone: the other widths above are false.
  bool casts_pointers = true;
  // SwiftShader rounds f32 of unsigned integers from 2^31 on twice. Where false, they are halved
  // first, and the bit that goes is kept as the one that says which way to round.
  bool exact_unsigned_to_float = true;
  // SwiftShader compiles 367,464 bytes of straight code for ten seconds and ends the process over
  // 698,980. Longer modules are UNIMPLEMENTED; 0: no limit.
  int64_t max_module_bytes = 0;
  // llvmpipe ends every loop once an invocation has come to the ends of its loops' bodies 65,535
  // times in all, and goes on with what is behind it. 0: no limit.
  int64_t max_loop_iterations = 0;
  // The largest allocation that the driver promises, and the largest buffer; 0: no limit.
  int64_t max_allocation_bytes = 0;
  int64_t max_buffer_bytes = 0;
  uint32_t subgroup_size = 1;
  // Asked for on CPU devices, where a workgroup can be one subgroup.
  bool subgroup_shuffle = false;
  uint32_t max_workgroup_invocations = 128;
  uint32_t max_workgroup_size_x = 128;
  uint32_t max_shared_memory_bytes = 16384;
  // Operands above this many bytes are addressed with 64-bit arithmetic: drivers may compute the
  // offset of an access chain in 32 signed bits.
  int64_t max_narrow_bytes = 0x7fffffff;
  // Grids above this are numbered in 64 bits; the rest of 32 is for the points of the last group.
  int64_t max_narrow_points = int64_t{1} << 31;
  // Of each type of operands one at most; none where something else is missing that products on
  // matrix units stand on.
  std::vector<MatrixShape> matrix_shapes;
  uint32_t matrix_subgroup_size = 0;     // of their kernels, which ask for it
  bool matrix_subgroup_shuffle = false;  // those pass values to each other
  MatrixTile matrix_tile;
  // Schedule; 0: chosen by the generator.
  uint32_t workgroup_size = 0;
  uint32_t points_per_invocation = 0;
  // Not 0: schedules are drawn (drawn_schedule.h), others for each seed.
  uint64_t schedule_seed = 0;
  // Overrides of a tile; 0: chosen. Tests and measurements.
  uint32_t tile_columns = 0;
  uint32_t tile_rows = 0;
  bool operator==(const Target&) const = default;
};

// The snapshot's features are those that the device was opened with, which may be fewer than it
// has.
Target make_target(const DeviceSnapshot& snapshot);

// The shape for operands of this type; null: there is none.
const MatrixShape* matrix_shape(const Target& target, DType operands);
// Whether products of f32 can be formed of pieces of this type (kernel::Pieces), however many.
bool has_pieces(const Target& target, DType type);

// How the device rounds kFma, emulated or its own: what the host must do in kernels that the device
// cannot run.
kernel::FmaRounding fma_rounding(const Target& target);

// Points of a team (kernel::Exchange) that a workgroup of any device like this one has room for; 1:
// none.
int64_t team_points(const Target& target);
// Words of shared memory that a team may have.
int64_t team_words(const Target& target);

// Whether arithmetic keeps subnormal numbers of this width; where it does not, the device may take
// any of them for zero. Emulated f64 keeps them.
bool keeps_f32_subnormals(const Target& target);
bool keeps_f64_subnormals(const Target& target);
// The types whose subnormal numbers may be taken for zero: "", "f32", "f64" or "f32,f64".
std::string subnormals_as_zero(const Target& target);

}  // namespace hekla::vulkan
