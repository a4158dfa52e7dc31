// SPDX-License-Identifier: Apache-2.0
// Loops in which each lane walks along memory of its own, as in sums over rows with a row per lane.
//
// Lane by lane that is a scalar load for each element. Here a block of as many iterations as there
// are lanes is loaded first: a vector along each lane's memory, transposed in registers, put on the
// stack; the iterations then load vectors from there. The order of the arithmetic stays the same.
#include <algorithm>
#include <array>

#include "backends/cpu/codegen/emit_body.h"

namespace hekla::cpu {

using kernel::Access;
using kernel::Instruction;
using kernel::Op;
using kernel::Value;

namespace {

constexpr int kFewestLanes = 4;
// Stack: 256 bytes each with 8 lanes.
constexpr size_t kMostLoads = 8;

}  // namespace

// The loads of the loop that step by one element an iteration and lie apart in the lanes.
std::vector<BodyEmitter::StagedLoad> BodyEmitter::staged_loads(Value loop) const {
  std::vector<StagedLoad> loads;
  if (mask_ != nullptr || lanes_ < kFewestLanes || lanes_ > 16) return loads;
  const auto number = static_cast<int32_t>(f_[loop].immediate);
  const kernel::RegionBody& region = f_.region(number);
  for (Value v : region.instructions) {
    const Instruction& load = f_[v];
    if (load.op != Op::kLoad || !is_emitted(v)) continue;
    const Access access = kernel::unpack_access(load.immediate);
    const bool is_written = code_.kernel.operands[static_cast<size_t>(access.operand)].is_written;
    if (access.bytes != 4 || is_written) continue;
    const LaneShape shape = analysis_.shape(load.arguments[0]);
    const bool is_apart =
        shape.kind == LaneKind::kVarying || (shape.kind == LaneKind::kAffine && shape.stride != 1);
    const Instruction& index = f_[analysis_.resolved(load.arguments[0])];
    if (!is_apart || index.op != Op::kAdd || index.arguments.size() != 2) continue;
    for (int side = 0; side < 2; ++side) {
      const Value start = index.arguments[static_cast<size_t>(1 - side)];
      const bool steps = index.arguments[static_cast<size_t>(side)] == region.parameters[0];
      if (steps && f_[start].region != number && loads.size() < kMostLoads) {
        loads.push_back({v, start, nullptr});
        break;
      }
    }
  }
  return loads;
}

// The pointers to the first of the block's elements, by lane.
std::vector<llvm::Value*> BodyEmitter::staged_pointers(const StagedLoad& load, llvm::Value* first) {
  const Instruction& inst = f_[load.load];
  const Access access = kernel::unpack_access(inst.immediate);
  llvm::Type* element = memory_type(access, inst.type);
  const LaneShape shape = analysis_.shape(load.start);
  std::vector<llvm::Value*> pointers;
  llvm::Value* lane_0 = nullptr;
  if (shape.kind != LaneKind::kVarying) {
    lane_0 = element_pointer(access, element, b_.CreateAdd(scalar(load.start), first));
  }
  for (int lane = 0; lane < lanes_; ++lane) {
    if (lane_0 != nullptr) {
      pointers.push_back(b_.CreateConstInBoundsGEP1_64(element, lane_0,
                                                       static_cast<uint64_t>(shape.stride * lane)));
    } else {
      llvm::Value* start = b_.CreateExtractElement(vector(load.start), static_cast<uint64_t>(lane));
      pointers.push_back(element_pointer(access, element, b_.CreateAdd(start, first)));
    }
  }
  return pointers;
}

// Rows become columns: 4 x 4 squares by unpacking, then squares by larger steps.
void BodyEmitter::transpose(std::vector<llvm::Value*>& rows) {
  const size_t size = rows.size();
  auto shuffle = [&](llvm::Value* a, llvm::Value* b, auto element) {
    std::vector<int> mask;
    for (size_t p = 0; p < size; ++p) mask.push_back(static_cast<int>(element(p)));
    return b_.CreateShuffleVector(a, b, mask);
  };
  for (size_t i = 0; i < size; i += 4) {
    std::array<llvm::Value*, 4> halves;
    for (size_t k = 0; k < 4; ++k) {
      // Elements 0 and 1, or 2 and 3, of each square of rows i, i+1 or i+2, i+3.
      const size_t from = k % 2 * 2;
      halves[k] = shuffle(rows[i + k / 2 * 2], rows[i + k / 2 * 2 + 1], [&](size_t p) {
        return p / 4 * 4 + from + p % 4 / 2 + (p % 2 == 1 ? size : 0);
      });
    }
    for (size_t k = 0; k < 4; ++k) {
      const size_t from = k % 2 * 2;
      rows[i + k] = shuffle(halves[k / 2], halves[2 + k / 2], [&](size_t p) {
        return p / 4 * 4 + from + p % 2 + (p % 4 >= 2 ? size : 0);
      });
    }
  }
  for (size_t step = 4; step < size; step *= 2) {
    for (size_t i = 0; i < size; ++i) {
      if ((i & step) != 0) continue;
      llvm::Value* a = rows[i];
      llvm::Value* b = rows[i + step];
      rows[i] = shuffle(a, b, [&](size_t p) { return (p & step) == 0 ? p : size + p - step; });
      rows[i + step] =
          shuffle(a, b, [&](size_t p) { return (p & step) == 0 ? p + step : size + p; });
    }
  }
}

void BodyEmitter::stage_block(const std::vector<StagedLoad>& loads, llvm::Value* first) {
  for (const StagedLoad& load : loads) {
    auto* type =
        llvm::FixedVectorType::get(scalar_type(f_[load.load].type), static_cast<unsigned>(lanes_));
    std::vector<llvm::Value*> rows;
    for (llvm::Value* pointer : staged_pointers(load, first)) {
      rows.push_back(b_.CreateAlignedLoad(type, pointer, llvm::Align(4)));
    }
    transpose(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      b_.CreateStore(rows[i], b_.CreateConstInBoundsGEP1_64(type, load.stage, i));
    }
  }
}

// The last block, of `count` iterations: element by element.
void BodyEmitter::stage_rest(const std::vector<StagedLoad>& loads, llvm::Value* first,
                             llvm::Value* count) {
  std::vector<std::vector<llvm::Value*>> pointers;
  for (const StagedLoad& load : loads) pointers.push_back(staged_pointers(load, first));
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* body = block("stage_rest");
  llvm::BasicBlock* done = block("stage_rest_done");
  b_.CreateBr(body);
  b_.SetInsertPoint(body);
  llvm::PHINode* at = b_.CreatePHI(count->getType(), 2);
  at->addIncoming(llvm::ConstantInt::get(count->getType(), 0), before);
  for (size_t i = 0; i < loads.size(); ++i) {
    llvm::Type* element = scalar_type(f_[loads[i].load].type);
    auto* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes_));
    llvm::Value* value = llvm::PoisonValue::get(type);
    for (size_t lane = 0; lane < pointers[i].size(); ++lane) {
      llvm::Value* pointer = b_.CreateGEP(element, pointers[i][lane], at);
      value = b_.CreateInsertElement(value, b_.CreateAlignedLoad(element, pointer, llvm::Align(4)),
                                     lane);
    }
    b_.CreateStore(value, b_.CreateGEP(type, loads[i].stage, at));
  }
  llvm::Value* next = b_.CreateAdd(at, llvm::ConstantInt::get(count->getType(), 1));
  at->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpSLT(next, count), body, done);
  b_.SetInsertPoint(done);
}

