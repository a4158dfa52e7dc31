// SPDX-License-Identifier: Apache-2.0
// Operations with regions: reductions, windows, map; branches and functions.
#include <algorithm>
#include <numeric>

#include "runtime/program/ir/infer.h"
#include "tests/random/generator.h"

namespace hekla::testing {

using ir::OpCode;

std::unique_ptr<ir::Region> Generator::scalar_region(OpCode code, DType dtype) {
  auto region = std::make_unique<ir::Region>(nullptr);
  ir::Block& body = region->add_block();
  ir::Value* a = body.add_argument(tensor(dtype, {}));
  ir::Value* b = body.add_argument(tensor(dtype, {}));
  if (random_.chance(15)) std::swap(a, b);
  ir::Operation* op = body.append(code, {a, b}, {tensor(dtype, {})});
  body.append(OpCode::kReturn, {op->result()}, {});
  return region;
}

std::pair<OpCode, HostArray> Generator::reducer(DType dtype, bool neutral) {
  const bool is_number = dtype != DType::kI1;
  const bool is_exact_type = !is_float(dtype) && !is_complex(dtype);
  std::vector<OpCode> codes;
  if (is_complex(dtype)) {
    codes = {OpCode::kAdd};
  } else if (dtype == DType::kI1) {
    codes = {OpCode::kAnd, OpCode::kOr, OpCode::kXor, OpCode::kMaximum};
  } else if (dtype == DType::kF8E8M0FNU || (!is_exact_type && depth_ > 0)) {
    codes = {OpCode::kMaximum, OpCode::kMinimum};
  } else if (is_exact_type) {
    codes = {OpCode::kAdd,     OpCode::kAdd, OpCode::kMultiply, OpCode::kMaximum,
             OpCode::kMinimum, OpCode::kAnd, OpCode::kOr,       OpCode::kXor};
  } else {
    codes = {OpCode::kAdd, OpCode::kAdd, OpCode::kAdd, OpCode::kMaximum, OpCode::kMinimum};
  }
  const OpCode code = random_.pick(codes);
  // Any start value is right for a reduction over all; the neutral one most of the time.
  double start = code == OpCode::kMultiply || code == OpCode::kAnd ? 1 : 0;
  if (!neutral && random_.chance(20)) start = static_cast<double>(random_.between(0, 3));
  return {code, number(dtype, is_number ? start : std::min(start, 1.0))};
}

bool Generator::reduce() {
  ir::Value* x = tensor_of_rank(1, 5);
  if (x == nullptr) return false;
  const DType dtype = x->type().dtype();
  if (is_complex(dtype) && depth_ > 0) return false;
  std::vector<int64_t> dimensions;
  Dims out;
  for (int64_t i = 0; i < x->type().rank(); ++i) {
    if (random_.chance(50)) {
      dimensions.push_back(i);
    } else {
      out.push_back(x->type().dims()[static_cast<size_t>(i)]);
    }
  }
  auto [code, start] = reducer(dtype);
  ir::Value* init = random_.chance(90) ? constant(std::move(start)) : want(dtype, {});
  Regions regions;
  regions.push_back(scalar_region(code, dtype));
  return append(OpCode::kReduce, {x, init}, {tensor(dtype, out)},
                {{"dimensions", ir::i64_array(dimensions)}}, std::move(regions)) != nullptr;
}

// The greatest element and its place, the first of equal ones.
bool Generator::reduce_arg() {
  if (random_.chance(30)) return reduce_in_order();
  ir::Value* x = tensor_of_rank(1, 3);
  if (x == nullptr || is_complex(x->type().dtype()) || x->type().dtype() == DType::kI1) {
    return false;
  }
  const DType dtype = x->type().dtype();
  const Dims dims = x->type().dims();
  // A NaN is not less, greater or equal: the order of comparisons would show.
  if (is_float(dtype)) x = fresh(dtype, dims, Content::kModerate);
  const int64_t d = random_.below(x->type().rank());
  ir::Operation* places = append(OpCode::kIota, {}, {tensor(DType::kI32, dims)},
                                 {{"iota_dimension", ir::i64_attribute(d)}});
  if (places == nullptr) return false;
  auto region = std::make_unique<ir::Region>(nullptr);
  ir::Block& body = region->add_block();
  const ir::Type value = tensor(dtype, {}), place = tensor(DType::kI32, {});
  ir::Value* a = body.add_argument(value);
  ir::Value* ai = body.add_argument(place);
  ir::Value* b = body.add_argument(value);
  ir::Value* bi = body.add_argument(place);
  const ir::Type flag = tensor(DType::kI1, {});
  const auto compare = [&](const char* direction, ir::Value* l, ir::Value* r) {
    return body
        .append(OpCode::kCompare, {l, r}, {flag},
                ir::AttributeMap({{"comparison_direction",
                                   ir::enum_attribute("comparison_direction", direction)}}))
        ->result();
  };
  ir::Value* greater = compare("GT", a, b);
  ir::Value* equal = compare("EQ", a, b);
  ir::Value* first = compare("LT", ai, bi);
  ir::Value* both = body.append(OpCode::kAnd, {equal, first}, {flag})->result();
  ir::Value* keep = body.append(OpCode::kOr, {greater, both}, {flag})->result();
  ir::Value* v = body.append(OpCode::kSelect, {keep, a, b}, {value})->result();
  ir::Value* p = body.append(OpCode::kSelect, {keep, ai, bi}, {place})->result();
  body.append(OpCode::kReturn, {v, p}, {});
  Dims out = dims;
  out.erase(out.begin() + d);
  Regions regions;
  regions.push_back(std::move(region));
  ir::Value* init = constant(number(dtype, is_float(dtype) ? -2 : 0));
  return append(OpCode::kReduce, {x, places->result(), init, scalar_i32(1 << 20)},
                {tensor(dtype, out), tensor(DType::kI32, out)},
                {{"dimensions", ir::i64_array({d})}}, std::move(regions)) != nullptr;
}

// Affine maps one after the other, in integers: a fold that does not commute.
bool Generator::reduce_in_order() {
  ir::Value* shifts = tensor_of_rank(1, 4);
  if (shifts == nullptr || !is_integer(shifts->type().dtype())) return false;
  const DType dtype = shifts->type().dtype();
  const Dims dims = shifts->type().dims();
  std::vector<int64_t> dimensions;
  Dims out;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (random_.chance(60)) {
      dimensions.push_back(static_cast<int64_t>(i));
    } else {
      out.push_back(dims[i]);
    }
  }
  auto region = std::make_unique<ir::Region>(nullptr);
  ir::Block& body = region->add_block();
  const ir::Type type = tensor(dtype, {});
  ir::Value* scale = body.add_argument(type);
  ir::Value* shift = body.add_argument(type);
  ir::Value* next_scale = body.add_argument(type);
  ir::Value* next_shift = body.add_argument(type);
  ir::Value* both = body.append(OpCode::kMultiply, {scale, next_scale}, {type})->result();
  ir::Value* scaled = body.append(OpCode::kMultiply, {shift, next_scale}, {type})->result();
  ir::Value* shifted = body.append(OpCode::kAdd, {scaled, next_shift}, {type})->result();
  body.append(OpCode::kReturn, {both, shifted}, {});
  Regions regions;
  regions.push_back(std::move(region));
  // Not zero, which would leave nothing of what is in front.
  return append(OpCode::kReduce,
                {fresh(dtype, dims, Content::kPositive), shifts, constant(number(dtype, 1)),
                 constant(number(dtype, 0))},
                {tensor(dtype, out), tensor(dtype, out)},
                {{"dimensions", ir::i64_array(dimensions)}}, std::move(regions)) != nullptr;
}

