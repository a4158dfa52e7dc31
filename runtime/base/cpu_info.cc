// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/cpu_info.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hekla {
namespace {

std::string value_after_colon(const std::string& line) {
  const size_t start = line.find_first_not_of(" \t", line.find(':') + 1);
  return start == std::string::npos ? "" : line.substr(start);
}

std::string read_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("model name")) return value_after_colon(line);
  }
  return "";
}

int64_t read_available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("MemAvailable:")) {
      return std::strtoll(value_after_colon(line).c_str(), nullptr, 10) * 1024;
    }
  }
  return 0;
}

void read_simd(CpuInfo& info) {
  info.simd_level = "scalar";
#if defined(__x86_64__)
  __builtin_cpu_init();
  info.simd_level = "SSE2";
  if (__builtin_cpu_supports("sse4.2")) info.simd_level = "SSE4.2";
  if (__builtin_cpu_supports("avx")) info.simd_level = "AVX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) info.simd_level = "AVX2";
  // The subset that Skylake-SP has: foundation, byte/word, doubleword/quadword, vector lengths.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    info.simd_level = "AVX-512";
  }
  const auto add = [&](bool has, const char* name) {
    if (has) info.features.emplace_back(name);
  };
  add(__builtin_cpu_supports("fma"), "fma");
  // Clang's __builtin_cpu_supports does not know it; it works where AVX's registers are saved.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool has_leaf = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0;
  add(has_leaf && (ecx & bit_F16C) != 0 && __builtin_cpu_supports("avx"), "f16c");
  add(__builtin_cpu_supports("avx512vnni"), "avx512vnni");
  add(__builtin_cpu_supports("avx512bf16"), "avx512bf16");
#elif defined(__aarch64__)
  info.simd_level = "NEON";
#endif
}

}  // namespace

CpuInfo read_cpu_info() {
  CpuInfo info;
  info.model = read_model();
  utsname system = {};
  if (uname(&system) == 0) info.architecture = system.machine;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) info.usable_cores = CPU_COUNT(&set);
  info.cores = static_cast<int>(std::max(0L, sysconf(_SC_NPROCESSORS_ONLN)));
  info.l1_data_bytes = std::max(0L, sysconf(_SC_LEVEL1_DCACHE_SIZE));
  info.l2_bytes = std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE));
  info.l3_bytes = std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE));
  info.memory_bytes =
      static_cast<int64_t>(std::max(0L, sysconf(_SC_PHYS_PAGES))) * sysconf(_SC_PAGESIZE);
  info.available_memory_bytes = read_available_memory();
  read_simd(info);
  return info;
}

}  // namespace hekla
