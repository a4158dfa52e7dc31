// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/bytecode/attribute_writer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/program/ir/device_groups.h"
#include "runtime/program/stablehlo/bytecode/vhlo_words.h"

namespace hekla::stablehlo {
namespace {

// Deeper ones are cut: they serve messages alone.
constexpr int kDeepestWrittenLocation = 64;

// The codes of a scalar type, and the minor version of VHLO 1 that has it.
struct ScalarCode {
  DType dtype;
  int vhlo;
  int minor;
  int builtin;  // kInteger, or kText: only newer readers of MLIR know codes for it
};
constexpr int kInteger = -1, kText = -2;
constexpr ScalarCode kScalarCodes[] = {
    {DType::kI1, 0, 0, kInteger},
    {DType::kI2, 31, 2, kInteger},
    {DType::kI4, 10, 0, kInteger},
    {DType::kI8, 11, 0, kInteger},
    {DType::kI16, 12, 0, kInteger},
    {DType::kI32, 13, 0, kInteger},
    {DType::kI64, 14, 0, kInteger},
    {DType::kUI2, 32, 2, kInteger},
    {DType::kUI4, 15, 0, kInteger},
    {DType::kUI8, 16, 0, kInteger},
    {DType::kUI16, 17, 0, kInteger},
    {DType::kUI32, 18, 0, kInteger},
    {DType::kUI64, 19, 0, kInteger},
    {DType::kF4E2M1FN, 37, 8, kText},
    {DType::kF6E2M3FN, 38, 8, kText},
    {DType::kF6E3M2FN, 39, 8, kText},
    {DType::kF8E3M4, 36, 7, kText},
    {DType::kF8E4M3, 35, 7, kText},
    {DType::kF8E4M3FN, 6, 0, kText},
    {DType::kF8E4M3FNUZ, 27, 0, kText},
    {DType::kF8E4M3B11FNUZ, 29, 0, kText},
    {DType::kF8E5M2, 7, 0, kText},
    {DType::kF8E5M2FNUZ, 28, 0, kText},
    {DType::kF8E8M0FNU, 40, 8, kText},
    {DType::kBF16, 2, 0, 3},
    {DType::kF16, 3, 0, 4},
    {DType::kTF32, 34, 6, kText},
    {DType::kF32, 4, 0, 5},
    {DType::kF64, 5, 0, 6},
};

const ScalarCode* scalar_code(DType dtype) {
  const auto* it = std::find_if(std::begin(kScalarCodes), std::end(kScalarCodes),
                                [&](const ScalarCode& code) { return code.dtype == dtype; });
  return it == std::end(kScalarCodes) ? nullptr : it;
}

// An integer or float of so many bits (MLIR's APInt and APFloat).
std::string bits_of_width(uint64_t bits, int width) {
  const uint64_t mask = width >= 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  if (width <= 8) return std::string(1, static_cast<char>(bits & mask));
  return svarint(static_cast<int64_t>(bits & mask));
}

std::string double_bits(double value) { return svarint(std::bit_cast<int64_t>(value)); }

// The elements as TensorV1 and MLIR's dense elements store them: booleans packed, narrower types
// with nothing above their bits, a splat as one element.
std::string stored_bytes(const ir::DenseValue& value) {
  const HostArray& array = value.values;
  const DType dtype = array.dtype();
  const auto* bytes = reinterpret_cast<const uint8_t*>(array.data());
  if (dtype == DType::kI1) {
    if (value.is_splat) return std::string(1, bytes[0] != 0 ? '\xff' : '\0');
    std::string packed(static_cast<size_t>((array.size() + 7) / 8), '\0');
    for (int64_t i = 0; i < array.size(); ++i) {
      if (bytes[i] != 0) packed[static_cast<size_t>(i / 8)] |= static_cast<char>(1 << (i % 8));
    }
    // One byte of eight bits that are all set would be a splat of as many elements: the same.
    return packed;
  }
  std::string stored(reinterpret_cast<const char*>(bytes), static_cast<size_t>(array.size_bytes()));
  const int bits = dtype_bits(dtype);
  if (bits < 8) {
    const uint8_t mask = static_cast<uint8_t>((1 << bits) - 1);
    for (char& byte : stored) byte = static_cast<char>(static_cast<uint8_t>(byte) & mask);
  }
  return stored;
}

ir::DenseValue dense_list(DType dtype, const std::vector<int64_t>& values) {
  const Dims dims = {static_cast<int64_t>(values.size())};
  HostArray array(dtype, dims);
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kI64) {
      array.mutable_as<int64_t>()[i] = values[i];
    } else {
      array.mutable_as<uint8_t>()[i] = values[i] != 0;
    }
  }
  return *ir::make_dense(ir::Type::tensor(dtype, dims), std::move(array)).get<ir::DenseValue>();
}

