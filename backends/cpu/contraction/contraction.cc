// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/contraction/contraction.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace hekla::cpu {
namespace {

// Columns of more bytes come from memory rather than from the last cache: streamed in order.
constexpr int64_t kCachedBytes = int64_t{8} << 20;
constexpr int64_t kPageBytes = 4096;
// Lines that lie side by side are copied together from this many on.
constexpr int64_t kLeastSideBySide = 8;
// Runs of a row's depth from this on are read where they lie.
constexpr int64_t kDenseRun = 3;  // elements
// Runs that are as good to read as any.
constexpr int64_t kLongRun = 16;

constexpr double kNsPerMultiplyAdd = 0.025;  // of one thread, with vectors of eight
constexpr double kNsPerChained = 0.06;       // of a vector with what is read once
constexpr double kUnitWork = 0.15;           // of a matrix unit, beside one by one
constexpr int64_t kPackedBytes = 8;  // rows that take as long as to pack columns of integers
// Shorter runs of the depth are mostly filled up in a matrix unit.
constexpr int64_t kLeastUnitRun = 32;

Narrow narrow_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return Narrow::kF64;
    case DType::kC64:
    case DType::kC128:
      return Narrow::kComplex;
    case DType::kBF16:
      return Narrow::kBF16;
    case DType::kF16:
      return Narrow::kF16;
    case DType::kI8:
      return Narrow::kS8;
    case DType::kUI8:
      return Narrow::kU8;
    case DType::kI16:
      return Narrow::kS16;
    default:
      return Narrow::kF32;
  }
}

// Elements of the type of their sums, which are read where they lie.
bool is_of_sums(Narrow narrow) {
  return narrow == Narrow::kF32 || narrow == Narrow::kF64 || narrow == Narrow::kComplex;
}

}  // namespace

PreparedContraction::PreparedContraction(const kernel::Contraction& c, const MicroKernels& kernels,
                                         uint64_t schedule_seed, bool by_rows)
    : kernels_(&kernels), doubles_(kernels.doubles), by_rows_(by_rows) {
  prepare(c, schedule_seed);
  rhs_elements_ = c.rhs_elements;
  rhs_dtype_ = c.rhs_dtype;
  const std::vector<kernel::Contraction> parts = kernel::split_base_dilation(c);
  if (parts.size() == 1 && parts[0] == c) return;
  estimated_ns_ = 0;
  for (const kernel::Contraction& part : parts) {
    parts_.emplace_back(part, kernels, schedule_seed);
    estimated_ns_ += parts_.back().estimated_ns_;
  }
}

