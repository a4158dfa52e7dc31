// SPDX-License-Identifier: Apache-2.0
// The body of lines_LEVEL.cc, which defines HEKLA_LINES, the name of the level's table, and
// HEKLA_LINE_BYTES, the bytes of its vectors. Vectors are the compilers' own, so that each level
// has the same text; nothing here is visible to others, whose processors may lack the level.
#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/cpu/transform/lines.h"

namespace hekla::cpu {
namespace {

using kernel::Transform;

constexpr int64_t kVectorBytes = HEKLA_LINE_BYTES;

template <typename T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kVectorBytes)));
};
template <typename T>
using Vector = typename VectorOf<T>::Type;
template <typename T>
constexpr int64_t kLanes = kVectorBytes / static_cast<int64_t>(sizeof(T));

template <typename T>
struct Pair {
  Vector<T> re, im;
};

template <typename T>
inline Vector<T> load(const T* from) {
  Vector<T> v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}
template <typename T>
inline void store(const Vector<T>& v, T* to) {
  std::memcpy(to, &v, sizeof(v));
}

// ---- shuffles; I goes through the lanes

template <typename T, size_t... I>
inline Pair<T> split(Vector<T> a, Vector<T> b, std::index_sequence<I...>) {
  return {__builtin_shufflevector(a, b, (2 * I)...), __builtin_shufflevector(a, b, (2 * I + 1)...)};
}

template <typename T, size_t... I>
inline Pair<T> join(Vector<T> re, Vector<T> im, std::index_sequence<I...>) {
  constexpr size_t n = sizeof...(I);
  return {__builtin_shufflevector(re, im, (I / 2 + I % 2 * n)...),
          __builtin_shufflevector(re, im, (n / 2 + I / 2 + I % 2 * n)...)};
}

// Two rows of a matrix whose blocks of `kStep` beside the diagonal change places.
template <size_t kStep, typename T, size_t... I>
inline void swap_blocks(Vector<T>& a, Vector<T>& b, std::index_sequence<I...>) {
  constexpr size_t n = sizeof...(I);
  const Vector<T> x = a;
  a = __builtin_shufflevector(x, b, ((I & kStep) != 0 ? n + I - kStep : I)...);
  b = __builtin_shufflevector(x, b, ((I & kStep) != 0 ? n + I : I + kStep)...);
}

template <size_t kStep, typename T>
inline void turn(Vector<T>* rows) {
  constexpr size_t n = kLanes<T>;
  if constexpr (kStep < n) {
#pragma GCC unroll 16
    for (size_t i = 0; i < n; ++i) {
      if ((i & kStep) == 0) {
        swap_blocks<kStep, T>(rows[i], rows[i + kStep], std::make_index_sequence<n>());
      }
    }
    turn<2 * kStep, T>(rows);
  }
}

// ---- butterflies: the forward transform of r elements in registers

// x times a root that is the same for all lanes.
template <typename T>
inline Pair<T> times(const Pair<T>& x, T re, T im) {
  return {x.re * re - x.im * im, x.re * im + x.im * re};
}
template <typename T>
inline Pair<T> plus(const Pair<T>& x, const Pair<T>& y) {
  return {x.re + y.re, x.im + y.im};
}
template <typename T>
inline Pair<T> minus(const Pair<T>& x, const Pair<T>& y) {
  return {x.re - y.re, x.im - y.im};
}

// `roots`: of the radix, re and im in turns; where r is 8.
template <int r, typename T>
[[gnu::always_inline]] inline void even_butterfly(Pair<T>* x, const T* roots) {
  if constexpr (r == 2) {
    const Pair<T> a = x[0], b = x[1];
    x[0] = plus(a, b);
    x[1] = minus(a, b);
  } else {
    constexpr int half = r / 2;
    Pair<T> even[half], odd[half];
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) {
      even[i] = x[2 * i];
      odd[i] = x[2 * i + 1];
    }
    even_butterfly<half>(even, roots);
    even_butterfly<half>(odd, roots);
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) {
      Pair<T> turned = odd[i];
      if (4 * i == r) {
        turned = {odd[i].im, -odd[i].re};
      } else if (i != 0) {
        turned = times(odd[i], roots[2 * i], roots[2 * i + 1]);
      }
      x[i] = plus(even[i], turned);
      x[i + half] = minus(even[i], turned);
    }
  }
}

