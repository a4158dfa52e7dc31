// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/plugin/backend.h"

#include <atomic>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "backends/pjrt/client_options.h"
#include "backends/pjrt/launch_trace.h"
#include "backends/reference/evaluator.h"
#include "backends/reference/gang_exchange.h"
#include "backends/reference/plugin/storage.h"
#include "runtime/base/async/callback_queue.h"
#include "runtime/base/async/serial_queue.h"
#include "runtime/base/copy_bytes.h"
#include "runtime/base/cpu_info.h"
#include "runtime/base/exceptions.h"

namespace hekla::reference {
namespace {

using pjrt::StorageRef;

ReferenceStorage& storage_of(const StorageRef& storage) {
  return static_cast<ReferenceStorage&>(*storage);
}

struct Device {
  std::shared_ptr<MemoryAccount> account;
  SerialQueue worker;  // runs the device's launches in their order
  // Of launches that call the client, which would hold up the others.
  CallbackQueue callbacks;
};

Result<HostArray> copied(const HostArray& array) {
  HEKLA_ASSIGN_OR_RETURN(HostArray copy, HostArray::allocate(array.dtype(), array.dims(), false));
  if (array.size_bytes() > 0) {
    copy_bytes(copy.mutable_data(), array.data(), array.size_bytes());
  }
  return copy;
}

int64_t bytes_of(const ir::Type& type) {
  return type.is_token() ? 0 : element_count(type.dims()) * dtype_bytes(type.dtype());
}

class ReferenceExecutable : public pjrt::BackendExecutable {
 public:
  ReferenceExecutable(std::shared_ptr<const ir::Module> module, ffi::CallsRef calls,
                      const ir::DeviceGrid& grid, std::vector<std::shared_ptr<Device>> devices)
      : module_(std::move(module)),
        calls_(std::move(calls)),
        grid_(grid),
        devices_(std::move(devices)) {
    parameters_ = ir::flat_types(module_->entry()->type.elements());
    results_ = ir::flat_types(module_->entry()->type.results());
  }

  pjrt::ProgramStats stats() const override { return {}; }

  Status launch(std::span<pjrt::Launch> launches) override {
    for (pjrt::Launch& launch : launches) {
      if (const Status status = make_outputs(launch); !status.ok()) {
        for (pjrt::Launch& other : launches) other.outputs.clear();
        return status;
      }
    }
    enqueue(launches);
    return ok_status();
  }

 private:
  Status make_outputs(pjrt::Launch& launch) const {
    const std::shared_ptr<Device>& device = devices_[static_cast<size_t>(launch.device)];
    if (launch.transfers != nullptr) HEKLA_RETURN_IF_ERROR(device->callbacks.start_thread());
    const auto& account = device->account;
    for (const ir::Type& type : results_) {
      HEKLA_RETURN_IF_ERROR(account->add(bytes_of(type)));
      launch.outputs.push_back(std::make_shared<ReferenceStorage>(account, bytes_of(type)));
    }
    return ok_status();
  }

  // A gang, or one launch: begins when all inputs are there, and later ones pass while it waits,
  // since one of them may be what a callback waits for that makes an input.
  void enqueue(std::span<pjrt::Launch> launches) const {
    const pjrt::GangRef gang = launches.front().gang;
    std::vector<CompletionRef> waiting;
    std::vector<std::function<void()>> posts;
    for (pjrt::Launch& launch : launches) {
      for (const pjrt::LaunchInput& input : launch.inputs) {
        if (!input.ready->is_done()) waiting.push_back(input.ready);
      }
      const std::shared_ptr<Device>& device = devices_[static_cast<size_t>(launch.device)];
      if (launch.transfers == nullptr) {
        posts.emplace_back(
            [device, work = make_work(launch, launches.size())] { device->worker.post(work); });
      } else {
        posts.emplace_back(
            [device, work = make_work(launch, launches.size())] { device->callbacks.post(work); });
      }
    }
    const auto post = [posts = std::move(posts)] {
      for (const auto& each : posts) each();
    };
    if (gang != nullptr) return gang->post_when(std::move(waiting), post);
    if (waiting.empty()) return post();
    Completion::all(std::move(waiting))->on_done([post](const Status&) { post(); });
  }

