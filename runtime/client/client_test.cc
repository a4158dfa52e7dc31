// SPDX-License-Identifier: Apache-2.0
// The client against real plugins: the reference plugin of this build, and those in
// HEKLA_FOREIGN_PLUGINS (paths separated by ':').
#include "runtime/client/client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <thread>

#include "runtime/client/upload.h"

namespace hekla::runtime {
namespace {

std::vector<std::string> libraries() {
  std::vector<std::string> paths = {HEKLA_BINARY_DIR "/lib/hekla/pjrt_reference.so"};
  const char* text = std::getenv("HEKLA_FOREIGN_PLUGINS");
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    if (end > 0) paths.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return paths;
}

constexpr std::string_view kAdd = R"(module @add {
  func.func @main(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.add %a, %b : tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
})";
constexpr std::string_view kDonate = R"(module @donate {
  func.func @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<4xf32>)
      -> tensor<4xf32> {
    %0 = stablehlo.add %a, %b : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
})";

HostArray floats(Dims dims, std::vector<float> values) {
  return HostArray::from<float>(DType::kF32, std::move(dims), values);
}

class ClientTest : public testing::TestWithParam<std::string> {
 protected:
  static Client make(const Options& options = {}) {
    auto plugin = Plugin::load("tested", GetParam());
    if (!plugin.ok()) die_of_bad_result(plugin.status());
    auto client = Client::create(*plugin, options);
    if (!client.ok()) die_of_bad_result(client.status());
    return *client;
  }
};

TEST_P(ClientTest, DescribesItsDevices) {
  const Client client = make();
  EXPECT_FALSE(client.platform().empty());
  ASSERT_FALSE(client.addressable_devices().empty());
  const Device device = client.addressable_devices()[0];
  EXPECT_TRUE(device.is_addressable());
  EXPECT_FALSE(device.kind().empty());
  ASSERT_TRUE(device.default_memory().ok());
  EXPECT_EQ(device.default_memory()->kind(), "device");
  EXPECT_TRUE(client.device(device.id()).ok());
}

TEST_P(ClientTest, EveryDtypeGoesInAndOut) {
  const Client client = make();
  const Device device = client.addressable_devices()[0];
  for (int i = 1; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    HostArray array(dtype, {3, 5});
    for (int64_t k = 0; k < array.size_bytes(); ++k) {
      array.mutable_data()[k] = static_cast<std::byte>(dtype_bits(dtype) < 8 ? k & 1 : 3 * k);
    }
    if (dtype == DType::kI2 || dtype == DType::kI4) array.mutable_as<int8_t>()[3] = -1;
    auto buffer = client.to_device(array, device);
    if (dtype == DType::kTF32) {
      EXPECT_EQ(buffer.status().code(), StatusCode::kInvalidArgument);
      continue;
    }
    if (!buffer.ok()) {
      // Old plugins lack young types; they must say so.
      EXPECT_EQ(buffer.status().code(), StatusCode::kUnimplemented) << dtype_name(dtype);
      EXPECT_LT(client.plugin().api_minor(), 114) << dtype_name(dtype);
      continue;
    }
    EXPECT_EQ(buffer->shape(), array.shape());
    auto back = buffer->to_host();
    ASSERT_TRUE(back.ok()) << dtype_name(dtype) << ": " << back.status().to_string();
    EXPECT_TRUE(back->identical(array)) << dtype_name(dtype);
  }
}

TEST_P(ClientTest, ZeroSizesAndScalarsGoInAndOut) {
  const Client client = make();
  for (const Dims& dims : {Dims{}, Dims{0}, Dims{3, 0, 2}}) {
    HostArray array(DType::kF32, dims);
    auto buffer = client.to_device(array, client.addressable_devices()[0]);
    ASSERT_TRUE(buffer.ok()) << buffer.status().to_string();
    auto back = buffer->to_host();
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_TRUE(back->identical(array));
  }
}

