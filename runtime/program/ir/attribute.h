// SPDX-License-Identifier: Apache-2.0
// Attribute: the compile-time data of operations, in StableHLO's form (VHLO's is gone by then).
//
// An Attribute is an immutable value that shares its content with its copies; comparison is by
// content. It may be used from any thread. A default-constructed Attribute is absent. The content
// is one of the structs below: `if (const DenseValue* dense = attribute.get<DenseValue>())`.
//
// Which struct an op's attribute uses does not depend on how the program was written:
//   integers of one number            IntegerValue        (`dimension`, `index_vector_dim`)
//   lists of i64 or i1                IntArrayValue       (`window_strides`, `permutation`,
//                                                          `window_reversal`), also where old text
//                                                          writes dense<...> : tensor<Nxi64>
//   matrices of i64                   DenseValue, [n, 2]  (`padding`, `replica_groups`,
//                                                          `source_target_pairs`)
//   replica_groups by mesh axes       MeshAxesValue
//   `value` of constant               DenseValue
//   flags                             BoolValue; an absent flag is false
//   enumerations                      EnumValue
//   dimension numbers, handles ...    the struct of that name; the channel of a collective (not of
//                                     send and recv) has type 0
//   callee, decomposition,            SymbolValue; in a discardable attribute a symbol without
//   called_computations               nesting is a StringValue
//   mhlo.sharding                     HloShardingValue; StringValue where it cannot be read
// Attributes that have their default value are left out by both readers: `is_default_attribute` in
// op_code.h knows which.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/program/ir/type.h"
#include "runtime/program/sharding/hlo_sharding.h"
#include "runtime/program/sharding/mesh_axes.h"
#include "runtime/program/sharding/sharding.h"

