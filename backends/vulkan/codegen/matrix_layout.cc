// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/matrix_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace hekla::vulkan::codegen {
namespace {

using kernel::Contraction;

constexpr uint32_t kWordBytes = 4;
constexpr uint32_t kWideUnitWords = 4;
// A device is busy when each of its processors has about so many workgroups.
constexpr int64_t kFewTiles = 96;
// Matrix products of a subgroup and a block of the depth, which stand in the code one by one. In
// software each is a page of code, which takes long to compile.
constexpr uint32_t kMostProducts = 64;
constexpr uint32_t kMostProductsInSoftware = 8;
// By pieces, whose matrices are loaded for several products each.
constexpr uint32_t kMostPieceProducts = 128;
constexpr uint32_t kMostPieceProductsInSoftware = 16;

uint32_t unit_words(const MatrixShape& shape) {
  const auto bytes = static_cast<uint32_t>(dtype_bytes(shape.operands));
  const bool is_wide = shape.rows * bytes % 16 == 0 && shape.columns * bytes % 16 == 0 &&
                       shape.depth * bytes % 16 == 0;
  return is_wide ? kWideUnitWords : kWideUnitWords / 2;
}

// One unit more than the line has, or two: an odd number, so that lines begin in different banks.
uint32_t pitch_of(uint32_t units) { return units + 1 + units % 2; }

uint32_t stage_units(const MatrixTile& t, const MatrixShape& shape) {
  const auto bytes = static_cast<uint32_t>(dtype_bytes(shape.operands));
  const uint32_t unit = unit_words(shape) * kWordBytes / bytes;
  const auto side = [&](uint32_t across) {
    return std::max(across * pitch_of(t.depth / unit), t.depth * pitch_of(across / unit));
  };
  return side(t.rows) + side(t.columns);
}

uint32_t subgroups_of(const MatrixTile& t) {
  return (t.rows / t.subgroup_rows) * (t.columns / t.subgroup_columns);
}

uint32_t strip_units(const MatrixTile& t, const MatrixShape& shape) {
  const uint32_t words = unit_words(shape);
  return std::max(shape.rows * pitch_of(t.subgroup_columns / words),
                  shape.columns * pitch_of(t.subgroup_rows / words));
}

uint32_t shared_units(const MatrixTile& t, const MatrixShape& shape, const kernel::Pieces& pieces) {
  const auto count = static_cast<uint32_t>(pieces.count());
  return std::max(t.stages * count * stage_units(t, shape),
                  subgroups_of(t) * (count > 1 ? 2 : 1) * strip_units(t, shape));
}

MatrixAxes with_windows(const std::vector<Contraction::Axis>& axes, const Contraction& c,
                        int32_t Contraction::Window::*member) {
  MatrixAxes result;
  for (size_t i = 0; i < axes.size(); ++i) {
    MatrixAxis axis{axes[i].size, axes[i].lhs, axes[i].rhs, axes[i].out, -1};
    for (size_t w = 0; member != nullptr && w < c.windows.size(); ++w) {
      if (c.windows[w].*member == static_cast<int32_t>(i)) axis.window = static_cast<int>(w);
    }
    if (axis.size == 1 && axis.window < 0) continue;
    MatrixAxis* outer = result.empty() ? nullptr : &result.back();
    if (outer != nullptr && outer->window < 0 && axis.window < 0 &&
        outer->lhs == axis.lhs * axis.size && outer->rhs == axis.rhs * axis.size &&
        outer->out == axis.out * axis.size) {
      outer->size *= axis.size;
      outer->lhs = axis.lhs;
      outer->rhs = axis.rhs;
      outer->out = axis.out;
    } else {
      result.push_back(axis);
    }
  }
  return result;
}

int64_t stride(const MatrixAxis& axis, bool of_lhs) { return of_lhs ? axis.lhs : axis.rhs; }

// Whether the innermost axis lies along memory, through a window too.
bool is_contiguous(const MatrixLayout& l, const MatrixAxes& axes, bool of_lhs) {
  if (axes.empty()) return false;
  const MatrixAxis& axis = axes.back();
  if (axis.window < 0) return stride(axis, of_lhs) == 1;
  const Contraction::Window& w = l.contraction.windows[static_cast<size_t>(axis.window)];
  return of_lhs && w.base_dilation == 1 && w.lhs == 1 &&
         (&axes == &l.depth ? w.dilation : w.stride) == 1;
}

// Whether a unit of elements along the innermost of `along` is in the operand as a whole, at a
// multiple of its size.
bool has_whole_units(const MatrixLayout& l, const MatrixAxes& along, bool of_lhs) {
  const auto unit = static_cast<int64_t>(l.unit_elements);
  if (along.empty() || along.back().window >= 0 || stride(along.back(), of_lhs) != 1 ||
      along.back().size % unit != 0) {
    return false;
  }
  const Contraction& c = l.contraction;
  if ((of_lhs ? c.lhs_offset : c.rhs_offset) % unit != 0) return false;
  for (const MatrixAxes* axes : {&l.batch, of_lhs ? &l.rows : &l.columns, &l.depth}) {
    for (const MatrixAxis& axis : *axes) {
      if (&axis != &along.back() && stride(axis, of_lhs) % unit != 0) return false;
    }
  }
  return !of_lhs || std::all_of(c.windows.begin(), c.windows.end(),
                                [&](const auto& window) { return window.lhs % unit == 0; });
}

MatrixSide side(const MatrixLayout& l, bool is_lhs) {
  MatrixSide s;
  s.is_lhs = is_lhs;
  const MatrixAxes& across = is_lhs ? l.rows : l.columns;
  s.along_depth = has_whole_units(l, l.depth, is_lhs) ||
                  !(has_whole_units(l, across, is_lhs) ||
                    (is_contiguous(l, across, is_lhs) && !is_contiguous(l, l.depth, is_lhs)));
  s.is_vector = has_whole_units(l, s.along_depth ? l.depth : across, is_lhs);
  const uint32_t wide = is_lhs ? l.tile.rows : l.tile.columns;
  s.lines = s.along_depth ? wide : l.tile.depth;
  s.line_units = (s.along_depth ? l.tile.depth : wide) / l.unit_elements;
  s.pitch = pitch_of(s.line_units);
  return s;
}

// How many elements of the result may be stored at once along the innermost of `along`.
uint32_t store_elements(const MatrixLayout& l, const MatrixAxes& along) {
  const Contraction& c = l.contraction;
  const auto unit = static_cast<int64_t>(l.unit_words * kWordBytes) / dtype_bytes(c.out_dtype);
  if (along.empty() || along.back().out != 1 || along.back().size % unit != 0 ||
      c.out_offset % unit != 0) {
    return 1;
  }
  for (const MatrixAxes* axes : {&l.batch, &l.rows, &l.columns}) {
    for (const MatrixAxis& axis : *axes) {
      if (&axis != &along.back() && axis.out % unit != 0) return 1;
    }
  }
  return static_cast<uint32_t>(unit);
}

MatrixTile smallest_tile(const MatrixShape& shape, const kernel::Pieces& pieces) {
  const uint32_t depth = (pieces.count() == 1 ? 2 : 1) * shape.depth;
  return {2 * shape.rows, 2 * shape.columns, depth, shape.rows, shape.columns, 1};
}

// Those that sizes choose among, largest first.
std::vector<MatrixTile> chosen_tiles(const MatrixShape& shape, const Target& target,
                                     const kernel::Pieces& pieces) {
  const auto bytes = static_cast<uint32_t>(dtype_bytes(shape.operands));
  // 64 bytes of each line, and more of them: where there are few workgroups, loads are to be many.
  const uint32_t depth = std::max(64 / bytes, shape.depth), deep = 2 * depth, deepest = 4 * depth;
  // On NVIDIA's Hopper one place for blocks of the depth is faster than two, and deep blocks than
  // wide tiles.
  const MatrixTile table[] = {
      {128, 128, deep, 64, 32, 1},  {128, 128, depth, 64, 32, 1}, {128, 64, deep, 64, 32, 1},
      {64, 128, deep, 32, 64, 1},   {32, 128, deep, 16, 32, 1},   {128, 32, deep, 32, 16, 1},
      {64, 64, deep, 32, 32, 1},    {64, 64, depth, 32, 32, 1},   {32, 64, deepest, 16, 32, 1},
      {64, 32, deepest, 32, 16, 1}, {32, 32, deepest, 16, 16, 1}, {32, 32, depth, 16, 16, 2},
  };
  // Pieces take two or three times the shared memory, and two sums the registers.
  const MatrixTile table_of_pieces[] = {
      {128, 64, depth, 32, 32, 1}, {64, 128, depth, 32, 32, 1}, {64, 64, depth, 32, 32, 1},
      {32, 64, depth, 16, 32, 1},  {64, 32, depth, 32, 16, 1},  {32, 32, depth, 16, 16, 1},
  };
  std::vector<MatrixTile> tiles;
  const auto add = [&](const MatrixTile& tile) {
    if (why_no_matrix_tile(tile, shape, target, pieces).empty()) tiles.push_back(tile);
  };
  if (pieces.count() == 1) {
    for (const MatrixTile& tile : table) add(tile);
  } else {
    for (const MatrixTile& tile : table_of_pieces) add(tile);
  }
  if (tiles.empty() || tiles.back().subgroup_rows > shape.rows) {
    add(smallest_tile(shape, pieces));
  }
  return tiles;
}

MatrixTile choose_tile(const MatrixLayout& l, const Target& target) {
  if (target.matrix_tile.rows > 0) return target.matrix_tile;
  if (target.schedule_seed != 0) {
    const std::vector<MatrixTile> all = matrix_tiles(l.shape, target, l.contraction.pieces);
    if (all.empty()) return smallest_tile(l.shape, l.contraction.pieces);
    std::mt19937_64 random(target.schedule_seed);
    return all[random() % all.size()];
  }
  const std::vector<MatrixTile> tiles = chosen_tiles(l.shape, target, l.contraction.pieces);
  // matrix_layout says why it is none.
  if (tiles.empty()) return smallest_tile(l.shape, l.contraction.pieces);
  // The largest that leaves work for all processors, else the one that leaves most, the larger of
  // equals; none that is empty by half.
  const auto is_wasted = [](int64_t size, uint32_t part) {
    return part > 32 && size * 2 <= int64_t{part};
  };
  const MatrixTile* best = &tiles.back();
  int64_t most = 0;
  for (const MatrixTile& tile : tiles) {
    if (is_wasted(l.row_count, tile.rows) || is_wasted(l.column_count, tile.columns)) continue;
    if (tile.depth > l.depth_count && tile.depth > tiles.back().depth) continue;
    const auto count = [](int64_t size, uint32_t part) { return (size + part - 1) / part; };
    const int64_t groups =
        l.batch_count * count(l.row_count, tile.rows) * count(l.column_count, tile.columns);
    if (groups > most) best = &tile;
    most = std::max(most, groups);
    if (groups >= kFewTiles) break;
  }
  return *best;
}

}  // namespace

