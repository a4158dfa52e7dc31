// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/sharding/tiles.h"

#include <algorithm>

#include "runtime/checkpoint/sharding/box.h"

namespace hekla::checkpoint {
namespace {

bool cuts_minor_dimension(const Dims& shape, const HeldBoxes& boxes) {
  size_t first = 0;
  while (first < shape.size() && shape[first] == 1) ++first;
  for (const HeldBox& held : boxes) {
    for (size_t d = first + 1; d < shape.size(); ++d) {
      if (held.box.size[d] != shape[d]) return true;
    }
  }
  return false;
}

}  // namespace

bool matches(std::string_view name, std::string_view pattern) {
  size_t n = 0;
  size_t p = 0;
  // Where to go on when the last star has to take one character more.
  size_t star = std::string_view::npos;
  size_t star_name = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_name = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++n;
      ++p;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++star_name;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Dims choose_tile(const TensorInfo& info, const HeldBoxes& boxes, const SaveOptions& options) {
  const size_t rank = info.shape.size();
  for (const TileHint& hint : options.tile_hints) {
    if (!matches(info.name, hint.pattern)) continue;
    Dims tile = hint.tile;
    if (!tile.empty()) tile.resize(rank);
    return tile;
  }
  if (!options.tile_by_spec || !cuts_minor_dimension(info.shape, boxes)) return {};
  // The largest box decides, so that all boxes of a regular cut get tiles of one size.
  const auto largest = std::max_element(
      boxes.begin(), boxes.end(),
      [](const HeldBox& a, const HeldBox& b) { return box_elements(a.box) < box_elements(b.box); });
  Dims tile = largest->box.size;
  while (true) {
    const int64_t bytes = stored_bytes(info.dtype, element_count(tile));
    const auto longest = std::max_element(tile.begin(), tile.end());
    if (bytes / 2 < options.min_tile_bytes || *longest < 2) break;
    *longest = (*longest + 1) / 2;
  }
  return tile;
}

std::vector<Box> cut_into_tiles(const Box& box, const Dims& tile, DType dtype, int64_t min_bytes) {
  const size_t rank = box.size.size();
  const int64_t bytes = stored_bytes(dtype, box_elements(box));
  Dims parts(rank, 1);
  const int64_t limit = std::max<int64_t>(1, bytes / min_bytes);
  int64_t count = 1;
  // The product stops at the limit, so it cannot overflow; the last dimensions are cut first since
  // a row-major box gives parts of the first ones as they are.
  for (size_t d = rank; d-- > 0;) {
    if (tile[d] <= 0 || box.size[d] <= tile[d]) continue;
    const int64_t wanted = (box.size[d] - 1) / tile[d] + 1;
    parts[d] = std::min(wanted, limit / count);
    count *= parts[d];
  }
  if (count == 1) return {box};
  std::vector<Box> tiles;
  tiles.reserve(count);
  Dims part(rank);
  for (int64_t i = 0; i < count; ++i) {
    Box one = box;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t whole = box.size[d] / parts[d];
      const int64_t longer = box.size[d] % parts[d];  // parts that have one element more
      one.start[d] += part[d] * whole + std::min(part[d], longer);
      one.size[d] = whole + (part[d] < longer ? 1 : 0);
    }
    tiles.push_back(std::move(one));
    for (size_t d = rank; d-- > 0;) {
      if (++part[d] < parts[d]) break;
      part[d] = 0;
    }
  }
  return tiles;
}

}  // namespace hekla::checkpoint
