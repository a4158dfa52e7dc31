// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/plugin/pipeline_report.h"

#include <fmt/format.h>

#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "backends/compiler/kernel/index_analysis.h"
#include "backends/vulkan/codegen/tile.h"

namespace hekla::vulkan {
namespace {

using Json = nlohmann::ordered_json;

struct Reported {
  std::string title;
  std::string_view family;
  const DeviceKernel* kernel = nullptr;
};

Json to_json(const PipelineExecutable& executable) {
  Json statistics = Json::array(), texts = Json::array();
  for (const PipelineStatistic& each : executable.statistics) {
    Json value;
    std::visit([&](auto number) { value = number; }, each.value);
    statistics.push_back(
        {{"name", each.name}, {"value", std::move(value)}, {"description", each.description}});
  }
  for (const PipelineText& each : executable.texts) {
    texts.push_back({{"name", each.name}, {"description", each.description}, {"text", each.text}});
  }
  return {{"name", executable.name},
          {"description", executable.description},
          {"subgroup_size", executable.subgroup_size},
          {"statistics", std::move(statistics)},
          {"texts", std::move(texts)}};
}

Json to_json(const Reported& reported, const PipelineStatistics& statistics) {
  const DeviceKernel& kernel = *reported.kernel;
  Json executables = Json::array();
  for (const PipelineExecutable& each : statistics.executables) {
    executables.push_back(to_json(each));
  }
  return {
      {"name", reported.title},        {"family", reported.family},
      {"schedule", kernel.schedule},   {"invocations", kernel.workgroup_size},
      {"groups", kernel.groups},       {"spirv_bytes", kernel.code.words.size() * sizeof(uint32_t)},
      {"seconds", statistics.seconds}, {"executables", std::move(executables)}};
}

std::string to_text(const Reported& reported, const PipelineStatistics& statistics) {
  const DeviceKernel& kernel = *reported.kernel;
  std::string text = fmt::format(
      "{}\n  {}, {}; {} x {} x {} workgroups of {}; {} bytes of SPIR-V, {:.3f} s\n", reported.title,
      reported.family, kernel.schedule, kernel.groups[0], kernel.groups[1], kernel.groups[2],
      kernel.workgroup_size, kernel.code.words.size() * sizeof(uint32_t), statistics.seconds);
  for (const PipelineExecutable& executable : statistics.executables) {
    text += fmt::format("  {}", executable.name);
    if (executable.subgroup_size != 0) {
      text += fmt::format(", subgroups of {}", executable.subgroup_size);
    }
    text += "\n";
    for (const PipelineStatistic& each : executable.statistics) {
      text += fmt::format("    {}: {}\n", each.name, to_string(each));
    }
    for (const PipelineText& each : executable.texts) {
      text += fmt::format("  --- {}\n{}\n", each.name,
                          each.text.empty() ? "(bytes, no text)" : each.text);
    }
  }
  return text;
}

}  // namespace

std::string_view kernel_family(const kernel::Kernel& kernel, std::string_view schedule) {
  const std::string_view name = kernel.name;
  const codegen::TileAnalysis tile = codegen::analyse_tile(kernel::IndexAnalysis(kernel));
  if (tile.shares_by_rows && tile.shares_by_columns) return "product";
  if (name.starts_with("sort")) return "sort";
  if (name.starts_with("scan")) return "scan";
  if (name.starts_with("scatter")) return "scatter";
  if (name == "rows" || name.starts_with("attention")) return kernel.name;
  if (schedule.starts_with("transposed")) return "transpose";
  if (name.starts_with("reduce") || schedule.starts_with("teams") ||
      schedule == "subgroup per point") {
    return "reduction";
  }
  return kernel.body.region_count() > 1 ? "loops" : "points";
}

Result<std::string> pipeline_report(LogicalDevice& device, const LaunchProgram& program,
                                    const PipelineReportOptions& options) {
  HEKLA_RETURN_IF_ERROR(check_tells_statistics(device.device()));
  std::vector<Reported> all;
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    const DeviceKernel& kernel = program.kernels[i];
    if (kernel.is_interpreted()) continue;
    const kernel::Kernel& source = program.plan->kernels[i];
    all.push_back(
        {plan::kernel_title(*program.plan, i), kernel_family(source, kernel.schedule), &kernel});
  }
  for (const DeviceKernel& contraction : program.contractions) {
    all.push_back({contraction.code.name, "product", &contraction});
  }
  for (const DeviceLoopKernel& loop : program.loops) {
    all.push_back({loop.code.code.name, "persistent loop", &loop.code});
  }
  const DeviceSnapshot& snapshot = device.device().snapshot();
  const std::string driver = snapshot.driver_name + " " + snapshot.driver_info;
  std::string text = fmt::format("{}, {}\n", snapshot.name, driver);
  Json kernels = Json::array();
  for (const Reported& each : all) {
    HEKLA_ASSIGN_OR_RETURN(const PipelineStatistics statistics,
                           device.pipelines().statistics(each.kernel->code, options.with_texts));
    if (options.as_json) {
      kernels.push_back(to_json(each, statistics));
    } else {
      text += to_text(each, statistics);
    }
  }
  if (!options.as_json) return text;
  const Json json = {
      {"device", snapshot.name}, {"driver", driver}, {"kernels", std::move(kernels)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hekla::vulkan
