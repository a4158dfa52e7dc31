// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/plugin/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "backends/compiler/plan/artefact.h"
#include "backends/vulkan/codegen/generate.h"
#include "backends/vulkan/launch/device_program.h"
#include "backends/vulkan/plugin/choose_devices.h"
#include "backends/vulkan/plugin/kind_programs.h"
#include "backends/vulkan/plugin/options.h"
#include "backends/vulkan/plugin/pipeline_report.h"
#include "backends/vulkan/plugin/storage.h"
#include "backends/vulkan/transfer/cross_copy.h"
#include "runtime/base/exceptions.h"
#include "runtime/base/log.h"

namespace hekla::vulkan {
namespace {

using pjrt::StorageRef;
using Devices = std::vector<std::shared_ptr<LogicalDevice>>;

VulkanStorage& storage_of(const StorageRef& storage) {
  return static_cast<VulkanStorage&>(*storage);
}

// Of all shaders.
int64_t code_bytes(const LaunchProgram& program) {
  size_t words = 0;
  const auto add = [&](const DeviceKernel& kernel) { words += kernel.code.words.size(); };
  std::ranges::for_each(program.kernels, add);
  std::ranges::for_each(program.contractions, add);
  std::ranges::for_each(program.loops, add, &DeviceLoopKernel::code);
  return static_cast<int64_t>(words * sizeof(uint32_t));
}

class VulkanExecutable : public pjrt::BackendExecutable {
 public:
  // `collectives`: the devices of a launch where they meet in the program.
  VulkanExecutable(std::unique_ptr<KindPrograms> programs, ProgramOptions options, Devices devices,
                   std::optional<ir::DeviceGrid> collectives)
      : programs_(std::move(programs)),
        program_(programs_->first()),
        options_(std::move(options)),
        devices_(std::move(devices)),
        collectives_(collectives) {
    loaded_.resize(devices_.size());
  }

  pjrt::ProgramStats stats() const override {
    pjrt::ProgramStats stats;
    stats.generated_code_bytes = code_bytes(*program_);
    stats.temporary_bytes = program_->plan->arena_bytes();
    return stats;
  }

  // Those of plan::artefact, "schedules", "spirv-asm", "spirv:N", and what the driver tells:
  // "pipeline-stats", "pipeline-disassembly", also with ":json" behind them; kernels by their
  // numbers in the plan.
  Result<std::string> artefact(std::string_view form) const override {
    if (auto shown = plan::artefact(form, *program_->plan, [this] { return decisions(); })) {
      return *shown;
    }
    for (const bool with_texts : {false, true}) {
      const std::string_view name = with_texts ? "pipeline-disassembly" : "pipeline-stats";
      if (!form.starts_with(name)) continue;
      const std::string_view rest = form.substr(name.size());
      if (!rest.empty() && rest != ":json") continue;
      return pipeline_report(*devices_[0], *program_,
                             {.with_texts = with_texts, .as_json = !rest.empty()});
    }
    constexpr std::string_view kBinary = "spirv:";
    if (form == "spirv-asm") {
      std::string text;
      for (size_t i = 0; i < program_->kernels.size(); ++i) {
        const DeviceKernel& kernel = program_->kernels[i];
        text +=
            fmt::format("; kernel {} {}\n{}\n", i, kernel.code.name,
                        kernel.is_interpreted() ? "; on the host" : disassemble(kernel.code.words));
      }
      for (const DeviceKernel& contraction : program_->contractions) {
        text +=
            fmt::format("; {}\n{}\n", contraction.code.name, disassemble(contraction.code.words));
      }
      for (const DeviceLoopKernel& loop : program_->loops) {
        text += fmt::format("; {}\n{}\n", loop.code.code.name, disassemble(loop.code.code.words));
      }
      return text;
    }
    if (form == "schedules") {
      std::string text;
      for (const DeviceKernel& kernel : program_->kernels) {
        text += fmt::format("{}: {}\n", kernel.code.name,
                            kernel.is_interpreted() ? "on the host" : kernel.schedule);
      }
      for (const DeviceKernel& contraction : program_->contractions) {
        text += fmt::format("matrix product: {}\n", contraction.schedule);
      }
      for (const plan::Decision& loop : program_->decisions) {
        const auto& ways = loop.implementations;
        const auto taken = std::ranges::find(ways, "", &kernel::Implementation::refusal);
        if (taken != ways.end()) text += fmt::format("loop: {}\n", taken->name);
      }
      return text;
    }
    if (form.substr(0, kBinary.size()) == kBinary) {
      size_t number = 0;
      const std::string_view digits = form.substr(kBinary.size());
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), number);
      if (error != std::errc() || end != digits.data() + digits.size() ||
          number >= program_->kernels.size()) {
        return invalid_argument("there is no kernel '{}'; the program has {}", digits,
                                program_->kernels.size());
      }
      const std::vector<uint32_t>& words = program_->kernels[number].code.words;
      return std::string(reinterpret_cast<const char*>(words.data()),
                         words.size() * sizeof(uint32_t));
    }
    return unimplemented(
        "the Vulkan device shows an executable as plan, kernels, schedules, implementations, "
        "pipeline-stats, pipeline-disassembly, spirv-asm or spirv:N, not {}",
        form);
  }

