// SPDX-License-Identifier: Apache-2.0
// plugin_collectives_test LIBRARY: collectives on several devices of a plugin.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <optional>
#include <thread>

#include "runtime/client/client.h"
#include "runtime/rendezvous/testing/put_once.h"

namespace hekla::runtime {
namespace {

std::string library;

struct Shape {
  int64_t replicas, partitions;
  int64_t processes = 1;  // clients of this process play them, each with as many devices
};

// How a test's program is compiled: as ever, with nothing beside collectives, and as drawn.
using Overrides = std::vector<std::pair<std::string, runtime::CompileOptions::Override>>;
std::vector<Overrides> forms() {
  std::vector<Overrides> all = {{}};
  if (library.find("pjrt_reference") != std::string::npos) return all;
  all.push_back({{"hekla_overlap_collectives", false}});
  for (const char* seed : {"1", "2", "3"}) all.push_back({{"hekla_schedule_seed", seed}});
  return all;
}

class Collectives : public testing::TestWithParam<Shape> {
 protected:
  int64_t replicas() const { return GetParam().replicas; }
  int64_t partitions() const { return GetParam().partitions; }
  int64_t count() const { return replicas() * partitions(); }

  void SetUp() override {
    auto plugin = Plugin::load("tested", library);
    ASSERT_TRUE(plugin.ok()) << plugin.status().to_string();
    make_clients(*plugin, {});
  }

