// SPDX-License-Identifier: Apache-2.0
// The IR section: operations, regions and value numbers.
#include <algorithm>
#include <limits>

#include "runtime/program/ir/ir.h"
#include "runtime/program/stablehlo/bytecode/container.h"
#include "runtime/program/stablehlo/bytecode/op_properties.h"
#include "runtime/program/stablehlo/bytecode/raw_module.h"

namespace hekla::stablehlo {
namespace {

constexpr uint32_t kUndefined = std::numeric_limits<uint32_t>::max();

// Bits of an operation's mask byte.
enum Mask : uint8_t {
  kHasAttributes = 0x01,
  kHasResults = 0x02,
  kHasOperands = 0x04,
  kHasSuccessors = 0x08,
  kHasRegions = 0x10,
  kHasUseListOrders = 0x20,
  kHasProperties = 0x40,
  kUndefinedBits = 0x80,
};

class IrReader {
 public:
  IrReader(Container& container, size_t file_size) : container_(container), file_size_(file_size) {}

  Status run(RawOp& module) {
    ByteReader& reader = container_.ir;
    // The payload begins like a block without arguments.
    const uint64_t head = reader.varint();
    if (reader.ok() && head != (uint64_t{1} << 1)) {
      reader.fail("the IR must hold one operation, the module");
      return reader.status();
    }
    scopes_.emplace_back();
    HEKLA_RETURN_IF_ERROR(read_operation(reader, module, 0));
    reader.expect_end("the module");
    HEKLA_RETURN_IF_ERROR(reader.status());
    return resolve(module);
  }

  size_t value_count() const { return next_number_; }

 private:
  // A region's values have slots; the numbers of the file's order of definition are given to the
  // slots when the values are defined, and operands turn from slots to numbers at the end, because
  // they may refer forward.
  Result<uint32_t> define(ByteReader& reader) {
    std::vector<uint32_t>& scope = scopes_.back();
    if (next_in_region_ >= scope.size()) {
      reader.fail("a region defines more values than it announced");
      return reader.status();
    }
    const uint32_t slot = scope[next_in_region_++];
    slots_[slot] = next_number_++;
    return slots_[slot];
  }

  Status read_typed_value(ByteReader& reader, uint64_t type_index,
                          std::vector<std::pair<uint32_t, ir::Type>>& out) {
    HEKLA_RETURN_IF_ERROR(reader.status());
    HEKLA_ASSIGN_OR_RETURN(ir::Type type, container_.table->type(type_index));
    HEKLA_ASSIGN_OR_RETURN(uint32_t number, define(reader));
    out.emplace_back(number, std::move(type));
    return ok_status();
  }

  Status read_operation(ByteReader& reader, RawOp& op, int depth) {
    const uint64_t name = reader.varint();
    if (reader.ok() && name >= container_.op_names.size()) {
      reader.fail(fmt::format("there is no operation name {}", name));
    }
    HEKLA_RETURN_IF_ERROR(reader.status());
    op.name = container_.op_names[name];
    const uint8_t mask = reader.byte();
    if ((mask & kUndefinedBits) != 0) {
      reader.fail(fmt::format("an operation with the undefined mask 0x{:02x}", mask));
    }
    op.location = reader.reference();
    if ((mask & kHasAttributes) != 0) {
      HEKLA_RETURN_IF_ERROR(read_dictionary(reader, reader.varint(), op.attributes));
    }
    if ((mask & kHasProperties) != 0) {
      HEKLA_RETURN_IF_ERROR(
          read_properties(reader, reader.varint(), container_.op_registered[name], op));
    }
    if ((mask & kHasResults) != 0) {
      const size_t count = reader.count();
      for (size_t i = 0; i < count && reader.ok(); ++i) {
        HEKLA_RETURN_IF_ERROR(read_typed_value(reader, reader.varint(), op.results));
      }
    }
    if ((mask & kHasOperands) != 0) {
      const size_t count = reader.count();
      const std::vector<uint32_t>& scope = scopes_.back();
      for (size_t i = 0; i < count && reader.ok(); ++i) {
        const uint64_t value = reader.varint();
        if (value >= scope.size()) {
          reader.fail(fmt::format("operand {} of {} refers to value {} of {}", i, op.name, value,
                                  scope.size()));
          break;
        }
        op.operands.push_back(scope[value]);
      }
    }
    if ((mask & kHasSuccessors) != 0) {
      op.has_successors = true;
      const size_t count = reader.count();
      for (size_t i = 0; i < count && reader.ok(); ++i) reader.varint();
    }
    if ((mask & kHasUseListOrders) != 0) skip_use_lists(reader, op.results.size());
    HEKLA_RETURN_IF_ERROR(reader.status());
    if (container_.version < 5) split_declared(op);
    if ((mask & kHasRegions) == 0) return ok_status();

    const uint64_t flagged = reader.varint();
    const bool is_isolated = (flagged & 1) != 0;
    const uint64_t region_count = flagged >> 1;
    if (region_count > reader.remaining()) {
      reader.fail(
          fmt::format("{} regions cannot fit into {} bytes", region_count, reader.remaining()));
    }
    HEKLA_RETURN_IF_ERROR(reader.status());
    if (depth >= ir::kMaxRegionDepth) {
      return invalid_argument("bytecode, offset {}: regions are nested deeper than {}",
                              reader.position(), ir::kMaxRegionDepth);
    }
    if (is_isolated && container_.version >= 2) {
      const uint8_t head = reader.byte();
      if (reader.ok() && (head & 0x7f) != 4) reader.fail("an isolated region needs a section 4");
      const uint64_t size = reader.varint();
      if ((head & 0x80) != 0) reader.align(reader.varint());
      ByteReader nested = reader.sub(size);
      HEKLA_RETURN_IF_ERROR(read_regions(nested, region_count, is_isolated, op, depth));
      nested.expect_end("the regions");
      return nested.status();
    }
    return read_regions(reader, region_count, is_isolated, op, depth);
  }

