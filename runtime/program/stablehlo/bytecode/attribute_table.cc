// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/bytecode/attribute_table.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace hekla::stablehlo {
namespace {

using Kind = RawAttribute::Kind;

constexpr int kMaxLocationDepth = 300;

constexpr std::array<DType, 32> kBuiltinFloats = {DType::kInvalid, DType::kInvalid, DType::kInvalid,
                                                  DType::kBF16,    DType::kF16,     DType::kF32,
                                                  DType::kF64};

DType builtin_small_float(uint64_t code) {
  switch (code) {
    case 21:
      return DType::kTF32;
    case 22:
      return DType::kF8E5M2;
    case 23:
      return DType::kF8E4M3;
    case 24:
      return DType::kF8E4M3FN;
    case 25:
      return DType::kF8E5M2FNUZ;
    case 26:
      return DType::kF8E4M3FNUZ;
    case 27:
      return DType::kF8E4M3B11FNUZ;
    case 28:
      return DType::kF8E3M4;
    case 29:
      return DType::kF4E2M1FN;
    case 30:
      return DType::kF6E2M3FN;
    case 31:
      return DType::kF6E3M2FN;
    case 32:
      return DType::kF8E8M0FNU;
    default:
      return DType::kInvalid;
  }
}

DType vhlo_scalar(uint64_t code) {
  switch (code) {
    case 0:
      return DType::kI1;
    case 2:
      return DType::kBF16;
    case 3:
      return DType::kF16;
    case 4:
      return DType::kF32;
    case 5:
      return DType::kF64;
    case 6:
      return DType::kF8E4M3FN;
    case 7:
      return DType::kF8E5M2;
    case 10:
      return DType::kI4;
    case 11:
      return DType::kI8;
    case 12:
      return DType::kI16;
    case 13:
      return DType::kI32;
    case 14:
      return DType::kI64;
    case 15:
      return DType::kUI4;
    case 16:
      return DType::kUI8;
    case 17:
      return DType::kUI16;
    case 18:
      return DType::kUI32;
    case 19:
      return DType::kUI64;
    case 27:
      return DType::kF8E4M3FNUZ;
    case 28:
      return DType::kF8E5M2FNUZ;
    case 29:
      return DType::kF8E4M3B11FNUZ;
    case 31:
      return DType::kI2;
    case 32:
      return DType::kUI2;
    case 34:
      return DType::kTF32;
    case 35:
      return DType::kF8E4M3;
    case 36:
      return DType::kF8E3M4;
    case 37:
      return DType::kF4E2M1FN;
    case 38:
      return DType::kF6E2M3FN;
    case 39:
      return DType::kF6E3M2FN;
    case 40:
      return DType::kF8E8M0FNU;
    default:
      return DType::kInvalid;
  }
}

DType integer_dtype(uint64_t width, bool is_unsigned) {
  switch (width) {
    case 1:
      return is_unsigned ? DType::kInvalid : DType::kI1;
    case 2:
      return is_unsigned ? DType::kUI2 : DType::kI2;
    case 4:
      return is_unsigned ? DType::kUI4 : DType::kI4;
    case 8:
      return is_unsigned ? DType::kUI8 : DType::kI8;
    case 16:
      return is_unsigned ? DType::kUI16 : DType::kI16;
    case 32:
      return is_unsigned ? DType::kUI32 : DType::kI32;
    case 64:
      return is_unsigned ? DType::kUI64 : DType::kI64;
    default:
      return DType::kInvalid;
  }
}

bool is_number_element(const ir::Type& type) {
  return type.is_scalar() && type.dtype() != DType::kInvalid;
}

}  // namespace

AttributeTable::AttributeTable(std::string_view file, std::vector<std::string_view> strings,
                               std::vector<Entry> attributes, std::vector<Entry> types,
                               std::vector<Resource> resources)
    : file_(file),
      strings_(std::move(strings)),
      attribute_entries_(std::move(attributes)),
      type_entries_(std::move(types)),
      resources_(std::move(resources)),
      budget_(kExpansion * (file.size() + 4096)) {}

