// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/row_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "backends/compiler/kernel/row_access.h"
#include "backends/compiler/plan/visit.h"

namespace hekla::plan {
namespace {

using kernel::RowsOf;

// Bytes that a group writes and reads again, or reads several times: below this they stay in the
// caches of the cores anyway, and blocks of rows are only more launches. At 256 KiB training steps
// of small transformers and perceptrons took 6 to 8 % longer, and none of 60 programs less.
constexpr int64_t kLeastBytes = 2 * 1024 * 1024;
// The same where a contraction leads: its steps take rows that are in a cache, which costs nothing.
constexpr int64_t kLeastLedBytes = 256 * 1024;
constexpr int64_t kFewestRows = 16;
// Bytes of a row in all buffers of a group: a few rows should fit a core's cache.
constexpr int64_t kMostRowBytes = 64 * 1024;
// With contractions, whose blocks have to be worth packing the other operand.
constexpr int64_t kMostProductRowBytes = 512 * 1024;
// Bytes of an element of the batch of a contraction's other operand, for each byte of a row that it
// shares: each block of rows reads all of it again.
constexpr int64_t kMostOtherBytes = 128;
// Bytes of a row of a contraction that leads: with more, the first sums of a row are out of the
// second-level cache when the last ones end. At 4,096 the rows also push each other out: gelu lost
// 5 % there, and gained 7 % at 3,072.
constexpr int64_t kMostLedRowBytes = 3072;
// How many steps after the first one its number of rows is looked for, how many steps in a row may
// stand between two of a group, and how many of those may be put off.
constexpr size_t kLookAhead = 4;
constexpr size_t kMostBetween = 12;
constexpr size_t kMostPutOff = 24;

// What a step does with a buffer.
struct Touch {
  Buffer buffer;
  int64_t offset = 0;
  int64_t row = 0;  // bytes of a row; 0: not row-wise
  bool is_written = false;
};
using Touches = std::vector<Touch>;

// What several steps do with buffers.
class Touched {
 public:
  // Whether the steps stay right when `touch` is made before or after any of them, row by row.
  bool allows(const Touch& touch) const {
    const auto it = buffers_.find(touch.buffer);
    if (it == buffers_.end() || !(touch.is_written || it->second.is_written)) return true;
    return touch.row != 0 && touch.row == it->second.row && touch.offset == it->second.offset;
  }
  // Bytes of a row that both touch.
  int64_t shared(const Touch& touch) const {
    const auto it = buffers_.find(touch.buffer);
    return it != buffers_.end() && it->second.row == touch.row ? touch.row : 0;
  }
  // Of a row, in all buffers together with those of `more`.
  int64_t row_bytes(const Touches& more) const {
    int64_t sum = row_bytes_;
    for (const Touch& touch : more) {
      if (!buffers_.contains(touch.buffer)) sum += touch.row;
    }
    return sum;
  }
  bool is_independent(const Touch& touch) const {
    const auto it = buffers_.find(touch.buffer);
    return it == buffers_.end() || !(touch.is_written || it->second.is_written);
  }
  bool is_independent(const Touches& touches) const {
    return std::all_of(touches.begin(), touches.end(),
                       [this](const Touch& touch) { return is_independent(touch); });
  }
  void add(const Touches& touches) {
    for (const Touch& touch : touches) {
      auto [it, is_new] = buffers_.emplace(touch.buffer, touch);
      if (is_new) {
        row_bytes_ += touch.row;
        continue;
      }
      it->second.is_written |= touch.is_written;
      if (it->second.row != touch.row || it->second.offset != touch.offset) it->second.row = 0;
    }
  }

 private:
  std::unordered_map<Buffer, Touch, BufferHash> buffers_;
  int64_t row_bytes_ = 0;
};

bool is_kernel(const Step& step) { return std::holds_alternative<KernelStep>(step.what); }

// How a step takes part.
struct Member {
  Touches touches;
  int64_t shared = 0;  // bytes of a row that others of the group touch
  bool joins = false;
  RowsOf rows_of = RowsOf::kNone;
};

struct Group {
  int64_t rows = 0;
  int64_t saved = 0;  // bytes
  int64_t row_bytes = 0;
  std::vector<size_t> members;
  std::map<size_t, RowsOf> contractions;  // members among them
  std::vector<size_t> before, after;      // steps between them that go there
  bool is_led = false;
};

class Grouping {
 public:
  Grouping(LaunchPlan& plan, RowGroups which)
      : plan_(plan),
        prefers_led_(which == RowGroups::kAllLed),
        all_(which != RowGroups::kWherePays),
        least_bytes_(all_ ? 1 : kLeastBytes),
        least_led_bytes_(all_ ? 1 : kLeastLedBytes),
        fewest_rows_(all_ ? 2 : kFewestRows) {}

