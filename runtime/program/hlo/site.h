// SPDX-License-Identifier: Apache-2.0
// Site: one HLO instruction where it is converted, for the files convert_*.cc.
//
// A value of HLO is its leaves: tuples exist while reading only. Each handler takes a Site, appends
// operations to its block and returns the leaves of the result; the caller checks that they have
// the types that the instruction declares. Handlers append what the program says and leave
// StableHLO's constraints to the verifier, so operands are checked here only as far as a handler
// reads them itself. Errors name the instruction (`Site::error`, `Site::refuse`).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/hlo/module.h"
#include "runtime/program/ir/ir.h"

namespace hekla::hlo {

using Leaves = std::vector<ir::Value*>;

class Converter;

struct Site {
  Converter& converter;
  const Computation& computation;
  const Instruction& instruction;
  // Leaves of each operand.
  std::vector<Leaves> operands;
  ir::Block& block;
  int depth = 0;  // of regions around it

  const Message& fields() const { return instruction.fields; }
  const Shape& shape() const { return instruction.shape; }
  const Shape& operand_shape(size_t i) const;

  // INVALID_ARGUMENT and UNIMPLEMENTED that name the instruction.
  template <typename... Args>
  Status error(fmt::format_string<Args...> format, Args&&... args) const {
    return invalid_argument("{}: {}", describe(instruction, computation),
                            fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  Status refuse(fmt::format_string<Args...> format, Args&&... args) const {
    return unimplemented("{}: {}", describe(instruction, computation),
                         fmt::format(format, std::forward<Args>(args)...));
  }

  Status expect_operands(size_t count) const;
  Status expect_called(size_t count) const;
  // Operand i, which must be a single ranked tensor.
  Result<ir::Value*> tensor(size_t i) const;
  // The same for all from operand `first` on.
  Result<Leaves> tensors(size_t first = 0) const;
  // The declared result, which must be a single ranked tensor.
  Result<ir::Type> array_type() const;
  // All leaves of all operands from `first` on.
  Leaves flat(size_t first = 0) const;

  // Appends an operation of the declared result types, leaving out attributes with their default
  // values, and gives its results.
  Leaves append(ir::OpCode code, Leaves operands, std::vector<ir::NamedAttribute> attributes = {},
                std::vector<std::unique_ptr<ir::Region>> regions = {}) const;
  // The same with other result types.
  Leaves append_as(ir::OpCode code, std::vector<ir::Type> types, Leaves operands,
                   std::vector<ir::NamedAttribute> attributes = {},
                   std::vector<std::unique_ptr<ir::Region>> regions = {}) const;
  ir::GraphBuilder builder() const { return {block, nullptr, instruction.location}; }
  // A list of integers of the instruction.
  Result<std::vector<int64_t>> integers(InstructionField field) const;
  // A region with the body of the i-th called computation.
  Result<std::unique_ptr<ir::Region>> region(size_t i) const;
};

// The map of field 68 of an instruction as a dictionary of strings; absent when it is empty.
Result<ir::Attribute> frontend_attributes(const Message& fields);

struct Handler {
  std::string_view opcode;
  Result<Leaves> (*convert)(const Site& site);
};

// convert_elementwise.cc
std::span<const Handler> elementwise_handlers();
// convert_movement.cc: shapes, slices, gathers
std::span<const Handler> movement_handlers();
// convert_called.cc: instructions that call computations, tuples
std::span<const Handler> called_handlers();
// convert_contraction.cc
std::span<const Handler> contraction_handlers();
// convert_algebra.cc: linear algebra, FFT, random numbers, batch normalisation
std::span<const Handler> algebra_handlers();
// convert_collective.cc: collectives, transfers, what is asynchronous
std::span<const Handler> collective_handlers();
// convert_custom_call.cc
std::span<const Handler> custom_call_handlers();
// convert_expanded.cc: opcodes that StableHLO writes with several operations
std::span<const Handler> expanded_handlers();

}  // namespace hekla::hlo