  Status read_regions(ByteReader& reader, uint64_t count, bool is_isolated, RawOp& op, int depth) {
    op.regions.resize(count);
    for (RawRegion& region : op.regions) {
      if (is_isolated) scopes_.emplace_back();
      const size_t outer_size = scopes_.back().size();
      const size_t outer_next = next_in_region_;
      Status status = read_region(reader, region, depth);
      if (is_isolated) {
        scopes_.pop_back();
      } else {
        scopes_.back().resize(outer_size);
      }
      next_in_region_ = outer_next;
      HEKLA_RETURN_IF_ERROR(status);
    }
    return ok_status();
  }

  Status read_region(ByteReader& reader, RawRegion& region, int depth) {
    const size_t block_count = reader.count();
    HEKLA_RETURN_IF_ERROR(reader.status());
    if (block_count == 0) return ok_status();
    const size_t value_count = reader.count();
    // Each value takes a byte of its own, wherever it stands.
    if (value_count + slots_.size() > file_size_) reader.fail("more values than the file can hold");
    HEKLA_RETURN_IF_ERROR(reader.status());
    std::vector<uint32_t>& scope = scopes_.back();
    next_in_region_ = scope.size();
    for (size_t i = 0; i < value_count; ++i) {
      scope.push_back(static_cast<uint32_t>(slots_.size()));
      slots_.push_back(kUndefined);
    }
    region.blocks.resize(block_count);
    for (RawBlock& block : region.blocks) {
      const uint64_t head = reader.varint();
      if ((head & 1) != 0) HEKLA_RETURN_IF_ERROR(read_arguments(reader, block));
      if (head >> 1 > reader.remaining()) {
        reader.fail(
            fmt::format("{} operations cannot fit into {} bytes", head >> 1, reader.remaining()));
      }
      HEKLA_RETURN_IF_ERROR(reader.status());
      for (uint64_t i = 0; i < head >> 1; ++i) {
        block.operations.emplace_back();
        HEKLA_RETURN_IF_ERROR(read_operation(reader, block.operations.back(), depth + 1));
      }
    }
    return ok_status();
  }

  Status read_arguments(ByteReader& reader, RawBlock& block) {
    const size_t count = reader.count();
    for (size_t i = 0; i < count && reader.ok(); ++i) {
      uint64_t type = reader.varint();
      bool has_location = true;
      if (container_.version >= 4) {
        has_location = (type & 1) != 0;
        type >>= 1;
      }
      if (has_location) reader.varint();
      HEKLA_RETURN_IF_ERROR(read_typed_value(reader, type, block.arguments));
    }
    if (container_.version >= 3 && reader.byte() != 0) skip_use_lists(reader, count);
    return reader.status();
  }

  static void skip_use_lists(ByteReader& reader, size_t value_count) {
    const size_t records = value_count == 1 ? 1 : reader.count();
    for (size_t i = 0; i < records && reader.ok(); ++i) {
      if (value_count != 1) reader.varint();
      const uint64_t indices = reader.varint() >> 1;
      for (uint64_t k = 0; k < indices && reader.ok(); ++k) reader.varint();
    }
  }

