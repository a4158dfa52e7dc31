// SPDX-License-Identifier: Apache-2.0
// Random: the same numbers on every machine, which the distributions of <random> do not promise.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace hekla::testing {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t next() { return engine_(); }
  // In [0, n); n is above 0.
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  // In [low, high].
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }
  double unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  template <typename T>
  const T& pick(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))];
  }
  template <typename T>
  void shuffle(std::vector<T>& list) {
    for (size_t i = list.size(); i > 1; --i) {
      std::swap(list[i - 1], list[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
    }
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace hekla::testing
