// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/stablehlo/testing/artifacts.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace hekla::stablehlo::testing {

std::filesystem::path artifacts_folder() {
  const char* given = std::getenv("HEKLA_ARTIFACTS");
  const std::filesystem::path folder =
      given != nullptr ? given
                       : std::filesystem::path(HEKLA_SOURCE_DIR).parent_path() / "shared/artifacts";
  return std::filesystem::is_directory(folder) ? folder : std::filesystem::path();
}

std::vector<std::string> artifact_names(const std::string& extension) {
  std::vector<std::string> names;
  const std::filesystem::path folder = artifacts_folder();
  if (folder.empty()) return names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(extension)) names.push_back(name.substr(0, name.size() - extension.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

}  // namespace hekla::stablehlo::testing
