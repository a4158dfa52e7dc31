// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/hlo/read_hlo.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/program/hlo/converter.h"
#include "runtime/program/ir/typed_attributes.h"
#include "runtime/program/sharding/hlo_sharding.h"

namespace hekla::hlo {
namespace {

using sharding::HloSharding;

// Fields of HloModuleProto.
enum : uint32_t {
  kComputations = 3,
  kHostProgramShape = 4,
  kInputOutputAlias = 8,
  kBufferDonor = 18,
  kSpmdOutputSharding = 12,
  kSpmdParametersShardings = 14,
  kModuleFrontendAttributes = 19,
};
// Fields of HloModuleProtoWithConfig.
enum : uint32_t { kModule = 1, kConfig = 2 };

// The first leaf of the element that a shape index names.
Result<size_t> leaf_at(const Shape& shape, const std::vector<int64_t>& index) {
  const Shape* at = &shape;
  size_t leaf = 0;
  for (int64_t i : index) {
    if (!at->is_tuple || i < 0 || i >= static_cast<int64_t>(at->elements.size())) {
      return invalid_argument("{} has no element {}", shape_text(shape), i);
    }
    leaf += first_leaf(*at, static_cast<size_t>(i));
    at = &at->elements[static_cast<size_t>(i)];
  }
  if (at->is_tuple) return invalid_argument("an index of {} names a tuple", shape_text(shape));
  return leaf;
}

class Entry {
 public:
  Entry(const Program& program, ir::Function& function)
      : program_(program), computation_(program.computations[program.entry]), function_(function) {
    size_t leaf = 0;
    for (size_t parameter : computation_.parameters) {
      first_leaves_.push_back(leaf);
      leaf += computation_.instructions[parameter].shape.leaf_count;
    }
  }

  Status annotate() {
    HEKLA_RETURN_IF_ERROR(read_aliases());
    HEKLA_RETURN_IF_ERROR(read_donors());
    for (size_t i = 0; i < computation_.parameters.size(); ++i) {
      const Instruction& parameter = computation_.instructions[computation_.parameters[i]];
      HEKLA_RETURN_IF_ERROR(annotate_leaves(parameter.fields.bytes(kSharding),
                                            parameter.fields.has(kSharding), parameter.shape,
                                            first_leaves_[i], function_.argument_attributes));
      HEKLA_ASSIGN_OR_RETURN(const ir::Attribute notes, frontend_attributes(parameter.fields));
      for (size_t k = 0; k < parameter.shape.leaf_count; ++k) {
        function_.argument_attributes[first_leaves_[i] + k].set("mhlo.frontend_attributes", notes);
      }
    }
    const Instruction& root = computation_.instructions[computation_.root];
    return annotate_leaves(root.fields.bytes(kSharding), root.fields.has(kSharding), root.shape, 0,
                           function_.result_attributes);
  }

 private:
  Result<size_t> parameter_leaf(const Message& entry, uint32_t number, uint32_t index) const {
    const int64_t parameter = entry.integer(number);
    if (parameter < 0 || parameter >= static_cast<int64_t>(computation_.parameters.size())) {
      return invalid_argument("the entry has no parameter {} to donate", parameter);
    }
    const size_t i = static_cast<size_t>(parameter);
    HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> at, entry.integers(index));
    HEKLA_ASSIGN_OR_RETURN(
        const size_t leaf,
        leaf_at(computation_.instructions[computation_.parameters[i]].shape, at));
    return first_leaves_[i] + leaf;
  }

