// SPDX-License-Identifier: Apache-2.0
// Discrete Fourier transforms. A line whose length has small prime factors goes through one pass
// per radix, each from one buffer to another and in order at the end (Stockham's form; Cochran and
// others, "What is the fast Fourier transform?", 1967). Other lengths become a convolution of a
// length that is a power of two (Bluestein, 1970). Roots of unity are tables computed in f64.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <map>
#include <numbers>

#include "backends/compiler/lower/sequence.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using kernel::Op;

namespace {

// Code size grows with the square of a radix that is a prime.
using kernel::kLargestRadix;

using Complex = std::complex<double>;

// exp(-2 pi i k / n), correctly rounded but for rare cases: the angle is brought into the first
// octant, where it is exact, and taken in more than f64 where there is more.
Complex root(int64_t k, int64_t n) {
  k %= n;
  const int64_t octant = 8 * k / n;
  const int64_t eighths = 8 * k - octant * n;  // above the octant's beginning, in 1 / (8 n) turns
  const bool is_odd = octant % 2 != 0;
  const long double angle = std::numbers::pi_v<long double> *
                            static_cast<long double>(is_odd ? n - eighths : eighths) /
                            static_cast<long double>(4 * n);
  auto c = static_cast<double>(std::cos(angle));
  auto s = static_cast<double>(std::sin(angle));
  // The octant's quarter, and which side of its middle.
  if (is_odd) std::swap(c, s);
  switch (octant / 2) {
    case 0:
      return {c, -s};
    case 1:
      return {-s, -c};
    case 2:
      return {-c, s};
    default:
      return {s, c};
  }
}

// Radices whose product is n; empty when one of them would be too large, or n is 0.
std::vector<int64_t> radices_of(int64_t n) {
  std::vector<int64_t> radices;
  if (n < 1) return radices;
  for (int64_t r : {8, 4, 2, 3, 5, 7, 11, 13, 17, 19, 23}) {
    for (; n % r == 0; n /= r) radices.push_back(r);
  }
  static_assert(kLargestRadix == 23);
  if (n > 1) return {};
  if (radices.empty()) radices.push_back(1);
  return radices;
}

// The transform of values in f64, for tables: n is a power of two.
void transform_table(std::vector<Complex>& values) {
  const size_t n = values.size();
  std::vector<Complex> other(n);
  for (size_t size = n, stride = 1; size > 1; size /= 2, stride *= 2) {
    for (size_t p = 0; p < size / 2; ++p) {
      const Complex w = root(static_cast<int64_t>(p), static_cast<int64_t>(size));
      for (size_t q = 0; q < stride; ++q) {
        const Complex a = values[q + stride * p], b = values[q + stride * (p + size / 2)];
        other[q + stride * 2 * p] = a + b;
        other[q + stride * (2 * p + 1)] = (a - b) * w;
      }
    }
    std::swap(values, other);
  }
}

// All lines along one dimension.
struct Stage {
  int64_t outer = 1, inner = 1;
  int64_t size = 1;       // of the transform
  int64_t from_size = 1;  // of a line in `from`: half spectra are shorter
  int64_t to_size = 1;
  bool is_alone = false;          // no other dimension is transformed
  bool is_halved = false;         // the other half of the source is the mirrored conjugate
  std::optional<Temporary> from;  // else the operand
  std::optional<Temporary> to;    // else the result
  Dims to_dims;                   // of the whole target
};

// In their order, without memory.
std::vector<Stage> stages_of(const ir::Operation& op) {
  const std::string type = ir::text_value(op, "fft_type");
  const std::vector<int64_t> lengths = ir::int_list(op, "fft_length");
  const size_t count = lengths.size();
  Dims dims = op.operand(0)->type().dims();
  const size_t rank = dims.size();
  // The dimension that is halved goes first or last, so that the others have less to do.
  std::vector<size_t> order;
  for (size_t i = 0; i < count; ++i) order.push_back(rank - 1 - i);
  if (type == "IRFFT") std::reverse(order.begin(), order.end());
  std::vector<Stage> stages;
  for (const size_t dim : order) {
    Stage stage;
    stage.size = lengths[count - (rank - dim)];
    stage.from_size = dims[dim];
    stage.is_alone = count == 1;
    stage.is_halved = type == "IRFFT" && dim == rank - 1;
    dims[dim] = type == "RFFT" && dim == rank - 1 ? stage.size / 2 + 1 : stage.size;
    stage.to_size = dims[dim];
    for (size_t d = 0; d < rank; ++d) {
      if (d != dim) (d < dim ? stage.outer : stage.inner) *= dims[d];
    }
    stage.to_dims = dims;
    stages.push_back(std::move(stage));
  }
  return stages;
}

// Why all lines of a stage are not transformed as a whole by code of the device's own.
kernel::Refusal why_no_whole_lines(const Stage& stage, const LowerOptions& options) {
  // Lines go side by side in the lanes of vectors, and what fills one vector keeps one thread busy:
  // few long ones are better off in passes (8 to 15 of 1,000 to 3,000 elements took twice as long
  // on two threads, but for powers of two), as are long ones that lie one after the other, of which
  // a cache holds more without that, and those whose passes share their rows with what stands
  // before and behind them.
  constexpr int64_t kFewLines = 8;
  constexpr int64_t kFewMixedLines = 16;
  constexpr int64_t kShortLine = 512;
  constexpr int64_t kShortDenseLine = 1024;
  if (!options.has_transforms) return "the device has none, or hekla_fuse=false";
  if (stage.size > kernel::kLongestTransform) {
    return fmt::format("lines of {}, longer than {}", stage.size, kernel::kLongestTransform);
  }
  if (radices_of(stage.size).empty()) {
    return fmt::format("lines of {}, which has a prime factor above {}", stage.size, kLargestRadix);
  }
  const int64_t lines = stage.outer * stage.inner;
  const bool is_power = (stage.size & (stage.size - 1)) == 0;
  const int64_t few = is_power ? kFewLines : kFewMixedLines;
  if (lines < few && stage.size > kShortLine) {
    return fmt::format("{} lines, fewer than {}, of {}, longer than {}", lines, few, stage.size,
                       kShortLine);
  }
  if (stage.inner == 1 && is_power && stage.is_alone) return "dense lines along one dimension";
  if (stage.inner == 1 && is_power && stage.size > kShortDenseLine) {
    return fmt::format("dense lines of {}, longer than {}", stage.size, kShortDenseLine);
  }
  return "";
}

class FftLowering {
 public:
  FftLowering(const ir::Operation& op, const InMemory& in_memory, const LowerOptions& options)
      : op_(op),
        in_memory_(in_memory),
        options_(options),
        type_(ir::text_value(op, "fft_type")),
        is_inverse_(type_ == "IFFT" || type_ == "IRFFT") {
    const DType dtype = op.operand(0)->type().dtype();
    part_ = is_complex(dtype) ? complex_part(dtype) : dtype;
    complex_ = part_ == DType::kF64 ? DType::kC128 : DType::kC64;
  }

