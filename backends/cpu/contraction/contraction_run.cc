// SPDX-License-Identifier: Apache-2.0
// ContractionRun: rectangles of the result, each of packed columns, and how threads share them.
#include "backends/cpu/contraction/contraction_run.h"

#include <algorithm>
#include <array>

#include "backends/cpu/threads/thread_pool.h"

namespace hekla::cpu {
namespace {

// Rows of a rectangle that are split before its columns, where they are packed.
constexpr int64_t kManyRows = 96;
// Depth from which on columns are split before rows, where those are read in place.
constexpr int64_t kSplitDepth = 128;
// So long must runs be for that: where each begins is looked up once more for each part.
constexpr int64_t kSplitRun = 100;
// Tiles of rows that a rectangle keeps.
constexpr int64_t kSplitTiles = 4;
// Parts of the last rectangles.
constexpr int64_t kLastParts = 4;

template <typename Real>
alignas(64) constexpr std::array<Real, 2 * kMostWindowDepth> kZeros{};  // or of complex numbers

// While it lives, the thread may run tiles.
template <typename Real>
class UnitUse {
 public:
  explicit UnitUse(const MicroKernelsOf<Real>& kernels) : kernels_(kernels) {
    if (kernels_.begin != nullptr) kernels_.begin();
  }
  UnitUse(const UnitUse&) = delete;
  UnitUse& operator=(const UnitUse&) = delete;
  ~UnitUse() {
    if (kernels_.end != nullptr) kernels_.end();
  }

