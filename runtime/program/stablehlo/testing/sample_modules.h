// SPDX-License-Identifier: Apache-2.0
// Bytecode files built by hand that together hold every container version, type, attribute and
// operation that the reader knows. They read and convert without error; they make no sense as
// programs. For tests, and as the fuzzer's seeds.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hekla::stablehlo::testing {

// Name and bytes.
std::vector<std::pair<std::string, std::string>> sample_modules();

// main(x) with a constant, a loop whose condition captures x and one that captures nothing.
std::string loop_module(uint64_t container_version);

}  // namespace hekla::stablehlo::testing
