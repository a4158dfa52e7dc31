// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/jit/kernel_compiler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <unordered_map>

#include "backends/compiler/plan/visit.h"
#include "backends/cpu/jit/linker.h"
#include "backends/cpu/jit/object_code.h"
#include "backends/cpu/jit/object_store.h"
#include "backends/cpu/threads/thread_pool.h"
#include "runtime/base/log.h"
#include "runtime/base/sha256.h"

namespace hekla::cpu {
namespace {

// A module costs 0.7 ms by itself, so it should hold several kernels; more than this gains nothing.
constexpr size_t kKernelsPerModule = 8;
// Long bodies take 4 ms each: fewer to a module, so that threads end together.
constexpr size_t kLongKernelsPerModule = 3;

std::string hash_of(const std::string& text) {
  return sha256_hex(std::as_bytes(std::span(text.data(), text.size())));
}

void run_nothing(const void* const*, int64_t, int64_t) {}

// One kernel or loop to compile, with what the emitter wants to know about it.
struct Job {
  const kernel::Kernel* kernel = nullptr;
  bool may_alias = false;
  std::string symbol;  // from the content: equal code, equal symbols
  KernelPlan plan;
  const LoopRequest* loop = nullptr;  // instead of a kernel
};

struct Bin {
  std::vector<const Job*> jobs;
  size_t instructions = 0;
};

}  // namespace

// An object file in memory and its code. The file's bytes stay, for sets of kernels that are stored
// later.
struct LinkedObject {
  ObjectFile file;
  std::shared_ptr<CodeModule> module;
  Status status;
};

namespace {

using ObjectRef = std::shared_ptr<const LinkedObject>;

class Compiler : public KernelCompiler {
 public:
  Compiler(std::unique_ptr<ObjectWriter> writer, std::shared_ptr<Linker> linker,
           const std::string& cache_folder)
      : writer_(std::move(writer)),
        linker_(std::move(linker)),
        store_(cache_folder, fmt::format("{} {}", generator_version(), writer_->target().key())) {}

  Result<std::shared_ptr<const CompiledKernels>> compile(
      std::span<const KernelRequest> requests, std::span<const LoopRequest> loops) override {
    const auto start = std::chrono::steady_clock::now();
    auto result = std::make_shared<CompiledKernels>();
    std::vector<std::unique_ptr<Job>> jobs;
    std::unordered_map<std::string, size_t> job_of;  // by symbol
    std::vector<std::string> symbols;                // of the requests; empty where nothing runs
    std::vector<Schedule> schedules;                 // of the requests: equal code has several
    for (const KernelRequest& request : requests) {
      if (kernel::team_dimension(request.kernel->body) >= 0) {
        return internal_error("kernel {}: its points exchange values, which the CPU's traits deny",
                              request.kernel->name);
      }
      if (request.kernel->points() == 0) {
        symbols.emplace_back();
        schedules.emplace_back().rows = 0;
        continue;
      }
      std::unique_ptr<Job> job = make_job(request);
      schedules.push_back(job->plan.schedule);
      symbols.push_back(request.needs_code ? job->symbol : "");
      if (!request.needs_code) continue;
      if (job_of.emplace(job->symbol, jobs.size()).second) jobs.push_back(std::move(job));
    }
    std::vector<std::string> loop_symbols;
    for (const LoopRequest& loop : loops) {
      std::unique_ptr<Job> job = make_job(loop);
      loop_symbols.push_back(job->symbol);
      if (job_of.emplace(job->symbol, jobs.size()).second) jobs.push_back(std::move(job));
    }

    std::unordered_map<std::string, Known> known = known_kernels(jobs);
    if (known.size() < jobs.size()) {
      HEKLA_RETURN_IF_ERROR(add_missing(jobs, known, *result));
      remember(known);
      log_message(
          LogLevel::kVerbose, "cpu: {} kernels and loops: {} compiled, {} from disk, {:.1f} ms",
          jobs.size(), result->compiled_count, result->loaded_count,
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
              .count());
    }
    for (size_t i = 0; i < symbols.size(); ++i) {
      if (symbols[i].empty()) {
        const bool has_points = schedules[i].units() > 0;
        result->kernels.push_back({has_points ? nullptr : run_nothing, schedules[i]});
        continue;
      }
      const Known& kernel = known[symbols[i]];
      result->kernels.push_back({kernel.function, schedules[i]});
      result->objects.push_back(kernel.object);
    }
    for (const std::string& symbol : loop_symbols) {
      const Known& loop = known[symbol];
      result->loops.push_back(loop.function);
      result->objects.push_back(loop.object);
    }
    result->objects = distinct(std::move(result->objects));
    for (const ObjectRef& object : result->objects) {
      result->code_bytes += static_cast<int64_t>(object->file.bytes.size());
    }
    return std::shared_ptr<const CompiledKernels>(std::move(result));
  }

