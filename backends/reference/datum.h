// SPDX-License-Identifier: Apache-2.0
// Datum: a run-time value of the evaluator: an array, a token, a tuple, or a future.
#pragma once

#include <memory>
#include <vector>

#include "runtime/base/host_array.h"

namespace hekla::ir {
class Type;
}

namespace hekla::reference {

struct Future;

struct Datum {
  HostArray array;                                  // dtype kInvalid: none of the others
  std::shared_ptr<const std::vector<Datum>> parts;  // of a tuple, shared by copies
  std::shared_ptr<Future> future;                   // shared by copies

  Datum() = default;
  Datum(HostArray value) : array(std::move(value)) {}
  static Datum tuple(std::vector<Datum> elements) {
    Datum datum;
    datum.parts = std::make_shared<const std::vector<Datum>>(std::move(elements));
    return datum;
  }
  bool is_tuple() const { return parts != nullptr; }
};

// Appends the arrays inside a datum, tuples flattened.
void flatten(Datum datum, std::vector<HostArray>& out);
// The datum of a type whose arrays are those of `leaves` from `next` on, which it moves past them.
Datum build(const ir::Type& type, std::vector<HostArray>& leaves, size_t& next);

}  // namespace hekla::reference
