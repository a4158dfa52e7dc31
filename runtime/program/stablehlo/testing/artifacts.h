// SPDX-License-Identifier: Apache-2.0
// Programs of real senders that tests read: those of tests/artifacts, which are always there, and
// others where somebody has them: in $HEKLA_ARTIFACTS, or in ../shared/artifacts beside the
// checkout. What is missing ends the test program, or fails a test: nothing is left out silently.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace hekla::stablehlo::testing {

// So many there are at least, of each kind.
inline constexpr size_t kLeastBytecodeArtifacts = 57;
inline constexpr size_t kLeastTextArtifacts = 45;

// Sorted names without the extension (".mlirbc", ".mlir"), in both folders. Ends the program when
// there are fewer than above, or when $HEKLA_ARTIFACTS is no folder.
std::vector<std::string> artifact_names(const std::string& extension);
// Where the file of this name (with its extension) is; that of tests/artifacts if there are two.
std::filesystem::path artifact_path(const std::string& file);
// Its bytes. Ends the program when it cannot be read.
std::string read_artifact(const std::string& file);
// The folders tests/programs/NAME with a program of the size that users have: nine.
std::vector<std::string> real_program_names();
std::string read_real_program(const std::string& name);

}  // namespace hekla::stablehlo::testing
