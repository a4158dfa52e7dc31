// SPDX-License-Identifier: Apache-2.0
// Operations whose elements are sums of many: loops with one accumulator per point.
#include <algorithm>
#include <array>

#include "backends/compiler/lower/algorithm.h"
#include "backends/compiler/lower/contraction.h"
#include "backends/compiler/lower/dimensions.h"
#include "backends/compiler/lower/emitter.h"
#include "backends/compiler/lower/extremes.h"
#include "runtime/program/ir/accumulator.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using ir::OpCode;
using kernel::Op;
using kernel::ScalarType;

namespace {

// Sums are cut into chunks of this many terms, and the chunks' sums are added with compensation
// (Kahan, "Further remarks on reducing truncation errors", 1965): so the rounding error is that of
// one chunk, however long the sum is.
constexpr int64_t kSumChunk = 64;

// Whether a reducer is `add` of its two arguments.
bool is_sum(const ir::Block& block) {
  const auto& ops = block.operations();
  if (ops.size() != 2 || ops[0]->code() != OpCode::kAdd || block.argument_count() != 2) {
    return false;
  }
  const ir::Value* a = ops[0]->operand(0);
  const ir::Value* b = ops[0]->operand(1);
  const ir::Value* x = block.argument(0);
  const ir::Value* y = block.argument(1);
  return ops[1]->operand(0) == ops[0]->result() && ((a == x && b == y) || (a == y && b == x));
}

}  // namespace

Element Emitter::negative_zero(DType dtype) {
  const Element positive = zero(dtype);
  Element negative{b_.neg(positive.re), kernel::kNoValue};
  if (positive.im != kernel::kNoValue) negative.im = b_.neg(positive.im);
  return negative;
}

Elements Emitter::loop(Value count, const std::vector<DType>& dtypes, const Elements& initial,
                       const std::function<Elements(Value, const Elements&)>& body) {
  // Elements travel through loops as values: a complex one as two.
  auto flatten = [](const Elements& elements) {
    std::vector<Value> values;
    for (const Element& e : elements) {
      values.push_back(e.re);
      if (e.im != kernel::kNoValue) values.push_back(e.im);
    }
    return values;
  };
  auto rebuild = [&](const std::vector<Value>& values) {
    Elements elements;
    size_t next = 0;
    for (DType dtype : dtypes) {
      Element e{values[next++], kernel::kNoValue};
      if (is_complex(dtype)) e.im = values[next++];
      elements.push_back(e);
    }
    return elements;
  };
  return rebuild(
      b_.loop(count, flatten(initial), [&](Value iteration, const std::vector<Value>& values) {
        memo_.emplace_back();
        const Elements next = body(iteration, rebuild(values));
        memo_.pop_back();
        return flatten(next);
      }));
}

Elements Emitter::nest(const Sizes& sizes, const std::vector<DType>& dtypes, Elements initial,
                       const NestBody& body) {
  std::vector<Value> iterations;
  std::function<Elements(size_t, Elements)> build = [&](size_t depth, Elements carried) {
    if (depth == sizes.size()) return body(iterations, carried);
    auto inside = [&](Value iteration, const Elements& elements) {
      iterations.push_back(iteration);
      Elements next = build(depth + 1, elements);
      iterations.pop_back();
      return next;
    };
    if (sizes[depth] == 1) return inside(index(0), carried);
    return loop(index(sizes[depth]), dtypes, carried, inside);
  };
  return build(0, std::move(initial));
}

std::vector<Elements> by_result(const Elements& totals, size_t count) {
  std::vector<Elements> results(count);
  for (size_t i = 0; i < totals.size(); ++i) results[i % count].push_back(totals[i]);
  return results;
}