bool AttributeTable::spend(uint64_t bytes) const {
  if (bytes > budget_) {
    budget_ = 0;
    return false;
  }
  budget_ -= bytes;
  return true;
}

int64_t AttributeTable::max_parts() const {
  return std::max<int64_t>(4096, 4 * static_cast<int64_t>(file_.size()));
}

std::string AttributeTable::copy_of_string(uint64_t index, ByteReader& reader) const {
  const std::string_view text = string(index, reader);
  if (!spend(text.size())) reader.fail("the strings of the attributes take too much room");
  return reader.ok() ? std::string(text) : std::string();
}

std::string_view AttributeTable::string(uint64_t index, ByteReader& reader) const {
  if (index < strings_.size()) return strings_[index];
  reader.fail(fmt::format("there is no string {}, the file has {}", index, strings_.size()));
  return {};
}

Result<ir::Type> AttributeTable::type(uint64_t index) const { return type_at_depth(index, 0); }

Result<ir::Type> AttributeTable::type_at_depth(uint64_t index, int depth) const {
  if (auto it = types_.find(index); it != types_.end()) {
    pending_type_size_ += type_sizes_[index];
    return it->second;
  }
  if (index >= type_entries_.size()) {
    return invalid_argument("bytecode: there is no type {}, the file has {}", index,
                            type_entries_.size());
  }
  // A cycle ends here too.
  if (depth > kMaxAttributeDepth) {
    return invalid_argument("bytecode: type {} is nested deeper than {}", index,
                            kMaxAttributeDepth);
  }
  const int64_t outer_size = std::exchange(pending_type_size_, 1);
  Result<ir::Type> type = decode_type(type_entries_[index], depth);
  const int64_t size = pending_type_size_;
  pending_type_size_ = outer_size + size;
  if (!type.ok()) return type;
  if (size > max_parts()) {
    return invalid_argument("bytecode: type {} has more than {} parts", index, max_parts());
  }
  type_sizes_[index] = size;
  types_.emplace(index, *type);
  return type;
}

Result<ir::Type> AttributeTable::decode_type(const Entry& entry, int depth) const {
  ByteReader reader(file_, entry.offset, entry.offset + entry.size);
  if (!entry.has_custom_encoding) {
    const std::string_view text = reader.terminated_string();
    reader.expect_end("a type");
    HEKLA_RETURN_IF_ERROR(reader.status());
    // Older writers spell small floats out.
    if (std::optional<DType> dtype = dtype_from_name(text)) return ir::Type::scalar(*dtype);
    return ir::Type::opaque(std::string(text));
  }
  Result<ir::Type> type = ir::Type();
  switch (entry.dialect) {
    case Dialect::kVhlo:
      type = decode_vhlo_type(reader, depth);
      break;
    case Dialect::kBuiltin:
      type = decode_builtin_type(reader, depth);
      break;
    case Dialect::kStablehlo: {
      const uint64_t code = reader.varint();
      if (code == 0) {
        type = ir::Type::token();
      } else if (code == 1) {
        HEKLA_ASSIGN_OR_RETURN(std::vector<ir::Type> parts, type_list(reader, depth));
        type = ir::Type::future(std::move(parts));
      } else {
        reader.fail(fmt::format("there is no stablehlo type {}", code));
      }
      break;
    }
    case Dialect::kSdy:
    case Dialect::kOther:
      return ir::Type::opaque("!unknown");
  }
  HEKLA_RETURN_IF_ERROR(reader.status());
  if (!type.ok()) return type;
  reader.expect_end("a type");
  HEKLA_RETURN_IF_ERROR(reader.status());
  return type;
}

Result<std::vector<ir::Type>> AttributeTable::type_list(ByteReader& reader, int depth) const {
  std::vector<ir::Type> types;
  const size_t count = reader.count();
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(ir::Type type, type_at_depth(reader.varint(), depth + 1));
    types.push_back(std::move(type));
  }
  HEKLA_RETURN_IF_ERROR(reader.status());
  return types;
}

