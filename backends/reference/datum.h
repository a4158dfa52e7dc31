// SPDX-License-Identifier: Apache-2.0
// Datum: a run-time value of the evaluator: an array, a token, or a tuple.
#pragma once

#include <memory>
#include <vector>

#include "runtime/base/host_array.h"

namespace hekla::reference {

struct Datum {
  HostArray array;                                  // dtype kInvalid: a token, or a tuple
  std::shared_ptr<const std::vector<Datum>> parts;  // of a tuple, shared by copies

  Datum() = default;
  Datum(HostArray value) : array(std::move(value)) {}
  static Datum tuple(std::vector<Datum> elements) {
    Datum datum;
    datum.parts = std::make_shared<const std::vector<Datum>>(std::move(elements));
    return datum;
  }
  bool is_tuple() const { return parts != nullptr; }
};

}  // namespace hekla::reference
