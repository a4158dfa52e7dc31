// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/codegen/emit_kernel.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/Local.h>

#include <algorithm>

#include "backends/cpu/codegen/emit_units.h"

namespace hekla::cpu {
namespace {

// The loops around the body: units, and the vectors of a unit.
class UnitsEmitter {
 public:
  UnitsEmitter(const KernelCode& code, llvm::IRBuilder<>& builder,
               const std::vector<llvm::Value*>& operands)
      : code_(code),
        schedule_(code.plan.schedule),
        context_(builder.getContext()),
        b_(builder),
        operands_(operands),
        function_(builder.GetInsertBlock()->getParent()) {
    index_type_ =
        code.kernel.index_type == kernel::ScalarType::kI32 ? b_.getInt32Ty() : b_.getInt64Ty();
  }

  void emit(llvm::Value* begin, llvm::Value* end) {
    std::vector<Bodies> bodies = begin_bodies();
    llvm::BasicBlock* before = b_.GetInsertBlock();
    llvm::BasicBlock* header = block("units");
    llvm::BasicBlock* unit = block("unit");
    llvm::BasicBlock* exit = block("units_done");
    b_.CreateBr(header);

    b_.SetInsertPoint(header);
    llvm::PHINode* number = b_.CreatePHI(b_.getInt64Ty(), 2, "unit");
    number->addIncoming(begin, before);
    b_.CreateCondBr(b_.CreateICmpSLT(number, end), unit, exit);

    b_.SetInsertPoint(unit);
    emit_unit(number, bodies);
    number->addIncoming(b_.CreateAdd(number, b_.getInt64(1)), b_.GetInsertBlock());
    b_.CreateBr(header);

    b_.SetInsertPoint(exit);
  }

  void emit_all(int64_t most_unrolled) {
    const auto units = static_cast<uint64_t>(schedule_.units());
    unrolls_ = may_unroll(most_unrolled);
    if (!unrolls_ && units > 1) return emit(b_.getInt64(0), b_.getInt64(units));
    std::vector<Bodies> bodies = begin_bodies();
    for (uint64_t i = 0; i < units; ++i) emit_unit(b_.getInt64(i), bodies);
  }

 private:
  using Bodies = std::vector<BodyEmitter>;

  // By kind of row, by segment.
  std::vector<Bodies> begin_bodies() {
    std::vector<Bodies> bodies;
    for (const RowKind& kind : code_.plan.kinds) {
      bodies.emplace_back();
      for (const Segment& segment : kind.segments) {
        bodies.back().emplace_back(code_, segment.analysis, b_, operands_).emit_level(Level::kCall);
      }
    }
    return bodies;
  }

  bool may_unroll(int64_t most) const {
    if (schedule_.chunks > 1 || schedule_.tile_dimension >= 0 || code_.plan.kinds.size() > 1 ||
        code_.kernel.body.region_count() > 1) {
      return false;
    }
    int64_t vectors = 0;
    for (const Segment& segment : code_.plan.kinds.front().segments) {
      vectors += segment.range.size() / unrolled_lanes(segment.range.size());
    }
    vectors *= schedule_.rows;
    constexpr int64_t kMostInstructions = 50;  // of a vector, where there are so many
    return vectors <= most &&
           vectors * static_cast<int64_t>(code_.kernel.body.size()) <= most * kMostInstructions;
  }

  // Of vectors without a rest; a point alone where there would be one.
  int unrolled_lanes(int64_t length) const {
    int lanes = schedule_.lanes;
    while (lanes > length) lanes /= 2;
    return length % lanes == 0 ? lanes : 1;
  }

  llvm::BasicBlock* block(const char* name) {
    return llvm::BasicBlock::Create(context_, name, function_);
  }

  llvm::ConstantInt* index(int64_t value) {
    return llvm::ConstantInt::get(llvm::cast<llvm::IntegerType>(index_type_),
                                  static_cast<uint64_t>(value));
  }

