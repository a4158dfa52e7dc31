// SPDX-License-Identifier: Apache-2.0
#include "backends/ffi/registry.h"

#include <algorithm>
#include <cstring>

#include "backends/ffi/api.h"

namespace hekla::ffi {
namespace {

bool same(const XLA_FFI_Handler_Bundle& a, const XLA_FFI_Handler_Bundle& b) {
  return a.instantiate == b.instantiate && a.prepare == b.prepare && a.initialize == b.initialize &&
         a.execute == b.execute;
}

// A handler answers a frame with this extension before it looks at anything else in it.
Status check_version(XLA_FFI_Handler* handler) {
  XLA_FFI_Metadata metadata{};
  metadata.struct_size = sizeof(metadata);
  XLA_FFI_Metadata_Extension extension{};
  extension.extension_base = {sizeof(extension), XLA_FFI_Extension_Metadata, nullptr};
  extension.metadata = &metadata;
  XLA_FFI_CallFrame frame = empty_frame();
  frame.extension_start = &extension.extension_base;
  HEKLA_RETURN_IF_ERROR(take_error(handler(&frame)));
  const XLA_FFI_Api_Version& version = metadata.api_version;
  // Handlers of later minor versions may look for functions that the table does not have.
  if (version.major_version != XLA_FFI_API_MAJOR || version.minor_version < 1 ||
      version.minor_version > XLA_FFI_API_MINOR) {
    return unimplemented(
        "the handler speaks version {}.{} of XLA's foreign functions, this plugin {}.1 to {}.{}; "
        "compile it against the headers of another jaxlib (jax.ffi.include_dir())",
        version.major_version, version.minor_version, XLA_FFI_API_MAJOR, XLA_FFI_API_MAJOR,
        XLA_FFI_API_MINOR);
  }
  return ok_status();
}

Status another(std::string_view name) {
  return Status(
      StatusCode::kAlreadyExists,
      fmt::format("custom call target {} is registered already, with another function", name));
}

// FNV-1a, positive.
int64_t number_of(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return static_cast<int64_t>(hash >> 2) | 1;
}

}  // namespace

Registry& Registry::of_process() {
  // Handlers may be called until the process ends.
  static Registry& registry = *new Registry;
  return registry;
}

void Registry::set_platform(std::string name) {
  const std::lock_guard lock(mutex_);
  platform_ = std::move(name);
}

std::string Registry::platform() const {
  const std::lock_guard lock(mutex_);
  return platform_;
}

Status Registry::add_handler(std::string_view name, const XLA_FFI_Handler_Bundle& bundle) {
  if (name.empty()) return invalid_argument("a custom call target without a name");
  if (bundle.execute == nullptr) {
    return invalid_argument("custom call target {} has no function for the stage execute", name);
  }
  // Without the lock: a handler may register types meanwhile.
  for (XLA_FFI_Handler* handler :
       {bundle.instantiate, bundle.prepare, bundle.initialize, bundle.execute}) {
    if (handler == nullptr) continue;
    HEKLA_RETURN_IF_ERROR(
        check_version(handler).with_context(fmt::format("custom call target {}", name)));
  }
  const std::lock_guard lock(mutex_);
  Target& target = targets_[std::string(name)];
  if (target.handler.execute != nullptr && !same(target.handler, bundle)) return another(name);
  target.handler = bundle;
  return ok_status();
}

Status Registry::add_untyped(std::string_view name, void* function) {
  if (name.empty()) return invalid_argument("a custom call target without a name");
  if (function == nullptr) return invalid_argument("custom call target {} has no function", name);
  const std::lock_guard lock(mutex_);
  Target& target = targets_[std::string(name)];
  if (target.untyped != nullptr && target.untyped != function) return another(name);
  target.untyped = function;
  return ok_status();
}

std::optional<Target> Registry::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto it = targets_.find(name);
  return it == targets_.end() ? std::nullopt : std::optional(it->second);
}

Result<int64_t> Registry::add_type(std::string_view name, int64_t type_id, void (*deleter)(void*)) {
  if (name.empty()) return invalid_argument("a type without a name");
  if (type_id < 0) return invalid_argument("type {} has the number {}", name, type_id);
  const std::lock_guard lock(mutex_);
  const auto known = std::find_if(types_.begin(), types_.end(),
                                  [&](const auto& entry) { return entry.second.name == name; });
  if (known != types_.end()) {
    if (type_id == 0 || type_id == known->first) return known->first;
    return Status(StatusCode::kAlreadyExists,
                  fmt::format("type {} has the number {}, not {}", name, known->first, type_id));
  }
  if (type_id == 0) {
    type_id = number_of(name);
    while (types_.contains(type_id)) ++type_id;
  } else if (const auto it = types_.find(type_id); it != types_.end()) {
    return Status(StatusCode::kAlreadyExists, fmt::format("type {}: the number {} is that of {}",
                                                          name, type_id, it->second.name));
  }
  types_[type_id] = {std::string(name), deleter};
  return type_id;
}

bool Registry::has_type(int64_t type_id) const {
  const std::lock_guard lock(mutex_);
  return types_.contains(type_id);
}

void (*Registry::deleter_of(int64_t type_id) const)(void*) {
  const std::lock_guard lock(mutex_);
  const auto it = types_.find(type_id);
  return it == types_.end() ? nullptr : it->second.deleter;
}

}  // namespace hekla::ffi
