// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/names.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_set>

#include "runtime/checkpoint/format/stored_type.h"

namespace hekla::checkpoint {
namespace {

// For messages: a long name is cut, control characters are shown as '?'.
std::string shown(std::string_view name) {
  std::string text(name.substr(0, 80));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return name.size() > 80 ? text + "..." : text;
}

Status check_parts(std::string_view name, std::string_view what) {
  if (name.empty()) return invalid_argument("a {} is empty; give it a name", what);
  if (name.size() > kMaxNameBytes) {
    return invalid_argument("the {} '{}' has {} bytes, the limit is {}", what, shown(name),
                            name.size(), kMaxNameBytes);
  }
  if (!is_utf8(name)) return invalid_argument("the {} '{}' is not UTF-8", what, shown(name));
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      return invalid_argument("the {} '{}' contains the control character 0x{:02x}", what,
                              shown(name), static_cast<unsigned>(c));
    }
  }
  size_t parts = 0;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") {
      return invalid_argument(
          "the {} '{}' has the part '{}'; parts between '/' must not be empty, "
          "'.' or '..'",
          what, shown(name), part);
    }
    ++parts;
    begin = end + 1;
  }
  if (parts > kMaxNameParts) {
    return invalid_argument("the {} '{}' has {} levels, the limit is {}", what, shown(name), parts,
                            kMaxNameParts);
  }
  return ok_status();
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const int more = lead < 0x80   ? 0
                     : lead < 0xc2 ? -1
                     : lead < 0xe0 ? 1
                     : lead < 0xf0 ? 2
                     : lead < 0xf5 ? 3
                                   : -1;
    if (more < 0 || i + more >= text.size() + (more == 0)) return false;
    uint32_t code = more == 0 ? lead : lead & (0x3f >> more);
    for (int k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    if ((more == 2 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) ||
        (more == 3 && (code < 0x10000 || code > 0x10ffff))) {
      return false;
    }
    i += 1 + more;
  }
  return true;
}

Status check_name(std::string_view name) { return check_parts(name, "tensor name"); }

Status check_path(std::string_view path) { return check_parts(path, "file path"); }

Status check_tensors(std::span<const TensorInfo> tensors) {
  if (tensors.size() > static_cast<size_t>(INT32_MAX)) {
    return invalid_argument("{} tensors are above the limit {}", tensors.size(), INT32_MAX);
  }
  // Plans and indices have their tensors in the order of names: then no table of names is needed.
  const auto out_of_order = [](const TensorInfo& a, const TensorInfo& b) {
    return a.name >= b.name;
  };
  const bool is_sorted =
      std::adjacent_find(tensors.begin(), tensors.end(), out_of_order) == tensors.end();
  std::unordered_set<std::string_view> names;
  if (!is_sorted) names.reserve(tensors.size());
  const auto is_tensor = [&](std::string_view name) {
    if (!is_sorted) return names.contains(name);
    const auto found =
        std::lower_bound(tensors.begin(), tensors.end(), name,
                         [](const TensorInfo& a, std::string_view b) { return a.name < b; });
    return found != tensors.end() && found->name == name;
  };
  for (const TensorInfo& tensor : tensors) {
    HEKLA_RETURN_IF_ERROR(check_name(tensor.name));
    if (!is_sorted && !names.insert(tensor.name).second) {
      return invalid_argument("two tensors have the name '{}'", shown(tensor.name));
    }
    if (stored_type(tensor.dtype) == nullptr) {
      return invalid_argument("tensor '{}' has no element type", shown(tensor.name));
    }
    if (tensor.shape.size() > kMaxRank) {
      return invalid_argument("tensor '{}' has rank {}, the limit is {}; reshape it",
                              shown(tensor.name), tensor.shape.size(), kMaxRank);
    }
    if (const auto bytes = checked_bytes(tensor.dtype, tensor.shape); !bytes.ok()) {
      return bytes.status().with_context("tensor '" + shown(tensor.name) + "'");
    }
    if (!is_utf8(tensor.spec) || tensor.spec.size() > kMaxNameBytes) {
      return invalid_argument("the sharding text of tensor '{}' is not UTF-8 of at most {} bytes",
                              shown(tensor.name), kMaxNameBytes);
    }
  }
  std::string_view last;  // its groups have been looked at
  for (const TensorInfo& tensor : tensors) {
    const std::string_view name = tensor.name;
    const auto differ = std::mismatch(name.begin(), name.end(), last.begin(), last.end()).first;
    size_t slash = name.find('/', static_cast<size_t>(differ - name.begin()));
    last = name;
    for (; slash != name.npos; slash = name.find('/', slash + 1)) {
      if (is_tensor(name.substr(0, slash))) {
        return invalid_argument(
            "tensor '{}' is also the group of tensor '{}'; one of them needs "
            "another name",
            shown(name.substr(0, slash)), shown(name));
      }
    }
  }
  return ok_status();
}

}  // namespace hekla::checkpoint
