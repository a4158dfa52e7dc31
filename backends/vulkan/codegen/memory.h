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
#include "backends/vulkan/codegen/entry.h"

namespace hekla::vulkan::codegen {

// Of one access, on CPU devices, where it costs the same whatever its width; and of a run, whose
// accesses share their address, and which a GPU takes in one.
inline constexpr uint32_t kLongAccessBytes = 8;
inline constexpr uint32_t kLongestRunBytes = 16;

// Types of pointers to operands, which all kernels of a module share.
class BlockTypes {
 public:
  explicit BlockTypes(Module& module) : m_(module) {}

  enum class Use : uint8_t {
    kReadOnly,
    kPrivate,  // written, and what an invocation writes no other one reads
    kShared,   // written by one invocation and read by others of the workgroup, barriers between
  };
  // To a block with a runtime array of words of so many bits.
  spv::Id pointer(int width, Use use);
  // What an element of memory is: an integer, so that bits pass unchanged, where there is one.
  spv::Id word(int width);

 private:
  Module& m_;
  std::map<std::pair<int, Use>, spv::Id> pointers_;
};

// Where the operands of one of several kernels of a shader are (persistent.h).
struct OperandPlaces {
  std::vector<unsigned> members;  // of the table, by operand
  std::vector<bool> is_constant;  // by operand: nothing in the shader writes its memory
};

class Memory {
 public:
  // `has_runs`: load_run and store_run will be used; `long_runs`: runs of elements are words of 64
  // bits, where the device has them. `places`: where other kernels of the shader touch the same
  // memory; null: there are none, and operands are the members of the table.
  Memory(Module& module, BlockTypes& types, const kernel::Kernel& kernel, bool has_runs,
         bool long_runs, const OperandPlaces* places)
      : m_(module),
        types_(types),
        kernel_(kernel),
        places_(places),
        has_runs_(has_runs || long_runs),
        long_runs_(long_runs) {
    find_widths();
  }

  // What the members of the argument table are, of a kernel that has it to itself.
  std::vector<spv::Id> table_members();
  // Loads the operands' addresses; the pointers are usable in all blocks that this one dominates.
  void load_table(Entry& entry);

  // `element`: an index of 32 or 64 bits, not negative. Of 1 and 2 bytes: extended to 32 bits.
  spv::Id load(const kernel::Access& access, kernel::ScalarType type, Bits element);
  // `count` contiguous elements, a power of two and kLongestRunBytes at most, in as few words as
  // their alignment allows: `aligned_to`, a power of two, divides the first index. Of operands that
  // 32 bits reach (is_narrow), elements of 4 bytes at most.
  std::vector<spv::Id> load_run(const kernel::Access& access, kernel::ScalarType type, Bits first,
                                uint32_t count, uint64_t aligned_to);
  // Whether a word of such a run holds several elements.
  bool is_packed(const kernel::Access& access, uint32_t count, uint64_t aligned_to) const {
    const Words words = words_of(access, count, aligned_to);
    return words.count > 0 && words.width > access.bytes * 8;
  }
  bool is_narrow(const kernel::Access& access) const;
  // Whether no point writes the operand's memory, under its own or another operand's name.
  bool is_read_only(size_t operand) const;
  void store(const kernel::Access& access, kernel::ScalarType type, Bits element, spv::Id value);
  // As load_run; one value is a store.
  void store_run(const kernel::Access& access, kernel::ScalarType type, Bits first,
                 const std::vector<spv::Id>& values, uint64_t aligned_to);

 private:
  void find_widths();
  int memory_width(const kernel::Access& access) const;
  bool may_alias(size_t operand) const;
  spv::Id word_type(int width) { return types_.word(width); }
  spv::Id block_pointer_type(int width, size_t operand);
  spv::Id element_pointer(size_t operand, int width, Bits element);
  // Of 1 and 2 bytes without the storage feature: the word around it.
  struct Part {
    spv::Id pointer = 0;
    Bits shift;  // of its lowest bit in the word
  };
  Part part_of_word(const kernel::Access& access, Bits element);
  Bits load_word(size_t operand, int width, Bits element);
  // Words of a run: so many of so many bits, and what its address is a multiple of, in bytes; 0 of
  // them: elements one by one.
  struct Words {
    uint32_t count = 0;
    int width = 32;
    unsigned alignment = 4;
  };
  Words words_of(const kernel::Access& access, uint32_t count, uint64_t aligned_to) const;
  // Of the run whose first element this is.
  static Bits first_word(const kernel::Access& access, Bits first);
  spv::Id word_pointer(const kernel::Access& access, Bits first, const Words& words, spv::Id type);

  Module& m_;
  BlockTypes& types_;
  const kernel::Kernel& kernel_;
  const OperandPlaces* const places_;
  const bool has_runs_;
  const bool long_runs_;
  std::vector<std::set<int>> widths_;             // of the accesses to an operand
  std::vector<std::map<int, spv::Id>> pointers_;  // of an operand, by width
};

}  // namespace hekla::vulkan::codegen
