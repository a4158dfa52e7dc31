// SPDX-License-Identifier: Apache-2.0
#include "tools/run/run_all.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "runtime/plugin/probe.h"
#include "runtime/plugin/registry.h"
#include "tools/run/case_file.h"
#include "tools/run/child_process.h"
#include "tools/run/exit_codes.h"

namespace hekla::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Row {
  std::string program;
  std::string device;
  std::string status;   // "ok", "FAILED", "error", "CRASHED", "TIMED OUT"
  std::string message;  // why not ok
  int exit_code = 0;
  std::optional<double> max_error;
  std::optional<double> worst_ratio;
  std::optional<double> compile_seconds;
  std::optional<double> run_seconds;
};

std::optional<double> number_in(const Json& report, const char* key) {
  if (!report.is_object() || !report.contains(key) || !report[key].is_number()) return std::nullopt;
  return report[key].get<double>();
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of(" \n\r");
  if (end == std::string::npos) return "";
  const size_t start = text.rfind('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1,
                     end - (start == std::string::npos ? 0 : start + 1) + 1);
}

Row run_case(const RunAllRequest& request, const std::string& folder, const std::string& device) {
  std::vector<std::string> words = {"/proc/self/exe", "run",      "--case",
                                    folder,           "--json",   "--device",
                                    device,           "--repeat", std::to_string(request.repeat)};
  for (const std::string& option : request.client_options) {
    words.push_back("--client-option");
    words.push_back(option);
  }
  const auto limit = std::chrono::milliseconds(static_cast<int64_t>(request.timeout_seconds * 1e3));
  // The child is the probe.
  const ChildResult child = run_child(words, {{"HEKLA_PROBE", "0"}}, limit);
  Row row;
  row.program = fs::path(folder).lexically_normal().filename().string();
  row.device = device;
  row.exit_code = kDeviceError;
  if (!child.started) {
    row.status = "error";
    row.message = "the child process did not start";
  } else if (child.timed_out) {
    row.status = "TIMED OUT";
    row.message = fmt::format("after {} s", request.timeout_seconds);
  } else if (child.signal != 0) {
    row.status = "CRASHED";
    row.message = fmt::format("signal {} ({}): {}", child.signal, strsignal(child.signal),
                              last_line(child.errors));
  } else {
    row.exit_code = child.exit_code;
    row.status = child.exit_code == 0 ? "ok" : child.exit_code == 1 ? "FAILED" : "error";
    const Json report = Json::parse(child.output, nullptr, /*allow_exceptions=*/false);
    if (report.is_object()) {
      if (report.contains("message") && report["message"].is_string()) {
        row.message = report["message"].get<std::string>();
      }
      row.max_error = number_in(report, "max_error");
      row.worst_ratio = number_in(report, "worst_ratio");
      row.compile_seconds = number_in(report, "compile_seconds");
      row.run_seconds = number_in(report, "run_seconds");
    } else {
      row.message = last_line(child.errors);
      if (row.status == "ok") row.status = "error";
    }
  }
  return row;
}

std::string cell(const std::optional<double>& value, const char* format) {
  return value ? fmt::format(fmt::runtime(format), *value) : "-";
}

void print_row(const Row& row, size_t program_width, size_t device_width) {
  std::string message = row.message.substr(0, row.message.find('\n'));
  fmt::print("{:<{}}  {:<{}}  {:<9}  {:>9}  {:>8}  {:>9}  {:>9}{}{}\n", row.program, program_width,
             row.device, device_width, row.status, cell(row.max_error, "{:.2g}"),
             row.worst_ratio ? fmt::format("{:.1f}%", *row.worst_ratio * 100) : "-",
             cell(row.compile_seconds, "{:.3f}"), cell(row.run_seconds, "{:.4f}"),
             message.empty() ? "" : "  ", message);
  std::fflush(stdout);
}

Json to_json(const Row& row) {
  const auto value = [](const std::optional<double>& x) { return x ? Json(*x) : Json(nullptr); };
  return {{"program", row.program},
          {"device", row.device},
          {"status", row.status},
          {"message", row.message},
          {"exit_code", row.exit_code},
          {"max_error", value(row.max_error)},
          {"worst_ratio", value(row.worst_ratio)},
          {"compile_seconds", value(row.compile_seconds)},
          {"run_seconds", value(row.run_seconds)}};
}

// A short name for the table's column.
std::string short_name(const std::string& device) {
  return device.find('/') == std::string::npos ? device : fs::path(device).filename().string();
}

}  // namespace

std::vector<std::string> chosen_devices(const std::vector<std::string>& named) {
  std::vector<std::string> devices = named;
  if (!devices.empty()) return devices;
  for (const runtime::PluginEntry& entry : runtime::Registry::instance().list()) {
    if (entry.is_there()) devices.push_back(entry.name);
  }
  if (devices.empty()) {
    fmt::print(stderr, "hekla: there is no device. Known plugins: {}\n",
               runtime::Registry::instance().list_text());
  }
  return devices;
}

int run_all(const RunAllRequest& request) {
  Result<std::vector<std::string>> cases = find_cases(request.folder);
  if (!cases.ok()) {
    fmt::print(stderr, "hekla: {}\n", cases.status().message());
    return kBadInput;
  }
  const std::vector<std::string> devices = chosen_devices(request.devices);
  if (devices.empty()) return kDeviceError;
  size_t program_width = 7;
  size_t device_width = 6;
  for (const std::string& folder : *cases) {
    program_width = std::max(program_width, fs::path(folder).filename().string().size());
  }
  for (const std::string& device : devices) {
    device_width = std::max(device_width, short_name(device).size());
  }
  if (!request.as_json) {
    fmt::print("{:<{}}  {:<{}}  {:<9}  {:>9}  {:>8}  {:>9}  {:>9}\n", "program", program_width,
               "device", device_width, "status", "max error", "of limit", "compile s", "run s");
  }
  std::vector<Row> rows;
  std::vector<std::string> unusable;
  for (const std::string& device : devices) {
    // Once per device: a device that is not usable gets one row, not one per program.
    Result<runtime::PluginEntry> entry = runtime::Registry::instance().find(device);
    Row row;
    row.program = "(all)";
    row.device = short_name(device);
    row.status = "no device";
    row.exit_code = kDeviceError;
    if (!entry.ok()) {
      row.message = entry.status().message();
    } else {
      runtime::Options options;
      for (const std::string& text : request.client_options) {
        if (Result<std::pair<std::string, runtime::OptionValue>> option =
                runtime::parse_option(text);
            option.ok()) {
          options.push_back(*option);
        }
      }
      const runtime::ProbeResult probe = runtime::probe_plugin(entry->path, options);
      if (!probe.works()) row.message = probe.to_string();
    }
    if (!row.message.empty()) {
      if (!request.as_json) print_row(row, program_width, device_width);
      rows.push_back(std::move(row));
      continue;
    }
    for (const std::string& folder : *cases) {
      Row result = run_case(request, folder, device);
      result.device = short_name(device);
      if (!request.as_json) print_row(result, program_width, device_width);
      rows.push_back(std::move(result));
    }
  }
  int exit_code = 0;
  size_t passed = 0;
  for (const Row& row : rows) {
    passed += row.status == "ok";
    // A wrong result tells more than a device that is missing.
    if (row.exit_code == 1 || exit_code == 0) exit_code = row.exit_code;
  }
  if (request.as_json) {
    Json list = Json::array();
    for (const Row& row : rows) list.push_back(to_json(row));
    fmt::print("{}\n", list.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{} of {} passed\n", passed, rows.size());
  }
  return exit_code;
}

}  // namespace hekla::tools