  void make_clients(const std::shared_ptr<const Plugin>& plugin, const Options& more) {
    const int64_t processes = GetParam().processes;
    clients_.clear();
    clients_.resize(static_cast<size_t>(processes));
    const auto store = std::make_shared<rendezvous::testing::PutOnce>();
    std::vector<std::thread> threads;
    for (int64_t p = 0; p < processes; ++p) {
      threads.emplace_back([&, p] {
        Options options = more;
        options.emplace_back("num_devices", count() / processes);
        if (processes > 1) {
          options.emplace_back("node_id", p);
          options.emplace_back("num_nodes", processes);
        }
        auto client = Client::create(plugin, options, processes > 1 ? store : nullptr);
        ASSERT_TRUE(client.ok()) << client.status().to_string();
        clients_[static_cast<size_t>(p)] = std::make_unique<Client>(*client);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  Result<Executable> compile(const Client& client, const std::string& text,
                             const Overrides& overrides) const {
    CompileOptions options;
    options.overrides = overrides;
    options.num_replicas = replicas();
    options.num_partitions = partitions();
    options.use_spmd_partitioning = false;  // the programs are those of one device
    return client.compile(text, options);
  }

  using Values = std::vector<std::vector<float>>;

  // Device d gets 100 d + i at element i of four; the results by device, the same however the
  // program is compiled.
  Result<Values> run(const std::string& text, int launches = 1) const {
    std::optional<Result<Values>> first;
    for (const Overrides& form : forms()) {
      Result<Values> values = run(text, launches, form);
      if (!first) {
        first = std::move(values);
        continue;
      }
      EXPECT_EQ(first->status().code(), values.status().code()) << values.status().to_string();
      if (first->ok() && values.ok()) {
        EXPECT_EQ(**first, *values);
      }
    }
    return *first;
  }

  Result<Values> run(const std::string& text, int launches, const Overrides& form) const {
    std::vector<Executable> executables;
    for (const auto& client : clients_) {
      HEKLA_ASSIGN_OR_RETURN(Executable executable, compile(*client, text, form));
      executables.push_back(std::move(executable));
    }
    Values results;
    for (int i = 0; i < launches; ++i) {
      results.assign(static_cast<size_t>(count()), {});
      std::vector<Launch> all;
      for (size_t p = 0; p < clients_.size(); ++p) {
        HEKLA_ASSIGN_OR_RETURN(Launch launch, launch_on(*clients_[p], executables[p]));
        all.push_back(std::move(launch));
      }
      // Every device ends, with a result or with the error.
      Status status;
      for (size_t p = 0; p < all.size(); ++p) {
        for (size_t d = 0; d < all[p].done.size(); ++d) {
          const Status end = all[p].done[d].await();
          const Result<HostArray> array = all[p].outputs[d][0].to_host();
          EXPECT_EQ(end.ok(), array.ok()) << d;
          if (!end.ok()) {
            status = end;
            continue;
          }
          results[static_cast<size_t>(executables[p].devices()[d].id())].assign(
              array->as<float>(), array->as<float>() + array->size());
        }
      }
      HEKLA_RETURN_IF_ERROR(status);
    }
    return results;
  }

  static Result<Launch> launch_on(const Client& client, const Executable& executable) {
    std::vector<Buffer> buffers;
    std::vector<std::vector<const Buffer*>> arguments(executable.devices().size());
    buffers.reserve(arguments.size());
    for (size_t d = 0; d < arguments.size(); ++d) {
      std::vector<float> values(4);
      std::iota(values.begin(), values.end(),
                static_cast<float>(100 * executable.devices()[d].id()));
      HEKLA_ASSIGN_OR_RETURN(Buffer buffer,
                             client.to_device(HostArray::from<float>(DType::kF32, {4}, values),
                                              executable.devices()[d]));
      buffers.push_back(std::move(buffer));
      arguments[d].push_back(&buffers.back());
    }
    return executable.launch(arguments);
  }

  // All devices in one group, by number.
  std::string everybody() const {
    std::string ids;
    for (int64_t d = 0; d < count(); ++d) ids += fmt::format("{}{}", d == 0 ? "" : ", ", d);
    return fmt::format(
        "replica_groups = dense<[[{}]]> : tensor<1x{}xi64>, channel_handle = "
        "#stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids",
        ids, count());
  }

  std::string all_reduce(const char* result, const char* operand) const {
    return fmt::format(R"({} = "stablehlo.all_reduce"({}) <{{{}}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }}) : (tensor<4xf32>) -> tensor<4xf32>)",
                       result, operand, everybody());
  }

  std::vector<std::unique_ptr<Client>> clients_;
};

TEST_P(Collectives, Sum) {
  const auto results = run(fmt::format("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{\n "
                                       "{}\n return %0 : tensor<4xf32> }}",
                                       all_reduce("%0", "%x")),
                           20);
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  const auto n = static_cast<float>(count());
  for (const auto& values : *results) {
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(values[i], 100 * n * (n - 1) / 2 + n * static_cast<float>(i));
    }
  }
}

TEST_P(Collectives, DevicesCountThem) {
  constexpr int kLaunches = 3;
  const auto results = run(fmt::format("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{\n "
                                       "{}\n {}\n return %1 : tensor<4xf32> }}",
                                       all_reduce("%0", "%x"), all_reduce("%1", "%0")),
                           kLaunches);
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  const int64_t runs = int64_t{2} * kLaunches * static_cast<int64_t>(forms().size());
  for (const auto& client : clients_) {
    for (const Device& device : client->addressable_devices()) {
      std::map<std::string, int64_t> counters;
      for (const auto& [name, value] : device.counters()) counters[name] = value;
      EXPECT_EQ(counters["all_reduce runs"], runs);
      EXPECT_EQ(counters["all_reduce bytes"], 16 * runs);
      EXPECT_GT(counters["all_reduce waited ns"], 0);
      EXPECT_FALSE(counters.contains("all_gather runs"));
    }
  }
}

TEST_P(Collectives, SumInALoop) {
  // Three times x <- (sum of x over the devices) / n: the mean, whatever the number of iterations.
  const auto results = run(fmt::format(R"(
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %three = stablehlo.constant dense<3> : tensor<i32>
      %n = stablehlo.constant dense<{}.0> : tensor<4xf32>
      %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<4xf32>
      cond {{
        %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        %j = stablehlo.add %i, %one : tensor<i32>
        {}
        %1 = stablehlo.divide %0, %n : tensor<4xf32>
        stablehlo.return %j, %1 : tensor<i32>, tensor<4xf32>
      }}
      return %r#1 : tensor<4xf32>
    }})",
                                       count(), all_reduce("%0", "%v")));
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  for (const auto& values : *results) {
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(values[i], 50 * static_cast<float>(count() - 1) + static_cast<float>(i));
    }
  }
}

TEST_P(Collectives, ACarriedValueIsWhatASumMakesOfIt) {
  // Two values that change sides: one has the sum in the place of its operand, or it is copied.
  for (const char* next : {"%0, %w", "%w, %0"}) {
    const auto results = run(fmt::format(R"(
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %three = stablehlo.constant dense<3> : tensor<i32>
      %r:3 = stablehlo.while(%i = %zero, %v = %x, %w = %x) : tensor<i32>, tensor<4xf32>, tensor<4xf32>
      cond {{
        %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        %j = stablehlo.add %i, %one : tensor<i32>
        {}
        stablehlo.return %j, {} : tensor<i32>, tensor<4xf32>, tensor<4xf32>
      }}
      %s = stablehlo.add %r#1, %r#2 : tensor<4xf32>
      return %s : tensor<4xf32>
    }})",
                                         all_reduce("%0", "%v"), next));
    ASSERT_TRUE(results.ok()) << results.status().to_string();
    for (size_t d = 0; d < results->size(); ++d) {
      for (size_t i = 0; i < 4; ++i) {
        const auto n = static_cast<float>(count());
        const float own = 100 * static_cast<float>(d) + static_cast<float>(i);
        const float sum = n * (50 * (n - 1) + static_cast<float>(i));
        const float expected = next[1] == '0' ? n * n * sum + own : n * sum + sum;
        EXPECT_EQ((*results)[d][i], expected) << next << " on " << d;
      }
    }
  }
}

