// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/jit/kernel_compiler.h"

#include <fmt/format.h>
#include <oneapi/tbb/parallel_for_each.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "backends/cpu/jit/linker.h"
#include "backends/cpu/jit/object_code.h"
#include "runtime/base/log.h"
#include "runtime/base/sha256.h"

namespace hekla::cpu {
namespace {

// A module costs 0.7 ms by itself, so it should hold several kernels; more than this gains nothing.
constexpr size_t kKernelsPerModule = 8;

std::string hash_of(const std::string& text) {
  return sha256_hex(std::as_bytes(std::span(text.data(), text.size())));
}

void run_nothing(const void* const*, int64_t, int64_t) {}

// One kernel to compile, with what the emitter wants to know about it.
struct Job {
  const kernel::Kernel* kernel;
  bool may_alias;
  std::string symbol;  // from the content: equal kernels, equal symbols
  LaneAnalysis analysis;
  Schedule schedule;
};

struct Bin {
  std::vector<const Job*> jobs;
  size_t instructions = 0;
  std::shared_ptr<CodeModule> module;
  int64_t bytes = 0;
  Status status;
};

class Compiler : public KernelCompiler {
 public:
  Compiler(std::unique_ptr<ObjectWriter> writer, std::shared_ptr<Linker> linker)
      : writer_(std::move(writer)), linker_(std::move(linker)) {}

  Result<std::shared_ptr<const CompiledKernels>> compile(
      std::span<const KernelRequest> requests) override {
    auto result = std::make_shared<CompiledKernels>();
    std::vector<std::unique_ptr<Job>> jobs;
    std::unordered_map<std::string, size_t> job_of;  // by symbol
    std::vector<std::string> symbols;
    for (const KernelRequest& request : requests) {
      if (request.kernel->points() == 0) {
        symbols.emplace_back();
        continue;
      }
      std::unique_ptr<Job> job = make_job(request);
      symbols.push_back(job->symbol);
      if (job_of.emplace(job->symbol, jobs.size()).second) jobs.push_back(std::move(job));
    }

    std::vector<Known> known(jobs.size());
    std::vector<const Job*> missing;
    {
      std::lock_guard lock(mutex_);
      for (size_t i = 0; i < jobs.size(); ++i) {
        const auto it = known_.find(jobs[i]->symbol);
        if (it != known_.end()) known[i] = {it->second.module.lock(), it->second.function};
        if (known[i].module == nullptr) missing.push_back(jobs[i].get());
      }
    }
    std::vector<Bin> bins = make_bins(missing);
    tbb::parallel_for_each(bins, [&](Bin& bin) { bin.status = compile_bin(bin); });
    for (const Bin& bin : bins) {
      HEKLA_RETURN_IF_ERROR(bin.status);
      result->modules.push_back(bin.module);
      result->code_bytes += bin.bytes;
      for (size_t i = 0; i < bin.jobs.size(); ++i) {
        const Job& job = *bin.jobs[i];
        const auto function = reinterpret_cast<KernelFunction>(bin.module->addresses[i]);
        known[job_of[job.symbol]] = {bin.module, function};
      }
    }
    remember(jobs, known);
    for (size_t i = 0; i < requests.size(); ++i) {
      if (symbols[i].empty()) {
        Schedule none;
        none.rows = 0;
        result->kernels.push_back({run_nothing, none});
        continue;
      }
      const size_t number = job_of[symbols[i]];
      result->kernels.push_back({known[number].function, jobs[number]->schedule});
      result->modules.push_back(known[number].module);
    }
    std::sort(result->modules.begin(), result->modules.end());
    result->modules.erase(std::unique(result->modules.begin(), result->modules.end()),
                          result->modules.end());
    result->compiled_count = static_cast<int64_t>(missing.size());
    return std::shared_ptr<const CompiledKernels>(std::move(result));
  }

  Result<std::string> llvm_text(const KernelRequest& request) override {
    const std::unique_ptr<Job> job = make_job(request);
    return writer_->llvm_text({named(*job)});
  }
  Result<std::string> assembly_text(const KernelRequest& request) override {
    const std::unique_ptr<Job> job = make_job(request);
    return writer_->assembly_text({named(*job)});
  }

