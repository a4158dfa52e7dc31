// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/sharding/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "runtime/program/sharding/text.h"
#include "runtime/program/sharding/tile_table.h"

namespace hekla::sharding {
namespace {

using Kind = HloSharding::Kind;

// A part of a mesh axis between two borders of sub-axes that are in use.
struct MeshPart {
  size_t axis = 0;
  int64_t begin = 1;
  int64_t end = 1;
};

// The mesh with every axis split where a reference begins or ends, in mesh order.
class SplitMesh {
 public:
  SplitMesh(const TensorSharding& sharding, const Mesh& mesh) : mesh_(mesh) {
    std::vector<std::set<int64_t>> borders(mesh.axes.size());
    const auto add = [&](const std::vector<AxisRef>& axes) {
      for (const AxisRef& ref : axes) {
        if (!ref.sub) continue;
        borders[number_of(ref.name)].insert(ref.sub->pre_size);
        borders[number_of(ref.name)].insert(ref.sub->pre_size * ref.sub->size);
      }
    };
    for (const DimensionSharding& dimension : sharding.dimensions) add(dimension.axes);
    add(sharding.unreduced);
    for (size_t a = 0; a < mesh.axes.size(); ++a) {
      borders[a].insert(1);
      borders[a].insert(mesh.axes[a].size);
      int64_t begin = 0;
      for (int64_t border : borders[a]) {
        if (begin > 0) parts_.push_back({a, begin, border});
        begin = border;
      }
    }
    is_taken_.resize(parts_.size());
  }

  const std::vector<MeshPart>& parts() const { return parts_; }
  int64_t size(size_t part) const { return parts_[part].end / parts_[part].begin; }

  // Appends the parts of `ref`, major to minor; the product of their sizes.
  int64_t take(const AxisRef& ref, std::vector<size_t>& order) {
    const size_t axis = number_of(ref.name);
    const int64_t begin = ref.sub ? ref.sub->pre_size : 1;
    const int64_t end = ref.sub ? begin * ref.sub->size : mesh_.axes[axis].size;
    int64_t product = 1;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const MeshPart& part = parts_[i];
      if (part.axis != axis || part.begin < begin || part.end > end) continue;
      order.push_back(i);
      is_taken_[i] = true;
      product *= size(i);
    }
    return product;
  }

  int64_t take_rest(std::vector<size_t>& order) {
    int64_t product = 1;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (is_taken_[i]) continue;
      order.push_back(i);
      product *= size(i);
    }
    return product;
  }

 private:
  size_t number_of(std::string_view name) const {
    size_t i = 0;
    while (mesh_.axes[i].name != name) ++i;
    return i;
  }

  const Mesh& mesh_;
  std::vector<MeshPart> parts_;
  std::vector<bool> is_taken_;
};

std::vector<AxisRef> all_axes(const Mesh& mesh) {
  std::vector<AxisRef> axes;
  for (const Axis& axis : mesh.axes) axes.push_back({axis.name, {}});
  return axes;
}

// By partition; empty where positions are partitions.
std::vector<int64_t> positions_of(const Mesh& mesh) {
  std::vector<int64_t> positions(mesh.device_ids.size());
  for (size_t i = 0; i < positions.size(); ++i) {
    positions[static_cast<size_t>(mesh.device_ids[i])] = static_cast<int64_t>(i);
  }
  return positions;
}

// Borders of the tensor's dimensions and of the trailing ones, as strides of tiles, minor first;
// the whole count is the last.
std::vector<int64_t> tile_borders(const TileTable& tiles) {
  std::vector<int64_t> borders = {1, tiles.replicated};
  borders.push_back(borders.back() * tiles.unreduced);
  borders.push_back(borders.back() * tiles.manual);
  for (size_t d = tiles.tile_dims.size(); d-- > 0;) {
    borders.push_back(borders.back() * tiles.tile_dims[d]);
  }
  return borders;
}

// The digits of a tiled sharding, each within one tile dimension; nothing when tiles are on
// partitions in no regular order.
std::optional<std::vector<Digit>> digits_within_tiles(const TileTable& tiles) {
  std::optional<std::vector<Digit>> digits = digits_of(tiles.table);
  if (!digits) return std::nullopt;
  for (int64_t border : tile_borders(tiles)) {
    if (!split_tiles(*digits, border)) return std::nullopt;
  }
  return digits;
}

// The digits between two borders of tiles as axes, major to minor. Each digit is within one axis.
std::vector<AxisRef> axes_between(const std::vector<Digit>& digits, int64_t low, int64_t high,
                                  const Mesh& mesh) {
  std::vector<AxisRef> axes;
  for (size_t i = digits.size(); i-- > 0;) {
    const Digit& digit = digits[i];
    if (digit.tile_stride < low || digit.tile_stride >= high) continue;
    int64_t stride = 1;
    for (size_t a = mesh.axes.size(); a-- > 0; stride *= mesh.axes[a].size) {
      const Axis& axis = mesh.axes[a];
      if (digit.stride < stride || digit.stride >= stride * axis.size) continue;
      AxisRef ref{axis.name, {}};
      const int64_t pre_size = axis.size / (digit.stride / stride * digit.size);
      if (digit.size != axis.size) ref.sub = SubAxis{pre_size, digit.size};
      axes.push_back(std::move(ref));
      break;
    }
  }
  return axes;
}

