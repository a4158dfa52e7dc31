// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/text/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "runtime/program/sharding/text.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::stablehlo {
namespace {

using Difference = std::optional<std::string>;
using Numbers = std::unordered_map<const ir::Value*, size_t>;

// Results before the contents of regions.
void number_values(const ir::Region& region, bool skip_constants, Numbers& numbers) {
  for (const auto& block : region.blocks()) {
    for (size_t i = 0; i < block->argument_count(); ++i) {
      numbers.try_emplace(block->argument(i), numbers.size());
    }
    for (const auto& op : block->operations()) {
      if (skip_constants && op->code() == ir::OpCode::kConstant) continue;
      for (size_t i = 0; i < op->result_count(); ++i) {
        numbers.try_emplace(op->result(i), numbers.size());
      }
      for (size_t r = 0; r < op->region_count(); ++r) {
        number_values(op->region(r), skip_constants, numbers);
      }
    }
  }
}

constexpr int64_t kNoValue = -1;
constexpr int64_t kElsewhere = -2;  // not a value of this function

int64_t number_of(const Numbers& numbers, const ir::Value* value) {
  if (value == nullptr) return kNoValue;
  auto it = numbers.find(value);
  return it == numbers.end() ? kElsewhere : static_cast<int64_t>(it->second);
}

std::string value_text(int64_t number) {
  if (number == kNoValue) return "no value";
  return number == kElsewhere ? "a value of elsewhere" : fmt::format("value {}", number);
}

const ir::Operation* constant_of(const ir::Value* value) {
  if (value == nullptr || value->defining_op() == nullptr) return nullptr;
  return value->defining_op()->code() == ir::OpCode::kConstant ? value->defining_op() : nullptr;
}

class Comparer {
 public:
  explicit Comparer(const CompareOptions& options) : options_(options) {}

  Difference modules(const ir::Module& left, const ir::Module& right) {
    if (left.name != right.name) return differ("module name", left.name, right.name);
    if (Difference d = maps("module", left.attributes, right.attributes)) return d;
    if (Difference d = counts("meshes", left.meshes.size(), right.meshes.size())) return d;
    for (size_t i = 0; i < left.meshes.size(); ++i) {
      if (left.meshes[i] == right.meshes[i]) continue;
      return differ(fmt::format("mesh {}", i), mesh_text(left.meshes[i]),
                    mesh_text(right.meshes[i]));
    }
    if (Difference d = counts("functions", left.functions.size(), right.functions.size())) return d;
    for (size_t i = 0; i < left.functions.size(); ++i) {
      if (Difference d = functions(*left.functions[i], *right.functions[i])) return d;
    }
    return std::nullopt;
  }

 private:
  static Difference differ(std::string_view path, std::string_view left, std::string_view right) {
    return fmt::format("{}: {} | {}", path, left, right);
  }

  static Difference counts(std::string_view path, size_t left, size_t right) {
    if (left == right) return std::nullopt;
    return fmt::format("number of {}: {} | {}", path, left, right);
  }

  static std::string attribute_text(const ir::Attribute& attribute) {
    return attribute.is_absent() ? "absent" : print_attribute(attribute, {.max_elements = 16});
  }

  static std::string mesh_text(const ir::Mesh& mesh) {
    std::string text = fmt::format("@{} {}", mesh.name, sharding::to_text(mesh.value));
    for (const auto& [name, value] : mesh.attributes) {
      text += fmt::format(" {} = {}", name, attribute_text(value));
    }
    return text;
  }

  static Difference maps(std::string_view path, const ir::AttributeMap& left,
                         const ir::AttributeMap& right) {
    for (const auto& [name, value] : left) {
      const ir::Attribute& other = right.get(name);
      if (value == other) continue;
      return differ(fmt::format("{}, attribute {}", path, name), attribute_text(value),
                    attribute_text(other));
    }
    for (const auto& [name, value] : right) {
      if (left.get(name).is_absent()) {
        return differ(fmt::format("{}, attribute {}", path, name), "absent", attribute_text(value));
      }
    }
    return std::nullopt;
  }

  static Difference map_lists(std::string_view path, const std::vector<ir::AttributeMap>& left,
                              const std::vector<ir::AttributeMap>& right) {
    if (left.size() != right.size()) {
      return differ(fmt::format("{}s with attributes", path), std::to_string(left.size()),
                    std::to_string(right.size()));
    }
    for (size_t i = 0; i < left.size(); ++i) {
      if (Difference d = maps(fmt::format("{} {}", path, i), left[i], right[i])) return d;
    }
    return std::nullopt;
  }

