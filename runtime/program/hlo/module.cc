// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/hlo/module.h"

#include <fmt/format.h>

#include <unordered_map>
#include <utility>

namespace hekla::hlo {
namespace {

// Fields that every instruction may have.
enum : uint32_t {
  kName = 1,
  kOpcode = 2,
  kShape = 3,
  kMetadata = 7,
  kId = 35,
  kOperandIds = 36,
  kCalledIds = 38,
};

using Ids = std::unordered_map<int64_t, size_t>;

// Newer writers put a computation's number into the upper half of ids, here or there.
const size_t* find_id(const Ids& ids, int64_t id) {
  auto found = ids.find(id);
  if (found == ids.end()) found = ids.find(id & 0xffffffff);
  return found == ids.end() ? nullptr : &found->second;
}

// Where instructions come from: metadata, and the table of stack frames that it refers to.
class Locations {
 public:
  static Result<Locations> read(const Message& module) {
    Locations locations;
    HEKLA_ASSIGN_OR_RETURN(const Message index, module.message(17, "the stack frame index"));
    locations.files_ = index.list(1);
    for (std::string_view bytes : index.list(3)) {
      HEKLA_ASSIGN_OR_RETURN(const Message line, Message::parse(bytes, "a file location"));
      locations.lines_.push_back(locations.file(line.integer(1), line.integer(3), line.integer(4)));
    }
    for (std::string_view bytes : index.list(4)) {
      HEKLA_ASSIGN_OR_RETURN(const Message frame, Message::parse(bytes, "a stack frame"));
      locations.frames_.push_back(frame.integer(1));
    }
    return locations;
  }

  Result<ir::LocationRef> of(const Message& instruction, std::string_view name) const {
    HEKLA_ASSIGN_OR_RETURN(const Message metadata, instruction.message(kMetadata, "metadata"));
    auto location = std::make_shared<ir::Location>();
    location->kind = ir::Location::Kind::kName;
    const std::string_view op_name = metadata.bytes(2);
    location->text = std::string(op_name.empty() ? name : op_name);
    ir::LocationRef source;
    if (const std::string_view file = metadata.bytes(3); !file.empty()) {
      source = at(file, metadata.integer(4), metadata.integer(18));
    } else {
      const int64_t frame = metadata.integer(15);
      if (frame > 0 && frame <= static_cast<int64_t>(frames_.size())) {
        const int64_t number = frames_[static_cast<size_t>(frame) - 1];
        if (number > 0 && number <= static_cast<int64_t>(lines_.size())) {
          source = lines_[static_cast<size_t>(number) - 1];
        }
      }
    }
    if (source != nullptr) location->children.push_back(std::move(source));
    return ir::LocationRef(std::move(location));
  }

 private:
  static ir::LocationRef at(std::string_view file, int64_t line, int64_t column) {
    auto location = std::make_shared<ir::Location>();
    location->text = std::string(file);
    location->line = line;
    location->column = column;
    return location;
  }
  // Numbers count from 1; 0 is nothing.
  ir::LocationRef file(int64_t number, int64_t line, int64_t column) const {
    if (number <= 0 || number > static_cast<int64_t>(files_.size())) return nullptr;
    return at(files_[static_cast<size_t>(number) - 1], line, column);
  }

  std::vector<std::string_view> files_;
  std::vector<ir::LocationRef> lines_;
  std::vector<int64_t> frames_;
};

Result<Instruction> read_instruction(Message fields, const Ids& earlier, const Ids& callees,
                                     const Locations& locations) {
  Instruction instruction;
  instruction.name = fields.bytes(kName);
  instruction.opcode = fields.bytes(kOpcode);
  HEKLA_ASSIGN_OR_RETURN(instruction.shape, read_shape(fields.bytes(kShape)));
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> operands, fields.integers(kOperandIds));
  for (int64_t id : operands) {
    const size_t* operand = find_id(earlier, id);
    if (operand == nullptr) {
      return invalid_argument("the operand with id {} is not defined before its use", id);
    }
    instruction.operands.push_back(*operand);
  }
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> called, fields.integers(kCalledIds));
  for (int64_t id : called) {
    const size_t* callee = find_id(callees, id);
    if (callee == nullptr) {
      return invalid_argument("the computation with id {} is not defined before its call", id);
    }
    instruction.called.push_back(*callee);
  }
  HEKLA_ASSIGN_OR_RETURN(instruction.location, locations.of(fields, instruction.name));
  instruction.fields = std::move(fields);
  return instruction;
}

