// SPDX-License-Identifier: Apache-2.0
// BodyEmitter: the body of a kernel for one vector of points, as LLVM IR.
//
// Uniform values, and lane 0 of affine ones, are scalars; varying values are vectors. A scalar that
// is needed as a vector is spread right after its definition, so once for all uses. Used by
// emit_kernel.cc only, which sets the grid indices and says when a level's values are emitted.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <vector>

#include "backends/cpu/codegen/emit_kernel.h"
#include "backends/cpu/codegen/narrow_values.h"

namespace hekla::cpu {

class BodyEmitter {
 public:
  // `analysis`: of the points that are to be emitted.
  BodyEmitter(const KernelCode& code, const LaneAnalysis& analysis, llvm::IRBuilder<>& builder,
              std::vector<llvm::Value*> operands);

  // Emits the body's values of this level where the builder stands. The grid indices of this level
  // are set before.
  void emit_level(Level level);
  // From here on one vector of points has `lanes` lanes; forgets the points emitted before.
  void begin_points(int lanes);
  void set_scalar(kernel::Value v, llvm::Value* value);
  // Loads of a tile's rows whose lanes lie apart: `stage` puts those of rows [0, rows) on the
  // stack, a vector each, where the points begun and the values of the row are the first row's;
  // once `use_staged` gave the row's number they come from there.
  void stage(const std::vector<kernel::Value>& loads, int64_t rows);
  void use_staged(llvm::Value* row) { staged_row_ = row; }
  // Whether the stores of some points may be put off until those of others are done.
  bool may_defer_stores() const;
  struct Store {
    llvm::Value* value;
    llvm::Value* pointer;
    llvm::Align align;
  };
  using Deferred = std::vector<Store>;
  // From here on stores are kept back; `take_deferred` gives them and ends it.
  void defer_stores() { defers_ = true; }
  Deferred take_deferred();
  void emit_deferred(const Deferred& stores);

 private:
  bool is_vector(kernel::Value v) const { return lanes_ > 1 && analysis_.is_varying(v); }
  llvm::Type* scalar_type(kernel::ScalarType type) const;
  llvm::Type* type_of(kernel::ScalarType type, bool as_vector) const;
  llvm::Type* memory_type(const kernel::Access& access, kernel::ScalarType type) const;
  llvm::Constant* constant(const kernel::Instruction& inst) const;
  // The value, which is not varying unless there is one lane.
  llvm::Value* scalar(kernel::Value v);
  // The value in all lanes; a scalar when there is one lane.
  llvm::Value* vector(kernel::Value v);
  // An i32 in all lanes, the low bits of it: 8 or 16, or as `vector` has it.
  llvm::Value* lanes_of(kernel::Value v, int width);
  // Bits of the lanes of a value that is an i32; 32 of others.
  int width_of(kernel::Value v) const {
    return is_vector(v) ? narrow_.width(v) : NarrowValues::kWide;
  }
  llvm::Type* narrow_type(int width) const;
  // Builds what follows a value where it is defined, since later uses may stand in blocks that the
  // current one does not dominate.
  llvm::Value* behind(llvm::Value* value, const std::function<llvm::Value*()>& build);
  llvm::Value* spread(llvm::Value* scalar_value, int64_t stride);
  // As `like` is represented.
  llvm::Value* value_as(kernel::Value v, kernel::Value like);
  void define(kernel::Value v, llvm::Value* value);

  void emit(kernel::Value v);
  llvm::Value* near(llvm::Value* value);
  llvm::Value* emit_arithmetic(kernel::Value v);
  // As kernel::evaluate has them: by an instruction or, where the target has none, by integers.
  llvm::Value* emit_half_to_float(llvm::Value* bits, llvm::Type* to);
  llvm::Value* emit_float_to_half(llvm::Value* x, llvm::Type* to);
  llvm::Value* emit_high_product(llvm::Value* a, llvm::Value* b);
  llvm::Value* emit_division(kernel::Op op, llvm::Value* a, llvm::Value* b);
  llvm::Value* intrinsic(llvm::Intrinsic::ID id, llvm::ArrayRef<llvm::Value*> arguments);

  void emit_load(kernel::Value v);
  llvm::Value* load_vector(const kernel::Access& access, llvm::Type* element, kernel::Value index);
  void emit_store(kernel::Value v);
  void store_vector(const kernel::Access& access, llvm::Value* value, kernel::Value index);
  llvm::Value* element_pointer(const kernel::Access& access, llvm::Type* element,
                               llvm::Value* index);
  // Of the first lane. In bodies without regions a constant distance from another one in the same
  // basic block, where there is one: most of what a transform's body would compute is addresses.
  llvm::Value* first_pointer(const kernel::Access& access, llvm::Type* element,
                             kernel::Value index);

