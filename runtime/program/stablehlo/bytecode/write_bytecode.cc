// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/bytecode/write_bytecode.h"

#include <algorithm>
#include <unordered_map>

#include "runtime/program/stablehlo/bytecode/attribute_writer.h"
#include "runtime/program/stablehlo/bytecode/bytecode_builder.h"
#include "runtime/program/stablehlo/bytecode/op_properties.h"
#include "runtime/program/stablehlo/bytecode/vhlo_form.h"

namespace hekla::stablehlo {
namespace {

constexpr uint64_t kContainerVersion = 6;

bool is_shardy(const ir::Operation& op) { return op.name().starts_with("sdy."); }

class ProgramWriter {
 public:
  ProgramWriter(const ir::Module& module, VhloVersion target)
      : module_(module),
        file_(kContainerVersion,
              fmt::format("StableHLO_v{}.{}.{}", target.major, target.minor, target.patch)),
        attributes_(file_, target, module.meshes) {}

  Result<std::string> run() {
    std::vector<OpSpec> top;
    for (const ir::Mesh& mesh : module_.meshes) top.push_back(mesh_op(mesh));
    for (const auto& function : module_.functions) {
      top.push_back(function_op(*function));
      HEKLA_RETURN_IF_ERROR(attributes_.status());
    }
    OpSpec module = file_.module(std::move(top));
    if (!module_.name.empty()) {
      module.properties[0] = {"sym_name", file_.builtin_string(module_.name), true, false};
    }
    for (const auto& [name, value] : module_.attributes) {
      module.attributes.emplace_back(name, attributes_.builtin(value));
    }
    HEKLA_RETURN_IF_ERROR(attributes_.status());
    return file_.finish(module);
  }

 private:
  OpSpec mesh_op(const ir::Mesh& mesh) {
    attributes_.need(11, "a mesh of Shardy");
    OpSpec op;
    op.name = "sdy.mesh";
    op.properties = {{"mesh", attributes_.builtin(ir::ShardingValue{mesh.value})},
                     {"sym_name", file_.builtin_string(mesh.name)}};
    for (const auto& [name, value] : mesh.attributes) {
      op.attributes.emplace_back(name, attributes_.builtin(value));
    }
    return op;
  }

  // One dictionary for each, or none at all.
  uint32_t dictionaries(const std::vector<ir::AttributeMap>& maps) {
    ir::ArrayValue array;
    bool has_any = false;
    for (const ir::AttributeMap& map : maps) {
      has_any |= !map.empty();
      array.elements.push_back(ir::DictionaryValue{{map.begin(), map.end()}});
    }
    return attributes_.vhlo(has_any ? array : ir::ArrayValue{});
  }

  OpSpec function_op(const ir::Function& function) {
    const auto visibility = [&]() -> std::string_view {
      switch (function.visibility) {
        case ir::Function::Visibility::kUnset:
          return "";
        case ir::Function::Visibility::kPublic:
          return "public";
        case ir::Function::Visibility::kPrivate:
          return "private";
        case ir::Function::Visibility::kNested:
          return "nested";
      }
      return "";
    };
    OpSpec op;
    op.name = "vhlo.func_v1";
    op.location = attributes_.location(function.location);
    op.properties = {{"arg_attrs", dictionaries(function.argument_attributes)},
                     {"function_type", attributes_.vhlo_type_attribute(function.type)},
                     {"res_attrs", dictionaries(function.result_attributes)},
                     {"sym_name", file_.vhlo_string(function.name())},
                     {"sym_visibility", file_.vhlo_string(visibility())}};
    for (const auto& [name, value] : function.attributes) {
      op.attributes.emplace_back(name, attributes_.vhlo(value));
    }
    op.regions.push_back(region_blocks(function.body(), 0, /*of_shardy=*/false));
    return op;
  }

  // Values that the region's own blocks define: arguments, results and the casts between the types
  // of VHLO and those of Shardy's operations.
  static uint32_t values_of(const ir::Region& region, bool of_shardy) {
    size_t count = 0;
    for (const auto& block : region.blocks()) {
      count += block->argument_count() * (of_shardy ? 2 : 1);
      for (const auto& op : block->operations()) {
        count += op->result_count();
        if (is_shardy(*op)) count += op->operand_count() + op->result_count();
      }
    }
    return static_cast<uint32_t>(count);
  }

  OpSpec cast(uint32_t from, uint32_t type) {
    OpSpec op;
    op.name = "builtin.unrealized_conversion_cast";
    op.operands = {from};
    op.results = {type};
    op.is_isolated = false;
    return op;
  }

