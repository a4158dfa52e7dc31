// SPDX-License-Identifier: Apache-2.0
#include "runtime/collectives/carrier_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace hekla::collectives {
namespace {

struct CarrierNames {
  const char *library, *variable, *engine, *package, *option;
};
constexpr CarrierNames kGlooNames = {"libhekla_gloo.so", "HEKLA_GLOO", "Gloo", "libgloo-dev",
                                     "-DHEKLA_WITH_GLOO=ON"};
constexpr CarrierNames kUcxNames = {"libhekla_ucx.so", "HEKLA_UCX", "UCX", "libucx-dev",
                                    "-DHEKLA_WITH_UCX=ON"};

std::vector<std::string> carrier_candidates(const CarrierNames& names) {
  if (const char* named = std::getenv(names.variable); named != nullptr && *named != '\0') {
    return {named};
  }
  std::vector<std::string> paths;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&carrier_candidates), &info) != 0 &&
      info.dli_fname != nullptr) {
    std::error_code error;
    std::filesystem::path here = std::filesystem::canonical(info.dli_fname, error);
    // A program's name is what it was called by, which need not be a path.
    if (error) here = std::filesystem::read_symlink("/proc/self/exe", error);
    const std::filesystem::path folder = here.parent_path();
    for (const char* place : {"", "../lib/hekla"}) {
      paths.push_back((folder / place / names.library).lexically_normal().string());
    }
  }
  // Programs of others that are linked to an installed Hekla find it by their RUNPATH.
  paths.emplace_back(names.library);
  return paths;
}

Result<const carrier::Table*> open_carrier(const CarrierNames& names) {
  std::string problem;
  for (const std::string& path : carrier_candidates(names)) {
    if (!problem.empty()) problem += "; ";
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      problem += ::dlerror();
      continue;
    }
    using Entry = const carrier::Table* (*)();
    const auto entry = reinterpret_cast<Entry>(::dlsym(library, "hekla_carrier_table"));
    const carrier::Table* table = entry == nullptr ? nullptr : entry();
    if (table != nullptr && table->version == carrier::kTableVersion) return table;
    problem += path + " is of another build";
    ::dlclose(library);
  }
  return failed_precondition(
      "processes of several machines exchange through {}, and {} cannot be opened: {}. It is built "
      "where {} is installed (Debian: {}, cmake {}); {} names another file",
      names.engine, names.library, problem, names.engine, names.package, names.option,
      names.variable);
}

}  // namespace

Result<const carrier::Table*> carrier_table(CarrierKind kind) {
  if (kind == CarrierKind::kUcx) {
    static const auto* const ucx = new Result<const carrier::Table*>(open_carrier(kUcxNames));
    return *ucx;
  }
  static const auto* const gloo = new Result<const carrier::Table*>(open_carrier(kGlooNames));
  return *gloo;
}

}  // namespace hekla::collectives
