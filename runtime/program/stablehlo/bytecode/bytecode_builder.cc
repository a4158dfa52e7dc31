// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/bytecode/bytecode_builder.h"

#include <algorithm>

namespace hekla::stablehlo {
namespace {

std::string section(uint8_t id, const std::string& payload) {
  return std::string(1, static_cast<char>(id)) + varint(payload.size()) + payload;
}

std::string flagged(uint64_t value, bool flag) { return varint(value << 1 | (flag ? 1 : 0)); }

}  // namespace

std::string varint(uint64_t value) {
  std::string bytes;
  for (size_t size = 1; size <= 8; ++size) {
    // `size` bytes hold 7 * size bits beside the size mark.
    if (value >> (7 * size) != 0) continue;
    const uint64_t stored = (value << 1 | 1) << (size - 1);
    for (size_t i = 0; i < size; ++i) bytes += static_cast<char>(stored >> (8 * i));
    return bytes;
  }
  bytes += '\0';
  for (size_t i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string svarint(int64_t value) {
  return varint(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
}

std::string refs(const std::vector<uint32_t>& numbers) {
  std::string bytes = varint(numbers.size());
  for (uint32_t number : numbers) bytes += varint(number);
  return bytes;
}

std::string svarints(const std::vector<int64_t>& numbers) {
  std::string bytes = varint(numbers.size());
  for (int64_t number : numbers) bytes += svarint(number);
  return bytes;
}

std::string blob(std::string_view bytes) { return varint(bytes.size()) + std::string(bytes); }

uint32_t BytecodeBuilder::string(std::string_view text) {
  auto [it, is_new] = string_numbers_.try_emplace(std::string(text), strings_.size());
  if (is_new) strings_.emplace_back(text);
  return it->second;
}

uint32_t BytecodeBuilder::dialect(std::string_view name) {
  const auto it = std::find(dialects_.begin(), dialects_.end(), name);
  if (it == dialects_.end()) {
    dialects_.emplace_back(name);
    return static_cast<uint32_t>(dialects_.size() - 1);
  }
  return static_cast<uint32_t>(it - dialects_.begin());
}

uint32_t BytecodeBuilder::attribute(std::string_view dialect_name, std::string payload) {
  attributes_.push_back({dialect(dialect_name), std::move(payload), true});
  return static_cast<uint32_t>(attributes_.size() - 1);
}

uint32_t BytecodeBuilder::attribute_text(std::string_view dialect_name, std::string_view text) {
  attributes_.push_back({dialect(dialect_name), std::string(text) + '\0', false});
  return static_cast<uint32_t>(attributes_.size() - 1);
}

uint32_t BytecodeBuilder::type_text(std::string_view dialect_name, std::string_view text) {
  types_.push_back({dialect(dialect_name), std::string(text) + '\0', false});
  return static_cast<uint32_t>(types_.size() - 1);
}

uint32_t BytecodeBuilder::type(std::string_view dialect_name, std::string payload) {
  types_.push_back({dialect(dialect_name), std::move(payload), true});
  return static_cast<uint32_t>(types_.size() - 1);
}

uint32_t BytecodeBuilder::shared_attribute(std::string_view dialect_name, std::string payload) {
  auto [it, is_new] = shared_attributes_.try_emplace({dialect(dialect_name), payload}, 0);
  if (is_new) it->second = attribute(dialect_name, std::move(payload));
  return it->second;
}

uint32_t BytecodeBuilder::shared_type(std::string_view dialect_name, std::string payload) {
  auto [it, is_new] = shared_types_.try_emplace({dialect(dialect_name), payload}, 0);
  if (is_new) it->second = type(dialect_name, std::move(payload));
  return it->second;
}

uint32_t BytecodeBuilder::builtin_string(std::string_view text) {
  return shared_attribute("builtin", varint(2) + varint(string(text)));
}

uint32_t BytecodeBuilder::vhlo_string(std::string_view text) {
  return shared_attribute("vhlo", varint(14) + varint(string(text)));
}

uint32_t BytecodeBuilder::vhlo_f32() { return shared_type("vhlo", varint(4)); }

uint32_t BytecodeBuilder::vhlo_tensor(const std::vector<int64_t>& dims, uint32_t element) {
  return shared_type("vhlo", varint(20) + svarints(dims) + varint(element));
}

uint32_t BytecodeBuilder::unknown_location() { return shared_attribute("builtin", varint(15)); }

uint32_t BytecodeBuilder::resource(std::string_view key, std::string bytes) {
  resources_.emplace_back(string(key), std::move(bytes));
  return static_cast<uint32_t>(resources_.size() - 1);
}

OpSpec BytecodeBuilder::module(std::vector<OpSpec> ops) {
  OpSpec spec;
  spec.name = "builtin.module";
  spec.properties = {{"sym_name", 0, true, true}, {"sym_visibility", 0, true, true}};
  BlockSpec block;
  block.ops = std::move(ops);
  spec.regions.push_back({std::move(block)});
  return spec;
}

OpSpec BytecodeBuilder::module_with_main(BlockSpec body, const std::vector<uint32_t>& results) {
  const uint32_t function_type = type("vhlo", varint(8) + refs(body.arguments) + refs(results));
  const uint32_t empty = shared_attribute("vhlo", varint(1) + varint(0));
  OpSpec function;
  function.name = "vhlo.func_v1";
  function.properties = {{"arg_attrs", empty},
                         {"function_type", attribute("vhlo", varint(17) + varint(function_type))},
                         {"res_attrs", empty},
                         {"sym_name", vhlo_string("main")},
                         {"sym_visibility", vhlo_string("public")}};
  function.regions.push_back({std::move(body)});
  return module({std::move(function)});
}

uint32_t BytecodeBuilder::op_name(std::string_view name) {
  if (const auto it = op_numbers_.find(name); it != op_numbers_.end()) return it->second;
  const size_t dot = name.find('.');
  op_names_.emplace_back(dialect(name.substr(0, dot)), string(name.substr(dot + 1)));
  return op_numbers_[std::string(name)] = static_cast<uint32_t>(op_names_.size() - 1);
}

std::string BytecodeBuilder::dictionary_payload(
    const std::vector<std::pair<std::string, uint32_t>>& entries) {
  std::string payload = varint(1) + varint(entries.size());
  for (const auto& [name, value] : entries) payload += varint(builtin_string(name)) + varint(value);
  return payload;
}

std::string BytecodeBuilder::block_bytes(const BlockSpec& block) {
  const bool has_arguments = !block.arguments.empty();
  std::string bytes = flagged(block.ops.size(), has_arguments);
  if (has_arguments) {
    bytes += varint(block.arguments.size());
    for (uint32_t type : block.arguments) {
      bytes += version_ < 4 ? varint(type) + varint(unknown_location()) : flagged(type, false);
    }
    if (version_ >= 3) bytes += '\0';
  }
  for (const OpSpec& op : block.ops) bytes += op_bytes(op);
  return bytes;
}

std::string BytecodeBuilder::op_bytes(const OpSpec& op) {
  std::vector<std::pair<std::string, uint32_t>> dictionary = op.attributes;
  if (version_ < 5) {
    for (const PropertySpec& property : op.properties) {
      if (!property.is_absent) dictionary.emplace_back(property.name, property.attribute);
    }
  }
  const bool has_properties = version_ >= 5 && !op.properties.empty();
  int mask = 0;
  mask |= dictionary.empty() ? 0 : 0x01;
  mask |= op.results.empty() ? 0 : 0x02;
  mask |= op.operands.empty() ? 0 : 0x04;
  mask |= op.regions.empty() ? 0 : 0x10;
  mask |= has_properties ? 0x40 : 0;
  std::string bytes = varint(op_name(op.name)) + static_cast<char>(mask);
  bytes += varint(op.location.has_value() ? *op.location : unknown_location());
  if (!dictionary.empty()) {
    bytes += varint(shared_attribute("builtin", dictionary_payload(dictionary)));
  }
  if (has_properties) {
    std::string entry;
    for (const PropertySpec& property : op.properties) {
      if (property.is_absent) {
        entry += flagged(0, false);
      } else {
        entry +=
            property.is_optional ? flagged(property.attribute, true) : varint(property.attribute);
      }
    }
    const auto [it, is_new] =
        property_numbers_.try_emplace(entry, static_cast<uint32_t>(properties_.size()));
    if (is_new) properties_.push_back(std::move(entry));
    bytes += varint(it->second);
  }
  if (!op.results.empty()) bytes += refs(op.results);
  if (!op.operands.empty()) bytes += refs(op.operands);
  if (op.regions.empty()) return bytes;
  std::string regions;
  for (const std::vector<BlockSpec>& blocks : op.regions) {
    regions += varint(blocks.size());
    if (blocks.empty()) continue;
    size_t values = 0;
    for (const BlockSpec& block : blocks) {
      values += block.arguments.size();
      for (const OpSpec& inner : block.ops) values += inner.results.size();
    }
    regions += varint(values);
    for (const BlockSpec& block : blocks) regions += block_bytes(block);
  }
  bytes += flagged(op.regions.size(), op.is_isolated);
  return bytes + (version_ >= 2 && op.is_isolated ? section(4, regions) : regions);
}

std::string BytecodeBuilder::finish(const OpSpec& module) {
  BlockSpec top;
  top.ops.push_back(module);
  const std::string ir = block_bytes(top);  // adds entries to the tables below

  std::string names;
  for (size_t i = 0; i < op_names_.size();) {
    size_t end = i;
    while (end < op_names_.size() && op_names_[end].first == op_names_[i].first) ++end;
    names += varint(op_names_[i].first) + varint(end - i);
    for (; i < end; ++i) {
      names += version_ < 5 ? varint(op_names_[i].second) : flagged(op_names_[i].second, true);
    }
  }
  std::vector<uint32_t> dialect_names;
  for (const std::string& name : dialects_) dialect_names.push_back(string(name));
  std::string dialects = varint(dialects_.size());
  for (uint32_t name : dialect_names) {
    dialects += version_ == 0 ? varint(name) : flagged(name, false);
  }
  if (version_ >= 4) dialects += varint(op_names_.size());

  std::string offsets = varint(attributes_.size()) + varint(types_.size());
  std::string data;
  for (const std::vector<Entry>* entries : {&attributes_, &types_}) {
    for (size_t i = 0; i < entries->size();) {
      size_t end = i;
      while (end < entries->size() && (*entries)[end].dialect == (*entries)[i].dialect) ++end;
      offsets += varint((*entries)[i].dialect) + varint(end - i);
      for (; i < end; ++i) {
        const Entry& entry = (*entries)[i];
        offsets += flagged(entry.payload.size(), entry.has_custom_encoding);
        data += entry.payload;
      }
    }
  }

  std::string file = "ML\xEFR" + varint(version_) + producer_ + '\0';
  file += section(1, dialects + names) + section(3, offsets) + section(2, data) + section(4, ir);
  std::string resource_offsets = varint(0);
  std::string resource_data;  // aligned to one byte, which needs no filler
  if (!resources_.empty()) {
    resource_offsets += varint(dialect("builtin")) + varint(resources_.size());
    for (const auto& [key, bytes] : resources_) {
      const std::string payload = varint(1) + varint(bytes.size()) + bytes;
      resource_offsets += varint(key) + varint(payload.size()) + '\0';
      resource_data += payload;
    }
  }
  file += section(6, resource_offsets) + section(5, resource_data);

  std::string strings = varint(strings_.size());
  for (auto it = strings_.rbegin(); it != strings_.rend(); ++it) strings += varint(it->size() + 1);
  for (const std::string& text : strings_) strings += text + '\0';
  file += section(0, strings);
  if (version_ >= 5) {
    std::string properties = varint(properties_.size());
    for (const std::string& entry : properties_) properties += varint(entry.size()) + entry;
    file += section(8, properties);
  }
  return file;
}

}  // namespace hekla::stablehlo