// "#affine.map<...>" and "#affine<map...>" are affine's.
std::string_view dialect_of(std::string_view text) {
  if (!text.starts_with('#')) return "builtin";
  text.remove_prefix(1);
  return text.substr(0, text.find_first_of(".<"));
}

}  // namespace

void AttributeWriter::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void AttributeWriter::need(int minor, std::string_view what) {
  if (target_.major > 1 || target_.minor >= minor) return;
  fail(unimplemented("bytecode: {} needs VHLO 1.{}, the target is {}.{}.{}", what, minor,
                     target_.major, target_.minor, target_.patch));
}

std::vector<uint32_t> AttributeWriter::types(const std::vector<ir::Type>& types, bool is_vhlo) {
  std::vector<uint32_t> numbers;
  for (const ir::Type& type : types) {
    numbers.push_back(is_vhlo ? vhlo_type(type) : builtin_type(type));
  }
  return numbers;
}

uint32_t AttributeWriter::quantized_type(const ir::Quantization& q) {
  const std::string storage_and_expressed = varint(vhlo_type(ir::Type::scalar(q.storage))) +
                                            varint(vhlo_type(ir::Type::scalar(q.expressed)));
  const std::string limits = svarint(q.storage_min) + svarint(q.storage_max);
  const std::string is_signed = varint(is_signed_integer(q.storage) ? 1 : 0);
  if (q.axis < 0) {
    return file_.shared_type("vhlo", varint(24) + is_signed + storage_and_expressed +
                                         double_bits(q.scales[0]) + svarint(q.zero_points[0]) +
                                         limits);
  }
  std::string payload = varint(30) + is_signed + storage_and_expressed +
                        varint(static_cast<uint64_t>(q.axis)) + limits + varint(q.scales.size());
  for (double scale : q.scales) payload += double_bits(scale);
  return file_.shared_type("vhlo", payload + svarints(q.zero_points));
}

uint32_t AttributeWriter::scalar_type(const ir::Type& type) {
  if (type.is_index()) return file_.shared_type("vhlo", varint(9));
  if (type.quantization() != nullptr) return quantized_type(*type.quantization());
  if (is_complex(type.dtype())) {
    const uint32_t part = vhlo_type(ir::Type::scalar(complex_part(type.dtype())));
    return file_.shared_type("vhlo", varint(1) + varint(part));
  }
  const ScalarCode* code = scalar_code(type.dtype());
  if (code == nullptr) {
    fail(unimplemented("bytecode: {} has no form in VHLO", type.to_string()));
    return 0;
  }
  need(code->minor, dtype_name(type.dtype()));
  return file_.shared_type("vhlo", varint(static_cast<uint64_t>(code->vhlo)));
}

