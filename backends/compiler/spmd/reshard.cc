// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/reshard.h"

#include <algorithm>
#include <map>

namespace hekla::spmd {

using ir::OpCode;

namespace {

HostArray numbers(const Dims& dims, const std::vector<int64_t>& values) {
  HostArray array(DType::kI64, dims);
  std::copy(values.begin(), values.end(), array.mutable_as<int64_t>());
  return array;
}

ir::Type with_dims(const ir::Value& value, Dims dims) {
  return ir::Type::tensor(value.type().element(), std::move(dims));
}

// Rows of device numbers, replica by replica: parts in order.
std::vector<int64_t> groups_of(const Cut::Dimension& dimension, int64_t replicas) {
  std::map<int64_t, std::vector<int64_t>> groups;
  for (size_t partition = 0; partition < dimension.part.size(); ++partition) {
    std::vector<int64_t>& members = groups[dimension.group[partition]];
    members.resize(static_cast<size_t>(dimension.parts));
    members[static_cast<size_t>(dimension.part[partition])] = static_cast<int64_t>(partition);
  }
  std::vector<int64_t> devices;
  for (int64_t replica = 0; replica < replicas; ++replica) {
    for (const auto& [group, members] : groups) {
      for (int64_t member : members) {
        devices.push_back(replica * static_cast<int64_t>(dimension.part.size()) + member);
      }
    }
  }
  return devices;
}

}  // namespace

// Among the partitions of a group of `dimension`, in the order of the parts.
ir::Operation* Resharder::collective(ir::GraphBuilder& g, OpCode code, ir::Value* value,
                                     const Cut::Dimension& dimension, const ir::Type& type,
                                     ir::AttributeMap attributes) {
  const std::vector<int64_t> devices = groups_of(dimension, replicas_);
  const Dims shape = {static_cast<int64_t>(devices.size()) / dimension.parts, dimension.parts};
  attributes.set("replica_groups",
                 ir::make_dense(ir::Type::tensor(DType::kI64, shape), numbers(shape, devices)));
  attributes.set("channel_handle", ir::ChannelHandle{next_channel_++, 0});
  attributes.set("use_global_device_ids", ir::BoolValue{true});
  std::vector<ir::GraphBuilder::RegionSpec> regions;
  if (code == OpCode::kAllReduce) {
    const ir::Type scalar = ir::Type::tensor(type.element(), {});
    regions.push_back({{scalar, scalar}, [](ir::GraphBuilder& body, const auto& x) {
                         return ir::GraphBuilder::Values{body.add(x[0], x[1])};
                       }});
  }
  ir::Operation* op = g.make_op(code, {value}, std::move(attributes), regions, {type});
  collectives_.push_back(op);
  return op;
}

ir::Value* Resharder::gather(ir::GraphBuilder& g, ir::Value* part, const Cut& cut,
                             const Dims& whole) {
  ir::Value* value = part;
  if (cut.sum.parts > 1) {
    value = collective(g, OpCode::kAllReduce, value, cut.sum, value->type(), {})->result();
  }
  for (size_t i = 0; i < cut.dimensions.size(); ++i) {
    const Cut::Dimension& dimension = cut.dimensions[i];
    if (dimension.parts == 1) continue;
    Dims dims = value->type().dims();
    dims[i] *= dimension.parts;
    ir::AttributeMap attributes;
    attributes.set("all_gather_dim",
                   ir::IntegerValue{ir::Type::scalar(DType::kI64), static_cast<int64_t>(i)});
    value = collective(g, OpCode::kAllGather, value, dimension, with_dims(*value, dims),
                       std::move(attributes))
                ->result();
    if (dims[i] != whole[i]) {
      Dims end = dims;
      end[i] = whole[i];
      value = g.slice(value, Dims(dims.size(), 0), end);
    }
  }
  return value;
}

ir::Value* Resharder::take_part(ir::GraphBuilder& g, ir::Value* whole, const Cut& cut) {
  if (cut.is_whole()) return whole;
  const Dims& dims = whole->type().dims();
  const Dims local = cut.local_shape(dims);
  Dims padding(dims.size(), 0);
  for (size_t i = 0; i < dims.size(); ++i) {
    padding[i] = local[i] * cut.dimensions[i].parts - dims[i];
  }
  const bool is_padded =
      std::any_of(padding.begin(), padding.end(), [](int64_t n) { return n > 0; });
  if (is_padded) whole = g.pad(whole, Dims(dims.size(), 0), padding);
  ir::Value* id = g.make(OpCode::kPartitionId, {}, {}, ir::Type::tensor(DType::kUI32, {}));
  id = g.convert(id, DType::kI64);
  // This partition's entry.
  const auto own = [&](const std::vector<int64_t>& by_partition) {
    ir::Value* table = g.constant(numbers({partitions_}, by_partition));
    return g.reshape(g.dynamic_slice(table, {id}, {1}), {});
  };
  ir::GraphBuilder::Values starts;
  for (size_t i = 0; i < dims.size(); ++i) {
    const Cut::Dimension& dimension = cut.dimensions[i];
    if (dimension.parts == 1) {
      starts.push_back(g.integer_constant(DType::kI64, {}, 0));
      continue;
    }
    std::vector<int64_t> offsets;
    for (int64_t part : dimension.part) offsets.push_back(part * local[i]);
    starts.push_back(own(offsets));
  }
  ir::Value* part = local == whole->type().dims() ? whole : g.dynamic_slice(whole, starts, local);
  if (cut.sum.parts == 1) return part;
  ir::Value* is_first = g.compare("EQ", own(cut.sum.part), g.integer_constant(DType::kI64, {}, 0));
  return g.select(is_first, part, g.constant(part->type().dtype(), local, 0));
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
  int64_t bytes = 0;
  for (const ir::Operation* op : collectives_) {
    const auto size = [](const ir::Value& value) {
      const Result<int64_t> known = checked_bytes(value.type().dtype(), value.type().dims());
      return known.ok() ? *known : 0;
    };
    bytes += size(*op->result()) - size(*op->operand(0));
  }
  return bytes;
}

}  // namespace hekla::spmd
