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
    case Location::Kind::kFused: {
      // Of one child alone: a name and a file of two would be the place of neither. The first that
      // has a file; where none has, the first that has a name.
      std::string first_name;
      for (const LocationRef& child : location->children) {
        std::string own_name, own_file;
        find_parts(child, depth + 1, visits, own_name, own_file);
        if (first_name.empty()) first_name = own_name;
        if (own_file.empty()) continue;
        first_name = std::move(own_name);
        file = std::move(own_file);
        break;
      }
      if (first_name.size() > name.size()) name = std::move(first_name);
      return;
    }
    case Location::Kind::kCallSite:
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