// Elements j and r - j together: their sum meets cosines, their difference sines.
template <typename T>
[[gnu::always_inline]] inline void odd_butterfly(int r, Pair<T>* x, const T* roots) {
  constexpr int kMost = static_cast<int>(kernel::kLargestRadix);
  const int half = r / 2;
  Pair<T> sums[kMost / 2 + 1], differences[kMost / 2 + 1];
  const Pair<T> first = x[0];
  for (int j = 1; j <= half; ++j) {
    sums[j] = plus(x[j], x[r - j]);
    differences[j] = minus(x[j], x[r - j]);
    x[0] = plus(x[0], sums[j]);
  }
  for (int i = 1; i <= half; ++i) {
    Pair<T> cosines = first;
    Pair<T> sines = first;  // replaced by the first term
    for (int j = 1; j <= half; ++j) {
      const T* root = roots + 2 * (i * j % r);
      cosines = plus(cosines, Pair<T>{sums[j].re * root[0], sums[j].im * root[0]});
      const Pair<T> term = {differences[j].re * -root[1], differences[j].im * -root[1]};
      sines = j == 1 ? term : plus(sines, term);
    }
    const Pair<T> turned = {sines.im, -sines.re};
    x[i] = plus(cosines, turned);
    x[r - i] = minus(cosines, turned);
  }
}

// ---- passes from one buffer to the other

template <typename T>
struct Pass {
  const Pair<T>* from = nullptr;
  Pair<T>* to = nullptr;
  const T* roots = nullptr;        // of the pass, re and im in turns
  const T* radix_roots = nullptr;  // of the butterfly
  int64_t radix = 1;
  int64_t blocks = 1;     // with roots of their own
  int64_t begin = 0;      // the first block to run,
  int64_t end = 1;        // and the one behind the last
  int64_t stride = 1;     // butterflies of a block: transforms that are interleaved
  int64_t from_step = 1;  // between the elements of a butterfly
  int64_t to_step = 1;    // between its results
  T scale = 0;            // of the last pass of an inverse transform; 0: none
};

template <int r, typename T>
[[gnu::always_inline]] inline void butterfly(int radix, Pair<T>* x, const T* roots) {
  if constexpr (r == 2 || r == 4 || r == 8) {
    even_butterfly<r>(x, roots);
  } else if (radix > 1) {
    odd_butterfly(radix, x, roots);
  }
}

// The results of a butterfly of any pass but the last, times the roots of its block.
template <typename T>
[[gnu::always_inline]] inline void twiddle(const Pass<T>& pass, int radix, int64_t block,
                                           Pair<T>* x) {
#pragma GCC unroll 8
  for (int i = 1; i < radix; ++i) {
    const T* root = pass.roots + 2 * (block + (i - 1) * pass.blocks);
    x[i] = times(x[i], root[0], root[1]);
  }
}
// Those of the last pass, of an inverse transform conjugated and divided by the size.
template <typename T>
[[gnu::always_inline]] inline void scale(const Pass<T>& pass, int radix, Pair<T>* x) {
  if (pass.scale == 0) return;
#pragma GCC unroll 8
  for (int i = 0; i < radix; ++i) x[i] = {x[i].re * pass.scale, -x[i].im * pass.scale};
}

// r: the radix, or 0 for pass.radix. The last pass has one block and multiplies with no roots.
template <int r, bool is_last, typename T>
void run_pass(const Pass<T>& pass) {
  constexpr int kMost = r > 0 ? r : static_cast<int>(kernel::kLargestRadix);
  const int radix = r > 0 ? r : static_cast<int>(pass.radix);
  const Pair<T>* from = pass.from;
  Pair<T>* to = pass.to;
  const int64_t stride = pass.stride, from_step = pass.from_step, to_step = pass.to_step;
  for (int64_t block = pass.begin; block < pass.end; ++block) {
    for (int64_t offset = 0; offset < stride; ++offset) {
      Pair<T> x[kMost];
#pragma GCC unroll 8
      for (int j = 0; j < radix; ++j) x[j] = from[offset + j * from_step];
      butterfly<r>(radix, x, pass.radix_roots);
      if constexpr (is_last) {
        scale(pass, radix, x);
      } else {
        twiddle(pass, radix, block, x);
      }
#pragma GCC unroll 8
      for (int i = 0; i < radix; ++i) to[offset + i * to_step] = x[i];
    }
    from += stride;
    to += radix * stride;
  }
}

