// SPDX-License-Identifier: Apache-2.0
// PreparedContraction: how a kernel::Contraction runs on the processor.
//
// After Goto and van de Geijn ("Anatomy of High-Performance Matrix Multiplication", 2008) and the
// indirect convolutions of Dukhan ("The Indirect Convolution Algorithm", 2019): the result is cut
// into rectangles, a thread packs the columns of one into panels, a block of the depth at a time,
// and tiles of sums stay in registers. Nobody waits for anybody else's panels. Rows are read where
// they lie when their depth is dense; padding is a row of zeros. Blocks of the depth add up in
// `out`: those of one chunk continue its sum, or each is a chunk. So every sum takes its products
// in the contraction's order, however the work is cut: the bits depend on neither threads nor
// shapes.
//
// Immutable; run by any number of threads at once. Each thread keeps about half a megabyte for
// packed operands, of f64 as much again: std::bad_alloc when there is none.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "backends/compiler/kernel/contraction.h"
#include "backends/compiler/kernel/contraction_rows.h"
#include "backends/compiler/kernel/implementations.h"
#include "backends/cpu/contraction/blocking.h"
#include "backends/cpu/contraction/micro_kernels.h"

namespace hekla::cpu {

class PreparedContraction {
 public:
  // Contractions with base dilations: those of their parts are `prepared` too. `schedule_seed` not
  // 0, for tests: how it runs is drawn from all that is right, differently for each number.
  // `by_rows`: for run_rows.
  PreparedContraction(const kernel::Contraction& contraction, const MicroKernels& kernels,
                      uint64_t schedule_seed = 0, bool by_rows = false);

  // Pointers to element 0 of the buffers; `out` holds f32, f64 or complex numbers of them, or the
  // i32 sums of integers. `is_parallel` and `cancelled`: see RunOptions. Once `cancelled` is true
  // it returns when each thread has ended its block of rows, columns and depth, or the 32 columns
  // of a product with one vector; `out` then holds anything.
  void run(const std::byte* lhs, const std::byte* rhs, std::byte* out, bool is_parallel,
           const std::atomic<bool>* cancelled = nullptr) const;
  // Tells of sums that are final: `each` more of each of the rows [first, first + count). From any
  // of the threads, which goes on when it returns.
  using SumsDone = std::function<void(int64_t first, int64_t count, int64_t each)>;
  // As run(), telling of sums by the rows that `of` numbers; only where tells_of_sums(). After a
  // cancellation not of all.
  void run_telling(kernel::RowsOf of, const SumsDone& done, const std::byte* lhs,
                   const std::byte* rhs, std::byte* out, bool is_parallel,
                   const std::atomic<bool>* cancelled) const;
  bool tells_of_sums() const { return !is_wide_ && !is_chained_ && parts_.empty(); }
  int64_t sums_of_row(kernel::RowsOf of) const {
    return kernel::is_by_rows(of) != is_swapped_ ? columns_.size : rows_.size;
  }
  // Rows [first, first + count) of those that `of` numbers (kernel/contraction_rows.h), on this
  // thread. Of a contraction that was prepared `by_rows` and has such rows.
  void run_rows(kernel::RowsOf of, const std::byte* lhs, const std::byte* rhs, std::byte* out,
                int64_t first, int64_t count) const;
  // On one thread.
  double estimated_ns() const { return estimated_ns_; }
  // The kind of loops that run, one of schedule_names().
  std::string_view schedule_name() const;
  // What each kind said, by its name. Of contractions with base dilations: of their first part.
  const std::vector<kernel::Implementation>& implementations() const;
  static std::span<const std::string_view> schedule_names();

 private:
  friend class ContractionLines;
  template <typename Real>
  friend class ContractionRun;
  static constexpr int kMostWindows = 4;

