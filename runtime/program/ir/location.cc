// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/location.h"

#include <fmt/format.h>

namespace hekla::ir {
namespace {

// JAX wraps a name around a name around a file; sixteen levels show all that a person reads.
constexpr int kMaxDepth = 16;
constexpr int kMaxVisits = 256;

void find_parts(const LocationRef& location, int depth, int& visits, std::string& name,
                std::string& file) {
  if (location == nullptr || depth > kMaxDepth || ++visits > kMaxVisits) return;
  switch (location->kind) {
    case Location::Kind::kFile:
      if (file.empty()) {
        file = fmt::format("{}:{}:{}", location->text, location->line, location->column);
      }
      return;
    case Location::Kind::kName:
      // The inner name is the longer one: "jit(f)/add" inside "add:".
      if (name.empty() || location->text.size() > name.size()) name = location->text;
      break;
    case Location::Kind::kCallSite:
    case Location::Kind::kFused:
      break;
  }
  for (const LocationRef& child : location->children) {
    find_parts(child, depth + 1, visits, name, file);
    if (!file.empty()) return;
  }
}

}  // namespace

LocationParts location_parts(const LocationRef& location) {
  LocationParts parts;
  int visits = 0;
  find_parts(location, 0, visits, parts.name, parts.place);
  return parts;
}

std::string location_string(const LocationRef& location) {
  const auto [name, file] = location_parts(location);
  if (name.empty() && file.empty()) return "unknown location";
  if (name.empty()) return file;
  if (file.empty()) return fmt::format("\"{}\"", name);
  return fmt::format("\"{}\" ({})", name, file);
}

}  // namespace hekla::ir
