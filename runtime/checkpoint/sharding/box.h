// SPDX-License-Identifier: Apache-2.0
// Operations on boxes, and checks that boxes from outside belong to a tensor and do not overlap.
//
// Pure functions of values; any thread. Errors say which box of which shape is wrong. Functions
// without a Result rely on boxes that passed check_box.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/format/names.h"
#include "runtime/checkpoint/layout.h"

namespace hekla::checkpoint {

// "[0:4,8:16]"; "[]" for a scalar's.
std::string box_text(const Box& box);
// The box of everything.
Box whole_box(const Dims& shape);
// 1 for rank 0.
int64_t box_elements(const Box& box);
// The common part. False when it has no element; `common` is then unspecified.
bool intersect(const Box& a, const Box& b, Box* common);
// Lexicographic by start, then by size: the order of pieces and of held boxes.
bool box_less(const Box& a, const Box& b);

// INVALID_ARGUMENT: a dtype of no element, more dimensions than kMaxRank, a negative one, or more
// than 2^62 bytes.
Status check_shape(DType dtype, const Dims& shape);
// OUT_OF_RANGE: another rank than the shape's, a negative start or size, or an end behind the
// shape's.
Status check_box(const Dims& shape, const Box& box);
// INVALID_ARGUMENT naming two boxes that share elements. Boxes without elements share none. About
// n log n for boxes that cuts of whole dimensions can separate, n^2 for the worst.
Status check_disjoint(std::span<const Box> boxes);
// What `parts` leave of `whole`, as disjoint boxes, at most `limit` of them (then there is more).
std::vector<Box> uncovered(const Box& whole, std::span<const Box> parts, size_t limit = 1);

}  // namespace hekla::checkpoint
