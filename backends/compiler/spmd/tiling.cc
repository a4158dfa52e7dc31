// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/tiling.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "runtime/program/sharding/convert.h"
#include "runtime/program/sharding/text.h"

namespace hekla::spmd {

using sharding::AxisRef;
using sharding::HloSharding;
using sharding::SubAxis;
using sharding::TensorSharding;

bool Tiling::is_replicated() const {
  return partial.empty() &&
         std::all_of(dims.begin(), dims.end(), [](const Axes& axes) { return axes.empty(); });
}

bool Tiling::uses(int axis) const {
  const auto has = [axis](const Axes& axes) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  };
  return has(partial) || std::any_of(dims.begin(), dims.end(), has);
}

PrimeMesh::PrimeMesh(sharding::Mesh mesh) : mesh_(std::move(mesh)) {
  partitions_ = sharding::device_count(mesh_);
  for (size_t a = 0; a < mesh_.axes.size(); ++a) {
    int64_t rest = mesh_.axes[a].size;
    int64_t pre_size = 1;
    for (int64_t prime = 2; rest > 1; ++prime) {
      if (prime * prime > rest) prime = rest;
      for (; rest % prime == 0; rest /= prime) {
        sizes_.push_back(prime);
        whole_axes_.push_back(static_cast<int>(a));
        pre_sizes_.push_back(pre_size);
        pre_size *= prime;
      }
    }
  }
  strides_.resize(sizes_.size());
  int64_t stride = 1;
  for (size_t i = sizes_.size(); i-- > 0;) {
    strides_[i] = stride;
    stride *= sizes_[i];
  }
  position_of_.resize(static_cast<size_t>(partitions_));
  std::iota(position_of_.begin(), position_of_.end(), 0);
  for (size_t i = 0; i < mesh_.device_ids.size(); ++i) {
    position_of_[static_cast<size_t>(mesh_.device_ids[i])] = static_cast<int64_t>(i);
  }
}

int64_t PrimeMesh::parts(const Axes& axes) const {
  int64_t product = 1;
  for (int axis : axes) product *= size(axis);
  return product;
}

Axes PrimeMesh::whole_prefix(const Axes& axes) const {
  size_t end = 0;
  for (size_t i = 0; i < axes.size();) {
    // A complete axis: all its factors in a row.
    size_t next = i;
    int64_t product = 1;
    const int whole = whole_axis(axes[i]);
    while (next < axes.size() && whole_axis(axes[next]) == whole &&
           pre_sizes_[static_cast<size_t>(axes[next])] == product) {
      product *= size(axes[next]);
      ++next;
    }
    if (product != mesh_.axes[static_cast<size_t>(whole)].size) break;
    end = i = next;
  }
  return {axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(end)};
}

bool PrimeMesh::is_whole(const Axes& axes) const {
  return whole_prefix(axes).size() == axes.size();
}

Result<Tiling> PrimeMesh::tiling_of(const HloSharding& given, size_t rank) const {
  Tiling tiling = Tiling::replicated(rank);
  if (given.kind == HloSharding::Kind::kReplicated) return tiling;
  HEKLA_ASSIGN_OR_RETURN(const sharding::ShardingOnMesh found,
                         sharding::from_hlo(given, mesh_, rank));
  const auto refuse = [&] {
    return invalid_argument("the sharding {} is not by axes of the mesh {}",
                            sharding::to_text(given), sharding::to_text(mesh_));
  };
  const sharding::Mesh* own = found.sharding.inline_mesh();
  if (own == nullptr || own->is_maximal() || !found.manual.names.empty()) return refuse();
  const auto append = [&](const std::vector<AxisRef>& from, Axes& to) {
    for (const AxisRef& ref : from) {
      int64_t begin = ref.sub ? ref.sub->pre_size : 1;
      int64_t end = 0;
      for (size_t i = 0; i < sizes_.size(); ++i) {
        const sharding::Axis& axis = mesh_.axes[static_cast<size_t>(whole_axes_[i])];
        if (axis.name != ref.name) continue;
        if (end == 0) end = ref.sub ? begin * ref.sub->size : axis.size;
        if (pre_sizes_[i] != begin || begin >= end) continue;
        to.push_back(static_cast<int>(i));
        begin *= sizes_[i];
      }
      if (begin != end && end != 0) return false;
    }
    return true;
  };
  for (size_t d = 0; d < rank && d < found.sharding.dimensions.size(); ++d) {
    if (!append(found.sharding.dimensions[d].axes, tiling.dims[d])) return refuse();
  }
  if (!append(found.sharding.unreduced, tiling.partial)) return refuse();
  std::sort(tiling.partial.begin(), tiling.partial.end());
  return tiling;
}

