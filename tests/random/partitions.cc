// SPDX-License-Identifier: Apache-2.0
#include "tests/random/partitions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tests/random/manual.h"
#include "tests/random/random.h"

namespace hekla::testing {
namespace {

using ir::OpCode;
using sharding::AxisRef;
using sharding::Box;
using sharding::HloSharding;
using sharding::TensorSharding;

constexpr const char* kMesh = "mesh";

// Of the mesh's axes but the manual one, split into primes: what one tensor may be cut by.
std::vector<AxisRef> prime_axes(const sharding::Mesh& mesh) {
  std::vector<AxisRef> axes;
  for (const sharding::Axis& axis : mesh.axes) {
    if (axis.name == kManualAxis) continue;
    int64_t before = 1;
    for (int64_t rest = axis.size; rest > 1;) {
      int64_t prime = 2;
      while (rest % prime != 0) ++prime;
      AxisRef ref{axis.name, {}};
      if (prime != axis.size) ref.sub = sharding::SubAxis{before, prime};
      axes.push_back(std::move(ref));
      before *= prime;
      rest /= prime;
    }
  }
  return axes;
}

// `has_addends`: axes may be drawn along which the value is left as a sum of addends.
TensorSharding random_sharding(Random& random, const sharding::Mesh& mesh, size_t rank,
                               bool is_constraint, bool has_addends = false) {
  std::vector<AxisRef> free = prime_axes(mesh);
  random.shuffle(free);
  TensorSharding sharding;
  sharding.mesh = std::string(kMesh);
  sharding.dimensions.resize(rank);
  for (AxisRef& axis : free) {
    if (has_addends && random.chance(20)) {
      sharding.unreduced.push_back(std::move(axis));
      continue;
    }
    if (rank == 0 || random.chance(30)) continue;
    const auto d = static_cast<size_t>(random.below(static_cast<int64_t>(rank)));
    sharding.dimensions[d].axes.push_back(std::move(axis));
  }
  if (is_constraint) {
    for (sharding::DimensionSharding& dimension : sharding.dimensions) {
      dimension.is_open = random.chance(40);
      if (!dimension.axes.empty() && random.chance(20)) dimension.priority = random.below(3);
    }
  }
  return sharding::canonical(std::move(sharding), mesh);
}

sharding::Mesh random_mesh(Random& random) {
  static const std::vector<std::vector<int64_t>> kShapes = {
      {1},    {2}, {3}, {4},    {2, 2}, {5},    {6},       {2, 3},
      {3, 2}, {7}, {8}, {2, 4}, {4, 2}, {8, 1}, {2, 2, 2}, {2, 1, 3},
  };
  sharding::Mesh mesh;
  int64_t partitions = 1;
  for (int64_t size : random.pick(kShapes)) {
    mesh.axes.push_back({std::string(1, static_cast<char>('x' + mesh.axes.size())), size});
    partitions *= size;
  }
  if (partitions * 2 <= kMostPartitions && random.chance(60)) {
    const int64_t place = random.below(static_cast<int64_t>(mesh.axes.size()) + 1);
    mesh.axes.insert(mesh.axes.begin() + place, {kManualAxis, 2});
    partitions *= 2;
  }
  if (random.chance(25)) {
    for (int64_t i = 0; i < partitions; ++i) mesh.device_ids.push_back(i);
    random.shuffle(mesh.device_ids);
    mesh = sharding::canonical(std::move(mesh));
  }
  return mesh;
}

bool may_be_cut(const ir::Type& type) { return type.is_static_tensor(); }

void constrain(ir::Region& region, const sharding::Mesh& mesh, Random& random) {
  for (const auto& block : region.blocks()) {
    std::vector<ir::Operation*> operations;
    for (const auto& op : block->operations()) operations.push_back(op.get());
    for (size_t k = 0; k + 1 < operations.size(); ++k) {
      ir::Operation& op = *operations[k];
      if (op.code() == OpCode::kWhile || op.code() == OpCode::kCase || op.code() == OpCode::kIf) {
        for (size_t r = 0; r < op.region_count(); ++r) constrain(op.region(r), mesh, random);
      }
      for (size_t r = 0; r < op.result_count(); ++r) {
        ir::Value* value = op.result(r);
        if (!may_be_cut(value->type()) || !random.chance(20)) continue;
        ir::AttributeMap attributes;
        // Addends of integers only: their sums have the same bits in any order, and so has what
        // is computed of addends by distributing.
        attributes.set("sharding",
                       ir::ShardingValue{random_sharding(random, mesh, value->type().dims().size(),
                                                         true, is_integer(value->type().dtype()))});
        ir::Operation* constraint = block->insert_before(
            operations[k + 1],
            std::make_unique<ir::Operation>(
                OpCode::kSdyShardingConstraint, std::vector<ir::Value*>{},
                std::vector<ir::Type>{value->type()}, std::move(attributes), op.location()));
        value->replace_all_uses_with(constraint->result());
        constraint->set_operands({value});
      }
    }
  }
}

void replace_partition_ids(ir::Region& region) {
  for (const auto& block : region.blocks()) {
    std::vector<ir::Operation*> operations;
    for (const auto& op : block->operations()) operations.push_back(op.get());
    for (ir::Operation* op : operations) {
      for (size_t r = 0; r < op->region_count(); ++r) replace_partition_ids(op->region(r));
      if (op->code() != OpCode::kPartitionId) continue;
      auto replica =
          std::make_unique<ir::Operation>(OpCode::kReplicaId, std::vector<ir::Value*>{},
                                          op->result_types(), ir::AttributeMap(), op->location());
      ir::Operation* placed = block->insert_before(op, std::move(replica));
      op->result()->replace_all_uses_with(placed->result());
      block->erase(op);
    }
  }
}

// Calls visit(offset in the part's memory, offset in the whole, elements) for each row of the box,
// contiguous in both.
void for_each_row(const Box& box, const Dims& local, const Dims& whole,
                  const std::function<void(int64_t, int64_t, int64_t)>& visit) {
  if (whole.empty()) return visit(0, 0, 1);
  // Of millions of rows without elements there is none.
  if (std::find(box.size.begin(), box.size.end(), 0) != box.size.end()) return;
  const std::function<void(size_t, int64_t, int64_t)> walk = [&](size_t d, int64_t at, int64_t in) {
    if (d + 1 == whole.size()) {
      if (box.size[d] > 0) visit(at * local[d], in * whole[d] + box.start[d], box.size[d]);
      return;
    }
    for (int64_t i = 0; i < box.size[d]; ++i) {
      walk(d + 1, at * local[d] + i, in * whole[d] + box.start[d] + i);
    }
  };
  walk(0, 0, 0);
}

// How an array lies on the partitions.
struct Parts {
  Dims local;
  std::vector<Box> boxes;  // by partition
};

Result<Parts> parts_of(const Dims& whole, const HloSharding& sharding, size_t partitions) {
  Parts parts;
  HEKLA_ASSIGN_OR_RETURN(parts.local, sharding::local_shape(sharding, whole));
  HEKLA_ASSIGN_OR_RETURN(const auto boxes,
                         sharding::device_boxes(sharding, static_cast<int64_t>(partitions), whole));
  parts.boxes.resize(partitions);
  for (const sharding::DeviceBox& one : boxes) {
    parts.boxes[static_cast<size_t>(one.device)] = one.box;
  }
  return parts;
}

}  // namespace

void shard_program(ir::Module& module, uint64_t seed) {
  Random random(seed ^ 0x5ead);
  // 0 on one device, and refused where arrays are cut: replica_id is 0 on both.
  for (const auto& function : module.functions) replace_partition_ids(function->body());
  const sharding::Mesh mesh = random_mesh(random);
  module.meshes = {{kMesh, mesh, {}}};
  ir::Function& entry = *module.entry();
  const auto cut = [&](const std::vector<ir::Type>& types,
                       std::vector<ir::AttributeMap>& attributes) {
    attributes.resize(types.size());
    for (size_t i = 0; i < types.size(); ++i) {
      if (!may_be_cut(types[i]) || random.chance(25)) continue;
      attributes[i].set("sdy.sharding", ir::ShardingValue{random_sharding(
                                            random, mesh, types[i].dims().size(), false)});
    }
  };
  cut(entry.type.elements(), entry.argument_attributes);
  cut(entry.type.results(), entry.result_attributes);
  constrain(entry.body(), mesh, random);
}

int64_t partition_count(const ir::Module& module) {
  return module.meshes.empty() ? 1 : sharding::device_count(module.meshes.front().value);
}

Result<std::vector<HostArray>> take_apart(const HostArray& whole, const HloSharding& sharding,
                                          int64_t partitions) {
  HEKLA_ASSIGN_OR_RETURN(const Parts parts,
                         parts_of(whole.dims(), sharding, static_cast<size_t>(partitions)));
  const auto width = static_cast<size_t>(dtype_bytes(whole.dtype()));
  std::vector<HostArray> made;
  for (const Box& box : parts.boxes) {
    HostArray part(whole.dtype(), parts.local);
    std::byte* bytes = part.mutable_data();
    // NaN, -1: what is read shows. Types of less than a byte have no such value in all bits.
    const int garbage = dtype_bits(whole.dtype()) < 8 ? 1 : 0xff;
    if (part.size() > 0) std::memset(bytes, garbage, static_cast<size_t>(part.size_bytes()));
    for_each_row(box, parts.local, whole.dims(), [&](int64_t at, int64_t in, int64_t count) {
      std::memcpy(bytes + static_cast<size_t>(at) * width,
                  whole.data() + static_cast<size_t>(in) * width,
                  static_cast<size_t>(count) * width);
    });
    made.push_back(std::move(part));
  }
  return made;
}

Result<HostArray> put_together(const std::vector<HostArray>& parts, const Dims& whole,
                               const HloSharding& sharding) {
  HEKLA_ASSIGN_OR_RETURN(const Parts known, parts_of(whole, sharding, parts.size()));
  HostArray made(parts.front().dtype(), whole);
  const auto width = static_cast<size_t>(dtype_bytes(made.dtype()));
  std::byte* bytes = made.mutable_data();
  std::vector<int64_t> holder(static_cast<size_t>(made.size()), -1);
  std::string wrong;
  for (size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].dims() != known.local || parts[p].dtype() != made.dtype()) {
      return internal_error("partition {} gave {}, not {}", p, parts[p].shape(),
                            shape_string(made.dtype(), known.local));
    }
    for_each_row(known.boxes[p], known.local, whole, [&](int64_t at, int64_t in, int64_t count) {
      const std::byte* from = parts[p].data() + static_cast<size_t>(at) * width;
      for (int64_t i = 0; i < count; ++i) {
        std::byte* to = bytes + static_cast<size_t>(in + i) * width;
        const std::byte* element = from + static_cast<size_t>(i) * width;
        int64_t& first = holder[static_cast<size_t>(in + i)];
        if (first < 0) {
          first = static_cast<int64_t>(p);
          std::memcpy(to, element, width);
        } else if (std::memcmp(to, element, width) != 0 && wrong.empty()) {
          wrong = fmt::format("partitions {} and {} hold element {} and do not agree about it",
                              first, p, in + i);
        }
      }
    });
  }
  if (!wrong.empty()) return internal_error("{}", wrong);
  return made;
}

}  // namespace hekla::testing
