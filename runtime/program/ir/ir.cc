// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/ir.h"

#include <algorithm>

namespace hekla::ir {
namespace {

void remove_one(std::vector<Operation*>& users, const Operation* user) {
  auto it = std::find(users.rbegin(), users.rend(), user);
  if (it == users.rend()) return;
  *it = users.back();
  users.pop_back();
}

}  // namespace

void Value::replace_all_uses_with(Value* other) {
  if (other == this) return;
  std::vector<Operation*> users = users_;
  for (Operation* user : users) {
    for (size_t i = 0; i < user->operand_count(); ++i) {
      if (user->operand(i) == this) user->set_operand(i, other);
    }
  }
}

AttributeMap::AttributeMap(std::vector<NamedAttribute> entries) {
  for (NamedAttribute& entry : entries) set(entry.first, std::move(entry.second));
}

const Attribute& AttributeMap::get(std::string_view name) const {
  static const Attribute kAbsent;
  auto it =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const NamedAttribute& a, std::string_view b) { return a.first < b; });
  return it != entries_.end() && it->first == name ? it->second : kAbsent;
}

void AttributeMap::set(std::string_view name, Attribute value) {
  auto it =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const NamedAttribute& a, std::string_view b) { return a.first < b; });
  const bool is_there = it != entries_.end() && it->first == name;
  if (value.is_absent()) {
    if (is_there) entries_.erase(it);
  } else if (is_there) {
    it->second = std::move(value);
  } else {
    entries_.emplace(it, std::string(name), std::move(value));
  }
}

Operation::Operation(OpCode code, std::vector<Value*> operands, std::vector<Type> result_types,
                     AttributeMap attributes, LocationRef location)
    : code_(code),
      operands_(std::move(operands)),
      attributes_(std::move(attributes)),
      location_(std::move(location)) {
  for (Value* value : operands_) {
    if (value != nullptr) value->users_.push_back(this);
  }
  results_.reserve(result_types.size());
  for (Type& type : result_types) {
    auto value = std::make_unique<Value>();
    value->type_ = std::move(type);
    value->op_ = this;
    value->index_ = static_cast<int64_t>(results_.size());
    results_.push_back(std::move(value));
  }
}

std::unique_ptr<Operation> Operation::unknown(std::string name, std::vector<Value*> operands,
                                              std::vector<Type> result_types,
                                              AttributeMap attributes, LocationRef location) {
  auto op =
      std::make_unique<Operation>(OpCode::kUnknown, std::move(operands), std::move(result_types),
                                  std::move(attributes), std::move(location));
  op->name_ = std::move(name);
  return op;
}

// Whole graphs go at once, users before or after what they use, so destruction leaves the lists of
// users alone; Block::erase unlinks.
Operation::~Operation() = default;

Operation* Operation::parent_op() const {
  return block_ == nullptr ? nullptr : block_->region()->parent();
}

void Operation::set_operand(size_t i, Value* value) {
  if (operands_[i] != nullptr) remove_one(operands_[i]->users_, this);
  operands_[i] = value;
  if (value != nullptr) value->users_.push_back(this);
}

void Operation::set_operands(std::vector<Value*> values) {
  for (Value* value : operands_) {
    if (value != nullptr) remove_one(value->users_, this);
  }
  operands_ = std::move(values);
  for (Value* value : operands_) {
    if (value != nullptr) value->users_.push_back(this);
  }
}

std::vector<Type> Operation::result_types() const {
  std::vector<Type> types;
  types.reserve(results_.size());
  for (const auto& result : results_) types.push_back(result->type());
  return types;
}

Region& Operation::add_region() {
  regions_.push_back(std::make_unique<Region>(this));
  return *regions_.back();
}

void Operation::adopt_region(std::unique_ptr<Region> region) {
  region->parent_ = this;
  regions_.push_back(std::move(region));
}

Block::~Block() = default;

Value* Block::add_argument(Type type) {
  auto value = std::make_unique<Value>();
  value->type_ = std::move(type);
  value->block_ = this;
  value->index_ = static_cast<int64_t>(arguments_.size());
  arguments_.push_back(std::move(value));
  return arguments_.back().get();
}

std::vector<Type> Block::argument_types() const {
  std::vector<Type> types;
  types.reserve(arguments_.size());
  for (const auto& argument : arguments_) types.push_back(argument->type());
  return types;
}

Operation* Block::append(std::unique_ptr<Operation> op) {
  op->block_ = this;
  operations_.push_back(std::move(op));
  return operations_.back().get();
}

Operation* Block::append(OpCode code, std::vector<Value*> operands, std::vector<Type> result_types,
                         AttributeMap attributes, LocationRef location) {
  return append(std::make_unique<Operation>(code, std::move(operands), std::move(result_types),
                                            std::move(attributes), std::move(location)));
}

Operation* Block::insert_before(const Operation* before, std::unique_ptr<Operation> op) {
  auto it = std::find_if(operations_.begin(), operations_.end(),
                         [&](const auto& other) { return other.get() == before; });
  op->block_ = this;
  return operations_.insert(it, std::move(op))->get();
}

void Block::erase(Operation* op) {
  std::unique_ptr<Operation> taken = take(op);
  taken->set_operands({});
  for (const auto& region : taken->regions_) {
    walk(*region, [](Operation& inner) { inner.set_operands({}); });
  }
}

std::unique_ptr<Operation> Block::take(Operation* op) {
  auto it = std::find_if(operations_.begin(), operations_.end(),
                         [&](const auto& other) { return other.get() == op; });
  std::unique_ptr<Operation> taken = std::move(*it);
  operations_.erase(it);
  taken->block_ = nullptr;
  return taken;
}

Region::~Region() = default;

Block& Region::add_block() {
  blocks_.push_back(std::make_unique<Block>(this));
  return *blocks_.back();
}

Function* Module::find(std::string_view function) const {
  for (const auto& candidate : functions) {
    if (candidate->name() == function) return candidate.get();
  }
  return nullptr;
}

Function* Module::entry() const {
  if (Function* main = find("main")) return main;
  Function* only = nullptr;
  for (const auto& function : functions) {
    if (function->visibility == Function::Visibility::kPrivate || function->is_declaration()) {
      continue;
    }
    if (only != nullptr) return nullptr;
    only = function.get();
  }
  return only;
}

}  // namespace hekla::ir
