// SPDX-License-Identifier: Apache-2.0
// TaskOrder: tells ThreadSanitizer what oneTBB orders.
//
// What a task does comes after what its maker did and before what who waits for it does. oneTBB is
// not instrumented, so ThreadSanitizer cannot know; thread_pool.cc, which holds all of its
// templates, is compiled without instrumentation and says it through this class. Empty in other
// builds.
#pragma once

#include <atomic>

namespace hekla::cpu {

class TaskOrder {
 public:
  void before();  // by the maker
  void begin();   // by the task
  void end();
  void after();  // by the maker, when all tasks are done

 private:
  std::atomic<int> begun_ = 0;
  std::atomic<int> ended_ = 0;
};

}  // namespace hekla::cpu
