// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/compile_options.h"

#include <bit>
#include <string_view>
#include <vector>

#include "runtime/base/protobuf_wire.h"

namespace hekla::runtime {
namespace {

// DeviceAssignmentProto: counts, then for each partition the ids of all replicas.
std::string device_assignment(const CompileOptions& options) {
  wire::Writer assignment;
  assignment.varint(1, static_cast<uint64_t>(options.num_replicas));
  assignment.varint(2, static_cast<uint64_t>(options.num_partitions));
  for (int64_t partition = 0; partition < options.num_partitions; ++partition) {
    std::vector<int64_t> ids;
    for (int64_t replica = 0; replica < options.num_replicas; ++replica) {
      const auto at = static_cast<size_t>(replica * options.num_partitions + partition);
      ids.push_back(options.device_ids.at(at));
    }
    wire::Writer device;
    device.packed(1, ids);
    assignment.message(3, device);
  }
  return assignment.text();
}

std::string build_options(const CompileOptions& options) {
  constexpr uint64_t kNoOrdinal = ~uint64_t{0};  // -1: the device assignment decides
  wire::Writer build;
  build.varint(1, kNoOrdinal);
  build.varint(4, static_cast<uint64_t>(options.num_replicas));
  build.varint(5, static_cast<uint64_t>(options.num_partitions));
  build.varint(6, options.use_spmd_partitioning);
  const auto expected = static_cast<size_t>(options.num_replicas * options.num_partitions);
  if (!options.is_portable && options.device_ids.size() == expected) {
    build.bytes(9, device_assignment(options));
  }
  // Repeated booleans, packed; one entry stands for all.
  build.bytes(12, std::string(1, options.allow_sharding_propagation_to_output ? '\1' : '\0'));
  build.bytes(18, std::string(1, options.allow_sharding_propagation_to_parameters ? '\1' : '\0'));
  build.varint(19, options.use_shardy_partitioner);
  build.varint(23, 1);  // process_count
  return build.text();
}

std::string override_entry(const std::string& name, const CompileOptions::Override& value) {
  wire::Writer option;
  if (const auto* text = std::get_if<std::string>(&value)) {
    option.bytes(1, *text);
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    option.varint(2, *flag);
  } else if (const auto* number = std::get_if<int64_t>(&value)) {
    option.varint(3, static_cast<uint64_t>(*number));
  } else {
    option.fixed64(4, std::bit_cast<uint64_t>(std::get<double>(value)));
  }
  wire::Writer entry;
  entry.bytes(1, name);
  entry.message(2, option);
  return entry.text();
}

}  // namespace

std::string serialize_compile_options(const CompileOptions& options) {
  wire::Writer message;
  if (options.parameter_is_tupled) message.varint(2, 1);
  message.bytes(3, build_options(options));
  if (options.is_portable) message.varint(4, 1);
  message.varint(5, ~uint64_t{0});  // profile_version -1: none
  for (const auto& [name, value] : options.overrides) {
    message.bytes(7, override_entry(name, value));
  }
  return message.text();
}

}  // namespace hekla::runtime
