// SPDX-License-Identifier: Apache-2.0
// Any bytes as the value of an mhlo.sharding attribute: XLA's text or an OpSharding. What is read
// must survive writing in both forms, its canonical form must mean the same, and converted to a
// mesh of its own and back it must be the same.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "runtime/program/sharding/convert.h"
#include "runtime/program/sharding/text.h"

namespace {

using namespace hekla;
using namespace hekla::sharding;

[[noreturn]] void fail(const char* what, const std::string& detail) {
  std::fprintf(stderr, "%s: %s\n", what, detail.c_str());
  std::abort();
}

void check_meaning(const HloSharding& sharding) {
  if (sharding.kind != HloSharding::Kind::kTiled) return;
  int64_t count = 1;
  for (const int64_t tiles : sharding.tile_dims) count *= tiles;
  const size_t rank = sharding.tile_dims.size() - sharding.subgroups.size();
  if (count > 256 || rank > 6) return;
  const HloSharding simple = canonical(sharding);
  if (!check(simple).ok() || !(canonical(simple) == simple)) {
    fail("not canonical", to_text(sharding));
  }
  const Dims shape(rank, 5);
  const auto boxes = device_boxes(sharding, count, shape);
  const auto same = device_boxes(simple, count, shape);
  if (!boxes.ok() || !same.ok() || !(*boxes == *same)) fail("other boxes", to_text(sharding));
  const Result<Mesh> mesh = common_mesh(std::array{sharding}, count);
  if (!mesh.ok()) return;  // not over partitions 0 to count - 1
  const Result<ShardingOnMesh> shardy = from_hlo(sharding, *mesh, rank);
  if (!shardy.ok()) fail("no sharding on its own mesh", shardy.status().to_string());
  const auto again = to_hlo(shardy->sharding, *mesh, rank, shardy->manual);
  if (!again.ok()) fail("not converted back", again.status().to_string());
  HloSharding expected = simple;
  expected.group.reset();
  if (!(*again == expected)) fail("converted back differently", to_text(sharding));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view value(reinterpret_cast<const char*>(data), size);
  const Result<HloSharding> sharding = read_hlo_sharding(value);
  if (!sharding.ok()) {
    const Status& status = sharding.status();
    const bool is_clear = status.code() == StatusCode::kInvalidArgument ||
                          status.code() == StatusCode::kUnimplemented;
    if (!is_clear || status.message().empty()) fail("not a clear error", status.to_string());
    return 0;
  }
  const Result<HloSharding> text = parse_hlo_sharding(to_text(*sharding));
  if (!text.ok() || !(*text == *sharding)) fail("text does not survive", to_text(*sharding));
  const Result<HloSharding> bytes = decode_op_sharding(encode_op_sharding(*sharding));
  if (!bytes.ok() || !(*bytes == *sharding)) fail("bytes do not survive", to_text(*sharding));
  check_meaning(*sharding);
  return 0;
}
