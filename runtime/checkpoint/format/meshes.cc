// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/meshes.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_map>

namespace hekla::checkpoint {
namespace {

std::vector<int64_t> places(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

// Range i of `values` ends before ends[i]; what lies behind the last is not allowed.
Result<std::vector<std::span<const int64_t>>> ranges(std::span<const int64_t> values,
                                                     std::span<const int64_t> ends,
                                                     std::string_view what) {
  std::vector<std::span<const int64_t>> made;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    if (end < begin || end > static_cast<int64_t>(values.size())) {
      return data_loss("/meshes/{}_end has {} outside of {} entries", what, end, values.size());
    }
    made.push_back(values.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    begin = end;
  }
  if (begin != static_cast<int64_t>(values.size())) {
    return data_loss("/meshes/{} has {} entries of no mesh", what,
                     static_cast<int64_t>(values.size()) - begin);
  }
  return made;
}

}  // namespace

void find_meshes(std::span<const TensorInfo> tensors, std::vector<Mesh>* meshes,
                 std::vector<int32_t>* mesh_of) {
  // A text of a few bytes can stand for a million devices, so that the work has a bound of its own:
  // each text costs what it makes, one that is no sharding a fixed price.
  constexpr int64_t kMaxWork = 8 * kMaxListedDevices, kPriceOfOther = kMaxWork / 128;
  int64_t work = 0, listed = 0;
  std::unordered_map<std::string, int32_t> numbers;  // of meshes, by their text
  meshes->clear();
  mesh_of->assign(tensors.size(), kNoMesh);
  std::unordered_map<std::string_view, int32_t> known = {{"", kNoMesh}};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [at, is_new] = known.emplace(tensors[i].spec, kNoMesh);
    if (is_new && work < kMaxWork) {
      if (Result<Sharding> sharding = parse_sharding(tensors[i].spec); sharding.ok()) {
        const int64_t devices = device_count(sharding->mesh);
        work += devices;
        const auto next = static_cast<int32_t>(meshes->size());
        const auto [number, is_new_mesh] =
            numbers.emplace(sharding_text({sharding->mesh, {}}), next);
        at->second = number->second;
        if (is_new_mesh && listed + devices <= kMaxListedDevices) {
          listed += devices;
          meshes->push_back(std::move(sharding->mesh));
        } else if (is_new_mesh) {
          at->second = number->second = kNoMesh;
        }
      } else {
        work += kPriceOfOther;
      }
    }
    (*mesh_of)[i] = at->second;
  }
}

MeshColumns columns_from_meshes(std::span<const Mesh> meshes) {
  MeshColumns columns;
  for (const Mesh& mesh : meshes) {
    for (const sharding::Axis& axis : mesh.axes) {
      columns.axis_name.add(axis.name);
      columns.axis_size.push_back(axis.size);
    }
    const std::vector<int64_t> devices =
        mesh.device_ids.empty() ? places(device_count(mesh)) : mesh.device_ids;
    columns.device.insert(columns.device.end(), devices.begin(), devices.end());
    columns.granule.insert(columns.granule.end(), mesh.granules.begin(), mesh.granules.end());
    columns.axis_end.push_back(static_cast<int64_t>(columns.axis_size.size()));
    columns.device_end.push_back(static_cast<int64_t>(columns.device.size()));
    columns.granule_end.push_back(static_cast<int64_t>(columns.granule.size()));
  }
  return columns;
}

Result<std::vector<Mesh>> meshes_from_columns(const MeshColumns& columns) {
  const size_t count = columns.axis_end.size();
  if (columns.device_end.size() != count || columns.granule_end.size() != count) {
    return data_loss("the columns of {} meshes have different lengths", count);
  }
  HEKLA_ASSIGN_OR_RETURN(const auto names, texts_from_column(columns.axis_name));
  if (names.size() != columns.axis_size.size()) {
    return data_loss("{} axes of meshes have {} sizes", names.size(), columns.axis_size.size());
  }
  HEKLA_ASSIGN_OR_RETURN(const auto sizes, ranges(columns.axis_size, columns.axis_end, "axis"));
  HEKLA_ASSIGN_OR_RETURN(const auto devices, ranges(columns.device, columns.device_end, "device"));
  HEKLA_ASSIGN_OR_RETURN(const auto granules,
                         ranges(columns.granule, columns.granule_end, "granule"));
  std::vector<Mesh> meshes(count);
  size_t axis = 0;
  for (size_t i = 0; i < count; ++i) {
    Mesh& mesh = meshes[i];
    for (const int64_t size : sizes[i]) mesh.axes.push_back({names[axis++], size});
    mesh.device_ids.assign(devices[i].begin(), devices[i].end());
    mesh.granules.assign(granules[i].begin(), granules[i].end());
    const Status status = check_mesh(mesh);
    if (!status.ok()) return data_loss("mesh {}: {}", i, status.message());
    if (mesh.device_ids.empty()) return data_loss("mesh {} has no devices", i);
    if (mesh.device_ids == places(device_count(mesh))) mesh.device_ids.clear();
  }
  return meshes;
}

std::string meshes_text(std::span<const Mesh> meshes) {
  constexpr size_t kShown = 8;
  std::string text;
  for (const Mesh& mesh : meshes.first(std::min(kShown, meshes.size()))) {
    if (!text.empty()) text += ' ';
    text += mesh_text(mesh);
  }
  return text;
}

}  // namespace hekla::checkpoint
