// SPDX-License-Identifier: Apache-2.0
#include "tests/random/subnormals.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/clone.h"

namespace hekla::testing {
namespace {

using ir::OpCode;

// The value with zeros for what lies below `limit`.
ir::Value* zeros_in_real(ir::GraphBuilder& b, ir::Value* x, double limit, ZeroSign sign) {
  const DType dtype = x->type().dtype();
  const Dims& dims = x->type().dims();
  ir::Value* zero = b.constant(dtype, dims, 0);
  ir::Value* is_small = b.compare("LT", b.make(OpCode::kAbs, {x}), b.constant(dtype, dims, limit));
  return b.select(is_small, sign == ZeroSign::kPositive ? zero : b.multiply(x, zero), x);
}

void zeros_in_results(ir::Block& block, KeptSubnormals kept, ZeroSign sign, Status& status) {
  std::vector<ir::Operation*> operations;
  for (const auto& op : block.operations()) operations.push_back(op.get());
  for (size_t k = 0; k < operations.size(); ++k) {
    const ir::Operation& op = *operations[k];
    for (size_t i = 0; i < op.region_count(); ++i) {
      for (const auto& inner : op.region(i).blocks()) zeros_in_results(*inner, kept, sign, status);
    }
    if (k + 1 == operations.size()) break;  // the terminator
    for (size_t i = 0; i < op.result_count(); ++i) {
      ir::Value* value = op.result(i);
      if (!value->type().is_static_tensor()) continue;
      const DType dtype = value->type().dtype();
      const double limit = zero_below(complex_part(dtype), kept);
      if (limit == 0) continue;
      const std::vector<ir::Operation*> users = value->users();
      ir::GraphBuilder b(block, operations[k + 1], op.location());
      ir::Value* changed = nullptr;
      if (is_complex(dtype)) {
        changed = b.make(OpCode::kComplex,
                         {zeros_in_real(b, b.make(OpCode::kReal, {value}), limit, sign),
                          zeros_in_real(b, b.make(OpCode::kImag, {value}), limit, sign)});
      } else {
        changed = zeros_in_real(b, value, limit, sign);
      }
      if (status.ok()) status = b.status();
      for (ir::Operation* user : users) {
        for (size_t o = 0; o < user->operand_count(); ++o) {
          if (user->operand(o) == value) user->set_operand(o, changed);
        }
      }
    }
  }
}

}  // namespace

KeptSubnormals parse_kept_subnormals(std::string_view attribute) {
  KeptSubnormals kept;
  kept.f32 = attribute.find("f32") == std::string_view::npos;
  kept.f64 = attribute.find("f64") == std::string_view::npos;
  return kept;
}

double zero_below(DType dtype, KeptSubnormals kept) {
  switch (dtype) {
    case DType::kF32:
    case DType::kTF32:
    case DType::kBF16:
      return kept.f32 ? 0 : std::ldexp(1, -126);
    case DType::kF64:
      return kept.f64 ? 0 : std::ldexp(1, -1022);
    default:
      return 0;
  }
}

HostArray with_zeros(HostArray array, KeptSubnormals kept, ZeroSign sign) {
  const DType part = complex_part(array.dtype());
  const double limit = zero_below(part, kept);
  if (limit == 0) return array;
  const auto width = static_cast<size_t>(dtype_bytes(part));
  const int64_t count = array.size() * (is_complex(array.dtype()) ? 2 : 1);
  for (int64_t i = 0; i < count; ++i) {
    std::byte* element = array.mutable_data() + static_cast<size_t>(i) * width;
    uint64_t bits = 0;
    std::memcpy(&bits, element, width);
    const double value = float_from_bits(part, bits);
    if (value == 0 || !(std::fabs(value) < limit)) continue;
    const bool is_negative = std::signbit(value) && sign == ZeroSign::kOfTheNumber;
    bits = float_to_bits(part, is_negative ? -0.0 : 0.0);
    std::memcpy(element, &bits, width);
  }
  return array;
}

Result<std::shared_ptr<ir::Module>> with_zeros(const ir::Module& module, KeptSubnormals kept,
                                               ZeroSign sign) {
  std::shared_ptr<ir::Module> changed = ir::clone_module(module);
  Status status = ok_status();
  const ir::Function* entry = changed->entry();
  for (const auto& function : changed->functions) {
    for (const auto& block : function->body().blocks()) {
      if (function.get() != entry) {
        zeros_in_results(*block, kept, sign, status);
        continue;
      }
      for (const auto& op : block->operations()) {
        for (size_t i = 0; i < op->region_count(); ++i) {
          for (const auto& inner : op->region(i).blocks()) {
            zeros_in_results(*inner, kept, sign, status);
          }
        }
      }
    }
  }
  HEKLA_RETURN_IF_ERROR(status);
  return changed;
}

bool only_moves(ir::OpCode code) {
  switch (code) {
    case OpCode::kBitcastConvert:
    case OpCode::kBroadcast:
    case OpCode::kBroadcastInDim:
    case OpCode::kComplex:
    case OpCode::kConcatenate:
    case OpCode::kConstant:
    case OpCode::kDynamicSlice:
    case OpCode::kDynamicUpdateSlice:
    case OpCode::kGather:
    case OpCode::kImag:
    case OpCode::kOptimizationBarrier:
    case OpCode::kPad:
    case OpCode::kReal:
    case OpCode::kReshape:
    case OpCode::kReverse:
    case OpCode::kSelect:
    case OpCode::kSlice:
    case OpCode::kTranspose:
      return true;
    default:
      return false;
  }
}

}  // namespace hekla::testing
