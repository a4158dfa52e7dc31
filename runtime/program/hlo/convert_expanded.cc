// SPDX-License-Identifier: Apache-2.0
// Opcodes that StableHLO writes with several operations.
#include <utility>

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

constexpr Handler kExpanded[] = {
    {"atan", convert_atan},
};

}  // namespace

std::span<const Handler> expanded_handlers() { return kExpanded; }

}  // namespace hekla::hlo