  Status read_aliases() {
    HEKLA_ASSIGN_OR_RETURN(const Message alias,
                           program_.fields.message(kInputOutputAlias, "aliases of inputs"));
    HEKLA_ASSIGN_OR_RETURN(const std::vector<Message> entries, alias.messages(1, "an alias"));
    const Shape& results = computation_.instructions[computation_.root].shape;
    for (const Message& entry : entries) {
      HEKLA_ASSIGN_OR_RETURN(const size_t parameter, parameter_leaf(entry, 2, 3));
      HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> at, entry.integers(1));
      HEKLA_ASSIGN_OR_RETURN(const size_t result, leaf_at(results, at));
      function_.argument_attributes[parameter].set(
          "tf.aliasing_output",
          ir::IntegerValue{ir::Type::scalar(DType::kI32), static_cast<int64_t>(result)});
    }
    return ok_status();
  }

  Status read_donors() {
    HEKLA_ASSIGN_OR_RETURN(const Message donors,
                           program_.fields.message(kBufferDonor, "buffer donors"));
    HEKLA_ASSIGN_OR_RETURN(const std::vector<Message> entries, donors.messages(1, "a donor"));
    for (const Message& entry : entries) {
      HEKLA_ASSIGN_OR_RETURN(const size_t parameter, parameter_leaf(entry, 1, 2));
      function_.argument_attributes[parameter].set("jax.buffer_donor", ir::BoolValue{true});
    }
    return ok_status();
  }

  // One sharding for all leaves, or a tuple with one for each.
  static Status annotate_leaves(std::string_view bytes, bool is_given, const Shape& shape,
                                size_t first, std::vector<ir::AttributeMap>& attributes) {
    if (!is_given) return ok_status();
    HEKLA_ASSIGN_OR_RETURN(const HloSharding whole, sharding::decode_op_sharding(bytes));
    const bool is_tuple = whole.kind == HloSharding::Kind::kTuple;
    // An empty tuple of parameters or results has the sharding of one that is there.
    if (is_tuple && whole.elements.size() != shape.leaf_count) {
      if (shape.leaf_count == 0) return ok_status();
      return invalid_argument("{} shardings for {}", whole.elements.size(), shape_text(shape));
    }
    for (size_t i = 0; i < shape.leaf_count; ++i) {
      attributes[first + i].set("mhlo.sharding",
                                ir::hlo_sharding_attribute(is_tuple ? whole.elements[i] : whole));
    }
    return ok_status();
  }

  const Program& program_;
  const Computation& computation_;
  ir::Function& function_;
  std::vector<size_t> first_leaves_;  // of each parameter
};

}  // namespace

bool is_hlo_module(std::string_view bytes) {
  const Result<Message> message = Message::parse(bytes, "");
  return message.ok() && !message->list(kComputations).empty();
}

bool is_hlo_with_config(std::string_view bytes) {
  const Result<Message> message = Message::parse(bytes, "");
  return message.ok() && is_hlo_module(message->bytes(kModule));
}

Result<std::string_view> module_of(std::string_view bytes) {
  HEKLA_ASSIGN_OR_RETURN(const Message message, Message::parse(bytes, "an HLO module"));
  if (!message.list(kComputations).empty()) return bytes;
  if (is_hlo_module(message.bytes(kModule))) return message.bytes(kModule);
  return invalid_argument("an HLO module without computations");
}

Result<std::unique_ptr<ir::Module>> read_hlo(std::string_view bytes) {
  HEKLA_ASSIGN_OR_RETURN(const std::string_view proto, module_of(bytes));
  HEKLA_ASSIGN_OR_RETURN(const Program program, decode_program(proto));
  auto module = std::make_unique<ir::Module>();
  module->name = std::string(program.name);
  Converter converter(program, *module);
  HEKLA_RETURN_IF_ERROR(converter.run());
  HEKLA_RETURN_IF_ERROR(Entry(program, *module->functions.front()).annotate());
  return module;
}

Result<std::string> with_config(std::string_view module) {
  HEKLA_ASSIGN_OR_RETURN(const Message message, Message::parse(module, "an HLO module"));
  wire::Writer config;
  config.bytes(1, message.bytes(kHostProgramShape));
  wire::Writer outer;
  outer.bytes(kModule, module);
  outer.message(kConfig, config);
  return outer.text();
}

}  // namespace hekla::hlo
