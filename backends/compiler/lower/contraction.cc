// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/contraction.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "backends/compiler/lower/algorithm.h"
#include "backends/compiler/lower/dimensions.h"
#include "runtime/program/ir/accumulator.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {
namespace {

using ir::OpCode;
using kernel::Contraction;
using Axis = Contraction::Axis;
using Sizes = std::vector<int64_t>;

// Below these, a generated kernel that is fused with its surroundings does better: multiply-adds in
// all and for one element of the batch, the depth of a sum, and what a row of the narrow side asks
// for.
constexpr double kLeastWork = 16384;
constexpr double kLeastBatchWork = 20'000;
constexpr int64_t kLeastDepth = 4;
constexpr int64_t kLeastWide = 8;
constexpr int64_t kLeastNarrowWork = 32;
// The work of a product with a vector, whose generated kernel reads memory across its lanes, and
// the depth that is worth several partial sums.
constexpr double kLeastChainedWork = 1024;
// Of products on matrix units, which are of 16 rows, columns and products.
constexpr int64_t kLeastMatrixSide = 16;
constexpr double kLeastMatrixWork = 1 << 18;
constexpr int64_t kLeastChainedDepth = 4 * kernel::kDotChains;
// A slice may leave out this share of the value it reads from; that value is computed for it.
constexpr int64_t kMostOfSlice = 4;
constexpr size_t kMostWindows = 4;

Sizes row_major(const Dims& dims) {
  Sizes strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * std::max<int64_t>(1, dims[d]);
  }
  return strides;
}

// Strides of a reshaped view: groups of dimensions whose sizes multiply to the same, each of which
// has to be walked with one stride.
std::optional<Sizes> reshape_strides(const Dims& from, const Sizes& strides, const Dims& to) {
  struct Run {
    int64_t size;
    int64_t stride;
  };
  std::vector<Run> runs;  // what can be walked as one, outermost first
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] == 1) continue;
    if (!runs.empty() && runs.back().stride == strides[d] * from[d]) {
      runs.back().size *= from[d];
      runs.back().stride = strides[d];
    } else {
      runs.push_back({from[d], strides[d]});
    }
  }
  Sizes result(to.size(), 0);
  size_t run = runs.size();
  int64_t used = 1;  // of the current run, from its inner end
  for (size_t d = to.size(); d-- > 0;) {
    if (to[d] == 1) continue;
    if (used == 1) {
      if (run == 0) return std::nullopt;
      --run;
    }
    if (runs[run].size % (used * to[d]) != 0) return std::nullopt;
    result[d] = runs[run].stride * used;
    used *= to[d];
    if (used == runs[run].size) used = 1;
  }
  if (run != 0 || used != 1) return std::nullopt;
  return result;
}

// The view of an operation's result through its operand, whose view is `source`.
bool look_through(const ir::Operation& op, View& source) {
  const Dims& from = op.operand(0)->type().dims();
  const Dims& to = op.result()->type().dims();
  switch (op.code()) {
    case OpCode::kReshape: {
      const std::optional<Sizes> strides = reshape_strides(from, source.strides, to);
      if (!strides.has_value()) return false;
      source.strides = *strides;
      return true;
    }
    case OpCode::kTranspose: {
      const Sizes permutation = ir::int_list(op, "permutation");
      Sizes strides(to.size());
      for (size_t d = 0; d < to.size(); ++d) {
        strides[d] = source.strides[static_cast<size_t>(permutation[d])];
      }
      source.strides = strides;
      return true;
    }
    case OpCode::kBroadcastInDim: {
      const Sizes map = ir::int_list(op, "broadcast_dimensions");
      Sizes strides(to.size(), 0);
      for (size_t d = 0; d < from.size(); ++d) {
        if (from[d] != 1) strides[static_cast<size_t>(map[d])] = source.strides[d];
      }
      source.strides = strides;
      return true;
    }
    case OpCode::kSlice: {
      if (element_count(from) > kMostOfSlice * element_count(to)) return false;
      const Sizes start = ir::int_list(op, "start_indices");
      const Sizes steps = ir::int_list(op, "strides");
      for (size_t d = 0; d < from.size(); ++d) {
        source.offset += start[d] * source.strides[d];
        source.strides[d] *= d < steps.size() ? steps[d] : 1;
      }
      return true;
    }
    case OpCode::kReverse:
      for (int64_t dim : ir::int_list(op, "dimensions")) {
        const auto d = static_cast<size_t>(dim);
        source.offset += (from[d] - 1) * source.strides[d];
        source.strides[d] = -source.strides[d];
      }
      return true;
    default:
      return false;
  }
}

