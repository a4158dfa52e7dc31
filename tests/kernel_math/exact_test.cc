// SPDX-License-Identifier: Apache-2.0
// The ops that have one right answer, on every dtype, against the reference evaluator: bit for bit,
// NaN payloads aside.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backends/reference/elementwise/elementwise.h"
#include "backends/reference/kernels/convert.h"
#include "runtime/base/testing/instrumented.h"
#include "tests/kernel_math/kernel_runner.h"

namespace hekla::kernel {
namespace {

using ir::OpCode;

std::vector<DType> all_dtypes() {
  std::vector<DType> dtypes;
  for (int i = 1; i < kDTypeCount; ++i) dtypes.push_back(static_cast<DType>(i));
  return dtypes;
}

constexpr int64_t kRandom = testing::sweep(4000, 400);

// The element types that an operation is defined for: b(ool), s(igned), u(nsigned), f(loat),
// c(omplex). The evaluator must compute it for these and refuse it for others: an oracle that
// breaks compares nothing. As in StableHLO's specification, but that abs, sign and real give back
// numbers without a sign or an imaginary part, subtract takes i1, and there is no remainder of
// complex numbers.
struct Defined {
  OpCode code;
  std::string_view types;
};

bool is_defined(const Defined& op, DType dtype) {
  const char type = dtype == DType::kI1          ? 'b'
                    : is_signed_integer(dtype)   ? 's'
                    : is_unsigned_integer(dtype) ? 'u'
                    : is_complex(dtype)          ? 'c'
                                                 : 'f';
  if (op.code == OpCode::kComplex && dtype != DType::kF32 && dtype != DType::kF64) return false;
  return op.types.find(type) != std::string_view::npos;
}

constexpr Defined kExactUnary[] = {
    {OpCode::kAbs, "bsufc"},  {OpCode::kNegate, "sufc"},
    {OpCode::kCeil, "f"},     {OpCode::kFloor, "f"},
    {OpCode::kSqrt, "fc"},    {OpCode::kRoundNearestEven, "f"},
    {OpCode::kSign, "bsufc"}, {OpCode::kRoundNearestAfz, "f"},
    {OpCode::kReal, "bsufc"}, {OpCode::kImag, "fc"},
    {OpCode::kIsFinite, "f"}, {OpCode::kNot, "bsu"},
    {OpCode::kPopcnt, "su"},  {OpCode::kCountLeadingZeros, "su"},
};

// Complex abs and sqrt are functions with a bound; sign divides by abs.
bool is_exact_for(OpCode code, DType dtype) {
  return !is_complex(dtype) || code == OpCode::kNegate || code == OpCode::kReal ||
         code == OpCode::kImag;
}

TEST(Exact, Unary) {
  int compared = 0;
  for (DType dtype : all_dtypes()) {
    for (const Defined& op : kExactUnary) {
      const OpCode code = op.code;
      if (!is_exact_for(code, dtype)) continue;
      const HostArray x = interesting_values(dtype, kRandom);
      const Result<HostArray> wanted = reference::unary(code, x);
      EXPECT_EQ(wanted.ok(), is_defined(op, dtype))
          << ir::op_name(code) << " " << dtype_name(dtype) << " " << wanted.status().message();
      if (!wanted.ok()) continue;
      ++compared;
      const auto ours = run_expansion(
          wanted->dtype(), {x},
          [&](Builder& b, const std::vector<Element>& e) { return unary(b, code, dtype, e[0]); });
      ASSERT_TRUE(ours) << ir::op_name(code) << " " << dtype_name(dtype);
      EXPECT_EQ(differences(*ours, *wanted, {x}), "")
          << ir::op_name(code) << " " << dtype_name(dtype);
    }
  }
  EXPECT_EQ(compared, 270);
}

constexpr Defined kExactBinary[] = {
    {OpCode::kAdd, "bsufc"},
    {OpCode::kSubtract, "bsufc"},
    {OpCode::kMultiply, "bsufc"},
    {OpCode::kDivide, "sufc"},
    {OpCode::kMaximum, "bsufc"},
    {OpCode::kMinimum, "bsufc"},
    {OpCode::kRemainder, "suf"},
    {OpCode::kAnd, "bsu"},
    {OpCode::kOr, "bsu"},
    {OpCode::kXor, "bsu"},
    {OpCode::kShiftLeft, "su"},
    {OpCode::kShiftRightArithmetic, "su"},
    {OpCode::kShiftRightLogical, "su"},
    {OpCode::kComplex, "f"},
};

TEST(Exact, Binary) {
  int compared = 0;
  for (DType dtype : all_dtypes()) {
    const auto [x, y] = interesting_pairs(dtype, kRandom);
    for (const Defined& op : kExactBinary) {
      const OpCode code = op.code;
      if (is_complex(dtype) && code == OpCode::kDivide) continue;
      const Result<HostArray> wanted = reference::binary(code, x, y);
      EXPECT_EQ(wanted.ok(), is_defined(op, dtype))
          << ir::op_name(code) << " " << dtype_name(dtype) << " " << wanted.status().message();
      if (!wanted.ok()) continue;
      ++compared;
      const auto ours =
          run_expansion(wanted->dtype(), {x, y}, [&](Builder& b, const std::vector<Element>& e) {
            return binary(b, code, dtype, e[0], e[1]);
          });
      ASSERT_TRUE(ours) << ir::op_name(code) << " " << dtype_name(dtype);
      EXPECT_EQ(differences(*ours, *wanted, {x, y}), "")
          << ir::op_name(code) << " " << dtype_name(dtype);
    }
  }
  EXPECT_EQ(compared, 288);
}

TEST(Exact, IntegerPower) {
  for (DType dtype : all_dtypes()) {
    if (!is_integer(dtype)) continue;
    const auto [x, y] = interesting_pairs(dtype, kRandom);
    const HostArray wanted = *reference::binary(OpCode::kPower, x, y);
    const auto ours = run_expansion(dtype, {x, y}, [&](Builder& b, const std::vector<Element>& e) {
      return binary(b, OpCode::kPower, dtype, e[0], e[1]);
    });
    ASSERT_TRUE(ours) << dtype_name(dtype);
    EXPECT_EQ(differences(*ours, wanted, {x, y}), "") << dtype_name(dtype);
    // With the exponent known while building.
    for (int64_t exponent : {0, 1, 2, 5, -1, -2}) {
      const auto fixed = run_expansion(dtype, {x}, [&](Builder& b, const std::vector<Element>& e) {
        return binary(b, OpCode::kPower, dtype, e[0], integer_element(b, dtype, exponent));
      });
      const HostArray exponents = *run_expansion(
          dtype, {x}, [&](Builder& b, const std::vector<Element>&) -> std::optional<Element> {
            return integer_element(b, dtype, exponent);
          });
      EXPECT_EQ(differences(*fixed, *reference::binary(OpCode::kPower, x, exponents), {x}), "")
          << dtype_name(dtype) << " to the " << exponent;
    }
  }
}

// Loops count in the kernel's index type, whatever type their counts come from.
TEST(Exact, WideIndices) {
  for (DType dtype : {DType::kI8, DType::kI64, DType::kF32, DType::kF64}) {
    const auto [x, y] = interesting_pairs(dtype, kRandom);
    for (OpCode code : {OpCode::kPower, OpCode::kRemainder}) {
      if (code == OpCode::kPower && is_float(dtype)) continue;
      const auto ours = run_expansion(
          dtype, {x, y},
          [&](Builder& b, const std::vector<Element>& e) {
            return binary(b, code, dtype, e[0], e[1]);
          },
          Fma::kFused, ScalarType::kI64);
      EXPECT_EQ(differences(*ours, *reference::binary(code, x, y), {x, y}), "")
          << ir::op_name(code) << " " << dtype_name(dtype);
    }
  }
}

TEST(Exact, Conversions) {
  for (DType from : all_dtypes()) {
    const HostArray x = interesting_values(from, kRandom);
    for (DType to : all_dtypes()) {
      const HostArray wanted = *reference::convert_elements(x, to);
      const auto ours = run_expansion(
          to, {x}, [&](Builder& b, const std::vector<Element>& e) -> std::optional<Element> {
            return convert_element(b, e[0], from, to);
          });
      EXPECT_EQ(differences(*ours, wanted, {x}), "")
          << dtype_name(from) << " to " << dtype_name(to);
    }
  }
}

TEST(Exact, Compare) {
  constexpr std::string_view kNames[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  for (DType dtype : all_dtypes()) {
    const auto [x, y] = interesting_pairs(dtype, kRandom);
    for (std::string_view name : kNames) {
      for (bool total_order : {false, true}) {
        if (total_order && !is_float(dtype)) continue;
        const HostArray wanted =
            *reference::compare(*reference::direction_from_name(name), total_order, x, y);
        const auto ours =
            run_expansion(DType::kI1, {x, y},
                          [&](Builder& b, const std::vector<Element>& e) -> std::optional<Element> {
                            return Element{compare(b, *direction_from_name(name), total_order,
                                                   dtype, e[0], e[1])};
                          });
        EXPECT_EQ(differences(*ours, wanted, {x, y}), "")
            << name << " " << dtype_name(dtype) << (total_order ? " total" : "");
      }
    }
  }
}

TEST(Exact, SelectAndClamp) {
  for (DType dtype : all_dtypes()) {
    const auto [x, y] = interesting_pairs(dtype, kRandom);
    HostArray predicate(DType::kI1, x.dims());
    for (int64_t i = 0; i < x.size(); ++i) {
      predicate.mutable_as<uint8_t>()[i] = static_cast<uint8_t>(i % 3 == 0);
    }
    const auto selected =
        run_expansion(dtype, {predicate, x, y},
                      [](Builder& b, const std::vector<Element>& e) -> std::optional<Element> {
                        return select(b, e[0].re, e[1], e[2]);
                      });
    EXPECT_EQ(differences(*selected, *reference::select(predicate, x, y), {x, y}), "")
        << dtype_name(dtype);
    const Result<HostArray> wanted = reference::clamp(y, x, y);
    ASSERT_TRUE(wanted.ok()) << dtype_name(dtype) << " " << wanted.status().message();
    const auto clamped =
        run_expansion(dtype, {y, x, y}, [&](Builder& b, const std::vector<Element>& e) {
          return clamp(b, dtype, e[0], e[1], e[2]);
        });
    ASSERT_TRUE(clamped) << dtype_name(dtype);
    EXPECT_EQ(differences(*clamped, *wanted, {x, y}), "") << dtype_name(dtype);
  }
}

TEST(Exact, ReducePrecision) {
  for (DType dtype : all_dtypes()) {
    if (!is_float(dtype)) continue;
    const HostArray x = interesting_values(dtype, kRandom);
    for (int exponent_bits : {1, 3, 5, 8, 11}) {
      for (int mantissa_bits : {0, 1, 3, 7, 10, 23, 52}) {
        const HostArray wanted = *reference::reduce_precision(x, exponent_bits, mantissa_bits);
        const auto ours = run_expansion(dtype, {x}, [&](Builder& b, const std::vector<Element>& e) {
          return reduce_precision(b, dtype, e[0], exponent_bits, mantissa_bits);
        });
        ASSERT_TRUE(ours);
        EXPECT_EQ(differences(*ours, wanted, {x}), "")
            << dtype_name(dtype) << " e" << exponent_bits << "m" << mantissa_bits;
      }
    }
  }
}

TEST(Exact, Bitcasts) {
  for (DType from : all_dtypes()) {
    const HostArray x = interesting_values(from, kRandom);
    for (DType to : all_dtypes()) {
      if (dtype_bits(from) != dtype_bits(to) || dtype_bits(from) > 64 || to == DType::kTF32) {
        continue;
      }
      const HostArray wanted = *reference::bitcast_convert(x, to, x.dims());
      const auto ours = run_expansion(to, {x}, [&](Builder& b, const std::vector<Element>& e) {
        return bitcast(b, e[0], from, to);
      });
      ASSERT_TRUE(ours);
      EXPECT_EQ(differences(*ours, wanted, {x}), "")
          << dtype_name(from) << " to " << dtype_name(to);
    }
  }
}

TEST(Exact, LoadsAndStoresKeepTheBits) {
  for (DType dtype : all_dtypes()) {
    const HostArray x = interesting_values(dtype, kRandom);
    const auto copy = run_expansion(
        dtype, {x},
        [](Builder&, const std::vector<Element>& e) -> std::optional<Element> { return e[0]; });
    EXPECT_EQ(differences(*copy, x, {x}), "") << dtype_name(dtype);
    // Constants are folded loads: storing one gives the bits back.
    for (int64_t i = 0; i < std::min<int64_t>(x.size(), 300); ++i) {
      const std::byte* bytes = x.data() + i * dtype_bytes(dtype);
      const HostArray one = HostArray::wrap(dtype, {1}, nullptr, bytes);
      const auto constant = run_expansion(
          dtype, {one}, [&](Builder& b, const std::vector<Element>&) -> std::optional<Element> {
            return constant_element(b, dtype, bytes);
          });
      EXPECT_EQ(differences(*constant, one, {one}), "") << dtype_name(dtype);
    }
  }
}

// Whatever the evaluator computes element by element has an expansion.
TEST(Exact, NothingIsMissing) {
  for (DType dtype : all_dtypes()) {
    const HostArray x(dtype, {1});
    Builder b(1, ScalarType::kI32);
    const Element e = integer_element(b, dtype, 1);
    for (int i = 1; i <= static_cast<int>(OpCode::kCheckExpectSerializedEq); ++i) {
      const auto code = static_cast<OpCode>(i);
      const auto what = fmt::format("{} {}", ir::op_name(code), dtype_name(dtype));
      if (ir::is_elementwise_unary(code)) {
        EXPECT_EQ(unary(b, code, dtype, e).has_value(), reference::unary(code, x).ok()) << what;
      } else if (ir::is_elementwise_binary(code)) {
        EXPECT_EQ(binary(b, code, dtype, e, e).has_value(), reference::binary(code, x, x).ok())
            << what;
      }
    }
  }
}

// A device may lack 64-bit types: no expansion of a dtype below 64 bits uses them.
TEST(Exact, DtypesBelow64BitsNeedNoWiderTypes) {
  const std::vector<DType> dtypes = {DType::kI1,   DType::kI4,   DType::kUI8,    DType::kI32,
                                     DType::kUI32, DType::kBF16, DType::kF8E5M2, DType::kF16,
                                     DType::kF32,  DType::kC64};
  const auto check = [](DType result, const std::vector<HostArray>& operands,
                        const Expansion& expand, const std::string& what) {
    const std::optional<Kernel> kernel = make_kernel(result, operands, expand);
    if (!kernel) return;
    for (size_t v = 0; v < kernel->body.size(); ++v) {
      ASSERT_NE(bit_width(kernel->body.type(static_cast<Value>(v))), 64) << what;
    }
  };
  for (DType dtype : dtypes) {
    const HostArray x(dtype, {1});
    for (int i = 1; i <= static_cast<int>(OpCode::kCheckExpectSerializedEq); ++i) {
      const auto code = static_cast<OpCode>(i);
      const std::string what = fmt::format("{} {}", ir::op_name(code), dtype_name(dtype));
      const bool gives_part =
          code == OpCode::kAbs || code == OpCode::kReal || code == OpCode::kImag;
      const DType result = gives_part                  ? complex_part(dtype)
                           : code == OpCode::kIsFinite ? DType::kI1
                           : code == OpCode::kComplex  ? complex_of(dtype)
                                                       : dtype;
      if (ir::is_elementwise_unary(code)) {
        check(
            result, {x},
            [&](Builder& b, const std::vector<Element>& e) { return unary(b, code, dtype, e[0]); },
            what);
      } else if (ir::is_elementwise_binary(code)) {
        check(
            result, {x, x},
            [&](Builder& b, const std::vector<Element>& e) {
              return binary(b, code, dtype, e[0], e[1]);
            },
            what);
      }
    }
    for (DType to : dtypes) {
      check(
          to, {x},
          [&](Builder& b, const std::vector<Element>& e) -> std::optional<Element> {
            return convert_element(b, e[0], dtype, to);
          },
          fmt::format("{} to {}", dtype_name(dtype), dtype_name(to)));
    }
  }
}

// The functions of the narrow floats are computed in f32 and rounded: the evaluator, which computes
// in f64, differs where f32's error crosses a boundary of rounding, by one place.
TEST(Exact, FunctionsOfNarrowFloatsAreNearlyAlwaysRight) {
  for (DType dtype : all_dtypes()) {
    if (!is_float(dtype) || dtype_bits(dtype) > 16) continue;
    for (OpCode code : {OpCode::kExponential, OpCode::kExponentialMinusOne, OpCode::kLog,
                        OpCode::kLogPlusOne, OpCode::kTanh, OpCode::kLogistic, OpCode::kRsqrt,
                        OpCode::kCbrt, OpCode::kSine, OpCode::kCosine, OpCode::kTan}) {
      const HostArray x = interesting_values(dtype, 0);
      const HostArray wanted = *reference::unary(code, x);
      const auto ours = run_expansion(dtype, {x}, [&](Builder& b, const std::vector<Element>& e) {
        return unary(b, code, dtype, e[0]);
      });
      ASSERT_TRUE(ours);
      int different = 0;
      for (int64_t i = 0; i < x.size(); ++i) {
        const auto bits = [&](const HostArray& array) {
          return dtype_bytes(dtype) == 1 ? array.as<uint8_t>()[i] : array.as<uint16_t>()[i];
        };
        const int a = bits(*ours), b = bits(wanted);
        if (a == b || (std::isnan(float_from_bits(dtype, static_cast<uint64_t>(a))) &&
                       std::isnan(float_from_bits(dtype, static_cast<uint64_t>(b))))) {
          continue;
        }
        ++different;
        ASSERT_EQ(std::abs(a - b), 1) << ir::op_name(code) << " " << dtype_name(dtype) << " "
                                      << float_from_bits(dtype, bits(x));
      }
      EXPECT_LE(different, dtype == DType::kF16 ? 4 : 0)
          << ir::op_name(code) << " " << dtype_name(dtype);
    }
  }
}

}  // namespace
}  // namespace hekla::kernel
