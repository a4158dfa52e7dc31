// SPDX-License-Identifier: Apache-2.0
// The runtime's side of XLA's foreign functions: the table that handlers call, and the objects
// behind its opaque pointers. Internal to this folder.
//
// Functions of the table may be called from any thread. No exception leaves them.
#pragma once

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "backends/ffi/launch.h"
#include "plugin_api/xla_ffi.h"
#include "runtime/base/status.h"

namespace hekla::ffi {

const XLA_FFI_Api& api_table();

// With sizes, the table and no operands.
XLA_FFI_CallFrame empty_frame();

// Ok for null; otherwise what the error says, which is destroyed.
Status take_error(XLA_FFI_Error* error);
// Null for ok.
XLA_FFI_Error* make_error(const Status& status);

// What a handler made in a stage before execute; deleted by the function of its type.
class State {
 public:
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();
  // FAILED_PRECONDITION: there is one; INVALID_ARGUMENT: a type that is not registered.
  Status set(int64_t type_id, void* data);
  // NOT_FOUND: there is none; INVALID_ARGUMENT: it is of another type.
  Result<void*> get(int64_t type_id) const;

 private:
  int64_t type_id_ = 0;
  void* data_ = nullptr;
};

}  // namespace hekla::ffi

struct XLA_FFI_Error {
  hekla::Status status;
};

// Given to the handler, which sets it once; the waiting call deletes it then.
struct XLA_FFI_Future {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<hekla::Status> result;  // guarded by mutex
  };
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
};

// Of one call of a handler.
struct XLA_FFI_ExecutionContext {
  const hekla::ffi::LaunchInfo* launch = nullptr;  // null while the call is instantiated
  // By XLA_FFI_ExecutionStage; null where no state may be.
  std::array<hekla::ffi::State*, 3> states{};
};
