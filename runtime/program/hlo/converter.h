// SPDX-License-Identifier: Apache-2.0
// Converter: computations of HLO as functions and regions of the IR.
//
// A computation that a `call` or more than one loop or conditional names is one function. All other
// callees become regions where they are called; a callee of many callers is copied that often, and
// paid for from a budget in proportion to the program, so that no chain of computations grows
// without bound. One conversion, one thread.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/program/hlo/site.h"

namespace hekla::hlo {

class Converter {
 public:
  Converter(const Program& program, ir::Module& module);

  // The entry as the function `main` and everything that it needs.
  Status run();

  const Program& program() const { return program_; }
  // Appends the instructions of a computation to `block`; `arguments` are the leaves of its
  // parameters. Returns the leaves of its root.
  Result<Leaves> inline_body(size_t computation, std::vector<Leaves> arguments, ir::Block& block,
                             int depth);
  // The same, or a call where the computation is a function.
  Result<Leaves> body_or_call(size_t computation, std::vector<Leaves> arguments, ir::Block& block,
                              int depth, const ir::LocationRef& location);
  // A region whose block has an argument for each leaf of the parameters. `may_call`: whether a
  // call will do where the computation is a function.
  Result<std::unique_ptr<ir::Region>> region(size_t computation, int depth, bool may_call,
                                             const ir::LocationRef& location);
  // A region without arguments that runs the computation on values around it.
  Result<std::unique_ptr<ir::Region>> branch(size_t computation, std::vector<Leaves> arguments,
                                             int depth, const ir::LocationRef& location);
  // The name of the function of a computation, which is converted later.
  const std::string& function_name(size_t computation);

 private:
  Status convert_function(size_t computation, const std::string& name, bool is_public);
  Result<Leaves> convert(const Site& site);

  const Program& program_;
  ir::Module& module_;
  std::unordered_map<size_t, std::string> functions_;
  std::unordered_set<std::string> names_;
  std::vector<size_t> pending_;
  int64_t budget_ = 0;
};

}  // namespace hekla::hlo
