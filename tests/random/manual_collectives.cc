// SPDX-License-Identifier: Apache-2.0
#include "tests/random/manual_collectives.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/base/hash.h"
#include "runtime/program/ir/attribute.h"
#include "tests/random/manual.h"

namespace hekla::testing {
namespace {

using ir::OpCode;
using Rows = std::vector<std::vector<int64_t>>;

class Collectives {
 public:
  Collectives(ir::GraphBuilder& g, const sharding::Mesh& mesh) : g_(g) {
    int64_t stride = 1, size = 1;
    for (size_t i = mesh.axes.size(); i-- > 0;) {
      if (mesh.axes[i].name == kManualAxis) {
        size = mesh.axes[i].size;
        break;
      }
      stride *= mesh.axes[i].size;
    }
    const int64_t partitions = sharding::device_count(mesh);
    copy_of_.resize(static_cast<size_t>(partitions));
    for (int64_t position = 0; position < partitions; ++position) {
      const int64_t copy = position / stride % size;
      copy_of_[static_cast<size_t>(partition_at(mesh, position))] = copy;
      if (copy != 0) continue;
      std::vector<int64_t> row;
      for (int64_t c = 0; c < size; ++c) {
        row.push_back(partition_at(mesh, position + c * stride));
      }
      groups_.push_back(std::move(row));
    }
  }

  ir::Value* there_and_back(ir::Value* x) {
    for (const int64_t step : {int64_t{1}, copies() - 1}) {
      Rows pairs;
      for (const std::vector<int64_t>& row : groups_) {
        for (size_t c = 0; c < row.size(); ++c) {
          pairs.push_back({row[c], row[(c + static_cast<size_t>(step)) % row.size()]});
        }
      }
      ir::AttributeMap attributes = with_channel();
      attributes.set("source_target_pairs", matrix(pairs));
      x = g_.make_op(OpCode::kCollectivePermute, {x}, std::move(attributes), {}, {x->type()})
              ->result();
    }
    return x;
  }

  ir::Value* gathered(ir::Value* x) {
    ir::AttributeMap attributes = with_groups();
    attributes.set("all_gather_dim", ir::i64_attribute(0));
    ir::Value* all = g_.make_op(OpCode::kAllGather, {g_.reshape(x, stacked(*x, 1))},
                                std::move(attributes), {}, {stack_type(*x)})
                         ->result();
    return own_of(all, *x);
  }

  ir::Value* exchanged(ir::Value* x) {
    ir::AttributeMap attributes = with_channel();
    attributes.set("replica_groups", matrix(groups_));
    for (const char* name : {"split_dimension", "concat_dimension"}) {
      attributes.set(name, ir::i64_attribute(0));
    }
    attributes.set("split_count", ir::i64_attribute(copies()));
    ir::Value* all =
        g_.make_op(OpCode::kAllToAll, {repeated(x)}, std::move(attributes), {}, {stack_type(*x)})
            ->result();
    return own_of(all, *x);
  }

  ir::Value* reduced(ir::Value* x) {
    ir::Value* all = g_.make_op(OpCode::kAllReduce, {among_zeros(x)}, with_groups(), {sum_of(*x)},
                                {stack_type(*x)})
                         ->result();
    return own_of(all, *x);
  }

  ir::Value* scattered(ir::Value* x) {
    ir::AttributeMap attributes = with_groups();
    attributes.set("scatter_dimension", ir::i64_attribute(0));
    const ir::Type own = ir::Type::tensor(x->type().element(), stacked(*x, 1));
    ir::Value* mine = g_.make_op(OpCode::kReduceScatter, {among_zeros(x)}, std::move(attributes),
                                 {sum_of(*x)}, {own})
                          ->result();
    return g_.reshape(mine, x->type().dims());
  }

