// SPDX-License-Identifier: Apache-2.0
// Plugin: one loaded PJRT plugin library, of any vendor, with its function table.
//
// Plugin::load opens a library once per process and keeps it loaded until the process ends: threads
// and static destructors of plugins rarely survive dlclose. Later loads of the same file return the
// same object, and remember a failed initialisation. All functions may be called from any thread.
//
// Versions. The table only grows at its end, so any minor from 29 on works, newer ones than this
// header's too. A slot is there only if the plugin's table size covers it and it is not null; a
// call of a missing slot gives UNIMPLEMENTED. Minor 56 alone had a slot in the middle of the table
// and is refused.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "plugin_api/pjrt_c_api.h"
#include "runtime/base/status.h"
#include "runtime/plugin/options.h"

namespace hekla::runtime {

inline constexpr int kMinApiMinor = 29;

class Plugin {
 public:
  // Opens `path`, checks the version, initialises the plugin and reads its attributes. `name` is
  // for messages. NOT_FOUND: no such file; FAILED_PRECONDITION: the dynamic linker refuses the
  // library, it has no GetPjrtApi, gives a null or short table, or has another version; any code of
  // the plugin's own: PJRT_Plugin_Initialize failed. Loading runs the library's code: a library
  // that aborts ends the process (see probe.h).
  static Result<std::shared_ptr<const Plugin>> load(std::string_view name, const std::string& path);

  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }
  const PJRT_Api& api() const { return *api_; }
  int api_minor() const { return api_minor_; }
  // How PJRT_Plugin_Attributes answered; empty when it is not offered.
  const Options& attributes() const { return attributes_; }

  // Calls a slot: HEKLA_PJRT_CALL(plugin, PJRT_Client_Devices, &args). The caller fills the inputs
  // of a zeroed struct; HEKLA_PJRT_ARGS makes one. UNIMPLEMENTED when the slot is missing, else the
  // plugin's error with the slot's name in front.
  template <typename Function, typename Args>
  Status call(Function* PJRT_Api::*slot, const char* slot_name, Args* args) const {
    if (!has(slot)) return missing(slot_name);
    return take_error((api_->*slot)(args), slot_name);
  }
  template <typename Function>
  bool has(Function* PJRT_Api::*slot) const {
    const auto offset = static_cast<size_t>(reinterpret_cast<const char*>(&(api_->*slot)) -
                                            reinterpret_cast<const char*>(api_));
    return offset + sizeof(void*) <= table_size_ && (api_->*slot) != nullptr;
  }
  // Reads and destroys an error of this plugin; null is ok.
  Status take_error(PJRT_Error* error, std::string_view context = "") const;

 private:
  Plugin() = default;
  Status open();
  Status check_version();
  Status initialize();
  Status missing(const char* slot_name) const;

  std::string name_;
  std::string path_;
  const PJRT_Api* api_ = nullptr;
  size_t table_size_ = 0;  // what the plugin says its table has
  int api_minor_ = 0;
  Options attributes_;
};

#define HEKLA_PJRT_CALL(plugin, slot, args) (plugin).call(&PJRT_Api::slot, #slot, args)

// A zeroed argument struct whose struct_size ends at `last_field`.
#define HEKLA_PJRT_ARGS(type, variable, last_field) \
  type variable = {};                               \
  variable.struct_size = PJRT_STRUCT_SIZE(type, last_field)

}  // namespace hekla::runtime
