// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/conformance/conformance.h"

#include <algorithm>
#include <utility>

namespace hekla::process_group {
namespace {

// One check: its name, and what runs it on a group.
struct Check {
  std::string name;
  std::function<std::string(ProcessGroup&, std::string_view name, std::chrono::nanoseconds timeout)>
      run;
};

// Arrays of all ranks as one.
HostArray joined(const std::vector<HostArray>& arrays, DType dtype) {
  int64_t count = 0;
  for (const HostArray& array : arrays) count += array.size();
  HostArray all(dtype, {count});
  std::byte* to = count == 0 ? nullptr : all.mutable_data();
  for (const HostArray& array : arrays) to = std::copy_n(array.data(), array.size_bytes(), to);
  return all;
}

HostArray part(const HostArray& array, int64_t first, int64_t count) {
  HostArray result(array.dtype(), {count});
  const int64_t width = dtype_bytes(array.dtype());
  if (count > 0) {
    std::copy_n(array.data() + first * width, count * width, result.mutable_data());
  }
  return result;
}

// The inputs of all ranks of a group.
std::vector<HostArray> inputs_of(const ProcessGroup& group, DType dtype, int64_t count,
                                 std::string_view name) {
  std::vector<HostArray> inputs;
  for (int r = 0; r < group.size(); ++r) {
    inputs.push_back(conformance_input(dtype, count, r, name));
  }
  return inputs;
}

// The reference of inputs that repeat themselves.
HostArray reduced(const Reduction& by, const std::vector<HostArray>& inputs) {
  if (inputs[0].size() <= kInputPeriod) return reference_reduce(by, inputs);
  std::vector<HostArray> heads;
  for (const HostArray& input : inputs) heads.push_back(part(input, 0, kInputPeriod));
  return repeated(reference_reduce(by, heads), inputs[0].size());
}

std::string said(const Status& status, const HostArray& got, const HostArray& wanted) {
  return status.ok() ? difference(got, wanted) : status.to_string();
}

// Whether memory is given with an owner, which is sent as it is, or without.
ConstElements lent(const HostArray& array, bool is_owned) {
  return is_owned ? elements(array) : ConstElements(array.data(), array.dtype(), array.size());
}

HostArray copied(const HostArray& array) { return part(array, 0, array.size()); }

std::vector<Check> reductions(DType dtype, int64_t count, const Reduction& by) {
  std::vector<Check> checks;
  const std::string op(reduce_op_name(by.op));
  checks.push_back({"all_reduce/" + op, [=](ProcessGroup& group, std::string_view name,
                                            std::chrono::nanoseconds timeout) {
                      const auto inputs = inputs_of(group, dtype, count, name);
                      const auto& own = inputs[static_cast<size_t>(group.rank())];
                      const HostArray wanted = reduced(by, inputs);
                      HostArray out(dtype, {count}), in_place = copied(own);
                      const Work apart =
                          group.all_reduce(elements(out), lent(own, true), by, timeout);
                      const Work over = group.all_reduce(elements(in_place), by, timeout);
                      const std::string first = said(apart.wait(), out, wanted);
                      const std::string second = said(over.wait(), in_place, wanted);
                      return first.empty() ? second : first;
                    }});
  checks.push_back(
      {"reduce/" + op,
       [=](ProcessGroup& group, std::string_view name, std::chrono::nanoseconds timeout) {
         const auto inputs = inputs_of(group, dtype, count, name);
         const int root = group.size() - 1;
         const auto& own = inputs[static_cast<size_t>(group.rank())];
         const bool is_root = group.rank() == root;
         HostArray x = copied(own), out(dtype, {is_root ? count : 0});
         const Work over = group.reduce(elements(x), root, by, timeout);
         const Work apart = group.reduce(elements(out), lent(own, true), root, by, timeout);
         const std::string first = said(over.wait(), x, is_root ? reduced(by, inputs) : own);
         const Status status = apart.wait();
         if (!first.empty() || !is_root) {
           return status.ok() ? first : status.to_string();
         }
         return said(status, out, reduced(by, inputs));
       }});
  checks.push_back(
      {"reduce_scatter/" + op,
       [=](ProcessGroup& group, std::string_view name, std::chrono::nanoseconds timeout) {
         const auto inputs = inputs_of(group, dtype, count * group.size(), name);
         const int64_t first = count * group.rank();
         const HostArray wanted = part(reduced(by, inputs), first, count);
         const auto& own = inputs[static_cast<size_t>(group.rank())];
         HostArray out(dtype, {count}), in_place = copied(own);
         const Elements whole = elements(in_place);
         const Work apart = group.reduce_scatter(elements(out), lent(own, true), by, timeout);
         const Work over = group.reduce_scatter(whole.part(first, count), whole, by, timeout);
         const std::string problem = said(apart.wait(), out, wanted);
         const Status status = over.wait();
         return problem.empty() ? said(status, part(in_place, first, count), wanted) : problem;
       }});
  return checks;
}

std::string check_broadcast(ProcessGroup& group, DType dtype, int64_t count, std::string_view name,
                            std::chrono::nanoseconds timeout) {
  for (int root = 0; root < group.size(); ++root) {
    const HostArray wanted = conformance_input(dtype, count, root, name);
    HostArray x = conformance_input(dtype, count, group.rank(), name);
    const Status status = group.broadcast(elements(x), root, timeout).wait();
    const std::string problem = said(status, x, wanted);
    if (!problem.empty()) return problem;
  }
  return {};
}

std::string check_all_gather(ProcessGroup& group, DType dtype, int64_t count, std::string_view name,
                             std::chrono::nanoseconds timeout) {
  const auto inputs = inputs_of(group, dtype, count, name);
  const HostArray wanted = joined(inputs, dtype);
  const auto& own = inputs[static_cast<size_t>(group.rank())];
  HostArray out(dtype, {count * group.size()}), in_place(dtype, {count * group.size()});
  const Elements whole = elements(in_place), slice = whole.part(count * group.rank(), count);
  std::copy_n(own.data(), own.size_bytes(), slice.bytes());
  const Work apart = group.all_gather(elements(out), lent(own, true), timeout);
  const Work over = group.all_gather(whole, slice, timeout);
  const std::string problem = said(apart.wait(), out, wanted);
  const Status status = over.wait();
  return problem.empty() ? said(status, in_place, wanted) : problem;
}

std::string check_all_gather_uneven(ProcessGroup& group, DType dtype, int64_t count,
                                    std::string_view name, std::chrono::nanoseconds timeout) {
  // Of rank r (count + r) / 2 elements, of each third one none.
  std::vector<HostArray> inputs, outputs;
  std::vector<Elements> places;
  for (int r = 0; r < group.size(); ++r) {
    const int64_t own = r % 3 == 2 ? 0 : (count + r) / 2;
    inputs.push_back(conformance_input(dtype, own, r, name));
    outputs.emplace_back(dtype, Dims{own});
  }
  for (HostArray& output : outputs) places.push_back(elements(output));
  const auto& own = inputs[static_cast<size_t>(group.rank())];
  const Status status = group.all_gather(places, lent(own, true), timeout).wait();
  return said(status, joined(outputs, dtype), joined(inputs, dtype));
}

// Sums, a gather and a broadcast in one go, each twice, so that they go as one where small.
std::string check_coalesced(ProcessGroup& group, DType dtype, int64_t count, std::string_view name,
                            std::chrono::nanoseconds timeout) {
  const auto inputs = inputs_of(group, dtype, count, name);
  const auto& own = inputs[static_cast<size_t>(group.rank())];
  const Reduction by = ReduceOp::kSum;
  const int root = group.size() / 2;
  const int64_t all = count * group.size();
  std::vector<HostArray> sums, gathered, sent;
  for (int i = 0; i < 2; ++i) {
    sums.push_back(copied(own));
    gathered.emplace_back(dtype, Dims{all});
    sent.push_back(copied(own));
  }
  if (const Status begun = group.begin_coalescing(); !begun.ok()) return begun.to_string();
  for (size_t i = 0; i < 2; ++i) {
    static_cast<void>(group.all_reduce(elements(sums[i]), by));
    static_cast<void>(group.all_gather(elements(gathered[i]), lent(own, i == 0)));
    static_cast<void>(group.broadcast(elements(sent[i]), root));
  }
  const Status status = group.end_coalescing(timeout).wait();
  for (size_t i = 0; i < 2; ++i) {
    for (const std::string& problem : {said(status, sums[i], reduced(by, inputs)),
                                       said(status, gathered[i], joined(inputs, dtype)),
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
  const auto& own = inputs[static_cast<size_t>(group.rank())];
  HostArray out(dtype, {is_root ? count * group.size() : 0});
  const Status status = group.gather(elements(out), lent(own, false), root, timeout).wait();
  return said(status, out, is_root ? joined(inputs, dtype) : out);
}

std::string check_scatter(ProcessGroup& group, DType dtype, int64_t count, std::string_view name,
                          std::chrono::nanoseconds timeout) {
  const int root = group.size() / 2;
  const HostArray all = conformance_input(dtype, count * group.size(), root, name);
  const bool is_root = group.rank() == root;
  HostArray out(dtype, {count});
  const Status status =
      group
          .scatter(elements(out), is_root ? lent(all, true) : ConstElements(nullptr, dtype, 0),
                   root, timeout)
          .wait();
  return said(status, out, part(all, count * group.rank(), count));
}

// Part (i, j) has (count + i + 2 j) / size elements, or as many as all others.
std::string check_all_to_all(ProcessGroup& group, DType dtype, int64_t count, bool is_uneven,
                             std::string_view name, std::chrono::nanoseconds timeout) {
  const int64_t size = group.size(), rank = group.rank();
  const auto elements_from_to = [&](int64_t from, int64_t to) {
    return is_uneven ? (count + from + 2 * to) * (from % 2) / size : count;
  };
  std::vector<int64_t> in_splits, out_splits;
  std::vector<HostArray> outgoing, incoming;
  const auto piece = [&](int64_t from, int64_t to) {
    return conformance_input(dtype, elements_from_to(from, to), static_cast<int>(size * from + to),
                             name);
  };
  for (int64_t p = 0; p < size; ++p) {
    in_splits.push_back(elements_from_to(rank, p));
    out_splits.push_back(elements_from_to(p, rank));
    outgoing.push_back(piece(rank, p));
    incoming.push_back(piece(p, rank));
  }
  HostArray in = joined(outgoing, dtype), wanted = joined(incoming, dtype);
  HostArray out(dtype, {wanted.size()});
  const Status status =
      is_uneven
          ? group.all_to_all(elements(out), lent(in, true), out_splits, in_splits, timeout).wait()
          : group.all_to_all(elements(out), lent(in, false), timeout).wait();
  const std::string problem = said(status, out, wanted);
  if (!problem.empty() || is_uneven) return problem;
  const Elements both = elements(in);
  return said(group.all_to_all(both, both, timeout).wait(), in, wanted);
}

// Around a ring with two tags, asked for in the other order.
std::string check_points(ProcessGroup& group, DType dtype, int64_t count, std::string_view name,
                         std::chrono::nanoseconds timeout) {
  const int next = (group.rank() + 1) % group.size();
  const int before = (group.rank() + group.size() - 1) % group.size();
  const HostArray own = conformance_input(dtype, count, group.rank(), name);
  const HostArray wanted = conformance_input(dtype, count, before, name);
  HostArray first(dtype, {count}), second(dtype, {count});
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

std::vector<Check> checks_of(DType dtype, int64_t bytes) {
  const int64_t count = bytes / dtype_bytes(dtype);
  std::vector<Check> checks;
  for (int op = 0; op < kReduceOpCount; ++op) {
    Reduction by(static_cast<ReduceOp>(op));
    by.factor = 0.375;
    if (!check_reduction(by, dtype).ok()) continue;
    for (Check& check : reductions(dtype, count, by)) checks.push_back(std::move(check));
  }
  const auto add = [&](std::string name, auto run) {
    checks.push_back({std::move(name), [=](ProcessGroup& group, std::string_view check,
                                           std::chrono::nanoseconds timeout) {
                        return run(group, dtype, count, check, timeout);
                      }});
  };
  add("broadcast", check_broadcast);
  add("all_gather", check_all_gather);
  add("all_gather_uneven", check_all_gather_uneven);
  add("coalesced", check_coalesced);
  add("gather", check_gather);
  add("scatter", check_scatter);
  for (const bool is_uneven : {false, true}) {
    checks.push_back(
        {is_uneven ? "all_to_all_uneven" : "all_to_all",
         [=](ProcessGroup& group, std::string_view name, std::chrono::nanoseconds timeout) {
           return check_all_to_all(group, dtype, count, is_uneven, name, timeout);
         }});
  }
  add("send_receive", check_points);
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
        for (const Check& check : checks_of(dtype, bytes)) {
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
