// SPDX-License-Identifier: Apache-2.0
// GraphBuilder: operations at one place of a graph, for passes that write an operation in terms of
// others.
//
// Result types follow from the operands. Operands must fit, as the verifier would ask: wrong ones
// are bugs, which the first failing call keeps in `status`. One thread; what was built stays.
#pragma once

#include <functional>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::ir {

class GraphBuilder {
 public:
  using Values = std::vector<Value*>;

  // In front of `before`, or at the end of `block` when that is null.
  GraphBuilder(Block& block, const Operation* before, LocationRef location)
      : block_(&block), before_(before), location_(std::move(location)) {}

  const Status& status() const { return status_; }

  // Any operation whose result types are inferred; `type` for the others. Its only result.
  Value* make(OpCode code, const Values& operands, AttributeMap attributes = {}, Type type = {});
  Value* binary(OpCode code, Value* a, Value* b) { return make(code, {a, b}); }
  Value* add(Value* a, Value* b) { return binary(OpCode::kAdd, a, b); }
  Value* subtract(Value* a, Value* b) { return binary(OpCode::kSubtract, a, b); }
  Value* multiply(Value* a, Value* b) { return binary(OpCode::kMultiply, a, b); }
  Value* divide(Value* a, Value* b) { return binary(OpCode::kDivide, a, b); }
  Value* bit_and(Value* a, Value* b) { return binary(OpCode::kAnd, a, b); }
  Value* select(Value* p, Value* a, Value* b) { return make(OpCode::kSelect, {p, a, b}); }
  // `direction`: "EQ", "LT" and so on.
  Value* compare(const char* direction, Value* a, Value* b);
  // Every element the same number: NaN and infinity in floats, else exact.
  Value* constant(DType dtype, const Dims& dims, double value);
  Value* iota(DType dtype, const Dims& dims, int64_t dimension);
  Value* convert(Value* x, DType dtype);
  Value* real(Value* x);       // of a real number, itself
  Value* conjugate(Value* x);  // the same
  // A real number as one of `dtype`, complex or not.
  Value* as(DType dtype, Value* x);

  Value* reshape(Value* x, const Dims& dims);
  Value* transpose(Value* x, std::vector<int64_t> permutation);
  Value* reverse(Value* x, std::vector<int64_t> dimensions);
  // Dimension i of `x` becomes dimension `places[i]` of the result.
  Value* broadcast(Value* x, const Dims& dims, std::vector<int64_t> places);
  Value* slice(Value* x, std::vector<int64_t> begin, std::vector<int64_t> end);
  // Zeros in front of and behind each dimension.
  Value* pad(Value* x, std::vector<int64_t> low, std::vector<int64_t> high);
  Value* concatenate(const Values& parts, int64_t dimension);
  Value* dynamic_slice(Value* x, const Values& starts, std::vector<int64_t> sizes);
  Value* dynamic_update_slice(Value* x, Value* update, const Values& starts);
  Value* dot(Value* a, Value* b, const DotDimensionNumbers& numbers);

  // A stable sort by the comparator that a function's body is.
  Values sort(const Values& operands, int64_t dimension, const Region& comparator);

  // `trips` turns of `body`, which gets the turn, an i32, and the carried values.
  Values loop(int64_t trips, const Values& initial,
              const std::function<Values(GraphBuilder&, Value* turn, const Values&)>& body);

 private:
  Operation* insert(std::unique_ptr<Operation> op);

  Block* block_;
  const Operation* before_;
  LocationRef location_;
  Status status_;
};

}  // namespace hekla::ir