Result<Dims> AttributeTable::shape(ByteReader& reader) const {
  Dims dims(reader.count());
  for (int64_t& dim : dims) {
    dim = reader.svarint();
    if (dim < 0 && dim != ir::kDynamic) reader.fail(fmt::format("dimension {} is negative", dim));
  }
  HEKLA_RETURN_IF_ERROR(reader.status());
  return dims;
}

Result<ir::Type> AttributeTable::decode_vhlo_type(ByteReader& reader, int depth) const {
  const uint64_t code = reader.varint();
  if (DType dtype = vhlo_scalar(code); dtype != DType::kInvalid) return ir::Type::scalar(dtype);
  const auto element_type = [&]() -> Result<ir::Type> {
    HEKLA_ASSIGN_OR_RETURN(ir::Type element, type_at_depth(reader.varint(), depth + 1));
    if (!is_number_element(element)) {
      return invalid_argument("bytecode, offset {}: {} is no element type", reader.position(),
                              element.to_string());
    }
    return element;
  };
  switch (code) {
    case 1: {
      HEKLA_ASSIGN_OR_RETURN(ir::Type part, element_type());
      const DType dtype = complex_of(part.dtype());
      if (dtype == DType::kInvalid) {
        return invalid_argument("bytecode, offset {}: there is no complex<{}>", reader.position(),
                                part.to_string());
      }
      return ir::Type::scalar(dtype);
    }
    case 8: {
      HEKLA_ASSIGN_OR_RETURN(std::vector<ir::Type> inputs, type_list(reader, depth));
      HEKLA_ASSIGN_OR_RETURN(std::vector<ir::Type> results, type_list(reader, depth));
      return ir::Type::function(std::move(inputs), std::move(results));
    }
    case 9:
      return ir::Type::index();
    case 20: {
      HEKLA_ASSIGN_OR_RETURN(Dims dims, shape(reader));
      HEKLA_ASSIGN_OR_RETURN(ir::Type element, element_type());
      return ir::Type::tensor(element, std::move(dims));
    }
    case 21: {
      HEKLA_ASSIGN_OR_RETURN(const RawAttribute* encoding, attribute(reader.varint()));
      HEKLA_ASSIGN_OR_RETURN(Dims dims, shape(reader));
      HEKLA_ASSIGN_OR_RETURN(ir::Type element, element_type());
      Dims bounds;
      if (encoding->kind == Kind::kBounds) bounds = encoding->lists[0];
      if (!bounds.empty() && bounds.size() != dims.size()) {
        reader.fail(fmt::format("{} bounds for rank {}", bounds.size(), dims.size()));
      }
      return ir::Type::tensor(element, std::move(dims), std::move(bounds));
    }
    case 22:
      return ir::Type::token();
    case 23: {
      HEKLA_ASSIGN_OR_RETURN(std::vector<ir::Type> parts, type_list(reader, depth));
      return ir::Type::tuple(std::move(parts));
    }
    case 24:
    case 30: {
      ir::Quantization q;
      reader.varint();  // flags: the storage type says whether it is signed
      HEKLA_ASSIGN_OR_RETURN(ir::Type storage, element_type());
      HEKLA_ASSIGN_OR_RETURN(ir::Type expressed, element_type());
      q.storage = storage.dtype();
      q.expressed = expressed.dtype();
      // MLIR's limit.
      constexpr int kMaxStorageBits = 32;
      if (!is_integer(q.storage) || !is_float(q.expressed) ||
          dtype_bits(q.storage) > kMaxStorageBits) {
        reader.fail("a quantized type stores integers of at most 32 bits and expresses floats");
      }
      if (code == 24) {
        q.scales = {float_from_bits(DType::kF64, reader.ap_int(64))};
        q.zero_points = {reader.svarint()};
        q.storage_min = reader.svarint();
        q.storage_max = reader.svarint();
        if (!std::isfinite(q.scales[0])) reader.fail("the scale of a quantized type is not finite");
      } else {
        q.axis = static_cast<int64_t>(reader.varint());
        q.storage_min = reader.svarint();
        q.storage_max = reader.svarint();
        q.scales.resize(reader.count());
        for (double& scale : q.scales) {
          scale = float_from_bits(DType::kF64, reader.ap_int(64));
          if (!std::isfinite(scale)) reader.fail("the scale of a quantized type is not finite");
        }
        q.zero_points.resize(reader.count());
        for (int64_t& zero : q.zero_points) zero = reader.svarint();
        if (q.axis < 0 || q.scales.size() != q.zero_points.size()) {
          reader.fail("a quantized type needs an axis, and a zero point for each scale");
        }
      }
      HEKLA_RETURN_IF_ERROR(reader.status());
      return ir::Type::quantized(std::move(q));
    }
    case 25: {
      HEKLA_ASSIGN_OR_RETURN(ir::Type element, element_type());
      return ir::Type::unranked_tensor(element);
    }
    case 26:
      return ir::Type::witness();
    case 33:
      return ir::Type();
    case 41: {
      HEKLA_ASSIGN_OR_RETURN(Dims dims, shape(reader));
      HEKLA_ASSIGN_OR_RETURN(ir::Type element, element_type());
      return ir::Type::buffer(element, std::move(dims));
    }
    case 42: {
      HEKLA_ASSIGN_OR_RETURN(std::vector<ir::Type> parts, type_list(reader, depth));
      return ir::Type::future(std::move(parts));
    }
    default:
      return invalid_argument("bytecode, offset {}: there is no vhlo type {}", reader.position(),
                              code);
  }
}

