// SPDX-License-Identifier: Apache-2.0
// Loads and stores of BodyEmitter: vectors where lanes are contiguous in memory, else by lane.
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <numeric>

#include "backends/cpu/codegen/emit_body.h"

namespace hekla::cpu {
namespace {

// Nothing but the element's size is known about addresses: inputs may be slices of caller's memory.
llvm::Align element_align(const kernel::Access& access) { return llvm::Align(access.bytes); }

}  // namespace

using kernel::Access;
using kernel::Instruction;
using kernel::ScalarType;
using kernel::Value;

llvm::Value* BodyEmitter::element_pointer(const Access& access, llvm::Type* element,
                                          llvm::Value* index) {
  return b_.CreateGEP(element, operands_[static_cast<size_t>(access.operand)], index);
}

llvm::Value* BodyEmitter::first_pointer(const Access& access, llvm::Type* element, Value index) {
  if (f_.region_count() != 1) return element_pointer(access, element, scalar(index));
  if (bases_block_ != b_.GetInsertBlock()) {
    bases_.clear();
    bases_block_ = b_.GetInsertBlock();
  }
  const kernel::IndexAnalysis& known = analysis_.index();
  const auto terms = known.terms(index);
  for (const Base& base : bases_) {
    if (base.operand != access.operand || base.element != element) continue;
    const auto others = known.terms(base.index);
    if (!std::equal(terms.begin(), terms.end(), others.begin(), others.end())) continue;
    int64_t distance = known.constant(index) - known.constant(base.index);
    // Both count elements of one operand, and their difference is known modulo their type.
    if (f_.type(index) == ScalarType::kI32) distance = static_cast<int32_t>(distance);
    if (distance == 0) return base.pointer;
    return b_.CreateConstGEP1_64(element, base.pointer, static_cast<uint64_t>(distance));
  }
  llvm::Value* pointer = element_pointer(access, element, scalar(index));
  bases_.push_back({access.operand, element, index, pointer});
  return pointer;
}

void BodyEmitter::emit_load(Value v) {
  const Instruction& inst = f_[v];
  const Access access = kernel::unpack_access(inst.immediate);
  const Value index = inst.arguments[0];
  llvm::Type* element = memory_type(access, inst.type);
  llvm::Value* value = nullptr;
  if (staged_row_ != nullptr && stages_[static_cast<size_t>(v)] != nullptr) {
    llvm::Type* type = type_of(inst.type, true);
    llvm::Value* stage = b_.CreateGEP(type, stages_[static_cast<size_t>(v)], staged_row_);
    return define(v, b_.CreateLoad(type, stage));
  }
  if (is_vector(v)) {
    value = load_in_group(v, access, element);
    if (value == nullptr) value = load_vector(access, element, index);
  } else {
    llvm::Value* pointer = first_pointer(access, element, index);
    value = b_.CreateAlignedLoad(element, pointer, element_align(access));
  }
  if (access.bytes <= 2 && width_of(v) == NarrowValues::kWide) {
    llvm::Type* wide = type_of(inst.type, is_vector(v));
    value = access.is_signed ? b_.CreateSExt(value, wide) : b_.CreateZExt(value, wide);
  }
  define(v, value);
}

llvm::Value* BodyEmitter::load_vector(const Access& access, llvm::Type* element, Value index) {
  auto* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes_));
  const llvm::Align align = element_align(access);
  const LaneShape shape = analysis_.shape(index);
  if (shape.kind == LaneKind::kAffine) {
    llvm::Value* first = first_pointer(access, element, index);
    if (shape.stride == 1) {
      if (mask_ == nullptr) return b_.CreateAlignedLoad(type, first, align);
      return b_.CreateMaskedLoad(type, first, align, mask_, llvm::Constant::getNullValue(type));
    }
    if (shape.stride == -1 && mask_ == nullptr) {
      llvm::Value* low =
          b_.CreateConstInBoundsGEP1_64(element, first, static_cast<uint64_t>(1 - lanes_));
      std::vector<int> order(static_cast<size_t>(lanes_));
      std::iota(order.rbegin(), order.rend(), 0);
      return b_.CreateShuffleVector(b_.CreateAlignedLoad(type, low, align), order);
    }
    if (mask_ == nullptr && code_.plan.schedule.strided == StridedUse::kShuffles) {
      if (llvm::Value* value = load_strided(element, first, shape.stride, align)) return value;
    }
    if (mask_ == nullptr) {
      llvm::Value* value = llvm::PoisonValue::get(type);
      for (int lane = 0; lane < lanes_; ++lane) {
        llvm::Value* at = b_.CreateConstInBoundsGEP1_64(element, first,
                                                        static_cast<uint64_t>(shape.stride * lane));
        value = b_.CreateInsertElement(value, b_.CreateAlignedLoad(element, at, align),
                                       static_cast<uint64_t>(lane));
      }
      return value;
    }
  }
  llvm::Value* indices = vector(index);
  if (mask_ != nullptr || code_.target.vector_bits >= 512) {
    llvm::Value* pointers = element_pointer(access, element, indices);
    return b_.CreateMaskedGather(type, pointers, align, mask_, llvm::Constant::getNullValue(type));
  }
  // Gather instructions before AVX-512 are no faster than scalar loads.
  llvm::Value* value = llvm::PoisonValue::get(type);
  for (int lane = 0; lane < lanes_; ++lane) {
    const auto number = static_cast<uint64_t>(lane);
    llvm::Value* at = element_pointer(access, element, b_.CreateExtractElement(indices, number));
    value = b_.CreateInsertElement(value, b_.CreateAlignedLoad(element, at, align), number);
  }
  return value;
}

