// SPDX-License-Identifier: Apache-2.0
#include "tools/run/program_inputs.h"

#include <algorithm>

#include "runtime/program/ir/ir.h"
#include "runtime/program/stablehlo/read_program.h"
#include "tools/run/input_rule.h"

namespace hekla::tools {

Result<std::vector<ParameterShape>> parameter_shapes(std::string_view program) {
  HEKLA_ASSIGN_OR_RETURN(const std::unique_ptr<ir::Module> module,
                         stablehlo::read_program(program));
  const ir::Function* entry = module->entry();
  if (entry == nullptr || entry->is_declaration()) {
    return invalid_argument("the program has no function @main");
  }
  std::vector<ParameterShape> shapes;
  for (const ir::Type& type : entry->body().blocks().front()->argument_types()) {
    if (!type.is_static_tensor()) {
      return invalid_argument("parameter {} is a {}; random inputs need static shapes",
                              shapes.size(), type.to_string());
    }
    shapes.push_back({type.dtype(), type.dims()});
  }
  return shapes;
}

Result<std::vector<HostArray>> random_inputs(const std::vector<ParameterShape>& shapes,
                                             uint64_t seed) {
  constexpr uint64_t kSeedsPerProgram = 65536;  // so that inputs of one seed differ
  std::vector<HostArray> inputs;
  for (const ParameterShape& shape : shapes) {
    InputRule rule;
    rule.dtype = shape.dtype;
    rule.dims = shape.dims;
    rule.seed = seed * kSeedsPerProgram + inputs.size();
    const DType part = complex_part(shape.dtype);
    if (is_float(part)) {
      rule.low = part == DType::kF8E8M0FNU ? 0.5 : -1;
      rule.high = part == DType::kF8E8M0FNU ? 2 : 1;
    } else {
      rule.kind = InputRule::Kind::kIntegers;
      const int bits = dtype_bits(part) - (is_signed_integer(part) ? 1 : 0);
      rule.high = part == DType::kI1 ? 2 : bits >= 4 ? 10 : 1 << bits;
    }
    HEKLA_ASSIGN_OR_RETURN(HostArray array, make_input(rule));
    inputs.push_back(std::move(array));
  }
  return inputs;
}

}  // namespace hekla::tools
