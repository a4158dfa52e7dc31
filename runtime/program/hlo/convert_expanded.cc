// SPDX-License-Identifier: Apache-2.0
// Opcodes that StableHLO writes with several operations.
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/program/hlo/attributes.h"
#include "runtime/program/hlo/site.h"

namespace hekla::hlo {
namespace {

using ir::OpCode;
using ir::Value;

// atan2(x, 1); of a complex number -i atanh(i z).
Result<Leaves> convert_atan(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(1));
  HEKLA_ASSIGN_OR_RETURN(Value * x, site.tensor(0));
  HEKLA_ASSIGN_OR_RETURN(const ir::Type type, site.array_type());
  if (!(type == x->type()) || !type.is_static_tensor()) {
    return site.error("of {} gives {}", x->type().to_string(), type.to_string());
  }
  ir::GraphBuilder g = site.builder();
  if (is_float(type.dtype())) {
    return site.append(OpCode::kAtan2, {x, g.constant(type.dtype(), type.dims(), 1)});
  }
  if (!is_complex(type.dtype())) return site.error("of {}", type.to_string());
  const auto part = [&](OpCode code, Value* z) { return g.make(code, {z}); };
  Value* turned = g.make(OpCode::kComplex, {g.make(OpCode::kNegate, {part(OpCode::kImag, x)}),
                                            part(OpCode::kReal, x)});
  Value* w = site.append(OpCode::kCustomCall, {turned},
                         {{"call_target_name", ir::StringValue{"mhlo.atanh"}}})[0];
  Value* result = g.make(OpCode::kComplex, {part(OpCode::kImag, w),
                                            g.make(OpCode::kNegate, {part(OpCode::kReal, w)})});
  if (!g.status().ok()) return site.error("{}", g.status().message());
  return Leaves{result};
}

Value* shift_right(ir::GraphBuilder& g, Value* x, int64_t bits) {
  const ir::Type& type = x->type();
  const OpCode code =
      is_signed_integer(type.dtype()) ? OpCode::kShiftRightArithmetic : OpCode::kShiftRightLogical;
  return g.binary(code, x, g.integer_constant(type.dtype(), type.dims(), bits));
}

// The upper half of a product of 64-bit numbers, from those of their halves.
Value* high_of_unsigned(ir::GraphBuilder& g, Value* a, Value* b) {
  Value* mask = g.integer_constant(DType::kUI64, a->type().dims(), 0xffffffff);
  const auto low = [&](Value* x) { return g.bit_and(x, mask); };
  const auto high = [&](Value* x) { return shift_right(g, x, 32); };
  Value* first = g.multiply(low(a), low(b));
  Value* second = g.add(g.multiply(high(a), low(b)), high(first));
  Value* third = g.add(g.multiply(low(a), high(b)), low(second));
  return g.add(g.add(g.multiply(high(a), high(b)), high(second)), high(third));
}

Result<Leaves> convert_mulhi(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(2));
  HEKLA_ASSIGN_OR_RETURN(Value * a, site.tensor(0));
  HEKLA_ASSIGN_OR_RETURN(Value * b, site.tensor(1));
  const ir::Type& type = a->type();
  const DType dtype = type.dtype();
  if (!type.is_static_tensor() || !is_integer(dtype) || !(b->type() == type)) {
    return site.error("of {} and {}", type.to_string(), b->type().to_string());
  }
  ir::GraphBuilder g = site.builder();
  Value* result = nullptr;
  if (dtype_bits(dtype) < 64) {
    const DType wide = is_signed_integer(dtype) ? DType::kI64 : DType::kUI64;
    Value* product = g.multiply(g.convert(a, wide), g.convert(b, wide));
    result = g.convert(shift_right(g, product, dtype_bits(dtype)), dtype);
  } else if (dtype == DType::kUI64) {
    result = high_of_unsigned(g, a, b);
  } else {
    // A negative number is 2^64 more without its sign, so that the product has the other one once
    // too often in its upper half.
    const auto bits = [&](Value* x, DType to) {
      return g.make(OpCode::kBitcastConvert, {x}, {}, ir::Type::tensor(to, type.dims()));
    };
    Value* zero = g.integer_constant(dtype, type.dims(), 0);
    const auto where_negative = [&](Value* x, Value* other) {
      return g.select(g.compare("LT", x, zero), other, zero);
    };
    Value* high = bits(high_of_unsigned(g, bits(a, DType::kUI64), bits(b, DType::kUI64)), dtype);
    result = g.subtract(g.subtract(high, where_negative(a, b)), where_negative(b, a));
  }
  if (!g.status().ok()) return site.error("{}", g.status().message());
  return Leaves{result};
}

