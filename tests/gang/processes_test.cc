// SPDX-License-Identifier: Apache-2.0
// A gang over three processes of two devices each, of which process 1 dies, ends, is stopped,
// fails, or launches another program in the midst of a launch: all others hear of it, by its name,
// and hold nothing of it afterwards. A hundred of each: --gtest_repeat=100, which says the times.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/base/io/temporary_folder.h"
#include "runtime/base/testing/child.h"
#include "runtime/base/testing/sanitizers.h"
#include "runtime/client/client.h"
#include "runtime/rendezvous/store_key_values.h"
#include "tests/gang/holdings.h"

namespace hekla::runtime {
namespace {

using std::chrono::steady_clock;

constexpr int kProcesses = 3, kDevicesEach = 2;
constexpr int64_t kSilenceSeconds = 1;  // that is allowed where one is stopped
constexpr double kSoonMs = 10'000;      // in which the others must know

enum class Fault : uint8_t { kKilled, kEnded, kStopped, kFails, kOtherProgram };
constexpr std::array kFaults = {Fault::kKilled, Fault::kEnded, Fault::kStopped, Fault::kFails,
                                Fault::kOtherProgram};
std::string name_of(Fault fault) {
  constexpr std::array kNames = {"Killed", "Ended", "Stopped", "Fails", "OtherProgram"};
  return kNames[static_cast<size_t>(fault)];
}

// (a f32[4], n i32[], who ui32[]) -> a after n turns, each of which is the mean over all
// partitions; partition `who` fails at a check after 20 turns.
std::string turns(std::string_view name) {
  return fmt::format(R"(module @{} {{
  func.func @main(%a: tensor<4xf32>, %n: tensor<i32>, %who: tensor<ui32>) -> tensor<4xf32> {{
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %few = stablehlo.constant dense<20> : tensor<i32>
    %yes = stablehlo.constant dense<true> : tensor<i1>
    %six = stablehlo.constant dense<6.0> : tensor<4xf32>
    %p = stablehlo.partition_id : tensor<ui32>
    %is = stablehlo.compare EQ, %p, %who, UNSIGNED : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    %count = stablehlo.select %is, %few, %n : tensor<i1>, tensor<i32>
    %r:2 = "stablehlo.while"(%zero, %a) ({{
    ^bb0(%i: tensor<i32>, %x: tensor<4xf32>):
      %more = stablehlo.compare LT, %i, %count, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    }}, {{
    ^bb0(%i: tensor<i32>, %x: tensor<4xf32>):
      %next = stablehlo.add %i, %one : tensor<i32>
      %sum = "stablehlo.all_reduce"(%x) ({{
      ^bb0(%u: tensor<f32>, %v: tensor<f32>):
        %s = stablehlo.add %u, %v : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }}) {{
        replica_groups = dense<[[0,1,2,3,4,5]]> : tensor<1x6xi64>,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids
      }} : (tensor<4xf32>) -> tensor<4xf32>
      %y = stablehlo.divide %sum, %six : tensor<4xf32>
      stablehlo.return %next, %y : tensor<i32>, tensor<4xf32>
    }}) : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>)
    %not = stablehlo.compare NE, %p, %who, UNSIGNED : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    check.expect_eq %not, %yes : tensor<i1>, tensor<i1>
    return %r#1 : tensor<4xf32>
  }}
}})",
                     name);
}

// Work for all threads that a plugin keeps.
constexpr std::string_view kMuch = R"(module @much {
  func.func @main(%a: tensor<4194304xf32>) -> tensor<4194304xf32> {
    %b = stablehlo.tanh %a : tensor<4194304xf32>
    return %b : tensor<4194304xf32>
  }
})";

// What the processes of a round say to the test that started them.
struct Board {
  std::atomic<int64_t> begin_ns{0};  // of the fault
  double ms[kProcesses] = {};        // until the error
  char said[kProcesses][1000] = {};
};

