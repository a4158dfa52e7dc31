// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/sharding/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_set>

#include "runtime/checkpoint/sharding/box.h"

namespace hekla::checkpoint {
namespace {

// The mesh as programs have it, of partitions 0, 1, 2 ... in the order of the positions.
sharding::Mesh numbered(const Mesh& mesh) { return {mesh.axes, {}}; }

std::string ranks_text(const std::vector<int32_t>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  constexpr size_t kShown = 8;
  const std::vector<int32_t> shown(ranks.begin(), ranks.begin() + std::min(kShown, ranks.size()));
  return fmt::format("ranks {}{}", fmt::join(shown, ","), ranks.size() > kShown ? ",..." : "");
}

// Sorts, groups equal boxes and their ranks, drops empty ones; checks nothing.
HeldBoxes group(std::span<const Holding> holdings, const Dims& shape) {
  std::vector<const Holding*> sorted;
  const bool is_empty = element_count(shape) == 0;
  HeldBoxes boxes;
  if (is_empty) boxes.push_back({whole_box(shape), {}});
  for (const Holding& holding : holdings) {
    if (is_empty) {
      boxes[0].ranks.push_back(holding.rank);
    } else if (box_elements(holding.box) > 0) {
      sorted.push_back(&holding);
    }
  }
  std::sort(sorted.begin(), sorted.end(), [](const Holding* a, const Holding* b) {
    return a->box == b->box ? a->rank < b->rank : box_less(a->box, b->box);
  });
  for (const Holding* holding : sorted) {
    if (boxes.empty() || boxes.back().box != holding->box) boxes.push_back({holding->box, {}});
    boxes.back().ranks.push_back(holding->rank);
  }
  for (HeldBox& held : boxes) {
    std::sort(held.ranks.begin(), held.ranks.end());
    held.ranks.erase(std::unique(held.ranks.begin(), held.ranks.end()), held.ranks.end());
  }
  return boxes;
}

}  // namespace

Status check_mesh(const Mesh& mesh) {
  HEKLA_RETURN_IF_ERROR(sharding::check(numbered(mesh)));
  const int64_t count = device_count(mesh);
  if (!mesh.granules.empty() && static_cast<int64_t>(mesh.granules.size()) != count) {
    return invalid_argument("the mesh has {} positions and names the granules of {}", count,
                            mesh.granules.size());
  }
  for (const int64_t granule : mesh.granules) {
    if (granule < 0) return invalid_argument("granule {} in the mesh is negative", granule);
  }
  if (mesh.device_ids.empty()) return ok_status();
  if (static_cast<int64_t>(mesh.device_ids.size()) != count) {
    return invalid_argument("the mesh has {} positions and names {} devices", count,
                            mesh.device_ids.size());
  }
  std::unordered_set<int64_t> seen;
  for (int64_t device : mesh.device_ids) {
    if (device < 0) return invalid_argument("device {} in the mesh is negative", device);
    if (!seen.insert(device).second) {
      return invalid_argument("device {} stands twice in the mesh", device);
    }
  }
  return ok_status();
}

sharding::TensorSharding tensor_sharding(const PartitionSpec& spec, size_t rank) {
  sharding::TensorSharding tensor;
  tensor.dimensions.resize(std::max(rank, spec.dims.size()));
  for (size_t d = 0; d < spec.dims.size(); ++d) {
    for (const std::string& name : spec.dims[d]) tensor.dimensions[d].axes.push_back({name, {}});
  }
  for (const std::string& name : spec.replicated) tensor.replicated.push_back({name, {}});
  return tensor;
}

Status check_sharding(const Sharding& sharding, int64_t rank) {
  HEKLA_RETURN_IF_ERROR(check_mesh(sharding.mesh));
  return sharding::check(tensor_sharding(sharding.spec, rank), numbered(sharding.mesh), rank);
}

Result<std::vector<DeviceBox>> device_boxes(const Sharding& sharding, const Dims& shape) {
  HEKLA_RETURN_IF_ERROR(check_shape(DType::kI8, shape));
  const Mesh& mesh = sharding.mesh;
  HEKLA_RETURN_IF_ERROR(check_mesh(mesh));
  const sharding::TensorSharding tensor = tensor_sharding(sharding.spec, shape.size());
  HEKLA_ASSIGN_OR_RETURN(std::vector<Box> held,
                         sharding::position_boxes(tensor, numbered(mesh), shape));
  HEKLA_ASSIGN_OR_RETURN(const Dims padded, sharding::local_shape(tensor, numbered(mesh), shape));
  std::vector<DeviceBox> boxes(held.size());
  for (size_t i = 0; i < boxes.size(); ++i) {
    const int64_t device = mesh.device_ids.empty() ? static_cast<int64_t>(i) : mesh.device_ids[i];
    boxes[i] = {device, std::move(held[i]), padded};
  }
  return boxes;
}

Result<std::shared_ptr<const HeldBoxes>> held_boxes(const Sharding& sharding, const Dims& shape,
                                                    std::span<const int32_t> rank_of_position) {
  HEKLA_ASSIGN_OR_RETURN(std::vector<DeviceBox> boxes, device_boxes(sharding, shape));
  if (!rank_of_position.empty() && rank_of_position.size() != boxes.size()) {
    return invalid_argument("{} ranks are given for a mesh of {} devices", rank_of_position.size(),
                            boxes.size());
  }
  std::vector<Holding> holdings(boxes.size());
  for (size_t i = 0; i < boxes.size(); ++i) {
    const int64_t rank = rank_of_position.empty() ? boxes[i].device : rank_of_position[i];
    if (rank < 0 || rank > INT32_MAX) {
      return invalid_argument("the device at position {} of the mesh has rank {}", i, rank);
    }
    holdings[i] = {static_cast<int32_t>(rank), std::move(boxes[i].box)};
  }
  return std::make_shared<const HeldBoxes>(group(holdings, shape));
}

Result<std::shared_ptr<const HeldBoxes>> held_boxes(std::span<const Holding> holdings,
                                                    const Dims& shape) {
  HEKLA_RETURN_IF_ERROR(check_shape(DType::kI8, shape));
  for (const Holding& holding : holdings) {
    if (holding.rank < 0) return invalid_argument("a box is held by rank {}", holding.rank);
    const Status status = check_box(shape, holding.box);
    if (!status.ok()) return status.with_context(fmt::format("rank {}", holding.rank));
  }
  HeldBoxes held = group(holdings, shape);
  if (element_count(shape) == 0) {
    if (held[0].ranks.empty()) {
      return invalid_argument("nobody holds the tensor of shape [{}]", fmt::join(shape, ","));
    }
    return std::make_shared<const HeldBoxes>(std::move(held));
  }
  std::vector<Box> boxes;
  boxes.reserve(held.size());
  for (const HeldBox& one : held) boxes.push_back(one.box);
  if (Status status = check_disjoint(boxes); !status.ok()) {
    // Worth naming the ranks too, now that something is wrong.
    Box common;
    for (size_t i = 0; i < held.size(); ++i) {
      for (size_t k = i + 1; k < held.size(); ++k) {
        if (!intersect(boxes[i], boxes[k], &common)) continue;
        return invalid_argument(
            "{} holds {} and {} holds {} of a tensor of shape [{}]: they overlap in {} and are "
            "not the same; copies must be of the same box",
            ranks_text(held[i].ranks), box_text(boxes[i]), ranks_text(held[k].ranks),
            box_text(boxes[k]), fmt::join(shape, ","), box_text(common));
      }
    }
    return status;
  }
  int64_t elements = 0;
  for (const Box& box : boxes) elements += box_elements(box);
  if (elements != element_count(shape)) {
    const std::vector<Box> hole = uncovered(whole_box(shape), boxes);
    return invalid_argument(
        "nobody holds {} of a tensor of shape [{}] ({} of {} elements are held)",
        hole.empty() ? "a part" : box_text(hole[0]), fmt::join(shape, ","), elements,
        element_count(shape));
  }
  return std::make_shared<const HeldBoxes>(std::move(held));
}

}  // namespace hekla::checkpoint
