// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/assertions.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "backends/reference/kernels/convert.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::reference {
namespace {

enum class Rule { kEq, kAlmostEq, kClose };

struct Assertion {
  std::string_view name;
  Rule rule;
};

constexpr Assertion kAssertions[] = {
    {"expect_eq", Rule::kEq},
    {"expect_eq_const", Rule::kEq},
    {"expect_almost_eq", Rule::kAlmostEq},
    {"expect_almost_eq_const", Rule::kAlmostEq},
    {"expect_close", Rule::kClose},
};

const Assertion* find(std::string_view name) {
  if (name.starts_with("check.")) name.remove_prefix(6);
  for (const Assertion& assertion : kAssertions) {
    if (assertion.name == name) return &assertion;
  }
  return nullptr;
}

// The bits of element i, at most 64 (parts of complex numbers are separate elements).
uint64_t bits_at(const HostArray& array, int64_t i, int64_t width) {
  uint64_t bits = 0;
  std::memcpy(&bits, array.data() + i * width, static_cast<size_t>(width));
  return bits;
}

// Units in the last place between two floats, by their order as integers.
uint64_t ulp_distance(DType dtype, uint64_t a, uint64_t b) {
  const int bits = dtype_bits(dtype);
  const uint64_t sign = uint64_t{1} << (bits - 1);
  const auto key = [&](uint64_t v) {
    return (v & sign) != 0 ? -static_cast<int64_t>(v & (sign - 1)) : static_cast<int64_t>(v);
  };
  const int64_t x = key(a);
  const int64_t y = key(b);
  return x > y ? static_cast<uint64_t>(x) - static_cast<uint64_t>(y)
               : static_cast<uint64_t>(y) - static_cast<uint64_t>(x);
}

std::string index_text(const Dims& dims, int64_t flat) {
  std::vector<int64_t> index(dims.size());
  for (size_t d = dims.size(); d > 0; --d) {
    index[d - 1] = flat % dims[d - 1];
    flat /= dims[d - 1];
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

// Numeric parameters are floats or integers, depending on who wrote the program.
double parameter(const ir::Operation& op, std::string_view name, double fallback) {
  if (const auto* integer = op.attribute(name).get<ir::IntegerValue>()) {
    return static_cast<double>(integer->value);
  }
  return float_value(op, name, fallback);
}

}  // namespace

bool is_assertion(std::string_view name) { return find(name) != nullptr; }

Result<std::vector<Datum>> run_assertion(std::string_view name, const ir::Operation& op,
                                         const std::vector<Datum>& operands) {
  const Assertion& assertion = *find(name);
  HostArray expected;
  if (operands.size() >= 2) {
    expected = operands[1].array;
  } else if (const auto* value = op.attribute("value").get<ir::DenseValue>()) {
    HEKLA_ASSIGN_OR_RETURN(expected, value->expand());
  } else if (const auto* list = op.attribute("value").get<ir::IntArrayValue>()) {
    HEKLA_ASSIGN_OR_RETURN(
        HostArray wide,
        HostArray::allocate(DType::kI64, {static_cast<int64_t>(list->values.size())}));
    for (size_t i = 0; i < list->values.size(); ++i) {
      wide.mutable_as<int64_t>()[i] = list->values[i];
    }
    HEKLA_ASSIGN_OR_RETURN(expected, convert_elements(wide, list->dtype));
  }
  if (operands.empty()) return invalid_argument("{} takes a value to check", name);
  const HostArray& actual = operands[0].array;
  if (actual.dtype() != expected.dtype() || actual.dims() != expected.dims()) {
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("{} failed: {} was expected, the value is {}", name, expected.shape(),
                              actual.shape()));
  }
  const DType part = complex_part(actual.dtype());
  const int64_t parts_per_element = is_complex(actual.dtype()) ? 2 : 1;
  const int64_t width = dtype_bytes(part);
  const double tolerance = parameter(op, "tolerance", 1e-4);
  const double max_ulps = parameter(op, "max_ulp_difference", 3);
  const double min_ulps = parameter(op, "min_ulp_difference", 0);
  for (int64_t i = 0; i < actual.size() * parts_per_element; ++i) {
    const uint64_t a = bits_at(actual, i, width);
    const uint64_t e = bits_at(expected, i, width);
    bool holds = a == e;
    std::string values = fmt::format("{:#x} and {:#x}", a, e);
    if (is_float(part)) {
      const double x = float_from_bits(part, a);
      const double y = float_from_bits(part, e);
      values = fmt::format("{} and {}", x, y);
      if (std::isnan(x) || std::isnan(y)) {
        holds = std::isnan(x) && std::isnan(y);
      } else if (assertion.rule == Rule::kEq) {
        holds = x == y;
      } else if (assertion.rule == Rule::kAlmostEq) {
        holds = std::isinf(x) || std::isinf(y) ? x == y : std::fabs(x - y) <= tolerance;
      } else {
        const double distance = static_cast<double>(ulp_distance(part, a, e));
        holds = distance <= max_ulps && distance >= min_ulps;
      }
    } else if (is_signed_integer(part)) {
      const int shift = 64 - static_cast<int>(width) * 8;
      values = fmt::format("{} and {}", static_cast<int64_t>(a << shift) >> shift,
                           static_cast<int64_t>(e << shift) >> shift);
    } else if (part != DType::kInvalid) {
      values = fmt::format("{} and {}", a, e);
    }
    if (!holds) {
      return Status(
          StatusCode::kFailedPrecondition,
          fmt::format("{} failed: element {} of {} differs, actual and expected are {}", name,
                      index_text(actual.dims(), i / parts_per_element), actual.shape(), values));
    }
  }
  return std::vector<Datum>();
}

}  // namespace hekla::reference
