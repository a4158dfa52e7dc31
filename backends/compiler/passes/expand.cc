// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <complex>
#include <optional>

#include "backends/compiler/passes/erf.h"
#include "backends/compiler/passes/passes.h"
#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::OpCode;
using ir::Value;
using Values = ir::GraphBuilder::Values;

// Columns that one loop takes, when the matrix is larger: what is left is updated by one
// contraction after each such block. At most kMaxBlocks of them, each with kernels of its own.
constexpr int64_t kBlock = 64;
constexpr int64_t kMaxBlocks = 8;

// From which sizes on a host step by LAPACK takes less time than kernels: of matrices with few
// rows, which go into lanes of vectors, elements of all; for other Cholesky factors rows of a
// matrix and elements of all. For solves the same with right-hand sides that fill vectors; with
// fewer of them rows alone: kernels of f32 are as fast or faster with one right-hand side, and with
// few of them up to kLapackManyFrom rows.
constexpr int64_t kLapackLaneRows = 16;
constexpr int64_t kLapackLaneElements = 1024;
constexpr int64_t kLapackCholeskyFrom = 12;
constexpr int64_t kLapackCholeskyElements = 1536;
constexpr int64_t kLapackFullVectors = 16;
constexpr int64_t kLapackWideSolveFrom = 32;
constexpr int64_t kLapackWideSolveElements = 8192;
constexpr int64_t kLapackSolveFrom = 128;
constexpr int64_t kLapackManyFrom = 256;

int64_t block_size(int64_t n) {
  return std::min(n, std::max(kBlock, (n + kMaxBlocks - 1) / kMaxBlocks));
}

// Narrow floats are computed in f32.
DType compute_dtype(DType dtype) {
  return is_float(dtype) && dtype != DType::kF64 ? DType::kF32 : dtype;
}

// [..., r, c] as [batch, r, c].
Value* as_matrices(ir::GraphBuilder& g, Value* x) {
  const Dims& dims = x->type().dims();
  const size_t rank = dims.size();
  const Dims batch(dims.begin(), dims.end() - 2);
  return g.reshape(x, {element_count(batch), dims[rank - 2], dims[rank - 1]});
}

// a [b, m, k] times c [b, n, k] transposed.
Value* times_transposed(ir::GraphBuilder& g, Value* a, Value* c) {
  return g.dot(a, c, {{0}, {0}, {2}, {2}});
}

// Whether row and column, as i32 [batch, m, n], stand in this relation.
Value* where_rows(ir::GraphBuilder& g, const char* relation, const Dims& dims) {
  return g.compare(relation, g.iota(DType::kI32, dims, 1), g.iota(DType::kI32, dims, 2));
}

// The first w columns of the lower factor of `s` [batch, m, m], column by column: each is the
// column of s less what the columns before it make of it, over the root of its diagonal element.
Value* cholesky_panel(ir::GraphBuilder& g, Value* s, int64_t w) {
  const DType dtype = s->type().dtype();
  const int64_t batch = s->type().dims()[0];
  const int64_t m = s->type().dims()[1];
  const DType part = complex_part(dtype);
  Value* source = g.slice(s, {0, 0, 0}, {batch, m, w});
  auto body = [&](ir::GraphBuilder& b, Value* j, const Values& carried) {
    Value* zero = b.constant(DType::kI32, {}, 0);
    Value* panel = carried[0];
    Value* column = b.dynamic_slice(source, {zero, zero, j}, {batch, m, 1});
    Value* row = b.dynamic_slice(panel, {zero, j, zero}, {batch, 1, w});
    Value* rest = b.subtract(column, times_transposed(b, panel, b.conjugate(row)));
    Value* square = b.real(b.dynamic_slice(rest, {zero, j, zero}, {batch, 1, 1}));
    Value* is_positive = b.compare("GT", square, b.constant(part, square->type().dims(), 0));
    Value* pivot = b.select(is_positive, b.make(OpCode::kSqrt, {square}),
                            b.constant(part, square->type().dims(), NAN));
    const Dims dims{batch, m, 1};
    Value* divisor = b.broadcast(b.reshape(pivot, {batch}), dims, {0});
    Value* quotient = is_complex(dtype) ? b.make(OpCode::kComplex,
                                                 {b.divide(b.make(OpCode::kReal, {rest}), divisor),
                                                  b.divide(b.make(OpCode::kImag, {rest}), divisor)})
                                        : b.divide(rest, divisor);
    Value* at = b.iota(DType::kI32, dims, 1);
    Value* here = b.broadcast(j, dims, {});
    Value* below = b.select(b.compare("GT", at, here), quotient, b.constant(dtype, dims, 0));
    Value* next = b.select(b.compare("EQ", at, here), b.as(dtype, divisor), below);
    return Values{b.dynamic_update_slice(panel, next, {zero, zero, j})};
  };
  return g.loop(w, {g.constant(dtype, {batch, m, w}, 0)}, body)[0];
}