// Away from zero where the random number, as a part of one, is below the fraction; else towards it.
Result<Leaves> convert_stochastic(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(2));
  HEKLA_ASSIGN_OR_RETURN(Value * operand, site.tensor(0));
  HEKLA_ASSIGN_OR_RETURN(Value * random, site.tensor(1));
  HEKLA_ASSIGN_OR_RETURN(const ir::Type to, site.array_type());
  const ir::Type& from = operand->type();
  const Dims dims = from.dims();
  if (!from.is_static_tensor() || !is_float(from.dtype()) || random->type().dims() != dims ||
      !is_unsigned_integer(random->type().dtype()) || to.dims() != dims) {
    return site.error("of {} by {} gives {}", from.to_string(), random->type().to_string(),
                      to.to_string());
  }
  if (!is_signed_integer(to.dtype())) return site.refuse("to {}", to.to_string());
  ir::GraphBuilder g = site.builder();
  const DType real = from.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  Value* x = g.convert(operand, real);
  const auto constant = [&](double value) { return g.constant(real, dims, value); };
  Value* size = g.make(OpCode::kAbs, {x});
  Value* whole = g.make(OpCode::kFloor, {size});
  const double one = std::ldexp(1, dtype_bits(random->type().dtype()));
  Value* fraction =
      g.convert(g.multiply(g.subtract(size, whole), constant(one)), random->type().dtype());
  Value* integer = g.convert(whole, to.dtype());
  Value* next = g.add(integer, g.integer_constant(to.dtype(), dims, 1));
  integer = g.select(g.compare("LT", random, fraction), next, integer);
  integer = g.select(g.compare("LT", x, constant(0)), g.make(OpCode::kNegate, {integer}), integer);
  // What does not fit becomes the number at that end.
  const int bits = dtype_bits(to.dtype());
  const int64_t least =
      bits == 64 ? std::numeric_limits<int64_t>::min() : -(int64_t{1} << (bits - 1));
  const double end = std::ldexp(1, bits - 1);
  integer = g.select(g.compare("LE", x, constant(-end)),
                     g.integer_constant(to.dtype(), dims, least), integer);
  integer = g.select(g.compare("GE", x, constant(end - 1)),
                     g.integer_constant(to.dtype(), dims, -(least + 1)), integer);
  if (!g.status().ok()) return site.error("{}", g.status().message());
  return Leaves{integer};
}

// Which group a position along the ragged dimension is in: [groups, extent] of truths.
Value* group_mask(ir::GraphBuilder& g, Value* sizes, int64_t extent) {
  const DType dtype = sizes->type().dtype();
  const int64_t groups = sizes->type().dims()[0];
  const Dims square = {groups, groups};
  Value* zeros = g.integer_constant(dtype, square, 0);
  Value* is_counted =
      g.compare("LE", g.iota(DType::kI64, square, 1), g.iota(DType::kI64, square, 0));
  Value* counted = g.select(is_counted, g.broadcast(sizes, square, {1}), zeros);
  Value* ends = g.reduce({counted}, {g.integer_constant(dtype, {}, 0)}, {1},
                         [](ir::GraphBuilder& inner, const ir::GraphBuilder::Values& x) {
                           return ir::GraphBuilder::Values{inner.add(x[0], x[1])};
                         })[0];
  const Dims dims = {groups, extent};
  Value* position = g.iota(DType::kI64, dims, 1);
  const auto spread = [&](Value* x) { return g.convert(g.broadcast(x, dims, {0}), DType::kI64); };
  return g.bit_and(g.compare("GE", position, spread(g.subtract(ends, sizes))),
                   g.compare("LT", position, spread(ends)));
}