int64_t axes_size(const MatrixAxes& axes) {
  int64_t size = 1;
  for (const MatrixAxis& axis : axes) size *= axis.size;
  return size;
}

kernel::Refusal why_no_matrix_tile(const MatrixTile& t, const MatrixShape& shape,
                                   const Target& target, const kernel::Pieces& pieces) {
  const auto bytes = static_cast<uint32_t>(dtype_bytes(shape.operands));
  const uint32_t unit = unit_words(shape) * kWordBytes / bytes;
  const bool divides = t.subgroup_rows > 0 && t.subgroup_columns > 0 && t.depth > 0 &&
                       t.stages > 0 && t.stages <= 2 && t.subgroup_rows % shape.rows == 0 &&
                       t.subgroup_columns % shape.columns == 0 && t.rows % t.subgroup_rows == 0 &&
                       t.columns % t.subgroup_columns == 0 && t.depth % shape.depth == 0 &&
                       t.rows % unit == 0 && t.columns % unit == 0 && t.depth % unit == 0;
  const std::string name = fmt::format("{} x {} x {} in parts of {} x {}", t.rows, t.columns,
                                       t.depth, t.subgroup_rows, t.subgroup_columns);
  if (!divides) {
    return fmt::format("a tile of {} is none of {} x {} x {} matrices", name, shape.rows,
                       shape.columns, shape.depth);
  }
  const uint32_t products = (t.subgroup_rows / shape.rows) * (t.subgroup_columns / shape.columns) *
                            (t.depth / shape.depth) * static_cast<uint32_t>(pieces.products);
  const uint32_t most_products =
      pieces.count() == 1 ? (target.is_cpu ? kMostProductsInSoftware : kMostProducts)
                          : (target.is_cpu ? kMostPieceProductsInSoftware : kMostPieceProducts);
  if (products > most_products) {
    return fmt::format("a tile of {} has {} products of matrices a block, more than {}", name,
                       products, most_products);
  }
  const uint32_t lanes = subgroups_of(t) * target.matrix_subgroup_size;
  const uint32_t most = std::min(target.max_workgroup_invocations, target.max_workgroup_size_x);
  if (lanes > most) {
    return fmt::format("a tile of {} has {} invocations, more than {}", name, lanes, most);
  }
  const uint32_t shared = shared_units(t, shape, pieces) * unit_words(shape) * kWordBytes;
  if (shared > target.max_shared_memory_bytes) {
    return fmt::format("a tile of {} takes {} bytes of shared memory, more than {}", name, shared,
                       target.max_shared_memory_bytes);
  }
  return {};
}

