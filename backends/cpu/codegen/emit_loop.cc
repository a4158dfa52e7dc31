// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/codegen/emit_loop.h"

#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <unordered_map>

#include "backends/cpu/codegen/emit_units.h"

namespace hekla::cpu {
namespace {

using plan::Slice;

class LoopEmitter {
 public:
  LoopEmitter(const LoopCode& code, const std::string& symbol, llvm::Module& module)
      : code_(code), context_(module.getContext()), b_(context_) {
    const size_t bases = code.memory.bases().size();
    FunctionStart start = begin_function(code.target, symbol, bases + 1, b_, module);
    function_ = start.function;
    ends_ = start.operands.back();
    bases_ = std::move(start.operands);
    bases_.pop_back();
  }

  void emit() {
    emit(code_.loop);
    b_.CreateRetVoid();
    tell_of_memory();
  }

 private:
  llvm::BasicBlock* block(const char* name) { return llvm::BasicBlock::Create(context_, name); }
  void begin(llvm::BasicBlock* block) {
    block->insertInto(function_);
    b_.SetInsertPoint(block);
  }

  llvm::Value* pointer(const Slice& slice) {
    if (slice.bytes == 0) return bases_[code_.memory.base_of(slice)];
    llvm::Value*& made = pointers_[{code_.memory.base_of(slice), slice.offset}];
    if (made == nullptr) {
      llvm::IRBuilderBase::InsertPointGuard guard(b_);
      llvm::BasicBlock& entry = function_->getEntryBlock();
      b_.SetInsertPoint(&entry, entry.getTerminator() != nullptr
                                    ? entry.getTerminator()->getIterator()
                                    : entry.end());
      // An instruction of its own even at offset 0, by which the region is found.
      made = b_.Insert(llvm::GetElementPtrInst::CreateInBounds(
          b_.getInt8Ty(), bases_[code_.memory.base_of(slice)],
          {b_.getInt64(static_cast<uint64_t>(slice.offset))}));
      regions_[made] = code_.memory.region_of(slice);
    }
    return made;
  }

  void emit(const plan::Steps& steps) {
    for (const plan::Step& step : steps) emit(step);
  }
  void emit(const plan::Step& step) {
    std::visit([this](const auto& what) { emit(what); }, step.what);
  }

  // Whoever makes the code takes none of these.
  template <typename Other>
  void emit(const Other&) {}

  void emit(const plan::KernelStep& step) {
    const auto it = std::find_if(code_.kernels.begin(), code_.kernels.end(),
                                 [&](const auto& one) { return one.number == step.kernel; });
    if (it == code_.kernels.end()) return;
    std::vector<llvm::Value*> operands;
    for (const Slice& slice : step.operands) operands.push_back(pointer(slice));
    const kernel::Kernel& kernel = code_.plan.kernels[static_cast<size_t>(step.kernel)];
    emit_all_units({kernel, *it->plan, code_.target, it->may_alias}, b_, operands,
                   code_.most_unrolled);
  }

  void emit(const plan::RowsStep& rows) { emit(rows.steps); }

  // In pieces of a vector, which kernels store and load.
  void emit(const plan::CopyStep& step) {
    if (step.from == step.to || step.from.bytes == 0) return;
    constexpr int64_t kMostPieces = 16;
    llvm::Value* from = pointer(step.from);
    llvm::Value* to = pointer(step.to);
    const auto bytes = static_cast<uint64_t>(step.from.bytes);
    const int64_t most = code_.target.vector_bits / 8;
    if (step.from.bytes > kMostPieces * most) {
      b_.CreateMemMove(to, llvm::Align(1), from, llvm::Align(1), bytes);
      return;
    }
    std::vector<std::pair<llvm::Value*, int64_t>> pieces;
    for (int64_t at = 0, size = most; at < step.from.bytes; at += size) {
      while (size > step.from.bytes - at) size /= 2;
      llvm::Value* place = b_.CreateConstGEP1_64(b_.getInt8Ty(), from, static_cast<uint64_t>(at));
      llvm::Type* type = b_.getIntNTy(static_cast<unsigned>(size * 8));
      pieces.emplace_back(b_.CreateAlignedLoad(type, place, llvm::Align(1)), at);
    }
    for (const auto& [value, at] : pieces) {
      llvm::Value* place = b_.CreateConstGEP1_64(b_.getInt8Ty(), to, static_cast<uint64_t>(at));
      b_.CreateAlignedStore(value, place, llvm::Align(1));
    }
  }

  // Ends an iteration: another one where `more` and unless the launch was called off, in which case
  // the loops around this one end as well. That is looked at here and not in front, since what is
  // written in every iteration that begins can be kept in registers.
  void end_iteration(llvm::Value* more, llvm::BasicBlock* iteration, llvm::BasicBlock* done) {
    // Volatile, as another thread writes it.
    llvm::Value* ends = b_.CreateLoad(b_.getInt8Ty(), ends_, true);
    more = b_.CreateAnd(more, b_.CreateICmpEQ(ends, b_.getInt8(0)));
    b_.CreateCondBr(more, iteration, done);
  }

  void emit(const plan::RepeatStep& loop) {
    if (loop.count == 0) return;
    llvm::BasicBlock* before = b_.GetInsertBlock();
    llvm::BasicBlock* iteration = block("iteration");
    llvm::BasicBlock* done = block("done");
    b_.CreateBr(iteration);
    begin(iteration);
    llvm::PHINode* left = b_.CreatePHI(b_.getInt64Ty(), 2, "left");
    left->addIncoming(b_.getInt64(static_cast<uint64_t>(loop.count)), before);
    emit(loop.body);
    llvm::Value* next = b_.CreateSub(left, b_.getInt64(1));
    left->addIncoming(next, b_.GetInsertBlock());
    end_iteration(b_.CreateICmpNE(next, b_.getInt64(0)), iteration, done);
    begin(done);
  }

