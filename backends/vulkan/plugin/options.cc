// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/plugin/options.h"

#include <charconv>
#include <cstdlib>
#include <map>

#include "runtime/base/file_cache.h"

namespace hekla::vulkan {
namespace {

// Options given as text hold integers as text.
Result<int64_t> integer(const std::string& name, const pjrt::OptionValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? 1 : 0;
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (*text == "true") return 1;
    if (*text == "false") return 0;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
    if (error == std::errc() && end == text->data() + text->size()) return number;
  }
  return invalid_argument("the option {} must be an integer", name);
}

Result<std::string> text(const std::string& name, const pjrt::OptionValue& value) {
  if (const auto* string = std::get_if<std::string>(&value)) return *string;
  if (const auto* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  return invalid_argument("the option {} must be text", name);
}

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

using Setter = Status (*)(BackendOptions&, const std::string&, const pjrt::OptionValue&);

template <typename Set>
Status with_integer(const std::string& name, const pjrt::OptionValue& value, const Set& set) {
  HEKLA_ASSIGN_OR_RETURN(const int64_t number, integer(name, value));
  set(number);
  return ok_status();
}

template <typename Set>
Status with_text(const std::string& name, const pjrt::OptionValue& value, const Set& set) {
  HEKLA_ASSIGN_OR_RETURN(std::string string, text(name, value));
  set(std::move(string));
  return ok_status();
}

constexpr DeviceType kDeviceTypes[] = {DeviceType::kDiscrete, DeviceType::kIntegrated,
                                       DeviceType::kVirtual, DeviceType::kCpu};

struct Option {
  const char* name;
  const char* environment;
  Setter set;
};

constexpr Option kOptions[] = {
    {"num_devices", "HEKLA_NUM_DEVICES",
     [](BackendOptions& o, const std::string& name, const pjrt::OptionValue& value) {
       return with_integer(name, value, [&](int64_t n) { o.device_count = n; });
     }},
    {"memory_limit_bytes", "HEKLA_MEMORY_LIMIT",
     [](BackendOptions& o, const std::string& name, const pjrt::OptionValue& value) {
       return with_integer(name, value, [&](int64_t n) { o.device.memory_limit_bytes = n; });
     }},
    {"vulkan_device", "HEKLA_VULKAN_DEVICE",
     [](BackendOptions& o, const std::string& name, const pjrt::OptionValue& value) {
       return with_text(name, value, [&](std::string s) { o.wanted_device = std::move(s); });
     }},
    {"vulkan_validation", "HEKLA_VULKAN_VALIDATION",
     [](BackendOptions& o, const std::string& name, const pjrt::OptionValue& value) {
       return with_integer(name, value, [&](int64_t n) { o.device.validation = n != 0; });
     }},
    {"vulkan_staging", "HEKLA_VULKAN_STAGING",
     [](BackendOptions& o, const std::string& name, const pjrt::OptionValue& value) {
       return with_integer(name, value,
                           [&](int64_t n) { o.device.use_host_visible_memory = n == 0; });
     }},
    {"vulkan_mask", "HEKLA_VULKAN_MASK",
     [](BackendOptions& o, const std::string& name, const pjrt::OptionValue& value) {
       return with_text(name, value, [&](std::string s) { o.device.masked_features = split(s); });
     }},
    {"vulkan_device_type", "HEKLA_VULKAN_DEVICE_TYPE",
     [](BackendOptions& o, const std::string& name, const pjrt::OptionValue& value) {
       HEKLA_ASSIGN_OR_RETURN(o.device_type, text(name, value));
       for (const DeviceType type : kDeviceTypes) {
         if (o.device_type == device_type_name(type)) return ok_status();
       }
       return invalid_argument("{} must be discrete, integrated, virtual or cpu, is {}", name,
                               o.device_type);
     }},
    {"check_barriers", "HEKLA_CHECK_BARRIERS",
     [](BackendOptions& o, const std::string& name, const pjrt::OptionValue& value) {
       return with_integer(name, value, [&](int64_t n) { o.program.check_barriers = n != 0; });
     }},
    {"all_barriers", "HEKLA_ALL_BARRIERS",
     [](BackendOptions& o, const std::string& name, const pjrt::OptionValue& value) {
       return with_integer(name, value, [&](int64_t n) { o.program.all_barriers = n != 0; });
     }},
    {"vulkan_profile", "HEKLA_VULKAN_PROFILE",
     [](BackendOptions& o, const std::string& name, const pjrt::OptionValue& value) {
       return with_integer(name, value, [&](int64_t n) { o.program.profile = n != 0; });
     }},
    {"vulkan_launch_timeout", "HEKLA_VULKAN_LAUNCH_TIMEOUT",
     [](BackendOptions& o, const std::string& name, const pjrt::OptionValue& value) {
       HEKLA_ASSIGN_OR_RETURN(o.device.launch_timeout_seconds, integer(name, value));
       if (o.device.launch_timeout_seconds >= 0) return ok_status();
       return invalid_argument("{} must not be negative, is {}", name,
                               o.device.launch_timeout_seconds);
     }},
    {"cache_dir", nullptr,  // default_cache_folder() reads the environment
     [](BackendOptions& o, const std::string& name, const pjrt::OptionValue& value) {
       return with_text(name, value, [&](std::string s) { o.cache_folder = std::move(s); });
     }},
};

}  // namespace

Result<BackendOptions> read_options(const pjrt::Options& options) {
  BackendOptions result;
  result.cache_folder = default_cache_folder();
  for (const Option& option : kOptions) {
    const char* value = option.environment == nullptr ? nullptr : std::getenv(option.environment);
    if (value == nullptr || *value == '\0') continue;
    HEKLA_RETURN_IF_ERROR(option.set(result, option.environment, std::string(value)));
  }
  for (const auto& [name, value] : options) {
    if (name == "node_id" || name == "num_nodes" || name == "partition_index") {
      HEKLA_ASSIGN_OR_RETURN(const int64_t number, integer(name, value));
      if (name == "num_nodes" && number > 1) {
        return unimplemented("the Vulkan device does not run over {} processes yet", number);
      }
      continue;
    }
    const Option* known = nullptr;
    std::string names;
    for (const Option& option : kOptions) {
      if (name == option.name) known = &option;
      names += names.empty() ? option.name : std::string(", ") + option.name;
    }
    if (known == nullptr) {
      return invalid_argument("there is no client option {}; there are {}", name, names);
    }
    HEKLA_RETURN_IF_ERROR(known->set(result, name, value));
  }
  constexpr int64_t kMaxDevices = 256;
  if (result.device_count < 1 || result.device_count > kMaxDevices) {
    return invalid_argument("num_devices must be 1 to {}, is {}", kMaxDevices, result.device_count);
  }
  if (result.device.memory_limit_bytes < 0) {
    return invalid_argument("memory_limit_bytes must not be negative, is {}",
                            result.device.memory_limit_bytes);
  }
  return result;
}

}  // namespace hekla::vulkan