std::vector<MatrixTile> matrix_tiles(const MatrixShape& shape, const Target& target,
                                     const kernel::Pieces& pieces) {
  std::vector<MatrixTile> tiles = chosen_tiles(shape, target, pieces);
  const uint32_t r = shape.rows, c = shape.columns, d = shape.depth;
  for (const MatrixTile& tile :
       {MatrixTile{8 * r, 16 * c, 2 * d, 4 * r, 4 * c, 1}, MatrixTile{4 * r, 2 * c, d, 2 * r, c, 2},
        MatrixTile{2 * r, 4 * c, 2 * d, r, 2 * c, 1}, MatrixTile{r, 3 * c, d, r, c, 1}}) {
    if (why_no_matrix_tile(tile, shape, target, pieces).empty()) tiles.push_back(tile);
  }
  return tiles;
}

Result<MatrixLayout> matrix_layout(const Contraction& c, const Target& target) {
  const bool has_pieces = c.pieces.products > 1;
  const MatrixShape* shape = matrix_shape(target, has_pieces ? c.pieces.type : c.lhs_dtype);
  if (shape == nullptr || c.rhs_dtype != c.lhs_dtype || c.chains != 1 ||
      (has_pieces && c.lhs_dtype != DType::kF32)) {
    return unimplemented("{} has no matrix units for contraction {}", target.device,
                         kernel::to_string(c));
  }
  MatrixLayout l;
  l.contraction = c;
  l.shape = *shape;
  l.unit_words = unit_words(*shape);
  l.unit_elements = l.unit_words * kWordBytes / static_cast<uint32_t>(dtype_bytes(shape->operands));
  l.operand_units = static_cast<uint32_t>(dtype_bytes(c.lhs_dtype) / dtype_bytes(shape->operands));
  l.batch = with_windows(c.batch, c, nullptr);
  l.rows = with_windows(c.rows, c, &Contraction::Window::row);
  l.columns = with_windows(c.columns, c, nullptr);
  l.depth = with_windows(c.depth, c, &Contraction::Window::depth);
  l.batch_count = axes_size(l.batch);
  l.row_count = axes_size(l.rows);
  l.column_count = axes_size(l.columns);
  l.depth_count = axes_size(l.depth);
  l.tile = choose_tile(l, target);
  if (const kernel::Refusal why = why_no_matrix_tile(l.tile, l.shape, target, c.pieces);
      !why.empty()) {
    return unimplemented("contraction {}: {}", kernel::to_string(c), why);
  }
  const auto tiles = [](int64_t size, uint32_t part) { return (size + part - 1) / part; };
  l.row_tiles = tiles(l.row_count, l.tile.rows);
  l.column_tiles = tiles(l.column_count, l.tile.columns);
  l.lhs = side(l, true);
  l.rhs = side(l, false);
  l.stores_rows =
      !l.rows.empty() && l.rows.back().out == 1 && (l.columns.empty() || l.columns.back().out != 1);
  l.strip_pitch =
      pitch_of((l.stores_rows ? l.tile.subgroup_rows : l.tile.subgroup_columns) / l.unit_words);
  l.strip_units = l.strip_pitch * (l.stores_rows ? l.shape.columns : l.shape.rows);
  l.store_elements = store_elements(l, l.stores_rows ? l.rows : l.columns);
  l.subgroups = subgroups_of(l.tile);
  l.workgroup_size = l.subgroups * target.matrix_subgroup_size;
  l.shared_units = std::max(l.tile.stages * l.pieces() * l.piece_units(),
                            l.subgroups * l.sums() * l.strip_units);
  return l;
}

}  // namespace hekla::vulkan::codegen