std::optional<Elements> Emitter::reduce_points(const ir::Block& reducer, const Elements& carried,
                                               const std::vector<Elements>& inputs,
                                               const std::vector<Value>& where) {
  const size_t count = inputs.size();
  Elements next;
  for (size_t i = 0; i * count < carried.size(); ++i) {
    const auto begin = carried.begin() + static_cast<std::ptrdiff_t>(i * count);
    Elements arguments(begin, begin + static_cast<std::ptrdiff_t>(count));
    for (size_t r = 0; r < count; ++r) arguments.push_back(inputs[r][i]);
    const std::optional<Elements> reduced = apply_region(reducer, arguments);
    if (!reduced.has_value() || reduced->size() != count) return std::nullopt;
    for (size_t r = 0; r < count; ++r) {
      next.push_back(where.empty() ? (*reduced)[r]
                                   : kernel::select(b_, where[i], (*reduced)[r], arguments[r]));
    }
  }
  return next;
}

std::vector<Elements> Emitter::emit_reduce(const ir::Operation& op, const Points& points) {
  const size_t count = op.result_count();
  const Dims& from = op.operand(0)->type().dims();
  const Dims& to = op.result()->type().dims();
  const std::vector<int64_t> dimensions = ir::int_list(op, "dimensions");
  const ir::Block& reducer = op.region(0).front();
  Sizes sizes;
  for (int64_t d : dimensions) sizes.push_back(from[static_cast<size_t>(d)]);

  std::vector<DType> dtypes;
  Elements initial;
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t r = 0; r < count; ++r) {
      if (op.operand(r)->type().dtype() != op.result(r)->type().dtype()) return {};
      dtypes.push_back(op.result(r)->type().dtype());
      initial.push_back(emit(*op.operand(count + r), Point{}));
    }
  }
  std::vector<std::vector<Value>> places;
  for (const Point& point : points) places.push_back(dims_of(point, to));

  const std::optional<Extremes> extremes =
      count == 1 ? Extremes::of(reducer, dtypes.empty() ? DType::kI1 : dtypes[0]) : std::nullopt;
  bool applied = true;
  auto sources_at = [&](const std::vector<Value>& iterations) {
    Points sources;
    for (const std::vector<Value>& place : places) {
      Point source;
      size_t next = 0;
      for (size_t d = 0; d < from.size(); ++d) {
        auto it = std::find(dimensions.begin(), dimensions.end(), static_cast<int64_t>(d));
        source.dims.push_back(it == dimensions.end()
                                  ? place[next++]
                                  : iterations[static_cast<size_t>(it - dimensions.begin())]);
      }
      sources.push_back(std::move(source));
    }
    return sources;
  };
  auto step = [&](const std::vector<Value>& iterations, const Elements& carried) {
    const Points sources = sources_at(iterations);
    std::vector<Elements> inputs;
    for (size_t r = 0; r < count; ++r) inputs.push_back(emit(*op.operand(r), sources));
    std::optional<Elements> next = reduce_points(reducer, carried, inputs, {});
    applied &= next.has_value();
    return next.value_or(carried);
  };

  const bool is_empty = element_count(sizes) == 0;
  Elements totals = initial;
  if (!is_empty) {
    const DType dtype = dtypes[0];
    const bool chunked = count == 1 && is_sum(reducer) && (is_float(dtype) || is_complex(dtype)) &&
                         element_count(sizes) > 2 * kSumChunk;
    if (extremes.has_value()) {
      Elements states;
      for (const Element& x : initial) {
        const Elements of_one = extremes->start(b_, x);
        states.insert(states.end(), of_one.begin(), of_one.end());
      }
      const auto state_of = [](const Elements& all, size_t i) {
        return std::span<const Element>(all).subspan(i * Extremes::kStates, Extremes::kStates);
      };
      const std::vector<DType> state_dtypes(states.size(), Extremes::kStateType);
      states = nest(sizes, state_dtypes, states,
                    [&](const std::vector<Value>& iterations, const Elements& carried) {
                      const Elements here = emit(*op.operand(0), sources_at(iterations));
                      Elements next;
                      for (size_t i = 0; i < points.size(); ++i) {
                        const Elements added = extremes->add(b_, state_of(carried, i), here[i]);
                        next.insert(next.end(), added.begin(), added.end());
                      }
                      return next;
                    });
      for (size_t i = 0; i < points.size(); ++i) {
        totals[i] = extremes->result(b_, state_of(states, i));
      }
    } else if (!chunked) {
      totals = nest(sizes, dtypes, initial, step);
    } else {
      const Elements partial(points.size(), negative_zero(dtype));
      // The dimension that is cut: those after it are within a chunk as a whole.
      size_t cut = sizes.size() - 1;
      int64_t inner_count = 1;
      while (inner_count * sizes[cut] <= 2 * kSumChunk) inner_count *= sizes[cut--];
      Sizes outer(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(cut));
      Sizes chunk(sizes.begin() + static_cast<std::ptrdiff_t>(cut), sizes.end());
      const int64_t length = std::max<int64_t>(1, kSumChunk / inner_count);
      const int64_t whole = sizes[cut] / length;
      const int64_t rest = sizes[cut] % length;
      auto add = [&](const Element& x, const Element& y) {
        return *kernel::binary(b_, OpCode::kAdd, dtype, x, y);
      };
      auto subtract = [&](const Element& x, const Element& y) {
        return *kernel::binary(b_, OpCode::kSubtract, dtype, x, y);
      };
      // `state`: the sums of all points, then their errors.
      auto add_up = [&](const Elements& state, const Elements& parts) {
        const size_t n = parts.size();
        Elements next(2 * n);
        for (size_t i = 0; i < n; ++i) {
          const Element y = subtract(parts[i], state[n + i]);
          next[i] = add(state[i], y);
          next[n + i] = finite_or_zero(b_, subtract(subtract(next[i], state[i]), y));
        }
        return next;
      };
      Elements state = initial;
      state.resize(2 * points.size(), zero(dtype));
      const std::vector<DType> state_dtypes(2 * points.size(), dtype);
      // Adds the sum of one chunk that starts at `first` in the dimension that is cut.
      const auto add_chunk = [&](const std::vector<Value>& where, Value first,
                                 const Elements& sums) {
        const Elements parts = nest(chunk, dtypes, partial,
                                    [&](const std::vector<Value>& inner, const Elements& carried) {
                                      std::vector<Value> all = where;
                                      all.push_back(b_.add(first, inner[0]));
                                      all.insert(all.end(), inner.begin() + 1, inner.end());
                                      return step(all, carried);
                                    });
        return add_up(sums, parts);
      };
      chunk[0] = length;
      outer.push_back(whole);
      state = nest(outer, state_dtypes, state,
                   [&](const std::vector<Value>& iterations, const Elements& sums) {
                     const std::vector<Value> where(iterations.begin(), iterations.end() - 1);
                     return add_chunk(where, b_.mul(iterations.back(), index(length)), sums);
                   });
      if (rest != 0) {
        chunk[0] = rest;
        outer.pop_back();
        state = nest(outer, state_dtypes, state,
                     [&](const std::vector<Value>& where, const Elements& sums) {
                       return add_chunk(where, index(whole * length), sums);
                     });
      }
      totals.assign(state.begin(), state.begin() + static_cast<std::ptrdiff_t>(points.size()));
    }
  }
  return applied ? by_result(totals, count) : std::vector<Elements>();
}

