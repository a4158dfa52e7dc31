// SPDX-License-Identifier: Apache-2.0
// Scatters into one window. Where the program fixes it, as `x.at[1:-1].add(y)` does, they become
// arithmetic on all points and then fuse like it; small integer constants are folded on the way,
// since that is how such indices are written. Where the window is little of an array that is only
// passed on, fixed or found when the program runs, as in `x.at[i].set(y)`, it is read, changed and
// written in place: the time of a loop over such updates does not grow with the array.
#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/passes/scatter_region.h"
#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/op_attributes.h"
#include "runtime/program/ir/uses.h"

namespace hekla::passes {
namespace {

using ir::OpCode;

// Constants of more elements are not worth memory of their own.
constexpr int64_t kMostElements = 64;
// A window of less than this part of the array is written in place, or a copy, instead.
constexpr int64_t kSmallWindow = 4;

class Rewriter {
 public:
  Rewriter(ir::Block& block, const WindowLimits& limits) : block_(block), limits_(limits) {}

  void run() {
    std::vector<ir::Operation*> order;
    for (const auto& op : block_.operations()) order.push_back(op.get());
    for (ir::Operation* op : order) {
      for (size_t i = 0; i < op->region_count(); ++i) {
        for (const auto& inner : op->region(i).blocks()) Rewriter(*inner, limits_).run();
      }
      ir::Value* instead = nullptr;
      if (op->code() == OpCode::kScatter) {
        instead = rewrite_scatter(*op);
      } else {
        instead = fold(*op);
      }
      if (instead == nullptr) continue;
      op->result()->replace_all_uses_with(instead);
      block_.erase(op);
    }
  }

 private:
  ir::Value* insert(const ir::Operation& before, OpCode code, std::vector<ir::Value*> operands,
                    ir::Type type, ir::AttributeMap attributes = {}) {
    return block_
        .insert_before(&before, std::make_unique<ir::Operation>(
                                    code, std::move(operands), std::vector<ir::Type>{type},
                                    std::move(attributes), before.location()))
        ->result();
  }

  ir::Value* insert_constant(const ir::Operation& before, const ir::Type& type, HostArray values) {
    ir::AttributeMap attributes;
    attributes.set("value", ir::make_dense(type, std::move(values)));
    return insert(before, OpCode::kConstant, {}, type, std::move(attributes));
  }

  // Broadcasts of one number, reshapes and concatenations of integer constants.
  ir::Value* fold(const ir::Operation& op) {
    const bool joins = op.code() == OpCode::kConcatenate;
    const bool spreads = op.code() == OpCode::kBroadcastInDim || op.code() == OpCode::kReshape;
    if ((!joins && !spreads) || !op.result()->type().is_static_tensor()) return nullptr;
    const ir::Type& type = op.result()->type();
    const int64_t count = element_count(type.dims());
    if (!is_integer(type.dtype()) || type.quantization() != nullptr || count == 0 ||
        count > kMostElements) {
      return nullptr;
    }
    std::vector<HostArray> parts;
    for (const ir::Value* operand : op.operands()) {
      const ir::DenseValue* dense = ir::constant_value(*operand);
      if (dense == nullptr) return nullptr;
      Result<HostArray> all = dense->expand();
      if (!all.ok()) return nullptr;
      parts.push_back(*std::move(all));
    }
    if (spreads) {
      if (op.code() == OpCode::kBroadcastInDim && parts[0].size() != 1) return nullptr;
      const bool is_one = parts[0].size() == 1;
      return insert_constant(op, type,
                             parts[0].with_shape(type.dtype(), is_one ? Dims{} : type.dims()));
    }
    if (type.rank() != 1) return nullptr;
    HostArray joined(type.dtype(), type.dims());
    std::byte* to = joined.mutable_data();
    for (const HostArray& part : parts) {
      std::memcpy(to, part.data(), static_cast<size_t>(part.size_bytes()));
      to += part.size_bytes();
    }
    return insert_constant(op, type, std::move(joined));
  }

