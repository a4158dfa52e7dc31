// SPDX-License-Identifier: Apache-2.0
// Dense elements: literals, hexadecimal data, resources.
#include <algorithm>
#include <charconv>
#include <cstring>

#include "runtime/program/stablehlo/bytecode/tensor_data.h"
#include "runtime/program/stablehlo/text/parser.h"

namespace hekla::stablehlo {
namespace {

Result<std::string> from_hex(std::string_view digits) {
  if (digits.starts_with("0x") || digits.starts_with("0X")) digits.remove_prefix(2);
  if (digits.size() % 2 != 0) return invalid_argument("an odd number of hexadecimal digits");
  std::string bytes;
  bytes.reserve(digits.size() / 2);
  for (size_t i = 0; i < digits.size(); i += 2) {
    const int high = hex_digit(digits[i]);
    const int low = hex_digit(digits[i + 1]);
    if (high < 0 || low < 0) {
      return invalid_argument("'{}' is not hexadecimal", digits[high < 0 ? i : i + 1]);
    }
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

// tensor_elements says where bytes usually come from.
std::string_view without_origin(std::string_view message) {
  constexpr std::string_view kOrigin = "bytecode: ";
  if (message.starts_with(kOrigin)) message.remove_prefix(kOrigin.size());
  return message;
}

}  // namespace

// Lists of i64 and i1 become IntArrayValue unless `keep_dense`; same rule as for bytecode.
Result<ir::Attribute> Parser::parse_dense(bool keep_dense) {
  HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
  // The type stands behind the elements, so they are passed over first.
  const size_t begin = scan_.position();
  scan_.set_position(begin - 1);
  HEKLA_RETURN_IF_ERROR(scan_.balanced().status());
  const size_t end = scan_.position() - 1;
  HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
  HEKLA_ASSIGN_OR_RETURN(ir::Type type, parse_type());
  const size_t back = scan_.position();
  if (!type.is_static_tensor()) {
    return scan_.error_at(
        begin, fmt::format("dense elements need a static tensor type, not {}", type.to_string()));
  }
  scan_.set_position(begin);
  Result<HostArray> elements = parse_elements(type, begin, end);
  if (!elements.ok()) {
    const std::string& message = elements.status().message();
    if (message.starts_with("text ")) return elements.status();
    return scan_.error_at(begin, without_origin(message));
  }
  scan_.set_position(back);
  return list_or_dense(ir::make_dense(type, *std::move(elements)), keep_dense, begin);
}

Result<ir::Attribute> Parser::list_or_dense(ir::Attribute dense, bool keep_dense, size_t position) {
  const ir::Type& type = dense.get<ir::DenseValue>()->type;
  const bool is_list = type.rank() == 1 && !type.is_index() && type.quantization() == nullptr &&
                       (type.dtype() == DType::kI64 || type.dtype() == DType::kI1) &&
                       type.dims()[0] <= 1 << 16;
  if (keep_dense || !is_list) return dense;
  HEKLA_RETURN_IF_ERROR(
      spend_bytes(type.dims()[0] * static_cast<int64_t>(sizeof(int64_t)), position));
  HEKLA_ASSIGN_OR_RETURN(HostArray values, dense.get<ir::DenseValue>()->expand());
  ir::IntArrayValue list{type.dtype(), {}};
  for (int64_t i = 0; i < values.size(); ++i) {
    list.values.push_back(type.dtype() == DType::kI64
                              ? values.as<int64_t>()[i]
                              : static_cast<int64_t>(values.as<uint8_t>()[i]));
  }
  return ir::Attribute(std::move(list));
}

Result<ir::Attribute> Parser::parse_dense_resource(bool keep_dense) {
  scan_.peek();
  const size_t start = scan_.position();
  HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
  std::string key;
  if (scan_.peek() == '"') {
    HEKLA_ASSIGN_OR_RETURN(key, scan_.string());
  } else {
    key = std::string(scan_.suffix_name());
  }
  HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
  HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
  HEKLA_ASSIGN_OR_RETURN(ir::Type type, parse_type());
  auto it = resources_.find(key);
  if (it == resources_.end()) {
    return scan_.error_at(start, fmt::format("there is no resource named {}", key));
  }
  const Result<std::string> bytes = from_hex(it->second);
  // The first four bytes are the alignment.
  if (!bytes.ok() || bytes->size() < 4) {
    return scan_.error_at(start, fmt::format("the data of the resource {} is no text \"0x\", four "
                                             "bytes of alignment, elements, all hexadecimal",
                                             key));
  }
  Result<HostArray> elements = tensor_elements(type, std::string_view(*bytes).substr(4));
  if (!elements.ok()) return scan_.error_at(start, without_origin(elements.status().message()));
  return list_or_dense(ir::make_dense(type, *std::move(elements)), keep_dense, start);
}

Result<HostArray> Parser::hex_elements(const ir::Type& type, std::string_view digits) {
  HEKLA_ASSIGN_OR_RETURN(std::string bytes, from_hex(digits));
  return tensor_elements(type, bytes);
}

Result<HostArray> Parser::parse_elements(const ir::Type& type, size_t begin, size_t end) {
  HEKLA_ASSIGN_OR_RETURN(int64_t bytes, checked_bytes(type.dtype(), type.dims()));
  const bool is_empty = std::find(type.dims().begin(), type.dims().end(), 0) != type.dims().end();
  if (scan_.peek() == '"') {
    HEKLA_ASSIGN_OR_RETURN(std::string digits, scan_.string());
    return hex_elements(type, digits);
  }
  if (is_empty) {
    // Nothing, or brackets around nothing.
    const std::string_view text = scan_.text().substr(begin, end - begin);
    const size_t stray = text.find_first_not_of("[], \n\t\r");
    if (stray != std::string_view::npos) {
      return scan_.error_at(begin + stray, fmt::format("{} has no elements", type.to_string()));
    }
    return HostArray(type.dtype(), type.dims());
  }
  if (scan_.peek() != '[') {
    HostArray splat(type.dtype(), {});
    HEKLA_RETURN_IF_ERROR(parse_element(type.dtype(), splat.mutable_data()));
    scan_.peek();
    if (scan_.position() != end) return scan_.error("the end of the elements");
    return splat;
  }
  constexpr int64_t kMaxListedRank = 100;  // the parser recurses; the hexadecimal form has no limit
  if (type.rank() > kMaxListedRank) {
    return invalid_argument("lists of elements nest at most {} deep", kMaxListedRank);
  }
  // Every element takes a character: what cannot be there need not be allocated.
  if (bytes / dtype_bytes(type.dtype()) > static_cast<int64_t>(end - begin)) {
    return invalid_argument("{} has more elements than are written", type.to_string());
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray array, HostArray::allocate(type.dtype(), type.dims()));
  std::byte* out = array.mutable_data();
  HEKLA_RETURN_IF_ERROR(parse_nested(type, 0, out, out + array.size_bytes()));
  scan_.peek();
  if (scan_.position() != end) return scan_.error("the end of the elements");
  return array;
}

Status Parser::parse_nested(const ir::Type& type, size_t dim, std::byte*& out, std::byte* end) {
  if (dim == type.dims().size()) {
    if (out >= end) return scan_.error("fewer elements");
    HEKLA_RETURN_IF_ERROR(parse_element(type.dtype(), out));
    out += dtype_bytes(type.dtype());
    return ok_status();
  }
  HEKLA_RETURN_IF_ERROR(scan_.expect('['));
  for (int64_t i = 0; i < type.dims()[dim]; ++i) {
    if (i > 0) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    HEKLA_RETURN_IF_ERROR(parse_nested(type, dim + 1, out, end));
  }
  return scan_.expect(']');
}

Status Parser::parse_element(DType dtype, std::byte* out) {
  if (is_complex(dtype)) {
    const DType part = complex_part(dtype);
    HEKLA_RETURN_IF_ERROR(scan_.expect('('));
    HEKLA_RETURN_IF_ERROR(parse_element(part, out));
    HEKLA_RETURN_IF_ERROR(scan_.expect(','));
    HEKLA_RETURN_IF_ERROR(parse_element(part, out + dtype_bytes(part)));
    return scan_.expect(')');
  }
  HEKLA_ASSIGN_OR_RETURN(uint64_t bits, parse_scalar_bits(dtype));
  std::memcpy(out, &bits, static_cast<size_t>(dtype_bytes(dtype)));
  return ok_status();
}

// The storage of one element: floats as bit patterns, integers extended to their byte.
Result<uint64_t> Parser::parse_scalar_bits(DType dtype) {
  if (scan_.accept_word("true")) {
    if (dtype != DType::kI1) return scan_.error("a number before this");
    return uint64_t{1};
  }
  if (scan_.accept_word("false")) {
    if (dtype != DType::kI1) return scan_.error("a number before this");
    return uint64_t{0};
  }
  scan_.peek();
  const size_t start = scan_.position();
  const std::string_view text = scan_.number();
  if (text.empty()) return scan_.error("an element");
  const std::string_view unsigned_text = text.substr(text.front() == '-' || text.front() == '+');
  const bool is_negative = text.front() == '-';
  const bool is_hex = unsigned_text.starts_with("0x") || unsigned_text.starts_with("0X");
  const auto fail = [&](std::string_view why) {
    return scan_.error_at(start, fmt::format("{} {} {}", text, why, dtype_name(dtype)));
  };
  uint64_t magnitude = 0;
  const auto read_integer = [&](std::string_view digits, int base) {
    const auto [end, code] =
        std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base);
    return code == std::errc() && end == digits.data() + digits.size();
  };
  const int bits = dtype_bits(dtype);
  if (is_float(dtype)) {
    if (is_hex) {
      if (!read_integer(unsigned_text.substr(2), 16) ||
          (bits < 64 && dtype != DType::kTF32 && magnitude >> bits != 0) || is_negative) {
        return fail("is no bit pattern of");
      }
      return magnitude;
    }
    const char* begin = unsigned_text.data();
    const char* end = begin + unsigned_text.size();
    if (dtype == DType::kF32) {
      float value = 0;
      const auto [stop, code] = std::from_chars(begin, end, value);
      if (code != std::errc() && code != std::errc::result_out_of_range) return fail("is no");
      // Too large or too small for the type: through f64, which rounds to infinity or zero.
      if (code == std::errc() && stop == end) {
        return float_to_bits(dtype, is_negative ? -value : value);
      }
    }
    double value = 0;
    const auto [stop, code] = std::from_chars(begin, end, value);
    if (code == std::errc::result_out_of_range) return fail("is outside of the range of");
    if (code != std::errc() || stop != end) return fail("is no");
    return float_to_bits(dtype, is_negative ? -value : value);
  }
  if (!read_integer(is_hex ? unsigned_text.substr(2) : unsigned_text, is_hex ? 16 : 10)) {
    return fail("is no");
  }
  if (dtype == DType::kI1) {
    if (magnitude > 1) return fail("is no");
    return magnitude;
  }
  const uint64_t top = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  if (is_negative ? is_unsigned_integer(dtype) || magnitude > uint64_t{1} << (bits - 1)
                  : magnitude > top) {
    return fail("does not fit into");
  }
  uint64_t value = is_negative ? ~magnitude + 1 : magnitude;
  if (bits < 64) {
    value &= top;
    // Narrow signed integers are extended to their byte.
    if (is_signed_integer(dtype) && (value >> (bits - 1) & 1) != 0) value |= ~top;
  }
  return value;
}

}  // namespace hekla::stablehlo