bool is_narrow_or_f32(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

bool is_narrow_integer(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kUI8 || dtype == DType::kI16;
}

// How matrix units form its products, where that is by pieces.
kernel::Pieces pieces_of(const ir::Operation& op, const LowerOptions& options) {
  if (options.matrix_types.empty() || options.piece_type == DType::kF32) return {};
  for (const ir::Value* value : {op.operand(0), op.operand(1), op.result()}) {
    if (value->type().dtype() != DType::kF32) return {};
  }
  const Result<kernel::Algorithm> algorithm = algorithm_of(op);
  if (!algorithm.ok()) return {};
  const kernel::Pieces pieces = kernel::fewest_pieces(
      *algorithm, options.piece_type, /*are_in_range=*/options.piece_type == DType::kF16);
  return pieces.products <= options.most_piece_products ? pieces : kernel::Pieces();
}

kernel::Refusal why_no_types(const ir::Operation& op, const LowerOptions& options) {
  const DType lhs = op.operand(0)->type().dtype();
  const DType rhs = op.operand(1)->type().dtype();
  const DType out = op.result()->type().dtype();
  const std::vector<DType>& units = options.matrix_types;
  if (!units.empty()) {
    const bool are_served = lhs == rhs && std::count(units.begin(), units.end(), lhs) > 0;
    const bool are_sums =
        is_float(lhs) ? out == DType::kF32 : out == DType::kI32 || out == DType::kUI32;
    if (are_served && are_sums) return {};
    if (pieces_of(op, options).products > 1) return {};
    return fmt::format("sums in {} of {} and {}, for which the device has no matrix units",
                       dtype_name(out), dtype_name(lhs), dtype_name(rhs));
  }
  const bool are_floats = out == DType::kF32 && is_narrow_or_f32(lhs) && is_narrow_or_f32(rhs);
  const bool are_integers = (out == DType::kI32 || out == DType::kUI32) && is_narrow_integer(lhs) &&
                            is_narrow_integer(rhs);
  const bool are_same = lhs == rhs && lhs == out && (lhs == DType::kF64 || is_complex(lhs));
  if (are_floats || are_same || are_integers) return {};
  return fmt::format(
      "sums in {} of {} and {}: only f32 of f32, bf16 and f16, f64 and complex numbers of the "
      "same, and i32 of i8, u8 and i16",
      dtype_name(out), dtype_name(lhs), dtype_name(rhs));
}

// Fills in the axes of a contraction from the operands' views. `size(value, d)` and strides are of
// the operation's own operands.
class AxesBuilder {
 public:
  AxesBuilder(const ir::Operation& op, const View& lhs, const View& rhs, Sizes out)
      : op_(op),
        lhs_dims_(op.operand(0)->type().dims()),
        rhs_dims_(op.operand(1)->type().dims()),
        out_dims_(op.result()->type().dims()),
        out_(std::move(out)),
        lhs_(lhs),
        rhs_(rhs) {
    c_.lhs_dtype = lhs.base->type().dtype();
    c_.rhs_dtype = rhs.base->type().dtype();
    c_.lhs_elements = element_count(lhs.base->type().dims());
    c_.rhs_elements = element_count(rhs.base->type().dims());
    c_.out_elements = element_count(out_dims_);
    c_.lhs_offset = lhs.offset;
    c_.rhs_offset = rhs.offset;
  }

  std::optional<Contraction> dot() {
    const auto* n = op_.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>();
    if (n == nullptr) return std::nullopt;
    size_t next = 0;
    for (size_t k = 0; k < n->lhs_batching_dimensions.size(); ++k, ++next) {
      const auto l = static_cast<size_t>(n->lhs_batching_dimensions[k]);
      const auto r = static_cast<size_t>(n->rhs_batching_dimensions[k]);
      c_.batch.push_back({lhs_dims_[l], lhs_.strides[l], rhs_.strides[r], out_[next]});
    }
    for (size_t d = 0; d < lhs_dims_.size(); ++d) {
      if (contains(n->lhs_batching_dimensions, d)) continue;
      if (contains(n->lhs_contracting_dimensions, d)) continue;
      c_.rows.push_back({lhs_dims_[d], lhs_.strides[d], 0, out_[next++]});
    }
    for (size_t d = 0; d < rhs_dims_.size(); ++d) {
      if (contains(n->rhs_batching_dimensions, d)) continue;
      if (contains(n->rhs_contracting_dimensions, d)) continue;
      c_.columns.push_back({rhs_dims_[d], 0, rhs_.strides[d], out_[next++]});
    }
    for (size_t k = 0; k < n->lhs_contracting_dimensions.size(); ++k) {
      const auto l = static_cast<size_t>(n->lhs_contracting_dimensions[k]);
      const auto r = static_cast<size_t>(n->rhs_contracting_dimensions[k]);
      c_.depth.push_back({lhs_dims_[l], lhs_.strides[l], rhs_.strides[r], 0});
    }
    return c_;
  }

  std::optional<Contraction> convolution() {
    const auto* n = op_.attribute("dimension_numbers").get<ir::ConvDimensionNumbers>();
    if (n == nullptr || n->kernel_spatial_dimensions.size() > kMostWindows) return std::nullopt;
    const int64_t feature_groups = ir::int_value(op_, "feature_group_count", 1);
    const int64_t batch_groups = ir::int_value(op_, "batch_group_count", 1);
    const auto at = [](const Sizes& list, int64_t d) { return list[static_cast<size_t>(d)]; };
    const int64_t features = at(rhs_dims_, n->kernel_input_feature_dimension);
    const int64_t images = at(lhs_dims_, n->input_batch_dimension) / batch_groups;
    const int64_t groups = feature_groups * batch_groups;
    const int64_t outputs = at(rhs_dims_, n->kernel_output_feature_dimension) / groups;
    const int64_t image_stride = at(lhs_.strides, n->input_batch_dimension);
    const int64_t feature_stride = at(lhs_.strides, n->input_feature_dimension);
    const int64_t output_stride = at(rhs_.strides, n->kernel_output_feature_dimension);
    const int64_t out_stride = at(out_, n->output_feature_dimension);
    if (groups > 1) {
      c_.batch.push_back({groups,
                          feature_groups > 1 ? features * feature_stride : images * image_stride,
                          outputs * output_stride, outputs * out_stride});
    }
    c_.rows.push_back({images, image_stride, 0, at(out_, n->output_batch_dimension)});
    c_.columns.push_back({outputs, 0, output_stride, out_stride});
    const Axis depth{features, feature_stride, at(rhs_.strides, n->kernel_input_feature_dimension),
                     0};
    const bool features_first = sums_features_first(op_);
    if (features_first) c_.depth.push_back(depth);
    for (size_t s = 0; s < n->kernel_spatial_dimensions.size(); ++s) add_window(*n, s);
    if (!features_first) c_.depth.push_back(depth);
    return c_;
  }

 private:
  void add_window(const ir::ConvDimensionNumbers& n, size_t s) {
    const auto in = static_cast<size_t>(n.input_spatial_dimensions[s]);
    const auto tap = static_cast<size_t>(n.kernel_spatial_dimensions[s]);
    const auto out = static_cast<size_t>(n.output_spatial_dimensions[s]);
    const std::vector<bool> reversal = ir::bool_list(op_, "window_reversal");
    const std::vector<std::array<int64_t, 2>> padding = ir::padding_of(op_);
    Contraction::Window w;
    w.row = static_cast<int32_t>(c_.rows.size());
    w.depth = static_cast<int32_t>(c_.depth.size());
    w.stride = at_or(ir::int_list(op_, "window_strides"), s, 1);
    w.dilation = at_or(ir::int_list(op_, "rhs_dilation"), s, 1);
    w.base_dilation = at_or(ir::int_list(op_, "lhs_dilation"), s, 1);
    w.low = s < padding.size() ? padding[s][0] : 0;
    w.extent = lhs_dims_[in];
    w.lhs = lhs_.strides[in];
    Axis row{out_dims_[out], 0, 0, out_[out]};
    Axis depth{rhs_dims_[tap], 0, rhs_.strides[tap], 0};
    if (s < reversal.size() && reversal[s]) {
      c_.rhs_offset += (depth.size - 1) * depth.rhs;
      depth.rhs = -depth.rhs;
    }
    const int64_t last = (row.size - 1) * w.stride + (depth.size - 1) * w.dilation - w.low;
    if (w.base_dilation == 1 && w.low <= 0 && last < w.extent) {
      // Never outside: plain strides.
      row.lhs = w.stride * w.lhs;
      depth.lhs = w.dilation * w.lhs;
      c_.lhs_offset -= w.low * w.lhs;
    } else {
      c_.windows.push_back(w);
    }
    c_.rows.push_back(row);
    c_.depth.push_back(depth);
  }

  const ir::Operation& op_;
  const Dims& lhs_dims_;
  const Dims& rhs_dims_;
  const Dims& out_dims_;
  const Sizes out_;
  const View& lhs_;
  const View& rhs_;
  Contraction c_;
};

kernel::Refusal why_not_worth_it(const Contraction& c, const LowerOptions& options) {
  if (options.small_limits) return {};
  const int64_t rows = kernel::axes_size(c.rows);
  const int64_t columns = kernel::axes_size(c.columns);
  const int64_t depth = kernel::axes_size(c.depth);
  const double work = kernel::contraction_work(c);
  if (!options.matrix_types.empty()) {
    if (std::min({rows, columns, depth}) < kLeastMatrixSide) {
      return fmt::format("{} rows, {} columns and sums of {}, one of them fewer than {}", rows,
                         columns, depth, kLeastMatrixSide);
    }
    if (work < kLeastMatrixWork) {
      return fmt::format("{} multiply-adds, fewer than {}", work, kLeastMatrixWork);
    }
    return {};
  }
  if (c.chains > 1 && work >= kLeastChainedWork && std::max(rows, columns) >= kLeastWide) {
    return {};
  }
  if ((c.lhs_dtype == DType::kF64 || c.has_complex()) && std::min(rows, columns) == 1) {
    return fmt::format("a product with a vector of {}", dtype_name(c.lhs_dtype));
  }
  const double batch_work = work / static_cast<double>(kernel::axes_size(c.batch));
  const double narrow_work = static_cast<double>(std::min(rows, columns) * depth);
  if (work < kLeastWork) return fmt::format("{} multiply-adds, fewer than {}", work, kLeastWork);
  if (batch_work < kLeastBatchWork) {
    return fmt::format("{} multiply-adds for an element of the batch, fewer than {}", batch_work,
                       kLeastBatchWork);
  }
  if (depth < kLeastDepth)
    return fmt::format("sums of {} products, fewer than {}", depth, kLeastDepth);
  if (std::max(rows, columns) < kLeastWide) {
    return fmt::format("{} rows and {} columns, both fewer than {}", rows, columns, kLeastWide);
  }
  if (narrow_work < kLeastNarrowWork) {
    return fmt::format("{} products for each of the more rows or columns, fewer than {}",
                       narrow_work, kLeastNarrowWork);
  }
  return {};
}

// Strides of the result of `op` inside of `output`, which it becomes by transposes and reshapes.
std::optional<Sizes> output_strides(const ir::Operation& op, const ir::Value& output) {
  std::vector<const ir::Operation*> moves;
  for (const ir::Value* value = &output; value != op.result();) {
    const ir::Operation* move = value->defining_op();
    if (move == nullptr || move->operand_count() != 1) return std::nullopt;
    moves.push_back(move);
    value = move->operand(0);
  }
  Sizes strides = row_major(output.type().dims());
  for (const ir::Operation* move : moves) {
    const Dims& from = move->operand(0)->type().dims();
    const Dims& to = move->result()->type().dims();
    if (move->code() == OpCode::kTranspose) {
      const Sizes permutation = ir::int_list(*move, "permutation");
      Sizes source(from.size());
      for (size_t d = 0; d < to.size(); ++d) {
        source[static_cast<size_t>(permutation[d])] = strides[d];
      }
      strides = std::move(source);
    } else {
      std::optional<Sizes> source = reshape_strides(to, strides, from);
      if (!source.has_value()) return std::nullopt;
      strides = std::move(*source);
    }
  }
  return strides;
}

// Whether `out` is contiguous along an axis of the rows or the columns.
bool writes_contiguously(const Contraction& c) {
  for (const std::vector<Axis>* axes : {&c.rows, &c.columns}) {
    for (const Axis& axis : *axes) {
      if (axis.out == 1 && axis.size > 1) return true;
    }
  }
  return false;
}

// Whether a contraction may write the operation's result in place of its operand.
bool is_written_through(const ir::Operation& op, const LowerOptions& options) {
  if (op.code() == OpCode::kTranspose || op.code() == OpCode::kReshape) return true;
  if (op.code() != OpCode::kConvert || options.matrix_types.empty()) return false;
  const DType to = op.result()->type().dtype();
  return op.operand(0)->type().dtype() == DType::kF32 && (to == DType::kBF16 || to == DType::kF16);
}

// Of the mark of bound_chunks.
constexpr std::string_view kMostOfChunk = "hekla.most_of_chunk";

const InMemory kNothing = [](const ir::Value&) { return false; };

// A value that can be given memory.
bool has_memory(const ir::Value& value) {
  const ir::Operation* op = value.defining_op();
  return op == nullptr || op->code() != OpCode::kIota;
}

}  // namespace

