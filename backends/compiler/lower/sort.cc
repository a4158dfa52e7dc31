// SPDX-License-Identifier: Apache-2.0
// Sorts. On devices with teams lines whose comparator is a total order of keys are sorted by digits
// (radix_sort.h). All others: blocks of a few elements are sorted in registers by a network of
// exchanges of adjacent ones, which is stable (odd-even transposition; Knuth, volume 3, 5.3.4).
// Sorted runs are then merged two by two until one is left. In a merge each point makes the same
// number of outputs: where its share begins in both runs is found by binary search on its diagonal
// (merge path; Odeh, Green, Mwassi, Shmueli and Birk, 2012).
//
// Every place of the result is written, each index is within its run, and every loop has a fixed
// number of trips, whatever the comparator answers: one that is no order gives some elements of the
// line, always the same ones.
//
// When nobody looks beyond the first few places of the results (top_k), no run
// is merged further than that: a merge then costs what it keeps, and the rest of the results is
// left as it is. Of a handful, each point finds those of its part of the line, which it keeps in
// registers, instead of sorting a block.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "backends/compiler/lower/radix_sort.h"
#include "backends/compiler/lower/sequence.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using kernel::Op;

namespace {

// Instructions that the exchanges of one block may have: code size grows with the square of the
// block, what it saves is one pass over memory per doubling.
constexpr size_t kMaxNetwork = 2000;
// Outputs of one point of a merge: enough to be worth the search, few enough to have many points.
constexpr int64_t kMergeOutputs = 16;
// The most that a part keeps in registers, and how long a part is: at least, and from which length
// of the line on how long; multiples of kMergeOutputs.
constexpr int64_t kMostKept = 16;
// What sizes decide.
struct SortLimits {
  int64_t largest_block = 16;
  int64_t short_part = 64;
  int64_t long_line = 1 << 15;
  int64_t long_part = 256;
};

SortLimits sort_limits(const LowerOptions& options) {
  return options.small_limits ? SortLimits{4, kMergeOutputs, 100, 2 * kMergeOutputs} : SortLimits{};
}

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

class SortLowering {
 public:
  SortLowering(const ir::Operation& op, const Outputs& outputs, const InMemory& in_memory,
               const LowerOptions& options)
      : op_(op), in_memory_(in_memory), options_(options), comparator_(op.region(0).front()) {
    const Dims& dims = op.operand(0)->type().dims();
    int64_t dim = ir::int_value(op, "dimension", -1);
    if (dim < 0) dim += static_cast<int64_t>(dims.size());
    for (size_t d = 0; d < dims.size(); ++d) {
      int64_t& part = static_cast<int64_t>(d) < dim ? outer_ : inner_;
      if (static_cast<int64_t>(d) == dim) {
        size_ = dims[d];
      } else {
        part *= dims[d];
      }
    }
    for (const ir::Value* output : outputs) kept_ = std::max(kept_, places_read(*output, dim));
    row_ = round_up(size_, kMergeOutputs);
    largest_ = outer_ * row_ * inner_;
    largest_index_ = std::max(largest_, largest_inlined(op, in_memory));
    const DType index_dtype = is_wide_index(largest_index_) ? DType::kI64 : DType::kI32;
    for (size_t k = 0; k < op.operand_count(); ++k) {
      const bool is_key =
          comparator_.argument(2 * k)->has_uses() || comparator_.argument(2 * k + 1)->has_uses();
      const bool is_wanted =
          std::find(outputs.begin(), outputs.end(), op.result(k)) != outputs.end();
      if (is_key) {
        key_of_.push_back(static_cast<int>(dtypes_.size()));
        carried_.push_back({k, is_wanted});
        dtypes_.push_back(op.operand(k)->type().dtype());
      } else {
        key_of_.push_back(-1);
        if (is_wanted) payloads_.push_back(k);
      }
    }
    keys_ = dtypes_.size();
    // Several payloads are fetched once, at the end, by the place that the key came from.
    by_index_ = payloads_.size() > 1;
    if (by_index_) {
      dtypes_.push_back(index_dtype);
    } else if (!payloads_.empty()) {
      carried_.push_back({payloads_[0], true});
      dtypes_.push_back(op.operand(payloads_[0])->type().dtype());
    }
  }

