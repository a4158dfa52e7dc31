// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string_view>

#include "backends/compiler/kernel/interpreter.h"
#include "backends/vulkan/codegen/matrix_layout.h"
#include "backends/vulkan/snapshot/snapshot.h"

namespace hekla::vulkan {
namespace {

constexpr size_t kF32 = 1;  // places in FloatControls
constexpr size_t kF64 = 2;
// VkDriverId
constexpr uint32_t kNvidiaProprietary = 4;
constexpr uint32_t kGoogleSwiftShader = 10;

// 22 of "Mesa 22.3.6 (LLVM 15.0.6)"; 0 when it is not Mesa.
int mesa_major(std::string_view driver_info) {
  constexpr std::string_view kPrefix = "Mesa ";
  if (!driver_info.starts_with(kPrefix)) return 0;
  return std::atoi(std::string(driver_info.substr(kPrefix.size())).c_str());
}

DType dtype_of(std::string_view component) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kI8, DType::kUI8, DType::kF32,
                            DType::kI32, DType::kUI32}) {
    if (component == dtype_name(dtype)) return dtype;
  }
  return DType::kInvalid;
}

// Of each type of operands the shape with most products.
std::vector<MatrixShape> matrix_shapes(const DeviceSnapshot& s) {
  const Features& f = s.features;
  const bool has_all = f.cooperative_matrix && f.vulkan_memory_model && f.subgroup_size_control &&
                       f.compute_full_subgroups && f.i64;
  if (!has_all) return {};
  std::vector<MatrixShape> shapes;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kI8, DType::kUI8}) {
    const bool is_served = dtype == DType::kBF16
                               ? f.bf16 && f.bf16_cooperative_matrix && f.storage_16
                           : dtype == DType::kF16 ? f.f16 && f.storage_16
                                                  : f.i8 && f.storage_8;
    MatrixShape best;
    const auto size = [](const MatrixShape& x) {
      return std::pair(uint64_t{x.rows} * x.columns, x.depth);
    };
    for (const CooperativeMatrixShape& x : s.cooperative_matrices) {
      const DType sums = dtype_of(x.c);
      const bool fits =
          is_float(dtype) ? sums == DType::kF32 : sums == DType::kI32 || sums == DType::kUI32;
      if (!is_served || !fits || dtype_of(x.a) != dtype || x.a != x.b || x.c != x.result ||
          x.is_saturating) {
        continue;
      }
      const MatrixShape shape{dtype, sums, x.m, x.n, x.k};
      if (size(shape) > size(best)) best = shape;
    }
    if (best.rows > 0) shapes.push_back(best);
  }
  return shapes;
}

// Lanes of the subgroups that kernels with matrices ask for. Vulkan does not say which size is
// best, or, where a device has several, which ones there are matrices for.
uint32_t matrix_lanes(const DeviceSnapshot& s, const std::vector<MatrixShape>& shapes) {
  // AMD's matrix instructions are of 32 lanes.
  constexpr uint32_t kLanes = 32;
  constexpr uint32_t kIntel = 0x8086;
  // Intel's (DPAS) of as many as a matrix has columns: 8 on DG2, 16 since Xe2. Not tried on either.
  return s.vendor_id == kIntel && !shapes.empty() ? shapes.front().columns : kLanes;
}

}  // namespace

