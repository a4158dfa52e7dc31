// SPDX-License-Identifier: Apache-2.0
// For the evaluator's tests: programs made by hand, and short ways to write and read arrays.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <vector>

#include "backends/reference/evaluator.h"
#include "runtime/program/ir/ir.h"
#include "runtime/program/ir/verify.h"

namespace hekla::reference {

// A module with @main of `inputs`; append operations to `body`, then finish() with the results.
struct TestProgram {
  explicit TestProgram(const std::vector<ir::Type>& inputs) {
    body = &add_function("main", inputs);
  }

  ir::Block& add_function(const std::string& name, const std::vector<ir::Type>& inputs) {
    module.functions.push_back(std::make_unique<ir::Function>(name));
    ir::Function& function = *module.functions.back();
    function.type = ir::Type::function(inputs, {});
    ir::Block& block = function.body().add_block();
    for (const ir::Type& type : inputs) block.add_argument(type);
    return block;
  }

  ir::Value* arg(size_t i) const { return body->argument(i); }

  ir::Value* constant(HostArray values) const {
    const ir::Type type = ir::Type::tensor(values.dtype(), values.dims());
    ir::AttributeMap attributes;
    attributes.set("value", ir::make_dense(type, std::move(values)));
    return body->append(ir::OpCode::kConstant, {}, {type}, attributes)->result();
  }

  void finish(const std::vector<ir::Value*>& results) {
    finish_function(*module.functions.front(), *body, results);
  }
  static void finish_function(ir::Function& function, ir::Block& block,
                              const std::vector<ir::Value*>& results) {
    std::vector<ir::Type> types;
    for (const ir::Value* value : results) types.push_back(value->type());
    function.type = ir::Type::function(function.type.elements(), types);
    function.argument_attributes.resize(function.type.elements().size());
    function.result_attributes.resize(types.size());
    block.append(ir::OpCode::kFuncReturn, results, {});
  }

  // Verifies, checks and evaluates.
  Result<std::vector<HostArray>> run(std::vector<HostArray> inputs,
                                     const EvaluateOptions& options = {}) const {
    HEKLA_RETURN_IF_ERROR(ir::verify(module));
    HEKLA_RETURN_IF_ERROR(check_supported(module));
    return evaluate(module, std::move(inputs), options);
  }

  ir::Module module;
  ir::Block* body;
};

template <typename T>
HostArray array_of(DType dtype, std::initializer_list<T> values) {
  return HostArray::from<T>(dtype, {static_cast<int64_t>(values.size())},
                            std::span<const T>(values.begin(), values.size()));
}
inline HostArray f32(std::initializer_list<float> values) { return array_of(DType::kF32, values); }
inline HostArray i32(std::initializer_list<int32_t> values) {
  return array_of(DType::kI32, values);
}

template <typename T>
std::vector<T> values_of(const HostArray& array) {
  return {array.as<T>(), array.as<T>() + array.size()};
}

}  // namespace hekla::reference
