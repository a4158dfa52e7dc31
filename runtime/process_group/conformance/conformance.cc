// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/conformance/conformance.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hekla::process_group {
namespace {

constexpr int64_t kMostPartBytes = int64_t{4} << 20;

// One check: its name, and what runs it on a group.
struct Check {
  std::string name;
  std::function<std::string(ProcessGroup&, std::string_view name, std::chrono::nanoseconds timeout)>
      run;
};

// What an array holds: as many elements, which repeat themselves after kInputPeriod. References
// stay as short as that, however long the arrays are.
struct Pattern {
  HostArray head;  // all, or one period
  int64_t count = 0;

  HostArray array() const { return repeated(head, count); }
};

HostArray slice(const HostArray& array, int64_t first, int64_t count) {
  HostArray result = reused(array.dtype(), count);
  const int64_t width = dtype_bytes(array.dtype());
  if (count > 0) {
    std::copy_n(array.data() + first * width, count * width, result.mutable_data());
  }
  return result;
}

Pattern input_of(DType dtype, int64_t count, int rank, std::string_view name) {
  return {conformance_input(dtype, std::min(count, kInputPeriod), rank, name), count};
}

Pattern part(const Pattern& whole, int64_t first, int64_t count) {
  if (whole.count <= kInputPeriod) return {slice(whole.head, first, count), count};
  const HostArray twice = repeated(whole.head, 2 * kInputPeriod);
  return {slice(twice, first % kInputPeriod, std::min(count, kInputPeriod)), count};
}

// The inputs of all ranks of a group.
std::vector<Pattern> inputs_of(const ProcessGroup& group, DType dtype, int64_t count,
                               std::string_view name) {
  std::vector<Pattern> inputs;
  for (int r = 0; r < group.size(); ++r) inputs.push_back(input_of(dtype, count, r, name));
  return inputs;
}

Pattern reduced(const Reduction& by, const std::vector<Pattern>& inputs) {
  std::vector<HostArray> heads;
  for (const Pattern& input : inputs) heads.push_back(input.head);
  return {reference_reduce(by, heads), inputs[0].count};
}

// `got` against patterns that follow each other.
std::string said(const Status& status, const ConstElements& got,
                 const std::vector<Pattern>& wanted) {
  if (!status.ok()) return status.to_string();
  int64_t first = 0;
  for (const Pattern& each : wanted) {
    if (first + each.count > got.count) return fmt::format("{} elements came", got.count);
    const int64_t period = std::max<int64_t>(1, each.head.size());
    const std::byte* right = each.head.data();  // a period that is, with NaNs of other bits perhaps
    for (int64_t at = 0; at < each.count; at += period) {
      const int64_t count = std::min(period, each.count - at);
      const ConstElements run = got.part(first + at, count);
      if (std::memcmp(run.data, right, static_cast<size_t>(run.size_bytes())) == 0) continue;
      HostArray copy(got.dtype, {count});
      std::copy_n(run.bytes(), run.size_bytes(), copy.mutable_data());
      const std::string problem = difference(copy, slice(each.head, 0, count));
      if (!problem.empty()) return fmt::format("from element {} on, {}", first + at, problem);
      if (count == period) right = run.bytes();
    }
    first += each.count;
  }
  if (first == got.count) return {};
  return fmt::format("{} elements came instead of {}", got.count, first);
}

std::string said(const Status& status, const HostArray& got, const std::vector<Pattern>& wanted) {
  return said(status, ConstElements(got.data(), got.dtype(), got.size()), wanted);
}

std::string said(const Status& status, const HostArray& got, const Pattern& wanted) {
  return said(status, got, std::vector<Pattern>{wanted});
}

// Whether memory is given with an owner, which is sent as it is, or without.
ConstElements lent(const HostArray& array, bool is_owned) {
  return is_owned ? elements(array) : ConstElements(array.data(), array.dtype(), array.size());
}

std::string check_all_reduce(ProcessGroup& group, DType dtype, int64_t count, const Reduction& by,
                             std::string_view name, std::chrono::nanoseconds timeout) {
  const auto inputs = inputs_of(group, dtype, count, name);
  const HostArray own = inputs[static_cast<size_t>(group.rank())].array();
  const Pattern wanted = reduced(by, inputs);
  HostArray out = reused(dtype, count), in_place = slice(own, 0, count);
  const Work apart = group.all_reduce(elements(out), lent(own, true), by, timeout);
  const Work over = group.all_reduce(elements(in_place), by, timeout);
  const std::string first = said(apart.wait(), out, wanted);
  const std::string second = said(over.wait(), in_place, wanted);
  return first.empty() ? second : first;
}

std::string check_reduce(ProcessGroup& group, DType dtype, int64_t count, const Reduction& by,
                         std::string_view name, std::chrono::nanoseconds timeout) {
  const auto inputs = inputs_of(group, dtype, count, name);
  const int root = group.size() - 1;
  const Pattern& given = inputs[static_cast<size_t>(group.rank())];
  const HostArray own = given.array();
  const bool is_root = group.rank() == root;
  HostArray x = slice(own, 0, count), out = reused(dtype, is_root ? count : 0);
  const Work over = group.reduce(elements(x), root, by, timeout);
  const Work apart = group.reduce(elements(out), lent(own, true), root, by, timeout);
  const std::string first = said(over.wait(), x, is_root ? reduced(by, inputs) : given);
  const Status status = apart.wait();
  if (!first.empty() || !is_root) return status.ok() ? first : status.to_string();
  return said(status, out, reduced(by, inputs));
}

std::string check_reduce_scatter(ProcessGroup& group, DType dtype, int64_t count,
                                 const Reduction& by, std::string_view name,
                                 std::chrono::nanoseconds timeout) {
  const auto inputs = inputs_of(group, dtype, count * group.size(), name);
  const int64_t first = count * group.rank();
  const Pattern wanted = part(reduced(by, inputs), first, count);
  const HostArray own = inputs[static_cast<size_t>(group.rank())].array();
  HostArray out = reused(dtype, count), in_place = slice(own, 0, own.size());
  const Elements whole = elements(in_place);
  const Work apart = group.reduce_scatter(elements(out), lent(own, true), by, timeout);
  const Work over = group.reduce_scatter(whole.part(first, count), whole, by, timeout);
  const std::string problem = said(apart.wait(), out, wanted);
  const Status status = over.wait();
  return problem.empty() ? said(status, whole.part(first, count), {wanted}) : problem;
}

std::string check_broadcast(ProcessGroup& group, DType dtype, int64_t count, std::string_view name,
                            std::chrono::nanoseconds timeout) {
  for (int root = 0; root < group.size(); ++root) {
    HostArray x = input_of(dtype, count, group.rank(), name).array();
    const Status status = group.broadcast(elements(x), root, timeout).wait();
    const std::string problem = said(status, x, input_of(dtype, count, root, name));
    if (!problem.empty()) return problem;
  }
  return {};
}

std::string check_all_gather(ProcessGroup& group, DType dtype, int64_t count, std::string_view name,
                             std::chrono::nanoseconds timeout) {
  const auto inputs = inputs_of(group, dtype, count, name);
  const HostArray own = inputs[static_cast<size_t>(group.rank())].array();
  const int64_t all = count * group.size();
  HostArray out = reused(dtype, all), in_place = reused(dtype, all);
  const Elements whole = elements(in_place), place = whole.part(count * group.rank(), count);
  std::copy_n(own.data(), own.size_bytes(), place.bytes());
  const Work apart = group.all_gather(elements(out), lent(own, true), timeout);
  const Work over = group.all_gather(whole, place, timeout);
  const std::string problem = said(apart.wait(), out, inputs);
  const Status status = over.wait();
  return problem.empty() ? said(status, in_place, inputs) : problem;
}

std::string check_all_gather_uneven(ProcessGroup& group, DType dtype, int64_t count,
                                    std::string_view name, std::chrono::nanoseconds timeout) {
  // Of rank r (count + r) / 2 elements, of each third one none.
  std::vector<Pattern> inputs;
  std::vector<HostArray> outputs;
  std::vector<Elements> places;
  for (int r = 0; r < group.size(); ++r) {
    const int64_t each = r % 3 == 2 ? 0 : (count + r) / 2;
    inputs.push_back(input_of(dtype, each, r, name));
    outputs.push_back(reused(dtype, each));
  }
  for (HostArray& output : outputs) places.push_back(elements(output));
  const HostArray own = inputs[static_cast<size_t>(group.rank())].array();
  const Status status = group.all_gather(places, lent(own, true), timeout).wait();
  for (size_t r = 0; r < inputs.size(); ++r) {
    const std::string problem = said(status, outputs[r], inputs[r]);
    if (!problem.empty()) return problem;
  }
  return {};
}

// Sums, a gather and a broadcast in one go, each twice, so that they go as one where small.
std::string check_coalesced(ProcessGroup& group, DType dtype, int64_t count, std::string_view name,
                            std::chrono::nanoseconds timeout) {
  const auto inputs = inputs_of(group, dtype, count, name);
  const HostArray own = inputs[static_cast<size_t>(group.rank())].array();
  const Reduction by = ReduceOp::kSum;
  const int root = group.size() / 2;
  const int64_t all = count * group.size();
  std::vector<HostArray> sums, gathered, sent;
  for (int i = 0; i < 2; ++i) {
    sums.push_back(slice(own, 0, count));
    gathered.push_back(reused(dtype, all));
    sent.push_back(slice(own, 0, count));
  }
  if (const Status begun = group.begin_coalescing(); !begun.ok()) return begun.to_string();
  for (size_t i = 0; i < 2; ++i) {
    static_cast<void>(group.all_reduce(elements(sums[i]), by));
    static_cast<void>(group.all_gather(elements(gathered[i]), lent(own, i == 0)));
    static_cast<void>(group.broadcast(elements(sent[i]), root));
  }
  const Status status = group.end_coalescing(timeout).wait();
  for (size_t i = 0; i < 2; ++i) {
    for (const std::string& problem :
         {said(status, sums[i], reduced(by, inputs)), said(status, gathered[i], inputs),
          said(status, sent[i], inputs[static_cast<size_t>(root)])}) {
      if (!problem.empty()) return problem;
    }
  }
  return {};
}

std::string check_gather(ProcessGroup& group, DType dtype, int64_t count, std::string_view name,
                         std::chrono::nanoseconds timeout) {
  const auto inputs = inputs_of(group, dtype, count, name);
  const int root = group.size() / 2;
  const bool is_root = group.rank() == root;
  const HostArray own = inputs[static_cast<size_t>(group.rank())].array();
  HostArray out = reused(dtype, is_root ? count * group.size() : 0);
  const Status status = group.gather(elements(out), lent(own, false), root, timeout).wait();
  return said(status, out, is_root ? inputs : std::vector<Pattern>());
}

std::string check_scatter(ProcessGroup& group, DType dtype, int64_t count, std::string_view name,
                          std::chrono::nanoseconds timeout) {
  const int root = group.size() / 2;
  const Pattern given = input_of(dtype, count * group.size(), root, name);
  const bool is_root = group.rank() == root;
  const HostArray all = is_root ? given.array() : HostArray(dtype, {0});
  HostArray out = reused(dtype, count);
  const Status status =
      group
          .scatter(elements(out), is_root ? lent(all, true) : ConstElements(nullptr, dtype, 0),
                   root, timeout)
          .wait();
  return said(status, out, part(given, count * group.rank(), count));
}

// Part (i, j) has (count + i + 2 j) / size elements, or as many as all others.
std::string check_all_to_all(ProcessGroup& group, DType dtype, int64_t count, bool is_uneven,
                             std::string_view name, std::chrono::nanoseconds timeout) {
  const int64_t size = group.size(), rank = group.rank();
  const auto elements_from_to = [&](int64_t from, int64_t to) {
    return is_uneven ? (count + from + 2 * to) * (from % 2) / size : count;
  };
  std::vector<int64_t> in_splits, out_splits;
  std::vector<Pattern> outgoing, incoming;
  const auto piece = [&](int64_t from, int64_t to) {
    return input_of(dtype, elements_from_to(from, to), static_cast<int>(size * from + to), name);
  };
  int64_t in_count = 0, out_count = 0;
  for (int64_t p = 0; p < size; ++p) {
    in_splits.push_back(elements_from_to(rank, p));
    out_splits.push_back(elements_from_to(p, rank));
    in_count += in_splits.back();
    out_count += out_splits.back();
    outgoing.push_back(piece(rank, p));
    incoming.push_back(piece(p, rank));
  }
  HostArray in = reused(dtype, in_count), out = reused(dtype, out_count);
  std::byte* to = in_count == 0 ? nullptr : in.mutable_data();
  for (const Pattern& one : outgoing) {
    const HostArray array = one.array();
    to = std::copy_n(array.data(), array.size_bytes(), to);
  }
  const Status status =
      is_uneven
          ? group.all_to_all(elements(out), lent(in, true), out_splits, in_splits, timeout).wait()
          : group.all_to_all(elements(out), lent(in, false), timeout).wait();
  const std::string problem = said(status, out, incoming);
  if (!problem.empty() || is_uneven) return problem;
  const Elements both = elements(in);
  return said(group.all_to_all(both, both, timeout).wait(), in, incoming);
}

// Around a ring with two tags, asked for in the other order.
std::string check_points(ProcessGroup& group, DType dtype, int64_t count, std::string_view name,
                         std::chrono::nanoseconds timeout) {
  const int next = (group.rank() + 1) % group.size();
  const int before = (group.rank() + group.size() - 1) % group.size();
  const HostArray own = input_of(dtype, count, group.rank(), name).array();
  const Pattern wanted = input_of(dtype, count, before, name);
  HostArray first = reused(dtype, count), second = reused(dtype, count);
  using Point = ProcessGroup::Point;
  const Status status =
      group
          .batch(
              {Point::receive(elements(second), before, 2), Point::send(lent(own, true), next, 1),
               Point::send(lent(own, false), next, 2), Point::receive(elements(first), before, 1)},
              timeout)
          .wait();
  const std::string problem = said(status, first, wanted);
  return problem.empty() ? said(status, second, wanted) : problem;
}

// Of the arrays that have a part for each of `ranks`, `bytes` is one part's up to kMostPartBytes,
// and of larger ones that of all.
std::vector<Check> checks_of(DType dtype, int64_t bytes, int ranks) {
  const int64_t count = bytes / dtype_bytes(dtype);
  const int64_t of_part = bytes > kMostPartBytes ? count / ranks : count;
  std::vector<Check> checks;
  const auto add = [&](std::string name, int64_t elements, auto run, auto... more) {
    checks.push_back({std::move(name), [=](ProcessGroup& group, std::string_view check,
                                           std::chrono::nanoseconds timeout) {
                        return run(group, dtype, elements, more..., check, timeout);
                      }});
  };
  for (int op = 0; op < kReduceOpCount; ++op) {
    Reduction by(static_cast<ReduceOp>(op));
    by.factor = 0.375;
    if (!check_reduction(by, dtype).ok()) continue;
    const std::string name(reduce_op_name(by.op));
    add("all_reduce/" + name, count, check_all_reduce, by);
    add("reduce/" + name, count, check_reduce, by);
    add("reduce_scatter/" + name, of_part, check_reduce_scatter, by);
  }
  add("broadcast", count, check_broadcast);
  add("all_gather", of_part, check_all_gather);
  add("all_gather_uneven", of_part, check_all_gather_uneven);
  add("coalesced", of_part, check_coalesced);
  add("gather", of_part, check_gather);
  add("scatter", of_part, check_scatter);
  for (const bool is_uneven : {false, true}) {
    add(is_uneven ? "all_to_all_uneven" : "all_to_all", of_part, check_all_to_all, is_uneven);
  }
  add("send_receive", count, check_points);
  for (Check& check : checks) check.name += fmt::format("/{}/{}", dtype_name(dtype), bytes);
  return checks;
}

}  // namespace