  Difference functions(const ir::Function& left, const ir::Function& right) {
    if (left.name() != right.name()) return differ("function name", left.name(), right.name());
    const std::string path = "@" + left.name();
    if (left.visibility != right.visibility) {
      return differ(path + ", visibility", std::to_string(static_cast<int>(left.visibility)),
                    std::to_string(static_cast<int>(right.visibility)));
    }
    if (left.type != right.type) {
      return differ(path + ", type", left.type.to_string(), right.type.to_string());
    }
    if (Difference d = maps(path, left.attributes, right.attributes)) return d;
    if (Difference d =
            map_lists(path + ", argument", left.argument_attributes, right.argument_attributes)) {
      return d;
    }
    if (Difference d =
            map_lists(path + ", result", left.result_attributes, right.result_attributes)) {
      return d;
    }
    left_.clear();
    right_.clear();
    op_count_ = 0;
    number_values(left.body(), options_.constants_by_value, left_);
    number_values(right.body(), options_.constants_by_value, right_);
    return regions(path, left.body(), right.body());
  }

  Difference regions(const std::string& path, const ir::Region& left, const ir::Region& right) {
    if (left.blocks().size() != right.blocks().size()) {
      return differ(path + ", blocks", std::to_string(left.blocks().size()),
                    std::to_string(right.blocks().size()));
    }
    for (size_t b = 0; b < left.blocks().size(); ++b) {
      const ir::Block& l = *left.blocks()[b];
      const ir::Block& r = *right.blocks()[b];
      if (l.argument_types() != r.argument_types()) {
        return differ(path + ", block arguments", ir::types_string(l.argument_types()),
                      ir::types_string(r.argument_types()));
      }
      const std::vector<const ir::Operation*> left_ops = counted(l);
      const std::vector<const ir::Operation*> right_ops = counted(r);
      const size_t common = std::min(left_ops.size(), right_ops.size());
      for (size_t i = 0; i < common; ++i) {
        if (Difference d = operations(path, *left_ops[i], *right_ops[i])) return d;
      }
      if (left_ops.size() != right_ops.size()) {
        return differ(path + ", operations of a block", std::to_string(left_ops.size()),
                      std::to_string(right_ops.size()));
      }
    }
    return std::nullopt;
  }

  std::vector<const ir::Operation*> counted(const ir::Block& block) const {
    std::vector<const ir::Operation*> ops;
    for (const auto& op : block.operations()) {
      if (options_.constants_by_value && op->code() == ir::OpCode::kConstant) continue;
      ops.push_back(op.get());
    }
    return ops;
  }

  Difference operations(const std::string& region_path, const ir::Operation& left,
                        const ir::Operation& right) {
    const std::string path = fmt::format("{}, op {} {}", region_path, op_count_++, left.name());
    if (left.name() != right.name()) return differ(path, left.name(), right.name());
    if (left.result_types() != right.result_types()) {
      return differ(path + ", result types", ir::types_string(left.result_types()),
                    ir::types_string(right.result_types()));
    }
    if (left.operand_count() != right.operand_count()) {
      return differ(path + ", operands", std::to_string(left.operand_count()),
                    std::to_string(right.operand_count()));
    }
    for (size_t i = 0; i < left.operand_count(); ++i) {
      if (options_.constants_by_value) {
        const ir::Operation* l = constant_of(left.operand(i));
        const ir::Operation* r = constant_of(right.operand(i));
        if (l != nullptr && r != nullptr) {
          const std::string constant = fmt::format("{}, operand {}, constant", path, i);
          if (!(l->result()->type() == r->result()->type())) {
            return differ(constant + " type", l->result()->type().to_string(),
                          r->result()->type().to_string());
          }
          if (Difference d = maps(constant, l->attributes(), r->attributes())) return d;
          continue;
        }
      }
      const int64_t l = number_of(left_, left.operand(i));
      const int64_t r = number_of(right_, right.operand(i));
      if (l == r) continue;
      return differ(fmt::format("{}, operand {}", path, i), value_text(l), value_text(r));
    }
    if (Difference d = maps(path, left.attributes(), right.attributes())) return d;
    if (left.region_count() != right.region_count()) {
      return differ(path + ", regions", std::to_string(left.region_count()),
                    std::to_string(right.region_count()));
    }
    for (size_t i = 0; i < left.region_count(); ++i) {
      if (Difference d =
              regions(fmt::format("{}, region {}", path, i), left.region(i), right.region(i))) {
        return d;
      }
    }
    return std::nullopt;
  }

  const CompareOptions& options_;
  Numbers left_;  // of the functions at hand
  Numbers right_;
  size_t op_count_ = 0;  // of the function at hand, over all regions
};

}  // namespace

std::optional<std::string> first_difference(const ir::Module& left, const ir::Module& right,
                                            const CompareOptions& options) {
  return Comparer(options).modules(left, right);
}

}  // namespace hekla::stablehlo
