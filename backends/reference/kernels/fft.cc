// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/fft.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <memory>
#include <numbers>
#include <vector>

#include "backends/reference/kernels/convert.h"
#include "backends/reference/kernels/movement.h"

namespace hekla::reference {
namespace {

using Complex = std::complex<double>;

// Prime factors up to this size are transformed directly, larger ones by Bluestein's algorithm.
constexpr int64_t kLargestDirectPrime = 31;

// exp(-2 pi i k / n), by the angle in the first octant so that multiples of 45 degrees are exact.
Complex root_of_unity(int64_t k, int64_t n) {
  const int64_t octant = 8 * k / n;
  const auto unit = [n](int64_t eighths) {  // eighths / (8 n) of a turn, at most one eighth
    const double angle =
        std::numbers::pi * static_cast<double>(eighths) / (4.0 * static_cast<double>(n));
    return Complex(std::cos(angle), std::sin(angle));
  };
  const int64_t rest = 8 * k - octant * n;
  const Complex up = unit(rest);
  const Complex down = unit(n - rest);
  switch (octant) {
    case 0:
      return {up.real(), -up.imag()};
    case 1:
      return {down.imag(), -down.real()};
    case 2:
      return {-up.imag(), -up.real()};
    case 3:
      return {-down.real(), -down.imag()};
    case 4:
      return {-up.real(), up.imag()};
    case 5:
      return {-down.imag(), down.real()};
    case 6:
      return {up.imag(), up.real()};
    default:
      return {down.real(), down.imag()};
  }
}

// Plain multiplication: std::complex's operator* repairs infinities, slowly.
Complex product(Complex a, Complex b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

// The forward transform of one length, not scaled.
class Transform {
 public:
  explicit Transform(int64_t n) : n_(n), roots_(static_cast<size_t>(n)) {
    for (int64_t k = 0; k < n; ++k) roots_[k] = root_of_unity(k, n);
    int64_t rest = n;
    for (int64_t p = 2; p <= kLargestDirectPrime; ++p) {
      while (rest % p == 0) {
        factors_.push_back(p);
        rest /= p;
      }
    }
    if (rest > 1) prepare_bluestein();
    scratch_.resize(static_cast<size_t>(n));
  }

  // In place.
  void run(Complex* data) {
    if (n_ <= 1) return;
    if (convolver_ != nullptr) return run_bluestein(data);
    std::copy_n(data, n_, scratch_.begin());
    recurse(n_, 1, 0, scratch_.data(), data);
  }

 private:
  // Decimation in time: `n` inputs at distance `stride`, outputs dense. n * stride == n_.
  void recurse(int64_t n, int64_t stride, size_t level, const Complex* in, Complex* out) {
    if (n == 1) {
      *out = *in;
      return;
    }
    const int64_t p = factors_[level];
    const int64_t m = n / p;
    for (int64_t q = 0; q < p; ++q) {
      recurse(m, stride * p, level + 1, in + q * stride, out + q * m);
    }
    Complex terms[kLargestDirectPrime];
    for (int64_t k = 0; k < m; ++k) {
      for (int64_t q = 0; q < p; ++q) terms[q] = product(out[q * m + k], roots_[q * k * stride]);
      if (p == 2) {
        out[k] = terms[0] + terms[1];
        out[m + k] = terms[0] - terms[1];
        continue;
      }
      for (int64_t r = 0; r < p; ++r) {
        Complex sum = terms[0];
        for (int64_t q = 1; q < p; ++q) sum += product(terms[q], roots_[q * r % p * (n_ / p)]);
        out[r * m + k] = sum;
      }
    }
  }

  // L. Bluestein, "A linear filtering approach to the computation of discrete Fourier transform",
  // 1970: jk = (j^2 + k^2 - (k - j)^2) / 2 turns the transform into a convolution with a chirp.
  void prepare_bluestein() {
    int64_t size = 1;
    while (size < 2 * n_ - 1) size *= 2;
    convolver_ = std::make_unique<Transform>(size);
    chirp_.resize(static_cast<size_t>(n_));
    filter_.assign(static_cast<size_t>(size), Complex(0));
    for (int64_t k = 0; k < n_; ++k) {
      // k^2 modulo 2n keeps the angle exact.
      const auto square = static_cast<int64_t>(static_cast<__int128>(k) * k % (2 * n_));
      chirp_[k] = root_of_unity(square, 2 * n_);
      filter_[k] = std::conj(chirp_[k]);
      if (k > 0) filter_[size - k] = filter_[k];
    }
    convolver_->run(filter_.data());
  }

  void run_bluestein(Complex* data) {
    const size_t size = filter_.size();
    std::vector<Complex> work(size, Complex(0));
    for (int64_t k = 0; k < n_; ++k) work[k] = product(data[k], chirp_[k]);
    convolver_->run(work.data());
    // The inverse transform by conjugation.
    for (size_t k = 0; k < size; ++k) work[k] = std::conj(product(work[k], filter_[k]));
    convolver_->run(work.data());
    for (int64_t k = 0; k < n_; ++k) {
      data[k] = product(std::conj(work[k]), chirp_[k]) / static_cast<double>(size);
    }
  }

  int64_t n_;
  std::vector<Complex> roots_;
  std::vector<int64_t> factors_;
  std::vector<Complex> scratch_;
  std::unique_ptr<Transform> convolver_;  // Bluestein only, as the two that follow
  std::vector<Complex> chirp_;
  std::vector<Complex> filter_;
};

// Transforms dimension `dim` of a dense array in place.
void transform_dim(Complex* data, const Dims& dims, size_t dim, bool inverse) {
  const int64_t n = dims[dim];
  const int64_t inner = element_count(std::span(dims).subspan(dim + 1));
  const int64_t outer = element_count(std::span(dims).first(dim));
  Transform transform(n);
  std::vector<Complex> line(static_cast<size_t>(n));
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      Complex* start = data + o * n * inner + i;
      for (int64_t k = 0; k < n; ++k) {
        line[k] = inverse ? std::conj(start[k * inner]) : start[k * inner];
      }
      transform.run(line.data());
      for (int64_t k = 0; k < n; ++k) {
        start[k * inner] = inverse ? std::conj(line[k]) / static_cast<double>(n) : line[k];
      }
    }
  }
}

// Half spectra [..., n / 2 + 1] -> [..., n], by conjugate symmetry.
Result<HostArray> full_spectrum(const HostArray& half, int64_t n) {
  Dims dims = half.dims();
  const int64_t half_size = dims.back();
  dims.back() = n;
  HEKLA_ASSIGN_OR_RETURN(HostArray full, HostArray::allocate(half.dtype(), dims, false));
  Complex* out = full.mutable_as<Complex>();
  const Complex* in = half.as<Complex>();
  const int64_t rows = full.size() / n;
  for (int64_t row = 0; row < rows; ++row, in += half_size, out += n) {
    for (int64_t k = 0; k < n; ++k) out[k] = k < half_size ? in[k] : std::conj(in[n - k]);
    // A real signal has real values here; what else lies there is ignored.
    out[0] = out[0].real();
    if (n % 2 == 0) out[n / 2] = out[n / 2].real();
  }
  return full;
}

}  // namespace

