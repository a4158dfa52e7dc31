// SPDX-License-Identifier: Apache-2.0
// CpuExecutable: launches of a compiled program on buffers.
//
// A launch returns its outputs at once. It runs when its inputs are ready: on the caller's thread
// when they are and the program is small, else on the thread pool. Launches do not wait for each
// other but for their inputs. An error, also one of an input, ends in the launch's completion.
#pragma once

#include <memory>
#include <vector>

#include "backends/cpu/execute/program.h"
#include "backends/pjrt/backend.h"
#include "backends/pjrt/memory_account.h"

namespace hekla::cpu {

class CpuExecutable : public pjrt::BackendExecutable {
 public:
  // `accounts`: one per device.
  CpuExecutable(std::shared_ptr<const Program> program,
                std::vector<std::shared_ptr<pjrt::MemoryAccount>> accounts,
                std::shared_ptr<KernelCompiler> compiler)
      : program_(std::move(program)),
        accounts_(std::move(accounts)),
        compiler_(std::move(compiler)) {}

  pjrt::ProgramStats stats() const override;
  Result<std::vector<pjrt::StorageRef>> launch(pjrt::Launch& launch) override;
  // "plan", "kernels", "llvm", "asm".
  Result<std::string> artefact(std::string_view form) const override;
  std::vector<std::pair<std::string, int64_t>> statistics() const override;

 private:
  const std::shared_ptr<const Program> program_;  // shared with launches that still run
  const std::vector<std::shared_ptr<pjrt::MemoryAccount>> accounts_;
  const std::shared_ptr<KernelCompiler> compiler_;  // shared with the client; for artefacts
};

}  // namespace hekla::cpu
