// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/lapack_runner.h"

#include <complex>
#include <cstring>
#include <limits>
#include <string>

#include "runtime/base/copy_bytes.h"

namespace hekla::reference {
namespace {

template <typename F>
void with_element(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(float());
    case DType::kF64:
      return f(double());
    case DType::kC64:
      return f(std::complex<float>());
    default:
      return f(std::complex<double>());
  }
}

}  // namespace

void copy_by_tasks(void* to, const void* from, int64_t bytes, const ForEach& for_each) {
  constexpr int64_t kPiece = 64 * 1024;
  for_ranges(for_each, (bytes + kPiece - 1) / kPiece, kPiece / 8, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kPiece, last = std::min(bytes, end * kPiece);
    copy_bytes(static_cast<std::byte*>(to) + first, static_cast<const std::byte*>(from) + first,
               last - first);
  });
}

Status check_info(int32_t info, std::string_view what) {
  if (info == lapack::kNoMemory) {
    return Status(StatusCode::kResourceExhausted,
                  std::string(what) + ": no memory for LAPACK's workspace");
  }
  return Status(StatusCode::kResourceExhausted,
                std::string(what) +
                    ": the workspace is beyond LAPACK's 32-bit integers; use smaller "
                    "matrices");
}

bool is_number(DType dtype, const std::byte* at) {
  bool result = false;
  with_element(dtype, [&](auto value) {
    std::memcpy(&value, at, sizeof(value));
    result = value == value;
  });
  return result;
}

void fill_nan(DType dtype, std::byte* begin, std::byte* end) {
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    std::fill(reinterpret_cast<T*>(begin), reinterpret_cast<T*>(end),
              T(std::numeric_limits<decltype(std::real(element))>::quiet_NaN()));
  });
}

}  // namespace hekla::reference