  // Counts of launches are those of the first logical device that it is for, of all its programs.
  std::vector<std::pair<std::string, int64_t>> statistics() const override {
    const auto interpreted =
        std::count_if(program_->kernels.begin(), program_->kernels.end(),
                      [](const DeviceKernel& kernel) { return kernel.is_interpreted(); });
    std::vector<std::pair<std::string, int64_t>> all = plan::statistics(*program_->plan);
    const LaunchCounters& counters = devices_[programs_->devices().front()]->counters();
    all.insert(all.end(), {{"interpreted_kernels", interpreted},
                           {"code_bytes", stats().generated_code_bytes},
                           {"host_steps_run", counters.host_steps.load()},
                           {"launches", counters.launches.load()},
                           {"submissions", counters.submissions.load()},
                           {"dispatches", counters.dispatches.load()}});
    return all;
  }

  // The program on one device; made when the device is first launched on.
  Result<std::shared_ptr<DeviceProgram>> loaded(size_t device) {
    std::lock_guard lock(mutex_);
    if (!loaded_[device]) {
      HEKLA_ASSIGN_OR_RETURN(const KindPrograms::ProgramRef program, programs_->of(device));
      HEKLA_ASSIGN_OR_RETURN(loaded_[device],
                             DeviceProgram::load(devices_[device], program, options_));
    }
    return loaded_[device];
  }

  // What pipelines cannot do is known at compile time. Logical devices of one share them.
  Status load_kinds() {
    for (const size_t device : programs_->devices()) {
      HEKLA_RETURN_IF_ERROR(loaded(device).status());
    }
    return ok_status();
  }

  Status launch(std::span<pjrt::Launch> launches) override {
    std::vector<Prepared> prepared;
    for (const pjrt::Launch& launch : launches) {
      HEKLA_ASSIGN_OR_RETURN(Prepared one, prepare(launch, launches.size()));
      prepared.push_back(std::move(one));
    }
    std::vector<CompletionRef> waiting;
    std::vector<std::pair<std::shared_ptr<DeviceProgram>, DeviceProgram::RunRef>> runs;
    for (size_t i = 0; i < prepared.size(); ++i) {
      Prepared& one = prepared[i];
      pjrt::Launch& launch = launches[i];
      for (const pjrt::LaunchInput& input : launch.inputs) {
        if (!input.ready->is_done()) waiting.push_back(input.ready);
      }
      LaunchOutputs outputs = one.program->accept(one.run, std::move(one.request));
      runs.emplace_back(std::move(one.program), std::move(one.run));
      for (AllocationRef& memory : outputs.memory) {
        launch.outputs.push_back(std::make_shared<VulkanStorage>(launch.device, std::move(memory),
                                                                 outputs.submitted, launch.done));
      }
    }
    const pjrt::GangRef gang = launches.front().gang;
    // From here on what fails is the launch's error: its inputs are given up.
    for (pjrt::Launch& launch : launches) launch.inputs.clear();
    if (!collectives_.has_value() || gang == nullptr) {
      for (size_t i = 0; i < runs.size(); ++i) {
        Status status = status_of_work([&] {
          runs[i].first->enqueue(runs[i].second);
          return ok_status();
        });
        if (!status.ok()) launches[i].done->complete(std::move(status));
      }
      return ok_status();
    }
    // Devices that meet in the program hold up the gangs that come later: so they begin when the
    // inputs of all are there. One whose inputs an earlier launch makes would otherwise stand
    // before what a callback of that launch launches and waits for.
    const auto enqueue = [runs = std::move(runs)] {
      for (const auto& [program, run] : runs) program->enqueue(run);
    };
    gang->post_when(std::move(waiting), enqueue);
    return ok_status();
  }

