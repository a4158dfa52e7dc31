// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/team_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace hekla::lower {

using kernel::Op;

namespace {

// What sizes decide.
struct TeamScanLimits {
  // Elements of a point and instructions of a kernel, at most.
  int64_t most_share = 16;
  size_t most_instructions = 4000;
  // Columns side by side from which on a point for each is as good.
  int64_t many_columns = 32;
  // Lines that are work enough with a team each, and blocks that one goes through, at most.
  int64_t many_lines = 512;
  int64_t many_blocks = 64;
};

TeamScanLimits team_scan_limits(const LowerOptions& options) {
  return options.small_limits ? TeamScanLimits{4, 4000, 4, 3, 4} : TeamScanLimits{};
}

// Elements of a point that do not make too much code; 0: there are none.
int64_t most_share(const TeamScan& scan) {
  KernelMaker k("scan", {2, 2}, 2, scan.in_memory);
  Elements a, b;
  for (const DType dtype : scan.dtypes) {
    const auto some = [&](size_t dim) {
      return kernel::convert_element(k.b(), {k.at(dim), kernel::kNoValue}, DType::kI32, dtype);
    };
    a.push_back(some(0));
    b.push_back(some(1));
  }
  const size_t before = k.b().size();
  scan.reduce(k, a, b);
  const size_t instructions = k.b().size() - before + 1;
  const TeamScanLimits limits = team_scan_limits(scan.options);
  constexpr size_t kExchanges = 20;
  int64_t share = limits.most_share;
  while (share > 0 &&
         (2 * static_cast<size_t>(share) + kExchanges) * instructions > limits.most_instructions) {
    share /= 2;
  }
  return share;
}

// Words of a point for exchanges: two arrays of each type.
int64_t exchanged_words(const TeamScan& scan) {
  std::set<kernel::ScalarType> types;
  for (const DType dtype : scan.dtypes) types.insert(kernel::scalar_type(dtype));
  int64_t words = 0;
  for (const kernel::ScalarType type : types) {
    words += 2 * std::max(1, kernel::bit_width(type) / 32);
  }
  return words;
}

class TeamScanLowering {
 public:
  TeamScanLowering(const TeamScan& scan, int64_t share) : scan_(scan), share_(share) {}

  Status run() const {
    const int64_t blocks = (scan_.size - 1) / shape_.block() + 1;
    const TeamScanLimits limits = team_scan_limits(scan_.options);
    if (blocks == 1 ||
        (blocks <= limits.many_blocks && scan_.outer * scan_.inner >= limits.many_lines)) {
      return scan_blocks({});
    }
    // Nothing stands behind the last block.
    const Temporaries totals = add(blocks - 1), before = add(blocks - 1);
    HEKLA_RETURN_IF_ERROR(total_blocks(totals));
    TeamScan inner = scan_;
    inner.size = blocks - 1;
    inner.load = [&](KernelMaker& k, Value i) { return load(k, totals, blocks - 1, i); };
    inner.store = [&](KernelMaker& k, Value i, const Elements& e) {
      store(k, before, blocks - 1, i, e);
    };
    HEKLA_RETURN_IF_ERROR(TeamScanLowering(inner, share_).run());
    return scan_blocks(before);
  }

 private:
  using Temporaries = std::vector<Temporary>;

  Temporaries add(int64_t size) const {
    Temporaries added;
    for (const DType dtype : scan_.dtypes) {
      added.push_back(add_temporary(scan_.sequence, dtype, scan_.outer * size * scan_.inner));
    }
    return added;
  }
  Value index_of(KernelMaker& k, int64_t size, Value i) const {
    Builder& b = k.b();
    const Value line = b.add(b.mul(k.at(0), k.index(size)), i);
    return b.add(b.mul(line, k.index(scan_.inner)), k.at(2));
  }
  Elements load(KernelMaker& k, const Temporaries& from, int64_t size, Value i) const {
    Elements elements;
    for (const Temporary& each : from) elements.push_back(k.load(each, index_of(k, size, i)));
    return elements;
  }
  void store(KernelMaker& k, const Temporaries& to, int64_t size, Value i,
             const Elements& elements) const {
    for (size_t r = 0; r < to.size(); ++r) k.store(to[r], index_of(k, size, i), elements[r]);
  }
  int64_t largest() const {
    return std::max(scan_.outer * (scan_.size + shape_.block()) * scan_.inner, scan_.largest);
  }
  bool is_whole() const { return scan_.size % shape_.block() == 0; }
  Status finish(KernelMaker& k) const {
    HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k.finish(scan_.options));
    scan_.sequence.kernels.push_back(std::move(made));
    return ok_status();
  }
  Team::Reduce reducer(KernelMaker& k) const {
    return [this, &k](const Elements& a, const Elements& b) { return scan_.reduce(k, a, b); };
  }

