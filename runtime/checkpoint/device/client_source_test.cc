// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/device/client_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "runtime/base/io/memory_io.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/restore/step_reader.h"
#include "runtime/checkpoint/save/saver.h"

namespace hekla::checkpoint {
namespace {

using runtime::Buffer;
using runtime::Client;
using runtime::Executable;
using runtime::Plugin;

constexpr int64_t kCount = 600'000;  // 2.4 MB: several staging buffers
constexpr std::string_view kAddOne = R"(module @add_one {
  func.func @main(%a: tensor<600000xf32> {tf.aliasing_output = 0 : i32}) -> tensor<600000xf32> {
    %one = stablehlo.constant dense<1.0> : tensor<600000xf32>
    %0 = stablehlo.add %a, %one : tensor<600000xf32>
    return %0 : tensor<600000xf32>
  }
})";

std::vector<std::string> libraries() {
  std::vector<std::string> paths;
  for (const char* name : {"reference", "cpu", "vulkan"}) {
    const std::string path = std::string(HEKLA_BINARY_DIR "/lib/hekla/pjrt_") + name + ".so";
    if (std::filesystem::exists(path)) paths.push_back(path);
  }
  const char* text = std::getenv("HEKLA_FOREIGN_PLUGINS");
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    if (end > 0) paths.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return paths;
}

HostArray counting(float first) {
  HostArray array(DType::kF32, {kCount});
  for (int64_t i = 0; i < kCount; ++i) {
    array.mutable_as<float>()[i] = first + static_cast<float>(i % 1000);
  }
  return array;
}

// Values of every bit pattern that a type has.
HostArray pattern(DType dtype, Dims dims) {
  HostArray array(dtype, std::move(dims));
  const int bits = dtype_bits(dtype);
  for (int64_t i = 0; i < array.size_bytes(); ++i) {
    auto value = static_cast<uint8_t>(7 * i + 3);
    if (dtype == DType::kI1) value &= 1;
    if (bits < 8 && dtype != DType::kI1) {
      value &= static_cast<uint8_t>((1 << bits) - 1);
      const bool is_negative = is_signed_integer(dtype) && (value >> (bits - 1)) != 0;
      if (is_negative) value |= static_cast<uint8_t>(~((1 << bits) - 1));
    }
    array.mutable_data()[i] = static_cast<std::byte>(value);
  }
  return array;
}

class ClientSourceTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto plugin = Plugin::load("tested", GetParam());
    ASSERT_TRUE(plugin.ok()) << plugin.status().to_string();
    Result<Client> client = Client::create(*plugin, {});
    if (client.status().code() == StatusCode::kNotFound) GTEST_SKIP() << "no device";
    ASSERT_TRUE(client.ok()) << client.status().to_string();
    client_.emplace(std::move(*client));
  }

  std::shared_ptr<const Buffer> upload(const HostArray& array) {
    Result<Buffer> buffer = client_->to_device(array, client_->addressable_devices()[0]);
    if (!buffer.ok()) die_of_bad_result(buffer.status());
    return std::make_shared<const Buffer>(std::move(*buffer));
  }

  std::shared_ptr<const Buffer> add_one(const Executable& program,
                                        const std::shared_ptr<const Buffer>& to) {
    const std::vector<const Buffer*> arguments{to.get()};
    Result<runtime::Launch> launch = program.launch(std::span(&arguments, 1));
    if (!launch.ok()) die_of_bad_result(launch.status());
    return std::make_shared<const Buffer>(std::move(launch->outputs[0][0]));
  }

  std::optional<Client> client_;
};

