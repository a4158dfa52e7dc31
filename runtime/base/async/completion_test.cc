// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/async/completion.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace hekla {
namespace {

TEST(Completion, CompletesOnce) {
  const CompletionRef completion = Completion::make();
  EXPECT_FALSE(completion->is_done());
  EXPECT_TRUE(completion->status().ok());
  EXPECT_TRUE(completion->complete(cancelled("first")));
  EXPECT_FALSE(completion->complete(ok_status()));
  EXPECT_TRUE(completion->is_done());
  EXPECT_EQ(completion->await().message(), "first");
  EXPECT_EQ(completion->status().code(), StatusCode::kCancelled);
}

TEST(Completion, ReadyIsDone) {
  EXPECT_TRUE(Completion::ready()->is_done());
  EXPECT_TRUE(Completion::ready()->await().ok());
  EXPECT_EQ(Completion::ready(unavailable("x"))->status().message(), "x");
}

TEST(Completion, CallbacksRunOnceInTheirOrderBeforeAndAfter) {
  const CompletionRef completion = Completion::make();
  std::string seen;
  completion->on_done([&](const Status& status) { seen += "a" + status.message(); });
  completion->on_done([&](const Status& status) { seen += "b" + status.message(); });
  EXPECT_EQ(seen, "");
  completion->complete(unavailable("!"));
  EXPECT_EQ(seen, "a!b!");
  completion->on_done([&](const Status& status) { seen += "c" + status.message(); });
  completion->complete(ok_status());
  EXPECT_EQ(seen, "a!b!c!");
}

TEST(Completion, CallbacksMayUseTheCompletion) {
  const CompletionRef completion = Completion::make();
  bool was_done = false;
  bool nested = false;
  completion->on_done([&](const Status&) {
    was_done = completion->is_done();
    completion->on_done([&](const Status&) { nested = true; });
  });
  completion->complete(ok_status());
  EXPECT_TRUE(was_done);
  EXPECT_TRUE(nested);
}

TEST(Completion, AllEndsWithTheFirstErrorInTheOrderOfTheParts) {
  EXPECT_TRUE(Completion::all({})->is_done());
  const CompletionRef a = Completion::make();
  const CompletionRef b = Completion::make();
  const CompletionRef c = Completion::make();
  EXPECT_EQ(Completion::all({a}), a);
  const CompletionRef whole = Completion::all({a, b, c});
  c->complete(unavailable("c"));
  b->complete(cancelled("b"));
  EXPECT_FALSE(whole->is_done());
  a->complete(ok_status());
  EXPECT_EQ(whole->await().message(), "b");
}

// The waiter destroys it as soon as it sees the result, while complete() is still on its way.
TEST(Completion, MayBeDestroyedByWhoeverWaits) {
  for (int i = 0; i < 200; ++i) {
    auto completion = std::make_unique<Completion>();
    std::thread thread([raw = completion.get()] { raw->complete(ok_status()); });
    EXPECT_TRUE(completion->await().ok());
    completion.reset();
    thread.join();
  }
}

TEST(Completion, OneOfManyThreadsCompletes) {
  for (int i = 0; i < 50; ++i) {
    const CompletionRef completion = Completion::make();
    std::atomic<int> winners = 0;
    std::atomic<int> calls = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        completion->on_done([&](const Status&) { ++calls; });
        if (completion->complete(ok_status())) ++winners;
        EXPECT_TRUE(completion->await().ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(winners, 1);
    EXPECT_EQ(calls, 4);
  }
}

}  // namespace
}  // namespace hekla