template <int r, typename T>
void run_pass(const Pass<T>& pass, bool is_last) {
  is_last ? run_pass<r, true>(pass) : run_pass<r, false>(pass);
}

template <typename T>
void run_any_pass(const Pass<T>& pass, bool is_last) {
  switch (pass.radix) {
    case 8:
      return run_pass<8>(pass, is_last);
    case 4:
      return run_pass<4>(pass, is_last);
    case 2:
      return run_pass<2>(pass, is_last);
    case 3:
      return run_pass<3>(pass, is_last);
    case 5:
      return run_pass<5>(pass, is_last);
    default:
      return run_pass<0>(pass, is_last);
  }
}

// Two passes, one after the other for the few elements that the second one's butterflies meet in:
// half of the way to and from a buffer. `get` and `put` take the numbers of elements.
template <int r1, int r2, typename T, typename Get, typename Put>
void run_both(const Pass<T>& first, const Pass<T>& second, bool is_last, const Get& get,
              const Put& put) {
  for (int64_t block = 0; block < second.blocks; ++block) {
    for (int64_t offset = 0; offset < first.stride; ++offset) {
      Pair<T> tile[r2][r1];
      for (int j = 0; j < r2; ++j) {
        const int64_t from_block = block + second.blocks * j;
        const int64_t at = from_block * first.stride + offset;
        Pair<T> y[r1];
#pragma GCC unroll 8
        for (int i = 0; i < r1; ++i) y[i] = get(at + i * first.from_step);
        butterfly<r1>(r1, y, first.radix_roots);
        twiddle(first, r1, from_block, y);
#pragma GCC unroll 8
        for (int i = 0; i < r1; ++i) tile[j][i] = y[i];
      }
      for (int i = 0; i < r1; ++i) {
        Pair<T> y[r2];
#pragma GCC unroll 8
        for (int j = 0; j < r2; ++j) y[j] = tile[j][i];
        butterfly<r2>(r2, y, second.radix_roots);
        if (is_last) {
          scale(second, r2, y);
        } else {
          twiddle(second, r2, block, y);
        }
        const int64_t at = block * r2 * second.stride + i * first.stride + offset;
#pragma GCC unroll 8
        for (int k = 0; k < r2; ++k) put(at + k * second.stride, y[k]);
      }
    }
  }
}

// ---- between memory and a buffer

// Lines of `length` elements of `parts` numbers each; one number only where `inner` is 1.
template <typename T>
struct Side {
  int64_t length = 0;
  int64_t parts = 2;
  int64_t inner = 1;
  int64_t first = 0;  // line
  int64_t count = 0;

  // The numbers of an element of a line.
  int64_t at(int64_t line, int64_t element) const {
    return ((line / inner * length + element) * inner + line % inner) * parts;
  }
  bool is_full() const { return count == kLanes<T>; }
  bool is_beside() const { return is_full() && first % inner + count <= inner; }
};

// Asks for the memory of `vectors` vectors that lie `ahead` numbers behind `at`. Lines lie too far
// apart for the processor to guess.
template <int is_written, int vectors, typename T>
inline void ask_for(const T* at, int64_t ahead) {
  const auto next = reinterpret_cast<uintptr_t>(at) + static_cast<uintptr_t>(ahead) * sizeof(T);
  for (int i = 0; i < vectors; ++i) {
    __builtin_prefetch(reinterpret_cast<const void*>(next + i * kVectorBytes), is_written);
  }
}

// Complex elements of lines that lie side by side.
template <typename T>
[[gnu::always_inline]] inline Pair<T> read_beside(const T* at) {
  return split<T>(load(at), load(at + kLanes<T>), std::make_index_sequence<kLanes<T>>());
}
template <typename T>
[[gnu::always_inline]] inline void write_beside(const Pair<T>& x, T* at) {
  const Pair<T> both = join<T>(x.re, x.im, std::make_index_sequence<kLanes<T>>());
  store(both.re, at);
  store(both.im, at + kLanes<T>);
}

