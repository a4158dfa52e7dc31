// SPDX-License-Identifier: Apache-2.0
// Location: where an operation comes from in the user's source, for messages only.
//
// Locations are immutable trees shared between operations; a null LocationRef is unknown. They
// never take part in comparisons of programs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hekla::ir {

struct Location;
using LocationRef = std::shared_ptr<const Location>;

struct Location {
  enum class Kind : uint8_t { kFile, kName, kCallSite, kFused };
  Kind kind = Kind::kFile;
  std::string text;  // the file, or the name
  int64_t line = 0;
  int64_t column = 0;
  // kName: the location it names (may be absent); kCallSite: callee, caller; kFused: all.
  std::vector<LocationRef> children;
};

// The longest name, "jit(f)/add", and the place, "model.py:12:5", of a location; empty where it has
// none.
struct LocationParts {
  std::string name;
  std::string place;
};
LocationParts location_parts(const LocationRef& location);

// One line such as `"jit(f)/add" (model.py:12:5)`; "unknown location" when nothing is known. Both
// walk a bounded part of the tree, so that a hostile one costs nothing.
std::string location_string(const LocationRef& location);

}  // namespace hekla::ir