// Reductions along rows, whose results meet the rows again: as in softmax and layer norm.
bool Generator::row_chain() {
  ir::Value* x = tensor_of_rank(2, 4);
  if (x == nullptr || is_complex(x->type().dtype()) || is_tiny(x->type().dtype()) ||
      x->type().dtype() == DType::kI1) {
    return false;
  }
  const DType dtype = x->type().dtype();
  const Dims dims = x->type().dims();
  const int64_t kept = random_.between(1, x->type().rank() - 1);
  std::vector<int64_t> reduced, map;
  for (int64_t d = 0; d < x->type().rank(); ++d) (d < kept ? map : reduced).push_back(d);
  const Dims rows(dims.begin(), dims.begin() + kept);
  const int64_t stages = random_.between(2, 3);
  for (int64_t stage = 0; stage < stages; ++stage) {
    auto [code, start] = reducer(dtype);
    Regions regions;
    regions.push_back(scalar_region(code, dtype));
    ir::Operation* total =
        append(OpCode::kReduce, {x, constant(std::move(start))}, {tensor(dtype, rows)},
               {{"dimensions", ir::i64_array(reduced)}}, std::move(regions));
    if (total == nullptr) return false;
    ir::Operation* spread =
        append(OpCode::kBroadcastInDim, {total->result()}, {tensor(dtype, dims)},
               {{"broadcast_dimensions", ir::i64_array(map)}});
    if (spread == nullptr) return false;
    const std::vector<OpCode> codes = {OpCode::kSubtract, OpCode::kMultiply, OpCode::kMaximum};
    ir::Operation* next = binary(random_.pick(codes), x, spread->result());
    if (next == nullptr) return false;
    if (is_float(dtype) && random_.chance(50)) {
      ir::Operation* other =
          unary(random_.chance(50) ? OpCode::kTanh : OpCode::kAbs, next->result());
      if (other != nullptr) next = other;
    }
    x = next->result();
  }
  return true;
}

