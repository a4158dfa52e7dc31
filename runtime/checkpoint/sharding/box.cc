// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/sharding/box.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace hekla::checkpoint {
namespace {

// Below this many boxes every pair is looked at.
constexpr size_t kFewBoxes = 16;

Status check_pairs(std::span<const Box> boxes, std::span<const int32_t> ids) {
  Box common;
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t k = i + 1; k < ids.size(); ++k) {
      const Box& a = boxes[ids[i]];
      const Box& b = boxes[ids[k]];
      if (intersect(a, b, &common)) {
        return invalid_argument("the boxes {} and {} overlap in {}", box_text(a), box_text(b),
                                box_text(common));
      }
    }
  }
  return ok_status();
}

// Cuts the set at the median start of the dimension that separates best; boxes that lie across the
// cut go to both sides. Where no cut helps, all pairs.
Status check_set(std::span<const Box> boxes, const std::vector<int32_t>& ids) {
  if (ids.size() <= kFewBoxes) return check_pairs(boxes, ids);
  size_t best = ids.size() - ids.size() / 4;  // a cut must save a quarter at least
  size_t best_dim = 0;
  int64_t best_cut = 0;
  std::vector<int64_t> starts(ids.size());
  for (size_t d = 0; d < boxes[ids[0]].start.size(); ++d) {
    for (size_t i = 0; i < ids.size(); ++i) starts[i] = boxes[ids[i]].start[d];
    const auto middle = starts.begin() + starts.size() / 2;
    std::nth_element(starts.begin(), middle, starts.end());
    const int64_t cut = *middle;
    size_t low = 0;
    size_t high = 0;
    for (int32_t id : ids) {
      low += boxes[id].start[d] < cut;
      high += boxes[id].start[d] + boxes[id].size[d] > cut;
    }
    if (std::max(low, high) < best) {
      best = std::max(low, high);
      best_dim = d;
      best_cut = cut;
    }
  }
  if (best == ids.size() - ids.size() / 4) return check_pairs(boxes, ids);
  std::vector<int32_t> low;
  std::vector<int32_t> high;
  for (int32_t id : ids) {
    const int64_t start = boxes[id].start[best_dim];
    if (start < best_cut) low.push_back(id);
    if (start + boxes[id].size[best_dim] > best_cut) high.push_back(id);
  }
  HEKLA_RETURN_IF_ERROR(check_set(boxes, low));
  return check_set(boxes, high);
}

}  // namespace

std::string box_text(const Box& box) {
  std::string text = "[";
  for (size_t d = 0; d < box.start.size(); ++d) {
    if (d > 0) text += ',';
    text += fmt::format("{}:{}", box.start[d], box.start[d] + box.size[d]);
  }
  return text + ']';
}

Box whole_box(const Dims& shape) { return Box{Dims(shape.size(), 0), shape}; }

int64_t box_elements(const Box& box) { return element_count(box.size); }

bool intersect(const Box& a, const Box& b, Box* common) {
  const size_t rank = a.start.size();
  common->start.resize(rank);
  common->size.resize(rank);
  for (size_t d = 0; d < rank; ++d) {
    const int64_t start = std::max(a.start[d], b.start[d]);
    const int64_t end = std::min(a.start[d] + a.size[d], b.start[d] + b.size[d]);
    if (end <= start) return false;
    common->start[d] = start;
    common->size[d] = end - start;
  }
  return true;
}

bool box_less(const Box& a, const Box& b) {
  return a.start != b.start ? a.start < b.start : a.size < b.size;
}

Status check_shape(DType dtype, const Dims& shape) {
  if (dtype == DType::kInvalid || static_cast<int>(dtype) >= kDTypeCount) {
    return invalid_argument("dtype number {} is none", static_cast<int>(dtype));
  }
  if (static_cast<int64_t>(shape.size()) > kMaxRank) {
    return invalid_argument("{} has {} dimensions; at most {} can be stored",
                            shape_string(dtype, shape), shape.size(), kMaxRank);
  }
  const Result<int64_t> bytes = checked_bytes(dtype, shape);
  if (!bytes.ok()) return invalid_argument("{}", bytes.status().message());
  return ok_status();
}

Status check_box(const Dims& shape, const Box& box) {
  if (box.start.size() != shape.size() || box.size.size() != shape.size()) {
    return out_of_range("a box of {} starts and {} sizes in a tensor of {} dimensions",
                        box.start.size(), box.size.size(), shape.size());
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    if (box.start[d] < 0 || box.size[d] < 0 || box.start[d] > shape[d] ||
        box.size[d] > shape[d] - box.start[d]) {
      return out_of_range("a box takes {} elements from {} of dimension {}, which has {}",
                          box.size[d], box.start[d], d, shape[d]);
    }
  }
  return ok_status();
}

Status check_disjoint(std::span<const Box> boxes) {
  std::vector<int32_t> ids;
  ids.reserve(boxes.size());
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (box_elements(boxes[i]) > 0) ids.push_back(static_cast<int32_t>(i));
  }
  return check_set(boxes, ids);
}

std::vector<Box> uncovered(const Box& whole, std::span<const Box> parts, size_t limit) {
  std::vector<Box> found;
  // Depth first: `next` is the first part that has not been taken off the box.
  std::vector<std::pair<Box, size_t>> open;
  if (box_elements(whole) > 0) open.push_back({whole, 0});
  Box common;
  while (!open.empty() && found.size() < limit) {
    auto [box, next] = std::move(open.back());
    open.pop_back();
    while (next < parts.size() && !intersect(box, parts[next], &common)) ++next;
    if (next == parts.size()) {
      found.push_back(std::move(box));
      continue;
    }
    for (size_t d = 0; d < box.start.size(); ++d) {
      const int64_t end = box.start[d] + box.size[d];
      const int64_t common_end = common.start[d] + common.size[d];
      if (common.start[d] > box.start[d]) {
        Box before = box;
        before.size[d] = common.start[d] - box.start[d];
        open.push_back({std::move(before), next + 1});
      }
      if (common_end < end) {
        Box behind = box;
        behind.start[d] = common_end;
        behind.size[d] = end - common_end;
        open.push_back({std::move(behind), next + 1});
      }
      box.start[d] = common.start[d];
      box.size[d] = common.size[d];
    }
  }
  return found;
}

}  // namespace hekla::checkpoint