std::vector<Elements> Emitter::emit_reduce_window(const ir::Operation& op, const Points& points) {
  const size_t count = op.result_count();
  const Dims& from = op.operand(0)->type().dims();
  const Dims& to = op.result()->type().dims();
  const std::vector<int64_t> window = ir::int_list(op, "window_dimensions");
  const std::vector<int64_t> strides = ir::int_list(op, "window_strides");
  const std::vector<int64_t> base_dilations = ir::int_list(op, "base_dilations");
  const std::vector<int64_t> window_dilations = ir::int_list(op, "window_dilations");
  const std::vector<std::array<int64_t, 2>> padding = ir::padding_of(op);
  const ir::Block& reducer = op.region(0).front();

  std::vector<DType> dtypes;
  Elements initial;
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t r = 0; r < count; ++r) {
      if (op.operand(r)->type().dtype() != op.result(r)->type().dtype()) return {};
      dtypes.push_back(op.result(r)->type().dtype());
      initial.push_back(emit(*op.operand(count + r), Point{}));
    }
  }
  bool applied = true;
  Elements totals = initial;
  if (element_count(from) != 0 && element_count(window) != 0) {
    std::vector<std::vector<Value>> places;
    for (const Point& point : points) places.push_back(dims_of(point, to));
    totals =
        nest(window, dtypes, initial, [&](const std::vector<Value>& at, const Elements& carried) {
          Points sources;
          std::vector<Value> inside;
          for (const std::vector<Value>& place : places) {
            Point source;
            Value is_inside = b_.boolean(true);
            for (size_t d = 0; d < from.size(); ++d) {
              const int64_t low = d < padding.size() ? padding[d][0] : 0;
              const int64_t high = d < padding.size() ? padding[d][1] : 0;
              const int64_t dilation = at_or(base_dilations, d, 1);
              const int64_t span = (from[d] - 1) * dilation + 1;
              Value i = b_.add(b_.mul(place[d], index(at_or(strides, d, 1))),
                               b_.mul(at[d], index(at_or(window_dilations, d, 1))));
              i = b_.sub(i, index(low));
              if (low > 0 || high > 0 || low < 0) {
                is_inside = b_.bit_and(is_inside, in_range(i, 0, span));
                i = clamp_index(i, 0, span - 1);
              }
              if (dilation != 1) {
                const Value rest = b_.binary(Op::kRemU, i, index(dilation));
                is_inside = b_.bit_and(is_inside, b_.binary(Op::kEq, rest, index(0)));
                i = b_.binary(Op::kDivU, i, index(dilation));
              }
              source.dims.push_back(i);
            }
            inside.push_back(is_inside);
            sources.push_back(std::move(source));
          }
          std::vector<Elements> inputs;
          for (size_t r = 0; r < count; ++r) inputs.push_back(emit(*op.operand(r), sources));
          std::optional<Elements> next = reduce_points(reducer, carried, inputs, inside);
          applied &= next.has_value();
          return next.value_or(carried);
        });
  }
  return applied ? by_result(totals, count) : std::vector<Elements>();
}

