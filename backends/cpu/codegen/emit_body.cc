// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/codegen/emit_body.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include <utility>

namespace hekla::cpu {

using kernel::Access;
using kernel::Instruction;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;

BodyEmitter::BodyEmitter(const KernelCode& code, const LaneAnalysis& analysis,
                         llvm::IRBuilder<>& builder, std::vector<llvm::Value*> operands)
    : code_(code),
      analysis_(analysis),
      f_(code.kernel.body),
      narrow_(f_, analysis),
      b_(builder),
      operands_(std::move(operands)),
      scalars_(f_.size()),
      vectors_(f_.size()),
      narrow_vectors_{std::vector<llvm::Value*>(f_.size()), std::vector<llvm::Value*>(f_.size())},
      loop_results_(f_.region_count()),
      stages_(f_.size()),
      group_number_(f_.size(), -1) {
  if (code.plan.schedule.strided != StridedUse::kShuffles) return;
  for (size_t region = 0; region < f_.region_count(); ++region) {
    find_groups(Op::kLoad, static_cast<int32_t>(region));
    find_groups(Op::kStore, static_cast<int32_t>(region));
  }
}

void BodyEmitter::emit_level(Level level) {
  for (Value v : f_.body().instructions) {
    if (analysis_.level(v) == level && is_emitted(v)) emit(v);
  }
}

void BodyEmitter::begin_points(int lanes) {
  lanes_ = lanes;
  for (size_t i = 0; i < f_.size(); ++i) {
    vectors_[i] = nullptr;  // of another width, or placed where it is not seen
    for (auto& vectors : narrow_vectors_) vectors[i] = nullptr;
    if (analysis_.level(static_cast<Value>(i)) == Level::kPoint) scalars_[i] = nullptr;
  }
  for (Group& group : groups_) group.values.clear();
  bases_.clear();
}

void BodyEmitter::set_scalar(Value v, llvm::Value* value) {
  scalars_[static_cast<size_t>(v)] = value;
  bases_.clear();
}

llvm::Type* BodyEmitter::scalar_type(ScalarType type) const {
  switch (type) {
    case ScalarType::kBool:
      return b_.getInt1Ty();
    case ScalarType::kI32:
      return b_.getInt32Ty();
    case ScalarType::kI64:
      return b_.getInt64Ty();
    case ScalarType::kF32:
      return b_.getFloatTy();
    case ScalarType::kF64:
      break;
  }
  return b_.getDoubleTy();
}

llvm::Type* BodyEmitter::type_of(ScalarType type, bool as_vector) const {
  llvm::Type* scalar = scalar_type(type);
  if (!as_vector) return scalar;
  return llvm::FixedVectorType::get(scalar, static_cast<unsigned>(lanes_));
}

llvm::Type* BodyEmitter::memory_type(const Access& access, ScalarType type) const {
  return access.bytes <= 2 ? b_.getIntNTy(access.bytes * 8u) : scalar_type(type);
}

llvm::Constant* BodyEmitter::constant(const Instruction& inst) const {
  llvm::Type* type = scalar_type(inst.type);
  const unsigned width = static_cast<unsigned>(bit_width(inst.type));
  const llvm::APInt bits(width, inst.immediate);
  if (!is_float(inst.type)) return llvm::ConstantInt::get(type, bits);
  return llvm::ConstantFP::get(type, llvm::APFloat(type->getFltSemantics(), bits));
}

llvm::Value* BodyEmitter::scalar(Value v) {
  v = analysis_.resolved(v);
  if (const int known = analysis_.known(v); known >= 0) return b_.getInt1(known == 1);
  llvm::Value*& known = scalars_[static_cast<size_t>(v)];
  if (known == nullptr && f_[v].op == Op::kConstant) known = constant(f_[v]);
  return known;
}

llvm::Value* BodyEmitter::behind(llvm::Value* value, const std::function<llvm::Value*()>& build) {
  llvm::IRBuilderBase::InsertPointGuard guard(b_);
  if (auto* inst = llvm::dyn_cast<llvm::Instruction>(value)) {
    // None: a phi that the block ends with so far.
    llvm::BasicBlock* parent = inst->getParent();
    b_.SetInsertPoint(parent, inst->getInsertionPointAfterDef().value_or(parent->end()));
  }
  return build();
}

llvm::Value* BodyEmitter::vector(Value v) {
  if (lanes_ == 1) return scalar(v);
  v = analysis_.resolved(v);
  llvm::Value*& known = vectors_[static_cast<size_t>(v)];
  if (known != nullptr) return known;
  if (const int width = width_of(v); width < NarrowValues::kWide) {
    llvm::Value* narrow = lanes_of(v, width);
    llvm::Type* wide = type_of(ScalarType::kI32, true);
    known = behind(narrow, [&] {
      return narrow_.is_signed(v) ? b_.CreateSExt(narrow, wide) : b_.CreateZExt(narrow, wide);
    });
    return known;
  }
  llvm::Value* value = scalar(v);
  known = behind(value, [&] { return spread(value, analysis_.shape(v).stride); });
  return known;
}

llvm::Type* BodyEmitter::narrow_type(int width) const {
  return llvm::FixedVectorType::get(b_.getIntNTy(static_cast<unsigned>(width)),
                                    static_cast<unsigned>(lanes_));
}

llvm::Value* BodyEmitter::lanes_of(Value v, int width) {
  if (lanes_ == 1 || width == NarrowValues::kWide) return vector(v);
  v = analysis_.resolved(v);
  llvm::Value*& known = narrow_vectors_[width == 8 ? 0 : 1][static_cast<size_t>(v)];
  if (known != nullptr) return known;
  llvm::Type* type = narrow_type(width);
  const int own = width_of(v);
  if (own < NarrowValues::kWide) {
    // Defined with the other width.
    llvm::Value* value = narrow_vectors_[own == 8 ? 0 : 1][static_cast<size_t>(v)];
    known = behind(value, [&] {
      if (own > width) return b_.CreateTrunc(value, type);
      return narrow_.is_signed(v) ? b_.CreateSExt(value, type) : b_.CreateZExt(value, type);
    });
  } else {
    llvm::Value* value = vector(v);
    known = behind(value, [&] { return b_.CreateTrunc(value, type); });
  }
  return known;
}

llvm::Value* BodyEmitter::spread(llvm::Value* value, int64_t stride) {
  const auto lanes = llvm::ElementCount::getFixed(static_cast<unsigned>(lanes_));
  llvm::Value* all = nullptr;
  if (auto* known = llvm::dyn_cast<llvm::Constant>(value)) {
    all = llvm::ConstantVector::getSplat(lanes, known);
  } else {
    all = b_.CreateVectorSplat(lanes, value);
  }
  if (stride == 0) return all;
  std::vector<llvm::Constant*> steps;
  for (int i = 0; i < lanes_; ++i) {
    const uint64_t step = static_cast<uint64_t>(stride) * static_cast<uint64_t>(i);
    steps.push_back(llvm::ConstantInt::get(value->getType(), step, true));
  }
  return b_.CreateAdd(all, llvm::ConstantVector::get(steps));
}

llvm::Value* BodyEmitter::value_as(Value v, Value like) {
  return is_vector(like) ? lanes_of(v, width_of(like)) : scalar(v);
}

void BodyEmitter::define(Value v, llvm::Value* value) {
  const int width = width_of(v);
  auto& vectors = width == NarrowValues::kWide ? vectors_ : narrow_vectors_[width == 8 ? 0 : 1];
  (is_vector(v) ? vectors : scalars_)[static_cast<size_t>(v)] = value;
}

bool BodyEmitter::may_defer_stores() const {
  for (size_t i = 0; i < f_.size(); ++i) {
    const Instruction& inst = f_[static_cast<Value>(i)];
    if (inst.op == Op::kStore && inst.region != 0) return false;
  }
  return true;
}

BodyEmitter::Deferred BodyEmitter::take_deferred() {
  defers_ = false;
  return std::exchange(deferred_, {});
}

void BodyEmitter::emit_deferred(const Deferred& stores) {
  for (const Store& store : stores) {
    b_.CreateAlignedStore(store.value, store.pointer, store.align);
  }
}

llvm::BasicBlock* BodyEmitter::block(const char* name) {
  return llvm::BasicBlock::Create(b_.getContext(), name, b_.GetInsertBlock()->getParent());
}

void BodyEmitter::begin_region(int32_t region) {
  for (Group& group : groups_) {
    if (group.region == region) group.values.clear();
  }
}

void BodyEmitter::emit_region(int32_t region) {
  begin_region(region);
  for (Value v : f_.region(region).instructions) {
    if (is_emitted(v)) emit(v);
  }
}

void BodyEmitter::emit(Value v) {
  const Instruction& inst = f_[v];
  switch (inst.op) {
    case Op::kLoad:
      return emit_load(v);
    case Op::kStore:
      return emit_store(v);
    case Op::kFor:
      return emit_loop(v);
    case Op::kForResult:
      return define(
          v, loop_results_[static_cast<size_t>(f_[inst.arguments[0]].immediate)][inst.immediate]);
    default:
      return define(v, emit_arithmetic(v));
  }
}

llvm::Value* BodyEmitter::intrinsic(llvm::Intrinsic::ID id,
                                    llvm::ArrayRef<llvm::Value*> arguments) {
  return b_.CreateIntrinsic(id, {arguments[0]->getType()}, arguments);
}

// Bits of a float that another block looks at come in a register for integers; beside its user a
// bitcast costs nothing.
llvm::Value* BodyEmitter::near(llvm::Value* value) {
  auto* cast = llvm::dyn_cast<llvm::BitCastInst>(value);
  if (cast == nullptr || cast->getParent() == b_.GetInsertBlock()) return value;
  return b_.CreateBitCast(cast->getOperand(0), cast->getType());
}

llvm::Value* BodyEmitter::emit_arithmetic(Value v) {
  const Instruction& inst = f_[v];
  const bool as_vector = is_vector(v);
  llvm::SmallVector<llvm::Value*, 3> args;
  const int width = as_vector ? narrow_.argument_width(v) : NarrowValues::kWide;
  if (as_vector && narrow_.cut_from(v) != kernel::kNoValue) {
    return lanes_of(narrow_.cut_from(v), width);
  }
  for (Value a : inst.arguments) {
    const bool is_narrow = width < NarrowValues::kWide && f_.type(a) == ScalarType::kI32;
    args.push_back(near(is_narrow ? lanes_of(a, width) : as_vector ? vector(a) : scalar(a)));
  }
  const bool is_unsigned = width < NarrowValues::kWide && !narrow_.is_signed(v);
  const bool to_narrow = width_of(v) < NarrowValues::kWide;
  llvm::Type* to = to_narrow ? narrow_type(width_of(v)) : type_of(inst.type, as_vector);
  const ScalarType from = f_.type(inst.arguments[0]);
  const bool floats = is_float(from);
  // Sums that do not wrap become part of addresses. Lanes of vectors may be off, and wrap then.
  const bool exact = !floats && !as_vector && analysis_.is_exact(v);
  switch (inst.op) {
    case Op::kAdd:
      return floats ? b_.CreateFAdd(args[0], args[1])
                    : b_.CreateAdd(args[0], args[1], "", false, exact);
    case Op::kSub:
      return floats ? b_.CreateFSub(args[0], args[1])
                    : b_.CreateSub(args[0], args[1], "", false, exact);
    case Op::kMul:
      return floats ? b_.CreateFMul(args[0], args[1])
                    : b_.CreateMul(args[0], args[1], "", false, exact);
    case Op::kMulHighU:
      return emit_high_product(args[0], args[1]);
    case Op::kDiv:
      return b_.CreateFDiv(args[0], args[1]);
    case Op::kDivS:
    case Op::kDivU:
    case Op::kRemS:
    case Op::kRemU:
      return emit_division(inst.op, args[0], args[1]);
    case Op::kNeg:
      return b_.CreateFNeg(args[0]);
    case Op::kAbs:
      return intrinsic(llvm::Intrinsic::fabs, {args[0]});
    case Op::kFma:
      if (code_.target.has_fma) return intrinsic(llvm::Intrinsic::fma, args);
      return b_.CreateFAdd(b_.CreateFMul(args[0], args[1]), args[2]);
    case Op::kSqrt:
      return intrinsic(llvm::Intrinsic::sqrt, {args[0]});
    case Op::kFloor:
      return intrinsic(llvm::Intrinsic::floor, {args[0]});
    case Op::kCeil:
      return intrinsic(llvm::Intrinsic::ceil, {args[0]});
    case Op::kTrunc:
      return intrinsic(llvm::Intrinsic::trunc, {args[0]});
    case Op::kRoundEven:
      return intrinsic(llvm::Intrinsic::roundeven, {args[0]});
    case Op::kAnd:
      return b_.CreateAnd(args[0], args[1]);
    case Op::kOr:
      return b_.CreateOr(args[0], args[1]);
    case Op::kXor:
      return b_.CreateXor(args[0], args[1]);
    case Op::kShl:
      return b_.CreateShl(args[0], args[1]);
    case Op::kShrU:
      return b_.CreateLShr(args[0], args[1]);
    case Op::kShrS:
      return b_.CreateAShr(args[0], args[1]);
    case Op::kEq:
      return floats ? b_.CreateFCmpOEQ(args[0], args[1]) : b_.CreateICmpEQ(args[0], args[1]);
    case Op::kNe:
      return floats ? b_.CreateFCmpUNE(args[0], args[1]) : b_.CreateICmpNE(args[0], args[1]);
    case Op::kLt:
      return b_.CreateFCmpOLT(args[0], args[1]);
    case Op::kLe:
      return b_.CreateFCmpOLE(args[0], args[1]);
    case Op::kLtS:
      return is_unsigned ? b_.CreateICmpULT(args[0], args[1]) : b_.CreateICmpSLT(args[0], args[1]);
    case Op::kLeS:
      return is_unsigned ? b_.CreateICmpULE(args[0], args[1]) : b_.CreateICmpSLE(args[0], args[1]);
    case Op::kLtU:
      return b_.CreateICmpULT(args[0], args[1]);
    case Op::kLeU:
      return b_.CreateICmpULE(args[0], args[1]);
    case Op::kSelect:
      return b_.CreateSelect(args[0], args[1], args[2]);
    case Op::kSignExtend:
      return b_.CreateSExt(args[0], to);
    case Op::kZeroExtend:
    case Op::kBoolToInt:
      return b_.CreateZExt(args[0], to);
    case Op::kTruncate:
      return b_.CreateTrunc(args[0], to);
    case Op::kSIntToFloat:
      return b_.CreateSIToFP(args[0], to);
    case Op::kUIntToFloat:
      return b_.CreateUIToFP(args[0], to);
    case Op::kFloatToSInt:
      return b_.CreateFPToSI(args[0], to);
    case Op::kFloatToUInt:
      return b_.CreateFPToUI(args[0], to);
    case Op::kFloatResize:
      return b_.CreateFPCast(args[0], to);
    case Op::kHalfToFloat:
      return emit_half_to_float(args[0], to);
    case Op::kFloatToHalf:
      return emit_float_to_half(args[0], to);
    case Op::kBitcast:
      return b_.CreateBitCast(args[0], to);
    default:
      return nullptr;  // memory and loops are emitted elsewhere
  }
}

// In 64 bits from halves: vectors have no wider product, and i128 may end in calls of libgcc.
llvm::Value* BodyEmitter::emit_high_product(llvm::Value* a, llvm::Value* b) {
  llvm::Type* type = a->getType();
  if (type->getScalarSizeInBits() == 32) {
    llvm::Type* wide = type->getExtendedType();
    llvm::Value* product = b_.CreateMul(b_.CreateZExt(a, wide), b_.CreateZExt(b, wide));
    return b_.CreateTrunc(b_.CreateLShr(product, 32), type);
  }
  auto low = [&](llvm::Value* x) { return b_.CreateAnd(x, uint64_t{0xffffffff}); };
  auto high = [&](llvm::Value* x) { return b_.CreateLShr(x, 32); };
  llvm::Value *a0 = low(a), *a1 = high(a), *b0 = low(b), *b1 = high(b);
  llvm::Value* middle = b_.CreateAdd(b_.CreateMul(a1, b0), high(b_.CreateMul(a0, b0)));
  llvm::Value* other = b_.CreateAdd(b_.CreateMul(a0, b1), low(middle));
  return b_.CreateAdd(b_.CreateAdd(b_.CreateMul(a1, b1), high(middle)), high(other));
}

// Values that nobody uses, in lanes that are off or moved out of a loop, may have divisors of zero:
// they must not trap.
llvm::Value* BodyEmitter::emit_division(Op op, llvm::Value* a, llvm::Value* b) {
  llvm::Type* type = a->getType();
  const bool is_signed = op == Op::kDivS || op == Op::kRemS;
  const bool is_remainder = op == Op::kRemS || op == Op::kRemU;
  auto divide = [&](llvm::Value* divisor) {
    switch (op) {
      case Op::kDivS:
        return b_.CreateSDiv(a, divisor);
      case Op::kDivU:
        return b_.CreateUDiv(a, divisor);
      case Op::kRemS:
        return b_.CreateSRem(a, divisor);
      default:
        return b_.CreateURem(a, divisor);
    }
  };
  const auto* known = llvm::dyn_cast<llvm::Constant>(b);
  if (known != nullptr && type->isVectorTy()) known = known->getSplatValue();
  const auto* number = llvm::dyn_cast_or_null<llvm::ConstantInt>(known);
  if (number != nullptr && !number->isZero() && !(is_signed && number->isMinusOne())) {
    return divide(b);
  }
  llvm::Constant* zero = llvm::Constant::getNullValue(type);
  const unsigned width = type->getScalarSizeInBits();
  llvm::Value* bad = b_.CreateICmpEQ(b, zero);
  if (is_signed) {
    llvm::Constant* least = llvm::ConstantInt::get(type, llvm::APInt::getSignedMinValue(width));
    llvm::Constant* minus_one = llvm::Constant::getAllOnesValue(type);
    bad = b_.CreateOr(bad, b_.CreateAnd(b_.CreateICmpEQ(b, minus_one), b_.CreateICmpEQ(a, least)));
  }
  llvm::Value* divisor = b_.CreateSelect(bad, llvm::ConstantInt::get(type, 1), b);
  llvm::Value* result = nullptr;
  if (type->isVectorTy() && width == 32) {
    // The quotient of 32-bit integers is exact in f64 once truncated: it differs from the next
    // integer by 1 / divisor at least, more than the rounding of a quotient below 2^32.
    llvm::Type* wide = llvm::VectorType::get(b_.getDoubleTy(), llvm::cast<llvm::VectorType>(type));
    auto widen = [&](llvm::Value* x) {
      return is_signed ? b_.CreateSIToFP(x, wide) : b_.CreateUIToFP(x, wide);
    };
    llvm::Value* quotient = b_.CreateFDiv(widen(a), widen(divisor));
    result = is_signed ? b_.CreateFPToSI(quotient, type) : b_.CreateFPToUI(quotient, type);
    if (is_remainder) result = b_.CreateSub(a, b_.CreateMul(result, divisor));
  } else {
    result = divide(divisor);
  }
  return b_.CreateSelect(bad, zero, result);
}

void BodyEmitter::emit_loop(Value v) {
  if (lanes_ > 1 && analysis_.is_divergent(v)) {
    return emit_divergent_loop(v);
  }
  if (f_[analysis_.resolved(f_[v].arguments[0])].op == Op::kBoolToInt) return emit_condition(v);
  std::vector<StagedLoad> staged = staged_loads(v);
  if (staged.empty()) {
    emit_counted_loop(v);
  } else {
    emit_staged_loop(v, std::move(staged));
  }
}

// A loop that runs once or not at all.
void BodyEmitter::emit_condition(Value v) {
  const Instruction& inst = f_[v];
  const auto number = static_cast<int32_t>(inst.immediate);
  const kernel::RegionBody& region = f_.region(number);
  const Instruction& count = f_[analysis_.resolved(inst.arguments[0])];
  const size_t carried = region.yields.size();
  std::vector<llvm::Value*> initial;
  for (size_t i = 0; i < carried; ++i) {
    initial.push_back(value_as(inst.arguments[i + 1], region.parameters[i + 1]));
    define(region.parameters[i + 1], initial[i]);
  }
  llvm::Value* runs = scalar(count.arguments[0]);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* body = block("then");
  llvm::BasicBlock* done = block("then_done");
  // What only stores is for most points (scatters); what computes is for rare ones.
  llvm::MDNode* likely = llvm::MDBuilder(b_.getContext()).createLikelyBranchWeights();
  b_.CreateCondBr(runs, body, done, carried == 0 ? likely : nullptr);
  b_.SetInsertPoint(body);
  set_scalar(region.parameters[0], llvm::ConstantInt::get(scalar_type(count.type), 0));
  emit_region(number);
  std::vector<llvm::Value*> next;
  for (size_t i = 0; i < carried; ++i) {
    next.push_back(value_as(region.yields[i], region.parameters[i + 1]));
  }
  llvm::BasicBlock* end = b_.GetInsertBlock();
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
  set_loop_results(number, initial, before, next, end);
}

void BodyEmitter::set_loop_results(int32_t number, const std::vector<llvm::Value*>& initial,
                                   llvm::BasicBlock* before, const std::vector<llvm::Value*>& next,
                                   llvm::BasicBlock* end) {
  auto& results = loop_results_[static_cast<size_t>(number)];
  results.resize(next.size());
  for (size_t i = 0; i < next.size(); ++i) {
    llvm::PHINode* result = b_.CreatePHI(initial[i]->getType(), 2);
    result->addIncoming(initial[i], before);
    result->addIncoming(next[i], end);
    results[i] = result;
  }
}

// if (count > 0) { do { ... } while (++i < count); }
void BodyEmitter::emit_counted_loop(Value v) {
  const Instruction& inst = f_[v];
  const auto number = static_cast<int32_t>(inst.immediate);
  const kernel::RegionBody& region = f_.region(number);
  const size_t carried = region.yields.size();
  llvm::Value* count = scalar(inst.arguments[0]);
  std::vector<llvm::Value*> initial;
  for (size_t i = 0; i < carried; ++i) {
    initial.push_back(value_as(inst.arguments[i + 1], region.parameters[i + 1]));
  }
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* body = block("loop");
  llvm::BasicBlock* done = block("loop_done");
  const auto* known = llvm::dyn_cast<llvm::ConstantInt>(count);
  const bool always_runs = known != nullptr && known->getSExtValue() > 0;
  if (always_runs) {
    b_.CreateBr(body);
  } else {
    llvm::Value* runs = b_.CreateICmpSGT(count, llvm::ConstantInt::get(count->getType(), 0));
    b_.CreateCondBr(runs, body, done);
  }
  b_.SetInsertPoint(body);
  llvm::PHINode* iteration = b_.CreatePHI(count->getType(), 2);
  iteration->addIncoming(llvm::ConstantInt::get(count->getType(), 0), before);
  set_scalar(region.parameters[0], iteration);
  std::vector<llvm::PHINode*> phis;
  for (size_t i = 0; i < carried; ++i) {
    phis.push_back(b_.CreatePHI(initial[i]->getType(), 2));
    phis[i]->addIncoming(initial[i], before);
    define(region.parameters[i + 1], phis[i]);
  }
  emit_region(number);
  std::vector<llvm::Value*> next;
  for (size_t i = 0; i < carried; ++i) {
    next.push_back(value_as(region.yields[i], region.parameters[i + 1]));
  }
  llvm::Value* following = b_.CreateAdd(iteration, llvm::ConstantInt::get(count->getType(), 1));
  llvm::BasicBlock* latch = b_.GetInsertBlock();
  iteration->addIncoming(following, latch);
  for (size_t i = 0; i < carried; ++i) phis[i]->addIncoming(next[i], latch);
  b_.CreateCondBr(b_.CreateICmpSLT(following, count), body, done);
  b_.SetInsertPoint(done);
  if (always_runs) {
    loop_results_[static_cast<size_t>(number)] = next;
  } else {
    set_loop_results(number, initial, before, next, latch);
  }
}

// while (any lane has i < its count) { ... for those lanes; ++i }
void BodyEmitter::emit_divergent_loop(Value v) {
  const Instruction& inst = f_[v];
  const auto number = static_cast<int32_t>(inst.immediate);
  const kernel::RegionBody& region = f_.region(number);
  const size_t carried = region.yields.size();
  llvm::Value* counts = vector(inst.arguments[0]);
  std::vector<llvm::Value*> initial;
  const auto carried_lanes = [&](Value of, size_t i) {
    return lanes_of(of, width_of(region.parameters[i + 1]));
  };
  for (size_t i = 0; i < carried; ++i) {
    initial.push_back(carried_lanes(inst.arguments[i + 1], i));
  }
  llvm::Type* index = counts->getType()->getScalarType();
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* header = block("lanes");
  llvm::BasicBlock* body = block("lanes_body");
  llvm::BasicBlock* done = block("lanes_done");
  b_.CreateBr(header);
  b_.SetInsertPoint(header);
  llvm::PHINode* iteration = b_.CreatePHI(index, 2);
  iteration->addIncoming(llvm::ConstantInt::get(index, 0), before);
  set_scalar(region.parameters[0], iteration);
  std::vector<llvm::PHINode*> phis;
  for (size_t i = 0; i < carried; ++i) {
    phis.push_back(b_.CreatePHI(initial[i]->getType(), 2));
    phis[i]->addIncoming(initial[i], before);
    define(region.parameters[i + 1], phis[i]);
  }
  llvm::Value* active = b_.CreateICmpSLT(spread(iteration, 0), counts);
  if (mask_ != nullptr) active = b_.CreateAnd(active, mask_);
  b_.CreateCondBr(b_.CreateOrReduce(active), body, done);
  b_.SetInsertPoint(body);
  llvm::Value* outer_mask = mask_;
  mask_ = active;
  emit_region(number);
  std::vector<llvm::Value*> next;
  for (size_t i = 0; i < carried; ++i) {
    next.push_back(b_.CreateSelect(active, carried_lanes(region.yields[i], i), phis[i]));
  }
  mask_ = outer_mask;
  llvm::BasicBlock* latch = b_.GetInsertBlock();
  iteration->addIncoming(b_.CreateAdd(iteration, llvm::ConstantInt::get(index, 1)), latch);
  for (size_t i = 0; i < carried; ++i) phis[i]->addIncoming(next[i], latch);
  b_.CreateBr(header);
  b_.SetInsertPoint(done);
  loop_results_[static_cast<size_t>(number)].assign(phis.begin(), phis.end());
}

}  // namespace hekla::cpu
