// SPDX-License-Identifier: Apache-2.0
// CustomPartitioner: what a client registers for a custom call that it cuts itself.
//
// Pure interfaces; the C API layer implements them. Calls may come from several threads.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"
#include "runtime/program/sharding/hlo_sharding.h"

namespace hekla::spmd {

// What JAX's custom_partitioning sends; its meaning is in its partitioner alone.
inline constexpr std::string_view kCustomPartitioning = "CustomSPMDPartitioning";

// An array of the program over all partitions.
struct CustomArray {
  ir::Type type;
  sharding::HloSharding sharding;
};

struct CustomPartition {
  // Of one device, verified: parameters and results are parts as the shardings say.
  std::unique_ptr<ir::Module> program;
  std::vector<sharding::HloSharding> operands, results;
};

class CustomPartitioner {
 public:
  virtual ~CustomPartitioner() = default;
  // `config` is the call's. The shardings that are given are proposals.
  virtual Result<CustomPartition> partition(std::string_view config,
                                            std::span<const CustomArray> operands,
                                            std::span<const CustomArray> results) const = 0;
  // How the results lie where the operands lie so.
  virtual Result<std::vector<sharding::HloSharding>> infer(
      std::string_view config, std::span<const CustomArray> operands,
      std::span<const ir::Type> results) const = 0;
  // How the results should lie where their users want them so.
  virtual Result<std::vector<sharding::HloSharding>> revise(
      std::string_view config, std::span<const CustomArray> results) const = 0;
};

// Of a custom call's target; null: it has none.
using FindCustomPartitioner =
    std::function<std::shared_ptr<const CustomPartitioner>(std::string_view target)>;

}  // namespace hekla::spmd
