// SPDX-License-Identifier: Apache-2.0
// Memory: a kernel's operands in a shader, reached through the argument table of
// launch/kernel_abi.h.
//
// One pointer per operand, to a block with a runtime array of unsigned integers of the access's
// width; floats are cast, so their bits pass unchanged. Operands that may be the same memory as
// another one that is written are declared aliased. One thread.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "backends/compiler/kernel/kernel.h"
#include "backends/vulkan/codegen/bits.h"

namespace hekla::vulkan::codegen {

class Memory {
 public:
  Memory(Module& module, const kernel::Kernel& kernel) : m_(module), kernel_(kernel) {}

  // The push constants; before the entry function's code.
  void declare(spv::Instruction* entry_point);
  // Loads the operands' addresses; the pointers are usable in all blocks that this one dominates.
  void load_table();
  Bits first_group();  // 32 bits

  // `element`: an index of 32 or 64 bits, not negative. Of 1 and 2 bytes: extended to 32 bits.
  spv::Id load(const kernel::Access& access, kernel::ScalarType type, Bits element);
  // `count` neighbours, 2 or 4, of 32 bits each, aligned as one of them; of operands that 32 bits
  // reach (is_narrow).
  std::vector<spv::Id> load_neighbours(const kernel::Access& access, kernel::ScalarType type,
                                       Bits first, int count);
  bool is_narrow(const kernel::Access& access) const;
  void store(const kernel::Access& access, kernel::ScalarType type, Bits element, spv::Id value);

 private:
  int memory_width(const kernel::Access& access) const;
  bool may_alias(size_t operand) const;
  bool is_read_only(size_t operand) const;
  spv::Id word_type(int width);
  spv::Id block_pointer_type(int width, bool is_read_only);
  spv::Id element_pointer(size_t operand, int width, Bits element);
  Bits load_word(size_t operand, int width, Bits element);

  Module& m_;
  const kernel::Kernel& kernel_;
  spv::Id push_constants_ = 0;
  spv::Id table_type_ = 0;
  std::vector<std::set<int>> widths_;  // of the accesses to an operand
  std::map<std::pair<int, bool>, spv::Id> pointer_types_;
  std::vector<std::map<int, spv::Id>> pointers_;  // of an operand, by width
};

}  // namespace hekla::vulkan::codegen
