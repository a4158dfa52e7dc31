// SPDX-License-Identifier: Apache-2.0
// Which collectives the program of one device has, and how many bytes they make a device send.
//
// Bytes are those of rings, on average over the devices: all_gather and all_to_all send a device's
// own part to the others of its group, all_reduce twice (n - 1) / n of its operand, reduce_scatter
// once, permutes what does not stay where it is. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/program/ir/device_groups.h"
#include "runtime/program/ir/ir.h"

namespace hekla::spmd {

struct Collective {
  ir::OpCode code = ir::OpCode::kUnknown;
  std::vector<std::string> locations;  // of what it was made of: sixteen at most
  std::vector<std::string> operands;   // their types
  int64_t group = 1;                   // devices that meet; of permutes, the transfers
  int64_t runs = 1;                    // in one execution
  // Whether the loops around it say how often they run; those that do not count once.
  bool is_counted = true;
  double bytes = 0;  // of one run
};

struct CollectiveReport {
  ir::DeviceGrid grid;
  std::vector<Collective> collectives;  // in the order of the program
  struct Total {
    int64_t count = 0, runs = 0;
    double bytes = 0;
  };
  Total total() const;
  // Of one kind.
  Total total(ir::OpCode code) const;
};

// INVALID_ARGUMENT where its groups do not fit the grid. `meshes` as in device_groups.h.
Result<Collective> collective_of(const ir::Operation& op, const ir::DeviceGrid& grid,
                                 std::span<const ir::Mesh> meshes);

// Of the entry's operations and of all in their regions, as if each branch were taken; calls are
// not followed, and transfers with the host not counted.
Result<CollectiveReport> report_collectives(const ir::Module& module, const ir::DeviceGrid& grid);

// A line for each collective and each kind. JSON:
//   {devices, runs, bytes, kinds: {KIND: {count, runs, bytes}},
//    collectives: [{kind, locations, operands: [type], group, runs, is_counted, bytes}]}
// where `bytes` are those of all runs.
std::string to_text(const CollectiveReport& report);
std::string to_json(const CollectiveReport& report);

}  // namespace hekla::spmd
