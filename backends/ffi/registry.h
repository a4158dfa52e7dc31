// SPDX-License-Identifier: Apache-2.0
// Registry: the functions of the user's that programs may call by name, and the types of their
// states, of one plugin library.
//
// Functions and types stay the user's and must stay loaded; nothing is ever taken out. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "plugin_api/xla_ffi.h"
#include "runtime/base/status.h"

namespace hekla::ffi {

// One name may stand for a typed handler and for an untyped function.
struct Target {
  XLA_FFI_Handler_Bundle handler{};  // execute is null: none
  void* untyped = nullptr;           // a function of call.h's UntypedCall forms
};

class Registry {
 public:
  static Registry& of_process();

  // The platform whose plugin this is: for messages. Set once, before anything else.
  void set_platform(std::string name);
  std::string platform() const;

  // Asks each function of the bundle for its version. INVALID_ARGUMENT: no name or no execute
  // function; UNIMPLEMENTED: a version that we do not speak; ALREADY_EXISTS: another handler has
  // the name (the same one may come again); the handler's own error.
  Status add_handler(std::string_view name, const XLA_FFI_Handler_Bundle& bundle);
  // As above. It is not called.
  Status add_untyped(std::string_view name, void* function);
  std::optional<Target> find(std::string_view name) const;

  // The type's number: `type_id`, or a new one where that is 0. A new one follows from the name, so
  // that the plugins of a process give a type the same number. `deleter` may be null.
  // ALREADY_EXISTS: the name has another number, or the number another name.
  Result<int64_t> add_type(std::string_view name, int64_t type_id, void (*deleter)(void*));
  bool has_type(int64_t type_id) const;
  // Null where there is none.
  void (*deleter_of(int64_t type_id) const)(void*);

 private:
  struct Type {
    std::string name;
    void (*deleter)(void*) = nullptr;
  };
  mutable std::mutex mutex_;
  std::string platform_;  // guarded by mutex_, as all below
  std::map<std::string, Target, std::less<>> targets_;
  std::map<int64_t, Type> types_;
};

}  // namespace hekla::ffi