  Status read_dictionary(ByteReader& reader, uint64_t index, std::vector<RawNamed>& out) {
    HEKLA_RETURN_IF_ERROR(reader.status());
    HEKLA_ASSIGN_OR_RETURN(const RawAttribute* dictionary, container_.table->attribute(index));
    if (dictionary->kind != RawAttribute::Kind::kDictionary) {
      reader.fail(fmt::format("attribute {} must be a dictionary", index));
      return reader.status();
    }
    uint64_t bytes = 0;
    for (const RawNamed& entry : dictionary->entries)
      bytes += sizeof(RawNamed) + entry.first.size();
    if (!container_.table->spend(bytes)) {
      reader.fail("the attributes of all operations take too much room");
      return reader.status();
    }
    out.insert(out.end(), dictionary->entries.begin(), dictionary->entries.end());
    return ok_status();
  }

  Status read_properties(ByteReader& reader, uint64_t index, bool is_registered, RawOp& op) {
    HEKLA_RETURN_IF_ERROR(reader.status());
    if (index >= container_.properties.size()) {
      reader.fail(fmt::format("there are no properties {}", index));
      return reader.status();
    }
    const ByteReader entry = container_.properties[index];
    if (!is_registered) {
      ByteReader dictionary = entry;
      HEKLA_RETURN_IF_ERROR(read_dictionary(dictionary, dictionary.varint(), op.properties));
      dictionary.expect_end(op.name);
      return dictionary.status();
    }
    const std::vector<DeclaredAttributes> alternatives = op_properties(op.name);
    if (alternatives.empty()) op.has_unknown_properties = true;
    Status status;
    for (const DeclaredAttributes& declared : alternatives) {
      op.properties.clear();
      ByteReader references = entry;
      for (const DeclaredAttribute& attribute : declared) {
        uint32_t reference = references.reference();
        if (attribute.is_optional) {
          const bool is_present = (reference & 1) != 0;
          reference >>= 1;
          if (!is_present) continue;
        }
        op.properties.emplace_back(attribute.name, reference);
      }
      references.expect_end(op.name);
      const Status attempt = references.status();
      if (attempt.ok()) return attempt;
      if (status.ok()) status = attempt;  // of the newest form
    }
    return status;
  }

  // Before version 5 declared and other attributes share one dictionary (the module's stay there).
  static void split_declared(RawOp& op) {
    const std::vector<DeclaredAttributes> alternatives = op_properties(op.name);
    if (alternatives.empty() || op.name == "builtin.module") return;
    const DeclaredAttributes& declared = alternatives.front();
    std::vector<RawNamed> rest;
    for (RawNamed& named : op.attributes) {
      const bool is_declared =
          std::any_of(declared.begin(), declared.end(),
                      [&](const DeclaredAttribute& d) { return d.name == named.first; });
      (is_declared ? op.properties : rest).push_back(std::move(named));
    }
    op.attributes = std::move(rest);
  }

  Status resolve(RawOp& op) {
    for (uint32_t& operand : op.operands) {
      if (slots_[operand] == kUndefined) {
        return invalid_argument("bytecode: an operand of {} is never defined", op.name);
      }
      operand = slots_[operand];
    }
    for (RawRegion& region : op.regions) {
      for (RawBlock& block : region.blocks) {
        for (RawOp& inner : block.operations) HEKLA_RETURN_IF_ERROR(resolve(inner));
      }
    }
    return ok_status();
  }

  Container& container_;
  size_t file_size_;
  std::vector<std::vector<uint32_t>> scopes_;  // value number in the scope -> slot
  size_t next_in_region_ = 0;
  std::vector<uint32_t> slots_;  // slot -> number over the file
  uint32_t next_number_ = 0;
};

}  // namespace

RawModule::RawModule() = default;
RawModule::RawModule(RawModule&&) noexcept = default;
RawModule::~RawModule() = default;

int64_t RawOp::find(std::string_view property) const {
  for (const RawNamed& named : properties) {
    if (named.first == property) return named.second;
  }
  return -1;
}

Result<RawModule> read_bytecode(std::string_view file) {
  HEKLA_ASSIGN_OR_RETURN(Container container, read_container(file));
  RawModule module;
  IrReader reader(container, file.size());
  HEKLA_RETURN_IF_ERROR(reader.run(module.module));
  if (module.module.name != "builtin.module") {
    return invalid_argument("bytecode: the outermost operation is {}, not builtin.module",
                            module.module.name);
  }
  module.container_version = container.version;
  module.producer = std::move(container.producer);
  module.dialects = std::move(container.dialects);
  module.attribute_count = container.table->attribute_count();
  module.type_count = container.table->type_count();
  module.value_count = reader.value_count();
  module.table = std::move(container.table);
  module.file = file;
  return module;
}

}  // namespace hekla::stablehlo
