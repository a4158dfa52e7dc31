// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/contraction.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace hekla::kernel {

namespace {

// One window's part of the split: its phases, each with the window's new axes.
std::vector<Contraction> split_window(const Contraction& c, size_t number) {
  const Contraction::Window& w = c.windows[number];
  if (w.base_dilation == 1) return {c};
  const Contraction::Axis& row = c.rows[static_cast<size_t>(w.row)];
  const Contraction::Axis& depth = c.depth[static_cast<size_t>(w.depth)];
  const int64_t base = w.base_dilation;
  const int64_t row_step = base / std::gcd(w.stride, base);
  const int64_t tap_step = base / std::gcd(w.dilation, base);
  std::vector<Contraction> parts;
  for (int64_t phase = 0; phase < std::min(row_step, row.size); ++phase) {
    Contraction part = c;
    Contraction::Axis& rows = part.rows[static_cast<size_t>(w.row)];
    Contraction::Axis& taps = part.depth[static_cast<size_t>(w.depth)];
    Contraction::Window& window = part.windows[number];
    rows.size = (row.size - phase + row_step - 1) / row_step;
    rows.lhs = row.lhs * row_step;
    rows.out = row.out * row_step;
    part.lhs_offset += phase * row.lhs;
    part.out_offset += phase * row.out;
    window.base_dilation = 1;
    window.stride = row_step * w.stride / base;
    window.dilation = tap_step * w.dilation / base;
    // The first tap that meets an element of the input.
    int64_t tap = 0;
    const auto place = [&] { return phase * w.stride + tap * w.dilation - w.low; };
    while (tap < std::min(tap_step, depth.size) && place() % base != 0) ++tap;
    if (tap == std::min(tap_step, depth.size)) {
      taps.size = 0;
    } else {
      taps.size = (depth.size - tap + tap_step - 1) / tap_step;
      if (c.chunks.axis == w.depth) {
        part.chunks.first = c.chunks.first + tap * c.chunks.step;
        part.chunks.step = c.chunks.step * tap_step;
      }
      taps.rhs = depth.rhs * tap_step;
      taps.lhs = depth.lhs * tap_step;
      part.rhs_offset += tap * depth.rhs;
      part.lhs_offset += tap * depth.lhs;
      window.low = -(place() / base);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

std::vector<Contraction> split_base_dilation(const Contraction& contraction) {
  std::vector<Contraction> parts{contraction};
  for (size_t w = 0; w < contraction.windows.size(); ++w) {
    std::vector<Contraction> next;
    for (const Contraction& part : parts) {
      for (Contraction& each : split_window(part, w)) next.push_back(std::move(each));
    }
    parts = std::move(next);
  }
  return parts;
}

SumChunks cut_sum(std::span<const int64_t> sizes, int64_t most) {
  constexpr int64_t kUnit = 16;
  if (std::ranges::find(sizes, 0) != sizes.end()) return {};
  size_t axis = sizes.size();
  int64_t inner = 1;
  while (axis > 0 && sizes[axis - 1] <= most / inner) inner *= sizes[--axis];
  if (axis == 0) return {};
  --axis;
  const int64_t size = sizes[axis];
  const int64_t longest = most / inner;
  SumChunks chunks{static_cast<int32_t>(axis), 0, 0, 1};
  // Equal ones where there are, of which generated code needs only one.
  for (int64_t length = longest; 2 * length > longest; --length) {
    if (size % length != 0) continue;
    chunks.length = length;
    return chunks;
  }
  const int64_t count = (size + longest - 1) / longest;
  chunks.length = (size + count - 1) / count;
  const int64_t rounded = (chunks.length + kUnit - 1) / kUnit * kUnit;
  if (inner == 1 && rounded <= longest) chunks.length = rounded;
  return chunks;
}

std::string why_no_chunks(const SumChunks& chunks, size_t axes) {
  if (chunks.axis < -1 || chunks.axis >= static_cast<int64_t>(axes)) {
    return fmt::format("axis {} of {} is cut into chunks", chunks.axis, axes);
  }
  if (chunks.axis < 0) return {};
  if (chunks.length >= 1 && chunks.first >= 0 && chunks.step >= 1) return {};
  return fmt::format("chunks of {} indices from {} on, {} at a time", chunks.length, chunks.first,
                     chunks.step);
}

std::vector<int64_t> chunk_ends(const Contraction& c) {
  const int64_t depth = axes_size(c.depth);
  std::vector<int64_t> ends;
  if (c.chunks.axis >= 0 && depth > 0) {
    const auto axis = static_cast<size_t>(c.chunks.axis);
    int64_t inner = 1;
    for (size_t a = axis + 1; a < c.depth.size(); ++a) inner *= c.depth[a].size;
    const int64_t size = c.depth[axis].size;
    const auto number = [&](int64_t i) {
      return (c.chunks.first + i * c.chunks.step) / c.chunks.length;
    };
    for (int64_t i = 1; i * inner < depth; ++i) {
      const int64_t at = i % size;
      if (at == 0 || number(at) != number(at - 1)) ends.push_back(i * inner);
    }
  }
  ends.push_back(depth);
  return ends;
}

int64_t axes_size(const std::vector<Contraction::Axis>& axes) {
  int64_t size = 1;
  for (const Contraction::Axis& axis : axes) size *= axis.size;
  return size;
}

double contraction_work(const Contraction& c) {
  return static_cast<double>(axes_size(c.batch)) * static_cast<double>(axes_size(c.rows)) *
         static_cast<double>(axes_size(c.columns)) * static_cast<double>(axes_size(c.depth));
}

std::string to_string(const Contraction& c) {
  std::string text = fmt::format("{} x {} x {} x {} {}", axes_size(c.batch), axes_size(c.rows),
                                 axes_size(c.columns), axes_size(c.depth), dtype_name(c.lhs_dtype));
  if (c.rhs_dtype != c.lhs_dtype) text += fmt::format(" {}", dtype_name(c.rhs_dtype));
  if (c.out_dtype == DType::kBF16 || c.out_dtype == DType::kF16) {
    text += fmt::format(" to {}", dtype_name(c.out_dtype));
  }
  if (c.chunks.axis >= 0) text += fmt::format(" in {} chunks", chunk_ends(c).size());
  if (c.chains > 1) text += fmt::format(" in {} sums", c.chains);
  for (size_t w = 0; w < c.windows.size(); ++w) {
    text += w == 0 ? ", window " : "x";
    text += std::to_string(c.depth[static_cast<size_t>(c.windows[w].depth)].size);
  }
  // Where it says more than the types do.
  const Algorithm plain{c.lhs_dtype, c.rhs_dtype, c.algorithm.sum};
  if (c.algorithm != plain) text += ", " + to_string(c.algorithm);
  if (c.pieces.products > 1) {
    text += fmt::format(", as {} products of {}", c.pieces.products, dtype_name(c.pieces.type));
  }
  return text;
}

}  // namespace hekla::kernel