uint32_t AttributeWriter::vhlo_type(const ir::Type& type) {
  switch (type.kind()) {
    case ir::Type::Kind::kNone:
      need(6, "the type none");
      return file_.shared_type("vhlo", varint(33));
    case ir::Type::Kind::kScalar:
      return scalar_type(type);
    case ir::Type::Kind::kTensor: {
      const uint32_t element = vhlo_type(type.element());
      if (type.bounds().empty()) {
        return file_.shared_type("vhlo", varint(20) + svarints(type.dims()) + varint(element));
      }
      const uint32_t bounds = vhlo_entry(varint(18) + svarints(type.bounds()));
      return file_.shared_type(
          "vhlo", varint(21) + varint(bounds) + svarints(type.dims()) + varint(element));
    }
    case ir::Type::Kind::kUnrankedTensor:
      return file_.shared_type("vhlo", varint(25) + varint(vhlo_type(type.element())));
    case ir::Type::Kind::kToken:
      return file_.shared_type("vhlo", varint(22));
    case ir::Type::Kind::kTuple:
      return file_.shared_type("vhlo", varint(23) + refs(types(type.elements(), true)));
    case ir::Type::Kind::kFunction:
      return file_.shared_type("vhlo", varint(8) + refs(types(type.elements(), true)) +
                                           refs(types(type.results(), true)));
    case ir::Type::Kind::kFuture:
      need(15, "the type future");
      return file_.shared_type("vhlo", varint(42) + refs(types(type.elements(), true)));
    case ir::Type::Kind::kBuffer:
      need(13, "a buffer type");
      return file_.shared_type(
          "vhlo", varint(41) + svarints(type.dims()) + varint(vhlo_type(type.element())));
    case ir::Type::Kind::kWitness:
      return file_.shared_type("vhlo", varint(26));
    case ir::Type::Kind::kOpaque:
      break;
  }
  fail(unimplemented("bytecode: the type {} has no form in VHLO", type.to_string()));
  return 0;
}

uint32_t AttributeWriter::builtin_type(const ir::Type& type) {
  const auto number = [](int value) { return varint(static_cast<uint64_t>(value)); };
  switch (type.kind()) {
    case ir::Type::Kind::kNone:
      return file_.shared_type("builtin", number(12));
    case ir::Type::Kind::kScalar: {
      if (type.is_index()) return file_.shared_type("builtin", number(1));
      if (type.quantization() != nullptr) break;
      if (is_complex(type.dtype())) {
        const uint32_t part = builtin_type(ir::Type::scalar(complex_part(type.dtype())));
        return file_.shared_type("builtin", number(9) + varint(part));
      }
      const ScalarCode* code = scalar_code(type.dtype());
      if (code == nullptr) break;
      if (code->builtin == kText) return text_type(dtype_name(type.dtype()));
      if (code->builtin != kInteger) return file_.shared_type("builtin", number(code->builtin));
      const int sign = is_unsigned_integer(type.dtype()) ? 2 : 0;
      return file_.shared_type("builtin", number(0) + number(dtype_bits(type.dtype()) << 2 | sign));
    }
    case ir::Type::Kind::kTensor: {
      const uint32_t element = builtin_type(type.element());
      if (type.bounds().empty()) {
        return file_.shared_type("builtin", number(13) + svarints(type.dims()) + varint(element));
      }
      const uint32_t bounds =
          file_.shared_attribute("stablehlo", number(13) + svarints(type.bounds()));
      return file_.shared_type(
          "builtin", number(14) + varint(bounds) + svarints(type.dims()) + varint(element));
    }
    case ir::Type::Kind::kToken:
      return file_.shared_type("stablehlo", number(0));
    case ir::Type::Kind::kTuple:
      return file_.shared_type("builtin", number(15) + refs(types(type.elements(), false)));
    case ir::Type::Kind::kFunction:
      return file_.shared_type("builtin", number(2) + refs(types(type.elements(), false)) +
                                              refs(types(type.results(), false)));
    case ir::Type::Kind::kUnrankedTensor:
      return file_.shared_type("builtin", number(18) + varint(builtin_type(type.element())));
    case ir::Type::Kind::kFuture:
    case ir::Type::Kind::kBuffer:
    case ir::Type::Kind::kWitness:
    case ir::Type::Kind::kOpaque:
      break;
  }
  fail(unimplemented("bytecode: the type {} is not written outside of StableHLO's operations",
                     type.to_string()));
  return 0;
}