View view_of(const ir::Value& value, const ir::Block& block, const InMemory& in_memory) {
  const ir::Operation* op = value.defining_op();
  if (op != nullptr && op->block() == &block && op->operand_count() == 1 && !in_memory(value)) {
    View view = view_of(*op->operand(0), block, in_memory);
    if (look_through(*op, view)) {
      view.through.push_back(&value);
      return view;
    }
  }
  return {&value, row_major(value.type().dims()), 0, {}};
}

Result<LoweredContraction> lower_contraction(const ir::Operation& op, const InMemory& in_memory,
                                             const ir::Value& output, const LowerOptions& options) {
  const bool is_dot = op.code() == OpCode::kDotGeneral;
  if (!is_dot && op.code() != OpCode::kConvolution) {
    return unimplemented("it is neither dot_general nor convolution");
  }
  for (const ir::Value* value : {op.operand(0), op.operand(1), op.result()}) {
    const ir::Type& type = value->type();
    if (!type.is_static_tensor() || type.quantization() != nullptr) {
      return unimplemented("{} is no plain static tensor", type.to_string());
    }
    if (element_count(type.dims()) == 0) return unimplemented("{} is empty", type.to_string());
  }
  if (const kernel::Refusal why = why_no_types(op, options); !why.empty())
    return unimplemented("{}", why);
  HEKLA_ASSIGN_OR_RETURN(const kernel::Algorithm algorithm, algorithm_of(op));
  if (!has_rounded_operands(op, algorithm)) {
    return unimplemented("operands are not rounded for {}", kernel::to_string(algorithm));
  }
  const View lhs = view_of(*op.operand(0), *op.block(), in_memory);
  const View rhs = view_of(*op.operand(1), *op.block(), in_memory);
  if (!has_memory(*lhs.base) || !has_memory(*rhs.base)) {
    return unimplemented("an operand is an iota, which is not in memory");
  }
  std::optional<Sizes> out = output_strides(op, output);
  if (!out.has_value()) return unimplemented("the result is no view of what is written");
  AxesBuilder builder(op, lhs, rhs, std::move(*out));
  std::optional<Contraction> contraction = is_dot ? builder.dot() : builder.convolution();
  if (!contraction.has_value()) {
    return unimplemented("its window has more than {} dimensions", kMostWindows);
  }
  contraction->algorithm = algorithm;
  contraction->pieces = pieces_of(op, options);
  contraction->out_dtype = output.type().dtype();
  if (is_dot) contraction->chains = dot_chains(op);
  contraction->rhs_first = contraction->has_complex() && has_rhs_first(op);
  std::vector<int64_t> sizes;
  for (const Axis& axis : contraction->depth) sizes.push_back(axis.size);
  contraction->chunks = sum_chunks(op, sizes, contraction->chains);
  const kernel::Refusal why = why_not_worth_it(*contraction, options);
  if (!why.empty()) return unimplemented("{}", why);
  return LoweredContraction{std::move(*contraction), lhs.base, rhs.base};
}

