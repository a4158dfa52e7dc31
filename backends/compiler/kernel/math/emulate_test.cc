// SPDX-License-Identifier: Apache-2.0
// Kernels without a type against themselves with it, in the interpreter, bit for bit.
#include "backends/compiler/kernel/math/emulate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/interpreter.h"
#include "backends/compiler/kernel/math/element.h"
#include "backends/compiler/kernel/testing/random_kernel.h"

namespace hekla::kernel {
namespace {

using testing::Buffers;
using testing::OpCase;
using testing::TestKernel;

constexpr Emulation kLongs = {.i64 = true};
constexpr Emulation kDoubles = {.f64 = true};
constexpr Emulation kHalves = {.f16 = true};
constexpr Emulation kBoth = {.i64 = true, .f64 = true};

std::string types_left(const Kernel& kernel, const Emulation& emulation) {
  for (size_t v = 0; v < kernel.body.size(); ++v) {
    const ScalarType type = kernel.body[static_cast<Value>(v)].type;
    if ((emulation.i64 && type == ScalarType::kI64) ||
        (emulation.f64 && type == ScalarType::kF64)) {
      return std::string("there is still ") + scalar_type_name(type);
    }
    const Op op = kernel.body[static_cast<Value>(v)].op;
    if (emulation.f16 && (op == Op::kHalfToFloat || op == Op::kFloatToHalf)) {
      return std::string("there is still ") + op_name(op);
    }
  }
  return "";
}

// The first difference, or why there is no result.
std::string difference(const TestKernel& test, const Emulation& emulation) {
  const Result<Kernel> emulated = emulate(test.kernel, emulation);
  if (!emulated.ok()) return std::string(emulated.status().message());
  if (const Status s = verify(emulated->body); !s.ok()) return std::string(s.message());
  if (std::string left = types_left(*emulated, emulation); !left.empty()) return left;
  Buffers expected = test.contents, actual = test.contents;
  for (const auto& [kernel, buffers] :
       {std::pair{&test.kernel, &expected}, std::pair{&emulated.value(), &actual}}) {
    if (const Status s = interpret(*kernel, testing::spans(*buffers)); !s.ok()) {
      return std::string(s.message());
    }
  }
  return testing::difference(test, expected, actual);
}

std::map<ScalarType, std::vector<OpCase>> cases_with(ScalarType type) {
  std::map<ScalarType, std::vector<OpCase>> groups;
  for (const OpCase& c : testing::all_op_cases()) {
    if (c.op != Op::kFma && (c.from == type || c.type == type)) groups[c.from].push_back(c);
  }
  return groups;
}

TEST(Emulate, LongIntegersAtEdgeValues) {
  for (const auto& [from, cases] : cases_with(ScalarType::kI64)) {
    for (const OpCase& c : cases) {
      if (c.from == ScalarType::kF64 || c.type == ScalarType::kF64) continue;
      EXPECT_EQ(difference(testing::op_kernel({c}), kLongs), "") << to_string(c);
    }
  }
}

TEST(Emulate, HalvesAtEdgeValues) {
  for (const Op op : {Op::kHalfToFloat, Op::kFloatToHalf}) {
    const OpCase c = op == Op::kHalfToFloat ? OpCase{op, ScalarType::kF32, ScalarType::kI32}
                                            : OpCase{op, ScalarType::kI32, ScalarType::kF32};
    for (uint64_t seed = 1; seed < 20; ++seed) {
      TestKernel test = testing::op_kernel({c}, seed);
      // Payloads of NaNs, which are bits in an f16, need not be kept.
      for (size_t i = 0; i < test.contents.size(); ++i) {
        if (test.elements[i].type != ScalarType::kF32) continue;
        for (size_t at = 0; at < test.contents[i].size(); at += 4) {
          float value = 0;
          std::memcpy(&value, test.contents[i].data() + at, 4);
          if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
          std::memcpy(test.contents[i].data() + at, &value, 4);
        }
      }
      EXPECT_EQ(difference(test, kHalves), "") << seed;
    }
  }
}

// What an element of f16 is worth: a kernel of one, read, made into something else and written.
template <typename F>
Function of_halves(const F& make) {
  Builder b(1, ScalarType::kI32);
  store_element(b, DType::kF16, 1, b.grid_index(0),
                make(b, load_element(b, DType::kF16, 0, b.grid_index(0))));
  return b.finish();
}

size_t emulated_size(Function body) {
  Kernel kernel;
  kernel.grid = {4};
  kernel.index_type = ScalarType::kI32;
  kernel.operands = {{8, true, false}, {8, false, true}};
  kernel.body = std::move(body);
  return emulate(kernel, kHalves)->body.size();
}

TEST(Emulate, HalvesThatAreMovedAreNotConverted) {
  const Function moved = of_halves([](Builder&, const Element& x) { return x; });
  EXPECT_LE(emulated_size(moved), 5U) << to_string(moved);
  // The conversion from f16, the rounding, which is none to bits and back, and the one to bits.
  const Function added = of_halves(
      [](Builder& b, const Element& x) { return *binary(b, ir::OpCode::kAdd, DType::kF16, x, x); });
  const Function twice = of_halves([](Builder& b, const Element& x) {
    const Element y = *binary(b, ir::OpCode::kAdd, DType::kF16, x, x);
    return *binary(b, ir::OpCode::kMultiply, DType::kF16, y, x);
  });
  EXPECT_LE(emulated_size(twice) - emulated_size(added), 30U);
}

TEST(Emulate, DoublesAtEdgeValues) {
  for (const auto& [from, cases] : cases_with(ScalarType::kF64)) {
    for (const OpCase& c : cases) {
      for (uint64_t seed = 1; seed < 4; ++seed) {
        EXPECT_EQ(difference(testing::op_kernel({c}, seed), kDoubles), "") << to_string(c);
      }
    }
  }
}

TEST(Emulate, BothAtEdgeValues) {
  for (const ScalarType type : {ScalarType::kI64, ScalarType::kF64}) {
    for (const auto& [from, cases] : cases_with(type)) {
      for (const OpCase& c : cases) {
        EXPECT_EQ(difference(testing::op_kernel({c}), kBoth), "") << to_string(c);
      }
    }
  }
}

TEST(Emulate, RandomKernels) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const TestKernel test = testing::random_kernel(seed);
    EXPECT_EQ(difference(test, seed % 2 == 0 ? kBoth : kDoubles), "") << seed;
    EXPECT_EQ(difference(test, kHalves), "") << seed;
    testing::RandomOptions options;
    options.f64 = false;
    EXPECT_EQ(difference(testing::random_kernel(seed, options), kLongs), "") << seed;
  }
}

