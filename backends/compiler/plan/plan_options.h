// SPDX-License-Identifier: Apache-2.0
// PlanOptions: what users and tests choose of a plan, beside what a device is (device_traits.h).
// Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/compiler/lower/lower.h"
#include "backends/compiler/passes/passes.h"
#include "backends/compiler/plan/device_traits.h"
#include "backends/compiler/plan/row_groups.h"

namespace hekla::plan {

// Transpositions that several kernels, or several places of one, would each read across their
// lines: stored once instead. kWherePays: large ones.
enum class StoredTransposes : uint8_t { kNone, kWherePays, kAll };

// Whether reductions, scans and sorts are done by teams of points, which gives sums other bits.
enum class TreeReductions : uint8_t {
  kNone,           // in the order of the elements
  kDevice,         // as the device's traits say
  kWherePossible,  // on devices with teams
};

// Whether attention is one kernel that keeps no scores in memory, which gives sums other bits.
enum class FusedAttention : uint8_t {
  kNone,
  kDevice,         // as the device's traits say, where it pays
  kWherePossible,  // on devices with teams, however small
  kTiles,          // the same, a team for a block of rows
  kKeys,           // the same, a team for a part of the keys
  kMatrix,         // the same, a team for a block of rows by matrix units, where they can
};

// Whether contractions of f32 whose algorithm allows it go by matrix units in pieces
// (kernel::Pieces), which gives products and sums other bits. No device has run them on units of
// bf16 yet, so none does unless it is asked.
enum class MatrixPieces : uint8_t {
  kNone,
  kWherePays,  // four products at most
  kAlways,
  kF16,  // by pieces of f16, which has not f32's range: for tests on devices without bf16
};

// Whether a loop of small kernels is one kernel that a single workgroup runs to its end, on devices
// that are sent their kernels one by one (Vulkan).
enum class PersistentLoops : uint8_t { kNone, kWherePays, kWherePossible };

// Switches for tests and for the search of a wrong result; none but tree_reductions,
// attention, matrix_pieces and small_limits changes a bit of any result.
struct PlanOptions {
  // Off: every operation is a kernel of its own, but constants and iotas, and no ContractionStep
  // or TransformStep.
  bool fuse = true;
  // Off: every value has bytes of its own in an arena, and nothing is updated in place.
  bool reuse_memory = true;
  // Not 0: an arena has at most as many bytes, or one value, where the device allows more.
  int64_t arena_limit_bytes = 0;
  // Which row groups there are (row_groups.h), where the device gains by them.
  RowGroups row_groups = RowGroups::kWherePays;
  // Which transpositions are stored once.
  StoredTransposes stored_transposes = StoredTransposes::kWherePays;
  TreeReductions tree_reductions = TreeReductions::kDevice;
  FusedAttention attention = FusedAttention::kDevice;
  // What a team has where matrix units compute attention: subgroups, each with a row of matrices,
  // keys at once, and elements of each row of the result. 0: by size.
  struct AttentionTile {
    int64_t subgroups = 0, keys = 0, width = 0;
  } attention_tile;
  MatrixPieces matrix_pieces = MatrixPieces::kNone;
  // The back end's: the plan has the steps of all loops.
  PersistentLoops persistent_loops = PersistentLoops::kWherePays;
  // Off: collectives stand where the program has them, and nothing runs beside them.
  bool overlap_collectives = true;
  // Collectives start in the order of the program: where other devices may run other programs.
  bool keeps_collective_order = false;
  // Scalar instructions of a kernel that computes several operations; a longer one is cut into
  // several kernels, with the same bits.
  size_t max_instructions = 20'000;
  // See lower::LowerOptions; other bits.
  bool small_limits = false;
};

// How operations become kernels on a device of these traits.
lower::LowerOptions lower_options(const PlanOptions& options, const DeviceTraits& traits);

// Which windows of arrays are written in place on a device of these traits.
passes::WindowLimits window_limits(const PlanOptions& options, const DeviceTraits& traits);

// Bytes of an arena, 0: no limit.
int64_t max_arena_bytes(const PlanOptions& options, const DeviceTraits& traits);

}  // namespace hekla::plan
