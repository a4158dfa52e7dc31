// SPDX-License-Identifier: Apache-2.0
#include "backends/lapack/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

namespace hekla::lapack {
namespace {

struct Library {
  const Table* table = nullptr;
  std::string problem;
};

std::vector<std::string> candidates() {
  if (const char* named = std::getenv("HEKLA_LAPACK"); named != nullptr && *named != '\0') {
    return {named};
  }
  std::vector<std::string> paths;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&candidates), &info) != 0 && info.dli_fname != nullptr) {
    std::error_code error;
    std::filesystem::path here = std::filesystem::canonical(info.dli_fname, error);
    // A program's name is what it was called by, which need not be a path.
    if (error) here = std::filesystem::read_symlink("/proc/self/exe", error);
    const std::filesystem::path folder = here.parent_path();
    for (const char* place : {"", "../lib/hekla"}) {
      paths.push_back((folder / place / "libhekla_lapack.so").lexically_normal().string());
    }
  }
  return paths;
}

Library open() {
  Library result;
  const std::vector<std::string> paths = candidates();
  if (paths.size() == 1 && paths[0] == "off") {
    result.problem = "HEKLA_LAPACK is \"off\"";
    return result;
  }
#ifdef __x86_64__
  if (!__builtin_cpu_supports("sse4.2")) {
    result.problem =
        "OpenBLAS's kernels for processors without SSE4.2 read outside of "
        "matrices; HEKLA_LAPACK=off lowers JAX's functions without it";
    return result;
  }
#endif
  for (const std::string& path : paths) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      result.problem += fmt::format("{}{}", result.problem.empty() ? "" : "; ", dlerror());
      continue;
    }
    using Entry = const Table* (*)();
    const auto entry = reinterpret_cast<Entry>(dlsym(library, "hekla_lapack_table"));
    const Table* table = entry == nullptr ? nullptr : entry();
    if (table != nullptr && table->version == kTableVersion) {
      result.table = table;
      result.problem.clear();
      return result;
    }
    result.problem +=
        fmt::format("{}{} is of another build", result.problem.empty() ? "" : "; ", path);
    dlclose(library);
  }
  return result;
}

const Library& library() {
  static const Library* const opened = new Library(open());
  return *opened;
}

}  // namespace

const Table* table() { return library().table; }
const std::string& why_missing() { return library().problem; }

}  // namespace hekla::lapack