  // Takes the launch over; its outputs stay there too.
  std::function<void()> make_work(pjrt::Launch& launch, size_t launch_count) const {
    const std::shared_ptr<Device>& device = devices_[static_cast<size_t>(launch.device)];
    const std::vector<StorageRef> outputs = launch.outputs;
    std::vector<StorageRef> given = launch.outputs;
    const auto member = std::make_shared<GangMember>(launch, launch_count, grid_);
    auto job = std::make_shared<pjrt::Launch>(std::move(launch));
    launch.outputs = std::move(given);
    // Set by who runs the job, or who calls it off: an abort before its turn ends it at once,
    // whatever stands before it on its device.
    const auto is_taken = std::make_shared<std::atomic<bool>>(false);
    if (job->gang != nullptr) {
      job->gang->on_abort([is_taken, member, weak = std::weak_ptr(job)](const Status& status) {
        const auto waiting = weak.lock();
        if (waiting != nullptr && !is_taken->exchange(true)) end(*waiting, *member, status);
      });
    }
    return [module = module_, calls = calls_, parameters = parameters_, outputs, job, member,
            is_taken, account = device->account] {
      if (is_taken->exchange(true)) return;
      const Status status = status_of_work(
          [&] { return run(*module, calls, parameters, *job, *member, outputs, *account); });
      end(*job, *member, member->ends_with(status));
    };
  }

  static void end(pjrt::Launch& job, GangMember& member, Status status) {
    const CompletionRef done = job.done;
    if (job.gang != nullptr && job.gang->is_aborted()) status = job.gang->status();
    // Inputs are released before anybody hears of the end, so that memory is there again.
    job.inputs.clear();
    done->complete(status);
    member.ended(status);
  }

  static Status run(const ir::Module& module, const ffi::CallsRef& calls,
                    const std::vector<ir::Type>& parameters, pjrt::Launch& job, GangMember& member,
                    const std::vector<StorageRef>& outputs, const MemoryAccount& account) {
    if (job.gang != nullptr && job.gang->is_aborted()) return job.gang->status();
    const pjrt::LaunchTrace trace(job);
    for (const pjrt::LaunchInput& input : job.inputs) {
      HEKLA_RETURN_IF_ERROR(input.ready->status());
    }
    member.begin();
    std::vector<HostArray> arguments;
    for (size_t i = 0; i < job.inputs.size(); ++i) {
      pjrt::LaunchInput& input = job.inputs[i];
      if (parameters[i].is_token()) {
        arguments.emplace_back();
        continue;
      }
      ReferenceStorage& storage = storage_of(input.storage);
      const bool is_last = input.is_donated && input.storage.use_count() == 1;
      HostArray array = is_last ? storage.take_array() : storage.array();
      if (storage.is_foreign()) {
        // A result may be its argument.
        HEKLA_ASSIGN_OR_RETURN(array, copied(array));
      }
      // Storages hold plain bytes until a launch gives them a type.
      if (array.dtype() != parameters[i].dtype() || array.dims() != parameters[i].dims()) {
        array = std::move(array).with_shape(parameters[i].dtype(), parameters[i].dims());
      }
      arguments.push_back(std::move(array));
    }
    EvaluateOptions options;
    options.replica_id = job.replica;
    options.partition_id = job.partition;
    options.launch_number = job.number;
    options.exchange = member.exchange();
    options.transfers = job.transfers.get();
    options.device = job.device;
    options.collectives = job.collectives.get();
    std::optional<ffi::LaunchCalls> launch_calls;
    if (calls != nullptr) options.calls = &launch_calls.emplace(calls, job.info);
    if (job.gang != nullptr) options.cancelled = &job.gang->aborted();
    const pjrt::MemoryStats stats = account.stats();
    if (stats.bytes_limit < kUnlimited) {
      // What other buffers hold is not the launch's to use; its own arguments are counted in both.
      int64_t own = 0;
      for (const HostArray& argument : arguments) own += argument.size_bytes();
      options.memory_limit_bytes =
          stats.bytes_limit - (stats.bytes_in_use - own) + output_bytes(outputs);
    }
    Result<std::vector<HostArray>> results = evaluate(module, std::move(arguments), options);
    HEKLA_RETURN_IF_ERROR(results.status());
    for (size_t i = 0; i < outputs.size(); ++i) {
      storage_of(outputs[i]).set_array(std::move((*results)[i]));
    }
    return ok_status();
  }

  static int64_t output_bytes(const std::vector<StorageRef>& outputs) {
    int64_t bytes = 0;
    for (const StorageRef& output : outputs) bytes += output->size_bytes();
    return bytes;
  }

  static constexpr int64_t kUnlimited = int64_t{1} << 62;