Element Emitter::multiply_add(DType accumulator, Element a, Element b, Element sum, bool b_first) {
  if (accumulator == DType::kF32 || accumulator == DType::kF64) {
    return {b_.fma(a.re, b.re, sum.re), kernel::kNoValue};
  }
  if (is_complex(accumulator)) {
    const Element& x = b_first ? b : a;
    const Element& y = b_first ? a : b;
    return {b_.fma(x.im, b_.neg(y.im), b_.fma(x.re, y.re, sum.re)),
            b_.fma(x.im, y.re, b_.fma(x.re, y.im, sum.im))};
  }
  const std::optional<Element> product =
      accumulator == DType::kI1 ? kernel::binary(b_, OpCode::kAnd, accumulator, a, b)
                                : kernel::binary(b_, OpCode::kMultiply, accumulator, a, b);
  const std::optional<Element> total =
      !product.has_value()        ? std::nullopt
      : accumulator == DType::kI1 ? kernel::binary(b_, OpCode::kOr, accumulator, sum, *product)
                                  : kernel::binary(b_, OpCode::kAdd, accumulator, sum, *product);
  return total.value_or(sum);
}

int Emitter::count_computed(const ir::Value& value, int most) {
  const ir::Operation* op = value.defining_op();
  if (most <= 0 || op == nullptr || operand_of_(value).has_value()) return 0;
  int count = 1;
  for (const ir::Value* operand : op->operands()) count += count_computed(*operand, most - count);
  return count;
}