 private:
  const MicroKernelsOf<Real>& kernels_;
};

}  // namespace

template <typename Real>
void ContractionRun<Real>::run(bool is_parallel) {
  const double ns = p_.estimated_ns_;
  const double each = ns / static_cast<double>(p_.batches_);
  is_parallel = is_parallel && ns >= kContractionSplitNs;
  if (!is_parallel || p_.batches_ == 1 || (p_.batches_ < 8 && each >= 4 * kContractionPieceNs)) {
    run_batches(0, p_.batches_, is_parallel);
    return;
  }
  const auto grain = std::max<int64_t>(1, static_cast<int64_t>(kContractionPieceNs / each));
  ThreadPool::process_pool().for_ranges(
      p_.batches_, grain, [&](int64_t begin, int64_t end) { run_batches(begin, end, false); });
}

template <typename Real>
void ContractionRun<Real>::run_rows(bool is_rows, int64_t first, int64_t count) const {
  const int64_t lines = is_rows ? p_.rows_.size : p_.columns_.size;
  const int64_t most_columns = p_.blocking_.panels * panel_columns();
  while (count > 0) {
    const Batch batch = batch_at(first / lines);
    const int64_t line = first % lines;
    const int64_t here = std::min(count, lines - line);
    const int64_t begin = is_rows ? 0 : line;
    const int64_t end = is_rows ? p_.columns_.size : line + here;
    for (int64_t column = begin; column < end; column += most_columns) {
      run_rectangle(batch, is_rows ? line : 0, is_rows ? here : p_.rows_.size, column,
                    std::min(most_columns, end - column));
    }
    first += here;
    count -= here;
  }
}

template <typename Real>
typename ContractionRun<Real>::Batch ContractionRun<Real>::batch_at(int64_t number) const {
  Batch batch{rows_, columns_, out_, number};
  for (size_t a = p_.batch_.size(); a-- > 0;) {
    const Prepared::BatchAxis& axis = p_.batch_[a];
    const int64_t at = number % axis.size;
    number /= axis.size;
    batch.rows += at * axis.rows * p_.rows_.bytes;
    batch.columns += at * axis.columns * p_.columns_.bytes;
    batch.out += at * axis.out;
  }
  return batch;
}

template <typename Real>
void ContractionRun<Real>::run_batches(int64_t begin, int64_t end, bool is_parallel) const {
  for (int64_t b = begin; b < end && !is_cancelled(); ++b) {
    const Batch batch = batch_at(b);
    if (p_.is_chained_) {
      run_chained(batch, is_parallel);
    } else if (p_.is_wide_) {
      run_wide(batch, is_parallel);
    } else {
      run_rectangles(batch, is_parallel);
    }
  }
}

void ContractionLines::for_ranges(bool is_parallel, int64_t count, int64_t grain,
                                  const std::function<void(int64_t, int64_t)>& body) {
  if (is_parallel && count > grain) {
    ThreadPool::process_pool().for_ranges(count, grain, body);
  } else {
    body(0, count);
  }
}

template <typename Real>
typename ContractionRun<Real>::Cut ContractionRun<Real>::cut(bool is_parallel) const {
  const int64_t size = p_.rows_.size;
  const int64_t panels = (p_.columns_.size + panel_columns() - 1) / panel_columns();
  const double ns = p_.estimated_ns_ / static_cast<double>(p_.batches_);
  // No more than what keeps the threads busy to the end: rectangles pay for being small.
  const int64_t threads = is_parallel ? ThreadPool::process_pool().threads() : 0;
  int64_t wanted = std::clamp<int64_t>(static_cast<int64_t>(ns / kContractionPieceNs), 1,
                                       std::max<int64_t>(1, 4 * threads));
  if (p_.blocking_.pieces != 0) wanted = p_.blocking_.pieces;
  // Packing costs as much as a dozen rows or columns: each rectangle should have many of those
  // that the packed ones are used for. Rows that are read in place ask for nothing.
  const int64_t most_panels = p_.rows_in_place_ && size <= kernels_.rows
                                  ? 1  // the columns are read once, so in long runs
                                  : p_.blocking_.panels;
  const int64_t least_panels =
      p_.rows_in_place_ ? 1 : std::min<int64_t>(panels, std::max<int64_t>(1, most_panels / 4));
  const int64_t least_rows = int64_t{kSplitTiles} * kernels_.rows;
  // Rows that are not packed do not mind being read once more for each part of the columns. With
  // little depth it is the sums that take time: they are written in long runs.
  const auto runs = static_cast<int64_t>(p_.rows_.runs.size());
  const bool splits_columns =
      p_.rows_in_place_ && p_.depth_size_ >= kSplitDepth && p_.depth_size_ >= runs * kSplitRun;
  Cut cut;
  cut.rows = size;
  cut.panels = std::min(panels, most_panels);
  cut.splits_columns = splits_columns;
  const auto count = [&] {
    return ((size + cut.rows - 1) / cut.rows) * ((panels + cut.panels - 1) / cut.panels);
  };
  while (count() < wanted) {
    const bool has_many_rows = cut.rows > 2 * kManyRows && !splits_columns;
    if (has_many_rows || (cut.panels <= least_panels && cut.rows > least_rows)) {
      cut.rows = (cut.rows + 1) / 2;
    } else if (cut.panels > least_panels) {
      cut.panels = (cut.panels + 1) / 2;
    } else {
      break;
    }
  }
  cut.row_groups = (size + cut.rows - 1) / cut.rows;
  cut.rows = round_up((size + cut.row_groups - 1) / cut.row_groups, kernels_.rows);
  cut.row_groups = (size + cut.rows - 1) / cut.rows;
  cut.panel_groups = (panels + cut.panels - 1) / cut.panels;
  cut.whole = cut.rectangles();
  // Work for a few pieces only pays for each of them.
  if (p_.blocking_.pieces > 1 || (threads > 1 && wanted == 4 * threads)) {
    // Single panels, or fewer rows.
    cut.parts = splits_columns ? cut.panels
                               : std::clamp<int64_t>(cut.rows / least_rows, 1, int64_t{kLastParts});
    if (cut.parts > 1) {
      cut.whole = std::max<int64_t>(0, cut.rectangles() - std::max<int64_t>(threads, 2));
    }
  }
  return cut;
}

template <typename Real>
void ContractionRun<Real>::run_rectangles(const Batch& batch, bool is_parallel) const {
  const Cut cut = this->cut(is_parallel);
  const int64_t tasks = cut.tasks();
  if (tasks == 1) return run_task(batch, cut, 0);
  // Threads take one after the other, whoever is free; those that come late find few left.
  std::atomic<int64_t> next{0};
  const int64_t takers = is_parallel ? ThreadPool::process_pool().threads() : 1;
  for_ranges(is_parallel, std::min(takers, tasks), 1, [&](int64_t, int64_t) {
    for (int64_t task = next++; task < tasks; task = next++) run_task(batch, cut, task);
  });
}

template <typename Real>
void ContractionRun<Real>::run_task(const Batch& batch, const Cut& cut, int64_t task) const {
  int64_t part = 0;
  if (task >= cut.whole) {
    part = (task - cut.whole) % cut.parts;
    task = cut.whole + (task - cut.whole) / cut.parts;
  }
  int64_t row = task % cut.row_groups * cut.rows;
  int64_t rows = std::min(cut.rows, p_.rows_.size - row);
  int64_t column = task / cut.row_groups * cut.panels * panel_columns();
  int64_t columns = std::min(cut.panels * panel_columns(), p_.columns_.size - column);
  if (task >= cut.whole && cut.splits_columns) {
    const int64_t each = (cut.panels + cut.parts - 1) / cut.parts * panel_columns();
    column += part * each;
    columns = std::min(each, columns - part * each);
  } else if (task >= cut.whole) {
    const int64_t each = round_up((cut.rows + cut.parts - 1) / cut.parts, kernels_.rows);
    row += part * each;
    rows = std::min(each, rows - part * each);
  }
  if (rows > 0 && columns > 0) run_rectangle(batch, row, rows, column, columns);
}

template <typename Real>
void ContractionRun<Real>::run_rectangle(const Batch& batch, int64_t row, int64_t rows,
                                         int64_t column, int64_t columns) const {
  Scratch& mine = contraction_scratch<Real>();
  const auto width = static_cast<int>(panel_columns());
  const int half = kernels_.half_columns / p_.reals_;
  fill_lines(p_.columns_, column, columns, mine.column_lines);
  const int64_t rest = columns % width;
  const bool has_half = p_.blocking_.has_half_panels && rest > 0 && rest <= half;
  const int64_t whole = has_half ? columns - rest : columns;
  // Rows in equal parts, of whole tiles.
  const int64_t parts = (rows + p_.blocking_.rows - 1) / p_.blocking_.rows;
  const int64_t part = round_up((rows + parts - 1) / parts, kernels_.rows);
  for (size_t k = 0; k < p_.blocks_.size() && !is_cancelled(); ++k) {
    const DepthBlock& block = p_.blocks_[k];
    const int64_t stride = panel_size(block, kernels_.columns);
    mine.panels.resize(static_cast<size_t>((columns + width - 1) / width * stride));
    pack(p_.columns_, false, batch.columns, mine.column_lines.data(), column, whole, width, block,
         mine.panels.data());
    if (has_half) {
      pack(p_.columns_, false, batch.columns, mine.column_lines.data() + whole, column + whole,
           rest, half, block, mine.panels.data() + whole / width * stride);
    }
    for (int64_t r = 0; r < rows && !is_cancelled(); r += part) {
      const int64_t here = std::min(part, rows - r);
      prepare_rows(batch, row + r, here, block, mine.rows);
      {
        const UnitUse use(kernels_);
        for (int64_t c = 0; c < columns; c += width) {
          multiply_panel(batch, mine.rows, here, mine.panels.data() + c / width * stride,
                         mine.column_lines.data() + c, std::min<int64_t>(width, columns - c),
                         c < whole ? width : half, k != 0);
        }
      }
      if (k + 1 == p_.blocks_.size()) tell_of(batch, row + r, here, column, columns);
    }
  }
}

template <typename Real>
void ContractionRun<Real>::prepare_rows(const Batch& batch, int64_t first, int64_t count,
                                        const DepthBlock& block, BlockRows<Real>& to) const {
  fill_lines(p_.rows_, first, count, to.lines);
  const int64_t height = kernels_.rows;
  const int64_t tiles = (count + height - 1) / height;
  const std::span<const Run> all = runs_of(true, block);
  const size_t runs = p_.rows_in_place_ ? all.size() : 1;
  to.pointers.resize(static_cast<size_t>(tiles) * runs * kMostTileRows);
  to.counts.resize(runs);
  if (!p_.rows_in_place_) {
    to.counts[0] = static_cast<int32_t>(block.packed);
    to.packed.resize(static_cast<size_t>(tiles * panel_size(block, height)));
    if (kernels_.pack_row != nullptr) {
      pack_unit_rows(batch.rows, to.lines.data(), count, block, to.packed.data());
    } else {
      pack(p_.rows_, true, batch.rows, to.lines.data(), first, count, static_cast<int>(height),
           block, to.packed.data());
    }
  }
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t rows = std::min(height, count - t * height);
    const Line* lines = to.lines.data() + t * height;
    const Real** pointers = to.pointers.data() + static_cast<size_t>(t) * runs * kMostTileRows;
    if (!p_.rows_in_place_) {
      const Real* panel = to.packed.data() + t * panel_size(block, height);
      for (int64_t r = 0; r < rows; ++r) pointers[r] = panel + r;
      continue;
    }
    for (size_t s = 0; s < runs; ++s, pointers += kMostTileRows) {
      const Run& run = all[s];
      to.counts[s] = static_cast<int32_t>(run.count / p_.depths_ * p_.reals_);
      for (int64_t r = 0; r < rows; ++r) {
        const std::byte* at = find(p_.rows_, batch.rows, lines[r], run);
        pointers[r] = at == nullptr ? kZeros<Real>.data() : reinterpret_cast<const Real*>(at);
      }
    }
  }
  if (kernels_.find_starts == nullptr) return;
  to.starts.resize(static_cast<size_t>(tiles) * kMostTileRows);
  for (int64_t t = 0; t < tiles; ++t) {
    const auto first_row = static_cast<size_t>(t) * kMostTileRows;
    kernels_.find_starts(tile_of(to, t), static_cast<int>(std::min(height, count - t * height)),
                         to.starts.data() + first_row);
  }
}

