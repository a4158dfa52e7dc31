// SPDX-License-Identifier: Apache-2.0
// The artifacts of real senders that tests read. They lie outside the repository: in
// $HEKLA_ARTIFACTS, or in ../shared/artifacts beside the checkout. Without them the tests that need
// them are skipped and say so.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace hekla::stablehlo::testing {

// Empty when there are none.
std::filesystem::path artifacts_folder();
// Sorted names without the extension (".mlirbc", ".mlir").
std::vector<std::string> artifact_names(const std::string& extension);
std::string read_file(const std::filesystem::path& path);

}  // namespace hekla::stablehlo::testing
