// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/hlo/literal.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/program/hlo/message.h"

namespace hekla::hlo {
namespace {

enum class Coding : uint8_t {
  kVarints,
  kFixed,   // whole elements, little-endian
  kBytes,   // the same in one field of bytes
  kNarrow,  // elements below eight bits, a byte each
};

struct Storage {
  uint32_t field = 0;
  Coding coding = Coding::kBytes;
};

// The field of xla.LiteralProto that holds the elements.
Storage storage_of(DType dtype) {
  switch (dtype) {
    case DType::kI1:
      return {2, Coding::kVarints};
    case DType::kI2:
      return {26, Coding::kNarrow};
    case DType::kI4:
      return {21, Coding::kNarrow};
    case DType::kI8:
      return {15, Coding::kBytes};
    case DType::kI16:
      return {17, Coding::kBytes};
    case DType::kI32:
      return {4, Coding::kVarints};
    case DType::kI64:
      return {5, Coding::kVarints};
    case DType::kUI2:
      return {27, Coding::kNarrow};
    case DType::kUI4:
      return {22, Coding::kNarrow};
    case DType::kUI8:
      return {3, Coding::kBytes};
    case DType::kUI16:
      return {16, Coding::kBytes};
    case DType::kUI32:
      return {6, Coding::kVarints};
    case DType::kUI64:
      return {7, Coding::kVarints};
    case DType::kF4E2M1FN:
      return {32, Coding::kNarrow};
    case DType::kF6E2M3FN:
      return {36, Coding::kBytes};
    case DType::kF6E3M2FN:
      return {35, Coding::kBytes};
    case DType::kF8E3M4:
      return {29, Coding::kBytes};
    case DType::kF8E4M3:
      return {28, Coding::kBytes};
    case DType::kF8E4M3FN:
      return {20, Coding::kBytes};
    case DType::kF8E4M3FNUZ:
      return {25, Coding::kBytes};
    case DType::kF8E4M3B11FNUZ:
      return {23, Coding::kBytes};
    case DType::kF8E5M2:
      return {19, Coding::kBytes};
    case DType::kF8E5M2FNUZ:
      return {24, Coding::kBytes};
    case DType::kF8E8M0FNU:
      return {33, Coding::kBytes};
    case DType::kBF16:
      return {13, Coding::kBytes};
    case DType::kF16:
      return {11, Coding::kBytes};
    case DType::kF32:
      return {8, Coding::kFixed};
    case DType::kF64:
      return {9, Coding::kFixed};
    case DType::kC64:
      return {12, Coding::kFixed};
    case DType::kC128:
      return {18, Coding::kFixed};
    case DType::kTF32:
    case DType::kInvalid:
      break;
  }
  return {};
}

// The elements as host memory has them, in the order of the literal's layout.
Result<std::string> read_elements(const Message& literal, DType dtype) {
  const Storage storage = storage_of(dtype);
  const size_t width = static_cast<size_t>(dtype_bytes(dtype));
  std::string out;
  switch (storage.coding) {
    case Coding::kVarints: {
      HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> values, literal.integers(storage.field));
      out.reserve(values.size() * width);
      for (int64_t value : values) {
        if (dtype == DType::kI1) value = value != 0;
        out.append(reinterpret_cast<const char*>(&value), width);
      }
      return out;
    }
    case Coding::kFixed:
      return literal.fixed(storage.field, static_cast<size_t>(dtype_bytes(complex_part(dtype))));
    case Coding::kBytes:
      return literal.text(storage.field);
    case Coding::kNarrow: {
      // The bits of an element stand in the low ones of its byte.
      const int bits = dtype_bits(dtype);
      const int sign = is_signed_integer(dtype) ? 1 << (bits - 1) : 0;
      out = literal.text(storage.field);
      for (char& byte : out) {
        const int value = static_cast<uint8_t>(byte) & ((1 << bits) - 1);
        byte = static_cast<char>((value ^ sign) - sign);
      }
      return out;
    }
  }
  return out;
}

// From the order that the layout says to row-major order.
void reorder(const std::string& from, const Shape& shape, size_t width, std::byte* to) {
  const Dims& dims = shape.type.dims();
  const size_t rank = dims.size();
  std::vector<int64_t> strides(rank);
  int64_t stride = 1;
  for (int64_t d : shape.minor_to_major) {
    strides[static_cast<size_t>(d)] = stride;
    stride *= dims[static_cast<size_t>(d)];
  }
  Dims index(rank, 0);
  int64_t offset = 0;
  for (int64_t i = 0; i < stride; ++i, to += width) {
    std::memcpy(to, from.data() + static_cast<size_t>(offset) * width, width);
    for (size_t d = rank; d-- > 0;) {
      offset += strides[d];
      if (++index[d] < dims[d]) break;
      offset -= strides[d] * dims[d];
      index[d] = 0;
    }
  }
}

Result<ir::Attribute> read_array(const Message& literal, const Shape& written,
                                 const Shape& declared) {
  const ir::Type& type = declared.type;
  if (!written.is_array() || !type.is_static_tensor() || !(written.type == type)) {
    return invalid_argument("a literal of {} stands for {}", shape_text(written),
                            shape_text(declared));
  }
  const int64_t count = element_count(type.dims());
  HEKLA_ASSIGN_OR_RETURN(const std::string elements, read_elements(literal, type.dtype()));
  const size_t width = static_cast<size_t>(dtype_bytes(type.dtype()));
  if (elements.size() != static_cast<size_t>(count) * width) {
    return invalid_argument("{} bytes of elements for a literal of {}", elements.size(),
                            type.to_string());
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray array, HostArray::allocate(type.dtype(), type.dims(), false));
  if (count == 0) return ir::make_dense(type, std::move(array));
  if (written.is_row_major()) {
    std::memcpy(array.mutable_data(), elements.data(), elements.size());
  } else {
    reorder(elements, written, width, array.mutable_data());
  }
  return ir::make_dense(type, std::move(array));
}

Status read_nested_literal(const Message& literal, const Shape& written, const Shape& declared,
                           std::vector<ir::Attribute>& out) {
  if (written.is_tuple != declared.is_tuple) {
    return invalid_argument("a literal of {} stands for {}", shape_text(written),
                            shape_text(declared));
  }
  if (!declared.is_tuple) {
    HEKLA_ASSIGN_OR_RETURN(ir::Attribute value, read_array(literal, written, declared));
    out.push_back(std::move(value));
    return ok_status();
  }
  HEKLA_ASSIGN_OR_RETURN(const std::vector<Message> parts, literal.messages(10, "a literal"));
  if (parts.size() != declared.elements.size() || parts.size() != written.elements.size()) {
    return invalid_argument("a literal of {} elements stands for {}", parts.size(),
                            shape_text(declared));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(const Shape inner, read_shape(parts[i].bytes(1)));
    HEKLA_RETURN_IF_ERROR(read_nested_literal(parts[i], inner, declared.elements[i], out));
  }
  return ok_status();
}

}  // namespace

Result<std::vector<ir::Attribute>> read_literal(std::string_view bytes, const Shape& shape) {
  HEKLA_ASSIGN_OR_RETURN(const Message literal, Message::parse(bytes, "a literal"));
  HEKLA_ASSIGN_OR_RETURN(const Shape written, read_shape(literal.bytes(1)));
  std::vector<ir::Attribute> values;
  HEKLA_RETURN_IF_ERROR(read_nested_literal(literal, written, shape, values));
  return values;
}

}  // namespace hekla::hlo
