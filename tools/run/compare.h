// SPDX-License-Identifier: Apache-2.0
// Comparison of arrays: |got - want| <= atol + rtol * |want|, NaN equals NaN.
//
// Integers and booleans are compared exactly where both tolerances are zero; all else in f64, which
// holds every value up to 53 bits. Complex numbers are close if |got - want| is, as a complex
// magnitude. Infinities must be equal. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/host_array.h"

namespace hekla::tools {

struct Tolerance {
  double rtol = 0;
  double atol = 0;
};

// What is used when nobody names a tolerance: none for integers; for floats a few roundings of a
// sum: f64 1e-11, f32 and tf32 1e-5, f16 2e-3, bf16 2e-2, smaller ones 0.25, relative and absolute.
Tolerance default_tolerance(DType dtype);

struct Comparison {
  bool passed = true;
  double max_error = 0;    // largest |got - want|; infinite where one is NaN or infinite
  double worst_ratio = 0;  // largest |got - want| / (atol + rtol * |want|); above 1 fails
  int64_t mismatches = 0;
  int64_t compared = 0;
  // "element [1, 2]: got 3, want 4", or why the arrays cannot be compared. Empty if passed.
  std::string first_difference;
};

Comparison compare(const HostArray& got, const HostArray& want, Tolerance tolerance);

// Selected elements (flat, row-major) and the sum of all, for results too large to store. The sum
// is taken in f64 and passes if |got - sum| <= sum_rtol * abs_sum.
struct SampledResult {
  DType dtype = DType::kInvalid;
  Dims dims;
  std::span<const int64_t> indices;
  std::span<const double> values;
  double sum = 0;
  double abs_sum = 0;
  double sum_rtol = 0;
};
Comparison compare(const HostArray& got, const SampledResult& want, Tolerance tolerance);

// Element k, of a complex type part k, as f64 (i64 and ui64 rounded).
double element(const HostArray& array, int64_t k);
// Element k as text: "1.5", "(1, -2)", "true", exact integers.
std::string element_text(const HostArray& array, int64_t k);
// "[1, 2]" for a flat index.
std::string index_text(const Dims& dims, int64_t flat);

}  // namespace hekla::tools
