// SPDX-License-Identifier: Apache-2.0
// Discrete Fourier transforms. A line whose length has small prime factors goes through one pass
// per radix, each from one buffer to another and in order at the end (Stockham's form; Cochran and
// others, "What is the fast Fourier transform?", 1967). Other lengths become a convolution of a
// length that has (Bluestein, 1970). An even number of real elements are half as many complex ones,
// each of two neighbours: E and O, the transforms of the even and the odd ones, are parts of
// Z = E + i O, and the whole is E[k] + exp(-2 pi i k / n) O[k] (Cooley, Lewis and Welch, 1970).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <complex>
#include <map>

#include "backends/compiler/lower/fft_tables.h"
#include "backends/compiler/lower/sequence.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using kernel::Op;

namespace {

// Code size grows with the square of a radix that is a prime: larger ones are loops.
constexpr int64_t kLargestUnrolled = 23;

using Complex = std::complex<double>;

// All lines along one dimension.
struct Stage {
  int64_t outer = 1, inner = 1;
  int64_t size = 1;       // of the transform
  int64_t from_size = 1;  // of a line in `from`: half spectra are shorter
  int64_t to_size = 1;
  bool is_alone = false;  // no other dimension is transformed
  // One side is real, the other half a spectrum; `inner` is 1.
  bool is_from_real = false;
  bool is_to_real = false;
  std::optional<Temporary> from;  // else the operand
  std::optional<Temporary> to;    // else the result
  Dims to_dims;                   // of the whole target

