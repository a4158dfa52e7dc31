// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/entry.h"

#include <cstddef>

#include "backends/vulkan/launch/kernel_abi.h"

namespace hekla::vulkan::codegen {
namespace {

constexpr unsigned kTableEntryBytes = 8;

}  // namespace

void Entry::begin(uint32_t workgroup_size, const std::vector<spv::Id>& members,
                  unsigned constants) {
  main_ = b_.makeEntryPoint("main");
  entry_ = b_.addEntryPoint(spv::ExecutionModelGLCompute, main_, "main");
  b_.addExecutionMode(main_, spv::ExecutionModeLocalSize, static_cast<int>(workgroup_size), 1, 1);
  const spv::Id table = b_.makeStructType(members, "Table");
  b_.addDecoration(table, spv::DecorationBlock);
  for (unsigned i = 0; i < members.size(); ++i) {
    b_.addMemberDecoration(table, i, spv::DecorationOffset, static_cast<int>(i * kTableEntryBytes));
    b_.addMemberDecoration(table, i, spv::DecorationNonWritable);
  }
  table_type_ = b_.makePointer(spv::StorageClassPhysicalStorageBuffer, table);
  std::vector<spv::Id> pushed = {table_type_, m_.uint_type(32)};
  pushed.insert(pushed.end(), constants, m_.uint_type(32));
  const spv::Id block = b_.makeStructType(pushed, "Launch");
  b_.addDecoration(block, spv::DecorationBlock);
  b_.addMemberDecoration(block, 0, spv::DecorationOffset,
                         static_cast<int>(offsetof(KernelPush, table)));
  b_.addMemberDecoration(block, 1, spv::DecorationOffset,
                         static_cast<int>(offsetof(KernelPush, first_group)));
  for (unsigned i = 0; i < constants; ++i) {
    const auto offset = offsetof(KernelPush, constants) + i * sizeof(uint32_t);
    b_.addMemberDecoration(block, 2 + i, spv::DecorationOffset, static_cast<int>(offset));
  }
  b_.addMemberName(block, 0, "table");
  b_.addMemberName(block, 1, "first_group");
  push_constants_ =
      b_.createVariable(spv::NoPrecision, spv::StorageClassPushConstant, block, "launch");
  add(push_constants_);
}

Bits Entry::built_in(spv::BuiltIn which, const char* name, int size) {
  const spv::Id type = size == 1 ? m_.uint_type(32) : m_.vector_type(m_.uint_type(32), size);
  const spv::Id variable = b_.createVariable(spv::NoPrecision, spv::StorageClassInput, type, name);
  b_.addDecoration(variable, spv::DecorationBuiltIn, which);
  add(variable);
  return {&m_, 32, b_.createLoad(variable, spv::NoPrecision)};
}

spv::Id Entry::push_constant(unsigned index, spv::Id type) {
  const spv::Id member =
      m_.op(spv::OpAccessChain, b_.makePointer(spv::StorageClassPushConstant, type),
            {push_constants_, m_.uint_constant(32, index)});
  return b_.createLoad(member, spv::NoPrecision);
}

Bits Entry::first_group() { return {&m_, 32, push_constant(1, m_.uint_type(32))}; }

Bits Entry::group() {
  const Bits id = built_in(spv::BuiltInWorkgroupId, "workgroup");
  const Bits groups = built_in(spv::BuiltInNumWorkgroups, "workgroups");
  return first_group() + component(id, 0) +
         component(groups, 0) * (component(id, 1) + component(groups, 1) * component(id, 2));
}

spv::Id Entry::table() { return push_constant(0, table_type_); }

spv::Id Entry::table_member(spv::Id table, unsigned index, spv::Id type) {
  const spv::Id member =
      m_.op(spv::OpAccessChain, b_.makePointer(spv::StorageClassPhysicalStorageBuffer, type),
            {table, m_.uint_constant(32, index)});
  return b_.createLoad(member, spv::NoPrecision, spv::MemoryAccessAlignedMask, spv::ScopeMax,
                       kTableEntryBytes);
}

void Entry::end() {
  b_.makeReturn(/*implicit=*/true);
  m_.add_float_modes(main_);
}

}  // namespace hekla::vulkan::codegen
