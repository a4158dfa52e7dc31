// SPDX-License-Identifier: Apache-2.0
// Sums that are taken in parts: what passes that cut them share. Of this folder alone. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/program/builder/graph_builder.h"

namespace hekla::passes {

// The largest number of equal parts of `size` elements that is at most `most`; at least 1.
int64_t equal_parts(int64_t size, int64_t most);

// How so many elements are cut into parts: equal ones, and what is left, which is less than a part.
struct Parts {
  int64_t count = 1;
  int64_t length = 0;  // of each
  int64_t rest = 0;
};
// At most `most` parts of all elements where that gives half as many; else a few more than `most`,
// if any, and a rest.
Parts nearly_equal_parts(int64_t size, int64_t most);

// Elements [begin, end) of dimension `d`; `x` itself where that is all.
ir::Value* slice_dimension(ir::GraphBuilder& g, ir::Value* x, size_t d, int64_t begin, int64_t end);

// `x` with dimension `d` as two: `parts`, and what each part has of it.
ir::Value* cut_dimension(ir::GraphBuilder& g, ir::Value* x, size_t d, int64_t parts);

// Dimensions of the value before dimension `at` was cut, as those behind it: that of the elements
// of a part where `at` itself is among them.
std::vector<int64_t> behind_cut(std::vector<int64_t> dimensions, int64_t at);

// The sums over dimension `d` of numbers.
ir::Value* add_up(ir::GraphBuilder& g, ir::Value* x, size_t d);

}  // namespace hekla::passes
