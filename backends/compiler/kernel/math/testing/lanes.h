// SPDX-License-Identifier: Apache-2.0
// Lanes: evaluates a kernel body for many points at once, for tests that need millions of results.
//
// The meaning is evaluate.h's, which it also calls for the rarer ops; `interpret` in interpreter.h
// is the plain form of the same. One thread per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/compiler/kernel/scalar.h"

namespace hekla::kernel {

// What a device does with kFma.
enum class Fma : uint8_t { kFused, kSplit };

class Lanes {
 public:
  // `function` has one grid dimension and outlives this.
  Lanes(const Function& function, Fma fma);

  // Runs points 0 .. count-1 on operand buffers. Where trip counts differ between points, those
  // that are done run on without effect. OUT_OF_RANGE for an access outside of its buffer.
  Status run(int64_t count, std::span<const std::span<std::byte>> operands);

 private:
  static constexpr int kWidth = 512;
  Status run_region(int32_t region);
  Status run_loop(const Instruction& inst);
  Status access(Value v, const Instruction& inst);
  void compute(Value v, const Instruction& inst);
  // The lanes of a value: 4 bytes each for bool, i32 and f32, 8 for the others.
  template <typename T>
  T* lanes(Value v) {
    return reinterpret_cast<T*>(storage_.data() + offset_[static_cast<size_t>(v)]);
  }
  uint64_t get(Value v, int lane);
  void set(Value v, int lane, uint64_t bits);
  template <typename T>
  bool arithmetic(const Instruction& inst, T* out);
  template <typename T>
  bool compare(const Instruction& inst, uint32_t* out);

  const Function& function_;
  Fma fma_;
  std::vector<size_t> offset_;
  std::vector<uint64_t> storage_words_;
  std::span<std::byte> storage_;
  std::span<const std::span<std::byte>> operands_;
  int active_ = 0;
};

}  // namespace hekla::kernel
