// SPDX-License-Identifier: Apache-2.0
// AttributeWriter: types, attributes and locations as entries of a bytecode file.
//
// Each has a form in VHLO, which operations of VHLO use, and one in MLIR's builtin dialect, for the
// module, for Shardy's operations and for what VHLO has no form for. Equal entries are one. The
// first failure is kept in `status`; numbers given after it mean nothing. One thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"
#include "runtime/program/stablehlo/bytecode/bytecode_builder.h"
#include "runtime/program/stablehlo/bytecode/write_bytecode.h"

namespace hekla::stablehlo {

class AttributeWriter {
 public:
  // `meshes`: the module's, which outlive this.
  AttributeWriter(BytecodeBuilder& file, VhloVersion target, std::span<const ir::Mesh> meshes)
      : file_(file), target_(target), meshes_(meshes) {}

  const Status& status() const { return status_; }
  // Keeps the first.
  void fail(Status status);
  // Fails when `target` is older than 1.`minor`.
  void need(int minor, std::string_view what);
  VhloVersion target() const { return target_; }

  uint32_t vhlo_type(const ir::Type& type);
  uint32_t builtin_type(const ir::Type& type);

  // Lists become tensors, symbols strings. What VHLO has no form for becomes builtin.
  uint32_t vhlo(const ir::Attribute& attribute);
  uint32_t builtin(const ir::Attribute& attribute);
  // Replica groups by the axes of a mesh; before 1.16 the lists that they stand for.
  uint32_t vhlo_mesh_axes(const sharding::MeshAxes& axes);
  // Rank 1, of i64.
  uint32_t vhlo_list(const std::vector<int64_t>& values);
  uint32_t vhlo_type_attribute(const ir::Type& type);

  uint32_t location(const ir::LocationRef& location);

 private:
  uint32_t vhlo_entry(std::string payload) {
    return file_.shared_attribute("vhlo", std::move(payload));
  }
  uint32_t builtin_entry(std::string payload) {
    return file_.shared_attribute("builtin", std::move(payload));
  }
  uint32_t sdy(const sharding::Attribute& attribute);
  uint32_t vhlo_array(const std::vector<uint32_t>& elements) {
    return vhlo_entry(varint(1) + refs(elements));
  }
  uint32_t dense_groups(const sharding::MeshAxes& axes);
  uint32_t text_type(std::string_view name);
  uint32_t scalar_type(const ir::Type& type);
  uint32_t quantized_type(const ir::Quantization& quantization);
  uint32_t dense(const ir::DenseValue& value, bool is_vhlo);
  uint32_t enumeration(const ir::EnumValue& value);
  uint32_t location_at(const ir::LocationRef& location, int depth);
  std::vector<uint32_t> types(const std::vector<ir::Type>& types, bool is_vhlo);

  BytecodeBuilder& file_;
  const VhloVersion target_;
  const std::span<const ir::Mesh> meshes_;
  Status status_;
  std::unordered_map<const ir::Location*, uint32_t> locations_;
  std::unordered_map<std::string, uint32_t> text_types_;
};

}  // namespace hekla::stablehlo