  Result<LoweredSequence> run() {
    if (!is_fft_known(op_)) {
      return unimplemented("stablehlo.fft: no {} of {}", type_, op_.operand(0)->type().to_string());
    }
    std::optional<Temporary> source;
    std::vector<Stage> stages = stages_of(op_);
    for (Stage& stage : stages) {
      bool is_whole = why_no_whole_lines(stage, options_).empty();
      if (is_whole && !source && !in_memory_(*op_.operand(0))) {
        // Passes compute it as they read it, and lines of theirs stay in a cache.
        is_whole = stage.inner > 1;
        if (is_whole) {
          HEKLA_ASSIGN_OR_RETURN(source, store_operand());
        }
      }
      stage.from = source;
      if (&stage != &stages.back()) stage.to = add(element_count(stage.to_dims));
      HEKLA_RETURN_IF_ERROR(is_whole ? add_whole(stage) : add_stage(stage));
      source = stage.to;
    }
    return std::move(sequence_);
  }

 private:
  using Load = std::function<Element(KernelMaker&, Value)>;
  using Store = std::function<void(KernelMaker&, Value, const Element&)>;

  Temporary add(int64_t elements) { return add_temporary(sequence_, complex_, elements); }

  Value index_of(KernelMaker& k, const Stage& stage, int64_t size, Value i) {
    Builder& b = k.b();
    return b.add(b.mul(b.add(b.mul(k.at(0), k.index(size)), i), k.index(stage.inner)), k.at(2));
  }

