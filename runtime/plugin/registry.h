// SPDX-License-Identifier: Apache-2.0
// Registry: which plugins there are, by name. It loads nothing.
//
// Sources, earlier ones win when two give the same name:
//   1. register_plugin()
//   2. HEKLA_PLUGIN_PATH, separated by ':': NAME=LIBRARY, a library, or a folder whose *pjrt*.so
//      files are taken
//   3. PJRT_NAMES_AND_LIBRARY_PATHS, JAX's variable: NAME:LIBRARY,NAME:LIBRARY
//   4. PJRT_LIBRARY_PATH, PyTorch/XLA's variable: the library of the name "library"
//   5. built in: vulkan (pjrt_vulkan.so), cpu (pjrt_cpu.so), reference (pjrt_reference.so), in the
//      folder hekla/ of the library folder beside this program or library, and where the loader
//      looks for the program's libraries
// Names are lower case; look-ups fold case. "tbb", the CPU device's name in JAX, is an alias of cpu
// where no plugin has that name. Instances may be used from many threads.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::runtime {

struct PluginEntry {
  std::string name;
  std::string path;
  std::string source;      // "built in", "HEKLA_PLUGIN_PATH", ...
  bool is_foreign = true;  // not built in: probe before use
  bool is_there() const;   // whether the file exists
};

class Registry {
 public:
  // The registry of this process; reads the environment at its first use.
  static Registry& instance();
  // One of its own, from this process's environment as it is now.
  static Registry from_environment();
  Registry(Registry&& other) noexcept
      : entries_(std::move(other.entries_)), problems_(std::move(other.problems_)) {}

  // ALREADY_EXISTS if the name is registered this way with another path.
  Status register_plugin(std::string_view name, std::string path);

  // A name, or a path (anything with '/' or ending in ".so"), which need not be registered.
  // NOT_FOUND lists what there is.
  Result<PluginEntry> find(std::string_view name_or_path) const;
  std::vector<PluginEntry> list() const;
  // What the environment says and cannot be used, for `hekla doctor`.
  const std::vector<std::string>& problems() const { return problems_; }
  // "vulkan (not built: /usr/lib/hekla/pjrt_vulkan.so), reference (/usr/lib/...)".
  std::string list_text() const;

 private:
  Registry() = default;
  void add(PluginEntry entry);
  void add_hekla_path(std::string_view text);
  void add_jax_list(std::string_view text);

  mutable std::mutex mutex_;
  std::vector<PluginEntry> entries_;
  std::vector<std::string> problems_;
};

// The folders in which built-in plugins are looked for, best first.
std::vector<std::string> builtin_plugin_folders();

// A name for a library: its file name without "lib", "pjrt", "plugin" and the ending.
std::string name_of_library(std::string_view path);

}  // namespace hekla::runtime
