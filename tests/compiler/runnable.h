// SPDX-License-Identifier: Apache-2.0
// Which programs of tests/artifacts a test with one device and without callbacks can run.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "runtime/program/ir/ir.h"

namespace hekla::testing {

// Artifacts that are not run, with the reason. Tests fail when one of them can be, and when another
// one cannot.
const std::map<std::string_view, std::string_view>& not_run();

// Whether the evaluator has all that the program asks for, and shapes are known.
bool can_run(const ir::Module& module);

}  // namespace hekla::testing
