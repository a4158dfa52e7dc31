// SPDX-License-Identifier: Apache-2.0
// Target: the machine that code is generated for, by LLVM's names.
//
// Plain data. `native` is the processor that this process runs on; the levels below it exist so
// that tests run what other machines would run.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace hekla::cpu {

struct Target {
  std::string triple;
  std::string cpu;       // "znver3", "x86-64-v3"
  std::string features;  // "+avx2,+fma,..."
  int vector_bits = 128;
  bool has_vnni = false;  // AVX512_VNNI
  bool has_amx = false;   // AMX_INT8, which a process must be let use
  bool has_fma = false;
  bool has_f16 = false;    // converts between f16 and f32
  bool is_native = false;  // this process can run the code

  // Everything that generated code depends on, for cache keys.
  std::string key() const;
};

// `level`: "native", or "sse2", "avx2", "avx512" on x86-64. INVALID_ARGUMENT: another name, or a
// level of another architecture.
Result<Target> make_target(std::string_view level);

}  // namespace hekla::cpu