  void run() {
    for_each_slice_within(plan_.steps, plan_,
                          [&](const Slice& s, const Use&) { ++uses_[buffer_of(s)]; });
    run(plan_.steps);
    for_each_step(plan_.steps, [&](const Step& step) {
      if (const auto* product = std::get_if<ContractionStep>(&step.what)) decide(*product);
    });
  }

 private:
  void decide(const ContractionStep& step) {
    const kernel::Contraction& contraction =
        plan_.contractions[static_cast<size_t>(step.contraction)];
    kernel::Implementations ways;
    std::string why = step.leads ? "it leads the steps behind it" : "";
    if (step.rows_of == RowsOf::kNone) {
      const auto has_rows = [&](RowsOf of) {
        return kernel::contraction_rows(contraction, of).has_value();
      };
      const auto known = refusals_.find(step.contraction);
      why = known != refusals_.end() ? known->second
            : std::none_of(std::begin(kernel::kAllRowsOf), std::end(kernel::kAllRowsOf), has_rows)
                ? "no operand lies in memory row by row"
                : "no group of steps hands it rows or takes them";
    }
    ways.ask("a few rows at a time, with the steps around it", std::move(why));
    ways.ask("as a whole, with the steps behind it on rows that are done",
             step.leads ? ""
                        : fmt::format("no steps behind it take rows of at most {} bytes",
                                      kMostLedRowBytes));
    ways.ask("as a whole", "");
    Decision decision{
        fmt::format("contraction {} {}", step.contraction, kernel::to_string(contraction)),
        ways.take()};
    auto& all = plan_.decisions;
    if (std::find(all.begin(), all.end(), decision) == all.end()) {
      all.push_back(std::move(decision));
    }
  }

  void run(Steps& steps) {
    for (Step& step : steps) {
      for_each_list(step, [&](Steps& inner) { run(inner); });
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      Group best;
      const auto take = [&](Group group) {
        if (group.saved < (group.is_led ? least_led_bytes_ : least_bytes_)) return;
        const bool is_wanted = prefers_led_ && group.is_led && !best.is_led && group.saved > 0;
        if (group.saved > best.saved || is_wanted) best = std::move(group);
      };
      for (const int64_t rows : candidates(steps, i))
        take(find_group(steps, i, rows, RowsOf::kNone));
      for (const RowsOf of : {RowsOf::kOutByRows, RowsOf::kOutByColumns}) {
        if (const int64_t rows = led_rows(steps[i], of); rows > 0) {
          take(find_group(steps, i, rows, of));
        }
      }
      if (best.members.size() >= 2) i = make(steps, best);
    }
  }

  // Rows of a group that this step leads; 0: it cannot.
  int64_t led_rows(const Step& step, RowsOf of) const {
    const auto* product = std::get_if<ContractionStep>(&step.what);
    if (product == nullptr) return 0;
    const auto cut =
        kernel::contraction_rows(plan_.contractions[static_cast<size_t>(product->contraction)], of);
    if (!cut || cut->rows < fewest_rows_) return 0;
    return all_ || cut->bytes[2] <= kMostLedRowBytes ? cut->rows : 0;
  }

  // Numbers of rows that a group from `first` on may have: those of reductions.
  std::vector<int64_t> candidates(const Steps& steps, size_t first) const {
    std::vector<int64_t> all;
    if (!is_kernel(steps[first]) && !std::holds_alternative<ContractionStep>(steps[first].what)) {
      return all;
    }
    for (size_t i = first; i < steps.size() && i <= first + kLookAhead; ++i) {
      const auto* run = std::get_if<KernelStep>(&steps[i].what);
      if (run == nullptr) continue;
      const kernel::Kernel& kernel = plan_.kernels[static_cast<size_t>(run->kernel)];
      if (kernel.body.region_count() < 2 || kernel.grid.empty()) continue;
      for (const int64_t rows : {kernel.points(), kernel.points() / kernel.grid.back()}) {
        if (rows >= fewest_rows_ && std::find(all.begin(), all.end(), rows) == all.end()) {
          all.push_back(rows);
        }
      }
    }
    return all;
  }