uint32_t AttributeWriter::text_type(std::string_view name) {
  const auto [it, is_new] = text_types_.try_emplace(std::string(name), 0);
  if (is_new) it->second = file_.type_text("builtin", name);
  return it->second;
}

uint32_t AttributeWriter::dense(const ir::DenseValue& value, bool is_vhlo) {
  const uint32_t type = is_vhlo ? vhlo_type(value.type) : builtin_type(value.type);
  std::string payload = varint(is_vhlo ? 15 : 18) + varint(type) + blob(stored_bytes(value));
  return is_vhlo ? vhlo_entry(std::move(payload)) : builtin_entry(std::move(payload));
}

uint32_t AttributeWriter::vhlo_list(const std::vector<int64_t>& values) {
  return dense(dense_list(DType::kI64, values), true);
}

uint32_t AttributeWriter::vhlo_mesh_axes(const sharding::MeshAxes& axes) {
  if (target_.major == 1 && target_.minor < 16) return dense_groups(axes);
  uint32_t mesh = 0;
  if (const auto* name = std::get_if<std::string>(&axes.mesh)) {
    mesh = file_.vhlo_string(*name);
  } else {
    const auto& value = std::get<sharding::Mesh>(axes.mesh);
    std::vector<uint32_t> of_mesh;
    for (const sharding::Axis& axis : value.axes) {
      of_mesh.push_back(
          vhlo_entry(varint(24) + varint(file_.vhlo_string(axis.name)) + svarint(axis.size)));
    }
    const std::string ids = value.device_ids.empty()
                                ? varint(0)
                                : varint(uint64_t{vhlo_list(value.device_ids)} << 1 | 1);
    mesh = vhlo_entry(varint(25) + varint(vhlo_array(of_mesh)) + ids);
  }
  std::vector<uint32_t> of_groups;
  for (const sharding::AxisRef& axis : axes.axes) {
    std::string payload = varint(22) + varint(file_.vhlo_string(axis.name));
    if (axis.sub) {
      const uint32_t part =
          vhlo_entry(varint(21) + svarint(axis.sub->pre_size) + svarint(axis.sub->size));
      payload += varint(1) + varint(part);
    } else {
      payload += varint(0);
    }
    of_groups.push_back(vhlo_entry(std::move(payload)));
  }
  return vhlo_entry(varint(23) + varint(mesh) + varint(vhlo_array(of_groups)));
}

uint32_t AttributeWriter::dense_groups(const sharding::MeshAxes& axes) {
  const Result<ir::Attribute> groups = ir::groups_as_matrix(axes, meshes_);
  if (!groups.ok()) {
    fail(groups.status().with_context("bytecode: " + sharding::to_text(axes)));
    return 0;
  }
  return dense(*groups->get<ir::DenseValue>(), true);
}

uint32_t AttributeWriter::vhlo_type_attribute(const ir::Type& type) {
  return vhlo_entry(varint(17) + varint(vhlo_type(type)));
}

uint32_t AttributeWriter::enumeration(const ir::EnumValue& value) {
  const VhloEnum* words = vhlo_enum_of_kind(value.kind);
  for (size_t i = 0; words != nullptr && i < words->words.size(); ++i) {
    if (words->words[i] == value.value) return vhlo_entry(varint(words->code) + varint(i));
  }
  fail(unimplemented("bytecode: {} {} has no form in VHLO", value.kind, value.value));
  return 0;
}

