// SPDX-License-Identifier: Apache-2.0
// Any text through the reader of Shardy's attributes. What is read must be written and read back to
// the same value; a sharding on its own mesh that `check` accepts must have a canonical form that
// cuts a tensor alike, and boxes that cover it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string_view>

#include "runtime/program/sharding/text.h"

namespace {

using namespace hekla;
using namespace hekla::sharding;

[[noreturn]] void fail(const char* what, const std::string& detail) {
  std::fprintf(stderr, "%s: %s\n", what, detail.c_str());
  std::abort();
}

void check_boxes(const TensorSharding& sharding, const Mesh& mesh) {
  const Dims shape(mesh.is_maximal() ? 1 : sharding.dimensions.size(), 3);
  if (!check(sharding, mesh, shape.size()).ok()) return;
  if (shape.size() > 6 || device_count(mesh) > 256) return;
  const Result<std::vector<DeviceBox>> boxes = device_boxes(sharding, mesh, shape);
  const Result<std::vector<DeviceBox>> simple =
      device_boxes(canonical(sharding, mesh), mesh, shape);
  if (!boxes.ok() || !simple.ok()) fail("no boxes", to_text(sharding));
  if (!(*boxes == *simple)) fail("the canonical form differs", to_text(sharding));
  int64_t total = 1;
  for (const int64_t n : shape) total *= n;
  std::set<Dims> seen;
  for (const DeviceBox& box : *boxes) {
    int64_t elements = 1;
    for (const int64_t n : box.box.size) elements *= n;
    if (elements > 0 && seen.insert(box.box.start).second) total -= elements;
  }
  if (total != 0) fail("not a partition", to_text(sharding));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<sharding::Attribute> value = parse_attribute(text);
  if (!value.ok()) {
    const Status& status = value.status();
    if (status.code() != StatusCode::kInvalidArgument ||
        !status.message().starts_with("sharding text at ")) {
      fail("not a clear error", status.to_string());
    }
    return 0;
  }
  const std::string written = attribute_text(*value);
  const Result<sharding::Attribute> again = parse_attribute(written);
  if (!again.ok() || !(*again == *value)) fail("does not survive writing", written);
  if (const Mesh* mesh = std::get_if<Mesh>(&*value); mesh != nullptr && check(*mesh).ok()) {
    if (!check(canonical(*mesh)).ok()) fail("the canonical mesh is wrong", written);
  }
  if (const auto* sharding = std::get_if<TensorSharding>(&*value)) {
    const Mesh fallback{{{"x", 2}, {"y", 4}, {"z", 12}}, {}};
    check_boxes(*sharding, sharding->inline_mesh() ? *sharding->inline_mesh() : fallback);
  }
  return 0;
}