template <typename Real>
TileOf<Real> ContractionRun<Real>::tile_of(const BlockRows<Real>& prepared, int64_t number) const {
  const size_t runs = prepared.counts.size();
  TileOf<Real> tile;
  tile.rows = prepared.pointers.data() + static_cast<size_t>(number) * runs * kMostTileRows;
  tile.runs = prepared.counts.data();
  tile.run_count = static_cast<int64_t>(runs);
  tile.step = p_.rows_in_place_ ? 1 : kernels_.rows;
  if (kernels_.find_starts != nullptr) {
    tile.starts = prepared.starts.data() + static_cast<size_t>(number) * kMostTileRows;
  }
  return tile;
}

template <typename Real>
void ContractionRun<Real>::multiply_panel(const Batch& batch, const BlockRows<Real>& prepared,
                                          int64_t rows, const Real* panel, const Line* columns,
                                          int64_t count, int width, bool adds) const {
  const int height = kernels_.rows;
  const int reals = p_.reals_;
  const int numbers = numbers_of(false, width);
  bool is_contiguous = true;
  for (int64_t c = 1; c < count && is_contiguous; ++c) {
    is_contiguous = columns[c].out == columns[0].out + c * reals;
  }
  const bool is_direct = is_contiguous && count == width;
  alignas(64) std::array<Real, kMostTileRows * kMostPanelColumns> buffer;
  std::array<Real*, kMostTileRows> out{};
  const Line* lines = prepared.lines.data();
  int64_t depth = 0;
  for (const int32_t run : prepared.counts) depth += run;
  const bool is_deep = depth >= kSplitDepth;
  const bool is_half = numbers < kernels_.columns;
  const auto& tiles = p_.depths_ > 1
                          ? (is_half ? kernels_.half_tile_integers : kernels_.tile_integers)
                          : (is_half ? kernels_.half_tile : kernels_.tile);
  for (int64_t row = 0; row < rows; row += height, lines += height) {
    const auto here = static_cast<int>(std::min<int64_t>(height, rows - row));
    TileOf<Real> tile = tile_of(prepared, row / height);
    tile.columns = panel;
    tile.columns_step = numbers;
    tile.out = out.data();
    tile.continues = adds && !p_.is_cut();
    tile.adds = adds && p_.is_cut();
    if (is_direct) {
      for (int r = 0; r < here; ++r) {
        out[static_cast<size_t>(r)] = batch.out + lines[r].out + columns[0].out;
      }
      if (is_deep) {
        prefetch_sums(batch, lines + here, std::min<int64_t>(height, rows - row - here), columns[0],
                      numbers);
      }
      tiles[here](tile);
      continue;
    }
    for (int r = 0; r < here; ++r) {
      Real* sums = buffer.data() + r * numbers;
      out[static_cast<size_t>(r)] = sums;
      if (!adds) continue;
      const Real* from = batch.out + lines[r].out;
      if (is_contiguous) {
        std::copy_n(from + columns[0].out, count * reals, sums);
      } else if (reals == 1) {
        for (int64_t c = 0; c < count; ++c) sums[c] = from[columns[c].out];
      } else {
        for (int64_t c = 0; c < count; ++c) std::copy_n(from + columns[c].out, 2, sums + 2 * c);
      }
      for (int64_t c = count * reals; c < numbers; ++c) sums[c] = 0;
    }
    tiles[here](tile);
    for (int r = 0; r < here; ++r) {
      const Real* sums = buffer.data() + r * numbers;
      Real* to = batch.out + lines[r].out;
      if (is_contiguous) {
        std::copy_n(sums, count * reals, to + columns[0].out);
      } else if (reals == 1) {
        for (int64_t c = 0; c < count; ++c) to[columns[c].out] = sums[c];
      } else {
        for (int64_t c = 0; c < count; ++c) std::copy_n(sums + 2 * c, 2, to + columns[c].out);
      }
    }
  }
}

