// SPDX-License-Identifier: Apache-2.0
// Loops of our own for regions that are one binary op, behind the same interface as any region. A
// kernel then has one code path: blocks of elements through a ScalarFunction.
#pragma once

#include <memory>

#include "backends/reference/scalar_function.h"
#include "runtime/base/host_array.h"

namespace hekla::reference {

// A block function that computes `body` on `dtype`; null when the op does not exist for the dtype
// (bitwise ops on floats).
std::unique_ptr<ScalarFunction> make_block_body(BinaryBody body, DType dtype);

// The fast form of a region where it has one, else the region itself. Borrows `body`.
class BlockBody {
 public:
  explicit BlockBody(ScalarFunction& body);
  ScalarFunction& operator*() const { return *function_; }
  ScalarFunction* operator->() const { return function_; }

 private:
  std::unique_ptr<ScalarFunction> owned_;
  ScalarFunction* function_;  // owned_ or the borrowed region
};

}  // namespace hekla::reference
