// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/lower.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_set>

#include "backends/compiler/lower/algorithm.h"
#include "backends/compiler/lower/contraction.h"
#include "backends/compiler/lower/dimensions.h"
#include "backends/compiler/lower/emitter.h"
#include "backends/compiler/lower/sequence.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using ir::OpCode;
using kernel::Op;
using kernel::ScalarType;

namespace {

// One of several updates of one array at constant places, as wide concatenates become.
bool is_one_of_several(const ir::Operation& update) {
  const auto is_update = [](const ir::Operation* op) {
    return op != nullptr && op->code() == OpCode::kDynamicUpdateSlice;
  };
  const auto& users = update.result()->users();
  return is_update(update.operand(0)->defining_op()) || (users.size() == 1 && is_update(users[0]));
}

// Points that one grid point of a contraction computes: loads of one operand are shared by them.
constexpr int64_t kTileRows = 8;

bool has_plain_types(const ir::Operation& op) {
  for (const ir::Value* value : op.operands()) {
    if (!is_plain(*value)) return false;
  }
  for (size_t i = 0; i < op.result_count(); ++i) {
    if (!is_plain(*op.result(i))) return false;
  }
  return op.result_count() > 0;
}

// The role by opcode alone.
Role role_by_code(const ir::Operation& op, const LowerOptions& options = {}) {
  switch (op.code()) {
    case OpCode::kConstant:
    case OpCode::kIota:
      return Role::kConstant;
    case OpCode::kBitcastConvert:
      return op.operand(0)->type().rank() == op.result()->type().rank() ? Role::kElementwise
                                                                        : Role::kMovement;
    case OpCode::kBroadcast:
    case OpCode::kBroadcastInDim:
    case OpCode::kConcatenate:
    case OpCode::kDynamicSlice:
    case OpCode::kDynamicUpdateSlice:
    case OpCode::kGather:
    case OpCode::kPad:
    case OpCode::kReshape:
    case OpCode::kReverse:
    case OpCode::kSlice:
    case OpCode::kTranspose:
      return Role::kMovement;
    case OpCode::kConvolution:
    case OpCode::kDotGeneral:
    case OpCode::kReduce:
    case OpCode::kSelectAndScatter:
      return Role::kReduction;
    case OpCode::kReduceWindow:
      return is_cumulative(op, options) ? Role::kSequence : Role::kReduction;
    case OpCode::kScatter:
      return is_sequence_of_scatter(op, options) ? Role::kSequence : Role::kReduction;
    case OpCode::kFft:
    case OpCode::kRngBitGenerator:
    case OpCode::kSort:
      return Role::kSequence;
    case OpCode::kAfterAll:
    case OpCode::kCase:
    case OpCode::kCustomCall:
    case OpCode::kFuncReturn:
    case OpCode::kIf:
    case OpCode::kReturn:
    case OpCode::kTuple:
    case OpCode::kUnknown:
    case OpCode::kWhile:
      return Role::kNone;
    default:
      return op.operand_count() >= 1 && op.operand_count() <= 3 && op.result_count() == 1
                 ? Role::kElementwise
                 : Role::kNone;
  }
}

// What the computed part of a kernel's graph looks like.
struct Shape {
  bool needs_dims = false;       // some operation looks at single indices
  bool has_contraction = false;  // at the outputs' points
  // The dimension of a convolution's output features, and how many groups it has; at the points.
  std::optional<size_t> grouped;
  int64_t groups = 1;
  int64_t largest = 1;  // elements of any value
};

class Scanner {
 public:
  Scanner(const std::function<bool(const ir::Value&)>& in_memory,
          const std::vector<const ir::Value*>& outputs)
      : in_memory_(in_memory), outputs_(outputs.begin(), outputs.end()) {
    for (const ir::Value* value : outputs) visit(*value, true);
  }
  const Shape& shape() const { return shape_; }