  Element times(KernelMaker& k, const Element& x, const Element& y) {
    Builder& b = k.b();
    return {b.sub(b.mul(x.re, y.re), b.mul(x.im, y.im)),
            b.add(b.mul(x.re, y.im), b.mul(x.im, y.re))};
  }
  Element conjugate(KernelMaker& k, const Element& x) { return {x.re, k.b().neg(x.im)}; }
  Element plus(KernelMaker& k, const Element& x, const Element& y) {
    return {k.b().add(x.re, y.re), k.b().add(x.im, y.im)};
  }
  Element minus(KernelMaker& k, const Element& x, const Element& y) {
    return {k.b().sub(x.re, y.re), k.b().sub(x.im, y.im)};
  }
  Element scaled(KernelMaker& k, const Element& x, double factor) {
    const Value f = k.b().real(kernel::scalar_type(part_), factor);
    return {k.b().mul(x.re, f), k.b().mul(x.im, f)};
  }
  // x times a constant.
  Element times(KernelMaker& k, const Element& x, Complex w) {
    constexpr double kExact = 1e-12;  // far below the distance of roots that are used
    if (std::abs(w - 1.0) < kExact) return x;
    if (std::abs(w + 1.0) < kExact) return {k.b().neg(x.re), k.b().neg(x.im)};
    if (std::abs(w - Complex(0, 1)) < kExact) return {k.b().neg(x.im), x.re};
    if (std::abs(w - Complex(0, -1)) < kExact) return {x.im, k.b().neg(x.re)};
    const kernel::ScalarType type = kernel::scalar_type(part_);
    return times(k, x, Element{k.b().real(type, w.real()), k.b().real(type, w.imag())});
  }

  // The forward transform of a few elements in registers.
  Elements butterfly(KernelMaker& k, const Elements& x) {
    const auto r = static_cast<int64_t>(x.size());
    if (r == 1) return x;
    Elements result(x.size());
    if (r % 2 == 0) {
      Elements even, odd;
      for (size_t i = 0; i < x.size(); i += 2) {
        even.push_back(x[i]);
        odd.push_back(x[i + 1]);
      }
      even = butterfly(k, even);
      odd = butterfly(k, odd);
      const size_t half = x.size() / 2;
      for (size_t i = 0; i < half; ++i) {
        const Element turned = times(k, odd[i], root(static_cast<int64_t>(i), r));
        result[i] = plus(k, even[i], turned);
        result[i + half] = minus(k, even[i], turned);
      }
      return result;
    }
    // Elements j and r - j together: their sum meets cosines, their difference sines.
    const auto half = static_cast<size_t>(r / 2);
    Elements sums, differences;
    for (size_t j = 1; j <= half; ++j) {
      sums.push_back(plus(k, x[j], x[x.size() - j]));
      differences.push_back(minus(k, x[j], x[x.size() - j]));
    }
    result[0] = x[0];
    for (const Element& sum : sums) result[0] = plus(k, result[0], sum);
    for (size_t i = 1; i <= half; ++i) {
      Element cosines = x[0];
      Element sines{};
      for (size_t j = 1; j <= half; ++j) {
        const Complex w = root(static_cast<int64_t>(i * j), r);
        cosines = plus(k, cosines, scaled(k, sums[j - 1], w.real()));
        const Element term = scaled(k, differences[j - 1], -w.imag());
        sines = j == 1 ? term : plus(k, sines, term);
      }
      // -i times the sines.
      result[i] = plus(k, cosines, Element{sines.im, k.b().neg(sines.re)});
      result[x.size() - i] = minus(k, cosines, Element{sines.im, k.b().neg(sines.re)});
    }
    return result;
  }

