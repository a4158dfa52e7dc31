// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/contraction/contraction.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>

#include "backends/cpu/execute/block_pool.h"
#include "backends/cpu/threads/thread_pool.h"

namespace hekla::cpu {
namespace {

// Depth of a block: its panel of columns (16 to 32 wide) stays in the first level cache together
// with the rows of a tile.
constexpr int64_t kDepthBlock = 384;
// Rows of a block, whose part of the depth stays in the second level cache.
constexpr int64_t kRowBlock = 96;
// Packed columns that are made at a time: what a last level cache has room for.
constexpr int64_t kPackedBytes = 4 << 20;
// Rows below which columns that lie side by side are not worth packing.
constexpr int64_t kWideRows = 4;
// Runs of a row's depth from this on are read where they lie.
constexpr int64_t kDenseRun = 8;

// Work below this is done by one thread: waking another costs about as much.
constexpr double kSplitNs = 20'000;
constexpr double kPieceNs = 25'000;
constexpr double kNsPerMultiplyAdd = 0.04;  // of one thread, with vectors of eight

alignas(64) constexpr std::array<float, kDepthBlock> kZeros{};

Narrow narrow_of(DType dtype) {
  return dtype == DType::kBF16 ? Narrow::kBF16 : dtype == DType::kF16 ? Narrow::kF16 : Narrow::kF32;
}

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

PreparedContraction::PreparedContraction(const kernel::Contraction& c, const MicroKernels& kernels)
    : kernels_(kernels) {
  rows_.dtype = c.lhs_dtype;
  columns_.dtype = c.rhs_dtype;
  rows_.offset = c.lhs_offset;
  columns_.offset = c.rhs_offset;
  for (const auto& axis : c.batch) {
    batch_.push_back({axis.size, axis.lhs, axis.rhs, axis.out});
    batches_ *= axis.size;
  }
  for (const auto& axis : c.rows) rows_.lanes.push_back({axis.size, axis.lhs, axis.out, -1});
  for (const auto& axis : c.columns) columns_.lanes.push_back({axis.size, axis.rhs, axis.out, -1});
  for (const auto& axis : c.depth) {
    depth_.push_back({axis.size, -1});
    rows_.depth.push_back(axis.lhs);
    columns_.depth.push_back(axis.rhs);
  }
  for (const auto& w : c.windows) {
    const int number = static_cast<int>(rows_.windows.size());
    rows_.lanes[static_cast<size_t>(w.row)].window = number;
    depth_[static_cast<size_t>(w.depth)].window = number;
    rows_.windows.push_back({w.stride, w.dilation, w.low, w.extent, w.base_dilation, w.lhs});
  }
  if (!c.windows.empty()) windowed_ = 1;
  merge_axes();
  // Vectors run along the columns: those should be the side whose neighbours are neighbours in
  // `out`, unless it is very narrow.
  const auto is_inner = [](const Side& side) {
    return !side.lanes.empty() && side.lanes.back().out == 1;
  };
  const bool turn = (is_inner(rows_) && !is_inner(columns_) && rows_.size >= 8) ||
                    (columns_.size < 8 && rows_.size >= 16 && !is_inner(columns_)) ||
                    (columns_.size < 4 && rows_.size >= 16);
  if (turn) {
    is_turned_ = true;
    std::swap(rows_, columns_);
    for (BatchAxis& axis : batch_) std::swap(axis.rows, axis.columns);
    if (windowed_ != 0) windowed_ = 2;
  }
  for (Side* side : {&rows_, &columns_}) {
    side->narrow = narrow_of(side->dtype);
    side->bytes = dtype_bytes(side->dtype);
    side->is_dense =
        side->windows.empty() &&
        (side->lanes.empty() || (side->lanes.size() == 1 && side->lanes[0].stride == 1));
  }
  inner_ = depth_.empty() ? 1 : depth_.back().size;
  rows_in_place_ = rows_.narrow == Narrow::kF32 &&
                   (depth_size_ == 1 || (rows_.depth.back() == 1 && inner_ >= kDenseRun));
  const bool plain_columns = columns_.narrow == Narrow::kF32 && columns_.is_dense &&
                             depth_.size() <= 1 && windowed_ == 0 && columns_.lanes.size() == 1 &&
                             columns_.lanes[0].out == 1;
  is_wide_ = plain_columns && rows_.size <= kWideRows && rows_.narrow == Narrow::kF32;
  const double rows_done = static_cast<double>(std::max<int64_t>(rows_.size, is_wide_ ? 4 : 2));
  estimated_ns_ = static_cast<double>(batches_) * rows_done * static_cast<double>(depth_size_) *
                      static_cast<double>(round_up(columns_.size, is_wide_ ? 1 : kernels.columns)) *
                      kNsPerMultiplyAdd * 16.0 / kernels.columns +
                  200;
}

// Drops axes of one element and joins those that are walked with one stride.
void PreparedContraction::merge_axes() {
  for (Side* side : {&rows_, &columns_}) {
    std::vector<LaneAxis> merged;
    side->size = 1;
    for (const LaneAxis& axis : side->lanes) {
      side->size *= axis.size;
      if (axis.size == 1 && axis.window < 0) continue;
      LaneAxis* last = merged.empty() ? nullptr : &merged.back();
      if (last != nullptr && last->window < 0 && axis.window < 0 &&
          last->stride == axis.stride * axis.size && last->out == axis.out * axis.size) {
        *last = {last->size * axis.size, axis.stride, axis.out, -1};
      } else {
        merged.push_back(axis);
      }
    }
    side->lanes = std::move(merged);
  }
  std::vector<DepthAxis> depth;
  std::vector<int64_t> rows, columns;
  depth_size_ = 1;
  for (size_t d = 0; d < depth_.size(); ++d) {
    const DepthAxis& axis = depth_[d];
    depth_size_ *= axis.size;
    if (axis.size == 1 && axis.window < 0) continue;
    if (!depth.empty() && depth.back().window < 0 && axis.window < 0 &&
        rows.back() == rows_.depth[d] * axis.size &&
        columns.back() == columns_.depth[d] * axis.size) {
      depth.back().size *= axis.size;
      rows.back() = rows_.depth[d];
      columns.back() = columns_.depth[d];
    } else {
      depth.push_back(axis);
      rows.push_back(rows_.depth[d]);
      columns.push_back(columns_.depth[d]);
    }
  }
  // The innermost axis is walked with one stride: never a windowed one.
  if (!depth.empty() && depth.back().window >= 0) {
    depth.push_back({1, -1});
    rows.push_back(1);
    columns.push_back(1);
  }
  depth_ = std::move(depth);
  rows_.depth = std::move(rows);
  columns_.depth = std::move(columns);
}

namespace {

// One row or column: where its depth begins, where its sums go, and its place in each window.
struct Lane {
  int64_t offset = 0;
  int64_t out = 0;
  std::array<int64_t, 4> at{};
};

// Consecutive depths that are walked with one stride on either side.
struct Run {
  int64_t count = 0;
  int64_t rows = 0;  // offset from a lane's
  int64_t columns = 0;
  std::array<int64_t, 4> taps{};  // offset in each window
};

struct DepthBlock {
  size_t first = 0;  // run
  size_t last = 0;
  int64_t depth = 0;
};

// Temporary memory of a thread, for a task that waits for nobody.
struct Scratch {
  std::vector<float> rows;
  std::vector<float> panel;
  std::vector<const float*> pointers;
  std::vector<int32_t> counts;
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

