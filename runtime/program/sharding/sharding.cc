// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/sharding/sharding.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/program/sharding/text.h"

namespace hekla::sharding {
namespace {

// What stands before sub-axis `sub` of an axis, and behind it, as products of sizes.
struct Extent {
  int64_t begin = 1;
  int64_t end = 1;
};
Extent extent_of(const AxisRef& ref, int64_t axis_size) {
  if (!ref.sub) return {1, axis_size};
  return {ref.sub->pre_size, ref.sub->pre_size * ref.sub->size};
}

size_t axis_number(const Mesh& mesh, std::string_view name) {
  size_t i = 0;
  while (i < mesh.axes.size() && mesh.axes[i].name != name) ++i;
  return i;
}

// A digit of the number of a part: position / stride % size.
struct AxisDigit {
  int64_t stride = 1;
  int64_t size = 1;
};

// Of the parts that axes of the mesh cut a dimension into, the major one first.
std::vector<AxisDigit> axis_digits(std::span<const AxisRef> axes, const Mesh& mesh) {
  std::vector<AxisDigit> digits;
  for (const AxisRef& ref : axes) {
    const size_t number = axis_number(mesh, ref.name);
    int64_t stride = 1;
    for (size_t i = number + 1; i < mesh.axes.size(); ++i) stride *= mesh.axes[i].size;
    const int64_t n = mesh.axes[number].size;
    const Extent extent = extent_of(ref, n);
    digits.push_back({stride * (n / extent.end), extent.end / extent.begin});
  }
  return digits;
}

int64_t part_at(std::span<const AxisDigit> digits, int64_t position) {
  int64_t part = 0;
  for (const AxisDigit& digit : digits)
    part = part * digit.size + position / digit.stride % digit.size;
  return part;
}

// Collects the axes of a tensor, which may be used once.
class AxisUse {
 public:
  explicit AxisUse(const Mesh& mesh) : mesh_(mesh), used_(mesh.axes.size()) {}

  // `where` is "dimension 1" or "the replicated axes".
  Status add(const AxisRef& ref, std::string_view where) {
    const size_t number = axis_number(mesh_, ref.name);
    if (number == mesh_.axes.size()) {
      return invalid_argument("{} of the sharding uses axis {}, which mesh {} does not have", where,
                              quoted(ref.name), to_text(mesh_));
    }
    const int64_t n = mesh_.axes[number].size;
    if (ref.sub) {
      const auto [pre_size, size] = *ref.sub;
      // No product: numbers may be anything.
      if (pre_size < 1 || size < 2 || pre_size > n || size > n / pre_size ||
          n % (pre_size * size) != 0) {
        return invalid_argument(
            "{} of the sharding uses sub-axis {}, which does not divide axis {} of {}: the product "
            "of both numbers must, and the second be at least 2",
            where, to_text(ref), quoted(ref.name), n);
      }
    }
    for (const Entry& other : used_[number]) {
      const Extent a = extent_of(ref, n);
      const Extent b = extent_of(other.ref, n);
      const bool is_before = a.end <= b.begin && b.begin % a.end == 0;
      const bool is_behind = b.end <= a.begin && a.begin % b.end == 0;
      const bool is_same = !ref.sub && !other.ref.sub;
      if (is_same || (!is_before && !is_behind)) {
        return invalid_argument(
            "{} of the sharding uses axis {}, and {} uses {}: they {}, and a tensor may be cut by "
            "each part of an axis once",
            where, to_text(ref), other.where, to_text(other.ref),
            !is_same && (a.end <= b.begin || b.end <= a.begin)
                ? "cannot be parts of one axis together"
                : "overlap");
      }
    }
    used_[number].push_back({ref, std::string(where)});
    return ok_status();
  }

 private:
  struct Entry {
    AxisRef ref;
    std::string where;
  };
  const Mesh& mesh_;
  std::vector<std::vector<Entry>> used_;
};

// Joins contiguous sub-axes of one axis.
std::vector<AxisRef> joined(const std::vector<AxisRef>& axes, const Mesh& mesh) {
  std::vector<AxisRef> result;
  for (const AxisRef& ref : axes) {
    AxisRef* last = result.empty() ? nullptr : &result.back();
    const bool joins = last != nullptr && last->sub && ref.sub && last->name == ref.name &&
                       last->sub->pre_size * last->sub->size == ref.sub->pre_size;
    if (joins) {
      last->sub->size *= ref.sub->size;
    } else {
      result.push_back(ref);
    }
  }
  for (AxisRef& ref : result) {
    const Axis* axis = mesh.find(ref.name);
    if (axis != nullptr && ref.sub && ref.sub->size == axis->size) ref.sub.reset();
  }
  return result;
}

std::vector<AxisRef> as_set(std::vector<AxisRef> axes, const Mesh& mesh) {
  const auto key = [&](const AxisRef& ref) {
    return std::pair(axis_number(mesh, ref.name), ref.sub ? ref.sub->pre_size : 1);
  };
  std::sort(axes.begin(), axes.end(),
            [&](const AxisRef& a, const AxisRef& b) { return key(a) < key(b); });
  return joined(axes, mesh);
}

bool is_iota(const std::vector<int64_t>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

Status check_shape(const Dims& shape) {
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 0) {
      return invalid_argument("dimension {} of a tensor to cut has size {}", d, shape[d]);
    }
  }
  return ok_status();
}

}  // namespace