  // The only window of a scatter whose indices are constants.
  struct Window {
    Dims start, size;
  };

  static const ir::ScatterDimensionNumbers* numbers_of(const ir::Operation& op) {
    return op.attribute("scatter_dimension_numbers").get<ir::ScatterDimensionNumbers>();
  }

  // The size of the only window; nullopt: none, or several.
  static std::optional<Window> only_window_of(const ir::Operation& op) {
    const ir::ScatterDimensionNumbers* n = numbers_of(op);
    if (n == nullptr || !n->input_batching_dims.empty()) return std::nullopt;
    const Dims& shape = op.operand(0)->type().dims();
    const Dims& update = op.operand(2)->type().dims();
    const ir::Type& indices = op.operand(1)->type();
    int64_t vectors = 1;
    for (size_t d = 0; d < indices.dims().size(); ++d) {
      if (static_cast<int64_t>(d) != n->index_vector_dim) vectors *= indices.dims()[d];
    }
    if (vectors != 1 || !is_integer(indices.dtype()) ||
        element_count(indices.dims()) !=
            static_cast<int64_t>(n->scatter_dims_to_operand_dims.size())) {
      return std::nullopt;
    }
    Window window{Dims(shape.size(), 0), Dims(shape.size(), 1)};
    size_t next = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      const auto& inserted = n->inserted_window_dims;
      if (std::find(inserted.begin(), inserted.end(), static_cast<int64_t>(d)) != inserted.end()) {
        continue;
      }
      window.size[d] = update[static_cast<size_t>(n->update_window_dims[next++])];
    }
    // Indices without components may still come many times, all for the same window.
    if (element_count(update) != element_count(window.size) || element_count(update) == 0) {
      return std::nullopt;
    }
    return window;
  }

  static std::optional<Window> window_of(const ir::Operation& op) {
    std::optional<Window> only = only_window_of(op);
    const ir::DenseValue* indices = ir::constant_value(*op.operand(1));
    if (!only || indices == nullptr) return std::nullopt;
    const Result<HostArray> numbers = indices->expand();
    if (!numbers.ok()) return std::nullopt;
    const ir::ScatterDimensionNumbers* n = numbers_of(op);
    const Dims& shape = op.operand(0)->type().dims();
    Window& window = *only;
    const auto width = static_cast<size_t>(dtype_bytes(numbers->dtype()));
    for (size_t i = 0; i < n->scatter_dims_to_operand_dims.size(); ++i) {
      uint64_t bits = 0;
      std::memcpy(&bits, numbers->data() + i * width, width);
      // Negative ones are outside, as large ones are.
      if (bits >= uint64_t{1} << 31) return std::nullopt;
      window.start[static_cast<size_t>(n->scatter_dims_to_operand_dims[i])] =
          static_cast<int64_t>(bits);
    }
    for (size_t d = 0; d < shape.size(); ++d) {
      if (window.start[d] + window.size[d] > shape[d]) return std::nullopt;  // nothing is written
    }
    return window;
  }

  bool is_written_in_place(const ir::Operation& op, const Window& window) const {
    const int64_t points = element_count(op.result()->type().dims());
    return limits_.is_little(element_count(window.size), points) &&
           points <= std::numeric_limits<int32_t>::max() && is_passed_on(op);
  }

  // Also where a select takes it or the array that it changes, as mask_updates then sees.
  static bool is_passed_on(const ir::Operation& op) {
    const ir::Value& result = *op.result();
    return std::ranges::all_of(result.users(), [&](const ir::Operation* user) {
      if (user->code() != OpCode::kSelect) return ir::is_passed_on_by(*user, result);
      const ir::Value* other = user->operand(user->operand(1) == &result ? 2 : 1);
      return other == op.operand(0) && ir::is_only_passed_on(*user->result());
    });
  }

