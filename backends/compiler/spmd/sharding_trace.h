// SPDX-License-Identifier: Apache-2.0
// What became of each operation of a partitioned program: how its results lie on the devices, and
// which collectives were made for it: `hekla compile PROGRAM --emit shardings`.
//
// Filled by to_one_device (one_device.h) where it is asked for. Plain values; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/compiler/spmd/cut.h"
#include "backends/compiler/spmd/report.h"

namespace hekla::spmd {

struct ShardingTrace {
  struct Array {
    std::string type;      // of the whole
    std::string sharding;  // in Shardy's text; empty where no axes of the program's mesh say it
    std::string local;     // the type of a device's part
    Cut cut;               // who holds which block; without dimensions where it is whole
  };
  struct Line {
    int64_t depth = 0;  // of loops and branches around it
    std::string what;   // "parameter 0", the name of an operation, "result 0"
    std::string location;
    std::vector<Array> arrays;  // its results
    std::vector<Collective> collectives;
    std::string note;  // why it is computed whole; empty where there is nothing to say
  };
  std::vector<Line> lines;  // in the order of the program
};

// A line for each operation, with its collectives below it.
std::string to_text(const ShardingTrace& trace);
// [{depth, what, location, note, arrays: [{type, sharding, local}], collectives: [{kind, operands,
// group, bytes}]}]; bytes are those of one run.
std::string to_json(const ShardingTrace& trace);

}  // namespace hekla::spmd
