// SPDX-License-Identifier: Apache-2.0
// ContractionRun: rows and columns of an operand, by where they lie, packed into panels.
#include <algorithm>

#include "backends/cpu/contraction/contraction_run.h"

namespace hekla::cpu {

void ContractionRun::fill_lines(const Side& side, int64_t first, int64_t count,
                                std::vector<Line>& lines) {
  lines.resize(static_cast<size_t>(count));
  const size_t axes = side.lines.size();
  std::array<int64_t, 16> few{};
  std::vector<int64_t> many;
  int64_t* at = few.data();
  if (axes > few.size()) {
    many.resize(axes);
    at = many.data();
  }
  for (size_t a = axes; a-- > 0;) {
    at[a] = first % side.lines[a].size;
    first /= side.lines[a].size;
  }
  for (Line& line : lines) {
    line = Line();
    for (size_t a = 0; a < axes; ++a) {
      const Prepared::LineAxis& axis = side.lines[a];
      line.offset += at[a] * axis.stride;
      line.out += at[a] * axis.out;
      if (axis.window >= 0) {
        const auto w = static_cast<size_t>(axis.window);
        line.at[w] = at[a] * side.windows[w].stride - side.windows[w].low;
      }
    }
    for (size_t a = axes; a-- > 0;) {
      if (++at[a] < side.lines[a].size) break;
      at[a] = 0;
    }
  }
}

const std::byte* ContractionRun::find(const Side& side, const std::byte* base, const Line& line,
                                      int64_t offset, const Run& run) {
  offset += line.offset;
  for (size_t w = 0; w < side.windows.size(); ++w) {
    const Prepared::Window& window = side.windows[w];
    int64_t at = line.at[w] + run.taps[w];
    if (at < 0) return nullptr;
    if (window.base_dilation != 1) {
      if (at % window.base_dilation != 0) return nullptr;
      at /= window.base_dilation;
    }
    if (at >= window.extent) return nullptr;
    offset += at * window.step;
  }
  return base + offset * side.bytes;
}

void ContractionRun::pack(const Side& side, bool is_rows, const std::byte* base, const Line* lines,
                          int64_t first, int64_t count, int width, const DepthBlock& block,
                          float* to) const {
  if (side.has_rows) {
    pack_side_by_side(side, is_rows, base, lines, first, count, width, block, to);
    return;
  }
  std::array<const void*, kMostPanelColumns> from{};
  const int64_t step = side.depth.empty() ? 1 : side.depth.back();
  for (int64_t l = 0; l < count; l += width) {
    const int64_t here = std::min<int64_t>(width, count - l);
    from.fill(nullptr);
    float* panel = to + l / width * panel_size(block, width);
    for (size_t r = block.first; r < block.last; ++r) {
      const Run& run = p_.runs_[r];
      for (int64_t i = 0; i < here; ++i) {
        from[static_cast<size_t>(i)] =
            find(side, base, lines[l + i], is_rows ? run.rows : run.columns, run);
      }
      kernels_.pack(side.narrow, from.data(), width, step, run.count, panel);
      panel += run.packed * width;
    }
  }
}

void ContractionRun::pack_unit_rows(const std::byte* base, const Line* lines, int64_t count,
                                    const DepthBlock& block, float* to) const {
  const Side& side = p_.rows_;
  const int64_t height = kernels_.rows;
  const int64_t step = side.depth.empty() ? 1 : side.depth.back();
  for (int64_t l = 0; l < count; ++l) {
    float* row = to + l / height * panel_size(block, height) + l % height * kUnitElements;
    for (size_t r = block.first; r < block.last; ++r) {
      const Run& run = p_.runs_[r];
      kernels_.pack_row(find(side, base, lines[l], run.rows, run), step, run.count, row);
      row += run.packed * height;
    }
  }
}

void ContractionRun::pack_side_by_side(const Side& side, bool is_rows, const std::byte* base,
                                       const Line* lines, int64_t first, int64_t count, int width,
                                       const DepthBlock& block, float* to) const {
  const Prepared::LineAxis& inner = side.lines.back();
  const int64_t step = side.depth.empty() ? 1 : side.depth.back();
  const int64_t panel_step = panel_size(block, width);
  for (size_t r = block.first; r < block.last; ++r) {
    const Run& run = p_.runs_[r];
    const int64_t offset = is_rows ? run.rows : run.columns;
    auto spread = [&](const std::byte* from, int64_t line, int64_t length) {
      if (length <= 0) return;
      kernels_.spread(side.narrow, from, step, run.count, line, length, width, panel_step, to);
    };
    int64_t at = first % inner.size;
    for (int64_t l = 0; l < count;) {
      const int64_t length = std::min(inner.size - at, count - l);
      at = 0;
      if (inner.window < 0) {
        spread(find(side, base, lines[l], offset, run), l, length);
      } else {
        // Padding at either end.
        const auto w = static_cast<size_t>(inner.window);
        const int64_t start = lines[l].at[w] + run.taps[w];
        const int64_t low = std::clamp<int64_t>(-start, 0, length);
        const int64_t high = std::clamp(side.windows[w].extent - start, low, length);
        const std::byte* from =
            low == high ? nullptr : find(side, base, lines[l + low], offset, run);
        if (from == nullptr) {
          spread(nullptr, l, length);
        } else {
          spread(nullptr, l, low);
          spread(from, l + low, high - low);
          spread(nullptr, l + high, length - high);
        }
      }
      l += length;
    }
    to += run.packed * width;
  }
}

}  // namespace hekla::cpu
