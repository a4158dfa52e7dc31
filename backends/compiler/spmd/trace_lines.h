// SPDX-License-Identifier: Apache-2.0
// TraceLines: writes a ShardingTrace while a program is partitioned.
//
// Of this folder alone. One object a program; one thread. Does nothing where no trace is wanted.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "backends/compiler/spmd/reshard.h"
#include "backends/compiler/spmd/sharding_trace.h"
#include "backends/compiler/spmd/tiling.h"
#include "backends/compiler/spmd/versions.h"
#include "runtime/program/ir/device_groups.h"
#include "runtime/program/ir/ir.h"

namespace hekla::spmd {

class TraceLines {
 public:
  // All outlive this; `trace` and `mesh` may be null.
  TraceLines(ShardingTrace* trace, const Resharder& resharder, const Versions& versions,
             const PrimeMesh* mesh)
      : trace_(trace), resharder_(resharder), versions_(versions), mesh_(mesh) {}

  // Lines that begin now are inside of one more loop, branch or region.
  void enter() { ++depth_; }
  void leave() { --depth_; }

  // A number for end().
  size_t begin(std::string what, std::string location = {});
  size_t begin(const ir::Operation& op);
  // The values as they are at hand, and the collectives made since the line began that no line
  // inside of it has taken. Lines end in the reverse order of their beginnings.
  void end(size_t line, const std::vector<const ir::Value*>& values);
  // Of the line that began last and has not ended.
  void note(std::string text);
  // Once only what is used is left: the collectives come to their lines.
  void finish(const ir::DeviceGrid& grid);

 private:
  ShardingTrace* const trace_;
  const Resharder& resharder_;
  const Versions& versions_;
  const PrimeMesh* const mesh_;
  int64_t depth_ = 0;
  struct Open {
    size_t line = 0;
    size_t collectives = 0;  // made before
  };
  std::vector<Open> open_;
  std::unordered_map<const ir::Operation*, size_t> maker_of_;  // of a collective: the line
};

}  // namespace hekla::spmd
