// SPDX-License-Identifier: Apache-2.0
#include "tools/plugins_command.h"

#include <fmt/format.h>

#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "runtime/plugin/probe.h"
#include "runtime/plugin/registry.h"
#include "tools/run/exit_codes.h"

namespace hekla::tools {
namespace {

int list_plugins(const std::vector<std::string>& names, bool as_json) {
  using runtime::Registry;
  std::vector<runtime::PluginEntry> entries;
  if (names.empty()) entries = Registry::instance().list();
  for (const std::string& name : names) {
    Result<runtime::PluginEntry> entry = Registry::instance().find(name);
    if (!entry.ok()) {
      fmt::print(stderr, "hekla: {}\n", entry.status().message());
      return kBadInput;
    }
    entries.push_back(*entry);
  }
  nlohmann::json list = nlohmann::json::array();
  size_t usable = 0;
  for (const runtime::PluginEntry& entry : entries) {
    const runtime::ProbeResult probe =
        entry.is_there() ? runtime::probe_plugin(entry.path) : runtime::ProbeResult{};
    const std::string state = entry.is_there() ? probe.to_string() : "the library is not there";
    usable += probe.works();
    list.push_back({{"name", entry.name},
                    {"path", entry.path},
                    {"source", entry.source},
                    {"usable", probe.works()},
                    {"state", state},
                    {"platform", probe.platform},
                    {"devices", probe.device_count}});
    if (!as_json)
      fmt::print("{:<12}  {}\n{:<12}  {} ({})\n", entry.name, state, "", entry.path, entry.source);
  }
  if (as_json) {
    fmt::print("{}\n", list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  for (const std::string& problem : Registry::instance().problems()) {
    fmt::print(stderr, "hekla: {}\n", problem);
  }
  return usable > 0 ? 0 : 3;
}

}  // namespace

void add_plugins_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("plugins", "List the plugins and try each in a child process");
  auto names = std::make_shared<std::vector<std::string>>();
  auto as_json = std::make_shared<bool>(false);
  command->add_option("plugin", *names, "Names or library paths; all when left out");
  command->add_flag("--json", *as_json, "Print JSON");
  command->callback([names, as_json, &exit_code] { exit_code = list_plugins(*names, *as_json); });
}

}  // namespace hekla::tools