void PreparedContraction::prepare(const kernel::Contraction& c, uint64_t schedule_seed) {
  out_offset_ = c.out_offset;
  chunk_ends_ = kernel::chunk_ends(c);
  depths_ = c.has_integers() ? kernels_->depths : 1;
  reals_ = c.has_complex() ? 2 : 1;
  rows_.dtype = c.lhs_dtype;
  columns_.dtype = c.rhs_dtype;
  rows_.offset = c.lhs_offset;
  columns_.offset = c.rhs_offset;
  for (const auto& axis : c.batch) {
    batch_.push_back({axis.size, axis.lhs, axis.rhs, axis.out});
    batches_ *= axis.size;
  }
  for (const auto& axis : c.rows) rows_.lines.push_back({axis.size, axis.lhs, axis.out, -1});
  for (const auto& axis : c.columns) columns_.lines.push_back({axis.size, axis.rhs, axis.out, -1});
  for (const auto& axis : c.depth) {
    depth_.push_back({axis.size, -1});
    rows_.depth.push_back(axis.lhs);
    columns_.depth.push_back(axis.rhs);
  }
  for (const auto& w : c.windows) {
    const int number = static_cast<int>(rows_.windows.size());
    rows_.lines[static_cast<size_t>(w.row)].window = number;
    depth_[static_cast<size_t>(w.depth)].window = number;
    rows_.windows.push_back({w.stride, w.dilation, w.low, w.extent, w.base_dilation, w.lhs});
  }
  if (!c.windows.empty()) windowed_ = 1;
  merge_axes();
  // Vectors run along the columns: those should be the side that is contiguous in
  // `out`, unless it is very narrow.
  const auto is_inner = [](const Side& side) {
    return !side.lines.empty() && side.lines.back().out == 1;
  };
  std::mt19937_64 random(schedule_seed ^
                         static_cast<uint64_t>(c.out_elements * 8191 + depth_size_));
  // A few columns leave most of a vector empty: less work than to pack the rows as columns.
  const bool reads_rows = is_of_sums(narrow_of(rows_.dtype)) && !depth_.empty() &&
                          depth_.back().window < 0 && rows_.depth.back() == 1 &&
                          depth_.back().size >= kLongRun;
  bool swaps = (is_inner(rows_) && !is_inner(columns_) && rows_.size >= 8) ||
               (columns_.size < 8 && rows_.size >= 16 && !is_inner(columns_)) ||
               (columns_.size < 4 && rows_.size >= 16 && !reads_rows);
  if (schedule_seed != 0) swaps = random() % 2 == 0;
  if (c.has_complex()) swaps = c.rhs_first;  // rows are x of each product
  is_chained_ = c.chains > 1;
  if (is_chained_ ? rows_.size > 1 : swaps) {
    is_swapped_ = true;
    std::swap(rows_, columns_);
    for (BatchAxis& axis : batch_) std::swap(axis.rows, axis.columns);
    if (windowed_ != 0) windowed_ = 2;
  }
  out_offset_ *= reals_;
  for (BatchAxis& axis : batch_) axis.out *= reals_;
  for (Side* side : {&rows_, &columns_}) {
    for (LineAxis& axis : side->lines) axis.out *= reals_;
  }
  for (Side* side : {&rows_, &columns_}) {
    side->narrow = narrow_of(side->dtype);
    side->bytes = dtype_bytes(side->dtype);
    side->is_dense =
        side->windows.empty() &&
        (side->lines.empty() || (side->lines.size() == 1 && side->lines[0].stride == 1));
    const LineAxis* inner = side->lines.empty() ? nullptr : &side->lines.back();
    if (inner == nullptr || inner->size < kLeastSideBySide) continue;
    const Window* window =
        inner->window < 0 ? nullptr : &side->windows[static_cast<size_t>(inner->window)];
    side->has_rows = window == nullptr ? inner->stride == 1
                                       : window->stride == 1 && window->step == 1 &&
                                             window->base_dilation == 1 && inner->stride == 0;
  }
  settle_inner_axis();
  inner_ = depth_.empty() ? 1 : depth_.back().size;
  choose_loops(schedule_seed == 0 ? nullptr : &random);
  if (!is_wide_ && !is_chained_) find_runs();
  const bool is_unit = loops_ == Loops::kMatrixUnit;
  const int64_t rows_done =
      depths_ > 1 ? rows_.size + kPackedBytes : std::max<int64_t>(rows_.size, is_wide_ ? 4 : 2);
  estimated_ns_ =
      static_cast<double>(batches_ * rows_done) * static_cast<double>(depth_size_) *
          static_cast<double>(
              round_up(columns_.size * reals_, is_wide_ ? 1 : tile_shape().columns) * reals_) *
          (is_unit ? kUnitWork : 1.0 / depths_) * kNsPerMultiplyAdd * 16.0 / tile_shape().columns +
      0.1 * static_cast<double>(batches_ * rows_.size * columns_.size) + 200;
  if (is_chained_) {
    estimated_ns_ = static_cast<double>(batches_ * columns_.size) *
                        (static_cast<double>(depth_size_) * kNsPerChained + 3) +
                    50;
  }
}

namespace {

// By number of PreparedContraction::Loops.
constexpr std::string_view kNames[] = {"partial sums",  "columns in place", "columns streamed",
                                       "rows in place", "matrix unit",      "fours of bytes",
                                       "rows packed"};

}  // namespace

// Columns that lie side by side, in memory and in the result, for few rows of the type of sums.
kernel::Refusal PreparedContraction::why_not_wide() const {
  if (rows_.size > kWideRows) return fmt::format("{} rows, more than {}", rows_.size, kWideRows);
  if (!is_of_sums(columns_.narrow) || !is_of_sums(rows_.narrow)) {
    return fmt::format("rows of {} and columns of {}, not of the type of sums",
                       dtype_name(rows_.dtype), dtype_name(columns_.dtype));
  }
  if (windowed_ != 0) return "windows";
  if (depth_.size() > 1) return fmt::format("a depth of {} axes", depth_.size());
  if (columns_.lines.size() != 1 || !columns_.is_dense) return "columns are not contiguous";
  if (columns_.lines[0].out != reals_) return "columns of the result are not contiguous";
  return {};
}

