// SPDX-License-Identifier: Apache-2.0
// Object code: several kernels and loops as one LLVM module and its object file or assembly.
// Kernels are compiled as they are emitted; over loops a few passes of LLVM's go before.
//
// Pure but for LLVM's global tables, which are set up once. Any thread; target machines are kept
// for later calls.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "backends/cpu/codegen/emit_kernel.h"
#include "backends/cpu/codegen/emit_loop.h"

namespace llvm {
class TargetMachine;
}

namespace hekla::cpu {

struct NamedCode {
  std::variant<KernelCode, LoopCode> code;
  std::string symbol;
};

// Straight code that is compiled with fewer passes, which a module of such kernels alone is.
bool has_long_body(const kernel::Kernel& kernel);

// Of LLVM and of our generator's source: other code, other version.
std::string generator_version();

class ObjectWriter {
 public:
  // INTERNAL: LLVM knows no such target.
  static Result<std::unique_ptr<ObjectWriter>> create(Target target);
  ~ObjectWriter();

  const Target& target() const { return target_; }
  Result<std::string> object_file(const std::vector<NamedCode>& parts);
  Result<std::string> llvm_text(const std::vector<NamedCode>& parts);
  Result<std::string> assembly_text(const std::vector<NamedCode>& parts);

 private:
  enum class Form { kObject, kLlvm, kAssembly };
  explicit ObjectWriter(Target target);
  Result<std::string> write(const std::vector<NamedCode>& parts, Form form);
  Result<std::unique_ptr<llvm::TargetMachine>> take_machine();
  void give_back(std::unique_ptr<llvm::TargetMachine> machine);

  const Target target_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<llvm::TargetMachine>> machines_;  // idle ones; guarded by mutex_
};

}  // namespace hekla::cpu