  // Sets the grid indices of the unit, then runs its points.
  void emit_unit(llvm::Value* number, std::vector<Bodies>& bodies) {
    llvm::Value* row = number;
    llvm::Value* low = index(0);
    llvm::Value* high = index(schedule_.row);
    if (schedule_.chunks > 1) {
      llvm::Value* chunks = b_.getInt64(static_cast<uint64_t>(schedule_.chunks));
      llvm::Value* chunk = number;
      if (schedule_.rows > 1) {
        row = b_.CreateUDiv(number, chunks);
        chunk = b_.CreateSub(number, b_.CreateMul(row, chunks));
      }
      chunk = b_.CreateTrunc(chunk, index_type_);
      low = b_.CreateMul(chunk, index(schedule_.chunk));
      high = b_.CreateSelect(b_.CreateICmpEQ(chunk, index(schedule_.chunks - 1)),
                             index(schedule_.row), b_.CreateAdd(low, index(schedule_.chunk)));
    }
    const auto& grid = code_.kernel.grid;
    std::vector<llvm::Value*> indices(grid.size());
    int64_t left = schedule_.rows;
    for (size_t d = grid.size(); d-- > 0;) {
      if (static_cast<int>(d) == lane_dimension_) continue;
      llvm::Value* at = row;
      const bool is_tiled = static_cast<int>(d) == schedule_.tile_dimension;
      const int64_t size =
          is_tiled ? (grid[d] + schedule_.tile_rows - 1) / schedule_.tile_rows : grid[d];
      left /= size;
      if (size == 1) {
        indices[d] = index(0);
        continue;
      }
      if (left > 1) {
        llvm::Value* extent = b_.getInt64(static_cast<uint64_t>(size));
        llvm::Value* next = b_.CreateUDiv(row, extent);
        at = b_.CreateSub(row, b_.CreateMul(next, extent));
        row = next;
      }
      indices[d] = b_.CreateTrunc(at, index_type_);
    }
    if (schedule_.tile_dimension >= 0) return emit_tile(low, high, indices, bodies[0][0]);
    llvm::BasicBlock* done = bodies.size() > 1 ? block("row_end") : nullptr;
    for (size_t kind = 0; kind + 1 < bodies.size(); ++kind) {
      llvm::BasicBlock* here = block("row_kind");
      llvm::BasicBlock* next = block("row_other");
      b_.CreateCondBr(emit_is_inside(code_.plan.kinds[kind].box, indices), here, next);
      b_.SetInsertPoint(here);
      emit_row(low, high, indices, code_.plan.kinds[kind].segments, bodies[kind]);
      b_.CreateBr(done);
      b_.SetInsertPoint(next);
    }
    emit_row(low, high, indices, code_.plan.kinds.back().segments, bodies.back());
    if (done == nullptr) return;
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
  }

