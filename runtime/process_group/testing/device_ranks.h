// SPDX-License-Identifier: Apache-2.0
// For tests: ranks (ranks.h) with devices of this build's plugins, and buffers whose contents come
// when a test says so.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/process_group/conformance/conformance.h"
#include "runtime/process_group/device_arrays/device_group.h"
#include "runtime/process_group/testing/ranks.h"

namespace hekla::process_group {

inline bool says(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string::npos;
}

inline std::string library(const std::string& plugin) {
  return HEKLA_BINARY_DIR "/lib/hekla/pjrt_" + plugin + ".so";
}

inline runtime::Client make_client(const std::string& plugin) {
  auto loaded = runtime::Plugin::load(plugin, library(plugin));
  if (!loaded.ok()) die_of_bad_result(loaded.status());
  auto client = runtime::Client::create(*loaded);
  if (!client.ok()) die_of_bad_result(client.status());
  return *client;
}

// One for all tests: it outlives them, as plugins do.
inline const runtime::Client& client_of(const std::string& plugin) {
  static std::map<std::string, runtime::Client>& clients =
      *new std::map<std::string, runtime::Client>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  auto found = clients.find(plugin);
  if (found == clients.end()) found = clients.emplace(plugin, make_client(plugin)).first;
  return found->second;
}

inline DeviceArray put(const runtime::Client& client, const HostArray& array) {
  auto buffer = client.to_device(array, client.addressable_devices()[0]);
  if (!buffer.ok()) die_of_bad_result(buffer.status());
  return std::make_shared<runtime::Buffer>(std::move(*buffer));
}

inline HostArray floats(std::vector<float> values) {
  return HostArray::from<float>(DType::kF32, {static_cast<int64_t>(values.size())}, values);
}

inline std::vector<float> floats_of(Result<runtime::Buffer> buffer) {
  if (!buffer.ok()) {
    ADD_FAILURE() << buffer.status().to_string();
    return {};
  }
  const auto array = buffer->to_host();
  if (!array.ok()) {
    ADD_FAILURE() << array.status().to_string();
    return {};
  }
  return {array->as<float>(), array->as<float>() + array->size()};
}

using DeviceBody = std::function<void(DeviceGroup&)>;

inline void on_device_ranks(int size, const DeviceBody& body,
                            const DeviceGroupOptions& devices = {}, const Options& options = {}) {
  // Shared by the threads, as no rank owns it.
  on_ranks(
      size,
      [&](ProcessGroup& group) {
        const std::shared_ptr<ProcessGroup> shared(&group, [](ProcessGroup*) {});
        auto own = DeviceGroup::create(shared, devices);
        ASSERT_TRUE(own.ok()) << own.status().to_string();
        body(**own);
      },
      options);
}

struct Way {
  std::string plugin, host_memory;
};

inline auto ways() {
  return testing::Values(Way{"cpu", "auto"}, Way{"cpu", "off"}, Way{"reference", "auto"},
                         Way{"vulkan", "auto"}, Way{"vulkan", "off"});
}
inline std::string way_name(const testing::TestParamInfo<Way>& info) {
  return info.param.plugin + "_" + info.param.host_memory;
}

class DeviceGroupOn : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(library(GetParam().plugin))) {
      GTEST_SKIP() << library(GetParam().plugin) << " is not part of this build";
    }
  }
  static const runtime::Client& client() { return client_of(GetParam().plugin); }
  static DeviceGroupOptions options() { return {.host_memory = GetParam().host_memory}; }
  static DeviceArray put(const HostArray& array) { return process_group::put(client(), array); }
  static DevicePlace place(DType dtype, Dims dims) {
    auto made = DevicePlace::on(client(), client().addressable_devices()[0], dtype, dims);
    if (!made.ok()) die_of_bad_result(made.status());
    return *made;
  }
  static bool is_direct() {
    return GetParam().host_memory == "auto" && put(floats({1}))->is_on_host();
  }
};

inline void expect_array(Result<runtime::Buffer> got, const HostArray& wanted,
                         const std::string& what) {
  ASSERT_TRUE(got.ok()) << what << ": " << got.status().to_string();
  ASSERT_FALSE(got->is_empty()) << what;
  EXPECT_EQ(got->shape(), wanted.shape()) << what;
  auto array = got->to_host(Deadline::in(std::chrono::seconds(60)));
  ASSERT_TRUE(array.ok()) << what << ": " << array.status().to_string();
  EXPECT_EQ(difference(*array, wanted), "") << what << " " << wanted.shape();
}

inline HostArray rows_of(const HostArray& array, int64_t first, const Dims& dims) {
  HostArray part(array.dtype(), dims);
  if (part.size() > 0) {
    std::memcpy(part.mutable_data(), array.data() + first * dtype_bytes(array.dtype()),
                static_cast<size_t>(part.size_bytes()));
  }
  return part;
}

inline HostArray joined(const std::vector<HostArray>& parts, const Dims& dims) {
  HostArray whole(parts[0].dtype(), dims);
  std::byte* at = whole.mutable_data();
  for (const HostArray& part : parts) at = std::copy_n(part.data(), part.size_bytes(), at);
  return whole;
}

// A buffer whose contents come when the test says so.
struct Late {
  explicit Late(const runtime::Client& client) : plugin(&client.plugin()) {
    const auto memory = client.addressable_devices()[0].default_memory();
    HEKLA_PJRT_ARGS(PJRT_Client_CreateAliasBuffer_Args, args, fulfill_alias_buffer_cb);
    args.client = client.handle();
    args.memory = memory->handle();
    args.shape_dims = &kCount;
    args.shape_num_dims = 1;
    args.shape_element_type = PJRT_Buffer_Type_F32;
    const Status made = HEKLA_PJRT_CALL(*plugin, PJRT_Client_CreateAliasBuffer, &args);
    if (!made.ok()) die_of_bad_result(made);
    fulfil = args.fulfill_alias_buffer_cb;
    this->client = client.handle();
    auto adopted = client.adopt(args.alias_buffer);
    if (!adopted.ok()) die_of_bad_result(adopted.status());
    buffer = std::make_shared<runtime::Buffer>(std::move(*adopted));
  }
  void come(const runtime::Buffer& from) { end(from.handle(), PJRT_Error_Code_OK, ""); }
  void fail(std::string_view why) { end(nullptr, PJRT_Error_Code_INTERNAL, why); }
  void end(PJRT_Buffer* from, PJRT_Error_Code code, std::string_view why) const {
    HEKLA_PJRT_ARGS(PJRT_Client_FulfillAliasBuffer_Args, args, fulfill_alias_buffer_cb);
    args.client = client;
    args.buffer = from;
    args.status_code = code;
    args.error_message = why.data();
    args.error_message_size = why.size();
    args.fulfill_alias_buffer_cb = fulfil;
    const Status status = HEKLA_PJRT_CALL(*plugin, PJRT_Client_FulfillAliasBuffer, &args);
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  static constexpr int64_t kCount = 4;
  const runtime::Plugin* plugin;
  PJRT_Client* client;
  PJRT_FulfillAliasBufferCallback* fulfil;
  DeviceArray buffer;
};

}  // namespace hekla::process_group
