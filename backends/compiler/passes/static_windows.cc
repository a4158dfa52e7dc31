// SPDX-License-Identifier: Apache-2.0
// Scatters into one window that the program fixes, as `x.at[1:-1].add(y)` makes them, become
// arithmetic on all points: they then fuse like it. Small integer constants are folded on the way,
// since that is how such indices are written.
#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "backends/compiler/passes/passes.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::OpCode;

// Constants of more elements are not worth memory of their own.
constexpr int64_t kMostElements = 64;
// A window of less than this part of the array is written in place, or a copy, instead.
constexpr int64_t kSmallWindow = 4;

class Rewriter {
 public:
  explicit Rewriter(ir::Block& block) : block_(block) {}

  void run() {
    std::vector<ir::Operation*> order;
    for (const auto& op : block_.operations()) order.push_back(op.get());
    for (ir::Operation* op : order) {
      for (size_t i = 0; i < op->region_count(); ++i) {
        for (const auto& inner : op->region(i).blocks()) Rewriter(*inner).run();
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

  static std::optional<Window> window_of(const ir::Operation& op) {
    const auto* n = op.attribute("scatter_dimension_numbers").get<ir::ScatterDimensionNumbers>();
    const ir::DenseValue* indices = ir::constant_value(*op.operand(1));
    if (n == nullptr || indices == nullptr || !n->input_batching_dims.empty()) return std::nullopt;
    const Dims& shape = op.operand(0)->type().dims();
    const Dims& update = op.operand(2)->type().dims();
    const Result<HostArray> numbers = indices->expand();
    int64_t vectors = 1;
    const Dims& index_dims = op.operand(1)->type().dims();
    for (size_t d = 0; d < index_dims.size(); ++d) {
      if (static_cast<int64_t>(d) != n->index_vector_dim) vectors *= index_dims[d];
    }
    if (vectors != 1 || !numbers.ok() || !is_integer(numbers->dtype()) ||
        numbers->size() != static_cast<int64_t>(n->scatter_dims_to_operand_dims.size())) {
      return std::nullopt;  // none, or several
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

  // What the reducer does with the element and the update: null when it takes the update. nullopt:
  // something else than one operation on both.
  static std::optional<const ir::Operation*> reducer_of(const ir::Operation& op) {
    const ir::Block& block = op.region(0).front();
    const ir::Operation& end = *block.terminator();
    if (block.argument_count() != 2 || end.operand_count() != 1) return std::nullopt;
    if (end.operand(0) == block.argument(1)) return nullptr;
    const ir::Operation* made = end.operand(0)->defining_op();
    if (made == nullptr || made->block() != &block || made->operand_count() != 2) {
      return std::nullopt;
    }
    if (!ir::is_commutative_reducer(made->code()) && made->code() != OpCode::kSubtract) {
      return std::nullopt;
    }
    const bool forward =
        made->operand(0) == block.argument(0) && made->operand(1) == block.argument(1);
    const bool backward =
        made->operand(0) == block.argument(1) && made->operand(1) == block.argument(0);
    if (!forward && !backward) return std::nullopt;
    return made;
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
  ir::Value* rewrite_scatter(const ir::Operation& op) {
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
    const std::optional<const ir::Operation*> reducer = reducer_of(op);
    if (!window || !reducer || element_count(window->size) == 0) return nullptr;
    const ir::Type window_type = ir::Type::tensor(dtype, window->size);
    ir::Value* update = op.operand(2);
    // Indices without components may still come many times, all for the same window.
    if (element_count(update->type().dims()) != element_count(window->size)) return nullptr;
    const int64_t points = element_count(type.dims());
    if (points > std::numeric_limits<int32_t>::max()) return nullptr;  // starts are i32
    if (!(update->type() == window_type)) {
      update = insert(op, OpCode::kReshape, {update}, window_type);
    }
    if (*reducer == nullptr && element_count(window->size) * kSmallWindow <= points) {
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
    if (*reducer != nullptr) {
      const bool forward = (*reducer)->operand(0)->index() == 0;
      made = insert(op, (*reducer)->code(),
                    forward ? std::vector{operand, made} : std::vector{made, operand}, type,
                    (*reducer)->attributes());
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
};

}  // namespace

void rewrite_static_windows(ir::Module& module) {
  for (const auto& function : module.functions) {
    for (const auto& block : function->body().blocks()) Rewriter(*block).run();
  }
}

}  // namespace hekla::passes
