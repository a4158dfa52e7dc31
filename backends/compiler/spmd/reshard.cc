// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/reshard.h"

#include <algorithm>
#include <map>

#include "backends/compiler/spmd/report.h"

namespace hekla::spmd {

using ir::GraphBuilder;
using ir::OpCode;

namespace {

HostArray numbers(const Dims& dims, const std::vector<int64_t>& values) {
  HostArray array(DType::kI64, dims);
  std::copy(values.begin(), values.end(), array.mutable_as<int64_t>());
  return array;
}

ir::Attribute matrix(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<int64_t> values;
  for (const std::vector<int64_t>& row : rows) values.insert(values.end(), row.begin(), row.end());
  const Dims shape = {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows.front().size())};
  return ir::make_dense(ir::Type::tensor(DType::kI64, shape), numbers(shape, values));
}

// Rows of partitions that hold one array, its parts in order.
std::vector<std::vector<int64_t>> groups_of(const Cut::Dimension& dimension) {
  std::map<int64_t, std::vector<int64_t>> groups;
  for (size_t partition = 0; partition < dimension.part.size(); ++partition) {
    std::vector<int64_t>& members = groups[dimension.group[partition]];
    members.resize(static_cast<size_t>(dimension.parts));
    members[static_cast<size_t>(dimension.part[partition])] = static_cast<int64_t>(partition);
  }
  std::vector<std::vector<int64_t>> rows;
  for (auto& [group, members] : groups) rows.push_back(std::move(members));
  return rows;
}

ir::Type with_dims(const ir::Value& value, Dims dims) {
  return ir::Type::tensor(value.type().element(), std::move(dims));
}

GraphBuilder::Body body_of(OpCode code) {
  return [code](GraphBuilder& body, const GraphBuilder::Values& x) {
    return GraphBuilder::Values{body.binary(code, x[0], x[1])};
  };
}

}  // namespace

ir::Value* Resharder::own_number(GraphBuilder& g, const std::vector<int64_t>& by_partition) const {
  ir::Value* id = g.make(OpCode::kPartitionId, {}, {}, ir::Type::tensor(DType::kUI32, {}));
  id = g.convert(id, DType::kI64);
  ir::Value* table = g.constant(numbers({partitions_}, by_partition));
  return g.reshape(g.dynamic_slice(table, {id}, {1}), {});
}

ir::Value* Resharder::pad_to(GraphBuilder& g, ir::Value* value, const Dims& dims) {
  const Dims now = value->type().dims();
  if (now == dims) return value;
  Dims behind = dims;
  for (size_t i = 0; i < dims.size(); ++i) behind[i] -= now[i];
  return g.pad(value, Dims(dims.size(), 0), behind);
}

ir::Value* Resharder::cut_to(GraphBuilder& g, ir::Value* value, const Dims& dims) {
  if (value->type().dims() == dims) return value;
  return g.slice(value, Dims(dims.size(), 0), dims);
}

// Among the partitions of each group, in its order. `body` folds two scalars, for those that fold.
ir::Operation* Resharder::collective(GraphBuilder& g, OpCode code, ir::Value* value,
                                     const Groups& groups, const ir::Type& type,
                                     ir::AttributeMap attributes, const GraphBuilder::Body& body) {
  attributes.set("channel_handle", ir::ChannelHandle{next_channel_++, 0});
  if (code == OpCode::kCollectivePermute) {
    attributes.set("source_target_pairs", matrix(groups));
  } else if (code == OpCode::kAllToAll) {
    attributes.set("replica_groups", matrix(groups));  // of partitions, in each replica
  } else {
    Groups devices;
    for (int64_t replica = 0; replica < replicas_; ++replica) {
      for (std::vector<int64_t> row : groups) {
        for (int64_t& member : row) member += replica * partitions_;
        devices.push_back(std::move(row));
      }
    }
    attributes.set("replica_groups", matrix(devices));
    attributes.set("use_global_device_ids", ir::BoolValue{true});
  }
  std::vector<GraphBuilder::RegionSpec> regions;
  if (body) {
    const ir::Type scalar = ir::Type::tensor(type.element(), {});
    regions.push_back({{scalar, scalar}, body});
  }
  ir::Operation* op = g.make_op(code, {value}, std::move(attributes), regions, {type});
  collectives_.push_back(op);
  return op;
}

ir::Value* Resharder::all_gather(GraphBuilder& g, ir::Value* value, const Groups& groups,
                                 size_t dimension) {
  Dims dims = value->type().dims();
  dims[dimension] *= static_cast<int64_t>(groups.front().size());
  ir::AttributeMap attributes;
  attributes.set("all_gather_dim", ir::i64_attribute(static_cast<int64_t>(dimension)));
  return collective(g, OpCode::kAllGather, value, groups, with_dims(*value, std::move(dims)),
                    std::move(attributes))
      ->result();
}

ir::Value* Resharder::all_to_all(GraphBuilder& g, ir::Value* value, const Groups& groups,
                                 size_t split, size_t concat) {
  const auto count = static_cast<int64_t>(groups.front().size());
  Dims dims = value->type().dims();
  dims[split] /= count;
  dims[concat] *= count;
  ir::AttributeMap attributes;
  attributes.set("split_dimension", ir::i64_attribute(static_cast<int64_t>(split)));
  attributes.set("concat_dimension", ir::i64_attribute(static_cast<int64_t>(concat)));
  attributes.set("split_count", ir::i64_attribute(count));
  return collective(g, OpCode::kAllToAll, value, groups, with_dims(*value, std::move(dims)),
                    std::move(attributes))
      ->result();
}

