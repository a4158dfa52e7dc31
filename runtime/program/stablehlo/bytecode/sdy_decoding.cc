// SPDX-License-Identifier: Apache-2.0
// Decoding of Shardy's attributes. The codes are those of its bytecode dialect.
#include "runtime/program/sharding/text.h"
#include "runtime/program/stablehlo/bytecode/attribute_table.h"

namespace hekla::stablehlo {
namespace {

// One entry, whose parts are other entries. Each is copied, and paid for.
class SdyDecoder {
 public:
  SdyDecoder(const AttributeTable& table, ByteReader& reader) : table_(table), reader_(reader) {}

  int64_t cost() const { return cost_; }

  Result<sharding::Attribute> run() {
    const uint64_t code = reader_.varint();
    switch (code) {
      case 0:
        return whole(manual_axes());
      case 1: {
        sharding::Axis axis;
        HEKLA_ASSIGN_OR_RETURN(axis.name, name());
        axis.size = reader_.svarint();
        return sharding::Attribute(std::move(axis));
      }
      case 2: {
        sharding::Mesh mesh;
        HEKLA_ASSIGN_OR_RETURN(mesh.axes, parts<sharding::Axis>());
        mesh.device_ids = integers();
        return sharding::Attribute(std::move(mesh));
      }
      case 3: {
        sharding::SubAxis sub;
        sub.pre_size = reader_.svarint();
        sub.size = reader_.svarint();
        return sharding::Attribute(sub);
      }
      case 4: {
        sharding::AxisRef ref;
        HEKLA_ASSIGN_OR_RETURN(ref.name, name());
        const uint64_t sub = reader_.varint();
        if ((sub & 1) != 0) {
          HEKLA_ASSIGN_OR_RETURN(ref.sub, part<sharding::SubAxis>(sub >> 1));
        }
        return sharding::Attribute(std::move(ref));
      }
      case 5: {
        sharding::DimensionSharding dimension;
        HEKLA_ASSIGN_OR_RETURN(dimension.axes, parts<sharding::AxisRef>());
        dimension.is_open = !boolean();
        const uint64_t priority = reader_.varint();
        if ((priority & 1) != 0) dimension.priority = static_cast<int64_t>(priority >> 1);
        return sharding::Attribute(std::move(dimension));
      }
      case 6:
      case 15:
      case 17:
        return whole(tensor_sharding(code));
      case 7:
      case 16: {
        sharding::ShardingList list;
        HEKLA_ASSIGN_OR_RETURN(list.values, parts<sharding::TensorSharding>());
        return sharding::Attribute(std::move(list));
      }
      case 8: {
        sharding::ShardingRule::Dimension factors = factor_list();
        if (factors.empty()) reader_.fail("a dimension of a sharding rule has no factor");
        return sharding::Attribute(std::move(factors));
      }
      case 9: {
        HEKLA_ASSIGN_OR_RETURN(sharding::ShardingRule::Tensor tensor,
                               parts<sharding::ShardingRule::Dimension>());
        return sharding::Attribute(std::move(tensor));
      }
      case 10:
        return whole(rule());
      case 11: {
        sharding::AxisRefList list;
        HEKLA_ASSIGN_OR_RETURN(list.axes, parts<sharding::AxisRef>());
        return sharding::Attribute(std::move(list));
      }
      case 12: {
        sharding::AxisRefLists lists;
        HEKLA_ASSIGN_OR_RETURN(lists.lists, parts<sharding::AxisRefList>());
        return sharding::Attribute(std::move(lists));
      }
      case 13: {
        sharding::AllToAll value;
        HEKLA_ASSIGN_OR_RETURN(value.axes, parts<sharding::AxisRef>());
        value.source_dimension = reader_.svarint();
        value.target_dimension = reader_.svarint();
        return sharding::Attribute(std::move(value));
      }
      case 14: {
        sharding::AllToAllList list;
        HEKLA_ASSIGN_OR_RETURN(list.values, parts<sharding::AllToAll>());
        return sharding::Attribute(std::move(list));
      }
      default:
        reader_.fail(fmt::format("there is no sdy attribute {}", code));
        return reader_.status();
    }
  }

 private:
  template <typename T>
  static Result<sharding::Attribute> whole(Result<T> value) {
    if (!value.ok()) return value.status();
    return sharding::Attribute(std::move(value).value());
  }

  // Pays for `bytes` that are copied into this entry.
  void pay(int64_t bytes) {
    constexpr int64_t kOverhead = 32;
    cost_ += bytes + kOverhead;
    if (!table_.spend(static_cast<uint64_t>(bytes + kOverhead))) {
      reader_.fail("the sharding attributes take too much room");
    }
  }

  Result<std::string> name() {
    const std::string_view text = table_.string(reader_.varint(), reader_);
    pay(static_cast<int64_t>(text.size()));
    HEKLA_RETURN_IF_ERROR(reader_.status());
    return std::string(text);
  }

  template <typename T>
  Result<T> part(uint64_t index) {
    HEKLA_RETURN_IF_ERROR(reader_.status());
    HEKLA_ASSIGN_OR_RETURN(const RawAttribute* raw, table_.attribute(index));
    const T* value = raw->sharding != nullptr ? std::get_if<T>(raw->sharding.get()) : nullptr;
    if (value == nullptr) {
      reader_.fail(
          fmt::format("attribute {} is not the part of a sharding that stands here", index));
      return reader_.status();
    }
    pay(raw->number);
    HEKLA_RETURN_IF_ERROR(reader_.status());
    return *value;
  }

