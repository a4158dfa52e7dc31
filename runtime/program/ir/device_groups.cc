// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/device_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "runtime/program/ir/infer_support.h"

namespace hekla::ir {
namespace {

using Ids = std::vector<std::vector<int64_t>>;
using infer::op_error;

// How many ids there are, and what they are called.
struct IdSpace {
  int64_t count;
  std::string_view noun;
};

IdSpace id_space(GroupMode mode, const DeviceGrid& grid) {
  switch (mode) {
    case GroupMode::kCrossReplica:
    case GroupMode::kCrossReplicaAndPartition:
      return {grid.replicas, "replica"};
    case GroupMode::kCrossPartition:
      return {grid.partitions, "partition"};
    case GroupMode::kFlattenedIds:
      break;
  }
  return {grid.size(), "device"};
}

// Rows of a matrix of i64.
Result<Ids> matrix(const Operation& op, std::string_view name) {
  const DenseValue* dense = op.attribute(name).get<DenseValue>();
  if (dense == nullptr || dense->type.rank() != 2 || dense->type.dtype() != DType::kI64) {
    return op_error(op, "{} must be a matrix of i64", name);
  }
  // Rows without columns hold no id.
  if (dense->type.dims()[1] == 0) return Ids{};
  HEKLA_ASSIGN_OR_RETURN(HostArray values, dense->expand());
  const size_t columns = static_cast<size_t>(dense->type.dims()[1]);
  Ids rows(static_cast<size_t>(dense->type.dims()[0]));
  const int64_t* next = values.as<int64_t>();
  for (auto& row : rows) {
    row.assign(next, next + columns);
    next += columns;
  }
  return rows;
}

Result<Ids> mesh_groups(const sharding::MeshAxes& axes, std::span<const Mesh> meshes) {
  const sharding::Mesh* mesh = std::get_if<sharding::Mesh>(&axes.mesh);
  if (const auto* name = std::get_if<std::string>(&axes.mesh)) {
    for (const Mesh& candidate : meshes) {
      if (candidate.name == *name) mesh = &candidate.value;
    }
    if (mesh == nullptr) return invalid_argument("there is no mesh @{}", *name);
  }
  return sharding::device_groups(axes.axes, *mesh);
}

Status check_ids(const Operation& op, const Ids& groups, const IdSpace& space, bool covers) {
  std::unordered_set<int64_t> seen;
  for (const auto& group : groups) {
    for (int64_t id : group) {
      if (id < 0 || id >= space.count) {
        return op_error(op, "replica_groups names {} {}; the launch has {} of them", space.noun, id,
                        space.count);
      }
      if (!seen.insert(id).second) {
        return op_error(op, "replica_groups names {} {} twice", space.noun, id);
      }
    }
  }
  for (int64_t id = 0; covers && id < space.count; ++id) {
    if (!seen.contains(id)) {
      return op_error(op, "{} {} of {} is in none of the replica_groups", space.noun, id,
                      space.count);
    }
  }
  return ok_status();
}

// Groups of ids as groups of devices.
Ids devices_of(const Ids& ids, GroupMode mode, const DeviceGrid& grid) {
  Ids groups;
  const auto device = [&](int64_t replica, int64_t partition) {
    return replica * grid.partitions + partition;
  };
  for (const auto& group : ids) {
    switch (mode) {
      case GroupMode::kCrossReplica:
        for (int64_t partition = 0; partition < grid.partitions; ++partition) {
          auto& devices = groups.emplace_back();
          for (int64_t replica : group) devices.push_back(device(replica, partition));
        }
        break;
      case GroupMode::kCrossPartition:
        for (int64_t replica = 0; replica < grid.replicas; ++replica) {
          auto& devices = groups.emplace_back();
          for (int64_t partition : group) devices.push_back(device(replica, partition));
        }
        break;
      case GroupMode::kCrossReplicaAndPartition: {
        auto& devices = groups.emplace_back();
        for (int64_t partition = 0; partition < grid.partitions; ++partition) {
          for (int64_t replica : group) devices.push_back(device(replica, partition));
        }
        break;
      }
      case GroupMode::kFlattenedIds:
        groups.push_back(group);
        break;
    }
  }
  return groups;
}

}  // namespace

std::string DeviceGrid::name(int64_t device) const {
  return fmt::format("device {} (replica {}, partition {})", device, device / partitions,
                     device % partitions);
}

bool is_collective(OpCode code) {
  switch (code) {
    case OpCode::kAllGather:
    case OpCode::kAllReduce:
    case OpCode::kAllToAll:
    case OpCode::kCollectiveBroadcast:
    case OpCode::kCollectivePermute:
    case OpCode::kCollectiveReduce:
    case OpCode::kCrossReplicaSum:
    case OpCode::kRecv:
    case OpCode::kReduceScatter:
    case OpCode::kSend:
      return true;
    default:
      return false;
  }
}

bool is_host_transfer(const Operation& op) {
  return (op.code() == OpCode::kSend || op.code() == OpCode::kRecv) &&
         infer::flag_value(op, "is_host_transfer");
}

Result<GroupMode> group_mode(const Operation& op) {
  const auto* channel = op.attribute("channel_handle").get<ChannelHandle>();
  const bool has_channel = channel != nullptr && channel->handle > 0;
  switch (op.code()) {
    case OpCode::kAllGather:
    case OpCode::kAllReduce:
    case OpCode::kCollectiveReduce:
    case OpCode::kReduceScatter: {
      const bool is_global = infer::flag_value(op, "use_global_device_ids");
      if (is_global && !has_channel) {
        return op_error(op, "use_global_device_ids needs a channel_handle above 0");
      }
      if (is_global) return GroupMode::kFlattenedIds;
      return has_channel ? GroupMode::kCrossReplicaAndPartition : GroupMode::kCrossReplica;
    }
    case OpCode::kAllToAll:
    case OpCode::kCollectiveBroadcast:
    case OpCode::kCollectivePermute:
    case OpCode::kRecv:
    case OpCode::kSend:
      return has_channel ? GroupMode::kCrossPartition : GroupMode::kCrossReplica;
    case OpCode::kCrossReplicaSum:
      return GroupMode::kCrossReplica;
    default:
      return internal_error("{} has no groups of devices", op.name());
  }
}

Result<Attribute> groups_as_matrix(const sharding::MeshAxes& axes, std::span<const Mesh> meshes) {
  HEKLA_ASSIGN_OR_RETURN(const Ids groups, mesh_groups(axes, meshes));
  const auto columns = static_cast<int64_t>(groups.empty() ? 0 : groups.front().size());
  const Dims dims = {static_cast<int64_t>(groups.size()), columns};
  HostArray array(DType::kI64, dims);
  int64_t* next = array.mutable_as<int64_t>();
  for (const std::vector<int64_t>& group : groups)
    next = std::copy(group.begin(), group.end(), next);
  return make_dense(Type::tensor(DType::kI64, dims), std::move(array));
}

Result<Ids> device_groups(const Operation& op, const DeviceGrid& grid,
                          std::span<const Mesh> meshes) {
  HEKLA_ASSIGN_OR_RETURN(GroupMode mode, group_mode(op));
  const IdSpace space = id_space(mode, grid);
  const Attribute& attribute = op.attribute("replica_groups");
  Ids ids;
  if (const auto* axes = attribute.get<MeshAxesValue>()) {
    Result<Ids> groups = mesh_groups(axes->value, meshes);
    if (!groups.ok()) return op_error(op, "replica_groups: {}", groups.status().message());
    ids = *std::move(groups);
  } else if (!attribute.is_absent()) {
    HEKLA_ASSIGN_OR_RETURN(ids, matrix(op, "replica_groups"));
  }
  for (auto& group : ids) std::erase(group, -1);
  std::erase_if(ids, [](const auto& group) { return group.empty(); });
  if (ids.empty()) {
    std::vector<int64_t>& all = ids.emplace_back(static_cast<size_t>(space.count));
    std::iota(all.begin(), all.end(), 0);
  }
  const bool covers =
      op.code() != OpCode::kCollectiveBroadcast && op.code() != OpCode::kCollectiveReduce;
  HEKLA_RETURN_IF_ERROR(check_ids(op, ids, space, covers));
  return devices_of(ids, mode, grid);
}

Result<std::vector<std::pair<int64_t, int64_t>>> device_pairs(const Operation& op,
                                                              const DeviceGrid& grid) {
  HEKLA_ASSIGN_OR_RETURN(GroupMode mode, group_mode(op));
  const IdSpace space = id_space(mode, grid);
  std::vector<std::pair<int64_t, int64_t>> pairs;
  if (op.attribute("source_target_pairs").is_absent()) return pairs;
  HEKLA_ASSIGN_OR_RETURN(Ids rows, matrix(op, "source_target_pairs"));
  std::unordered_set<int64_t> sources;
  std::unordered_set<int64_t> targets;
  for (const auto& row : rows) {
    if (row.size() != 2) return op_error(op, "source_target_pairs must have two columns");
    for (int64_t id : row) {
      if (id < 0 || id >= space.count) {
        return op_error(op, "source_target_pairs names {} {}; the launch has {} of them",
                        space.noun, id, space.count);
      }
    }
    if (!sources.insert(row[0]).second) {
      return op_error(op, "{} {} is the source of two source_target_pairs", space.noun, row[0]);
    }
    if (!targets.insert(row[1]).second) {
      return op_error(op, "{} {} is the target of two source_target_pairs", space.noun, row[1]);
    }
  }
  for (const auto& group : devices_of(rows, mode, grid)) pairs.emplace_back(group[0], group[1]);
  return pairs;
}

}  // namespace hekla::ir