// Rows that lie along the depth.
kernel::Refusal PreparedContraction::why_not_in_place() const {
  if (!is_of_sums(rows_.narrow)) {
    return fmt::format("rows of {}, not of the type of sums", dtype_name(rows_.dtype));
  }
  if (depth_size_ == 1) return {};
  if (rows_.inner_window >= 0) return "a window slides along the depth";
  if (rows_.depth.back() != 1) return "rows are not contiguous";
  const int64_t run = walked_together(rows_);
  if (run >= kDenseRun) return {};
  return fmt::format("runs of {} contiguous elements, fewer than {}", run, kDenseRun);
}

// The same for bytes, of which four depths are an element.
bool PreparedContraction::has_fours_in_place() const {
  return !depth_.empty() && rows_.inner_window < 0 && rows_.depth.back() == 1 &&
         inner_ % depths_ == 0 && inner_ >= kDenseRun * depths_;
}

kernel::Refusal PreparedContraction::why_not_bytes() const {
  if (rows_.bytes == 1 && columns_.bytes == 1) return {};
  return fmt::format("rows of {} and columns of {}, not of 8-bit integers", dtype_name(rows_.dtype),
                     dtype_name(columns_.dtype));
}

kernel::Refusal PreparedContraction::why_no_matrix_unit() const {
  if (kernel::Refusal why = why_not_bytes(); !why.empty()) return why;
  if (kernels_->bytes == nullptr) return "the processor has none for 8-bit integers";
  return may_use_amx() ? "" : "the system gives the process none";
}

kernel::Refusal PreparedContraction::why_wrong(Loops loops) const {
  if (loops == Loops::kPartialSums) {
    return is_chained_ ? "" : "each sum takes its products one after the other";
  }
  if (is_chained_) return fmt::format("each sum has {} parts", kDotSums);
  if (by_rows_ && (loops == Loops::kColumnsInPlace || loops == Loops::kColumnsStreamed)) {
    return "a few rows at a time";
  }
  switch (loops) {
    case Loops::kColumnsInPlace:
      if (kernel::Refusal why = why_not_wide(); !why.empty()) return why;
      if (reals_ > 1) return "columns of complex numbers";
      return !depth_.empty() && rows_.depth[0] == 1 ? "" : "rows are not contiguous";
    case Loops::kColumnsStreamed:
      return why_not_wide();
    case Loops::kRowsInPlace:
      return why_not_in_place();
    case Loops::kMatrixUnit:
      return why_no_matrix_unit();
    case Loops::kFours:
      if (kernel::Refusal why = why_not_bytes(); !why.empty()) return why;
      return kernels_->fours != nullptr ? "" : "the processor multiplies no four bytes at once";
    case Loops::kPartialSums:
    case Loops::kRowsPacked:
      break;
  }
  return {};
}

// Of loops that are right.
kernel::Refusal PreparedContraction::why_slow(Loops loops) const {
  if (loops == Loops::kMatrixUnit && inner_ < kLeastUnitRun) {
    return fmt::format("a depth in runs of {}, fewer than {}", inner_, kLeastUnitRun);
  }
  if (loops != Loops::kColumnsInPlace && loops != Loops::kColumnsStreamed) return {};
  constexpr int64_t kManyColumns = 256;
  const int64_t column_bytes = depth_size_ * columns_.size * columns_.bytes;
  const bool is_small = column_bytes <= kCachedBytes;
  // Lines a whole number of pages apart push each other out of the caches.
  const bool shares_lines =
      (depth_.empty() ? 0 : columns_.depth[0] * columns_.bytes) % kPageBytes == 0;
  if (loops == Loops::kColumnsInPlace) {
    if (rows_.size <= kWideTile) {
      return fmt::format("{} rows, not more than {}, stream", rows_.size, kWideTile);
    }
    if (!is_small) {
      return fmt::format("columns of {} bytes, more than {}, stream", column_bytes, kCachedBytes);
    }
    if (shares_lines) return fmt::format("columns a multiple of {} bytes apart stream", kPageBytes);
  }
  // A column that is used by many rows is worth packing, unless it is too long to be read twice.
  if (rows_.size <= kWideTile) return {};
  if (columns_.size < kManyColumns) {
    return fmt::format("{} rows, more than {}, of {} columns, fewer than {}, are worth packing",
                       rows_.size, kWideTile, columns_.size, kManyColumns);
  }
  const int64_t most = is_small && shares_lines ? kWideRows / 2 : kWideRows;
  if (rows_.size <= most) return {};
  return fmt::format("{} rows, more than {}, are worth packing", rows_.size, most);
}