const Axis* Mesh::find(std::string_view name) const {
  const size_t number = axis_number(*this, name);
  return number == axes.size() ? nullptr : &axes[number];
}

int64_t device_count(const Mesh& mesh) {
  int64_t count = 1;
  for (const Axis& axis : mesh.axes) count *= axis.size;
  return count;
}

Status check(const Mesh& mesh) {
  if (mesh.axes.size() > kMaxAxes) {
    return invalid_argument("a mesh of {} axes; the limit is {}", mesh.axes.size(), kMaxAxes);
  }
  int64_t count = 1;
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    const Axis& axis = mesh.axes[i];
    if (axis.name.empty()) return invalid_argument("axis {} of the mesh has no name", i);
    if (axis_number(mesh, axis.name) != i) {
      return invalid_argument("axes {} and {} of the mesh are both called {}",
                              axis_number(mesh, axis.name), i, quoted(axis.name));
    }
    if (axis.size < 1) {
      return invalid_argument("axis {} of the mesh has size {}", quoted(axis.name), axis.size);
    }
    if (axis.size > kMaxDevices / count) {
      return invalid_argument("a mesh of more than {} devices at axis {} of {}", kMaxDevices,
                              quoted(axis.name), axis.size);
    }
    count *= axis.size;
  }
  if (mesh.device_ids.empty()) return ok_status();
  if (static_cast<int64_t>(mesh.device_ids.size()) != count) {
    return invalid_argument("a mesh of {} devices lists {} device ids", count,
                            mesh.device_ids.size());
  }
  if (mesh.is_maximal()) {
    if (mesh.device_ids[0] >= 0) return ok_status();
    return invalid_argument("a maximal mesh on device {}", mesh.device_ids[0]);
  }
  std::vector<bool> is_listed(mesh.device_ids.size());
  for (size_t i = 0; i < mesh.device_ids.size(); ++i) {
    const int64_t id = mesh.device_ids[i];
    if (id < 0 || id >= count) {
      return invalid_argument("device id {} at position {} of a mesh of {} devices", id, i, count);
    }
    if (is_listed[static_cast<size_t>(id)]) {
      return invalid_argument("device id {} stands twice in the mesh, again at position {}", id, i);
    }
    is_listed[static_cast<size_t>(id)] = true;
  }
  return ok_status();
}

Status check(const TensorSharding& sharding, const Mesh& mesh, size_t rank) {
  HEKLA_RETURN_IF_ERROR(check(mesh));
  if (mesh.is_maximal()) {
    if (sharding.dimensions.empty() && sharding.replicated.empty() && sharding.unreduced.empty()) {
      return ok_status();
    }
    return invalid_argument(
        "a sharding on the maximal mesh {} names dimensions or axes: the whole tensor is on one "
        "device",
        to_text(mesh));
  }
  if (sharding.dimensions.size() != rank) {
    return invalid_argument("a sharding of {} dimensions for a tensor of {}",
                            sharding.dimensions.size(), rank);
  }
  AxisUse use(mesh);
  for (size_t d = 0; d < rank; ++d) {
    const DimensionSharding& dimension = sharding.dimensions[d];
    for (const AxisRef& ref : dimension.axes) {
      HEKLA_RETURN_IF_ERROR(use.add(ref, fmt::format("dimension {}", d)));
    }
    if (!dimension.priority) continue;
    if (*dimension.priority < 0) {
      return invalid_argument("dimension {} of the sharding has priority {}", d,
                              *dimension.priority);
    }
    if (dimension.axes.empty() && !dimension.is_open) {
      return invalid_argument(
          "dimension {} of the sharding is closed and uses no axis, but has priority {}", d,
          *dimension.priority);
    }
  }
  for (const AxisRef& ref : sharding.replicated) {
    HEKLA_RETURN_IF_ERROR(use.add(ref, "the replicated axes"));
  }
  for (const AxisRef& ref : sharding.unreduced) {
    HEKLA_RETURN_IF_ERROR(use.add(ref, "the unreduced axes"));
  }
  return ok_status();
}