// Sums of a dot_general with kDotChains partial sums for each point; `step` adds the products at a
// place in the dimensions that are summed over.
Elements Emitter::chained(const ir::Operation& op, const Sizes& sizes, const Elements& zeros,
                          const NestBody& step) {
  constexpr auto kChains = static_cast<size_t>(kernel::kDotChains);
  // Operands with more operations than this are computed by one piece of code, not by one for each
  // partial sum.
  constexpr int kMostCopied = 6;
  const size_t points = zeros.size();
  const auto d = static_cast<size_t>(
      std::find_if(sizes.begin(), sizes.end(), [](int64_t s) { return s > 1; }) - sizes.begin());
  const auto place = [&](Value at) {
    std::vector<Value> all(sizes.size(), index(0));
    all[d] = at;
    return all;
  };
  const int64_t whole = sizes[d] / kernel::kDotChains;
  const int64_t rest = sizes[d] % kernel::kDotChains;
  // Partial sum after partial sum, each with all points.
  const std::vector<DType> dtypes(kChains * points, DType::kF32);
  Elements sums;
  for (size_t c = 0; c < kChains; ++c) sums.insert(sums.end(), zeros.begin(), zeros.end());
  const auto chain = [&](const Elements& all, size_t c) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(c * points);
    return Elements(first, first + static_cast<std::ptrdiff_t>(points));
  };
  // Only partial sum `number` takes the products at `at`.
  const auto add_one = [&](Value number, const Elements& carried, const auto& add) {
    Elements next;
    for (size_t c = 0; c < kChains; ++c) {
      const Value is_this = b_.binary(Op::kEq, number, index(static_cast<int64_t>(c)));
      const Elements before = chain(carried, c);
      const Elements after = add(before);
      for (size_t i = 0; i < points; ++i) {
        next.push_back(kernel::select(b_, is_this, after[i], before[i]));
      }
    }
    return next;
  };
  const int computed = count_computed(*op.operand(0), kMostCopied + 1) +
                       count_computed(*op.operand(1), kMostCopied + 1);
  if (computed <= kMostCopied) {
    sums = nest({whole}, dtypes, sums, [&](const std::vector<Value>& at, const Elements& carried) {
      const Value first = b_.mul(at[0], index(kernel::kDotChains));
      Elements next;
      for (size_t c = 0; c < kChains; ++c) {
        const Value here = b_.add(first, index(static_cast<int64_t>(c)));
        const Elements added = step(place(here), chain(carried, c));
        next.insert(next.end(), added.begin(), added.end());
      }
      return next;
    });
  } else {
    sums = nest({kernel::kDotChains}, dtypes, sums,
                [&](const std::vector<Value>& number, const Elements& carried) {
                  const std::vector<DType> of_one(points, DType::kF32);
                  const Elements sum = nest({whole}, of_one, zeros,
                                            [&](const std::vector<Value>& at, const Elements& one) {
                                              const Value first =
                                                  b_.mul(at[0], index(kernel::kDotChains));
                                              return step(place(b_.add(first, number[0])), one);
                                            });
                  return add_one(number[0], carried, [&](const Elements&) { return sum; });
                });
  }
  if (rest != 0) {
    sums = nest({rest}, dtypes, sums, [&](const std::vector<Value>& at, const Elements& carried) {
      const Value here = b_.add(at[0], index(whole * kernel::kDotChains));
      return add_one(at[0], carried,
                     [&](const Elements& before) { return step(place(here), before); });
    });
  }
  for (size_t half = kChains / 2; half > 0; half /= 2) {
    for (size_t k = 0; k < half * points; ++k) {
      sums[k] = {b_.add(sums[k].re, sums[half * points + k].re), kernel::kNoValue};
    }
  }
  sums.resize(points);
  return sums;
}

