// SPDX-License-Identifier: Apache-2.0
// One launcher as a process, and a leader that says what a test wants: plans that overtake each
// other, stores that vanish.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "runtime/base/io/file.h"
#include "runtime/base/io/temporary_folder.h"
#include "runtime/base/testing/child.h"
#include "runtime/launch/launcher.h"
#include "runtime/launch/node_state.h"
#include "runtime/rendezvous/tcp_store.h"
#include "runtime/rendezvous/tcp_store_server.h"

namespace hekla::launch {
namespace {

using rendezvous::TcpStore;
using rendezvous::TcpStoreServer;
using std::chrono::milliseconds;
using std::chrono::seconds;

bool becomes_so(const std::function<bool()>& is_so) {
  for (int i = 0; i < 3000 && !is_so(); ++i) std::this_thread::sleep_for(milliseconds(10));
  return is_so();
}

class Follower : public ::testing::Test {
 protected:
  void start(const std::string& script) {
    // The child is made before the server, whose sockets would live on in it.
    int port[2];
    ASSERT_EQ(::pipe2(port, O_CLOEXEC), 0);
    child_ = start_child([&] {
      int number = 0;
      if (::read(port[0], &number, sizeof(number)) != sizeof(number)) return 110;
      const int file = ::open(folder_.file("err").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(file, STDERR_FILENO);
      LaunchOptions options = options_;
      options.command = {"sh", "-c", script, "sh", folder_.path()};
      options.rendezvous = fmt::format("127.0.0.1:{}", number);
      const Result<int> code = launch(options);
      if (!code.ok()) fmt::print(stderr, "{}\n", code.status().to_string());
      std::fflush(stderr);
      return code.ok() ? *code : 111;
    });
    server_ = *TcpStoreServer::start("127.0.0.1", 0, options_.run_id);
    const int number = server_->port();
    ASSERT_EQ(::write(port[1], &number, sizeof(number)), static_cast<ssize_t>(sizeof(number)));
    ::close(port[0]);
    ::close(port[1]);
    store_ = *TcpStore::connect("127.0.0.1", number, options_.run_id, Deadline::in(seconds(30)));
    ASSERT_TRUE(store_->set("silence_ms", std::to_string(leader_silence_.count())).ok());
    ASSERT_TRUE(becomes_so([&] { return has_ended() || !(node_ = find_node("")).empty(); }))
        << text("err");
  }
  bool has_ended() {
    siginfo_t info = {};
    return ::waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == child_;
  }
  void TearDown() override {
    if (child_ > 0) ::kill(child_, SIGKILL);
    if (child_ > 0) wait_for_child(child_);
  }
  int code() {
    const int end = wait_for_child(child_);
    child_ = -1;
    return end;
  }

  // A node that is there and is not `other`.
  std::string find_node(const std::string& other) {
    const auto values = store_->get_all("node/");
    if (!values.ok()) return "";
    for (const auto& [key, value] : *values) {
      if (!key.ends_with("/card")) continue;
      const std::string name = key.substr(5, key.size() - 10);
      if (name != other) return name;
    }
    return "";
  }
  void say(Plan::Kind kind, int64_t attempt, int exit_code = 0) {
    plan_.kind = kind;
    plan_.attempt = attempt;
    plan_.exit_code = exit_code;
    plan_.seats = {{node_, "host", 0, 1}};
    plan_.store = "file:" + folder_.path();
    plan_.address = "127.0.0.1";
    plan_.port = 1;
    ++plan_.version;
    ASSERT_TRUE(store_->set("plan", plan_.text()).ok());
  }
  NodeReport report() {
    const auto text = store_->get("node/" + node_ + "/report");
    if (!text.ok() || !text->has_value()) return {};
    const Result<NodeReport> report = NodeReport::read(**text);
    return report.ok() ? *report : NodeReport{};
  }
  std::string text(const std::string& name) const {
    const auto read = read_file(posix_io(), folder_.file(name), 1 << 20);
    return read.ok() ? *read : "";
  }
  bool exists(const std::string& name) const {
    return ::access(folder_.file(name).c_str(), F_OK) == 0;
  }

  const TemporaryFolder folder_;
  LaunchOptions options_ = [] {
    LaunchOptions options;
    options.run_id = "follower";
    options.min_nodes = options.max_nodes = 2;
    options.silence = seconds(4);
    options.grace = seconds(20);
    options.join_timeout = seconds(5);
    return options;
  }();
  milliseconds leader_silence_ = options_.silence;
  std::unique_ptr<TcpStoreServer> server_;
  std::unique_ptr<TcpStore> store_;
  std::string node_;
  Plan plan_;
  pid_t child_ = -1;
};

TEST_F(Follower, AnAttemptThatIsStoppedBeforeItIsHeardOfHasEnded) {
  start(": > $1/began");
  say(Plan::Kind::kStop, 0);
  EXPECT_TRUE(becomes_so([&] { return report().attempt == 0 && report().has_ended; }))
      << text("err");
  EXPECT_FALSE(report().failure);
  EXPECT_FALSE(exists("began"));
  say(Plan::Kind::kRun, 1);
  EXPECT_TRUE(becomes_so([&] { return report().attempt == 1 && report().has_ended; }));
  EXPECT_TRUE(exists("began"));
  say(Plan::Kind::kEnd, 1, 7);
  EXPECT_EQ(code(), 7) << text("err");
}

TEST_F(Follower, AStoreThatGoesAfterTheEndOfTheRunIsNoLoss) {
  start("trap ': > $1/told; sleep 1.5; exit 0' TERM; : > $1/began; while :; do sleep 0.01; done");
  say(Plan::Kind::kRun, 0);
  ASSERT_TRUE(becomes_so([&] { return exists("began"); })) << text("err");
  say(Plan::Kind::kEnd, 0, 3);
  ASSERT_TRUE(becomes_so([&] { return exists("told"); })) << text("err");
  store_.reset();
  server_.reset();
  EXPECT_EQ(code(), 3) << text("err");
  EXPECT_EQ(text("err").find("cut off"), std::string::npos) << text("err");
}

TEST_F(Follower, WhoIsCountedAsLostComesAgain) {
  start(": > $1/began; exec sleep 100");
  say(Plan::Kind::kRun, 0);
  ASSERT_TRUE(becomes_so([&] { return exists("began"); })) << text("err");
  ASSERT_TRUE(store_->remove_all("node/" + node_ + "/").ok());
  std::string again;
  EXPECT_TRUE(becomes_so([&] { return !(again = find_node(node_)).empty(); })) << text("err");
  EXPECT_NE(text("err").find("cut off from the run at"), std::string::npos) << text("err");
  EXPECT_NE(text("err").find("the others count this machine as lost"), std::string::npos);
  node_ = again;
  say(Plan::Kind::kEnd, 0, 5);
  EXPECT_EQ(code(), 5) << text("err");
}

TEST_F(Follower, AllHaveTheSameSilence) {
  leader_silence_ = milliseconds(6000);
  start("exit 0");
  EXPECT_EQ(code(), 111);
  EXPECT_NE(text("err").find("--silence of this launcher is 4000 ms, and 6000 ms of the one at"),
            std::string::npos)
      << text("err");
}

}  // namespace
}  // namespace hekla::launch