Value* expand_cholesky(ir::GraphBuilder& g, const ir::Operation& op) {
  const ir::Type& type = op.result()->type();
  const DType dtype = compute_dtype(type.dtype());
  const bool is_lower = ir::bool_value(op, "lower");
  Value* s = g.convert(as_matrices(g, op.operand(0)), dtype);
  if (!is_lower) s = g.conjugate(g.transpose(s, {0, 2, 1}));
  const int64_t batch = s->type().dims()[0];
  const int64_t n = s->type().dims()[1];
  const int64_t block = block_size(n);
  Values panels;
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t w = std::min(block, n - begin);
    const int64_t m = n - begin;
    Value* panel = cholesky_panel(g, s, w);
    panels.push_back(begin == 0 ? panel : g.pad(panel, {0, begin, 0}, {0, 0, 0}));
    if (w == m) break;
    Value* low = g.slice(panel, {0, w, 0}, {batch, m, w});
    s = g.subtract(g.slice(s, {0, w, w}, {batch, m, m}),
                   times_transposed(g, low, g.conjugate(low)));
  }
  Value* l = g.concatenate(panels, 2);
  // A pivot that is no number makes all later ones so: then nothing is a factor.
  const Dims& dims = l->type().dims();
  Value* last = g.real(g.slice(l, {0, n - 1, n - 1}, {batch, n, n}));
  Value* is_factor = g.broadcast(g.reshape(g.compare("EQ", last, last), {batch}), dims, {0});
  l = g.select(is_factor, l, g.as(dtype, g.constant(complex_part(dtype), dims, NAN)));
  l = g.select(where_rows(g, "GE", dims), l, g.constant(dtype, dims, 0));
  if (!is_lower) l = g.conjugate(g.transpose(l, {0, 2, 1}));
  return g.reshape(g.convert(l, type.dtype()), type.dims());
}

// The real number that all elements of a complex value are; nullopt of others.
std::optional<double> real_splat(const Value& value) {
  const Value* from = &value;
  const ir::Operation* op = from->defining_op();
  if (op != nullptr && op->code() == OpCode::kBroadcastInDim) from = op->operand(0);
  const ir::DenseValue* dense = ir::constant_value(*from);
  if (dense == nullptr || dense->values.size() != 1) return std::nullopt;
  std::complex<double> number;
  if (dense->values.dtype() == DType::kC64) {
    number = *dense->values.as<std::complex<float>>();
  } else if (dense->values.dtype() == DType::kC128) {
    number = *dense->values.as<std::complex<double>>();
  } else {
    return std::nullopt;
  }
  if (number.imag() != 0 || !std::isfinite(number.real()) || number.real() == 0)
    return std::nullopt;
  return number.real();
}

// What JAX takes the factor of is (a + a^H) / 2, of complex numbers by a division whose care for
// infinities and signs of zeros takes longer than the factor, which has no use for it: by parts.
void divide_by_parts(ir::GraphBuilder& g, ir::Operation& cholesky) {
  const ir::Operation* quotient = cholesky.operand(0)->defining_op();
  if (quotient == nullptr || quotient->code() != OpCode::kDivide) return;
  const std::optional<double> divisor = real_splat(*quotient->operand(1));
  if (!divisor) return;
  Value* x = quotient->operand(0);
  Value* by = g.constant(complex_part(x->type().dtype()), x->type().dims(), *divisor);
  cholesky.set_operand(0, g.make(OpCode::kComplex, {g.divide(g.make(OpCode::kReal, {x}), by),
                                                    g.divide(g.make(OpCode::kImag, {x}), by)}));
}

// x with a x = r for a lower triangle a [batch, w, w] and r [batch, w, c], row by row.
Value* solve_block(ir::GraphBuilder& g, Value* a, Value* r, bool is_unit) {
  const DType dtype = a->type().dtype();
  const Dims& dims = r->type().dims();
  const int64_t batch = dims[0], w = dims[1], c = dims[2];
  // Nothing but the triangle is read: what else is there may be no number.
  Value* below =
      g.select(where_rows(g, "GT", a->type().dims()), a, g.constant(dtype, a->type().dims(), 0));
  auto body = [&](ir::GraphBuilder& b, Value* i, const Values& carried) {
    Value* zero = b.constant(DType::kI32, {}, 0);
    Value* row = b.dynamic_slice(below, {zero, i, zero}, {batch, 1, w});
    Value* known = b.dot(row, carried[0], {{0}, {0}, {2}, {1}});
    Value* x = b.subtract(b.dynamic_slice(r, {zero, i, zero}, {batch, 1, c}), known);
    if (!is_unit) {
      Value* diagonal = b.dynamic_slice(a, {zero, i, i}, {batch, 1, 1});
      x = b.divide(x, b.broadcast(b.reshape(diagonal, {batch}), {batch, 1, c}, {0}));
    }
    return Values{b.dynamic_update_slice(carried[0], x, {zero, i, zero})};
  };
  return g.loop(w, {g.constant(dtype, dims, 0)}, body)[0];
}

