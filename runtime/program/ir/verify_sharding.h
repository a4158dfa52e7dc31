// SPDX-License-Identifier: Apache-2.0
// Whether the meshes and shardings of a module mean something and fit what they stand at. Internal
// to `verify`. Pure; a checker refers to the module that it was made for.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>

#include "runtime/program/ir/ir.h"

namespace hekla::ir {

class ShardingVerifier {
 public:
  using Report = std::function<void(const std::string& problem)>;

  explicit ShardingVerifier(const Module& module);

  void check_meshes(const Report& report) const;
  // Of arguments and results.
  void check_function(const Function& function, const Report& report) const;
  // Shardings of the results, of what a manual computation takes and gives, its axes and the shapes
  // inside it. Those of its regions' operations are the caller's.
  void check_operation(const Operation& op, const Report& report) const;

 private:
  // Null where there is none of that name.
  const sharding::Mesh* mesh_of(const sharding::TensorSharding& sharding) const;
  Status check(const sharding::TensorSharding& sharding, const Type& type) const;
  void check_map(const AttributeMap& attributes, const Type& type, const std::string& what,
                 const Report& report) const;
  void check_list(const sharding::ShardingList& list, const std::vector<Type>& types,
                  std::string_view name, std::string_view what, const Report& report) const;
  void check_manual(const Operation& op, const Report& report) const;

  const Module& module_;
  std::unordered_map<std::string_view, const sharding::Mesh*> meshes_;
};

}  // namespace hekla::ir
