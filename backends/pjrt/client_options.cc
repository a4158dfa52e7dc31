// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/client_options.h"

#include <charconv>
#include <cstdlib>

namespace hekla::pjrt {

Result<int64_t> integer_option(const std::string& name, const OptionValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  if (const auto* text = std::get_if<std::string>(&value)) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
    if (error == std::errc() && end == text->data() + text->size()) return number;
  }
  return invalid_argument("the option {} must be an integer", name);
}

Result<bool> flag_option(const std::string& name, const OptionValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* number = std::get_if<int64_t>(&value); number != nullptr && *number >> 1 == 0) {
    return *number == 1;
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (*text == "true" || *text == "1") return true;
    if (*text == "false" || *text == "0") return false;
  }
  return invalid_argument("the option {} must be true or false", name);
}

Result<int64_t> integer_from_environment(const char* name, int64_t fallback) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return fallback;
  return integer_option(name, std::string(text));
}

Result<CommonOptions> common_options(int64_t memory_bytes) {
  CommonOptions options;
  HEKLA_ASSIGN_OR_RETURN(options.device_count, integer_from_environment("HEKLA_NUM_DEVICES", 1));
  HEKLA_ASSIGN_OR_RETURN(options.memory_limit_bytes,
                         integer_from_environment("HEKLA_MEMORY_LIMIT", memory_bytes));
  return options;
}

Result<bool> take_common_option(const std::string& name, const OptionValue& value,
                                const char* device, CommonOptions& options) {
  if (name == "num_devices") {
    HEKLA_ASSIGN_OR_RETURN(options.device_count, integer_option(name, value));
  } else if (name == "memory_limit_bytes") {
    HEKLA_ASSIGN_OR_RETURN(options.memory_limit_bytes, integer_option(name, value));
  } else if (name == "node_id" || name == "num_nodes" || name == "partition_index") {
    HEKLA_ASSIGN_OR_RETURN(const int64_t number, integer_option(name, value));
    if (name == "num_nodes" && number > 1) {
      return unimplemented("the {} does not run over {} processes yet", device, number);
    }
  } else {
    return false;
  }
  return true;
}

Status check(const CommonOptions& options) {
  constexpr int64_t kMaxDevices = 256;
  if (options.device_count < 1 || options.device_count > kMaxDevices) {
    return invalid_argument("num_devices must be 1 to {}, is {}", kMaxDevices,
                            options.device_count);
  }
  if (options.memory_limit_bytes < 0) {
    return invalid_argument("memory_limit_bytes must not be negative, is {}",
                            options.memory_limit_bytes);
  }
  return ok_status();
}

}  // namespace hekla::pjrt
