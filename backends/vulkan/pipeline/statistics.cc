// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/pipeline/statistics.h"

#include <fmt/format.h>

#include <cstring>

namespace hekla::vulkan {
namespace {

std::string text_of(const char (&characters)[VK_MAX_DESCRIPTION_SIZE]) {
  return std::string(characters, strnlen(characters, VK_MAX_DESCRIPTION_SIZE));
}

PipelineStatistic statistic(const VkPipelineExecutableStatisticKHR& from) {
  PipelineStatistic to{text_of(from.name), text_of(from.description), {}};
  switch (from.format) {
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR:
      to.value = from.value.b32 == VK_TRUE;
      break;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR:
      to.value = int64_t{from.value.i64};
      break;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR:
      to.value = from.value.f64;
      break;
    default:
      to.value = uint64_t{from.value.u64};
  }
  return to;
}

Status query_statistics(Device& device, const VkPipelineExecutableInfoKHR& which,
                        PipelineExecutable& executable) {
  const DeviceFunctions& call = device.call();
  uint32_t count = 0;
  HEKLA_RETURN_IF_ERROR(device.check(
      call.GetPipelineExecutableStatisticsKHR(device.handle(), &which, &count, nullptr),
      "vkGetPipelineExecutableStatisticsKHR"));
  std::vector<VkPipelineExecutableStatisticKHR> statistics(
      count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR});
  HEKLA_RETURN_IF_ERROR(device.check(
      call.GetPipelineExecutableStatisticsKHR(device.handle(), &which, &count, statistics.data()),
      "vkGetPipelineExecutableStatisticsKHR"));
  statistics.resize(count);
  for (const auto& each : statistics) executable.statistics.push_back(statistic(each));
  return ok_status();
}

// Once for the sizes, once for the texts.
Status query_texts(Device& device, const VkPipelineExecutableInfoKHR& which,
                   PipelineExecutable& executable) {
  const DeviceFunctions& call = device.call();
  constexpr const char* kCall = "vkGetPipelineExecutableInternalRepresentationsKHR";
  const auto get = [&](uint32_t& count, VkPipelineExecutableInternalRepresentationKHR* all) {
    return device.check(
        call.GetPipelineExecutableInternalRepresentationsKHR(device.handle(), &which, &count, all),
        kCall);
  };
  uint32_t count = 0;
  HEKLA_RETURN_IF_ERROR(get(count, nullptr));
  std::vector<VkPipelineExecutableInternalRepresentationKHR> all(
      count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR});
  HEKLA_RETURN_IF_ERROR(get(count, all.data()));
  all.resize(count);
  std::vector<std::vector<char>> texts(count);
  for (uint32_t i = 0; i < count; ++i) {
    texts[i].resize(all[i].dataSize);
    all[i].pData = texts[i].data();
  }
  HEKLA_RETURN_IF_ERROR(get(count, all.data()));
  for (uint32_t i = 0; i < count; ++i) {
    executable.texts.push_back(to_text(all[i]));
  }
  return ok_status();
}

}  // namespace

PipelineText to_text(const VkPipelineExecutableInternalRepresentationKHR& from) {
  PipelineText to{text_of(from.name), text_of(from.description), ""};
  if (from.isText == VK_TRUE && from.pData != nullptr) {
    const auto* const characters = static_cast<const char*>(from.pData);
    to.text.assign(characters, strnlen(characters, from.dataSize));
  }
  return to;
}

Status check_tells_statistics(const Device& device) {
  const DeviceSnapshot& snapshot = device.snapshot();
  const DeviceFunctions& call = device.call();
  if (!device.plan().features.pipeline_statistics) {
    return unimplemented(
        "{} ({} {}) tells nothing of its pipelines: {}", snapshot.name, snapshot.driver_name,
        snapshot.driver_info,
        snapshot.features.pipeline_statistics
            ? "its feature pipeline_statistics is masked by an option"
            : "its driver does not offer VK_KHR_pipeline_executable_properties, as Mesa's drivers "
              "of AMD, Intel, Adreno, Apple and NVIDIA GPUs and NVIDIA's own do");
  }
  if (call.GetPipelineExecutablePropertiesKHR == nullptr ||
      call.GetPipelineExecutableStatisticsKHR == nullptr ||
      call.GetPipelineExecutableInternalRepresentationsKHR == nullptr) {
    return unimplemented(
        "{}: its driver {} offers VK_KHR_pipeline_executable_properties and lacks its functions",
        snapshot.name, snapshot.driver_name);
  }
  return ok_status();
}

Result<std::vector<PipelineExecutable>> query_executables(Device& device, VkPipeline pipeline,
                                                          bool with_texts) {
  HEKLA_RETURN_IF_ERROR(check_tells_statistics(device));
  const DeviceFunctions& call = device.call();
  VkPipelineInfoKHR info = {VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR};
  info.pipeline = pipeline;
  uint32_t count = 0;
  HEKLA_RETURN_IF_ERROR(
      device.check(call.GetPipelineExecutablePropertiesKHR(device.handle(), &info, &count, nullptr),
                   "vkGetPipelineExecutablePropertiesKHR"));
  std::vector<VkPipelineExecutablePropertiesKHR> properties(
      count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR});
  HEKLA_RETURN_IF_ERROR(device.check(
      call.GetPipelineExecutablePropertiesKHR(device.handle(), &info, &count, properties.data()),
      "vkGetPipelineExecutablePropertiesKHR"));
  properties.resize(count);
  std::vector<PipelineExecutable> executables;
  for (uint32_t i = 0; i < count; ++i) {
    PipelineExecutable executable{text_of(properties[i].name),
                                  text_of(properties[i].description),
                                  properties[i].subgroupSize,
                                  {},
                                  {}};
    VkPipelineExecutableInfoKHR which = {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR};
    which.pipeline = pipeline;
    which.executableIndex = i;
    HEKLA_RETURN_IF_ERROR(query_statistics(device, which, executable));
    if (with_texts) HEKLA_RETURN_IF_ERROR(query_texts(device, which, executable));
    executables.push_back(std::move(executable));
  }
  return executables;
}

std::string to_string(const PipelineStatistic& statistic) {
  return std::visit([](auto value) { return fmt::format("{}", value); }, statistic.value);
}

}  // namespace hekla::vulkan