 private:
  // What the plan decided, and behind it how each kernel runs.
  std::vector<plan::Decision> decisions() const {
    const plan::LaunchPlan& plan = *program_->plan;
    std::vector<plan::Decision> decisions = plan.decisions;
    for (size_t i = 0; i < program_->kernels.size(); ++i) {
      decisions.push_back({plan::kernel_title(plan, i), program_->kernels[i].implementations});
    }
    for (const DeviceKernel& contraction : program_->contractions) {
      decisions.push_back({contraction.code.name, contraction.implementations});
    }
    decisions.insert(decisions.end(), program_->decisions.begin(), program_->decisions.end());
    return decisions;
  }

  struct Prepared {
    std::shared_ptr<DeviceProgram> program;
    LaunchRequest request;
    DeviceProgram::RunRef run;
  };
  // All that can fail; nothing is enqueued.
  Result<Prepared> prepare(const pjrt::Launch& launch, size_t launch_count) {
    Prepared one;
    HEKLA_ASSIGN_OR_RETURN(one.program, loaded(static_cast<size_t>(launch.device)));
    one.request.replica = launch.replica;
    one.request.partition = launch.partition;
    one.request.number = launch.number;
    one.request.gang = launch.gang;
    one.request.transfers = launch.transfers;
    one.request.collectives = launch.collectives;
    one.request.info = launch.info;
    one.request.trace = launch.trace;
    if (collectives_.has_value()) one.request.member = {launch, launch_count, *collectives_};
    one.request.done = launch.done;
    for (const pjrt::LaunchInput& input : launch.inputs) {
      const VulkanStorage& storage = storage_of(input.storage);
      one.request.inputs.push_back({storage.memory(), storage.submitted(input.ready), input.ready,
                                    input.is_donated && input.storage.use_count() == 1});
    }
    HEKLA_ASSIGN_OR_RETURN(one.run, one.program->prepare(one.request));
    return one;
  }

  const std::unique_ptr<KindPrograms> programs_;
  const KindPrograms::ProgramRef program_;  // the first device's, which is shown
  const ProgramOptions options_;
  const Devices devices_;
  const std::optional<ir::DeviceGrid> collectives_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<DeviceProgram>> loaded_;  // guarded by mutex_
};

class VulkanBackend : public pjrt::Backend {
 public:
  VulkanBackend(Devices devices, const BackendOptions& options)
      : devices_(std::move(devices)), options_(options) {
    const DeviceSnapshot& first = at(0).device().snapshot();
    version_ = fmt::format("hekla 0.1.0, Vulkan {}, {} {}", first.api_version, first.driver_name,
                           first.driver_info);
    for (const std::shared_ptr<LogicalDevice>& logical : devices_) {
      const Device& device = logical->device();
      const DeviceSnapshot& snapshot = device.snapshot();
      targets_.push_back(target(device));
      pjrt::DeviceInfo info;
      info.kind = snapshot.name;
      info.type_name = "VulkanDevice";
      info.attributes = {{"vendor", snapshot.vendor},
                         {"driver", snapshot.driver_name + " " + snapshot.driver_info},
                         {"api_version", snapshot.api_version},
                         {"device_type", std::string(device_type_name(snapshot.type))},
                         {"device_uuid", snapshot.device_uuid}};
      const std::string zeros = subnormals_as_zero(targets_.back());
      if (!zeros.empty()) info.attributes.emplace_back("subnormals_as_zero", zeros);
      info.memory_kinds = {"device", "pinned_host", "unpinned_host"};
      info.is_host_memory = device.plan().host_access == HostAccess::kFull;
      infos_.push_back(std::move(info));
    }
  }

