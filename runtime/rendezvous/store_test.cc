// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "runtime/base/io/scripted_io.h"
#include "runtime/base/io/temporary_folder.h"
#include "runtime/base/testing/child.h"
#include "runtime/rendezvous/file_store.h"
#include "runtime/rendezvous/log_store.h"
#include "runtime/rendezvous/tcp_store_server.h"
#include "runtime/rendezvous/testing/put_once.h"

namespace hekla::rendezvous {
namespace {

using std::chrono::milliseconds;

enum class Kind { kLocal, kFile, kLog, kTcp };

// The same promises of all stores.
class StoreOf : public ::testing::TestWithParam<Kind> {
 protected:
  std::shared_ptr<Store> open() {
    switch (GetParam()) {
      case Kind::kLocal:
        return local_;
      case Kind::kFile:
        return *open_store("file:" + folder_.file("store"));
      case Kind::kLog:
        return *LogStore::open(service_, "hekla");
      case Kind::kTcp:
        return *open_store(fmt::format("tcp:secret@127.0.0.1:{}", server_->port()));
    }
    return nullptr;
  }
  TemporaryFolder folder_;
  std::shared_ptr<Store> local_ = std::make_shared<LocalStore>();
  std::shared_ptr<KeyValueStore> service_ = std::make_shared<testing::PutOnce>();
  std::unique_ptr<TcpStoreServer> server_ = *TcpStoreServer::start("127.0.0.1", 0, "secret");
};

TEST_P(StoreOf, KeepsValues) {
  const auto store = open(), other = open();
  EXPECT_FALSE(store->get("a")->has_value());
  ASSERT_TRUE(store->set("a", "1").ok());
  EXPECT_EQ(**other->get("a"), "1");
  ASSERT_TRUE(other->set("a", "").ok());
  EXPECT_EQ(**store->get("a"), "");
  const std::string odd = "s/%2F \n\xff key";
  const std::string value("\0\x01binary", 8);
  ASSERT_TRUE(store->set(odd, value).ok());
  EXPECT_EQ(**other->get(odd), value);
  ASSERT_TRUE(store->set("s/b", "2").ok());
  const auto all = other->get_all("s/");
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ(all->at(odd), value);
  ASSERT_TRUE(store->remove("a").ok());
  ASSERT_TRUE(store->remove("a").ok());
  EXPECT_FALSE(other->get("a")->has_value());
  ASSERT_TRUE(store->remove_all("s/").ok());
  EXPECT_TRUE(other->get_all("")->empty());
}

TEST_P(StoreOf, RefusesWhatIsTooLong) {
  const auto store = open();
  EXPECT_EQ(store->set("", "x").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store->set(std::string(Store::kMaxKeyBytes + 1, 'k'), "x").code(),
            StatusCode::kInvalidArgument);
  // Each byte of a key may take three in a file name.
  const std::string longest(Store::kMaxKeyBytes, '/');
  EXPECT_EQ(store->set(longest, "x").code(),
            GetParam() == Kind::kFile ? StatusCode::kInvalidArgument : StatusCode::kOk);
}

TEST_P(StoreOf, ComparesAndSets) {
  const auto store = open();
  auto swap = store->compare_set("a", std::nullopt, "1");
  EXPECT_TRUE(swap->swapped);
  swap = store->compare_set("a", std::nullopt, "2");
  EXPECT_FALSE(swap->swapped);
  EXPECT_EQ(swap->value, "1");
  EXPECT_FALSE(store->compare_set("a", "0", "2")->swapped);
  EXPECT_TRUE(store->compare_set("a", "1", "2")->swapped);
  EXPECT_EQ(**store->get("a"), "2");
  EXPECT_FALSE(store->compare_set("b", "0", "2")->swapped);
}

TEST_P(StoreOf, OneOfManyWins) {
  std::atomic<int> winners{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const auto store = open();
      if (store->compare_set("a", std::nullopt, std::to_string(i))->swapped) ++winners;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
}

TEST_P(StoreOf, AddsWithoutLoss) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto store = open();
      for (int k = 0; k < 50; ++k) EXPECT_TRUE(store->add("n", 2).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*open()->add("n", 0), 400);
  ASSERT_TRUE(open()->set("text", "x").ok());
  EXPECT_EQ(open()->add("text", 1).status().code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(open()->set("big", std::to_string(INT64_MAX)).ok());
  EXPECT_EQ(open()->add("big", 1).status().code(), StatusCode::kOutOfRange);
}

TEST_P(StoreOf, WaitingSeesChanges) {
  const auto store = open();
  const uint64_t ticket = store->ticket();
  std::thread setter([other = open()] { ASSERT_TRUE(other->set("a", "1").ok()); });
  const Deadline deadline = Deadline::in(std::chrono::seconds(20));
  while (!store->get("a")->has_value() && !deadline.expired()) {
    store->wait_change(ticket, deadline);
  }
  setter.join();
  EXPECT_FALSE(deadline.expired());
  store->wait_change(ticket, deadline);  // past already: returns at once
  store->wait_change(store->ticket(), Deadline::in(milliseconds(1)));
}

TEST_P(StoreOf, MembersAreKnownToLive) {
  const auto store = open(), other = open();
  EXPECT_FALSE(*store->is_lost("m"));
  ASSERT_TRUE(store->join("m").ok());
  EXPECT_EQ(other->join("m").code(), StatusCode::kAlreadyExists);
  EXPECT_FALSE(*other->is_lost("m"));
  ASSERT_TRUE(store->leave("m").ok());
  EXPECT_FALSE(*other->is_lost("m"));
  EXPECT_TRUE(other->join("m").ok());
}

INSTANTIATE_TEST_SUITE_P(All, StoreOf,
                         ::testing::Values(Kind::kLocal, Kind::kFile, Kind::kLog, Kind::kTcp),
                         [](const auto& info) {
                           return info.param == Kind::kLocal  ? "Local"
                                  : info.param == Kind::kFile ? "File"
                                  : info.param == Kind::kLog  ? "Log"
                                                              : "Tcp";
                         });

TEST(OpenStore, NamesTheFormsThereAre) {
  const auto store = open_store("http://host:1");
  EXPECT_EQ(store.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(store.status().message().find("file:DIR"), std::string::npos);
}

TEST(FileStoreDeaths, AMemberIsLostWithItsProcess) {
  TemporaryFolder folder;
  const pid_t child = start_child([&] {
    const auto store = FileStore::open(posix_io(), folder.path());
    if (!(*store)->join("m").ok()) return 1;
    if (!(*store)->set("joined", "1").ok()) return 1;
    ::pause();
    return 0;
  });
  const auto store = FileStore::open(posix_io(), folder.path());
  while (!(*store)->get("joined")->has_value()) {
    (*store)->wait_change((*store)->ticket(), Deadline::in(milliseconds(50)));
  }
  EXPECT_FALSE(*(*store)->is_lost("m"));
  ::kill(child, SIGKILL);
  wait_for_child(child);
  EXPECT_TRUE(*(*store)->is_lost("m"));
  ASSERT_TRUE((*store)->join("m").ok());  // its successor
  EXPECT_FALSE(*(*store)->is_lost("m"));
}

TEST(FileStoreDeaths, ADeathWithinACallLosesNothingThatWasSaid) {
  TemporaryFolder folder;
  const auto store = FileStore::open(posix_io(), folder.path());
  int64_t least = 0, deaths = 0;
  for (const bool torn : {false, true}) {
    for (int64_t call = 1; call <= 40; ++call) {
      const int code = run_child([&] {
        ScriptedIo io(posix_io());
        io.add({.changes_only = true,
                .first = call,
                .action = torn ? FaultRule::Action::kTornKill : FaultRule::Action::kKill});
        const auto mine = FileStore::open(io, folder.path());
        for (int i = 0; i < 3; ++i) {
          if (!(*mine)->add("n", 1).ok() || !(*mine)->add("said", 1).ok()) return 1;
          if (!(*mine)->compare_set("cas", std::nullopt, "x").ok()) return 1;
          if (!(*mine)->remove("cas").ok()) return 1;
        }
        return 0;
      });
      ASSERT_TRUE(code == 0 || code == -SIGKILL) << code;
      deaths += code != 0;
      // Whatever moment it was, the store works on, and what was said was done before.
      const int64_t said = *(*store)->add("said", 0), n = *(*store)->add("n", 0);
      EXPECT_GE(said, least);
      EXPECT_GE(n, said);
      EXPECT_LE(n, said + deaths);
      least = said;
      ASSERT_TRUE((*store)->set("cas", "y").ok());
      ASSERT_TRUE((*store)->remove("cas").ok());
    }
  }
  EXPECT_GE(deaths, 60);
}

TEST(FileStoreFaults, ErrorsNameFileAndErrno) {
  TemporaryFolder folder;
  ScriptedIo io(posix_io());
  const auto store = FileStore::open(io, folder.path());
  for (const IoCall call : {IoCall::kOpen, IoCall::kPwrite, IoCall::kRename, IoCall::kLock}) {
    io.clear();
    io.add({.call = call, .path = folder.path(), .count = 1, .error = EIO});
    const Status status = (*store)->set("a", "1");
    EXPECT_EQ(status.code(), StatusCode::kInternal) << io_call_name(call);
    EXPECT_NE(status.message().find("errno 5"), std::string::npos) << status.message();
    ASSERT_TRUE((*store)->set("a", "2").ok());
  }
  EXPECT_EQ(list_folder(posix_io(), folder.file("tmp"))->size(), 0u);
}

TEST(FileStoreFaults, WithoutLinksTheLockDecides) {
  TemporaryFolder folder;
  ScriptedIo io(posix_io());
  io.add({.call = IoCall::kLink, .count = 100, .error = EPERM});
  const auto store = FileStore::open(io, folder.path());
  EXPECT_TRUE((*store)->compare_set("a", std::nullopt, "1")->swapped);
  const auto second = (*store)->compare_set("a", std::nullopt, "2");
  EXPECT_FALSE(second->swapped);
  EXPECT_EQ(second->value, "1");
}

}  // namespace
}  // namespace hekla::rendezvous