  const std::optional<std::vector<int64_t>>& rows_of(const Step& step, int64_t rows) {
    const int32_t number = std::get<KernelStep>(step.what).kernel;
    const auto [it, is_new] = known_.try_emplace({number, rows});
    if (is_new) it->second = kernel::row_bytes(plan_.kernels[static_cast<size_t>(number)], rows);
    return it->second;
  }

  // Without regard to rows where `row_bytes` is null.
  Touches touches_of(const Step& step, const std::vector<int64_t>* row_bytes) const {
    Touches touches;
    size_t next = 0;
    for_each_slice(step, plan_, [&](const Slice& slice, const Use& use) {
      const int64_t row = row_bytes == nullptr ? 0 : (*row_bytes)[next++];
      const Touch touch{buffer_of(slice), slice.offset, row, use.is_written};
      auto same = std::find_if(touches.begin(), touches.end(),
                               [&](const Touch& t) { return t.buffer == touch.buffer; });
      if (same == touches.end()) {
        touches.push_back(touch);
        return;
      }
      same->is_written |= use.is_written;
      if (same->row != row || same->offset != touch.offset) same->row = 0;
    });
    return touches;
  }

  // Of a contraction: the first way to number its rows in which it joins.
  Member member_of(const Step& step, int64_t rows, const Touched& inside, const Touched& put_off,
                   bool is_first) {
    const auto* product = std::get_if<ContractionStep>(&step.what);
    if (product == nullptr) {
      const std::vector<int64_t>* row_bytes = nullptr;
      if (is_kernel(step)) {
        const auto& found = rows_of(step, rows);
        if (found) row_bytes = &*found;
      }
      Member member{touches_of(step, row_bytes)};
      if (row_bytes != nullptr) join(member, inside, put_off, is_first);
      return member;
    }
    const kernel::Contraction& contraction =
        plan_.contractions[static_cast<size_t>(product->contraction)];
    for (const RowsOf of : kernel::kAllRowsOf) {
      const auto cut = kernel::contraction_rows(contraction, of);
      if (!cut || cut->rows != rows) continue;
      const std::vector<int64_t> row_bytes(cut->bytes.begin(), cut->bytes.end());
      Member member{touches_of(step, &row_bytes), 0, false, of};
      if (leader_ != RowsOf::kNone) {
        member.joins = is_first && of == leader_;
        if (member.joins) return member;
        continue;
      }
      join(member, inside, put_off, is_first);
      const int64_t shared = is_first ? cut->bytes[2] : member.shared;
      const bool fits = member.joins;
      member.joins = fits && (all_ || pays(contraction, of, shared));
      if (member.joins) return member;
      if (fits) {
        refusals_[product->contraction] = fmt::format(
            "each block of rows reads {} bytes again, more than {} for each of the {} "
            "bytes of a row that stay in the caches",
            other_bytes(contraction, of), kMostOtherBytes, shared);
      }
    }
    return {touches_of(step, nullptr)};
  }

  void join(Member& member, const Touched& inside, const Touched& put_off, bool is_first) const {
    member.joins = put_off.is_independent(member.touches);
    for (const Touch& touch : member.touches) {
      member.joins = member.joins && inside.allows(touch);
      member.shared += inside.shared(touch);
    }
    const bool has_products = member.rows_of != RowsOf::kNone || has_products_;
    const int64_t most = has_products ? kMostProductRowBytes : kMostRowBytes;
    member.joins =
        member.joins && inside.row_bytes(member.touches) <= most && (is_first || member.shared > 0);
  }

  // Whether what a block of rows reads of the other operand is little beside what stays in the
  // caches.
  static bool pays(const kernel::Contraction& c, RowsOf of, int64_t shared) {
    return other_bytes(c, of) <= kMostOtherBytes * shared;
  }
  static int64_t other_bytes(const kernel::Contraction& c, RowsOf of) {
    const bool by_rows = kernel::is_by_rows(of);
    return axes_size(by_rows ? c.columns : c.rows) * axes_size(c.depth) *
           dtype_bytes(by_rows ? c.rhs_dtype : c.lhs_dtype);
  }

