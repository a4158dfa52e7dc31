// SPDX-License-Identifier: Apache-2.0
// Several launchers as processes of this machine; tests/torch/test_hosts.py has them on hosts that
// can be cut off.
#include "runtime/launch/nodes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "runtime/base/host.h"
#include "runtime/base/io/file.h"
#include "runtime/base/io/temporary_folder.h"
#include "runtime/base/testing/child.h"
#include "runtime/launch/node_link.h"
#include "runtime/rendezvous/tcp_store.h"
#include "runtime/rendezvous/tcp_store_server.h"

namespace hekla::launch {
namespace {

using std::chrono::milliseconds;

bool eventually(const std::function<bool()>& is_so) {
  for (int i = 0; i < 3000 && !is_so(); ++i) std::this_thread::sleep_for(milliseconds(10));
  return is_so();
}

// Launchers of one run, each a process, whose words go to files.
class Launchers {
 public:
  explicit Launchers(std::string script) : script_(std::move(script)) {
    const auto server = rendezvous::TcpStoreServer::start("127.0.0.1", 0, "");
    options_.rendezvous = fmt::format("127.0.0.1:{}", (*server)->port());
    options_.run_id = random_hex(8);
    options_.nproc = 2;
    options_.min_nodes = options_.max_nodes = 2;
    options_.last_call = milliseconds(200);
    options_.silence = std::chrono::seconds(4);
    options_.grace = std::chrono::seconds(2);
  }
  LaunchOptions& options() { return options_; }
  const std::string& folder() const { return folder_.path(); }

  pid_t start(const std::string& name) {
    LaunchOptions options = options_;
    options.command = {"sh", "-c", script_, "sh", folder_.path()};
    return start_child([&] {
      for (const auto& [what, to] : {std::pair{".out", 1}, std::pair{".err", 2}}) {
        const int file = ::open(folder_.file(name + what).c_str(), O_WRONLY | O_CREAT, 0600);
        ::dup2(file, to);
      }
      const Result<int> code = launch(options);
      if (!code.ok()) fmt::print(stderr, "{}\n", code.status().to_string());
      std::fflush(stderr);
      return code.ok() ? *code : 111;
    });
  }
  // The first hosts the store, soon.
  bool is_hosted() const {
    const int port = std::atoi(options_.rendezvous.substr(10).c_str());
    return rendezvous::TcpStore::connect("127.0.0.1", port, options_.run_id,
                                         Deadline::in(std::chrono::seconds(30)))
        .ok();
  }
  std::string text(const std::string& name) const {
    const auto read = read_file(posix_io(), folder_.file(name), 1 << 20);
    return read.ok() ? *read : "";
  }
  bool has(const std::string& name, const std::string& words) const {
    return text(name).find(words) != std::string::npos;
  }

