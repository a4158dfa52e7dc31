// SPDX-License-Identifier: Apache-2.0
// GraphBuilder: operations at one place of a graph, for passes that write an operation in terms of
// others.
//
// Result types follow from the operands. Operands must fit, as the verifier would ask: wrong ones
// are bugs, which the first failing call keeps in `status`. One thread; what was built stays.
#pragma once

#include <functional>
#include <vector>

#include "backends/compiler/ir/ir.h"
#include "runtime/base/status.h"

namespace hekla::passes {

class GraphBuilder {
 public:
  using Values = std::vector<ir::Value*>;

  // In front of `before`, or at the end of `block` when that is null.
  GraphBuilder(ir::Block& block, const ir::Operation* before, ir::LocationRef location)
      : block_(&block), before_(before), location_(std::move(location)) {}

  const Status& status() const { return status_; }

  // Any operation whose result types are inferred; `type` for the others. Its only result.
  ir::Value* make(ir::OpCode code, const Values& operands, ir::AttributeMap attributes = {},
                  ir::Type type = {});
  ir::Value* binary(ir::OpCode code, ir::Value* a, ir::Value* b) { return make(code, {a, b}); }
  ir::Value* add(ir::Value* a, ir::Value* b) { return binary(ir::OpCode::kAdd, a, b); }
  ir::Value* subtract(ir::Value* a, ir::Value* b) { return binary(ir::OpCode::kSubtract, a, b); }
  ir::Value* multiply(ir::Value* a, ir::Value* b) { return binary(ir::OpCode::kMultiply, a, b); }
  ir::Value* divide(ir::Value* a, ir::Value* b) { return binary(ir::OpCode::kDivide, a, b); }
  ir::Value* bit_and(ir::Value* a, ir::Value* b) { return binary(ir::OpCode::kAnd, a, b); }
  ir::Value* select(ir::Value* p, ir::Value* a, ir::Value* b) {
    return make(ir::OpCode::kSelect, {p, a, b});
  }
  // `direction`: "EQ", "LT" and so on.
  ir::Value* compare(const char* direction, ir::Value* a, ir::Value* b);
  // Every element the same number: NaN and infinity in floats, else exact.
  ir::Value* constant(DType dtype, const Dims& dims, double value);
  ir::Value* iota(DType dtype, const Dims& dims, int64_t dimension);
  ir::Value* convert(ir::Value* x, DType dtype);
  ir::Value* real(ir::Value* x);       // of a real number, itself
  ir::Value* conjugate(ir::Value* x);  // the same
  // A real number as one of `dtype`, complex or not.
  ir::Value* as(DType dtype, ir::Value* x);

  ir::Value* reshape(ir::Value* x, const Dims& dims);
  ir::Value* transpose(ir::Value* x, std::vector<int64_t> permutation);
  ir::Value* reverse(ir::Value* x, std::vector<int64_t> dimensions);
  // Dimension i of `x` becomes dimension `places[i]` of the result.
  ir::Value* broadcast(ir::Value* x, const Dims& dims, std::vector<int64_t> places);
  ir::Value* slice(ir::Value* x, std::vector<int64_t> begin, std::vector<int64_t> end);
  // Zeros in front of and behind each dimension.
  ir::Value* pad(ir::Value* x, std::vector<int64_t> low, std::vector<int64_t> high);
  ir::Value* concatenate(const Values& parts, int64_t dimension);
  ir::Value* dynamic_slice(ir::Value* x, const Values& starts, std::vector<int64_t> sizes);
  ir::Value* dynamic_update_slice(ir::Value* x, ir::Value* update, const Values& starts);
  ir::Value* dot(ir::Value* a, ir::Value* b, const ir::DotDimensionNumbers& numbers);

  // A stable sort by the comparator that a function's body is.
  Values sort(const Values& operands, int64_t dimension, const ir::Region& comparator);

  // `trips` turns of `body`, which gets the turn, an i32, and the carried values.
  Values loop(int64_t trips, const Values& initial,
              const std::function<Values(GraphBuilder&, ir::Value* turn, const Values&)>& body);

 private:
  ir::Operation* insert(std::unique_ptr<ir::Operation> op);

  ir::Block* block_;
  const ir::Operation* before_;
  ir::LocationRef location_;
  Status status_;
};

}  // namespace hekla::passes
