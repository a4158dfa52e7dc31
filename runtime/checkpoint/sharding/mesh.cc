// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/sharding/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_set>

#include "runtime/checkpoint/sharding/box.h"

namespace hekla::checkpoint {
namespace {

// Index of the axis, or -1.
int find_axis(const Mesh& mesh, std::string_view name) {
  const sharding::Axis* const axis = mesh.find(name);
  return axis == nullptr ? -1 : static_cast<int>(axis - mesh.axes.data());
}

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
  if (mesh.axes.size() > sharding::kMaxAxes) {
    return invalid_argument("a mesh of {} axes; the limit is {}", mesh.axes.size(),
                            sharding::kMaxAxes);
  }
  int64_t count = 1;
  for (size_t a = 0; a < mesh.axes.size(); ++a) {
    const sharding::Axis& axis = mesh.axes[a];
    if (axis.name.empty()) return invalid_argument("axis {} of the mesh has no name", a);
    if (find_axis(mesh, axis.name) != static_cast<int>(a)) {
      return invalid_argument("two axes of the mesh are called \"{}\"", axis.name);
    }
    if (axis.size < 1) {
      return invalid_argument("axis \"{}\" of the mesh has size {}", axis.name, axis.size);
    }
    if (axis.size > sharding::kMaxDevices / count) {
      return invalid_argument("a mesh of more than {} devices", sharding::kMaxDevices);
    }
    count *= axis.size;
  }
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

Status check_sharding(const Sharding& sharding, int64_t rank) {
  HEKLA_RETURN_IF_ERROR(check_mesh(sharding.mesh));
  const PartitionSpec& spec = sharding.spec;
  if (static_cast<int64_t>(spec.dims.size()) > rank) {
    return invalid_argument("the spec names {} dimensions of a tensor of {}", spec.dims.size(),
                            rank);
  }
  std::vector<bool> is_used(sharding.mesh.axes.size());
  const auto use = [&](const std::string& name) -> Status {
    const int axis = find_axis(sharding.mesh, name);
    if (axis < 0)
      return invalid_argument("the spec names axis \"{}\", which is not the mesh's", name);
    if (is_used[axis]) return invalid_argument("the spec uses axis \"{}\" twice", name);
    is_used[axis] = true;
    return ok_status();
  };
  for (const std::vector<std::string>& names : spec.dims) {
    for (const std::string& name : names) HEKLA_RETURN_IF_ERROR(use(name));
  }
  for (const std::string& name : spec.replicated) HEKLA_RETURN_IF_ERROR(use(name));
  return ok_status();
}

Result<std::vector<DeviceBox>> device_boxes(const Sharding& sharding, const Dims& shape) {
  HEKLA_RETURN_IF_ERROR(check_shape(DType::kI8, shape));
  const int64_t rank = static_cast<int64_t>(shape.size());
  HEKLA_RETURN_IF_ERROR(check_sharding(sharding, rank));
  const Mesh& mesh = sharding.mesh;
  // The part of dimension d at a position is the sum of coordinate * part_step over the axes.
  struct Cut {
    size_t dim;
    int64_t part_step;
  };
  std::vector<std::vector<Cut>> cuts(mesh.axes.size());
  Dims part_size = shape;
  for (size_t d = 0; d < sharding.spec.dims.size(); ++d) {
    int64_t parts = 1;
    const std::vector<std::string>& names = sharding.spec.dims[d];
    for (size_t i = names.size(); i-- > 0;) {
      const int axis = find_axis(mesh, names[i]);
      cuts[axis].push_back({d, parts});
      parts *= mesh.axes[axis].size;
    }
    part_size[d] = sharding::block_of(shape[d], parts, 0).size;
  }
  const int64_t count = device_count(mesh);
  std::vector<DeviceBox> boxes(count);
  std::vector<int64_t> coordinates(mesh.axes.size());
  Dims part(rank);
  for (int64_t position = 0; position < count; ++position) {
    std::fill(part.begin(), part.end(), 0);
    for (size_t a = 0; a < cuts.size(); ++a) {
      for (const Cut& cut : cuts[a]) part[cut.dim] += coordinates[a] * cut.part_step;
    }
    DeviceBox& held = boxes[position];
    held.device = mesh.device_ids.empty() ? position : mesh.device_ids[position];
    held.box.start.resize(rank);
    held.box.size.resize(rank);
    held.padded = part_size;
    for (int64_t d = 0; d < rank; ++d) {
      // part * part_size is below shape + parts, far from overflow.
      held.box.start[d] = std::min(part[d] * part_size[d], shape[d]);
      held.box.size[d] = std::min(part_size[d], shape[d] - held.box.start[d]);
    }
    for (size_t a = coordinates.size(); a-- > 0;) {
      if (++coordinates[a] < mesh.axes[a].size) break;
      coordinates[a] = 0;
    }
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
