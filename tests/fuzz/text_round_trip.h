// SPDX-License-Identifier: Apache-2.0
// What the fuzzers of readers ask of each valid program: that its text means the same.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "runtime/program/stablehlo/text/compare.h"
#include "runtime/program/stablehlo/text/print.h"
#include "runtime/program/stablehlo/text/text_reader.h"

namespace hekla {

// Prints `module` and reads it back; ends the process where that fails or gives another program.
inline void check_text_round_trip(const ir::Module& module) {
  const std::string printed = stablehlo::print_module(module);
  const Result<std::unique_ptr<ir::Module>> again = stablehlo::read_text(printed);
  if (!again.ok()) {
    std::fprintf(stderr, "does not read back: %s\n%s", again.status().to_string().c_str(),
                 printed.c_str());
    std::abort();
  }
  if (const auto difference = stablehlo::first_difference(module, **again)) {
    std::fprintf(stderr, "reads back differently: %s\n%s", difference->c_str(), printed.c_str());
    std::abort();
  }
}

}  // namespace hekla
