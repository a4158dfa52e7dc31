// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel_math/kernel_runner.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <random>

namespace hekla::kernel {
namespace {

uint64_t bits_at(const HostArray& array, DType part, int64_t i) {
  uint64_t bits = 0;
  std::memcpy(&bits, array.data() + i * dtype_bytes(part), static_cast<size_t>(dtype_bytes(part)));
  return bits;
}

// A bit pattern in memory form.
uint64_t memory_form(DType dtype, uint64_t bits) {
  const int width = dtype_bits(dtype);
  if (dtype == DType::kTF32) return bits & 0xffffe000;
  if (is_signed_integer(dtype) && width < 8) {
    return static_cast<uint8_t>(static_cast<int8_t>(static_cast<uint8_t>(bits << (8 - width))) >>
                                (8 - width));
  }
  return bits;
}

std::vector<uint64_t> edges(DType dtype) {
  std::vector<uint64_t> patterns;
  if (is_float(dtype)) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    const FloatFormat f = float_format(dtype);
    const int top = 1 << (f.exponent_bits - 1);
    for (double v : {0.0,
                     0.25,
                     0.5,
                     0.75,
                     1.0,
                     1.5,
                     2.0,
                     2.5,
                     3.0,
                     7.0,
                     127.0,
                     128.0,
                     255.5,
                     256.0,
                     32767.0,
                     65535.0,
                     2147483520.0,
                     2147483647.0,
                     2147483648.0,
                     4294967295.0,
                     4294967296.0,
                     9223372036854774784.0,
                     9223372036854775808.0,
                     18446744073709549568.0,
                     18446744073709551616.0,
                     1e-3,
                     1e10,
                     1e30,
                     kInf,
                     std::nan(""),
                     std::ldexp(1.0, 1 - f.bias),
                     std::ldexp(1.0, -f.bias),
                     std::ldexp(1.0, 1 - f.bias - f.mantissa_bits),
                     std::ldexp(1.75, top - 1),
                     std::ldexp(1.5, 1 - f.bias)}) {
      patterns.push_back(float_to_bits(dtype, v));
      patterns.push_back(float_to_bits(dtype, -v));
    }
    return patterns;
  }
  const int width = dtype_bits(dtype);
  for (int i = -9; i <= 9; ++i) patterns.push_back(static_cast<uint64_t>(i));
  for (int k : {width / 4, width / 2, width - 2, width - 1, width}) {
    for (int d = -1; d <= 1; ++d) {
      patterns.push_back((k < 64 ? uint64_t{1} << k : 0) + static_cast<uint64_t>(d));
      patterns.push_back(0 - ((k < 64 ? uint64_t{1} << k : 0) + static_cast<uint64_t>(d)));
    }
  }
  for (int k : {width - 1, width, width + 1, 31, 32, 33, 63, 64, 65}) {
    patterns.push_back(static_cast<uint64_t>(k));
  }
  return patterns;
}

uint64_t random_pattern(DType dtype, std::mt19937_64& random) {
  const uint64_t bits = random();
  // Half of the floats have moderate exponents, half of the integers are small.
  if ((bits >> 63) != 0) return random();
  if (is_float(dtype)) {
    std::uniform_real_distribution<double> exponent(-20, 20);
    const double v = std::exp2(exponent(random));
    return float_to_bits(dtype, (bits & 1) != 0 ? -v : v);
  }
  const int shift = static_cast<int>(bits % 60);
  const uint64_t magnitude = random() >> shift;
  return (bits & (1 << 20)) != 0 ? 0 - magnitude : magnitude;
}

HostArray array_of_patterns(DType dtype, const std::vector<uint64_t>& patterns) {
  const DType part = complex_part(dtype);
  const int64_t size = static_cast<int64_t>(patterns.size());
  HostArray array(dtype, {part == dtype ? size : size / 2});
  std::byte* out = array.mutable_data();
  const auto bytes = static_cast<size_t>(dtype_bytes(part));
  for (size_t i = 0; i < patterns.size(); ++i) {
    uint64_t bits = memory_form(part, patterns[i]);
    if (dtype_bits(part) < 8 && !is_signed_integer(part)) {
      bits &= (uint64_t{1} << dtype_bits(part)) - 1;
    }
    std::memcpy(out + i * bytes, &bits, bytes);
  }
  return array;
}

}  // namespace

std::optional<Kernel> make_kernel(DType result, const std::vector<HostArray>& operands,
                                  const Expansion& expand, ScalarType index_type) {
  Builder b(1, index_type);
  Kernel kernel;
  kernel.name = "expansion";
  kernel.grid = {operands[0].size()};
  kernel.index_type = index_type;
  std::vector<Element> elements;
  for (const HostArray& operand : operands) {
    const auto number = static_cast<int32_t>(kernel.operands.size());
    elements.push_back(load_element(b, operand.dtype(), number, b.grid_index(0)));
    kernel.operands.push_back({operand.size_bytes(), true, false});
  }
  const std::optional<Element> element = expand(b, elements);
  if (!element) return std::nullopt;
  const auto number = static_cast<int32_t>(kernel.operands.size());
  store_element(b, result, number, b.grid_index(0), *element);
  kernel.operands.push_back({operands[0].size() * dtype_bytes(result), false, true});
  kernel.body = b.finish();
  return kernel;
}

std::optional<HostArray> run_expansion(DType result, const std::vector<HostArray>& operands,
                                       const Expansion& expand, Fma fma, ScalarType index_type) {
  const std::optional<Kernel> kernel = make_kernel(result, operands, expand, index_type);
  if (!kernel) return std::nullopt;
  std::vector<std::span<std::byte>> buffers;
  std::vector<HostArray> copies = operands;
  for (HostArray& operand : copies) {
    buffers.emplace_back(operand.mutable_data(), static_cast<size_t>(operand.size_bytes()));
  }
  HostArray out(result, operands[0].dims());
  buffers.emplace_back(out.mutable_data(), static_cast<size_t>(out.size_bytes()));
  Status status = verify(kernel->body);
  if (status.ok()) status = interpret(*kernel, buffers, fma);
  if (!status.ok()) die_of_bad_result(status);
  return out;
}

