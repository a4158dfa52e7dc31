// SPDX-License-Identifier: Apache-2.0
#include "tools/run/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>

namespace hekla::tools {
namespace {

uint64_t element_bits(const HostArray& array, int64_t k) {
  const auto bytes = static_cast<size_t>(dtype_bytes(complex_part(array.dtype())));
  uint64_t bits = 0;
  std::memcpy(&bits, array.data() + k * static_cast<int64_t>(bytes), bytes);
  return bits;
}

int64_t signed_element(const HostArray& array, int64_t k) {
  const int shift = 64 - static_cast<int>(dtype_bytes(array.dtype())) * 8;
  return static_cast<int64_t>(element_bits(array, k) << shift) >> shift;
}

// Whether two f64 are the same for a comparison: equal, or both NaN.
bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

class Judge {
 public:
  Judge(const HostArray& got, Tolerance tolerance) : got_(got), tolerance_(tolerance) {}

  // `distance` and `size` of want; exact equality has been looked at.
  void add(int64_t index, bool equal, double distance, double size, const std::string& want) {
    ++result_.compared;
    if (equal) return;
    const double limit = tolerance_.atol + tolerance_.rtol * size;
    if (std::isnan(distance)) distance = std::numeric_limits<double>::infinity();
    result_.max_error = std::max(result_.max_error, distance);
    const bool close = distance <= limit && std::isfinite(distance) && std::isfinite(size);
    result_.worst_ratio =
        std::max(result_.worst_ratio,
                 limit > 0 ? distance / limit : std::numeric_limits<double>::infinity());
    if (close) return;
    if (result_.mismatches++ == 0) {
      result_.first_difference =
          fmt::format("element {}: got {}, want {}", index_text(got_.dims(), index),
                      element_text(got_, index), want);
    }
    result_.passed = false;
  }
  void fail(std::string reason) {
    result_.passed = false;
    if (result_.first_difference.empty()) result_.first_difference = std::move(reason);
  }
  Comparison take() { return std::move(result_); }

 private:
  const HostArray& got_;
  Tolerance tolerance_;
  Comparison result_;
};

bool check_shape(const HostArray& got, DType dtype, const Dims& dims, Judge& judge) {
  if (got.dtype() == dtype && got.dims() == dims) return true;
  judge.fail(fmt::format("got {}, want {}", got.shape(), shape_string(dtype, dims)));
  return false;
}

std::string number_text(double value) { return fmt::format("{:.9g}", value); }

}  // namespace

Tolerance default_tolerance(DType dtype) {
  const DType part = complex_part(dtype);
  if (!is_float(part)) return {};
  double value = 0.25;
  if (part == DType::kF64) value = 1e-11;
  if (part == DType::kF32 || part == DType::kTF32) value = 1e-5;
  if (part == DType::kF16) value = 2e-3;
  if (part == DType::kBF16) value = 2e-2;
  return {value, value};
}

double element(const HostArray& array, int64_t k) {
  const DType dtype = complex_part(array.dtype());
  if (is_float(dtype)) return float_from_bits(dtype, element_bits(array, k));
  if (is_signed_integer(dtype)) return static_cast<double>(signed_element(array, k));
  return static_cast<double>(element_bits(array, k));
}

std::string element_text(const HostArray& array, int64_t k) {
  const DType dtype = array.dtype();
  if (is_complex(dtype)) {
    return fmt::format("({}, {})", number_text(element(array, 2 * k)),
                       number_text(element(array, 2 * k + 1)));
  }
  if (dtype == DType::kI1) return element_bits(array, k) != 0 ? "true" : "false";
  if (is_signed_integer(dtype)) return fmt::format("{}", signed_element(array, k));
  if (is_unsigned_integer(dtype)) return fmt::format("{}", element_bits(array, k));
  if (dtype == DType::kF64) return fmt::format("{}", element(array, k));
  return number_text(element(array, k));
}

std::string index_text(const Dims& dims, int64_t flat) {
  Dims index(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    index[i] = dims[i] == 0 ? 0 : flat % dims[i];
    if (dims[i] != 0) flat /= dims[i];
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

Comparison compare(const HostArray& got, const HostArray& want, Tolerance tolerance) {
  Judge judge(got, tolerance);
  if (!check_shape(got, want.dtype(), want.dims(), judge)) return judge.take();
  const bool is_exact = !is_float(complex_part(got.dtype()));
  for (int64_t k = 0; k < got.size(); ++k) {
    bool equal = false;
    double distance = 0;
    double size = 0;
    if (is_complex(got.dtype())) {
      const double re = element(got, 2 * k), im = element(got, 2 * k + 1);
      const double want_re = element(want, 2 * k), want_im = element(want, 2 * k + 1);
      equal = same(re, want_re) && same(im, want_im);
      // A part that is equal adds nothing, also where both are NaN or infinite.
      distance =
          std::hypot(same(re, want_re) ? 0 : re - want_re, same(im, want_im) ? 0 : im - want_im);
      if (std::isnan(re - want_re) && !same(re, want_re)) distance = INFINITY;
      if (std::isnan(im - want_im) && !same(im, want_im)) distance = INFINITY;
      size = std::hypot(std::isfinite(want_re) ? want_re : 0, std::isfinite(want_im) ? want_im : 0);
    } else if (is_exact) {
      equal = element_bits(got, k) == element_bits(want, k);
      distance = std::abs(element(got, k) - element(want, k));
      // Two 64-bit integers may differ and round to the same f64.
      if (!equal && distance == 0) distance = 1;
      size = std::abs(element(want, k));
    } else {
      const double a = element(got, k), b = element(want, k);
      equal = same(a, b);
      distance = std::abs(a - b);
      size = std::abs(b);
    }
    judge.add(k, equal, distance, size, equal ? std::string() : element_text(want, k));
  }
  return judge.take();
}

Comparison compare(const HostArray& got, const SampledResult& want, Tolerance tolerance) {
  Judge judge(got, tolerance);
  if (!check_shape(got, want.dtype, want.dims, judge)) return judge.take();
  if (is_complex(got.dtype())) {
    judge.fail("samples of complex results are not supported; store the whole result");
    return judge.take();
  }
  for (size_t i = 0; i < want.indices.size(); ++i) {
    const int64_t k = want.indices[i];
    if (k < 0 || k >= got.size()) {
      judge.fail(fmt::format("sample {} is outside of {}", k, got.shape()));
      return judge.take();
    }
    const double a = element(got, k);
    judge.add(k, same(a, want.values[i]), std::abs(a - want.values[i]), std::abs(want.values[i]),
              number_text(want.values[i]));
  }
  double sum = 0;
  for (int64_t k = 0; k < got.size(); ++k) sum += element(got, k);
  if (!same(sum, want.sum) && !(std::abs(sum - want.sum) <= want.sum_rtol * want.abs_sum)) {
    judge.fail(fmt::format("the sum of all elements is {:.9g}, want {:.9g} within {:.3g}", sum,
                           want.sum, want.sum_rtol * want.abs_sum));
  }
  return judge.take();
}

}  // namespace hekla::tools
