// SPDX-License-Identifier: Apache-2.0
// Meshes of devices, partition specs, and the boxes that they give to each device.
//
// Meshes and cuts are those of programs (runtime/program/sharding/sharding.h), which checks them
// and gives their boxes. A checkpoint adds what a program need not say, where devices stand, and
// lacks what only a compiler asks for: open dimensions, priorities, partial sums.
//
// Text form: mesh=(data:2,model:4) spec=(data,None,(model,expert)) replicated={pipe}
// devices=[0-3,7-4] granules=[0*4,1*4]; the last three are optional. Axis names that are not plain
// words, and an axis called None, stand in double quotes with \" and \\ for these two characters.
// In lists of numbers 3*4 is 3,3,3,3 and 0-12/4 is 0,4,8,12, so that large meshes stay short.
//
// Plain values and pure functions; any thread. Text may come from anywhere: a bad one is an
// INVALID_ARGUMENT that names the place.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/layout.h"
#include "runtime/program/sharding/sharding.h"

namespace hekla::checkpoint {

// The mesh that programs have, but for two things: its device ids may be any different numbers, and
// it may say what stands close together.
struct Mesh : sharding::Mesh {
  // The granule (host or slice: what has quick links within) of the device at each position; empty:
  // unknown, or one for all. For people and tools; no box depends on it.
  std::vector<int64_t> granules;

  bool operator==(const Mesh&) const = default;
};

// A view of a TensorSharding, as JAX's users write it: whole axes by name, closed dimensions.
struct PartitionSpec {
  // Axis names that cut each dimension; dimensions behind the last are not cut.
  std::vector<std::vector<std::string>> dims;
  // Axes said to hold copies. All that `dims` do not use do; this is for people to read.
  std::vector<std::string> replicated;

  bool operator==(const PartitionSpec&) const = default;
};

struct Sharding {
  Mesh mesh;
  PartitionSpec spec;

  bool operator==(const Sharding&) const = default;
};

// The sharding that the spec means for a tensor of that many dimensions; of more, if it names more.
sharding::TensorSharding tensor_sharding(const PartitionSpec& spec, size_t rank);

using sharding::device_count;
// The axes' errors, and INVALID_ARGUMENT: a list of devices or granules of another length, a device
// twice, a negative number.
Status check_mesh(const Mesh& mesh);
// The mesh's errors and those of the sharding that the spec means: more dimensions than `rank`, an
// axis that the mesh does not have or that is used twice.
Status check_sharding(const Sharding& sharding, int64_t rank);

// What the device at one position of the mesh holds: `box` of the tensor in memory of dimensions
// `padded`, which are box.size where the cut is even.
struct DeviceBox {
  int64_t device = 0;
  Box box;
  Dims padded;
};
// By position. Errors: check_sharding's and check_shape's.
Result<std::vector<DeviceBox>> device_boxes(const Sharding& sharding, const Dims& shape);

std::string numbers_text(std::span<const int64_t> values);  // "0-3,7*2": none is negative
std::string mesh_text(const Mesh& mesh);                    // "(data:2,model:4)": the axes alone
std::string sharding_text(const Sharding& sharding);
Result<Sharding> parse_sharding(std::string_view text);

// A box and the ranks that hold it, ascending.
struct HeldBox {
  Box box;
  std::vector<int32_t> ranks;

  bool operator==(const HeldBox&) const = default;
};
// The boxes of one tensor, without overlap or hole, in the order of box_less. A tensor without
// elements has its whole box alone; in others no box is empty. Tensors of one shape and sharding
// may share them.
using HeldBoxes = std::vector<HeldBox>;

// By the mesh: `rank_of_position[k]` is the rank whose device stands at position k; empty: ranks
// are the numbers of the devices.
Result<std::shared_ptr<const HeldBoxes>> held_boxes(const Sharding& sharding, const Dims& shape,
                                                    std::span<const int32_t> rank_of_position = {});

// By explicit boxes: a box that rank `rank` holds. A rank may hold several, and one twice.
struct Holding {
  int32_t rank = 0;
  Box box;
};
// OUT_OF_RANGE: a box outside of the shape. INVALID_ARGUMENT: boxes that overlap without being the
// same, or a part of the tensor that nobody holds; the message names the boxes and their ranks.
Result<std::shared_ptr<const HeldBoxes>> held_boxes(std::span<const Holding> holdings,
                                                    const Dims& shape);

}  // namespace hekla::checkpoint
