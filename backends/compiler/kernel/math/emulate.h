// SPDX-License-Identifier: Apache-2.0
// Emulated types: kernels for devices without 64-bit integers or floats, or without conversions of
// f16, which give the same bits.
//
// An f64 becomes its bits in an i64, on which every operation is done by integers, correctly
// rounded with denormals; an i64 becomes two words, the lower first. NaNs that an operation makes
// are quiet and positive, those that it passes on need not keep their payload. kFma of f64 is a
// product and a sum. Slow: an f64 addition is some 100 integer operations, an i64 one four.
//
// Pure; any thread.
#pragma once

#include "backends/compiler/kernel/kernel.h"

namespace hekla::kernel {

struct Emulation {
  bool f16 = false;  // its conversions
  bool i64 = false;
  bool f64 = false;  // asked for with i64, too, when the kernel has f64
};

// UNIMPLEMENTED: for i64, a kernel with a grid or an operand of 2^31 points or bytes and more; one
// that would become longer than drivers compile in any reasonable time.
Result<Kernel> emulate(const Kernel& kernel, const Emulation& emulation);

}  // namespace hekla::kernel