// `drawn`: what else would be right may be chosen too.
void PreparedContraction::choose_loops(std::mt19937_64* drawn) {
  kernel::Implementations ways;
  for (const Loops loops :
       {Loops::kPartialSums, Loops::kColumnsInPlace, Loops::kColumnsStreamed, Loops::kRowsInPlace,
        Loops::kMatrixUnit, Loops::kFours, Loops::kRowsPacked}) {
    kernel::Refusal why = why_wrong(loops);
    if (why.empty() && !is_chained_ && loops != Loops::kRowsPacked) {
      if (drawn == nullptr) {
        why = why_slow(loops);
      } else if ((*drawn)() % 2 == 0) {
        why = "not drawn";
      }
    }
    if (ways.ask(kNames[static_cast<size_t>(loops)], std::move(why))) loops_ = loops;
  }
  implementations_ = ways.take();
  if (loops_ == Loops::kMatrixUnit || loops_ == Loops::kFours) {
    const auto& kernels_of = loops_ == Loops::kFours ? kernels_->fours : kernels_->bytes;
    kernels_ = kernels_of(rows_.narrow == Narrow::kU8, columns_.narrow == Narrow::kU8);
    depths_ = kernels_->depths;
  }
  if (depths_ == 1 && (loops_ == Loops::kRowsInPlace || loops_ == Loops::kRowsPacked)) {
    const int64_t columns = drawn == nullptr || (*drawn)() % 2 == 0 ? columns_.size * reals_ : 1;
    kernels_ = &kernels_for_columns(*kernels_, columns);
    doubles_ = &kernels_for_columns(*doubles_, columns);
  }
  columns_in_place_ = loops_ == Loops::kColumnsInPlace;
  is_wide_ = columns_in_place_ || loops_ == Loops::kColumnsStreamed;
  // Of loops that do not look at rows so, whether they lie so.
  rows_in_place_ =
      loops_ == Loops::kRowsInPlace || (loops_ != Loops::kRowsPacked && why_not_in_place().empty());
  if (loops_ == Loops::kFours) {
    rows_in_place_ = has_fours_in_place() && (drawn == nullptr || (*drawn)() % 2 == 0);
  }
  int64_t chunk = 0;
  for (size_t i = 0; is_cut() && i < chunk_ends_.size(); ++i) {
    chunk = std::max(chunk, chunk_ends_[i] - (i == 0 ? 0 : chunk_ends_[i - 1]));
  }
  // In real numbers.
  const BlockingProblem problem{.rows = rows_.size,
                                .columns = columns_.size * reals_,
                                .depth = depth_size_ * reals_,
                                .rows_in_place = rows_in_place_,
                                .depths = depths_,
                                .bytes = has_doubles() ? 8 : 4,
                                .unit = unit(),
                                .has_windows = windowed_ == 1,
                                .chunk = chunk * reals_};
  blocking_ = drawn == nullptr ? choose_blocking(problem, tile_shape(), second_level_cache_bytes())
                               : draw_blocking(problem, tile_shape(), *drawn);
  blocking_.depth /= reals_;
}

std::string_view PreparedContraction::schedule_name() const {
  if (!parts_.empty()) return parts_[0].schedule_name();
  return kNames[static_cast<size_t>(loops_)];
}

const std::vector<kernel::Implementation>& PreparedContraction::implementations() const {
  return parts_.empty() ? implementations_ : parts_[0].implementations();
}

std::span<const std::string_view> PreparedContraction::schedule_names() { return kNames; }