  // [low, high) of some rows: vectors, then the points that are left, each for all of the rows.
  void emit_tile(llvm::Value* low, llvm::Value* high, std::vector<llvm::Value*> indices,
                 BodyEmitter& body) {
    const auto dimension = static_cast<size_t>(schedule_.tile_dimension);
    const int64_t size = code_.kernel.grid[dimension];
    llvm::Value* first = b_.CreateMul(indices[dimension], index(schedule_.tile_rows));
    llvm::Value* end = b_.CreateAdd(first, index(schedule_.tile_rows));
    if (size % schedule_.tile_rows != 0) {
      end = b_.CreateSelect(b_.CreateICmpSLT(end, index(size)), end, index(size));
    }
    const auto& parameters = code_.kernel.body.body().parameters;
    // Staged from here on, so that the last tile reads no rows beyond the others.
    llvm::Value* base = first;
    if (size % schedule_.tile_rows != 0) {
      llvm::Value* last = index(size - schedule_.tile_rows);
      base = b_.CreateSelect(b_.CreateICmpSLT(first, last), first, last);
    }
    const auto stage = [&](llvm::Value* at) {
      indices[dimension] = base;
      for (size_t d = 0; d < indices.size(); ++d) {
        if (indices[d] != nullptr) body.set_scalar(parameters[d], indices[d]);
      }
      body.begin_points(schedule_.lanes);
      body.emit_level(Level::kRow);
      body.set_scalar(parameters[static_cast<size_t>(lane_dimension_)], at);
      body.stage(schedule_.staged, schedule_.tile_rows);
    };
    const auto all_rows = [&](llvm::Value* at, int lanes) {
      const bool is_staged = !schedule_.staged.empty() && lanes == schedule_.lanes;
      if (is_staged) stage(at);
      llvm::PHINode* row = begin_loop(first);
      body.use_staged(is_staged ? b_.CreateSub(row, base) : nullptr);
      indices[dimension] = row;
      for (size_t d = 0; d < indices.size(); ++d) {
        if (indices[d] != nullptr) body.set_scalar(parameters[d], indices[d]);
      }
      body.begin_points(lanes);
      body.emit_level(Level::kRow);
      emit_vector(at, lanes, body);
      llvm::Value* next = b_.CreateAdd(row, index(1));
      end_loop(row, next, b_.CreateICmpSLT(next, end));
    };
    llvm::PHINode* at = begin_loop(low);
    all_rows(at, schedule_.lanes);
    llvm::Value* next = b_.CreateNSWAdd(at, index(schedule_.lanes));
    llvm::Value* last = b_.CreateSub(high, index(schedule_.lanes));
    end_loop(at, next, b_.CreateICmpSLE(next, last));
    if (schedule_.row % schedule_.lanes == 0) return;
    llvm::BasicBlock* rest = block("tile_rest");
    llvm::BasicBlock* done = block("tile_done");
    b_.CreateCondBr(b_.CreateICmpSLT(next, high), rest, done);
    b_.SetInsertPoint(rest);
    llvm::PHINode* point = begin_loop(next);
    all_rows(point, 1);
    llvm::Value* after = b_.CreateAdd(point, index(1));
    end_loop(point, after, b_.CreateICmpSLT(after, high));
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
  }

  llvm::Value* emit_is_inside(const Box& box, const std::vector<llvm::Value*>& indices) {
    llvm::Value* inside = b_.getTrue();
    for (size_t d = 0; d < box.size(); ++d) {
      if (indices[d] == nullptr || box[d].size() == code_.kernel.grid[d]) continue;
      // As unsigned, so that what is before the range is beyond it.
      llvm::Value* distance = b_.CreateSub(indices[d], index(box[d].begin));
      inside = b_.CreateAnd(inside, b_.CreateICmpULT(distance, index(box[d].size())));
    }
    return inside;
  }

  void emit_row(llvm::Value* low, llvm::Value* high, const std::vector<llvm::Value*>& indices,
                const std::vector<Segment>& segments, Bodies& bodies) {
    const auto& parameters = code_.kernel.body.body().parameters;
    for (BodyEmitter& body : bodies) {
      for (size_t d = 0; d < indices.size(); ++d) {
        if (indices[d] != nullptr) body.set_scalar(parameters[d], indices[d]);
      }
      body.emit_level(Level::kRow);
    }
    for (size_t i = 0; i < bodies.size(); ++i) {
      if (schedule_.chunks == 1) {
        emit_points(segments[i].range, bodies[i]);
      } else if (bodies.size() == 1) {
        emit_vectors(low, high, schedule_.lanes, schedule_.is_whole(), bodies[i]);
      } else {
        emit_part(low, high, segments[i].range, bodies[i]);
      }
    }
  }

  // Points of which is known where they are.
  void emit_points(const Range& range, BodyEmitter& body) {
    const int64_t length = range.size();
    if (unrolls_) {
      const int lanes = unrolled_lanes(length);
      for (int64_t at = range.begin; at < range.end; at += lanes) {
        emit_vector(index(at), lanes, body);
      }
      return;
    }
    int lanes = schedule_.lanes;
    while (lanes > length) lanes /= 2;
    if (length == lanes) return emit_vector(index(range.begin), lanes, body);
    emit_vectors(index(range.begin), index(range.end), lanes, length % lanes == 0, body);
  }

