// SPDX-License-Identifier: Apache-2.0
// Plans of reshards: by which collectives an array gets from one tiling to another with few bytes.
//
// A step changes the ends of dimensions' lists of axes alone, where the blocks before and after lie
// in each other: always if blocks are even, or if one of the two is the whole dimension. So whoever
// needs something else (uneven blocks that do not line up) gathers a dimension wholly.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backends/compiler/spmd/tiling.h"
#include "runtime/base/host_array.h"

namespace hekla::spmd {

struct ReshardStep {
  enum class Kind : uint8_t {
    kSlice,          // axes that cut nothing yet are appended to dimensions
    kPermute,        // other axes cut every dimension in as many parts
    kExchange,       // axes move from the ends of dimensions to the ends of others, in any order
    kGather,         // axes go from the ends of dimensions
    kReduceScatter,  // axes of a partial sum are appended to a dimension
    kAllReduce,      // a sum over axes is no longer partial
    kPlace,          // axes go from the ends of dimensions: each part and zeros around it are a sum
    kKeepFirst,      // becomes a partial sum: the array and zeros
  };
  Kind kind;
  Tiling to;  // after it
};

struct ReshardPlan {
  std::vector<ReshardStep> steps;
  // What a device sends, on average.
  double elements = 0;
};

// By partition, the one whose block it takes when an array goes from `from` to `to`, which cut
// every dimension in as many parts and have the same partial sums. Whoever has his block keeps it.
std::vector<int64_t> permutation_sources(const PrimeMesh& mesh, const Tiling& from,
                                         const Tiling& to);

// Keeps its plans, which many arrays share. One thread; `mesh` outlives it.
class ReshardPlanner {
 public:
  explicit ReshardPlanner(const PrimeMesh* mesh) : mesh_(mesh) {}

  // Of an array of shape `whole`: the steps of fewest bytes that a search finds, which is bounded:
  // beyond it dimensions that differ are gathered and cut.
  const ReshardPlan& plan(const Tiling& from, const Tiling& to, const Dims& whole);

 private:
  const PrimeMesh* mesh_;
  std::map<std::string, ReshardPlan> plans_;
};

}  // namespace hekla::spmd
