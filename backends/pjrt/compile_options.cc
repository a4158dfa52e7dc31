// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/compile_options.h"

#include <cstring>

#include "runtime/base/protobuf_wire.h"

namespace hekla::pjrt {
namespace {

Status malformed() { return invalid_argument("malformed protobuf message"); }

Status parse_assignment(std::string_view bytes, CompileOptions& options) {
  HEKLA_ASSIGN_OR_RETURN(std::vector<wire::Field> fields, wire::parse_fields(bytes));
  int64_t replicas = 0;
  int64_t partitions = 0;
  std::vector<std::vector<int64_t>> by_partition;
  for (const wire::Field& field : fields) {
    if (field.number == 1) replicas = static_cast<int64_t>(field.value);
    if (field.number == 2) partitions = static_cast<int64_t>(field.value);
    if (field.number != 3) continue;
    HEKLA_ASSIGN_OR_RETURN(std::vector<wire::Field> inner, wire::parse_fields(field.bytes));
    std::vector<int64_t> ids;
    for (const wire::Field& id : inner) {
      if (id.number != 1) continue;
      HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> part, wire::parse_varints(id));
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

// Of a repeated bool: one, or a packed list.
Status add_flags(const wire::Field& field, std::vector<bool>& flags) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> values, wire::parse_varints(field));
  for (const int64_t value : values) flags.push_back(value != 0);
  return ok_status();
}

Status parse_build_options(std::string_view bytes, CompileOptions& options) {
  HEKLA_ASSIGN_OR_RETURN(std::vector<wire::Field> fields, wire::parse_fields(bytes));
  for (const wire::Field& field : fields) {
    if (field.number == 4) options.replica_count = static_cast<int64_t>(field.value);
    if (field.number == 5) options.partition_count = static_cast<int64_t>(field.value);
    if (field.number == 6) options.use_spmd_partitioning = field.value != 0;
    if (field.number == 12) HEKLA_RETURN_IF_ERROR(add_flags(field, options.may_choose_results));
    if (field.number == 18) HEKLA_RETURN_IF_ERROR(add_flags(field, options.may_choose_parameters));
    if (field.number == 19) options.use_shardy_partitioner = field.value != 0;
    if (field.number == 22) options.process_index = static_cast<int64_t>(field.value);
    if (field.number == 23) options.process_count = static_cast<int64_t>(field.value);
    if (field.number == 9) HEKLA_RETURN_IF_ERROR(parse_assignment(field.bytes, options));
  }
  return ok_status();
}

// One entry of env_option_overrides: key 1, value 2 with one of string, bool, int, double.
Status parse_override(std::string_view bytes, CompileOptions& options) {
  HEKLA_ASSIGN_OR_RETURN(std::vector<wire::Field> fields, wire::parse_fields(bytes));
  std::string key;
  std::string text;
  for (const wire::Field& field : fields) {
    if (field.number == 1) key = std::string(field.bytes);
    if (field.number != 2) continue;
    HEKLA_ASSIGN_OR_RETURN(std::vector<wire::Field> value, wire::parse_fields(field.bytes));
    for (const wire::Field& v : value) {
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

Result<CompileOptions> parse_compile_options(std::string_view bytes) {
  CompileOptions options;
  HEKLA_ASSIGN_OR_RETURN(std::vector<wire::Field> fields, wire::parse_fields(bytes));
  for (const wire::Field& field : fields) {
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
  wire::Writer out;
  out.varint(1, static_cast<uint64_t>(replica_count));
  out.varint(2, static_cast<uint64_t>(partition_count));
  for (int64_t p = 0; p < partition_count; ++p) {
    std::vector<int64_t> ids;
    for (int64_t r = 0; r < replica_count; ++r) {
      ids.push_back(device_ids[static_cast<size_t>(r * partition_count + p)]);
    }
    wire::Writer computation;
    computation.packed(1, ids);
    out.message(3, computation);
  }
  return out.text();
}

}  // namespace hekla::pjrt
