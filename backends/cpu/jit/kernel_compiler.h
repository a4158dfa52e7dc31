// SPDX-License-Identifier: Apache-2.0
// KernelCompiler: kernels and loops of them in, native functions out.
//
// Kernels are put into modules of about eight, which are compiled in parallel on the process's
// thread pool and linked into memory. A kernel that a living set of code has already is not
// compiled again. The code may use the helpers of linker.h and no other symbol of the process.
// Thread-safe. Code lives as long as the CompiledKernels that hold it, which may outlive the
// compiler.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/compiler/kernel/kernel.h"
#include "backends/cpu/codegen/emit_loop.h"
#include "backends/cpu/codegen/schedule.h"
#include "backends/cpu/codegen/target.h"
#include "runtime/base/status.h"

namespace hekla::cpu {

// Runs the units [begin, end) of the kernel's schedule. One pointer per operand.
using KernelFunction = void (*)(const void* const* operands, int64_t begin, int64_t end);

struct KernelRequest {
  const kernel::Kernel* kernel = nullptr;
  // Whether one memory may be given as an operand that is read and as one that is written.
  bool may_alias = false;
  // For runs of one block at a time; the kernel has them.
  RowBlocks blocks;
  uint64_t schedule_seed = 0;  // see plan_kernel
  TileUse tiles = TileUse::kChosen;
  StridedUse strided = StridedUse::kShuffles;
  // Off: only the schedule is wanted, as the kernel runs in loops that are functions alone.
  bool needs_code = true;
};

// A loop as one function (codegen/emit_loop.h).
struct LoopRequest {
  const plan::LaunchPlan* plan = nullptr;
  const plan::Step* loop = nullptr;
  std::shared_ptr<const LoopMemory> memory;
  std::vector<LoopKernel> kernels;
  uint64_t schedule_seed = 0;  // that the kernels' plans were drawn by
  int64_t most_unrolled = 8;   // vectors of a kernel, see LoopCode
};

struct CompiledKernel {
  KernelFunction function = nullptr;  // null: no code was asked for
  Schedule schedule;
};

struct LinkedObject;

// Code of one executable: immutable.
struct CompiledKernels {
  std::vector<CompiledKernel> kernels;                       // in the order of the requests
  std::vector<KernelFunction> loops;                         // likewise; arguments as emit_loop's
  std::vector<std::shared_ptr<const LinkedObject>> objects;  // keep the functions alive
  int64_t code_bytes = 0;
  int64_t compiled_count = 0;  // kernels and loops that were neither there before nor on disk
  int64_t loaded_count = 0;    // those that came from disk
};

class KernelCompiler {
 public:
  // `level`: see make_target; FAILED_PRECONDITION when this processor cannot run it. `cache_folder`
  // keeps object files for later processes; empty: they are not kept.
  static Result<std::shared_ptr<KernelCompiler>> create(const std::string& level = "native",
                                                        const std::string& cache_folder = "");
  virtual ~KernelCompiler() = default;

  // The machine that it generates code for.
  virtual const Target& target() const = 0;
  // The kernels' bodies verify; a grid with a zero gives a kernel of no units. INTERNAL, with the
  // kernel's name: LLVM refused it.
  virtual Result<std::shared_ptr<const CompiledKernels>> compile(
      std::span<const KernelRequest> requests, std::span<const LoopRequest> loops = {}) = 0;
  // What is generated for one kernel or loop, for people: LLVM IR, or the assembly.
  virtual Result<std::string> llvm_text(const KernelRequest& request) = 0;
  virtual Result<std::string> llvm_text(const LoopRequest& request) = 0;
  virtual Result<std::string> assembly_text(const KernelRequest& request) = 0;
  virtual Result<std::string> assembly_text(const LoopRequest& request) = 0;
};

}  // namespace hekla::cpu