  // One operand as lines (rows or columns) by depth.
  struct LineAxis {
    int64_t size = 1;
    int64_t stride = 0;
    int64_t out = 0;  // in real numbers
    int window = -1;
  };
  struct Window {
    int64_t stride, dilation, low, extent, base_dilation, step;
  };
  // Consecutive depths that a side walks with one stride.
  struct Run {
    int64_t count = 0;
    int64_t packed = 0;  // elements of a panel's line: those, or so many of them together
    int64_t offset = 0;  // from a line's
    std::array<int64_t, kMostWindows> taps{};  // offset in each window
  };
  struct Side {
    DType dtype = DType::kF32;
    Narrow narrow = Narrow::kF32;
    int64_t bytes = 4;  // of an element
    int64_t offset = 0;
    int64_t size = 1;  // lines
    std::vector<LineAxis> lines;
    std::vector<int64_t> depth;  // strides
    std::vector<Window> windows;
    bool is_dense = false;  // consecutive lines lie side by side
    // Lines of the innermost axis lie side by side; those of a window slide by one along it.
    bool has_rows = false;
    std::vector<Run> runs;
    // The window that slides along with the depths of a run, or -1.
    int inner_window = -1;
  };
  struct DepthAxis {
    int64_t size = 1;
    int window = -1;
  };
  struct BatchAxis {
    int64_t size, rows, columns, out;
  };

  // A block of the depth: its runs [first, last) of either side, [0] those of the rows.
  struct DepthBlock {
    std::array<size_t, 2> first{};
    std::array<size_t, 2> last{};
    int64_t depth = 0;
    int64_t packed = 0;
  };

  // The kinds of loops, in the order in which they are asked.
  enum class Loops : uint8_t {
    kPartialSums,
    kColumnsInPlace,
    kColumnsStreamed,
    kRowsInPlace,
    kMatrixUnit,
    kFours,
    kRowsPacked
  };

  void prepare(const kernel::Contraction& contraction, uint64_t schedule_seed);
  // Why loops would be wrong here, or slower than those that are asked later.
  kernel::Refusal why_wrong(Loops loops) const;
  kernel::Refusal why_slow(Loops loops) const;
  kernel::Refusal why_not_wide() const;
  kernel::Refusal why_not_in_place() const;
  bool has_fours_in_place() const;
  kernel::Refusal why_not_bytes() const;
  kernel::Refusal why_no_matrix_unit() const;
  void choose_loops(std::mt19937_64* drawn);
  bool is_finite(const std::byte* rhs) const;
  void merge_axes();
  void settle_inner_axis();
  void find_runs();
  // Elements of the depth that a side walks with one stride from each place on.
  int64_t walked_together(const Side& side) const;
  // The depth is more than one chunk, whose sums are added.
  bool is_cut() const { return chunk_ends_.size() > 1; }
  // Elements of a run are a multiple of so many.
  int unit() const { return kernels_->pack_row == nullptr ? 1 : kUnitElements; }
  bool has_doubles() const { return complex_part(rows_.dtype) == DType::kF64; }
  const TileShape& tile_shape() const {
    return has_doubles() ? static_cast<const TileShape&>(*doubles_) : *kernels_;
  }
  template <typename Real>
  const MicroKernelsOf<Real>& kernels_of() const;
  // Calls body(ContractionRun<Real>) for the type of the sums.
  void with_run(const std::byte* lhs, const std::byte* rhs, std::byte* out,
                const std::atomic<bool>* cancelled, const auto& body) const;

  const MicroKernels* kernels_;
  const MicroKernelsOf<double>* doubles_;  // those that run where has_doubles()
  const bool by_rows_;                     // for run_rows
  Side rows_, columns_;
  std::vector<DepthAxis> depth_;
  std::vector<BatchAxis> batch_;
  int windowed_ = 0;  // 0: neither, 1: rows, 2: columns
  int64_t batches_ = 1;
  int64_t depth_size_ = 1;
  Blocking blocking_;
  std::vector<int64_t> chunk_ends_;  // kernel::chunk_ends
  int64_t inner_ = 1;                // of the innermost depth axis
  bool is_swapped_ = false;          // rows are those of rhs
  Loops loops_ = Loops::kRowsPacked;
  bool rows_in_place_ = false;     // read where they lie
  bool is_wide_ = false;           // few rows, columns not packed
  bool columns_in_place_ = false;  // of those: by tiles
  bool is_chained_ = false;        // one row, each sum in several
  std::vector<kernel::Implementation> implementations_;
  int depths_ = 1;  // of an element: see micro_kernels.h
  int reals_ = 1;   // numbers of an element: of complex ones two
  int64_t out_offset_ = 0;
  int64_t rhs_elements_ = 0;
  DType rhs_dtype_ = DType::kF32;
  // What the contraction is split into when its right operand is finite.
  std::vector<PreparedContraction> parts_;
  std::vector<DepthBlock> blocks_;
  double estimated_ns_ = 0;
};

}  // namespace hekla::cpu
