// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/compile_options.h"

#include <cstring>

namespace hekla::pjrt {
namespace {

Status malformed() { return invalid_argument("malformed protobuf message"); }

bool read_varint(std::string_view& bytes, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const uint8_t byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7fU} << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

void append_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

Status parse_assignment(std::string_view bytes, CompileOptions& options) {
  HEKLA_ASSIGN_OR_RETURN(std::vector<WireField> fields, parse_fields(bytes));
  int64_t replicas = 0;
  int64_t partitions = 0;
  std::vector<std::vector<int64_t>> by_partition;
  for (const WireField& field : fields) {
    if (field.number == 1) replicas = static_cast<int64_t>(field.value);
    if (field.number == 2) partitions = static_cast<int64_t>(field.value);
    if (field.number != 3) continue;
    HEKLA_ASSIGN_OR_RETURN(std::vector<WireField> inner, parse_fields(field.bytes));
    std::vector<int64_t> ids;
    for (const WireField& id : inner) {
      if (id.number != 1) continue;
      HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> part, parse_varints(id));
      ids.insert(ids.end(), part.begin(), part.end());
    }
    by_partition.push_back(std::move(ids));
  }
  options.device_ids.clear();
  if (static_cast<int64_t>(by_partition.size()) != partitions) return malformed();
  // An empty message says as much as none. Else the lists bound the counts.
  if (by_partition.empty()) return replicas == 0 ? ok_status() : malformed();
  for (const auto& ids : by_partition) {
    if (static_cast<int64_t>(ids.size()) != replicas) return malformed();
  }
  for (int64_t r = 0; r < replicas; ++r) {
    for (int64_t p = 0; p < partitions; ++p) {
      options.device_ids.push_back(by_partition[static_cast<size_t>(p)][static_cast<size_t>(r)]);
    }
  }
  return ok_status();
}

Status parse_build_options(std::string_view bytes, CompileOptions& options) {
  HEKLA_ASSIGN_OR_RETURN(std::vector<WireField> fields, parse_fields(bytes));
  for (const WireField& field : fields) {
    if (field.number == 4) options.replica_count = static_cast<int64_t>(field.value);
    if (field.number == 5) options.partition_count = static_cast<int64_t>(field.value);
    if (field.number == 9) HEKLA_RETURN_IF_ERROR(parse_assignment(field.bytes, options));
  }
  return ok_status();
}

// One entry of env_option_overrides: key 1, value 2 with one of string, bool, int, double.
Status parse_override(std::string_view bytes, CompileOptions& options) {
  HEKLA_ASSIGN_OR_RETURN(std::vector<WireField> fields, parse_fields(bytes));
  std::string key;
  std::string text;
  for (const WireField& field : fields) {
    if (field.number == 1) key = std::string(field.bytes);
    if (field.number != 2) continue;
    HEKLA_ASSIGN_OR_RETURN(std::vector<WireField> value, parse_fields(field.bytes));
    for (const WireField& v : value) {
      if (v.number == 1) text = std::string(v.bytes);
      if (v.number == 2) text = v.value != 0 ? "true" : "false";
      if (v.number == 3) text = fmt::format("{}", static_cast<int64_t>(v.value));
      if (v.number == 4) {
        double number = 0;
        std::memcpy(&number, &v.value, sizeof(number));
        text = fmt::format("{}", number);
      }
    }
  }
  options.overrides.emplace_back(std::move(key), std::move(text));
  return ok_status();
}

}  // namespace

Result<std::vector<WireField>> parse_fields(std::string_view message) {
  std::vector<WireField> fields;
  while (!message.empty()) {
    uint64_t tag = 0;
    if (!read_varint(message, tag)) return malformed();
    WireField field;
    field.number = tag >> 3;
    if (field.number == 0) return malformed();
    switch (tag & 7) {
      case 0:
        if (!read_varint(message, field.value)) return malformed();
        break;
      case 1:
      case 5: {
        const size_t width = (tag & 7) == 1 ? 8 : 4;
        if (message.size() < width) return malformed();
        std::memcpy(&field.value, message.data(), width);
        message.remove_prefix(width);
        break;
      }
      case 2: {
        uint64_t size = 0;
        if (!read_varint(message, size) || size > message.size()) return malformed();
        field.bytes = message.substr(0, size);
        field.is_bytes = true;
        message.remove_prefix(size);
        break;
      }
      default:
        return malformed();
    }
    fields.push_back(field);
  }
  return fields;
}

Result<std::vector<int64_t>> parse_varints(const WireField& field) {
  std::vector<int64_t> values;
  if (!field.is_bytes) {
    values.push_back(static_cast<int64_t>(field.value));
    return values;
  }
  std::string_view bytes = field.bytes;
  while (!bytes.empty()) {
    uint64_t value = 0;
    if (!read_varint(bytes, value)) return malformed();
    values.push_back(static_cast<int64_t>(value));
  }
  return values;
}

Result<CompileOptions> parse_compile_options(std::string_view bytes) {
  CompileOptions options;
  HEKLA_ASSIGN_OR_RETURN(std::vector<WireField> fields, parse_fields(bytes));
  for (const WireField& field : fields) {
    if (field.number == 2) options.is_tupled = field.value != 0;
    if (field.number == 3) HEKLA_RETURN_IF_ERROR(parse_build_options(field.bytes, options));
    if (field.number == 4) options.is_portable = field.value != 0;
    if (field.number == 7) HEKLA_RETURN_IF_ERROR(parse_override(field.bytes, options));
  }
  if (options.replica_count < 1) options.replica_count = 1;
  if (options.partition_count < 1) options.partition_count = 1;
  return options;
}

std::string serialize_device_assignment(int64_t replica_count, int64_t partition_count,
                                        const std::vector<int64_t>& device_ids) {
  std::string out;
  append_varint_field(out, 1, static_cast<uint64_t>(replica_count));
  append_varint_field(out, 2, static_cast<uint64_t>(partition_count));
  for (int64_t p = 0; p < partition_count; ++p) {
    std::string ids;
    for (int64_t r = 0; r < replica_count; ++r) {
      append_varint(
          ids, static_cast<uint64_t>(device_ids[static_cast<size_t>(r * partition_count + p)]));
    }
    std::string computation;
    append_bytes_field(computation, 1, ids);
    append_bytes_field(out, 3, computation);
  }
  return out;
}

void append_varint_field(std::string& out, uint64_t number, uint64_t value) {
  append_varint(out, number << 3);
  append_varint(out, value);
}

void append_bytes_field(std::string& out, uint64_t number, std::string_view bytes) {
  append_varint(out, number << 3 | 2);
  append_varint(out, bytes.size());
  out += bytes;
}

}  // namespace hekla::pjrt