  template <typename T>
  Result<std::vector<T>> parts() {
    std::vector<T> values;
    const size_t count = reader_.count();
    for (size_t i = 0; i < count && reader_.ok(); ++i) {
      HEKLA_ASSIGN_OR_RETURN(T value, part<T>(reader_.varint()));
      values.push_back(std::move(value));
    }
    HEKLA_RETURN_IF_ERROR(reader_.status());
    return values;
  }

  std::vector<int64_t> integers() {
    std::vector<int64_t> values;
    const size_t count = reader_.count();
    for (size_t i = 0; i < count && reader_.ok(); ++i) values.push_back(reader_.svarint());
    pay(static_cast<int64_t>(values.size() * sizeof(int64_t)));
    return values;
  }

  std::vector<int64_t> factor_list() {
    std::vector<int64_t> factors = integers();
    for (int64_t factor : factors) {
      // Names of factors go as far.
      if (factor < 0 || factor > (int64_t{1} << 31)) {
        reader_.fail(fmt::format("there is no factor {}", factor));
      }
    }
    return factors;
  }

  bool boolean() {
    const uint8_t value = reader_.byte();
    if (value > 1) reader_.fail(fmt::format("{} is no bool", value));
    return value != 0;
  }

  // Axes are named by string attributes.
  Result<sharding::ManualAxes> manual_axes() {
    sharding::ManualAxes axes;
    const size_t count = reader_.count();
    for (size_t i = 0; i < count && reader_.ok(); ++i) {
      const uint64_t index = reader_.varint();
      HEKLA_RETURN_IF_ERROR(reader_.status());
      HEKLA_ASSIGN_OR_RETURN(const RawAttribute* raw, table_.attribute(index));
      if (raw->kind != RawAttribute::Kind::kString) {
        reader_.fail(fmt::format("attribute {} is no name of an axis", index));
        break;
      }
      pay(static_cast<int64_t>(raw->text.size()));
      axes.names.push_back(raw->text);
    }
    HEKLA_RETURN_IF_ERROR(reader_.status());
    return axes;
  }

  Result<sharding::TensorSharding> tensor_sharding(uint64_t code) {
    sharding::TensorSharding value;
    const uint64_t mesh = reader_.varint();
    HEKLA_RETURN_IF_ERROR(reader_.status());
    HEKLA_ASSIGN_OR_RETURN(const RawAttribute* raw, table_.attribute(mesh));
    if (raw->kind == RawAttribute::Kind::kSymbol && raw->symbols.empty()) {
      pay(static_cast<int64_t>(raw->text.size()));
      value.mesh = raw->text;
    } else {
      HEKLA_ASSIGN_OR_RETURN(value.mesh, part<sharding::Mesh>(mesh));
    }
    HEKLA_ASSIGN_OR_RETURN(value.dimensions, parts<sharding::DimensionSharding>());
    HEKLA_ASSIGN_OR_RETURN(value.replicated, parts<sharding::AxisRef>());
    if (code != 6) {
      HEKLA_ASSIGN_OR_RETURN(value.unreduced, parts<sharding::AxisRef>());
    }
    if (code == 17) value.reduction_kind = reader_.svarint();
    return value;
  }

  Result<sharding::ShardingRule> rule() {
    sharding::ShardingRule rule;
    rule.factor_sizes = integers();
    HEKLA_ASSIGN_OR_RETURN(rule.operands, parts<sharding::ShardingRule::Tensor>());
    HEKLA_ASSIGN_OR_RETURN(rule.results, parts<sharding::ShardingRule::Tensor>());
    rule.reduction = factor_list();
    rule.need_replication = factor_list();
    rule.permutation = factor_list();
    rule.blocked_propagation = factor_list();
    rule.is_custom = boolean();
    return rule;
  }

  const AttributeTable& table_;
  ByteReader& reader_;
  int64_t cost_ = 0;
};

}  // namespace

Status AttributeTable::decode_sdy(ByteReader& reader, RawAttribute& out) const {
  SdyDecoder decoder(*this, reader);
  HEKLA_ASSIGN_OR_RETURN(sharding::Attribute entry, decoder.run());
  out.kind = RawAttribute::Kind::kSharding;
  out.number = decoder.cost();
  out.sharding = std::make_shared<const sharding::Attribute>(std::move(entry));
  return reader.status();
}

Status AttributeTable::decode_sdy_text(ByteReader& reader, RawAttribute& out) const {
  Result<sharding::Attribute> value = sharding::parse_attribute(out.text);
  if (!value.ok()) {
    reader.fail(value.status().message());
    return reader.status();
  }
  // What each byte of text may take in memory.
  constexpr int64_t kPerByte = 16;
  out.kind = RawAttribute::Kind::kSharding;
  out.number = static_cast<int64_t>(out.text.size()) * kPerByte;
  out.sharding = std::make_shared<const sharding::Attribute>(std::move(value).value());
  out.text.clear();
  return ok_status();
}

}  // namespace hekla::stablehlo