  ~VulkanBackend() override {
    for (const std::shared_ptr<LogicalDevice>& device : devices_) {
      device->close();
      std::string line;
      for (const auto& [name, value] : counters(device->index())) {
        line += fmt::format("{} {}, ", value, name);
      }
      log_message(LogLevel::kVerbose, "vulkan:{}: {}peak memory {} bytes", device->index(), line,
                  device->memory().statistics().peak_bytes_in_use);
    }
  }

  const std::string& platform_name() const override { return name_; }
  const std::string& platform_version() const override { return version_; }
  const std::vector<pjrt::DeviceInfo>& devices() const override { return infos_; }

  Result<StorageRef> allocate(int device, size_t memory_kind, int64_t bytes) override {
    HEKLA_ASSIGN_OR_RETURN(AllocationRef memory,
                           at(device).memory().allocate(bytes, role_of(memory_kind)));
    return StorageRef(std::make_shared<VulkanStorage>(device, std::move(memory)));
  }

  Result<StorageRef> wrap_host_memory(int device, void* data, int64_t bytes,
                                      std::function<void()> release) override {
    HEKLA_ASSIGN_OR_RETURN(AllocationRef memory,
                           at(device).memory().import_host(data, bytes, std::move(release)));
    return StorageRef(std::make_shared<VulkanStorage>(device, std::move(memory)));
  }

  pjrt::MemoryStats memory_stats(int device) const override {
    const MemoryStatistics now = at(device).memory().statistics();
    return {now.bytes_in_use,          now.peak_bytes_in_use,        now.bytes_limit,
            now.allocation_count,      now.largest_allocation_bytes, now.host_bytes_in_use,
            now.peak_host_bytes_in_use};
  }
  void reset_peak_memory(int device) override { at(device).memory().reset_peak(); }

  std::vector<std::pair<std::string, int64_t>> counters(int device) const override {
    const LaunchCounters& counters = at(device).counters();
    return {{"launches", counters.launches},     {"submissions", counters.submissions},
            {"dispatches", counters.dispatches}, {"barriers", counters.barriers},
            {"host steps", counters.host_steps}, {"recordings", counters.recordings},
            {"held back", counters.held_back}};
  }

  void copy_from_host(const void* source, const StorageRef& target, int64_t offset, int64_t bytes,
                      CompletionRef done) override {
    const VulkanStorage& storage = storage_of(target);
    at(storage.device())
        .transfers()
        .upload(source, storage.memory(), offset, bytes, completing(done));
  }
  void copy_to_host(const StorageRef& source, int64_t offset, void* target, int64_t bytes,
                    CompletionRef done) override {
    const VulkanStorage& storage = storage_of(source);
    at(storage.device())
        .transfers()
        .download(storage.memory(), offset, target, bytes, completing(done));
  }
  void copy(const StorageRef& source, const StorageRef& target, int64_t bytes,
            CompletionRef done) override {
    const VulkanStorage& from = storage_of(source);
    const VulkanStorage& to = storage_of(target);
    LogicalDevice& sender = at(from.device());
    LogicalDevice& receiver = at(to.device());
    if (&sender.device() != &receiver.device()) {
      link(from.device(), to.device())
          ->copy(from.memory(), to.memory(), bytes, completing(std::move(done)));
      return;
    }
    // Logical devices of one share its compute queue, so either side's lane will do.
    receiver.transfers().copy(from.memory(), to.memory(), bytes, completing(done));
  }

