// SPDX-License-Identifier: Apache-2.0
// How batches of matrices go through LAPACK with the threads and the memory of whoever runs the
// operation. Internal to lapack_calls.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "backends/lapack/library.h"
#include "backends/reference/evaluator.h"
#include "backends/reference/task_ranges.h"
#include "runtime/base/host_array.h"

namespace hekla::reference {

// What LAPACK takes from whoever runs the operation: threads, memory, places of results.
class LapackRunner {
 public:
  explicit LapackRunner(const EvaluateOptions& options) : options_(options) {
    parallel_.context = const_cast<EvaluateOptions*>(&options);
    if (options.for_each) {
      parallel_.run = [](void* context, int32_t count, void (*body)(void*, int32_t), void* state) {
        static_cast<const EvaluateOptions*>(context)->for_each(
            count, [&](int64_t i) { body(state, static_cast<int32_t>(i)); });
      };
    }
    if (options.allocate) {
      parallel_.take = [](void* context, int64_t bytes, void** block) -> void* {
        std::shared_ptr<void> memory =
            static_cast<const EvaluateOptions*>(context)->allocate(bytes);
        void* const data = memory.get();
        if (data != nullptr) *block = new std::shared_ptr<void>(std::move(memory));
        return data;
      };
      parallel_.give = [](void*, void* block) {
        delete static_cast<std::shared_ptr<void>*>(block);
      };
    }
    alone_ = parallel_;
    alone_.run = nullptr;
  }

  const ForEach& for_each() const { return options_.for_each; }
  const lapack::Parallel* parallel() const { return &parallel_; }
  // One thread.
  const lapack::Parallel* alone() const { return &alone_; }

  // An array for something that ends with the operation, uninitialized.
  Result<HostArray> temporary(DType dtype, Dims dims) const {
    if (!options_.allocate) return HostArray::allocate(dtype, std::move(dims), false);
    HEKLA_ASSIGN_OR_RETURN(const int64_t bytes, checked_bytes(dtype, dims));
    std::shared_ptr<void> memory = options_.allocate(bytes);
    if (memory == nullptr) {
      return resource_exhausted("no host memory for {} ({} bytes)", shape_string(dtype, dims),
                                bytes);
    }
    return HostArray::adopt(dtype, std::move(dims), std::move(memory));
  }
  // The operation's result with this number, uninitialized.
  Result<HostArray> result(size_t index, DType dtype, Dims dims) const {
    std::byte* const memory =
        index < options_.result_memory.size() ? options_.result_memory[index] : nullptr;
    if (memory == nullptr) return HostArray::allocate(dtype, std::move(dims), false);
    return HostArray::adopt(dtype, std::move(dims), std::shared_ptr<void>(memory, [](void*) {}));
  }

 private:
  const EvaluateOptions& options_;
  lapack::Parallel parallel_{};
  lapack::Parallel alone_{};
};

// Memory that does not overlap.
void copy_by_tasks(void* to, const void* from, int64_t bytes, const ForEach& for_each);

// What kNoMemory and kTooLarge mean.
Status check_info(int32_t info, std::string_view what);

// Of elements of LAPACK's four types: whether the one at `at` is no NaN; makes all of them NaN.
bool is_number(DType dtype, const std::byte* at);
void fill_nan(DType dtype, std::byte* begin, std::byte* end);

// Whether a matrix is so large that its own work is worth splitting.
inline bool is_large(int64_t m, int64_t n) { return m * n >= 128 * 128; }

// Calls f(i, parallel) -> info for each matrix; the worst of kNoMemory and kTooLarge, or 0.
template <typename F>
int32_t for_matrices(int64_t batch, int64_t m, int64_t n, const LapackRunner& runner, const F& f) {
  // With as many matrices as threads and more each thread has its own.
  constexpr int64_t kFew = 16;
  const bool splits = is_large(m, n) && batch < kFew;
  std::atomic<int32_t> error = 0;
  const double work = 200.0 + 4.0 * static_cast<double>(m * n * std::min(m, n));
  for_ranges(runner.for_each(), batch, work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int32_t info = f(i, splits ? runner.parallel() : runner.alone());
      if (info == lapack::kNoMemory || info == lapack::kTooLarge) {
        error.store(info, std::memory_order_relaxed);
      }
    }
  });
  return error.load();
}

}  // namespace hekla::reference
