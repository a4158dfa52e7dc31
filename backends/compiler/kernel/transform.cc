// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/transform.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "runtime/base/host_array.h"

namespace hekla::kernel {
namespace {

bool has_roots(int64_t radix) { return radix != 1 && radix != 2 && radix != 4; }

// Of the passes: those of a pass have sizes of their own.
int64_t pass_roots(const Transform& t) {
  int64_t count = 0, stride = 1;
  for (size_t pass = 0; pass + 1 < t.radices.size(); ++pass) {
    const int64_t r = t.radices[pass];
    count += (r - 1) * (t.passed_size() / r / stride);
    stride *= r;
  }
  return count;
}

int64_t bytes_of(const Transform& t, int64_t length, bool is_real) {
  return t.lines() * length * dtype_bytes(t.part) * (is_real ? 1 : 2);
}

}  // namespace

int64_t radix_roots_at(const Transform& t, int64_t radix) {
  int64_t at = pass_roots(t);
  for (auto it = t.radices.begin(); it != t.radices.end() && *it != radix; ++it) {
    const bool is_first = std::find(t.radices.begin(), it, *it) == it;
    if (is_first && has_roots(*it)) at += *it;
  }
  return at;
}

int64_t pair_roots_at(const Transform& t) { return radix_roots_at(t, 0); }

int64_t root_count(const Transform& t) {
  const int64_t pairs = t.is_paired() ? t.passed_size() + 1 : 0;
  return std::max<int64_t>(pair_roots_at(t) + pairs, 1);
}

int64_t from_bytes(const Transform& t) { return bytes_of(t, t.from_size, t.is_from_real); }
int64_t root_bytes(const Transform& t) { return root_count(t) * dtype_bytes(t.part) * 2; }
int64_t to_bytes(const Transform& t) { return bytes_of(t, t.to_size, t.is_to_real); }

std::string why_not_a_transform(const Transform& t) {
  if (t.part != DType::kF32 && t.part != DType::kF64) return "its numbers are not f32 or f64";
  if (t.outer < 1 || t.inner < 1 || t.size < 1 || t.passed_size() > kLongestTransform) {
    return fmt::format("{} x {} lines of {}", t.outer, t.inner, t.size);
  }
  const DType complex = t.part == DType::kF32 ? DType::kC64 : DType::kC128;
  const std::array<int64_t, 3> all = {t.outer, t.size, t.inner};
  if (const Result<int64_t> bytes = checked_bytes(complex, all); !bytes.ok()) {
    return bytes.status().message();
  }
  const int64_t half = t.size / 2 + 1;
  if (t.to_size != (t.is_from_real ? half : t.size)) {
    return fmt::format("{} results of {}", t.to_size, t.size);
  }
  if (t.from_size != (t.is_to_real ? half : t.size)) {
    return fmt::format("{} elements for {}", t.from_size, t.size);
  }
  if (t.is_inverse ? t.is_from_real : t.is_to_real) return "real numbers on the wrong side";
  if ((t.is_from_real || t.is_to_real) && t.inner != 1) return "real numbers that are apart";
  const auto is_radix = [](int64_t r) {
    return r >= 1 && r <= kLargestRadix && (r % 2 != 0 || r == 2 || r == 4 || r == 8);
  };
  if (t.radices.empty() || !std::ranges::all_of(t.radices, is_radix) ||
      std::accumulate(t.radices.begin(), t.radices.end(), int64_t{1}, std::multiplies<>()) !=
          t.passed_size()) {
    return fmt::format("radices {} for {}", fmt::join(t.radices, " "), t.passed_size());
  }
  return "";
}

std::string to_string(const Transform& t) {
  const bool is_real = t.is_from_real || t.is_to_real;
  return fmt::format("{}{}{} x {} x {} {} by {}", t.is_inverse ? "inverse " : "",
                     is_real ? "real " : "", t.outer, t.size, t.inner, dtype_name(t.part),
                     fmt::join(t.radices, " "));
}

}  // namespace hekla::kernel
