// SPDX-License-Identifier: Apache-2.0
// Cooperative matrices in SPIR-V: instructions and types of SPV_KHR_cooperative_matrix and
// SPV_KHR_bfloat16, which the installed headers do not know; numbers from the SPIR-V registry. Of
// this folder alone. One thread.
#pragma once

#include <map>
#include <tuple>

#include "backends/vulkan/codegen/module.h"
#include "backends/vulkan/codegen/target.h"

namespace hekla::vulkan::codegen {

inline constexpr auto kOpTypeCooperativeMatrix = static_cast<spv::Op>(4456);
inline constexpr auto kOpCooperativeMatrixLoad = static_cast<spv::Op>(4457);
inline constexpr auto kOpCooperativeMatrixStore = static_cast<spv::Op>(4458);
inline constexpr auto kOpCooperativeMatrixMulAdd = static_cast<spv::Op>(4459);
enum MatrixUse : uint32_t { kMatrixA = 0, kMatrixB = 1, kAccumulator = 2 };
enum MatrixMemory : uint32_t { kRowMajor = 0, kColumnMajor = 1 };

// Of accesses to shared memory in modules with matrices, whose memory model is Vulkan's.
inline constexpr auto kShared = spv::MemoryAccessNonPrivatePointerKHRMask;
// Writes before it are seen by all invocations of the workgroup behind it.
inline constexpr auto kSharedSemantics =
    static_cast<spv::MemorySemanticsMask>(unsigned{spv::MemorySemanticsAcquireReleaseMask} |
                                          unsigned{spv::MemorySemanticsWorkgroupMemoryMask} |
                                          unsigned{spv::MemorySemanticsMakeAvailableKHRMask} |
                                          unsigned{spv::MemorySemanticsMakeVisibleKHRMask});

class MatrixTypes {
 public:
  explicit MatrixTypes(Module& module) : m_(module) {}

  // Says that the module has matrices, of subgroups; before anything else of it.
  void declare();
  spv::Id type(const MatrixShape& shape, MatrixUse use);
  // All elements are zero.
  spv::Id no_sums(const MatrixShape& shape);

 private:
  spv::Id component(DType dtype);

  Module& m_;
  std::map<std::tuple<DType, uint32_t, uint32_t, MatrixUse>, spv::Id> types_;
  std::map<DType, spv::Id> components_;
};

}  // namespace hekla::vulkan::codegen