Result<HostArray> fft(const HostArray& operand, FftType fft_type,
                      std::span<const int64_t> fft_length) {
  const size_t rank = operand.dims().size();
  const size_t count = fft_length.size();
  const bool is_real_in = fft_type == FftType::kRfft;
  const DType dtype = operand.dtype();
  const bool dtype_fits =
      is_real_in ? dtype == DType::kF32 || dtype == DType::kF64 : is_complex(dtype);
  bool fits = count >= 1 && count <= 3 && count <= rank && dtype_fits;
  for (size_t i = 0; fits && i < count; ++i) {
    int64_t expected = fft_length[i];
    if (fft_type == FftType::kIrfft && i + 1 == count && expected > 0) expected = expected / 2 + 1;
    fits = fft_length[i] >= 0 && operand.dims()[rank - count + i] == expected;
  }
  if (!fits) {
    return invalid_argument("fft of {} with lengths [{}]: shape or dtype do not fit",
                            operand.shape(), fmt::join(fft_length, ","));
  }
  const bool is_double = complex_part(dtype) == DType::kF64;
  Dims result_dims = operand.dims();
  DType result_dtype = dtype;
  if (fft_type == FftType::kRfft) {
    if (fft_length.back() > 0) result_dims.back() = fft_length.back() / 2 + 1;
    result_dtype = is_double ? DType::kC128 : DType::kC64;
  } else if (fft_type == FftType::kIrfft) {
    result_dims.back() = fft_length.back();
    result_dtype = is_double ? DType::kF64 : DType::kF32;
  }
  if (operand.size() == 0) return HostArray::allocate(result_dtype, result_dims);

  HEKLA_ASSIGN_OR_RETURN(HostArray work, convert_elements(operand, DType::kC128));
  const bool inverse = fft_type == FftType::kIfft || fft_type == FftType::kIrfft;
  // The half dimension is last of an inverse and first of a forward transform.
  Complex* data = work.mutable_as<Complex>();
  if (!inverse) transform_dim(data, work.dims(), rank - 1, false);
  if (fft_type == FftType::kRfft) {
    SliceConfig half{Dims(rank, 0), result_dims, {}};
    HEKLA_ASSIGN_OR_RETURN(work, slice(work, half));
    data = work.mutable_as<Complex>();
  }
  for (size_t d = rank - count; d + 1 < rank; ++d) transform_dim(data, work.dims(), d, inverse);
  if (fft_type == FftType::kIrfft) {
    HEKLA_ASSIGN_OR_RETURN(work, full_spectrum(work, fft_length.back()));
    data = work.mutable_as<Complex>();
  }
  if (inverse) transform_dim(data, work.dims(), rank - 1, true);
  return convert_elements(work, result_dtype);
}

}  // namespace hekla::reference
