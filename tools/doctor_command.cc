// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor_command.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "backends/vulkan/snapshot/loader.h"
#include "backends/vulkan/snapshot/snapshot.h"
#include "runtime/plugin/probe.h"
#include "runtime/plugin/registry.h"

namespace hekla::tools {
namespace {

namespace fs = std::filesystem;

// One line of the report. `remedy` is empty when all is well.
struct Finding {
  enum class State { kOk, kNote, kProblem };
  State state = State::kOk;
  std::string area;
  std::string text;
  std::string remedy;
};

class Doctor {
 public:
  std::vector<Finding> examine() {
    // Plugins first, though they are told of last: they are tried in child processes, where some
    // drivers (NVIDIA's) refuse devices once the parent has opened them.
    examine_plugins();
    std::vector<Finding> plugins = std::move(findings_);
    findings_.clear();
    examine_loader();
    examine_manifests();
    examine_layers();
    examine_devices();
    std::move(plugins.begin(), plugins.end(), std::back_inserter(findings_));
    examine_environment();
    return std::move(findings_);
  }
  bool has_usable_device() const { return has_usable_device_; }

 private:
  void add(Finding::State state, std::string area, std::string text, std::string remedy = "") {
    findings_.push_back({state, std::move(area), std::move(text), std::move(remedy)});
  }

  void examine_loader() {
    Result<const vulkan::VulkanLoader*> loader = vulkan::VulkanLoader::open();
    if (!loader.ok()) {
      add(Finding::State::kProblem, "loader", loader.status().message(),
          "install libvulkan1, or put the directory of libvulkan.so.1 on LD_LIBRARY_PATH");
      return;
    }
    add(Finding::State::kOk, "loader",
        fmt::format("{}, Vulkan {}", (*loader)->path(),
                    vulkan::version_string((*loader)->instance_version())));
  }

  // Where the loader looks for driver manifests, as its documentation lists the places on Linux.
  static std::vector<fs::path> manifest_paths(std::string& source) {
    for (const char* variable : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}) {
      if (const char* value = std::getenv(variable); value != nullptr && *value != '\0') {
        source = variable;
        return expand(split(value));
      }
    }
    source = "the standard folders";
    std::vector<fs::path> folders;
    const auto add_each = [&](const char* variable, const char* fallback) {
      const char* value = std::getenv(variable);
      for (const std::string& part : split(value == nullptr || *value == '\0' ? fallback : value)) {
        folders.push_back(fs::path(part) / "vulkan" / "icd.d");
      }
    };
    const char* home = std::getenv("HOME");
    const std::string base = home == nullptr ? "" : home;
    add_each("XDG_CONFIG_HOME", (base + "/.config").c_str());
    add_each("XDG_CONFIG_DIRS", "/etc/xdg");
    folders.push_back("/usr/local/etc/vulkan/icd.d");
    folders.push_back("/etc/vulkan/icd.d");
    add_each("XDG_DATA_HOME", (base + "/.local/share").c_str());
    add_each("XDG_DATA_DIRS", "/usr/local/share:/usr/share");
    std::vector<std::string> unique;
    for (const fs::path& folder : folders) {
      if (std::find(unique.begin(), unique.end(), folder.string()) == unique.end()) {
        unique.push_back(folder.string());
      }
    }
    if (const char* more = std::getenv("VK_ADD_DRIVER_FILES")) {
      for (std::string& part : split(more)) unique.push_back(std::move(part));
    }
    return expand(unique);
  }

