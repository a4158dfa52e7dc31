// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/typed_attributes.h"

namespace hekla::ir {

Attribute TypedAttributes::typed(std::string_view name, const Attribute& value) {
  const auto* text = name == "mhlo.sharding" ? value.get<StringValue>() : nullptr;
  if (text == nullptr) return value;
  auto [it, is_new] = known_.try_emplace(&value.content(), value, value);
  if (is_new) {
    Result<sharding::HloSharding> read = sharding::read_hlo_sharding(text->value);
    if (read.ok()) it->second.second = HloShardingValue{text->value, *std::move(read)};
  }
  return it->second.second;
}

Attribute hlo_sharding_attribute(sharding::HloSharding value) {
  std::string text = to_text(value);
  return HloShardingValue{std::move(text), std::move(value)};
}

Result<sharding::HloSharding> hlo_sharding_of(const Attribute& attribute) {
  if (const auto* typed = attribute.get<HloShardingValue>()) return typed->value;
  if (const auto* text = attribute.get<StringValue>()) {
    return sharding::read_hlo_sharding(text->value);
  }
  return invalid_argument("mhlo.sharding is no string");
}

const sharding::Mesh* mesh_of(const sharding::TensorSharding& sharding, const Module& module) {
  const sharding::Mesh* mesh = sharding.inline_mesh();
  if (const std::string* name = sharding.mesh_name()) {
    for (const Mesh& known : module.meshes) {
      if (known.name == *name) mesh = &known.value;
    }
  }
  return mesh;
}

}  // namespace hekla::ir