TEST_P(Collectives, GatherAcrossReplicas) {
  std::string ids;
  for (int64_t r = replicas() - 1; r >= 0; --r) ids += fmt::format("{}{}", r, r > 0 ? ", " : "");
  const auto results = run(fmt::format(
      R"(func.func @main(%x: tensor<4xf32>) -> tensor<{0}xf32> {{
        %0 = "stablehlo.all_gather"(%x) <{{all_gather_dim = 0 : i64, replica_groups = dense<[[{1}]]> : tensor<1x{2}xi64>}}> : (tensor<4xf32>) -> tensor<{0}xf32>
        return %0 : tensor<{0}xf32> }})",
      4 * replicas(), ids, replicas()));
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  for (int64_t d = 0; d < count(); ++d) {
    for (int64_t i = 0; i < 4 * replicas(); ++i) {
      const int64_t replica = replicas() - 1 - i / 4;
      EXPECT_EQ((*results)[d][i],
                static_cast<float>(100 * (replica * partitions() + d % partitions()) + i % 4));
    }
  }
}

TEST_P(Collectives, IdsAreValuesOfTheLaunch) {
  // In a kernel, as a loop's first value, in a branch and as a result; without a step on the host.
  if (forms().size() > 1) {
    auto plugin = Plugin::load("tested", library);
    ASSERT_TRUE(plugin.ok());
    make_clients(*plugin, {{"fail_on_fallback", true}});
  }
  const auto results = run(R"(
    func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<ui32>) {
      %r = stablehlo.replica_id : tensor<ui32>
      %p = stablehlo.partition_id : tensor<ui32>
      %one = stablehlo.constant dense<1> : tensor<ui32>
      %ten = stablehlo.constant dense<10> : tensor<ui32>
      %w = stablehlo.while(%i = %p) : tensor<ui32>
      cond {
        %c = stablehlo.compare LT, %i, %ten : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %j = stablehlo.add %i, %ten : tensor<ui32>
        stablehlo.return %j : tensor<ui32>
      }
      %is_one = stablehlo.compare EQ, %r, %one : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
      %b = "stablehlo.if"(%is_one) ({ stablehlo.return %r : tensor<ui32> }, {
        %m = stablehlo.multiply %r, %ten : tensor<ui32>
        stablehlo.return %m : tensor<ui32>
      }) : (tensor<i1>) -> tensor<ui32>
      %wb = stablehlo.add %w, %b : tensor<ui32>
      %f = stablehlo.convert %wb : (tensor<ui32>) -> tensor<f32>
      %v = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<4xf32>
      %y = stablehlo.add %v, %x : tensor<4xf32>
      return %y, %p : tensor<4xf32>, tensor<ui32>
    })",
                           5);
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  for (int64_t d = 0; d < count(); ++d) {
    const int64_t replica = d / partitions(), partition = d % partitions();
    const int64_t branch = replica == 1 ? 1 : 10 * replica;
    EXPECT_EQ((*results)[d][2], static_cast<float>(partition + 10 + branch + 100 * d + 2)) << d;
  }
}

