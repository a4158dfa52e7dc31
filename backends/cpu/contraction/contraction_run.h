// SPDX-License-Identifier: Apache-2.0
// ContractionRun: one run of a PreparedContraction, for the files of contractions alone:
// contraction_run.cc (rectangles of packed columns, and how threads share them), packing.cc
// (rows and columns into panels), few_rows.cc (few rows with columns that are not packed). It
// borrows the prepared contraction and the operands for the run; any number of threads run its
// pieces.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <new>
#include <span>
#include <vector>

#include "backends/cpu/contraction/contraction.h"

namespace hekla::cpu {

// One row or column: where its depth begins, where its sums go, and its place in each window.
struct Line {
  int64_t offset = 0;
  int64_t out = 0;  // in real numbers
  std::array<int64_t, 4> at{};
};

// Memory that begins on a cache line, so that no vector of a panel lies on two.
template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};
  LineAllocator() = default;
  template <typename Other>
  LineAllocator(const LineAllocator<Other>&) {}
  static T* allocate(size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kLine));
  }
  static void deallocate(T* memory, size_t) { ::operator delete(memory, kLine); }
  bool operator==(const LineAllocator&) const = default;
};
template <typename Real>
using Panels = std::vector<Real, LineAllocator<Real>>;

// Rows of a block, ready for tiles: entry (tile * runs + run) * kMostTileRows + row of `pointers`.
template <typename Real>
struct BlockRows {
  std::vector<Line> lines;
  std::vector<const Real*> pointers;
  std::vector<int32_t> counts;  // elements of each run
  std::vector<int32_t> starts;  // of each tile's kMostTileRows rows, where the kernels have them
  Panels<Real> packed;
};

// Temporary memory of a thread, for a task that waits for nobody.
template <typename Real>
struct ContractionScratch {
  BlockRows<Real> rows;
  Panels<Real> panels;
  std::vector<std::byte> slid;  // depths of lines that a window slides along with
  std::vector<Line> row_lines;
  std::vector<Line> column_lines;
};

template <typename Real>
ContractionScratch<Real>& contraction_scratch() {
  thread_local ContractionScratch<Real> mine;
  return mine;
}

// What runs of all types share.
class ContractionLines {
 public:
  using Prepared = PreparedContraction;
  using Side = Prepared::Side;
  using Run = Prepared::Run;
  using DepthBlock = Prepared::DepthBlock;

 protected:
  static void for_ranges(bool is_parallel, int64_t count, int64_t grain,
                         const std::function<void(int64_t, int64_t)>& body);

  // Lines [first, first + count) of a side.
  static void fill_lines(const Side& side, int64_t first, int64_t count, std::vector<Line>& lines);

  // Where a line's run begins, or null when it is zeros. `inner_window`: without that window, which
  // slides along.
  static const std::byte* find(const Side& side, const std::byte* base, const Line& line,
                               const Run& run, int inner_window = -1);

  // A run of a side that has an inner window, with one element after the other: where it lies, or
  // in `copy`, which has room for it.
  static const std::byte* slide(const Side& side, const std::byte* base, const Line& line,
                                const Run& run, std::byte* copy);
};

// One run of a contraction: the loops around the micro-kernels. Real: float, also for integers of
// 32 bits, or double. Each file makes both of what other files call.
template <typename Real>
class ContractionRun : ContractionLines {
 public:
  using Scratch = ContractionScratch<Real>;

  ContractionRun(const Prepared& p, const std::byte* lhs, const std::byte* rhs, std::byte* out,
                 const std::atomic<bool>* cancelled)
      : p_(p),
        cancelled_(cancelled),
        kernels_(p.template kernels_of<Real>()),
        rows_(p.is_swapped_ ? rhs : lhs),
        columns_(p.is_swapped_ ? lhs : rhs),
        out_(reinterpret_cast<Real*>(out) + p.out_offset_) {
    rows_ += p.rows_.offset * p.rows_.bytes;
    columns_ += p.columns_.offset * p.columns_.bytes;
  }

  void run(bool is_parallel);
  // From now on tells of sums that are final; see PreparedContraction::run_telling. `is_rows`: as
  // below. `done` outlives the run.
  void tell(bool is_rows, const Prepared::SumsDone& done) {
    tells_by_rows_ = is_rows;
    done_ = &done;
  }
  // See PreparedContraction::run_rows. `is_rows`: of the rows_ here, not of the columns_.
  void run_rows(bool is_rows, int64_t first, int64_t count) const;

 private:
  // Where the operands of one element of the batch begin.
  struct Batch {
    const std::byte* rows;
    const std::byte* columns;
    Real* out;
    int64_t number = 0;
  };

  // Asked once per block: what it costs is lost in the block's work.
  bool is_cancelled() const {
    return cancelled_ != nullptr && cancelled_->load(std::memory_order_relaxed);
  }

  Batch batch_at(int64_t number) const;

  void run_batches(int64_t begin, int64_t end, bool is_parallel) const;

  // The runs of a block of the depth, of rows or columns.
  std::span<const Run> runs_of(bool is_rows, const DepthBlock& block) const {
    const size_t s = is_rows ? 0 : 1;
    const std::vector<Run>& runs = (is_rows ? p_.rows_ : p_.columns_).runs;
    return std::span(runs).subspan(block.first[s], block.last[s] - block.first[s]);
  }

  static constexpr int kLineNumbers = 64 / sizeof(Real);  // of a cache line

