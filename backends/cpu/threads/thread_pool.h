// SPDX-License-Identifier: Apache-2.0
// ThreadPool: the one pool of threads of the process, for launches, pieces of kernels and
// compilation. Made at its first use and never destroyed. Thread-safe.
//
// HEKLA_NUM_THREADS gives the number of workers; the default is the cores that the process may use.
// What runs does not depend on it: kernels are cut by shape alone.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/base/status.h"

namespace hekla::cpu {

class ThreadPool {
 public:
  static ThreadPool& process_pool();

  int threads() const;
  // FAILED_PRECONDITION: this process is a fork of the one whose pool it is; nothing runs.
  Status check_process() const;
  // Runs `task` soon, on a worker, or here where there is no memory to hand it over. It must not
  // throw.
  void post(std::function<void()> task);
  // Runs `task` here or on a worker, such that parallel work in it uses the pool; returns after it.
  void run(const std::function<void()>& task);
  // Calls `body(begin, end)` for pieces of [0, count), of `grain` at least, in parallel, and
  // returns when all are done. From any thread; one that is not a worker may wait for one.
  void for_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

 private:
  ThreadPool();
  struct State;
  State* state_;  // never freed
};

}  // namespace hekla::cpu
