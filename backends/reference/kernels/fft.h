// SPDX-License-Identifier: Apache-2.0
// Discrete Fourier transforms over the last 1 to 3 dimensions, of any length.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/base/host_array.h"

namespace hekla::reference {

enum class FftType : uint8_t { kFft, kIfft, kRfft, kIrfft };

// fft_length holds the transformed dimensions' lengths in the space without half spectra. FFT and
// IFFT take complex operands, RFFT real ones (result n / 2 + 1 in the last dimension), IRFFT half
// spectra. Inverses are scaled by 1 / n. Computed in f64 and rounded once; O(n log n) for any n
// (mixed radices, Bluestein's algorithm for large prime factors).
Result<HostArray> fft(const HostArray& operand, FftType fft_type,
                      std::span<const int64_t> fft_length);

}  // namespace hekla::reference
