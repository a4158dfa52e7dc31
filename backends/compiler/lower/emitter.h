// SPDX-License-Identifier: Apache-2.0
// Emitter: writes the scalar code that computes elements of StableHLO values.
//
// A value that lies in memory is loaded from an operand of the kernel; any other is computed from
// the operands of its operation, recursively: that is how producers fuse into their consumers.
// Elements are asked for at several points at once, so that a contraction over a tile of points has
// one loop with an accumulator for each, whose loads the Builder shares. What was computed for a
// point is remembered as long as the loop lasts in which it was.
//
// One Emitter serves one kernel and one thread. Operations that have no scalar form make `status`
// an UNIMPLEMENTED that names them; ask `has_kernel` (lower.h) before.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/math/element.h"
#include "runtime/program/ir/ir.h"

namespace hekla::lower {

using kernel::Builder;
using kernel::Element;
using kernel::Value;
using Elements = std::vector<Element>;

// The rounding error of a sum: 0 where the sum overflowed or was infinite before, when it is no
// number that the next sum could be made better by.
Element finite_or_zero(Builder& b, Element error);

// A place in a tensor: an index per dimension, or the row-major number of the element, or both.
// One of them is there; a place in a tensor of rank 0 has neither.
struct Point {
  std::vector<Value> dims;
  Value linear = kernel::kNoValue;
};
using Points = std::vector<Point>;

class Emitter {
 public:
  // The kernel's operand that holds a value, or nullopt when the value is to be computed.
  using OperandOf = std::function<std::optional<int>(const ir::Value&)>;

  Emitter(Builder& builder, OperandOf operand_of)
      : b_(builder), operand_of_(std::move(operand_of)), memo_(1) {}

  // The elements of `value` at the points.
  Elements emit(const ir::Value& value, const Points& points);
  Element emit(const ir::Value& value, const Point& point) { return emit(value, Points{point})[0]; }

  // Where element `point` of the update of a dynamic_update_slice goes in its result.
  Point update_target(const ir::Operation& update, const Point& point);

  // Runs a region's block on scalars; nullopt when something in it has no scalar form.
  std::optional<Elements> apply_region(const ir::Block& block, std::span<const Element> arguments);
  // The same up to one value of the block.
  std::optional<Element> value_in_region(const ir::Block& block, std::span<const Element> arguments,
                                         const ir::Value& wanted);
  // A counted loop that carries elements of these dtypes. `count` has the index type.
  Elements loop(Value count, const std::vector<DType>& dtypes, const Elements& initial,
                const std::function<Elements(Value iteration, const Elements& carried)>& body);

  // An integer element as an index clamped to [low, high].
  Value clamped_index(const Element& element, DType dtype, int64_t low, int64_t high);

  // A value that is the same wherever this kernel's points ask for it.
  void know(const ir::Value& value, const Element& element) { known_[&value] = element; }

  // Says that an operation has no scalar form.
  void fail(const ir::Operation& op);
  // The first operation that could not be emitted.
  const Status& status() const { return status_; }
  Value linear_of(const Point& point, const Dims& shape);
  Element zero(DType dtype);
  Builder& builder() { return b_; }

 private:
  using Sizes = std::vector<int64_t>;
  // Loop bodies: the iterations of the nest, outermost first, and the carried elements.
  using NestBody = std::function<Elements(const std::vector<Value>&, const Elements&)>;

  // Of a region's block: what its terminator returns, or up to `wanted` that value.
  std::optional<Elements> apply_block(const ir::Block& block, std::span<const Element> arguments,
                                      const ir::Value* wanted);
  Elements compute(const ir::Value& value, const Points& points);
  Elements emit_operation(const ir::Operation& op, size_t result, const Points& points);

  // Elementwise operations on elements that are there.
  std::optional<Element> apply(const ir::Operation& op, std::span<const Element> operands);
  Elements emit_elementwise(const ir::Operation& op, const Points& points);
  Element constant(const ir::Operation& op, const Point& point);