  // A window that the program fixes and that lies inside.
  ir::Value* write_fixed_window(ir::Operation& op, const Window& window) {
    ir::GraphBuilder g(block_, &op, op.location());
    Dims end;
    ir::GraphBuilder::Values starts;
    for (size_t d = 0; d < window.start.size(); ++d) {
      end.push_back(window.start[d] + window.size[d]);
      starts.push_back(g.integer_constant(DType::kI32, {}, window.start[d]));
    }
    ir::Value* before = g.slice(op.operand(0), window.start, end);
    ir::Value* result = g.dynamic_update_slice(
        op.operand(0), apply_scatter_region(g, op, before, g.reshape(op.operand(2), window.size)),
        starts);
    return g.status().ok() ? result : nullptr;
  }

  // A window that is found at run time: what is there is read, changed and written back, so that
  // nothing changes where the window is not inside. Null: it stays.
  ir::Value* rewrite_moving_window(ir::Operation& op) {
    const std::optional<Window> window = only_window_of(op);
    if (!window || ir::constant_value(*op.operand(1)) != nullptr ||
        !is_written_in_place(op, *window)) {
      return nullptr;
    }
    ir::Value* operand = op.operand(0);
    const Dims& shape = operand->type().dims();
    ir::GraphBuilder g(block_, &op, op.location());
    ir::Value* indices = op.operand(1);
    const DType given = indices->type().dtype();
    // Narrow ones do not hold all places; of unsigned wide ones large numbers would be negative.
    const bool is_narrow = dtype_bytes(given) < 4;
    if (!is_narrow && given != DType::kI32 && given != DType::kI64) return nullptr;
    const DType dtype = is_narrow ? DType::kI32 : given;
    const auto& places = numbers_of(op)->scatter_dims_to_operand_dims;
    const auto count = static_cast<int64_t>(places.size());
    // As `x.at[i, j]` writes them: they need no array in memory.
    std::vector<ir::Value*> parts;
    const ir::Operation* joined = indices->defining_op();
    if (joined != nullptr && joined->code() == OpCode::kConcatenate &&
        static_cast<int64_t>(joined->operand_count()) == count &&
        std::ranges::all_of(joined->operands(), [](const ir::Value* part) {
          return element_count(part->type().dims()) == 1;
        })) {
      parts.assign(joined->operands().begin(), joined->operands().end());
    } else {
      indices = g.reshape(g.convert(indices, dtype), {count});
    }
    ir::GraphBuilder::Values starts(shape.size(), nullptr);
    ir::Value* is_inside = nullptr;
    for (int64_t i = 0; i < count; ++i) {
      const auto d = static_cast<size_t>(places[static_cast<size_t>(i)]);
      starts[d] = g.reshape(parts.empty() ? g.slice(indices, {i}, {i + 1})
                                          : g.convert(parts[static_cast<size_t>(i)], dtype),
                            {});
      ir::Value* last = g.integer_constant(dtype, {}, shape[d] - window->size[d]);
      ir::Value* here = g.bit_and(g.compare("GE", starts[d], g.integer_constant(dtype, {}, 0)),
                                  g.compare("LE", starts[d], last));
      is_inside = is_inside == nullptr ? here : g.bit_and(is_inside, here);
    }
    if (is_inside == nullptr) return nullptr;
    for (ir::Value*& start : starts) {
      if (start == nullptr) start = g.integer_constant(dtype, {}, 0);
    }
    ir::Value* before = g.dynamic_slice(operand, starts, window->size);
    ir::Value* update = apply_scatter_region(g, op, before, g.reshape(op.operand(2), window->size));
    ir::Value* inside = g.broadcast(is_inside, window->size, {});
    ir::Value* result = g.dynamic_update_slice(operand, g.select(inside, update, before), starts);
    return g.status().ok() ? result : nullptr;
  }