  kernel::Refusal why_not_partial() {
    if (const auto block = block_size(); !block.ok()) return block.status().message();
    if (kernel::Refusal why = why_no_parts(); !why.empty()) return why;
    return part_size() > 0 ? "" : fmt::format("the last part of {} elements is too short", size_);
  }

  // Once why_not_partial() was asked.
  kernel::Refusal why_not_by_digits() { return why_no_radix_sort(radix_sort()); }

  Result<LoweredSequence> run() {
    for (size_t k = 0; k < op_.operand_count(); ++k) {
      if (op_.operand(k)->type().dtype() != op_.result(k)->type().dtype()) {
        return unimplemented("a sort that changes dtypes");
      }
    }
    HEKLA_ASSIGN_OR_RETURN(const int64_t block, block_size());
    std::vector<Temporary> from, to;
    const int64_t part = part_size();
    if (part == 0) {
      const RadixSort radix = radix_sort();
      if (why_no_radix_sort(radix).empty()) {
        HEKLA_RETURN_IF_ERROR(sort_by_radix(radix));
        return std::move(sequence_);
      }
    }
    if (size_ > block) from = add_run();
    HEKLA_RETURN_IF_ERROR(part > 0 ? add_parts(part, from) : add_blocks(block, from));
    for (int64_t width = part > 0 ? part : block; width < size_; width *= 2) {
      const bool is_last = 2 * width >= size_;
      if (!is_last && to.empty()) to = add_run();
      HEKLA_RETURN_IF_ERROR(add_merge(width, from, is_last ? std::vector<Temporary>() : to));
      std::swap(from, to);
    }
    return std::move(sequence_);
  }

 private:
  struct Carried {
    size_t operand;
    bool is_wanted;
  };

  // How many places along `dim`, from the first on, somebody reads: slices may leave some out.
  int64_t places_read(const ir::Value& result, int64_t dim) const {
    int64_t most = 0;
    for (const ir::Operation* user : result.users()) {
      if (user->code() != ir::OpCode::kSlice || user->block() != op_.block()) return size_;
      most = std::max(most, ir::int_list(*user, "limit_indices")[static_cast<size_t>(dim)]);
    }
    return most;
  }

  std::vector<Temporary> add_run() {
    std::vector<Temporary> run;
    for (DType dtype : dtypes_) run.push_back(add_temporary(sequence_, dtype, largest_));
    return run;
  }

  RadixSort radix_sort() {
    RadixSort sort{sequence_, in_memory_, options_, outer_,
                   size_,     inner_,     dtypes_,  sort_keys(comparator_),
                   {},        {},         {},       largest_index_};
    sort.load = [this](KernelMaker& k, Value i) {
      const Point point{{}, index_of(k, size_, k.at(0), i, k.at(2))};
      Elements elements;
      for (const Carried& each : carried_) {
        elements.push_back(k.emitter().emit(*op_.operand(each.operand), point));
      }
      // Indices of these kernels may be wider than what is carried.
      if (by_index_) {
        elements.push_back(
            kernel::convert_element(k.b(), {i, kernel::kNoValue}, k.index_dtype(), dtypes_.back()));
      }
      return elements;
    };
    sort.store = [this](KernelMaker& k, Value i, const Elements& element) {
      Elements stored = element;
      if (by_index_) {
        stored.back() =
            kernel::convert_element(k.b(), stored.back(), dtypes_.back(), k.index_dtype());
      }
      store(k, {}, stored, k.at(0), i, k.at(2));
    };
    sort.number = [this](KernelMaker& k, const SortKey& key, const Elements& element) {
      Elements all;
      for (size_t i = 0; i < op_.operand_count(); ++i) {
        const int carried = key_of_[i];
        const DType dtype = op_.operand(i)->type().dtype();
        all.push_back(carried < 0 ? kernel::integer_element(k.b(), dtype, 0)
                                  : element[static_cast<size_t>(carried)]);
      }
      const std::optional<Value> number = ordered_key(k.emitter(), comparator_, key, all);
      if (!number.has_value()) k.emitter().fail(op_);
      return number.value_or(k.b().integer(kernel::ScalarType::kI32, 0));
    };
    return sort;
  }