Value* expand_triangular_solve(ir::GraphBuilder& g, const ir::Operation& op) {
  const ir::Type& type = op.result()->type();
  const DType dtype = compute_dtype(type.dtype());
  const bool is_left = ir::bool_value(op, "left_side");
  const std::string transpose = ir::text_value(op, "transpose_a");
  Value* a = g.convert(as_matrices(g, op.operand(0)), dtype);
  Value* r = g.convert(as_matrices(g, op.operand(1)), dtype);
  // x op(a) = b is op(a)^T x^T = b^T; an upper triangle read backwards is a lower one.
  if (!is_left) r = g.transpose(r, {0, 2, 1});
  const bool is_transposed = (transpose == "TRANSPOSE" || transpose == "ADJOINT") == is_left;
  const bool is_lower = ir::bool_value(op, "lower") != is_transposed;
  if (is_transposed) a = g.transpose(a, {0, 2, 1});
  if (transpose == "ADJOINT") a = g.conjugate(a);
  if (!is_lower) {
    a = g.reverse(a, {1, 2});
    r = g.reverse(r, {1});
  }
  const int64_t batch = r->type().dims()[0];
  const int64_t n = r->type().dims()[1];
  const int64_t columns = r->type().dims()[2];
  const int64_t block = block_size(n);
  const bool is_unit = ir::bool_value(op, "unit_diagonal");
  Values blocks;
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t end = std::min(begin + block, n);
    Value* corner = g.slice(a, {0, begin, begin}, {batch, end, end});
    Value* x =
        solve_block(g, corner, g.slice(r, {0, 0, 0}, {batch, end - begin, columns}), is_unit);
    blocks.push_back(x);
    if (end == n) break;
    Value* under = g.slice(a, {0, end, begin}, {batch, n, end});
    r = g.subtract(g.slice(r, {0, end - begin, 0}, {batch, n - begin, columns}),
                   g.dot(under, x, {{0}, {0}, {2}, {1}}));
  }
  Value* x = g.concatenate(blocks, 1);
  if (!is_lower) x = g.reverse(x, {1});
  if (!is_left) x = g.transpose(x, {0, 2, 1});
  return g.reshape(g.convert(x, type.dtype()), type.dims());
}

// The custom call ApproxTopK by an exact sort and a slice; empty when it is another call.
Values expand_approx_top_k(ir::GraphBuilder& g, const ir::Operation& op, const ir::Module& module) {
  const size_t count = op.result_count();
  if (ir::text_value(op, "call_target_name") != "ApproxTopK" || op.operand_count() != 2 * count) {
    return {};
  }
  const auto* called = op.attribute("called_computations").get<ir::ArrayValue>();
  const auto* attributes = op.attribute("mhlo.backend_config").get<ir::DictionaryValue>();
  if (attributes == nullptr) {
    attributes = op.attribute("backend_config").get<ir::DictionaryValue>();
  }
  const ir::Attribute* dim = attributes == nullptr ? nullptr : attributes->find("reduction_dim");
  const auto* number = dim == nullptr ? nullptr : dim->get<ir::IntegerValue>();
  const auto* name = called == nullptr || called->elements.empty()
                         ? nullptr
                         : called->elements[0].get<ir::SymbolValue>();
  const ir::Function* comparator = name == nullptr ? nullptr : module.find(name->root);
  if (number == nullptr || comparator == nullptr || comparator->is_declaration()) return {};
  const int64_t rank = op.operand(0)->type().rank();
  Values operands(op.operands().begin(),
                  op.operands().begin() + static_cast<std::ptrdiff_t>(count));
  for (size_t i = 0; i < count; ++i) {
    const Dims& from = operands[i]->type().dims();
    const Dims& to = op.result(i)->type().dims();
    if (from != operands[0]->type().dims() || to.size() != from.size()) return {};
    for (size_t d = 0; d < from.size(); ++d) {
      if (to[d] > from[d]) return {};
    }
  }
  const Values sorted = g.sort(operands, number->value < 0 ? number->value + rank : number->value,
                               comparator->body());
  Values results;
  for (size_t i = 0; i < count; ++i) {
    const Dims& dims = op.result(i)->type().dims();
    results.push_back(g.slice(sorted[i], std::vector<int64_t>(dims.size(), 0),
                              std::vector<int64_t>(dims.begin(), dims.end())));
  }
  return results;
}