  const Target& target() const override { return writer_->target(); }
  Result<std::string> llvm_text(const KernelRequest& request) override {
    return writer_->llvm_text({named(*make_job(request))});
  }
  Result<std::string> llvm_text(const LoopRequest& request) override {
    return writer_->llvm_text({named(*make_job(request))});
  }
  Result<std::string> assembly_text(const KernelRequest& request) override {
    return writer_->assembly_text({named(*make_job(request))});
  }
  Result<std::string> assembly_text(const LoopRequest& request) override {
    return writer_->assembly_text({named(*make_job(request))});
  }

 private:
  struct Known {
    ObjectRef object;
    KernelFunction function = nullptr;
  };
  struct Remembered {
    std::weak_ptr<const LinkedObject> object;
    KernelFunction function = nullptr;
  };

  // In parallel, on the pool.
  template <typename T, typename Call>
  static void for_each(std::vector<T>& items, const Call& call) {
    ThreadPool& pool = ThreadPool::process_pool();
    pool.run([&] {
      pool.for_ranges(static_cast<int64_t>(items.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) call(items[static_cast<size_t>(i)]);
      });
    });
  }

  static std::vector<ObjectRef> distinct(std::vector<ObjectRef> objects) {
    std::sort(objects.begin(), objects.end());
    objects.erase(std::unique(objects.begin(), objects.end()), objects.end());
    return objects;
  }

  // Those whose code is still in memory.
  std::unordered_map<std::string, Known> known_kernels(
      const std::vector<std::unique_ptr<Job>>& jobs) {
    std::unordered_map<std::string, Known> known;
    std::lock_guard lock(mutex_);
    for (const auto& job : jobs) {
      const auto it = known_.find(job->symbol);
      if (it == known_.end()) continue;
      if (ObjectRef object = it->second.object.lock()) {
        known[job->symbol] = {std::move(object), it->second.function};
      }
    }
    return known;
  }

  // Loads the whole set from disk, or compiles what is missing and stores the set.
  Status add_missing(const std::vector<std::unique_ptr<Job>>& jobs,
                     std::unordered_map<std::string, Known>& known, CompiledKernels& result) {
    std::vector<std::string> all;
    for (const auto& job : jobs) all.push_back(job->symbol);
    const size_t before = known.size();
    if (std::optional<std::vector<ObjectFile>> files = store_.load(all)) {
      std::vector<std::shared_ptr<LinkedObject>> objects;
      for (ObjectFile& file : *files) {
        objects.push_back(std::make_shared<LinkedObject>());
        objects.back()->file = std::move(file);
      }
      for_each(objects, [&](auto& object) { object->status = link(*object); });
      const Status status = take(objects, known);
      const bool is_whole = std::all_of(all.begin(), all.end(), [&](const std::string& symbol) {
        return known.contains(symbol);
      });
      if (status.ok() && is_whole) {
        result.loaded_count = static_cast<int64_t>(jobs.size() - before);
        return ok_status();
      }
      log_message(LogLevel::kWarning, "cpu: stored code cannot be used and is made again: {}",
                  status.ok() ? "it lacks kernels" : status.message());
    }
    std::vector<const Job*> missing;
    for (const auto& job : jobs) {
      if (!known.contains(job->symbol)) missing.push_back(job.get());
    }
    std::vector<std::pair<Bin, std::shared_ptr<LinkedObject>>> work;
    for (Bin& bin : make_bins(missing)) {
      work.emplace_back(std::move(bin), std::make_shared<LinkedObject>());
    }
    for_each(work,
             [&](auto& item) { item.second->status = compile_bin(item.first, *item.second); });
    std::vector<std::shared_ptr<LinkedObject>> objects;
    for (auto& [bin, object] : work) objects.push_back(std::move(object));
    HEKLA_RETURN_IF_ERROR(take(objects, known));
    result.compiled_count = static_cast<int64_t>(missing.size());
    std::vector<ObjectRef> used;
    for (const std::string& symbol : all) used.push_back(known[symbol].object);
    std::vector<const ObjectFile*> files;
    for (const ObjectRef& object : used = distinct(std::move(used))) {
      files.push_back(&object->file);
    }
    store_.store(all, files);
    return ok_status();
  }

