// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/bytecode/vhlo_json.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "runtime/base/sha256.h"
#include "runtime/program/sharding/text.h"
#include "runtime/program/stablehlo/bytecode/attribute_table.h"
#include "runtime/program/stablehlo/bytecode/tensor_data.h"

namespace hekla::stablehlo {
namespace {

// Keeps the order in which keys are added, which is the order of reading.
using Json = nlohmann::ordered_json;
using Kind = RawAttribute::Kind;

constexpr int64_t kMaxInlineBytes = 64;
// A splat of a huge type would take forever to digest. Beyond this much over the file its element
// is shown instead.
constexpr int64_t kMaxDigestBytes = int64_t{1} << 28;

std::string hex(std::string_view bytes) {
  std::string text;
  for (char c : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return text;
}

bool is_utf8(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::ignore) ==
         Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json string_json(const std::string& text) {
  if (is_utf8(text)) return {{"str", text}};
  return {{"str_hex", hex(text)}};
}

int64_t signed_value(const ir::Type& type, uint64_t bits) {
  if (is_unsigned_integer(type.dtype()) || type.is_index()) return static_cast<int64_t>(bits);
  const int shift = 64 - dtype_bits(type.dtype());
  return static_cast<int64_t>(bits << shift) >> shift;
}

class Printer {
 public:
  // Attributes may share parts, so that a small file could print without end.
  explicit Printer(const RawModule& module)
      : module_(module), budget_(kExpansion * (module.file.size() + 4096)) {}

  Result<Json> run() {
    count_ops(module_.module);
    Json json;
    json["bytes"] = module_.file.size();
    json["sha256"] = sha256_hex(std::as_bytes(std::span(module_.file)));
    json["container_version"] = module_.container_version;
    json["producer"] = module_.producer;
    json["dialects"] = module_.dialects;
    json["attributes"] = module_.attribute_count;
    json["types"] = module_.type_count;
    json["values"] = module_.value_count;
    json["op_counts"] = op_counts_;
    HEKLA_ASSIGN_OR_RETURN(json["module"], op_json(module_.module));
    if (is_spent_) {
      return invalid_argument("bytecode: the types expand to more than can be printed");
    }
    return json;
  }

 private:
  void count_ops(const RawOp& op) {
    ++op_counts_[op.name];
    for (const RawRegion& region : op.regions) {
      for (const RawBlock& block : region.blocks) {
        for (const RawOp& inner : block.operations) count_ops(inner);
      }
    }
  }

  void spend(size_t bytes) {
    is_spent_ = is_spent_ || bytes > budget_;
    budget_ -= std::min(bytes, budget_);
  }

  std::string type_text(const ir::Type& type) {
    if (is_spent_) return "";  // the next attribute, or the end, reports it
    std::string text = type.to_string();
    spend(text.size());
    return text;
  }

  Json values_json(const std::vector<std::pair<uint32_t, ir::Type>>& values) {
    Json json = Json::array();
    for (const auto& [number, type] : values) {
      json.push_back(Json::array({number, type_text(type)}));
    }
    return json;
  }

  Result<Json> named_json(const std::vector<RawNamed>& attributes) {
    Json json = Json::object();
    for (const RawNamed& named : attributes) {
      HEKLA_ASSIGN_OR_RETURN(json[named.first], attribute_json(named.second, 0));
    }
    return json;
  }

  Result<Json> op_json(const RawOp& op) {
    Json json;
    json["op"] = op.name;
    if (!op.operands.empty()) json["operands"] = op.operands;
    if (!op.results.empty()) json["results"] = values_json(op.results);
    if (op.has_unknown_properties) {
      return invalid_argument("bytecode: the properties of {} are not known", op.name);
    }
    if (!op.properties.empty()) {
      HEKLA_ASSIGN_OR_RETURN(json["props"], named_json(op.properties));
    }
    if (!op.attributes.empty()) {
      HEKLA_ASSIGN_OR_RETURN(json["attrs"], named_json(op.attributes));
    }
    if (op.regions.empty()) return json;
    json["regions"] = Json::array();
    for (const RawRegion& region : op.regions) {
      Json blocks = Json::array();
      for (const RawBlock& block : region.blocks) {
        Json part = Json::object();
        if (!block.arguments.empty()) part["args"] = values_json(block.arguments);
        if (!block.operations.empty()) part["ops"] = Json::array();
        for (const RawOp& inner : block.operations) {
          HEKLA_ASSIGN_OR_RETURN(Json child, op_json(inner));
          part["ops"].push_back(std::move(child));
        }
        blocks.push_back(std::move(part));
      }
      json["regions"].push_back(std::move(blocks));
    }
    return json;
  }

  // All elements, splats expanded, as one digest or inline.
  Result<Json> tensor_json(uint32_t index, const ir::Type& type, std::string_view blob) {
    if (auto it = tensors_.find(index); it != tensors_.end()) return it->second;
    HEKLA_ASSIGN_OR_RETURN(HostArray elements, stored_elements(type, blob));
    HEKLA_ASSIGN_OR_RETURN(int64_t bytes, checked_bytes(type.dtype(), type.dims()));
    Json json = {{"tensor", type_text(type)}};
    const bool is_splat = elements.size_bytes() < bytes;
    if (bytes <= kMaxInlineBytes) {
      std::string text;
      const std::string_view stored(reinterpret_cast<const char*>(elements.data()),
                                    static_cast<size_t>(elements.size_bytes()));
      for (int64_t done = 0; done < bytes; done += elements.size_bytes()) text += hex(stored);
      json["hex"] = text;
      return json;
    }
    json["bytes"] = bytes;
    Sha256 digest;
    if (is_splat && bytes > kMaxDigestBytes - digested_) {
      const std::string_view stored(reinterpret_cast<const char*>(elements.data()),
                                    static_cast<size_t>(elements.size_bytes()));
      json["splat"] = hex(stored);
      return json;
    }
    if (is_splat) {
      digested_ += bytes;
      // A block of whole elements, so that the digest is fed in large pieces.
      std::vector<std::byte> block;
      while (block.size() < 4096) {
        block.insert(block.end(), elements.data(), elements.data() + elements.size_bytes());
      }
      for (int64_t done = 0; done < bytes;) {
        const int64_t part = std::min<int64_t>(bytes - done, static_cast<int64_t>(block.size()));
        digest.update({block.data(), static_cast<size_t>(part)});
        done += part;
      }
    } else {
      digest.update(elements.bytes());
    }
    json["sha256"] = digest.hex();
    tensors_.emplace(index, json);
    return json;
  }

  Result<Json> attribute_json(uint32_t index, int depth) {
    HEKLA_ASSIGN_OR_RETURN(const RawAttribute* value, module_.table->attribute(index));
    constexpr size_t kBytesOfElement = 24;
    spend(kBytesOfElement + value->text.size());
    if (value->kind == Kind::kDenseArray) {
      spend(kBytesOfElement * static_cast<size_t>(value->number));
    }
    if (depth > kMaxAttributeDepth || is_spent_) {
      return invalid_argument("bytecode: the attributes expand to more than can be printed");
    }
    Json json;
    switch (value->kind) {
      case Kind::kString:
        json = string_json(value->text);
        break;
      case Kind::kBool:
        // The builtin dialect's booleans are one-bit integers.
        if (value->is_builtin) {
          json = {{"int", value->bits & 1}, {"type", "i1"}};
        } else {
          json = {{"bool", value->bits != 0}};
        }
        break;
      case Kind::kInteger:
        json = {{"int", signed_value(value->type, value->bits)}, {"type", type_text(value->type)}};
        if (is_unsigned_integer(value->type.dtype())) json["int"] = value->bits;
        break;
      case Kind::kFloat:
        json = {{"float_bits",
                 fmt::format("0x{:0{}x}", value->bits, (dtype_bits(value->type.dtype()) + 3) / 4)},
                {"type", type_text(value->type)}};
        break;
      case Kind::kEnum:
        json = {{"enum", value->text}, {"kind", value->enum_kind}};
        break;
      case Kind::kArray: {
        json["array"] = Json::array();
        for (uint32_t element : value->elements) {
          HEKLA_ASSIGN_OR_RETURN(Json child, attribute_json(element, depth + 1));
          json["array"].push_back(std::move(child));
        }
        break;
      }
      case Kind::kDictionary: {
        json["dict"] = Json::object();
        for (const auto& [name, element] : value->entries) {
          HEKLA_ASSIGN_OR_RETURN(json["dict"][name], attribute_json(element, depth + 1));
        }
        break;
      }
      case Kind::kTensor:
        return tensor_json(index, value->type, value->blob);
      case Kind::kType:
        json = {{"type_value", type_text(value->type)}};
        break;
      case Kind::kAlias:
        json = {{"alias", Json::array({value->lists[0], value->number, value->lists[1]})}};
        break;
      case Kind::kAccuracy:
        json = {{"accuracy",
                 {{"atol_bits", fmt::format("0x{:016x}", value->bits)},
                  {"rtol_bits", fmt::format("0x{:016x}", value->bits2)},
                  {"ulps", value->number},
                  {"mode", value->text}}}};
        break;
      case Kind::kSymbol:
        json = {{"symbol", "@" + value->text}};
        break;
      case Kind::kUnit:
        json = {{"unit", true}};
        break;
      case Kind::kResource:
        return Json{
            {"text", fmt::format("dense_resource<{}> : {}", value->text, type_text(value->type))}};
      case Kind::kDenseArray:
        return Json{{"text", dense_array_text(*value)}};
      case Kind::kBounds:
        return Json{{"text", bounds_text(value->lists[0])}};
      case Kind::kSharding:
        return Json{{"text", sharding::attribute_text(*value->sharding)}};
      case Kind::kText:
      case Kind::kMeshAxes:
        return Json{{"text", value->text}};
      case Kind::kLocation:
        return Json{{"text", "loc(unknown)"}};
      case Kind::kConv:
      case Kind::kDot:
      case Kind::kGather:
      case Kind::kScatter:
        json = {{"lists", value->lists}, {"number", value->number}};
        break;
      case Kind::kAlgorithm:
        json = {{"algorithm", Json::array()}};
        for (const ir::Type& type : value->types) json["algorithm"].push_back(type_text(type));
        json["algorithm"].push_back(value->lists[0]);
        break;
      case Kind::kChannel:
        json = {{"channel", Json::array({value->number, value->number2})}};
        break;
    }
    if (value->is_builtin) json["builtin"] = true;
    return json;
  }

  static std::string bounds_text(const std::vector<int64_t>& bounds) {
    std::string text = "#stablehlo.bounds<";
    for (size_t i = 0; i < bounds.size(); ++i) {
      text += fmt::format("{}{}", i > 0 ? ", " : "",
                          bounds[i] == ir::kDynamic ? "?" : fmt::format("{}", bounds[i]));
    }
    return text + ">";
  }

  // Integers in decimal, floats as bit patterns.
  std::string dense_array_text(const RawAttribute& value) {
    const DType dtype = value.type.dtype();
    const size_t width = static_cast<size_t>(dtype_bytes(dtype));
    std::string text = fmt::format("array<{}", type_text(value.type));
    for (int64_t i = 0; i < value.number; ++i) {
      uint64_t bits = 0;
      std::memcpy(&bits, value.blob.data() + static_cast<size_t>(i) * width,
                  std::min<size_t>(width, 8));
      text += i == 0 ? ": " : ", ";
      if (is_float(dtype)) {
        text += fmt::format("0x{:0{}X}", bits, width * 2);
      } else if (dtype == DType::kI1) {
        text += bits != 0 ? "true" : "false";
      } else {
        text += fmt::format("{}", signed_value(value.type, bits));
      }
    }
    return text + ">";
  }

  const RawModule& module_;
  std::map<std::string, int64_t> op_counts_;
  size_t budget_;
  bool is_spent_ = false;
  int64_t digested_ = 0;              // bytes of splats
  std::map<uint32_t, Json> tensors_;  // large ones, by attribute
};

}  // namespace

Result<std::string> vhlo_json(const RawModule& module, int indent) {
  HEKLA_ASSIGN_OR_RETURN(Json json, Printer(module).run());
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hekla::stablehlo
