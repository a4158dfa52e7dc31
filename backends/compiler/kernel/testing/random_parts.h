// SPDX-License-Identifier: Apache-2.0
// What random_kernel.cc and op_kernel.cc share. Not for others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "backends/compiler/kernel/builder.h"

namespace hekla::kernel::testing {

// The same numbers on every machine, which the distributions of <random> do not promise.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t next() { return engine_(); }
  uint64_t below(uint64_t n) { return engine_() % n; }
  bool chance(int percent) { return below(100) < static_cast<uint64_t>(percent); }
  // A value of the type: of floats mostly moderate numbers, sometimes any bits.
  uint64_t bits(ScalarType type);

 private:
  std::mt19937_64 engine_;
};

// Whether the op exists for these types, as `verify` says.
bool is_allowed(Op op, ScalarType to, ScalarType from);

// `v`, or 3 where it is 0 or -1.
Value safe_divisor(Builder& b, Value v);
// `v`, or 0 where kFloatToSInt or kFloatToUInt (`op`) to `to` is not defined for it.
Value fitting(Builder& b, Op op, ScalarType to, Value v);

void append_bits(std::vector<std::byte>* memory, uint64_t bits, size_t bytes);
bool is_nan(ScalarType type, uint64_t bits);
std::string show(ScalarType type, uint64_t bits);  // number and bits

}  // namespace hekla::kernel::testing