  ir::Value* pad(const ir::Operation& before, ir::Value* inner, ir::Value* around,
                 const Window& window, const ir::Type& type) {
    const Dims& shape = type.dims();
    Dims high;
    for (size_t d = 0; d < shape.size(); ++d) {
      high.push_back(shape[d] - window.start[d] - window.size[d]);
    }
    ir::AttributeMap attributes;
    attributes.set("edge_padding_low", ir::i64_array(window.start));
    attributes.set("edge_padding_high", ir::i64_array(high));
    attributes.set("interior_padding", ir::i64_array(Dims(shape.size(), 0)));
    return insert(before, OpCode::kPad, {inner, around}, type, std::move(attributes));
  }

  // Null: it stays.
  ir::Value* rewrite_scatter(ir::Operation& op) {
    if (op.result_count() != 1 || op.operand_count() != 3) return nullptr;
    for (const ir::Value* operand : op.operands()) {
      if (!operand->type().is_static_tensor() || operand->type().quantization() != nullptr) {
        return nullptr;
      }
    }
    ir::Value* operand = op.operand(0);
    const ir::Type& type = operand->type();
    const DType dtype = type.dtype();
    if (op.operand(2)->type().dtype() != dtype || !(op.result()->type() == type)) return nullptr;
    const std::optional<Window> window = window_of(op);
    const ScatterRegion region = scatter_region_of(op);
    if (region.kind == ScatterRegion::Kind::kOther) return nullptr;
    if (!window) return rewrite_moving_window(op);
    const bool sets = region.kind == ScatterRegion::Kind::kSet;
    const bool is_mapped = region.kind == ScatterRegion::Kind::kMap;
    if (!sets && (is_mapped || ir::is_stored(*operand)) && is_written_in_place(op, *window)) {
      return write_fixed_window(op, *window);
    }
    if (is_mapped) return nullptr;
    const ir::Type window_type = ir::Type::tensor(dtype, window->size);
    ir::Value* update = op.operand(2);
    const int64_t points = element_count(type.dims());
    if (points > std::numeric_limits<int32_t>::max()) return nullptr;  // starts are i32
    if (!(update->type() == window_type)) {
      update = insert(op, OpCode::kReshape, {update}, window_type);
    }
    if (sets && element_count(window->size) * kSmallWindow <= points) {
      std::vector<ir::Value*> operands{operand, update};
      for (const int64_t start : window->start) {
        operands.push_back(insert_constant(op, ir::Type::tensor(DType::kI32, {}),
                                           HostArray::scalar(DType::kI32, int32_t(start))));
      }
      return insert(op, OpCode::kDynamicUpdateSlice, std::move(operands), type);
    }
    const bool is_whole = window->size == type.dims();
    ir::Value* made = update;
    if (!is_whole) {
      ir::Value* zero = insert_constant(op, ir::Type::tensor(dtype, {}), HostArray(dtype, {}));
      made = pad(op, update, zero, *window, type);
    }
    if (!sets) {
      ir::GraphBuilder g(block_, &op, op.location());
      made = apply_scatter_region(g, op, operand, made);
      if (!g.status().ok()) return nullptr;
    }
    if (is_whole) return made;
    const ir::Type flag = ir::Type::tensor(DType::kI1, {});
    ir::Value* inside = insert_constant(op, ir::Type::tensor(DType::kI1, window->size),
                                        HostArray::scalar(DType::kI1, uint8_t{1}));
    ir::Value* outside = insert_constant(op, flag, HostArray::scalar(DType::kI1, uint8_t{0}));
    ir::Value* mask = pad(op, inside, outside, *window, ir::Type::tensor(DType::kI1, type.dims()));
    return insert(op, OpCode::kSelect, {mask, made, operand}, type);
  }

  ir::Block& block_;
  const WindowLimits& limits_;
};

}  // namespace

void rewrite_static_windows(ir::Module& module, const WindowLimits& limits) {
  for (const auto& function : module.functions) {
    for (const auto& block : function->body().blocks()) Rewriter(*block, limits).run();
  }
}

}  // namespace hekla::passes
