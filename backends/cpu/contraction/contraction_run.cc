// SPDX-License-Identifier: Apache-2.0
// The loops around the micro-kernels, and how threads share them.
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>

#include "backends/cpu/contraction/contraction.h"
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
constexpr int kLineFloats = 16;
// Rows of a rectangle that are split before its columns, where they are packed.
constexpr int64_t kManyRows = 96;
// Depth from which on columns are split before rows, where those are read in place.
constexpr int64_t kSplitDepth = 128;
// Tiles of rows that a rectangle keeps.
constexpr int64_t kSplitTiles = 4;
// Parts of the last rectangles.
constexpr int64_t kLastParts = 4;

alignas(64) constexpr std::array<float, kMostWindowDepth> kZeros{};

// One row or column: where its depth begins, where its sums go, and its place in each window.
struct Lane {
  int64_t offset = 0;
  int64_t out = 0;
  std::array<int64_t, 4> at{};
};

// Rows of a block, ready for tiles: entry (tile * runs + run) * kMostTileRows + row of `pointers`.
struct BlockRows {
  std::vector<Lane> lanes;
  std::vector<const float*> pointers;
  std::vector<int32_t> counts;  // elements of each run
  std::vector<float> packed;
};

// Temporary memory of a thread, for a task that waits for nobody.
struct Scratch {
  BlockRows rows;
  std::vector<float> panels;
  std::vector<Lane> row_lanes;
  std::vector<Lane> column_lanes;
};

Scratch& scratch() {
  thread_local Scratch mine;
  return mine;
}

}  // namespace

// One run of a contraction: the loops around the micro-kernels.
class ContractionRun {
 public:
  using Prepared = PreparedContraction;
  using Side = Prepared::Side;
  using Run = Prepared::Run;
  using DepthBlock = Prepared::DepthBlock;

  ContractionRun(const Prepared& p, const std::byte* lhs, const std::byte* rhs, float* out,
                 const std::atomic<bool>* cancelled)
      : p_(p),
        cancelled_(cancelled),
        kernels_(p.kernels_),
        rows_(p.is_swapped_ ? rhs : lhs),
        columns_(p.is_swapped_ ? lhs : rhs),
        out_(out + p.out_offset_) {
    rows_ += p.rows_.offset * p.rows_.bytes;
    columns_ += p.columns_.offset * p.columns_.bytes;
  }