  // The part of [low, high) that lies in `range`: vectors if it is long enough.
  void emit_part(llvm::Value* low, llvm::Value* high, const Range& range, BodyEmitter& body) {
    llvm::Value* begin = index(range.begin);
    begin = b_.CreateSelect(b_.CreateICmpSLT(low, begin), begin, low);
    llvm::Value* end = index(range.end);
    end = b_.CreateSelect(b_.CreateICmpSLT(end, high), end, high);
    llvm::BasicBlock* vectors = block("part_vectors");
    llvm::BasicBlock* rest = block("part_short");
    llvm::BasicBlock* points = block("part_points");
    llvm::BasicBlock* done = block("part_done");
    llvm::Value* length = b_.CreateSub(end, begin);
    b_.CreateCondBr(b_.CreateICmpSGE(length, index(schedule_.lanes)), vectors, rest);
    b_.SetInsertPoint(vectors);
    emit_vectors(begin, end, schedule_.lanes, false, body);
    b_.CreateBr(done);
    b_.SetInsertPoint(rest);
    b_.CreateCondBr(b_.CreateICmpSGT(length, index(0)), points, done);
    b_.SetInsertPoint(points);
    llvm::PHINode* at = begin_loop(begin);
    emit_vector(at, 1, body);
    llvm::Value* next = b_.CreateAdd(at, index(1));
    end_loop(at, next, b_.CreateICmpSLT(next, end));
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
  }

  // [low, high), at least `lanes` points; `is_whole`: a multiple of them.
  void emit_vectors(llvm::Value* low, llvm::Value* high, int lanes, bool is_whole,
                    BodyEmitter& body) {
    llvm::Value* last = b_.CreateSub(high, index(lanes));
    if (is_whole || !code_.may_alias) {
      // With a rest the last vector is moved back to end with the row: points run twice, with the
      // same result.
      llvm::PHINode* at = begin_loop(low);
      emit_vector(at, lanes, body);
      llvm::Value* next = b_.CreateNSWAdd(at, index(lanes));
      llvm::Value* more = b_.CreateICmpSLT(at, last);
      if (!is_whole) {
        next = b_.CreateSelect(b_.CreateICmpSLT(next, last), next, last);
      }
      end_loop(at, next, more);
      return;
    }
    // In place the last vector must read what the others have not written yet: it is computed
    // first, and stored last.
    const bool defers = body.may_defer_stores();
    if (defers) {
      body.defer_stores();
      emit_vector(last, lanes, body);
    }
    BodyEmitter::Deferred deferred = body.take_deferred();
    llvm::PHINode* at = begin_loop(low);
    emit_vector(at, lanes, body);
    llvm::Value* next = b_.CreateNSWAdd(at, index(lanes));
    end_loop(at, next, b_.CreateICmpSLE(next, last));
    if (defers) return body.emit_deferred(deferred);
    llvm::BasicBlock* before = b_.GetInsertBlock();
    llvm::BasicBlock* tail = block("tail");
    llvm::BasicBlock* done = block("done");
    b_.CreateCondBr(b_.CreateICmpSLT(next, high), tail, done);
    b_.SetInsertPoint(tail);
    llvm::PHINode* point = b_.CreatePHI(index_type_, 2);
    point->addIncoming(next, before);
    emit_vector(point, 1, body);
    llvm::Value* after = b_.CreateAdd(point, index(1));
    point->addIncoming(after, b_.GetInsertBlock());
    b_.CreateCondBr(b_.CreateICmpSLT(after, high), tail, done);
    b_.SetInsertPoint(done);
  }

  // A loop that runs at least once.
  llvm::PHINode* begin_loop(llvm::Value* first) {
    llvm::BasicBlock* before = b_.GetInsertBlock();
    llvm::BasicBlock* loop = block("vectors");
    b_.CreateBr(loop);
    b_.SetInsertPoint(loop);
    llvm::PHINode* at = b_.CreatePHI(index_type_, 2, "at");
    at->addIncoming(first, before);
    return at;
  }

