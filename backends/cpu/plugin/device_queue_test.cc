// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/plugin/device_queue.h"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>
#include <vector>

#include "backends/cpu/threads/thread_pool.h"

namespace hekla::cpu {
namespace {

class Job : public DeviceJob {
 public:
  explicit Job(std::function<void()> work) : work_(std::move(work)) {}
  void run(bool) override { work_(); }
  void tell() override { done->complete(ok_status()); }
  const CompletionRef done = Completion::make();

 private:
  const std::function<void()> work_;
};

class DeviceQueueTest : public ::testing::Test {
 protected:
  CompletionRef post(const std::shared_ptr<DeviceQueue>& queue, std::function<void()> work,
                     CompletionRef ready = nullptr, bool on_own_thread = false) {
    auto job = std::make_shared<Job>(std::move(work));
    EXPECT_TRUE(!on_own_thread || queue->start_threads().ok());
    queue->post(job, std::move(ready), on_own_thread);
    return job->done;
  }
  // A job that notes its number; the jobs of one queue need no lock among each other.
  CompletionRef note(int number, CompletionRef ready = nullptr, bool on_own_thread = false) {
    return post(
        queue_, [this, number] { order_.push_back(number); }, std::move(ready), on_own_thread);
  }

  std::shared_ptr<DeviceQueue> queue_ = std::make_shared<DeviceQueue>();
  std::vector<int> order_;
};

TEST_F(DeviceQueueTest, RunsJobsOneAfterTheOtherInTheirOrder) {
  CompletionRef last;
  std::vector<int> expected;
  for (int i = 0; i < 200; ++i) {
    expected.push_back(i);
    last = note(i, nullptr, /*on_own_thread=*/i % 3 == 0);
  }
  ASSERT_TRUE(last->await().ok());
  EXPECT_EQ(order_, expected);
}

TEST_F(DeviceQueueTest, RunsAJobHereWhereNothingIsBeforeIt) {
  const std::thread::id here = std::this_thread::get_id();
  Job job([&] { EXPECT_EQ(std::this_thread::get_id(), here); });
  EXPECT_TRUE(queue_->try_run_here(job));
  EXPECT_TRUE(job.done->is_done());
  // Whoever hears of the end finds the device free.
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(post(queue_, [] {})->await().ok());
    Job next([] {});
    ASSERT_TRUE(queue_->try_run_here(next));
  }
  // While one runs, no other does.
  const CompletionRef go_on = Completion::make();
  const CompletionRef running = post(queue_, [&] { EXPECT_TRUE(go_on->await().ok()); });
  Job refused([] { FAIL(); });
  EXPECT_FALSE(queue_->try_run_here(refused));
  go_on->complete(ok_status());
  ASSERT_TRUE(running->await().ok());
}

TEST_F(DeviceQueueTest, AJobThatWaitsForItsInputsLetsOthersPass) {
  const CompletionRef input = Completion::make();
  const CompletionRef waits = note(1, input);
  ASSERT_TRUE(note(2)->await().ok());
  EXPECT_FALSE(waits->is_done());
  input->complete(data_loss("whatever became of it"));
  ASSERT_TRUE(waits->await().ok());
  EXPECT_EQ(order_, (std::vector<int>{2, 1}));
}

TEST_F(DeviceQueueTest, AJobOnTheDevicesThreadKeepsItsPlaceWhileItRuns) {
  const CompletionRef go_on = Completion::make();
  post(
      queue_, [&] { EXPECT_TRUE(go_on->await().ok()); }, nullptr, /*on_own_thread=*/true);
  note(1, nullptr, /*on_own_thread=*/true);
  const CompletionRef later = note(2);
  Job refused([] { FAIL(); });
  EXPECT_FALSE(queue_->try_run_here(refused));
  go_on->complete(ok_status());
  ASSERT_TRUE(later->await().ok());
  EXPECT_EQ(order_, (std::vector<int>{1, 2}));
}

// More devices than the pool has threads, jobs that do nothing but wait for each other, and work
// for the pool in front of and behind them.
TEST_F(DeviceQueueTest, PeersThatWaitForEachOtherAllComeToRun) {
  const int devices = 2 * ThreadPool::process_pool().threads() + 6;
  std::vector<std::shared_ptr<DeviceQueue>> queues;
  for (int d = 0; d < devices; ++d) queues.push_back(std::make_shared<DeviceQueue>());
  constexpr int kRounds = 20;
  std::vector<CompletionRef> all;
  std::vector<std::unique_ptr<std::barrier<>>> barriers;
  std::atomic<int64_t> pieces{0};
  for (int round = 0; round < kRounds; ++round) {
    barriers.push_back(std::make_unique<std::barrier<>>(devices));
    for (const auto& queue : queues) {
      all.push_back(post(queue, [&] { ++pieces; }));
      all.push_back(post(
          queue,
          [&, meet = barriers.back().get()] {
            meet->arrive_and_wait();
            // Such a job may split work over the pool, which has nobody waiting.
            ThreadPool::process_pool().for_ranges(
                4, 1, [&](int64_t begin, int64_t end) { pieces += end - begin; });
            meet->arrive_and_wait();
          },
          nullptr, /*on_own_thread=*/true));
    }
  }
  ASSERT_TRUE(Completion::all(all)->await().ok());
  EXPECT_EQ(pieces, int64_t{kRounds} * devices * 5);
}

}  // namespace
}  // namespace hekla::cpu