  ContractionRun(const Prepared& p, const std::byte* lhs, const std::byte* rhs, float* out)
      : p_(p),
        kernels_(p.kernels_),
        rows_(p.is_turned_ ? rhs : lhs),
        columns_(p.is_turned_ ? lhs : rhs),
        out_(out) {
    rows_ += p.rows_.offset * p.rows_.bytes;
    columns_ += p.columns_.offset * p.columns_.bytes;
    if (!p.is_wide_) find_runs();
  }

  Status run(bool is_parallel) {
    const double ns = p_.estimated_ns_;
    const double each = ns / static_cast<double>(p_.batches_);
    is_parallel = is_parallel && ns >= kSplitNs;
    if (!is_parallel || p_.batches_ == 1 || (p_.batches_ < 8 && each >= 4 * kPieceNs)) {
      return run_batches(0, p_.batches_, is_parallel);
    }
    std::atomic<bool> failed = false;
    const auto grain = std::max<int64_t>(1, static_cast<int64_t>(kPieceNs / each));
    ThreadPool::process_pool().for_ranges(p_.batches_, grain, [&](int64_t begin, int64_t end) {
      if (!run_batches(begin, end, false).ok()) failed = true;
    });
    return failed ? no_memory() : ok_status();
  }

 private:
  // The places of one element of the batch.
  struct Batch {
    const std::byte* rows;
    const std::byte* columns;
    float* out;
  };

