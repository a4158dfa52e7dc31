// SPDX-License-Identifier: Apache-2.0
// Rows: reductions of lines and the elementwise operations around them in one kernel, a line by a
// team whose points keep their elements in registers: softmax, norms. Each sum is that of the
// reduction alone (reduce_tree.cc): the same elements for each point, in the same order.
#include <algorithm>
#include <unordered_set>

#include "backends/compiler/lower/reduce_kernels.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using kernel::Op;

namespace {

class RowsLowering {
 public:
  // `reductions`: in order.
  RowsLowering(const Outputs& outputs, std::vector<const ir::Operation*> reductions,
               const InMemory& in_memory, const LowerOptions& options)
      : outputs_(outputs),
        reductions_(std::move(reductions)),
        lines_(lines_of(*reductions_.front())),
        shape_(tree_shape(lines_, lines_.length, options)),
        options_(options),
        in_memory_([&in_memory, this](const ir::Value& value) {
          return in_memory(value) &&
                 std::find(outputs_.begin(), outputs_.end(), &value) == outputs_.end();
        }),
        k_("rows", grid(),
           std::max(lines_.count * (lines_.length + shape_.points),
                    largest_inlined(outputs_, in_memory_)),
           in_memory_) {}

  Result<LoweredSequence> run() {
    find_points();
    for (const ir::Operation* op : reductions_) {
      k_.emitter().know(*op->result(), reduced(*op));
    }
    std::vector<Elements> results;
    for (const ir::Value* output : outputs_) results.push_back(k_.emitter().emit(*output, points_));
    store(results, 0, whole_);
    if (points_.size() > whole_) {
      k_.when(has_more_, [&] { store(results, whole_, points_.size()); });
    }
    LoweredSequence sequence;
    HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k_.finish(options_));
    sequence.kernels.push_back(std::move(made));
    return sequence;
  }

 private:
  std::vector<int64_t> grid() const {
    std::vector<int64_t> sizes = lines_.kept_sizes;
    sizes.push_back(shape_.points);
    return sizes;
  }

  // The places of this point's elements: blocks that all points have, then one that the first ones
  // have too.
  void find_points() {
    Builder& b = k_.b();
    const Value mine = k_.at(lines_.kept.size());
    const int64_t blocks = lines_.length / shape_.block;
    const int64_t rest = blocks % shape_.points;
    const auto add_block = [&](Value block) {
      for (int64_t j = 0; j < shape_.block; ++j) {
        Point point;
        for (size_t d = 0; d < lines_.kept.size(); ++d) point.dims.push_back(k_.at(d));
        point.dims.push_back(b.add(b.mul(block, k_.index(shape_.block)), k_.index(j)));
        points_.push_back(std::move(point));
      }
    };
    for (int64_t i = 0; i < blocks / shape_.points; ++i) {
      add_block(b.add(k_.index(i * shape_.points), mine));
    }
    whole_ = points_.size();
    if (rest == 0) return;
    has_more_ = b.binary(Op::kLtS, mine, k_.index(rest));
    add_block(k_.at_most(b.add(k_.index(blocks - rest), mine), blocks - 1));
  }

  Element combine(const ir::Operation& op, const Element& a, const Element& b) {
    const Elements arguments{a, b};
    const auto made = k_.emitter().apply_region(op.region(0).front(), arguments);
    if (!made.has_value() || made->size() != 1) {
      k_.emitter().fail(op);
      return a;
    }
    return made->front();
  }

  Element reduced(const ir::Operation& op) {
    const Elements elements = k_.emitter().emit(*op.operand(0), points_);
    const DType dtype = op.result()->type().dtype();
    size_t next = 0;
    Element sum;
    if (order_of(op) == Order::kSum) {
      sum = negative_zero(k_, dtype);
    } else {
      sum = elements[next++];
    }
    for (; next < whole_; ++next) sum = combine(op, sum, elements[next]);
    if (points_.size() > whole_) {
      Element more = sum;
      for (; next < points_.size(); ++next) more = combine(op, more, elements[next]);
      sum = k_.choose(has_more_, {more}, {sum})[0];
    }
    for (int64_t distance = 1; distance < shape_.points; distance *= 2) {
      sum = combine(op, sum, k_.from_team(sum, lines_.kept.size(), distance));
    }
    return combine(op, k_.emitter().emit(*op.operand(1), Point{}), sum);
  }

  void store(const std::vector<Elements>& results, size_t first, size_t end) {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      for (size_t i = first; i < end; ++i) {
        k_.store(*outputs_[o], k_.emitter().linear_of(points_[i], outputs_[o]->type().dims()),
                 results[o][i]);
      }
    }
  }

  const Outputs& outputs_;
  const std::vector<const ir::Operation*> reductions_;
  const Lines lines_;
  const TreeShape shape_;
  const LowerOptions& options_;
  const InMemory in_memory_;
  KernelMaker k_;
  Points points_;
  size_t whole_ = 0;  // points that are there for every point of a team
  Value has_more_ = kernel::kNoValue;
};

}  // namespace

bool is_row_reduce(const ir::Operation& op, const LowerOptions& options) {
  if (!is_tree_reduce(op, options) || op.result_count() != 1 || order_of(op) == Order::kFixed ||
      is_complex(op.result()->type().dtype())) {
    return false;
  }
  const Lines lines = lines_of(op);
  const auto rank = static_cast<int64_t>(op.operand(0)->type().rank());
  return ir::int_list(op, "dimensions") == std::vector<int64_t>{rank - 1} &&
         tree_shape(lines, lines.length, options).parts == 1;
}

int64_t elements_of_row_point(const ir::Operation& op, const LowerOptions& options) {
  const Lines lines = lines_of(op);
  const TreeShape shape = tree_shape(lines, lines.length, options);
  return (lines.length + shape.points - 1) / shape.points;
}

std::optional<Result<LoweredSequence>> lower_rows(const Outputs& outputs, const InMemory& in_memory,
                                                  const LowerOptions& options) {
  if (options.team_points < 2) return std::nullopt;
  std::unordered_set<const ir::Value*> seen;
  std::vector<const ir::Operation*> reductions;
  // Operations in the order of their block: what a reduction is made of comes before it.
  const auto visit = [&](const auto& self, const ir::Value& value) -> void {
    const ir::Operation* op = value.defining_op();
    if (op == nullptr || in_memory(value) || !seen.insert(&value).second) return;
    for (const ir::Value* operand : op->operands()) self(self, *operand);
    if (is_row_reduce(*op, options)) reductions.push_back(op);
  };
  for (const ir::Value* output : outputs) {
    if (output->defining_op() == nullptr) return std::nullopt;
    for (const ir::Value* operand : output->defining_op()->operands()) visit(visit, *operand);
  }
  const bool are_rows =
      !reductions.empty() &&
      std::all_of(outputs.begin(), outputs.end(), [&](const ir::Value* output) {
        return output->type().dims() == reductions.front()->operand(0)->type().dims();
      });
  if (!are_rows) return std::nullopt;
  return RowsLowering(outputs, std::move(reductions), in_memory, options).run();
}

}  // namespace hekla::lower
