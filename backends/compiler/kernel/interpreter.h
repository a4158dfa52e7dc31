// SPDX-License-Identifier: Apache-2.0
// Runs a kernel point by point on the host: the oracle of the generators' tests, and what a device
// does with a kernel that its driver cannot compile. Slow and plain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backends/compiler/kernel/kernel.h"

namespace hekla::kernel {

// What a device makes of kFma: one rounding, or those of a product and a sum.
enum class Fma : uint8_t { kFused, kSplit };

struct FmaRounding {
  FmaRounding() = default;
  FmaRounding(Fma both) : f32(both), f64(both) {}  // NOLINT(google-explicit-constructor)
  FmaRounding(Fma of_f32, Fma of_f64) : f32(of_f32), f64(of_f64) {}
  Fma f32 = Fma::kFused, f64 = Fma::kFused;
};

// `operands`: one buffer per operand of the kernel, in host byte order. OUT_OF_RANGE, naming the
// instruction and the index, when a load or store leaves its buffer.
Status interpret(const Kernel& kernel, std::span<const std::span<std::byte>> operands,
                 FmaRounding fma = {});
// The points [begin, end) of the grid alone, in row-major order. Where points exchange values: the
// teams whose first points are among them.
Status interpret_points(const Kernel& kernel, std::span<const std::span<std::byte>> operands,
                        int64_t begin, int64_t end);

// What a value is at one point, in one iteration of each loop around it (outermost first). Called
// for parameters and instructions with a result as they are computed; a loop's parameters once an
// iteration.
using Observer = std::function<void(std::span<const int64_t> point,
                                    std::span<const int64_t> iterations, Value v, uint64_t bits)>;
// As `interpret`, with everything that is computed shown: what analyses of a kernel are held to.
Status interpret_observed(const Kernel& kernel, std::span<const std::span<std::byte>> operands,
                          const Observer& observer);

}  // namespace hekla::kernel
