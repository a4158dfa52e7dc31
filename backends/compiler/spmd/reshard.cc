// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/reshard.h"

#include <algorithm>
#include <map>

#include "runtime/program/ir/op_attributes.h"

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

ir::Value* Resharder::gather(ir::GraphBuilder& g, ir::Value* part, const Cut& cut,
                             const Dims& whole) {
  ir::Value* value = part;
  for (size_t i = 0; i < cut.dimensions.size(); ++i) {
    const Cut::Dimension& dimension = cut.dimensions[i];
    if (dimension.parts == 1) continue;
    Dims dims = value->type().dims();
    dims[i] *= dimension.parts;
    const std::vector<int64_t> devices = groups_of(dimension, replicas_);
    const Dims shape = {static_cast<int64_t>(devices.size()) / dimension.parts, dimension.parts};
    ir::AttributeMap attributes;
    attributes.set("all_gather_dim",
                   ir::IntegerValue{ir::Type::scalar(DType::kI64), static_cast<int64_t>(i)});
    attributes.set("replica_groups",
                   ir::make_dense(ir::Type::tensor(DType::kI64, shape), numbers(shape, devices)));
    attributes.set("channel_handle", ir::ChannelHandle{next_channel_++, 0});
    attributes.set("use_global_device_ids", ir::BoolValue{true});
    ir::Operation* op = g.make_op(OpCode::kAllGather, {value}, std::move(attributes), {},
                                  {with_dims(*value, dims)});
    gathers_.push_back(op);
    value = op->result();
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
  ir::GraphBuilder::Values starts;
  for (size_t i = 0; i < dims.size(); ++i) {
    const Cut::Dimension& dimension = cut.dimensions[i];
    if (dimension.parts == 1) {
      starts.push_back(g.integer_constant(DType::kI64, {}, 0));
      continue;
    }
    std::vector<int64_t> offsets;
    for (int64_t part : dimension.part) offsets.push_back(part * local[i]);
    ir::Value* table = g.constant(numbers({partitions_}, offsets));
    starts.push_back(g.reshape(g.dynamic_slice(table, {id}, {1}), {}));
  }
  return g.dynamic_slice(whole, starts, local);
}

bool Resharder::erase_unused() {
  const size_t before = gathers_.size();
  for (size_t i = gathers_.size(); i-- > 0;) {
    ir::Operation* op = gathers_[i];
    if (op->result()->has_uses()) continue;
    op->block()->erase(op);
    gathers_.erase(gathers_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return gathers_.size() != before;
}

int64_t Resharder::gathered_bytes() const {
  int64_t bytes = 0;
  for (const ir::Operation* op : gathers_) {
    const auto size = [](const ir::Value& value) {
      const Result<int64_t> known = checked_bytes(value.type().dtype(), value.type().dims());
      return known.ok() ? *known : 0;
    };
    bytes += size(*op->result()) - size(*op->operand(0));
  }
  return bytes;
}

}  // namespace hekla::spmd