 private:
  struct Known {
    std::shared_ptr<CodeModule> module;
    KernelFunction function = nullptr;
  };
  struct Remembered {
    std::weak_ptr<CodeModule> module;
    KernelFunction function = nullptr;
  };

  std::unique_ptr<Job> make_job(const KernelRequest& request) const {
    const kernel::Kernel& kernel = *request.kernel;
    LaneAnalysis analysis(kernel);
    const Schedule schedule = make_schedule(kernel, analysis, writer_->target().vector_bits);
    const bool may_alias = request.may_alias || updates_in_place(kernel);
    // Whether points may run twice matters only where a row ends within a vector.
    const bool matters = schedule.row % schedule.lanes != 0;
    const std::string text = fmt::format("{}{}", matters && may_alias, to_string(kernel));
    return std::make_unique<Job>(
        Job{&kernel, may_alias, "k" + hash_of(text), std::move(analysis), schedule});
  }

  NamedKernel named(const Job& job) const {
    return {{*job.kernel, job.analysis, job.schedule, writer_->target(), job.may_alias},
            job.symbol};
  }

  // The largest kernels first, each into the module that has least.
  static std::vector<Bin> make_bins(std::vector<const Job*> jobs) {
    std::stable_sort(jobs.begin(), jobs.end(), [](const Job* a, const Job* b) {
      return a->kernel->body.size() > b->kernel->body.size();
    });
    std::vector<Bin> bins((jobs.size() + kKernelsPerModule - 1) / kKernelsPerModule);
    // Two modules at least, so that a second thread can help.
    if (bins.size() == 1 && jobs.size() > 1) bins.resize(2);
    for (const Job* job : jobs) {
      Bin& least = *std::min_element(bins.begin(), bins.end(), [](const Bin& a, const Bin& b) {
        return a.instructions < b.instructions;
      });
      least.jobs.push_back(job);
      least.instructions += job->kernel->body.size();
    }
    return bins;
  }

  Status compile_bin(Bin& bin) const {
    std::vector<NamedKernel> kernels;
    std::vector<std::string> symbols;
    for (const Job* job : bin.jobs) {
      kernels.push_back(named(*job));
      symbols.push_back(job->symbol);
    }
    HEKLA_ASSIGN_OR_RETURN(const std::string object, writer_->object_file(kernels));
    bin.bytes = static_cast<int64_t>(object.size());
    HEKLA_ASSIGN_OR_RETURN(bin.module, linker_->link(object, symbols));
    return ok_status();
  }

  void remember(const std::vector<std::unique_ptr<Job>>& jobs, const std::vector<Known>& known) {
    std::lock_guard lock(mutex_);
    constexpr size_t kSweepAbove = 1024;
    if (known_.size() > kSweepAbove) {
      std::erase_if(known_, [](const auto& entry) { return entry.second.module.expired(); });
    }
    for (size_t i = 0; i < jobs.size(); ++i) {
      known_[jobs[i]->symbol] = {known[i].module, known[i].function};
    }
  }

  const std::unique_ptr<ObjectWriter> writer_;
  const std::shared_ptr<Linker> linker_;  // shared with the modules
  std::mutex mutex_;
  std::unordered_map<std::string, Remembered> known_;  // by symbol; guarded by mutex_
};

}  // namespace

Result<std::shared_ptr<KernelCompiler>> KernelCompiler::create(const std::string& level) {
  HEKLA_ASSIGN_OR_RETURN(Target target, make_target(level));
  if (!target.is_native) {
    return failed_precondition("this processor does not run the instruction set level {}", level);
  }
  HEKLA_ASSIGN_OR_RETURN(auto writer, ObjectWriter::create(std::move(target)));
  HEKLA_ASSIGN_OR_RETURN(auto linker, Linker::create());
  return std::shared_ptr<KernelCompiler>(
      std::make_shared<Compiler>(std::move(writer), std::move(linker)));
}

}  // namespace hekla::cpu