Generator::Window Generator::window(const Dims& dims, bool plain) {
  std::vector<int64_t> sizes, strides, base, dilations;
  std::vector<std::pair<int64_t, int64_t>> padding;
  Window result;
  for (int64_t size : dims) {
    sizes.push_back(random_.chance(30) ? 1 : random_.between(1, 4));
    strides.push_back(random_.chance(50) ? 1 : random_.between(1, 3));
    base.push_back(plain || random_.chance(75) ? 1 : random_.between(1, 3));
    dilations.push_back(plain || random_.chance(75) ? 1 : random_.between(1, 3));
    padding.push_back(random_.chance(50) ? std::pair<int64_t, int64_t>(0, 0)
                                         : std::pair<int64_t, int64_t>(random_.between(0, 3),
                                                                       random_.between(0, 3)));
    if (!plain && random_.chance(10)) {  // a cumulative sum
      sizes.back() = std::max<int64_t>(size, 1);
      strides.back() = base.back() = dilations.back() = 1;
      padding.back() = {std::max<int64_t>(size, 1) - 1, 0};
    }
    result.result.push_back(ir::window_output_size(size, base.back(), padding.back().first,
                                                   padding.back().second, sizes.back(),
                                                   dilations.back(), strides.back()));
  }
  result.attributes = {{"window_dimensions", ir::i64_array(sizes)},
                       {"window_strides", ir::i64_array(strides)},
                       {"padding", pairs_attribute(padding)}};
  if (!plain) {
    result.attributes.push_back({"base_dilations", ir::i64_array(base)});
    result.attributes.push_back({"window_dilations", ir::i64_array(dilations)});
  }
  if (dims.empty()) result.attributes = {{"window_dimensions", ir::i64_array({})}};
  return result;
}

bool Generator::reduce_window() {
  ir::Value* x = tensor_of_rank(1, 4);
  if (x == nullptr) return false;
  const DType dtype = x->type().dtype();
  if (is_complex(dtype) && depth_ > 0) return false;
  Window how = window(x->type().dims(), false);
  // How often a start value counts that padding repeats is open unless it is neutral.
  auto [code, start] = reducer(dtype, /*neutral=*/true);
  Regions regions;
  regions.push_back(scalar_region(code, dtype));
  return append(OpCode::kReduceWindow, {x, constant(std::move(start))}, {tensor(dtype, how.result)},
                how.attributes, std::move(regions)) != nullptr;
}