Target make_target(const DeviceSnapshot& s) {
  Target t;
  t.device = s.name;
  t.is_cpu = s.type == DeviceType::kCpu;
  const bool is_swiftshader = s.driver_id == kGoogleSwiftShader;
  t.casts_pointers = !is_swiftshader;
  t.exact_unsigned_to_float = !is_swiftshader;
  t.max_module_bytes = is_swiftshader ? 400'000 : 0;
  t.int64 = s.features.i64 && t.casts_pointers;
  t.float64 = s.features.f64 && t.casts_pointers;
  t.storage_8 = s.features.storage_8 && t.casts_pointers;
  t.storage_16 = s.features.storage_16 && t.casts_pointers;
  // llvmpipe computes with the CPU's IEEE instructions; the tests of this folder hold it to that.
  const bool is_llvmpipe = s.driver_name == "llvmpipe";
  const int mesa = mesa_major(s.driver_info);
  const bool is_nvidia = s.driver_id == kNvidiaProprietary;
  for (const size_t width : {kF32, kF64}) {
    FloatTarget& f = width == kF32 ? t.f32 : t.f64;
    f.signed_zero_inf_nan_preserve = s.float_controls.signed_zero_inf_nan_preserve[width];
    f.denorm_preserve = s.float_controls.denorm_preserve[width];
    f.rounding_rte = s.float_controls.rounding_rte[width];
    f.fused_multiply_add = (is_nvidia && width == kF32) || (is_llvmpipe && mesa >= 25);
    f.split_multiply_add = is_swiftshader || (is_llvmpipe && mesa < 25);
    f.exact_division = f.exact_square_root = is_llvmpipe;
    // Of f32 one instruction everywhere. Drivers compose those of f64, llvmpipe's trunc among them,
    // which loses the sign of a zero.
    f.exact_rounding = width == kF32;
  }
  t.splits_store_chains = is_llvmpipe && mesa > 0 && mesa < 25;
  t.folds_zeros = is_llvmpipe;
  t.masks_bits_wrongly = is_llvmpipe;
  t.packs_halves_wrongly = is_nvidia;
  t.execution_barriers_suffice = is_nvidia || is_llvmpipe;
  t.max_loop_iterations = is_llvmpipe ? 65'535 : 0;
  t.max_allocation_bytes = s.limits.promised_allocation_bytes();
  t.max_buffer_bytes = s.limits.largest_buffer_bytes();
  t.subgroup_size = s.subgroup.size == 0 ? 1 : s.subgroup.size;
  const auto& kinds = s.subgroup.operations;
  t.subgroup_shuffle = t.subgroup_size > 1 && s.subgroup.min_size == s.subgroup.max_size &&
                       std::count(kinds.begin(), kinds.end(), "shuffle") > 0 &&
                       std::count(kinds.begin(), kinds.end(), "vote") > 0;
  t.max_workgroup_invocations = s.limits.max_workgroup_invocations;
  t.max_workgroup_size_x = s.limits.max_workgroup_size[0];
  t.max_shared_memory_bytes = s.limits.max_shared_memory_bytes;
  if (t.casts_pointers) t.matrix_shapes = matrix_shapes(s);
  t.matrix_subgroup_size = std::clamp(matrix_lanes(s, t.matrix_shapes), s.subgroup.min_size,
                                      std::max(s.subgroup.min_size, s.subgroup.max_size));
  t.matrix_subgroup_shuffle = !t.matrix_shapes.empty() && t.matrix_subgroup_size > 1 &&
                              std::count(kinds.begin(), kinds.end(), "shuffle") > 0 &&
                              std::count(kinds.begin(), kinds.end(), "vote") > 0;
  std::erase_if(t.matrix_shapes,
                [&](const MatrixShape& shape) { return codegen::matrix_tiles(shape, t).empty(); });
  return t;
}

const MatrixShape* matrix_shape(const Target& target, DType operands) {
  for (const MatrixShape& shape : target.matrix_shapes) {
    if (shape.operands == operands) return &shape;
  }
  return nullptr;
}

bool has_pieces(const Target& target, DType type) {
  const MatrixShape* shape = is_float(type) ? matrix_shape(target, type) : nullptr;
  return shape != nullptr && !codegen::matrix_tiles(*shape, target, {type, 9}).empty();
}

kernel::FmaRounding fma_rounding(const Target& target) {
  const auto of = [](const FloatTarget& f) {
    return f.split_multiply_add ? kernel::Fma::kSplit : kernel::Fma::kFused;
  };
  const bool is_emulated = !target.int64 || !target.float64;  // kernel/math/emulate.h
  return {of(target.f32), is_emulated ? kernel::Fma::kSplit : of(target.f64)};
}

int64_t team_points(const Target& t) {
  constexpr uint32_t kMost = 256;
  // Two arrays of each type of values.
  constexpr uint32_t kBytes = 2 * (4 + 4 + 8 + 8);
  const uint32_t most = std::min({kMost, t.max_workgroup_invocations, t.max_workgroup_size_x,
                                  t.max_shared_memory_bytes / kBytes});
  return std::bit_floor(std::max(most, 1U));
}

int64_t team_words(const Target& t) { return t.max_shared_memory_bytes / 4; }

// llvmpipe before Mesa 25, which alone splits chains, keeps subnormal numbers without saying so
// (measured: 22.3). That of 26.2 and SwiftShader take them for zero.
bool keeps_f32_subnormals(const Target& target) {
  return target.splits_store_chains || target.f32.denorm_preserve;
}

bool keeps_f64_subnormals(const Target& target) {
  return target.splits_store_chains || target.f64.denorm_preserve || !target.float64;
}

std::string subnormals_as_zero(const Target& target) {
  const bool f32 = !keeps_f32_subnormals(target), f64 = !keeps_f64_subnormals(target);
  return std::string(f32 ? "f32" : "") + (f32 && f64 ? "," : "") + (f64 ? "f64" : "");
}

}  // namespace hekla::vulkan