TEST_P(Collectives, RingOfPartitions) {
  std::string pairs;
  for (int64_t p = 0; p < partitions(); ++p) {
    pairs += fmt::format("{}[{}, {}]", p == 0 ? "" : ", ", p, (p + 1) % partitions());
  }
  const auto results = run(fmt::format(
      R"(func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
        %0 = "stablehlo.collective_permute"(%x) <{{source_target_pairs = dense<[{}]> : tensor<{}x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}}> : (tensor<4xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32> }})",
      pairs, partitions()));
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  for (int64_t d = 0; d < count(); ++d) {
    const int64_t replica = d / partitions();
    const int64_t from = (d % partitions() + partitions() - 1) % partitions();
    EXPECT_EQ((*results)[d][1], static_cast<float>(100 * (replica * partitions() + from) + 1));
  }
}

TEST_P(Collectives, AnErrorOnOneDeviceEndsAll) {
  // The last device's first element is not below the bound.
  const auto results = run(fmt::format(R"(
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
      %bound = stablehlo.constant dense<{}.0> : tensor<4xf32>
      %c = stablehlo.compare LT, %x, %bound : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
      %true = stablehlo.constant dense<true> : tensor<4xi1>
      stablehlo.custom_call @check.expect_eq(%c, %true) {{has_side_effect = true}} : (tensor<4xi1>, tensor<4xi1>) -> ()
      {}
      return %0 : tensor<4xf32>
    }})",
                                       100 * (count() - 1), all_reduce("%0", "%x")));
  EXPECT_EQ(results.status().code(), StatusCode::kFailedPrecondition)
      << results.status().to_string();
  EXPECT_NE(results.status().message().find("check.expect_eq"), std::string::npos)
      << results.status().to_string();
}

TEST_P(Collectives, ADivergentLoopEndsInAnError) {
  // Iterations while the first element, which differs, is above the counter.
  const auto results = run(fmt::format(R"(
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %step = stablehlo.constant dense<100.0> : tensor<f32>
      %h = stablehlo.slice %x [0:1] : (tensor<4xf32>) -> tensor<1xf32>
      %first = stablehlo.reshape %h : (tensor<1xf32>) -> tensor<f32>
      %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<f32>, tensor<4xf32>
      cond {{
        %c = stablehlo.compare LT, %i, %first : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        %j = stablehlo.add %i, %step : tensor<f32>
        {}
        stablehlo.return %j, %0 : tensor<f32>, tensor<4xf32>
      }}
      return %r#1 : tensor<4xf32>
    }})",
                                       all_reduce("%0", "%v")));
  EXPECT_EQ(results.status().code(), StatusCode::kFailedPrecondition)
      << results.status().to_string();
  EXPECT_NE(results.status().message().find("has finished"), std::string::npos)
      << results.status().to_string();
}

