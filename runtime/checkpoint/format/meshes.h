// SPDX-License-Identifier: Apache-2.0
// The meshes that the tensors of a step were sharded over, each once, with a number for each
// tensor: what the index keeps beside the specs, so that a reader need not take those apart. Pure
// functions; columns that come from a file are checked in full, what does not hold is DATA_LOSS.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/format/columns.h"
#include "runtime/checkpoint/layout.h"
#include "runtime/checkpoint/sharding/mesh.h"

namespace hekla::checkpoint {

inline constexpr int32_t kNoMesh = -1;
// Positions of all meshes of a step together; meshes above it are not listed.
inline constexpr int64_t kMaxListedDevices = int64_t{4} << 20;

// The meshes in the order in which tensors first name them, and for each tensor its number, kNoMesh
// where the spec is none of parse_sharding's or not listed.
void find_meshes(std::span<const TensorInfo> tensors, std::vector<Mesh>* meshes,
                 std::vector<int32_t>* mesh_of);

// Mesh i has the axes before axis_end[i] and the devices before device_end[i], by position; devices
// are all written, granules only where they are known.
struct MeshColumns {
  TextColumn axis_name;
  std::vector<int64_t> axis_size;
  std::vector<int64_t> axis_end;
  std::vector<int64_t> device;
  std::vector<int64_t> device_end;
  std::vector<int64_t> granule;
  std::vector<int64_t> granule_end;
};
MeshColumns columns_from_meshes(std::span<const Mesh> meshes);
Result<std::vector<Mesh>> meshes_from_columns(const MeshColumns& columns);

// "(data:2,model:4) (pipe:8)", at most the first eight: what COMMIT says.
std::string meshes_text(std::span<const Mesh> meshes);

}  // namespace hekla::checkpoint