int64_t dot_chains(const ir::Operation& op) {
  const auto* n = op.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>();
  if (n == nullptr || op.result()->type().dtype() != DType::kF32) return 1;
  for (const ir::Value* value : {op.operand(0), op.operand(1)}) {
    if (value->type().dtype() != DType::kF32) return 1;
  }
  // One dimension is summed over; one operand has no other but those of the batch.
  int64_t depth = 1;
  std::array<int64_t, 2> free{1, 1};
  std::array<bool, 2> is_along{};  // the last dimension is the one that is summed over
  for (size_t side = 0; side < 2; ++side) {
    const Dims& dims = op.operand(side)->type().dims();
    const Sizes& batch = side == 0 ? n->lhs_batching_dimensions : n->rhs_batching_dimensions;
    const Sizes& summed = side == 0 ? n->lhs_contracting_dimensions : n->rhs_contracting_dimensions;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] == 1) continue;
      const bool is_summed = contains(summed, d);
      if (!is_summed && !contains(batch, d)) free[side] *= dims[d];
      is_along[side] = is_summed;
      if (!is_summed || side == 1) continue;
      if (depth != 1) return 1;
      depth = dims[d];
    }
  }
  if (depth < kLeastChainedDepth || std::min(free[0], free[1]) != 1) return 1;
  const bool is_one = free[0] == 1 && free[1] == 1;
  return is_one || is_along[free[0] == 1 ? 1 : 0] ? kernel::kDotChains : 1;
}

