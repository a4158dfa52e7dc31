// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/backend_registry.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "runtime/collectives/process_transport.h"
#include "runtime/process_group/backend_transport.h"
#include "runtime/process_group/process_group.h"

namespace hekla::process_group {
namespace {

Backend backend_of_hekla(std::string name) {
  return {
      name, {"cpu"}, [name](BackendArgs args) -> Result<std::unique_ptr<collectives::Transport>> {
        const Options& options = args.options;
        HEKLA_ASSIGN_OR_RETURN(
            auto transport,
            collectives::ProcessTransport::create(
                args.store, args.prefix, args.rank, args.size, std::move(args.events),
                {name, options.address, options.coordinator, options.silence}));
        transport->meet();
        for (int process = 0; process < args.size; ++process) {
          if (process != args.rank) HEKLA_RETURN_IF_ERROR(transport->connect(process));
        }
        return std::unique_ptr<collectives::Transport>(std::move(transport));
      }};
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    std::string_view part = text.substr(0, text.find(separator));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    if (!part.empty()) parts.emplace_back(part);
  }
  return parts;
}

struct Registry {
  std::mutex mutex;
  std::map<std::string, Backend> backends;  // guarded by mutex, as the next two
  bool has_opened = false;                  // HEKLA_GROUP_BACKENDS
  Status opened;                            // what is wrong with it

  Registry() {
    for (const char* name : collectives::kProcessEngines) {
      backends[name] = backend_of_hekla(name);
    }
  }
  Status add(Backend backend) {
    const bool is_name =
        !backend.name.empty() && std::all_of(backend.name.begin(), backend.name.end(), [](char c) {
          return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 c == '_';
        });
    if (!is_name || backend.create == nullptr || backend.devices.empty()) {
      return invalid_argument(
          "a backend \"{}\" of process groups: it has a name of letters, digits and '_', devices "
          "and a function that makes it",
          backend.name);
    }
    const std::string name = backend.name;
    if (backends.emplace(name, std::move(backend)).second) return ok_status();
    return already_exists("there is a backend \"{}\" of process groups already", name);
  }
  void open_all() {
    if (std::exchange(has_opened, true)) return;
    const char* const paths = std::getenv("HEKLA_GROUP_BACKENDS");
    for (const std::string& path : split(paths == nullptr ? "" : paths, ':')) {
      const Status status = open(path);
      if (!status.ok() && opened.ok()) opened = status.with_context(path);
    }
  }
  Status open(const std::string& path);
};

Registry& registry() {
  static auto* const all = new Registry();
  return *all;
}

Result<Backend> backend_of_table(const hekla_backend_table* table) {
  if (table == nullptr || table->abi != HEKLA_GROUP_BACKEND_ABI ||
      table->struct_size < sizeof(hekla_backend_table)) {
    return failed_precondition("a backend of process groups for another version than {}",
                               HEKLA_GROUP_BACKEND_ABI);
  }
  if (table->name == nullptr || table->devices == nullptr || table->create == nullptr ||
      table->destroy == nullptr || table->send == nullptr || table->receive == nullptr ||
      table->shut == nullptr) {
    return invalid_argument("a backend of process groups that lacks a part of its table");
  }
  return Backend{table->name, split(table->devices, ','), [table](BackendArgs args) {
                   return BackendTransport::create(table, std::move(args));
                 }};
}

Status Registry::open(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return failed_precondition("{}", ::dlerror());
  auto* const entry =
      reinterpret_cast<hekla_group_backend_function*>(::dlsym(library, HEKLA_GROUP_BACKEND_SYMBOL));
  if (entry == nullptr) {
    return failed_precondition("it has no function " HEKLA_GROUP_BACKEND_SYMBOL);
  }
  HEKLA_ASSIGN_OR_RETURN(Backend backend, backend_of_table(entry(HEKLA_GROUP_BACKEND_ABI)));
  return add(std::move(backend));
}

}  // namespace

Status register_backend(Backend backend) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.add(std::move(backend));
}

Status register_backend(const hekla_backend_table* table) {
  HEKLA_ASSIGN_OR_RETURN(Backend backend, backend_of_table(table));
  return register_backend(std::move(backend));
}

Result<Backend> find_backend(std::string_view selection, std::string_view device) {
  std::string name(selection);
  if (selection.find(':') != selection.npos) {
    name.clear();
    for (const std::string& part : split(selection, ',')) {
      const size_t colon = part.find(':');
      if (colon != part.npos && part.substr(0, colon) == device) name = part.substr(colon + 1);
    }
    if (name.empty()) return not_found("\"{}\" names no backend for {}", selection, device);
  }
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.open_all();
  const auto found = all.backends.find(name);
  if (found == all.backends.end()) {
    HEKLA_RETURN_IF_ERROR(all.opened.with_context("HEKLA_GROUP_BACKENDS"));
    std::string known;
    for (const auto& [one, backend] : all.backends) known += (known.empty() ? "" : ", ") + one;
    return not_found(
        "no backend \"{}\" of process groups; there are {}. HEKLA_GROUP_BACKENDS names libraries "
        "with others",
        name, known);
  }
  const std::vector<std::string>& devices = found->second.devices;
  if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
    return failed_precondition("the backend \"{}\" is not for the memory of {}", name, device);
  }
  return found->second;
}

Status backend_libraries() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.open_all();
  return all.opened.with_context("HEKLA_GROUP_BACKENDS");
}

std::vector<std::string> backend_names() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.open_all();
  std::vector<std::string> names;
  for (const auto& [name, backend] : all.backends) names.push_back(name);
  return names;
}

}  // namespace hekla::process_group