// The elements from `begin` to `end` of all lines.
template <typename T>
void read(const Side<T>& side, const T* from, int64_t begin, int64_t end, Pair<T>* to) {
  constexpr int64_t n = kLanes<T>;
  const Vector<T> zero = {};
  if (side.is_beside()) {
    const T* at = from + side.at(side.first, begin);
    const int64_t step = side.inner * side.parts;
    for (int64_t i = begin; i < end; ++i, at += step) {
      ask_for<0, 2>(at, step * n);
      *to++ = read_beside(at);
    }
    return;
  }
  if (side.is_full() && side.inner == 1) {
    const int64_t step = side.length * side.parts;  // from line to line
    const int64_t elements = n / side.parts;        // of a tile
    const T* at = from + side.at(side.first, begin);
    for (; begin + elements <= end; begin += elements, at += n) {
      Vector<T> rows[n];
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < n; ++lane) {
        ask_for<0, 1>(at + lane * step, n * 2);
        rows[lane] = load(at + lane * step);
      }
      turn<1, T>(rows);
      if (side.parts == 1) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < n; ++i) *to++ = {rows[i], zero};
      } else {
#pragma GCC unroll 8
        for (int64_t i = 0; i < n; i += 2) *to++ = {rows[i], rows[i + 1]};
      }
    }
  }
  for (int64_t i = begin; i < end; ++i) to[i - begin] = {zero, zero};
  for (int64_t lane = 0; lane < side.count; ++lane) {
    for (int64_t i = begin; i < end; ++i) {
      const T* element = from + side.at(side.first + lane, i);
      to[i - begin].re[lane] = element[0];
      if (side.parts == 2) to[i - begin].im[lane] = element[1];
    }
  }
}

template <typename T>
void write(const Side<T>& side, const Pair<T>* from, int64_t begin, int64_t end, T* to) {
  constexpr int64_t n = kLanes<T>;
  if (side.is_beside()) {
    T* at = to + side.at(side.first, begin);
    const int64_t step = side.inner * side.parts;
    for (int64_t i = begin; i < end; ++i, ++from, at += step) {
      ask_for<1, 2>(at, step * n);
      write_beside(*from, at);
    }
    return;
  }
  if (side.is_full() && side.inner == 1) {
    const int64_t step = side.length * side.parts;
    const int64_t elements = n / side.parts;
    T* at = to + side.at(side.first, begin);
    for (; begin + elements <= end; begin += elements, at += n) {
      Vector<T> rows[n];
      if (side.parts == 1) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < n; ++i) rows[i] = (from++)->re;
      } else {
#pragma GCC unroll 8
        for (int64_t i = 0; i < n; i += 2, ++from) {
          rows[i] = from->re;
          rows[i + 1] = from->im;
        }
      }
      turn<1, T>(rows);
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < n; ++lane) {
        ask_for<1, 1>(at + lane * step, n * 2);
        store(rows[lane], at + lane * step);
      }
    }
  }
  for (int64_t lane = 0; lane < side.count; ++lane) {
    for (int64_t i = begin; i < end; ++i) {
      T* element = to + side.at(side.first + lane, i);
      element[0] = from[i - begin].re[lane];
      if (side.parts == 2) element[1] = from[i - begin].im[lane];
    }
  }
}

// ---- real numbers, two of which went through the passes as one complex one

// Of elements k and m - k of a transform of m complex elements the first one's conjugate or the
// second one's, and the root k of 2 m: twice element k of the transform of the 2 m real ones, as a
// sum of two terms.
template <typename T>
struct Terms {
  Pair<T> sum, turned;
};
template <typename T>
[[gnu::always_inline]] inline Terms<T> terms(const Pair<T>& a, const Pair<T>& b, const T* root) {
  const Pair<T> difference = minus(a, b);
  return {plus(a, b), times(Pair<T>{difference.im, -difference.re}, root[0], root[1])};
}

// From a transform of m complex elements to the first m + 1 elements of that of 2 m real ones.
template <typename T>
void part_pairs(int64_t m, const Pair<T>* from, const T* roots, Pair<T>* to) {
  const T half = T(0.5);
  for (int64_t k = 0; 2 * k <= m; ++k) {
    const Pair<T> mirrored = from[k == 0 ? 0 : m - k];
    const auto [sum, turned] = terms(from[k], {mirrored.re, -mirrored.im}, roots + 2 * k);
    to[k] = {(sum.re + turned.re) * half, (sum.im + turned.im) * half};
    if (2 * k != m) to[m - k] = {(sum.re - turned.re) * half, (turned.im - sum.im) * half};
  }
}