  std::shared_ptr<const ir::Module> module_;  // shared with the program
  ffi::CallsRef calls_;                       // of the module; null: none
  ir::DeviceGrid grid_;
  std::vector<std::shared_ptr<Device>> devices_;
  std::vector<ir::Type> parameters_;
  std::vector<ir::Type> results_;
};

class ReferenceBackend : public pjrt::Backend {
 public:
  ReferenceBackend(int64_t device_count, int64_t limit_bytes) {
    for (int64_t i = 0; i < device_count; ++i) {
      auto device = std::make_shared<Device>();
      device->account = std::make_shared<MemoryAccount>(
          pjrt::account_name("reference device", i, device_count), limit_bytes);
      devices_.push_back(std::move(device));
      pjrt::DeviceInfo info;
      info.kind = "Hekla reference evaluator";
      info.type_name = "ReferenceDevice";
      info.attributes = {{"vendor", std::string("Hekla")}};
      info.memory_kinds = {"device", "pinned_host", "unpinned_host"};
      infos_.push_back(std::move(info));
    }
  }

  const std::string& platform_name() const override { return name_; }
  const std::string& platform_version() const override { return version_; }
  const std::vector<pjrt::DeviceInfo>& devices() const override { return infos_; }

  Result<StorageRef> allocate(int device, size_t, int64_t bytes) override {
    const auto& account = devices_[static_cast<size_t>(device)]->account;
    HEKLA_RETURN_IF_ERROR(account->add(bytes));
    auto storage = std::make_shared<ReferenceStorage>(account, bytes);
    HEKLA_ASSIGN_OR_RETURN(HostArray array, HostArray::allocate(DType::kUI8, {bytes}, false));
    storage->set_array(std::move(array));
    return StorageRef(std::move(storage));
  }

  Result<StorageRef> wrap_host_memory(int device, void* data, int64_t bytes,
                                      std::function<void()> release) override {
    // Foreign memory is not this device's: it does not count.
    auto storage = std::make_shared<ReferenceStorage>(
        std::make_shared<MemoryAccount>("host", std::numeric_limits<int64_t>::max()), bytes);
    HEKLA_RETURN_IF_ERROR(devices_[static_cast<size_t>(device)]->account->add(0));
    storage->set_array(HostArray::wrap(DType::kUI8, {bytes}, nullptr, data));
    storage->set_foreign(std::move(release));
    return StorageRef(std::move(storage));
  }

  pjrt::MemoryStats memory_stats(int device) const override {
    return devices_[static_cast<size_t>(device)]->account->stats();
  }
  void reset_peak_memory(int device) override {
    devices_[static_cast<size_t>(device)]->account->reset_peak();
  }

  void copy_from_host(const void* source, const StorageRef& target, int64_t offset, int64_t bytes,
                      CompletionRef done) override {
    ReferenceStorage& storage = storage_of(target);
    // Written in place: nobody reads a storage before it is complete.
    copy_bytes(static_cast<std::byte*>(storage.host_pointer()) + offset, source, bytes);
    done->complete(ok_status());
  }

  void copy_to_host(const StorageRef& source, int64_t offset, void* target, int64_t bytes,
                    CompletionRef done) override {
    copy_bytes(target, storage_of(source).array().data() + offset, bytes);
    done->complete(ok_status());
  }

  void copy(const StorageRef& source, const StorageRef& target, int64_t bytes,
            CompletionRef done) override {
    const HostArray from = storage_of(source).array();
    copy_bytes(storage_of(target).host_pointer(), from.data(), bytes);
    done->complete(ok_status());
  }

  Result<std::unique_ptr<pjrt::BackendExecutable>> compile(
      const pjrt::CompileRequest& request) override {
    const ir::DeviceGrid grid{request.replica_count, request.partition_count};
    HEKLA_RETURN_IF_ERROR(check_supported(*request.module, grid));
    const ir::Module* const modules[] = {request.module.get()};
    HEKLA_ASSIGN_OR_RETURN(ffi::CallsRef calls, instantiate_calls(modules));
    return std::unique_ptr<pjrt::BackendExecutable>(
        std::make_unique<ReferenceExecutable>(request.module, std::move(calls), grid, devices_));
  }

 private:
  const std::string name_ = "reference";
  const std::string version_ = "hekla 0.1.0";
  std::vector<pjrt::DeviceInfo> infos_;
  std::vector<std::shared_ptr<Device>> devices_;
};

}  // namespace

pjrt::OptionTable option_table(pjrt::CommonOptions& options) {
  pjrt::OptionTable table;
  pjrt::add_common_options(table, options, "the machine's memory");
  return table;
}

Result<std::unique_ptr<pjrt::Backend>> create_backend(const pjrt::Options& options) {
  pjrt::CommonOptions common;
  common.memory_limit_bytes = read_cpu_info().memory_bytes;
  HEKLA_RETURN_IF_ERROR(option_table(common).read(options));
  return std::unique_ptr<pjrt::Backend>(
      std::make_unique<ReferenceBackend>(common.device_count, common.memory_limit_bytes));
}

}  // namespace hekla::reference
