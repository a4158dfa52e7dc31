// SPDX-License-Identifier: Apache-2.0
// The level of micro_kernels_avx512.cc, compiled for processors with AVX512_VNNI.
#define HEKLA_VNNI
#include "backends/cpu/contraction/micro_kernels_avx512.cc"  // NOLINT: one body for both levels