  void end_loop(llvm::PHINode* at, llvm::Value* next, llvm::Value* more) {
    llvm::BasicBlock* done = block("row_done");
    at->addIncoming(next, b_.GetInsertBlock());
    b_.CreateCondBr(more, at->getParent(), done);
    b_.SetInsertPoint(done);
  }

  void emit_vector(llvm::Value* at, int lanes, BodyEmitter& body) {
    body.begin_points(lanes);
    if (lane_dimension_ >= 0) {
      body.set_scalar(code_.kernel.body.body().parameters[static_cast<size_t>(lane_dimension_)],
                      at);
    }
    body.emit_level(Level::kPoint);
  }

  const KernelCode& code_;
  const Schedule& schedule_;
  const int lane_dimension_ = code_.plan.kinds.front().segments.front().analysis.lane_dimension();
  llvm::LLVMContext& context_;
  llvm::IRBuilder<>& b_;
  const std::vector<llvm::Value*>& operands_;
  llvm::Function* const function_;
  llvm::Type* index_type_ = nullptr;
  bool unrolls_ = false;
};

std::vector<llvm::Value*> load_operands(llvm::IRBuilder<>& b, llvm::Value* table, size_t count) {
  std::vector<llvm::Value*> pointers;
  llvm::MDNode* nothing = llvm::MDNode::get(b.getContext(), {});
  for (size_t i = 0; i < count; ++i) {
    llvm::Value* slot = b.CreateConstGEP1_64(b.getPtrTy(), table, i);
    llvm::LoadInst* pointer = b.CreateLoad(b.getPtrTy(), slot);
    pointer->setMetadata(llvm::LLVMContext::MD_invariant_load, nothing);
    pointers.push_back(pointer);
  }
  return pointers;
}

// Indices of elements that became constant distances from others.
void erase_unused(llvm::Function& function) {
  for (llvm::BasicBlock& block : llvm::reverse(function)) {
    for (llvm::Instruction& one : llvm::make_early_inc_range(llvm::reverse(block))) {
      if (llvm::isInstructionTriviallyDead(&one)) one.eraseFromParent();
    }
  }
}

}  // namespace

bool updates_in_place(const kernel::Kernel& kernel) {
  return std::any_of(
      kernel.operands.begin(), kernel.operands.end(),
      [](const kernel::KernelOperand& operand) { return operand.is_read && operand.is_written; });
}

FunctionStart begin_function(const Target& target, const std::string& symbol, size_t operand_count,
                             llvm::IRBuilder<>& builder, llvm::Module& module) {
  llvm::Type* number = builder.getInt64Ty();
  auto* type =
      llvm::FunctionType::get(builder.getVoidTy(), {builder.getPtrTy(), number, number}, false);
  auto* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  function->addFnAttr("target-cpu", target.cpu);
  if (!target.features.empty()) function->addFnAttr("target-features", target.features);
  function->addFnAttr("prefer-vector-width", std::to_string(target.vector_bits));
  builder.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "entry", function));
  return {function, load_operands(builder, function->getArg(0), operand_count)};
}

void emit_units(const KernelCode& code, llvm::IRBuilder<>& builder,
                const std::vector<llvm::Value*>& operands, llvm::Value* begin, llvm::Value* end) {
  UnitsEmitter(code, builder, operands).emit(begin, end);
}

void emit_all_units(const KernelCode& code, llvm::IRBuilder<>& builder,
                    const std::vector<llvm::Value*>& operands, int64_t most_unrolled) {
  UnitsEmitter(code, builder, operands).emit_all(most_unrolled);
}

void emit_kernel(const KernelCode& code, const std::string& symbol, llvm::Module& module) {
  llvm::IRBuilder<> builder(module.getContext());
  const FunctionStart start =
      begin_function(code.target, symbol, code.kernel.operands.size(), builder, module);
  emit_units(code, builder, start.operands, start.function->getArg(1), start.function->getArg(2));
  builder.CreateRetVoid();
  if (code.kernel.body.region_count() == 1) erase_unused(*start.function);
}

}  // namespace hekla::cpu
