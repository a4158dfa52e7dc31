// SPDX-License-Identifier: Apache-2.0
// Pipelines: compute pipelines from SPIR-V, made in parallel, shared and remembered.
//
// All pipelines of a device have one layout: a single push constant range (kernel_abi.h), no
// descriptors. Equal code is compiled once: pipelines that live are shared by the hash of their
// words. What the driver compiled is kept on disk as its VkPipelineCache blob, keyed by the
// device's identity, in a FileCache: checked by us before the driver sees it, merged with what
// other processes stored meanwhile. A blob that does not check, or no folder, costs time, never an
// error. Thread-safe; the driver is called without a lock.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/vulkan/device/device.h"
#include "backends/vulkan/pipeline/statistics.h"
#include "runtime/base/file_cache.h"

namespace hekla::vulkan {

inline constexpr uint32_t kPushConstantBytes = 128;

// One kernel as the driver takes it.
struct KernelCode {
  std::vector<uint32_t> words;
  // Lanes per subgroup that the kernel is written for; 0: whatever the driver chooses.
  uint32_t subgroup_size = 0;
  std::string name;  // for errors
  std::string entry = "main";
  // Specialization constants, of 32 bits each.
  std::vector<uint32_t> constant_ids;
  std::vector<uint32_t> constant_values;
};

// A VkPipeline, shared by the programs that use it.
class Pipeline {
 public:
  Pipeline(std::shared_ptr<Device> device, VkPipeline handle)
      : device_(std::move(device)), handle_(handle) {}
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  ~Pipeline() { device_->call().DestroyPipeline(device_->handle(), handle_, nullptr); }
  VkPipeline handle() const { return handle_; }

 private:
  std::shared_ptr<Device> device_;
  VkPipeline handle_;
};
using PipelineRef = std::shared_ptr<const Pipeline>;

// Why a driver must not see a pipeline cache blob; empty when it may. The header is the one of
// VkPipelineCacheHeaderVersionOne.
std::string blob_problem(std::span<const std::byte> blob, const DeviceSnapshot& snapshot);

class Pipelines {
 public:
  struct Counters {
    int64_t compiled = 0;  // given to the driver
    int64_t shared = 0;    // already there
    int64_t loaded_bytes = 0;
    int64_t stored_bytes = 0;
  };

  // `cache_folder` empty: nothing is kept on disk.
  static Result<std::unique_ptr<Pipelines>> create(std::shared_ptr<Device> device,
                                                   const std::string& cache_folder);
  Pipelines(const Pipelines&) = delete;
  Pipelines& operator=(const Pipelines&) = delete;
  // Pipelines may outlive it.
  ~Pipelines();

  // One pipeline per kernel, in order; compiles on up to as many threads as there are processors,
  // and stores the driver's cache when something was compiled. INVALID_ARGUMENT: no SPIR-V;
  // otherwise the driver's error with the kernel's name.
  Result<std::vector<PipelineRef>> get(std::span<const KernelCode> kernels);

  // What the driver tells of a kernel's pipeline, which is compiled for that alone, without caches;
  // `with_texts`: its code too. UNIMPLEMENTED, in words, where it tells nothing; else as get().
  Result<PipelineStatistics> statistics(const KernelCode& kernel, bool with_texts);

  VkPipelineLayout layout() const { return layout_; }
  Counters counters() const;

 private:
  explicit Pipelines(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  Status open(const std::string& cache_folder);
  Result<PipelineRef> get(const KernelCode& kernel);
  Result<PipelineRef> compile(const KernelCode& kernel, VkPipelineCache cache,
                              VkPipelineCreateFlags flags);
  std::string key() const;
  void load(FileCache& cache);
  void store();

  const std::shared_ptr<Device> device_;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  std::unique_ptr<FileCache> files_;
  std::mutex store_mutex_;

  mutable std::mutex mutex_;
  std::map<std::string, std::weak_ptr<const Pipeline>> known_;                  // guarded by mutex_
  std::map<std::string, std::shared_future<Result<PipelineRef>>> in_progress_;  // guarded by mutex_
  Counters counters_;                                                           // guarded by mutex_
};

}  // namespace hekla::vulkan
