// SPDX-License-Identifier: Apache-2.0
// Attention: softmax(Q K^T * s + mask) V in the layouts of JAX's einsums, of any sizes, and its
// gradients.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/program/ir/op_attributes.h"
#include "tests/random/generator.h"

namespace hekla::testing {

using ir::OpCode;

namespace {

// What the dimensions of an array are.
constexpr char kHeads = 'h', kGroups = 'g', kRows = 't', kColumns = 's', kDepth = 'd', kWidth = 'w';

std::vector<int64_t> places_of(const std::string& some, const std::string& all) {
  std::vector<int64_t> places;
  for (const char c : some) places.push_back(static_cast<int64_t>(all.find(c)));
  return places;
}

}  // namespace

// One attention, which no other operation reads, or its gradients; false when it would be too
// large.
bool Generator::attention() {
  const std::vector<DType> dtypes = {DType::kF32, DType::kF32, DType::kBF16, DType::kF16};
  const DType dtype = random_.pick(dtypes), sums = DType::kF32;
  const auto size = [&](int64_t most) { return random_.between(1, random_.chance(20) ? most : 9); };
  const bool is_few = random_.chance(25);
  const auto size_of = [&, heads = size(4), groups = random_.between(1, 3),
                        rows = is_few ? random_.between(1, 2) : size(90) + 1,
                        columns = size(is_few ? 300 : 90) + 1, depth = size(40),
                        width = size(40)](char c) {
    switch (c) {
      case kHeads:
        return heads;
      case kGroups:
        return groups;
      case kRows:
        return rows;
      case kColumns:
        return columns;
      case kDepth:
        return depth;
      default:
        return width;
    }
  };
  const auto dims_of = [&](const std::string& names) {
    Dims dims;
    for (const char c : names) dims.push_back(size_of(c));
    return dims;
  };
  const auto shuffled = [&](const std::string& names) {
    std::vector<char> all(names.begin(), names.end());
    random_.shuffle(all);
    return std::string(all.begin(), all.end());
  };
  // A product of two arrays with these dimensions; those of the result.
  struct Named {
    ir::Value* value = nullptr;
    std::string names;
  };
  const auto dot = [&](const Named& x, const Named& y, const std::string& batch,
                       const std::string& along, DType to) {
    ir::DotDimensionNumbers n;
    n.lhs_batching_dimensions = places_of(batch, x.names);
    n.rhs_batching_dimensions = places_of(batch, y.names);
    n.lhs_contracting_dimensions = places_of(along, x.names);
    n.rhs_contracting_dimensions = places_of(along, y.names);
    Named made{nullptr, batch};
    for (const Named* one : {&x, &y}) {
      for (const char c : one->names) {
        if (along.find(c) == std::string::npos && batch.find(c) == std::string::npos) {
          made.names += c;
        }
      }
    }
    ir::Operation* op =
        append(OpCode::kDotGeneral, {x.value, y.value}, {tensor(to, dims_of(made.names))},
               {{"dot_dimension_numbers", ir::Attribute(n)}});
    made.value = op == nullptr ? nullptr : op->result();
    return made;
  };
  const auto transposed = [&](Named x, const std::string& names) {
    if (x.value == nullptr || x.names == names) return x;
    ir::Operation* op =
        append(OpCode::kTranspose, {x.value}, {tensor(x.value->type().dtype(), dims_of(names))},
               {{"permutation", ir::i64_array(places_of(names, x.names))}});
    return Named{op == nullptr ? nullptr : op->result(), names};
  };
  const auto operand = [&](const std::string& names) {
    const std::string order = shuffled(names);
    return Named{fresh(dtype, dims_of(order), Content::kModerate), order};
  };
  const auto spread = [&](ir::Value* x, const std::string& from, const std::string& to) {
    return append(OpCode::kBroadcastInDim, {x}, {tensor(x->type().dtype(), dims_of(to))},
                  {{"broadcast_dimensions", ir::i64_array(places_of(from, to))}});
  };

  // Groups of heads share keys and values.
  const Named q = operand("hgtd"), k = operand("hsd"), v = operand("hsw");
  Named x = random_.chance(50) ? dot(q, k, "h", "d", sums) : dot(k, q, "h", "d", sums);
  if (x.value == nullptr) return false;
  const auto follow = [&](ir::Operation* op) {
    x.value = op == nullptr ? nullptr : op->result();
    return op != nullptr;
  };
  const auto function = [&](OpCode code) {
    return append(code, {x.value}, {tensor(sums, dims_of(x.names))});
  };
  const auto full = [&](double value) {
    return spread(constant(number(sums, value)), "", x.names)->result();
  };
  const bool is_scaled = random_.chance(70), has_tanh = random_.chance(30);
  if (is_scaled && !follow(binary(OpCode::kMultiply, x.value, full(0.25)))) return false;
  if (has_tanh && !follow(function(OpCode::kTanh))) return false;
  ir::Value* tanh = x.value;
  const std::string score_names = x.names;
  if (random_.chance(40)) {
    const std::string names = random_.chance(50) ? "ts" : "hs";
    ir::Operation* bias = spread(fresh(sums, dims_of(names), Content::kModerate), names, x.names);
    if (bias == nullptr || !follow(binary(OpCode::kAdd, bias->result(), x.value))) return false;
  }
  if (random_.chance(50)) x = transposed(x, "ghts");
  if (x.value == nullptr) return false;
  ir::Value* mask = nullptr;
  if (random_.chance(60)) {
    if (random_.chance(60)) {
      ir::Value* at[2] = {};
      for (const char c : {kRows, kColumns}) {
        ir::Operation* op =
            append(OpCode::kIota, {}, {tensor(DType::kI32, dims_of(x.names))},
                   {{"iota_dimension", ir::i64_attribute(static_cast<int64_t>(x.names.find(c)))}});
        if (op == nullptr) return false;
        at[c == kColumns] = op->result();
      }
      const std::vector<std::string> directions = {"GE", "LE", "GT", "NE"};
      ir::Operation* op =
          append(OpCode::kCompare, {at[0], at[1]}, {},
                 {{"comparison_direction",
                   ir::enum_attribute("comparison_direction", random_.pick(directions))}});
      mask = op == nullptr ? nullptr : op->result();
    } else {
      ir::Operation* op = spread(fresh(DType::kI1, dims_of("s")), "s", x.names);
      mask = op == nullptr ? nullptr : op->result();
    }
    ir::Value* least = full(random_.chance(50) ? -INFINITY : -2e38);
    if (mask == nullptr || !follow(append(OpCode::kSelect, {mask, x.value, least}))) return false;
  }

  const auto along = static_cast<int64_t>(x.names.find(kColumns));
  std::string kept = x.names;
  kept.erase(static_cast<size_t>(along), 1);
  const auto reduced = [&](ir::Value* of, OpCode code, double initial) -> ir::Value* {
    Regions regions;
    regions.push_back(scalar_region(code, sums));
    ir::Operation* op = append(OpCode::kReduce, {of, constant(number(sums, initial))},
                               {tensor(sums, dims_of(kept))},
                               {{"dimensions", ir::i64_array({along})}}, std::move(regions));
    if (op == nullptr) return nullptr;
    ir::Operation* all = spread(op->result(), kept, x.names);
    return all == nullptr ? nullptr : all->result();
  };
  ir::Value* greatest = reduced(x.value, OpCode::kMaximum, -INFINITY);
  if (greatest == nullptr || !follow(binary(OpCode::kSubtract, x.value, greatest)) ||
      !follow(function(OpCode::kExponential))) {
    return false;
  }
  ir::Value* exponential = x.value;
  ir::Value* total = reduced(x.value, OpCode::kAdd, 0);
  if (total == nullptr || !follow(binary(OpCode::kDivide, x.value, total))) return false;
  ir::Value* quotient = x.value;
  if (dtype != sums &&
      !follow(append(OpCode::kConvert, {x.value}, {tensor(dtype, dims_of(x.names))}))) {
    return false;
  }
  const DType to = random_.chance(50) ? dtype : sums;
  const auto either = [&](const Named& a, const Named& b, const std::string& along, DType as) {
    return random_.chance(50) ? dot(a, b, "h", along, as) : dot(b, a, "h", along, as);
  };
  const bool has_gradients = random_.chance(50);
  if (!has_gradients || random_.chance(50)) {
    const Named made = either(x, v, "s", to);
    if (transposed(made, random_.chance(50) ? "tghw" : made.names).value == nullptr) return false;
    if (!has_gradients) return true;
  }

  const Named weights = x;
  const std::string order = shuffled("hgtw");
  const Named result{fresh(to, dims_of(order), Content::kModerate), order};
  if (either(weights, result, "gt", to).value == nullptr) return false;
  x = transposed(either(result, v, "w", to), weights.names);
  if (x.value == nullptr || (to != sums && !follow(append(OpCode::kConvert, {x.value},
                                                          {tensor(sums, dims_of(x.names))})))) {
    return false;
  }
  // Of the softmax: as textbooks have it, or as JAX does.
  ir::Value* of_weights = x.value;
  if (random_.chance(50)) {
    if (!follow(binary(OpCode::kMultiply, x.value, quotient))) return false;
    ir::Value* mean = reduced(x.value, OpCode::kAdd, 0);
    if (mean == nullptr || !follow(binary(OpCode::kSubtract, of_weights, mean)) ||
        !follow(binary(OpCode::kMultiply, x.value, quotient))) {
      return false;
    }
  } else {
    ir::Operation* square = binary(OpCode::kMultiply, total, total);
    if (square == nullptr || !follow(binary(OpCode::kDivide, of_weights, square->result())) ||
        !follow(binary(OpCode::kMultiply, x.value, exponential))) {
      return false;
    }
    ir::Value* mean = reduced(x.value, OpCode::kAdd, 0);
    x.value = of_weights;
    if (mean == nullptr || !follow(binary(OpCode::kDivide, x.value, total)) ||
        !follow(binary(OpCode::kSubtract, x.value, mean)) ||
        !follow(binary(OpCode::kMultiply, x.value, exponential))) {
      return false;
    }
  }
  if (mask != nullptr && !follow(append(OpCode::kSelect, {mask, x.value, full(0)}))) return false;
  x = transposed(x, score_names);
  if (x.value == nullptr) return false;
  if (has_tanh) {
    ir::Operation* square = binary(OpCode::kMultiply, tanh, tanh);
    ir::Operation* slope =
        square == nullptr ? nullptr : binary(OpCode::kSubtract, full(1), square->result());
    if (slope == nullptr || !follow(binary(OpCode::kMultiply, x.value, slope->result()))) {
      return false;
    }
  }
  if (is_scaled && !follow(binary(OpCode::kMultiply, x.value, full(0.25)))) return false;
  if (dtype != sums && random_.chance(50) &&
      !follow(append(OpCode::kConvert, {x.value}, {tensor(dtype, dims_of(x.names))}))) {
    return false;
  }
  // Products of two types are of what both are made of.
  const bool is_narrow = x.value->type().dtype() == dtype;
  const auto widened = [&](const Named& one) {
    if (is_narrow) return one;
    ir::Operation* op = append(OpCode::kConvert, {one.value}, {tensor(sums, dims_of(one.names))});
    return Named{op == nullptr ? nullptr : op->result(), one.names};
  };
  const Named keys = widened(k), queries = widened(q);
  if (keys.value == nullptr || queries.value == nullptr) return false;
  return either(x, keys, "s", to).value != nullptr && either(x, queries, "gt", to).value != nullptr;
}

}  // namespace hekla::testing