ir::Value* Resharder::gather(GraphBuilder& g, ir::Value* part, const Cut& cut, const Dims& whole) {
  ir::Value* value = part;
  if (cut.sum.parts > 1) {
    value = collective(g, OpCode::kAllReduce, value, groups_of(cut.sum), value->type(), {},
                       body_of(OpCode::kAdd))
                ->result();
  }
  for (size_t i = 0; i < cut.dimensions.size(); ++i) {
    if (cut.dimensions[i].parts == 1) continue;
    value = all_gather(g, value, groups_of(cut.dimensions[i]), i);
    Dims end = value->type().dims();
    end[i] = whole[i];
    value = cut_to(g, value, end);
  }
  return value;
}

ir::Value* Resharder::take_part(GraphBuilder& g, ir::Value* whole, const Cut& cut) {
  if (cut.is_whole()) return whole;
  const Dims local = cut.local_shape(whole->type().dims());
  Dims padded = local;
  for (size_t i = 0; i < local.size(); ++i) padded[i] *= cut.dimensions[i].parts;
  whole = pad_to(g, whole, padded);
  GraphBuilder::Values starts;
  for (size_t i = 0; i < local.size(); ++i) {
    const Cut::Dimension& dimension = cut.dimensions[i];
    if (dimension.parts == 1) {
      starts.push_back(g.integer_constant(DType::kI64, {}, 0));
      continue;
    }
    std::vector<int64_t> offsets;
    for (int64_t part : dimension.part) offsets.push_back(part * local[i]);
    starts.push_back(own_number(g, offsets));
  }
  ir::Value* part = local == padded ? whole : g.dynamic_slice(whole, starts, local);
  if (cut.sum.parts == 1) return part;
  ir::Value* is_first =
      g.compare("EQ", own_number(g, cut.sum.part), g.integer_constant(DType::kI64, {}, 0));
  return g.select(is_first, part, g.constant(part->type().dtype(), local, 0));
}

ir::Value* Resharder::permute(GraphBuilder& g, ir::Value* part, const Cut& from, const Cut& to) {
  if (from.sum.parts > 1 || to.sum.parts > 1) return nullptr;
  for (size_t d = 0; d < from.dimensions.size(); ++d) {
    if (from.dimensions[d].parts != to.dimensions[d].parts) return nullptr;
  }
  const auto block_of = [](const Cut& cut, size_t partition) {
    std::vector<int64_t> block;
    for (const Cut::Dimension& dimension : cut.dimensions) {
      block.push_back(dimension.parts == 1 ? 0 : dimension.part[partition]);
    }
    return block;
  };
  std::map<std::vector<int64_t>, std::vector<int64_t>> holders;  // who want another block
  const auto count = static_cast<size_t>(partitions_);
  for (size_t p = 0; p < count; ++p) {
    const std::vector<int64_t> held = block_of(from, p);
    if (held != block_of(to, p)) holders[held].push_back(static_cast<int64_t>(p));
  }
  Groups pairs;
  for (size_t p = 0; p < count; ++p) {
    const std::vector<int64_t> wanted = block_of(to, p);
    auto source = static_cast<int64_t>(p);
    if (wanted != block_of(from, p)) {
      std::vector<int64_t>& candidates = holders[wanted];
      if (candidates.empty()) return nullptr;
      source = candidates.back();
      candidates.pop_back();
    }
    pairs.push_back({source, static_cast<int64_t>(p)});
  }
  return collective(g, OpCode::kCollectivePermute, part, pairs, part->type(), {})->result();
}

ir::Value* Resharder::combine(GraphBuilder& g, ir::Value* value, const Axes& axes, OpCode code) {
  if (axes.empty()) return value;
  return collective(g, OpCode::kAllReduce, value, mesh_->groups(axes), value->type(), {},
                    body_of(code))
      ->result();
}

ir::Value* Resharder::start_of_part(GraphBuilder& g, const Axes& axes, int64_t size) const {
  std::vector<int64_t> starts = mesh_->part_of_partitions(axes);
  for (int64_t& start : starts) start *= size;
  return own_number(g, starts);
}

ir::Value* Resharder::number_of_part(GraphBuilder& g, const Axes& axes,
                                     const std::vector<int64_t>& by_part) const {
  const bool is_same = std::all_of(by_part.begin(), by_part.end(),
                                   [&](int64_t number) { return number == by_part.front(); });
  if (is_same) return g.integer_constant(DType::kI64, {}, by_part.front());
  std::vector<int64_t> numbers = mesh_->part_of_partitions(axes);
  for (int64_t& number : numbers) number = by_part[static_cast<size_t>(number)];
  return own_number(g, numbers);
}

bool Resharder::erase_unused() {
  const size_t before = collectives_.size();
  for (size_t i = collectives_.size(); i-- > 0;) {
    ir::Operation* op = collectives_[i];
    if (op->result()->has_uses()) continue;
    op->block()->erase(op);
    collectives_.erase(collectives_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return collectives_.size() != before;
}

int64_t Resharder::gathered_bytes() const {
  double bytes = 0;
  for (const ir::Operation* op : collectives_) {
    const Result<Collective> known = collective_of(*op, {replicas_, partitions_}, {});
    if (known.ok()) bytes += known->bytes;
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace hekla::spmd