uint32_t AttributeWriter::vhlo(const ir::Attribute& attribute) {
  if (const auto* flag = attribute.get<ir::BoolValue>()) {
    return vhlo_entry(varint(2) + varint(flag->value ? 1 : 0));
  }
  if (const auto* integer = attribute.get<ir::IntegerValue>()) {
    const int width = integer->type.is_index() ? 64 : dtype_bits(integer->type.dtype());
    if (width < 4) return builtin(attribute);
    return vhlo_entry(varint(9) + varint(vhlo_type(integer->type)) +
                      bits_of_width(static_cast<uint64_t>(integer->value), width));
  }
  if (const auto* number = attribute.get<ir::FloatValue>()) {
    return vhlo_entry(varint(8) + varint(vhlo_type(number->type)) +
                      bits_of_width(number->bits, dtype_bits(number->type.dtype())));
  }
  if (const auto* text = attribute.get<ir::StringValue>()) return file_.vhlo_string(text->value);
  if (const auto* hlo = attribute.get<ir::HloShardingValue>()) {
    return file_.vhlo_string(hlo->written);
  }
  if (const auto* symbol = attribute.get<ir::SymbolValue>()) {
    return symbol->nested.empty() ? file_.vhlo_string(symbol->root) : builtin(attribute);
  }
  if (const auto* array = attribute.get<ir::ArrayValue>()) {
    std::vector<uint32_t> elements;
    for (const ir::Attribute& element : array->elements) elements.push_back(vhlo(element));
    return vhlo_array(elements);
  }
  if (const auto* dictionary = attribute.get<ir::DictionaryValue>()) {
    std::string payload = varint(6) + varint(dictionary->entries.size());
    for (const auto& [name, value] : dictionary->entries) {
      payload += varint(file_.vhlo_string(name)) + varint(vhlo(value));
    }
    return vhlo_entry(std::move(payload));
  }
  if (const auto* type = attribute.get<ir::TypeValue>()) return vhlo_type_attribute(type->type);
  if (const auto* word = attribute.get<ir::EnumValue>()) return enumeration(*word);
  if (const auto* tensor = attribute.get<ir::DenseValue>()) return dense(*tensor, true);
  if (const auto* list = attribute.get<ir::IntArrayValue>()) {
    if (list->dtype != DType::kI64 && list->dtype != DType::kI1) return builtin(attribute);
    return dense(dense_list(list->dtype, list->values), true);
  }
  if (const auto* alias = attribute.get<ir::OutputOperandAlias>()) {
    return vhlo_entry(varint(10) + svarints(alias->output_tuple_indices) +
                      svarint(alias->operand_index) + svarints(alias->operand_tuple_indices));
  }
  if (const auto* accuracy = attribute.get<ir::ResultAccuracy>()) {
    const uint32_t mode = enumeration({"result_accuracy_mode", accuracy->mode});
    return vhlo_entry(varint(20) + double_bits(accuracy->atol) + double_bits(accuracy->rtol) +
                      svarint(accuracy->ulps) + varint(mode));
  }
  if (const auto* axes = attribute.get<ir::MeshAxesValue>()) return vhlo_mesh_axes(axes->value);
  return builtin(attribute);
}

