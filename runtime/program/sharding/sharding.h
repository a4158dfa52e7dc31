// SPDX-License-Identifier: Apache-2.0
// Shardings: which part of a tensor each device of a mesh holds. The model is Shardy's.
//
// A mesh arranges partitions along named axes, row major: position p of a mesh without device ids
// is partition p, else partition device_ids[p]. A dimension of n elements cut by axes of k
// partitions in all has blocks of ceil(n / k) elements, the last ones short or empty; a device that
// pads holds ceil(n / k) all the same. In a list of axes the first is the major one. A sub-axis
// "x":(m)k of an axis of n reshapes it to m x k x n/(mk) and takes the middle. A maximal mesh (no
// axes, one device id) puts a whole tensor on one partition.
//
// Plain values and pure functions; any thread. Values are as they were written: `check` says
// whether they mean something, `canonical` gives the one spelling of equal ones. Errors are
// INVALID_ARGUMENT and name the axis, the dimension and the numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/base/status.h"

namespace hekla::sharding {

inline constexpr size_t kMaxAxes = 64;
inline constexpr int64_t kMaxDevices = int64_t{1} << 20;

struct Axis {
  std::string name;
  int64_t size = 1;
  bool operator==(const Axis&) const = default;
};

struct Mesh {
  std::vector<Axis> axes;
  // The partition at each position; empty: 0, 1, 2 ...
  std::vector<int64_t> device_ids;

  bool is_maximal() const { return axes.empty() && device_ids.size() == 1; }
  // Null when there is none.
  const Axis* find(std::string_view name) const;
  bool operator==(const Mesh&) const = default;
};

struct SubAxis {
  int64_t pre_size = 1;  // product of the parts of the axis that are more major
  int64_t size = 1;
  bool operator==(const SubAxis&) const = default;
};

// An axis of the mesh, or a part of it.
struct AxisRef {
  std::string name;
  std::optional<SubAxis> sub;
  bool operator==(const AxisRef&) const = default;
};

struct DimensionSharding {
  std::vector<AxisRef> axes;
  // Propagation may append axes.
  bool is_open = false;
  // Lower ones are propagated first; absent is 0.
  std::optional<int64_t> priority;
  bool operator==(const DimensionSharding&) const = default;
};

struct TensorSharding {
  // The symbol of a mesh of the module, or the mesh itself.
  std::variant<std::string, Mesh> mesh;
  // One per dimension; none with a maximal mesh.
  std::vector<DimensionSharding> dimensions;
  // Axes that propagation may not use for this tensor.
  std::vector<AxisRef> replicated;
  // The tensor is the sum, over these axes, of what the devices hold.
  std::vector<AxisRef> unreduced;
  // Another way to combine them, by Shardy's number; nothing here interprets it.
  std::optional<int64_t> reduction_kind;

