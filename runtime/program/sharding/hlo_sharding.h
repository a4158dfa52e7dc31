// SPDX-License-Identifier: Apache-2.0
// HloSharding: GSPMD's form of shardings, which PJRT clients exchange (xla.OpSharding) and
// programs without Shardy carry (`mhlo.sharding`).
//
// A tiled sharding gives each dimension of the tensor a number of tiles and lists the partitions of
// the tiles row major; trailing dimensions of the list number copies, the partitions of a manual
// region, or partial sums. The list is explicit, or an iota: 0 ... n-1 reshaped to `iota_dims`,
// transposed by `iota_perm` and flattened. Tiles are blocks of ceil(n / k) as in sharding.h.
//
// Plain values and pure functions; any thread. Text and bytes may be anything: errors are
// INVALID_ARGUMENT with the place, or UNIMPLEMENTED for forms that only newer writers make; time
// and memory are bounded by the input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/program/sharding/sharding.h"

namespace hekla::sharding {

struct HloSharding {
  // The numbers of OpSharding.Type.
  enum class Kind : uint8_t {
    kReplicated = 0,
    kMaximal = 1,  // all on one partition
    kTuple = 2,
    kTiled = 3,
    kManual = 4,
    kUnknown = 5,
    kUnreduced = 6,  // partial sums over all partitions
  };
  // Shardings of one group are to be the same, or to be compatible where `is_like`.
  struct Group {
    int64_t id = 0;
    bool is_like = false;
    bool operator==(const Group&) const = default;
  };

  Kind kind = Kind::kReplicated;
  std::vector<int64_t> tile_dims;  // of the tensor, then of `subgroups`
  std::vector<int64_t> devices;    // explicit list; the partition of kMaximal
  std::vector<int64_t> iota_dims;
  std::vector<int64_t> iota_perm;  // as long as iota_dims
  // What trailing tile dimensions mean: kReplicated, kManual or kUnreduced. One kReplicated is what
  // the protobuf calls replicate_on_last_tile_dim.
  std::vector<Kind> subgroups;
  std::vector<HloSharding> elements;  // of kTuple; none is a tuple
  std::optional<Group> group;

  bool operator==(const HloSharding&) const = default;
};

Status check(const HloSharding& sharding);

// The partition of each tile, row major. Of a tiled sharding that passed `check`.
std::vector<int64_t> tile_devices(const HloSharding& sharding);

// One spelling for equal shardings: trailing dimensions in the order manual, partial sums, copies,
// each once and above 1; copies ascending; an iota where the list is one, of the fewest dimensions;
// {replicated}, {manual} or {unreduced} where nothing else is said. Of what passed `check`.
HloSharding canonical(HloSharding sharding);

// As in sharding.h, for every partition that the sharding names; a replicated, manual or unreduced
// one names partitions 0 ... partitions-1, with the whole shape each. Errors: check's, another
// rank, a tuple, an unknown sharding.
Result<std::vector<DeviceBox>> device_boxes(const HloSharding& sharding, int64_t partitions,
                                            const Dims& shape);
Result<Dims> local_shape(const HloSharding& sharding, const Dims& shape);

// XLA's text: {devices=[2,4]<=[8]}. Metadata is read over. What is printed reads back to an equal
// value if it passed `check`.
std::string to_text(const HloSharding& sharding);
Result<HloSharding> parse_hlo_sharding(std::string_view text);

// The bytes of an xla.OpSharding, in the order of its fields.
std::string encode_op_sharding(const HloSharding& sharding);
Result<HloSharding> decode_op_sharding(std::string_view bytes);

// The value of an `mhlo.sharding` attribute: text, or bytes where a list of devices is long.
Result<HloSharding> read_hlo_sharding(std::string_view value);

}  // namespace hekla::sharding
