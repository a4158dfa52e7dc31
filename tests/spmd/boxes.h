// SPDX-License-Identifier: Apache-2.0
// How arrays lie on partitions and what each holds, for the tests of this folder. Pure; failures
// are GoogleTest's.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/program/sharding/hlo_sharding.h"

namespace hekla::spmd {

// Of HLO's words.
inline sharding::HloSharding tiles(const std::string& text) {
  const auto sharding = sharding::parse_hlo_sharding(text);
  EXPECT_TRUE(sharding.ok()) << sharding.status().to_string();
  return *sharding;
}

// By partition.
inline std::vector<sharding::Box> boxes_of(const sharding::HloSharding& sharding,
                                           int64_t partitions, const Dims& whole) {
  const auto known = device_boxes(sharding, partitions, whole);
  EXPECT_TRUE(known.ok()) << known.status().to_string();
  std::vector<sharding::Box> boxes(static_cast<size_t>(partitions));
  for (const auto& one : *known) boxes[static_cast<size_t>(one.device)] = one.box;
  return boxes;
}

// Calls visit(index in the box, index in the array, both row major) for each element of the box;
// `local` is the shape of the memory that begins with it.
inline void for_each(const sharding::Box& box, const Dims& local, const Dims& whole,
                     const std::function<void(int64_t, int64_t)>& visit) {
  const std::function<void(size_t, int64_t, int64_t)> walk = [&](size_t d, int64_t at, int64_t in) {
    if (d == whole.size()) return visit(at, in);
    for (int64_t i = 0; i < box.size[d]; ++i) {
      walk(d + 1, at * local[d] + i, in * whole[d] + box.start[d] + i);
    }
  };
  walk(0, 0, 0);
}

}  // namespace hekla::spmd
