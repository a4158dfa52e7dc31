// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/open.h"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>

#include "runtime/base/log.h"
#include "runtime/plugin/probe.h"

namespace hekla::runtime {
namespace {

std::string environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

Result<Client> open_entry(const PluginEntry& entry, const Options& options) {
  if (entry.is_foreign && environment("HEKLA_PROBE") != "0") {
    if (!entry.is_there()) {
      return not_found("the library of plugin '{}' is missing: {}", entry.name, entry.path);
    }
    const ProbeResult probe = probe_plugin(entry.path, options);
    if (!probe.works()) {
      return Status(probe.code,
                    fmt::format("plugin '{}' ({}) cannot be used: {}", entry.name, entry.path,
                                probe.outcome == ProbeResult::Outcome::kError ? probe.message
                                                                              : probe.to_string()));
    }
  }
  HEKLA_ASSIGN_OR_RETURN(auto plugin, Plugin::load(entry.name, entry.path));
  return Client::create(std::move(plugin), options);
}

bool is_cpu_type(const Client& client) {
  return client.addressable_devices().front().string_attribute("device_type") == "cpu";
}

Result<Client> open_best(const Options& options, const Registry& registry) {
  std::string reasons;
  const auto not_taken = [&reasons](std::string_view name, std::string_view reason) {
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", name, reason);
  };
  const auto taken = [&reasons](Client client) {
    log_message(LogLevel::kInfo, "device {} ({}, {} in all){}{}", client.plugin().name(),
                client.addressable_devices().front().kind(), client.addressable_devices().size(),
                reasons.empty() ? "" : "; not taken: ", reasons);
    return client;
  };
  std::optional<Client> cpu_type_vulkan;
  for (const char* name : {"vulkan", "cpu", "", "reference"}) {
    if (*name == '\0') {  // the place of a Vulkan device that is a CPU
      if (cpu_type_vulkan) return taken(*std::move(cpu_type_vulkan));
      continue;
    }
    Result<PluginEntry> entry = registry.find(name);
    if (!entry.ok()) {
      not_taken(name, "not built or not installed");
      continue;
    }
    Result<Client> client = open_entry(*entry, options);
    if (!client.ok()) {
      not_taken(name, client.status().message());
    } else if (std::string_view(name) == "vulkan" && is_cpu_type(*client)) {
      not_taken(name, "its device is a CPU");
      cpu_type_vulkan = *std::move(client);
    } else {
      return taken(*std::move(client));
    }
  }
  return not_found("no usable device. {}. Known plugins: {}", reasons, registry.list_text());
}

}  // namespace

Result<Client> open_client(std::string_view device, const Options& options,
                           const Registry& registry) {
  HEKLA_ASSIGN_OR_RETURN(Options base, options_from_environment());
  const Options merged = merge_options(std::move(base), options);
  const std::string from_environment = environment("PJRT_DEVICE");
  const bool is_named_by_caller = !device.empty();
  if (!is_named_by_caller) device = from_environment;
  if (device.empty()) return open_best(merged, registry);
  Result<PluginEntry> entry = registry.find(device);
  if (!entry.ok()) {
    return is_named_by_caller ? entry.status() : entry.status().with_context("PJRT_DEVICE");
  }
  return open_entry(*entry, merged);
}

}  // namespace hekla::runtime