TEST_P(Collectives, StartedOnesGiveWhatPlainOnesGive) {
  // Two sums and a product under way at once, one of them through another; awaited in any order.
  const auto start = [&](const char* future, const char* sum, const char* operand) {
    return fmt::format(R"(
      {} = "stablehlo.async_start"({}) ({{
        ^bb0(%p: tensor<4xf32>):
          {}
          stablehlo.return {} : tensor<4xf32>
      }}) : (tensor<4xf32>) -> !stablehlo.future<tensor<4xf32>>)",
                       future, operand, all_reduce(sum, "%p"), sum);
  };
  const auto done = [](const char* result, const char* future) {
    return fmt::format(
        "\n{} = \"stablehlo.async_done\"({}) : (!stablehlo.future<tensor<4xf32>>) -> tensor<4xf32>",
        result, future);
  };
  const std::string text = fmt::format(
      R"(func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
        %two = stablehlo.constant dense<2.0> : tensor<4xf32>
        {}
        %y = stablehlo.multiply %x, %two : tensor<4xf32>
        {}
        %z = stablehlo.add %y, %x : tensor<4xf32>
        {}
        %w = stablehlo.add %s1, %z : tensor<4xf32>
        {}
        {}
        {}
        %v = stablehlo.add %s0, %s2 : tensor<4xf32>
        %u = stablehlo.subtract %v, %w : tensor<4xf32>
        return %u : tensor<4xf32> }})",
      start("%f0", "%a", "%x"), start("%f1", "%b", "%y"), done("%s1", "%f1"),
      start("%f2", "%c", "%w"), done("%s2", "%f2"), done("%s0", "%f0"));
  const auto results = run(text, 10);
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  const auto n = static_cast<float>(count());
  for (size_t d = 0; d < results->size(); ++d) {
    for (size_t i = 0; i < 4; ++i) {
      const float sum = 100 * n * (n - 1) / 2 + n * static_cast<float>(i);
      const float x = 100 * static_cast<float>(d) + static_cast<float>(i);
      // w = 2 sum + 3 x; its sum is 2 n sum + 3 sum.
      EXPECT_EQ((*results)[d][i], sum + (2 * n * sum + 3 * sum) - (2 * sum + 3 * x)) << d;
    }
  }
}

TEST_P(Collectives, DevicesComputeAndSendWhileASumWaitsForItsPeers) {
  // The last device comes to the sum when it has what the first one computes and sends after it has
  // started the sum: one after the other they would wait for each other.
  const std::string text = fmt::format(
      R"(func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
        %t = stablehlo.create_token : !stablehlo.token
        %r:2 = "stablehlo.recv"(%t) <{{channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>, is_host_transfer = false, source_target_pairs = dense<[[0, {1}]]> : tensor<1x2xi64>}}> : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
        {0}
        %y = stablehlo.add %x, %x : tensor<4xf32>
        %t2 = "stablehlo.send"(%y, %t) <{{channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>, is_host_transfer = false, source_target_pairs = dense<[[0, {1}]]> : tensor<1x2xi64>}}> : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
        %u = stablehlo.add %0, %r#0 : tensor<4xf32>
        return %u : tensor<4xf32> }})",
      all_reduce("%0", "%x"), count() - 1);
  if (replicas() > 1) return;  // the pairs are partitions
  const bool has_overlap = forms().size() > 1;
  const auto late = run(text, 1, has_overlap ? forms()[1] : Overrides{});
  EXPECT_EQ(late.status().code(), StatusCode::kFailedPrecondition) << late.status().to_string();
  if (!has_overlap) return;
  const auto results = run(text, 5, {});
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  const auto n = static_cast<float>(count());
  for (size_t d = 0; d < results->size(); ++d) {
    for (size_t i = 0; i < 4; ++i) {
      const float sent = d + 1 == results->size() ? 2 * static_cast<float>(i) : 0;
      EXPECT_EQ((*results)[d][i], 50 * n * (n - 1) + n * static_cast<float>(i) + sent);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    , Collectives,
    testing::Values(Shape{2, 1}, Shape{1, 2}, Shape{4, 1}, Shape{2, 2}, Shape{1, 4}, Shape{8, 1},
                    Shape{2, 4}, Shape{1, 8}, Shape{1, 4, 2}, Shape{4, 1, 4}, Shape{2, 4, 4}),
    [](const auto& info) {
      const Shape& shape = info.param;
      const std::string name = fmt::format("{}x{}", shape.replicas, shape.partitions);
      return shape.processes == 1 ? name : fmt::format("{}in{}Processes", name, shape.processes);
    });

}  // namespace
}  // namespace hekla::runtime

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) {
    fmt::print(stderr, "usage: plugin_collectives_test LIBRARY\n");
    return 2;
  }
  hekla::runtime::library = argv[1];
  return RUN_ALL_TESTS();
}