std::vector<CheckResult> run_conformance(ProcessGroup& world, const ConformanceOptions& options,
                                         const std::function<void(const CheckResult&)>& report) {
  std::vector<CheckResult> results;
  const auto add = [&](std::string name, std::string problem) {
    results.push_back({std::move(name), std::move(problem)});
    if (report) report(results.back());
  };
  // All ranks; every second one, and the others; the first and the last, in reverse order.
  std::vector<std::pair<std::string, std::shared_ptr<ProcessGroup>>> groups = {
      {"world", std::shared_ptr<ProcessGroup>(&world, [](ProcessGroup*) {})}};
  if (world.size() > 2) {
    auto halves = world.split(world.rank() % 2, world.rank(), options.timeout);
    auto ends = world.new_group({world.size() - 1, 0}, options.timeout);
    if (!halves.ok() || !ends.ok()) {
      add("groups", (halves.ok() ? ends.status() : halves.status()).to_string());
      return results;
    }
    groups.emplace_back("halves", *halves);
    groups.emplace_back("ends", *ends);
  }
  std::vector<DType> dtypes = options.dtypes;
  for (int i = 1; options.dtypes.empty() && i < kDTypeCount; ++i) {
    dtypes.push_back(static_cast<DType>(i));
  }
  for (const auto& [group_name, group] : groups) {
    if (group == nullptr) continue;
    for (const DType dtype : dtypes) {
      // Sizes below that of an element come to the same as 0.
      std::vector<int64_t> counts;
      for (const int64_t bytes : options.sizes) {
        const int64_t count = bytes / dtype_bytes(dtype);
        if (std::find(counts.begin(), counts.end(), count) != counts.end()) continue;
        counts.push_back(count);
        for (const Check& check : checks_of(dtype, bytes, group->size())) {
          const std::string name = check.name + "/" + group_name;
          if (name.find(options.filter) == std::string::npos) continue;
          if (!group->status().ok()) {
            add(name, "not run: " + group->status().to_string());
            continue;
          }
          add(name, check.run(*group, name, options.timeout));
        }
      }
    }
  }
  const Status last = world.barrier(options.timeout).wait();
  if (!last.ok()) add("barrier", last.to_string());
  return results;
}

}  // namespace hekla::process_group