class GangProcessesTest
    : public testing::TestWithParam<std::tuple<std::string, std::string, Fault>> {
 protected:
  std::string plugin_ = std::get<0>(GetParam()), transport_ = std::get<1>(GetParam());
  Fault fault_ = std::get<2>(GetParam());

  // A process's client, and the program on its devices.
  struct Process {
    std::optional<Client> client;
    std::optional<Executable> executable;
    std::vector<std::vector<Buffer>> inputs;
    Launch launched;

    Status launch(int32_t steps, uint32_t who) {
      inputs.clear();
      std::vector<std::vector<const Buffer*>> arguments;
      for (const Device& device : client->addressable_devices()) {
        std::vector<Buffer>& each = inputs.emplace_back();
        for (const HostArray& array :
             {HostArray::from<float>(DType::kF32, {4}, std::vector<float>(4, 1)),
              HostArray::from<int32_t>(DType::kI32, {}, std::vector<int32_t>{steps}),
              HostArray::from<uint32_t>(DType::kUI32, {}, std::vector<uint32_t>{who})}) {
          HEKLA_ASSIGN_OR_RETURN(Buffer buffer, client->to_device(array, device));
          each.push_back(std::move(buffer));
        }
      }
      for (const std::vector<Buffer>& each : inputs) {
        arguments.push_back({&each[0], &each[1], &each[2]});
      }
      HEKLA_ASSIGN_OR_RETURN(launched, executable->launch(arguments));
      return ok_status();
    }
  };

  Status open(Process& process, int rank, const std::string& store) {
    HEKLA_ASSIGN_OR_RETURN(
        const auto loaded,
        Plugin::load("tested", HEKLA_BINARY_DIR "/lib/hekla/" + plugin_ + ".so"));
    HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<rendezvous::Store> meeting,
                           rendezvous::open_store("file:" + store));
    const int64_t silence = fault_ == Fault::kStopped ? kSilenceSeconds : 60;
    HEKLA_ASSIGN_OR_RETURN(
        Client client,
        Client::create(loaded,
                       {{"num_devices", int64_t{kDevicesEach}},
                        {"node_id", int64_t{rank}},
                        {"num_nodes", int64_t{kProcesses}},
                        {"process_transport", transport_},
                        {"process_silence_seconds", silence}},
                       std::make_shared<rendezvous::StoreKeyValues>(meeting, "gang/")));
    process.client.emplace(std::move(client));
    return compile(process, "turns");
  }

  static Status compile(Process& process, std::string_view name) {
    CompileOptions options;
    options.num_partitions = int64_t{kProcesses} * kDevicesEach;
    options.use_spmd_partitioning = false;
    HEKLA_ASSIGN_OR_RETURN(Executable executable, process.client->compile(turns(name), options));
    process.executable.emplace(std::move(executable));
    return ok_status();
  }

  // A launch that goes well, with a client of its own.
  Status run_well(int rank, const std::string& store) {
    Process process;
    HEKLA_RETURN_IF_ERROR(open(process, rank, store));
    HEKLA_RETURN_IF_ERROR(process.launch(3, 99));
    HEKLA_RETURN_IF_ERROR(process.launched.await(Deadline::in(kPatience)));
    // What comes to stay comes now.
    const Device own = process.client->addressable_devices()[0];
    CompileOptions options;
    options.device_ids = {own.id()};
    HEKLA_ASSIGN_OR_RETURN(const Executable much, process.client->compile(kMuch, options));
    HEKLA_ASSIGN_OR_RETURN(
        const Buffer input,
        process.client->to_device(HostArray(DType::kF32, {int64_t{1} << 22}), own));
    const std::vector<const Buffer*> arguments[] = {{&input}};
    for (int i = 0; i < 5; ++i) {
      HEKLA_ASSIGN_OR_RETURN(const Launch launched, much.launch(arguments));
      HEKLA_RETURN_IF_ERROR(launched.await(Deadline::in(kPatience)));
    }
    return ok_status();
  }

  // What process `rank` does; not ok: the test failed. The one that strikes may not come back.
  Status take_part(Board& board, int rank, const std::string& folder) {
    HEKLA_RETURN_IF_ERROR(run_well(rank, folder + "/first"));
    const Holdings before = holdings();
    const std::string files_before = files_held();
    {
      const bool strikes = rank == 1;
      Process process;
      HEKLA_RETURN_IF_ERROR(open(process, rank, folder + "/second"));
      // So that all have met.
      HEKLA_RETURN_IF_ERROR(process.launch(3, 99));
      HEKLA_RETURN_IF_ERROR(process.launched.await(Deadline::in(kPatience)));
      if (strikes && fault_ == Fault::kOtherProgram) {
        HEKLA_RETURN_IF_ERROR(compile(process, "other"));
        board.begin_ns = steady_clock::now().time_since_epoch().count();
      }
      const uint32_t who = fault_ == Fault::kFails ? kDevicesEach : 99;
      HEKLA_RETURN_IF_ERROR(process.launch(1'000'000'000, who));
      if (strikes && fault_ <= Fault::kStopped) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        board.begin_ns = steady_clock::now().time_since_epoch().count();
        if (fault_ == Fault::kEnded) ::_exit(0);
        ::kill(::getpid(), fault_ == Fault::kKilled ? SIGKILL : SIGSTOP);
      }
      const Status status = process.launched.await(Deadline::in(kPatience));
      if (const int64_t begin = board.begin_ns; begin > 0) {
        board.ms[rank] =
            static_cast<double>(steady_clock::now().time_since_epoch().count() - begin) / 1e6;
      }
      // A device has a number of its own in all processes.
      std::string_view wanted = fault_ == Fault::kFails ? ":2: " : "process 1";
      if (strikes && fault_ != Fault::kFails) wanted = "";
      if (status.ok() || status.message().find(wanted) == std::string::npos) {
        return internal_error("the launch said: {}", status.to_string());
      }
      if (board.ms[rank] > kSoonMs) return internal_error("after {} ms", board.ms[rank]);
    }
    // It starts a program that looks up names, with two pipes, when it has to.
    if (kHasThreadSanitizer) return ok_status();
    const Holdings now = settled_within(before);
    if (now.is_within(before)) return ok_status();
    return internal_error("{} threads and files {} where {} and {} were", now.threads, files_held(),
                          before.threads, files_before);
  }
};

