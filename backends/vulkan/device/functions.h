// SPDX-License-Identifier: Apache-2.0
// DeviceFunctions: the device-level entry points that the back end calls, one table per VkDevice.
//
// Fetched with vkGetDeviceProcAddr, so calls skip the loader's dispatch and several devices may
// live in one process. Plain data; tests replace entries to inject errors.
#pragma once

#include "backends/vulkan/device/vulkan_api.h"

// Entry points that answer with a VkResult, and those that do not.
#define HEKLA_VULKAN_RESULT_FUNCTIONS(X) \
  X(QueueSubmit)                         \
  X(DeviceWaitIdle)                      \
  X(AllocateMemory)                      \
  X(MapMemory)                           \
  X(CreateBuffer)                        \
  X(BindBufferMemory)                    \
  X(CreateSemaphore)                     \
  X(GetSemaphoreCounterValue)            \
  X(WaitSemaphores)                      \
  X(SignalSemaphore)                     \
  X(CreateCommandPool)                   \
  X(ResetCommandPool)                    \
  X(AllocateCommandBuffers)              \
  X(BeginCommandBuffer)                  \
  X(EndCommandBuffer)                    \
  X(CreatePipelineLayout)                \
  X(CreateShaderModule)                  \
  X(CreateComputePipelines)              \
  X(CreatePipelineCache)                 \
  X(GetPipelineCacheData)                \
  X(MergePipelineCaches)                 \
  X(CreateQueryPool)                     \
  X(GetQueryPoolResults)
#define HEKLA_VULKAN_VOID_FUNCTIONS(X) \
  X(DestroyDevice)                     \
  X(GetDeviceQueue)                    \
  X(FreeMemory)                        \
  X(UnmapMemory)                       \
  X(DestroyBuffer)                     \
  X(GetBufferMemoryRequirements)       \
  X(GetBufferDeviceAddress)            \
  X(DestroySemaphore)                  \
  X(DestroyCommandPool)                \
  X(CmdPipelineBarrier)                \
  X(CmdCopyBuffer)                     \
  X(CmdBindPipeline)                   \
  X(CmdPushConstants)                  \
  X(CmdDispatch)                       \
  X(CmdDispatchIndirect)               \
  X(DestroyPipelineLayout)             \
  X(DestroyShaderModule)               \
  X(DestroyPipeline)                   \
  X(DestroyPipelineCache)              \
  X(DestroyQueryPool)                  \
  X(CmdResetQueryPool)                 \
  X(CmdWriteTimestamp)

// Those of extensions, null where they are not enabled; answer with a VkResult.
#define HEKLA_VULKAN_OPTIONAL_FUNCTIONS(X) \
  X(GetMemoryHostPointerPropertiesEXT)     \
  X(GetMemoryFdKHR)                        \
  X(GetMemoryFdPropertiesKHR)              \
  X(GetPipelineExecutablePropertiesKHR)    \
  X(GetPipelineExecutableStatisticsKHR)    \
  X(GetPipelineExecutableInternalRepresentationsKHR)

namespace hekla::vulkan {

struct DeviceFunctions {
#define HEKLA_DECLARE(name) PFN_vk##name name = nullptr;
  HEKLA_VULKAN_RESULT_FUNCTIONS(HEKLA_DECLARE)
  HEKLA_VULKAN_VOID_FUNCTIONS(HEKLA_DECLARE)
  HEKLA_VULKAN_OPTIONAL_FUNCTIONS(HEKLA_DECLARE)
#undef HEKLA_DECLARE
};

}  // namespace hekla::vulkan
