// SPDX-License-Identifier: Apache-2.0
// Calls: the custom calls of a compiled program that functions of the user's compute.
//
// A Calls belongs to an executable: each call there is instantiated once, its state lives as long.
// A LaunchCalls belongs to one launch on one device, in which each call is prepared and initialized
// before it is executed for the first time. Functions run on the thread that calls run(), which
// waits for those that go on after they have returned.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "backends/ffi/launch.h"
#include "runtime/base/host_array.h"
#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::ffi {

// The functions that are registered without metadata: custom calls of the API versions 1, 2 and 3.
// `out` is the result's memory where there is one result, else that of an array of pointers.
struct UntypedStatus;  // XLA's XlaCustomCallStatus: std::optional<std::string>, the error
struct UntypedCall {
  using Original = void(void* out, const void** in);
  using StatusReturning = void(void* out, const void** in, UntypedStatus* status);
  using Unified = void(void* out, const void** in, const char* opaque, size_t opaque_size,
                       UntypedStatus* status);
};

// An array as it lies in memory; dims are the logical ones. A token has the dtype kInvalid, rank 0.
struct CallArray {
  DType dtype = DType::kInvalid;
  std::span<const int64_t> dims;
  void* data = nullptr;
};

// Whether the call can be made. UNIMPLEMENTED: nobody registered its target; INVALID_ARGUMENT: its
// attributes or API version are not what the function takes.
Status check_call(const ir::Operation& op);

class CallSite;

class Calls {
 public:
  // Of each custom call in the modules that `is_call` says is one. Null where there is none. The
  // handlers' errors, with the target's name. The modules outlive it.
  static Result<std::shared_ptr<const Calls>> create(
      std::span<const ir::Module* const> modules,
      const std::function<bool(const ir::Operation&)>& is_call);
  ~Calls();

 private:
  friend class LaunchCalls;
  Calls() = default;
  std::map<const ir::Operation*, std::unique_ptr<const CallSite>> sites_;
};
using CallsRef = std::shared_ptr<const Calls>;

class LaunchCalls {
 public:
  LaunchCalls(CallsRef calls, LaunchInfo info);
  LaunchCalls(const LaunchCalls&) = delete;
  LaunchCalls& operator=(const LaunchCalls&) = delete;
  ~LaunchCalls();

  // Runs the call, whose results are uninitialized but for those that are an operand's memory.
  // The handler's error, with the target's name. Any thread.
  Status run(const ir::Operation& op, std::span<const CallArray> operands,
             std::span<const CallArray> results);

 private:
  struct SiteStates;
  SiteStates& states_of(const CallSite& site);
  const CallsRef calls_;
  const LaunchInfo info_;
  std::mutex mutex_;
  std::map<const CallSite*, std::unique_ptr<SiteStates>> states_;  // guarded by mutex_
};

}  // namespace hekla::ffi