TEST_P(GangProcessesTest, WhoGoesWrongIsNamedAndNothingStays) {
  if (kHasThreadSanitizer && plugin_ == "pjrt_vulkan") {
    GTEST_SKIP() << "the driver's threads and its compiler are not instrumented";
  }
  const TemporaryFolder folder;
  void* const page =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  Board& board = *new (page) Board;
  std::array<pid_t, kProcesses> children = {};
  for (int rank = 0; rank < kProcesses; ++rank) {
    children[static_cast<size_t>(rank)] = start_child([&] {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // one that is stopped would stay for ever
      const Status status = take_part(board, rank, folder.path());
      if (status.ok()) return 0;
      std::strncpy(board.said[rank], status.to_string().c_str(), sizeof board.said[rank] - 1);
      return 1;
    });
  }
  for (const int rank : {0, 2, 1}) {
    const bool is_stopped = rank == 1 && fault_ == Fault::kStopped;
    const pid_t child = children[static_cast<size_t>(rank)];
    if (is_stopped) ::kill(child, SIGKILL);
    const bool is_killed = is_stopped || (rank == 1 && fault_ == Fault::kKilled);
    EXPECT_EQ(wait_for_child(child), is_killed ? -SIGKILL : 0)
        << "process " << rank << ": " << board.said[rank];
  }
  const double ms = std::max(board.ms[0], board.ms[2]);
  ::munmap(page, sizeof(Board));
  if (GTEST_FLAG_GET(repeat) != 1 && ms > 0) {
    fmt::print("{} {} {}: after {:.1f} ms\n", plugin_, transport_, name_of(fault_), ms);
  }
}

INSTANTIATE_TEST_SUITE_P(Plugins, GangProcessesTest,
                         testing::Combine(testing::Values(HEKLA_PLUGINS),
                                          testing::Values(HEKLA_PROCESS_TRANSPORTS),
                                          testing::ValuesIn(kFaults)),
                         [](const auto& info) {
                           return std::get<1>(info.param) + name_of(std::get<2>(info.param)) + "_" +
                                  std::get<0>(info.param);
                         });

}  // namespace
}  // namespace hekla::runtime
