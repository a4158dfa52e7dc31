// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/hlo/shape.h"

#include <algorithm>
#include <utility>

#include "runtime/base/host_array.h"
#include "runtime/program/hlo/message.h"

namespace hekla::hlo {
namespace {

// Numbers of xla.PrimitiveType that stand for no array element.
enum : int64_t { kTupleType = 13, kOpaqueType = 14, kTokenType = 17, kBufferType = 34 };
enum : uint32_t {
  kElementType = 2,
  kDimensions = 3,
  kTupleShapes = 4,
  kLayout = 5,
  kIsDynamic = 6,
  kMinorToMajor = 1,
};
constexpr int kMaxTupleDepth = 32;

Result<Shape> read_array(const Message& message, DType dtype) {
  Shape shape;
  HEKLA_ASSIGN_OR_RETURN(Dims dims, message.integers(kDimensions));
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> dynamic, message.integers(kIsDynamic));
  Dims bounds;
  Dims largest = dims;
  for (size_t i = 0; i < dims.size(); ++i) {
    const bool is_dynamic = i < dynamic.size() && dynamic[i] != 0;
    if (dims[i] < 0 && !(is_dynamic && dims[i] == ir::kDynamic)) {
      return invalid_argument("a shape has a dimension of size {}", dims[i]);
    }
    if (!is_dynamic) continue;
    bounds.resize(dims.size(), ir::kDynamic);
    bounds[i] = dims[i];
    if (dims[i] == ir::kDynamic) largest[i] = 1;
    dims[i] = ir::kDynamic;
  }
  if (const Status size = checked_bytes(dtype, largest).status(); !size.ok()) {
    return invalid_argument("{}", size.message());
  }
  HEKLA_ASSIGN_OR_RETURN(const Message layout, message.message(kLayout, "a layout"));
  HEKLA_ASSIGN_OR_RETURN(shape.minor_to_major, layout.integers(kMinorToMajor));
  if (!shape.minor_to_major.empty()) {
    std::vector<bool> is_named(dims.size(), false);
    bool is_order = shape.minor_to_major.size() == dims.size();
    for (size_t i = 0; is_order && i < dims.size(); ++i) {
      const int64_t d = shape.minor_to_major[i];
      is_order =
          d >= 0 && d < static_cast<int64_t>(dims.size()) && !is_named[static_cast<size_t>(d)];
      if (is_order) is_named[static_cast<size_t>(d)] = true;
    }
    if (!is_order) return invalid_argument("a layout is no order of {} dimensions", dims.size());
  }
  shape.type = ir::Type::tensor(ir::Type::scalar(dtype), std::move(dims), std::move(bounds));
  return shape;
}

Result<Shape> read_nested(std::string_view bytes, int depth) {
  if (depth > kMaxTupleDepth) {
    return invalid_argument("tuples nest deeper than {} levels", kMaxTupleDepth);
  }
  HEKLA_ASSIGN_OR_RETURN(const Message message, Message::parse(bytes, "a shape"));
  const int64_t kind = message.integer(kElementType);
  Shape shape;
  switch (kind) {
    case kTupleType:
      shape.is_tuple = true;
      shape.leaf_count = 0;
      for (std::string_view element : message.list(kTupleShapes)) {
        HEKLA_ASSIGN_OR_RETURN(Shape one, read_nested(element, depth + 1));
        shape.leaf_count += one.leaf_count;
        shape.elements.push_back(std::move(one));
      }
      return shape;
    case kTokenType:
      shape.type = ir::Type::token();
      return shape;
    case kOpaqueType:
      shape.type = ir::Type::opaque("!hlo.opaque");
      return shape;
    case kBufferType: {
      const std::vector<std::string_view> inner = message.list(kTupleShapes);
      if (inner.size() != 1) return invalid_argument("a buffer of {} shapes", inner.size());
      HEKLA_ASSIGN_OR_RETURN(const Shape array, read_nested(inner[0], depth + 1));
      if (!array.is_array()) return invalid_argument("a buffer that holds no array");
      shape.type = ir::Type::buffer(array.type.element(), array.type.dims());
      return shape;
    }
    default: {
      const DType dtype = dtype_of(kind);
      if (dtype != DType::kInvalid) return read_array(message, dtype);
      if (kind == 30 || kind == 31) {
        return unimplemented("arrays of {}, integers of one bit", kind == 30 ? "s1" : "u1");
      }
      return invalid_argument("a shape has the element type number {}", kind);
    }
  }
}

void add_leaves(const Shape& shape, std::vector<const Shape*>& out) {
  if (!shape.is_tuple) {
    out.push_back(&shape);
    return;
  }
  for (const Shape& element : shape.elements) add_leaves(element, out);
}

}  // namespace

DType dtype_of(int64_t primitive_type) {
  switch (primitive_type) {
    case 1:
      return DType::kI1;
    case 2:
      return DType::kI8;
    case 3:
      return DType::kI16;
    case 4:
      return DType::kI32;
    case 5:
      return DType::kI64;
    case 6:
      return DType::kUI8;
    case 7:
      return DType::kUI16;
    case 8:
      return DType::kUI32;
    case 9:
      return DType::kUI64;
    case 10:
      return DType::kF16;
    case 11:
      return DType::kF32;
    case 12:
      return DType::kF64;
    case 15:
      return DType::kC64;
    case 16:
      return DType::kBF16;
    case 18:
      return DType::kC128;
    case 19:
      return DType::kF8E5M2;
    case 20:
      return DType::kF8E4M3FN;
    case 21:
      return DType::kI4;
    case 22:
      return DType::kUI4;
    case 23:
      return DType::kF8E4M3B11FNUZ;
    case 24:
      return DType::kF8E5M2FNUZ;
    case 25:
      return DType::kF8E4M3FNUZ;
    case 26:
      return DType::kI2;
    case 27:
      return DType::kUI2;
    case 28:
      return DType::kF8E4M3;
    case 29:
      return DType::kF8E3M4;
    case 32:
      return DType::kF4E2M1FN;
    case 33:
      return DType::kF8E8M0FNU;
    case 35:
      return DType::kF6E3M2FN;
    case 36:
      return DType::kF6E2M3FN;
    default:
      return DType::kInvalid;
  }
}

bool Shape::is_row_major() const {
  for (size_t i = 1; i < minor_to_major.size(); ++i) {
    if (minor_to_major[i - 1] != minor_to_major[i] + 1) return false;
  }
  return true;
}

Result<Shape> read_shape(std::string_view bytes) { return read_nested(bytes, 0); }

size_t first_leaf(const Shape& tuple, size_t i) {
  size_t first = 0;
  for (size_t k = 0; k < i; ++k) first += tuple.elements[k].leaf_count;
  return first;
}

std::vector<const Shape*> leaves(const Shape& shape) {
  std::vector<const Shape*> found;
  add_leaves(shape, found);
  return found;
}

std::vector<ir::Type> leaf_types(const Shape& shape) {
  std::vector<ir::Type> types;
  for (const Shape* leaf : leaves(shape)) types.push_back(leaf->type);
  return types;
}

std::string shape_text(const Shape& shape) {
  if (!shape.is_tuple) return shape.type.to_string();
  std::string text = "(";
  for (size_t i = 0; i < shape.elements.size(); ++i) {
    text += (i > 0 ? ", " : "") + shape_text(shape.elements[i]);
  }
  return text + ")";
}

}  // namespace hekla::hlo