  bool is_paired() const { return (is_from_real || is_to_real) && size % 2 == 0; }
  int64_t passed_size() const { return is_paired() ? size / 2 : size; }
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
    stage.is_from_real = type == "RFFT" && dim == rank - 1;
    stage.is_to_real = type == "IRFFT" && dim == rank - 1;
    dims[dim] = stage.is_from_real ? stage.size / 2 + 1 : stage.size;
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
  const int64_t size = stage.passed_size();
  if (size > kernel::kLongestTransform) {
    return fmt::format("lines of {}, longer than {}", size, kernel::kLongestTransform);
  }
  if (radices_of(size).empty()) {
    return fmt::format("lines of {}, which has a prime factor above {}", size,
                       kernel::kLargestRadix);
  }
  const int64_t lines = stage.outer * stage.inner;
  const bool is_power = (size & (size - 1)) == 0;
  const int64_t few = is_power ? kFewLines : kFewMixedLines;
  if (lines < few && size > kShortLine) {
    return fmt::format("{} lines, fewer than {}, of {}, longer than {}", lines, few, size,
                       kShortLine);
  }
  if (stage.inner == 1 && is_power && stage.is_alone) return "dense lines along one dimension";
  if (stage.inner == 1 && is_power && size > kShortDenseLine) {
    return fmt::format("dense lines of {}, longer than {}", size, kShortDenseLine);
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
      if (!source && !in_memory_(*op_.operand(0))) {
        // Passes compute it as they read it, and lines of theirs stay in a cache; loops of a large
        // radix read it many times.
        is_whole = is_whole && stage.inner > 1;
        const std::vector<int64_t> radices = radices_of(stage.passed_size());
        if (is_whole || (!radices.empty() && radices.front() > kLargestUnrolled)) {
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
  Status add(KernelMaker& k) {
    HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k.finish(options_));
    sequence_.kernels.push_back(std::move(made));
    return ok_status();
  }

  // Element i of the point's line, in lines of `size`. Grids begin with lines and end with `inner`.
  Value index_of(KernelMaker& k, const Stage& stage, int64_t size, Value i) {
    Builder& b = k.b();
    return b.add(b.mul(b.add(b.mul(k.at(0), k.index(size)), i), k.index(stage.inner)),
                 k.at(k.rank() - 1));
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
        const Element turned = times(k, odd[i], root_of_one(static_cast<int64_t>(i), r));
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
        const Complex w = root_of_one(static_cast<int64_t>(i * j), r);
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
  // is not made for their radix multiply with (kernel/transform.h), and roots of pairs.
  Result<Table> roots(int64_t n, const std::vector<int64_t>& radices, bool are_pairs) {
    const std::pair key(n, are_pairs);
    if (auto it = roots_.find(key); it != roots_.end()) return it->second;
    std::vector<Complex> values;
    int64_t stride = 1;
    for (const int64_t r : radices) {
      const int64_t blocks = n / r / stride;
      if (blocks == 1) break;  // the last pass multiplies with nothing
      for (int64_t i = 1; i < r; ++i) {
        for (int64_t block = 0; block < blocks; ++block) {
          values.push_back(root_of_one(i * stride * block, n));
        }
      }
      stride *= r;
    }
    for (auto it = radices.begin(); it != radices.end(); ++it) {
      if (*it == 1 || *it == 2 || *it == 4 || std::find(radices.begin(), it, *it) != it) continue;
      for (int64_t i = 0; i < *it; ++i) values.push_back(root_of_one(i, *it));
    }
    if (are_pairs) add_pair_roots(n, values);
    if (values.empty()) values.emplace_back(1);  // no memory is empty
    HEKLA_ASSIGN_OR_RETURN(const Table table, add_values(values));
    return roots_[key] = table;
  }

  // One pass of the forward transform of `size` elements in every line of a stage.
  struct Pass {
    int64_t size = 1;
    int64_t radix = 1;
    int64_t stride = 1;    // transforms that are interleaved
    int64_t root_at = 0;   // in the table, where the pass begins,
    int64_t radix_at = 0;  // and where the roots of its radix do
    Table roots = {};
    Load load;
    Store store;

    int64_t shares() const { return size / radix; }
    int64_t blocks() const { return shares() / stride; }
    bool is_last() const { return blocks() == 1; }
  };

  // Result i of the butterfly of `share`, which is above 0 where it is not a constant.
  void put(KernelMaker& k, const Pass& pass, Value share, Value i, Element y) {
    Builder& b = k.b();
    const Value block = b.binary(Op::kDivU, share, k.index(pass.stride));
    const Value offset = b.binary(Op::kRemU, share, k.index(pass.stride));
    const uint64_t* number = b.constant(i);
    if (!pass.is_last() && (number == nullptr || *number != 0)) {
      const Value row = b.mul(b.sub(i, k.index(1)), k.index(pass.blocks()));
      y = times(k, y, k.load(pass.roots, b.add(block, b.add(row, k.index(pass.root_at)))));
    }
    const Value group = b.add(b.mul(block, k.index(pass.radix)), i);
    pass.store(k, b.add(b.mul(group, k.index(pass.stride)), offset), y);
  }

  Status add_pass(const Stage& stage, const Pass& pass, int64_t largest) {
    KernelMaker k("fft", {stage.outer, pass.shares(), stage.inner}, largest, in_memory_);
    Elements x;
    for (int64_t j = 0; j < pass.radix; ++j) {
      x.push_back(pass.load(k, k.b().add(k.at(1), k.index(j * pass.shares()))));
    }
    const Elements y = butterfly(k, x);
    for (int64_t i = 0; i < pass.radix; ++i) {
      put(k, pass, k.at(1), k.index(i), y[static_cast<size_t>(i)]);
    }
    return add(k);
  }

  // The same with a loop over a butterfly's elements for each two of its results, i and r - i.
  Status add_large_pass(const Stage& stage, const Pass& pass, int64_t largest) {
    const int64_t r = pass.radix, half = r / 2;
    KernelMaker k("fft_radix", {stage.outer, half + 1, pass.shares(), stage.inner}, largest,
                  in_memory_);
    Builder& b = k.b();
    const Value i = k.at(1), share = k.at(2);
    const auto at = [&](Value j) {
      return pass.load(k, b.add(share, b.mul(j, k.index(pass.shares()))));
    };
    // The terms of elements j and r - j.
    const auto terms = [&](Value j) {
      const Element x = at(j), y = at(b.sub(k.index(r), j));
      const Value power = b.binary(Op::kRemU, b.mul(i, j), k.index(r));
      const Element w = k.load(pass.roots, b.add(power, k.index(pass.radix_at)));
      const Element sum = plus(k, x, y), difference = minus(k, x, y);
      const Value sine = b.neg(w.im);
      return std::pair(Element{b.mul(sum.re, w.re), b.mul(sum.im, w.re)},
                       Element{b.mul(difference.re, sine), b.mul(difference.im, sine)});
    };
    const Element first = at(k.index(0));
    const auto [cosine, sine] = terms(k.index(1));
    const Elements sums =
        k.loop(k.index(half - 1), {complex_, complex_}, {plus(k, first, cosine), sine},
               [&](Value iteration, const Elements& carried) -> Elements {
                 const auto [c, s] = terms(b.add(iteration, k.index(2)));
                 return {plus(k, carried[0], c), plus(k, carried[1], s)};
               });
    const Element turned = {sums[1].im, b.neg(sums[1].re)};
    const Value is_first = b.binary(Op::kEq, i, k.index(0));
    k.when(is_first, [&] { put(k, pass, share, k.index(0), sums[0]); });
    // Loads may be done whether the condition holds or not.
    const Value other = b.select(is_first, k.index(1), i);
    k.when(b.logical_not(is_first), [&] {
      put(k, pass, share, other, plus(k, sums[0], turned));
      put(k, pass, share, b.sub(k.index(r), other), minus(k, sums[0], turned));
    });
    return add(k);
  }

  // The forward transform of `size` elements, which has radices, in every line of the stage.
  Status add_passes(const Stage& stage, int64_t size, const Load& load, const Store& store) {
    const std::vector<int64_t> radices = radices_of(size);
    const int64_t elements = stage.outer * size * stage.inner;
    const int64_t largest = 2 * std::max({elements, stage.outer * stage.from_size * stage.inner,
                                          largest_inlined(op_, in_memory_)});
    std::array<std::optional<Temporary>, 2> buffers;
    Pass pass;
    pass.size = size;
    HEKLA_ASSIGN_OR_RETURN(pass.roots, roots(size, radices, false));
    for (size_t i = 0; i < radices.size(); ++i) {
      pass.radix = radices[i];
      pass.radix_at = kernel::radix_roots_at({.size = size, .radices = radices}, pass.radix);
      const std::optional<Temporary> from = buffers[i % 2];
      pass.load = i == 0 ? load : [&](KernelMaker& k, Value at) {
        return k.load(*from, index_of(k, stage, size, at));
      };
      auto& to = buffers[(i + 1) % 2];
      if (pass.is_last()) {
        pass.store = store;
      } else {
        if (!to.has_value()) to = add(elements);
        pass.store = [&](KernelMaker& k, Value at, const Element& y) {
          k.store(*to, index_of(k, stage, size, at), y);
        };
      }
      HEKLA_RETURN_IF_ERROR(pass.radix > kLargestUnrolled ? add_large_pass(stage, pass, largest)
                                                          : add_pass(stage, pass, largest));
      pass.root_at += (pass.radix - 1) * pass.blocks();
      pass.stride *= pass.radix;
    }
    return ok_status();
  }

  // Element i of a line of the source, as it is.
  Element source_at(KernelMaker& k, const Stage& stage, Value i) {
    const Value at = index_of(k, stage, stage.from_size, i);
    Element x = stage.from.has_value() ? k.load(*stage.from, at)
                                       : k.emitter().emit(*op_.operand(0), Point{{}, at});
    if (x.im == kernel::kNoValue) x.im = k.b().real(kernel::scalar_type(part_), 0);
    return x;
  }

  // Element i of what is transformed; conjugated for an inverse transform, which is the conjugate
  // of the forward transform of the conjugate.
  Element load_source(KernelMaker& k, const Stage& stage, Value i) {
    if (!stage.is_to_real) {
      const Element x = source_at(k, stage, i);
      return is_inverse_ ? conjugate(k, x) : x;
    }
    Builder& b = k.b();
    const Value is_mirrored = b.binary(Op::kLtS, k.index(stage.size / 2), i);
    const Element x = source_at(k, stage, b.select(is_mirrored, b.sub(k.index(stage.size), i), i));
    return kernel::select(b, is_mirrored, x, conjugate(k, x));
  }

  // Element i of a line of the target, as it is.
  void store_at(KernelMaker& k, const Stage& stage, Value i, Element x) {
    const Value at = index_of(k, stage, stage.to_size, i);
    if (stage.to.has_value()) return k.store(*stage.to, at, x);
    if (stage.is_to_real) x.im = kernel::kNoValue;
    k.store(*op_.result(), at, x);
  }

  // The end of an inverse transform.
  Element scaled_back(KernelMaker& k, const Stage& stage, const Element& x) {
    return scaled(k, conjugate(k, x), 1.0 / static_cast<double>(stage.size));
  }

  void store_target(KernelMaker& k, const Stage& stage, Value i, const Element& x) {
    const auto write = [&] { store_at(k, stage, i, is_inverse_ ? scaled_back(k, stage, x) : x); };
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
    HEKLA_RETURN_IF_ERROR(add(k));
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
    transform.is_from_real = stage.is_from_real;
    transform.is_to_real = stage.is_to_real;
    transform.radices = radices_of(stage.passed_size());
    HEKLA_ASSIGN_OR_RETURN(const Table table,
                           roots(stage.passed_size(), transform.radices, stage.is_paired()));
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
    if (stage.is_paired()) {
      return stage.is_from_real ? add_from_pairs(stage) : add_to_pairs(stage);
    }
    return add_lines(
        stage, stage.size, [&](KernelMaker& k, Value i) { return load_source(k, stage, i); },
        [&](KernelMaker& k, Value i, const Element& x) { store_target(k, stage, i, x); });
  }

  // The first n + 1 of the 2 n roots of one.
  static void add_pair_roots(int64_t n, std::vector<Complex>& values) {
    for (int64_t k = 0; k <= n; ++k) values.push_back(root_of_one(k, 2 * n));
  }
  Result<Table> pair_roots(int64_t n) {
    std::vector<Complex> values;
    add_pair_roots(n, values);
    return add_values(values);
  }

  // Two terms whose sum is twice element i of the transform of 2 n real elements. a and b: elements
  // i and n - i of the transform of their pairs, the second one conjugated; w: root i of 2 n.
  struct Terms {
    Element sum, turned;
  };
  Terms terms_of(KernelMaker& k, const Element& a, const Element& b, const Element& w) {
    const Element difference = minus(k, a, b);
    return {plus(k, a, b), times(k, {difference.im, k.b().neg(difference.re)}, w)};
  }

  // A transform of real elements through that of their pairs.
  Status add_from_pairs(const Stage& stage) {
    const int64_t n = stage.passed_size();
    const Temporary pairs = add(stage.outer * n);
    HEKLA_RETURN_IF_ERROR(add_lines(
        stage, n,
        [&](KernelMaker& k, Value i) -> Element {
          const Value even = k.b().mul(i, k.index(2));
          return {source_at(k, stage, even).re,
                  source_at(k, stage, k.b().add(even, k.index(1))).re};
        },
        [&](KernelMaker& k, Value i, const Element& x) {
          k.store(pairs, index_of(k, stage, n, i), x);
        }));
    HEKLA_ASSIGN_OR_RETURN(const Table table, pair_roots(n));
    KernelMaker k("fft_pairs", {stage.outer, n / 2 + 1, 1}, 2 * stage.outer * (n + 1), in_memory_);
    Builder& b = k.b();
    const Value i = k.at(1), mirrored = b.sub(k.index(n), i);
    const Value is_first = b.binary(Op::kEq, i, k.index(0));
    const Element x = k.load(pairs, index_of(k, stage, n, i));
    const Element y =
        k.load(pairs, index_of(k, stage, n, b.select(is_first, k.index(0), mirrored)));
    const auto [sum, turned] = terms_of(k, x, conjugate(k, y), k.load(table, i));
    store_at(k, stage, i, scaled(k, plus(k, sum, turned), 0.5));
    // Element n / 2 is its own mirror.
    k.when(b.binary(Op::kLtS, i, mirrored), [&, sum = sum, turned = turned] {
      const Element other = {b.sub(sum.re, turned.re), b.sub(turned.im, sum.im)};
      store_at(k, stage, mirrored, scaled(k, other, 0.5));
    });
    return add(k);
  }

  // The other way.
  Status add_to_pairs(const Stage& stage) {
    const int64_t n = stage.passed_size();
    HEKLA_ASSIGN_OR_RETURN(const Table table, pair_roots(n));
    return add_lines(
        stage, n,
        [&](KernelMaker& k, Value i) {
          Builder& b = k.b();
          Element x = source_at(k, stage, i), y = source_at(k, stage, b.sub(k.index(n), i));
          // The first and the last are real, whatever they hold.
          const Value is_first = b.binary(Op::kEq, i, k.index(0));
          const Value zero = b.real(kernel::scalar_type(part_), 0);
          x.im = b.select(is_first, zero, b.neg(x.im));
          y.im = b.select(is_first, zero, y.im);
          const auto [sum, turned] = terms_of(k, x, y, k.load(table, i));
          return plus(k, sum, turned);
        },
        [&](KernelMaker& k, Value i, const Element& x) {
          const Value even = k.b().mul(i, k.index(2));
          const Element y = scaled_back(k, stage, x);
          store_at(k, stage, even, {y.re});
          store_at(k, stage, k.b().add(even, k.index(1)), {y.im});
        });
  }

  // The forward transform of `size` elements in every line of the stage.
  Status add_lines(const Stage& stage, int64_t size, const Load& load, const Store& store) {
    if (!radices_of(size).empty()) return add_passes(stage, size, load, store);
    const Chirp chirp = chirp_of(size);
    HEKLA_ASSIGN_OR_RETURN(const Table chirps, add_values(chirp.values));
    HEKLA_ASSIGN_OR_RETURN(const Table factors, add_values(chirp.spectrum));
    const Temporary product = add(stage.outer * chirp.size * stage.inner);
    const auto below = [&](KernelMaker& k, Value i) {
      return k.b().binary(Op::kLtS, i, k.index(size));
    };
    const auto clamped = [&](KernelMaker& k, Value i) {
      return k.b().select(below(k, i), i, k.index(size - 1));
    };
    HEKLA_RETURN_IF_ERROR(add_passes(
        stage, chirp.size,
        [&](KernelMaker& k, Value i) {
          const Value at = clamped(k, i);
          const Element x = times(k, load(k, at), k.load(chirps, at));
          const Value zero = k.b().real(kernel::scalar_type(part_), 0);
          return kernel::select(k.b(), below(k, i), x, Element{zero, zero});
        },
        [&](KernelMaker& k, Value i, const Element& x) {
          // The conjugate, for the way back.
          k.store(product, index_of(k, stage, chirp.size, i),
                  conjugate(k, times(k, x, k.load(factors, i))));
        }));
    return add_passes(
        stage, chirp.size,
        [&](KernelMaker& k, Value i) { return k.load(product, index_of(k, stage, chirp.size, i)); },
        [&](KernelMaker& k, Value i, const Element& x) {
          k.when(below(k, i), [&] {
            const Value at = clamped(k, i);
            store(k, at, times(k, conjugate(k, x), k.load(chirps, at)));
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
  std::map<std::pair<int64_t, bool>, Table>
      roots_;  // of the passes, by length; with those of pairs
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