  static Status no_memory() {
    return resource_exhausted("no memory for the packed operand of a contraction ({} bytes)",
                              kPackedBytes);
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

  Status run_batches(int64_t begin, int64_t end, bool is_parallel) const {
    for (int64_t b = begin; b < end; ++b) {
      const Batch batch = batch_at(b);
      if (p_.is_wide_) {
        run_wide(batch, is_parallel);
      } else if (p_.rows_in_place_ && p_.rows_.size <= 2 * kernels_.rows) {
        run_narrow(batch, is_parallel);
      } else {
        HEKLA_RETURN_IF_ERROR(run_blocks(batch, is_parallel));
      }
    }
    return ok_status();
  }

  static void for_ranges(bool is_parallel, int64_t count, int64_t grain,
                         const std::function<void(int64_t, int64_t)>& body) {
    if (is_parallel && count > grain) {
      ThreadPool::process_pool().for_ranges(count, grain, body);
    } else {
      body(0, count);
    }
  }

  // Cuts the depth into blocks of whole runs or parts of them.
  void find_runs() {
    const auto axes = p_.depth_.size();
    std::vector<int64_t> at(axes, 0);
    const int64_t inner = p_.inner_;
    int64_t left = p_.depth_size_;
    int64_t start = 0;  // along the innermost axis
    blocks_.push_back({0, 0, 0});
    while (left > 0) {
      DepthBlock& block = blocks_.back();
      const int64_t count = std::min(inner - start, kDepthBlock - block.depth);
      Run run;
      run.count = count;
      for (size_t a = 0; a < axes; ++a) {
        const int64_t index = a + 1 == axes ? start : at[a];
        run.rows += index * p_.rows_.depth[a];
        run.columns += index * p_.columns_.depth[a];
        const int window = p_.depth_[a].window;
        if (window >= 0) {
          const Side& side = p_.windowed_ == 2 ? p_.columns_ : p_.rows_;
          const auto w = static_cast<size_t>(window);
          run.taps[w] = index * side.windows[w].dilation;
        }
      }
      runs_.push_back(run);
      block.depth += count;
      block.last = runs_.size();
      left -= count;
      start += count;
      if (start == inner) {
        start = 0;
        for (size_t a = axes; a-- > 1;) {
          if (++at[a - 1] < p_.depth_[a - 1].size) break;
          at[a - 1] = 0;
        }
      }
      if (left > 0 && blocks_.back().depth == kDepthBlock) {
        blocks_.push_back({runs_.size(), runs_.size(), 0});
      }
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

  // Packs `count` lanes of a block of the depth into a panel of `width`.
  void pack(const Side& side, bool is_rows, const std::byte* base, const Lane* lanes, int64_t count,
            int width, const DepthBlock& block, float* to) const {
    std::array<const void*, kMostPanelColumns> from{};
    const int64_t step = side.depth.empty() ? 1 : side.depth.back();
    for (size_t r = block.first; r < block.last; ++r) {
      const Run& run = runs_[r];
      for (int64_t l = 0; l < count; ++l) {
        from[static_cast<size_t>(l)] =
            find(side, base, lanes[l], is_rows ? run.rows : run.columns, run);
      }
      kernels_.pack(side.narrow, from.data(), width, step, run.count, to);
      to += run.count * width;
    }
  }

  // Few rows, and columns that lie side by side: they stream by once.
  void run_wide(const Batch& batch, bool is_parallel) const {
    const int64_t width = p_.columns_.size;
    const int64_t chunk = std::clamp<int64_t>(round_up(width / 8, 64), 256, 2048);
    const int64_t step = p_.rows_.depth.empty() ? 1 : p_.rows_.depth[0];
    const int64_t columns_step = p_.columns_.depth.empty() ? 0 : p_.columns_.depth[0];
    const auto* columns = reinterpret_cast<const float*>(batch.columns);
    for_ranges(is_parallel, (width + chunk - 1) / chunk, 1, [&](int64_t begin, int64_t end) {
      std::vector<Lane>& lanes = scratch().row_lanes;
      fill_lanes(p_.rows_, 0, p_.rows_.size, lanes);
      const int64_t first = begin * chunk;
      const int64_t count = std::min(end * chunk, width) - first;
      std::array<const float*, kWideRows> rows{};
      std::array<float*, kWideRows> out{};
      for (size_t r = 0; r < lanes.size(); ++r) {
        rows[r] = reinterpret_cast<const float*>(batch.rows) + lanes[r].offset;
        out[r] = batch.out + lanes[r].out + first;
        std::fill(out[r], out[r] + count, 0.0F);
      }
      for (int64_t c = 0; c < count; c += chunk) {
        std::array<float*, kWideRows> at = out;
        for (size_t r = 0; r < lanes.size(); ++r) at[r] += c;
        kernels_.wide(rows.data(), static_cast<int>(lanes.size()), step, columns + first + c,
                      columns_step, p_.depth_size_, std::min(chunk, count - c), at.data());
      }
    });
  }

  // Few rows: a panel is packed and used up by the same thread.
  void run_narrow(const Batch& batch, bool is_parallel) const {
    const int64_t panels = (p_.columns_.size + kernels_.columns - 1) / kernels_.columns;
    const double panel_ns =
        p_.estimated_ns_ / static_cast<double>(p_.batches_) / static_cast<double>(panels);
    const auto grain = std::max<int64_t>(1, static_cast<int64_t>(kPieceNs / panel_ns));
    for_ranges(is_parallel, panels, grain, [&](int64_t begin, int64_t end) {
      Scratch& mine = scratch();
      mine.panel.resize(static_cast<size_t>(kDepthBlock * kernels_.columns));
      for (int64_t j = begin; j < end; ++j) {
        const int64_t first = j * kernels_.columns;
        const int64_t count = std::min<int64_t>(kernels_.columns, p_.columns_.size - first);
        fill_lanes(p_.columns_, first, count, mine.column_lanes);
        for (size_t k = 0; k < blocks_.size(); ++k) {
          pack(p_.columns_, false, batch.columns, mine.column_lanes.data(), count, kernels_.columns,
               blocks_[k], mine.panel.data());
          prepare_rows(batch, 0, p_.rows_.size, blocks_[k], mine);
          multiply_panel(batch, mine, p_.rows_.size, mine.panel.data(), mine.column_lanes.data(),
                         count, k != 0);
        }
      }
    });
  }

  Status run_blocks(const Batch& batch, bool is_parallel) const {
    const int width = kernels_.columns;
    const int64_t panels = (p_.columns_.size + width - 1) / width;
    const int64_t depth = std::min(kDepthBlock, p_.depth_size_);
    const int64_t panel_bytes = depth * width * static_cast<int64_t>(sizeof(float));
    const int64_t together = std::clamp<int64_t>(kPackedBytes / panel_bytes, 1, panels);
    Result<Block> packed = BlockPool::process_pool().allocate(together * panel_bytes);
    if (!packed.ok()) return packed.status();
    auto* const panel_memory = reinterpret_cast<float*>(packed->data());
    for (int64_t first = 0; first < panels; first += together) {
      const int64_t count = std::min(together, panels - first);
      for (size_t k = 0; k < blocks_.size(); ++k) {
        const DepthBlock& block = blocks_[k];
        const int64_t stride = block.depth * width;
        const auto panel_at = [&](int64_t j) { return panel_memory + j * stride; };
        const int64_t grain = std::max<int64_t>(1, 32768 / stride);
        for_ranges(is_parallel, count, grain, [&](int64_t begin, int64_t end) {
          std::vector<Lane>& lanes = scratch().column_lanes;
          for (int64_t j = begin; j < end; ++j) {
            const int64_t lane = (first + j) * width;
            const int64_t lanes_here = std::min<int64_t>(width, p_.columns_.size - lane);
            fill_lanes(p_.columns_, lane, lanes_here, lanes);
            pack(p_.columns_, false, batch.columns, lanes.data(), lanes_here, width, block,
                 panel_at(j));
          }
        });
        multiply_block(batch, block, first, count, k != 0, is_parallel, panel_at);
      }
    }
    return ok_status();
  }

  template <typename PanelAt>
  void multiply_block(const Batch& batch, const DepthBlock& block, int64_t first, int64_t count,
                      bool adds, bool is_parallel, const PanelAt& panel_at) const {
    const int64_t size = p_.rows_.size;
    const double ns = static_cast<double>(size) * static_cast<double>(count * kernels_.columns) *
                      static_cast<double>(block.depth) * kNsPerMultiplyAdd;
    const auto wanted = std::max<int64_t>(1, static_cast<int64_t>(ns / kPieceNs));
    int64_t row_blocks = (size + kRowBlock - 1) / kRowBlock;
    const int64_t rows = round_up((size + row_blocks - 1) / row_blocks, kernels_.rows);
    row_blocks = (size + rows - 1) / rows;
    const int64_t groups = std::clamp<int64_t>(wanted / row_blocks, 1, std::min<int64_t>(count, 8));
    const int64_t panels = (count + groups - 1) / groups;
    for_ranges(is_parallel, row_blocks * groups, 1, [&](int64_t begin, int64_t end) {
      Scratch& mine = scratch();
      int64_t prepared = -1;
      for (int64_t task = begin; task < end; ++task) {
        const int64_t row = task / groups * rows;
        const int64_t rows_here = std::min(rows, size - row);
        if (row != prepared) prepare_rows(batch, row, rows_here, block, mine);
        prepared = row;
        const int64_t last = std::min(count, (task % groups + 1) * panels);
        for (int64_t j = task % groups * panels; j < last; ++j) {
          const int64_t lane = (first + j) * kernels_.columns;
          const int64_t lanes_here = std::min<int64_t>(kernels_.columns, p_.columns_.size - lane);
          fill_lanes(p_.columns_, lane, lanes_here, mine.column_lanes);
          multiply_panel(batch, mine, rows_here, panel_at(j), mine.column_lanes.data(), lanes_here,
                         adds);
        }
      }
    });
  }

  // Pointers to rows [first, first + count) of a block of the depth, tile by tile; packed where
  // they cannot be read in place.
  void prepare_rows(const Batch& batch, int64_t first, int64_t count, const DepthBlock& block,
                    Scratch& mine) const {
    fill_lanes(p_.rows_, first, count, mine.row_lanes);
    const int64_t height = kernels_.rows;
    const int64_t tiles = (count + height - 1) / height;
    const auto runs = p_.rows_in_place_ ? block.last - block.first : 1;
    mine.pointers.resize(static_cast<size_t>(tiles) * runs * kMostTileRows);
    mine.counts.resize(runs);
    if (!p_.rows_in_place_) {
      mine.counts[0] = static_cast<int32_t>(block.depth);
      mine.rows.resize(static_cast<size_t>(tiles * height * block.depth));
    }
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t rows = std::min(height, count - t * height);
      const Lane* lanes = mine.row_lanes.data() + t * height;
      const float** to = mine.pointers.data() + static_cast<size_t>(t) * runs * kMostTileRows;
      if (!p_.rows_in_place_) {
        float* panel = mine.rows.data() + t * height * block.depth;
        pack(p_.rows_, true, batch.rows, lanes, rows, static_cast<int>(height), block, panel);
        for (int64_t r = 0; r < rows; ++r) to[r] = panel + r;
        continue;
      }
      for (size_t s = 0; s < runs; ++s, to += kMostTileRows) {
        const Run& run = runs_[block.first + s];
        mine.counts[s] = static_cast<int32_t>(run.count);
        for (int64_t r = 0; r < rows; ++r) {
          const std::byte* at = find(p_.rows_, batch.rows, lanes[r], run.rows, run);
          to[r] = at == nullptr ? kZeros.data() : reinterpret_cast<const float*>(at);
        }
      }
    }
  }

  // The prepared rows times one panel.
  void multiply_panel(const Batch& batch, const Scratch& mine, int64_t rows, const float* panel,
                      const Lane* columns, int64_t count, bool adds) const {
    const int height = kernels_.rows;
    const int width = kernels_.columns;
    bool is_direct = count == width;
    for (int64_t c = 1; c < count && is_direct; ++c) {
      is_direct = columns[c].out == columns[0].out + c;
    }
    const size_t runs = mine.counts.size();
    alignas(64) std::array<float, kMostTileRows * kMostPanelColumns> buffer;
    std::array<float*, kMostTileRows> out{};
    Tile tile;
    tile.runs = mine.counts.data();
    tile.run_count = static_cast<int64_t>(runs);
    tile.step = p_.rows_in_place_ ? 1 : height;
    tile.columns = panel;
    tile.columns_step = width;
    tile.out = out.data();
    tile.adds = adds;
    const Lane* lanes = mine.row_lanes.data();
    for (int64_t row = 0; row < rows; row += height, lanes += height) {
      const auto here = static_cast<int>(std::min<int64_t>(height, rows - row));
      tile.rows = mine.pointers.data() + static_cast<size_t>(row / height) * runs * kMostTileRows;
      if (is_direct) {
        for (int r = 0; r < here; ++r) {
          out[static_cast<size_t>(r)] = batch.out + lanes[r].out + columns[0].out;
        }
        kernels_.tile[here](tile);
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
      kernels_.tile[here](tile);
      for (int r = 0; r < here; ++r) {
        const float* sums = buffer.data() + r * width;
        float* to = batch.out + lanes[r].out;
        for (int64_t c = 0; c < count; ++c) to[columns[c].out] = sums[c];
      }
    }
  }

  const Prepared& p_;
  const MicroKernels& kernels_;
  const std::byte* rows_;
  const std::byte* columns_;
  float* const out_;
  std::vector<Run> runs_;
  std::vector<DepthBlock> blocks_;
};

Status PreparedContraction::run(const std::byte* lhs, const std::byte* rhs, float* out,
                                bool is_parallel) const {
  return ContractionRun(*this, lhs, rhs, out).run(is_parallel);
}

}  // namespace hekla::cpu
