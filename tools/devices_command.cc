// SPDX-License-Identifier: Apache-2.0
#include "tools/devices_command.h"

#include <fmt/format.h>

#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "backends/vulkan/snapshot/snapshot.h"
#include "runtime/base/cpu_info.h"

namespace hekla::tools {
namespace {

std::string bytes_text(uint64_t bytes) {
  if (bytes >= uint64_t{10} << 30) return fmt::format("{:.0f} GiB", bytes / double(1 << 30));
  if (bytes >= uint64_t{1} << 30) return fmt::format("{:.1f} GiB", bytes / double(1 << 30));
  if (bytes >= uint64_t{1} << 20) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= uint64_t{1} << 10) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

std::string yes_no(bool value) { return value ? "yes" : "no"; }

void print_field(std::string_view name, const std::string& value) {
  if (!value.empty()) fmt::print("  {:<20}{}\n", name, value);
}

std::string features_text(const vulkan::Features& f) {
  const std::pair<const char*, bool> types[] = {{"f16", f.f16}, {"bf16", f.bf16}, {"f64", f.f64},
                                                {"i8", f.i8},   {"i16", f.i16},   {"i64", f.i64}};
  std::string text = "f32 i32";
  std::string emulated;
  for (const auto& [name, has] : types) (has ? text : emulated) += std::string(" ") + name;
  return emulated.empty() ? text : text + "; not native:" + emulated;
}

std::string queues_text(const std::vector<vulkan::QueueFamily>& families) {
  std::string text;
  for (const vulkan::QueueFamily& family : families) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{} x", family.count);
    if (family.has_graphics) text += " graphics";
    if (family.has_compute) text += " compute";
    if (family.has_transfer) text += " transfer";
  }
  return text;
}

std::string matrices_text(const vulkan::DeviceSnapshot& device) {
  if (device.cooperative_matrices.empty()) return "none";
  std::string text;
  for (const vulkan::CooperativeMatrixShape& s : device.cooperative_matrices) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{}x{}x{} {}*{}+{}", s.m, s.n, s.k, s.a, s.b, s.c);
  }
  return text;
}

void print_vulkan_device(size_t number, const vulkan::DeviceSnapshot& d) {
  fmt::print("vulkan:{}  {}\n", number, d.name);
  print_field("type", std::string(vulkan::device_type_name(d.type)));
  print_field("vendor", fmt::format("{} (0x{:04x}:0x{:04x})", d.vendor, d.vendor_id, d.device_id));
  print_field("driver", fmt::format("{} {} (id {}, version 0x{:x})", d.driver_name, d.driver_info,
                                    d.driver_id, d.driver_version));
  print_field("Vulkan", fmt::format("{} (conformance {})", d.api_version, d.conformance_version));
  for (size_t i = 0; i < d.heaps.size(); ++i) {
    const vulkan::MemoryHeap& heap = d.heaps[i];
    print_field(fmt::format("heap {}", i),
                fmt::format("{}{}{}", bytes_text(heap.size_bytes),
                            heap.is_device_local ? ", device-local" : "",
                            heap.budget_bytes == 0
                                ? ", budget not told"
                                : fmt::format(", budget {}", bytes_text(heap.budget_bytes))));
  }
  print_field("queues", queues_text(d.queue_families));
  print_field("subgroup", d.subgroup.min_size == d.subgroup.max_size
                              ? fmt::format("{}", d.subgroup.size)
                              : fmt::format("{} ({} to {})", d.subgroup.size, d.subgroup.min_size,
                                            d.subgroup.max_size));
  print_field("types", features_text(d.features));
  print_field("cooperative matrix", matrices_text(d));
  print_field(
      "limits",
      fmt::format("storage buffer {}, allocation {}, shared memory {}, workgroup {}, push "
                  "constants {}",
                  bytes_text(d.limits.max_storage_buffer_range_bytes),
                  bytes_text(d.limits.max_allocation_bytes),
                  bytes_text(d.limits.max_shared_memory_bytes), d.limits.max_workgroup_invocations,
                  bytes_text(d.limits.max_push_constants_bytes)));
  print_field("buffer addresses", yes_no(d.features.buffer_device_address));
  print_field("timelines", yes_no(d.features.timeline_semaphore));
  print_field("PCI", d.pci_id);
  print_field("UUID", d.device_uuid);
  const std::vector<std::string> missing = d.missing_requirements();
  print_field("usable",
              missing.empty() ? "yes" : fmt::format("no: needs {}", fmt::join(missing, ", ")));
}

void print_cpu(const CpuInfo& cpu) {
  fmt::print("cpu:0  {}\n", cpu.model.empty() ? cpu.architecture : cpu.model);
  print_field("cores", fmt::format("{} usable of {}", cpu.usable_cores, cpu.cores));
  print_field("caches", fmt::format("L1d {}, L2 {}, L3 {}", bytes_text(cpu.l1_data_bytes),
                                    bytes_text(cpu.l2_bytes), bytes_text(cpu.l3_bytes)));
  print_field("SIMD", fmt::format("{} ({})", cpu.simd_level, fmt::join(cpu.features, " ")));
  print_field("memory", fmt::format("{}, {} available", bytes_text(cpu.memory_bytes),
                                    bytes_text(cpu.available_memory_bytes)));
}

nlohmann::json cpu_json(const CpuInfo& cpu) {
  return {{"model", cpu.model},
          {"architecture", cpu.architecture},
          {"usable_cores", cpu.usable_cores},
          {"cores", cpu.cores},
          {"l1_data_bytes", cpu.l1_data_bytes},
          {"l2_bytes", cpu.l2_bytes},
          {"l3_bytes", cpu.l3_bytes},
          {"memory_bytes", cpu.memory_bytes},
          {"available_memory_bytes", cpu.available_memory_bytes},
          {"simd_level", cpu.simd_level},
          {"features", cpu.features}};
}

void list_devices(bool as_json) {
  const CpuInfo cpu = read_cpu_info();
  Result<std::vector<vulkan::DeviceSnapshot>> devices = vulkan::query_devices();
  const std::string problem = devices.ok() ? "" : devices.status().message();
  std::vector<size_t> order;
  if (devices.ok()) order = vulkan::preferred_order(*devices);
  if (as_json) {
    nlohmann::json json = {{"cpu", {cpu_json(cpu)}}, {"vulkan", nlohmann::json::array()}};
    for (size_t i : order) {
      nlohmann::json device = nlohmann::json::parse(vulkan::snapshot_to_json((*devices)[i]));
      device["missing_requirements"] = (*devices)[i].missing_requirements();
      json["vulkan"].push_back(std::move(device));
    }
    json["vulkan_problem"] = problem;
    fmt::print("{}\n", json.dump(2));
    return;
  }
  for (size_t n = 0; n < order.size(); ++n) print_vulkan_device(n, (*devices)[order[n]]);
  if (!problem.empty()) fmt::print("no Vulkan device: {}\n", problem);
  if (devices.ok() && devices->empty()) {
    fmt::print("no Vulkan device: the drivers see none; `hekla doctor` says more\n");
  }
  print_cpu(cpu);
}

}  // namespace

void add_devices_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "devices", "List the devices of this machine with driver, memory, types and limits");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json,
                    "Print JSON: every fact of the device snapshots, the preferred device first");
  command->callback([as_json, &exit_code] {
    list_devices(*as_json);
    exit_code = 0;
  });
}

}  // namespace hekla::tools
