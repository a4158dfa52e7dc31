// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/layouts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>

#include "backends/pjrt/host_layout.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::pjrt {
namespace {

// From the slowest dimension to the fastest.
std::vector<int64_t> slowest_first(const Order& order, size_t rank) {
  std::vector<int64_t> dims(order.rbegin(), order.rend());
  if (order.empty()) {
    dims.resize(rank);
    std::iota(dims.begin(), dims.end(), 0);
  }
  return dims;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& permutation) {
  std::vector<int64_t> result(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) {
    result[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
  }
  return result;
}

// A permutation as an Order.
Result<Order> checked(Order order, size_t rank) {
  std::vector<bool> is_named(rank);
  bool is_right = order.size() == rank;
  for (const int64_t d : order) {
    is_right =
        is_right && d >= 0 && d < static_cast<int64_t>(rank) && !is_named[static_cast<size_t>(d)];
    if (is_right) is_named[static_cast<size_t>(d)] = true;
  }
  if (!is_right) {
    return invalid_argument("the layout {{{}}} is no permutation of {} dimensions",
                            fmt::join(order, ","), rank);
  }
  if (std::ranges::is_sorted(order, std::greater<>())) order.clear();
  return order;
}

ir::Operation* add_transpose(ir::Block& block, const ir::Operation* before, ir::Value* value,
                             const std::vector<int64_t>& permutation) {
  Dims dims;
  for (const int64_t d : permutation) dims.push_back(value->type().dims()[static_cast<size_t>(d)]);
  ir::AttributeMap attributes;
  attributes.set("permutation", ir::IntArrayValue{DType::kI64, permutation});
  return block.insert_before(
      before, std::make_unique<ir::Operation>(
                  ir::OpCode::kTranspose, std::vector{value},
                  std::vector{ir::Type::tensor(value->type().element(), std::move(dims))},
                  std::move(attributes), before->location()));
}

}  // namespace

std::string layout_text(const Order& order, size_t rank) {
  std::vector<int64_t> dims = slowest_first(order, rank);
  std::ranges::reverse(dims);
  return fmt::format("{{{}}}", fmt::join(dims, ","));
}

Result<Order> read_layout(std::string_view text, size_t rank) {
  const auto malformed = [&] { return invalid_argument("'{}' is no layout", text); };
  if (text.size() < 2 || text.front() != '{' || text.back() != '}') return malformed();
  std::string_view inner = text.substr(1, text.size() - 2);
  // Behind a colon: tiles "T(8,128)"; bits of an element "E(4)", which are the device's business.
  const std::string_view more = inner.substr(std::min(inner.find(':'), inner.size()));
  if (more.find('T') != std::string_view::npos) {
    return unimplemented("the layout {} has tiles, which no device here has", text);
  }
  inner = inner.substr(0, inner.size() - more.size());
  Order order;
  while (!inner.empty()) {
    int64_t dim = 0;
    const auto [end, error] = std::from_chars(inner.data(), inner.data() + inner.size(), dim);
    if (error != std::errc()) return malformed();
    inner.remove_prefix(static_cast<size_t>(end - inner.data()));
    if (!inner.empty() && inner.front() != ',') return malformed();
    if (!inner.empty()) inner.remove_prefix(1);
    order.push_back(dim);
  }
  return checked(std::move(order), rank);
}

Result<Order> read_layout(const PJRT_Buffer_MemoryLayout* layout, DType dtype,
                          std::span<const int64_t> dims) {
  HEKLA_ASSIGN_OR_RETURN(const auto strides, layout_strides(layout, dtype, dims));
  if (!strides.has_value()) return Order();
  if (layout->type == PJRT_Buffer_MemoryLayout_Type_Tiled) {
    const int64_t* first = layout->tiled.minor_to_major;
    return checked(Order(first, first + layout->tiled.minor_to_major_size), dims.size());
  }
  Order order(dims.size());
  std::iota(order.rbegin(), order.rend(), 0);
  std::ranges::stable_sort(order, {},
                           [&](int64_t d) { return (*strides)[static_cast<size_t>(d)]; });
  HEKLA_ASSIGN_OR_RETURN(order, checked(std::move(order), dims.size()));
  const std::vector<int64_t> sizes = in_memory(dims, order);
  const std::vector<int64_t> given = in_memory(*strides, order);
  const std::vector<int64_t> wanted = dense_strides(dtype, sizes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 2 || given[i] == wanted[i]) continue;
    return unimplemented("an array on a device has no gaps, but {} has the strides [{}]",
                         shape_string(dtype, dims), fmt::join(*strides, ","));
  }
  return order;
}

std::vector<int64_t> in_memory(std::span<const int64_t> per_dimension, const Order& order) {
  std::vector<int64_t> result;
  for (const int64_t d : slowest_first(order, per_dimension.size())) {
    result.push_back(per_dimension[static_cast<size_t>(d)]);
  }
  return result;
}

Order free_order(const ir::Module& module, size_t result) {
  const ir::Operation* end = module.entry()->body().front().terminator();
  if (end == nullptr || result >= end->operand_count()) return {};
  const ir::Operation* op = end->operand(result)->defining_op();
  if (op == nullptr || op->code() != ir::OpCode::kTranspose) return {};
  std::vector<int64_t> order = inverse(ir::int_list(*op, "permutation"));
  std::ranges::reverse(order);
  const size_t rank = order.size();
  Result<Order> made = checked(std::move(order), rank);
  return made.ok() ? *std::move(made) : Order();
}

void apply_orders(ir::Module& module, std::span<const Order> parameters,
                  std::span<const Order> results) {
  ir::Function& entry = *module.entry();
  ir::Block& block = entry.body().front();
  ir::Operation* end = block.terminator();
  std::vector<ir::Type> result_types = entry.type.results();
  for (size_t i = 0; i < results.size() && i < end->operand_count(); ++i) {
    if (results[i].empty()) continue;
    ir::Value* value = end->operand(i);
    const ir::Operation* moved =
        add_transpose(block, end, value, slowest_first(results[i], results[i].size()));
    end->set_operand(i, moved->result());
    result_types[i] = moved->result()->type();
  }
  for (size_t i = 0; i < parameters.size() && i < block.argument_count(); ++i) {
    if (parameters[i].empty()) continue;
    ir::Value* argument = block.argument(i);
    const ir::Type type = argument->type();
    const std::vector<int64_t> order = slowest_first(parameters[i], parameters[i].size());
    argument->set_type(ir::Type::tensor(type.element(), in_memory(type.dims(), parameters[i])));
    const std::vector<ir::Operation*> users = argument->users();
    const ir::Operation* front = block.operations().front().get();
    ir::Operation* back = add_transpose(block, front, argument, inverse(order));
    for (ir::Operation* user : users) {
      for (size_t o = 0; o < user->operand_count(); ++o) {
        if (user->operand(o) == argument) user->set_operand(o, back->result());
      }
    }
  }
  entry.type = ir::Type::function(block.argument_types(), std::move(result_types));
}

}  // namespace hekla::pjrt
