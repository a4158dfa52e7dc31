// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/artefact.h"

#include <nlohmann/json.hpp>

#include "backends/compiler/plan/visit.h"

namespace hekla::plan {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Slice& slice) {
  return {{"space", space_name(slice.space)},
          {"index", slice.index},
          {"offset", slice.offset},
          {"bytes", slice.bytes}};
}

Json to_json(const Steps& steps, const LaunchPlan& plan) {
  Json list = Json::array();
  for (const Step& step : steps) {
    const std::string text = to_string(step, plan);
    Json reads = Json::array(), writes = Json::array(), lists = Json::array();
    const auto add = [&](const Slice& slice, const Use& use) {
      if (use.is_read) reads.push_back(to_json(slice));
      if (use.is_written) writes.push_back(to_json(slice));
    };
    std::visit([&](const auto& what) { slices_of(what, plan, add); }, step.what);
    for_each_list(step, [&](const Steps& inner) { lists.push_back(to_json(inner, plan)); });
    list.push_back({{"kind", text.substr(0, text.find(' '))},
                    {"text", text},
                    {"reads", std::move(reads)},
                    {"writes", std::move(writes)},
                    {"lists", std::move(lists)}});
  }
  return list;
}

Json to_json(const LaunchPlan& plan) {
  Json constants = Json::array(), outputs = Json::array();
  for (const HostArray& constant : plan.constants) constants.push_back(constant.size_bytes());
  for (size_t o = 0; o < plan.output_bytes.size(); ++o) {
    const int32_t input = plan.output_input[o];
    outputs.push_back(
        {{"bytes", plan.output_bytes[o]}, {"may_take_input", input < 0 ? Json() : Json(input)}});
  }
  return {{"arena_bytes", plan.arena_bytes()}, {"arenas", plan.arenas},
          {"constants", std::move(constants)}, {"inputs", plan.input_bytes},
          {"outputs", std::move(outputs)},     {"steps", to_json(plan.steps, plan)}};
}

Json to_json(const std::vector<kernel::Kernel>& kernels) {
  Json list = Json::array();
  for (const kernel::Kernel& kernel : kernels) {
    Json operands = Json::array();
    for (const kernel::KernelOperand& operand : kernel.operands) {
      operands.push_back({{"bytes", operand.bytes},
                          {"is_read", operand.is_read},
                          {"is_written", operand.is_written}});
    }
    list.push_back({{"name", kernel.name},
                    {"grid", kernel.grid},
                    {"operands", std::move(operands)},
                    {"code", kernel::to_string(kernel)}});
  }
  return list;
}

Json to_json(const std::vector<Decision>& decisions) {
  Json list = Json::array();
  for (const Decision& each : decisions) {
    Json ways = Json::array();
    for (const kernel::Implementation& way : each.implementations) {
      ways.push_back({{"name", way.name},
                      {"is_taken", way.refusal.empty()},
                      {"refusal", way.refusal.empty() ? Json() : Json(way.refusal)}});
    }
    list.push_back({{"step", each.operation}, {"implementations", std::move(ways)}});
  }
  return list;
}

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::optional<std::string> artefact(std::string_view form, const LaunchPlan& plan,
                                    const std::function<std::vector<Decision>()>& implementations) {
  if (form == "plan") return to_string(plan);
  if (form == "kernels") return kernels_string(plan);
  if (form == "implementations") return decisions_string(implementations());
  if (form == "plan:json") return dump(to_json(plan));
  if (form == "kernels:json") return dump(to_json(plan.kernels));
  if (form == "implementations:json") return dump(to_json(implementations()));
  return std::nullopt;
}

}  // namespace hekla::plan
