// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/plugin/backend.h"

#include <fmt/ranges.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "backends/compiler/compile.h"
#include "backends/compiler/kernel/contraction.h"
#include "backends/compiler/passes/passes.h"
#include "backends/compiler/plan/visit.h"
#include "backends/cpu/plugin/executable.h"
#include "backends/cpu/plugin/plan_store.h"
#include "backends/cpu/plugin/storage.h"
#include "backends/cpu/threads/thread_pool.h"
#include "backends/lapack/library.h"
#include "backends/pjrt/client_options.h"
#include "backends/pjrt/memory_account.h"
#include "backends/reference/evaluator.h"
#include "runtime/base/copy_bytes.h"
#include "runtime/base/cpu_info.h"
#include "runtime/base/file_cache.h"
#include "runtime/base/log.h"

namespace hekla::cpu {
namespace {

using pjrt::MemoryAccount;
using pjrt::StorageRef;

std::string cache_folder(const char* part) {
  const std::string folder = default_cache_folder();
  return folder.empty() ? folder : folder + "/" + part;
}

// One compiler per instruction set in the process, as long as some client has it: equal kernels of
// different clients are shared.
Result<std::shared_ptr<KernelCompiler>> shared_compiler(const std::string& isa) {
  static std::mutex mutex;
  static auto* compilers = new std::map<std::string, std::weak_ptr<KernelCompiler>>;
  std::lock_guard lock(mutex);
  if (std::shared_ptr<KernelCompiler> known = (*compilers)[isa].lock()) return known;
  HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<KernelCompiler> made,
                         KernelCompiler::create(isa, cache_folder("cpu")));
  (*compilers)[isa] = made;
  return made;
}

class CpuBackend : public pjrt::Backend {
 public:
  CpuBackend(const CpuOptions& options, std::shared_ptr<KernelCompiler> compiler)
      : options_(options), compiler_(std::move(compiler)) {
    const CpuInfo cpu = read_cpu_info();
    for (int64_t i = 0; i < options.common.device_count; ++i) {
      devices_.push_back({std::make_shared<MemoryAccount>(
          pjrt::account_name("CPU device", i, options.common.device_count),
          options.common.memory_limit_bytes)});
      pjrt::DeviceInfo info;
      info.kind = cpu.model.empty() ? "CPU" : cpu.model;
      info.type_name = "HeklaCpuDevice";
      info.attributes = {{"vendor", std::string("Hekla")},
                         {"threads", int64_t{ThreadPool::process_pool().threads()}},
                         {"simd", cpu.simd_level}};
      info.memory_kinds = {"device", "pinned_host", "unpinned_host"};
      info.is_host_memory = true;
      infos_.push_back(std::move(info));
    }
  }

  const std::string& platform_name() const override { return name_; }
  const std::string& platform_version() const override { return version_; }
  const std::vector<pjrt::DeviceInfo>& devices() const override { return infos_; }

  Result<StorageRef> allocate(int device, size_t, int64_t bytes) override {
    auto storage =
        std::make_shared<CpuStorage>(devices_[static_cast<size_t>(device)].account, bytes);
    HEKLA_RETURN_IF_ERROR(storage->allocate());
    return StorageRef(std::move(storage));
  }

  Result<StorageRef> wrap_host_memory(int device, void* data, int64_t bytes,
                                      std::function<void()> release) override {
    // Foreign memory is not this device's: it does not count.
    auto storage =
        std::make_shared<CpuStorage>(devices_[static_cast<size_t>(device)].account, bytes);
    storage->wrap(data, std::move(release));
    return StorageRef(std::move(storage));
  }

  pjrt::MemoryStats memory_stats(int device) const override {
    return devices_[static_cast<size_t>(device)].account->stats();
  }
  void reset_peak_memory(int device) override {
    devices_[static_cast<size_t>(device)].account->reset_peak();
  }

  void copy_from_host(const void* source, const StorageRef& target, int64_t offset, int64_t bytes,
                      CompletionRef done) override {
    copy_bytes(storage_of(target).data() + offset, source, bytes);
    done->complete(ok_status());
  }
  void copy_to_host(const StorageRef& source, int64_t offset, void* target, int64_t bytes,
                    CompletionRef done) override {
    copy_bytes(target, storage_of(source).data() + offset, bytes);
    done->complete(ok_status());
  }
  void copy(const StorageRef& source, const StorageRef& target, int64_t bytes,
            CompletionRef done) override {
    copy_bytes(storage_of(target).data(), storage_of(source).data(), bytes);
    done->complete(ok_status());
  }

