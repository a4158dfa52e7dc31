// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/memory.h"

namespace hekla::vulkan::codegen {
namespace {

using kernel::Access;
using kernel::Op;
using kernel::ScalarType;

}  // namespace

// Bits of the memory that is touched: of a narrow load without the storage feature, a whole word.
int Memory::memory_width(const Access& access) const {
  if (access.bytes == 1 && !m_.target().storage_8) return 32;
  if (access.bytes == 2 && !m_.target().storage_16) return 32;
  return access.bytes * 8;
}

// Two operands of a launch are the same memory or do not overlap when one of them is written.
bool Memory::may_alias(size_t operand) const {
  if (places_ != nullptr) return !places_->is_constant[operand];
  const kernel::KernelOperand& mine = kernel_.operands[operand];
  for (size_t i = 0; i < kernel_.operands.size(); ++i) {
    const kernel::KernelOperand& other = kernel_.operands[i];
    if (i != operand && other.bytes == mine.bytes && (other.is_written || mine.is_written)) {
      return true;
    }
  }
  return false;
}

spv::Id BlockTypes::word(int width) {
  return width == 64 && !m_.target().int64 ? m_.float_type(64) : m_.uint_type(width);
}

bool Memory::is_read_only(size_t operand) const {
  return !kernel_.operands[operand].is_written && !may_alias(operand);
}

spv::Id Memory::block_pointer_type(int width, size_t operand) {
  using enum BlockTypes::Use;
  return types_.pointer(width, is_read_only(operand) ? kReadOnly
                               : places_ != nullptr  ? kShared
                                                     : kPrivate);
}

spv::Id BlockTypes::pointer(int width, Use use) {
  spv::Id& type = pointers_[{width, use}];
  if (type != 0) return type;
  spv::Builder& b = m_.builder();
  if (width == 8) {
    b.addCapability(spv::CapabilityStorageBuffer8BitAccess);
    m_.require("storageBuffer8BitAccess");
  } else if (width == 16) {
    b.addCapability(spv::CapabilityStorageBuffer16BitAccess);
    m_.require("storageBuffer16BitAccess");
  }
  const spv::Id array = b.makeRuntimeArray(word(width));
  b.addDecoration(array, spv::DecorationArrayStride, width / 8);
  const bool is_read_only = use == Use::kReadOnly;
  const spv::Id block = b.makeStructType({array}, is_read_only ? "Input" : "Buffer");
  b.addDecoration(block, spv::DecorationBlock);
  b.addMemberDecoration(block, 0, spv::DecorationOffset, 0);
  if (is_read_only) b.addMemberDecoration(block, 0, spv::DecorationNonWritable);
  if (use == Use::kShared) b.addMemberDecoration(block, 0, spv::DecorationCoherent);
  if (width >= 32) {
    type = b.makePointer(spv::StorageClassPhysicalStorageBuffer, block);
  } else {
    // SPIRV-Tools takes a cast of a pointer to narrow integers for one of the integers, which needs
    // further features; it does not look through forward pointers.
    type = b.makeForwardPointer(spv::StorageClassPhysicalStorageBuffer);
    b.makePointerFromForwardPointer(spv::StorageClassPhysicalStorageBuffer, type, block);
  }
  return type;
}

void Memory::find_widths() {
  widths_.resize(kernel_.operands.size());
  for (size_t i = 0; i < kernel_.body.size(); ++i) {
    const kernel::Instruction& inst = kernel_.body[static_cast<kernel::Value>(i)];
    if (inst.op != Op::kLoad && inst.op != Op::kStore) continue;
    const Access access = kernel::unpack_access(inst.immediate);
    widths_[static_cast<size_t>(access.operand)].insert(memory_width(access));
    if (access.bytes < 4 && has_runs_) widths_[static_cast<size_t>(access.operand)].insert(32);
  }
}

std::vector<spv::Id> Memory::table_members() {
  // Pointers to words, whatever the operand holds: what push constants lead to may not hold
  // narrower integers without further features.
  std::vector<spv::Id> members;
  for (size_t i = 0; i < widths_.size(); ++i) {
    members.push_back(block_pointer_type(32, i));
  }
  // A struct needs a member.
  if (members.empty()) members.push_back(types_.pointer(32, BlockTypes::Use::kReadOnly));
  return members;
}

void Memory::load_table(Entry& entry) {
  spv::Builder& b = m_.builder();
  const spv::Id table = entry.table();
  pointers_.resize(widths_.size());
  for (size_t i = 0; i < widths_.size(); ++i) {
    if (widths_[i].empty()) continue;
    const spv::Id words = block_pointer_type(32, i);
    const unsigned member = places_ != nullptr ? places_->members[i] : static_cast<unsigned>(i);
    const spv::Id address = entry.table_member(table, member, words);
    for (int width : widths_[i]) {
      const spv::Id type = block_pointer_type(width, i);
      const spv::Id pointer = width == 32 ? address : m_.op(spv::OpBitcast, type, {address});
      // Only a variable can say whether what it points to has other names.
      const spv::Id variable =
          b.createVariable(spv::NoPrecision, spv::StorageClassFunction, type, "operand");
      const bool is_shared = may_alias(i) || widths_[i].size() > 1;
      b.addDecoration(variable,
                      is_shared ? spv::DecorationAliasedPointer : spv::DecorationRestrictPointer);
      b.createStore(pointer, variable);
      pointers_[i][width] = b.createLoad(variable, spv::NoPrecision);
    }
  }
}

spv::Id Memory::element_pointer(size_t operand, int width, Bits element) {
  spv::Builder& b = m_.builder();
  const spv::Id zero = m_.uint_constant(32, 0);
  const spv::Id base = pointers_[operand].at(width);
  const spv::Id type = b.makePointer(spv::StorageClassPhysicalStorageBuffer, word_type(width));
  if (kernel_.operands[operand].bytes <= m_.target().max_narrow_bytes) {
    return m_.op(spv::OpAccessChain, type, {base, zero, element.resized(32).id()});
  }
  // As a 64-bit sum, since an access chain may be computed in 32 bits.
  const Bits address(&m_, 64, m_.op(spv::OpConvertPtrToU, m_.uint_type(64), {base}));
  const Bits target = address + element.resized(64) * static_cast<uint64_t>(width / 8);
  const spv::Id moved = m_.op(spv::OpConvertUToPtr, b.getTypeId(base), {target.id()});
  return m_.op(spv::OpAccessChain, type, {moved, zero, zero});
}

Bits Memory::load_word(size_t operand, int width, Bits element) {
  const spv::Id pointer = element_pointer(operand, width, element);
  const auto alignment = static_cast<unsigned>(width / 8);
  return {&m_, width,
          m_.builder().createLoad(pointer, spv::NoPrecision, spv::MemoryAccessAlignedMask,
                                  spv::ScopeMax, alignment)};
}

// It may reach behind the operand, but not behind its memory.
Memory::Part Memory::part_of_word(const Access& access, Bits element) {
  const auto shift = access.bytes == 1 ? uint64_t{2} : uint64_t{1};
  const uint64_t bits = access.bytes * 8u;
  return {element_pointer(static_cast<size_t>(access.operand), 32, element >> shift),
          (element.resized(32) & ((1u << shift) - 1)) * bits};
}

spv::Id Memory::load(const Access& access, ScalarType type, Bits element) {
  const auto operand = static_cast<size_t>(access.operand);
  const int width = memory_width(access);
  const int bits = access.bytes * 8;
  if (bits < 32 && width == 32) {
    const Part part = part_of_word(access, element);
    spv::Builder& b = m_.builder();
    // Neighbours may be written while this one is read, but not within one access.
    const Bits word{&m_, 32,
                    is_read_only(operand)
                        ? b.createLoad(part.pointer, spv::NoPrecision, spv::MemoryAccessAlignedMask,
                                       spv::ScopeMax, /*alignment=*/4)
                        : m_.op(spv::OpAtomicLoad, m_.uint_type(32),
                                {part.pointer, m_.uint_constant(32, spv::ScopeDevice),
                                 m_.uint_constant(32, spv::MemorySemanticsMaskNone)})};
    const Bits high = word << (part.shift.like(static_cast<uint64_t>(32 - bits)) - part.shift);
    const Bits count = high.like(static_cast<uint64_t>(32 - bits));
    return (access.is_signed ? high.shifted_right_signed(count) : high >> count).id();
  }
  const Bits word = load_word(operand, width, element);
  if (bits < 32) {
    return m_.op(access.is_signed ? spv::OpSConvert : spv::OpUConvert, m_.uint_type(32),
                 {word.id()});
  }
  const bool is_float_memory = width == 64 && !m_.target().int64;
  if (kernel::is_float(type) == is_float_memory) return word.id();
  return m_.op(spv::OpBitcast, m_.type(type), {word.id()});
}

bool Memory::is_narrow(const Access& access) const {
  return kernel_.operands[static_cast<size_t>(access.operand)].bytes <=
         m_.target().max_narrow_bytes;
}

Memory::Words Memory::words_of(const Access& access, uint32_t count, uint64_t aligned_to) const {
  const uint64_t bytes = uint64_t{access.bytes} * count;
  const uint64_t alignment = access.bytes * aligned_to;
  if (!m_.target().is_cpu && long_runs_ && bytes == kLongestRunBytes &&
      alignment >= kLongestRunBytes) {
    return {kLongestRunBytes / 4, 32, kLongestRunBytes};
  }
  for (const int width : {64, 32}) {
    const auto word = static_cast<uint64_t>(width / 8);
    if (width == 64 && !(long_runs_ && m_.target().int64)) continue;
    if (alignment < word || bytes < word) continue;
    return {static_cast<uint32_t>(bytes / word), width, static_cast<unsigned>(word)};
  }
  return {};
}

Bits Memory::first_word(const Access& access, Bits first) {
  const uint64_t shift = access.bytes == 1 ? 2 : access.bytes == 2 ? 1 : 0;
  return shift == 0 ? first : first >> shift;
}

spv::Id Memory::word_pointer(const Access& access, Bits first, const Words& words, spv::Id type) {
  const spv::Id pointer =
      element_pointer(static_cast<size_t>(access.operand), 32, first_word(access, first));
  if (words.count == 1 && words.width == 32) return pointer;
  return m_.op(spv::OpBitcast,
               m_.builder().makePointer(spv::StorageClassPhysicalStorageBuffer, type), {pointer});
}

std::vector<spv::Id> Memory::load_run(const Access& access, ScalarType type, Bits first,
                                      uint32_t count, uint64_t aligned_to) {
  spv::Builder& b = m_.builder();
  const Words words = words_of(access, count, aligned_to);
  std::vector<spv::Id> values;
  if (words.count == 0) {
    for (uint32_t i = 0; i < count; ++i) {
      values.push_back(load(access, type, i == 0 ? first : first + uint64_t{i}));
    }
    return values;
  }
  const spv::Id part = m_.uint_type(words.width);
  const spv::Id whole =
      words.count == 1 ? part : m_.vector_type(part, static_cast<int>(words.count));
  const bool is_one_load = words.count == 1 || m_.target().casts_pointers;
  const spv::Id loaded =
      is_one_load ? b.createLoad(word_pointer(access, first, words, whole), spv::NoPrecision,
                                 spv::MemoryAccessAlignedMask, spv::ScopeMax, words.alignment)
                  : 0;
  const spv::Id word_type = m_.uint_type(32);
  std::vector<Bits> all;  // of 32 bits
  for (uint32_t i = 0; i < words.count; ++i) {
    if (!is_one_load) {
      const Bits word = first_word(access, first);
      all.push_back(
          load_word(static_cast<size_t>(access.operand), 32, i == 0 ? word : word + uint64_t{i}));
      continue;
    }
    const spv::Id one = words.count == 1 ? loaded : b.createCompositeExtract(loaded, part, i);
    if (words.width == 32) {
      all.push_back({&m_, 32, one});
      continue;
    }
    const spv::Id halves = m_.op(spv::OpBitcast, m_.vector_type(word_type, 2), {one});
    for (unsigned half : {0u, 1u}) {
      all.push_back({&m_, 32, b.createCompositeExtract(halves, word_type, half)});
    }
  }
  const uint32_t bits = access.bytes * 8u;
  for (uint32_t i = 0; i < count; ++i) {
    Bits word = all[i * bits / 32];
    if (bits < 32) {
      const uint64_t unused = 32 - bits;
      const uint64_t below = i * bits % 32;
      if (below != unused) word = word << (unused - below);
      word = access.is_signed ? word.shifted_right_signed(word.like(unused)) : word >> unused;
    }
    values.push_back(kernel::is_float(type) ? m_.op(spv::OpBitcast, m_.type(type), {word.id()})
                                            : word.id());
  }
  return values;
}

void Memory::store_run(const Access& access, ScalarType type, Bits first,
                       const std::vector<spv::Id>& values, uint64_t aligned_to) {
  const auto count = static_cast<uint32_t>(values.size());
  const Words words = count == 1 ? Words{} : words_of(access, count, aligned_to);
  if (words.count == 0) {
    for (uint32_t i = 0; i < count; ++i) {
      store(access, type, i == 0 ? first : first + uint64_t{i}, values[i]);
    }
    return;
  }
  spv::Builder& b = m_.builder();
  const uint32_t bits = access.bytes * 8u;
  const uint32_t per_word = 32 / bits;
  std::vector<spv::Id> all;  // of 32 bits
  for (uint32_t i = 0; i < count; i += per_word) {
    Bits word;
    for (uint32_t k = 0; k < per_word; ++k) {
      Bits one{&m_, 32,
               kernel::is_float(type) ? m_.op(spv::OpBitcast, m_.uint_type(32), {values[i + k]})
                                      : values[i + k]};
      if (k + 1 < per_word) one = one & ((uint64_t{1} << bits) - 1);
      if (k > 0) one = one << uint64_t{k * bits};
      word = k == 0 ? one : word | one;
    }
    all.push_back(word.id());
  }
  if (words.count > 1 && !m_.target().casts_pointers) {
    const Bits word = first_word(access, first);
    for (uint32_t i = 0; i < words.count; ++i) {
      const spv::Id pointer = element_pointer(static_cast<size_t>(access.operand), 32,
                                              i == 0 ? word : word + uint64_t{i});
      b.createStore(all[i], pointer, spv::MemoryAccessAlignedMask, spv::ScopeMax, /*alignment=*/4);
    }
    return;
  }
  spv::Id part = m_.uint_type(32);
  if (words.width == 64) {
    part = m_.uint_type(64);
    std::vector<spv::Id> wide;
    for (size_t i = 0; i < all.size(); i += 2) {
      const spv::Id pair =
          b.createCompositeConstruct(m_.vector_type(m_.uint_type(32), 2), {all[i], all[i + 1]});
      wide.push_back(m_.op(spv::OpBitcast, part, {pair}));
    }
    all = std::move(wide);
  }
  const spv::Id whole =
      words.count == 1 ? part : m_.vector_type(part, static_cast<int>(words.count));
  const spv::Id value = words.count == 1 ? all[0] : b.createCompositeConstruct(whole, all);
  b.createStore(value, word_pointer(access, first, words, whole), spv::MemoryAccessAlignedMask,
                spv::ScopeMax, words.alignment);
}

void Memory::store(const Access& access, ScalarType type, Bits element, spv::Id value) {
  const int width = access.bytes * 8;
  if (width < memory_width(access)) {
    // Other invocations write the rest of the word: two changes that leave it alone.
    const Part part = part_of_word(access, element);
    const uint64_t mask = (uint64_t{1} << width) - 1;
    const Bits kept = (part.shift.like(mask) << part.shift) ^ 0xffffffff;
    const Bits added = (Bits(&m_, 32, value) & mask) << part.shift;
    const spv::Id scope = m_.uint_constant(32, spv::ScopeDevice);
    const spv::Id relaxed = m_.uint_constant(32, spv::MemorySemanticsMaskNone);
    m_.op(spv::OpAtomicAnd, m_.uint_type(32), {part.pointer, scope, relaxed, kept.id()});
    m_.op(spv::OpAtomicOr, m_.uint_type(32), {part.pointer, scope, relaxed, added.id()});
    return;
  }
  if (width < 32) {
    value = m_.op(spv::OpUConvert, m_.uint_type(width), {value});
  } else if (kernel::is_float(type) && !(width == 64 && !m_.target().int64)) {
    value = m_.op(spv::OpBitcast, m_.uint_type(width), {value});
  }
  const spv::Id pointer = element_pointer(static_cast<size_t>(access.operand), width, element);
  m_.builder().createStore(value, pointer, spv::MemoryAccessAlignedMask, spv::ScopeMax,
                           access.bytes);
}

}  // namespace hekla::vulkan::codegen