  // The elements of this point, blocked, each with those of this point before it.
  std::vector<Elements> scan_share(KernelMaker& k, Team& team, Value first) const {
    std::vector<Elements> elements;
    for (int64_t j = 0; j < shape_.share; ++j) {
      Value i = k.b().add(first, team.as_index(team.striped(j)));
      // What is read again behind the end stands before nothing.
      if (!is_whole()) i = k.at_most(i, scan_.size - 1);
      elements.push_back(scan_.load(k, i));
    }
    if (shape_.share == 1) return elements;
    elements = team.move(elements, scan_.dtypes, team.striped_words(), team.blocked_words());
    for (size_t j = 1; j < elements.size(); ++j) {
      elements[j] = scan_.reduce(k, elements[j - 1], elements[j]);
    }
    return elements;
  }

  // The totals of all blocks but the last.
  Status total_blocks(const Temporaries& totals) const {
    const int64_t blocks = (scan_.size - 1) / shape_.block();
    KernelMaker k("scan_totals", {scan_.outer, blocks, scan_.inner, shape_.points}, largest(),
                  scan_.in_memory);
    Team team(k, 3, shape_);
    const Value first = k.b().mul(k.at(1), k.index(shape_.block()));
    const Elements mine = scan_share(k, team, first).back();
    const Elements total = team.scan(mine, reducer(k)).total;
    k.when(k.b().binary(Op::kEq, k.at(3), k.index(0)),
           [&] { store(k, totals, blocks, k.at(1), total); });
    return finish(k);
  }

  // A block; `carried` stands before it, unless `is_first`. Gives what then stands behind it.
  Elements scan_block(KernelMaker& k, Team& team, Value block, Value is_first,
                      const Elements& carried) const {
    Builder& b = k.b();
    const Value first = b.mul(block, k.index(shape_.block()));
    std::vector<Elements> elements = scan_share(k, team, first);
    const Team::Scan all = team.scan(elements.back(), reducer(k));
    const Value is_first_point = b.binary(Op::kEq, k.at(3), k.index(0));
    Elements before = all.before, behind = all.total;
    if (!carried.empty()) {
      const Elements both = k.choose(is_first_point, carried, scan_.reduce(k, carried, all.before));
      before = k.choose(is_first, all.before, both);
      behind = k.choose(is_first, all.total, scan_.reduce(k, carried, all.total));
    }
    const Value has_none = b.bit_and(is_first, is_first_point);
    for (Elements& each : elements) {
      each = k.choose(has_none, each, scan_.reduce(k, before, each));
    }
    if (shape_.share > 1) {
      elements = team.move(elements, scan_.dtypes, team.blocked_words(), team.striped_words());
    }
    for (int64_t j = 0; j < shape_.share; ++j) {
      const Value i = b.add(first, team.as_index(team.striped(j)));
      const auto store_one = [&] { scan_.store(k, i, elements[static_cast<size_t>(j)]); };
      if (is_whole()) {
        store_one();
      } else {
        k.when(b.binary(Op::kLtS, i, k.index(scan_.size)), store_one);
      }
    }
    return behind;
  }

  // All blocks, from what `before` says of those before each; a team each, or where there is none
  // one team for a line.
  Status scan_blocks(const Temporaries& before) const {
    const int64_t blocks = (scan_.size - 1) / shape_.block() + 1;
    const int64_t teams = before.empty() ? 1 : blocks;  // of a line
    KernelMaker k("scan_blocks", {scan_.outer, teams, scan_.inner, shape_.points}, largest(),
                  scan_.in_memory);
    Builder& b = k.b();
    Team team(k, 3, shape_);
    const auto is_zero = [&](Value v) { return b.binary(Op::kEq, v, k.index(0)); };
    if (blocks == 1) {
      scan_block(k, team, k.index(0), b.boolean(true), {});
    } else if (before.empty()) {
      Elements none;
      for (const DType dtype : scan_.dtypes) {
        none.push_back(kernel::integer_element(b, dtype, 0));
      }
      k.loop(k.index(blocks), scan_.dtypes, none, [&](Value t, const Elements& carried) {
        return scan_block(k, team, t, is_zero(t), carried);
      });
    } else {
      const Value is_first = is_zero(k.at(1));
      const Value last = b.select(is_first, k.index(0), b.sub(k.at(1), k.index(1)));
      scan_block(k, team, k.at(1), is_first, load(k, before, blocks - 1, last));
    }
    return finish(k);
  }

  const TeamScan& scan_;
  const int64_t share_;
  const TeamShape shape_ = team_shape(scan_.size, share_, exchanged_words(scan_), scan_.options);
};

}  // namespace

kernel::Refusal why_no_team_scan(const TeamScan& scan) {
  if (scan.options.team_words == 0) return "the device has no memory of teams";
  const TeamScanLimits limits = team_scan_limits(scan.options);
  if (scan.inner >= limits.many_columns) {
    return fmt::format("{} columns, no fewer than {}, lie side by side", scan.inner,
                       limits.many_columns);
  }
  return most_share(scan) > 0 ? "" : "its reducer is too long";
}

Status scan_by_teams(const TeamScan& scan) {
  return TeamScanLowering(scan, most_share(scan)).run();
}

}  // namespace hekla::lower