  static std::vector<std::string> split(std::string_view text) {
    std::vector<std::string> parts;
    while (!text.empty()) {
      const size_t end = std::min(text.find(':'), text.size());
      if (end > 0) parts.emplace_back(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return parts;
  }

  // Folders become the manifests inside them.
  static std::vector<fs::path> expand(const std::vector<std::string>& entries) {
    std::vector<fs::path> files;
    for (const std::string& entry : entries) {
      std::error_code error;
      if (!fs::is_directory(entry, error)) {
        if (entry.ends_with(".json")) files.emplace_back(entry);
        continue;
      }
      std::set<fs::path> sorted;
      for (const auto& file : fs::directory_iterator(entry, error)) {
        if (file.path().extension() == ".json") sorted.insert(file.path());
      }
      files.insert(files.end(), sorted.begin(), sorted.end());
    }
    return files;
  }

  void examine_manifests() {
    std::string source;
    const std::vector<fs::path> manifests = manifest_paths(source);
    if (manifests.empty()) {
      add(Finding::State::kProblem, "drivers", fmt::format("no driver manifest in {}", source),
          "install mesa-vulkan-drivers or the vendor's driver");
    }
    for (const fs::path& manifest : manifests) examine_manifest(manifest);
  }

  void examine_manifest(const fs::path& manifest) {
    std::ifstream file(manifest);
    if (!file) {
      add(Finding::State::kProblem, "drivers", fmt::format("{} cannot be read", manifest.string()),
          "mend the path in VK_DRIVER_FILES, or the file's permissions");
      return;
    }
    const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
    const auto icd = json.is_object() ? json.find("ICD") : json.end();
    if (!json.is_object() || icd == json.end() || !icd->is_object() ||
        !icd->contains("library_path") || !(*icd)["library_path"].is_string()) {
      add(Finding::State::kProblem, "drivers",
          fmt::format("{} is no driver manifest", manifest.string()),
          "reinstall the package that it belongs to");
      return;
    }
    std::string library = (*icd)["library_path"].get<std::string>();
    // A name without a slash is searched by the dynamic linker, another one from the manifest on.
    if (library.find('/') != std::string::npos && !library.starts_with('/')) {
      library = (manifest.parent_path() / library).string();
    }
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* reason = dlerror();
      add(Finding::State::kProblem, "drivers",
          fmt::format("{} names {}, which does not load: {}", manifest.string(), library,
                      reason == nullptr ? "unknown error" : reason),
          "install the missing library, or remove the driver");
      return;
    }
    // The driver stays loaded: some start threads when they load, which must not lose their code.
    const std::string version = icd->value("api_version", std::string("?"));
    add(Finding::State::kOk, "drivers",
        fmt::format("{}: {}, Vulkan {}", manifest.string(), library, version));
  }

  void examine_layers() {
    Result<std::vector<vulkan::LayerInfo>> layers = vulkan::list_layers();
    if (!layers.ok()) return;  // the loader's finding says why
    bool has_validation = false;
    for (const vulkan::LayerInfo& layer : *layers) {
      has_validation = has_validation || layer.name == "VK_LAYER_KHRONOS_validation";
      add(Finding::State::kOk, "layers", fmt::format("{} ({})", layer.name, layer.description));
    }
    if (!has_validation) {
      add(Finding::State::kNote, "layers", "no validation layer",
          "install vulkan-validationlayers to debug the Vulkan back end");
    }
  }

  void examine_devices() {
    Result<std::vector<vulkan::DeviceSnapshot>> devices = vulkan::query_devices();
    if (!devices.ok()) {
      add(Finding::State::kProblem, "devices", devices.status().message(), "see the lines above");
      return;
    }
    if (devices->empty()) {
      add(Finding::State::kProblem, "devices", "the drivers see no device",
          "check that the device nodes (/dev/dri, /dev/nvidia*) exist and that this user may open "
          "them; in a container pass them in, with the `compute` and `graphics` capabilities");
    }
    for (size_t i : vulkan::preferred_order(*devices)) {
      const vulkan::DeviceSnapshot& device = (*devices)[i];
      const std::vector<std::string> missing = device.missing_requirements();
      const std::string text =
          fmt::format("{} ({}, {} {})", device.name, vulkan::device_type_name(device.type),
                      device.driver_name, device.driver_info);
      if (missing.empty()) {
        has_usable_device_ = true;
        add(Finding::State::kOk, "devices", text);
      } else {
        add(Finding::State::kProblem, "devices",
            fmt::format("{} lacks {}", text, fmt::join(missing, ", ")),
            "update the driver; Vulkan 1.2 with these features is the floor");
      }
    }
    if (devices->size() == 1 && devices->front().type == vulkan::DeviceType::kCpu) {
      add(Finding::State::kNote, "devices", "the only Vulkan device runs on the CPU",
          "install the GPU's driver if there is a GPU");
    }
  }

  // Each plugin is tried in a child process: one that aborts or hangs costs a line.
  void examine_plugins() {
    for (const runtime::PluginEntry& entry : runtime::Registry::instance().list()) {
      const std::string area = "plugin " + entry.name;
      if (!entry.is_there()) {
        add(entry.is_foreign ? Finding::State::kProblem : Finding::State::kNote, area,
            fmt::format("no library {} ({})", entry.path, entry.source),
            entry.is_foreign ? "correct the path" : "build or install this plugin to use it");
        continue;
      }
      const runtime::ProbeResult probe = runtime::probe_plugin(entry.path);
      const bool works = probe.works();
      add(works ? Finding::State::kOk : Finding::State::kProblem, area,
          fmt::format("{}: {}", entry.path, probe.to_string()),
          works ? "" : "fix what the plugin reports, or choose another with PJRT_DEVICE");
    }
    for (const std::string& problem : runtime::Registry::instance().problems()) {
      add(Finding::State::kProblem, "environment", problem, "correct the variable");
    }
  }

  void examine_environment() {
    for (const char* name :
         {"PJRT_DEVICE", "PJRT_NAMES_AND_LIBRARY_PATHS", "JAX_PLATFORMS", "HEKLA_PLUGIN_PATH",
          "HEKLA_LOG", "HEKLA_CLIENT_OPTIONS", "HEKLA_MEMORY_LIMIT", "HEKLA_NUM_DEVICES",
          "VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES", "VK_LAYER_PATH",
          "VK_INSTANCE_LAYERS", "VK_LOADER_DEBUG", "LD_LIBRARY_PATH"}) {
      if (const char* value = std::getenv(name)) {
        add(Finding::State::kOk, "environment", fmt::format("{}={}", name, value));
      }
    }
  }

  std::vector<Finding> findings_;
  bool has_usable_device_ = false;
};

void print_findings(const std::vector<Finding>& findings) {
  std::string area;
  for (const Finding& finding : findings) {
    if (finding.area != area) fmt::print("{}\n", finding.area);
    area = finding.area;
    const char* mark = finding.state == Finding::State::kOk     ? "ok     "
                       : finding.state == Finding::State::kNote ? "note   "
                                                                : "problem";
    fmt::print("  {}  {}\n", mark, finding.text);
    if (!finding.remedy.empty()) fmt::print("           -> {}\n", finding.remedy);
  }
}

void print_json(const std::vector<Finding>& findings, bool usable) {
  nlohmann::json json = {{"usable_vulkan_device", usable}, {"findings", nlohmann::json::array()}};
  constexpr const char* kStates[] = {"ok", "note", "problem"};
  for (const Finding& finding : findings) {
    json["findings"].push_back({{"state", kStates[static_cast<int>(finding.state)]},
                                {"area", finding.area},
                                {"text", finding.text},
                                {"remedy", finding.remedy}});
  }
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Examine loader, drivers, layers, libraries and environment; name remedies");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "Print the findings as JSON");
  command->callback([as_json, &exit_code] {
    Doctor doctor;
    const std::vector<Finding> findings = doctor.examine();
    if (*as_json) {
      print_json(findings, doctor.has_usable_device());
    } else {
      print_findings(findings);
    }
    exit_code = doctor.has_usable_device() ? 0 : 1;
  });
}

}  // namespace hekla::tools
