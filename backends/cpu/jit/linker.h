// SPDX-License-Identifier: Apache-2.0
// Linker: object files into memory of this process that can be called.
//
// Code sees a closed table of helpers, not the symbols of the process: what the code generator
// makes up on its own (memcpy, memset, memmove) and the roundings that SSE2 lacks. Anything else is
// an error at link time. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::cpu {

// Linked code; unmapped with the last reference.
class CodeModule {
 public:
  virtual ~CodeModule() = default;
  // One address per symbol asked for.
  std::vector<void*> addresses;
};

class Linker {
 public:
  static Result<std::shared_ptr<Linker>> create();
  virtual ~Linker() = default;
  // INTERNAL, with names: a symbol that the object does not define, or one that it wants and that
  // is no helper.
  virtual Result<std::shared_ptr<CodeModule>> link(const std::string& object,
                                                   std::span<const std::string> symbols) = 0;
};

}  // namespace hekla::cpu