void bound_chunks(ir::Module& module, int64_t most) {
  for (ir::Operation* op : contractions_of(module)) {
    const DType dtype = ir::accumulator_dtype(op->result()->type().dtype());
    if (!is_float(dtype) && !is_complex(dtype)) continue;
    op->attributes().set(kMostOfChunk, ir::i64_attribute(most));
  }
}

kernel::SumChunks sum_chunks(const ir::Operation& op, std::span<const int64_t> sizes,
                             int64_t chains) {
  const int64_t most = ir::int_value(op, kMostOfChunk, 0);
  return most > 0 ? kernel::cut_sum(sizes, most * chains) : kernel::SumChunks();
}

bool sums_features_first(const ir::Operation& convolution) {
  const auto* n = convolution.attribute("dimension_numbers").get<ir::ConvDimensionNumbers>();
  if (n == nullptr || n->kernel_spatial_dimensions.empty()) return false;
  const Dims& lhs = convolution.operand(0)->type().dims();
  const Dims& rhs = convolution.operand(1)->type().dims();
  const Dims& out = convolution.result()->type().dims();
  if (n->input_feature_dimension > std::ranges::min(n->input_spatial_dimensions) ||
      n->kernel_input_feature_dimension > std::ranges::min(n->kernel_spatial_dimensions)) {
    return false;
  }
  const auto positions = [](const Dims& dims, const Sizes& spatial) {
    int64_t count = 1;
    for (const int64_t d : spatial) count *= dims[static_cast<size_t>(d)];
    return count;
  };
  const int64_t results = positions(out, n->output_spatial_dimensions);
  if (positions(rhs, n->kernel_spatial_dimensions) <= results) return false;
  return results == 1 ||
         (static_cast<size_t>(n->input_spatial_dimensions.back()) + 1 == lhs.size() &&
          static_cast<size_t>(n->kernel_spatial_dimensions.back()) + 1 == rhs.size());
}

