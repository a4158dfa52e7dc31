// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/matrix_elements.h"

#include <functional>
#include <map>

#include "backends/compiler/kernel/math/element.h"
#include "backends/compiler/kernel/math/emulate.h"
#include "backends/vulkan/codegen/lower.h"

namespace hekla::vulkan::codegen {
namespace {

using kernel::Op;
using kernel::ScalarType;
using kernel::Value;
using Values = std::vector<Value>;

constexpr int64_t kMagnitude = 0x7fffffff;
constexpr int64_t kInfinity = 0x7f800000;
constexpr int64_t kUpperHalf = 0xffff0000;
// From here on numbers are rounded to an infinite bf16.
constexpr int64_t kLeastLarge = 0x7f7f8000;

// What scalar code makes of words; conversions of f16 as in kernels (generate.cc).
std::vector<Bits> computed(const std::vector<Bits>& from,
                           const std::function<Values(kernel::Builder&, const Values&)>& code) {
  Module& m = from[0].module();
  kernel::Builder scalar(static_cast<int>(from.size()), ScalarType::kI32);
  Values arguments;
  for (size_t i = 0; i < from.size(); ++i) {
    arguments.push_back(scalar.grid_index(static_cast<int>(i)));
  }
  const Values results = code(scalar, arguments);
  for (const Value result : results) scalar.store({0, 4, false}, scalar.index(0), result);
  kernel::Kernel whole;
  whole.grid.assign(from.size(), 1);
  whole.operands = {{4, false, true, false}};
  whole.body = scalar.finish();
  const kernel::Function function =
      kernel::emulate(whole, {.f16 = true, .i64 = false, .f64 = false}).value().body;
  std::map<Value, spv::Id> ids;
  for (size_t i = 0; i < from.size(); ++i) ids[function.body().parameters[i]] = from[i].id();
  const auto id = [&](Value v) {
    const auto known = ids.find(v);
    return known != ids.end() ? known->second : m.constant(function.type(v), function[v].immediate);
  };
  std::vector<Bits> made;
  for (const Value v : function.body().instructions) {
    const kernel::Instruction& inst = function[v];
    if (inst.op == Op::kStore) {
      made.emplace_back(&m, 32, id(inst.arguments[1]));
      continue;
    }
    std::vector<spv::Id> operands;
    for (const Value a : inst.arguments) operands.push_back(id(a));
    const ScalarType type = function.type(inst.arguments[inst.op == Op::kSelect ? 1 : 0]);
    ids[v] = lower(m, inst.op, inst.type, type, operands);
  }
  return made;
}

Value word(kernel::Builder& b, int64_t value) { return b.integer(ScalarType::kI32, value); }

Value number_of(kernel::Builder& b, Value bits) {
  return b.convert(Op::kBitcast, ScalarType::kF32, bits);
}

Value is_finite(kernel::Builder& b, Value bits) {
  return b.binary(Op::kLtU, b.bit_and(bits, word(b, kMagnitude)), word(b, kInfinity));
}

}  // namespace

Bits rounded(Bits number, DType type) {
  return computed({number}, [&](kernel::Builder& b, const Values& bits) {
    const kernel::Element element =
        kernel::convert_element(b, {number_of(b, bits[0]), kernel::kNoValue}, DType::kF32, type);
    return Values{kernel::element_bits(b, type, element)};
  })[0];
}

Values pieces_of(kernel::Builder& b, Value bits, DType type, uint32_t count) {
  Values pieces;
  Value rest = number_of(b, bits);
  for (uint32_t p = 0; p < count; ++p) {
    Value piece = kernel::round_to_dtype(b, type, rest);
    if (p == 0 && type == DType::kBF16) {
      const Value magnitude = b.bit_and(bits, word(b, kMagnitude));
      const Value is_large = b.binary(Op::kLeU, word(b, kLeastLarge), magnitude);
      const Value cut_off = number_of(b, b.bit_and(bits, word(b, kUpperHalf)));
      piece = b.select(b.bit_and(is_large, is_finite(b, bits)), cut_off, piece);
    }
    pieces.push_back(kernel::element_bits(b, type, {piece, kernel::kNoValue}));
    if (p + 1 == count) break;
    rest = b.sub(rest, piece);
    if (p > 0) continue;
    const Value is_number = is_finite(b, b.convert(Op::kBitcast, ScalarType::kI32, piece));
    rest = b.select(is_number, rest, b.real(ScalarType::kF32, 0));
  }
  return pieces;
}

std::vector<Bits> pieces_of(Bits number, DType type, uint32_t count) {
  return computed({number}, [&](kernel::Builder& b, const Values& bits) {
    return pieces_of(b, bits[0], type, count);
  });
}

Value whole_sum(kernel::Builder& b, Value first, Value rest) {
  const Value sum = b.add(number_of(b, first), number_of(b, rest));
  return b.select(is_finite(b, first), b.convert(Op::kBitcast, ScalarType::kI32, sum), first);
}

Bits whole_sum(Bits first, Bits rest) {
  return computed({first, rest}, [](kernel::Builder& b, const Values& bits) {
    return Values{whole_sum(b, bits[0], bits[1])};
  })[0];
}

}  // namespace hekla::vulkan::codegen