bool is_plain(const ir::Operation& op) {
  const auto plain = [](const Value* value) {
    return value->type().is_static_tensor() && value->type().quantization() == nullptr &&
           element_count(value->type().dims()) > 0;
  };
  for (const Value* value : op.operands()) {
    if (!plain(value)) return false;
  }
  for (size_t i = 0; i < op.result_count(); ++i) {
    if (!plain(op.result(i))) return false;
  }
  return true;
}

// The last dimension of the left side with the first of the right one.
Value* expand_dot(ir::GraphBuilder& g, const ir::Operation& op) {
  ir::DotDimensionNumbers numbers;
  numbers.lhs_contracting_dimensions = {op.operand(0)->type().rank() - 1};
  numbers.rhs_contracting_dimensions = {0};
  ir::AttributeMap attributes({{"dot_dimension_numbers", numbers}});
  for (const char* name : {"precision_config", "algorithm"}) {
    attributes.set(name, op.attribute(name));
  }
  return g.make(OpCode::kDotGeneral, op.operands(), attributes, op.result()->type());
}

Status expand_block(ir::Block& block, const ir::Module& module, bool lapack) {
  std::vector<ir::Operation*> all;
  for (const auto& op : block.operations()) all.push_back(op.get());
  for (ir::Operation* op : all) {
    for (size_t i = 0; i < op->region_count(); ++i) {
      for (const auto& inner : op->region(i).blocks()) {
        HEKLA_RETURN_IF_ERROR(expand_block(*inner, module, lapack));
      }
    }
    if (!is_plain(*op)) continue;
    ir::GraphBuilder g(block, op, op->location());
    if (op->code() == OpCode::kCholesky) divide_by_parts(g, *op);
    if (lapack && is_for_lapack(*op)) continue;
    Values results;
    switch (op->code()) {
      case OpCode::kCholesky:
        results = {expand_cholesky(g, *op)};
        break;
      case OpCode::kCustomCall:
        results =
            is_erf(*op) ? Values{make_erf(g, op->operand(0))} : expand_approx_top_k(g, *op, module);
        break;
      case OpCode::kDot:
        results = {expand_dot(g, *op)};
        break;
      case OpCode::kTriangularSolve:
        results = {expand_triangular_solve(g, *op)};
        break;
      default:
        break;
    }
    HEKLA_RETURN_IF_ERROR(g.status());
    if (results.empty()) continue;
    for (size_t i = 0; i < results.size(); ++i) op->result(i)->replace_all_uses_with(results[i]);
    block.erase(op);
  }
  return ok_status();
}

}  // namespace

bool is_for_lapack(const ir::Operation& op) {
  if (op.code() != OpCode::kCholesky && op.code() != OpCode::kTriangularSolve) return false;
  if (!is_plain(op)) return false;
  const ir::Type& a = op.operand(0)->type();
  if (!is_complex(a.dtype()) && compute_dtype(a.dtype()) != a.dtype()) return false;
  const int64_t rows = a.dims().back();
  const bool fits_lanes =
      rows > 1 && rows <= kLapackLaneRows && element_count(a.dims()) >= kLapackLaneElements;
  if (op.code() == OpCode::kCholesky) {
    if (fits_lanes) return true;
    return rows >= kLapackCholeskyFrom && element_count(a.dims()) >= kLapackCholeskyElements;
  }
  const Dims& b = op.operand(1)->type().dims();
  const int64_t columns = ir::bool_value(op, "left_side") ? b.back() : b[b.size() - 2];
  if (fits_lanes && columns <= kLapackLaneRows) return true;
  if (columns >= kLapackFullVectors && rows >= kLapackWideSolveFrom &&
      element_count(a.dims()) >= kLapackWideSolveElements) {
    return true;
  }
  if (rows < kLapackSolveFrom) return false;
  if (a.dtype() != DType::kF32) return true;
  return columns > 1 && std::max(rows, columns) >= kLapackManyFrom;
}

Status expand(ir::Module& module, bool lapack) {
  if (module.entry() == nullptr || module.entry()->is_declaration()) return ok_status();
  return expand_block(module.entry()->body().front(), module, lapack);
}

}  // namespace hekla::passes
