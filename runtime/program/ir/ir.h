// SPDX-License-Identifier: Apache-2.0
// The IR: a small SSA graph with StableHLO's operations, types and regions.
//
// A Module owns functions; a Function owns one Region; a Region owns blocks (StableHLO has exactly
// one); a Block owns its arguments and operations; an Operation owns its results and regions.
// Values are referred to by pointer and stay where they are until their owner goes. Every Value
// knows its users, so ops can be replaced and erased by passes. Nothing checks meaning while a
// graph is built: run `verify` (verify.h) on what came from outside and after a pass. A Module is
// used by one thread at a time; concurrent readers are fine.
//
//   Operation* sum = block.append(OpCode::kAdd, {x, y}, {x->type()}, {}, location);
//   if (const IntegerValue* dim = op.attribute("dimension").get<IntegerValue>()) ...
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/program/ir/attribute.h"
#include "runtime/program/ir/location.h"
#include "runtime/program/ir/op_code.h"
#include "runtime/program/ir/type.h"

namespace hekla::ir {

class Block;
class Operation;
class Region;

class Value {
 public:
  const Type& type() const { return type_; }
  void set_type(Type type) { type_ = std::move(type); }
  // The operation that makes this value; null for a block argument.
  Operation* defining_op() const { return op_; }
  // The block whose argument this is; null for a result.
  Block* argument_of() const { return block_; }
  // Among the results, or among the arguments.
  int64_t index() const { return index_; }
  // One entry per use, in no particular order.
  const std::vector<Operation*>& users() const { return users_; }
  bool has_uses() const { return !users_.empty(); }
  // Every use of this value becomes a use of `other`.
  void replace_all_uses_with(Value* other);

 private:
  friend class Block;
  friend class Operation;
  Type type_;
  Operation* op_ = nullptr;
  Block* block_ = nullptr;
  int64_t index_ = 0;
  std::vector<Operation*> users_;
};

// Sorted by name; declared and discardable attributes together.
class AttributeMap {
 public:
  AttributeMap() = default;
  AttributeMap(std::vector<NamedAttribute> entries);
  const Attribute& get(std::string_view name) const;  // absent when there is none
  void set(std::string_view name, Attribute value);   // an absent value removes the entry
  void erase(std::string_view name) { set(name, Attribute()); }
  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  size_t size() const { return entries_.size(); }
  bool operator==(const AttributeMap&) const = default;

 private:
  std::vector<NamedAttribute> entries_;
};

class Operation {
 public:
  Operation(OpCode code, std::vector<Value*> operands, std::vector<Type> result_types,
            AttributeMap attributes = {}, LocationRef location = nullptr);
  // For operations outside op_code.h's list.
  static std::unique_ptr<Operation> unknown(std::string name, std::vector<Value*> operands,
                                            std::vector<Type> result_types,
                                            AttributeMap attributes = {},
                                            LocationRef location = nullptr);
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation();

  OpCode code() const { return code_; }
  std::string_view name() const { return code_ == OpCode::kUnknown ? name_ : op_name(code_); }
  const LocationRef& location() const { return location_; }
  Block* block() const { return block_; }
  // The operation whose region this one stands in; null at the top of a function.
  Operation* parent_op() const;

  size_t operand_count() const { return operands_.size(); }
  Value* operand(size_t i) const { return operands_[i]; }
  const std::vector<Value*>& operands() const { return operands_; }
  void set_operand(size_t i, Value* value);
  void set_operands(std::vector<Value*> values);

  size_t result_count() const { return results_.size(); }
  Value* result(size_t i = 0) const { return results_[i].get(); }
  std::vector<Type> result_types() const;

  const AttributeMap& attributes() const { return attributes_; }
  AttributeMap& attributes() { return attributes_; }
  const Attribute& attribute(std::string_view name) const { return attributes_.get(name); }

  size_t region_count() const { return regions_.size(); }
  Region& region(size_t i) const { return *regions_[i]; }
  Region& add_region();
  // Takes over a region that was built before its operation.
  void adopt_region(std::unique_ptr<Region> region);
  // Gives all regions away, for another operation.
  std::vector<std::unique_ptr<Region>> take_regions() { return std::move(regions_); }