  // Whether `a` must stand before `b`, by the comparator.
  Value is_less(KernelMaker& k, const Elements& a, const Elements& b) {
    Elements arguments;
    for (size_t i = 0; i < op_.operand_count(); ++i) {
      const int key = key_of_[i];
      const DType dtype = op_.operand(i)->type().dtype();
      const Element unused = kernel::integer_element(k.b(), dtype, 0);
      arguments.push_back(key < 0 ? unused : a[static_cast<size_t>(key)]);
      arguments.push_back(key < 0 ? unused : b[static_cast<size_t>(key)]);
    }
    const std::optional<Elements> results = k.emitter().apply_region(comparator_, arguments);
    if (!results.has_value() || results->size() != 1) {
      failed_ = true;
      return k.b().boolean(false);
    }
    return results->front().re;
  }

  // Place `i` of line (o, in), in memory with lines of `row` elements.
  Value index_of(KernelMaker& k, int64_t row, Value o, Value i, Value in) {
    Builder& b = k.b();
    return b.add(b.mul(b.add(b.mul(o, k.index(row)), i), k.index(inner_)), in);
  }

  // The largest block whose network is not too long, a power of two; all of a shorter line.
  Result<int64_t> block_size() {
    KernelMaker k("sort", {size_}, largest_index_, in_memory_);
    Elements a, b;
    for (size_t i = 0; i < keys_; ++i) {
      const Point here{{}, k.at(0)};
      const Point next{{}, k.b().add(k.at(0), k.index(1))};
      // Any values that are not constants do.
      auto some = [&](const Point& point) {
        const DType from = k.index_dtype();
        return kernel::convert_element(k.b(), {point.linear, kernel::kNoValue}, from, dtypes_[i]);
      };
      a.push_back(some(here));
      b.push_back(some(next));
    }
    const size_t before = k.b().size();
    is_less(k, a, b);
    if (failed_) {
      return unimplemented("stablehlo.sort ({}): its comparator has no scalar form",
                           ir::location_string(op_.location()));
    }
    const size_t exchange = k.b().size() - before + 2 * dtypes_.size() + 1;
    exchange_ = exchange;
    int64_t block = limits_.largest_block;
    while (block > 2 && static_cast<size_t>(block * (block - 1) / 2) * exchange > kMaxNetwork) {
      block /= 2;
    }
    return std::min(block, size_);
  }

  int64_t least_part() const {
    return size_ >= limits_.long_line ? limits_.long_part : limits_.short_part;
  }
  // Once block_size() was asked.
  kernel::Refusal why_no_parts() const {
    if (kept_ > kMostKept) {
      return fmt::format("{} elements of a line are wanted, more than {}", kept_, kMostKept);
    }
    if (size_ < 4 * least_part()) {
      return fmt::format("lines of {} elements, fewer than {}", size_, 4 * least_part());
    }
    const size_t instructions = 2 * static_cast<size_t>(kept_) * exchange_;
    if (instructions <= kMaxNetwork) return {};
    return fmt::format("{} instructions for an element, more than {}", instructions, kMaxNetwork);
  }

  // How long the parts are of which each keeps its first few; 0: blocks are sorted. The last part
  // has as many elements as are kept, too.
  int64_t part_size() const {
    if (!why_no_parts().empty()) return 0;
    const int64_t least = least_part();
    for (int64_t part = least; part < 2 * least; part += kMergeOutputs) {
      if ((size_ - 1) % part + 1 >= kept_) return part;
    }
    return 0;
  }