 private:
  // `at_points`: whether the value is needed at the outputs' own points.
  void visit(const ir::Value& value, bool at_points) {
    if (!seen_.insert(&value).second) return;
    shape_.largest = std::max(shape_.largest, element_count(value.type().dims()));
    const ir::Operation* op = value.defining_op();
    if (op == nullptr || (in_memory_(value) && !outputs_.contains(&value))) return;
    const bool is_scalar = value.type().rank() == 0;
    bool keeps_points = true;
    switch (role_by_code(*op)) {
      case Role::kConstant:
        // A constant that is no splat is in memory; an iota looks at an index.
        if (op->code() == OpCode::kIota) shape_.needs_dims = true;
        break;
      case Role::kMovement:
        keeps_points = keeps_row_major_order(*op);
        if (!keeps_points && !is_scalar && !is_splat(*op)) shape_.needs_dims = true;
        break;
      case Role::kSequence:
      case Role::kReduction:
        keeps_points = false;
        if (!is_scalar) shape_.needs_dims = true;
        if (at_points && (op->code() == OpCode::kConvolution ||
                          (op->code() == OpCode::kDotGeneral && dot_chains(*op) == 1))) {
          shape_.has_contraction = true;
          find_groups(*op);
        }
        break;
      case Role::kElementwise:
      case Role::kNone:
        break;
    }
    for (const ir::Value* operand : op->operands()) visit(*operand, at_points && keeps_points);
  }

  // Groups are a dimension of the grid, so that indices tell what a tile's points share.
  void find_groups(const ir::Operation& op) {
    const auto* n = op.attribute("dimension_numbers").get<ir::ConvDimensionNumbers>();
    if (op.code() != OpCode::kConvolution || n == nullptr) return;
    const int64_t groups = std::max(ir::int_value(op, "feature_group_count", 1),
                                    ir::int_value(op, "batch_group_count", 1));
    const auto d = static_cast<size_t>(n->output_feature_dimension);
    // Behind a reshape the kernel's dimensions are others.
    const Dims& dims = (*outputs_.begin())->type().dims();
    if (groups <= 1 || op.result()->type().dims() != dims) return;
    shape_.grouped = d;
    shape_.groups = groups;
  }

  // A broadcast that gives every element the same value.
  static bool is_splat(const ir::Operation& op) {
    if (op.code() != OpCode::kBroadcastInDim && op.code() != OpCode::kBroadcast) return false;
    const Dims& from = op.operand(0)->type().dims();
    return from.empty();
  }

  const std::function<bool(const ir::Value&)>& in_memory_;
  std::unordered_set<const ir::Value*> outputs_;
  std::unordered_set<const ir::Value*> seen_;
  Shape shape_;
};

class Lowering {
 public:
  Lowering(const std::vector<const ir::Value*>& outputs,
           const std::function<bool(const ir::Value&)>& in_memory, const LowerOptions& options)
      : outputs_(outputs), in_memory_(in_memory), options_(options) {}

  Result<LoweredKernel> run(const ir::Operation* in_place) {
    const Scanner scanner(in_memory_, outputs_);
    const Dims& dims =
        in_place != nullptr ? in_place->operand(1)->type().dims() : outputs_.front()->type().dims();
    // Offsets of windows and padding stay within a few times the largest size.
    const bool is_wide = scanner.shape().largest >= std::numeric_limits<int32_t>::max() / 8;
    const ScalarType index_type = is_wide ? ScalarType::kI64 : ScalarType::kI32;

    const bool is_linear = in_place == nullptr && !scanner.shape().needs_dims;
    const Grid grid = is_linear
                          ? linear_grid(dims)
                          : dims_grid(dims, in_place == nullptr && scanner.shape().has_contraction,
                                      scanner.shape());
    Builder b(static_cast<int>(grid.sizes.size()), index_type);
    for (size_t g = 0; g < grid.sizes.size(); ++g) {
      b.set_grid_size(static_cast<int>(g), grid.sizes[g]);
    }
    if (in_place != nullptr && is_one_of_several(*in_place)) {
      // From memory, so that all that differ in nothing else are one kernel.
      for (size_t d = 0; d < dims.size(); ++d) {
        const ir::Value* start = in_place->operand(d + 2);
        const bool is_free = dims[d] != in_place->result()->type().dims()[d];
        if (is_free && ir::constant_integer(*start)) starts_.insert(start);
      }
    }
    Emitter emitter(b, [this](const ir::Value& value) { return operand_of(value); });
    const Points points = make_points(b, grid, dims, is_linear);

    if (in_place != nullptr) {
      const Elements elements = emitter.emit(*in_place->operand(1), points);
      const ir::Value& result = *in_place->result();
      for (size_t i = 0; i < points.size(); ++i) {
        const Point target = emitter.update_target(*in_place, points[i]);
        kernel::store_element(b, result.type().dtype(), output_operand(result),
                              emitter.linear_of(target, result.type().dims()), elements[i]);
      }
    } else {
      std::vector<Elements> elements;
      for (const ir::Value* output : outputs_) elements.push_back(emitter.emit(*output, points));
      for (size_t o = 0; o < outputs_.size(); ++o) {
        const ir::Value& output = *outputs_[o];
        for (size_t i = 0; i < points.size(); ++i) {
          kernel::store_element(b, output.type().dtype(), output_operand(output),
                                emitter.linear_of(points[i], output.type().dims()), elements[o][i]);
        }
      }
    }
    HEKLA_RETURN_IF_ERROR(emitter.status());
    if (b.size() > options_.max_instructions) {
      return resource_exhausted("a kernel of {} would have {} scalar instructions; the limit is {}",
                                name(), b.size(), options_.max_instructions);
    }
    LoweredKernel lowered;
    lowered.kernel.name = name();
    lowered.kernel.grid = grid.sizes;
    lowered.kernel.index_type = index_type;
    lowered.kernel.body = b.finish();
    for (const BoundOperand& bound : operands_) {
      const ir::Type& type = bound.value->type();
      lowered.kernel.operands.push_back({element_count(type.dims()) * dtype_bytes(type.dtype()),
                                         !bound.is_output, bound.is_output});
    }
    lowered.operands = operands_;
    mark_pointwise(lowered.kernel);
    return lowered;
  }

