// SPDX-License-Identifier: Apache-2.0
// Tiles: rows of points side by side whose loads lie apart in the lanes and side by side in the
// rows, as those of a transposition. Each lane's elements are read together, a square of them is
// transposed in registers, and the rows find a vector each on the stack.
#include <algorithm>

#include "backends/cpu/codegen/emit_body.h"

namespace hekla::cpu {

using kernel::Access;
using kernel::Instruction;
using kernel::Value;

// The values of a vector of points that the indices of `loads` are made of.
void BodyEmitter::emit_parts_of(const std::vector<Value>& loads) {
  std::vector<bool> is_part(f_.size());
  for (Value load : loads) {
    is_part[static_cast<size_t>(analysis_.resolved(f_[load].arguments[0]))] = true;
  }
  const auto& all = f_.body().instructions;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    if (!is_part[static_cast<size_t>(*it)]) continue;
    for (Value argument : f_[*it].arguments) {
      is_part[static_cast<size_t>(analysis_.resolved(argument))] = true;
    }
  }
  for (Value v : all) {
    if (is_part[static_cast<size_t>(v)] && analysis_.level(v) == Level::kPoint && is_emitted(v)) {
      emit(v);
    }
  }
}

void BodyEmitter::stage(const std::vector<Value>& loads, int64_t rows) {
  staged_row_ = nullptr;
  emit_parts_of(loads);
  const auto size = static_cast<size_t>(std::min<int64_t>(lanes_, rows));  // of a square
  const auto squares = static_cast<size_t>(lanes_) / size;
  for (Value load : loads) {
    const Instruction& inst = f_[load];
    const Access access = kernel::unpack_access(inst.immediate);
    llvm::Type* element = scalar_type(inst.type);
    llvm::Type* vector = type_of(inst.type, true);
    auto* row = llvm::FixedVectorType::get(element, static_cast<unsigned>(size));
    llvm::Value*& stage = stages_[static_cast<size_t>(load)];
    {
      llvm::IRBuilderBase::InsertPointGuard guard(b_);
      llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
      b_.SetInsertPoint(&entry, entry.begin());
      stage = b_.CreateAlloca(vector, b_.getInt64(static_cast<uint64_t>(rows)));
    }
    llvm::Value* start = element_pointer(access, element, scalar(inst.arguments[0]));
    const int64_t stride = analysis_.shape(inst.arguments[0]).stride;
    for (int64_t first = 0; first < rows; first += static_cast<int64_t>(size)) {
      std::vector<std::vector<llvm::Value*>> columns(squares);
      for (size_t s = 0; s < squares; ++s) {
        for (size_t i = 0; i < size; ++i) {
          const int64_t offset = stride * static_cast<int64_t>(s * size + i) + first;
          llvm::Value* at =
              b_.CreateConstInBoundsGEP1_64(element, start, static_cast<uint64_t>(offset));
          columns[s].push_back(b_.CreateAlignedLoad(row, at, llvm::Align(4)));
        }
        transpose(columns[s]);
      }
      for (size_t i = 0; i < size; ++i) {
        std::vector<llvm::Value*> parts;
        for (const auto& square : columns) parts.push_back(square[i]);
        while (parts.size() > 1) {
          for (size_t p = 0; p < parts.size() / 2; ++p) {
            parts[p] = join(parts[2 * p], parts[2 * p + 1]);
          }
          parts.resize(parts.size() / 2);
        }
        b_.CreateStore(parts[0],
                       b_.CreateConstGEP1_64(vector, stage, static_cast<uint64_t>(first) + i));
      }
    }
  }
}

llvm::Value* BodyEmitter::join(llvm::Value* low, llvm::Value* high) {
  auto* type = llvm::cast<llvm::FixedVectorType>(low->getType());
  std::vector<int> order(2 * static_cast<size_t>(type->getNumElements()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  return b_.CreateShuffleVector(low, high, order);
}

}  // namespace hekla::cpu