// The other way, conjugated: from the first m + 1 elements of a transform of 2 m real ones, of
// which the first and the last are real, to the m complex ones whose forward transform is sought.
template <typename T>
void join_pairs(int64_t m, const Pair<T>* from, const T* roots, Pair<T>* to) {
  const Vector<T> zero = {};
  for (int64_t k = 0; k < m; ++k) {
    Pair<T> a = {from[k].re, -from[k].im}, b = from[m - k];
    if (k == 0) a.im = b.im = zero;
    const auto [sum, turned] = terms(a, b, roots + 2 * k);
    to[k] = plus(sum, turned);
  }
}

template <typename T>
class Lines {
 public:
  Lines(const LineBlock& block)
      : t_(*block.transform),
        size_(t_.passed_size()),
        parts_pairs_(t_.is_paired() && t_.is_from_real),
        joins_pairs_(t_.is_paired() && t_.is_to_real),
        from_(side(block, t_.from_size, t_.is_from_real)),
        to_(side(block, t_.to_size, t_.is_to_real)),
        source_(reinterpret_cast<const T*>(block.from)),
        target_(reinterpret_cast<T*>(block.to)),
        roots_(reinterpret_cast<const T*>(block.roots)) {}

  // Between two buffers of buffer_elements; the first pass reads memory and the last one writes it
  // where its butterflies go by in whole tiles.
  void run(Pair<T>* x, Pair<T>* y) {
    const size_t count = t_.radices.size();
    // A first level cache holds both buffers of shorter ones.
    constexpr int64_t kShort = 128;
    const bool are_pairs =
        size_ > kShort && std::all_of(t_.radices.begin(), t_.radices.end(),
                                      [](int64_t r) { return r == 8 || r == 4 || r == 2; });
    Pass<T> pass;
    pass.roots = roots_;
    for (size_t i = 0; i < count; ++i) {
      const bool is_last = i + 1 == count;
      set(pass, i, x, y);
      const int64_t radix = pass.radix;
      // Of an odd number the one by itself reads elements side by side, or writes dense lines.
      const bool has_second = t_.inner == 1 ? i + 1 < count : (count - i) % 2 == 0;
      if (are_pairs && radix == 8 && has_second) {
        Pass<T> second = pass;
        go_on(second);
        set(second, ++i, x, y);
        run_pair(pass, second, i == 1, i + 1 == count);
        pass = second;
        go_on(pass);
        std::swap(x, y);
        continue;
      }
      const bool reads = i == 0 && !is_last && radix <= kMostRadix && from_.length == size_ &&
                         pass.blocks % kTile == 0;
      const bool writes =
          i > 0 && is_last && radix <= kMostRadix && pass.stride % kTile == 0 && !parts_pairs_;
      if (i == 0 && !reads) fetch_all(x, y);
      if (reads) {
        run_first(pass);
      } else if (writes) {
        run_last(pass);
      } else {
        run_any_pass(pass, is_last);
        if (is_last) finish(y, x);
      }
      go_on(pass);
      std::swap(x, y);
    }
  }

 private:
  // Pairs of real elements are complex ones.
  Side<T> side(const LineBlock& block, int64_t length, bool is_real) const {
    const bool are_pairs = is_real && t_.is_paired();
    return {are_pairs ? size_ : length, is_real && !are_pairs ? 1 : 2, t_.inner, block.first,
            block.count};
  }

  // What a pass is, by its number and what the one before it says.
  void set(Pass<T>& pass, size_t number, const Pair<T>* from, Pair<T>* to) {
    pass.from = from;
    pass.to = to;
    pass.radix = t_.radices[number];
    pass.radix_roots = roots_ + 2 * kernel::radix_roots_at(t_, pass.radix);
    pass.from_step = size_ / pass.radix;
    pass.to_step = pass.stride;
    pass.begin = 0;
    pass.end = pass.blocks = pass.from_step / pass.stride;
    if (number + 1 == t_.radices.size() && t_.is_inverse) {
      pass.scale = static_cast<T>(1.0 / static_cast<double>(t_.size));
    }
  }
  static void go_on(Pass<T>& pass) {
    pass.roots += 2 * (pass.radix - 1) * pass.blocks;
    pass.stride *= pass.radix;
  }

