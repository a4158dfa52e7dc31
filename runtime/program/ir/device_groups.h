// SPDX-License-Identifier: Apache-2.0
// Which devices of a launch a collective brings together.
//
// A launch runs on a grid of replicas x partitions; device (r, p) has the number r * partitions +
// p. A collective names replicas, partitions or devices in its replica_groups, as StableHLO's four
// ways of grouping say; here they become groups of device numbers, in the order in which operands
// are gathered and reduced. Pure and thread-safe. INVALID_ARGUMENT names the op, what is wrong in
// its groups and the grid that they do not fit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::ir {

struct DeviceGrid {
  int64_t replicas = 1;
  int64_t partitions = 1;
  int64_t size() const { return replicas * partitions; }
  // "device 3 (replica 1, partition 1)".
  std::string name(int64_t device) const;
  bool operator==(const DeviceGrid&) const = default;
};

// Collectives, send and recv, not what starts and awaits them: where devices wait for each other.
bool is_collective(OpCode code);
// A send or recv whose other end is the host: no device waits for another.
bool is_host_transfer(const Operation& op);
// Of a host transfer in the program of one device: the partition that alone meets the host; others
// send nothing and receive zeros. An integer; absent: each meets it.
inline constexpr const char* kHostPartition = "hekla.host_partition";

enum class GroupMode : uint8_t {
  kCrossReplica,              // the ids are replicas; one such group in each partition
  kCrossPartition,            // the ids are partitions; one such group in each replica
  kCrossReplicaAndPartition,  // the ids are replicas; all their partitions are in the group
  kFlattenedIds,              // the ids are device numbers
};

// By the operation, its channel and use_global_device_ids, which needs a channel.
Result<GroupMode> group_mode(const Operation& op);

// The matrix of ids, a row for each group, that `replica_groups` by the axes of a mesh stand for.
// `meshes` are the module's. INVALID_ARGUMENT: no mesh of that name, axes that it lacks or that
// overlap.
Result<Attribute> groups_as_matrix(const sharding::MeshAxes& axes, std::span<const Mesh> meshes);

// Devices by group, in the order of the group. No replica_groups or an empty matrix: one group of
// all ids. -1 pads short groups. Each id is in one group at most; where a device without a group
// has no meaning (all but collective_broadcast and collective_reduce) all ids are in one.
// `meshes` are the module's, for groups by the axes of one of them.
Result<std::vector<std::vector<int64_t>>> device_groups(const Operation& op, const DeviceGrid& grid,
                                                        std::span<const Mesh> meshes);

// The source and the target of each transfer of collective_permute, send or recv. A device is
// source once at most, and target once at most.
Result<std::vector<std::pair<int64_t, int64_t>>> device_pairs(const Operation& op,
                                                              const DeviceGrid& grid);

}  // namespace hekla::ir