  Result<std::unique_ptr<pjrt::BackendExecutable>> compile(
      const pjrt::CompileRequest& request) override {
    HEKLA_RETURN_IF_ERROR(ThreadPool::process_pool().check_process());
    plan::DeviceTraits traits;
    traits.has_contractions = true;
    traits.most_of_chunk = kernel::kMostOfChunk;
    traits.has_lapack = uses_lapack(*request.module);
    traits.has_transforms = true;
    traits.starts_kernels_quickly = true;
    traits.scatters_in_order = true;
    HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<const plan::LaunchPlan> plan,
                           plan_of(request, traits));
    std::vector<std::string> fallbacks;
    std::vector<const ir::Module*> host_programs;
    const ir::DeviceGrid grid{request.replica_count, request.partition_count};
    HEKLA_RETURN_IF_ERROR(check_host_steps(*plan, grid, fallbacks, host_programs));
    HEKLA_RETURN_IF_ERROR(pjrt::check_fallbacks(options_.fail_on_fallback, fallbacks));
    HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<const Program> program,
                           Program::create(plan, *compiler_, request.options.schedule_seed,
                                           request.options.plan.persistent_loops));
    HEKLA_ASSIGN_OR_RETURN(ffi::CallsRef calls, reference::instantiate_calls(host_programs));
    return std::unique_ptr<pjrt::BackendExecutable>(std::make_unique<CpuExecutable>(
        std::move(program), devices_, compiler_,
        request.has_collectives ? std::optional(grid) : std::nullopt, std::move(calls)));
  }

 private:
  // Asks for the library only where something is for it.
  static bool uses_lapack(const ir::Module& module) {
    bool found = false;
    for (const auto& function : module.functions) {
      ir::walk(function->body(),
               [&](const ir::Operation& op) { found = found || passes::is_for_lapack(op); });
    }
    return found && lapack::table() != nullptr;
  }

  // From disk, or made and kept there. The fingerprint stands for the program and its options; the
  // rest follows from this build.
  Result<std::shared_ptr<const plan::LaunchPlan>> plan_of(const pjrt::CompileRequest& request,
                                                          const plan::DeviceTraits& traits) const {
    // Whoever wants passes checked wants them run.
    std::string fingerprint = request.options.verify_passes ? std::string() : request.fingerprint;
    if (traits.has_lapack && !fingerprint.empty()) fingerprint += " lapack";
    if (std::shared_ptr<const plan::LaunchPlan> known = plans_.load(fingerprint)) return known;
    HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<const plan::LaunchPlan> made,
                           compile_program(request.module, request.options, traits));
    plans_.store(fingerprint, *made);
    return made;
  }

  // What the evaluator cannot run either is an error now, not at the launch.
  static Status check_host_steps(const plan::LaunchPlan& plan, const ir::DeviceGrid& grid,
                                 std::vector<std::string>& fallbacks,
                                 std::vector<const ir::Module*>& host_programs) {
    Status status = ok_status();
    plan::for_each_step(plan.steps, [&](const plan::Step& step) {
      if (!status.ok()) return;
      if (const auto* start = std::get_if<plan::StartStep>(&step.what)) {
        status = reference::check_supported(*start->program, grid);
        host_programs.push_back(start->program.get());
      }
      const auto* host = std::get_if<plan::HostStep>(&step.what);
      if (host == nullptr) return;
      status = reference::check_supported(*host->program, grid);
      host_programs.push_back(host->program.get());
      if (reference::is_for_host(*host->program)) return;
      fallbacks.push_back(fmt::format("{}: {}", host->name, host->reason));
    });
    return status;
  }

  const std::string name_ = "tbb";
  const std::string version_ = "hekla 0.1.0";
  const CpuOptions options_;
  const std::shared_ptr<KernelCompiler> compiler_;  // shared with other clients
  const PlanStore plans_{cache_folder("cpu_plans"), build_id()};
  std::vector<pjrt::DeviceInfo> infos_;
  std::vector<CpuDevice> devices_;
};

}  // namespace

pjrt::OptionTable option_table(CpuOptions& options) {
  pjrt::OptionTable table;
  pjrt::add_common_options(table, options.common, "the machine's memory");
  pjrt::add_fail_on_fallback(table, options.fail_on_fallback);
  table.text("isa", "HEKLA_CPU_ISA", options.isa, {"native", "sse2", "avx2", "avx512"}, "native",
             "code for a lesser processor");
  return table;
}

Result<std::unique_ptr<pjrt::Backend>> create_backend(const pjrt::Options& options) {
  CpuOptions all;
  all.common.memory_limit_bytes = read_cpu_info().memory_bytes;
  HEKLA_RETURN_IF_ERROR(option_table(all).read(options));
  HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<KernelCompiler> compiler, shared_compiler(all.isa));
  return std::unique_ptr<pjrt::Backend>(std::make_unique<CpuBackend>(all, std::move(compiler)));
}

}  // namespace hekla::cpu