 private:
  struct Grid {
    std::vector<int64_t> sizes;
    std::vector<size_t> dims;     // which dimension of the outputs each is
    std::optional<size_t> tiled;  // position in `sizes` of the one that is cut into tiles
    int64_t rows = 1;             // points of a tile
    int64_t members = 0;          // not 0: the first one counts groups of so many in its dimension
    int64_t tiled_size = 0;       // of the tiled one, in points
  };

  static Grid linear_grid(const Dims& dims) {
    if (dims.empty()) return {};
    return {{element_count(dims)}, {0}, std::nullopt, 1};
  }

  static Grid dims_grid(const Dims& dims, bool tile, const Shape& shape) {
    Grid grid;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] == 1) continue;
      const int64_t members = dims[d] / shape.groups;
      if (tile && shape.grouped == d && members >= kFewContiguous) {
        grid.sizes.insert(grid.sizes.begin(), shape.groups);
        grid.dims.insert(grid.dims.begin(), d);
        grid.members = members;
        grid.sizes.push_back(members);
      } else {
        grid.sizes.push_back(dims[d]);
      }
      grid.dims.push_back(d);
    }
    const size_t rank = grid.sizes.size();
    if (!tile || rank < 2) return grid;
    if (grid.sizes[rank - 1] < kFewContiguous && grid.sizes[rank - 2] > grid.sizes[rank - 1]) {
      std::swap(grid.sizes[rank - 1], grid.sizes[rank - 2]);
      std::swap(grid.dims[rank - 1], grid.dims[rank - 2]);
    }
    grid.tiled = rank - 2;
    grid.tiled_size = grid.sizes[rank - 2];
    grid.rows = std::min(kTileRows, grid.sizes[rank - 2]);
    grid.sizes[rank - 2] = (grid.sizes[rank - 2] + grid.rows - 1) / grid.rows;
    return grid;
  }

  static Points make_points(Builder& b, const Grid& grid, const Dims& dims, bool is_linear) {
    if (is_linear) {
      if (dims.empty()) return {Point{}};
      return {Point{{}, b.grid_index(0)}};
    }
    Points points;
    for (int64_t row = 0; row < grid.rows; ++row) {
      Point point{std::vector<Value>(dims.size(), b.index(0)), kernel::kNoValue};
      for (size_t g = 0; g < grid.sizes.size(); ++g) {
        Value i = b.grid_index(static_cast<int>(g));
        if (grid.tiled == g) {
          // The last tile does its last row again where it has fewer.
          i = b.add(b.mul(i, b.index(grid.rows)), b.index(row));
          if (grid.tiled_size % grid.rows != 0) {
            const Value last = b.index(grid.tiled_size - 1);
            i = b.select(b.binary(Op::kLtS, last, i), last, i);
          }
        }
        Value& place = point.dims[grid.dims[g]];
        if (grid.members != 0 && g == 0) {
          place = b.mul(i, b.index(grid.members));
        } else {
          const bool is_member = grid.members != 0 && grid.dims[g] == grid.dims[0];
          place = is_member ? b.add(place, i) : i;
        }
      }
      points.push_back(std::move(point));
    }
    return points;
  }

  std::optional<int> operand_of(const ir::Value& value) {
    if (starts_.contains(&value)) return find_or_add(value, false);
    if (std::find(outputs_.begin(), outputs_.end(), &value) != outputs_.end()) return std::nullopt;
    if (value.defining_op() != nullptr && !in_memory_(value)) return std::nullopt;
    return find_or_add(value, false);
  }

  int output_operand(const ir::Value& value) { return find_or_add(value, true); }

  int find_or_add(const ir::Value& value, bool is_output) {
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].value == &value && operands_[i].is_output == is_output) {
        return static_cast<int>(i);
      }
    }
    operands_.push_back({&value, is_output});
    return static_cast<int>(operands_.size() - 1);
  }

  std::string name() const {
    const ir::Operation* op = outputs_.front()->defining_op();
    std::string_view text = op == nullptr ? "copy" : op->name();
    if (const size_t dot = text.rfind('.'); dot != std::string_view::npos)
      text.remove_prefix(dot + 1);
    return std::string(text);
  }

  // An input whose every load is at an index where this point stores, by accesses of one width.
  // Tiles are left out: they may store a point twice.
  static void mark_pointwise(kernel::Kernel& kernel) {
    std::unordered_set<Value> stored;
    const kernel::Function& f = kernel.body;
    int width = 0;
    size_t stores = 0, outputs = 0;
    for (const kernel::KernelOperand& operand : kernel.operands) outputs += operand.is_written;
    for (Value v = 0; v < static_cast<Value>(f.size()); ++v) {
      if (f[v].op != Op::kStore) continue;
      const int bytes = kernel::unpack_access(f[v].immediate).bytes;
      if (width != 0 && width != bytes) return;
      width = bytes;
      stored.insert(f[v].arguments[0]);
      ++stores;
    }
    if (stores > 2 * outputs) return;
    std::vector<bool> pointwise(kernel.operands.size(), true);
    for (Value v = 0; v < static_cast<Value>(f.size()); ++v) {
      if (f[v].op != Op::kLoad) continue;
      const kernel::Access access = kernel::unpack_access(f[v].immediate);
      if (access.bytes != width || !stored.contains(f[v].arguments[0])) {
        pointwise[static_cast<size_t>(access.operand)] = false;
      }
    }
    int64_t written = 0;
    for (const kernel::KernelOperand& operand : kernel.operands) {
      if (operand.is_written) written = operand.bytes;
    }
    for (size_t i = 0; i < pointwise.size(); ++i) {
      kernel::KernelOperand& operand = kernel.operands[i];
      operand.is_pointwise = pointwise[i] && operand.is_read && operand.bytes == written;
    }
  }

  const std::vector<const ir::Value*>& outputs_;
  const std::function<bool(const ir::Value&)>& in_memory_;
  const LowerOptions& options_;
  std::unordered_set<const ir::Value*> starts_;  // constants that are loaded nevertheless
  std::vector<BoundOperand> operands_;
};

}  // namespace

