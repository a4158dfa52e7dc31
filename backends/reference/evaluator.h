// SPDX-License-Identifier: Apache-2.0
// The reference evaluator: runs a StableHLO program on host arrays by the specification's words.
//
// It is the oracle of all tests and the host step for ops that a device has no kernel for. It is
// complete before it is fast: every op works for every shape, dtype, dimension number and zero
// size. evaluate() is pure: it keeps nothing between calls and may run in many threads at once on
// one module. Memory is that of the live values; `memory_limit_bytes` bounds it. Arithmetic faults,
// failed assertions (`check.*`), launches with wrong arguments and exhausted memory come back as a
// Status that names the op and its location.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backends/ffi/call.h"
#include "backends/reference/launch_context.h"
#include "runtime/base/host_array.h"
#include "runtime/base/status.h"
#include "runtime/program/ir/device_groups.h"
#include "runtime/program/ir/ir.h"

namespace hekla::reference {

// Calls body(i) for each i in [0, count), in any order and on any threads, and returns when all are
// done. Empty: one after the other.
using ForEach = std::function<void(int64_t count, const std::function<void(int64_t)>& body)>;

struct EvaluateOptions : LaunchContext {
  // Runs the pieces of LAPACK's work. Results do not depend on it.
  ForEach for_each;
  // Memory for LAPACK's temporaries, uninitialized, null where there is none; empty: the system's.
  std::function<std::shared_ptr<void>(int64_t bytes)> allocate;
  // Memory of the program's results, one each, null where there is none; it does not overlap the
  // arguments. A program that is one operation of LAPACK's may write there at once; a result that
  // begins there needs no copy.
  std::vector<std::byte*> result_memory;
  // cholesky and triangular_solve of f32, f64 and complex types by LAPACK, where it is installed: a
  // back end's choice of speed. The evaluator's own, by their definition in f64, are the oracle.
  bool use_lapack = false;
  // Called after each operation with its results (tokens have dtype kInvalid; tuples are
  // flattened), for tracing and for op-by-op comparison.
  std::function<void(const ir::Operation&, const std::vector<HostArray>&)> on_operation;
};

// Everything in the program that evaluate() cannot run in a launch on `grid`, in one UNIMPLEMENTED
// error with a line per op: its name, types and location. Ok when it can run all of it.
Status check_supported(const ir::Module& module, const ir::DeviceGrid& grid = {});

// Whether the program is a host step by what it is, and not for want of a kernel: one operation
// that LAPACK computes, one send to the host or receive from it, one call of a function of the
// user's.
bool is_for_host(const ir::Module& module);

// The calls of the user's functions in the modules, instantiated; null where there are none. The
// modules passed check_supported, and outlive it.
Result<ffi::CallsRef> instantiate_calls(std::span<const ir::Module* const> modules);

// Runs module.entry() on `arguments`, one array per parameter in order; parameters and results that
// are tuples are flattened, tokens are arrays of dtype kInvalid. Arguments are taken by value:
// moved in, their memory is reused once they are dead. INVALID_ARGUMENT: wrong number, shape or
// dtype of arguments, no entry function.
Result<std::vector<HostArray>> evaluate(const ir::Module& module, std::vector<HostArray> arguments,
                                        const EvaluateOptions& options = {});

// The same where arguments and results are memory: a span for each flat parameter and result, of
// its size in bytes; tokens have none. Results may overlap arguments. INTERNAL: other sizes.
Status evaluate_in_memory(const ir::Module& module, std::span<const std::span<std::byte>> arguments,
                          std::span<const std::span<std::byte>> results, EvaluateOptions options);

// Runs the program on all devices of a launch in lock-step, each in a thread of its own:
// arguments[d] and the results at [d] are those of device d = replica * partitions + partition. Of
// `options`, which hold for each device, the ids and the exchange are set here; result_memory must
// be empty; callbacks are called from all threads at once. An error of one device ends all; it is
// the first one that is returned, and names the device. FAILED_PRECONDITION where devices wait for
// each other without end.
Result<std::vector<std::vector<HostArray>>> evaluate_devices(
    const ir::Module& module, std::vector<std::vector<HostArray>> arguments,
    const ir::DeviceGrid& grid, const EvaluateOptions& options = {});

}  // namespace hekla::reference
