// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/user_calls.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "backends/ffi/call.h"
#include "backends/reference/interpreter.h"
#include "backends/reference/kernels/movement.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::reference {
namespace {

// From the slowest dimension to the fastest; empty: row-major.
using Order = std::vector<int64_t>;

bool is_row_major(const Order& order) {
  for (size_t d = 0; d < order.size(); ++d) {
    if (order[d] != static_cast<int64_t>(d)) return false;
  }
  return true;
}

// Of a layout attribute, which lists the fastest dimension first.
Result<Order> order_of(const ir::Attribute& layout, const ir::Type& type) {
  Order order;
  if (const auto* list = layout.get<ir::IntArrayValue>()) {
    order = list->values;
  } else if (const auto* dense = layout.get<ir::DenseValue>()) {
    HEKLA_ASSIGN_OR_RETURN(const HostArray values, dense->expand());
    if (values.dtype() != DType::kI64) return invalid_argument("a layout of {}", values.shape());
    order.assign(values.as<int64_t>(), values.as<int64_t>() + values.size());
  } else {
    return invalid_argument("a layout that is no list of dimensions");
  }
  if (type.is_token()) return Order();
  std::reverse(order.begin(), order.end());
  Order sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (static_cast<int64_t>(order.size()) != type.rank() || !is_row_major(sorted)) {
    return invalid_argument("a layout of {} dimensions for {}", order.size(), type.to_string());
  }
  return is_row_major(order) ? Order() : order;
}

// One for each of `types`; a list for fewer, as with tuples, must be of row-major ones only.
Result<std::vector<Order>> orders_of(const ir::Operation& op, const char* name,
                                     const std::vector<ir::Type>& types) {
  std::vector<Order> orders(types.size());
  const auto* layouts = op.attribute(name).get<ir::ArrayValue>();
  if (layouts == nullptr || layouts->elements.empty()) return orders;
  if (layouts->elements.size() != types.size()) {
    return invalid_argument("{} for {} arrays of {}", name, layouts->elements.size(), types.size());
  }
  for (size_t i = 0; i < types.size(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(orders[i], order_of(layouts->elements[i], types[i]));
  }
  return orders;
}

std::vector<ir::Type> types_of(const ir::Operation& op) {
  std::vector<ir::Type> types;
  for (const ir::Value* operand : op.operands()) types.push_back(operand->type());
  return types;
}

// The number of the leaf that `path` leads to.
std::optional<size_t> leaf_at(const std::vector<ir::Type>& types, size_t number,
                              const std::vector<int64_t>& path) {
  if (number >= types.size()) return std::nullopt;
  size_t leaf = 0;
  for (size_t i = 0; i < number; ++i) leaf += ir::flat_types({types[i]}).size();
  if (path.empty()) return types[number].is_tuple() ? std::nullopt : std::optional(leaf);
  if (!types[number].is_tuple() || path[0] < 0) return std::nullopt;
  const std::optional<size_t> inner = leaf_at(
      types[number].elements(), static_cast<size_t>(path[0]), {path.begin() + 1, path.end()});
  return inner ? std::optional(leaf + *inner) : std::nullopt;
}

// How the arrays of a call lie in memory.
struct Form {
  std::vector<ir::Type> operands, results;  // leaves
  std::vector<Order> operand_orders, result_orders;
  std::vector<std::optional<size_t>> alias;  // of each result: the operand that it begins as
};

Status read_aliases(const ir::Operation& op, Form& form) {
  form.alias.resize(form.results.size());
  const auto* list = op.attribute("output_operand_aliases").get<ir::ArrayValue>();
  if (list == nullptr) return ok_status();
  for (const ir::Attribute& element : list->elements) {
    const auto* alias = element.get<ir::OutputOperandAlias>();
    if (alias == nullptr) return invalid_argument("an alias that names no operand");
    // Several results count as one tuple.
    size_t number = 0;
    std::vector<int64_t> path = alias->output_tuple_indices;
    if (op.result_count() != 1 && !path.empty() && path[0] >= 0) {
      number = static_cast<size_t>(path[0]);
      path.erase(path.begin());
    }
    const std::optional<size_t> result = leaf_at(op.result_types(), number, path);
    const std::optional<size_t> operand =
        alias->operand_index < 0 ? std::nullopt
                                 : leaf_at(types_of(op), static_cast<size_t>(alias->operand_index),
                                           alias->operand_tuple_indices);
    if (!result || !operand) return invalid_argument("an alias of a result or operand it has not");
    if (!(form.results[*result] == form.operands[*operand]) ||
        form.result_orders[*result] != form.operand_orders[*operand]) {
      return invalid_argument("result {} and its alias, operand {}, differ in type or layout",
                              *result, *operand);
    }
    form.alias[*result] = operand;
  }
  return ok_status();
}

Result<Form> form_of(const ir::Operation& op) {
  Form form;
  form.operands = ir::flat_types(types_of(op));
  form.results = ir::flat_types(op.result_types());
  HEKLA_ASSIGN_OR_RETURN(form.operand_orders, orders_of(op, "operand_layouts", form.operands));
  HEKLA_ASSIGN_OR_RETURN(form.result_orders, orders_of(op, "result_layouts", form.results));
  HEKLA_RETURN_IF_ERROR(read_aliases(op, form));
  return form;
}

Dims permuted(const Dims& dims, const Order& order) {
  if (order.empty()) return dims;
  Dims result;
  for (const int64_t d : order) result.push_back(dims[static_cast<size_t>(d)]);
  return result;
}

Order inverse(const Order& order) {
  Order result(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    result[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return result;
}

// Uninitialized, in the memory of the program's result where it may be.
Result<HostArray> make_result(size_t number, const Form& form, const EvaluateOptions& options) {
  const ir::Type& type = form.results[number];
  const Order& order = form.result_orders[number];
  std::byte* const memory = number < options.result_memory.size() && order.empty()
                                ? options.result_memory[number]
                                : nullptr;
  if (memory == nullptr) {
    return HostArray::allocate(type.dtype(), permuted(type.dims(), order), false);
  }
  return HostArray::adopt(type.dtype(), type.dims(), std::shared_ptr<void>(memory, [](void*) {}));
}

// What functions leave in the bits that a type does not have.
void normalize(HostArray& array) {
  extend_narrow_integers(array);
  if (array.dtype() != DType::kI1) return;
  uint8_t* const values = array.mutable_as<uint8_t>();
  for (int64_t i = 0; i < array.size(); ++i) values[i] = values[i] != 0 ? 1 : 0;
}

}  // namespace

Status check_user_call(const ir::Operation& op) {
  if (ir::text_value(op, "call_target_name") == "hekla.vulkan_kernel") {
    return unimplemented(
        "hekla.vulkan_kernel: a shader runs on the platform vulkan alone, in programs of static "
        "shapes; its argument fallback= takes a function for other platforms");
  }
  HEKLA_RETURN_IF_ERROR(ffi::check_call(op));
  return form_of(op).status().with_context(
      fmt::format("custom call target {}", ir::text_value(op, "call_target_name")));
}

Result<std::vector<Datum>> execute_user_call(const ir::Operation& op, std::vector<Datum>& operands,
                                             const EvaluateOptions& options) {
  if (options.calls == nullptr) {
    return failed_precondition("custom call target {} in a program that was not instantiated",
                               ir::text_value(op, "call_target_name"));
  }
  HEKLA_ASSIGN_OR_RETURN(const Form form, form_of(op));
  std::vector<HostArray> in, out;
  for (Datum& operand : operands) flatten(std::move(operand), in);
  for (size_t i = 0; i < in.size(); ++i) {
    if (form.operand_orders[i].empty()) continue;
    HEKLA_ASSIGN_OR_RETURN(in[i], transpose(in[i], form.operand_orders[i]));
  }
  std::vector<void*> in_data(in.size());
  for (size_t i = 0; i < in.size(); ++i) in_data[i] = const_cast<std::byte*>(in[i].data());
  for (size_t i = 0; i < form.results.size(); ++i) {
    if (form.results[i].is_token()) {
      out.emplace_back();
      continue;
    }
    HEKLA_ASSIGN_OR_RETURN(HostArray array, make_result(i, form, options));
    if (const std::optional<size_t> source = form.alias[i]) {
      if (array.size_bytes() > 0) {
        std::memcpy(array.mutable_data(), in[*source].data(),
                    static_cast<size_t>(array.size_bytes()));
      }
      in_data[*source] = array.mutable_data();
    }
    out.push_back(std::move(array));
  }
  const auto call_array = [](const ir::Type& type, void* data) {
    return type.is_token() ? ffi::CallArray() : ffi::CallArray{type.dtype(), type.dims(), data};
  };
  std::vector<ffi::CallArray> from, to;
  for (size_t i = 0; i < in.size(); ++i) from.push_back(call_array(form.operands[i], in_data[i]));
  for (size_t i = 0; i < out.size(); ++i) {
    to.push_back(call_array(form.results[i], out[i].mutable_data()));
  }
  HEKLA_RETURN_IF_ERROR(options.calls->run(op, from, to));
  for (size_t i = 0; i < out.size(); ++i) {
    normalize(out[i]);
    if (form.result_orders[i].empty()) continue;
    HEKLA_ASSIGN_OR_RETURN(out[i], transpose(out[i], inverse(form.result_orders[i])));
  }
  std::vector<Datum> results;
  size_t next = 0;
  for (const ir::Type& type : op.result_types()) results.push_back(build(type, out, next));
  return results;
}

}  // namespace hekla::reference