Result<ir::Type> AttributeTable::decode_builtin_type(ByteReader& reader, int depth) const {
  const uint64_t code = reader.varint();
  if (code >= 3 && code <= 6) return ir::Type::scalar(kBuiltinFloats[code]);
  if (DType dtype = builtin_small_float(code); dtype != DType::kInvalid) {
    return ir::Type::scalar(dtype);
  }
  const auto element_type = [&]() -> Result<ir::Type> {
    HEKLA_ASSIGN_OR_RETURN(ir::Type element, type_at_depth(reader.varint(), depth + 1));
    if (!is_number_element(element)) {
      return invalid_argument("bytecode, offset {}: {} is no element type", reader.position(),
                              element.to_string());
    }
    return element;
  };
  switch (code) {
    case 0: {
      const uint64_t value = reader.varint();
      const DType dtype = integer_dtype(value >> 2, (value & 3) == 2);
      if (dtype == DType::kInvalid) {
        reader.fail(fmt::format("integers of {} bits are not supported", value >> 2));
      }
      return ir::Type::scalar(dtype);
    }
    case 1:
      return ir::Type::index();
    case 2: {
      HEKLA_ASSIGN_OR_RETURN(std::vector<ir::Type> inputs, type_list(reader, depth));
      HEKLA_ASSIGN_OR_RETURN(std::vector<ir::Type> results, type_list(reader, depth));
      return ir::Type::function(std::move(inputs), std::move(results));
    }
    case 9: {
      HEKLA_ASSIGN_OR_RETURN(ir::Type part, element_type());
      const DType dtype = complex_of(part.dtype());
      if (dtype == DType::kInvalid) reader.fail("complex numbers have parts of f32 or f64");
      return ir::Type::scalar(dtype);
    }
    case 10: {
      HEKLA_ASSIGN_OR_RETURN(Dims dims, shape(reader));
      HEKLA_ASSIGN_OR_RETURN(ir::Type element, element_type());
      reader.varint();  // the layout, always the identity in StableHLO
      return ir::Type::buffer(element, std::move(dims));
    }
    case 12:
      return ir::Type();
    case 13: {
      HEKLA_ASSIGN_OR_RETURN(Dims dims, shape(reader));
      HEKLA_ASSIGN_OR_RETURN(ir::Type element, element_type());
      return ir::Type::tensor(element, std::move(dims));
    }
    case 14: {
      HEKLA_ASSIGN_OR_RETURN(const RawAttribute* encoding, attribute(reader.varint()));
      HEKLA_ASSIGN_OR_RETURN(Dims dims, shape(reader));
      HEKLA_ASSIGN_OR_RETURN(ir::Type element, element_type());
      Dims bounds;
      if (encoding->kind == Kind::kBounds) bounds = encoding->lists[0];
      if (!bounds.empty() && bounds.size() != dims.size()) {
        reader.fail(fmt::format("{} bounds for rank {}", bounds.size(), dims.size()));
      }
      return ir::Type::tensor(element, std::move(dims), std::move(bounds));
    }
    case 15: {
      HEKLA_ASSIGN_OR_RETURN(std::vector<ir::Type> parts, type_list(reader, depth));
      return ir::Type::tuple(std::move(parts));
    }
    case 18: {
      HEKLA_ASSIGN_OR_RETURN(ir::Type element, element_type());
      return ir::Type::unranked_tensor(element);
    }
    default:
      return invalid_argument("bytecode, offset {}: builtin type {} has no place in StableHLO",
                              reader.position(), code);
  }
}