  // The first kept_ of each part of the line, in order, at its beginning.
  Status add_parts(int64_t part, const std::vector<Temporary>& to) {
    const int64_t parts = (size_ + part - 1) / part;
    const int64_t last = size_ - (parts - 1) * part;  // elements of the last one
    KernelMaker k("sort_first", {outer_, parts, inner_}, largest_index_, in_memory_);
    Builder& b = k.b();
    const size_t width = dtypes_.size();
    const auto kept = static_cast<size_t>(kept_);
    std::vector<DType> types;
    Elements initial;
    for (size_t t = 0; t < kept; ++t) {
      for (DType dtype : dtypes_) {
        types.push_back(dtype);
        initial.push_back(kernel::integer_element(b, dtype, 0));
      }
    }
    const auto of = [&](const Elements& all, size_t t) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(t * width);
      return Elements(first, first + static_cast<std::ptrdiff_t>(width));
    };
    const Value start = b.mul(k.at(1), k.index(part));
    // Element `t` of the part goes before those that it is less than, as long as it exists.
    const auto insert = [&](Value t, Value i, Value exists, const Elements& list) {
      const Point point{{}, index_of(k, size_, k.at(0), i, k.at(2))};
      Elements x;
      for (const Carried& each : carried_) {
        x.push_back(k.emitter().emit(*op_.operand(each.operand), point));
      }
      if (by_index_) x.push_back({i, kernel::kNoValue});
      Elements next;
      Value after_previous = b.boolean(false);  // whether x goes before the one before
      for (size_t place = 0; place < kept; ++place) {
        const Elements here = of(list, place);
        const Value is_free = b.binary(Op::kLeS, t, k.index(static_cast<int64_t>(place)));
        const Value goes = b.bit_and(exists, b.bit_or(is_free, is_less(k, x, here)));
        Elements moved = x;
        if (place > 0) moved = k.choose(after_previous, of(list, place - 1), x);
        const Elements chosen = k.choose(goes, moved, here);
        next.insert(next.end(), chosen.begin(), chosen.end());
        after_previous = goes;
      }
      return next;
    };
    Elements list = k.loop(k.index(last), types, initial, [&](Value t, const Elements& now) {
      return insert(t, b.add(start, t), b.boolean(true), now);
    });
    if (last < part) {
      list = k.loop(k.index(part - last), types, list, [&](Value u, const Elements& now) {
        const Value t = b.add(u, k.index(last));
        const Value i = b.add(start, t);
        return insert(t, k.at_most(i, size_ - 1), b.binary(Op::kLtS, i, k.index(size_)), now);
      });
    }
    for (size_t t = 0; t < kept; ++t) {
      store(k, to, of(list, t), k.at(0), b.add(start, k.index(static_cast<int64_t>(t))), k.at(2));
    }
    return add(k);
  }