double scatter_updates(const ir::Operation& op) {
  const auto* n = op.attribute("scatter_dimension_numbers").get<ir::ScatterDimensionNumbers>();
  if (n == nullptr || op.operand_count() < 3) return std::numeric_limits<double>::infinity();
  const Dims& indices = op.operand(op.operand_count() / 2)->type().dims();
  double updates = 1;
  for (size_t d = 0; d < indices.size(); ++d) {
    const auto dim = static_cast<int64_t>(d);
    const auto& batching = n->scatter_indices_batching_dims;
    const bool is_batching = std::find(batching.begin(), batching.end(), dim) != batching.end();
    if (dim != n->index_vector_dim && !is_batching) updates *= static_cast<double>(indices[d]);
  }
  return updates;
}

Result<LoweredKernel> lower_kernel(const std::vector<const ir::Value*>& outputs,
                                   const std::function<bool(const ir::Value&)>& in_memory,
                                   const LowerOptions& options) {
  return Lowering(outputs, in_memory, options).run(nullptr);
}

std::optional<int64_t> fixed_place(const ir::Operation& update) {
  const Dims& shape = update.result()->type().dims();
  const Dims& window = update.operand(1)->type().dims();
  const std::vector<int64_t> strides = strides_of(shape);
  int64_t place = 0;
  bool is_cut = false;  // by a dimension of several places: the ones behind it are whole
  for (size_t d = 0; d < shape.size(); ++d) {
    if (is_cut && window[d] != shape[d]) return std::nullopt;
    is_cut = is_cut || window[d] != 1;
    if (window[d] == shape[d]) continue;
    const std::optional<int64_t> start = ir::constant_integer(*update.operand(d + 2));
    if (!start) return std::nullopt;
    place += std::clamp<int64_t>(*start, 0, shape[d] - window[d]) * strides[d];
  }
  return place;
}

