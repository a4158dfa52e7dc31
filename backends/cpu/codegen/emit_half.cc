// SPDX-License-Identifier: Apache-2.0
// Conversions of f16. Without an instruction LLVM would call functions of a library.
#include "backends/cpu/codegen/emit_body.h"

namespace hekla::cpu {
namespace {

constexpr uint32_t kSign = 0x80000000, kInfinity = 0x7f800000, kQuiet = 0x400000;
constexpr uint32_t kBias = 112u << 23;  // between the exponents of f16 and f32
constexpr int kShift = 13;              // between the mantissas

}  // namespace

llvm::Value* BodyEmitter::emit_half_to_float(llvm::Value* bits, llvm::Type* to) {
  llvm::Type* type = bits->getType();
  if (code_.target.has_f16) {
    llvm::Value* narrow = b_.CreateTrunc(bits, type->getWithNewBitWidth(16));
    return b_.CreateFPExt(b_.CreateBitCast(narrow, to->getWithNewType(b_.getHalfTy())), to);
  }
  const auto number = [&](uint64_t value) { return llvm::ConstantInt::get(type, value); };
  llvm::Value* magnitude = b_.CreateAnd(bits, number(0x7fff));
  llvm::Value* sign = b_.CreateShl(b_.CreateAnd(bits, number(0x8000)), number(16));
  llvm::Value* normal = b_.CreateAdd(b_.CreateShl(magnitude, number(kShift)), number(kBias));
  // Subnormals by conversion: the result is normal in f32.
  llvm::Value* unit = llvm::ConstantFP::get(to, 0x1p-24);
  llvm::Value* small = b_.CreateBitCast(b_.CreateFMul(b_.CreateSIToFP(magnitude, to), unit), type);
  llvm::Value* is_nan = b_.CreateICmpUGT(magnitude, number(0x7c00));
  llvm::Value* special = b_.CreateOr(b_.CreateAdd(normal, number(kBias)),
                                     b_.CreateSelect(is_nan, number(kQuiet), number(0)));
  llvm::Value* result = b_.CreateSelect(b_.CreateICmpULT(magnitude, number(0x400)), small, normal);
  result = b_.CreateSelect(b_.CreateICmpULT(magnitude, number(0x7c00)), result, special);
  return b_.CreateBitCast(b_.CreateOr(result, sign), to);
}

llvm::Value* BodyEmitter::emit_float_to_half(llvm::Value* x, llvm::Type* to) {
  if (code_.target.has_f16) {
    llvm::Value* rounded = b_.CreateFPTrunc(x, x->getType()->getWithNewType(b_.getHalfTy()));
    return b_.CreateZExt(b_.CreateBitCast(rounded, to->getWithNewBitWidth(16)), to);
  }
  const auto number = [&](uint64_t value) { return llvm::ConstantInt::get(to, value); };
  llvm::Value* bits = b_.CreateBitCast(x, to);
  llvm::Value* magnitude = b_.CreateAnd(bits, number(~kSign));
  llvm::Value* sign = b_.CreateLShr(b_.CreateAnd(bits, number(kSign)), number(16));
  llvm::Value* mantissa = b_.CreateLShr(magnitude, number(kShift));
  // Ties to even: half a unit less one, and one where the last place is odd.
  llvm::Value* carried =
      b_.CreateAdd(magnitude, b_.CreateAdd(b_.CreateAnd(mantissa, number(1)), number(0xfff)));
  llvm::Value* normal = b_.CreateLShr(b_.CreateSub(carried, number(kBias)), number(kShift));
  // The last place of a sum with 0.5 is the unit of subnormal numbers.
  llvm::Value* half = llvm::ConstantFP::get(x->getType(), 0.5);
  llvm::Value* sum = b_.CreateFAdd(b_.CreateBitCast(magnitude, x->getType()), half);
  llvm::Value* small = b_.CreateSub(b_.CreateBitCast(sum, to), number(0x3f000000));
  llvm::Value* nan = b_.CreateOr(b_.CreateAnd(mantissa, number(0x3ff)), number(0x7e00));
  llvm::Value* result =
      b_.CreateSelect(b_.CreateICmpULT(magnitude, number(0x38800000)), small, normal);
  result = b_.CreateSelect(b_.CreateICmpULT(magnitude, number(0x477ff000)), result, number(0x7c00));
  result = b_.CreateSelect(b_.CreateICmpUGT(magnitude, number(kInfinity)), nan, result);
  return b_.CreateOr(result, sign);
}

}  // namespace hekla::cpu
