// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/pipeline/pipelines.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <thread>

#include "runtime/base/async/thread.h"
#include "runtime/base/log.h"
#include "runtime/base/sha256.h"

namespace hekla::vulkan {
namespace {

constexpr uint32_t kSpirvMagic = 0x07230203;
constexpr size_t kSpirvHeaderWords = 5;
// Of all blobs in the folder, one per device and driver version.
constexpr int64_t kMaxCacheBytes = int64_t{256} << 20;
constexpr size_t kBlobHeaderBytes = 16 + VK_UUID_SIZE;

std::string hash_of(const KernelCode& kernel) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(kernel.words)));
  hash.update(std::as_bytes(std::span(&kernel.subgroup_size, 1)));
  hash.update(std::as_bytes(std::span(kernel.entry)));
  hash.update(std::as_bytes(std::span(kernel.constant_ids)));
  hash.update(std::as_bytes(std::span(kernel.constant_values)));
  return hash.hex();
}

}  // namespace

std::string blob_problem(std::span<const std::byte> blob, const DeviceSnapshot& snapshot) {
  if (blob.size() < kBlobHeaderBytes) {
    return fmt::format("it has {} bytes, less than its header", blob.size());
  }
  uint32_t fields[4] = {};  // header length, version, vendor, device
  std::memcpy(fields, blob.data(), sizeof(fields));
  std::string uuid;
  for (size_t i = 16; i < kBlobHeaderBytes; ++i) {
    uuid += fmt::format("{:02x}", static_cast<unsigned>(blob[i]));
  }
  if (fields[0] < kBlobHeaderBytes || fields[0] > blob.size()) {
    return fmt::format("its header has {} bytes", fields[0]);
  }
  if (fields[1] != VK_PIPELINE_CACHE_HEADER_VERSION_ONE) {
    return fmt::format("its header has version {}", fields[1]);
  }
  if (fields[2] != snapshot.vendor_id || fields[3] != snapshot.device_id) {
    return fmt::format("it is for device {:x}:{:x}", fields[2], fields[3]);
  }
  if (uuid != snapshot.pipeline_cache_uuid) return "its UUID is another driver's: " + uuid;
  return "";
}

Result<std::unique_ptr<Pipelines>> Pipelines::create(std::shared_ptr<Device> device,
                                                     const std::string& cache_folder) {
  std::unique_ptr<Pipelines> pipelines(new Pipelines(std::move(device)));
  HEKLA_RETURN_IF_ERROR(pipelines->open(cache_folder));
  return pipelines;
}