  Result<Table> add_values(const std::vector<Complex>& values) {
    HEKLA_ASSIGN_OR_RETURN(
        HostArray array,
        HostArray::allocate(complex_, {static_cast<int64_t>(values.size())}, false));
    for (size_t i = 0; i < values.size(); ++i) {
      if (part_ == DType::kF64) {
        array.mutable_as<Complex>()[i] = values[i];
      } else {
        array.mutable_as<std::complex<float>>()[i] = std::complex<float>(values[i]);
      }
    }
    return add_table(sequence_, std::move(array));
  }

  // What the passes of a transform of n elements multiply with, one pass after the other, in the
  // order in which points side by side read it: for result i of a butterfly, from 1 on, the power
  // i * stride * block of exp(-2 pi i / n) for all blocks. Behind it what butterflies of code that
  // is not made for their radix multiply with (kernel/transform.h).
  Result<Table> roots(int64_t n, const std::vector<int64_t>& radices) {
    if (auto it = roots_.find(n); it != roots_.end()) return it->second;
    std::vector<Complex> values;
    int64_t stride = 1;
    for (const int64_t r : radices) {
      const int64_t blocks = n / r / stride;
      if (blocks == 1) break;  // the last pass multiplies with nothing
      for (int64_t i = 1; i < r; ++i) {
        for (int64_t block = 0; block < blocks; ++block) {
          values.push_back(root(i * stride * block, n));
        }
      }
      stride *= r;
    }
    for (auto it = radices.begin(); it != radices.end(); ++it) {
      if (*it == 1 || *it == 2 || *it == 4 || std::find(radices.begin(), it, *it) != it) continue;
      for (int64_t i = 0; i < *it; ++i) values.push_back(root(i, *it));
    }
    if (values.empty()) values.emplace_back(1);  // no memory is empty
    HEKLA_ASSIGN_OR_RETURN(const Table table, add_values(values));
    return roots_[n] = table;
  }

  // The forward transform of `size` elements in every line of the stage.
  Status transform(const Stage& stage, int64_t size, const Load& load, const Store& store) {
    const std::vector<int64_t> radices = radices_of(size);
    std::array<std::optional<Temporary>, 2> buffers;
    int64_t stride = 1;   // transforms that are interleaved
    int64_t root_at = 0;  // in the table, where the pass begins
    for (size_t pass = 0; pass < radices.size(); ++pass) {
      const int64_t r = radices[pass];
      const int64_t shares = size / r;
      const int64_t elements = stage.outer * size * stage.inner;
      KernelMaker k("fft", {stage.outer, shares, stage.inner},
                    2 * std::max({elements, stage.outer * stage.from_size * stage.inner,
                                  largest_inlined(op_, in_memory_)}),
                    in_memory_);
      Builder& b = k.b();
      Elements x;
      for (int64_t j = 0; j < r; ++j) {
        const Value i = b.add(k.at(1), k.index(j * shares));
        x.push_back(pass == 0 ? load(k, i)
                              : k.load(*buffers[pass % 2], index_of(k, stage, size, i)));
      }
      Elements y = butterfly(k, x);
      const Value block = b.binary(Op::kDivU, k.at(1), k.index(stride));
      const Value offset = b.binary(Op::kRemU, k.at(1), k.index(stride));
      const bool is_last = pass + 1 == radices.size();
      if (!is_last) {
        HEKLA_ASSIGN_OR_RETURN(const Table table, roots(size, radices));
        for (int64_t i = 1; i < r; ++i) {
          const Element w = k.load(table, b.add(block, k.index(root_at)));
          y[static_cast<size_t>(i)] = times(k, y[static_cast<size_t>(i)], w);
          root_at += shares / stride;
        }
        auto& to = buffers[(pass + 1) % 2];
        if (!to.has_value()) to = add(elements);
      }
      for (int64_t i = 0; i < r; ++i) {
        const Value group = b.add(b.mul(block, k.index(r)), k.index(i));
        const Value at = b.add(b.mul(group, k.index(stride)), offset);
        if (is_last) {
          store(k, at, y[static_cast<size_t>(i)]);
        } else {
          k.store(*buffers[(pass + 1) % 2], index_of(k, stage, size, at),
                  y[static_cast<size_t>(i)]);
        }
      }
      HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k.finish(options_));
      sequence_.kernels.push_back(std::move(made));
      stride *= r;
    }
    return ok_status();
  }

