// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/plugin/options.h"

#include <algorithm>

#include "runtime/base/file_cache.h"

namespace hekla::vulkan {
namespace {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin < list.size()) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

pjrt::OptionTable option_table(BackendOptions& o) {
  pjrt::OptionTable table;
  pjrt::add_common_options(table, o.common, "the device's budget, shared out");
  pjrt::add_fail_on_fallback(table, o.fail_on_fallback);
  table.text("vulkan_device", "HEKLA_VULKAN_DEVICE", o.wanted_device, {}, "the best one",
             "index, UUID or part of the name; several with commas in between, or all: each is cut "
             "into num_devices; one that is named twice is opened twice and shares its memory");
  table.flag("vulkan_validation", "HEKLA_VULKAN_VALIDATION", o.device.validation, "false",
             "the validation layers watch");
  table.flag("vulkan_staging", "HEKLA_VULKAN_STAGING", o.is_staging, "false",
             "no memory that host and device share, as on a discrete GPU");
  table.text(
      "vulkan_mask", "HEKLA_VULKAN_MASK", o.masked_features, {}, "none",
      "features to treat as absent: f16,i64; cooperative_matrix: no products on matrix units");
  table.text("vulkan_device_type", "HEKLA_VULKAN_DEVICE_TYPE", o.device_type,
             {"discrete", "integrated", "virtual", "cpu"}, "the device's own",
             "kernels as for such a device");
  table.flag("check_barriers", "HEKLA_CHECK_BARRIERS", o.program.check_barriers, "in debug builds",
             "a second algorithm proves the barriers");
  table.flag("all_barriers", "HEKLA_ALL_BARRIERS", o.program.all_barriers, "false",
             "a barrier in front of every dispatch");
  table.flag("vulkan_profile", "HEKLA_VULKAN_PROFILE", o.program.profile, "false",
             "logs the device's time of launches by kernel");
  table.integer(
      "vulkan_launch_timeout", "HEKLA_VULKAN_LAUNCH_TIMEOUT", o.device.launch_timeout_seconds,
      {0, int64_t{1} << 30}, "0: none",
      "seconds after which work that does not end is an error: a loop that goes on in "
      "submission after submission ends its launch with DEADLINE_EXCEEDED, one submission "
      "that does not end counts as the loss of the device");
  table.integer(
      "vulkan_wait_poll", "HEKLA_VULKAN_WAIT_POLL", o.device.wait_poll_microseconds, {0, 1'000'000},
      "100 on discrete and integrated GPUs, else 0",
      "microseconds of a wait in which a thread asks the device again and again, about when it "
      "expects the end; before and after that it sleeps, and wakes up later");
  table.text("cache_dir", "HEKLA_CACHE_DIR", o.cache_folder, {},
             "hekla in XDG_CACHE_HOME or ~/.cache", "folder of compiled code");
  return table;
}

Result<BackendOptions> read_options(const pjrt::Options& options) {
  BackendOptions result;
  result.cache_folder = default_cache_folder();
  HEKLA_RETURN_IF_ERROR(option_table(result).read(options));
  result.device.memory_limit_bytes = result.common.memory_limit_bytes;
  result.device.use_host_visible_memory = !result.is_staging;
  result.device.masked_features = split(result.masked_features);
  return result;
}

}  // namespace hekla::vulkan
