// SPDX-License-Identifier: Apache-2.0
// Module: spv::Builder with this generator's types, constants and float rules. One thread.
//
// Integers are unsigned in SPIR-V's types; signedness is a matter of the instruction. Every float
// operation carries NoContraction, which forbids fusing and reassociation across it.
#pragma once

#include <glslang/SPIRV/GLSL.std.450.h>
#include <glslang/SPIRV/Logger.h>
#include <glslang/SPIRV/SpvBuilder.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/compiler/kernel/scalar.h"
#include "backends/vulkan/codegen/target.h"

namespace hekla::vulkan::codegen {

class Module {
 public:
  explicit Module(const Target& target);

  const Target& target() const { return target_; }
  const FloatTarget& floats(kernel::ScalarType type) const {
    return type == kernel::ScalarType::kF32 ? target_.f32 : target_.f64;
  }

  spv::Id boolean_type() { return builder_.makeBoolType(); }
  spv::Id uint_type(int width);
  spv::Id float_type(int width);
  spv::Id vector_type(spv::Id component, int size) {
    return builder_.makeVectorType(component, size);
  }
  spv::Id type(kernel::ScalarType type);
  spv::Id constant(kernel::ScalarType type, uint64_t bits);
  spv::Id uint_constant(int width, uint64_t value);  // 32 or 64

  spv::Id op(spv::Op opcode, spv::Id type, std::initializer_list<spv::Id> operands);
  // With NoContraction.
  spv::Id float_op(spv::Op opcode, spv::Id type, std::initializer_list<spv::Id> operands);
  spv::Id extended(GLSLstd450 function, spv::Id type, std::initializer_list<spv::Id> operands);
  spv::Id float_extended(GLSLstd450 function, spv::Id type,
                         std::initializer_list<spv::Id> operands);

  // A phi at the start of the current block, to be completed with add_incoming.
  spv::Instruction* phi(spv::Id type);
  static void add_incoming(spv::Instruction* phi, spv::Id value, spv::Block* from) {
    phi->addIdOperand(value);
    phi->addIdOperand(from->getId());
  }

  // An instruction that spv::Builder does not know: operands are ids or literals. `type` 0: it has
  // no result.
  struct Operand {
    uint32_t word = 0;
    bool is_literal = false;
  };
  static Operand literal(uint32_t word) { return {word, true}; }
  spv::Id raw_op(spv::Op opcode, spv::Id type, std::initializer_list<Operand> operands);
  // The same outside of functions: a type (`type` 0) or a constant.
  spv::Id raw_global(spv::Op opcode, spv::Id type, std::initializer_list<Operand> operands);

  spv::Builder& builder() { return builder_; }

  // From here on the lanes of a subgroup, who pass values to each other, stay together: a branch is
  // taken by all of them or none. Whether a value is true in all lanes is `true_in_all_lanes`.
  void keep_lanes_together();
  bool keeps_lanes_together() const { return keeps_lanes_together_; }
  spv::Id true_in_all_lanes(spv::Id condition);

  void require(const char* feature) { features_.insert(feature); }
  std::vector<std::string> features() const { return {features_.begin(), features_.end()}; }
  // Declares the float execution modes of the widths that were used.
  void add_float_modes(spv::Function* entry);
  std::vector<uint32_t> words() const;

 private:
  const Target& target_;
  spv::SpvBuildLogger logger_;
  spv::Builder builder_;
  spv::Id extended_set_ = 0;
  std::map<std::pair<kernel::ScalarType, uint64_t>, spv::Id> constants_;
  std::set<std::string> features_;
  bool keeps_lanes_together_ = false;
  std::set<int> float_widths_;
};

}  // namespace hekla::vulkan::codegen
