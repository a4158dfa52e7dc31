// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/group.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <thread>
#include <vector>

#include "runtime/base/io/temporary_folder.h"
#include "runtime/rendezvous/file_store.h"

namespace hekla::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Deadline soon() { return Deadline::in(seconds(20)); }

std::vector<std::unique_ptr<Group>> form_all(const std::function<std::shared_ptr<Store>()>& open,
                                             int world) {
  std::vector<std::unique_ptr<Group>> groups(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      Result<std::unique_ptr<Group>> group = Group::form(open(), rank, world, soon());
      EXPECT_TRUE(group.ok()) << group.status().to_string();
      if (group.ok()) groups[static_cast<size_t>(rank)] = *std::move(group);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return groups;
}

TEST(RankList, IsShort) {
  EXPECT_EQ(rank_list({}), "");
  EXPECT_EQ(rank_list({3}), "3");
  EXPECT_EQ(rank_list({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
  std::vector<int> even;
  for (int i = 0; i < 100; ++i) even.push_back(2 * i);
  EXPECT_NE(rank_list(even).find("and 84 more"), std::string::npos);
}

TEST(Group, FormsOverTheRestsOfAnEarlierOne) {
  TemporaryFolder folder;
  const auto open = [&] { return *open_store("file:" + folder.path()); };
  std::string epoch;
  for (int life = 0; life < 3; ++life) {
    const auto groups = form_all(open, 4);
    for (const auto& group : groups) {
      ASSERT_NE(group, nullptr);
      EXPECT_EQ(group->epoch(), groups[0]->epoch());
      EXPECT_NE(group->epoch(), epoch);
      // What an earlier life said is not heard.
      EXPECT_FALSE(group->store().get(group->key("word"))->has_value());
      EXPECT_TRUE(group->lost()->empty());
    }
    if (life > 0) {
      EXPECT_TRUE(groups[0]->store().get_all(epoch + "/")->empty());
    }
    epoch = groups[0]->epoch();
    ASSERT_TRUE(groups[1]->store().set(groups[1]->key("word"), "1").ok());
  }
}

TEST(Group, MissingRanksAreNamed) {
  const auto store = std::make_shared<LocalStore>();
  std::thread other([&] {
    const auto group = Group::form(store, 2, 4, Deadline::in(milliseconds(100)));
    EXPECT_EQ(group.status().code(), StatusCode::kDeadlineExceeded);
    EXPECT_NE(group.status().message().find("rank 0 "), std::string::npos);
  });
  const auto group = Group::form(store, 0, 4, Deadline::in(milliseconds(100)));
  other.join();
  EXPECT_EQ(group.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(group.status().message().find("no word from rank 1"), std::string::npos)
      << group.status().message();
  EXPECT_EQ(Group::form(store, 4, 4, soon()).status().code(), StatusCode::kInvalidArgument);
}

TEST(Group, TheEnvironmentSaysWhoWeAre) {
  ::unsetenv("WORLD_SIZE");
  EXPECT_EQ((*Group::from_environment(soon()))->world(), 1);
  ::setenv("WORLD_SIZE", "2", 1);
  ::setenv("RANK", "x", 1);
  EXPECT_EQ(Group::from_environment(soon()).status().code(), StatusCode::kInvalidArgument);
  ::setenv("RANK", "0", 1);
  ::unsetenv("HEKLA_STORE");
  EXPECT_NE(Group::from_environment(soon()).status().message().find("HEKLA_STORE"),
            std::string::npos);
  ::unsetenv("WORLD_SIZE");
  ::unsetenv("RANK");
}

TEST(GroupWait, EndsWithValuesStopDeathOrDeadline) {
  const auto store = std::make_shared<LocalStore>();
  const auto groups = form_all([&] { return store; }, 3);
  Group& group = *groups[0];
  const auto say = [&](const std::string& key) {
    ASSERT_TRUE(store->set(group.key(key), key).ok());
  };
  say("ready/0");
  say("ready/2");

  Group::Wait wait;
  wait.what = "READY of step 7";
  wait.deadline = Deadline::in(milliseconds(50));
  wait.stop_key = "abort";
  int reports = 0;
  wait.report_every = milliseconds(10);
  wait.report = [&](const std::vector<int>& missing) {
    EXPECT_EQ(missing, std::vector<int>{1});
    ++reports;
  };
  auto waited = group.wait_ranks("ready/", wait);
  EXPECT_EQ(waited.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(waited.status().message(),
            "READY of step 7: no word from rank 1 (of 3 ranks) before the deadline");
  EXPECT_GE(reports, 1);

  wait.deadline = soon();
  store->lose(groups[0]->epoch() + "/rank1");
  EXPECT_EQ(*group.lost(), std::vector<int>{1});
  waited = group.wait_ranks("ready/", wait);
  EXPECT_EQ(waited.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(waited.status().message().find("rank 1 (of 3 ranks) died"), std::string::npos);

  say("abort");
  waited = group.wait_ranks("ready/", wait);
  ASSERT_TRUE(waited.ok());
  EXPECT_EQ(waited->stopped, "abort");

  say("ready/1");  // the words of the dead count
  waited = group.wait_ranks("ready/", wait);
  ASSERT_TRUE(waited.ok());
  EXPECT_FALSE(waited->stopped);
  EXPECT_EQ(waited->values.size(), 3u);
  EXPECT_EQ(waited->values.at(1), "ready/1");

  std::stop_source stop;
  stop.request_stop();
  wait.stop_key.clear();
  wait.stop = stop.get_token();
  EXPECT_EQ(group.wait_key("never", 0, wait).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace hekla::rendezvous
