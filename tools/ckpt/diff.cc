// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt/diff.h"

#include <cmath>
#include <cstring>
#include <map>

#include "tools/ckpt/progress.h"

namespace hekla::tools {

using checkpoint::Box;
using checkpoint::StepIndex;
using checkpoint::StepReader;
using checkpoint::TensorInfo;

namespace {

uint64_t bits_at(const std::byte* data, size_t bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, data, bytes);
  return bits;
}

// Numbers of a float format in the order of their values: the distance counts representable ones.
double ordinal(DType dtype, uint64_t bits) {
  const FloatFormat format = float_format(dtype);
  const uint64_t sign = uint64_t{1} << (format.exponent_bits + format.mantissa_bits);
  if (!format.has_sign || (bits & sign) == 0) return static_cast<double>(bits);
  return -static_cast<double>(bits & (sign - 1));
}

double number_at(DType dtype, uint64_t bits) {
  if (is_float(dtype)) return float_from_bits(dtype, bits);
  if (is_signed_integer(dtype)) {
    const int shift = 64 - static_cast<int>(8 * dtype_bytes(dtype));
    return static_cast<double>(static_cast<int64_t>(bits << shift) >> shift);
  }
  return static_cast<double>(bits);
}

void compare(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b, int64_t first,
             TensorDifference& difference) {
  if (std::memcmp(a.data(), b.data(), a.size()) == 0) return;
  // tf32 lies in memory as f32.
  const DType part = dtype == DType::kTF32 ? DType::kF32 : complex_part(dtype);
  const auto element = static_cast<size_t>(dtype_bytes(dtype));
  const auto size = static_cast<size_t>(dtype_bytes(part));
  for (size_t at = 0; at < a.size(); at += element) {
    if (std::memcmp(a.data() + at, b.data() + at, element) == 0) continue;
    ++difference.different;
    if (difference.first < 0) difference.first = first + static_cast<int64_t>(at / element);
    for (size_t p = at; p < at + element; p += size) {
      const uint64_t x = bits_at(a.data() + p, size), y = bits_at(b.data() + p, size);
      const double u = number_at(part, x), v = number_at(part, y);
      if (std::isfinite(u) && std::isfinite(v)) {
        difference.max_absolute = std::max(difference.max_absolute, std::abs(u - v));
        if (is_float(part)) {
          difference.max_ulp =
              std::max(difference.max_ulp, std::abs(ordinal(part, x) - ordinal(part, y)));
        }
      }
    }
  }
}

// Whether the digests alone say that the tensors are equal.
bool known_equal(const StepIndex& a, int32_t ia, const StepIndex& b, int32_t ib) {
  const auto pa = a.pieces_of(ia), pb = b.pieces_of(ib);
  if (a.digests.empty() || b.digests.empty() || pa.size() != pb.size()) {
    return false;
  }
  for (size_t i = 0; i < pa.size(); ++i) {
    // Digests of compressed pieces are over other bytes.
    if (pa[i].box != pb[i].box || pa[i].chunks || pb[i].chunks) return false;
  }
  return a.tensor_digest(ia) == b.tensor_digest(ib);
}

}  // namespace

Result<DiffReport> diff_steps(Io& io, const StepReader& a, const StepReader& b,
                              const std::regex& tensors) {
  HEKLA_ASSIGN_OR_RETURN(const StepIndex index_a, read_step_index(io, a));
  HEKLA_ASSIGN_OR_RETURN(const StepIndex index_b, read_step_index(io, b));
  DiffReport report;
  std::map<std::string, std::pair<int32_t, int32_t>> names;  // -1: not there
  const auto add = [&](const StepIndex& step, bool is_a) {
    for (size_t i = 0; i < step.tensors.size(); ++i) {
      const std::string& name = step.tensors[i].name;
      if (!std::regex_search(name, tensors)) continue;
      auto& pair = names.try_emplace(name, -1, -1).first->second;
      (is_a ? pair.first : pair.second) = static_cast<int32_t>(i);
    }
  };
  add(index_a, true);
  add(index_b, false);
  Progress progress("diff", a.commit().logical_bytes);
  for (const auto& [name, ids] : names) {
    if (ids.first < 0 || ids.second < 0) {
      report.differences.push_back(
          {name, ids.second < 0 ? "only in the first" : "only in the second"});
      continue;
    }
    const TensorInfo& ta = index_a.tensors[static_cast<size_t>(ids.first)];
    const TensorInfo& tb = index_b.tensors[static_cast<size_t>(ids.second)];
    ++report.compared;
    if (ta.dtype != tb.dtype || ta.shape != tb.shape) {
      report.differences.push_back(
          {name, fmt::format("{} against {}", shape_string(ta.dtype, ta.shape),
                             shape_string(tb.dtype, tb.shape))});
      continue;
    }
    if (ta.spec != tb.spec) {
      report.differences.push_back({name, fmt::format("spec '{}' against '{}'", ta.spec, tb.spec)});
    }
    if (known_equal(index_a, ids.first, index_b, ids.second)) continue;
    TensorDifference difference{name, "values"};
    difference.elements = element_count(ta.shape);
    int64_t done = 0;
    std::vector<std::byte> other;
    HEKLA_RETURN_IF_ERROR(for_each_part(
        a, ids.first, kPartBytes,
        [&, second = ids.second](const Box& part, std::span<const std::byte> bytes) -> Status {
          other.resize(bytes.size());
          const checkpoint::Wanted wanted{second, part, {}};
          std::byte* const target = other.data();
          HEKLA_RETURN_IF_ERROR(b.read(std::span(&wanted, 1), std::span(&target, 1)));
          compare(ta.dtype, bytes, other, done, difference);
          done += element_count(part.size);
          progress.add(static_cast<int64_t>(bytes.size()));
          return ok_status();
        }));
    if (difference.different > 0) report.differences.push_back(std::move(difference));
  }
  return report;
}

}  // namespace hekla::tools
