// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/plugin/choose_devices.h"

#include <algorithm>

#include "backends/vulkan/device/plan.h"

namespace hekla::vulkan {
namespace {

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

Result<std::vector<size_t>> choose_devices(const std::vector<DeviceSnapshot>& devices,
                                           std::string_view wanted) {
  if (wanted == "all") {
    std::vector<size_t> usable;
    for (const size_t i : preferred_order(devices)) {
      if (devices[i].missing_requirements().empty()) usable.push_back(i);
    }
    const auto is_software = [&](size_t i) { return devices[i].type == DeviceType::kCpu; };
    if (!std::all_of(usable.begin(), usable.end(), is_software)) {
      std::erase_if(usable, is_software);
    }
    if (!usable.empty()) return usable;
    wanted = "";  // says why
  }
  // Names have commas, too.
  Result<size_t> one = choose_device(devices, wanted);
  if (one.ok()) return std::vector<size_t>{*one};
  if (wanted.find(',') == std::string_view::npos) return one.status();
  std::vector<size_t> chosen;
  for (size_t begin = 0; begin <= wanted.size();) {
    const size_t end = std::min(wanted.find(',', begin), wanted.size());
    const std::string_view entry = trimmed(wanted.substr(begin, end - begin));
    begin = end + 1;
    if (entry.empty()) continue;
    HEKLA_ASSIGN_OR_RETURN(size_t index, choose_device(devices, entry));
    if (std::find(chosen.begin(), chosen.end(), index) != chosen.end()) {
      // A part of a name may mean another device, too; a number does not.
      std::vector<DeviceSnapshot> others = devices;
      for (const size_t taken : chosen) others[taken].name = others[taken].device_uuid = "";
      if (const Result<size_t> other = choose_device(others, entry); other.ok()) index = *other;
    }
    chosen.push_back(index);
  }
  if (chosen.empty()) return one.status();
  return chosen;
}

}  // namespace hekla::vulkan