Status number_parameters(Computation& computation) {
  constexpr size_t kNone = static_cast<size_t>(-1);
  std::vector<size_t> found;
  for (size_t i = 0; i < computation.instructions.size(); ++i) {
    const Instruction& instruction = computation.instructions[i];
    if (instruction.opcode != "parameter") continue;
    const int64_t number = instruction.fields.integer(kParameterNumber);
    if (number < 0 || number >= static_cast<int64_t>(computation.instructions.size())) {
      return invalid_argument("{}: there can be no parameter {}",
                              describe(instruction, computation), number);
    }
    const size_t index = static_cast<size_t>(number);
    if (index >= found.size()) found.resize(index + 1, kNone);
    if (found[index] != kNone) {
      return invalid_argument("{}: there are two parameters {}", describe(instruction, computation),
                              number);
    }
    found[index] = i;
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] == kNone) {
      return invalid_argument("computation %{} has no parameter {}", computation.name, i);
    }
  }
  computation.parameters = std::move(found);
  return ok_status();
}

Result<Computation> read_computation(const Message& fields, const Ids& callees,
                                     const Locations& locations) {
  Computation computation;
  computation.name = fields.bytes(1);
  Ids ids;
  for (std::string_view bytes : fields.list(2)) {
    HEKLA_ASSIGN_OR_RETURN(Message one, Message::parse(bytes, "an instruction"));
    const std::string_view name = one.bytes(kName);
    const std::string_view opcode = one.bytes(kOpcode);
    const int64_t id = one.integer(kId);
    Result<Instruction> instruction = read_instruction(std::move(one), ids, callees, locations);
    if (!instruction.ok()) {
      return instruction.status().with_context(
          fmt::format("HLO instruction {} ({}) in %{}", name, opcode, computation.name));
    }
    const size_t index = computation.instructions.size();
    if (!ids.emplace(id, index).second) {
      return invalid_argument("computation %{} has two instructions with the id {}",
                              computation.name, id);
    }
    ids.emplace(id & 0xffffffff, index);
    computation.instructions.push_back(*std::move(instruction));
  }
  const size_t* root = find_id(ids, fields.integer(6));
  if (root == nullptr) {
    return invalid_argument("computation %{} has no root: there is no instruction with the id {}",
                            computation.name, fields.integer(6));
  }
  computation.root = *root;
  HEKLA_RETURN_IF_ERROR(number_parameters(computation));
  return computation;
}

}  // namespace

std::string describe(const Instruction& instruction, const Computation& computation) {
  return fmt::format("HLO instruction {} ({}) in %{}", instruction.name, instruction.opcode,
                     computation.name);
}

Result<Program> decode_program(std::string_view module) {
  Program program;
  HEKLA_ASSIGN_OR_RETURN(program.fields, Message::parse(module, "an HloModuleProto"));
  program.name = program.fields.bytes(1);
  HEKLA_ASSIGN_OR_RETURN(const Locations locations, Locations::read(program.fields));
  Ids ids;
  const std::string_view entry_name = program.fields.bytes(2);
  const size_t* by_name = nullptr;
  for (std::string_view bytes : program.fields.list(3)) {
    HEKLA_ASSIGN_OR_RETURN(const Message fields, Message::parse(bytes, "a computation"));
    HEKLA_ASSIGN_OR_RETURN(Computation computation, read_computation(fields, ids, locations));
    const size_t index = program.computations.size();
    const auto [id, is_new] = ids.emplace(fields.integer(5), index);
    if (!is_new) {
      return invalid_argument("there are two computations with the id {}", fields.integer(5));
    }
    if (computation.name == entry_name) by_name = &id->second;
    program.computations.push_back(std::move(computation));
  }
  if (program.computations.empty()) return invalid_argument("an HLO module without computations");
  const size_t* entry = find_id(ids, program.fields.integer(6));
  if (entry == nullptr) entry = by_name;
  if (entry == nullptr) {
    return invalid_argument(
        "the HLO module has no entry: no computation has the id {} or the name {}",
        program.fields.integer(6), entry_name);
  }
  program.entry = *entry;
  for (Computation& computation : program.computations) {
    for (Instruction& instruction : computation.instructions) {
      for (size_t called : instruction.called) ++program.computations[called].call_count;
    }
  }
  return program;
}

}  // namespace hekla::hlo