TEST_P(ClientTest, TheSourceMayChangeAfterTheCall) {
  const Client client = make();
  HostArray array = floats({4}, {1, 2, 3, 4});
  auto buffer = client.to_device(array, client.addressable_devices()[0]);
  ASSERT_TRUE(buffer.ok());
  array.mutable_as<float>()[0] = 99;
  auto back = buffer->to_host();
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->as<float>()[0], 1);
}

TEST_P(ClientTest, RunsAProgram) {
  const Client client = make();
  const Device device = client.addressable_devices()[0];
  auto executable = client.compile(kAdd);
  ASSERT_TRUE(executable.ok()) << executable.status().to_string();
  EXPECT_EQ(executable->output_count(), 1u);
  ASSERT_EQ(executable->devices().size(), 1u);
  auto shapes = executable->output_shapes();
  ASSERT_TRUE(shapes.ok()) << shapes.status().to_string();
  EXPECT_EQ(shape_string((*shapes)[0].dtype, (*shapes)[0].dims), "f32[2,3]");

  std::vector<Buffer> arguments;
  arguments.push_back(*client.to_device(floats({2, 3}, {1, 2, 3, 4, 5, 6}), device));
  arguments.push_back(*client.to_device(floats({2, 3}, {10, 20, 30, 40, 50, 60}), device));
  auto launch = executable->launch(arguments);
  ASSERT_TRUE(launch.ok()) << launch.status().to_string();
  const Deadline soon = Deadline::in(std::chrono::seconds(60));
  EXPECT_TRUE(launch->await(soon).ok());
  auto result = launch->outputs[0][0].to_host(soon);
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_TRUE(result->identical(floats({2, 3}, {11, 22, 33, 44, 55, 66})));
  EXPECT_EQ(*launch->outputs[0][0].device(), device);
  EXPECT_TRUE(*launch->done[0].is_ready());
  EXPECT_FALSE(*arguments[0].is_freed());
}

TEST_P(ClientTest, DonatedInputsAreGone) {
  const Client client = make();
  const Device device = client.addressable_devices()[0];
  auto executable = client.compile(kDonate);
  ASSERT_TRUE(executable.ok()) << executable.status().to_string();
  std::vector<Buffer> arguments;
  arguments.push_back(*client.to_device(floats({4}, {1, 2, 3, 4}), device));
  arguments.push_back(*client.to_device(floats({4}, {1, 1, 1, 1}), device));
  auto launch = executable->launch(arguments);
  ASSERT_TRUE(launch.ok()) << launch.status().to_string();
  EXPECT_TRUE(*arguments[0].is_freed());
  EXPECT_FALSE(*arguments[1].is_freed());
  EXPECT_TRUE(launch->outputs[0][0].to_host()->identical(floats({4}, {2, 3, 4, 5})));
  EXPECT_FALSE(arguments[0].to_host().ok());
  EXPECT_FALSE(executable->launch(arguments).ok()) << "a donated input cannot be used again";

  arguments[0] = *client.to_device(floats({4}, {1, 2, 3, 4}), device);
  LaunchOptions keep;
  keep.non_donatable_inputs = {0};
  launch = executable->launch(arguments, keep);
  ASSERT_TRUE(launch.ok()) << launch.status().to_string();
  EXPECT_TRUE(launch->await().ok());
  EXPECT_FALSE(*arguments[0].is_freed());
  EXPECT_TRUE(arguments[0].to_host()->identical(floats({4}, {1, 2, 3, 4})));
}