template <typename Real>
void ContractionRun<Real>::prefetch_sums(const Batch& batch, const Line* rows, int64_t count,
                                         const Line& column, int width) {
  for (int64_t r = 0; r < count; ++r) {
    const Real* sums = batch.out + rows[r].out + column.out;
    for (int c = 0; c < width; c += kLineNumbers) __builtin_prefetch(sums + c, 1);
    __builtin_prefetch(sums + width - 1, 1);
  }
}

void PreparedContraction::with_run(const std::byte* lhs, const std::byte* rhs, std::byte* out,
                                   const std::atomic<bool>* cancelled, const auto& body) const {
  if (has_doubles()) {
    body(ContractionRun<double>(*this, lhs, rhs, out, cancelled));
  } else {
    body(ContractionRun<float>(*this, lhs, rhs, out, cancelled));
  }
}

void PreparedContraction::run(const std::byte* lhs, const std::byte* rhs, std::byte* out,
                              bool is_parallel, const std::atomic<bool>* cancelled) const {
  const auto run_it = [&](auto&& run) { run.run(is_parallel); };
  if (parts_.empty() || !is_finite(rhs)) return with_run(lhs, rhs, out, cancelled, run_it);
  for (const PreparedContraction& part : parts_) part.with_run(lhs, rhs, out, cancelled, run_it);
}

void PreparedContraction::run_telling(kernel::RowsOf of, const SumsDone& done, const std::byte* lhs,
                                      const std::byte* rhs, std::byte* out, bool is_parallel,
                                      const std::atomic<bool>* cancelled) const {
  with_run(lhs, rhs, out, cancelled, [&](auto&& run) {
    run.tell(kernel::is_by_rows(of) != is_swapped_, done);
    run.run(is_parallel);
  });
}

void PreparedContraction::run_rows(kernel::RowsOf of, const std::byte* lhs, const std::byte* rhs,
                                   std::byte* out, int64_t first, int64_t count) const {
  with_run(lhs, rhs, out, nullptr,
           [&](auto&& run) { run.run_rows(kernel::is_by_rows(of) != is_swapped_, first, count); });
}

}  // namespace hekla::cpu
