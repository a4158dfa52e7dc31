// SPDX-License-Identifier: Apache-2.0
// What a device's driver tells of the pipelines of a program, by kernel, for people and programs:
// `hekla compile --emit pipeline-stats`.
//
// JSON: {device, driver, kernels: [kernel]}, kernels by number and behind them the contractions.
//   kernel      {name, family, schedule, invocations, groups, spirv_bytes, seconds, executables};
//               seconds of the processor in the driver
//   executable  {name, description, subgroup_size, statistics: [{name, value, description}],
//                texts: [{name, description, text}]}
// One thread at a time; errors as Pipelines::statistics.
#pragma once

#include <string>
#include <string_view>

#include "backends/vulkan/launch/launch_program.h"
#include "backends/vulkan/launch/logical_device.h"

namespace hekla::vulkan {

// What a kernel computes, as tables of kernels name it: "product", "reduction", "rows" (of softmax,
// norms), "scan", "sort", "scatter", "transpose", "loops", "points".
std::string_view kernel_family(const kernel::Kernel& kernel, std::string_view schedule);

struct PipelineReportOptions {
  bool with_texts = false;  // the driver's code, too
  bool as_json = false;
};
Result<std::string> pipeline_report(LogicalDevice& device, const LaunchProgram& program,
                                    const PipelineReportOptions& options);

}  // namespace hekla::vulkan