  // `next`: the number of the region's first value. Regions inside begin behind its last.
  std::vector<BlockSpec> region_blocks(const ir::Region& region, uint32_t next, bool of_shardy) {
    const uint32_t inner = next + values_of(region, of_shardy);
    std::vector<BlockSpec> blocks;
    for (const auto& block : region.blocks()) {
      BlockSpec spec;
      for (size_t i = 0; i < block->argument_count(); ++i) {
        const ir::Type& type = block->argument(i)->type();
        spec.arguments.push_back(of_shardy ? attributes_.builtin_type(type)
                                           : attributes_.vhlo_type(type));
        numbers_[block->argument(i)] = next++;
      }
      for (size_t i = 0; of_shardy && i < block->argument_count(); ++i) {
        uint32_t& number = numbers_[block->argument(i)];
        spec.ops.push_back(cast(number, attributes_.vhlo_type(block->argument(i)->type())));
        number = next++;
      }
      for (const auto& op : block->operations()) {
        if (!attributes_.status().ok()) return blocks;
        if (is_shardy(*op)) {
          add_shardy(*op, spec, next, inner);
        } else {
          spec.ops.push_back(operation(*op, next, inner));
        }
      }
      blocks.push_back(std::move(spec));
    }
    return blocks;
  }

  OpSpec operation(const ir::Operation& op, uint32_t& next, uint32_t inner) {
    OpSpec spec;
    VhloForm form = vhlo_form(op, attributes_);
    spec.name = std::move(form.name);
    spec.location = attributes_.location(op.location());
    spec.properties = std::move(form.properties);
    for (const auto& [name, value] : form.discardable) {
      spec.attributes.emplace_back(name, attributes_.vhlo(value));
    }
    for (const ir::Value* operand : op.operands()) spec.operands.push_back(numbers_.at(operand));
    for (size_t i = 0; i < op.result_count(); ++i) {
      spec.results.push_back(attributes_.vhlo_type(op.result(i)->type()));
      numbers_[op.result(i)] = next++;
    }
    spec.is_isolated = false;
    for (size_t i = 0; i < op.region_count(); ++i) {
      spec.regions.push_back(region_blocks(op.region(i), inner, /*of_shardy=*/false));
    }
    return spec;
  }

  // Shardy's operations keep their builtin types: casts before and behind them.
  void add_shardy(const ir::Operation& op, BlockSpec& block, uint32_t& next, uint32_t inner) {
    attributes_.need(11, op.name());
    OpSpec spec;
    spec.name = op.name();
    spec.location = attributes_.location(op.location());
    for (const ir::Value* operand : op.operands()) {
      block.ops.push_back(cast(numbers_.at(operand), attributes_.builtin_type(operand->type())));
      spec.operands.push_back(next++);
    }
    const std::vector<DeclaredAttributes> alternatives = op_properties(op.name());
    if (alternatives.empty()) {
      attributes_.fail(unimplemented("bytecode: {} is not written", op.name()));
      return;
    }
    for (const DeclaredAttribute& declared : alternatives.front()) {
      const ir::Attribute& value = op.attribute(declared.name);
      if (value.is_absent() && !declared.is_optional) {
        attributes_.fail(invalid_argument("bytecode: {} has no {}", op.name(), declared.name));
        return;
      }
      spec.properties.push_back({std::string(declared.name),
                                 value.is_absent() ? 0 : attributes_.builtin(value),
                                 declared.is_optional, value.is_absent()});
    }
    for (const auto& [name, value] : op.attributes()) {
      // A copy: clang 14 captures no structured bindings.
      const auto is_declared = [key = std::string_view(name)](const DeclaredAttribute& d) {
        return d.name == key;
      };
      const DeclaredAttributes& all = alternatives.front();
      if (std::find_if(all.begin(), all.end(), is_declared) == all.end()) {
        spec.attributes.emplace_back(name, attributes_.builtin(value));
      }
    }
    std::vector<uint32_t> builtin_results;
    for (size_t i = 0; i < op.result_count(); ++i) {
      spec.results.push_back(attributes_.builtin_type(op.result(i)->type()));
      builtin_results.push_back(next++);
    }
    spec.is_isolated = false;
    for (size_t i = 0; i < op.region_count(); ++i) {
      spec.regions.push_back(region_blocks(op.region(i), inner, /*of_shardy=*/true));
    }
    block.ops.push_back(std::move(spec));
    for (size_t i = 0; i < op.result_count(); ++i) {
      block.ops.push_back(cast(builtin_results[i], attributes_.vhlo_type(op.result(i)->type())));
      numbers_[op.result(i)] = next++;
    }
  }

  const ir::Module& module_;
  BytecodeBuilder file_;
  AttributeWriter attributes_;
  std::unordered_map<const ir::Value*, uint32_t> numbers_;
};

}  // namespace

Result<std::string> write_bytecode(const ir::Module& module, VhloVersion target) {
  if (target < kOldestWrittenVhlo || target > kNewestVhlo) {
    return invalid_argument("bytecode: VHLO {}.{}.{} is not written, {}.{} to {}.{} are",
                            target.major, target.minor, target.patch, kOldestWrittenVhlo.major,
                            kOldestWrittenVhlo.minor, kNewestVhlo.major, kNewestVhlo.minor);
  }
  return ProgramWriter(module, target).run();
}

}  // namespace hekla::stablehlo
