// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backends/reference/evaluator.h"
#include "backends/reference/memory_arrays.h"
#include "runtime/base/copy_bytes.h"

namespace hekla::reference {
namespace {

// The bytes of a value in memory; of a token none.
int64_t bytes_of(const ir::Type& type) {
  return type.is_static_tensor() ? element_count(type.dims()) * dtype_bytes(type.dtype()) : 0;
}

Status check_sizes(const std::vector<ir::Type>& types, std::span<const std::span<std::byte>> memory,
                   const char* what) {
  if (types.size() != memory.size()) {
    return internal_error("a host step: {} {}s of a program that has {}", memory.size(), what,
                          types.size());
  }
  for (size_t i = 0; i < types.size(); ++i) {
    // Of a dimension that is not known the memory says how much there is.
    const bool is_known = types[i].is_static_tensor() || types[i].is_token();
    if (is_known && static_cast<int64_t>(memory[i].size()) != bytes_of(types[i])) {
      return internal_error("a host step: {} {} is {}, its memory {} bytes", what, i,
                            types[i].to_string(), memory[i].size());
    }
  }
  return ok_status();
}

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

}  // namespace

Result<std::vector<HostArray>> arrays_on(const ir::Module& module,
                                         std::span<const std::span<std::byte>> arguments,
                                         std::span<const std::span<std::byte>> results) {
  const std::vector<ir::Type> parameters = ir::flat_types(module.entry()->type.elements());
  HEKLA_RETURN_IF_ERROR(check_sizes(parameters, arguments, "argument"));
  HEKLA_RETURN_IF_ERROR(
      check_sizes(ir::flat_types(module.entry()->type.results()), results, "result"));
  std::vector<HostArray> arrays;
  for (size_t i = 0; i < parameters.size(); ++i) {
    arrays.push_back(parameters[i].is_token()
                         ? HostArray()
                         : HostArray::wrap(parameters[i].dtype(), parameters[i].dims(), nullptr,
                                           arguments[i].data()));
  }
  return arrays;
}

Status copy_out(const std::vector<HostArray>& values,
                std::span<const std::span<std::byte>> results) {
  for (size_t i = 0; i < values.size(); ++i) {
    const std::span<std::byte> to = results[i];
    if (to.empty() || values[i].data() == to.data()) continue;
    if (values[i].size_bytes() != static_cast<int64_t>(to.size())) {
      return internal_error("a host step: result {} has {} bytes, its memory {}", i,
                            values[i].size_bytes(), to.size());
    }
    move_bytes(to.data(), values[i].data(), static_cast<int64_t>(to.size()));
  }
  return ok_status();
}

Status evaluate_in_memory(const ir::Module& module, std::span<const std::span<std::byte>> arguments,
                          std::span<const std::span<std::byte>> results, EvaluateOptions options) {
  HEKLA_ASSIGN_OR_RETURN(std::vector<HostArray> arrays, arrays_on(module, arguments, results));
  options.result_memory.clear();
  for (const std::span<std::byte> result : results) {
    const bool is_free = std::ranges::none_of(
        arguments, [&](std::span<const std::byte> argument) { return overlap(result, argument); });
    options.result_memory.push_back(is_free ? result.data() : nullptr);
  }
  HEKLA_ASSIGN_OR_RETURN(const std::vector<HostArray> values,
                         evaluate(module, std::move(arrays), options));
  return copy_out(values, results);
}

}  // namespace hekla::reference