  void run(bool is_parallel) {
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

 private:
  // The places of one element of the batch.
  struct Batch {
    const std::byte* rows;
    const std::byte* columns;
    float* out;
  };

  // Asked once per block: what it costs is lost in the block's work.
  bool is_cancelled() const {
    return cancelled_ != nullptr && cancelled_->load(std::memory_order_relaxed);
  }

  Batch batch_at(int64_t number) const {
    Batch batch{rows_, columns_, out_};
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

  void run_batches(int64_t begin, int64_t end, bool is_parallel) const {
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

  static void for_ranges(bool is_parallel, int64_t count, int64_t grain,
                         const std::function<void(int64_t, int64_t)>& body) {
    if (is_parallel && count > grain) {
      ThreadPool::process_pool().for_ranges(count, grain, body);
    } else {
      body(0, count);
    }
  }

  // Lanes [first, first + count) of a side.
  static void fill_lanes(const Side& side, int64_t first, int64_t count, std::vector<Lane>& lanes) {
    lanes.resize(static_cast<size_t>(count));
    const size_t axes = side.lanes.size();
    std::array<int64_t, 16> few{};
    std::vector<int64_t> many;
    int64_t* at = few.data();
    if (axes > few.size()) {
      many.resize(axes);
      at = many.data();
    }
    for (size_t a = axes; a-- > 0;) {
      at[a] = first % side.lanes[a].size;
      first /= side.lanes[a].size;
    }
    for (Lane& lane : lanes) {
      lane = Lane();
      for (size_t a = 0; a < axes; ++a) {
        const Prepared::LaneAxis& axis = side.lanes[a];
        lane.offset += at[a] * axis.stride;
        lane.out += at[a] * axis.out;
        if (axis.window >= 0) {
          const auto w = static_cast<size_t>(axis.window);
          lane.at[w] = at[a] * side.windows[w].stride - side.windows[w].low;
        }
      }
      for (size_t a = axes; a-- > 0;) {
        if (++at[a] < side.lanes[a].size) break;
        at[a] = 0;
      }
    }
  }

  // Where a lane's run begins, or null when it is zeros.
  static const std::byte* find(const Side& side, const std::byte* base, const Lane& lane,
                               int64_t offset, const Run& run) {
    offset += lane.offset;
    for (size_t w = 0; w < side.windows.size(); ++w) {
      const Prepared::Window& window = side.windows[w];
      int64_t at = lane.at[w] + run.taps[w];
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

  // Elements of a panel. One line more than it holds: neighbours that start in the same place of a
  // page would push each other out of the first level cache.
  static int64_t panel_size(const DepthBlock& block, int64_t width) {
    return block.packed * width + 16;
  }

  // Packs lanes [first, first + count), which `lanes` describes, of a block of the depth into
  // panels of `width`, one after the other.
  void pack(const Side& side, bool is_rows, const std::byte* base, const Lane* lanes, int64_t first,
            int64_t count, int width, const DepthBlock& block, float* to) const {
    if (side.has_rows) {
      pack_side_by_side(side, is_rows, base, lanes, first, count, width, block, to);
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
              find(side, base, lanes[l + i], is_rows ? run.rows : run.columns, run);
        }
        kernels_.pack(side.narrow, from.data(), width, step, run.count, panel);
        panel += run.packed * width;
      }
    }
  }

  // The same for lanes that lie side by side along their innermost axis: all panels at once, so
  // that memory is read in order.
  void pack_side_by_side(const Side& side, bool is_rows, const std::byte* base, const Lane* lanes,
                         int64_t first, int64_t count, int width, const DepthBlock& block,
                         float* to) const {
    const Prepared::LaneAxis& inner = side.lanes.back();
    const int64_t step = side.depth.empty() ? 1 : side.depth.back();
    const int64_t panel_step = panel_size(block, width);
    for (size_t r = block.first; r < block.last; ++r) {
      const Run& run = p_.runs_[r];
      const int64_t offset = is_rows ? run.rows : run.columns;
      auto spread = [&](const std::byte* from, int64_t lane, int64_t length) {
        if (length <= 0) return;
        kernels_.spread(side.narrow, from, step, run.count, lane, length, width, panel_step, to);
      };
      int64_t at = first % inner.size;
      for (int64_t l = 0; l < count;) {
        const int64_t length = std::min(inner.size - at, count - l);
        at = 0;
        if (inner.window < 0) {
          spread(find(side, base, lanes[l], offset, run), l, length);
        } else {
          // Padding at either end.
          const auto w = static_cast<size_t>(inner.window);
          const int64_t start = lanes[l].at[w] + run.taps[w];
          const int64_t low = std::clamp<int64_t>(-start, 0, length);
          const int64_t high = std::clamp(side.windows[w].extent - start, low, length);
          const std::byte* from =
              low == high ? nullptr : find(side, base, lanes[l + low], offset, run);
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

  // Few rows, and columns that lie side by side: they stream by, four rows at a time, or stay in
  // the caches and are read by tiles in place.
  void run_wide(const Batch& batch, bool is_parallel) const {
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

  void run_wide_chunk(const Batch& batch, int64_t first, int64_t width) const {
    const int64_t step = p_.rows_.depth.empty() ? 1 : p_.rows_.depth[0];
    const int64_t columns_step = p_.columns_.depth.empty() ? 0 : p_.columns_.depth[0];
    const auto* columns = reinterpret_cast<const float*>(batch.columns) + first;
    std::vector<Lane>& lanes = scratch().row_lanes;
    fill_lanes(p_.rows_, 0, p_.rows_.size, lanes);
    const int64_t tiled = p_.columns_in_place_ ? width / kernels_.columns * kernels_.columns : 0;
    std::array<const float*, kWideRows> rows{};
    std::array<float*, kWideRows> out{};
    std::array<float*, kWideRows> rest{};  // behind the tiled columns
    for (size_t r = 0; r < lanes.size(); ++r) {
      rows[r] = reinterpret_cast<const float*>(batch.rows) + lanes[r].offset;
      out[r] = batch.out + lanes[r].out + first;
      rest[r] = out[r] + tiled;
      std::fill(out[r], out[r] + width, 0.0F);
    }
    for (int64_t d = 0; d < p_.depth_size_ && !is_cancelled(); d += kWideDepth) {
      const int64_t depth = std::min(kWideDepth, p_.depth_size_ - d);
      const float* block = columns + d * columns_step;
      multiply_in_place(rows, lanes.size(), block, columns_step, depth, tiled, out, d != 0);
      for (size_t r = 0; r < lanes.size(); r += kWideTile) {
        const auto count = std::min<size_t>(kWideTile, lanes.size() - r);
        kernels_.wide(rows.data() + r, static_cast<int>(count), step, block + tiled, columns_step,
                      depth, width - tiled, rest.data() + r);
      }
      for (size_t r = 0; r < lanes.size(); ++r) rows[r] += depth * step;
    }
  }

  // Rows that lie along the depth, with columns where they are: a number that tiles cover.
  void multiply_in_place(const std::array<const float*, kWideRows>& rows, size_t count,
                         const float* columns, int64_t columns_step, int64_t depth, int64_t width,
                         const std::array<float*, kWideRows>& out, bool adds) const {
    const auto height = static_cast<size_t>(kernels_.rows);
    const size_t tiles = (count + height - 1) / height;
    const auto run = static_cast<int32_t>(depth);
    std::array<float*, kMostTileRows> to{};
    Tile tile;
    tile.runs = &run;
    tile.run_count = 1;
    tile.columns_step = columns_step;
    tile.out = to.data();
    tile.adds = adds;
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

  // A vector with columns, whose sums are several each.
  void run_chained(const Batch& batch, bool is_parallel) const {
    const int64_t width = p_.columns_.size;
    const int64_t threads = is_parallel ? ThreadPool::process_pool().threads() : 1;
    const int64_t chunk = round_up((width + 2 * threads - 1) / (2 * threads), kChainedColumns);
    const auto depth = static_cast<size_t>(p_.depth_size_);
    const int64_t row_step = p_.rows_.depth[0];
    const auto* row = reinterpret_cast<const float*>(batch.rows);
    std::vector<float> copy;
    if (row_step != 1) {
      copy.resize(depth);
      for (size_t d = 0; d < depth; ++d) copy[d] = row[static_cast<int64_t>(d) * row_step];
      row = copy.data();
    }
    const bool is_across = p_.columns_.has_rows && p_.columns_.lanes.size() == 1;
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

  // Columns that lie side by side: partial sum k of all of them takes depths k, k + kDotSums, ...,
  // and memory streams by in its order, some hundred columns of each depth.
  void run_chained_across(const Batch& batch, const float* row, int64_t first,
                          int64_t count) const {
    const int64_t depth = p_.depth_size_;
    const int64_t step = p_.columns_.depth[0];
    const auto* columns = reinterpret_cast<const float*>(batch.columns) + first;
    std::vector<float>& sums = scratch().panels;
    // A line more than there are columns: sums a whole number of pages apart share lines.
    const int64_t distance = round_up(count, kDotSums) + kDotSums;
    sums.assign(static_cast<size_t>(distance * kDotSums), 0.0F);
    constexpr int64_t kBlock = kAcrossDepth * kDotSums;
    for (int64_t d = 0; d < depth && !is_cancelled(); d += kBlock) {
      for (int64_t k = 0; k < std::min<int64_t>(kDotSums, depth - d); ++k) {
        const int64_t here = (std::min(kBlock, depth - d) - k + kDotSums - 1) / kDotSums;
        const float* from = row + d + k;
        float* to = sums.data() + k * distance;
        kernels_.wide(&from, 1, kDotSums, columns + (d + k) * step, step * kDotSums, here, count,
                      &to);
      }
    }
    for (int64_t half = kDotSums / 2; half > 0; half /= 2) {
      for (int64_t k = 0; k < half; ++k) {
        float* to = sums.data() + k * distance;
        const float* from = to + half * distance;
        for (int64_t c = 0; c < count; ++c) to[c] += from[c];
      }
    }
    const Prepared::LaneAxis& axis = p_.columns_.lanes[0];
    float* out = batch.out + first * axis.out;
    for (int64_t c = 0; c < count; ++c) out[c * axis.out] = sums[static_cast<size_t>(c)];
  }

  void run_chained_columns(const Batch& batch, const float* row, int64_t first,
                           int64_t count) const {
    const int64_t depth = p_.depth_size_;
    const int64_t step = p_.columns_.depth[0];
    const auto* columns = reinterpret_cast<const float*>(batch.columns);
    Scratch& mine = scratch();
    std::vector<Lane>& lanes = mine.column_lanes;
    fill_lanes(p_.columns_, first, count, lanes);
    // Columns that lie along their depth at equal distances are read where they lie; others are
    // copied one by one, in blocks where they lie side by side.
    const bool is_even = p_.columns_.lanes.size() <= 1;
    std::array<float, kChainedColumns> sums{};
    if (step == 1 && is_even) {
      const int64_t distance = count > 1 ? lanes[1].offset - lanes[0].offset : 0;
      kernels_.chained(row, columns + lanes[0].offset, distance, depth, count, sums.data());
    } else {
      std::vector<float>& copies = mine.panels;
      copies.resize(static_cast<size_t>(depth * count));
      for (int64_t d = 0; d < depth; ++d) {
        for (int64_t c = 0; c < count; ++c) {
          copies[static_cast<size_t>(c * depth + d)] =
              columns[lanes[static_cast<size_t>(c)].offset + d * step];
        }
      }
      kernels_.chained(row, copies.data(), depth, depth, count, sums.data());
    }
    for (int64_t c = 0; c < count; ++c) {
      batch.out[lanes[static_cast<size_t>(c)].out] = sums[static_cast<size_t>(c)];
    }
  }

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

  Cut cut(bool is_parallel) const {
    const int64_t size = p_.rows_.size;
    const int64_t panels = (p_.columns_.size + kernels_.columns - 1) / kernels_.columns;
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
    const bool splits_columns = p_.rows_in_place_ && p_.depth_size_ >= kSplitDepth;
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
      cut.parts = splits_columns
                      ? cut.panels
                      : std::clamp<int64_t>(cut.rows / least_rows, 1, int64_t{kLastParts});
      if (cut.parts > 1) {
        cut.whole = std::max<int64_t>(0, cut.rectangles() - std::max<int64_t>(threads, 2));
      }
    }
    return cut;
  }

  void run_rectangles(const Batch& batch, bool is_parallel) const {
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

  void run_task(const Batch& batch, const Cut& cut, int64_t task) const {
    int64_t part = 0;
    if (task >= cut.whole) {
      part = (task - cut.whole) % cut.parts;
      task = cut.whole + (task - cut.whole) / cut.parts;
    }
    int64_t row = task % cut.row_groups * cut.rows;
    int64_t rows = std::min(cut.rows, p_.rows_.size - row);
    int64_t column = task / cut.row_groups * cut.panels * kernels_.columns;
    int64_t columns = std::min(cut.panels * kernels_.columns, p_.columns_.size - column);
    if (task >= cut.whole && cut.splits_columns) {
      const int64_t each =
          (cut.panels + cut.parts - 1) / cut.parts * static_cast<int64_t>(kernels_.columns);
      column += part * each;
      columns = std::min(each, columns - part * each);
    } else if (task >= cut.whole) {
      const int64_t each = round_up((cut.rows + cut.parts - 1) / cut.parts, kernels_.rows);
      row += part * each;
      rows = std::min(each, rows - part * each);
    }
    if (rows > 0 && columns > 0) run_rectangle(batch, row, rows, column, columns);
  }

  // Packed columns of a rectangle: whole panels, then perhaps half of one.
  struct Panels {
    int64_t columns = 0;
    int64_t whole = 0;  // columns in whole panels
    int64_t stride = 0;
  };

  void run_rectangle(const Batch& batch, int64_t row, int64_t rows, int64_t column,
                     int64_t columns) const {
    Scratch& mine = scratch();
    const int width = kernels_.columns;
    const int half = kernels_.half_columns;
    fill_lanes(p_.columns_, column, columns, mine.column_lanes);
    const int64_t rest = columns % width;
    const bool has_half = p_.blocking_.has_half_panels && rest > 0 && rest <= half;
    const int64_t whole = has_half ? columns - rest : columns;
    // Rows in equal parts, of whole tiles.
    const int64_t parts = (rows + p_.blocking_.rows - 1) / p_.blocking_.rows;
    const int64_t part = round_up((rows + parts - 1) / parts, kernels_.rows);
    for (size_t k = 0; k < p_.blocks_.size() && !is_cancelled(); ++k) {
      const DepthBlock& block = p_.blocks_[k];
      const int64_t stride = panel_size(block, width);
      mine.panels.resize(static_cast<size_t>((columns + width - 1) / width * stride));
      pack(p_.columns_, false, batch.columns, mine.column_lanes.data(), column, whole, width, block,
           mine.panels.data());
      if (has_half) {
        pack(p_.columns_, false, batch.columns, mine.column_lanes.data() + whole, column + whole,
             rest, half, block, mine.panels.data() + whole / width * stride);
      }
      for (int64_t r = 0; r < rows && !is_cancelled(); r += part) {
        const int64_t here = std::min(part, rows - r);
        prepare_rows(batch, row + r, here, block, mine.rows);
        for (int64_t c = 0; c < columns; c += width) {
          multiply_panel(batch, mine.rows, here, mine.panels.data() + c / width * stride,
                         mine.column_lanes.data() + c, std::min<int64_t>(width, columns - c),
                         c < whole ? width : half, k != 0);
        }
      }
    }
  }

  // Rows [first, first + count) of a block of the depth, tile by tile; packed where they cannot be
  // read in place.
  void prepare_rows(const Batch& batch, int64_t first, int64_t count, const DepthBlock& block,
                    BlockRows& to) const {
    fill_lanes(p_.rows_, first, count, to.lanes);
    const int64_t height = kernels_.rows;
    const int64_t tiles = (count + height - 1) / height;
    const auto runs = p_.rows_in_place_ ? block.last - block.first : 1;
    to.pointers.resize(static_cast<size_t>(tiles) * runs * kMostTileRows);
    to.counts.resize(runs);
    if (!p_.rows_in_place_) {
      to.counts[0] = static_cast<int32_t>(block.packed);
      to.packed.resize(static_cast<size_t>(tiles * panel_size(block, height)));
      pack(p_.rows_, true, batch.rows, to.lanes.data(), first, count, static_cast<int>(height),
           block, to.packed.data());
    }
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t rows = std::min(height, count - t * height);
      const Lane* lanes = to.lanes.data() + t * height;
      const float** pointers = to.pointers.data() + static_cast<size_t>(t) * runs * kMostTileRows;
      if (!p_.rows_in_place_) {
        const float* panel = to.packed.data() + t * panel_size(block, height);
        for (int64_t r = 0; r < rows; ++r) pointers[r] = panel + r;
        continue;
      }
      for (size_t s = 0; s < runs; ++s, pointers += kMostTileRows) {
        const Run& run = p_.runs_[block.first + s];
        to.counts[s] = static_cast<int32_t>(run.count);
        for (int64_t r = 0; r < rows; ++r) {
          const std::byte* at = find(p_.rows_, batch.rows, lanes[r], run.rows, run);
          pointers[r] = at == nullptr ? kZeros.data() : reinterpret_cast<const float*>(at);
        }
      }
    }
  }

  // The prepared rows times one panel of `width`, of which `count` columns are wanted.
  void multiply_panel(const Batch& batch, const BlockRows& prepared, int64_t rows,
                      const float* panel, const Lane* columns, int64_t count, int width,
                      bool adds) const {
    const int height = kernels_.rows;
    bool is_direct = count == width;
    for (int64_t c = 1; c < count && is_direct; ++c) {
      is_direct = columns[c].out == columns[0].out + c;
    }
    const size_t runs = prepared.counts.size();
    alignas(64) std::array<float, kMostTileRows * kMostPanelColumns> buffer;
    std::array<float*, kMostTileRows> out{};
    Tile tile;
    tile.runs = prepared.counts.data();
    tile.run_count = static_cast<int64_t>(runs);
    tile.step = p_.rows_in_place_ ? 1 : height;
    tile.columns = panel;
    tile.columns_step = width;
    tile.out = out.data();
    tile.adds = adds;
    const Lane* lanes = prepared.lanes.data();
    int64_t depth = 0;
    for (const int32_t run : prepared.counts) depth += run;
    const bool is_deep = depth >= kSplitDepth;
    const bool is_half = width < kernels_.columns;
    const auto& tiles = p_.is_paired_ ? (is_half ? kernels_.half_tile_pairs : kernels_.tile_pairs)
                                      : (is_half ? kernels_.half_tile : kernels_.tile);
    for (int64_t row = 0; row < rows; row += height, lanes += height) {
      const auto here = static_cast<int>(std::min<int64_t>(height, rows - row));
      tile.rows =
          prepared.pointers.data() + static_cast<size_t>(row / height) * runs * kMostTileRows;
      if (is_direct) {
        for (int r = 0; r < here; ++r) {
          out[static_cast<size_t>(r)] = batch.out + lanes[r].out + columns[0].out;
        }
        if (is_deep) {
          prefetch_sums(batch, lanes + here, std::min<int64_t>(height, rows - row - here),
                        columns[0], width);
        }
        tiles[here](tile);
        continue;
      }
      for (int r = 0; r < here; ++r) {
        float* sums = buffer.data() + r * width;
        out[static_cast<size_t>(r)] = sums;
        if (!adds) continue;
        const float* from = batch.out + lanes[r].out;
        for (int64_t c = 0; c < count; ++c) sums[c] = from[columns[c].out];
        for (int64_t c = count; c < width; ++c) sums[c] = 0;
      }
      tiles[here](tile);
      for (int r = 0; r < here; ++r) {
        const float* sums = buffer.data() + r * width;
        float* to = batch.out + lanes[r].out;
        for (int64_t c = 0; c < count; ++c) to[columns[c].out] = sums[c];
      }
    }
  }

  // Of the next tile, which may be far: in the third level cache or in memory.
  static void prefetch_sums(const Batch& batch, const Lane* rows, int64_t count, const Lane& column,
                            int width) {
    for (int64_t r = 0; r < count; ++r) {
      const float* sums = batch.out + rows[r].out + column.out;
      for (int c = 0; c < width; c += kLineFloats) __builtin_prefetch(sums + c, 1);
      __builtin_prefetch(sums + width - 1, 1);
    }
  }

  const Prepared& p_;
  const std::atomic<bool>* const cancelled_;
  const MicroKernels& kernels_;
  const std::byte* rows_;
  const std::byte* columns_;
  float* const out_;
};

void PreparedContraction::run(const std::byte* lhs, const std::byte* rhs, float* out,
                              bool is_parallel, const std::atomic<bool>* cancelled) const {
  if (parts_.empty() || !is_finite(rhs)) {
    ContractionRun(*this, lhs, rhs, out, cancelled).run(is_parallel);
    return;
  }
  for (const PreparedContraction& part : parts_) {
    ContractionRun(part, lhs, rhs, out, cancelled).run(is_parallel);
  }
}

}  // namespace hekla::cpu