// A window that begins before the line, or ends behind it, in one dimension.
bool Generator::cumulative() {
  ir::Value* x = tensor_of_rank(1, 3);
  if (x == nullptr) return false;
  const DType dtype = x->type().dtype();
  if (is_complex(dtype) && depth_ > 0) return false;
  const Dims dims = x->type().dims();
  const auto along = static_cast<size_t>(random_.below(x->type().rank()));
  std::vector<int64_t> sizes(dims.size(), 1);
  std::vector<std::pair<int64_t, int64_t>> padding(dims.size(), {0, 0});
  sizes[along] = std::max<int64_t>(dims[along], 1);
  const int64_t more = random_.chance(70) ? 0 : random_.between(0, 2);
  (random_.chance(60) ? padding[along].first : padding[along].second) = sizes[along] - 1 - more;
  if (sizes[along] - 1 - more < 0) return false;
  Dims out = dims;
  out[along] = ir::window_output_size(dims[along], 1, padding[along].first, padding[along].second,
                                      sizes[along], 1, 1);
  auto [code, start] = reducer(dtype, /*neutral=*/true);
  Regions regions;
  regions.push_back(scalar_region(code, dtype));
  return append(
             OpCode::kReduceWindow, {x, constant(std::move(start))}, {tensor(dtype, out)},
             {{"window_dimensions", ir::i64_array(sizes)}, {"padding", pairs_attribute(padding)}},
             std::move(regions)) != nullptr;
}

bool Generator::select_and_scatter() {
  ir::Value* x = tensor_of_rank(1, 4);
  if (x == nullptr || is_complex(x->type().dtype()) || x->type().dtype() == DType::kI1 ||
      is_tiny(x->type().dtype())) {
    return false;
  }
  const DType dtype = x->type().dtype();
  const Dims dims = x->type().dims();
  if (is_float(dtype)) x = fresh(dtype, dims, Content::kModerate);
  Window how = window(dims, true);
  auto region = std::make_unique<ir::Region>(nullptr);
  ir::Block& body = region->add_block();
  ir::Value* a = body.add_argument(tensor(dtype, {}));
  ir::Value* b = body.add_argument(tensor(dtype, {}));
  const char* direction = random_.chance(70) ? "GE" : "LE";
  ir::Operation* better = body.append(
      OpCode::kCompare, {a, b}, {tensor(DType::kI1, {})},
      ir::AttributeMap(
          {{"comparison_direction", ir::enum_attribute("comparison_direction", direction)}}));
  body.append(OpCode::kReturn, {better->result()}, {});
  Regions regions;
  regions.push_back(std::move(region));
  regions.push_back(scalar_region(OpCode::kAdd, dtype));
  return append(OpCode::kSelectAndScatter, {x, want(dtype, how.result), constant(number(dtype, 0))},
                {tensor(dtype, dims)}, how.attributes, std::move(regions)) != nullptr;
}

bool Generator::map() {
  ir::Value* x = tensor_of_rank(1, 4);
  if (x == nullptr || x->type().dtype() == DType::kF8E8M0FNU) return false;
  const DType dtype = x->type().dtype();
  const Dims dims = x->type().dims();
  std::vector<ir::Value*> operands = {x};
  if (random_.chance(60)) operands.push_back(want(dtype, dims));
  auto region = std::make_unique<ir::Region>(nullptr);
  ir::Block& body = region->add_block();
  std::vector<ir::Value*> pool;
  for (const ir::Value* operand : operands) {
    pool.push_back(body.add_argument(tensor(operand->type().dtype(), {})));
  }
  const int64_t ops = random_.between(1, 4);
  for (int64_t i = 0; i < ops; ++i) {
    static const std::vector<OpCode> kNumbers = {OpCode::kAdd, OpCode::kSubtract};
    static const std::vector<OpCode> kBool = {OpCode::kAnd, OpCode::kOr, OpCode::kXor};
    pool.push_back(body.append(random_.pick(dtype == DType::kI1 ? kBool : kNumbers),
                               {random_.pick(pool), random_.pick(pool)}, {tensor(dtype, {})})
                       ->result());
  }
  body.append(OpCode::kReturn, {pool.back()}, {});
  std::vector<int64_t> dimensions(dims.size());
  std::iota(dimensions.begin(), dimensions.end(), 0);
  Regions regions;
  regions.push_back(std::move(region));
  return append(OpCode::kMap, operands, {tensor(dtype, dims)},
                {{"dimensions", ir::i64_array(dimensions)}}, std::move(regions)) != nullptr;
}