  // Element i of a line of the source; conjugated for an inverse transform, which is the conjugate
  // of the forward transform of the conjugate.
  Element load_source(KernelMaker& k, const Stage& stage, Value i) {
    Builder& b = k.b();
    Value is_mirrored = b.boolean(false);
    if (stage.is_halved) {
      is_mirrored = b.binary(Op::kLtS, k.index(stage.size / 2), i);
      i = b.select(is_mirrored, b.sub(k.index(stage.size), i), i);
    }
    const Value at = index_of(k, stage, stage.from_size, i);
    Element x = stage.from.has_value() ? k.load(*stage.from, at)
                                       : k.emitter().emit(*op_.operand(0), Point{{}, at});
    if (x.im == kernel::kNoValue) x.im = b.real(kernel::scalar_type(part_), 0);
    const Element turned = conjugate(k, x);
    return is_inverse_ ? kernel::select(b, is_mirrored, x, turned)
                       : kernel::select(b, is_mirrored, turned, x);
  }

  void store_target(KernelMaker& k, const Stage& stage, Value i, Element x) {
    if (is_inverse_) x = scaled(k, conjugate(k, x), 1.0 / static_cast<double>(stage.size));
    const auto write = [&] {
      const Value at = index_of(k, stage, stage.to_size, i);
      if (stage.to.has_value()) {
        k.store(*stage.to, at, x);
      } else {
        if (type_ == "IRFFT") x.im = kernel::kNoValue;
        k.store(*op_.result(), at, x);
      }
    };
    if (stage.to_size == stage.size) {
      write();
    } else {
      k.when(k.b().binary(Op::kLtS, i, k.index(stage.to_size)), write);
    }
  }