bool has_rhs_first(const ir::Operation& op) {
  const auto size = [](const ir::Value& value, int64_t d) {
    return value.type().dims()[static_cast<size_t>(d)];
  };
  if (const auto* n = op.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>()) {
    for (int64_t d = 0; d < std::ssize(op.operand(1)->type().dims()); ++d) {
      if (!contains(n->rhs_batching_dimensions, static_cast<size_t>(d)) &&
          !contains(n->rhs_contracting_dimensions, static_cast<size_t>(d)) &&
          size(*op.operand(1), d) > 1) {
        return false;
      }
    }
    return true;
  }
  const auto* n = op.attribute("dimension_numbers").get<ir::ConvDimensionNumbers>();
  if (n == nullptr) return false;
  for (int64_t d = std::ssize(op.result()->type().dims()); d-- > 0;) {
    if (size(*op.result(), d) > 1) return d != n->output_feature_dimension;
  }
  return false;
}

kernel::Refusal why_no_contraction(const ir::Operation& op, const LowerOptions& options) {
  const auto lowered = lower_contraction(op, kNothing, *op.result(), options);
  return lowered.ok() ? kernel::Refusal() : lowered.status().message();
}

const ir::Value& output_of(const ir::Operation& contraction, const LowerOptions& options) {
  const ir::Value* output = contraction.result();
  while (output->users().size() == 1) {
    const ir::Operation& user = *output->users().front();
    if (user.block() != contraction.block() || !is_written_through(user, options)) break;
    const auto lowered = lower_contraction(contraction, kNothing, *user.result(), options);
    if (!lowered.ok() || !writes_contiguously(lowered->contraction)) break;
    output = user.result();
  }
  return *output;
}

}  // namespace hekla::lower
