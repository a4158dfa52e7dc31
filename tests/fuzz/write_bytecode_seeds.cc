// SPDX-License-Identifier: Apache-2.0
// Writes the hand-built sample modules into a folder, as seeds of the bytecode fuzzer:
//   write_bytecode_seeds FOLDER
#include <cstdio>
#include <fstream>

#include "runtime/program/stablehlo/testing/sample_modules.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_bytecode_seeds FOLDER\n");
    return 2;
  }
  for (const auto& [name, bytes] : hekla::stablehlo::testing::sample_modules()) {
    std::ofstream file(std::string(argv[1]) + "/" + name, std::ios::binary);
    file << bytes;
    if (!file.flush()) {
      std::fprintf(stderr, "%s/%s cannot be written\n", argv[1], name.c_str());
      return 1;
    }
  }
  return 0;
}
