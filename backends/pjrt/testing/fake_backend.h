// SPDX-License-Identifier: Apache-2.0
// A backend whose launches a test plays, behind the real table of the C API.
//
// Its memory is the host's; its programs compute nothing, unless a test plays them (play_launch).
// The client option num_devices counts its devices. What a test sets holds for all its clients; one
// thread sets it while nothing is launched.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/pjrt/client_options.h"
#include "backends/pjrt/plugin.h"

namespace hekla::pjrt {

class FakeStorage : public Storage {
 public:
  static inline std::atomic<int> alive = 0;

  explicit FakeStorage(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) { ++alive; }
  ~FakeStorage() override { --alive; }
  int64_t size_bytes() const override { return static_cast<int64_t>(bytes_.size()); }
  void* host_pointer() override { return bytes_.data(); }

 private:
  std::vector<std::byte> bytes_;
};

class FakeExecutable : public BackendExecutable {
 public:
  // In place of the end of all launches at once; null: that. Outputs are there.
  static inline std::function<Status(std::span<Launch>)> play_launch;

  explicit FakeExecutable(std::vector<ir::Type> results) : results_(std::move(results)) {}
  ProgramStats stats() const override { return {}; }
  Status launch(std::span<Launch> launches) override {
    for (Launch& launch : launches) {
      for (const ir::Type& type : results_) {
        launch.outputs.push_back(std::make_shared<FakeStorage>(
            type.is_token() ? 0 : element_count(type.dims()) * dtype_bytes(type.dtype())));
      }
    }
    if (play_launch) return play_launch(launches);
    for (Launch& launch : launches) {
      launch.inputs.clear();
      launch.done->complete(ok_status());
    }
    return ok_status();
  }

 private:
  const std::vector<ir::Type> results_;
};

class FakeBackend : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> create(const Options& options) {
    CommonOptions common;
    OptionTable table;
    add_common_options(table, common, "none");
    HEKLA_RETURN_IF_ERROR(table.read(options));
    return std::unique_ptr<Backend>(std::make_unique<FakeBackend>(common.device_count));
  }
  static const PJRT_Api& api() {
    static constexpr BackendFactory kFactory = {"fake", create};
    return *plugin_table(kFactory);
  }

  explicit FakeBackend(int64_t device_count) {
    DeviceInfo info;
    info.kind = "Fake";
    info.type_name = "FakeDevice";
    info.attributes = {{"vendor", std::string("Hekla")},
                       {"cores", int64_t{4}},
                       {"coords", std::vector<int64_t>{1, 2}}};
    infos_.assign(static_cast<size_t>(device_count), info);
  }
  const std::string& platform_name() const override { return name_; }
  const std::string& platform_version() const override { return version_; }
  const std::vector<DeviceInfo>& devices() const override { return infos_; }
  Result<StorageRef> allocate(int, size_t, int64_t bytes) override {
    return StorageRef(std::make_shared<FakeStorage>(bytes));
  }
  Result<StorageRef> wrap_host_memory(int, void*, int64_t, std::function<void()>) override {
    return unimplemented("copies only");
  }
  MemoryStats memory_stats(int) const override { return {}; }
  void reset_peak_memory(int) override {}
  void copy_from_host(const void* source, const StorageRef& target, int64_t offset, int64_t bytes,
                      CompletionRef done) override {
    std::memcpy(static_cast<std::byte*>(target->host_pointer()) + offset, source,
                static_cast<size_t>(bytes));
    done->complete(ok_status());
  }
  void copy_to_host(const StorageRef& source, int64_t offset, void* target, int64_t bytes,
                    CompletionRef done) override {
    std::memcpy(target, static_cast<std::byte*>(source->host_pointer()) + offset,
                static_cast<size_t>(bytes));
    done->complete(ok_status());
  }
  void copy(const StorageRef& source, const StorageRef& target, int64_t bytes,
            CompletionRef done) override {
    copy_to_host(source, 0, target->host_pointer(), bytes, std::move(done));
  }
  Result<std::unique_ptr<BackendExecutable>> compile(const CompileRequest& request) override {
    return std::unique_ptr<BackendExecutable>(
        std::make_unique<FakeExecutable>(ir::flat_types(request.module->entry()->type.results())));
  }

 private:
  const std::string name_ = "fake";
  const std::string version_ = "fake 1";
  std::vector<DeviceInfo> infos_;
};

}  // namespace hekla::pjrt
