// SPDX-License-Identifier: Apache-2.0
// Types.
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <utility>

#include "runtime/program/stablehlo/text/parser.h"

namespace hekla::stablehlo {

bool Parser::at_type() {
  const char c = scan_.peek();
  if (c == '!' || c == '(') return true;
  Scanner ahead = scan_;
  const std::string_view word = ahead.word();
  return word == "tensor" || word == "memref" || word == "tuple" || word == "complex" ||
         word == "index" || word == "none" || dtype_from_name(word).has_value();
}

Result<ir::Type> Parser::parse_type(int depth) {
  if (depth > kMaxTextDepth) return scan_.error_at(scan_.position(), "types nest too deep");
  deepest_ = std::max(deepest_, depth);
  HEKLA_RETURN_IF_ERROR(spend_parts(1));
  const char c = scan_.peek();
  if (c == '(') return parse_function_type(depth);
  if (c == '!') {
    const size_t start = scan_.position();
    scan_.set_position(start + 1);
    const std::string name = "!" + std::string(scan_.suffix_name());
    if (auto alias = aliases_.find(name); alias != aliases_.end()) {
      if (auto it = type_aliases_.find(name); it != type_aliases_.end()) {
        const TypeAlias& known = it->second;
        if (depth + known.height > kMaxTextDepth) {
          return scan_.error_at(start, "types nest too deep");
        }
        deepest_ = std::max(deepest_, depth + known.height);
        HEKLA_RETURN_IF_ERROR(spend_parts(known.parts));
        return known.type;
      }
      // A cycle ends at the limit of the nesting.
      const size_t back = scan_.position();
      const int64_t parts_before = parts_;
      const int deepest_before = std::exchange(deepest_, depth);
      scan_.set_position(alias->second);
      HEKLA_ASSIGN_OR_RETURN(ir::Type type, parse_type(depth + 1));
      scan_.set_position(back);
      type_aliases_[name] = {type, parts_ - parts_before, deepest_ - depth};
      deepest_ = std::max(deepest_, deepest_before);
      return type;
    }
    if (name == "!stablehlo.token") return ir::Type::token();
    if (name == "!shape.witness") return ir::Type::witness();
    if (name == "!stablehlo.future") {
      HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
      Types parts;
      if (scan_.peek() != '>') {
        HEKLA_ASSIGN_OR_RETURN(parts, parse_type_list(depth + 1));
      }
      HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
      return ir::Type::future(std::move(parts));
    }
    if (name == "!quant.uniform") return parse_quantized_type(depth);
    if (scan_.raw() == '<') HEKLA_RETURN_IF_ERROR(scan_.balanced().status());
    return ir::Type::opaque(std::string(scan_.text().substr(start, scan_.position() - start)));
  }
  if (scan_.accept_word("tensor")) return parse_shaped_type(false, depth);
  if (scan_.accept_word("memref")) return parse_shaped_type(true, depth);
  if (scan_.accept_word("none")) return ir::Type();
  if (scan_.accept_word("tuple")) {
    HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
    Types parts;
    if (scan_.peek() != '>') {
      HEKLA_ASSIGN_OR_RETURN(parts, parse_type_list(depth + 1));
    }
    HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
    return ir::Type::tuple(std::move(parts));
  }
  return parse_scalar_type(depth);
}

Result<ir::Type> Parser::parse_scalar_type(int depth) {
  if (depth > kMaxTextDepth) return scan_.error_at(scan_.position(), "types nest too deep");
  if (scan_.peek() == '!') return parse_type(depth + 1);
  Scanner before = scan_;
  if (scan_.accept_word("complex")) {
    HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
    HEKLA_ASSIGN_OR_RETURN(ir::Type part, parse_scalar_type(depth + 1));
    HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
    const bool is_plain = part == ir::Type::scalar(part.dtype());
    const DType dtype = is_plain ? complex_of(part.dtype()) : DType::kInvalid;
    if (dtype == DType::kInvalid) return before.error("complex<f32> or complex<f64>");
    return ir::Type::scalar(dtype);
  }
  const std::string_view word = scan_.word();
  if (word == "index") return ir::Type::index();
  // Signed integers may be spelled out; StableHLO's signless ones mean the same.
  const std::string_view bare = word.starts_with("si") ? word.substr(1) : word;
  if (std::optional<DType> dtype = dtype_from_name(bare)) return ir::Type::scalar(*dtype);
  scan_ = before;
  return scan_.error("a type");
}

// Behind "tensor" or "memref". Dimensions run into the element type: "<2x?x4xf32>".
Result<ir::Type> Parser::parse_shaped_type(bool is_memref, int depth) {
  HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
  if (scan_.accept("*x")) {
    HEKLA_ASSIGN_OR_RETURN(ir::Type element, parse_scalar_type(depth + 1));
    if (!element.is_scalar() || is_memref) return scan_.error("an element type before this");
    HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
    return ir::Type::unranked_tensor(element);
  }
  Dims dims;
  while (true) {
    const char c = scan_.peek();
    if (c == '?') {
      scan_.accept('?');
      dims.push_back(ir::kDynamic);
    } else if (c >= '0' && c <= '9') {
      const std::string_view rest = scan_.text().substr(scan_.position());
      int64_t dim = 0;
      const auto [end, code] = std::from_chars(rest.data(), rest.data() + rest.size(), dim);
      if (code != std::errc()) return scan_.error("a dimension of 64 bits");
      scan_.set_position(scan_.position() + static_cast<size_t>(end - rest.data()));
      dims.push_back(dim);
    } else {
      break;
    }
    if (scan_.raw() != 'x') return scan_.error("'x'");
    scan_.set_position(scan_.position() + 1);
  }
  HEKLA_ASSIGN_OR_RETURN(ir::Type element, parse_scalar_type(depth + 1));
  if (!element.is_scalar()) return scan_.error("an element type before this");
  Dims bounds;
  if (!is_memref && scan_.accept(',')) {
    HEKLA_RETURN_IF_ERROR(scan_.expect("#stablehlo.bounds<"));
    while (!scan_.accept('>')) {
      if (!bounds.empty()) HEKLA_RETURN_IF_ERROR(scan_.expect(','));
      if (scan_.accept('?')) {
        bounds.push_back(ir::kDynamic);
      } else {
        HEKLA_ASSIGN_OR_RETURN(int64_t bound, scan_.integer());
        bounds.push_back(bound);
      }
    }
    if (bounds.size() != dims.size()) return scan_.error("one bound for each dimension");
  }
  HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
  if (is_memref) return ir::Type::buffer(element, std::move(dims));
  return ir::Type::tensor(element, std::move(dims), std::move(bounds));
}

// Behind "!quant.uniform".
Result<ir::Type> Parser::parse_quantized_type(int depth) {
  ir::Quantization q;
  HEKLA_RETURN_IF_ERROR(scan_.expect('<'));
  scan_.peek();
  const size_t start = scan_.position();
  std::string storage(scan_.word());
  if (storage.starts_with('u') && !storage.starts_with("ui")) storage = "ui" + storage.substr(1);
  const std::optional<DType> dtype = dtype_from_name(storage);
  if (!dtype.has_value() || !is_integer(*dtype)) {
    return scan_.error_at(start, fmt::format("'{}' is no integer storage type", storage));
  }
  q.storage = *dtype;
  const int bits = dtype_bits(q.storage);
  constexpr int kMaxStorageBits = 32;
  if (bits > kMaxStorageBits) {
    return scan_.error_at(start,
                          fmt::format("a storage type has at most {} bits", kMaxStorageBits));
  }
  const bool is_signed = is_signed_integer(q.storage);
  q.storage_min = is_signed ? -(int64_t{1} << (bits - 1)) : 0;
  q.storage_max = (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
  if (scan_.accept('<')) {
    HEKLA_ASSIGN_OR_RETURN(q.storage_min, scan_.integer());
    HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
    HEKLA_ASSIGN_OR_RETURN(q.storage_max, scan_.integer());
    HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
  }
  HEKLA_RETURN_IF_ERROR(scan_.expect(':'));
  HEKLA_ASSIGN_OR_RETURN(ir::Type expressed, parse_scalar_type(depth + 1));
  q.expressed = expressed.dtype();
  if (!is_float(q.expressed)) return scan_.error("a float type before this");
  if (scan_.accept(':')) {
    HEKLA_ASSIGN_OR_RETURN(q.axis, scan_.integer());
    if (q.axis < 0) return scan_.error("a dimension before this");
  }
  HEKLA_RETURN_IF_ERROR(scan_.expect(','));
  // One scale for each index of an axis, one for a tensor without.
  const bool is_list = q.axis >= 0;
  if (is_list) HEKLA_RETURN_IF_ERROR(scan_.expect('{'));
  do {
    scan_.peek();
    const size_t scale_start = scan_.position();
    HEKLA_ASSIGN_OR_RETURN(uint64_t scale_bits, parse_scalar_bits(DType::kF64));
    const double scale = std::bit_cast<double>(scale_bits);
    if (!std::isfinite(scale)) return scan_.error_at(scale_start, "a scale is finite");
    int64_t zero_point = 0;
    if (scan_.accept(':')) {
      HEKLA_ASSIGN_OR_RETURN(zero_point, scan_.integer());
    }
    q.scales.push_back(scale);
    q.zero_points.push_back(zero_point);
  } while (is_list && scan_.accept(','));
  if (is_list) HEKLA_RETURN_IF_ERROR(scan_.expect('}'));
  HEKLA_RETURN_IF_ERROR(scan_.expect('>'));
  return ir::Type::quantized(std::move(q));
}

Result<ir::Type> Parser::parse_function_type(int depth) {
  HEKLA_RETURN_IF_ERROR(scan_.expect('('));
  Types inputs;
  if (scan_.peek() != ')') {
    HEKLA_ASSIGN_OR_RETURN(inputs, parse_type_list(depth + 1));
  }
  HEKLA_RETURN_IF_ERROR(scan_.expect(')'));
  HEKLA_RETURN_IF_ERROR(scan_.expect("->"));
  HEKLA_ASSIGN_OR_RETURN(Types results, parse_result_types(depth + 1));
  return ir::Type::function(std::move(inputs), std::move(results));
}

Result<Parser::Types> Parser::parse_type_list(int depth) {
  Types types;
  do {
    HEKLA_ASSIGN_OR_RETURN(ir::Type type, parse_type(depth));
    types.push_back(std::move(type));
  } while (scan_.accept(','));
  return types;
}

Result<Parser::Types> Parser::parse_result_types(int depth) {
  if (!scan_.accept('(')) {
    HEKLA_ASSIGN_OR_RETURN(ir::Type type, parse_type(depth));
    return Types{std::move(type)};
  }
  Types types;
  if (scan_.peek() != ')') {
    HEKLA_ASSIGN_OR_RETURN(types, parse_type_list(depth));
  }
  HEKLA_RETURN_IF_ERROR(scan_.expect(')'));
  return types;
}

}  // namespace hekla::stablehlo
