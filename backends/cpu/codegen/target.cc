// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/codegen/target.h"

#include <fmt/ranges.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>

#include <algorithm>
#include <vector>

namespace hekla::cpu {
namespace {

struct X86Level {
  std::string_view name;
  const char* cpu;
  int vector_bits;
  bool has_fma;
  std::vector<const char*> needs;  // of the host
};

const std::vector<X86Level>& x86_levels() {
  static const std::vector<X86Level> levels = {
      {"sse2", "x86-64", 128, false, {"sse2"}},
      {"avx2", "x86-64-v3", 256, true, {"avx2", "fma", "bmi2", "f16c"}},
      {"avx512", "x86-64-v4", 512, true, {"avx512f", "avx512bw", "avx512dq", "avx512vl"}},
  };
  return levels;
}

}  // namespace

std::string Target::key() const {
  return fmt::format("{} {} {} {} {}", triple, cpu, features, vector_bits, has_fma);
}

Result<Target> make_target(std::string_view level) {
  Target target;
  target.triple = llvm::sys::getProcessTriple();
  const bool is_x86 = llvm::Triple(target.triple).getArch() == llvm::Triple::x86_64;
  const llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  auto has = [&](const char* feature) {
    const auto it = host.find(feature);
    return it != host.end() && it->second;
  };
  if (level == "native") {
    target.cpu = llvm::sys::getHostCPUName().str();
    std::vector<std::string> features;
    for (const auto& entry : host) {
      features.push_back((entry.second ? "+" : "-") + entry.first().str());
    }
    std::sort(features.begin(), features.end());  // the map's order is not fixed
    target.features = fmt::format("{}", fmt::join(features, ","));
    target.is_native = true;
    target.has_fma = !is_x86 || has("fma");
    target.has_f16 = !is_x86 || has("f16c");
    target.has_vnni = has("avx512vnni");
    target.has_amx = has("amx-int8");
    if (is_x86) target.vector_bits = has("avx512f") ? 512 : has("avx2") ? 256 : 128;
    return target;
  }
  for (const X86Level& known : x86_levels()) {
    if (!is_x86 || known.name != level) continue;
    target.cpu = known.cpu;
    target.vector_bits = known.vector_bits;
    target.has_fma = known.has_fma;
    target.has_f16 = known.vector_bits > 128;
    target.is_native = std::all_of(known.needs.begin(), known.needs.end(), has);
    return target;
  }
  return invalid_argument("there is no instruction set level '{}' for {}; there are native{}",
                          level, target.triple, is_x86 ? ", sse2, avx2 and avx512" : "");
}

}  // namespace hekla::cpu