  // The first ones read memory and the last ones write it where lines lie side by side.
  void run_pair(const Pass<T>& first, const Pass<T>& second, bool is_first, bool is_last) {
    const bool reads = is_first && from_.is_beside();
    const bool writes = is_last && to_.is_beside();
    auto* const buffer = const_cast<Pair<T>*>(first.from);
    if (is_first && !reads) fetch_all(buffer, second.to);
    const bool negates = reads && t_.is_inverse;
    const T* const source = source_ + from_.at(from_.first, 0);
    T* const target = target_ + to_.at(to_.first, 0);
    const int64_t from_step = from_.inner * from_.parts, to_step = to_.inner * to_.parts;
    const auto get = [&](int64_t at) __attribute__((always_inline)) {
      if (!reads) return first.from[at];
      Pair<T> x = read_beside(source + at * from_step);
      if (negates) x.im = -x.im;
      return x;
    };
    const auto put = [&](int64_t at, const Pair<T>& x) __attribute__((always_inline)) {
      if (!writes) {
        second.to[at] = x;
      } else {
        write_beside(x, target + at * to_step);
      }
    };
    if (second.radix == 8) {
      run_both<8, 8>(first, second, is_last, get, put);
    } else if (second.radix == 4) {
      run_both<8, 4>(first, second, is_last, get, put);
    } else {
      run_both<8, 2>(first, second, is_last, get, put);
    }
    if (is_last && !writes) finish(second.to, buffer);
  }

  static constexpr int64_t kTile = kLanes<T>;
  static constexpr int64_t kMostRadix = 8;

  // Elements from `begin` on, as the passes want them: an inverse transform is the conjugate of the
  // forward transform of the conjugate. Mirrored elements are that already.
  void fetch(int64_t begin, int64_t end, Pair<T>* to) {
    const int64_t stored = std::min(end, from_.length);
    read(from_, source_, begin, stored, to);
    if (!t_.is_inverse) return;
    for (int64_t i = stored; i < end; ++i) to[i] = to[size_ - i];
    for (int64_t i = 0; i < stored - begin; ++i) to[i].im = -to[i].im;
  }
  // All of them; `other` is free.
  void fetch_all(Pair<T>* to, Pair<T>* other) {
    if (!joins_pairs_) return fetch(0, size_, to);
    read(from_, source_, 0, from_.length, other);
    join_pairs(size_, other, pair_roots(), to);
  }
  // What the passes left in `from` goes to memory; `other` is free.
  void finish(Pair<T>* from, Pair<T>* other) {
    if (parts_pairs_) {
      part_pairs(size_, from, pair_roots(), other);
      from = other;
    }
    write(to_, from, 0, to_.length, target_);
  }
  const T* pair_roots() const { return roots_ + 2 * kernel::pair_roots_at(t_); }

  void run_first(Pass<T> pass) {
    Pair<T> tile[kMostRadix * kTile];
    pass.from = tile;
    pass.from_step = kTile;
    const int64_t step = size_ / pass.radix;
    for (int64_t at = 0; at < step; at += kTile, pass.to += kTile * pass.radix) {
      for (int64_t j = 0; j < pass.radix; ++j) {
        fetch(at + j * step, at + j * step + kTile, tile + j * kTile);
      }
      pass.begin = at;
      pass.end = at + kTile;
      run_any_pass(pass, false);
    }
  }

  void run_last(Pass<T> pass) {
    Pair<T> tile[kMostRadix * kTile];
    const int64_t step = pass.stride;
    pass.to = tile;
    pass.to_step = pass.stride = kTile;
    for (int64_t at = 0; at < step; at += kTile, pass.from += kTile) {
      run_any_pass(pass, true);
      for (int64_t i = 0; i < pass.radix; ++i) {
        const int64_t begin = at + i * step;
        if (begin < to_.length) {
          write(to_, tile + i * kTile, begin, std::min(begin + kTile, to_.length), target_);
        }
      }
    }
  }

  const Transform& t_;
  const int64_t size_;  // of the passes
  const bool parts_pairs_, joins_pairs_;
  const Side<T> from_, to_;
  const T* const source_;
  T* const target_;
  const T* const roots_;
};

template <typename T>
void run_block(const LineBlock& block) {
  auto* const x = reinterpret_cast<Pair<T>*>(block.scratch);
  Lines<T>(block).run(x, x + buffer_elements(*block.transform));
}

}  // namespace

const LineCode& HEKLA_LINES() {
  static const LineCode code = {static_cast<int>(kVectorBytes), run_block<float>,
                                run_block<double>};
  return code;
}

}  // namespace hekla::cpu
