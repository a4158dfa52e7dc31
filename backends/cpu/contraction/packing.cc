// SPDX-License-Identifier: Apache-2.0
// ContractionRun: rows and columns of an operand, by where they lie, packed into panels.
#include <algorithm>
#include <cstring>

#include "backends/cpu/contraction/contraction_run.h"

namespace hekla::cpu {

void ContractionLines::fill_lines(const Side& side, int64_t first, int64_t count,
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

const std::byte* ContractionLines::find(const Side& side, const std::byte* base, const Line& line,
                                        const Run& run, int inner_window) {
  int64_t offset = run.offset + line.offset;
  for (size_t w = 0; w < side.windows.size(); ++w) {
    if (static_cast<int>(w) == inner_window) continue;
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

const std::byte* ContractionLines::slide(const Side& side, const std::byte* base, const Line& line,
                                         const Run& run, std::byte* copy) {
  const auto w = static_cast<size_t>(side.inner_window);
  const Prepared::Window& window = side.windows[w];
  const int64_t start = line.at[w] + run.taps[w];
  // Depths [begin, end) are inside.
  const auto depths_below = [&](int64_t limit) {
    return std::clamp<int64_t>((limit - start + window.dilation - 1) / window.dilation, 0,
                               start < limit ? run.count : 0);
  };
  const int64_t begin = depths_below(0);
  const int64_t end = depths_below(window.extent);
  const std::byte* from = begin < end ? find(side, base, line, run, side.inner_window) : nullptr;
  const auto bytes = static_cast<size_t>(side.bytes);
  const auto zeros = [&](int64_t first, int64_t last) {
    std::fill(copy + first * side.bytes, copy + last * side.bytes, std::byte{0});
  };
  if (from == nullptr) {
    zeros(0, run.count);
    return copy;
  }
  const int64_t step = (side.depth.back() + window.dilation * window.step) * side.bytes;
  from += start * window.step * side.bytes + begin * step;
  if (step == side.bytes && begin == 0 && end == run.count) return from;
  zeros(0, begin);
  zeros(end, run.count);
  if (step == side.bytes) {
    std::memcpy(copy + begin * side.bytes, from, static_cast<size_t>(end - begin) * bytes);
    return copy;
  }
  for (int64_t d = begin; d < end; ++d, from += step) {
    std::memcpy(copy + d * side.bytes, from, bytes);
  }
  return copy;
}

template <typename Real>
void ContractionRun<Real>::pack_sliding(const Side& side, bool is_rows, const std::byte* base,
                                        const Line* lines, int64_t count, int width,
                                        const DepthBlock& block, Real* to) const {
  std::array<const void*, kMostPanelColumns> from{};
  const int numbers = numbers_of(is_rows, width);
  std::vector<std::byte>& slid = contraction_scratch<Real>().slid;
  for (int64_t l = 0; l < count; l += width) {
    Real* panel = to + l / width * panel_size(block, numbers);
    for (const Run& run : runs_of(is_rows, block)) {
      const int64_t bytes = run.count * side.bytes;
      slid.resize(static_cast<size_t>(bytes * (width + 1)));
      // Lanes that are not there are zeros, all the same ones.
      std::byte* const zeros = slid.data() + bytes * width;
      std::fill(zeros, zeros + bytes, std::byte{0});
      for (int64_t i = 0; i < width; ++i) {
        from[static_cast<size_t>(i)] =
            l + i < count ? slide(side, base, lines[l + i], run, slid.data() + i * bytes) : zeros;
      }
      kernels_.pack(side.narrow, from.data(), numbers, 1, run.count, panel);
      panel += run.packed * numbers;
    }
  }
}

template <typename Real>
void ContractionRun<Real>::pack(const Side& side, bool is_rows, const std::byte* base,
                                const Line* lines, int64_t first, int64_t count, int width,
                                const DepthBlock& block, Real* to) const {
  if (side.has_rows) {
    pack_side_by_side(side, is_rows, base, lines, first, count, width, block, to);
    return;
  }
  if (side.inner_window >= 0) {
    pack_sliding(side, is_rows, base, lines, count, width, block, to);
    return;
  }
  std::array<const void*, kMostPanelColumns> from{};
  const int numbers = numbers_of(is_rows, width);
  const int64_t step = side.depth.empty() ? 1 : side.depth.back();
  for (int64_t l = 0; l < count; l += width) {
    const int64_t here = std::min<int64_t>(width, count - l);
    from.fill(nullptr);
    Real* panel = to + l / width * panel_size(block, numbers);
    for (const Run& run : runs_of(is_rows, block)) {
      for (int64_t i = 0; i < here; ++i) {
        from[static_cast<size_t>(i)] = find(side, base, lines[l + i], run);
      }
      kernels_.pack(side.narrow, from.data(), numbers, step, run.count, panel);
      panel += run.packed * numbers;
    }
  }
}

template <typename Real>
void ContractionRun<Real>::pack_unit_rows(const std::byte* base, const Line* lines, int64_t count,
                                          const DepthBlock& block, Real* to) const {
  const Side& side = p_.rows_;
  const int64_t height = kernels_.rows;
  const bool is_sliding = side.inner_window >= 0;
  const int64_t step = side.depth.empty() || is_sliding ? 1 : side.depth.back();
  std::vector<std::byte>& slid = contraction_scratch<Real>().slid;
  for (int64_t l = 0; l < count; ++l) {
    Real* row = to + l / height * panel_size(block, height) + l % height * kUnitElements;
    for (const Run& run : runs_of(true, block)) {
      if (is_sliding) slid.resize(static_cast<size_t>(run.count * side.bytes));
      const std::byte* from = is_sliding ? slide(side, base, lines[l], run, slid.data())
                                         : find(side, base, lines[l], run);
      kernels_.pack_row(from, step, run.count, row);
      row += run.packed * height;
    }
  }
}

template <typename Real>
void ContractionRun<Real>::pack_side_by_side(const Side& side, bool is_rows, const std::byte* base,
                                             const Line* lines, int64_t first, int64_t count,
                                             int width, const DepthBlock& block, Real* to) const {
  const Prepared::LineAxis& inner = side.lines.back();
  const int64_t step = side.depth.empty() ? 1 : side.depth.back();
  const int numbers = numbers_of(is_rows, width);
  const int64_t panel_step = panel_size(block, numbers);
  for (const Run& run : runs_of(is_rows, block)) {
    auto spread = [&](const std::byte* from, int64_t line, int64_t length) {
      if (length <= 0) return;
      kernels_.spread(side.narrow, from, step, run.count, line, length, numbers, panel_step, to);
    };
    int64_t at = first % inner.size;
    for (int64_t l = 0; l < count;) {
      const int64_t length = std::min(inner.size - at, count - l);
      at = 0;
      if (inner.window < 0) {
        spread(find(side, base, lines[l], run), l, length);
      } else {
        // Padding at either end.
        const auto w = static_cast<size_t>(inner.window);
        const int64_t start = lines[l].at[w] + run.taps[w];
        const int64_t low = std::clamp<int64_t>(-start, 0, length);
        const int64_t high = std::clamp(side.windows[w].extent - start, low, length);
        const std::byte* from = low == high ? nullptr : find(side, base, lines[l + low], run);
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
    to += run.packed * numbers;
  }
}

template void ContractionRun<float>::pack(const Side&, bool, const std::byte*, const Line*, int64_t,
                                          int64_t, int, const DepthBlock&, float*) const;
template void ContractionRun<double>::pack(const Side&, bool, const std::byte*, const Line*,
                                           int64_t, int64_t, int, const DepthBlock&, double*) const;
template void ContractionRun<float>::pack_unit_rows(const std::byte*, const Line*, int64_t,
                                                    const DepthBlock&, float*) const;
template void ContractionRun<double>::pack_unit_rows(const std::byte*, const Line*, int64_t,
                                                     const DepthBlock&, double*) const;

}  // namespace hekla::cpu
