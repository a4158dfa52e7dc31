// SPDX-License-Identifier: Apache-2.0
// A state with known values, written as a step by several imagined ranks. For tests.
#pragma once

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/checkpoint/format/user_block.h"
#include "runtime/checkpoint/layout.h"
#include "runtime/checkpoint/sharding/save_plan.h"

namespace hekla::checkpoint::testing {

struct State {
  std::vector<TensorInfo> tensors;  // ascending by name; spec is a text of parse_sharding
  std::vector<HostArray> values;

  // Adds a tensor of random bits. Small types are extended as dtype.h says.
  void add(std::string name, DType dtype, Dims shape, std::string spec, std::mt19937_64& random);
};

// What the tests share: every dtype small, a matrix of 5 MiB cut by rows and one cut by columns, a
// packed one of 3 MiB, tensors of 200 KiB, a scalar, one without elements; for four ranks.
State make_state(uint64_t seed);
// The same kinds of pieces in a few hundred KiB, so that every byte class can be damaged often.
State make_small_state(uint64_t seed);

// Into `folder`, which is made. The plan of a world of `ranks`.
Status write_state(const std::filesystem::path& folder, const State& state, int32_t ranks,
                   const ShardIdentity& identity, SaveOptions options = {});

// The part of `array` in `box`, one element at a time.
HostArray part_of(const HostArray& array, const Box& box);

}  // namespace hekla::checkpoint::testing
