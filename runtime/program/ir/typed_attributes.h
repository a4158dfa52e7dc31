// SPDX-License-Identifier: Apache-2.0
// Attributes that files hold as strings and whose name says what they mean.
#pragma once

#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/program/ir/attribute.h"
#include "runtime/program/ir/ir.h"

namespace hekla::ir {

// For readers: one object a file, used by one thread.
class TypedAttributes {
 public:
  // A string under the name mhlo.sharding as an HloShardingValue; anything else, and a string that
  // cannot be read, as it is: `verify` says what is wrong with it. A value that many entries share
  // is read once.
  Attribute typed(std::string_view name, const Attribute& value);

 private:
  // By content, which the first of the pair keeps alive.
  std::unordered_map<const Attribute::Content*, std::pair<Attribute, Attribute>> known_;
};

// mhlo.sharding in XLA's spelling.
Attribute hlo_sharding_attribute(sharding::HloSharding value);
// The sharding that an attribute called mhlo.sharding holds in either form. INVALID_ARGUMENT where
// it is none, UNIMPLEMENTED for forms that only newer writers make.
Result<sharding::HloSharding> hlo_sharding_of(const Attribute& attribute);

// What the sharding's mesh stands for: its own, or the module's of that name; null where there is
// none.
const sharding::Mesh* mesh_of(const sharding::TensorSharding& sharding, const Module& module);

}  // namespace hekla::ir