 private:
  static int64_t partition_at(const sharding::Mesh& mesh, int64_t position) {
    return mesh.device_ids.empty() ? position : mesh.device_ids[static_cast<size_t>(position)];
  }
  static ir::Attribute matrix(const Rows& rows) {
    std::vector<int64_t> values;
    for (const std::vector<int64_t>& row : rows)
      values.insert(values.end(), row.begin(), row.end());
    const Dims dims = {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())};
    return ir::make_dense(ir::Type::tensor(DType::kI64, dims),
                          HostArray::from<int64_t>(DType::kI64, dims, values));
  }
  static ir::AttributeMap with_channel() {
    ir::AttributeMap attributes;
    attributes.set("channel_handle", ir::ChannelHandle{1, 1});
    return attributes;
  }
  ir::AttributeMap with_groups() const {
    ir::AttributeMap attributes = with_channel();
    attributes.set("replica_groups", matrix(groups_));
    attributes.set("use_global_device_ids", ir::BoolValue{true});
    return attributes;
  }
  int64_t copies() const { return static_cast<int64_t>(groups_.front().size()); }
  static Dims stacked(const ir::Value& x, int64_t count) {
    Dims dims = x.type().dims();
    dims.insert(dims.begin(), count);
    return dims;
  }
  ir::Type stack_type(const ir::Value& x) const {
    return ir::Type::tensor(x.type().element(), stacked(x, copies()));
  }
  static ir::GraphBuilder::RegionSpec sum_of(const ir::Value& x) {
    const ir::Type scalar = ir::Type::tensor(x.type().element(), {});
    return {{scalar, scalar},
            [](ir::GraphBuilder& inner, const ir::GraphBuilder::Values& arguments) {
              return ir::GraphBuilder::Values{inner.add(arguments[0], arguments[1])};
            }};
  }
  ir::Value* repeated(ir::Value* x) {
    std::vector<int64_t> places(x->type().dims().size());
    std::iota(places.begin(), places.end(), 1);
    return g_.broadcast(x, stacked(*x, copies()), std::move(places));
  }
  ir::Value* among_zeros(ir::Value* x) {
    const Dims dims = stacked(*x, copies());
    ir::Value* own =
        g_.compare("EQ", g_.iota(DType::kI32, dims, 0), g_.broadcast(own_copy(), dims, {}));
    return g_.select(own, repeated(x), g_.integer_constant(x->type().dtype(), dims, 0));
  }
  ir::Value* own_of(ir::Value* all, const ir::Value& x) {
    ir::GraphBuilder::Values starts(all->type().dims().size(),
                                    g_.integer_constant(DType::kI32, {}, 0));
    starts[0] = own_copy();
    return g_.reshape(g_.dynamic_slice(all, starts, stacked(x, 1)), x.type().dims());
  }
  // The number of the copy that runs, i32.
  ir::Value* own_copy() {
    const Dims dims = {static_cast<int64_t>(copy_of_.size())};
    HostArray table(DType::kI32, dims);
    std::copy(copy_of_.begin(), copy_of_.end(), table.mutable_as<int32_t>());
    ir::Value* partition =
        g_.make_op(OpCode::kPartitionId, {}, {}, {}, {ir::Type::tensor(DType::kUI32, {})})
            ->result();
    ir::Value* at = g_.convert(partition, DType::kI32);
    return g_.reshape(g_.dynamic_slice(g_.constant(std::move(table)), {at}, {1}), {});
  }

  ir::GraphBuilder& g_;
  Rows groups_;                   // along the manual axis, in its order
  std::vector<int64_t> copy_of_;  // by partition
};

}  // namespace

void add_collectives_behind(ir::Operation& op, ir::GraphBuilder& g, const sharding::Mesh& mesh) {
  if (op.result_count() != 1 || !op.result()->type().is_static_tensor()) return;
  ir::Value* value = op.result();
  const uint64_t hash = fnv1a(std::string(op.name()) + value->type().to_string());
  if (hash % 4 != 0) return;
  Collectives collectives(g, mesh);
  const size_t behind = g.block().operations().size();
  const DType dtype = value->type().dtype();
  const bool is_integer = hekla::is_integer(dtype) && dtype != DType::kI1;
  ir::Value* back = nullptr;
  switch (hash / 4 % (is_integer ? 5 : 3)) {
    case 0:
      back = collectives.there_and_back(value);
      break;
    case 1:
      back = collectives.gathered(value);
      break;
    case 2:
      back = collectives.exchanged(value);
      break;
    case 3:
      back = collectives.reduced(value);
      break;
    default:
      back = collectives.scattered(value);
  }
  value->replace_all_uses_with(back);
  const auto& operations = g.block().operations();
  for (size_t i = behind; i < operations.size(); ++i) {
    for (size_t k = 0; k < operations[i]->operand_count(); ++k) {
      if (operations[i]->operand(k) == back) operations[i]->set_operand(k, value);
    }
  }
}

}  // namespace hekla::testing
