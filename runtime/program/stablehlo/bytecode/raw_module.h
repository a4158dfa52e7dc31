// SPDX-License-Identifier: Apache-2.0
// RawModule: a bytecode file as it is: VHLO operations, attributes by number, nothing converted.
//
// read_bytecode() decodes the container (versions 0 to 6) and its IR; `vhlo_json` prints the result
// and `vhlo_to_ir` makes IR of it. A RawModule borrows the file's bytes: they must live as long.
// Attribute and type entries are decoded once, on demand, by AttributeTable; any slot may hold an
// entry of any dialect. Everything is bounded by the size of the file: entries refer to each other
// by number, nesting has a limit, cycles are errors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/program/ir/location.h"
#include "runtime/program/ir/type.h"
#include "runtime/program/sharding/sharding.h"
#include "runtime/program/stablehlo/bytecode/byte_reader.h"

namespace hekla::stablehlo {

// One decoded attribute entry. Which fields are set depends on `kind`.
struct RawAttribute {
  enum class Kind : uint8_t {
    kString,      // text
    kBool,        // bits
    kInteger,     // type, bits (zero-extended)
    kFloat,       // type, bits
    kEnum,        // enum_kind ("ComparisonTypeV1"), text
    kArray,       // elements
    kDictionary,  // entries
    kTensor,      // type, blob
    kDenseArray,  // type (element), count, blob
    kType,        // type
    kAlias,       // lists[0], number, lists[1]
    kAccuracy,    // bits (atol), bits2 (rtol), number (ulps), text (mode)
    kSymbol,      // text (root), symbols (nested)
    kUnit,
    kResource,   // type, text (key), blob
    kBounds,     // lists[0]
    kConv,       // lists[0..8], native stablehlo
    kDot,        // lists[0..3]
    kGather,     // lists[0..4], number
    kScatter,    // lists[0..4], number
    kChannel,    // number (handle), number2 (type)
    kAlgorithm,  // types[0..2], lists[0]: three counts and whether imprecise; native stablehlo
    kSharding,   // sharding, number: the bytes that a copy of it takes
    kText,       // text: anything kept in MLIR syntax
    kMeshAxes,   // text: mesh-based replica groups in MLIR syntax
    kLocation,
  };
  Kind kind = Kind::kText;
  bool is_builtin = false;
  std::string text;
  std::string enum_kind;
  ir::Type type;
  uint64_t bits = 0;
  uint64_t bits2 = 0;
  int64_t number = 0;
  int64_t number2 = 0;
  std::vector<uint32_t> elements;
  std::vector<std::pair<std::string, uint32_t>> entries;
  std::vector<std::string> symbols;
  std::vector<std::vector<int64_t>> lists;
  std::vector<ir::Type> types;
  std::string_view blob;
  std::shared_ptr<const hekla::sharding::Attribute> sharding;
};

// A named attribute of an operation, by number.
using RawNamed = std::pair<std::string, uint32_t>;

struct RawBlock;
struct RawRegion;

struct RawOp {
  std::string name;  // "vhlo.add_v1"
  uint32_t location = 0;
  std::vector<uint32_t> operands;  // value numbers, over the whole file in order of definition
  std::vector<std::pair<uint32_t, ir::Type>> results;
  std::vector<RawNamed> properties;  // declared attributes
  std::vector<RawNamed> attributes;  // the others
  std::vector<RawRegion> regions;
  bool has_successors = false;
  // Properties that we do not know how to split, because the op is not in our table.
  bool has_unknown_properties = false;

  // The number of a declared attribute, or -1.
  int64_t find(std::string_view property) const;
};

struct RawBlock {
  std::vector<std::pair<uint32_t, ir::Type>> arguments;
  std::vector<RawOp> operations;
};

struct RawRegion {
  std::vector<RawBlock> blocks;
};

class AttributeTable;

struct RawModule {
  RawModule();
  RawModule(RawModule&&) noexcept;
  ~RawModule();

  uint64_t container_version = 0;
  std::string producer;
  std::vector<std::string> dialects;
  size_t attribute_count = 0;
  size_t type_count = 0;
  size_t value_count = 0;
  std::unique_ptr<AttributeTable> table;
  RawOp module;  // builtin.module
  std::string_view file;
};

Result<RawModule> read_bytecode(std::string_view file);

}  // namespace hekla::stablehlo
