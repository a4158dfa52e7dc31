// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/serialized_program.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "runtime/base/protobuf_wire.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::pjrt {
namespace {

std::string serialized_magic(std::string_view platform) {
  return fmt::format("hekla executable 2 {} {}\n", platform, "0.1.0");
}

// The bytes of one that is replicated are empty, as a message of fields that have their defaults.
Result<sharding::HloSharding> read_sharding(std::string_view bytes) {
  if (bytes.empty()) return sharding::HloSharding();
  HEKLA_ASSIGN_OR_RETURN(sharding::HloSharding sharding, sharding::decode_op_sharding(bytes));
  HEKLA_RETURN_IF_ERROR(sharding::check(sharding));
  return sharding::canonical(std::move(sharding));
}

// What a program of one device was made for, it keeps.
Status check_counts(std::string_view own, std::string_view wanted) {
  HEKLA_ASSIGN_OR_RETURN(const CompileOptions made, parse_compile_options(own));
  HEKLA_ASSIGN_OR_RETURN(const CompileOptions asked, parse_compile_options(wanted));
  if (made.replica_count == asked.replica_count && made.partition_count == asked.partition_count) {
    return ok_status();
  }
  return invalid_argument(
      "this executable, of which the client partitioned a part, is for {} replicas x {} "
      "partitions, not for {} x {}; compile the program again",
      made.replica_count, made.partition_count, asked.replica_count, asked.partition_count);
}

}  // namespace

std::string serialize_program(const Program& program, std::string_view platform) {
  const PartitionedProgram& partitioned = program.partitioned;
  wire::Writer message;
  message.bytes(1, program.options);
  if (!partitioned.has_custom_partitions) {
    message.bytes(2, program.code);
  } else {
    message.boolean(5, true);  // before the rest, so that no cut blob reads as the other kind
    message.bytes(2, stablehlo::print_module(*partitioned.module));
    const auto add = [&](uint32_t field, const std::vector<sharding::HloSharding>& shardings) {
      for (const sharding::HloSharding& one : shardings) {
        const bool is_plain = one.kind == sharding::HloSharding::Kind::kReplicated;
        message.bytes(field, is_plain ? std::string() : sharding::encode_op_sharding(one));
      }
    };
    add(3, partitioned.parameters);
    add(4, partitioned.results);
  }
  return serialized_magic(platform) + message.text();
}

Result<std::shared_ptr<Program>> deserialize_program(std::string_view bytes,
                                                     std::string_view platform,
                                                     std::string_view options) {
  const std::string magic = serialized_magic(platform);
  if (!bytes.starts_with(magic)) {
    return invalid_argument("this executable was not serialized by this version of the plugin");
  }
  bytes.remove_prefix(magic.size());
  HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> fields, wire::parse_fields(bytes));
  std::string_view own_options, code;
  OneDeviceShardings shardings;
  bool is_one_device = false;
  for (const wire::Field& field : fields) {
    if (field.number == 1) own_options = field.bytes;
    if (field.number == 2) code = field.bytes;
    if (field.number == 3 || field.number == 4) {
      HEKLA_ASSIGN_OR_RETURN(sharding::HloSharding one, read_sharding(field.bytes));
      (field.number == 3 ? shardings.parameters : shardings.results).push_back(std::move(one));
    }
    if (field.number == 5) is_one_device = field.value != 0;
  }
  const std::string_view chosen = options.empty() ? own_options : options;
  if (!is_one_device) return make_program(code, chosen);
  HEKLA_RETURN_IF_ERROR(check_counts(own_options, chosen));
  return make_program(code, chosen, &shardings);
}

}  // namespace hekla::pjrt
