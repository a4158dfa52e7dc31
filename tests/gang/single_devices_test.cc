// SPDX-License-Identifier: Apache-2.0
// Devices that are launched one by one, as PyTorch/XLA does it: each from a thread of its own, with
// an executable of its own and maybe another program.
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "tests/gang/gang_fixture.h"

namespace hekla::runtime {
namespace {

// A sum of `type` over `groups`.
std::string sum_of(const std::string& name, const std::string& in, const std::string& type,
                   const std::string& groups) {
  return "    %" + name + " = \"stablehlo.all_reduce\"(%" + in + R"() ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<)" +
         groups + "> : tensor<" + (groups.find("],") == std::string::npos ? "1x8" : "2x4") +
         "xi64>} : (" + type + ") -> " + type + "\n";
}

constexpr const char* kAll = "[[0,1,2,3,4,5,6,7]]";
constexpr const char* kHalves = "[[0,1,2,3],[4,5,6,7]]";
constexpr const char* kArray = "tensor<4xf32>";

// a -> the sum over all of the sums over halves.
std::string two_sums() {
  return "module @two_sums { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n" +
         sum_of("half", "a", kArray, kHalves) + sum_of("all", "half", kArray, kAll) +
         "    return %all : tensor<4xf32>\n  }\n}";
}
std::string one_sum(const std::string& groups, const std::string& type = kArray) {
  return "module @one_sum { func.func @main(%a: " + type + ") -> " + type + " {\n" +
         sum_of("r", "a", type, groups) + "    return %r : " + type + "\n  }\n}";
}
// The same collectives as two_sums, and more around them.
constexpr const char* kScaled = R"(
    %two = stablehlo.constant dense<2.0> : tensor<4xf32>
    %a2 = stablehlo.multiply %a, %two : tensor<4xf32>
)";
std::string other_sums() {
  return std::string(
             "module @other_sums { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n") +
         kScaled + sum_of("half", "a2", kArray, kHalves) + sum_of("all", "half", kArray, kAll) +
         "    %r = stablehlo.multiply %all, %two : tensor<4xf32>\n"
         "    return %r : tensor<4xf32>\n  }\n}";
}

class SingleDevices : public GangFixture {
 protected:
  Executable compile_replicas(const std::string& program) const {
    CompileOptions options;
    options.num_replicas = kDevices;
    Result<Executable> executable = client_->compile(program, options);
    EXPECT_TRUE(executable.ok()) << executable.status().to_string();
    return *std::move(executable);
  }
  static Result<Buffer> launch(const Executable& executable, int device, const Buffer& argument) {
    LaunchOptions options;
    options.device = static_cast<size_t>(device);
    HEKLA_ASSIGN_OR_RETURN(Launch launch, executable.launch(std::span(&argument, 1), options));
    return std::move(launch.outputs[0][0]);
  }
  static Result<float> first_of(const Buffer& buffer) {
    HEKLA_ASSIGN_OR_RETURN(const HostArray array, buffer.to_host());
    return array.as<float>()[0];
  }
  // What each device ends with.
  static std::array<Status, kDevices> on_all(const std::function<Status(int)>& body) {
    std::array<Status, kDevices> ends;
    std::vector<std::thread> threads;
    for (int d = 0; d < kDevices; ++d) {
      threads.emplace_back([&, d] { ends[static_cast<size_t>(d)] = body(d); });
    }
    for (std::thread& thread : threads) thread.join();
    return ends;
  }
};

TEST_P(SingleDevices, ProgramsMayDifferWhereTheirCollectivesDoNot) {
  const auto ends = on_all([&](int d) -> Status {
    const Executable mine = compile_replicas(d == 3 ? other_sums() : two_sums());
    Buffer value = upload(floats({4}, 1), d);
    for (int step = 0; step < 10; ++step) {  // each launched before the one before has ended
      HEKLA_ASSIGN_OR_RETURN(value, launch(mine, d, value));
      if (step % 3 == 2) value = upload(floats({4}, 1), d);
    }
    HEKLA_ASSIGN_OR_RETURN(const float result, first_of(value));
    // Halves of 1 1 1 2 and 1 1 1 1; all members of a half have its sum, so the sum over all is
    // four times both.
    const float expected = 4 * (5 + 4) * (d == 3 ? 2.0F : 1.0F);
    return result == expected ? ok_status() : data_loss("device {} has {}", d, result);
  });
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.to_string();
}

TEST_P(SingleDevices, LaunchesNeedNotBeCutInTheSamePlaces) {
  const auto ends = on_all([&](int d) -> Status {
    Buffer value = upload(floats({4}, 1), d);
    if (d % 2 == 0) {
      const Executable both = compile_replicas(two_sums());
      HEKLA_ASSIGN_OR_RETURN(value, launch(both, d, value));
    } else {
      const Executable first = compile_replicas(one_sum(kHalves));
      const Executable second = compile_replicas(one_sum(kAll));
      HEKLA_ASSIGN_OR_RETURN(value, launch(first, d, value));
      HEKLA_ASSIGN_OR_RETURN(value, launch(second, d, value));
    }
    HEKLA_ASSIGN_OR_RETURN(const float result, first_of(value));
    return result == 32 ? ok_status() : data_loss("device {} has {}", d, result);
  });
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.to_string();
}

TEST_P(SingleDevices, WhoIsInNoPairNeedNotCome) {
  constexpr const char* kPass = R"(module @pass {
    func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %r = "stablehlo.collective_permute"(%a) {
        source_target_pairs = dense<[[5, 2]]> : tensor<1x2xi64>
      } : (tensor<4xf32>) -> tensor<4xf32>
      return %r : tensor<4xf32>
    }
  })";
  const Executable pass = compile_replicas(kPass);
  const Result<Buffer> sent = launch(pass, 5, upload(floats({4}, 55), 5));
  ASSERT_TRUE(sent.ok()) << sent.status().to_string();
  const Result<Buffer> received = launch(pass, 2, upload(floats({4}, 22), 2));
  ASSERT_TRUE(received.ok()) << received.status().to_string();
  EXPECT_EQ(*first_of(*received), 55);
  EXPECT_EQ(*first_of(*sent), 0);
}

