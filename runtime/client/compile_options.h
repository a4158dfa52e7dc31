// SPDX-License-Identifier: Apache-2.0
// CompileOptions: what a client tells a plugin about a compilation, and its wire form.
//
// The wire form is XLA's CompileOptionsProto (xla/pjrt/proto/compile_options.proto), written field
// by field without a protobuf library. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace hekla::runtime {

struct CompileOptions {
  int64_t num_replicas = 1;
  int64_t num_partitions = 1;
  // Global device ids, replica-major: replicas x partitions of them. Empty: the client takes the
  // first devices in order.
  std::vector<int64_t> device_ids;
  // XLA's rule: a program with more than one partition is partitioned by its shardings.
  bool use_spmd_partitioning = true;
  bool use_shardy_partitioner = true;
  bool allow_sharding_propagation_to_parameters = true;
  bool allow_sharding_propagation_to_output = true;
  bool parameter_is_tupled = false;
  // A program for whichever device it is launched on; no device assignment is sent.
  bool is_portable = false;
  // The plugin's own compiler options.
  using Override = std::variant<std::string, bool, int64_t, double>;
  std::vector<std::pair<std::string, Override>> overrides;
};

std::string serialize_compile_options(const CompileOptions& options);

}  // namespace hekla::runtime