  Result<std::unique_ptr<pjrt::BackendExecutable>> compile(
      const pjrt::CompileRequest& request) override {
    for (const int device : request.devices) {
      HEKLA_RETURN_IF_ERROR(at(device).device().health());
    }
    KindPrograms::Options kinds{
        .targets = targets_, .memory_limits = {}, .fail_on_fallback = options_.fail_on_fallback};
    for (const std::shared_ptr<LogicalDevice>& device : devices_) {
      kinds.memory_limits.push_back(device->memory().statistics().bytes_limit);
      if (request.devices.empty()) HEKLA_RETURN_IF_ERROR(device->device().health());
    }
    HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<KindPrograms> programs,
                           KindPrograms::compile(request, std::move(kinds)));
    std::optional<ir::DeviceGrid> collectives;
    if (request.has_collectives) {
      collectives = ir::DeviceGrid{request.replica_count, request.partition_count};
    }
    ProgramOptions options = options_.program;
    for (const size_t kind : request.result_kinds) options.output_roles.push_back(role_of(kind));
    auto executable = std::make_unique<VulkanExecutable>(std::move(programs), std::move(options),
                                                         devices_, collectives);
    HEKLA_RETURN_IF_ERROR(executable->load_kinds());
    return std::unique_ptr<pjrt::BackendExecutable>(std::move(executable));
  }

 private:
  static Transfers::Done completing(CompletionRef done) {
    return [done = std::move(done)](const Status& status) { done->complete(status); };
  }
  // From one device to another of another physical one. It owns both: a copy under way may outlive
  // the client.
  std::shared_ptr<CrossLink> link(int from, int to) {
    const auto transfers = [&](int device) {
      const std::shared_ptr<LogicalDevice>& owner = devices_[static_cast<size_t>(device)];
      return std::shared_ptr<Transfers>(owner, &owner->transfers());
    };
    std::lock_guard lock(mutex_);
    std::shared_ptr<CrossLink>& made = links_[{from, to}];
    if (made == nullptr) made = CrossLink::create(transfers(from), transfers(to));
    return made;
  }
  // What the generator may use: the features that are enabled, which may be fewer than there are.
  Target target(const Device& device) const {
    DeviceSnapshot snapshot = device.snapshot();
    snapshot.features = device.plan().features;
    for (const DeviceType type :
         {DeviceType::kDiscrete, DeviceType::kIntegrated, DeviceType::kVirtual, DeviceType::kCpu}) {
      if (options_.device_type == device_type_name(type)) snapshot.type = type;
    }
    return make_target(snapshot);
  }
  // By the number of a kind in DeviceInfo::memory_kinds.
  static MemoryRole role_of(size_t memory_kind) {
    return memory_kind == 0 ? MemoryRole::kTensor : MemoryRole::kHostTensor;
  }
  LogicalDevice& at(int device) const { return *devices_[static_cast<size_t>(device)]; }

  const std::string name_ = "vulkan";
  std::string version_;
  const Devices devices_;  // those of one physical device after each other
  const BackendOptions options_;
  std::vector<Target> targets_;  // by logical device
  std::vector<pjrt::DeviceInfo> infos_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::shared_ptr<CrossLink>> links_;  // guarded by mutex_
};

}  // namespace

Result<std::unique_ptr<pjrt::Backend>> create_backend(const pjrt::Options& options) {
  HEKLA_ASSIGN_OR_RETURN(const BackendOptions chosen, read_options(options));
  std::vector<std::string> wanted = {chosen.wanted_device};
  // One device, however it is named, is Device::open's to find.
  if (chosen.wanted_device == "all" || chosen.wanted_device.find(',') != std::string::npos) {
    HEKLA_ASSIGN_OR_RETURN(const std::vector<DeviceSnapshot> snapshots, query_devices());
    HEKLA_ASSIGN_OR_RETURN(const std::vector<size_t> indices,
                           choose_devices(snapshots, chosen.wanted_device));
    wanted.clear();
    for (const size_t index : indices) wanted.push_back(std::to_string(index));
  }
  Devices devices;
  for (const std::string& one : wanted) {
    // A physical device that is named twice is opened twice, and its memory shared.
    const auto shares = std::count(wanted.begin(), wanted.end(), one) * chosen.common.device_count;
    HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<Device> device, Device::open(one, chosen.device));
    HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<Pipelines> pipelines,
                           Pipelines::create(device, chosen.cache_folder));
    LogicalDeviceOptions each;
    each.memory_limit_bytes = chosen.device.memory_limit_bytes > 0
                                  ? chosen.device.memory_limit_bytes
                                  : device->plan().memory_limit_bytes / shares;
    for (int i = 0; i < chosen.common.device_count; ++i) {
      HEKLA_ASSIGN_OR_RETURN(
          std::shared_ptr<LogicalDevice> logical,
          LogicalDevice::create(device, pipelines, static_cast<int>(devices.size()), each));
      devices.push_back(std::move(logical));
    }
  }
  return std::unique_ptr<pjrt::Backend>(
      std::make_unique<VulkanBackend>(std::move(devices), chosen));
}

}  // namespace hekla::vulkan
