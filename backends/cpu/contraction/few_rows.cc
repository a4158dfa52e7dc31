// SPDX-License-Identifier: Apache-2.0
// ContractionRun: few rows with columns that are not packed, and products with a vector.
#include <algorithm>

#include "backends/cpu/contraction/contraction_run.h"
#include "backends/cpu/threads/thread_pool.h"

namespace hekla::cpu {
namespace {

// Few rows: so much of the depth and so many columns at a time, which stay in the second level
// cache for the next ones.
constexpr int64_t kWideDepth = 64;
constexpr int64_t kWideColumns = 1024;
// Columns of a product with a vector that a thread takes at least; sums of so many are written
// together.
constexpr int64_t kChainedColumns = 32;
// The same where columns lie side by side, and how many depths of a partial sum at a time.
constexpr int64_t kAcrossColumns = 512;
constexpr int64_t kAcrossDepth = 8;
static_assert(kDotSums == kernel::kDotChains);

template <typename Real>
void add_to(Real* to, const Real* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

}  // namespace

template <typename Real>
void ContractionRun<Real>::run_wide(const Batch& batch, bool is_parallel) const {
  const int64_t width = p_.columns_.size;
  const int64_t threads = is_parallel ? ThreadPool::process_pool().threads() : 1;
  const int64_t chunk =
      threads == 1 ? kWideColumns
                   : std::clamp<int64_t>(round_up(width / (2 * threads), 64), 256, kWideColumns);
  for_ranges(is_parallel, (width + chunk - 1) / chunk, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin * chunk; c < std::min(end * chunk, width); c += chunk) {
      run_wide_chunk(batch, c, std::min(chunk, width - c));
    }
  });
}

template <typename Real>
void ContractionRun<Real>::run_wide_chunk(const Batch& batch, int64_t first, int64_t width) const {
  const int64_t step = p_.rows_.depth.empty() ? 1 : p_.rows_.depth[0];
  const int64_t columns_step = p_.columns_.depth.empty() ? 0 : p_.columns_.depth[0];
  const int64_t reals = p_.reals_;
  const int64_t numbers = width * reals;
  const auto* columns = reinterpret_cast<const Real*>(batch.columns) + first * reals;
  std::vector<Line>& lines = contraction_scratch<Real>().row_lines;
  fill_lines(p_.rows_, 0, p_.rows_.size, lines);
  const int64_t tiled = p_.columns_in_place_ ? width / kernels_.columns * kernels_.columns : 0;
  std::array<const Real*, kWideRows> rows{};
  std::array<Real*, kWideRows> totals{};
  std::array<Real*, kWideRows> sums{};  // of a chunk; the first one's are the totals
  std::array<Real*, kWideRows> rest{};  // behind the tiled columns
  for (size_t r = 0; r < lines.size(); ++r) {
    rows[r] = reinterpret_cast<const Real*>(batch.rows) + lines[r].offset * reals;
    totals[r] = batch.out + lines[r].out + first * reals;
  }
  const auto multiply = reals == 1 ? kernels_.wide : kernels_.wide_complex;
  Panels<Real>& memory = contraction_scratch<Real>().panels;
  if (p_.is_cut()) memory.resize(lines.size() * static_cast<size_t>(numbers));
  int64_t begin = 0;
  for (const int64_t end : p_.chunk_ends_) {
    for (size_t r = 0; r < lines.size(); ++r) {
      sums[r] = begin == 0 ? totals[r] : memory.data() + static_cast<int64_t>(r) * numbers;
      rest[r] = sums[r] + tiled;
      std::fill_n(sums[r], numbers, Real{0});
    }
    for (int64_t d = begin; d < end && !is_cancelled(); d += kWideDepth) {
      const int64_t depth = std::min(kWideDepth, end - d);
      const Real* block = columns + d * columns_step * reals;
      if (tiled > 0)
        multiply_in_place(rows, lines.size(), block, columns_step, depth, tiled, sums, d != begin);
      for (size_t r = 0; r < lines.size(); r += kWideTile) {
        const auto count = std::min<size_t>(kWideTile, lines.size() - r);
        multiply(rows.data() + r, static_cast<int>(count), step, block + tiled, columns_step, depth,
                 width - tiled, rest.data() + r);
      }
      for (size_t r = 0; r < lines.size(); ++r) rows[r] += depth * step * reals;
    }
    for (size_t r = 0; r < lines.size() && begin != 0; ++r) add_to(totals[r], sums[r], numbers);
    begin = end;
  }
}

template <typename Real>
void ContractionRun<Real>::multiply_in_place(const std::array<const Real*, kWideRows>& rows,
                                             size_t count, const Real* columns,
                                             int64_t columns_step, int64_t depth, int64_t width,
                                             const std::array<Real*, kWideRows>& out,
                                             bool continues) const {
  const auto height = static_cast<size_t>(kernels_.rows);
  const size_t tiles = (count + height - 1) / height;
  const auto run = static_cast<int32_t>(depth);
  std::array<Real*, kMostTileRows> to{};
  TileOf<Real> tile;
  tile.runs = &run;
  tile.run_count = 1;
  tile.columns_step = columns_step;
  tile.out = to.data();
  tile.continues = continues;
  for (int64_t c = 0; c < width; c += kernels_.columns) {
    tile.columns = columns + c;
    for (size_t t = 0, first = 0; t < tiles; ++t) {
      const size_t here = (count - first) / (tiles - t);
      tile.rows = rows.data() + first;
      for (size_t r = 0; r < here; ++r) to[r] = out[first + r] + c;
      kernels_.tile[here](tile);
      first += here;
    }
  }
}

