// SPDX-License-Identifier: Apache-2.0
// Modules that tests of passes read from text and look into afterwards. Pure.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::passes {

using Names = std::vector<std::string>;
using ModulePtr = std::unique_ptr<ir::Module>;

// Text that is no program ends the test.
inline ModulePtr read(const std::string& text) {
  Result<ModulePtr> module = stablehlo::read_program(text);
  if (!module.ok()) die_of_bad_result(module.status());
  return *std::move(module);
}

inline void expect_valid(const ir::Module& module) {
  const Status status = ir::verify(module);
  EXPECT_TRUE(status.ok()) << status.to_string();
}

// Operations of main without the terminator, and without "stablehlo.".
inline Names operations(const ir::Module& module) {
  Names names;
  for (const auto& op : module.entry()->body().front().operations()) {
    if (op.get() == module.entry()->body().front().terminator()) continue;
    const std::string name(op->name());
    names.push_back(name.starts_with("stablehlo.") ? name.substr(10) : name);
  }
  return names;
}

}  // namespace hekla::passes