// Loads of what the kernel writes itself stay between its stores, where they were.
TEST(Emulate, KernelsThatReadWhatTheyWrite) {
  for (const ScalarType type : {ScalarType::kI64, ScalarType::kF64, ScalarType::kI32}) {
    const uint8_t bytes = type == ScalarType::kI32 ? 4 : 8;
    SCOPED_TRACE(scalar_type_name(type));
    TestKernel test;
    test.kernel = {
        .name = "sum", .grid = {1}, .operands = {{40, true, false}, {bytes, true, true}}};
    Builder b(1, ScalarType::kI32);
    b.set_updated(1);
    b.loop(b.index(5), {}, [&](Value iteration, const std::vector<Value>&) {
      const Value before = b.load(type, {1, bytes}, b.index(0));
      const Value long_number = b.load(ScalarType::kI64, {0, 8}, iteration);
      const Value number = type == ScalarType::kI64 ? long_number
                           : type == ScalarType::kF64
                               ? b.convert(Op::kSIntToFloat, type, long_number)
                               : b.convert(Op::kTruncate, type, long_number);
      b.store({1, bytes}, b.index(0), b.add(before, number));
      return std::vector<Value>();
    });
    test.kernel.body = b.finish();
    test.contents = {std::vector<std::byte>(40), std::vector<std::byte>(bytes)};
    for (size_t i = 0; i < 5; ++i) test.contents[0][8 * i] = static_cast<std::byte>(i + 1);
    test.elements = {{ScalarType::kI64, 8}, {type, bytes}};
    test.labels = {"numbers", "sum"};
    for (const Emulation& emulation : {kLongs, kBoth}) {
      if (type == ScalarType::kF64 && !emulation.f64) continue;  // its words are i64
      EXPECT_EQ(difference(test, emulation), "");
    }
  }
}

TEST(Emulate, WhatNeedsNothingStaysAsItIs) {
  testing::RandomOptions options;
  options.i64 = options.f64 = false;
  const TestKernel test = testing::random_kernel(5, options);
  const Result<Kernel> same = emulate(test.kernel, kBoth);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(to_string(*same), to_string(test.kernel));
}

TEST(Emulate, RefusesWhatIsTooLong) {
  testing::RandomOptions options;
  options.ops = 3000;
  options.max_points = 4;
  const Status status = emulate(testing::random_kernel(1, options).kernel, kBoth).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("too much code"), std::string::npos) << status.message();
  Kernel wide = testing::random_kernel(1).kernel;
  wide.index_type = ScalarType::kI64;
  wide.operands[0].bytes = int64_t{1} << 31;
  EXPECT_EQ(emulate(wide, kLongs).status().code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace hekla::kernel
