// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/plan_options.h"

#include <algorithm>

namespace hekla::plan {

lower::LowerOptions lower_options(const PlanOptions& plan, const DeviceTraits& traits) {
  lower::LowerOptions options;
  options.scatters_in_order = plan.fuse && traits.scatters_in_order;
  options.has_transforms = plan.fuse && traits.has_transforms;
  // An iteration and whether an update is inside end the bodies of loops three times, and each
  // fourth iteration once more (backends/vulkan/codegen/schedule_rules.cc).
  constexpr int64_t kEnds = 5;
  if (traits.max_loop_iterations > 0) {
    options.most_updates_at_once = std::max<int64_t>(traits.max_loop_iterations / kEnds, 1);
  }
  const bool has_trees = plan.tree_reductions == TreeReductions::kDevice
                             ? traits.reduces_by_trees
                             : plan.tree_reductions == TreeReductions::kWherePossible;
  options.team_points = has_trees ? traits.team_points : 1;
  options.team_words = options.team_points > 1 ? traits.team_words : 0;
  using Form = lower::LowerOptions::AttentionForm;
  options.attention_always =
      plan.attention != FusedAttention::kNone && plan.attention != FusedAttention::kDevice;
  if (plan.attention == FusedAttention::kTiles) options.attention_form = Form::kTiles;
  if (plan.attention == FusedAttention::kKeys) options.attention_form = Form::kKeys;
  if (plan.attention == FusedAttention::kMatrix) options.attention_form = Form::kMatrix;
  options.attention_subgroups = plan.attention_tile.subgroups;
  options.attention_keys = plan.attention_tile.keys;
  options.attention_width = plan.attention_tile.width;
  options.matrix_units = traits.matrix_units;
  if (options.attention_always ||
      (plan.attention == FusedAttention::kDevice && traits.fuses_attention)) {
    options.attention_points = traits.team_points;
    options.attention_words = traits.team_words;
  }
  options.matrix_types = traits.matrix_types;
  const DType pieces = plan.matrix_pieces == MatrixPieces::kF16 ? DType::kF16 : DType::kBF16;
  if (plan.matrix_pieces != MatrixPieces::kNone &&
      std::ranges::count(traits.piece_types, pieces) > 0) {
    // An H100 computes 189 TFLOP/s of bf16 and 34 of f32 by our kernels: six products are no gain.
    constexpr int32_t kMostThatPay = 4, kMost = 9;
    options.piece_type = pieces;
    options.most_piece_products =
        plan.matrix_pieces == MatrixPieces::kWherePays ? kMostThatPay : kMost;
  }
  options.small_limits = plan.small_limits;
  return options;
}

passes::WindowLimits window_limits(const PlanOptions& plan, const DeviceTraits& traits) {
  passes::WindowLimits limits;
  // A processor selects among 256 elements in the time of one more kernel. What it does to a
  // quarter of an array, reading, changing and writing it, takes less than one pass over all.
  if (traits.starts_kernels_quickly) {
    limits.least_updated = 256;
    limits.little = 4;
  }
  if (plan.small_limits) limits.least_updated = 64;
  return limits;
}

int64_t max_arena_bytes(const PlanOptions& options, const DeviceTraits& traits) {
  if (options.arena_limit_bytes <= 0) return traits.max_arena_bytes;
  if (traits.max_arena_bytes <= 0) return options.arena_limit_bytes;
  return std::min(options.arena_limit_bytes, traits.max_arena_bytes);
}

}  // namespace hekla::plan
