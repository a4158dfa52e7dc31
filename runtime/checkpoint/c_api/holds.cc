// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/c_api/holds.h"

#include <dlfcn.h>
#include <link.h>

#include <string>
#include <utility>
#include <vector>

#include "plugin_api/hekla_holds.h"
#include "runtime/base/log.h"
#include "runtime/plugin/plugin.h"

namespace hekla::checkpoint::c_api {
namespace {

struct Holder {
  std::shared_ptr<const runtime::Plugin> plugin;
  const Hekla_Holds_Extension* holds = nullptr;
};

const Hekla_Holds_Extension* find_holds(const PJRT_Api& api) {
  for (const PJRT_Extension_Base* node = api.extension_start; node != nullptr; node = node->next) {
    if (static_cast<int>(node->type) == Hekla_Extension_Type_Holds) {
      return reinterpret_cast<const Hekla_Holds_Extension*>(node);
    }
  }
  return nullptr;
}

int note_name(dl_phdr_info* info, size_t, void* names) {
  const std::string name = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  const size_t slash = name.rfind('/');
  if (name.compare(slash == name.npos ? 0 : slash + 1, 5, "pjrt_") == 0) {
    static_cast<std::vector<std::string>*>(names)->push_back(name);
  }
  return 0;
}

int note_loads(dl_phdr_info* info, size_t, void* loads) {
  *static_cast<unsigned long long*>(loads) = info->dlpi_adds;
  return 1;  // all say the same
}

std::vector<Holder> find_plugins() {
  std::vector<std::string> names;
  ::dl_iterate_phdr(note_name, &names);
  std::vector<Holder> plugins;
  for (const std::string& name : names) {
    // Looked at before it counts as ours: others are not to be initialized once more.
    void* const library = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    const auto get = reinterpret_cast<const PJRT_Api* (*)()>(::dlsym(library, "GetPjrtApi"));
    const PJRT_Api* const api = get == nullptr ? nullptr : get();
    const Hekla_Holds_Extension* const holds = api == nullptr ? nullptr : find_holds(*api);
    if (holds == nullptr) continue;
    Result<std::shared_ptr<const runtime::Plugin>> plugin = runtime::Plugin::load(name, name);
    if (plugin.ok()) plugins.push_back({*std::move(plugin), holds});
  }
  return plugins;
}

// Looked for again when the process has loaded something since.
const std::vector<Holder>& loaded_plugins() {
  thread_local std::vector<Holder> plugins;
  thread_local unsigned long long seen = 0;
  unsigned long long loads = 0;
  ::dl_iterate_phdr(note_loads, &loads);
  if (loads != seen) plugins = find_plugins();
  seen = loads;
  return plugins;
}

// Calls one of the extension's functions.
template <typename Args>
Status call(const Holder& holder, PJRT_Error* (*function)(Args*), Args* args) {
  args->struct_size = sizeof(Args);
  return holder.plugin->take_error(function(args));
}

class HeldSource final : public ArraySource {
 public:
  HeldSource(const Holder& plugin, Hekla_Hold* hold, int64_t bytes)
      : plugin_(plugin), hold_(hold), bytes_(bytes) {}
  ~HeldSource() override {
    Hekla_Hold_Release_Args args = {};
    args.hold = hold_;
    if (const Status status = call(plugin_, plugin_.holds->hold_release, &args); !status.ok()) {
      log_message(LogLevel::kWarning, "checkpoint: {}", status.to_string());
    }
  }

  const std::byte* host_data() const override { return nullptr; }
  bool is_mutable() const override { return false; }
  int64_t size_bytes() const override { return bytes_; }
  Status read(int64_t offset, std::span<std::byte> into, std::stop_token) override {
    Hekla_Hold_Read_Args args = {};
    args.hold = hold_;
    args.offset = offset;
    args.size_bytes = static_cast<int64_t>(into.size());
    args.into = into.data();
    return call(plugin_, plugin_.holds->hold_read, &args);
  }

 private:
  const Holder plugin_;
  Hekla_Hold* const hold_;
  const int64_t bytes_;
};

}  // namespace

bool switch_holds(bool is_on) {
  bool is_there = false;
  for (const Holder& plugin : loaded_plugins()) {
    Hekla_Holds_Switch_Args args = {};
    args.is_on = is_on;
    is_there |= call(plugin, plugin.holds->holds_switch, &args).ok();
  }
  return is_there;
}

std::shared_ptr<ArraySource> held_source(uint64_t pointer) {
  for (const Holder& plugin : loaded_plugins()) {
    Hekla_Hold_Find_Args args = {};
    args.pointer = static_cast<uintptr_t>(pointer);
    if (call(plugin, plugin.holds->hold_find, &args).ok() && args.hold != nullptr) {
      return std::make_shared<HeldSource>(plugin, args.hold, args.size_bytes);
    }
  }
  return nullptr;
}

}  // namespace hekla::checkpoint::c_api
