// SPDX-License-Identifier: Apache-2.0
// Entry: the entry point that all shaders of this folder have, and how they are called
// (launch/kernel_abi.h): push constants, argument table, numbers of workgroups. Of this folder
// alone. One thread, one module.
#pragma once

#include <vector>

#include "backends/vulkan/codegen/bits.h"
#include "backends/vulkan/codegen/module.h"

namespace hekla::vulkan::codegen {

class Entry {
 public:
  explicit Entry(Module& module) : m_(module), b_(module.builder()) {}
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  // `main` with so many invocations, and the push constants that lead to a table of these members,
  // 64 bits each; one at least. Of KernelPush::constants the first `constants` are looked at.
  // Afterwards the build point is in it.
  void begin(uint32_t workgroup_size, const std::vector<spv::Id>& members, unsigned constants = 0);
  // A variable of the module that `main` uses.
  void add(spv::Id variable) { entry_->addIdOperand(variable); }
  // One number, or a vector of them, whose id is wrapped as if it were one.
  Bits built_in(spv::BuiltIn which, const char* name, int size = 3);
  Bits component(Bits vector, unsigned index) {
    return {&m_, 32, b_.createCompositeExtract(vector.id(), m_.uint_type(32), index)};
  }
  // One of these constants, of 32 bits.
  Bits constant(unsigned number) { return {&m_, 32, push_constant(2 + number, m_.uint_type(32))}; }
  // The first workgroup of the dispatch, and this one's number in the logical grid, of 32 bits.
  Bits first_group();
  Bits group();
  // The table.
  spv::Id table();
  // Its member, of this type.
  spv::Id table_member(spv::Id table, unsigned index, spv::Id type);
  void end();

 private:
  spv::Id push_constant(unsigned index, spv::Id type);

  Module& m_;
  spv::Builder& b_;
  spv::Function* main_ = nullptr;
  spv::Instruction* entry_ = nullptr;
  spv::Id push_constants_ = 0;
  spv::Id table_type_ = 0;
};

}  // namespace hekla::vulkan::codegen