// Drops axes of one element and joins those that are walked with one stride.
void PreparedContraction::merge_axes() {
  for (Side* side : {&rows_, &columns_}) {
    // In the order of the result, so that what is near there is near here.
    std::stable_sort(side->lines.begin(), side->lines.end(),
                     [](const LineAxis& a, const LineAxis& b) { return a.out > b.out; });
    std::vector<LineAxis> merged;
    side->size = 1;
    for (const LineAxis& axis : side->lines) {
      side->size *= axis.size;
      if (axis.size == 1 && axis.window < 0) continue;
      LineAxis* last = merged.empty() ? nullptr : &merged.back();
      if (last != nullptr && last->window < 0 && axis.window < 0 &&
          last->stride == axis.stride * axis.size && last->out == axis.out * axis.size) {
        *last = {last->size * axis.size, axis.stride, axis.out, -1};
      } else {
        merged.push_back(axis);
      }
    }
    side->lines = std::move(merged);
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
  depth_ = std::move(depth);
  rows_.depth = std::move(rows);
  columns_.depth = std::move(columns);
}

// The innermost axis is walked with one stride, which a window may slide along with. Lines that lie
// side by side are read a depth at a time then.
void PreparedContraction::settle_inner_axis() {
  if (depth_.empty() || depth_.back().window < 0) return;
  Side& side = windowed_ == 2 ? columns_ : rows_;
  const int window = depth_.back().window;
  if (!side.has_rows && side.windows[static_cast<size_t>(window)].base_dilation == 1) {
    side.inner_window = window;
    return;
  }
  depth_.push_back({1, -1});
  for (Side* each : {&rows_, &columns_}) each->depth.push_back(each->depth.back());
}

int64_t PreparedContraction::walked_together(const Side& side) const {
  if (depth_.empty()) return 1;
  int64_t together = depth_.back().size;
  if (!side.windows.empty()) return together;
  for (size_t d = depth_.size(); d-- > 1;) {
    if (side.depth[d - 1] != side.depth[d] * depth_[d].size) break;
    together *= depth_[d - 1].size;
  }
  return together;
}

// Cuts the depth into its chunks, or where it is one into blocks, of whole runs or parts of them,
// which a side without windows joins where it walks on with the same stride.
void PreparedContraction::find_runs() {
  const auto axes = depth_.size();
  std::vector<int64_t> at(axes, 0);
  const int64_t inner = inner_;
  int64_t left = depth_size_;
  int64_t start = 0;  // along the innermost axis
  blocks_.emplace_back();
  int64_t end = 0;  // of the block
  const auto settle_end = [&] {
    end = is_cut() ? chunk_ends_[blocks_.size() - 1] : end + blocking_.depth;
  };
  settle_end();
  while (left > 0) {
    DepthBlock& block = blocks_.back();
    const int64_t count = std::min(inner - start, end - (depth_size_ - left));
    const int64_t packed = round_up((count + depths_ - 1) / depths_, unit()) * reals_;
    for (const size_t s : {size_t{0}, size_t{1}}) {
      Side& side = s == 0 ? rows_ : columns_;
      Run run{count, packed, 0, {}};
      for (size_t a = 0; a < axes; ++a) {
        const int64_t index = a + 1 == axes ? start : at[a];
        run.offset += index * side.depth[a];
        if (depth_[a].window < 0 || side.windows.empty()) continue;
        const auto w = static_cast<size_t>(depth_[a].window);
        run.taps[w] = index * side.windows[w].dilation;
      }
      Run* last = side.runs.size() == block.first[s] ? nullptr : &side.runs.back();
      const int64_t step = side.depth.empty() ? 1 : side.depth.back();
      if (last != nullptr && side.windows.empty() &&
          last->packed * depths_ == last->count * reals_ &&
          last->offset + last->count * step == run.offset) {
        last->count += count;
        last->packed += packed;
      } else {
        side.runs.push_back(run);
      }
      block.last[s] = side.runs.size();
    }
    block.depth += count;
    block.packed += packed;
    left -= count;
    start += count;
    if (start == inner) {
      start = 0;
      for (size_t a = axes; a-- > 1;) {
        if (++at[a - 1] < depth_[a - 1].size) break;
        at[a - 1] = 0;
      }
    }
    if (left > 0 && depth_size_ - left == end) {
      const std::array<size_t, 2> next = block.last;
      blocks_.push_back({next, next, 0, 0});
      settle_end();
    }
  }
}

bool PreparedContraction::is_finite(const std::byte* rhs) const {
  if (depths_ > 1) return true;
  // The largest exponent: infinity and NaN. In vectors, so without leaving early.
  const int64_t numbers = rhs_elements_ * reals_;
  const DType dtype = complex_part(rhs_dtype_);
  if (dtype == DType::kF64) {
    constexpr uint64_t kExponent = uint64_t{0x7ff} << 52;
    const auto* bits = reinterpret_cast<const uint64_t*>(rhs);
    uint64_t highest = 0;
    for (int64_t i = 0; i < numbers; ++i) highest = std::max(highest, bits[i] & kExponent);
    return highest != kExponent;
  }
  uint32_t most = 0;
  if (dtype == DType::kF32) {
    const auto* bits = reinterpret_cast<const uint32_t*>(rhs);
    for (int64_t i = 0; i < numbers; ++i) most = std::max(most, bits[i] & 0x7f800000U);
    return most != 0x7f800000U;
  }
  const uint32_t exponent = dtype == DType::kBF16 ? 0x7f80 : 0x7c00;
  const auto* bits = reinterpret_cast<const uint16_t*>(rhs);
  for (int64_t i = 0; i < numbers; ++i) most = std::max(most, bits[i] & exponent);
  return most != exponent;
}

}  // namespace hekla::cpu