Elements Emitter::sum_products(const ir::Operation& op, const Sizes& sizes, DType accumulator,
                               size_t points, int64_t chains, const NestBody& step) {
  const std::vector<DType> dtypes(points, accumulator);
  const Elements zeros(points, zero(accumulator));
  const auto sum = [&](const Sizes& of, const NestBody& body) {
    return chains == 1 ? nest(of, dtypes, zeros, body) : chained(op, of, zeros, body);
  };
  const kernel::SumChunks chunks = sum_chunks(op, sizes, chains);
  if (chunks.axis < 0) return sum(sizes, step);
  const auto axis = static_cast<size_t>(chunks.axis);
  const auto add_chunk = [&](const std::vector<Value>& outer, Value first, int64_t length,
                             const Elements& totals) {
    Sizes chunk(sizes.begin() + chunks.axis, sizes.end());
    chunk[0] = length;
    const Elements sums = sum(chunk, [&](const std::vector<Value>& at, const Elements& carried) {
      std::vector<Value> all = outer;
      all.push_back(b_.add(first, at[0]));
      all.insert(all.end(), at.begin() + 1, at.end());
      return step(all, carried);
    });
    Elements next;
    for (size_t i = 0; i < points; ++i) {
      next.push_back(*kernel::binary(b_, OpCode::kAdd, accumulator, totals[i], sums[i]));
    }
    return next;
  };
  const int64_t whole = sizes[axis] / chunks.length;
  const int64_t rest = sizes[axis] % chunks.length;
  return nest(Sizes(sizes.begin(), sizes.begin() + chunks.axis), dtypes,
              Elements(points, negative_zero(accumulator)),
              [&](const std::vector<Value>& outer, const Elements& carried) {
                Elements totals = nest({whole}, dtypes, carried,
                                       [&](const std::vector<Value>& at, const Elements& before) {
                                         const Value first = b_.mul(at[0], index(chunks.length));
                                         return add_chunk(outer, first, chunks.length, before);
                                       });
                if (rest == 0) return totals;
                return add_chunk(outer, index(whole * chunks.length), rest, totals);
              });
}

namespace {

// Whether a product of two arrays can be emitted: no element is quantized, and the algorithm takes
// its operands as they are.
bool is_computed_product(const ir::Operation& op) {
  for (const ir::Value* value : {op.operand(0), op.operand(1), op.result()}) {
    if (value->type().quantization() != nullptr) return false;
  }
  const Result<kernel::Algorithm> algorithm = algorithm_of(op);
  return algorithm.ok() && has_rounded_operands(op, *algorithm);
}

}  // namespace

Elements Emitter::emit_dot_general(const ir::Operation& op, const Points& points) {
  const auto* numbers = op.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>();
  const ir::Type& lhs = op.operand(0)->type();
  const ir::Type& rhs = op.operand(1)->type();
  const ir::Type& type = op.result()->type();
  if (numbers == nullptr || !is_computed_product(op)) return {};
  const DType accumulator = ir::accumulator_dtype(type.dtype());
  Sizes sizes;
  for (int64_t d : numbers->lhs_contracting_dimensions) {
    sizes.push_back(lhs.dims()[static_cast<size_t>(d)]);
  }
  Elements sums(points.size(), zero(accumulator));
  if (element_count(sizes) != 0) {
    // The result's dimensions: batch, then what is left of lhs, then of rhs.
    std::vector<std::vector<Value>> left(points.size()), right(points.size());
    for (size_t i = 0; i < points.size(); ++i) {
      const std::vector<Value> place = dims_of(points[i], type.dims());
      left[i].assign(lhs.dims().size(), kernel::kNoValue);
      right[i].assign(rhs.dims().size(), kernel::kNoValue);
      size_t next = 0;
      for (size_t k = 0; k < numbers->lhs_batching_dimensions.size(); ++k, ++next) {
        left[i][static_cast<size_t>(numbers->lhs_batching_dimensions[k])] = place[next];
        right[i][static_cast<size_t>(numbers->rhs_batching_dimensions[k])] = place[next];
      }
      for (size_t d = 0; d < lhs.dims().size(); ++d) {
        if (contains(numbers->lhs_batching_dimensions, d) ||
            contains(numbers->lhs_contracting_dimensions, d)) {
          continue;
        }
        left[i][d] = place[next++];
      }
      for (size_t d = 0; d < rhs.dims().size(); ++d) {
        if (contains(numbers->rhs_batching_dimensions, d) ||
            contains(numbers->rhs_contracting_dimensions, d)) {
          continue;
        }
        right[i][d] = place[next++];
      }
    }
    const bool rhs_first = is_complex(accumulator) && has_rhs_first(op);
    // `carried` with the products at `at` added.
    const auto step = [&](const std::vector<Value>& at, const Elements& carried) {
      Points left_points, right_points;
      for (size_t i = 0; i < points.size(); ++i) {
        Point l{left[i], kernel::kNoValue};
        Point r{right[i], kernel::kNoValue};
        for (size_t k = 0; k < at.size(); ++k) {
          l.dims[static_cast<size_t>(numbers->lhs_contracting_dimensions[k])] = at[k];
          r.dims[static_cast<size_t>(numbers->rhs_contracting_dimensions[k])] = at[k];
        }
        left_points.push_back(std::move(l));
        right_points.push_back(std::move(r));
      }
      const Elements a = emit(*op.operand(0), left_points);
      const Elements b = emit(*op.operand(1), right_points);
      Elements next;
      for (size_t i = 0; i < points.size(); ++i) {
        next.push_back(multiply_add(
            accumulator, kernel::convert_element(b_, a[i], lhs.dtype(), accumulator),
            kernel::convert_element(b_, b[i], rhs.dtype(), accumulator), carried[i], rhs_first));
      }
      return next;
    };
    sums = sum_products(op, sizes, accumulator, points.size(), dot_chains(op), step);
  }
  for (Element& e : sums) e = kernel::convert_element(b_, e, accumulator, type.dtype());
  return sums;
}