  Status add(KernelMaker& k) {
    HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k.finish(options_));
    sequence_.kernels.push_back(std::move(made));
    return ok_status();
  }

  // Stores what is carried; to the results when `to` is empty.
  void store(KernelMaker& k, const std::vector<Temporary>& to, const Elements& elements, Value o,
             Value i, Value in) {
    if (!to.empty()) {
      const Value at = index_of(k, row_, o, i, in);
      for (size_t e = 0; e < elements.size(); ++e) k.store(to[e], at, elements[e]);
      return;
    }
    const Value at = index_of(k, size_, o, i, in);
    for (size_t e = 0; e < carried_.size(); ++e) {
      if (carried_[e].is_wanted) k.store(*op_.result(carried_[e].operand), at, elements[e]);
    }
    if (!by_index_) return;
    const Point source{{}, index_of(k, size_, o, elements.back().re, in)};
    for (size_t operand : payloads_) {
      k.store(*op_.result(operand), at, k.emitter().emit(*op_.operand(operand), source));
    }
  }

  Status add_blocks(int64_t block, const std::vector<Temporary>& to) {
    const int64_t blocks = (size_ + block - 1) / block;
    KernelMaker k("sort_blocks", {outer_, blocks, inner_}, largest_index_, in_memory_);
    Builder& b = k.b();
    std::vector<Elements> line;
    std::vector<Value> exists(static_cast<size_t>(block), b.boolean(true));
    for (int64_t t = 0; t < block; ++t) {
      Value i = b.add(b.mul(k.at(1), k.index(block)), k.index(t));
      if (size_ % block != 0) {
        exists[static_cast<size_t>(t)] = b.binary(Op::kLtS, i, k.index(size_));
        i = k.at_most(i, size_ - 1);
      }
      const Point point{{}, index_of(k, size_, k.at(0), i, k.at(2))};
      Elements elements;
      for (const Carried& each : carried_) {
        elements.push_back(k.emitter().emit(*op_.operand(each.operand), point));
      }
      if (by_index_) elements.push_back({i, kernel::kNoValue});
      line.push_back(std::move(elements));
    }
    // Elements beyond the end are the last of the block and are never exchanged.
    const auto exchange = [&](size_t first) {
      for (size_t t = first; t + 1 < line.size(); t += 2) {
        const Value swap = b.bit_and(exists[t + 1], is_less(k, line[t + 1], line[t]));
        Elements less = k.choose(swap, line[t + 1], line[t]);
        line[t + 1] = k.choose(swap, line[t], line[t + 1]);
        line[t] = std::move(less);
      }
    };
    // Two rounds an iteration: unrolled they would be most of a sort's code.
    std::vector<DType> types;
    Elements initial;
    for (const Elements& elements : line) {
      types.insert(types.end(), dtypes_.begin(), dtypes_.end());
      initial.insert(initial.end(), elements.begin(), elements.end());
    }
    const auto set_line = [&](const Elements& all) {
      auto next = all.begin();
      for (Elements& elements : line) {
        for (Element& element : elements) element = *next++;
      }
    };
    const Elements sorted =
        k.loop(k.index((block + 1) / 2), types, initial, [&](Value, const Elements& now) {
          set_line(now);
          exchange(0);
          exchange(1);
          Elements after;
          for (const Elements& elements : line) {
            after.insert(after.end(), elements.begin(), elements.end());
          }
          return after;
        });
    set_line(sorted);
    for (int64_t t = 0; t < block; ++t) {
      const Value i = b.add(b.mul(k.at(1), k.index(block)), k.index(t));
      store(k, to, line[static_cast<size_t>(t)], k.at(0), i, k.at(2));
    }
    return add(k);
  }

  // What a merge that is shared by levels loads: the width of the runs, and how many iterations
  // the search on a diagonal takes.
  Table add_level(DType dtype, int64_t width, int64_t trips) {
    const std::array<int64_t, 2> wide = {width, trips};
    const std::array<int32_t, 2> narrow = {static_cast<int32_t>(width),
                                           static_cast<int32_t>(trips)};
    return add_table(sequence_, dtype == DType::kI64
                                    ? HostArray::from<int64_t>(dtype, {2}, wide)
                                    : HostArray::from<int32_t>(dtype, {2}, narrow));
  }

  // Merges runs of `width` into runs of twice that; into the results when `to` is empty.
  Status add_merge(int64_t width, const std::vector<Temporary>& from,
                   const std::vector<Temporary>& to) {
    const int64_t outputs = std::min({kMergeOutputs, 2 * width, kept_});
    const int64_t run = std::min(width, kept_);  // elements of a run that are sorted
    // Shares of a pair of runs; the last pair may be short.
    const int64_t each = (std::min(2 * width, kept_) + outputs - 1) / outputs;
    const int64_t pairs = (size_ + 2 * width - 1) / (2 * width);
    const int64_t last = std::min(size_ - (pairs - 1) * 2 * width, kept_);
    const int64_t shares = (pairs - 1) * each + (last + outputs - 1) / outputs;
    // Iterations of the search; none where each pair of runs has but one share.
    int64_t trips = each > 1 ? 1 : 0;
    while (trips > 0 && (int64_t{1} << (trips - 1)) < run) ++trips;
    // While runs double in length, all levels are one kernel, which loads what is different.
    const bool is_shared = !to.empty() && 2 * width <= kept_ && outputs == kMergeOutputs;
    KernelMaker k("sort_merge", {outer_, shares, inner_}, largest_index_, in_memory_);
    Builder& b = k.b();
    const Value o = k.at(0), in = k.at(2);
    auto load = [&](Value i) {
      const Value at = index_of(k, row_, o, i, in);
      Elements elements;
      for (size_t e = 0; e < keys_; ++e) elements.push_back(k.load(from[e], at));
      return elements;
    };
    auto load_rest = [&](Value i) {
      const Value at = index_of(k, row_, o, i, in);
      Elements elements;
      for (size_t e = keys_; e < from.size(); ++e) elements.push_back(k.load(from[e], at));
      return elements;
    };
    const DType index_dtype = k.index_dtype();
    auto as_element = [](Value v) { return Element{v, kernel::kNoValue}; };

    // The first run is [a_begin, a_end), the second [b_begin, b_end).
    Value width_value = k.index(width), run_value = k.index(run), trip_count = k.index(trips);
    Value a_begin, diagonal;
    if (is_shared) {
      const Table level = add_level(index_dtype, width, trips);
      width_value = run_value = k.load(level, k.index(0)).re;
      trip_count = k.load(level, k.index(1)).re;
      // `width` is a power of two here, a multiple of half of the outputs.
      const Value index_in_pairs = b.mul(k.at(1), k.index(outputs));
      const Value pair_size = b.add(width_value, width_value);
      diagonal = b.bit_and(index_in_pairs, b.sub(pair_size, k.index(1)));
      a_begin = b.sub(index_in_pairs, diagonal);
    } else {
      const Value pair = b.binary(Op::kDivU, k.at(1), k.index(each));
      diagonal = b.mul(b.binary(Op::kRemU, k.at(1), k.index(each)), k.index(outputs));
      a_begin = b.mul(pair, k.index(2 * width));
    }
    const Value first = b.add(a_begin, diagonal);
    const Value a_end = k.at_most(b.add(a_begin, run_value), size_);
    const Value b_begin = k.at_most(b.add(a_begin, width_value), size_);
    const Value b_end = k.at_most(b.add(b_begin, run_value), size_);
    const Value a_size = b.sub(a_end, a_begin);
    const Value b_size = b.sub(b_end, b_begin);

    // How many of the first `diagonal` outputs come from the first run.
    const Value over = b.sub(diagonal, b_size);
    const Value low = b.select(b.binary(Op::kLtS, over, k.index(0)), k.index(0), over);
    const Value high = k.smaller(diagonal, a_size);
    Elements found{as_element(k.index(0)), as_element(k.index(0))};
    if (is_shared || each > 1) {
      found = k.loop(trip_count, {index_dtype, index_dtype}, {as_element(low), as_element(high)},
                     [&](Value, const Elements& range) {
                       const Value lo = range[0].re, hi = range[1].re;
                       const Value is_open = b.binary(Op::kLtS, lo, hi);
                       const Value middle = b.binary(Op::kShrU, b.add(lo, hi), k.index(1));
                       const Elements x = load(k.at_most(b.add(a_begin, middle), size_ - 1));
                       const Elements y = load(k.at_most(
                           b.sub(b.sub(b.add(b_begin, diagonal), k.index(1)), middle), size_ - 1));
                       const Value x_first = b.logical_not(is_less(k, y, x));
                       const Value up = b.bit_and(is_open, x_first);
                       const Value down = b.bit_and(is_open, b.logical_not(x_first));
                       return Elements{as_element(b.select(up, b.add(middle, k.index(1)), lo)),
                                       as_element(b.select(down, middle, hi))};
                     });
    }
    const Value a_first = b.add(a_begin, found[0].re);
    const Value b_first = b.sub(b.add(b_begin, diagonal), found[0].re);

    // The last share of the results may be short: it repeats its last output.
    const bool is_short = to.empty() && round_up(kept_, outputs) > size_;
    std::vector<DType> types{index_dtype, index_dtype};
    Elements initial{as_element(a_first), as_element(b_first)};
    auto append = [](Elements& all, const Elements& more) {
      all.insert(all.end(), more.begin(), more.end());
    };
    append(initial, load(k.at_most(a_first, size_ - 1)));
    append(initial, load(k.at_most(b_first, size_ - 1)));
    for (int i = 0; i < 2; ++i)
      types.insert(types.end(), dtypes_.begin(), dtypes_.begin() + keys());
    if (is_short) {
      for (DType dtype : dtypes_) initial.push_back(kernel::integer_element(b, dtype, 0));
      types.insert(types.end(), dtypes_.begin(), dtypes_.end());
    }
    k.loop(k.index(outputs), types, initial, [&](Value t, const Elements& state) {
      const Value pa = state[0].re, pb = state[1].re;
      const Elements x(state.begin() + 2, state.begin() + 2 + keys());
      const Elements y(state.begin() + 2 + keys(), state.begin() + 2 + 2 * keys());
      const Value a_done = b.binary(Op::kLeS, a_end, pa);
      const Value b_done = b.binary(Op::kLeS, b_end, pb);
      const Value takes_b = b.bit_and(b.logical_not(b_done), b.bit_or(a_done, is_less(k, y, x)));
      const Value taken = b.select(takes_b, pb, pa);
      const Value next = b.add(taken, k.index(1));
      Elements out = k.choose(takes_b, y, x);
      append(out, load_rest(k.at_most(taken, size_ - 1)));
      Value i = b.add(first, t);
      if (is_short) {
        const Elements last(state.begin() + 2 + 2 * keys(), state.end());
        out = k.choose(b.bit_and(a_done, b_done), last, out);
        i = k.at_most(i, size_ - 1);
      }
      store(k, to, out, o, i, in);
      const Elements loaded = load(k.at_most(next, size_ - 1));
      Elements after{as_element(b.select(takes_b, pa, next)),
                     as_element(b.select(takes_b, next, pb))};
      append(after, k.choose(takes_b, x, loaded));
      append(after, k.choose(takes_b, loaded, y));
      if (is_short) append(after, out);
      return after;
    });
    return add(k);
  }

  std::ptrdiff_t keys() const { return static_cast<std::ptrdiff_t>(keys_); }

  const ir::Operation& op_;
  const InMemory& in_memory_;
  const LowerOptions& options_;
  const SortLimits limits_ = sort_limits(options_);
  const ir::Block& comparator_;
  int64_t outer_ = 1, size_ = 1, inner_ = 1;
  int64_t kept_ = 1;              // places of a line that somebody reads, from the first on
  int64_t row_ = 1;               // elements of a line in temporary memory
  int64_t largest_ = 1;           // elements of a temporary
  int64_t largest_index_ = 1;     // of them, and of what the operands are made of
  std::vector<int> key_of_;       // per operand: which of the carried, or -1
  std::vector<size_t> payloads_;  // operands that the comparator does not look at
  std::vector<Carried> carried_;  // keys, then a single payload
  std::vector<DType> dtypes_;     // of the keys, then of the payload or index
  size_t keys_ = 0;
  bool by_index_ = false;
  size_t exchange_ = 0;  // instructions of one exchange
  bool failed_ = false;
  LoweredSequence sequence_;
};

}  // namespace

SortRefusals why_no_sort(const ir::Operation& op, const LowerOptions& options) {
  Outputs outputs;
  for (size_t i = 0; i < op.result_count(); ++i) {
    if (op.result(i)->has_uses()) outputs.push_back(op.result(i));
  }
  if (outputs.empty()) return {"nobody wants a result", "nobody wants a result"};
  const InMemory in_memory = [](const ir::Value&) { return true; };
  SortLowering sort(op, outputs, in_memory, options);
  SortRefusals why;
  why.partial = sort.why_not_partial();
  why.by_digits = sort.why_not_by_digits();
  return why;
}

Result<LoweredSequence> lower_sort(const ir::Operation& op, const Outputs& outputs,
                                   const InMemory& in_memory, const LowerOptions& options) {
  return SortLowering(op, outputs, in_memory, options).run();
}

}  // namespace hekla::lower