uint32_t AttributeWriter::builtin(const ir::Attribute& attribute) {
  if (attribute.get<ir::UnitValue>() != nullptr) return builtin_entry(varint(7));
  if (const auto* flag = attribute.get<ir::BoolValue>()) {
    return builtin_entry(varint(8) + varint(builtin_type(ir::Type::scalar(DType::kI1))) +
                         bits_of_width(flag->value ? 1 : 0, 1));
  }
  if (const auto* integer = attribute.get<ir::IntegerValue>()) {
    const int width = integer->type.is_index() ? 64 : dtype_bits(integer->type.dtype());
    return builtin_entry(varint(8) + varint(builtin_type(integer->type)) +
                         bits_of_width(static_cast<uint64_t>(integer->value), width));
  }
  if (const auto* number = attribute.get<ir::FloatValue>()) {
    return builtin_entry(varint(9) + varint(builtin_type(number->type)) +
                         bits_of_width(number->bits, dtype_bits(number->type.dtype())));
  }
  if (const auto* text = attribute.get<ir::StringValue>()) return file_.builtin_string(text->value);
  if (const auto* hlo = attribute.get<ir::HloShardingValue>()) {
    return file_.builtin_string(hlo->written);
  }
  if (const auto* symbol = attribute.get<ir::SymbolValue>()) {
    const uint32_t root = file_.builtin_string(symbol->root);
    if (symbol->nested.empty()) return builtin_entry(varint(4) + varint(root));
    std::vector<uint32_t> nested;
    for (const std::string& name : symbol->nested) {
      nested.push_back(builtin_entry(varint(4) + varint(file_.builtin_string(name))));
    }
    return builtin_entry(varint(5) + varint(root) + refs(nested));
  }
  if (const auto* array = attribute.get<ir::ArrayValue>()) {
    std::vector<uint32_t> elements;
    for (const ir::Attribute& element : array->elements) elements.push_back(builtin(element));
    return builtin_entry(varint(0) + refs(elements));
  }
  if (const auto* dictionary = attribute.get<ir::DictionaryValue>()) {
    std::string payload = varint(1) + varint(dictionary->entries.size());
    for (const auto& [name, value] : dictionary->entries) {
      payload += varint(file_.builtin_string(name)) + varint(builtin(value));
    }
    return builtin_entry(std::move(payload));
  }
  if (const auto* type = attribute.get<ir::TypeValue>()) {
    return builtin_entry(varint(6) + varint(builtin_type(type->type)));
  }
  if (const auto* tensor = attribute.get<ir::DenseValue>()) return dense(*tensor, false);
  if (const auto* list = attribute.get<ir::IntArrayValue>()) {
    const size_t width = static_cast<size_t>(dtype_bytes(list->dtype));
    std::string bytes;
    for (int64_t value : list->values) {
      for (size_t i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i));
    }
    return builtin_entry(varint(17) + varint(builtin_type(ir::Type::scalar(list->dtype))) +
                         varint(list->values.size()) + blob(bytes));
  }
  if (const auto* shardy = attribute.get<ir::ShardingValue>()) return sdy(shardy->value);
  if (const auto* opaque = attribute.get<ir::OpaqueValue>()) {
    return file_.attribute_text(dialect_of(opaque->text), opaque->text);
  }
  fail(unimplemented("bytecode: an attribute stands where only its operation could say it"));
  return 0;
}

uint32_t AttributeWriter::location(const ir::LocationRef& location) {
  return location_at(location, 0);
}

uint32_t AttributeWriter::location_at(const ir::LocationRef& location, int depth) {
  if (location == nullptr || depth > kDeepestWrittenLocation) return file_.unknown_location();
  if (const auto it = locations_.find(location.get()); it != locations_.end()) return it->second;
  const auto child = [&](size_t i) {
    return i < location->children.size() ? location_at(location->children[i], depth + 1)
                                         : file_.unknown_location();
  };
  uint32_t number = 0;
  switch (location->kind) {
    case ir::Location::Kind::kFile:
      number = builtin_entry(varint(11) + varint(file_.builtin_string(location->text)) +
                             varint(static_cast<uint64_t>(location->line)) +
                             varint(static_cast<uint64_t>(location->column)));
      break;
    case ir::Location::Kind::kName:
      number = builtin_entry(varint(14) + varint(file_.builtin_string(location->text)) +
                             varint(child(0)));
      break;
    case ir::Location::Kind::kCallSite:
      number = builtin_entry(varint(10) + varint(child(0)) + varint(child(1)));
      break;
    case ir::Location::Kind::kFused: {
      std::vector<uint32_t> parts;
      for (size_t i = 0; i < location->children.size(); ++i) parts.push_back(child(i));
      number = builtin_entry(varint(12) + refs(parts));
      break;
    }
  }
  return locations_[location.get()] = number;
}

}  // namespace hekla::stablehlo
