// SPDX-License-Identifier: Apache-2.0
// Any text through the reader of shardings. What is read must be written and read back to the same
// sharding, and must give boxes that cover a tensor without overlap.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "runtime/checkpoint/sharding/box.h"
#include "runtime/checkpoint/sharding/mesh.h"

namespace {

using namespace hekla;
using namespace hekla::checkpoint;

[[noreturn]] void fail(const char* what, const std::string& detail) {
  std::fprintf(stderr, "%s: %s\n", what, detail.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Sharding> sharding = parse_sharding(text);
  if (!sharding.ok()) {
    const Status& status = sharding.status();
    if (status.code() != StatusCode::kInvalidArgument || status.message().empty()) {
      fail("not a clear error", status.to_string());
    }
    return 0;
  }
  const Result<Sharding> again = parse_sharding(sharding_text(*sharding));
  if (!again.ok() || !(*again == *sharding)) {
    fail("does not survive writing", sharding_text(*sharding));
  }
  if (device_count(sharding->mesh) > 256) return 0;
  const Dims shape(sharding->spec.dims.size() > 6 ? 32 : sharding->spec.dims.size(), 2);
  const Result<std::vector<DeviceBox>> boxes = device_boxes(*sharding, shape);
  if (!boxes.ok()) fail("no boxes", boxes.status().to_string());
  std::vector<Holding> holdings;
  for (const DeviceBox& box : *boxes) holdings.push_back({0, box.box});
  const auto held = held_boxes(holdings, shape);
  if (!held.ok()) fail("not a partition", held.status().to_string());
  return 0;
}