Elements Emitter::emit_convolution(const ir::Operation& op, const Points& points) {
  const auto* n = op.attribute("dimension_numbers").get<ir::ConvDimensionNumbers>();
  const ir::Type& lhs = op.operand(0)->type();
  const ir::Type& rhs = op.operand(1)->type();
  const ir::Type& type = op.result()->type();
  if (n == nullptr || !is_computed_product(op)) return {};
  const std::vector<int64_t> strides = ir::int_list(op, "window_strides");
  const std::vector<int64_t> lhs_dilation = ir::int_list(op, "lhs_dilation");
  const std::vector<int64_t> rhs_dilation = ir::int_list(op, "rhs_dilation");
  const std::vector<bool> reversal = ir::bool_list(op, "window_reversal");
  const std::vector<std::array<int64_t, 2>> padding = ir::padding_of(op);
  const int64_t feature_groups = ir::int_value(op, "feature_group_count", 1);
  const int64_t batch_groups = ir::int_value(op, "batch_group_count", 1);
  const DType accumulator = ir::accumulator_dtype(type.dtype());
  auto size = [](const ir::Type& t, int64_t d) { return t.dims()[static_cast<size_t>(d)]; };

  // The input features of a group stand in the kernel; output features are split among groups.
  const int64_t group_inputs = size(rhs, n->kernel_input_feature_dimension);
  const int64_t outputs = size(rhs, n->kernel_output_feature_dimension);
  const int64_t group_batch = size(lhs, n->input_batch_dimension) / batch_groups;
  const size_t spatial = n->kernel_spatial_dimensions.size();
  Sizes sizes;
  for (int64_t d : n->kernel_spatial_dimensions) sizes.push_back(size(rhs, d));
  // Places of the features and of the window's first dimension in the depth.
  const bool features_first = sums_features_first(op);
  const size_t features_at = features_first ? 0 : spatial;
  const size_t window_at = features_first ? 1 : 0;
  sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(features_at), group_inputs);

  Elements sums(points.size(), zero(accumulator));
  if (element_count(sizes) != 0 && element_count(lhs.dims()) != 0) {
    std::vector<std::vector<Value>> places;
    for (const Point& point : points) places.push_back(dims_of(point, type.dims()));
    const bool rhs_first = is_complex(accumulator) && has_rhs_first(op);
    const auto step = [&](const std::vector<Value>& at, const Elements& carried) {
      Points left, right;
      std::vector<Value> inside;
      for (const std::vector<Value>& place : places) {
        const Value feature = place[static_cast<size_t>(n->output_feature_dimension)];
        Point l, r;
        l.dims.assign(lhs.dims().size(), kernel::kNoValue);
        r.dims.assign(rhs.dims().size(), kernel::kNoValue);
        Value is_inside = b_.boolean(true);
        for (size_t s = 0; s < spatial; ++s) {
          const int64_t window = sizes[window_at + s];
          const Value tap = at[window_at + s];
          const Value w = !reversal.empty() && reversal[s] ? b_.sub(index(window - 1), tap) : tap;
          r.dims[static_cast<size_t>(n->kernel_spatial_dimensions[s])] = w;
          const int64_t extent = size(lhs, n->input_spatial_dimensions[s]);
          const int64_t dilation = at_or(lhs_dilation, s, 1);
          const int64_t span = (extent - 1) * dilation + 1;
          const int64_t low = s < padding.size() ? padding[s][0] : 0;
          const int64_t high = s < padding.size() ? padding[s][1] : 0;
          const Value out = place[static_cast<size_t>(n->output_spatial_dimensions[s])];
          Value i = b_.add(b_.mul(out, index(at_or(strides, s, 1))),
                           b_.mul(tap, index(at_or(rhs_dilation, s, 1))));
          i = b_.sub(i, index(low));
          if (low != 0 || high > 0) {
            is_inside = b_.bit_and(is_inside, in_range(i, 0, span));
            i = clamp_index(i, 0, span - 1);
          }
          if (dilation != 1) {
            const Value rest = b_.binary(Op::kRemU, i, index(dilation));
            is_inside = b_.bit_and(is_inside, b_.binary(Op::kEq, rest, index(0)));
            i = b_.binary(Op::kDivU, i, index(dilation));
          }
          l.dims[static_cast<size_t>(n->input_spatial_dimensions[s])] = i;
        }
        Value in_feature = at[features_at];
        if (feature_groups > 1) {
          const Value group = b_.binary(Op::kDivU, feature, index(outputs / feature_groups));
          in_feature = b_.add(b_.mul(group, index(group_inputs)), in_feature);
        }
        Value batch = place[static_cast<size_t>(n->output_batch_dimension)];
        if (batch_groups > 1) {
          const Value group = b_.binary(Op::kDivU, feature, index(outputs / batch_groups));
          batch = b_.add(b_.mul(group, index(group_batch)), batch);
        }
        l.dims[static_cast<size_t>(n->input_batch_dimension)] = batch;
        l.dims[static_cast<size_t>(n->input_feature_dimension)] = in_feature;
        r.dims[static_cast<size_t>(n->kernel_input_feature_dimension)] = at[features_at];
        r.dims[static_cast<size_t>(n->kernel_output_feature_dimension)] = feature;
        left.push_back(std::move(l));
        right.push_back(std::move(r));
        inside.push_back(is_inside);
      }
      const Elements a = emit(*op.operand(0), left);
      const Elements b = emit(*op.operand(1), right);
      Elements next;
      for (size_t i = 0; i < points.size(); ++i) {
        // Padding is a zero of the input: its product with infinity is NaN, by the specification.
        const Element x = kernel::select(
            b_, inside[i], kernel::convert_element(b_, a[i], lhs.dtype(), accumulator),
            zero(accumulator));
        const Element y = kernel::convert_element(b_, b[i], rhs.dtype(), accumulator);
        next.push_back(multiply_add(accumulator, x, y, carried[i], rhs_first));
      }
      return next;
    };
    sums = sum_products(op, sizes, accumulator, points.size(), 1, step);
  }
  for (Element& e : sums) e = kernel::convert_element(b_, e, accumulator, type.dtype());
  return sums;
}

}  // namespace hekla::lower