TensorSharding PrimeMesh::to_shardy(const Tiling& tiling) const {
  const auto refs = [&](const Axes& axes) {
    std::vector<AxisRef> found;
    for (int axis : axes) {
      const auto i = static_cast<size_t>(axis);
      found.push_back({mesh_.axes[static_cast<size_t>(whole_axes_[i])].name,
                       SubAxis{pre_sizes_[i], sizes_[i]}});
    }
    return found;
  };
  TensorSharding sharding;
  sharding.mesh = mesh_;
  for (const Axes& axes : tiling.dims) sharding.dimensions.push_back({refs(axes), false, {}});
  sharding.unreduced = refs(tiling.partial);
  return sharding::canonical(std::move(sharding), mesh_);
}

HloSharding PrimeMesh::to_hlo(const Tiling& tiling) const {
  // Cannot fail: the axes are the mesh's and each is used once.
  return *sharding::to_hlo(to_shardy(tiling), mesh_, tiling.dims.size());
}

std::vector<int64_t> PrimeMesh::part_of_partitions(const Axes& axes) const {
  std::vector<int64_t> found(static_cast<size_t>(partitions_), 0);
  for (size_t partition = 0; partition < found.size(); ++partition) {
    for (int axis : axes) {
      const int64_t digit =
          position_of_[partition] / strides_[static_cast<size_t>(axis)] % size(axis);
      found[partition] = found[partition] * size(axis) + digit;
    }
  }
  return found;
}

std::vector<std::vector<int64_t>> PrimeMesh::groups(const Axes& axes) const {
  const std::vector<int64_t> part = part_of_partitions(axes);
  std::map<int64_t, std::vector<int64_t>> found;
  for (size_t partition = 0; partition < part.size(); ++partition) {
    int64_t base = position_of_[partition];
    for (int axis : axes) {
      const int64_t stride = strides_[static_cast<size_t>(axis)];
      base -= position_of_[partition] / stride % size(axis) * stride;
    }
    std::vector<int64_t>& members = found[base];
    members.resize(static_cast<size_t>(parts(axes)));
    members[static_cast<size_t>(part[partition])] = static_cast<int64_t>(partition);
  }
  std::vector<std::vector<int64_t>> rows;
  for (auto& [base, members] : found) rows.push_back(std::move(members));
  return rows;
}

Cut PrimeMesh::cut_of(const Tiling& tiling) const {
  const auto dimension_of = [&](const Axes& axes) {
    Cut::Dimension dimension;
    dimension.parts = parts(axes);
    if (dimension.parts == 1) return dimension;
    dimension.part = part_of_partitions(axes);
    dimension.group.resize(static_cast<size_t>(partitions_));
    int64_t number = 0;
    for (const std::vector<int64_t>& members : groups(axes)) {
      for (int64_t partition : members) dimension.group[static_cast<size_t>(partition)] = number;
      ++number;
    }
    return dimension;
  };
  Cut cut;
  for (const Axes& axes : tiling.dims) cut.dimensions.push_back(dimension_of(axes));
  cut.sum = dimension_of(tiling.partial);
  return cut;
}

std::string PrimeMesh::to_text(const Tiling& tiling) const {
  TensorSharding sharding = to_shardy(tiling);
  sharding.mesh = std::string("mesh");
  return sharding::to_text(sharding);
}

Dims local_shape(const PrimeMesh& mesh, const Tiling& tiling, const Dims& whole) {
  Dims local = whole;
  for (size_t i = 0; i < local.size(); ++i) {
    local[i] = sharding::block_of(whole[i], mesh.parts(tiling.dims[i]), 0).size;
  }
  return local;
}

bool is_even(const PrimeMesh& mesh, const Tiling& tiling, const Dims& whole) {
  for (size_t i = 0; i < whole.size(); ++i) {
    if (whole[i] % mesh.parts(tiling.dims[i]) != 0) return false;
  }
  return true;
}

}  // namespace hekla::spmd