 private:
  const std::string script_;
  const TemporaryFolder folder_;
  LaunchOptions options_;
};

TEST(Nodes, RanksAreNumberedOverAllMachines) {
  Launchers launchers(
      "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE "
      "$MASTER_ADDR; test $MASTER_PORT -gt 0; case $HEKLA_STORE in tcp:*) ;; *) exit 9;; esac");
  const pid_t first = launchers.start("first");
  launchers.options().nproc = 1;
  const pid_t second = launchers.start("second");
  EXPECT_EQ(wait_for_child(first), 0) << launchers.text("first.err");
  EXPECT_EQ(wait_for_child(second), 0) << launchers.text("second.err");
  const std::string out = launchers.text("first.out") + launchers.text("second.out");
  for (const char* line : {"] 0 0 3 ", "] 1 ", "] 2 "}) {
    EXPECT_NE(out.find(line), out.npos) << out;
  }
  EXPECT_NE(out.find("127.0.0.1"), out.npos);
  EXPECT_TRUE(launchers.has("second.err", "attempt 0 on 2 machines: "));
}

TEST(Nodes, TheFirstFailureIsNamedOnAllMachinesAndAllStartAgain) {
  Launchers launchers(
      "test $TORCHELASTIC_RESTART_COUNT = 1 && exit 0; test $RANK = 3 || exec sleep 100; "
      "echo because >&2; exit 5");
  launchers.options().max_restarts = 1;
  const pid_t first = launchers.start("first");
  const pid_t second = launchers.start("second");
  EXPECT_EQ(wait_for_child(first), 0) << launchers.text("first.err");
  EXPECT_EQ(wait_for_child(second), 0) << launchers.text("second.err");
  for (const char* name : {"first.err", "second.err"}) {
    EXPECT_TRUE(launchers.has(name, "rank 3 on " + host_name() + " failed first, after "))
        << launchers.text(name);
    EXPECT_TRUE(launchers.has(name,
                              "with exit code 5; the others were ended; its last words:\n"
                              "    because\nhekla launch: all ranks start again, restart 1 of 1"))
        << launchers.text(name);
  }
}

TEST(Nodes, ALauncherThatDiesIsLostAndTheOthersGoOnWithoutIt) {
  Launchers launchers(
      "echo $$ > $1/$GROUP_RANK.$LOCAL_RANK.$TORCHELASTIC_RESTART_COUNT; "
      "test $GROUP_WORLD_SIZE = 1 || exec sleep 100");
  launchers.options().min_nodes = 1;
  launchers.options().last_call = std::chrono::seconds(60);
  launchers.options().max_restarts = 1;
  const pid_t first = launchers.start("first");
  ASSERT_TRUE(launchers.is_hosted());
  const pid_t second = launchers.start("second");
  // Both have come to run, or the one that is asked for below has no number.
  ASSERT_TRUE(eventually([&] {
    return !launchers.text("1.0.0").empty() && !launchers.text("1.1.0").empty();
  })) << launchers.text("first.err")
      << launchers.text("second.err");
  ::kill(second, SIGKILL);
  EXPECT_EQ(wait_for_child(second), -SIGKILL);
  EXPECT_EQ(wait_for_child(first), 0) << launchers.text("first.err");
  EXPECT_TRUE(launchers.has("first.err",
                            "(ranks 2-3) is lost: its launcher is gone\n"
                            "hekla launch: all ranks "
                            "start again, restart 1 of 1"))
      << launchers.text("first.err");
  EXPECT_TRUE(launchers.has("first.err", "attempt 1 on 1 machine: ranks 0-1 on "));
  // Its ranks have died with it.
  const auto rank = static_cast<pid_t>(std::atoi(launchers.text("1.0.0").c_str()));
  ASSERT_GT(rank, 0);
  EXPECT_TRUE(eventually([&] { return ::kill(rank, 0) != 0; }));
}

TEST(Nodes, TheOneThatDecidesIsNamedWhenItDies) {
  Launchers launchers("echo $$ > $1/$GROUP_RANK.$LOCAL_RANK; exec sleep 100");
  launchers.options().join_timeout = std::chrono::seconds(6);
  const pid_t first = launchers.start("first");
  ASSERT_TRUE(launchers.is_hosted());
  const pid_t second = launchers.start("second");
  ASSERT_TRUE(eventually([&] { return !launchers.text("1.1").empty(); }))
      << launchers.text("first.err") << launchers.text("second.err");
  const auto rank = static_cast<pid_t>(std::atoi(launchers.text("1.1").c_str()));
  ::kill(first, SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(wait_for_child(first), -SIGKILL);
  EXPECT_EQ(wait_for_child(second), 111);
  // It has noticed, ended its ranks and waited.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  const std::string& at = launchers.options().rendezvous;
  EXPECT_TRUE(launchers.has("second.err", "this machine was cut off from the run at " + at))
      << launchers.text("second.err");
  EXPECT_TRUE(launchers.has(
      "second.err",
      "the launcher at " + at + ", which decides for all, is lost and has not come back in 6 s"))
      << launchers.text("second.err");
  EXPECT_NE(::kill(rank, 0), 0);
}

TEST(Nodes, ASignalToOneMachineMakesItLeaveAndToTheLeaderEndsAll) {
  Launchers launchers(
      "trap 'exit 75' TERM; : > $1/$WORLD_SIZE.$RANK; while :; do sleep 0.01; done");
  launchers.options().min_nodes = 1;
  launchers.options().last_call = std::chrono::seconds(60);
  const auto runs = [&](int size) {
    return eventually([&] {
      for (int r = 0; r < size; ++r) {
        const std::string path = launchers.folder() + fmt::format("/{}.{}", size, r);
        if (::access(path.c_str(), F_OK) != 0) return false;
      }
      return true;
    });
  };
  const pid_t first = launchers.start("first");
  ASSERT_TRUE(launchers.is_hosted());
  const pid_t second = launchers.start("second");
  ASSERT_TRUE(runs(4)) << launchers.text("first.err");
  ::kill(second, SIGTERM);
  EXPECT_EQ(wait_for_child(second), kPreempted) << launchers.text("second.err");
  EXPECT_TRUE(launchers.has("second.err", "this machine leaves the run, by signal 15"));
  ASSERT_TRUE(runs(2)) << launchers.text("first.err");
  EXPECT_TRUE(launchers.has(
      "first.err", "(ranks 2-3) leaves\nhekla launch: all ranks start again, which costs"));
  ::kill(first, SIGTERM);
  EXPECT_EQ(wait_for_child(first), kPreempted) << launchers.text("first.err");
}

TEST(Nodes, WhoHasAnotherRunIdIsNotLetIn) {
  Launchers launchers("exit 0");
  launchers.options().join_timeout = std::chrono::seconds(2);
  const pid_t first = launchers.start("first");
  ASSERT_TRUE(launchers.is_hosted());
  launchers.options().run_id = "hidden-word";
  const pid_t second = launchers.start("second");
  EXPECT_EQ(wait_for_child(second), 111);
  EXPECT_TRUE(launchers.has("second.err", "UNAUTHENTICATED: joining the run at 127.0.0.1:"))
      << launchers.text("second.err");
  EXPECT_FALSE(launchers.has("second.err", "hidden-word")) << "the secret stands in logs";
  EXPECT_EQ(wait_for_child(first), 1);
  EXPECT_TRUE(launchers.has("first.err", "1 of at least 2 machines have come in 2 s"));
}

TEST(Nodes, NamesThatAreNotKnownYetAreTriedAgain) {
  Launchers launchers("exit 0");
  launchers.options().rendezvous = "no-such-host.invalid:4711";
  launchers.options().join_timeout = milliseconds(1500);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(wait_for_child(launchers.start("first")), 111);
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(1500));
  EXPECT_TRUE(launchers.has("first.err", "joining the run at no-such-host.invalid:4711"))
      << launchers.text("first.err");
}

// Where each machine may listen at any address, all would lead else.
TEST(Nodes, WhoDoesNotHostTheStoreDoesNotLead) {
  const auto server = *rendezvous::TcpStoreServer::start("127.0.0.1", 0, "secret");
  const NodeLink::MakeLeader make = [](std::string own) {
    return std::make_unique<Leader>(LeaderOptions(), std::move(own),
                                    []() -> Result<Meeting> { return unavailable("none"); });
  };
  NodeLink::Options options = {{"127.0.0.1", server->port()}, "secret", "another", "host", 1,
                               std::chrono::seconds(4)};
  const auto joined = NodeLink::join(options, make, Deadline::in(std::chrono::seconds(20)));
  EXPECT_EQ(joined.status().code(), StatusCode::kAlreadyExists) << joined.status().to_string();
  options.own_server = server->id();
  EXPECT_TRUE(NodeLink::join(options, make, Deadline::in(std::chrono::seconds(20))).ok());
}

TEST(Nodes, TheSecretIsNotADefault) {
  for (const char* run_id : {"none", ""}) {
    LaunchOptions options;
    options.command = {"true"};
    options.rendezvous = "127.0.0.1:4711";
    options.run_id = run_id;
    EXPECT_EQ(run_child([&] {
                const Status status = launch(options).status();
                return status.code() == StatusCode::kInvalidArgument &&
                               status.message().find("--run-id") != std::string::npos
                           ? 0
                           : 1;
              }),
              0);
  }
}

}  // namespace
}  // namespace hekla::launch
