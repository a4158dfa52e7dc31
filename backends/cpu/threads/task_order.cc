// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/threads/task_order.h"

namespace hekla::cpu {

#ifdef HEKLA_THREAD_SANITIZER
void TaskOrder::before() { begun_.fetch_add(1, std::memory_order_acq_rel); }
void TaskOrder::begin() { begun_.load(std::memory_order_acquire); }
void TaskOrder::end() { ended_.fetch_add(1, std::memory_order_acq_rel); }
void TaskOrder::after() { ended_.load(std::memory_order_acquire); }
#else
void TaskOrder::before() {}
void TaskOrder::begin() {}
void TaskOrder::end() {}
void TaskOrder::after() {}
#endif

}  // namespace hekla::cpu