// `x` for each group, zero outside of it: groups are the first dimension.
Value* by_groups(ir::GraphBuilder& g, Value* x, Value* mask, int64_t ragged) {
  Dims dims = {mask->type().dims()[0]};
  std::vector<int64_t> places;
  for (int64_t d = 0; d < x->type().rank(); ++d) {
    dims.push_back(x->type().dims()[static_cast<size_t>(d)]);
    places.push_back(d + 1);
  }
  Value* zero = g.constant(x->type().dtype(), dims, 0);
  return g.select(g.broadcast(mask, dims, {0, ragged + 1}), g.broadcast(x, dims, places), zero);
}

Result<Leaves> convert_ragged_dot(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(3));
  HEKLA_ASSIGN_OR_RETURN(Value * lhs, site.tensor(0));
  HEKLA_ASSIGN_OR_RETURN(Value * rhs, site.tensor(1));
  HEKLA_ASSIGN_OR_RETURN(Value * sizes, site.tensor(2));
  HEKLA_ASSIGN_OR_RETURN(const ir::Type to, site.array_type());
  HEKLA_ASSIGN_OR_RETURN(const Message from,
                         site.fields().message(kRaggedDotNumbers, "ragged dot numbers"));
  HEKLA_ASSIGN_OR_RETURN(const Message inner, from.message(1, "dot numbers"));
  HEKLA_ASSIGN_OR_RETURN(ir::DotDimensionNumbers numbers, dot_numbers(inner));
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> ragged, from.integers(2));
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> group, from.integers(3));
  HEKLA_ASSIGN_OR_RETURN(Precision precision, read_precision(site.fields()));
  for (const Value* value : {lhs, rhs, sizes}) {
    if (!value->type().is_static_tensor()) return site.refuse("of {}", value->type().to_string());
  }
  if (ragged.size() != 1 || ragged[0] < 0 || ragged[0] >= lhs->type().rank()) {
    return site.error("has {} ragged dimensions of {}", ragged.size(), lhs->type().to_string());
  }
  if (sizes->type().rank() != 1 || !is_integer(sizes->type().dtype())) {
    return site.refuse("with groups of {}", sizes->type().to_string());
  }
  const int64_t extent = lhs->type().dims()[static_cast<size_t>(ragged[0])];
  const int64_t groups = sizes->type().dims()[0];
  ir::GraphBuilder g = site.builder();
  const auto contract = [&](Value* a, Value* b, const ir::DotDimensionNumbers& n,
                            ir::Type type) -> Value* {
    std::vector<ir::NamedAttribute> attributes = {{"dot_dimension_numbers", n}};
    attributes.emplace_back("precision_config", precision.config);
    attributes.emplace_back("algorithm", precision.algorithm);
    return site.append_as(OpCode::kDotGeneral, {std::move(type)}, {a, b}, std::move(attributes))[0];
  };
  const auto position_in = [](const std::vector<int64_t>& list, int64_t dim) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i] == dim) return static_cast<std::ptrdiff_t>(i);
    }
    return std::ptrdiff_t{-1};
  };
  if (position_in(numbers.lhs_batching_dimensions, ragged[0]) >= 0) {
    return Leaves{contract(lhs, rhs, numbers, to)};
  }
  const auto up = [](std::vector<int64_t> dims) {
    for (int64_t& dim : dims) ++dim;
    return dims;
  };
  Value* mask = group_mask(g, sizes, extent);
  const std::ptrdiff_t contracted = position_in(numbers.lhs_contracting_dimensions, ragged[0]);
  if (contracted >= 0) {
    if (static_cast<size_t>(contracted) >= numbers.rhs_contracting_dimensions.size()) {
      return site.error("contracts dimensions that do not pair");
    }
    const int64_t other = numbers.rhs_contracting_dimensions[static_cast<size_t>(contracted)];
    if (other < 0 || other >= rhs->type().rank() ||
        rhs->type().dims()[static_cast<size_t>(other)] != extent) {
      return site.error("contracts {} elements with {}", extent, rhs->type().to_string());
    }
    ir::DotDimensionNumbers n = {
        up(numbers.lhs_batching_dimensions), up(numbers.rhs_batching_dimensions),
        up(numbers.lhs_contracting_dimensions), up(numbers.rhs_contracting_dimensions)};
    n.lhs_batching_dimensions.insert(n.lhs_batching_dimensions.begin(), 0);
    n.rhs_batching_dimensions.insert(n.rhs_batching_dimensions.begin(), 0);
    Value* result =
        contract(by_groups(g, lhs, mask, ragged[0]), by_groups(g, rhs, mask, other), n, to);
    if (!g.status().ok()) return site.error("{}", g.status().message());
    return Leaves{result};
  }
  // Rows of a group: what each group's matrix makes of all rows, then the row's own group of that.
  if (group.size() != 1 || group[0] < 0 || group[0] >= rhs->type().rank() ||
      rhs->type().dims()[static_cast<size_t>(group[0])] != groups) {
    return site.error("has {} groups for {}", groups, rhs->type().to_string());
  }
  // The result's dimensions: batches, those of lhs that stay, those of rhs that stay.
  const auto stays = [&](int64_t d, const std::vector<int64_t>& batch,
                         const std::vector<int64_t>& sum) {
    return position_in(batch, d) < 0 && position_in(sum, d) < 0;
  };
  Dims dims;
  for (int64_t d : numbers.lhs_batching_dimensions) {
    if (d < 0 || d >= lhs->type().rank()) return site.error("has no batching dimension {}", d);
    dims.push_back(lhs->type().dims()[static_cast<size_t>(d)]);
  }
  int64_t row = -1;
  for (int64_t d = 0; d < lhs->type().rank(); ++d) {
    if (!stays(d, numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions)) continue;
    if (d == ragged[0]) row = static_cast<int64_t>(dims.size());
    dims.push_back(lhs->type().dims()[static_cast<size_t>(d)]);
  }
  int64_t column = -1;
  for (int64_t d = 0; d < rhs->type().rank(); ++d) {
    if (!stays(d, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions)) continue;
    if (d == group[0]) column = static_cast<int64_t>(dims.size());
    dims.push_back(rhs->type().dims()[static_cast<size_t>(d)]);
  }
  if (row < 0 || column < 0) return site.error("contracts or batches its groups");
  if (!checked_bytes(to.dtype(), dims).ok()) return site.error("has too many groups");
  Value* all = contract(lhs, rhs, numbers, ir::Type::tensor(to.dtype(), dims));
  Value* zero = g.constant(to.dtype(), dims, 0);
  Value* own = g.select(g.broadcast(mask, dims, {column, row}), all, zero);
  Value* result = g.reduce({own}, {g.constant(to.dtype(), {}, 0)}, {column},
                           [](ir::GraphBuilder& body, const ir::GraphBuilder::Values& x) {
                             return ir::GraphBuilder::Values{body.add(x[0], x[1])};
                           })[0];
  if (!g.status().ok()) return site.error("{}", g.status().message());
  return Leaves{result};
}

constexpr Handler kExpanded[] = {
    {"atan", convert_atan},
    {"mulhi", convert_mulhi},
    {"ragged-dot", convert_ragged_dot},
    {"stochastic-convert", convert_stochastic},
};

}  // namespace

std::span<const Handler> expanded_handlers() { return kExpanded; }

}  // namespace hekla::hlo