TEST_P(ClientTest, RunsReplicasOnSeveralDevices) {
  Client client = make();
  if (client.addressable_devices().size() < 2) {
    auto plugin = Plugin::load("tested", GetParam());
    auto wider = Client::create(*plugin, {{"num_devices", int64_t{2}}});
    if (!wider.ok() || wider->addressable_devices().size() < 2) {
      GTEST_SKIP() << "the plugin has one device";
    }
    client = *wider;
  }
  CompileOptions options;
  options.num_replicas = 2;
  auto executable = client.compile(kAdd, options);
  ASSERT_TRUE(executable.ok()) << executable.status().to_string();
  ASSERT_EQ(executable->devices().size(), 2u);
  std::vector<Buffer> buffers;
  std::vector<std::vector<const Buffer*>> arguments(2);
  buffers.reserve(4);
  for (size_t d = 0; d < 2; ++d) {
    for (int a = 0; a < 2; ++a) {
      const auto value = static_cast<float>(d + 1);
      buffers.push_back(*client.to_device(floats({2, 3}, std::vector<float>(6, value)),
                                          executable->devices()[d]));
      arguments[d].push_back(&buffers.back());
    }
  }
  auto launch = executable->launch(arguments);
  ASSERT_TRUE(launch.ok()) << launch.status().to_string();
  EXPECT_TRUE(launch->await().ok());
  for (size_t d = 0; d < 2; ++d) {
    EXPECT_EQ(*launch->outputs[d][0].device(), executable->devices()[d]);
    EXPECT_EQ(launch->outputs[d][0].to_host()->as<float>()[5], 2.0f * static_cast<float>(d + 1));
  }
  EXPECT_EQ(executable->launch(std::span(arguments.data(), 1)).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_P(ClientTest, AnAliasStaysWhenTheBufferIsFreed) {
  const Client client = make();
  const Buffer first = *client.to_device(floats({3}, {1, 2, 3}), client.addressable_devices()[0]);
  auto alias = first.alias();
  if (alias.status().code() == StatusCode::kUnimplemented) GTEST_SKIP() << "an older plugin";
  ASSERT_TRUE(alias.ok()) << alias.status().to_string();
  EXPECT_TRUE(first.free().ok());
  EXPECT_FALSE(first.to_host().ok());
  EXPECT_TRUE(alias->to_host()->identical(floats({3}, {1, 2, 3})));
}

TEST_P(ClientTest, ADonatedBufferLivesOnInAnother) {
  const Client client = make();
  const Buffer first = *client.to_device(floats({3}, {1, 2, 3}), client.addressable_devices()[0]);
  if (first.is_kept_by_references()) {
    ASSERT_TRUE(first.add_reference().ok());
    EXPECT_EQ(first.donate().status().code(), StatusCode::kFailedPrecondition);
    ASSERT_TRUE(first.drop_reference().ok());
  }
  auto second = first.donate();
  if (second.status().code() == StatusCode::kUnimplemented) GTEST_SKIP() << "an older plugin";
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_TRUE(*first.is_freed());
  EXPECT_TRUE(
      second->to_host(Deadline::in(std::chrono::seconds(60)))->identical(floats({3}, {1, 2, 3})));
}

TEST_P(ClientTest, NewMemoryHasAShapeAndMayHaveAnAddress) {
  const Client client = make();
  const Memory memory = *client.addressable_devices()[0].default_memory();
  for (const Dims& dims : {Dims{}, Dims{2, 3}, Dims{0, 3}}) {
    auto buffer = client.allocate(DType::kBF16, dims, memory);
    if (buffer.status().code() == StatusCode::kUnimplemented) GTEST_SKIP() << "an older plugin";
    ASSERT_TRUE(buffer.ok()) << buffer.status().to_string();
    EXPECT_EQ(buffer->shape(), shape_string(DType::kBF16, dims));
    EXPECT_FALSE(buffer->has_bounded_dims());
    if (!buffer->is_on_host()) {
      EXPECT_EQ(buffer->host_address().status().code(), StatusCode::kUnimplemented);
    }
  }
  EXPECT_FALSE(client.allocate(DType::kF32, {-1}, memory).ok());
}

TEST_P(ClientTest, CopiesAreIndependent) {
  const Client client = make();
  const Device device = client.addressable_devices().back();
  auto buffer = client.to_device(floats({2}, {1, 2}), client.addressable_devices()[0]);
  ASSERT_TRUE(buffer.ok());
  auto copy = buffer->copy_to(device);
  ASSERT_TRUE(copy.ok()) << copy.status().to_string();
  ASSERT_TRUE(copy->to_host().ok());
  ASSERT_TRUE(buffer->free().ok());
  EXPECT_TRUE(*buffer->is_freed());
  EXPECT_TRUE(copy->to_host()->identical(floats({2}, {1, 2})));
}

TEST_P(ClientTest, UploadsComeInParts) {
  const Client client = make();
  const auto memory = client.addressable_devices()[0].default_memory();
  if (!memory.ok()) GTEST_SKIP() << memory.status().to_string();
  auto upload = client.begin_upload(DType::kF32, {2, 3}, *memory);
  if (upload.status().code() == StatusCode::kUnimplemented) {
    GTEST_SKIP() << upload.status().to_string();
  }
  ASSERT_TRUE(upload.ok()) << upload.status().to_string();
  EXPECT_EQ(upload->buffer().shape(), "f32[2,3]");
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const auto bytes = std::as_bytes(std::span(values));
  std::vector<Event> done;
  for (const auto& [first, count, is_last] :
       {std::tuple<int, int, bool>{2, 4, false}, {6, 0, false}, {0, 2, true}}) {
    auto event = upload->write(
        4 * first, bytes.subspan(4 * static_cast<size_t>(first), 4 * static_cast<size_t>(count)),
        is_last);
    ASSERT_TRUE(event.ok()) << event.status().to_string();
    done.push_back(*std::move(event));
  }
  for (const Event& event : done) EXPECT_TRUE(event.await().ok());
  const Buffer buffer = upload->take();
  EXPECT_TRUE(buffer.to_host()->identical(floats({2, 3}, values)));
  EXPECT_FALSE(client.begin_upload(DType::kF32, {-1}, *memory).ok());
  // One that goes before its last part.
  std::optional<Buffer> left;
  {
    auto other = client.begin_upload(DType::kF32, {2}, *memory);
    ASSERT_TRUE(other.ok()) << other.status().to_string();
    left = other->take();
  }
  EXPECT_FALSE(left->ready()->await(Deadline::in(std::chrono::seconds(30))).ok());
}

TEST_P(ClientTest, CallbacksOutliveTheEvent) {
  const Client client = make();
  auto buffer = client.to_device(floats({2}, {1, 2}), client.addressable_devices()[0]);
  auto called = std::make_shared<std::atomic<int>>(0);
  ASSERT_TRUE(buffer->ready()
                  ->on_ready([called](const Status& status) { *called += status.ok() ? 1 : 100; })
                  .ok());
  for (int i = 0; i < 5000 && *called == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(*called, 1);
}

TEST_P(ClientTest, ObjectsMayOutliveTheClient) {
  std::optional<Buffer> buffer;
  {
    const Client client = make();
    buffer = *client.to_device(floats({2}, {1, 2}), client.addressable_devices()[0]);
  }
  EXPECT_TRUE(buffer->to_host()->identical(floats({2}, {1, 2})));
}

TEST_P(ClientTest, BadInputIsAnError) {
  const Client client = make();
  const Device device = client.addressable_devices()[0];
  EXPECT_FALSE(client.compile("this is no program").ok());
  EXPECT_FALSE(client.compile("").ok());
  EXPECT_FALSE(client.compile(kAdd, {}, "unheard-of").ok());
  CompileOptions many;
  many.num_replicas = 1000;
  EXPECT_EQ(client.compile(kAdd, many).status().code(), StatusCode::kInvalidArgument);
  auto executable = client.compile(kAdd);
  ASSERT_TRUE(executable.ok());
  std::vector<Buffer> none(2);
  EXPECT_EQ(executable->launch(none).status().code(), StatusCode::kInvalidArgument);
  std::vector<Buffer> one;
  one.push_back(*client.to_device(floats({2, 3}, {1, 2, 3, 4, 5, 6}), device));
  auto launch = executable->launch(one);
  EXPECT_FALSE(launch.ok() && launch->await().ok()) << "one argument of two";
  EXPECT_FALSE(none[0].to_host().ok());
}

INSTANTIATE_TEST_SUITE_P(Plugins, ClientTest, testing::ValuesIn(libraries()), [](const auto& info) {
  std::string name =
      std::to_string(info.index) + "_" + std::filesystem::path(info.param).stem().string();
  for (char& c : name) {
    if (isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
});

}  // namespace
}  // namespace hekla::runtime