bool Generator::branch() {
  const bool is_if = random_.chance(60);
  ir::Value* selector = nullptr;
  if (is_if) {
    selector = want(DType::kI1, {});
  } else {
    selector = fresh(DType::kI32, {}, random_.chance(80) ? Content::kPositive : Content::kAny);
    if (random_.chance(70)) {
      ir::Operation* small = append(OpCode::kAnd, {selector, scalar_i32(3)});
      if (small != nullptr) selector = small->result();
    }
  }
  const int64_t branches = is_if ? 2 : random_.between(1, 4);
  ir::Block* const outer_block = block_;
  const Values outer_values = values_;
  std::vector<ir::Type> types;
  Regions regions;
  ++depth_;
  for (int64_t b = 0; b < branches; ++b) {
    auto region = std::make_unique<ir::Region>(nullptr);
    block_ = &region->add_block();
    values_ = outer_values;
    grow(static_cast<int>(random_.between(0, 4)));
    std::vector<ir::Value*> results;
    if (b == 0) {
      const int64_t count = random_.between(1, 3);
      for (int64_t i = 0; i < count; ++i) {
        results.push_back(any_value());
        types.push_back(results.back()->type());
      }
    } else {
      for (const ir::Type& type : types) results.push_back(want(type.dtype(), type.dims()));
    }
    block_->append(OpCode::kReturn, results, {});
    regions.push_back(std::move(region));
  }
  --depth_;
  block_ = outer_block;
  values_ = outer_values;
  return append(is_if ? OpCode::kIf : OpCode::kCase, {selector}, types, {}, std::move(regions)) !=
         nullptr;
}

bool Generator::call() {
  auto function = std::make_unique<ir::Function>("f" + std::to_string(functions_++));
  function->visibility = ir::Function::Visibility::kPrivate;
  ir::Block* const outer_block = block_;
  const Values outer_values = values_;
  const bool outer_sees = sees_arguments_;
  std::vector<ir::Value*> operands;
  const int64_t count = random_.between(1, 3);
  for (int64_t i = 0; i < count; ++i) operands.push_back(any_value());
  const Values seen = values_;
  block_ = &function->body().add_block();
  values_.clear();
  for (const ir::Value* operand : operands) {
    values_.push_back(block_->add_argument(operand->type()));
  }
  sees_arguments_ = false;
  ++depth_;
  grow(static_cast<int>(random_.between(1, 4)));
  --depth_;
  std::vector<ir::Value*> results = {values_.back()};
  if (random_.chance(40)) results.push_back(random_.pick(values_));
  block_->append(OpCode::kFuncReturn, results, {});
  std::vector<ir::Type> types;
  for (const ir::Value* value : results) types.push_back(value->type());
  function->type = ir::Type::function(block_->argument_types(), types);
  function->argument_attributes.resize(operands.size());
  function->result_attributes.resize(types.size());
  block_ = outer_block;
  values_ = seen;
  sees_arguments_ = outer_sees;
  const std::string name = function->name();
  module_->functions.push_back(std::move(function));
  return append(OpCode::kFuncCall, operands, types,
                {{"callee", ir::Attribute(ir::SymbolValue{name, {}})}}) != nullptr;
}

bool Generator::other() {
  switch (random_.below(4)) {
    case 0: {
      std::vector<ir::Value*> operands = {any_value()};
      if (random_.chance(50)) operands.push_back(any_value());
      return append(OpCode::kOptimizationBarrier, operands) != nullptr;
    }
    case 1: {
      ir::Value* x = tensor_of_rank(1, 4);
      if (x == nullptr) return false;
      return append(OpCode::kGetDimensionSize, {x}, {},
                    {{"dimension", ir::i64_attribute(random_.below(x->type().rank()))}}) != nullptr;
    }
    case 2:
      return append(random_.chance(50) ? OpCode::kReplicaId : OpCode::kPartitionId, {}) != nullptr;
    default: {
      constant(array_of(tensor(any_dtype(), any_dims()), Content::kAny));
      values_.push_back(block_->operations().back()->result());
      return true;
    }
  }
}

}  // namespace hekla::testing
