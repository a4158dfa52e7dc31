// SPDX-License-Identifier: Apache-2.0
// CpuExecutable: launches of a compiled program on buffers.
//
// A launch returns its outputs at once. It runs when its inputs are ready and its device's queue
// has come to it: on the caller's thread when that is now and the program is small, else on the
// thread pool, or, one of several devices, on a thread of the device; where these meet in the
// program, once the inputs of all are there. An error, also one of an input, ends in the launch's
// completion.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/cpu/execute/program.h"
#include "backends/cpu/plugin/device_queue.h"
#include "backends/ffi/call.h"
#include "backends/pjrt/backend.h"
#include "backends/pjrt/memory_account.h"
#include "runtime/base/async/callback_queue.h"
#include "runtime/program/ir/device_groups.h"

namespace hekla::cpu {

struct CpuDevice {
  std::shared_ptr<pjrt::MemoryAccount> account;
  std::shared_ptr<DeviceQueue> queue = std::make_shared<DeviceQueue>();
  // Of launches that call the client, which would hold up the others.
  std::shared_ptr<CallbackQueue> callbacks = std::make_shared<CallbackQueue>();
};

class CpuExecutable : public pjrt::BackendExecutable {
 public:
  // `collectives`: the devices of a launch where they meet in the program. `calls`: of the user's
  // functions in the plan's host steps; null: none.
  CpuExecutable(std::shared_ptr<const Program> program, std::vector<CpuDevice> devices,
                std::shared_ptr<KernelCompiler> compiler,
                std::optional<ir::DeviceGrid> collectives = std::nullopt,
                ffi::CallsRef calls = nullptr)
      : program_(std::move(program)),
        calls_(std::move(calls)),
        devices_(std::move(devices)),
        compiler_(std::move(compiler)),
        collectives_(collectives) {}

  pjrt::ProgramStats stats() const override;
  Status launch(std::span<pjrt::Launch> launches) override;
  // "plan", "kernels", "llvm", "asm".
  Result<std::string> artefact(std::string_view form) const override;
  std::vector<std::pair<std::string, int64_t>> statistics() const override;

 private:
  // What the plan decided, and behind it how each kernel and contraction runs.
  std::vector<plan::Decision> decisions() const;
  Status prepare(pjrt::Launch& launch) const;
  void enqueue(pjrt::Launch& launch) const;
  void enqueue_peers(std::span<pjrt::Launch> launches) const;
  static void post_with_transfers(const CpuDevice& device, std::shared_ptr<DeviceJob> job,
                                  const CompletionRef& ready);

  const std::shared_ptr<const Program> program_;    // shared with launches that still run
  const ffi::CallsRef calls_;                       // the same
  const std::vector<CpuDevice> devices_;            // shared with the client
  const std::shared_ptr<KernelCompiler> compiler_;  // shared with the client; for artefacts
  const std::optional<ir::DeviceGrid> collectives_;
};

}  // namespace hekla::cpu
