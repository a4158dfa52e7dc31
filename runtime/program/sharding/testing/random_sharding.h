// SPDX-License-Identifier: Apache-2.0
// Random meshes and shardings for tests, with the boxes that they mean, found another way: each
// axis is split into prime atoms, which tensors take whole. One generator, one thread.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/program/sharding/sharding.h"

namespace hekla::sharding::testing {

struct Atom {
  size_t axis = 0;
  int64_t pre_size = 1;
  int64_t size = 1;
};

struct Sample {
  Mesh mesh;
  TensorSharding sharding;
  ManualAxes manual;
  Dims shape;
  std::vector<Atom> atoms;                           // in mesh order
  std::vector<std::vector<size_t>> dimension_atoms;  // major to minor
};

inline int64_t draw(std::mt19937_64& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

// Whole axes where `with_sub_axes` is false; axes of a manual computation where `with_manual` is
// true. A tenth of the dimensions is shorter than its parts.
inline Sample random_sample(std::mt19937_64& random, bool with_sub_axes, bool with_manual) {
  constexpr int64_t kSizes[] = {1, 2, 3, 4, 6, 8, 12};
  constexpr int64_t kPrimes[] = {2, 3};
  Sample sample;
  for (int64_t a = draw(random, 1, 4), count = 1; a > 0; --a) {
    const int64_t size = kSizes[draw(random, 0, 6)];
    if (count * size > 96) continue;
    count *= size;
    sample.mesh.axes.push_back({std::string(1, static_cast<char>('a' + a)), size});
  }
  const int64_t devices = device_count(sample.mesh);
  if (sample.mesh.axes.empty()) sample.mesh.axes.push_back({"z", 1});
  if (draw(random, 0, 3) == 0) {
    for (int64_t i = 0; i < devices; ++i) sample.mesh.device_ids.push_back(i);
    std::shuffle(sample.mesh.device_ids.begin(), sample.mesh.device_ids.end(), random);
  }
  std::vector<size_t> free;
  for (size_t a = 0; a < sample.mesh.axes.size(); ++a) {
    const Axis& axis = sample.mesh.axes[a];
    if (with_manual && draw(random, 0, 4) == 0) {
      sample.manual.names.push_back(axis.name);
      sample.atoms.push_back({a, 1, axis.size});
      continue;
    }
    int64_t pre_size = 1;
    while (pre_size < axis.size || (axis.size == 1 && pre_size == 1)) {
      int64_t part = axis.size;
      if (with_sub_axes && axis.size > 1) {
        do part = kPrimes[draw(random, 0, 1)];
        while (axis.size / pre_size % part != 0);
      }
      free.push_back(sample.atoms.size());
      sample.atoms.push_back({a, pre_size, part});
      pre_size *= part;
      if (axis.size == 1) break;
    }
  }
  std::shuffle(free.begin(), free.end(), random);
  const auto ref = [&](size_t atom) {
    const Atom& taken = sample.atoms[atom];
    const Axis& axis = sample.mesh.axes[taken.axis];
    AxisRef result{axis.name, {}};
    if (taken.size != axis.size) result.sub = SubAxis{taken.pre_size, taken.size};
    return result;
  };
  const auto take = [&](std::vector<AxisRef>& axes, std::vector<size_t>* numbers) {
    axes.push_back(ref(free.back()));
    if (numbers != nullptr) numbers->push_back(free.back());
    free.pop_back();
  };
  const size_t rank = static_cast<size_t>(draw(random, 0, 4));
  sample.sharding.mesh = "mesh";
  sample.sharding.dimensions.resize(rank);
  sample.dimension_atoms.resize(rank);
  for (size_t d = 0; d < rank; ++d) {
    int64_t parts = 1;
    while (!free.empty() && draw(random, 0, 2) == 0) {
      parts *= sample.atoms[free.back()].size;
      take(sample.sharding.dimensions[d].axes, &sample.dimension_atoms[d]);
    }
    const int64_t kind = draw(random, 0, 9);
    sample.shape.push_back(kind == 0   ? draw(random, 0, parts)
                           : kind <= 4 ? parts * draw(random, 1, 3)
                                       : draw(random, 1, 3 * parts + 4));
  }
  while (!free.empty() && draw(random, 0, 3) == 0) take(sample.sharding.replicated, nullptr);
  while (!free.empty() && draw(random, 0, 3) == 0) take(sample.sharding.unreduced, nullptr);
  return sample;
}

// By partition, from the atoms' digits alone.
inline std::vector<Box> expected_boxes(const Sample& sample) {
  int64_t count = 1;
  for (const Axis& axis : sample.mesh.axes) count *= axis.size;
  std::vector<Box> boxes(static_cast<size_t>(count));
  std::vector<int64_t> digits(sample.atoms.size(), 0);
  for (int64_t position = 0; position < count; ++position) {
    Box box;
    for (size_t d = 0; d < sample.shape.size(); ++d) {
      int64_t part = 0;
      int64_t parts = 1;
      for (size_t atom : sample.dimension_atoms[d]) {
        part = part * sample.atoms[atom].size + digits[atom];
        parts *= sample.atoms[atom].size;
      }
      const int64_t n = sample.shape[d];
      const int64_t block = (n + parts - 1) / parts;
      const int64_t start = std::min(n, part * block);
      box.start.push_back(start);
      box.size.push_back(std::min(n, start + block) - start);
    }
    const auto device = sample.mesh.device_ids.empty()
                            ? position
                            : sample.mesh.device_ids[static_cast<size_t>(position)];
    boxes[static_cast<size_t>(device)] = box;
    for (size_t i = digits.size(); i-- > 0;) {
      if (++digits[i] < sample.atoms[i].size) break;
      digits[i] = 0;
    }
  }
  return boxes;
}

}  // namespace hekla::sharding::testing
