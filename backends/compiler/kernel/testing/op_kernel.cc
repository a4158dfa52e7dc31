// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/testing/random_kernel.h"
#include "backends/compiler/kernel/testing/random_parts.h"

namespace hekla::kernel::testing {
namespace {

using enum ScalarType;

int argument_count(Op op) {
  constexpr int kCounts[] = {
#define HEKLA_SCALAR_OP_ARITY(op, name, arity) arity,
      HEKLA_SCALAR_OPS(HEKLA_SCALAR_OP_ARITY)
#undef HEKLA_SCALAR_OP_ARITY
  };
  return kCounts[static_cast<size_t>(op)];
}

template <typename F, typename U>
void add_float_edges(std::vector<uint64_t>* values) {
  constexpr int kMantissa = std::numeric_limits<F>::digits - 1;
  constexpr U kInfinity = std::bit_cast<U>(std::numeric_limits<F>::infinity());
  constexpr U kSign = U{1} << (sizeof(U) * 8 - 1);
  std::vector<U> magnitudes = {0,
                               1,                                    // the smallest denormal
                               (U{1} << kMantissa) - 1,              // the largest denormal
                               U{1} << (kMantissa - 1),              // a denormal power of two
                               U{0x15555},                           // any denormal
                               U{1} << kMantissa,                    // the smallest normal
                               (U{1} << kMantissa) + 1,              //
                               kInfinity - 1,                        // the largest number
                               kInfinity - (U{1} << kMantissa),      //
                               kInfinity,                            //
                               kInfinity | U{1} << (kMantissa - 1),  // a quiet NaN
                               kInfinity | U{1} << (kMantissa - 1) | 0x123};
  for (double v : {0.1,
                   0.25,
                   0.3,
                   0.49999999,
                   0.5,
                   0.75,
                   0.9999999,
                   1.0,
                   1.0000001,
                   1.5,
                   2.0,
                   2.5,
                   3.0,
                   3.5,
                   7.0,
                   10.0,
                   255.5,
                   32767.5,
                   65536.0,
                   8388607.5,
                   8388608.0,
                   8388609.0,
                   16777215.0,
                   16777216.0,
                   16777218.0,
                   2147483520.0,
                   2147483647.0,
                   2147483648.0,
                   4294967040.0,
                   4294967295.0,
                   4294967296.0,
                   4503599627370495.5,
                   4503599627370496.0,
                   9007199254740993.0,
                   9.2233720368547748e18,
                   9.2233720368547758e18,
                   1.8446744073709550e19,
                   1.8446744073709552e19,
                   1e-30,
                   1e-38,
                   3e-39,
                   1e-45,
                   1e30,
                   1e38,
                   3.4028235e38,
                   3.4028236e38,
                   1e300,
                   1e-300}) {
    magnitudes.push_back(std::bit_cast<U>(static_cast<F>(v)));
  }
  for (U m : magnitudes) {
    values->push_back(m);
    values->push_back(m | kSign);
  }
}

// `v` when it is inside the domain of the op, another value when it is not.
Value domain(Builder& b, const OpCase& c, size_t argument, Value v) {
  const ScalarType t = c.from;
  switch (c.op) {
    case Op::kDivS:
    case Op::kDivU:
    case Op::kRemS:
    case Op::kRemU:
      return argument == 1 ? safe_divisor(b, v) : v;
    case Op::kShl:
    case Op::kShrU:
    case Op::kShrS:
      return argument == 1 ? b.bit_and(v, b.integer(t, bit_width(t) - 1)) : v;
    case Op::kFloatToSInt:
    case Op::kFloatToUInt:
      return fitting(b, c.op, c.type, v);
    default:
      return v;
  }
}

Value apply(Builder& b, const OpCase& c, const std::vector<Value>& arguments) {
  std::vector<Value> a;
  for (size_t i = 0; i < arguments.size(); ++i) a.push_back(domain(b, c, i, arguments[i]));
  if (c.op == Op::kSelect) {
    const Value zero = b.constant_bits(c.from, 0);
    const Value condition = c.from == kBool ? a[2] : b.binary(Op::kEq, a[2], zero);
    return b.select(condition, a[0], a[1]);
  }
  if (c.op == Op::kFma) return b.fma(a[0], a[1], a[2]);
  if (c.op >= Op::kSignExtend && c.op <= Op::kBitcast) return b.convert(c.op, c.type, a[0]);
  return argument_count(c.op) == 1 ? b.unary(c.op, a[0]) : b.binary(c.op, a[0], a[1]);
}

}  // namespace

std::string to_string(const OpCase& c) {
  if (c.type == c.from) return fmt::format("{} {}", scalar_type_name(c.type), op_name(c.op));
  return fmt::format("{} from {} {}", scalar_type_name(c.type), scalar_type_name(c.from),
                     op_name(c.op));
}

std::vector<OpCase> all_op_cases() {
  constexpr ScalarType kAll[] = {kBool, kI32, kI64, kF32, kF64};
  std::vector<OpCase> cases;
  for (int number = static_cast<int>(Op::kAdd); number <= static_cast<int>(Op::kBitcast);
       ++number) {
    const auto op = static_cast<Op>(number);
    for (ScalarType from : kAll) {
      for (ScalarType to : kAll) {
        if (is_allowed(op, to, from)) cases.push_back({op, to, from});
      }
    }
  }
  return cases;
}

std::vector<uint64_t> edge_values(ScalarType type) {
  std::vector<uint64_t> values;
  switch (type) {
    case kBool:
      return {0, 1};
    case kF32:
      add_float_edges<float, uint32_t>(&values);
      return values;
    case kF64:
      add_float_edges<double, uint64_t>(&values);
      return values;
    case kI32:
    case kI64:
      break;
  }
  const int width = bit_width(type);
  const uint64_t mask = width == 64 ? ~uint64_t{0} : 0xffffffff;
  for (int shift : {0, 1, 2, 7, 8, 15, 16, 23, 24, 25, 31, 32, 33, 52, 53, 54, 62, 63}) {
    if (shift >= width) continue;
    const uint64_t power = uint64_t{1} << shift;
    for (uint64_t v : {power - 1, power, power + 1, ~power, ~power + 1, ~power + 2}) {
      values.push_back(v & mask);
    }
  }
  for (uint64_t v : {uint64_t{3}, uint64_t{10}, uint64_t{0x123456789abcdef}, uint64_t{0xdeadbeef},
                     ~uint64_t{6}, uint64_t{0x0020000010000001}, uint64_t{0x8000008000000401}}) {
    values.push_back(v & mask);
  }
  return values;
}

TestKernel op_kernel(const std::vector<OpCase>& cases, uint64_t seed) {
  const ScalarType from = cases.front().from;
  const auto bytes = static_cast<uint8_t>(from == kBool ? 4 : bit_width(from) / 8);
  // Every pair, or what instrumented code has time for; the third argument and more points are
  // random.
#ifdef HEKLA_SANITIZED
  constexpr size_t kStride = 7;
  constexpr size_t kRandomPoints = 200;
#else
  constexpr size_t kStride = 1;
  constexpr size_t kRandomPoints = 2000;
#endif
  Random random(seed);
  const std::vector<uint64_t> edges = edge_values(from);
  std::vector<uint64_t> arguments[3];
  for (size_t pair = 0; pair < edges.size() * edges.size(); pair += kStride) {
    arguments[0].push_back(edges[pair / edges.size()]);
    arguments[1].push_back(edges[pair % edges.size()]);
  }
  for (size_t i = 0; i < kRandomPoints; ++i) {
    arguments[0].push_back(random.bits(from));
    arguments[1].push_back(random.bits(from));
  }
  for (size_t i = 0; i < arguments[0].size(); ++i) {
    arguments[2].push_back(random.below(2) != 0 ? random.bits(from)
                                                : edges[random.below(edges.size())]);
  }
  const auto points = static_cast<int64_t>(arguments[0].size());

  TestKernel test;
  test.kernel.name = fmt::format("ops_{}", scalar_type_name(from));
  test.kernel.grid = {points};
  Builder b(1, kI32);
  const Value i = b.grid_index(0);
  std::vector<Value> values;
  for (int32_t k = 0; k < 3; ++k) {
    Value v = b.load(from == kBool ? kI32 : from, {k, bytes}, i);
    if (from == kBool) v = b.binary(Op::kNe, v, b.integer(kI32, 0));
    values.push_back(v);
    test.kernel.operands.push_back({points * bytes, true, false});
    test.elements.push_back({from == kBool ? kI32 : from, bytes});
    test.labels.push_back(fmt::format("argument {}", k));
    std::vector<std::byte> memory;
    for (uint64_t bits : arguments[k]) append_bits(&memory, bits, bytes);
    test.contents.push_back(std::move(memory));
  }
  for (const OpCase& c : cases) {
    const auto count = c.op == Op::kSelect ? size_t{3} : static_cast<size_t>(argument_count(c.op));
    Value result = apply(b, c, {values.begin(), values.begin() + static_cast<ptrdiff_t>(count)});
    Element element{c.type, static_cast<uint8_t>(bit_width(c.type) / 8)};
    if (c.type == kBool) {
      result = b.convert(Op::kBoolToInt, kI32, result);
      element = {kI32, 4};
    }
    b.store({static_cast<int32_t>(test.elements.size()), element.bytes}, i, result);
    test.kernel.operands.push_back({points * element.bytes, false, true});
    test.elements.push_back(element);
    test.labels.push_back(to_string(c));
    test.contents.emplace_back(static_cast<size_t>(points) * element.bytes, std::byte{0xa5});
  }
  test.kernel.body = b.finish();
  return test;
}

std::vector<std::span<std::byte>> spans(Buffers& buffers) {
  return {buffers.begin(), buffers.end()};
}

std::string difference(const TestKernel& test, const Buffers& expected, const Buffers& actual) {
  for (size_t k = 0; k < test.elements.size(); ++k) {
    if (!test.kernel.operands[k].is_written && expected[k] == actual[k]) continue;
    const Element element = test.elements[k];
    for (size_t at = 0; at + element.bytes <= expected[k].size(); at += element.bytes) {
      uint64_t e = 0, a = 0;
      std::memcpy(&e, &expected[k][at], element.bytes);
      std::memcpy(&a, &actual[k][at], element.bytes);
      if (e == a || (is_nan(element.type, e) && is_nan(element.type, a))) continue;
      std::string text = fmt::format("{}: operand {} ({}), element {}: expected {}, got {}",
                                     test.kernel.name, k, test.labels[k], at / element.bytes,
                                     show(element.type, e), show(element.type, a));
      // Of an op kernel the arguments have the same index.
      for (size_t j = 0; j < 3 && test.labels[j].starts_with("argument"); ++j) {
        uint64_t v = 0;
        const size_t width = test.elements[j].bytes;
        std::memcpy(&v, &test.contents[j][at / element.bytes * width], width);
        text += fmt::format("; {} is {}", test.labels[j], show(test.elements[j].type, v));
      }
      return text;
    }
  }
  return "";
}

}  // namespace hekla::kernel::testing