void BodyEmitter::emit_store(Value v) {
  const Instruction& inst = f_[v];
  const Access access = kernel::unpack_access(inst.immediate);
  const ScalarType type = f_.type(inst.arguments[1]);
  llvm::Type* element = memory_type(access, type);
  llvm::Value* value = nullptr;
  if (access.bytes > 2) {
    value = vector(inst.arguments[1]);
  } else if (type == ScalarType::kI32 && lanes_ > 1) {
    value = lanes_of(inst.arguments[1], access.bytes * 8);
  } else {
    llvm::Type* narrow = element;
    if (lanes_ > 1) narrow = llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes_));
    value = b_.CreateTrunc(vector(inst.arguments[1]), narrow);
  }
  if (store_in_group(v, value, access)) return;
  if (lanes_ > 1) return store_vector(access, value, inst.arguments[0]);
  llvm::Value* pointer = first_pointer(access, element, inst.arguments[0]);
  put(value, pointer, element_align(access));
}

void BodyEmitter::put(llvm::Value* value, llvm::Value* pointer, llvm::Align align) {
  if (defers_) {
    deferred_.push_back({value, pointer, align});
  } else {
    b_.CreateAlignedStore(value, pointer, align);
  }
}

void BodyEmitter::store_vector(const Access& access, llvm::Value* value, Value index) {
  llvm::Type* element = value->getType()->getScalarType();
  const llvm::Align align = element_align(access);
  const LaneShape shape = analysis_.shape(index);
  if (shape.kind == LaneKind::kAffine && shape.stride == 1) {
    llvm::Value* first = first_pointer(access, element, index);
    if (mask_ == nullptr) {
      put(value, first, align);
    } else {
      b_.CreateMaskedStore(value, first, align, mask_);
    }
    return;
  }
  if (mask_ != nullptr) {
    b_.CreateMaskedScatter(value, element_pointer(access, element, vector(index)), align, mask_);
    return;
  }
  const bool is_affine = shape.kind != LaneKind::kVarying;
  llvm::Value* first = is_affine ? first_pointer(access, element, index) : nullptr;
  for (int lane = 0; lane < lanes_; ++lane) {
    const auto number = static_cast<uint64_t>(lane);
    llvm::Value* at = is_affine ? b_.CreateConstInBoundsGEP1_64(
                                      element, first, static_cast<uint64_t>(shape.stride * lane))
                                : element_pointer(access, element,
                                                  b_.CreateExtractElement(vector(index), number));
    put(b_.CreateExtractElement(value, number), at, align);
  }
}

}  // namespace hekla::cpu
