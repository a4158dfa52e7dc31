// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/registry.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <filesystem>

#include "runtime/base/log.h"

namespace hekla::runtime {
namespace {

namespace fs = std::filesystem;

struct Builtin {
  const char* name;
  const char* file;
};
constexpr Builtin kBuiltins[] = {
    {"vulkan", "pjrt_vulkan.so"}, {"cpu", "pjrt_cpu.so"}, {"reference", "pjrt_reference.so"}};

// What the CPU device is called in JAX, whose own CPU is "cpu".
constexpr std::string_view kCpuInJax = "tbb";

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    if (std::string_view part = trim(text.substr(0, end)); !part.empty()) parts.push_back(part);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

bool ends_with_so(std::string_view text) { return text.ends_with(".so"); }

// The folders in which the loader looks for this program's libraries: LD_LIBRARY_PATH, its RUNPATH,
// the system's.
std::vector<std::string> loader_folders() {
  std::vector<std::string> folders;
  void* self = dlopen(nullptr, RTLD_LAZY);
  Dl_serinfo size{};
  if (self != nullptr && dlinfo(self, RTLD_DI_SERINFOSIZE, &size) == 0) {
    std::vector<std::max_align_t> memory(size.dls_size / sizeof(std::max_align_t) + 1);
    auto* info = reinterpret_cast<Dl_serinfo*>(memory.data());
    info->dls_size = size.dls_size;
    info->dls_cnt = size.dls_cnt;
    if (dlinfo(self, RTLD_DI_SERINFO, info) == 0) {
      const Dl_serpath* paths = info->dls_serpath;
      for (unsigned i = 0; i < info->dls_cnt; ++i) folders.emplace_back(paths[i].dls_name);
    }
  }
  if (self != nullptr) dlclose(self);
  return folders;
}

}  // namespace

bool PluginEntry::is_there() const {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::vector<std::string> builtin_plugin_folders() {
  // Where this code is (a library or a program), and where the program is.
  std::vector<fs::path> places;
  Dl_info info;
  std::error_code error;
  if (dladdr(reinterpret_cast<const void*>(&builtin_plugin_folders), &info) != 0 &&
      info.dli_fname != nullptr) {
    places.push_back(fs::canonical(info.dli_fname, error).parent_path());
  }
  places.push_back(fs::read_symlink("/proc/self/exe", error).parent_path());
  std::vector<std::string> folders;
  const auto add_once = [&folders](std::string folder) {
    if (std::find(folders.begin(), folders.end(), folder) == folders.end()) {
      folders.push_back(std::move(folder));
    }
  };
  for (const fs::path& place : places) {
    if (place.empty()) continue;
    for (const char* relative : {"../lib/hekla", "hekla", "lib/hekla", "."}) {
      add_once((place / relative).lexically_normal().string());
    }
  }
  // A C++ program that is linked to an installed Hekla has the plugins' folder as its RUNPATH.
  for (std::string& folder : loader_folders()) add_once(std::move(folder));
  return folders;
}

std::string name_of_library(std::string_view path) {
  std::string name = lower(fs::path(path).stem().string());
  const auto drop = [&name](std::string_view word) {
    const size_t at = name.find(word);
    if (at != std::string::npos && name.size() > word.size()) name.erase(at, word.size());
  };
  if (name.starts_with("lib")) drop("lib");
  for (const char* word : {"pjrt_c_api_", "pjrt_plugin_", "_pjrt", "pjrt_", "_plugin"}) drop(word);
  return name;
}

Registry& Registry::instance() {
  static Registry* registry = new Registry(from_environment());  // leaked, like the plugins
  return *registry;
}

Registry Registry::from_environment() {
  Registry registry;
  if (const char* text = std::getenv("HEKLA_PLUGIN_PATH")) registry.add_hekla_path(text);
  if (const char* text = std::getenv("PJRT_NAMES_AND_LIBRARY_PATHS")) registry.add_jax_list(text);
  if (const char* text = std::getenv("PJRT_LIBRARY_PATH"); text != nullptr && *text != '\0') {
    registry.add({"library", text, "PJRT_LIBRARY_PATH", true});
  }
  const std::vector<std::string> folders = builtin_plugin_folders();
  for (const Builtin& builtin : kBuiltins) {
    PluginEntry entry{builtin.name, "", "built in", false};
    for (const std::string& folder : folders) {
      entry.path = (fs::path(folder) / builtin.file).string();
      if (entry.is_there()) break;
    }
    if (!entry.is_there() && !folders.empty()) {
      entry.path = (fs::path(folders.front()) / builtin.file).string();
    }
    registry.add(std::move(entry));
  }
  return registry;
}

void Registry::add(PluginEntry entry) {
  entry.name = lower(entry.name);
  for (const PluginEntry& known : entries_) {
    if (known.name != entry.name) continue;
    if (known.path != entry.path && entry.is_foreign) {
      problems_.push_back(fmt::format("{}: '{}' is {} already ({}); {} is not used", entry.source,
                                      entry.name, known.path, known.source, entry.path));
    }
    return;
  }
  entries_.push_back(std::move(entry));
}

void Registry::add_hekla_path(std::string_view text) {
  constexpr const char* kSource = "HEKLA_PLUGIN_PATH";
  for (const std::string_view part : split(text, ':')) {
    const size_t equals = part.find('=');
    std::error_code error;
    if (equals != std::string_view::npos) {
      const std::string_view name = trim(part.substr(0, equals));
      const std::string_view path = trim(part.substr(equals + 1));
      if (name.empty() || path.empty()) {
        problems_.push_back(fmt::format("{}: '{}' is not NAME=LIBRARY", kSource, part));
      } else {
        add({std::string(name), std::string(path), kSource, true});
      }
    } else if (fs::is_directory(part, error)) {
      std::vector<std::string> paths;
      for (const auto& file : fs::directory_iterator(part, error)) {
        const std::string name = file.path().filename().string();
        if (ends_with_so(name) && name.find("pjrt") != std::string::npos) {
          paths.push_back(file.path().string());
        }
      }
      std::sort(paths.begin(), paths.end());
      for (std::string& path : paths) {
        std::string name = name_of_library(path);
        add({std::move(name), std::move(path), kSource, true});
      }
    } else if (ends_with_so(part)) {
      add({name_of_library(part), std::string(part), kSource, true});
    } else {
      problems_.push_back(
          fmt::format("{}: '{}' is neither a folder, a library nor NAME=LIBRARY", kSource, part));
    }
  }
}

void Registry::add_jax_list(std::string_view text) {
  constexpr const char* kSource = "PJRT_NAMES_AND_LIBRARY_PATHS";
  for (const std::string_view part : split(text, ',')) {
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos || colon == 0 || colon + 1 == part.size()) {
      problems_.push_back(fmt::format("{}: '{}' is not NAME:LIBRARY", kSource, part));
      continue;
    }
    add({std::string(trim(part.substr(0, colon))), std::string(trim(part.substr(colon + 1))),
         kSource, true});
  }
}

Status Registry::register_plugin(std::string_view name, std::string path) {
  constexpr const char* kSource = "registered";
  if (trim(name).empty()) return invalid_argument("a plugin needs a name ({})", path);
  std::lock_guard lock(mutex_);
  const std::string folded = lower(trim(name));
  for (PluginEntry& entry : entries_) {
    if (entry.name != folded) continue;
    if (entry.source == kSource && entry.path != path) {
      return Status(StatusCode::kAlreadyExists,
                    fmt::format("plugin '{}' is registered as {}; {} needs another name", folded,
                                entry.path, path));
    }
    entry = {folded, std::move(path), kSource, true};
    return ok_status();
  }
  entries_.insert(entries_.begin(), {folded, std::move(path), kSource, true});
  return ok_status();
}

Result<PluginEntry> Registry::find(std::string_view name_or_path) const {
  const std::string_view text = trim(name_or_path);
  if (text.find('/') != std::string_view::npos || ends_with_so(text)) {
    PluginEntry entry{name_of_library(text), std::string(text), "path", true};
    if (!entry.is_there()) {
      return not_found("there is no plugin library {}; known plugins: {}", text, list_text());
    }
    // A built-in library named by its path is trusted like one named by its name.
    std::error_code error;
    for (const PluginEntry& known : list()) {
      if (!known.is_foreign && fs::equivalent(known.path, entry.path, error)) return known;
    }
    return entry;
  }
  std::string name = lower(text);
  const std::vector<PluginEntry> known = list();
  const auto is_known = [&] {
    return std::any_of(known.begin(), known.end(),
                       [&](const PluginEntry& entry) { return entry.name == name; });
  };
  if (name == kCpuInJax && !is_known()) name = "cpu";
  for (const PluginEntry& entry : known) {
    if (entry.name != name) continue;
    if (!entry.is_there()) {
      return not_found("the library of plugin '{}' is missing: {} ({}); known plugins: {}", name,
                       entry.path, entry.source, list_text());
    }
    return entry;
  }
  return not_found(
      "there is no plugin '{}'; known plugins: {}. Others are added with HEKLA_PLUGIN_PATH, or "
      "give the path of a library",
      text, list_text());
}

std::vector<PluginEntry> Registry::list() const {
  std::lock_guard lock(mutex_);
  return entries_;
}

std::string Registry::list_text() const {
  std::string text;
  for (const PluginEntry& entry : list()) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{} ({}{})", entry.name, entry.is_there() ? "" : "missing: ", entry.path);
  }
  return text;
}

}  // namespace hekla::runtime