template <typename Real>
void ContractionRun<Real>::run_chained(const Batch& batch, bool is_parallel) const {
  const int64_t width = p_.columns_.size;
  const int64_t threads = is_parallel ? ThreadPool::process_pool().threads() : 1;
  const int64_t chunk = round_up((width + 2 * threads - 1) / (2 * threads), kChainedColumns);
  const auto depth = static_cast<size_t>(p_.depth_size_);
  const int64_t row_step = p_.rows_.depth[0];
  const auto* row = reinterpret_cast<const Real*>(batch.rows);
  std::vector<Real> copy;
  if (row_step != 1) {
    copy.resize(depth);
    for (size_t d = 0; d < depth; ++d) copy[d] = row[static_cast<int64_t>(d) * row_step];
    row = copy.data();
  }
  const bool is_across = p_.columns_.has_rows && p_.columns_.lines.size() == 1;
  for_ranges(is_parallel, (width + chunk - 1) / chunk, 1, [&](int64_t begin, int64_t end) {
    const int64_t last = std::min(end * chunk, width);
    const int64_t most = is_across ? kAcrossColumns : kChainedColumns;
    for (int64_t c = begin * chunk; c < last && !is_cancelled(); c += most) {
      const int64_t count = std::min(most, last - c);
      if (is_across) {
        run_chained_across(batch, row, c, count);
      } else {
        run_chained_columns(batch, row, c, count);
      }
    }
  });
}

template <typename Real>
void ContractionRun<Real>::run_chained_across(const Batch& batch, const Real* row, int64_t first,
                                              int64_t count) const {
  const int64_t step = p_.columns_.depth[0];
  const auto* columns = reinterpret_cast<const Real*>(batch.columns) + first;
  Panels<Real>& sums = contraction_scratch<Real>().panels;
  // A line more than there are columns: sums a whole number of pages apart share lines.
  const int64_t distance = round_up(count, kDotSums) + kDotSums;
  const Prepared::LineAxis& axis = p_.columns_.lines[0];
  Real* out = batch.out + first * axis.out;
  constexpr int64_t kBlock = kAcrossDepth * kDotSums;
  int64_t begin = 0;
  for (const int64_t end : p_.chunk_ends_) {
    sums.assign(static_cast<size_t>(distance * kDotSums), Real{0});
    for (int64_t d = begin; d < end && !is_cancelled(); d += kBlock) {
      for (int64_t k = 0; k < std::min<int64_t>(kDotSums, end - d); ++k) {
        const int64_t here = (std::min(kBlock, end - d) - k + kDotSums - 1) / kDotSums;
        const Real* from = row + d + k;
        Real* to = sums.data() + k * distance;
        kernels_.wide(&from, 1, kDotSums, columns + (d + k) * step, step * kDotSums, here, count,
                      &to);
      }
    }
    for (int64_t half = kDotSums / 2; half > 0; half /= 2) {
      for (int64_t k = 0; k < half; ++k) {
        Real* to = sums.data() + k * distance;
        add_to(to, to + half * distance, count);
      }
    }
    for (int64_t c = 0; c < count; ++c) {
      Real& total = out[c * axis.out];
      const Real sum = sums[static_cast<size_t>(c)];
      total = begin == 0 ? sum : total + sum;
    }
    begin = end;
  }
}

template <typename Real>
void ContractionRun<Real>::run_chained_columns(const Batch& batch, const Real* row, int64_t first,
                                               int64_t count) const {
  const int64_t depth = p_.depth_size_;
  const int64_t step = p_.columns_.depth[0];
  const auto* columns = reinterpret_cast<const Real*>(batch.columns);
  Scratch& mine = contraction_scratch<Real>();
  std::vector<Line>& lines = mine.column_lines;
  fill_lines(p_.columns_, first, count, lines);
  // Columns that lie along their depth at equal distances are read where they lie; others are
  // copied one by one, in blocks where they lie side by side.
  const bool is_even = p_.columns_.lines.size() <= 1;
  const Real* from = columns + lines[0].offset;
  int64_t distance = count > 1 ? lines[1].offset - lines[0].offset : 0;
  if (step != 1 || !is_even) {
    Panels<Real>& copies = mine.panels;
    copies.resize(static_cast<size_t>(depth * count));
    for (int64_t d = 0; d < depth; ++d) {
      for (int64_t c = 0; c < count; ++c) {
        copies[static_cast<size_t>(c * depth + d)] =
            columns[lines[static_cast<size_t>(c)].offset + d * step];
      }
    }
    from = copies.data();
    distance = depth;
  }
  std::array<Real, kChainedColumns> sums{};
  int64_t begin = 0;
  for (const int64_t end : p_.chunk_ends_) {
    kernels_.chained(row + begin, from + begin, distance, end - begin, count, sums.data());
    for (int64_t c = 0; c < count; ++c) {
      Real& total = batch.out[lines[static_cast<size_t>(c)].out];
      const Real sum = sums[static_cast<size_t>(c)];
      total = begin == 0 ? sum : total + sum;
    }
    begin = end;
  }
}

template void ContractionRun<float>::run_wide(const Batch&, bool) const;
template void ContractionRun<double>::run_wide(const Batch&, bool) const;
template void ContractionRun<float>::run_chained(const Batch&, bool) const;
template void ContractionRun<double>::run_chained(const Batch&, bool) const;

}  // namespace hekla::cpu
