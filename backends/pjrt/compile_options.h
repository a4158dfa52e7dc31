// SPDX-License-Identifier: Apache-2.0
// The parts of a serialized CompileOptionsProto that a plugin acts on. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::pjrt {

struct CompileOptions {
  int64_t replica_count = 1;
  int64_t partition_count = 1;
  bool is_tupled = false;  // parameter_is_tupled_arguments
  // Device ids by replica and partition: ids[replica * partition_count + partition]; empty:
  // default.
  std::vector<int64_t> device_ids;
  bool is_portable = false;
  // The program is of all partitions, to be cut by its shardings; else it is of one device.
  bool use_spmd_partitioning = false;
  // The shardings are Shardy's; says little, since programs show it themselves.
  bool use_shardy_partitioner = false;
  // Whether the compiler chooses the shardings that the program leaves out: per flat parameter and
  // result, or one for all; empty: no.
  std::vector<bool> may_choose_parameters, may_choose_results;
  int64_t process_index = 0;
  int64_t process_count = 1;
  // env_option_overrides: the user's compiler options, values as text.
  std::vector<std::pair<std::string, std::string>> overrides;
};

// INVALID_ARGUMENT for malformed bytes.
Result<CompileOptions> parse_compile_options(std::string_view bytes);

// DeviceAssignmentProto.
std::string serialize_device_assignment(int64_t replica_count, int64_t partition_count,
                                        const std::vector<int64_t>& device_ids);

}  // namespace hekla::pjrt
