// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/device/plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <tuple>

namespace hekla::vulkan {
namespace {

struct FeatureName {
  const char* name;
  bool Features::*member;
};
constexpr FeatureName kFeatureNames[] = {
    {"f16", &Features::f16},
    {"f64", &Features::f64},
    {"i8", &Features::i8},
    {"i16", &Features::i16},
    {"i64", &Features::i64},
    {"bf16", &Features::bf16},
    {"bf16_cooperative_matrix", &Features::bf16_cooperative_matrix},
    {"storage_8", &Features::storage_8},
    {"storage_16", &Features::storage_16},
    {"i64_atomics", &Features::i64_atomics},
    {"f32_atomic_add", &Features::f32_atomic_add},
    {"scalar_block_layout", &Features::scalar_block_layout},
    {"subgroup_size_control", &Features::subgroup_size_control},
    {"compute_full_subgroups", &Features::compute_full_subgroups},
    {"vulkan_memory_model", &Features::vulkan_memory_model},
    {"memory_budget", &Features::memory_budget},
    {"host_memory_import", &Features::host_memory_import},
    {"opaque_fd_memory", &Features::opaque_fd_memory},
    {"dma_buf_memory", &Features::dma_buf_memory},
    {"cooperative_matrix", &Features::cooperative_matrix},
    {"integer_dot_product", &Features::integer_dot_product},
    {"pipeline_statistics", &Features::pipeline_statistics},
};

constexpr int64_t kGpuPoll = 100;  // microseconds

bool has_extension(const DeviceSnapshot& snapshot, std::string_view name) {
  return std::binary_search(snapshot.extensions.begin(), snapshot.extensions.end(), name);
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

class Planner {
 public:
  Planner(const DeviceSnapshot& snapshot, const DeviceOptions& options)
      : snapshot_(snapshot), options_(options) {}

  Result<DevicePlan> run() {
    if (const std::vector<std::string> missing = snapshot_.missing_requirements();
        !missing.empty()) {
      return failed_precondition("{} cannot be used: it lacks {}", snapshot_.name,
                                 fmt::join(missing, ", "));
    }
    if (options_.memory_limit_bytes < 0) {
      return invalid_argument("memory_limit_bytes must not be negative, is {}",
                              options_.memory_limit_bytes);
    }
    plan_.launch_timeout_seconds = options_.launch_timeout_seconds;
    plan_.wait_poll_microseconds = options_.wait_poll_microseconds;
    if (plan_.wait_poll_microseconds < 0) plan_.wait_poll_microseconds = is_gpu() ? kGpuPoll : 0;
    HEKLA_RETURN_IF_ERROR(plan_features());
    plan_queues();
    HEKLA_RETURN_IF_ERROR(plan_memory());
    plan_limits();
    return std::move(plan_);
  }

 private:
  Status plan_features() {
    plan_.features = snapshot_.features;
    // Out-of-range accesses are excluded by the kernels themselves; the checks cost bandwidth.
    plan_.features.robust_buffer_access = false;
    for (const std::string& masked : options_.masked_features) {
      const auto* known = std::find_if(std::begin(kFeatureNames), std::end(kFeatureNames),
                                       [&](const FeatureName& f) { return masked == f.name; });
      if (known == std::end(kFeatureNames)) {
        std::vector<std::string_view> names;
        for (const FeatureName& feature : kFeatureNames) names.push_back(feature.name);
        return invalid_argument("there is no feature {} to mask; there are {}", masked,
                                fmt::join(names, ", "));
      }
      plan_.features.*known->member = false;
      no("{}: masked by an option", masked);
    }
    for (const FeatureName& feature : kFeatureNames) {
      if (!(snapshot_.features.*feature.member)) no("{}: not offered by the driver", feature.name);
    }
    const auto extension = [&](bool wanted, const char* name) {
      if (wanted && has_extension(snapshot_, name)) plan_.extensions.emplace_back(name);
    };
    extension(plan_.features.memory_budget, "VK_EXT_memory_budget");
    extension(plan_.features.host_memory_import, "VK_EXT_external_memory_host");
    extension(plan_.features.opaque_fd_memory || plan_.features.dma_buf_memory,
              "VK_KHR_external_memory_fd");
    extension(plan_.features.dma_buf_memory, "VK_EXT_external_memory_dma_buf");
    extension(plan_.features.dma_buf_memory, "VK_EXT_queue_family_foreign");
    extension(plan_.features.f32_atomic_add, "VK_EXT_shader_atomic_float");
    extension(plan_.features.cooperative_matrix, "VK_KHR_cooperative_matrix");
    extension(plan_.features.bf16, "VK_KHR_shader_bfloat16");
    extension(plan_.features.pipeline_statistics, "VK_KHR_pipeline_executable_properties");
    return ok_status();
  }

  // A device of type CPU computes on the cores that would poll for it.
  bool is_gpu() const {
    return snapshot_.type == DeviceType::kDiscrete || snapshot_.type == DeviceType::kIntegrated;
  }

  void plan_queues() {
    const std::vector<QueueFamily>& families = snapshot_.queue_families;
    const auto find = [&](auto predicate) -> int {
      const auto at = std::find_if(families.begin(), families.end(), [&](const QueueFamily& f) {
        return f.count > 0 && predicate(f);
      });
      return at == families.end() ? -1 : static_cast<int>(at - families.begin());
    };
    // A family without graphics does not share its hardware queue with a desktop.
    int compute = find([](const QueueFamily& f) { return f.has_compute && !f.has_graphics; });
    if (compute < 0) compute = find([](const QueueFamily& f) { return f.has_compute; });
    plan_.compute = {static_cast<uint32_t>(std::max(compute, 0)), 0};
    plan_.transfer = plan_.compute;
    if (!options_.use_transfer_queue) {
      no("transfer queue: switched off by an option");
      return;
    }
    // Transfer alone maps to copy engines.
    const int copies = find(
        [](const QueueFamily& f) { return f.has_transfer && !f.has_compute && !f.has_graphics; });
    if (copies >= 0) {
      plan_.transfer = {static_cast<uint32_t>(copies), 0};
    } else if (families[plan_.compute.family].count > 1) {
      plan_.transfer = {plan_.compute.family, 1};
    } else {
      no("transfer queue: the device has one queue, transfers share it");
    }
  }

  Status plan_memory() {
    const std::vector<MemoryType>& types = snapshot_.memory_types;
    uint64_t biggest_local = 0;
    for (const MemoryHeap& heap : snapshot_.heaps) {
      if (heap.is_device_local) biggest_local = std::max(biggest_local, heap.size_bytes);
    }
    const auto heap_of = [&](uint32_t type) -> const MemoryHeap& {
      return snapshot_.heaps[types[type].heap_index];
    };
    const auto host_visible = [&](uint32_t i) {
      // Coherent alone: the specification promises such a type, and flushes are easily forgotten.
      return types[i].is_host_visible && types[i].is_host_coherent;
    };
    // Zero-copy wants the big heap: small visible heaps of older boards are for tables.
    const auto is_big = [&](uint32_t i) { return heap_of(i).size_bytes >= biggest_local / 10 * 9; };

    std::vector<uint32_t> all;
    for (uint32_t i = 0; i < types.size(); ++i) {
      if (types[i].heap_index < snapshot_.heaps.size()) all.push_back(i);
    }
    const auto ranked = [&](auto accept, auto key) {
      std::vector<uint32_t> chosen;
      std::copy_if(all.begin(), all.end(), std::back_inserter(chosen), accept);
      std::stable_sort(chosen.begin(), chosen.end(),
                       [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
      return chosen;
    };

    const bool is_uma =
        snapshot_.type == DeviceType::kCpu || snapshot_.type == DeviceType::kIntegrated;
    const auto is_zero_copy = [&](uint32_t i) {
      return options_.use_host_visible_memory && is_uma && types[i].is_device_local && is_big(i) &&
             host_visible(i) && types[i].is_host_cached;
    };
    // Host visibility of tensors is wanted on unified memory alone.
    plan_.device_types = ranked([&](uint32_t i) { return types[i].is_device_local; },
                                [&](uint32_t i) {
                                  return std::tuple(!is_big(i), !is_zero_copy(i),
                                                    types[i].is_host_visible && !is_uma);
                                });
    plan_.upload_types = ranked(host_visible, [&](uint32_t i) {
      return std::tuple(types[i].is_device_local && !is_uma, types[i].is_host_cached);
    });
    plan_.download_types = ranked(host_visible, [&](uint32_t i) {
      return std::tuple(!types[i].is_host_cached, types[i].is_device_local && !is_uma);
    });
    plan_.table_types = ranked(host_visible, [&](uint32_t i) {
      return std::tuple(!types[i].is_device_local, types[i].is_host_cached);
    });
    if (plan_.device_types.empty() || plan_.upload_types.empty()) {
      return failed_precondition(
          "{} cannot be used: it has no memory type that is {}", snapshot_.name,
          plan_.device_types.empty() ? "device-local" : "host-visible and coherent");
    }
    const uint32_t chosen = plan_.device_types.front();
    plan_.device_heap = types[chosen].heap_index;
    if (is_zero_copy(chosen)) {
      plan_.host_access = HostAccess::kFull;
    } else {
      // Resizable BAR: the host may write all device memory, reading it is slow.
      const auto bar = std::find_if(all.begin(), all.end(), [&](uint32_t i) {
        return types[i].is_device_local && host_visible(i) && is_big(i);
      });
      if (options_.use_host_visible_memory && bar != all.end()) {
        plan_.host_access = HostAccess::kWriteOnly;
        std::stable_partition(plan_.device_types.begin(), plan_.device_types.end(),
                              [&](uint32_t i) { return i == *bar; });
        plan_.device_heap = types[*bar].heap_index;
        no("zero-copy reads: the host reads device memory uncached");
      } else if (options_.use_host_visible_memory) {
        no("zero-copy: the host does not see the device-local heap of {} bytes", biggest_local);
      } else {
        no("zero-copy: switched off by an option");
      }
    }

    const MemoryHeap& heap = snapshot_.heaps[plan_.device_heap];
    if (options_.memory_limit_bytes > 0) {
      plan_.memory_limit_bytes = options_.memory_limit_bytes;
    } else if (plan_.features.memory_budget && heap.budget_bytes > 0) {
      // The rest of the budget is other processes'.
      plan_.memory_limit_bytes = static_cast<int64_t>(
          heap.budget_bytes > heap.usage_bytes ? heap.budget_bytes - heap.usage_bytes : 0);
    } else {
      plan_.memory_limit_bytes = static_cast<int64_t>(heap.size_bytes / 10 * 8);
      no("memory budget: unknown, so 80 % of the heap of {} bytes", heap.size_bytes);
    }
    return ok_status();
  }

  void plan_limits() {
    const Limits& limits = snapshot_.limits;
    plan_.max_allocation_bytes = limits.promised_allocation_bytes();
    plan_.max_buffer_bytes = limits.largest_buffer_bytes();
    plan_.allocation_alignment = limits.allocation_alignment();
    plan_.max_push_constant_bytes = std::max(limits.max_push_constants_bytes, 128U);
    for (size_t i = 0; i < 3; ++i) {
      plan_.max_group_count[i] = std::max(limits.max_workgroup_count[i], 65535U);
    }
  }

  template <typename... Args>
  void no(fmt::format_string<Args...> format, Args&&... args) {
    plan_.reasons.push_back("no " + fmt::format(format, std::forward<Args>(args)...));
  }

  const DeviceSnapshot& snapshot_;
  const DeviceOptions& options_;
  DevicePlan plan_;
};

}  // namespace

std::string_view host_access_name(HostAccess access) {
  switch (access) {
    case HostAccess::kNone:
      return "none";
    case HostAccess::kWriteOnly:
      return "write only";
    case HostAccess::kFull:
      return "full";
  }
  return "?";
}

Result<DevicePlan> plan_device(const DeviceSnapshot& snapshot, const DeviceOptions& options) {
  return Planner(snapshot, options).run();
}

Result<size_t> choose_device(const std::vector<DeviceSnapshot>& devices, std::string_view wanted) {
  std::vector<std::string> all;
  for (size_t i = 0; i < devices.size(); ++i) {
    all.push_back(fmt::format("{}: {} ({})", i, devices[i].name, devices[i].device_uuid));
  }
  if (devices.empty()) {
    return failed_precondition(
        "the Vulkan drivers see no device; install a driver (Debian: mesa-vulkan-drivers), or in a "
        "container pass the GPU through with the `graphics` capability");
  }
  if (wanted.empty()) {
    const size_t best = preferred_order(devices).front();
    const std::vector<std::string> missing = devices[best].missing_requirements();
    if (missing.empty()) return best;
    return failed_precondition("no Vulkan device can be used; the best one, {}, lacks {}",
                               devices[best].name, fmt::join(missing, ", "));
  }
  size_t index = 0;
  const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), index);
  if (error == std::errc() && end == wanted.data() + wanted.size() && wanted.size() < 10) {
    if (index < devices.size()) return index;
  } else {
    for (size_t i = 0; i < devices.size(); ++i) {
      if (devices[i].device_uuid == lower(wanted)) return i;
    }
    for (size_t i = 0; i < devices.size(); ++i) {
      if (lower(devices[i].name).find(lower(wanted)) != std::string::npos) return i;
    }
  }
  return not_found("there is no Vulkan device \"{}\" (index, UUID or part of a name); there are {}",
                   wanted, fmt::join(all, ", "));
}

}  // namespace hekla::vulkan