Status Pipelines::open(const std::string& cache_folder) {
  const DeviceFunctions& call = device_->call();
  VkPushConstantRange range = {};
  range.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
  range.size = kPushConstantBytes;
  VkPipelineLayoutCreateInfo layout = {VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
  layout.pushConstantRangeCount = 1;
  layout.pPushConstantRanges = &range;
  HEKLA_RETURN_IF_ERROR(
      device_->check(call.CreatePipelineLayout(device_->handle(), &layout, nullptr, &layout_),
                     "vkCreatePipelineLayout"));
  if (!cache_folder.empty()) {
    Result<std::unique_ptr<FileCache>> files = FileCache::open(
        (std::filesystem::path(cache_folder) / "vulkan-pipelines").string(), kMaxCacheBytes);
    if (files.ok()) {
      files_ = std::move(*files);
      load(*files_);
    } else {
      log_message(LogLevel::kWarning, "pipelines are not kept: {}", files.status().message());
    }
  }
  if (cache_ != VK_NULL_HANDLE) return ok_status();
  VkPipelineCacheCreateInfo info = {VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  return device_->check(call.CreatePipelineCache(device_->handle(), &info, nullptr, &cache_),
                        "vkCreatePipelineCache");
}

Pipelines::~Pipelines() {
  const DeviceFunctions& call = device_->call();
  if (cache_ != VK_NULL_HANDLE) call.DestroyPipelineCache(device_->handle(), cache_, nullptr);
  if (layout_ != VK_NULL_HANDLE) call.DestroyPipelineLayout(device_->handle(), layout_, nullptr);
}

std::string Pipelines::key() const { return "pipelines " + device_->identity(); }

void Pipelines::load(FileCache& files) {
  const std::optional<std::vector<std::byte>> blob = files.load(key());
  if (!blob) return;
  if (const std::string problem = blob_problem(*blob, device_->snapshot()); !problem.empty()) {
    log_message(LogLevel::kWarning, "the pipeline cache {} is ignored: {}", files.path_of(key()),
                problem);
    return;
  }
  VkPipelineCacheCreateInfo info = {VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  info.initialDataSize = blob->size();
  info.pInitialData = blob->data();
  const VkResult result =
      device_->call().CreatePipelineCache(device_->handle(), &info, nullptr, &cache_);
  if (result != VK_SUCCESS) {
    cache_ = VK_NULL_HANDLE;
    (void)device_->check(result, "vkCreatePipelineCache");
    return;
  }
  counters_.loaded_bytes = static_cast<int64_t>(blob->size());
}

void Pipelines::store() {
  if (!files_) return;
  const DeviceFunctions& call = device_->call();
  std::lock_guard lock(store_mutex_);
  // What other processes stored since is kept too.
  if (const auto blob = files_->load(key());
      blob && blob_problem(*blob, device_->snapshot()).empty()) {
    VkPipelineCacheCreateInfo info = {VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    info.initialDataSize = blob->size();
    info.pInitialData = blob->data();
    VkPipelineCache other = VK_NULL_HANDLE;
    if (call.CreatePipelineCache(device_->handle(), &info, nullptr, &other) == VK_SUCCESS) {
      (void)device_->check(call.MergePipelineCaches(device_->handle(), cache_, 1, &other),
                           "vkMergePipelineCaches");
      call.DestroyPipelineCache(device_->handle(), other, nullptr);
    }
  }
  size_t size = 0;
  if (call.GetPipelineCacheData(device_->handle(), cache_, &size, nullptr) != VK_SUCCESS) return;
  std::vector<std::byte> blob(size);
  if (call.GetPipelineCacheData(device_->handle(), cache_, &size, blob.data()) != VK_SUCCESS) {
    return;  // grew meanwhile; the thread that let it grow stores it
  }
  blob.resize(size);
  // llvmpipe of Mesa 26 gives 20 bytes, which is less than a header.
  if (const std::string problem = blob_problem(blob, device_->snapshot()); !problem.empty()) {
    log_message(LogLevel::kVerbose, "pipelines are not kept: the driver's cache is none: {}",
                problem);
    return;
  }
  if (const Status status = files_->store(key(), blob); !status.ok()) {
    log_message(LogLevel::kWarning, "pipelines are not kept: {}", status.message());
    return;
  }
  std::lock_guard counters_lock(mutex_);
  counters_.stored_bytes = static_cast<int64_t>(size);
}

Result<std::vector<PipelineRef>> Pipelines::get(std::span<const KernelCode> kernels) {
  const int64_t compiled_before = counters().compiled;
  std::vector<std::optional<Result<PipelineRef>>> results(kernels.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < kernels.size(); i = next++) results[i] = get(kernels[i]);
  };
  const size_t helpers =
      std::min<size_t>(kernels.size(), std::max(std::thread::hardware_concurrency(), 1U));
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < helpers; ++i) threads.push_back(start_thread(work));
    work();
  }

  std::vector<PipelineRef> pipelines;
  for (std::optional<Result<PipelineRef>>& result : results) {
    HEKLA_ASSIGN_OR_RETURN(PipelineRef pipeline, std::move(*result));
    pipelines.push_back(std::move(pipeline));
  }
  if (counters().compiled != compiled_before) store();
  return pipelines;
}

Result<PipelineRef> Pipelines::get(const KernelCode& kernel) {
  const std::string hash = hash_of(kernel);
  std::promise<Result<PipelineRef>> promise;
  std::shared_future<Result<PipelineRef>> other;
  {
    std::lock_guard lock(mutex_);
    if (const auto at = known_.find(hash); at != known_.end()) {
      if (PipelineRef pipeline = at->second.lock()) {
        ++counters_.shared;
        return pipeline;
      }
    }
    if (const auto at = in_progress_.find(hash); at != in_progress_.end()) {
      ++counters_.shared;
      other = at->second;
    } else {
      in_progress_.emplace(hash, promise.get_future().share());
      ++counters_.compiled;
    }
  }
  if (other.valid()) return other.get();
  Result<PipelineRef> result = compile(kernel, cache_, 0);
  {
    std::lock_guard lock(mutex_);
    in_progress_.erase(hash);
    if (result.ok()) {
      std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
      known_[hash] = *result;
    }
  }
  promise.set_value(result);
  return result;
}

Result<PipelineStatistics> Pipelines::statistics(const KernelCode& kernel, bool with_texts) {
  HEKLA_RETURN_IF_ERROR(check_tells_statistics(*device_));
  VkPipelineCreateFlags flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR;
  if (with_texts) flags |= VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
  PipelineStatistics statistics;
  // Of the processor, by whatever threads: other programs make no pipeline slower.
  const std::clock_t before = std::clock();
  HEKLA_ASSIGN_OR_RETURN(const PipelineRef pipeline, compile(kernel, VK_NULL_HANDLE, flags));
  statistics.seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  HEKLA_ASSIGN_OR_RETURN(statistics.executables,
                         query_executables(*device_, pipeline->handle(), with_texts));
  return statistics;
}

Result<PipelineRef> Pipelines::compile(const KernelCode& kernel, VkPipelineCache cache,
                                       VkPipelineCreateFlags flags) {
  HEKLA_RETURN_IF_ERROR(device_->health());
  if (kernel.words.size() < kSpirvHeaderWords || kernel.words[0] != kSpirvMagic) {
    return invalid_argument("kernel {}: {} words that are no SPIR-V", kernel.name,
                            kernel.words.size());
  }
  const DeviceFunctions& call = device_->call();
  VkShaderModuleCreateInfo code = {VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  code.codeSize = kernel.words.size() * sizeof(uint32_t);
  code.pCode = kernel.words.data();
  VkShaderModule module = VK_NULL_HANDLE;
  const auto with_name = [&](const Status& status) {
    return status.with_context(fmt::format("kernel {}", kernel.name));
  };
  if (Status status =
          device_->check(call.CreateShaderModule(device_->handle(), &code, nullptr, &module),
                         "vkCreateShaderModule");
      !status.ok()) {
    return with_name(status);
  }
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup = {
      VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO};
  subgroup.requiredSubgroupSize = kernel.subgroup_size;
  VkComputePipelineCreateInfo info = {VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
  info.flags = flags;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  if (kernel.subgroup_size != 0 && device_->plan().features.subgroup_size_control) {
    info.stage.pNext = &subgroup;
    if (device_->plan().features.compute_full_subgroups) {
      info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    }
  }
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = kernel.entry.c_str();
  std::vector<VkSpecializationMapEntry> entries;
  for (const uint32_t id : kernel.constant_ids) {
    entries.push_back(
        {id, static_cast<uint32_t>(entries.size() * sizeof(uint32_t)), sizeof(uint32_t)});
  }
  const VkSpecializationInfo constants = {static_cast<uint32_t>(entries.size()), entries.data(),
                                          kernel.constant_values.size() * sizeof(uint32_t),
                                          kernel.constant_values.data()};
  if (!entries.empty()) info.stage.pSpecializationInfo = &constants;
  info.layout = layout_;
  VkPipeline pipeline = VK_NULL_HANDLE;
  const VkResult result =
      call.CreateComputePipelines(device_->handle(), cache, 1, &info, nullptr, &pipeline);
  call.DestroyShaderModule(device_->handle(), module, nullptr);
  if (Status status = device_->check(result, "vkCreateComputePipelines"); !status.ok()) {
    return with_name(status);
  }
  return std::make_shared<const Pipeline>(device_, pipeline);
}

Pipelines::Counters Pipelines::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace hekla::vulkan
