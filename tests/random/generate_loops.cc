// SPDX-License-Identifier: Apache-2.0
// Sorts and loops, also as JAX writes them: comparators with selects, scans.
#include <algorithm>
#include <cmath>

#include "tests/random/generator.h"

namespace hekla::testing {

using ir::OpCode;

namespace {

ir::AttributeMap comparison(const char* direction, bool is_total) {
  std::vector<ir::NamedAttribute> attributes;
  if (is_total) {
    attributes.emplace_back("compare_type", ir::enum_attribute("comparison_type", "TOTALORDER"));
  }
  attributes.emplace_back("comparison_direction",
                          ir::enum_attribute("comparison_direction", direction));
  return ir::AttributeMap(attributes);
}

ir::Value* compare(ir::Block& body, ir::Value* a, ir::Value* b, const char* direction,
                   bool is_total = false) {
  return body
      .append(OpCode::kCompare, {a, b}, {tensor(DType::kI1, {})}, comparison(direction, is_total))
      ->result();
}

// One zero and one NaN for all.
ir::Value* canonical(ir::Block& body, ir::Value* x) {
  const ir::Type type = x->type();
  const auto constant = [&](double value) {
    return body
        .append(OpCode::kConstant, {}, {type},
                ir::AttributeMap({{"value", ir::make_dense(type, number(type.dtype(), value))}}))
        ->result();
  };
  ir::Value* zero = constant(0);
  x = body.append(OpCode::kSelect, {compare(body, x, zero, "EQ"), zero, x}, {type})->result();
  ir::Value* nan = constant(NAN);
  return body.append(OpCode::kSelect, {compare(body, x, x, "NE"), nan, x}, {type})->result();
}

// Whether keys of a stand before those of b, as lax.sort says it: key by key, in the total order of
// canonical floats.
ir::Value* jax_comparator(ir::Block& body, size_t keys) {
  ir::Value* result = nullptr;
  for (size_t k = keys; k-- > 0;) {
    ir::Value* a = body.argument(2 * k);
    ir::Value* b = body.argument(2 * k + 1);
    const bool is_total = is_float(a->type().dtype());
    if (is_total) {
      a = canonical(body, a);
      b = canonical(body, b);
    }
    ir::Value* less = compare(body, a, b, "LT", is_total);
    if (result == nullptr) {
      result = less;
      continue;
    }
    const ir::Type flag = tensor(DType::kI1, {});
    ir::Value* equal = compare(body, a, b, "EQ", is_total);
    ir::Value* later = body.append(OpCode::kAnd, {equal, result}, {flag})->result();
    result = body.append(OpCode::kOr, {less, later}, {flag})->result();
  }
  return result;
}

}  // namespace

bool Generator::sort() {
  ir::Value* key = tensor_of_rank(1, 3);
  if (key == nullptr || is_complex(key->type().dtype())) return false;
  const DType dtype = key->type().dtype();
  const Dims dims = key->type().dims();
  const bool is_jax = !is_tiny(dtype) && random_.chance(50);
  const bool is_total = is_float(dtype) && random_.chance(40);
  if (is_float(dtype)) key = fresh(dtype, dims, is_jax ? Content::kAny : Content::kModerate);
  std::vector<ir::Value*> operands = {key};
  const int64_t more = random_.chance(50) ? 0 : random_.between(1, 2);
  for (int64_t i = 0; i < more; ++i) operands.push_back(want(any_dtype(), dims));
  size_t keys = 1;
  if (is_jax && more > 0 && random_.chance(40) && !is_tiny(operands[1]->type().dtype()) &&
      !is_complex(operands[1]->type().dtype())) {
    keys = 2;
  }
  auto region = std::make_unique<ir::Region>(nullptr);
  ir::Block& body = region->add_block();
  std::vector<ir::Type> types;
  for (const ir::Value* operand : operands) {
    types.push_back(operand->type());
    body.add_argument(tensor(operand->type().dtype(), {}));
    body.add_argument(tensor(operand->type().dtype(), {}));
  }
  ir::Value* less = is_jax ? jax_comparator(body, keys)
                           : compare(body, body.argument(0), body.argument(1),
                                     random_.chance(60) ? "LT" : "GT", is_total);
  body.append(OpCode::kReturn, {less}, {});
  Regions regions;
  regions.push_back(std::move(region));
  // Equal keys of different bits (zeros) or with other operands show the order.
  const bool is_stable = operands.size() > 1 || is_float(dtype) || random_.chance(50);
  return append(OpCode::kSort, operands, types,
                {{"dimension", ir::i64_attribute(random_.below(key->type().rank()))},
                 {"is_stable", ir::Attribute(ir::BoolValue{is_stable})}},
                std::move(regions)) != nullptr;
}

// A sort of which only the first few are read.
bool Generator::top_k() {
  ir::Value* key = tensor_of_rank(1, 3);
  if (key == nullptr || is_complex(key->type().dtype()) || is_tiny(key->type().dtype())) {
    return false;
  }
  const DType dtype = key->type().dtype();
  const Dims dims = key->type().dims();
  const auto along = static_cast<size_t>(random_.below(key->type().rank()));
  if (dims[along] < 2) return false;
  auto region = std::make_unique<ir::Region>(nullptr);
  ir::Block& body = region->add_block();
  for (int i = 0; i < 2; ++i) body.add_argument(tensor(dtype, {}));
  body.append(OpCode::kReturn, {jax_comparator(body, 1)}, {});
  Regions regions;
  regions.push_back(std::move(region));
  ir::Operation* sorted = append(OpCode::kSort, {key}, {key->type()},
                                 {{"dimension", ir::i64_attribute(static_cast<int64_t>(along))},
                                  {"is_stable", ir::Attribute(ir::BoolValue{true})}},
                                 std::move(regions));
  if (sorted == nullptr) return false;
  // Nobody else may see the whole.
  std::erase(values_, sorted->result());
  Dims limits = dims;
  limits[along] = random_.between(1, std::min<int64_t>(dims[along], 6));
  return append(OpCode::kSlice, {sorted->result()}, {},
                {{"start_indices", ir::i64_array(std::vector<int64_t>(dims.size(), 0))},
                 {"limit_indices", ir::i64_array(limits)},
                 {"strides", ir::i64_array(std::vector<int64_t>(dims.size(), 1))}}) != nullptr;
}

bool Generator::loop() {
  std::vector<ir::Value*> carried = {scalar_i32(0)};
  const int64_t count = random_.between(1, 3);
  for (int64_t i = 0; i < count; ++i) carried.push_back(any_value());
  std::vector<ir::Type> types;
  for (const ir::Value* value : carried) types.push_back(value->type());
  ir::Block* const outer_block = block_;
  const Values outer_values = values_;
  const ir::AttributeMap less(
      {{"comparison_direction", ir::enum_attribute("comparison_direction", "LT")}});

  auto condition = std::make_unique<ir::Region>(nullptr);
  ir::Block& test = condition->add_block();
  for (const ir::Type& type : types) test.add_argument(type);
  block_ = &test;
  ir::Value* trips = scalar_i32(random_.chance(10) ? 0 : random_.between(1, 6));
  if (random_.chance(25) && sees_arguments_) {  // a count that is not known before
    block_ = outer_block;
    HostArray number_of_trips = number(DType::kI32, static_cast<double>(random_.between(0, 6)));
    trips = entry_->body().front().add_argument(tensor(DType::kI32, {}));
    inputs_.push_back(std::move(number_of_trips));
    block_ = &test;
  }
  ir::Value* go =
      test.append(OpCode::kCompare, {test.argument(0), trips}, {tensor(DType::kI1, {})}, less)
          ->result();
  test.append(OpCode::kReturn, {go}, {});

  auto body = std::make_unique<ir::Region>(nullptr);
  ir::Block& inside = body->add_block();
  for (const ir::Type& type : types) values_.push_back(inside.add_argument(type));
  block_ = &inside;
  ++depth_;
  grow(static_cast<int>(random_.between(1, 5)));
  std::vector<ir::Value*> next = {
      inside.append(OpCode::kAdd, {inside.argument(0), scalar_i32(1)}, {types[0]})->result()};
  for (size_t i = 1; i < types.size(); ++i) {
    next.push_back(want(types[i].dtype(), types[i].dims()));
  }
  --depth_;
  inside.append(OpCode::kReturn, next, {});
  block_ = outer_block;
  values_ = outer_values;
  Regions regions;
  regions.push_back(std::move(condition));
  regions.push_back(std::move(body));
  return append(OpCode::kWhile, carried, types, {}, std::move(regions)) != nullptr;
}

// What lax.scan becomes: a loop that takes a slice of its inputs, computes, and puts a slice into
// its outputs.
bool Generator::scan() {
  ir::Value* xs = tensor_of_rank(1, 3);
  if (xs == nullptr || is_tiny(xs->type().dtype())) return false;
  const DType dtype = xs->type().dtype();
  const Dims all = xs->type().dims();
  if (all[0] == 0 || all[0] > 70) return false;
  const Dims one(all.begin() + 1, all.end());
  Dims slice = all;
  slice[0] = 1;
  const bool is_reverse = random_.chance(25);
  Values initial = {scalar_i32(0), want(dtype, one), fresh(dtype, all)};
  std::vector<ir::Type> types;
  for (const ir::Value* value : initial) types.push_back(value->type());

  auto condition = std::make_unique<ir::Region>(nullptr);
  ir::Block& test = condition->add_block();
  for (const ir::Type& type : types) test.add_argument(type);
  ir::Block* const outer_block = block_;
  block_ = &test;
  ir::Value* go = compare(test, test.argument(0), scalar_i32(all[0]), "LT");
  test.append(OpCode::kReturn, {go}, {});

  auto body = std::make_unique<ir::Region>(nullptr);
  ir::Block& inside = body->add_block();
  for (const ir::Type& type : types) inside.add_argument(type);
  block_ = &inside;
  const Values outer_values = values_;
  ++depth_;
  ir::Value* at = inside.argument(0);
  if (is_reverse) {
    at = inside.append(OpCode::kSubtract, {scalar_i32(all[0] - 1), at}, {types[0]})->result();
  }
  Values starts = {at};
  for (size_t d = 1; d < all.size(); ++d) starts.push_back(scalar_i32(0));
  Values sliced = {xs};
  sliced.insert(sliced.end(), starts.begin(), starts.end());
  ir::Value* part = inside
                        .append(OpCode::kDynamicSlice, sliced, {tensor(dtype, slice)},
                                ir::AttributeMap({{"slice_sizes", ir::i64_array(slice)}}))
                        ->result();
  ir::Value* x = inside.append(OpCode::kReshape, {part}, {tensor(dtype, one)})->result();
  values_.push_back(x);
  values_.push_back(inside.argument(1));
  grow(static_cast<int>(random_.between(1, 4)));
  ir::Value* carry = want(dtype, one);
  ir::Value* y =
      inside.append(OpCode::kReshape, {want(dtype, one)}, {tensor(dtype, slice)})->result();
  Values updated = {inside.argument(2), y};
  updated.insert(updated.end(), starts.begin(), starts.end());
  ir::Value* ys = inside.append(OpCode::kDynamicUpdateSlice, updated, {types[2]})->result();
  ir::Value* next =
      inside.append(OpCode::kAdd, {inside.argument(0), scalar_i32(1)}, {types[0]})->result();
  --depth_;
  inside.append(OpCode::kReturn, {next, carry, ys}, {});
  block_ = outer_block;
  values_ = outer_values;
  Regions regions;
  regions.push_back(std::move(condition));
  regions.push_back(std::move(body));
  return append(OpCode::kWhile, initial, types, {}, std::move(regions)) != nullptr;
}

}  // namespace hekla::testing