Status no_order(const HloSharding& sharding, const Mesh& mesh) {
  return invalid_argument(
      "{} cannot be said with the axes of mesh {}: its tiles do not follow whole axes or sub-axes. "
      "A "
      "mesh with other axes or device ids can say it",
      to_text(sharding), to_text(mesh));
}

}  // namespace

Result<HloSharding> to_hlo(const TensorSharding& sharding, const Mesh& mesh, size_t rank,
                           const ManualAxes& manual) {
  HEKLA_RETURN_IF_ERROR(check(sharding, mesh, rank));
  HEKLA_RETURN_IF_ERROR(check(manual, mesh));
  HloSharding result;
  if (mesh.is_maximal()) {
    result.kind = Kind::kMaximal;
    result.devices = mesh.device_ids;
    return result;
  }
  if (sharding.reduction_kind && !sharding.unreduced.empty()) {
    return invalid_argument(
        "a sharding with reduction kind {}: HLO has partial sums and no other partial values",
        *sharding.reduction_kind);
  }
  const auto refuse_manual = [&](const std::vector<AxisRef>& axes, std::string_view where) {
    for (const AxisRef& ref : axes) {
      for (const std::string& name : manual.names) {
        if (name == ref.name) {
          return invalid_argument("{} of the sharding uses axis {}, which is manual here", where,
                                  to_text(ref));
        }
      }
    }
    return ok_status();
  };
  for (size_t d = 0; d < rank; ++d) {
    HEKLA_RETURN_IF_ERROR(
        refuse_manual(sharding.dimensions[d].axes, fmt::format("dimension {}", d)));
  }
  HEKLA_RETURN_IF_ERROR(refuse_manual(sharding.unreduced, "the unreduced axes"));

  SplitMesh split(sharding, mesh);
  std::vector<size_t> order;  // of the mesh's parts, major to minor in the tiles
  result.kind = Kind::kTiled;
  for (const DimensionSharding& dimension : sharding.dimensions) {
    int64_t tiles = 1;
    for (const AxisRef& ref : dimension.axes) tiles *= split.take(ref, order);
    result.tile_dims.push_back(tiles);
  }
  const auto add_group = [&](Kind kind, int64_t size) {
    result.tile_dims.push_back(size);
    result.subgroups.push_back(kind);
  };
  int64_t manual_count = 1;
  for (const std::string& name : manual.names) {
    // Only the set matters; the mesh's order makes it canonical.
    manual_count *= mesh.find(name)->size;
  }
  for (const Axis& axis : mesh.axes) {
    if (std::find(manual.names.begin(), manual.names.end(), axis.name) == manual.names.end()) {
      continue;
    }
    split.take({axis.name, {}}, order);
  }
  add_group(Kind::kManual, manual_count);
  int64_t unreduced_count = 1;
  for (const AxisRef& ref : canonical(sharding, mesh).unreduced) {
    unreduced_count *= split.take(ref, order);
  }
  add_group(Kind::kUnreduced, unreduced_count);
  add_group(Kind::kReplicated, split.take_rest(order));
  if (!manual.names.empty() && manual.names.size() == mesh.axes.size()) {
    result = HloSharding();
    result.kind = Kind::kManual;
    return result;
  }
  for (size_t i = 0; i < split.parts().size(); ++i) result.iota_dims.push_back(split.size(i));
  for (size_t part : order) result.iota_perm.push_back(static_cast<int64_t>(part));
  if (result.iota_dims.empty()) {
    result.iota_dims = {1};
    result.iota_perm = {0};
  }
  if (!mesh.device_ids.empty()) {
    std::vector<int64_t> devices = tile_devices(result);
    for (int64_t& device : devices) device = mesh.device_ids[static_cast<size_t>(device)];
    result.devices = std::move(devices);
    result.iota_dims.clear();
    result.iota_perm.clear();
  }
  return canonical(std::move(result));
}

