// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt/safetensors.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/checkpoint/layout.h"

namespace hekla::tools {
namespace {

constexpr std::string_view kMetadata = "__metadata__";

constexpr auto kDTypes = std::to_array<std::pair<std::string_view, DType>>({
    {"BOOL", DType::kI1},
    {"U8", DType::kUI8},
    {"I8", DType::kI8},
    {"I16", DType::kI16},
    {"U16", DType::kUI16},
    {"F16", DType::kF16},
    {"BF16", DType::kBF16},
    {"I32", DType::kI32},
    {"U32", DType::kUI32},
    {"F32", DType::kF32},
    {"C64", DType::kC64},
    {"F64", DType::kF64},
    {"I64", DType::kI64},
    {"U64", DType::kUI64},
    {"F8_E5M2", DType::kF8E5M2},
    {"F8_E4M3", DType::kF8E4M3FN},
    {"F8_E8M0", DType::kF8E8M0FNU},
    {"F8_E4M3FNUZ", DType::kF8E4M3FNUZ},
    {"F8_E5M2FNUZ", DType::kF8E5M2FNUZ},
    {"F4", DType::kF4E2M1FN},
    {"F6_E2M3", DType::kF6E2M3FN},
    {"F6_E3M2", DType::kF6E3M2FN},
});

// A JSON handler that refuses two equal keys in one object, which the parser would merge.
struct DuplicateKeys {
  std::vector<std::set<std::string>> open;
  bool found = false;
  bool operator()(int, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key) found |= !open.back().insert(value.get<std::string>()).second;
    return true;
  }
};

Result<int64_t> number(const nlohmann::json& value, std::string_view name) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{1} << 62) {
    return data_loss("safetensors: tensor '{}' has a number that is no size", name);
  }
  return value.get<int64_t>();
}

Result<SafeTensor> parse_tensor(const std::string& name, const nlohmann::json& entry) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets") || entry.size() != 3 || !entry["dtype"].is_string() ||
      !entry["shape"].is_array() || !entry["data_offsets"].is_array() ||
      entry["data_offsets"].size() != 2) {
    return data_loss("safetensors: tensor '{}' needs dtype, shape and two data_offsets", name);
  }
  SafeTensor tensor;
  tensor.name = name;
  const auto& dtype = entry["dtype"].get_ref<const std::string&>();
  for (const auto& [text, known] : kDTypes) {
    if (dtype == text) tensor.dtype = known;
  }
  if (tensor.dtype == DType::kInvalid) {
    return unimplemented("safetensors: tensor '{}' has the unknown dtype {}", name, dtype);
  }
  for (const auto& size : entry["shape"]) {
    HEKLA_ASSIGN_OR_RETURN(const int64_t n, number(size, name));
    tensor.shape.push_back(n);
  }
  HEKLA_ASSIGN_OR_RETURN(tensor.begin, number(entry["data_offsets"][0], name));
  HEKLA_ASSIGN_OR_RETURN(tensor.end, number(entry["data_offsets"][1], name));
  const auto bytes = checked_bytes(tensor.dtype, tensor.shape);
  if (!bytes.ok()) return data_loss("safetensors: tensor '{}': {}", name, bytes.status().message());
  const int64_t stored = checkpoint::stored_bytes(tensor.dtype, element_count(tensor.shape));
  if (tensor.begin > tensor.end || tensor.end - tensor.begin != stored) {
    return data_loss("safetensors: tensor '{}' is {} and takes {} bytes, its offsets are {} to {}",
                     name, shape_string(tensor.dtype, tensor.shape), stored, tensor.begin,
                     tensor.end);
  }
  return tensor;
}

}  // namespace

std::string_view safetensors_dtype(DType dtype) {
  for (const auto& [text, known] : kDTypes) {
    if (dtype == known) return text;
  }
  return "";
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, int64_t data_bytes) {
  if (static_cast<int64_t>(json.size()) > kMaxSafetensorsHeader) {
    return data_loss("safetensors: a header of {} bytes, the limit is {}", json.size(),
                     kMaxSafetensorsHeader);
  }
  if (json.empty() || json[0] != '{') return data_loss("safetensors: the header is no JSON object");
  // Three levels are all that there are; a parser for any depth could be made to run out of stack.
  int depth = 0;
  bool is_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (is_text) {
      if (c == '\\') ++i;
      if (c == '"') is_text = false;
    } else if (c == '"') {
      is_text = true;
    } else if (c == '{' || c == '[') {
      if (++depth > 3) return data_loss("safetensors: the header is nested too deeply");
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  DuplicateKeys duplicates;
  const auto parsed = nlohmann::json::parse(json, std::ref(duplicates), /*allow_exceptions=*/false);
  if (parsed.is_discarded() || !parsed.is_object()) {
    return data_loss("safetensors: the header is no JSON object");
  }
  if (duplicates.found) return data_loss("safetensors: the header has a key twice");
  SafetensorsHeader header;
  for (const auto& [name, entry] : parsed.items()) {
    if (name == kMetadata) {
      if (!entry.is_object()) return data_loss("safetensors: __metadata__ is no object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return data_loss("safetensors: metadata '{}' is no text", key);
        header.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    HEKLA_ASSIGN_OR_RETURN(SafeTensor tensor, parse_tensor(name, entry));
    header.tensors.push_back(std::move(tensor));
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const SafeTensor& a, const SafeTensor& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  int64_t at = 0;
  for (const SafeTensor& tensor : header.tensors) {
    if (tensor.begin != at) {
      return data_loss("safetensors: tensor '{}' begins at {}, the one before it ends at {}",
                       tensor.name, tensor.begin, at);
    }
    at = tensor.end;
  }
  if (at != data_bytes) {
    return data_loss("safetensors: the tensors end at {}, the data have {} bytes", at, data_bytes);
  }
  return header;
}

Result<std::string> safetensors_header(const SafetensorsHeader& header) {
  nlohmann::json json = nlohmann::json::object();
  if (!header.metadata.empty()) json[std::string(kMetadata)] = header.metadata;
  for (const SafeTensor& tensor : header.tensors) {
    const std::string_view dtype = safetensors_dtype(tensor.dtype);
    if (dtype.empty()) {
      return invalid_argument("safetensors has no dtype for tensor '{}' of {}", tensor.name,
                              dtype_name(tensor.dtype));
    }
    if (tensor.name == kMetadata) {
      return invalid_argument("safetensors keeps the name '{}' for itself; rename the tensor",
                              tensor.name);
    }
    json[tensor.name] = {
        {"dtype", dtype}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (static_cast<int64_t>(text.size()) > kMaxSafetensorsHeader) {
    return invalid_argument(
        "the safetensors header would have {} bytes, the limit is {}; write "
        "more, smaller files with --max-shard",
        text.size(), kMaxSafetensorsHeader);
  }
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(text.size() >> (8 * i));
  return out + text;
}

}  // namespace hekla::tools