  // `leader`: how the first step, which then leads, numbers its rows.
  Group find_group(Steps& steps, size_t first, int64_t rows, RowsOf leader) {
    Group group;
    group.rows = rows;
    group.is_led = leader != RowsOf::kNone;
    leader_ = leader;
    has_products_ = false;
    Touched inside, put_off;
    for (size_t i = first; i < steps.size(); ++i) {
      Step& step = steps[i];
      if (!is_kernel(step) && !std::holds_alternative<ContractionStep>(step.what) &&
          !std::holds_alternative<CopyStep>(step.what))
        break;
      if (!group.members.empty() && i - group.members.back() > kMostBetween) break;
      const Member member = member_of(step, rows, inside, put_off, i == first);
      const Touches& touches = member.touches;
      if (member.joins) {
        group.members.push_back(i);
        if (!is_kernel(step)) {
          group.contractions[i] = member.rows_of;
          has_products_ = !group.is_led;
        }
        group.saved += member.shared * rows;
        inside.add(touches);
        continue;
      }
      if (i == first) break;
      if (inside.is_independent(touches) && put_off.is_independent(touches)) {
        group.before.push_back(i);
      } else {
        if (group.after.size() == kMostPutOff) break;
        group.after.push_back(i);
        put_off.add(touches);
      }
    }
    if (group.members.size() >= 2 && !group.is_led) add_producers(steps, group, inside);
    group.row_bytes = inside.row_bytes({});
    return group;
  }

  // Steps that were to go before the group and make what it reads join it after all, but for those
  // that others before it wait for.
  void add_producers(Steps& steps, Group& group, Touched& inside) {
    std::vector<size_t> before;
    Touched others;
    for (auto it = group.before.rbegin(); it != group.before.rend(); ++it) {
      const bool is_between = *it < group.members.back();
      const bool may_join = is_between && is_kernel(steps[*it]);
      const auto* rows = may_join ? &rows_of(steps[*it], group.rows) : nullptr;
      const bool has_rows = rows != nullptr && rows->has_value();
      const Touches touches = touches_of(steps[*it], has_rows ? &**rows : nullptr);
      int64_t shared = 0;
      bool joins = has_rows && others.is_independent(touches);
      for (const Touch& touch : touches) {
        joins = joins && inside.allows(touch);
        shared += inside.shared(touch);
      }
      const int64_t most = has_products_ ? kMostProductRowBytes : kMostRowBytes;
      if (joins && shared > 0 && inside.row_bytes(touches) <= most) {
        group.members.push_back(*it);
        group.saved += shared * group.rows;
        inside.add(touches);
      } else {
        before.push_back(*it);
        if (is_between) others.add(touches);
      }
    }
    group.before.assign(before.rbegin(), before.rend());
    std::sort(group.members.begin(), group.members.end());
  }

  // Returns the place of the group.
  size_t make(Steps& steps, const Group& group) {
    RowsStep made;
    made.rows = group.rows;
    made.row_bytes = group.row_bytes;
    const size_t first = group.members.front();
    const size_t last = group.members.back();
    Steps moved;
    for (const size_t i : group.before) {
      if (i < last) moved.push_back(std::move(steps[i]));
    }
    const size_t place = first + moved.size();
    for (const auto& [i, of] : group.contractions) {
      auto& product = std::get<ContractionStep>(steps[i].what);
      product.rows_of = of;
      product.leads = group.is_led;
    }
    for (const size_t i : group.members) made.steps.push_back(std::move(steps[i]));
    if (group.is_led) share_result(made);
    find_scratch(made);
    const auto origin = made.steps.back().origin;
    moved.push_back({std::move(made), origin});
    for (const size_t i : group.after) {
      if (i < last) moved.push_back(std::move(steps[i]));
    }
    const auto begin = steps.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = std::move(moved.begin(), moved.end(), begin);
    steps.erase(end, steps.begin() + static_cast<std::ptrdiff_t>(last + 1));
    return place;
  }