  const std::string* mesh_name() const { return std::get_if<std::string>(&mesh); }
  const Mesh* inline_mesh() const { return std::get_if<Mesh>(&mesh); }
  bool operator==(const TensorSharding&) const = default;
};

// Of the operands or results of an operation, in order.
struct ShardingList {
  std::vector<TensorSharding> values;
  bool operator==(const ShardingList&) const = default;
};

// The axes that a manual computation takes charge of.
struct ManualAxes {
  std::vector<std::string> names;
  bool operator==(const ManualAxes&) const = default;
};

// How an operation's dimensions correspond: each dimension is a product of factors, major to minor,
// and dimensions with a factor in common may be cut alike.
struct ShardingRule {
  using Dimension = std::vector<int64_t>;  // numbers of factors, at least one
  using Tensor = std::vector<Dimension>;
  std::vector<int64_t> factor_sizes;
  std::vector<Tensor> operands;
  std::vector<Tensor> results;
  std::vector<int64_t> reduction;
  std::vector<int64_t> need_replication;
  std::vector<int64_t> permutation;
  std::vector<int64_t> blocked_propagation;
  bool is_custom = false;
  bool operator==(const ShardingRule&) const = default;
};

struct AxisRefList {
  std::vector<AxisRef> axes;
  bool operator==(const AxisRefList&) const = default;
};

struct AxisRefLists {
  std::vector<AxisRefList> lists;
  bool operator==(const AxisRefLists&) const = default;
};

struct AllToAll {
  std::vector<AxisRef> axes;
  int64_t source_dimension = 0;
  int64_t target_dimension = 0;
  bool operator==(const AllToAll&) const = default;
};

struct AllToAllList {
  std::vector<AllToAll> values;
  bool operator==(const AllToAllList&) const = default;
};

// Every attribute of Shardy's dialect: those that operations have, then what they consist of.
using Attribute =
    std::variant<Mesh, TensorSharding, ShardingList, ManualAxes, ShardingRule, AxisRefList,
                 AxisRefLists, AllToAll, AllToAllList, Axis, SubAxis, AxisRef, DimensionSharding,
                 ShardingRule::Dimension, ShardingRule::Tensor>;

// Partitions of a mesh that passed `check`; 1 for a maximal one.
int64_t device_count(const Mesh& mesh);

// Two axes of one name, an empty name, a size below 1, too many axes or devices; device ids that
// are not the numbers 0 ... n-1, each once (in a maximal mesh: one number that is not negative).
Status check(const Mesh& mesh);
// The mesh's errors, and: another number of dimensions than `rank`, an axis that the mesh lacks, a
// sub-axis that does not divide its axis, axes used twice or sub-axes that overlap, a priority of
// a closed dimension without axes. `mesh` is what the sharding's mesh stands for.
Status check(const TensorSharding& sharding, const Mesh& mesh, size_t rank);
Status check(const ManualAxes& axes, const Mesh& mesh);

// Of what passed `check`: contiguous sub-axes are joined, sub-axes that are their whole
// axis are the axis; replicated and unreduced axes, which are sets, are in the order of the mesh;
// device ids 0, 1, 2 ... are left out, except in a maximal mesh.
Mesh canonical(Mesh mesh);
TensorSharding canonical(TensorSharding sharding, const Mesh& mesh);
ManualAxes canonical(ManualAxes axes, const Mesh& mesh);

// In how many parts axes cut a dimension. All must be the mesh's.
int64_t part_count(std::span<const AxisRef> axes, const Mesh& mesh);
// Which of them the partition at a position of the mesh holds.
int64_t part_index(std::span<const AxisRef> axes, const Mesh& mesh, int64_t position);

// Part of a tensor in its global coordinates; both lists have the tensor's rank. A box without
// elements (some size 0) and the box of a scalar (rank 0, one element) are boxes.
struct Box {
  Dims start;
  Dims size;
  bool operator==(const Box&) const = default;
};
struct DeviceBox {
  int64_t device = 0;
  Box box;
  bool operator==(const DeviceBox&) const = default;
};

// Part i of n elements in `parts` blocks of ceil(n / parts).
struct Block {
  int64_t start = 0;
  int64_t size = 0;
};
Block block_of(int64_t n, int64_t parts, int64_t i);

// Sizes in a device's memory, padding included: ceil(n / k) of each dimension. Errors: check's, and
// a negative size.
Result<Dims> local_shape(const TensorSharding& sharding, const Mesh& mesh, const Dims& shape);
// What each position of the mesh holds; one box with a maximal mesh.
Result<std::vector<Box>> position_boxes(const TensorSharding& sharding, const Mesh& mesh,
                                        const Dims& shape);
// What each partition holds, ascending by partition; with a maximal mesh one alone holds anything.
Result<std::vector<DeviceBox>> device_boxes(const TensorSharding& sharding, const Mesh& mesh,
                                            const Dims& shape);

}  // namespace hekla::sharding