TEST_P(ClientSourceTest, ALaunchThatConsumesAHeldBufferLeavesItsValues) {
  const Result<Executable> program = client_->compile(kAddOne);
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  const auto old = upload(counting(5));
  auto source = client_source(old);
  ASSERT_TRUE(source.ok()) << source.status().to_string();
  EXPECT_EQ((*source)->host_data() == nullptr, old->is_kept_by_references());
  EXPECT_FALSE((*source)->is_mutable());
  ASSERT_EQ((*source)->size_bytes(), 4 * kCount);
  const auto next = add_one(*program, old);
  const auto after = add_one(*program, next);
  EXPECT_TRUE(after->to_host()->identical(counting(7)));
  const HostArray want = counting(5);
  std::vector<std::byte> part(100'000);
  for (const int64_t at : {int64_t{0}, int64_t{400'004}, 4 * kCount - 100'000}) {
    ASSERT_TRUE((*source)->read(at, part, {}).ok());
    EXPECT_EQ(std::memcmp(part.data(), want.data() + at, part.size()), 0) << at;
  }
  EXPECT_TRUE(*next->is_freed());  // consumed as ever
  // Once nobody holds it, a buffer is consumed again.
  const auto third = upload(counting(0));
  { ASSERT_TRUE(client_source(third).ok()); }
  add_one(*program, third);
  EXPECT_TRUE(*third->is_freed());
}

TEST_P(ClientSourceTest, TheCallerMayGiveUpItsBuffer) {
  auto buffer = upload(counting(9));
  auto source = client_source(std::move(buffer));
  ASSERT_TRUE(source.ok());
  std::vector<std::byte> all(4 * kCount);
  ASSERT_TRUE((*source)->read(0, all, {}).ok());
  EXPECT_EQ(std::memcmp(all.data(), counting(9).data(), all.size()), 0);
}

TEST_P(ClientSourceTest, WhatCannotBeSavedIsSaid) {
  EXPECT_EQ(client_source(nullptr).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_source(std::make_shared<const Buffer>()).status().code(),
            StatusCode::kInvalidArgument);
  const Result<Executable> program = client_->compile(kAddOne);
  ASSERT_TRUE(program.ok());
  const auto consumed = upload(counting(0));
  add_one(*program, consumed);
  State state;
  const Status status = add_buffer(&state, "weights/7", consumed);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("weights/7"), std::string::npos) << status.to_string();
  EXPECT_TRUE(state.tensors.empty());
}

// A training loop in small: every step consumes the buffer of the one before while it is saved.
TEST_P(ClientSourceTest, SavedStepsHoldTheValuesOfTheirStep) {
  const Result<Executable> program = client_->compile(kAddOne);
  ASSERT_TRUE(program.ok());
  std::map<std::string, HostArray> fixed;
  for (int i = 1; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dtype == DType::kTF32) continue;  // the C API has none
    if (client_->to_device(pattern(dtype, {1}), client_->addressable_devices()[0]).ok()) {
      fixed["fixed/" + std::string(dtype_name(dtype))] = pattern(dtype, {5, 7});
    }
  }
  fixed["fixed/scalar"] = pattern(DType::kF32, {});
  fixed["fixed/nothing"] = HostArray(DType::kF32, {0, 3});
  std::map<std::string, std::shared_ptr<const Buffer>> fixed_buffers;
  for (const auto& [name, array] : fixed) fixed_buffers[name] = upload(array);

  MemoryIo io;
  const auto info = open_root(io, "/run");
  ASSERT_TRUE(info.ok()) << info.status().to_string();
  const auto group = rendezvous::Group::form(std::make_shared<rendezvous::LocalStore>(), 0, 1,
                                             Deadline::in(std::chrono::seconds(30)));
  ASSERT_TRUE(group.ok());
  SaverOptions options;
  options.max_in_flight = 2;
  options.writer.threads = 1;
  options.writer.item_bytes = int64_t{1} << 20;
  options.writer.staging_bytes = int64_t{2} << 20;
  const auto saver = Saver::create(io, **group, "/run", info->run_uuid, options);
  ASSERT_TRUE(saver.ok());
  auto weights = upload(counting(0));
  std::vector<std::shared_ptr<SaveHandle>> handles;
  for (int64_t step = 0; step < 6; ++step) {
    State state;
    ASSERT_TRUE(add_buffer(&state, "weights", weights).ok());
    for (const auto& [name, buffer] : fixed_buffers) {
      ASSERT_TRUE(add_buffer(&state, name, buffer).ok());
    }
    auto handle = (*saver)->save(step, std::move(state));
    ASSERT_TRUE(handle.ok()) << handle.status().to_string();
    handles.push_back(*handle);
    weights = add_one(*program, weights);
  }
  for (const auto& handle : handles) {
    ASSERT_TRUE(handle->wait().ok()) << handle->wait().to_string();
  }
  for (int64_t step = 0; step < 6; ++step) {
    StepReaderOptions reading;
    reading.verify = Verify::kFull;
    const auto reader = StepReader::open(io, join_path("/run", step_name(step)), reading);
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    EXPECT_TRUE((*reader)->tensor("weights")->read()->identical(counting(static_cast<float>(step))))
        << step;
    for (const auto& [name, array] : fixed) {
      EXPECT_TRUE((*reader)->tensor(name)->read()->identical(array)) << name;
    }
  }
}

TEST_P(ClientSourceTest, ABufferFreedMeanwhileIsAnErrorOfTheSave) {
  Result<Buffer> buffer = client_->to_device(counting(1), client_->addressable_devices()[0]);
  ASSERT_TRUE(buffer.ok());
  const auto shared = std::make_shared<Buffer>(std::move(*buffer));
  if (!shared->is_kept_by_references()) GTEST_SKIP() << "copied at once";
  auto source = client_source(shared);
  ASSERT_TRUE(source.ok());
  ASSERT_TRUE(shared->free().ok());
  std::vector<std::byte> part(8);
  EXPECT_FALSE((*source)->read(0, part, {}).ok());
}

INSTANTIATE_TEST_SUITE_P(Plugins, ClientSourceTest, testing::ValuesIn(libraries()),
                         [](const auto& info) {
                           std::string name = std::filesystem::path(info.param).stem().string();
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); },
                               '_');
                           return name + std::to_string(info.index);
                         });

}  // namespace
}  // namespace hekla::checkpoint
