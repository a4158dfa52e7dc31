// SPDX-License-Identifier: Apache-2.0
// Shape: what an xla.ShapeProto says, as types of the IR.
//
// Tuples are trees of shapes; the IR's programs have their leaves only, in order. Errors are
// INVALID_ARGUMENT, and UNIMPLEMENTED for element types that there are not in the IR.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/program/ir/type.h"

namespace hekla::hlo {

struct Shape {
  bool is_tuple = false;
  std::vector<Shape> elements;  // of a tuple
  ir::Type type;                // of an array, a token, a buffer or something opaque
  // Of an array whose layout is given: dimensions, the fastest one first. Else empty.
  std::vector<int64_t> minor_to_major;
  size_t leaf_count = 1;

  bool is_array() const { return !is_tuple && type.is_tensor(); }
  bool is_row_major() const;
};

Result<Shape> read_shape(std::string_view bytes);
// The number of the leaf in front of tuple element i.
size_t first_leaf(const Shape& tuple, size_t i);
std::vector<ir::Type> leaf_types(const Shape& shape);
// Every leaf, left to right.
std::vector<const Shape*> leaves(const Shape& shape);
// "(tensor<2xf32>, tensor<f32>)".
std::string shape_text(const Shape& shape);
// The element type of that number; kInvalid for one that is not an array's.
DType dtype_of(int64_t primitive_type);

}  // namespace hekla::hlo