  // emit_movement.cc: operations that only say where an element comes from.
  Elements emit_movement(const ir::Operation& op, const Points& points);
  Point source_point(const ir::Operation& op, const Point& point);
  Elements emit_concatenate(const ir::Operation& op, const Points& points);
  Elements emit_pad(const ir::Operation& op, const Points& points);
  Elements emit_gather(const ir::Operation& op, const Points& points);
  Elements emit_dynamic_slice(const ir::Operation& op, const Points& points);
  Elements emit_dynamic_update_slice(const ir::Operation& op, const Points& points);
  Elements emit_bitcast(const ir::Operation& op, const Points& points);
  Element emit_iota(const ir::Operation& op, const Point& point);

  // emit_reduction.cc: operations with loops. Results of all of the operation's results, by result.
  std::vector<Elements> emit_reduce(const ir::Operation& op, const Points& points);
  std::vector<Elements> emit_reduce_window(const ir::Operation& op, const Points& points);
  Elements emit_dot_general(const ir::Operation& op, const Points& points);
  // Sums of the products that `step` adds at each place in the dimensions that are summed over, at
  // every point, in the order of the operation.
  Elements sum_products(const ir::Operation& op, const Sizes& sizes, DType accumulator,
                        size_t points, int64_t chains, const NestBody& step);
  Elements chained(const ir::Operation& op, const Sizes& sizes, const Elements& zeros,
                   const NestBody& step);
  // How many operations the kernel does for an element of `value`; it stops to count at `most`.
  int count_computed(const ir::Value& value, int most);
  Elements emit_convolution(const ir::Operation& op, const Points& points);
  // emit_scatter.cc: what is added to an element is looked for among all updates.
  std::vector<Elements> emit_scatter(const ir::Operation& op, const Points& points);
  Elements emit_select_and_scatter(const ir::Operation& op, const Points& points);
  // Where sums begin that others are added to: x + -0 is x for every x. Of a float dtype or a
  // complex one.
  Element negative_zero(DType dtype);
  // Nested counted loops over `sizes`; none of them is zero.
  Elements nest(const Sizes& sizes, const std::vector<DType>& dtypes, Elements initial,
                const NestBody& body);
  // One step of a reducer at every point: `carried` and the result hold the points' elements one
  // after the other, `inputs` one list per result. Points whose `where` is false keep what they
  // have; an empty `where` is true everywhere. nullopt when the reducer has no scalar form.
  std::optional<Elements> reduce_points(const ir::Block& reducer, const Elements& carried,
                                        const std::vector<Elements>& inputs,
                                        const std::vector<Value>& where);
  // acc + a * b in the accumulator's dtype. `b_first`: kernel::Contraction::rhs_first.
  Element multiply_add(DType accumulator, Element a, Element b, Element sum, bool b_first);

  // Index arithmetic, in the Builder's index type.
  std::vector<Value> dims_of(const Point& point, const Dims& shape);
  std::vector<Value> update_starts(const ir::Operation& update);
  Value index(int64_t value) { return b_.index(value); }
  Value clamp_index(Value value, int64_t low, int64_t high);
  Value in_range(Value value, int64_t low, int64_t high);  // low <= value < high
  Value start_index(const Element& element, DType dtype, int64_t high) {
    return clamped_index(element, dtype, 0, high);
  }

  using Key = std::pair<const ir::Value*, std::vector<Value>>;
  static Key key_of(const ir::Value& value, const Point& point);
  const Element* known(const Key& key) const;

  Builder& b_;
  OperandOf operand_of_;
  std::map<const ir::Value*, Element> known_;
  std::vector<std::map<Key, Element>> memo_;  // one layer per loop that is being built
  Status status_;
};

// Elements of points that follow each other, as one list per result.
std::vector<Elements> by_result(const Elements& totals, size_t count);
// Row-major strides of a dense shape, in elements.
std::vector<int64_t> strides_of(const Dims& shape);

}  // namespace hekla::lower