HostArray interesting_values(DType dtype, int64_t random_count) {
  std::vector<uint64_t> patterns;
  if (dtype_bits(dtype) <= 16) {
    for (uint64_t i = 0; i < uint64_t{1} << dtype_bits(dtype); ++i) patterns.push_back(i);
    return array_of_patterns(dtype, patterns);
  }
  if (is_complex(dtype)) return interesting_pairs(dtype, random_count).first;
  patterns = edges(dtype);
  std::mt19937_64 random(1);
  for (int64_t i = 0; i < random_count; ++i) patterns.push_back(random_pattern(dtype, random));
  return array_of_patterns(dtype, patterns);
}

std::pair<HostArray, HostArray> interesting_pairs(DType dtype, int64_t random_count) {
  std::vector<uint64_t> first, second;
  std::mt19937_64 random(2);
  if (is_complex(dtype)) {
    const DType part = complex_part(dtype);
    for (int64_t i = 0; i < 2 * random_count; ++i) {
      first.push_back(random_pattern(part, random));
      second.push_back(random_pattern(part, random));
    }
    return {array_of_patterns(dtype, first), array_of_patterns(dtype, second)};
  }
  std::vector<uint64_t> chosen;
  if (dtype_bits(dtype) <= 8) {
    for (uint64_t i = 0; i < uint64_t{1} << dtype_bits(dtype); ++i) chosen.push_back(i);
    random_count = 0;
  } else {
    chosen = edges(dtype);
  }
  for (uint64_t a : chosen) {
    for (uint64_t b : chosen) {
      first.push_back(a);
      second.push_back(b);
    }
  }
  for (int64_t i = 0; i < random_count; ++i) {
    first.push_back(random_pattern(dtype, random));
    second.push_back(random_pattern(dtype, random));
  }
  return {array_of_patterns(dtype, first), array_of_patterns(dtype, second)};
}

int for_each_function(const std::function<void(const FunctionCase&)>& check) {
  using ir::OpCode;
  constexpr OpCode kUnary[] = {OpCode::kExponential,
                               OpCode::kExponentialMinusOne,
                               OpCode::kLog,
                               OpCode::kLogPlusOne,
                               OpCode::kTanh,
                               OpCode::kLogistic,
                               OpCode::kSqrt,
                               OpCode::kRsqrt,
                               OpCode::kCbrt,
                               OpCode::kSine,
                               OpCode::kTan,
                               OpCode::kRoundNearestAfz,
                               OpCode::kSign,
                               OpCode::kPopcnt,
                               OpCode::kCountLeadingZeros};
  constexpr OpCode kBinary[] = {OpCode::kPower,    OpCode::kAtan2,   OpCode::kRemainder,
                                OpCode::kDivide,   OpCode::kMaximum, OpCode::kShiftLeft,
                                OpCode::kMultiply, OpCode::kMinimum};
  int count = 0;
  for (const DType dtype : {DType::kI8, DType::kUI16, DType::kI32, DType::kUI64, DType::kF8E4M3FN,
                            DType::kBF16, DType::kF16, DType::kF32, DType::kF64, DType::kC64}) {
    const auto [x, y] = interesting_pairs(dtype, 2000);
    const auto add = [&](OpCode code, const std::vector<HostArray>& operands) {
      const Expansion expand = [code, dtype = dtype](Builder& b, const std::vector<Element>& e) {
        return e.size() == 1 ? unary(b, code, dtype, e[0]) : binary(b, code, dtype, e[0], e[1]);
      };
      const std::optional<Kernel> kernel = make_kernel(dtype, operands, expand);
      if (!kernel) return;
      ++count;
      check({fmt::format("{} {}", ir::op_name(code), dtype_name(dtype)), dtype, operands, expand,
             *kernel});
    };
    for (const OpCode code : kUnary) add(code, {x});
    for (const OpCode code : kBinary) add(code, {x, y});
  }
  return count;
}

std::string differences(const HostArray& ours, const HostArray& wanted,
                        const std::vector<HostArray>& inputs) {
  std::string text;
  int64_t count = 0;
  const DType part = complex_part(ours.dtype());
  const int64_t parts = is_complex(ours.dtype()) ? 2 : 1;
  for (int64_t i = 0; i < ours.size() * parts; ++i) {
    const uint64_t a = bits_at(ours, part, i);
    const uint64_t b = bits_at(wanted, part, i);
    if (a == b) continue;
    if (is_float(part) && std::isnan(float_from_bits(part, a)) &&
        std::isnan(float_from_bits(part, b))) {
      continue;
    }
    if (++count > 5) continue;
    text += fmt::format("  [{}] ours {:#x} wanted {:#x} for", i / parts, a, b);
    for (const HostArray& input : inputs) {
      const DType input_part = complex_part(input.dtype());
      const int64_t k = is_complex(input.dtype()) ? 2 : 1;
      for (int64_t j = 0; j < k; ++j) {
        const uint64_t bits = bits_at(input, input_part, i / parts * k + j);
        text += fmt::format(" {:#x}", bits);
        if (is_float(input_part)) text += fmt::format("={}", float_from_bits(input_part, bits));
      }
    }
    text += "\n";
  }
  if (count == 0) return "";
  return fmt::format("{} of {} differ\n{}", count, ours.size(), text);
}

}  // namespace hekla::kernel
