// SPDX-License-Identifier: Apache-2.0
// The tables of docs/options.md, from those that the plugins read their options by.
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "backends/cpu/plugin/backend.h"
#include "backends/pjrt/gang_network.h"
#include "backends/pjrt/processes.h"
#include "backends/reference/plugin/backend.h"
#include "backends/vulkan/plugin/options.h"

namespace {

void print(const char* title, const hekla::pjrt::OptionTable& table) {
  const bool has_environment = !table.options().front().environment.empty();
  fmt::print("### {}\n\n", title);
  fmt::print("| option |{} what | default |\n|---|{}---|---|\n",
             has_environment ? " environment |" : "", has_environment ? "---|" : "");
  for (const hekla::pjrt::OptionTable::Option& option : table.options()) {
    const std::string environment =
        has_environment ? fmt::format(" `{}` |", option.environment) : "";
    fmt::print("| `{}` ({}) |{} {} | {} |\n", option.name, option.kind, environment, option.meaning,
               option.fallback);
  }
  fmt::print("\n");
}

}  // namespace

int main() {
  hekla::cpu::CpuOptions cpu;
  print("CPU device", hekla::cpu::option_table(cpu));
  hekla::vulkan::BackendOptions vulkan;
  print("Vulkan device", hekla::vulkan::option_table(vulkan));
  hekla::pjrt::CommonOptions reference;
  print("Reference device", hekla::reference::option_table(reference));
  hekla::pjrt::GangOptions gangs;
  print("Launches over several devices, any device", hekla::pjrt::gang_option_table(gangs));
  hekla::pjrt::ProcessOptions processes;
  print("Several processes, any device", hekla::pjrt::process_option_table(processes));
  hekla::pjrt::GangNetworkOptions network;
  print("Launches over several processes, any device",
        hekla::pjrt::gang_network_option_table(network));
  hekla::pjrt::CompilerSwitches switches;
  print("One compilation", hekla::pjrt::compiler_option_table(switches));
  return 0;
}