Status check(const ManualAxes& axes, const Mesh& mesh) {
  HEKLA_RETURN_IF_ERROR(check(mesh));
  for (size_t i = 0; i < axes.names.size(); ++i) {
    if (mesh.find(axes.names[i]) == nullptr) {
      return invalid_argument("manual axis {} is not in mesh {}", quoted(axes.names[i]),
                              to_text(mesh));
    }
    if (std::find(axes.names.begin(), axes.names.begin() + static_cast<int64_t>(i),
                  axes.names[i]) != axes.names.begin() + static_cast<int64_t>(i)) {
      return invalid_argument("manual axis {} is named twice", quoted(axes.names[i]));
    }
  }
  return ok_status();
}

Mesh canonical(Mesh mesh) {
  if (!mesh.is_maximal() && is_iota(mesh.device_ids)) mesh.device_ids.clear();
  return mesh;
}

TensorSharding canonical(TensorSharding sharding, const Mesh& mesh) {
  if (Mesh* own = std::get_if<Mesh>(&sharding.mesh)) *own = canonical(std::move(*own));
  for (DimensionSharding& dimension : sharding.dimensions) {
    dimension.axes = joined(dimension.axes, mesh);
  }
  sharding.replicated = as_set(std::move(sharding.replicated), mesh);
  sharding.unreduced = as_set(std::move(sharding.unreduced), mesh);
  return sharding;
}

ManualAxes canonical(ManualAxes axes, const Mesh& mesh) {
  std::sort(axes.names.begin(), axes.names.end(), [&](const auto& a, const auto& b) {
    return axis_number(mesh, a) < axis_number(mesh, b);
  });
  return axes;
}

int64_t part_count(std::span<const AxisRef> axes, const Mesh& mesh) {
  int64_t count = 1;
  for (const AxisRef& ref : axes) count *= ref.sub ? ref.sub->size : mesh.find(ref.name)->size;
  return count;
}

int64_t part_index(std::span<const AxisRef> axes, const Mesh& mesh, int64_t position) {
  return part_at(axis_digits(axes, mesh), position);
}

Block block_of(int64_t n, int64_t parts, int64_t i) {
  // Not (n + parts - 1) / parts, which may overflow.
  const int64_t block = n / parts + (n % parts != 0 ? 1 : 0);
  if (block == 0 || i > n / block) return {n, 0};
  const int64_t start = i * block;
  return {start, std::min(block, n - start)};
}

Result<Dims> local_shape(const TensorSharding& sharding, const Mesh& mesh, const Dims& shape) {
  HEKLA_RETURN_IF_ERROR(check(sharding, mesh, shape.size()));
  HEKLA_RETURN_IF_ERROR(check_shape(shape));
  Dims local = shape;
  for (size_t d = 0; d < sharding.dimensions.size(); ++d) {
    local[d] = block_of(shape[d], part_count(sharding.dimensions[d].axes, mesh), 0).size;
  }
  return local;
}

Result<std::vector<Box>> position_boxes(const TensorSharding& sharding, const Mesh& mesh,
                                        const Dims& shape) {
  HEKLA_RETURN_IF_ERROR(check(sharding, mesh, shape.size()));
  HEKLA_RETURN_IF_ERROR(check_shape(shape));
  const Box whole{Dims(shape.size(), 0), shape};
  std::vector<Box> boxes(static_cast<size_t>(device_count(mesh)), whole);
  for (size_t d = 0; d < sharding.dimensions.size(); ++d) {
    const std::vector<AxisRef>& axes = sharding.dimensions[d].axes;
    if (axes.empty()) continue;
    const std::vector<AxisDigit> digits = axis_digits(axes, mesh);
    const int64_t parts = part_count(axes, mesh);
    for (size_t position = 0; position < boxes.size(); ++position) {
      const Block block =
          block_of(shape[d], parts, part_at(digits, static_cast<int64_t>(position)));
      boxes[position].start[d] = block.start;
      boxes[position].size[d] = block.size;
    }
  }
  return boxes;
}

Result<std::vector<DeviceBox>> device_boxes(const TensorSharding& sharding, const Mesh& mesh,
                                            const Dims& shape) {
  HEKLA_ASSIGN_OR_RETURN(std::vector<Box> held, position_boxes(sharding, mesh, shape));
  if (mesh.is_maximal()) return std::vector<DeviceBox>{{mesh.device_ids[0], std::move(held[0])}};
  std::vector<DeviceBox> boxes(held.size());
  for (size_t position = 0; position < held.size(); ++position) {
    const size_t device =
        mesh.device_ids.empty() ? position : static_cast<size_t>(mesh.device_ids[position]);
    boxes[device] = {static_cast<int64_t>(device), std::move(held[position])};
  }
  return boxes;
}

}  // namespace hekla::sharding
