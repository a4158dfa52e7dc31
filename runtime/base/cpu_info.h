// SPDX-License-Identifier: Apache-2.0
// CpuInfo: the facts about the processor that devices and diagnoses print. Pure data; reading it
// cannot fail, what the system does not tell stays 0 or empty.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hekla {

struct CpuInfo {
  std::string model;
  std::string architecture;  // "x86_64", "aarch64"
  int usable_cores = 0;      // that this process may run on
  int cores = 0;             // online in the machine, hardware threads counted
  int64_t l1_data_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t l3_bytes = 0;
  int64_t memory_bytes = 0;
  int64_t available_memory_bytes = 0;
  // The widest instruction set we would generate code for: "SSE2", "SSE4.2", "AVX", "AVX2",
  // "AVX-512", "NEON", or "scalar".
  std::string simd_level;
  // Features that change how code is generated, as the compiler names them: "fma", "f16c",
  // "avx512bf16" ...
  std::vector<std::string> features;
};

CpuInfo read_cpu_info();

}  // namespace hekla