  // Columns of a panel.
  int64_t panel_columns() const { return kernels_.columns / p_.reals_; }

  // Numbers of a panel of `width` ones for each depth. One cache line more than it holds: panels
  // that start at the same offset in a page would push each other out of the first level cache.
  static int64_t panel_size(const DepthBlock& block, int64_t width) {
    return block.packed * width + kLineNumbers;
  }

  // Numbers for each depth of a panel of `lines`.
  int numbers_of(bool is_rows, int lines) const { return is_rows ? lines : lines * p_.reals_; }

  // Packs lines [first, first + count), which `lines` describes, of a block of the depth into
  // panels of `width` lines, one after the other.
  void pack(const Side& side, bool is_rows, const std::byte* base, const Line* lines, int64_t first,
            int64_t count, int width, const DepthBlock& block, Real* to) const;

  // The same for lines that a window slides along with the depth.
  void pack_sliding(const Side& side, bool is_rows, const std::byte* base, const Line* lines,
                    int64_t count, int width, const DepthBlock& block, Real* to) const;

  // The same for lines that lie side by side along their innermost axis: all panels at once, so
  // that memory is read in order.
  void pack_side_by_side(const Side& side, bool is_rows, const std::byte* base, const Line* lines,
                         int64_t first, int64_t count, int width, const DepthBlock& block,
                         Real* to) const;

  // The rows that `lines` describes, as a matrix unit wants them.
  void pack_unit_rows(const std::byte* base, const Line* lines, int64_t count,
                      const DepthBlock& block, Real* to) const;

  // Few rows, and columns that lie side by side: they stream by, four rows at a time, or stay in
  // the caches and are read by tiles in place.
  void run_wide(const Batch& batch, bool is_parallel) const;

  void run_wide_chunk(const Batch& batch, int64_t first, int64_t width) const;

  // Rows that lie along the depth, with columns where they are: a number that tiles cover.
  void multiply_in_place(const std::array<const Real*, kWideRows>& rows, size_t count,
                         const Real* columns, int64_t columns_step, int64_t depth, int64_t width,
                         const std::array<Real*, kWideRows>& out, bool continues) const;

  // A vector with columns, whose sums are several each.
  void run_chained(const Batch& batch, bool is_parallel) const;

  // Columns that lie side by side: partial sum k of all of them takes depths k, k + kDotSums, ...,
  // and memory streams by in its order, some hundred columns of each depth.
  void run_chained_across(const Batch& batch, const Real* row, int64_t first, int64_t count) const;

  void run_chained_columns(const Batch& batch, const Real* row, int64_t first, int64_t count) const;

  // How the sums of one element of the batch are cut into rectangles, which know nothing of each
  // other: a thread packs what it needs of the columns.
  struct Cut {
    int64_t rows = 0;  // of a rectangle
    int64_t row_groups = 1;
    int64_t panels = 0;  // of a rectangle
    int64_t panel_groups = 1;
    // The last rectangles are cut once more, into as many parts each, so that threads end together.
    int64_t whole = 0;
    int64_t parts = 1;
    bool splits_columns = false;

    int64_t rectangles() const { return row_groups * panel_groups; }
    int64_t tasks() const { return whole + (rectangles() - whole) * parts; }
  };

  Cut cut(bool is_parallel) const;

  void run_rectangles(const Batch& batch, bool is_parallel) const;

  void run_task(const Batch& batch, const Cut& cut, int64_t task) const;

  void run_rectangle(const Batch& batch, int64_t row, int64_t rows, int64_t column,
                     int64_t columns) const;

  // All sums of this part of a batch are final.
  void tell_of(const Batch& batch, int64_t row, int64_t rows, int64_t column,
               int64_t columns) const {
    if (done_ == nullptr) return;
    if (tells_by_rows_) {
      (*done_)(batch.number * p_.rows_.size + row, rows, columns);
    } else {
      (*done_)(batch.number * p_.columns_.size + column, columns, rows);
    }
  }

  // Rows [first, first + count) of a block of the depth, tile by tile; packed where they cannot be
  // read in place.
  void prepare_rows(const Batch& batch, int64_t first, int64_t count, const DepthBlock& block,
                    BlockRows<Real>& to) const;

  // A tile of prepared rows, without columns and sums.
  TileOf<Real> tile_of(const BlockRows<Real>& prepared, int64_t number) const;

  // The prepared rows times one panel of `width` columns, of which `count` are wanted.
  void multiply_panel(const Batch& batch, const BlockRows<Real>& prepared, int64_t rows,
                      const Real* panel, const Line* columns, int64_t count, int width,
                      bool adds) const;

  // Of the next tile, which may be far: in the third level cache or in memory.
  static void prefetch_sums(const Batch& batch, const Line* rows, int64_t count, const Line& column,
                            int width);

  const Prepared& p_;
  const std::atomic<bool>* const cancelled_;
  const MicroKernelsOf<Real>& kernels_;
  const std::byte* rows_;
  const std::byte* columns_;
  Real* const out_;
  const Prepared::SumsDone* done_ = nullptr;
  bool tells_by_rows_ = false;
};

template <>
inline const MicroKernelsOf<float>& PreparedContraction::kernels_of<float>() const {
  return *kernels_;
}
template <>
inline const MicroKernelsOf<double>& PreparedContraction::kernels_of<double>() const {
  return *doubles_;
}

}  // namespace hekla::cpu