namespace hekla::ir {

class Attribute;
using NamedAttribute = std::pair<std::string, Attribute>;

struct UnitValue {
  bool operator==(const UnitValue&) const = default;
};

struct BoolValue {
  bool value = false;
  bool operator==(const BoolValue&) const = default;
};

// Any integer type of at most 64 bits, index included. `value` is extended as the type says
// (signless types as signed).
struct IntegerValue {
  Type type;
  int64_t value = 0;
  bool operator==(const IntegerValue&) const = default;
};

struct FloatValue {
  Type type;
  uint64_t bits = 0;  // in the format of the type
  bool operator==(const FloatValue&) const = default;
};

struct StringValue {
  std::string value;  // any bytes
  bool operator==(const StringValue&) const = default;
};

struct ArrayValue {
  std::vector<Attribute> elements;
  bool operator==(const ArrayValue&) const;
};

// Sorted by name.
struct DictionaryValue {
  std::vector<NamedAttribute> entries;
  bool operator==(const DictionaryValue&) const;
  // Null when there is no such entry.
  const Attribute* find(std::string_view name) const;
};

struct TypeValue {
  Type type;
  bool operator==(const TypeValue&) const = default;
};

// One of a closed list of words: kind "comparison_direction", value "LT". The kinds are those of
// StableHLO's text: comparison_direction, comparison_type, precision, fft_type, rng_algorithm,
// rng_distribution, transpose, custom_call_api_version.
struct EnumValue {
  std::string kind;
  std::string value;
  bool operator==(const EnumValue&) const = default;
};

// Elements of a tensor type. A splat stores one element, in `values` of rank 0, and has more than
// one: make_dense keeps that so. Quantized types store their storage integers.
struct DenseValue {
  Type type;  // static tensor
  HostArray values;
  bool is_splat = false;
  bool operator==(const DenseValue&) const;
  // All elements; OUT_OF_RANGE or RESOURCE_EXHAUSTED where they do not fit into memory.
  Result<HostArray> expand() const;
};

struct IntArrayValue {
  DType dtype = DType::kI64;  // kI1, kI8, kI16, kI32 or kI64
  std::vector<int64_t> values;
  bool operator==(const IntArrayValue&) const = default;
};

struct SymbolValue {
  std::string root;
  std::vector<std::string> nested;
  bool operator==(const SymbolValue&) const = default;
};

struct ConvDimensionNumbers {
  int64_t input_batch_dimension = 0;
  int64_t input_feature_dimension = 0;
  std::vector<int64_t> input_spatial_dimensions;
  int64_t kernel_input_feature_dimension = 0;
  int64_t kernel_output_feature_dimension = 0;
  std::vector<int64_t> kernel_spatial_dimensions;
  int64_t output_batch_dimension = 0;
  int64_t output_feature_dimension = 0;
  std::vector<int64_t> output_spatial_dimensions;
  bool operator==(const ConvDimensionNumbers&) const = default;
};

struct DotDimensionNumbers {
  std::vector<int64_t> lhs_batching_dimensions;
  std::vector<int64_t> rhs_batching_dimensions;
  std::vector<int64_t> lhs_contracting_dimensions;
  std::vector<int64_t> rhs_contracting_dimensions;
  bool operator==(const DotDimensionNumbers&) const = default;
};

struct DotAlgorithm {
  Type lhs_precision_type;
  Type rhs_precision_type;
  Type accumulation_type;
  int64_t lhs_component_count = 1;
  int64_t rhs_component_count = 1;
  int64_t num_primitive_operations = 1;
  bool allow_imprecise_accumulation = false;
  bool operator==(const DotAlgorithm&) const = default;
};

struct GatherDimensionNumbers {
  std::vector<int64_t> offset_dims;
  std::vector<int64_t> collapsed_slice_dims;
  std::vector<int64_t> operand_batching_dims;
  std::vector<int64_t> start_indices_batching_dims;
  std::vector<int64_t> start_index_map;
  int64_t index_vector_dim = 0;
  bool operator==(const GatherDimensionNumbers&) const = default;
};

struct ScatterDimensionNumbers {
  std::vector<int64_t> update_window_dims;
  std::vector<int64_t> inserted_window_dims;
  std::vector<int64_t> input_batching_dims;
  std::vector<int64_t> scatter_indices_batching_dims;
  std::vector<int64_t> scatter_dims_to_operand_dims;
  int64_t index_vector_dim = 0;
  bool operator==(const ScatterDimensionNumbers&) const = default;
};

struct ChannelHandle {
  int64_t handle = 0;
  int64_t type = 0;
  bool operator==(const ChannelHandle&) const = default;
};

struct OutputOperandAlias {
  std::vector<int64_t> output_tuple_indices;
  int64_t operand_index = 0;
  std::vector<int64_t> operand_tuple_indices;
  bool operator==(const OutputOperandAlias&) const = default;
};

struct ResultAccuracy {
  double atol = 0;
  double rtol = 0;
  int64_t ulps = 0;
  std::string mode = "DEFAULT";                  // DEFAULT, HIGHEST, TOLERANCE
  bool operator==(const ResultAccuracy&) const;  // bit for bit, NaN too
};

// What Shardy attaches: shardings of a value or of several, manual axes, rules of operations.
struct ShardingValue {
  sharding::Attribute value;
  bool operator==(const ShardingValue&) const = default;
};

// `mhlo.sharding`. Text and bytes have many spellings of one value: writers write `written`.
struct HloShardingValue {
  std::string written;
  sharding::HloSharding value;
  bool operator==(const HloShardingValue&) const = default;
};

// `replica_groups` by the axes of a mesh.
struct MeshAxesValue {
  sharding::MeshAxes value;
  bool operator==(const MeshAxesValue&) const = default;
};

// Anything of another dialect (affine maps, float arrays), as MLIR text.
struct OpaqueValue {
  std::string text;
  bool operator==(const OpaqueValue&) const = default;
};

class Attribute {
 public:
  using Content =
      std::variant<std::monostate, UnitValue, BoolValue, IntegerValue, FloatValue, StringValue,
                   ArrayValue, DictionaryValue, TypeValue, EnumValue, DenseValue, IntArrayValue,
                   SymbolValue, ConvDimensionNumbers, DotDimensionNumbers, DotAlgorithm,
                   GatherDimensionNumbers, ScatterDimensionNumbers, ChannelHandle,
                   OutputOperandAlias, ResultAccuracy, ShardingValue, HloShardingValue,
                   MeshAxesValue, OpaqueValue>;

  Attribute() = default;  // absent
  template <typename T>
  requires(!std::is_same_v<std::decay_t<T>, Attribute>) Attribute(T content)
      : content_(std::make_shared<const Content>(std::move(content))) {}

  bool is_absent() const { return content_ == nullptr; }
  explicit operator bool() const { return !is_absent(); }
  // Null when the content is of another struct.
  template <typename T>
  const T* get() const {
    return content_ == nullptr ? nullptr : std::get_if<T>(content_.get());
  }
  const Content& content() const;
  bool operator==(const Attribute& other) const;

 private:
  std::shared_ptr<const Content> content_;  // shared by copies, immutable
};

// Short makers.
Attribute i64_attribute(int64_t value);
Attribute i64_array(std::vector<int64_t> values);
Attribute bool_array(const std::vector<bool>& values);
Attribute enum_attribute(std::string_view kind, std::string_view value);
// Turns equal elements into a splat. `values` has the shape of `type`, or one element for a splat
// of any shape; booleans are normalised to 0 and 1.
Attribute make_dense(Type type, HostArray values);
// Sorts the entries; of equal names the last stays.
Attribute make_dictionary(std::vector<NamedAttribute> entries);

}  // namespace hekla::ir