// for (first = 0; first < count; first += lanes) { stage; for (i = 0; i < lanes; ++i) ... }
void BodyEmitter::emit_staged_loop(Value v, std::vector<StagedLoad> loads) {
  const Instruction& inst = f_[v];
  const auto number = static_cast<int32_t>(inst.immediate);
  const kernel::RegionBody& region = f_.region(number);
  const size_t carried = region.yields.size();
  llvm::Value* count = scalar(inst.arguments[0]);
  llvm::Type* type = count->getType();
  auto index = [&](int64_t value) {
    return llvm::ConstantInt::get(llvm::cast<llvm::IntegerType>(type),
                                  static_cast<uint64_t>(value));
  };
  {
    llvm::IRBuilderBase::InsertPointGuard guard(b_);
    llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
    b_.SetInsertPoint(&entry, entry.begin());
    for (StagedLoad& load : loads) {
      auto* element = llvm::FixedVectorType::get(scalar_type(f_[load.load].type),
                                                 static_cast<unsigned>(lanes_));
      load.stage = b_.CreateAlloca(element, b_.getInt64(static_cast<uint64_t>(lanes_)));
    }
  }
  std::vector<llvm::Value*> initial;
  for (size_t i = 0; i < carried; ++i) {
    initial.push_back(value_as(inst.arguments[i + 1], region.parameters[i + 1]));
  }
  const auto* known = llvm::dyn_cast<llvm::ConstantInt>(count);
  const bool always_runs = known != nullptr && known->getSExtValue() > 0;
  const bool is_whole = always_runs && known->getSExtValue() % lanes_ == 0;

  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* outer = block("stage");
  llvm::BasicBlock* body = block("loop");
  llvm::BasicBlock* block_done = block("block_done");
  llvm::BasicBlock* done = block("loop_done");
  if (always_runs) {
    b_.CreateBr(outer);
  } else {
    b_.CreateCondBr(b_.CreateICmpSGT(count, index(0)), outer, done);
  }
  b_.SetInsertPoint(outer);
  llvm::PHINode* first = b_.CreatePHI(type, 2);
  first->addIncoming(index(0), before);
  std::vector<llvm::PHINode*> outer_phis;
  for (size_t i = 0; i < carried; ++i) {
    outer_phis.push_back(b_.CreatePHI(initial[i]->getType(), 2));
    outer_phis[i]->addIncoming(initial[i], before);
  }
  llvm::Value* here = index(lanes_);
  if (is_whole) {
    stage_block(loads, first);
  } else {
    llvm::Value* left = b_.CreateSub(count, first);
    llvm::Value* is_full = b_.CreateICmpSGE(left, here);
    here = b_.CreateSelect(is_full, here, left);
    llvm::BasicBlock* full = block("stage_full");
    llvm::BasicBlock* part = block("stage_part");
    llvm::BasicBlock* staged = block("staged");
    b_.CreateCondBr(is_full, full, part);
    b_.SetInsertPoint(full);
    stage_block(loads, first);
    b_.CreateBr(staged);
    b_.SetInsertPoint(part);
    stage_rest(loads, first, here);
    b_.CreateBr(staged);
    b_.SetInsertPoint(staged);
  }
  llvm::BasicBlock* enter = b_.GetInsertBlock();
  b_.CreateBr(body);

  b_.SetInsertPoint(body);
  llvm::PHINode* at = b_.CreatePHI(type, 2);
  at->addIncoming(index(0), enter);
  std::vector<llvm::PHINode*> phis;
  for (size_t i = 0; i < carried; ++i) {
    phis.push_back(b_.CreatePHI(initial[i]->getType(), 2));
    phis[i]->addIncoming(outer_phis[i], enter);
    define(region.parameters[i + 1], phis[i]);
  }
  set_scalar(region.parameters[0], b_.CreateAdd(first, at));
  for (const StagedLoad& load : loads) {
    auto* element =
        llvm::FixedVectorType::get(scalar_type(f_[load.load].type), static_cast<unsigned>(lanes_));
    define(load.load, b_.CreateLoad(element, b_.CreateGEP(element, load.stage, at)));
  }
  begin_region(number);
  for (Value inner : region.instructions) {
    const bool is_staged = std::any_of(loads.begin(), loads.end(),
                                       [&](const StagedLoad& load) { return load.load == inner; });
    if (!is_staged && is_emitted(inner)) emit(inner);
  }
  std::vector<llvm::Value*> next;
  for (size_t i = 0; i < carried; ++i) {
    next.push_back(value_as(region.yields[i], region.parameters[i + 1]));
  }
  llvm::Value* following = b_.CreateAdd(at, index(1));
  llvm::BasicBlock* latch = b_.GetInsertBlock();
  at->addIncoming(following, latch);
  for (size_t i = 0; i < carried; ++i) phis[i]->addIncoming(next[i], latch);
  b_.CreateCondBr(b_.CreateICmpSLT(following, here), body, block_done);

  b_.SetInsertPoint(block_done);
  llvm::Value* next_first = b_.CreateAdd(first, index(lanes_));
  first->addIncoming(next_first, block_done);
  for (size_t i = 0; i < carried; ++i) outer_phis[i]->addIncoming(next[i], block_done);
  b_.CreateCondBr(b_.CreateICmpSLT(next_first, count), outer, done);

  b_.SetInsertPoint(done);
  if (always_runs) {
    loop_results_[static_cast<size_t>(number)] = next;
  } else {
    set_loop_results(number, initial, before, next, block_done);
  }
}

}  // namespace hekla::cpu