Result<ShardingOnMesh> from_hlo(const HloSharding& sharding, const Mesh& mesh, size_t rank) {
  HEKLA_RETURN_IF_ERROR(check(sharding));
  HEKLA_RETURN_IF_ERROR(check(mesh));
  ShardingOnMesh result;
  TensorSharding& shardy = result.sharding;
  shardy.mesh = mesh;
  shardy.dimensions.resize(rank);
  switch (sharding.kind) {
    case Kind::kTuple:
      return invalid_argument("{} is of a tuple: convert its elements", to_text(sharding));
    case Kind::kUnknown:
      return invalid_argument("{{unknown}} says nothing that a sharding over a mesh could say");
    case Kind::kMaximal:
      shardy.mesh = Mesh{{}, sharding.devices};
      shardy.dimensions.clear();
      return result;
    case Kind::kReplicated:
      return result;
    case Kind::kManual:
      for (const Axis& axis : mesh.axes) result.manual.names.push_back(axis.name);
      return result;
    case Kind::kUnreduced:
      shardy.unreduced = all_axes(mesh);
      return result;
    case Kind::kTiled:
      break;
  }
  const size_t tile_rank = sharding.tile_dims.size() - sharding.subgroups.size();
  if (tile_rank != rank) {
    return invalid_argument("{} cuts {} dimensions, the tensor has {}", to_text(sharding),
                            tile_rank, rank);
  }
  const int64_t count = device_count(mesh);
  int64_t tile_count = 1;
  for (int64_t tiles : sharding.tile_dims) tile_count *= tiles;
  if (tile_count != count || mesh.is_maximal()) {
    return invalid_argument("{} is over {} partitions, mesh {} has {}", to_text(sharding),
                            tile_count, to_text(mesh), count);
  }
  for (int64_t device : sharding.devices) {
    if (device >= count) return no_order(sharding, mesh);
  }
  const TileTable tiles = tile_table(sharding, positions_of(mesh));
  std::optional<std::vector<Digit>> digits = digits_within_tiles(tiles);
  if (!digits) return no_order(sharding, mesh);
  int64_t stride = 1;
  for (size_t a = mesh.axes.size(); a-- > 0;) {
    stride *= mesh.axes[a].size;
    if (!split_positions(*digits, stride)) return no_order(sharding, mesh);
  }
  const std::vector<int64_t> borders = tile_borders(tiles);
  shardy.unreduced = axes_between(*digits, borders[1], borders[2], mesh);
  for (const AxisRef& ref : axes_between(*digits, borders[2], borders[3], mesh)) {
    if (ref.sub) {
      return invalid_argument(
          "{} has a manual region over {} of mesh {}: regions are manual over whole axes",
          to_text(sharding), to_text(ref), to_text(mesh));
    }
    result.manual.names.push_back(ref.name);
  }
  for (size_t d = 0; d < rank; ++d) {
    shardy.dimensions[d].axes =
        axes_between(*digits, borders[3 + rank - 1 - d], borders[3 + rank - d], mesh);
  }
  shardy = canonical(std::move(shardy), mesh);
  result.manual = canonical(std::move(result.manual), mesh);
  return result;
}

Result<Mesh> common_mesh(std::span<const HloSharding> shardings, int64_t partitions) {
  if (partitions < 1 || partitions > kMaxDevices) {
    return invalid_argument("a mesh of {} partitions", partitions);
  }
  std::vector<const HloSharding*> tiled;
  for (const HloSharding& sharding : shardings) {
    HEKLA_RETURN_IF_ERROR(check(sharding));
    if (sharding.kind == Kind::kTiled) tiled.push_back(&sharding);
    for (const HloSharding& element : sharding.elements) {
      if (element.kind == Kind::kTiled) tiled.push_back(&element);
    }
  }
  Mesh mesh;
  for (const HloSharding* sharding : tiled) {
    int64_t count = 1;
    for (int64_t tiles : sharding->tile_dims) count *= tiles;
    bool is_complete = count == partitions;
    for (int64_t device : sharding->devices) is_complete = is_complete && device < partitions;
    if (!is_complete) {
      return invalid_argument("{} is not over partitions 0 to {}", to_text(*sharding),
                              partitions - 1);
    }
    // The first order that is no iota is the mesh's.
    if (mesh.device_ids.empty() && !digits_of(tile_table(*sharding).table)) {
      mesh.device_ids = tile_table(*sharding).table;
    }
  }
  std::set<int64_t> borders = {1, partitions};
  const std::vector<int64_t> positions = positions_of(mesh);
  for (const HloSharding* sharding : tiled) {
    const std::optional<std::vector<Digit>> digits =
        digits_within_tiles(tile_table(*sharding, positions));
    if (!digits) {
      return invalid_argument("{} orders partitions as no mesh can together with the others",
                              to_text(*sharding));
    }
    for (const Digit& digit : *digits) {
      borders.insert(digit.stride);
      borders.insert(digit.stride * digit.size);
    }
  }
  std::vector<int64_t> strides(borders.rbegin(), borders.rend());
  for (size_t i = 0; i + 1 < strides.size(); ++i) {
    if (strides[i] % strides[i + 1] != 0) {
      return invalid_argument(
          "shardings that split {} partitions at {} and at {} have no mesh in common", partitions,
          strides[i], strides[i + 1]);
    }
    mesh.axes.push_back({fmt::format("axis_{}", i), strides[i] / strides[i + 1]});
  }
  if (mesh.axes.empty()) mesh.axes.push_back({"axis_0", 1});
  return mesh;
}

}  // namespace hekla::sharding
