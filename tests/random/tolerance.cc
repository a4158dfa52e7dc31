// SPDX-License-Identifier: Apache-2.0
#include "tests/random/tolerance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "backends/compiler/lower/algorithm.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/ir/op_attributes.h"

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

std::string index_text(const HostArray& array, int64_t part) {
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

// What a product of operands loses by pieces of this type, in units of its magnitude: the greatest
// of those that are left out, as many as there are, and what is left of numbers behind two pieces.
double lost_by_pieces(const ir::Operation& op, DType type) {
  if (type == DType::kF32 || op.operand_count() != 2) return 0;
  for (const ir::Value* value : {op.operand(0), op.operand(1), op.result()}) {
    if (value->type().dtype() != DType::kF32) return 0;
  }
  const Result<kernel::Algorithm> asked = lower::algorithm_of(op);
  if (!asked.ok()) return 0;
  const int digits = float_format(type).mantissa_bits + 1;
  switch (kernel::fewest_pieces(*asked, type, /*are_in_range=*/true).products) {
    case 3:
      return 3 * std::ldexp(1, -2 * digits);
    case 6:
      return 3 * std::ldexp(1, -3 * digits);
    default:
      return 0;
  }
}

struct Sum {
  std::vector<bool> by_magnitude;  // per operand: takes its absolute value for the bound
  double terms = 1;                // at most, of one element
  DType type = DType::kF32;        // that sums are taken in; the result is rounded from it
};

double product_of(const Dims& dims, const std::vector<int64_t>& which) {
  double product = 1;
  for (const int64_t d : which) product *= static_cast<double>(dims[static_cast<size_t>(d)]);
  return product;
}

bool is_product(const ir::Operation& op) {
  return op.code() == OpCode::kDot || op.code() == OpCode::kDotGeneral ||
         op.code() == OpCode::kConvolution;
}

// Products of an element of a dot, dot_general or convolution.
double products_of(const ir::Operation& op) {
  const Dims& lhs = op.operand(0)->type().dims();
  const Dims& rhs = op.operand(1)->type().dims();
  if (const auto* n = op.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>()) {
    return product_of(lhs, n->lhs_contracting_dimensions);
  }
  if (const auto* n = op.attribute("dimension_numbers").get<ir::ConvDimensionNumbers>()) {
    return product_of(rhs, n->kernel_spatial_dimensions) *
           product_of(rhs, {n->kernel_input_feature_dimension});
  }
  return static_cast<double>(lhs.back());
}

// How the result is a sum of operands, or of products of them; nullopt when it is not one. Two more
// terms stand for the start and for the rounding of what an operation gives in the end.
std::optional<Sum> as_sum(const ir::Operation& op) {
  const DType dtype = op.result()->type().dtype();
  if (!is_float(dtype) && !is_complex(dtype)) return std::nullopt;
  const DType part = complex_part(dtype);
  const auto size = [&](size_t operand) {
    return static_cast<double>(element_count(op.operand(operand)->type().dims()));
  };
  switch (op.code()) {
    case OpCode::kDot:
    case OpCode::kDotGeneral:
    case OpCode::kConvolution: {
      // A complex product has two real ones in each part.
      const double products = products_of(op) * (is_complex(dtype) ? 2 : 1);
      return Sum{{true, true}, products + 2, part == DType::kF64 ? part : DType::kF32};
    }
    case OpCode::kReduce:
      if (op.operand_count() != 2 || region_op(op, 0) != OpCode::kAdd) return std::nullopt;
      return Sum{{true, true},
                 product_of(op.operand(0)->type().dims(), ir::int_list(op, "dimensions")) + 2,
                 part};
    case OpCode::kReduceWindow: {
      if (op.operand_count() != 2 || region_op(op, 0) != OpCode::kAdd) return std::nullopt;
      double window = 1;
      for (const int64_t w : ir::int_list(op, "window_dimensions")) {
        window *= static_cast<double>(w);
      }
      return Sum{{true, true}, window + 2, part};
    }
    case OpCode::kScatter:
      if (op.operand_count() != 3 || region_op(op, 0) != OpCode::kAdd) return std::nullopt;
      return Sum{{true, false, true}, size(2) + 2, part};
    case OpCode::kSelectAndScatter:
      if (region_op(op, 1) != OpCode::kAdd) return std::nullopt;
      return Sum{{false, true, true}, size(1) + 2, part};
    default:
      return std::nullopt;
  }
}

// Terms of all sums of floats in the regions of loops and branches, each taken once.
double terms_inside(const ir::Operation& op) {
  double terms = 0;
  for (size_t r = 0; r < op.region_count(); ++r) {
    for (const auto& inner : op.region(r).front().operations()) {
      if (inner->result_count() == 0 || !inner->result(0)->type().is_static_tensor()) continue;
      if (const std::optional<Sum> sum = as_sum(*inner)) terms += sum->terms;
      terms += terms_inside(*inner);
    }
  }
  return terms;
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

// Whether the values of one part agree; `limit` is asked for only where bits differ.
template <typename Limit>
bool agrees(const HostArray& got, const HostArray& want, int64_t i, const Limit& limit) {
  if (part_bits(got, i) == part_bits(want, i)) return true;
  if (!is_float(complex_part(want.dtype()))) return false;
  const double g = part_value(got, i), w = part_value(want, i);
  if (std::isnan(g) && std::isnan(w)) return true;
  const double most = limit();
  return std::isinf(most) || (most > 0 && std::fabs(g - w) <= most);
}

// What an operation gives on its inputs, and how far from it a result may lie.
class Expected {
 public:
  // `kept`: what the device may take for zero widens the limits by what sums lose by it.
  static Result<Expected> make(const ir::Operation& op, const ir::Module& module,
                               const std::vector<HostArray>& inputs, KeptSubnormals kept,
                               bool is_cut, DType pieces) {
    Expected e;
    e.kept_ = kept;
    HEKLA_ASSIGN_OR_RETURN(e.values_, reference::evaluate(module, inputs));
    if (!e.values_.empty()) e.sum_ = as_sum(op);
    if (e.sum_) {
      std::vector<HostArray> sizes = inputs;
      for (size_t i = 0; i < op.operand_count(); ++i) {
        if (!e.sum_->by_magnitude[i]) continue;
        sizes[i] = magnitudes(inputs[i]);
      }
      HEKLA_ASSIGN_OR_RETURN(e.bounds_, reference::evaluate(module, std::move(sizes)));
      if (pieces != DType::kF32 && is_product(op)) {
        e.lost_ = lost_by_pieces(op, pieces);
        // Half of the least number that is no zero, and of those that a device may take for zero
        // the greatest; of both operands.
        const FloatFormat format = float_format(pieces);
        const int least = 1 - format.bias - (pieces == DType::kF16 ? format.mantissa_bits : 0);
        e.lost_small_ = std::ldexp(1, least) * greatest(inputs);
      }
    }
    if (ir::is_elementwise(op.code())) {
      e.ulps_ = function_ulps(op.code(), is_complex(op.operand(0)->type().dtype()));
    }
    if (op.code() == OpCode::kFft || op.code() == OpCode::kCholesky ||
        op.code() == OpCode::kTriangularSolve || op.code() == OpCode::kBatchNormTraining ||
        op.code() == OpCode::kBatchNormInference || op.code() == OpCode::kBatchNormGrad) {
      // Operands of these are moderate: the generator makes them so.
      e.steps_ = 4 * (static_cast<double>(std::max<int64_t>(1, inputs[0].size())) + 8);
      e.size_ = greatest(e.values_) + greatest(inputs);
    }
    if (is_cut &&
        (op.code() == OpCode::kWhile || op.code() == OpCode::kCase || op.code() == OpCode::kIf)) {
      // Loops of the generator make a few iterations.
      constexpr double kIterations = 16;
      const double terms = terms_inside(op);
      e.steps_ = terms > 0 ? kIterations * (terms + 8) : 0;
      e.size_ = greatest(e.values_) + greatest(inputs);
    }
    return e;
  }

  const std::vector<HostArray>& values() const { return values_; }

  double limit(size_t result, int64_t i) const {
    const HostArray& want = values_[result];
    const DType part = complex_part(want.dtype());
    if (!is_float(part)) return 0;  // integers and booleans are exact
    const bool is_complex_type = is_complex(want.dtype());
    const double zeros = zero_below(part, kept_);
    const double epsilon = std::ldexp(1, -float_format(part).mantissa_bits);
    if (sum_) {
      const HostArray& bounds = bounds_[result];
      const double size = std::fabs(part_value(bounds, is_complex_type ? i | 1 : i));
      // Any order of the terms, twice: the evaluator's and the device's (docs/numerics.md).
      const double sum_epsilon = std::ldexp(1, -float_format(sum_->type).mantissa_bits);
      double most = sum_->terms * (sum_epsilon * (size + smallest_normal(sum_->type)) + zeros);
      most += lost_ * size + sum_->terms * lost_small_;
      if (sum_->type != part) most += epsilon * (size + smallest_normal(part));
      // Near an overflow the order decides where the infinity comes. The size is itself a sum that
      // the evaluator rounds term by term: of few bits it stands still long before the true one.
      if (!(size + most < largest_finite(part) / 4)) return std::numeric_limits<double>::infinity();
      return most;
    }
    if (ulps_) {
      if (!is_complex_type) return *ulps_ * ulp(part, part_value(want, i));
      const double size =
          std::max(std::fabs(part_value(want, i)), std::fabs(part_value(want, i ^ 1)));
      // Infinities and NaNs of complex functions are open: docs/numerics.md, edges.
      if (!(size < largest_finite(part) / 4)) return std::numeric_limits<double>::infinity();
      // A part is a sum of products, each of which may be zero.
      return *ulps_ * (ulp(part, size) + zeros);
    }
    return steps_ * (epsilon * size_ + zeros);
  }

 private:
  KeptSubnormals kept_;
  std::vector<HostArray> values_;
  std::vector<HostArray> bounds_;  // of a sum: from the magnitudes of its terms
  std::optional<Sum> sum_;
  std::optional<double> ulps_;
  double lost_ = 0, lost_small_ = 0;  // by pieces: of the terms' size, and of each
  double steps_ = 0;  // roundings of something of the size of size_, one after the other
  double size_ = 0;
};

// What an operation may give on a device that may take subnormal numbers for zero.
class WithZeros {
 public:
  WithZeros(const passes::SingleOperation& single, const std::vector<HostArray>& inputs,
            KeptSubnormals kept, bool is_cut, DType pieces)
      : single_(single), inputs_(inputs), kept_(kept), is_cut_(is_cut), pieces_(pieces) {}

  // Whether part `i` of a result, which is not as `exact` says, is right by any of them.
  Result<bool> allow(const Expected& exact, const HostArray& got, size_t result, int64_t i) {
    const ir::Operation& op = *single_.module->entry()->body().front().operations().front();
    if (only_moves(op.code())) return false;
    if (is_zero_for(exact, got, result, i)) return true;
    if (expected_.empty()) {
      for (const ZeroSign sign : {ZeroSign::kOfTheNumber, ZeroSign::kPositive}) {
        HEKLA_ASSIGN_OR_RETURN(modules_.emplace_back(), with_zeros(*single_.module, kept_, sign));
        std::vector<HostArray> inputs;
        for (const HostArray& input : inputs_) inputs.push_back(with_zeros(input, kept_, sign));
        HEKLA_ASSIGN_OR_RETURN(
            Expected made, Expected::make(op, *modules_.back(), inputs, kept_, is_cut_, pieces_));
        expected_.push_back(std::move(made));
      }
    }
    for (const Expected& e : expected_) {
      if (agrees(got, e.values()[result], i, [&] { return e.limit(result, i); }) ||
          is_zero_for(e, got, result, i) || is_chosen(e, got, result, i)) {
        return true;
      }
    }
    return false;
  }

 private:
  double zeros(const HostArray& array) const {
    return zero_below(complex_part(array.dtype()), kept_);
  }

  // A zero for a number that is subnormal, or may be within its limit. Types narrower than the one
  // that computed may have rounded it up to a normal one.
  bool is_zero_for(const Expected& e, const HostArray& got, size_t result, int64_t i) const {
    const double below = zeros(got);
    if (below == 0 || part_value(got, i) != 0) return false;
    const double least = std::fabs(part_value(e.values()[result], i)) - e.limit(result, i);
    const DType part = complex_part(got.dtype());
    const bool is_narrow = part != DType::kF32 && part != DType::kF64;
    return least < below || (is_narrow && least == below);
  }

  // A subnormal number where zero is expected: one of the inputs that was chosen, since it compares
  // as zero does, and not computed with.
  bool is_chosen(const Expected& e, const HostArray& got, size_t result, int64_t i) const {
    if (!(std::fabs(part_value(got, i)) < zeros(got)) || part_value(e.values()[result], i) != 0) {
      return false;
    }
    const uint64_t bits = part_bits(got, i);
    for (const HostArray& input : inputs_) {
      if (input.dtype() != got.dtype()) continue;
      for (int64_t k = 0; k < part_count(input); ++k) {
        if (part_bits(input, k) == bits) return true;
      }
    }
    return false;
  }

  const passes::SingleOperation& single_;
  const std::vector<HostArray>& inputs_;
  const KeptSubnormals kept_;
  const bool is_cut_;
  const DType pieces_;
  std::vector<std::shared_ptr<ir::Module>> modules_;
  std::vector<Expected> expected_;
};

std::string shape_difference(const HostArray& got, const HostArray& want) {
  if (got.dtype() == want.dtype() && got.dims() == want.dims()) return "";
  return fmt::format("is {} instead of {}", got.shape(), want.shape());
}

std::string element_difference(const HostArray& got, const HostArray& want, int64_t i,
                               double limit) {
  return fmt::format("{} is {} instead of {}, tolerance {:.3g}", index_text(want, i), show(got, i),
                     show(want, i), limit);
}

}  // namespace

Result<std::string> difference(const passes::SingleOperation& single,
                               const std::vector<HostArray>& inputs,
                               const std::vector<HostArray>& got, KeptSubnormals kept, bool is_cut,
                               DType pieces) {
  const ir::Operation& op = *single.module->entry()->body().front().operations().front();
  HEKLA_ASSIGN_OR_RETURN(const Expected exact,
                         Expected::make(op, *single.module, inputs, {}, is_cut, pieces));
  const std::vector<HostArray>& want = exact.values();
  if (got.size() != want.size()) {
    return fmt::format("has {} results instead of {}", got.size(), want.size());
  }
  WithZeros with_zeros(single, inputs, kept, is_cut, pieces);
  for (size_t r = 0; r < want.size(); ++r) {
    const auto text = [&](const std::string& wrong) {
      return fmt::format("result {} ({}): {}", r, want[r].shape(), wrong);
    };
    if (const std::string wrong = shape_difference(got[r], want[r]); !wrong.empty()) {
      return text(wrong);
    }
    for (int64_t i = 0; i < part_count(want[r]); ++i) {
      if (agrees(got[r], want[r], i, [&] { return exact.limit(r, i); })) continue;
      if (!kept.all()) {
        HEKLA_ASSIGN_OR_RETURN(const bool is_allowed, with_zeros.allow(exact, got[r], r, i));
        if (is_allowed) continue;
      }
      return text(element_difference(got[r], want[r], i, exact.limit(r, i)));
    }
  }
  return std::string();
}

std::string bit_difference(const HostArray& got, const HostArray& want) {
  if (const std::string wrong = shape_difference(got, want); !wrong.empty()) return wrong;
  for (int64_t i = 0; i < part_count(want); ++i) {
    if (agrees(got, want, i, [] { return 0.0; })) continue;
    return element_difference(got, want, i, 0);
  }
  return "";
}

}  // namespace hekla::testing
