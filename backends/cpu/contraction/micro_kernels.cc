// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/contraction/micro_kernels.h"

#ifdef HEKLA_X86_KERNELS
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace hekla::cpu {

#ifdef HEKLA_X86_KERNELS
bool may_use_amx() {
  static const bool may = [] {
    // Linux gives a process the registers, 8 KiB for each thread, when it asks (5.16).
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return may;
}

const MicroKernels& micro_kernels(const MicroKernelLevel& level) {
  if (level.has_fma && level.vector_bits == 512 && level.has_vnni && level.has_amx) {
    static const MicroKernels kernels = [] {
      MicroKernels with_bytes = avx512_vnni_micro_kernels();
      with_bytes.bytes = amx_micro_kernels;
      return with_bytes;
    }();
    return kernels;
  }
  if (level.has_fma && level.vector_bits == 512) {
    return level.has_vnni ? avx512_vnni_micro_kernels() : avx512_micro_kernels();
  }
  if (level.has_fma && level.vector_bits == 256) return avx2_micro_kernels();
  return portable_micro_kernels();
}
#else
bool may_use_amx() { return false; }

const MicroKernels& micro_kernels(const MicroKernelLevel&) { return portable_micro_kernels(); }
#endif

}  // namespace hekla::cpu