  void emit_loop(kernel::Value v);
  void emit_condition(kernel::Value v);
  void emit_counted_loop(kernel::Value v);
  // Behind a region that may not run: values are those of `initial` from `before` and of `next`
  // from `end`.
  void set_loop_results(int32_t number, const std::vector<llvm::Value*>& initial,
                        llvm::BasicBlock* before, const std::vector<llvm::Value*>& next,
                        llvm::BasicBlock* end);
  void emit_divergent_loop(kernel::Value v);
  void emit_region(int32_t region);
  // Before a region's instructions: forgets what was loaded when it was emitted before.
  void begin_region(int32_t region);

  // A load of a loop whose elements are put on the stack in blocks; see emit_staged_loop.cc.
  struct StagedLoad {
    kernel::Value load;
    kernel::Value start;  // its index in iteration 0
    llvm::Value* stage;   // one vector per iteration of a block
  };
  std::vector<StagedLoad> staged_loads(kernel::Value loop) const;
  std::vector<llvm::Value*> staged_pointers(const StagedLoad& load, llvm::Value* first);
  void transpose(std::vector<llvm::Value*>& rows);
  // See emit_strided.cc. Null: not that way.
  llvm::Value* load_strided(llvm::Type* element, llvm::Value* first, int64_t stride,
                            llvm::Align align);
  // Loads or stores of a region that together take memory without gaps.
  struct Group {
    std::vector<kernel::Value> members;  // in the order of memory
    int32_t region = 0;
    std::vector<llvm::Value*> values;  // of the points begun, and of the region where it is emitted
    size_t count = 0;                  // of the values of stores that are there
  };
  void find_groups(kernel::Op op, int32_t region);
  bool touches(kernel::Value v, kernel::Op op, int32_t operand) const;
  bool may_group(const std::vector<kernel::Value>& members) const;
  void find_runs(std::vector<kernel::Value> members, size_t size);
  Group* group_of(kernel::Value v);
  llvm::Value* load_in_group(kernel::Value v, const kernel::Access& access, llvm::Type* element);
  bool store_in_group(kernel::Value v, llvm::Value* value, const kernel::Access& access);
  std::vector<llvm::Value*> interleave(const std::vector<llvm::Value*>& values);
  std::vector<llvm::Value*> deinterleave(const std::vector<llvm::Value*>& values);
  llvm::Value* join(llvm::Value* low, llvm::Value* high);
  void emit_parts_of(const std::vector<kernel::Value>& loads);
  void stage_block(const std::vector<StagedLoad>& loads, llvm::Value* first);
  void stage_rest(const std::vector<StagedLoad>& loads, llvm::Value* first, llvm::Value* count);
  void emit_staged_loop(kernel::Value v, std::vector<StagedLoad> loads);
  llvm::BasicBlock* block(const char* name);

  bool is_emitted(kernel::Value v) const {
    return analysis_.is_needed(v) && analysis_.resolved(v) == v && analysis_.known(v) < 0;
  }
  void put(llvm::Value* value, llvm::Value* pointer, llvm::Align align);

  const KernelCode& code_;
  const LaneAnalysis& analysis_;
  const kernel::Function& f_;
  const NarrowValues narrow_;
  llvm::IRBuilder<>& b_;
  const std::vector<llvm::Value*> operands_;
  int lanes_ = 1;
  llvm::Value* mask_ = nullptr;  // lanes that are active; null: all
  std::vector<llvm::Value*> scalars_;
  std::vector<llvm::Value*> vectors_;
  std::vector<llvm::Value*> narrow_vectors_[2];          // of 8 and of 16 bits
  std::vector<std::vector<llvm::Value*>> loop_results_;  // by region
  std::vector<llvm::Value*> stages_;                     // of tiles, by load
  llvm::Value* staged_row_ = nullptr;
  std::vector<Group> groups_;
  std::vector<int> group_number_;  // by load or store; -1: none
  struct Base {
    int32_t operand;
    llvm::Type* element;
    kernel::Value index;
    llvm::Value* pointer;
  };
  std::vector<Base> bases_;  // of the points begun, in `bases_block_`
  llvm::BasicBlock* bases_block_ = nullptr;
  bool defers_ = false;
  Deferred deferred_;
};

}  // namespace hekla::cpu
