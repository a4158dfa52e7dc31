// SPDX-License-Identifier: Apache-2.0
// Draw: what tests draw in place of what sizes and costs say of a kernel's schedule.
//
// The same kernel, by its text, and the same seed draw the same; kernels of one program draw apart.
// Without a seed (0) nothing is drawn: is_on() and chance() are false. One thread per object.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>

#include "backends/compiler/kernel/kernel.h"
#include "runtime/base/hash.h"

namespace hekla::kernel {

class Draw {
 public:
  Draw(const Kernel& kernel, uint64_t seed) : is_on_(seed != 0) {
    if (is_on_) random_.seed(fnv1a(to_string(kernel), kFnv1aBasis ^ seed));
  }
  bool is_on() const { return is_on_; }
  // One of 0 ... n-1.
  uint64_t below(uint64_t n) { return random_() % n; }
  bool chance(uint64_t percent) { return is_on_ && below(100) < percent; }
  // One of low ... high.
  int64_t any(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low + 1)));
  }
  template <typename T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }

 private:
  const bool is_on_;
  std::mt19937_64 random_;
};

}  // namespace hekla::kernel
