// SPDX-License-Identifier: Apache-2.0
// PipelineStatistics: what a driver tells of a pipeline it has compiled, by
// VK_KHR_pipeline_executable_properties: registers, spills, occupancy ... as the driver names them.
//
// Plain data and one query. A pipeline may be of several executables; drivers differ in what they
// count and in its names. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "backends/vulkan/device/device.h"
#include "runtime/base/status.h"

namespace hekla::vulkan {

struct PipelineStatistic {
  std::string name;
  std::string description;
  std::variant<bool, int64_t, uint64_t, double> value;
};

// Code on its way through the driver's compiler: "NIR Shader(s)", "Assembly" ...
struct PipelineText {
  std::string name;
  std::string description;
  std::string text;  // "" where the driver has bytes instead
};

struct PipelineExecutable {
  std::string name;
  std::string description;
  uint32_t subgroup_size = 0;  // 0: not known
  std::vector<PipelineStatistic> statistics;
  std::vector<PipelineText> texts;  // where asked for
};

struct PipelineStatistics {
  double seconds = 0;  // of the processor, which the driver took for the pipeline
  std::vector<PipelineExecutable> executables;
};

// As the driver filled it in. Of no bytes it has no address, and the size may be any.
PipelineText to_text(const VkPipelineExecutableInternalRepresentationKHR& from);

// UNIMPLEMENTED, in words: the driver tells nothing, or the feature is masked.
Status check_tells_statistics(const Device& device);

// Of a pipeline that was made with VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR, for `with_texts`
// also with ..._CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR. The errors of Device::check.
Result<std::vector<PipelineExecutable>> query_executables(Device& device, VkPipeline pipeline,
                                                          bool with_texts);

// "42", "true", "1.5".
std::string to_string(const PipelineStatistic& statistic);

}  // namespace hekla::vulkan
