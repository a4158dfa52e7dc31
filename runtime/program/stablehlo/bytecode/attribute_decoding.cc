// SPDX-License-Identifier: Apache-2.0
// Decoding of attribute entries: builtin, VHLO and native StableHLO.
#include "runtime/program/stablehlo/bytecode/attribute_table.h"
#include "runtime/program/stablehlo/bytecode/vhlo_words.h"

namespace hekla::stablehlo {
namespace {

using Kind = RawAttribute::Kind;

void read_enum(ByteReader& reader, const VhloEnum& words, RawAttribute& out) {
  const uint64_t value = reader.varint();
  if (value >= words.words.size() || words.words[value].empty()) {
    reader.fail(fmt::format("{} is no value of {}", value, words.name));
    return;
  }
  out.kind = Kind::kEnum;
  out.enum_kind = words.name;
  out.text = words.words[value];
}

std::vector<int64_t> svarint_list(ByteReader& reader) {
  std::vector<int64_t> values(reader.count());
  for (int64_t& value : values) value = reader.svarint();
  return values;
}

std::vector<uint32_t> reference_list(ByteReader& reader) {
  std::vector<uint32_t> values(reader.count());
  for (uint32_t& value : values) value = reader.reference();
  return values;
}

Status expect_integer_type(const ByteReader& reader, const ir::Type& type) {
  if (type.is_scalar() && (is_integer(type.dtype()) || type.dtype() == DType::kI1)) {
    return ok_status();
  }
  return invalid_argument("bytecode, offset {}: {} is no integer type", reader.position(),
                          type.to_string());
}

}  // namespace

Result<const RawAttribute*> AttributeTable::attribute(uint64_t index) const {
  if (auto it = attributes_.find(index); it != attributes_.end()) return it->second.get();
  if (index >= attribute_entries_.size()) {
    return invalid_argument("bytecode: there is no attribute {}, the file has {}", index,
                            attribute_entries_.size());
  }
  if (attribute_depth_ > kMaxAttributeDepth) {
    return invalid_argument("bytecode: attribute {} is nested deeper than {}", index,
                            kMaxAttributeDepth);
  }
  ++attribute_depth_;
  auto decoded = std::make_unique<RawAttribute>();
  const Status status = decode_attribute(attribute_entries_[index], *decoded);
  --attribute_depth_;
  HEKLA_RETURN_IF_ERROR(status);
  return attributes_.emplace(index, std::move(decoded)).first->second.get();
}

Status AttributeTable::decode_attribute(const Entry& entry, RawAttribute& out) const {
  ByteReader reader(file_, entry.offset, entry.offset + entry.size);
  out.is_builtin = entry.dialect == Dialect::kBuiltin;
  if (!entry.has_custom_encoding) {
    out.kind = Kind::kText;
    out.is_builtin = false;
    out.text = std::string(reader.terminated_string());
    reader.expect_end("an attribute");
    if (reader.ok() && entry.dialect == Dialect::kSdy) return decode_sdy_text(reader, out);
    return reader.status();
  }
  switch (entry.dialect) {
    case Dialect::kBuiltin:
      HEKLA_RETURN_IF_ERROR(decode_builtin(reader, out));
      break;
    case Dialect::kVhlo:
      HEKLA_RETURN_IF_ERROR(decode_vhlo(reader, out));
      break;
    case Dialect::kStablehlo:
      HEKLA_RETURN_IF_ERROR(decode_stablehlo(reader, out));
      break;
    case Dialect::kSdy:
      HEKLA_RETURN_IF_ERROR(decode_sdy(reader, out));
      break;
    case Dialect::kOther:
      // Another dialect's own encoding: kept as what it is, bytes of known length.
      out.kind = Kind::kText;
      out.text = fmt::format("#unknown<{} bytes>", entry.size);
      return ok_status();
  }
  reader.expect_end("an attribute");
  return reader.status();
}

Status AttributeTable::decode_builtin(ByteReader& reader, RawAttribute& out) const {
  const uint64_t code = reader.varint();
  const auto read_type = [&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(out.type, type(reader.varint()));
    return ok_status();
  };
  switch (code) {
    case 0:
      out.kind = Kind::kArray;
      out.elements = reference_list(reader);
      break;
    case 1: {
      out.kind = Kind::kDictionary;
      const size_t count = reader.count(2);
      for (size_t i = 0; i < count && reader.ok(); ++i) {
        HEKLA_ASSIGN_OR_RETURN(std::string key, builtin_string(reader.varint()));
        out.entries.emplace_back(std::move(key), reader.reference());
      }
      break;
    }
    case 2:
      out.kind = Kind::kString;
      out.text = copy_of_string(reader.varint(), reader);
      break;
    case 3:
      out.kind = Kind::kString;
      out.text = copy_of_string(reader.varint(), reader);
      reader.varint();  // the type of a typed string says nothing in StableHLO
      break;
    case 4:
    case 5: {
      out.kind = Kind::kSymbol;
      HEKLA_ASSIGN_OR_RETURN(out.text, builtin_string(reader.varint()));
      if (code == 5) {
        for (uint32_t nested : reference_list(reader)) {
          HEKLA_ASSIGN_OR_RETURN(std::string name, builtin_string(nested));
          out.symbols.push_back(std::move(name));
        }
      }
      break;
    }
    case 6:
      out.kind = Kind::kType;
      HEKLA_RETURN_IF_ERROR(read_type());
      break;
    case 7:
      out.kind = Kind::kUnit;
      break;
    case 8: {
      HEKLA_RETURN_IF_ERROR(read_type());
      HEKLA_RETURN_IF_ERROR(expect_integer_type(reader, out.type));
      out.bits = reader.ap_int(out.type.is_index() ? 64 : dtype_bits(out.type.dtype()));
      // MLIR's booleans are one-bit integers.
      out.kind = out.type.dtype() == DType::kI1 ? Kind::kBool : Kind::kInteger;
      if (out.kind == Kind::kBool) out.bits &= 1;
      break;
    }
    case 9:
      out.kind = Kind::kFloat;
      HEKLA_RETURN_IF_ERROR(read_type());
      if (!out.type.is_scalar() || !is_float(out.type.dtype())) {
        reader.fail(fmt::format("{} is no float type", out.type.to_string()));
      }
      out.bits = reader.ap_int(dtype_bits(out.type.dtype()));
      break;
    case 10:
    case 11:
    case 12:
    case 13:
    case 14:
    case 15:
    case 22:
      // location() reads them; here they are only passed over.
      out.kind = Kind::kLocation;
      reader.bytes(reader.remaining());
      break;
    case 16: {
      out.kind = Kind::kResource;
      HEKLA_RETURN_IF_ERROR(read_type());
      const uint64_t handle = reader.varint();
      if (handle >= resources_.size()) {
        reader.fail(
            fmt::format("there is no resource {}, the file has {}", handle, resources_.size()));
        break;
      }
      // Attributes may share a resource, and each will copy it.
      if (!spend(resources_[handle].key.size() + resources_[handle].blob.size())) {
        reader.fail("the resources take too much room");
      }
      out.text = std::string(resources_[handle].key);
      out.blob = resources_[handle].blob;
      break;
    }
    case 17:
      out.kind = Kind::kDenseArray;
      HEKLA_RETURN_IF_ERROR(read_type());
      out.number = static_cast<int64_t>(reader.varint());
      out.blob = reader.bytes(reader.varint());
      if (!out.type.is_scalar() || out.number < 0 ||
          static_cast<uint64_t>(out.number) > out.blob.size() ||
          out.blob.size() != static_cast<size_t>(out.number * dtype_bytes(out.type.dtype()))) {
        reader.fail(fmt::format("an array of {} {} does not fill {} bytes", out.number,
                                out.type.to_string(), out.blob.size()));
      }
      break;
    case 18:
      out.kind = Kind::kTensor;
      HEKLA_RETURN_IF_ERROR(read_type());
      out.blob = reader.bytes(reader.varint());
      break;
    default:
      // Strings as tensor elements, sparse elements, distinct attributes: readable only as
      // discardable data, which nobody looks at.
      out.kind = Kind::kText;
      out.text = fmt::format("#builtin.attribute_{}<{} bytes>", code, reader.remaining());
      reader.bytes(reader.remaining());
      break;
  }
  return reader.status();
}

Status AttributeTable::decode_vhlo(ByteReader& reader, RawAttribute& out) const {
  const uint64_t code = reader.varint();
  const auto read_type = [&]() -> Status {
    HEKLA_ASSIGN_OR_RETURN(out.type, type(reader.varint()));
    return ok_status();
  };
  if (const VhloEnum* words = vhlo_enum_of_code(code)) {
    read_enum(reader, *words, out);
    return reader.status();
  }
  switch (code) {
    case 1:
      out.kind = Kind::kArray;
      out.elements = reference_list(reader);
      break;
    case 2:
      out.kind = Kind::kBool;
      out.bits = reader.varint();
      if (out.bits > 1) reader.fail(fmt::format("{} is no bool", out.bits));
      break;
    case 6: {
      out.kind = Kind::kDictionary;
      const size_t count = reader.count(2);
      for (size_t i = 0; i < count && reader.ok(); ++i) {
        HEKLA_ASSIGN_OR_RETURN(std::string key, builtin_string(reader.varint()));
        out.entries.emplace_back(std::move(key), reader.reference());
      }
      break;
    }
    case 8:
      out.kind = Kind::kFloat;
      HEKLA_RETURN_IF_ERROR(read_type());
      if (!out.type.is_scalar() || !is_float(out.type.dtype())) {
        reader.fail(fmt::format("{} is no float type", out.type.to_string()));
      }
      out.bits = reader.ap_int(dtype_bits(out.type.dtype()));
      break;
    case 9:
      out.kind = Kind::kInteger;
      HEKLA_RETURN_IF_ERROR(read_type());
      HEKLA_RETURN_IF_ERROR(expect_integer_type(reader, out.type));
      out.bits = reader.ap_int(out.type.is_index() ? 64 : dtype_bits(out.type.dtype()));
      break;
    case 10:
      out.kind = Kind::kAlias;
      out.lists.push_back(svarint_list(reader));
      out.number = reader.svarint();
      out.lists.push_back(svarint_list(reader));
      break;
    case 14:
      out.kind = Kind::kString;
      out.text = copy_of_string(reader.varint(), reader);
      break;
    case 15:
      out.kind = Kind::kTensor;
      HEKLA_RETURN_IF_ERROR(read_type());
      out.blob = reader.bytes(reader.varint());
      break;
    case 17:
      out.kind = Kind::kType;
      HEKLA_RETURN_IF_ERROR(read_type());
      break;
    case 18:
      out.kind = Kind::kBounds;
      out.lists.push_back(svarint_list(reader));
      break;
    case 20: {
      out.kind = Kind::kAccuracy;
      out.bits = reader.ap_int(64);
      out.bits2 = reader.ap_int(64);
      out.number = reader.svarint();
      HEKLA_ASSIGN_OR_RETURN(const RawAttribute* mode, attribute(reader.varint()));
      out.text = mode->kind == Kind::kEnum ? mode->text : "DEFAULT";
      break;
    }
    case 21:
    case 22:
    case 23:
    case 24:
    case 25:
      return decode_mesh_part(code, /*is_vhlo=*/true, reader, out);
    default:
      reader.fail(fmt::format("there is no vhlo attribute {}", code));
  }
  return reader.status();
}

// Meshes and what they consist of, by VHLO's codes, as StableHLO's text. Native StableHLO has
// strings where VHLO has string attributes, and flags of a byte.
Status AttributeTable::decode_mesh_part(uint64_t code, bool is_vhlo, ByteReader& reader,
                                        RawAttribute& out) const {
  out.kind = Kind::kText;
  const auto name = [&]() -> Result<std::string> {
    if (is_vhlo) return builtin_string(reader.varint());
    std::string text = copy_of_string(reader.varint(), reader);
    HEKLA_RETURN_IF_ERROR(reader.status());
    return text;
  };
  const auto add_parts = [&](const std::vector<uint32_t>& parts) -> Status {
    out.text += "[";
    for (size_t i = 0; i < parts.size() && reader.ok(); ++i) {
      HEKLA_ASSIGN_OR_RETURN(const RawAttribute* part, attribute(parts[i]));
      out.text += (i > 0 ? ", " : "") + part->text;
      if (!spend(part->text.size() + 16)) reader.fail("the meshes take too much room");
    }
    out.text += "]";
    return reader.status();
  };
  const auto add_list = [&](uint64_t index) -> Status {
    HEKLA_ASSIGN_OR_RETURN(const RawAttribute* list, attribute(index));
    return add_parts(list->elements);
  };
  switch (code) {
    case 21: {
      const int64_t pre_size = reader.svarint();
      out.text = fmt::format("({}){}", pre_size, reader.svarint());
      break;
    }
    case 22: {
      HEKLA_ASSIGN_OR_RETURN(std::string axis, name());
      out.text = fmt::format("#stablehlo.axis_ref<name = \"{}\"", axis);
      const uint64_t flag = is_vhlo ? reader.varint() : reader.byte();
      if ((flag & 1) != 0) {
        const uint64_t index = reader.varint();
        HEKLA_RETURN_IF_ERROR(reader.status());
        HEKLA_ASSIGN_OR_RETURN(const RawAttribute* sub, attribute(index));
        out.text += fmt::format(", sub_axis_info = {}", sub->text);
      }
      out.text += ">";
      break;
    }
    case 23: {
      out.kind = Kind::kMeshAxes;
      HEKLA_ASSIGN_OR_RETURN(const RawAttribute* mesh, attribute(reader.varint()));
      const bool is_name = mesh->kind == Kind::kString || mesh->kind == Kind::kSymbol;
      out.text =
          fmt::format("#stablehlo.replica_group_mesh_axes<mesh = {}{}, axes = ", is_name ? "@" : "",
                      mesh->text);
      HEKLA_RETURN_IF_ERROR(is_vhlo ? add_list(reader.varint())
                                    : add_parts(reference_list(reader)));
      out.text += ">";
      break;
    }
    case 24: {
      HEKLA_ASSIGN_OR_RETURN(std::string axis, name());
      out.text =
          fmt::format("#stablehlo.mesh_axis<name = \"{}\", size = {}>", axis, reader.svarint());
      break;
    }
    default: {
      out.text = "#stablehlo.mesh<axes = ";
      HEKLA_RETURN_IF_ERROR(add_list(reader.varint()));
      // VHLO: an optional reference; native: a flag, then a reference.
      const uint64_t ids = is_vhlo ? reader.varint() : reader.byte();
      if ((ids & 1) != 0) {
        const uint64_t index = is_vhlo ? ids >> 1 : reader.varint();
        HEKLA_RETURN_IF_ERROR(reader.status());
        HEKLA_ASSIGN_OR_RETURN(const RawAttribute* tensor, attribute(index));
        if (tensor->kind != Kind::kTensor) {
          return invalid_argument("bytecode: attribute {} must be a tensor", index);
        }
        out.text += ", device_ids = dense<\"0x";
        for (char byte : tensor->blob) {
          out.text += fmt::format("{:02X}", static_cast<uint8_t>(byte));
        }
        out.text += fmt::format("\"> : {}", tensor->type.to_string());
      }
      out.text += ">";
    }
  }
  return reader.status();
}

Status AttributeTable::decode_stablehlo(ByteReader& reader, RawAttribute& out) const {
  const uint64_t code = reader.varint();
  if (const VhloEnum* words = vhlo_enum_of_native_code(code)) {
    read_enum(reader, *words, out);
    return reader.status();
  }
  const auto lists = [&](int count) {
    for (int i = 0; i < count; ++i) out.lists.push_back(svarint_list(reader));
  };
  const auto single = [&] { out.lists.push_back({reader.svarint()}); };
  switch (code) {
    case 1:
      out.kind = Kind::kChannel;
      out.number = reader.svarint();
      out.number2 = reader.svarint();
      break;
    case 4:
      out.kind = Kind::kConv;
      for (int side = 0; side < 3; ++side) {
        single();
        single();
        lists(1);
      }
      break;
    case 5:
      out.kind = Kind::kDot;
      lists(4);
      break;
    case 7:
      out.kind = Kind::kGather;
      lists(5);
      out.number = reader.svarint();
      break;
    case 11:
      out.kind = Kind::kScatter;
      lists(5);
      out.number = reader.svarint();
      break;
    case 13:
      out.kind = Kind::kBounds;
      lists(1);
      break;
    case 14:
      out.kind = Kind::kAlias;
      lists(1);
      out.number = reader.svarint();
      lists(1);
      break;
    case 17: {
      out.kind = Kind::kAccuracy;
      out.bits = reader.ap_int(64);
      out.bits2 = reader.ap_int(64);
      out.number = reader.svarint();
      HEKLA_ASSIGN_OR_RETURN(const RawAttribute* mode, attribute(reader.varint()));
      out.text = mode->kind == Kind::kEnum ? mode->text : "DEFAULT";
      break;
    }
    case 15: {
      out.kind = Kind::kAlgorithm;
      for (int i = 0; i < 3; ++i) {
        HEKLA_ASSIGN_OR_RETURN(ir::Type part, type(reader.varint()));
        out.types.push_back(std::move(part));
      }
      out.lists.emplace_back();
      for (int i = 0; i < 3; ++i) out.lists[0].push_back(reader.svarint());
      out.lists[0].push_back(reader.byte());
      break;
    }
    case 18:
    case 19:
    case 20:
    case 21:
    case 22:
      // VHLO has the replica groups after the parts of axes.
      return decode_mesh_part(code == 18   ? 23
                              : code <= 20 ? code + 2
                                           : code + 3,
                              /*is_vhlo=*/false, reader, out);
    default:
      out.kind = Kind::kText;
      out.text = fmt::format("#stablehlo.attribute_{}<{} bytes>", code, reader.remaining());
      reader.bytes(reader.remaining());
  }
  return reader.status();
}

}  // namespace hekla::stablehlo
