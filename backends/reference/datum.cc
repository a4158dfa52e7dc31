// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/datum.h"

#include <utility>

#include "runtime/program/ir/type.h"

namespace hekla::reference {

void flatten(Datum datum, std::vector<HostArray>& out) {
  if (!datum.is_tuple()) {
    out.push_back(std::move(datum.array));
    return;
  }
  for (const Datum& part : *datum.parts) flatten(part, out);
}

Datum build(const ir::Type& type, std::vector<HostArray>& leaves, size_t& next) {
  if (!type.is_tuple()) return Datum(std::move(leaves[next++]));
  std::vector<Datum> parts;
  for (const ir::Type& element : type.elements()) parts.push_back(build(element, leaves, next));
  return Datum::tuple(std::move(parts));
}

}  // namespace hekla::reference
