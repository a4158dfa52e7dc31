// SPDX-License-Identifier: Apache-2.0
#include "tests/random/tolerance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "backends/compiler/ir/op_attributes.h"
#include "backends/reference/evaluator.h"

namespace hekla::testing {
namespace {

using ir::OpCode;

uint64_t part_bits(const HostArray& array, int64_t part) {
  const auto width = static_cast<size_t>(dtype_bytes(complex_part(array.dtype())));
  uint64_t bits = 0;
  std::memcpy(&bits, array.data() + static_cast<size_t>(part) * width, width);
  return bits;
}

double part_value(const HostArray& array, int64_t part) {
  const DType dtype = complex_part(array.dtype());
  const uint64_t bits = part_bits(array, part);
  if (is_float(dtype)) return float_from_bits(dtype, bits);
  if (!is_signed_integer(dtype)) return static_cast<double>(bits);
  const int unused = 64 - static_cast<int>(dtype_bytes(dtype)) * 8;
  return static_cast<double>(static_cast<int64_t>(bits << unused) >> unused);
}

int64_t part_count(const HostArray& array) {
  return array.size() * (is_complex(array.dtype()) ? 2 : 1);
}

std::string place_text(const HostArray& array, int64_t part) {
  int64_t flat = is_complex(array.dtype()) ? part / 2 : part;
  std::string text;
  for (size_t i = array.dims().size(); i-- > 0;) {
    text = std::to_string(flat % array.dims()[i]) + (text.empty() ? "" : ", ") + text;
    flat /= array.dims()[i];
  }
  return fmt::format("element [{}]{}", text,
                     !is_complex(array.dtype()) ? ""
                     : part % 2 == 0            ? " (real part)"
                                                : " (imaginary part)");
}

std::string show(const HostArray& array, int64_t part) {
  const DType dtype = complex_part(array.dtype());
  if (!is_float(dtype)) return fmt::format("{}", part_value(array, part));
  return fmt::format("{:.17g} (bits {:#x})", part_value(array, part), part_bits(array, part));
}

double largest_finite(DType dtype) {
  const FloatFormat format = float_format(dtype);
  // A little less for formats whose top value is NaN; it only decides what is near an overflow.
  const int top = (1 << format.exponent_bits) - 2 - format.bias;
  return std::ldexp(1.5, top);
}

// One unit in the last place of a number of this size.
double ulp(DType dtype, double value) {
  const FloatFormat format = float_format(dtype);
  const int lowest = 1 - format.bias;
  int exponent = lowest;
  if (value != 0 && std::isfinite(value)) exponent = std::max(lowest, std::ilogb(value));
  return std::ldexp(1, exponent - format.mantissa_bits);
}

double smallest_normal(DType dtype) { return std::ldexp(1, 1 - float_format(dtype).bias); }

// Bounds of docs/numerics.md plus one for the evaluator's own rounding.
std::optional<double> function_ulps(OpCode code, bool is_complex_type) {
  if (is_complex_type) {
    switch (code) {
      case OpCode::kMultiply:
        return 4;
      case OpCode::kAbs:
      case OpCode::kSign:
      case OpCode::kSqrt:
      case OpCode::kLog:
      case OpCode::kExponential:
      case OpCode::kCosine:
      case OpCode::kSine:
        return 4;
      case OpCode::kCbrt:
      case OpCode::kDivide:
      case OpCode::kExponentialMinusOne:
      case OpCode::kLogPlusOne:
      case OpCode::kRsqrt:
      case OpCode::kTan:
      case OpCode::kTanh:
        return 8;
      case OpCode::kLogistic:
        return 64;
      case OpCode::kPower:
        return 256;
      default:
        return std::nullopt;
    }
  }
  switch (code) {
    case OpCode::kAtan2:
      return 2.75;
    case OpCode::kCbrt:
      return 1.75;
    case OpCode::kCosine:
    case OpCode::kSine:
    case OpCode::kLog:
    case OpCode::kLogPlusOne:
    case OpCode::kPower:
      return 2;
    case OpCode::kExponential:
      return 2.25;
    case OpCode::kExponentialMinusOne:
      return 3.25;
    case OpCode::kLogistic:
      return 3;
    case OpCode::kRsqrt:
      return 2.5;
    case OpCode::kTan:
      return 3.5;
    case OpCode::kTanh:
      return 3.5;
    default:
      return std::nullopt;
  }
}

// The operation that a region consists of; kUnknown when there is more or less in it.
OpCode region_op(const ir::Operation& op, size_t region) {
  const ir::Block& block = op.region(region).front();
  return block.operations().size() == 2 ? block.operations()[0]->code() : OpCode::kUnknown;
}

struct Sum {
  std::vector<bool> by_magnitude;  // per operand: takes its absolute value for the bound
  double terms = 1;                // at most, of one element
};

// How the result is a sum of operands, or of products of them; nullopt when it is not one.
std::optional<Sum> as_sum(const ir::Operation& op) {
  const DType dtype = op.result()->type().dtype();
  if (!is_float(dtype) && !is_complex(dtype)) return std::nullopt;
  const auto size = [&](size_t operand) {
    return static_cast<double>(element_count(op.operand(operand)->type().dims()));
  };
  switch (op.code()) {
    case OpCode::kDot:
    case OpCode::kDotGeneral:
    case OpCode::kConvolution:
      return Sum{{true, true}, std::min(size(0), size(1)) + 2};
    case OpCode::kReduce:
    case OpCode::kReduceWindow:
      if (op.operand_count() != 2 || region_op(op, 0) != OpCode::kAdd) return std::nullopt;
      return Sum{{true, true}, size(0) + 2};
    case OpCode::kScatter:
      if (op.operand_count() != 3 || region_op(op, 0) != OpCode::kAdd) return std::nullopt;
      return Sum{{true, false, true}, size(2) + 2};
    case OpCode::kSelectAndScatter:
      if (region_op(op, 1) != OpCode::kAdd) return std::nullopt;
      return Sum{{false, true, true}, size(1) + 2};
    default:
      return std::nullopt;
  }
}

HostArray magnitudes(HostArray array) {
  const DType part = complex_part(array.dtype());
  const auto width = static_cast<size_t>(dtype_bytes(part));
  const int64_t count = part_count(array);
  for (int64_t i = 0; i < count; ++i) {
    double value = std::fabs(part_value(array, i));
    if (is_complex(array.dtype())) {
      // |re| + |im| in both parts: the product of two has magnitudes in its imaginary part.
      if (i % 2 == 1) continue;
      value += std::fabs(part_value(array, i + 1));
    }
    const uint64_t bits = float_to_bits(part, value);
    std::memcpy(array.mutable_data() + static_cast<size_t>(i) * width, &bits, width);
    if (is_complex(array.dtype())) {
      std::memcpy(array.mutable_data() + static_cast<size_t>(i + 1) * width, &bits, width);
    }
  }
  return array;
}

double greatest(const std::vector<HostArray>& arrays) {
  double most = 0;
  for (const HostArray& array : arrays) {
    if (!is_float(complex_part(array.dtype()))) continue;
    for (int64_t i = 0; i < part_count(array); ++i) {
      const double value = std::fabs(part_value(array, i));
      if (std::isfinite(value)) most = std::max(most, value);
    }
  }
  return most;
}

std::string compare(const HostArray& got, const HostArray& want,
                    const std::function<double(int64_t)>& tolerance) {
  if (got.dtype() != want.dtype() || got.dims() != want.dims()) {
    return fmt::format("is {} instead of {}", got.shape(), want.shape());
  }
  const bool is_floating = is_float(complex_part(want.dtype()));
  for (int64_t i = 0; i < part_count(want); ++i) {
    if (part_bits(got, i) == part_bits(want, i)) continue;
    double limit = 0;
    if (is_floating) {
      const double g = part_value(got, i), w = part_value(want, i);
      if (std::isnan(g) && std::isnan(w)) continue;
      limit = tolerance(i);
      if (std::isinf(limit) || (limit > 0 && std::fabs(g - w) <= limit)) continue;
    }
    return fmt::format("{} is {} instead of {}, tolerance {:.3g}", place_text(want, i),
                       show(got, i), show(want, i), limit);
  }
  return "";
}

}  // namespace

Result<std::string> difference(const passes::SingleOperation& single,
                               const std::vector<HostArray>& inputs,
                               const std::vector<HostArray>& got) {
  const ir::Operation& op = *single.module->entry()->body().front().operations().front();
  HEKLA_ASSIGN_OR_RETURN(const std::vector<HostArray> want,
                         reference::evaluate(*single.module, inputs));
  if (got.size() != want.size()) {
    return fmt::format("has {} results instead of {}", got.size(), want.size());
  }
  std::vector<HostArray> bounds;
  const std::optional<Sum> sum = want.empty() ? std::nullopt : as_sum(op);
  if (sum) {
    std::vector<HostArray> sizes = inputs;
    for (size_t i = 0; i < op.operand_count(); ++i) {
      if (!sum->by_magnitude[i]) continue;
      sizes[i] = magnitudes(inputs[i]);
    }
    HEKLA_ASSIGN_OR_RETURN(bounds, reference::evaluate(*single.module, std::move(sizes)));
  }
  std::optional<double> ulps;
  if (ir::is_elementwise(op.code())) {
    ulps = function_ulps(op.code(), is_complex(op.operand(0)->type().dtype()));
  }
  for (size_t r = 0; r < want.size(); ++r) {
    const DType part = complex_part(want[r].dtype());
    const bool is_complex_type = is_complex(want[r].dtype());
    const HostArray& w = want[r];
    std::function<double(int64_t)> tolerance = [](int64_t) { return 0.0; };
    if (!is_float(part)) {
      // Integers and booleans are exact.
    } else if (sum) {
      const double epsilon = std::ldexp(1, -float_format(part).mantissa_bits);
      tolerance = [&, epsilon](int64_t i) {
        double size = std::fabs(part_value(bounds[r], i));
        if (is_complex_type) size = std::fabs(part_value(bounds[r], i | 1));
        // Near an overflow the order decides where the infinity comes.
        if (!(size < largest_finite(part) / 4)) return std::numeric_limits<double>::infinity();
        return sum->terms * epsilon * size + sum->terms * smallest_normal(part) * epsilon;
      };
    } else if (ulps) {
      tolerance = [&, ulps](int64_t i) {
        if (!is_complex_type) return *ulps * ulp(part, part_value(w, i));
        const double size = std::max(std::fabs(part_value(w, i)), std::fabs(part_value(w, i ^ 1)));
        // Infinities and NaNs of complex functions are open: docs/numerics.md, edges.
        if (!(size < largest_finite(part) / 4)) return std::numeric_limits<double>::infinity();
        return *ulps * ulp(part, size);
      };
    } else if (op.code() == OpCode::kFft || op.code() == OpCode::kCholesky ||
               op.code() == OpCode::kTriangularSolve || op.code() == OpCode::kBatchNormTraining ||
               op.code() == OpCode::kBatchNormInference || op.code() == OpCode::kBatchNormGrad) {
      // Operands of these are moderate: the generator makes them so.
      const double count = static_cast<double>(std::max<int64_t>(1, inputs[0].size()));
      const double size = greatest(want) + greatest(inputs);
      const double limit =
          4 * (count + 8) * std::ldexp(1, -float_format(part).mantissa_bits) * size;
      tolerance = [limit](int64_t) { return limit; };
    }
    const std::string text = compare(got[r], w, tolerance);
    if (!text.empty()) return fmt::format("result {} ({}): {}", r, w.shape(), text);
  }
  return std::string();
}

std::string bit_difference(const HostArray& got, const HostArray& want) {
  return compare(got, want, [](int64_t) { return 0.0; });
}

}  // namespace hekla::testing