 private:
  friend class Block;
  OpCode code_;
  std::string name_;  // kUnknown only
  std::vector<Value*> operands_;
  std::vector<std::unique_ptr<Value>> results_;
  AttributeMap attributes_;
  std::vector<std::unique_ptr<Region>> regions_;
  LocationRef location_;
  Block* block_ = nullptr;
};

class Block {
 public:
  explicit Block(Region* region) : region_(region) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();

  Region* region() const { return region_; }
  size_t argument_count() const { return arguments_.size(); }
  Value* argument(size_t i) const { return arguments_[i].get(); }
  Value* add_argument(Type type);
  std::vector<Type> argument_types() const;

  const std::vector<std::unique_ptr<Operation>>& operations() const { return operations_; }
  bool empty() const { return operations_.empty(); }
  // The last operation; null when the block is empty.
  Operation* terminator() const { return operations_.empty() ? nullptr : operations_.back().get(); }
  Operation* append(std::unique_ptr<Operation> op);
  Operation* append(OpCode code, std::vector<Value*> operands, std::vector<Type> result_types,
                    AttributeMap attributes = {}, LocationRef location = nullptr);
  // Puts `op` in front of `before`, which stands in this block.
  Operation* insert_before(const Operation* before, std::unique_ptr<Operation> op);
  // Removes `op`, whose results have no uses left.
  void erase(Operation* op);
  // Takes `op` out of the block and gives it to the caller; its operands stay as they are.
  std::unique_ptr<Operation> take(Operation* op);

 private:
  Region* region_;
  std::vector<std::unique_ptr<Value>> arguments_;
  std::vector<std::unique_ptr<Operation>> operations_;
};

class Region {
 public:
  // `parent` is null for the body of a function.
  explicit Region(Operation* parent) : parent_(parent) {}
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region();

  Operation* parent() const { return parent_; }
  const std::vector<std::unique_ptr<Block>>& blocks() const { return blocks_; }
  Block& add_block();
  // The only block of a StableHLO region; it must exist.
  Block& front() const { return *blocks_.front(); }
  bool empty() const { return blocks_.empty(); }

 private:
  friend class Operation;
  Operation* parent_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

class Function {
 public:
  enum class Visibility : uint8_t { kUnset, kPublic, kPrivate, kNested };

  explicit Function(std::string name) : name_(std::move(name)), body_(nullptr) {}

  const std::string& name() const { return name_; }
  Visibility visibility = Visibility::kUnset;
  // Inputs and results; the arguments of the body's block have the input types.
  Type type;
  // One map per argument and per result.
  std::vector<AttributeMap> argument_attributes;
  std::vector<AttributeMap> result_attributes;
  AttributeMap attributes;
  LocationRef location;

  Region& body() { return body_; }
  const Region& body() const { return body_; }
  bool is_declaration() const { return body_.empty(); }

 private:
  std::string name_;
  Region body_;
};

// `sdy.mesh`.
struct Mesh {
  std::string name;
  sharding::Mesh value;
  AttributeMap attributes;
  bool operator==(const Mesh&) const = default;
};

class Module {
 public:
  std::string name;  // may be empty
  AttributeMap attributes;
  std::vector<Mesh> meshes;
  std::vector<std::unique_ptr<Function>> functions;

  // Null when there is none.
  Function* find(std::string_view function) const;
  // `main`, or the only public function; null when there is neither.
  Function* entry() const;
};

// Calls `visit(op)` for every operation of the region, outer ones before those inside them. The
// operation may not be erased meanwhile.
template <typename Visit>
void walk(const Region& region, Visit&& visit) {
  for (const auto& block : region.blocks()) {
    for (const auto& op : block->operations()) {
      visit(*op);
      for (size_t i = 0; i < op->region_count(); ++i) walk(op->region(i), visit);
    }
  }
}

// Deepest nesting of regions that readers accept, so that walks may recurse.
inline constexpr int kMaxRegionDepth = 200;

}  // namespace hekla::ir