TEST_P(SingleDevices, AnotherCollectiveIsNamedOnAllAndEndsThem) {
  const auto ends = on_all([&](int d) -> Status {
    const Executable mine =
        compile_replicas(d == 6 ? one_sum(kAll, "tensor<2xf32>") : one_sum(kAll));
    HEKLA_ASSIGN_OR_RETURN(const Buffer value,
                           launch(mine, d, upload(floats({d == 6 ? 2 : 4}, 1), d)));
    return first_of(value).status();
  });
  for (const Status& end : ends) {
    EXPECT_EQ(end.code(), StatusCode::kFailedPrecondition) << end.to_string();
    EXPECT_NE(end.message().find(device_name(6)), std::string::npos) << end.to_string();
    for (const char* text : {"comes to", "of tensor<2xf32>", "of tensor<4xf32>"}) {
      EXPECT_NE(end.message().find(text), std::string::npos) << end.to_string();
    }
  }
  const Executable again = compile_replicas(one_sum(kAll));
  const Status refused = launch(again, 0, upload(floats({4}, 1), 0)).status();
  EXPECT_NE(refused.message().find("no longer in step"), std::string::npos) << refused.to_string();
  // What meets nobody goes on.
  const Executable alone = compile_replicas(
      "module @alone { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
      "  %r = stablehlo.add %a, %a : tensor<4xf32>\n  return %r : tensor<4xf32> } }");
  const Result<Buffer> two = launch(alone, 0, upload(floats({4}, 1), 0));
  ASSERT_TRUE(two.ok()) << two.status().to_string();
  EXPECT_EQ(*first_of(*two), 2);
}

TEST_P(SingleDevices, WhoDoesNotComeIsNamedAfterTheDeadline) {
  make_client({{"gang_deadline_seconds", int64_t{1}}});
  const auto ends = on_all([&](int d) -> Status {
    if (d == 7) return ok_status();
    const Executable mine = compile_replicas(one_sum(kAll));
    HEKLA_ASSIGN_OR_RETURN(const Buffer value, launch(mine, d, upload(floats({4}, 1), d)));
    return first_of(value).status();
  });
  for (int d = 0; d < 7; ++d) {
    const Status& end = ends[static_cast<size_t>(d)];
    EXPECT_EQ(end.code(), StatusCode::kDeadlineExceeded) << end.to_string();
    EXPECT_NE(end.message().find(device_name(7)), std::string::npos) << end.to_string();
  }
}

INSTANTIATE_TEST_SUITE_P(Plugins, SingleDevices, testing::Values(HEKLA_PLUGINS),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hekla::runtime