bool feeds_its_window(const ir::Operation& slice, const ir::Operation& update) {
  if (slice.code() != OpCode::kDynamicSlice || update.code() != OpCode::kDynamicUpdateSlice ||
      slice.operand(0) != update.operand(0) ||
      slice.result()->type().dims() != update.operand(1)->type().dims()) {
    return false;
  }
  for (size_t d = 1; d < slice.operand_count(); ++d) {
    const ir::Value& from = *slice.operand(d);
    const ir::Value& to = *update.operand(d + 1);
    const std::optional<int64_t> known = ir::constant_integer(from);
    if (&from != &to && (!known || known != ir::constant_integer(to))) return false;
  }
  const int64_t count = element_count(slice.result()->type().dims());
  constexpr size_t kMostOperations = 64;
  std::vector<const ir::Operation*> open{&slice};
  std::unordered_set<const ir::Operation*> seen{&slice};
  while (!open.empty()) {
    const ir::Operation& one = *open.back();
    open.pop_back();
    for (const ir::Operation* user : one.result()->users()) {
      if (user == &update) {
        // As what it writes, not as the array or as a place.
        if (std::ranges::count(update.operands(), one.result()) != 1 ||
            update.operand(1) != one.result()) {
          return false;
        }
        continue;
      }
      const bool is_passed =
          user->code() == OpCode::kReshape || role_by_code(*user) == Role::kElementwise;
      if (!is_passed || user->block() != update.block() || user->result_count() != 1 ||
          element_count(user->result()->type().dims()) != count) {
        return false;
      }
      if (seen.insert(user).second) open.push_back(user);
      if (seen.size() > kMostOperations) return false;
    }
  }
  return true;
}

Result<LoweredKernel> lower_update_in_place(const ir::Operation& update,
                                            const std::function<bool(const ir::Value&)>& in_memory,
                                            const LowerOptions& options) {
  return Lowering({update.result()}, in_memory, options).run(&update);
}

bool keeps_row_major_order(const ir::Operation& op) {
  if (op.code() == OpCode::kReshape) return true;
  if (op.code() != OpCode::kBroadcastInDim) return false;
  const std::vector<int64_t> map = ir::int_list(op, "broadcast_dimensions");
  return std::is_sorted(map.begin(), map.end()) &&
         element_count(op.operand(0)->type().dims()) == element_count(op.result()->type().dims());
}

Role role_of(const ir::Operation& op, const LowerOptions& options) {
  const Role role = role_by_code(op, options);
  if (role == Role::kNone || !has_plain_types(op)) return Role::kNone;
  if (role == Role::kConstant || op.code() == OpCode::kReshape) return role;
  std::vector<const ir::Value*> results;
  for (size_t i = 0; i < op.result_count(); ++i) {
    results.push_back(op.result(i));
    if (element_count(op.result(i)->type().dims()) == 0) return role;
  }
  if (op.code() == OpCode::kFft) return is_fft_known(op) ? role : Role::kNone;
  // Regions may use anything; trying is the one answer that is never wrong.
  const auto tried = lower_sequence(
      results, [](const ir::Value&) { return true; }, options);
  return tried.ok() ? role : Role::kNone;
}

std::string why_no_kernel(const ir::Operation& op) {
  if (!has_plain_types(op)) return "its types are not plain static tensors";
  const Role role = role_by_code(op);
  if (role == Role::kNone || op.result_count() == 0) return "there is no kernel for this operation";
  if (op.code() == OpCode::kDotGeneral || op.code() == OpCode::kConvolution) {
    const auto algorithm = algorithm_of(op);
    if (!algorithm.ok()) return algorithm.status().message();
  }
  std::vector<const ir::Value*> results;
  for (size_t i = 0; i < op.result_count(); ++i) results.push_back(op.result(i));
  const auto tried = lower_sequence(results, [](const ir::Value&) { return true; });
  return tried.ok() ? "" : tried.status().message();
}

}  // namespace hekla::lower
