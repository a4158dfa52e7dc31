// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/testing/artifacts.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

namespace hekla::stablehlo::testing {
namespace {

constexpr size_t kRealPrograms = 9;

[[noreturn]] void end(const std::string& what) {
  std::fprintf(stderr, "the programs that tests need are not there: %s\n", what.c_str());
  std::abort();
}

std::filesystem::path own_folder() {
  return std::filesystem::path(HEKLA_SOURCE_DIR) / "tests/artifacts";
}

// Empty when there is none.
std::filesystem::path other_folder() {
  const char* given = std::getenv("HEKLA_ARTIFACTS");
  if (given != nullptr && !std::filesystem::is_directory(given)) {
    end(std::string("HEKLA_ARTIFACTS is ") + given + ", which is no folder");
  }
  const std::filesystem::path folder =
      given != nullptr ? given
                       : std::filesystem::path(HEKLA_SOURCE_DIR).parent_path() / "shared/artifacts";
  return std::filesystem::is_directory(folder) ? folder : std::filesystem::path();
}

void add_names(const std::filesystem::path& folder, const std::string& extension,
               std::set<std::string>& names) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(extension)) names.insert(name.substr(0, name.size() - extension.size()));
  }
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) end(path.string() + " cannot be read");
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

}  // namespace

std::vector<std::string> artifact_names(const std::string& extension) {
  std::set<std::string> names;
  add_names(own_folder(), extension, names);
  const size_t least = extension == ".mlir" ? kLeastTextArtifacts : kLeastBytecodeArtifacts;
  if (names.size() < least) {
    end(own_folder().string() + " has " + std::to_string(names.size()) + " of " +
        std::to_string(least) + " *" + extension);
  }
  if (const std::filesystem::path folder = other_folder(); !folder.empty()) {
    add_names(folder, extension, names);
  }
  return {names.begin(), names.end()};
}

std::filesystem::path artifact_path(const std::string& file) {
  const std::filesystem::path own = own_folder() / file;
  if (std::filesystem::exists(own)) return own;
  const std::filesystem::path folder = other_folder();
  return folder.empty() ? own : folder / file;
}

std::string read_artifact(const std::string& file) { return read_file(artifact_path(file)); }

std::vector<std::string> real_program_names() {
  const std::filesystem::path folder = std::filesystem::path(HEKLA_SOURCE_DIR) / "tests/programs";
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (std::filesystem::exists(entry.path() / "program.mlirbc")) {
      names.insert(entry.path().filename().string());
    }
  }
  if (names.size() < kRealPrograms) {
    end(folder.string() + " has " + std::to_string(names.size()) + " of " +
        std::to_string(kRealPrograms) + " programs");
  }
  return {names.begin(), names.end()};
}

std::string read_real_program(const std::string& name) {
  return read_file(std::filesystem::path(HEKLA_SOURCE_DIR) / "tests/programs" / name /
                   "program.mlirbc");
}

}  // namespace hekla::stablehlo::testing
