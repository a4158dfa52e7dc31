// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/threads/thread_pool.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "backends/cpu/threads/task_order.h"
#include "runtime/base/async/fork_mark.h"
#include "runtime/base/cpu_info.h"
#include "runtime/base/log.h"

namespace hekla::cpu {
namespace {

int wanted_threads() {
  constexpr int kMost = 1024;
  const int cores = std::max(1, read_cpu_info().usable_cores);
  const char* text = std::getenv("HEKLA_NUM_THREADS");
  if (text == nullptr || *text == '\0') return cores;
  const int number = std::atoi(text);
  if (number >= 1 && number <= kMost) return number;
  log_message(LogLevel::kWarning, "HEKLA_NUM_THREADS must be 1 to {}, is '{}'; taking {}", kMost,
              text, cores);
  return cores;
}

}  // namespace

struct ThreadPool::State {
  explicit State(int threads)
      // oneTBB counts the caller, who does not wait here: one more for `threads` workers.
      : limit(tbb::global_control::max_allowed_parallelism, static_cast<size_t>(threads) + 1),
        arena(threads, /*reserved_for_masters=*/0),
        threads(threads) {
    arena.initialize();
  }
  tbb::global_control limit;
  tbb::task_arena arena;
  std::function<void()> take() {
    const std::lock_guard lock(mutex);
    std::function<void()> task = std::move(waiting.front());
    waiting.pop_front();
    return task;
  }
  TaskOrder posted;
  const int threads;
  const ForkMark made_in;
  std::mutex mutex;
  // Each enqueued task of oneTBB takes the oldest one. They wait here and not in oneTBB's own
  // memory, where leak checkers do not look when a process ends before its launches have begun.
  std::deque<std::function<void()>> waiting;  // guarded by mutex
};

ThreadPool& ThreadPool::process_pool() {
  // Never destroyed: launches may still run while static objects go.
  static ThreadPool* pool = new ThreadPool;
  return *pool;
}

ThreadPool::ThreadPool() : state_(new State(wanted_threads())) {}

int ThreadPool::threads() const { return state_->threads; }

Status ThreadPool::check_process() const {
  if (!state_->made_in.is_inherited()) return ok_status();
  return failed_precondition(
      "this process is a fork of one that had a CPU client, without its threads: start it with "
      "'spawn' or 'forkserver' (multiprocessing)");
}

void ThreadPool::post(std::function<void()> task) {
  // One order for all of them: nobody is there to own one for each.
  TaskOrder& order = state_->posted;
  order.before();
  {
    const std::lock_guard lock(state_->mutex);
    state_->waiting.push_back(std::move(task));
  }
  const auto run_oldest = [this, &order] {
    order.begin();
    state_->take()();
  };
  try {
    state_->arena.enqueue(run_oldest);
  } catch (const std::exception&) {
    run_oldest();  // oneTBB has no memory for a task
  }
}

void ThreadPool::run(const std::function<void()>& task) {
  TaskOrder order;
  order.before();
  state_->arena.execute([&] {
    order.begin();
    task();
    order.end();
  });
  order.after();
}

void ThreadPool::for_ranges(int64_t count, int64_t grain,
                            const std::function<void(int64_t, int64_t)>& body) {
  TaskOrder order;
  order.before();
  // On a worker this calls at once; another thread hands it to a worker where no slot is free, who
  // reads this frame.
  state_->arena.execute([&] {
    order.begin();
    tbb::parallel_for(
        tbb::blocked_range<int64_t>(0, count, static_cast<size_t>(std::max<int64_t>(1, grain))),
        [&](const tbb::blocked_range<int64_t>& range) {
          order.begin();
          body(range.begin(), range.end());
          order.end();
        },
        tbb::simple_partitioner());
    order.end();
  });
  order.after();
}

}  // namespace hekla::cpu