  // The condition stands in front of the loop and at the end of an iteration, for the same reason.
  void emit(const plan::WhileStep& loop) {
    llvm::BasicBlock* iteration = block("iteration");
    llvm::BasicBlock* done = block("done");
    emit(loop.condition);
    b_.CreateCondBr(is_true(loop.predicate), iteration, done);
    begin(iteration);
    emit(loop.body);
    emit(loop.condition);
    end_iteration(is_true(loop.predicate), iteration, done);
    begin(done);
  }

  llvm::Value* is_true(const Slice& predicate) {
    return b_.CreateICmpNE(b_.CreateLoad(b_.getInt8Ty(), pointer(predicate)), b_.getInt8(0));
  }

  void emit(const plan::BranchStep& step) {
    llvm::BasicBlock* done = block("branch_done");
    std::vector<llvm::BasicBlock*> branches;
    for (size_t i = 0; i < step.branches.size(); ++i) branches.push_back(block("branch"));
    if (step.selector.bytes == 1) {
      b_.CreateCondBr(is_true(step.selector), branches[0], branches[1]);
    } else {
      // What is out of range takes the last one.
      llvm::Value* number =
          b_.CreateAlignedLoad(b_.getInt32Ty(), pointer(step.selector), llvm::Align(1));
      llvm::SwitchInst* choice = b_.CreateSwitch(number, branches.back());
      for (size_t i = 0; i + 1 < branches.size(); ++i) {
        choice->addCase(b_.getInt32(static_cast<uint32_t>(i)), branches[i]);
      }
    }
    for (size_t i = 0; i < branches.size(); ++i) {
      begin(branches[i]);
      emit(step.branches[i]);
      b_.CreateBr(done);
    }
    begin(done);
  }

  // The slice that a pointer was made of; null: memory of the function's own.
  const llvm::Value* slice_of(const llvm::Value* value) const {
    while (!regions_.contains(value)) {
      const auto* step = llvm::dyn_cast<llvm::GetElementPtrInst>(value);
      if (step == nullptr) return nullptr;
      value = step->getPointerOperand();
    }
    return value;
  }

  // Loads and stores of different regions do not meet, and none meets the byte that ends the loop.
  void tell_of_memory() {
    llvm::MDBuilder metadata(context_);
    llvm::MDNode* domain = metadata.createAnonymousAliasScopeDomain("loop");
    const size_t count = code_.memory.region_count() + 1;
    std::vector<llvm::Metadata*> scopes;
    for (size_t i = 0; i < count; ++i) {
      scopes.push_back(metadata.createAnonymousAliasScope(domain, "region"));
    }
    std::vector<llvm::MDNode*> of, others;
    for (size_t i = 0; i < count; ++i) {
      of.push_back(llvm::MDNode::get(context_, {scopes[i]}));
      std::vector<llvm::Metadata*> rest = scopes;
      rest.erase(rest.begin() + static_cast<ptrdiff_t>(i));
      others.push_back(llvm::MDNode::get(context_, rest));
    }
    for (llvm::BasicBlock& block : *function_) {
      for (llvm::Instruction& one : block) {
        const llvm::Value* at = address_of(one);
        if (at == nullptr) continue;
        size_t region = count - 1;
        if (at != ends_) {
          const llvm::Value* slice = slice_of(at);
          if (slice == nullptr) continue;
          region = regions_.at(slice);
        }
        one.setMetadata(llvm::LLVMContext::MD_alias_scope, of[region]);
        one.setMetadata(llvm::LLVMContext::MD_noalias, others[region]);
      }
    }
  }

  static const llvm::Value* address_of(const llvm::Instruction& one) {
    if (const auto* load = llvm::dyn_cast<llvm::LoadInst>(&one)) return load->getPointerOperand();
    if (const auto* store = llvm::dyn_cast<llvm::StoreInst>(&one)) {
      return store->getPointerOperand();
    }
    const auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(&one);
    if (call == nullptr) return nullptr;
    switch (call->getIntrinsicID()) {
      case llvm::Intrinsic::masked_load:
      case llvm::Intrinsic::masked_gather:
        return call->getArgOperand(0);
      case llvm::Intrinsic::masked_store:
      case llvm::Intrinsic::masked_scatter:
        return call->getArgOperand(1);
      default:
        return nullptr;
    }
  }

  struct PlaceHash {
    size_t operator()(const std::pair<size_t, int64_t>& place) const {
      return place.first * 0x9E3779B97F4A7C15U + static_cast<size_t>(place.second);
    }
  };

  const LoopCode& code_;
  llvm::LLVMContext& context_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_ = nullptr;
  std::vector<llvm::Value*> bases_;
  llvm::Value* ends_ = nullptr;
  std::unordered_map<std::pair<size_t, int64_t>, llvm::Value*, PlaceHash> pointers_;
  std::unordered_map<const llvm::Value*, size_t> regions_;  // of those pointers
};

}  // namespace

void emit_loop(const LoopCode& code, const std::string& symbol, llvm::Module& module) {
  LoopEmitter(code, symbol, module).emit();
}

}  // namespace hekla::cpu