  // Where one kernel alone reads what the first step makes, point by point, and writes as much of
  // something else, both are one memory: the sums then never leave the caches by themselves.
  void share_result(RowsStep& group) {
    auto& product = std::get<ContractionStep>(group.steps[0].what);
    const Buffer made = buffer_of(product.out);
    if (product.out.space != Slice::Space::kArena || uses_[made] != 2) return;
    for (size_t i = 1; i < group.steps.size(); ++i) {
      auto& run = std::get<KernelStep>(group.steps[i].what);
      const auto from = std::find(run.operands.begin(), run.operands.end(), product.out);
      if (from == run.operands.end()) continue;
      const kernel::Kernel& kernel = plan_.kernels[static_cast<size_t>(run.kernel)];
      if (!kernel.operands[static_cast<size_t>(from - run.operands.begin())].is_pointwise) return;
      for (size_t o = 0; o < run.operands.size(); ++o) {
        const Slice to = run.operands[o];
        if (!kernel.operands[o].is_written || kernel.operands[o].is_read ||
            to.bytes != product.out.bytes || to.offset != 0 || is_touched(group, i, o)) {
          continue;
        }
        // Better the memory of an input that the caller gives away.
        if (to.space == Slice::Space::kOutput && may_take_input(kernel, run)) return;
        *from = product.out = to;
        uses_[buffer_of(to)] += 2;
        uses_[made] = 0;
        return;
      }
      return;
    }
  }

  // Whether the buffer of that operand is one of another operand, or of a step before.
  bool is_touched(const RowsStep& group, size_t step, size_t operand) const {
    const auto& run = std::get<KernelStep>(group.steps[step].what);
    const Buffer buffer = buffer_of(run.operands[operand]);
    bool found = false;
    for (size_t i = 0; i < run.operands.size(); ++i) {
      found = found || (i != operand && buffer_of(run.operands[i]) == buffer);
    }
    for (size_t i = 0; i < step; ++i) {
      for_each_slice(group.steps[i], plan_, [&](const Slice& slice, const Use&) {
        found = found || buffer_of(slice) == buffer;
      });
    }
    return found;
  }

  static bool may_take_input(const kernel::Kernel& kernel, const KernelStep& run) {
    for (size_t i = 0; i < run.operands.size(); ++i) {
      if (run.operands[i].space == Slice::Space::kInput && kernel.operands[i].is_pointwise) {
        return true;
      }
    }
    return false;
  }

  void find_scratch(RowsStep& group) {
    struct Found {
      int64_t count = 0;
      bool is_scratch = true;
      Slice slice;
    };
    std::map<Buffer, Found> all;
    for (const Step& step : group.steps) {
      const bool leads = group.is_led() && &step == group.steps.data();
      const std::vector<int64_t> rows = row_bytes_in(step, group.rows);
      size_t next = 0;
      for_each_slice(step, plan_, [&](const Slice& slice, const Use& use) {
        Found& found = all[buffer_of(slice)];
        const int64_t row = rows[next++];
        const bool is_whole = row * group.rows == slice.bytes && slice.offset == 0;
        // The first step to touch it writes it and reads nothing of it.
        if (found.count == 0) found.slice = slice;
        const bool is_made = found.count > 0 || (use.is_written && !reads(step, buffer_of(slice)));
        found.is_scratch &= is_whole && is_made && slice == found.slice && !leads;
        ++found.count;
      });
    }
    for (const auto& [buffer, found] : all) {
      if (buffer.first == Slice::Space::kArena && found.is_scratch &&
          found.count == uses_[buffer]) {
        group.scratch.push_back(found.slice);
      }
    }
  }

  // Of a step that is in a group.
  std::vector<int64_t> row_bytes_in(const Step& step, int64_t rows) {
    const auto* product = std::get_if<ContractionStep>(&step.what);
    if (product == nullptr) return *rows_of(step, rows);
    const auto cut = kernel::contraction_rows(
        plan_.contractions[static_cast<size_t>(product->contraction)], product->rows_of);
    return {cut->bytes.begin(), cut->bytes.end()};
  }

  bool reads(const Step& step, const Buffer& buffer) const {
    bool found = false;
    for_each_slice(step, plan_, [&](const Slice& slice, const Use& use) {
      found |= use.is_read && buffer_of(slice) == buffer;
    });
    return found;
  }

  LaunchPlan& plan_;
  const bool prefers_led_;
  const bool all_;
  const int64_t least_bytes_;
  const int64_t least_led_bytes_;
  const int64_t fewest_rows_;
  std::unordered_map<Buffer, int64_t, BufferHash> uses_;
  std::map<int32_t, std::string> refusals_;  // of contractions
  // Of the group that is looked for:
  bool has_products_ = false;
  RowsOf leader_ = RowsOf::kNone;
  // By kernel and number of rows.
  std::map<std::pair<int32_t, int64_t>, std::optional<std::vector<int64_t>>> known_;
};

}  // namespace

void group_rows(LaunchPlan& plan, RowGroups which) {
  if (which != RowGroups::kNone) Grouping(plan, which).run();
}

}  // namespace hekla::plan