  // The kernels of `objects` are known from here on; the first error among them, if any.
  static Status take(const std::vector<std::shared_ptr<LinkedObject>>& objects,
                     std::unordered_map<std::string, Known>& known) {
    for (const auto& object : objects) {
      HEKLA_RETURN_IF_ERROR(object->status);
      for (size_t i = 0; i < object->file.symbols.size(); ++i) {
        const auto function = reinterpret_cast<KernelFunction>(object->module->addresses[i]);
        known.emplace(object->file.symbols[i], Known{object, function});
      }
    }
    return ok_status();
  }

  std::unique_ptr<Job> make_job(const KernelRequest& request) const {
    const kernel::Kernel& kernel = *request.kernel;
    KernelPlan plan = plan_kernel(kernel, writer_->target().vector_bits, request.blocks,
                                  request.schedule_seed, request.tiles, request.strided);
    const bool may_alias = request.may_alias || updates_in_place(kernel);
    std::string text = text_of(kernel, plan, may_alias);
    if (request.tiles != TileUse::kChosen || request.strided != StridedUse::kShuffles) {
      text += fmt::format("tiles {} strided {}", static_cast<int>(request.tiles),
                          static_cast<int>(request.strided));
    }
    if (request.schedule_seed != 0) text += fmt::format("drawn {}", request.schedule_seed);
    return std::make_unique<Job>(Job{&kernel, may_alias, "k" + hash_of(text), std::move(plan)});
  }

  // What the code of a kernel depends on. Blocks of rows and whole grids often come to the same.
  static std::string text_of(const kernel::Kernel& kernel, const KernelPlan& plan, bool may_alias) {
    // Whether points may run twice matters only where a row ends within a vector.
    const Schedule& schedule = plan.schedule;
    const bool matters = !schedule.is_whole() || plan.kinds.back().segments.size() > 1;
    return fmt::format("{}{} lanes {} points {} dimension {} by {} staged {}", matters && may_alias,
                       to_string(kernel), schedule.lanes, schedule.chunk, schedule.tile_dimension,
                       schedule.tile_rows, fmt::join(schedule.staged, ","));
  }

  static std::unique_ptr<Job> make_job(const LoopRequest& request) {
    std::string text = steps_text(*request.loop);
    if (request.schedule_seed != 0) text += fmt::format(" drawn {}", request.schedule_seed);
    text += fmt::format(" unrolled {}", request.most_unrolled);
    for (const plan::Slice& base : request.memory->bases()) text += to_string(base);
    plan::for_each_slice_within(*request.loop, *request.plan, [&](const auto& slice, plan::Use) {
      text += fmt::format(" {} {}", request.memory->base_of(slice), slice.offset);
      text += fmt::format(" {} {}", slice.bytes, request.memory->region_of(slice));
    });
    for (const LoopKernel& one : request.kernels) {
      const kernel::Kernel& kernel = request.plan->kernels[static_cast<size_t>(one.number)];
      text += fmt::format(" {} {}", one.number, text_of(kernel, *one.plan, one.may_alias));
    }
    auto job = std::make_unique<Job>();
    job->symbol = "l" + hash_of(text);
    job->loop = &request;
    return job;
  }

