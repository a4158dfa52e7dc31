// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/contraction/micro_kernels.h"

namespace hekla::cpu {

const MicroKernels& micro_kernels([[maybe_unused]] int vector_bits, [[maybe_unused]] bool has_fma,
                                  [[maybe_unused]] bool has_vnni) {
#ifdef HEKLA_X86_KERNELS
  if (has_fma && vector_bits == 512 && has_vnni) return avx512_vnni_micro_kernels();
  if (has_fma && vector_bits == 512) return avx512_micro_kernels();
  if (has_fma && vector_bits == 256) return avx2_micro_kernels();
#endif
  return portable_micro_kernels();
}

}  // namespace hekla::cpu