ir::LocationRef AttributeTable::location(uint64_t index) const {
  return location_at_depth(index, 0);
}

ir::LocationRef AttributeTable::location_at_depth(uint64_t index, int depth) const {
  if (auto it = locations_.find(index); it != locations_.end()) return it->second;
  if (index >= attribute_entries_.size() || depth > kMaxLocationDepth) return nullptr;
  const Entry& entry = attribute_entries_[index];
  if (entry.dialect != Dialect::kBuiltin || !entry.has_custom_encoding) return nullptr;
  // Taken out again below; meanwhile a cycle sees an unknown location.
  locations_[index] = nullptr;
  ByteReader reader(file_, entry.offset, entry.offset + entry.size);
  auto location = std::make_shared<ir::Location>();
  const auto name = [&](uint64_t ref) {
    Result<std::string> text = builtin_string(ref);
    return text.ok() && spend(text->size()) ? *std::move(text) : std::string();
  };
  const auto child = [&](uint64_t ref) {
    location->children.push_back(location_at_depth(ref, depth + 1));
  };
  using LocationKind = ir::Location::Kind;
  switch (reader.varint()) {
    case 10:
      location->kind = LocationKind::kCallSite;
      child(reader.varint());
      child(reader.varint());
      break;
    case 11:
      location->text = name(reader.varint());
      location->line = static_cast<int64_t>(reader.varint());
      location->column = static_cast<int64_t>(reader.varint());
      break;
    case 12:
    case 13: {
      location->kind = LocationKind::kFused;
      const size_t count = reader.count();
      for (size_t i = 0; i < count && reader.ok(); ++i) child(reader.varint());
      break;
    }
    case 14:
      location->kind = LocationKind::kName;
      location->text = name(reader.varint());
      child(reader.varint());
      break;
    case 22: {
      location->text = name(reader.varint());
      const uint64_t count = reader.varint();
      location->line = static_cast<int64_t>(reader.varint());
      if (count >= 2) location->column = static_cast<int64_t>(reader.varint());
      break;
    }
    default:
      location = nullptr;
  }
  if (!reader.ok()) location = nullptr;
  locations_[index] = location;
  return location;
}

Result<std::string> AttributeTable::builtin_string(uint64_t index) const {
  HEKLA_ASSIGN_OR_RETURN(const RawAttribute* value, attribute(index));
  if (value->kind != Kind::kString && value->kind != Kind::kSymbol) {
    return invalid_argument("bytecode: attribute {} must be a string", index);
  }
  if (!spend(value->text.size())) {
    return invalid_argument("bytecode: the strings of the attributes take too much room");
  }
  return value->text;
}

}  // namespace hekla::stablehlo