  // What runs in it, in which order and how often.
  static std::string steps_text(const plan::Step& step) {
    std::string text = fmt::format("{}", step.what.index());
    if (const auto* kernel = std::get_if<plan::KernelStep>(&step.what)) {
      text += fmt::format(" {}", kernel->kernel);
    } else if (const auto* loop = std::get_if<plan::RepeatStep>(&step.what)) {
      text += fmt::format(" {}", loop->count);
    }
    plan::for_each_list(step, [&](const plan::Steps& steps) {
      text += "(";
      for (const plan::Step& inner : steps) text += steps_text(inner) + ",";
      text += ")";
    });
    return text;
  }

  NamedCode named(const Job& job) const {
    if (job.loop != nullptr) {
      const LoopRequest& loop = *job.loop;
      return {LoopCode{*loop.plan, *loop.loop, *loop.memory, loop.kernels, writer_->target(),
                       loop.most_unrolled},
              job.symbol};
    }
    return {KernelCode{*job.kernel, job.plan, writer_->target(), job.may_alias}, job.symbol};
  }

  // The largest kernels first, each into the module that has least; a loop has one of its own.
  static std::vector<Bin> make_bins(const std::vector<const Job*>& jobs) {
    std::vector<const Job*> long_bodies, others;
    std::vector<Bin> bins;
    for (const Job* job : jobs) {
      if (job->loop != nullptr) {
        bins.emplace_back().jobs.push_back(job);
      } else {
        (has_long_body(*job->kernel) ? long_bodies : others).push_back(job);
      }
    }
    for (Bin& bin : fill_bins(std::move(long_bodies), kLongKernelsPerModule)) {
      bins.push_back(std::move(bin));
    }
    for (Bin& bin : fill_bins(std::move(others), kKernelsPerModule)) {
      bins.push_back(std::move(bin));
    }
    return bins;
  }

  static std::vector<Bin> fill_bins(std::vector<const Job*> jobs, size_t most) {
    std::stable_sort(jobs.begin(), jobs.end(), [](const Job* a, const Job* b) {
      return a->kernel->body.size() > b->kernel->body.size();
    });
    std::vector<Bin> bins((jobs.size() + most - 1) / most);
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

  Status compile_bin(const Bin& bin, LinkedObject& object) const {
    std::vector<NamedCode> parts;
    for (const Job* job : bin.jobs) {
      parts.push_back(named(*job));
      object.file.symbols.push_back(job->symbol);
    }
    HEKLA_ASSIGN_OR_RETURN(object.file.bytes, writer_->object_file(parts));
    return link(object);
  }

  Status link(LinkedObject& object) const {
    HEKLA_ASSIGN_OR_RETURN(object.module, linker_->link(object.file.bytes, object.file.symbols));
    return ok_status();
  }

  void remember(const std::unordered_map<std::string, Known>& known) {
    std::lock_guard lock(mutex_);
    constexpr size_t kSweepAbove = 1024;
    if (known_.size() > kSweepAbove) {
      std::erase_if(known_, [](const auto& entry) { return entry.second.object.expired(); });
    }
    for (const auto& [symbol, kernel] : known) known_[symbol] = {kernel.object, kernel.function};
  }

  const std::unique_ptr<ObjectWriter> writer_;
  const std::shared_ptr<Linker> linker_;  // shared with the modules
  ObjectStore store_;
  std::mutex mutex_;
  std::unordered_map<std::string, Remembered> known_;  // by symbol; guarded by mutex_
};

}  // namespace

Result<std::shared_ptr<KernelCompiler>> KernelCompiler::create(const std::string& level,
                                                               const std::string& cache_folder) {
  HEKLA_ASSIGN_OR_RETURN(Target target, make_target(level));
  if (!target.is_native) {
    return failed_precondition("this processor does not run the instruction set level {}", level);
  }
  HEKLA_ASSIGN_OR_RETURN(auto writer, ObjectWriter::create(std::move(target)));
  HEKLA_ASSIGN_OR_RETURN(auto linker, Linker::create());
  return std::shared_ptr<KernelCompiler>(
      std::make_shared<Compiler>(std::move(writer), std::move(linker), cache_folder));
}

}  // namespace hekla::cpu