  // The operand, which is computed here.
  Result<Temporary> store_operand() {
    const ir::Value& operand = *op_.operand(0);
    const int64_t elements = element_count(operand.type().dims());
    const Temporary to = add_temporary(sequence_, operand.type().dtype(), elements);
    KernelMaker k("fft_operand", {elements}, 2 * elements, in_memory_);
    k.store(to, k.at(0), k.emitter().emit(operand, Point{{}, k.at(0)}));
    HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k.finish(options_));
    sequence_.kernels.push_back(std::move(made));
    return to;
  }

  Status add_whole(const Stage& stage) {
    kernel::Transform transform;
    transform.outer = stage.outer;
    transform.inner = stage.inner;
    transform.size = stage.size;
    transform.from_size = stage.from_size;
    transform.to_size = stage.to_size;
    transform.part = part_;
    transform.is_inverse = is_inverse_;
    const DType from = stage.from ? stage.from->dtype : op_.operand(0)->type().dtype();
    const DType to = stage.to ? stage.to->dtype : op_.result()->type().dtype();
    transform.is_from_real = !is_complex(from);
    transform.is_to_real = !is_complex(to);
    transform.radices = radices_of(stage.size);
    HEKLA_ASSIGN_OR_RETURN(const Table table, roots(stage.size, transform.radices));
    LoweredKernel made;
    made.operands.push_back(stage.from ? BoundOperand{.temporary = stage.from->index}
                                       : BoundOperand{.value = op_.operand(0)});
    made.operands.push_back({.constant = table.index});
    made.operands.push_back(stage.to ? BoundOperand{.is_output = true, .temporary = stage.to->index}
                                     : BoundOperand{.value = op_.result(), .is_output = true});
    made.transform = std::move(transform);
    sequence_.kernels.push_back(std::move(made));
    return ok_status();
  }

  Status add_stage(const Stage& stage) {
    if (!radices_of(stage.size).empty()) {
      return transform(
          stage, stage.size, [&](KernelMaker& k, Value i) { return load_source(k, stage, i); },
          [&](KernelMaker& k, Value i, const Element& x) { store_target(k, stage, i, x); });
    }
    // X[k] = c[k] sum_j (x[j] c[j]) conj(c[k - j]) with c[t] = exp(-pi i t^2 / n).
    const int64_t n = stage.size;
    int64_t padded = 1;
    while (padded < 2 * n - 1) padded *= 2;
    std::vector<Complex> chirp;
    for (int64_t t = 0; t < n; ++t) {
      // t^2 modulo 2 n, without overflow.
      const auto square = static_cast<int64_t>(static_cast<__int128>(t) * t % (2 * n));
      chirp.push_back(root(square, 2 * n));
    }
    std::vector<Complex> spectrum(static_cast<size_t>(padded));
    for (int64_t t = 0; t < n; ++t) {
      const Complex c = std::conj(chirp[static_cast<size_t>(t)]);
      spectrum[static_cast<size_t>(t)] = c;
      if (t != 0) spectrum[static_cast<size_t>(padded - t)] = c;
    }
    transform_table(spectrum);
    for (Complex& each : spectrum) each /= static_cast<double>(padded);
    HEKLA_ASSIGN_OR_RETURN(const Table chirps, add_values(chirp));
    HEKLA_ASSIGN_OR_RETURN(const Table factors, add_values(spectrum));
    const Temporary product = add(stage.outer * padded * stage.inner);
    const auto below = [n](KernelMaker& k, Value i) {
      return k.b().binary(Op::kLtS, i, k.index(n));
    };
    const auto clamped = [&](KernelMaker& k, Value i) {
      return k.b().select(below(k, i), i, k.index(n - 1));
    };
    HEKLA_RETURN_IF_ERROR(transform(
        stage, padded,
        [&](KernelMaker& k, Value i) {
          const Value at = clamped(k, i);
          const Element x = times(k, load_source(k, stage, at), k.load(chirps, at));
          const Value zero = k.b().real(kernel::scalar_type(part_), 0);
          return kernel::select(k.b(), below(k, i), x, Element{zero, zero});
        },
        [&](KernelMaker& k, Value i, const Element& x) {
          // The conjugate, for the way back.
          k.store(product, index_of(k, stage, padded, i),
                  conjugate(k, times(k, x, k.load(factors, i))));
        }));
    return transform(
        stage, padded,
        [&](KernelMaker& k, Value i) { return k.load(product, index_of(k, stage, padded, i)); },
        [&](KernelMaker& k, Value i, const Element& x) {
          k.when(below(k, i), [&] {
            const Value at = clamped(k, i);
            store_target(k, stage, at, times(k, conjugate(k, x), k.load(chirps, at)));
          });
        });
  }

  const ir::Operation& op_;
  const InMemory& in_memory_;
  const LowerOptions& options_;
  const std::string type_;
  const bool is_inverse_;
  DType part_ = DType::kF32;
  DType complex_ = DType::kC64;
  std::map<int64_t, Table> roots_;  // of the passes, by length
  LoweredSequence sequence_;
};

}  // namespace

bool is_fft_known(const ir::Operation& op) {
  const std::string type = ir::text_value(op, "fft_type");
  const DType from = op.operand(0)->type().dtype();
  const DType to = op.result()->type().dtype();
  const DType part = is_complex(from) ? complex_part(from) : from;
  const std::vector<int64_t> lengths = ir::int_list(op, "fft_length");
  const bool is_type = type == "FFT" || type == "IFFT" || type == "RFFT" || type == "IRFFT";
  return is_type && !lengths.empty() && lengths.size() <= op.operand(0)->type().dims().size() &&
         std::all_of(lengths.begin(), lengths.end(), [](int64_t n) { return n >= 1; }) &&
         (part == DType::kF32 || part == DType::kF64) && is_complex(from) == (type != "RFFT") &&
         is_complex(to) == (type != "IRFFT");
}

kernel::Refusal why_no_transform(const ir::Operation& op, const LowerOptions& options) {
  kernel::Refusal why;
  if (element_count(op.result()->type().dims()) == 0) return "a result without elements";
  for (const Stage& stage : stages_of(op)) {
    why = why_no_whole_lines(stage, options);
    if (why.empty()) break;
  }
  return why;
}

Result<LoweredSequence> lower_fft(const ir::Operation& op, const Outputs&,
                                  const InMemory& in_memory, const LowerOptions& options) {
  return FftLowering(op, in_memory, options).run();
}

}  // namespace hekla::lower
