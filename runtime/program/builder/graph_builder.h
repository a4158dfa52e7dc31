// SPDX-License-Identifier: Apache-2.0
// GraphBuilder: operations at one place of a graph: for passes that write an operation in terms of
// others, and for those who make programs.
//
//   auto module = std::make_unique<Module>();
//   Status status = add_function(*module, "main", {Type::tensor(DType::kF32, {4})},
//                                [](GraphBuilder& g, const GraphBuilder::Values& x) {
//                                  return GraphBuilder::Values{g.multiply(x[0], x[0])};
//                                });
//
// Result types follow from the operands. Operands must fit, as the verifier would ask: wrong ones
// are bugs of the caller, which the first failing call keeps in `status`; what it and later calls
// give then means nothing. One thread; what was built stays.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::ir {

class GraphBuilder {
 public:
  using Values = std::vector<Value*>;
  // Fills a block: gets its arguments and gives the operands of its end.
  using Body = std::function<Values(GraphBuilder&, const Values& arguments)>;
  struct RegionSpec {
    std::vector<Type> arguments;
    Body body;
  };

  // In front of `before`, or at the end of `block` when that is null.
  GraphBuilder(Block& block, const Operation* before, LocationRef location)
      : block_(&block), before_(before), location_(std::move(location)) {}

  const Status& status() const { return status_; }
  Block& block() const { return *block_; }

  // Any operation. `types`: of its results; empty where they follow from the rest.
  Operation* make_op(OpCode code, const Values& operands, AttributeMap attributes = {},
                     const std::vector<RegionSpec>& regions = {}, std::vector<Type> types = {});

  // An operation without regions whose result type is inferred, or else `type`. Its only result.
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
  // The same for integers that a double does not hold: the low bits, as dtype.h stores them.
  Value* integer_constant(DType dtype, const Dims& dims, int64_t value);
  // Any elements of any type, shared and not copied.
  Value* constant(HostArray values);
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

  // Runs `body` on the carried values as long as `condition` gives true of them.
  Values while_loop(const Values& initial, const Body& condition, const Body& body);
  // The results of the first body where `predicate` is true, else of the second; both see all
  // values around them and have no arguments.
  Values branch(Value* predicate, const Body& when_true, const Body& when_false);
  // `body` folds two values of each input: the left ones first, then the right ones.
  Values reduce(const Values& inputs, const Values& initial, std::vector<int64_t> dimensions,
                const Body& body);

  // A stable sort by the comparator that a function's body is.
  Values sort(const Values& operands, int64_t dimension, const Region& comparator);

  // `trips` iterations of `body`, which gets the iteration, an i32, and the carried values.
  Values loop(int64_t trips, const Values& initial,
              const std::function<Values(GraphBuilder&, Value* iteration, const Values&)>& body);

 private:
  Operation* insert(std::unique_ptr<Operation> op);
  void fill(Region& region, const RegionSpec& spec, OpCode end);

  Block* block_;
  const Operation* before_;
  LocationRef location_;
  Status status_;
};

// Appends a function to `module`: `body` gets the arguments and gives the results.
Status add_function(Module& module, std::string name, std::vector<Type> arguments,
                    const GraphBuilder::Body& body,
                    Function::Visibility visibility = Function::Visibility::kPublic);

}  // namespace hekla::ir
