// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/conformance/faults.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "runtime/process_group/conformance/conformance.h"
#include "runtime/process_group/objects.h"

namespace hekla::process_group {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr int kVictim = 1;
// Of arrays above that the victim is the root.
constexpr int64_t kSmallBytes = int64_t{64} << 10;
// Within which all others have to come where one never does, and how late one comes that is late.
constexpr milliseconds kDeadline(2000), kDelay(3000);
// After which a rank that is stopped is killed.
constexpr seconds kStopped(5);
// No call that an error ends lasts that long.
constexpr seconds kHang(30);

// How a rank calls: the victim may have another.
struct Shape {
  int64_t count = 0;
  DType dtype = DType::kF32;
  Reduction by = ReduceOp::kSum;
  int root = 0;
  std::string_view operation;
};

using Run = Status (*)(ProcessGroup& group, const Shape& shape, Timeout timeout);

HostArray filled(const Shape& shape, int64_t count) {
  HostArray array = reused(shape.dtype, count);
  if (count > 0) std::fill_n(array.mutable_data(), array.size_bytes(), std::byte{1});
  return array;
}

// Elements of a part, of arrays that have one for each rank.
int64_t part_of(const ProcessGroup& group, const Shape& shape) {
  return std::max<int64_t>(1, shape.count / group.size());
}

Status run_broadcast(ProcessGroup& group, const Shape& shape, Timeout timeout) {
  HostArray x = filled(shape, shape.count);
  return group.broadcast(elements(x), shape.root, timeout).wait();
}
Status run_all_reduce(ProcessGroup& group, const Shape& shape, Timeout timeout) {
  HostArray x = filled(shape, shape.count);
  return group.all_reduce(elements(x), shape.by, timeout).wait();
}
Status run_reduce(ProcessGroup& group, const Shape& shape, Timeout timeout) {
  HostArray x = filled(shape, shape.count);
  return group.reduce(elements(x), shape.root, shape.by, timeout).wait();
}
Status run_reduce_scatter(ProcessGroup& group, const Shape& shape, Timeout timeout) {
  const int64_t part = part_of(group, shape);
  const HostArray in = filled(shape, part * group.size());
  HostArray out = filled(shape, part);
  return group.reduce_scatter(elements(out), elements(in), shape.by, timeout).wait();
}
Status run_all_gather(ProcessGroup& group, const Shape& shape, Timeout timeout) {
  const int64_t part = part_of(group, shape);
  const HostArray in = filled(shape, part);
  HostArray out = filled(shape, part * group.size());
  return group.all_gather(elements(out), elements(in), timeout).wait();
}
Status run_all_gather_uneven(ProcessGroup& group, const Shape& shape, Timeout timeout) {
  const int64_t part = part_of(group, shape);
  std::vector<HostArray> outputs;
  std::vector<Elements> places;
  for (int r = 0; r < group.size(); ++r) outputs.push_back(filled(shape, part + r));
  for (HostArray& output : outputs) places.push_back(elements(output));
  const HostArray in = filled(shape, part + group.rank());
  return group.all_gather(places, elements(in), timeout).wait();
}
Status run_gather(ProcessGroup& group, const Shape& shape, Timeout timeout) {
  const int64_t part = part_of(group, shape);
  const HostArray in = filled(shape, part);
  HostArray out = filled(shape, group.rank() == shape.root ? part * group.size() : 0);
  return group.gather(elements(out), elements(in), shape.root, timeout).wait();
}
Status run_scatter(ProcessGroup& group, const Shape& shape, Timeout timeout) {
  const int64_t part = part_of(group, shape);
  const HostArray in = filled(shape, group.rank() == shape.root ? part * group.size() : 0);
  HostArray out = filled(shape, part);
  return group.scatter(elements(out), elements(in), shape.root, timeout).wait();
}
Status run_all_to_all(ProcessGroup& group, const Shape& shape, Timeout timeout) {
  const int64_t part = part_of(group, shape);
  const HostArray in = filled(shape, part * group.size());
  HostArray out = filled(shape, part * group.size());
  return group.all_to_all(elements(out), elements(in), timeout).wait();
}
Status run_all_to_all_uneven(ProcessGroup& group, const Shape& shape, Timeout timeout) {
  // What goes to rank r and comes from it has r elements more.
  const int64_t part = part_of(group, shape), size = group.size();
  std::vector<int64_t> in_splits, out_splits;
  int64_t in_count = 0, out_count = 0;
  for (int64_t r = 0; r < size; ++r) {
    in_count += in_splits.emplace_back(part + r);
    out_count += out_splits.emplace_back(part + group.rank());
  }
  const HostArray in = filled(shape, in_count);
  HostArray out = filled(shape, out_count);
  return group.all_to_all(elements(out), elements(in), out_splits, in_splits, timeout).wait();
}
Status run_barrier(ProcessGroup& group, const Shape&, Timeout timeout) {
  return group.barrier(timeout).wait();
}
Status run_monitored_barrier(ProcessGroup& group, const Shape&, Timeout timeout) {
  return group.monitored_barrier(timeout);
}
Status run_coalesced(ProcessGroup& group, const Shape& shape, Timeout timeout) {
  const int64_t half = std::max<int64_t>(1, shape.count / 2);
  HostArray x = filled(shape, half), y = filled(shape, half);
  HEKLA_RETURN_IF_ERROR(group.begin_coalescing());
  static_cast<void>(group.all_reduce(elements(x), shape.by));
  static_cast<void>(group.broadcast(elements(y), shape.root));
  return group.end_coalescing(timeout).wait();
}
Status run_objects(ProcessGroup& group, const Shape& shape, Timeout timeout) {
  return all_gather_objects(group, std::string(static_cast<size_t>(shape.count), 'x'), timeout)
      .status();
}
// The victim with each other one, both ways.
Status run_send_receive(ProcessGroup& group, const Shape& shape, Timeout timeout) {
  const HostArray own = filled(shape, shape.count);
  std::vector<HostArray> got;
  std::vector<ProcessGroup::Point> points;
  for (int r = 0; r < group.size(); ++r) {
    if (r != group.rank() && (r == kVictim || group.rank() == kVictim)) {
      got.push_back(filled(shape, shape.count));
    }
  }
  size_t i = 0;
  for (int r = 0; r < group.size(); ++r) {
    if (r == group.rank() || (r != kVictim && group.rank() != kVictim)) continue;
    points.push_back(ProcessGroup::Point::send(elements(std::as_const(own)), r));
    points.push_back(ProcessGroup::Point::receive(elements(got[i++]), r));
  }
  return group.batch(points, timeout).wait();
}

struct Row {
  std::string_view name;
  Run run;
  bool has_array, has_reduction, has_root;
  std::array<std::string_view, 2> calls;  // what errors may call it
};
constexpr Row kRows[] = {
    {"broadcast", run_broadcast, true, false, true, {"broadcast"}},
    {"all_reduce", run_all_reduce, true, true, false, {"all_reduce"}},
    {"reduce", run_reduce, true, true, true, {"reduce"}},
    {"reduce_scatter", run_reduce_scatter, true, true, false, {"reduce_scatter"}},
    {"all_gather", run_all_gather, true, false, false, {"all_gather"}},
    {"all_gather_uneven", run_all_gather_uneven, true, false, false, {"all_gather"}},
    {"gather", run_gather, true, false, true, {"gather"}},
    {"scatter", run_scatter, true, false, true, {"scatter"}},
    {"all_to_all", run_all_to_all, true, false, false, {"all_to_all"}},
    {"all_to_all_uneven", run_all_to_all_uneven, true, false, false, {"all_to_all"}},
    {"barrier", run_barrier, false, false, false, {"barrier"}},
    {"monitored_barrier", run_monitored_barrier, false, false, false, {"barrier"}},
    {"coalesced", run_coalesced, true, true, true, {"all_reduce", "broadcast"}},
    {"objects", run_objects, true, false, false, {"all_gather"}},
    {"send_receive", run_send_receive, true, false, false, {"send", "receive"}},
};
constexpr std::string_view kFaults[] = {"kill", "exit",  "stop",      "delay",
                                        "size", "dtype", "operation", "root"};

const Row* row_of(std::string_view operation) {
  const auto* const found = std::ranges::find(kRows, operation, &Row::name);
  return found == std::end(kRows) ? nullptr : found;
}

bool makes_sense(std::string_view fault, const Row& row, int64_t bytes) {
  const bool is_point = row.name == "send_receive", is_object = row.name == "objects";
  if (!row.has_array && bytes > 0) return false;
  if (fault == "size") return row.has_array && !is_object;
  if (fault == "dtype") return row.has_array && !is_object;
  if (fault == "operation") return !is_point && !is_object;
  if (fault == "root") return row.has_root;
  return true;
}

int64_t now_ns() { return Clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

// A child that kills this process when it has been stopped for long enough.
void have_killed_later() {
  const pid_t own = ::getpid();
  if (::fork() != 0) return;
  ::sleep(static_cast<unsigned>(kStopped.count()));
  ::kill(own, SIGKILL);
  ::_exit(0);
}

std::jthread lose_this_rank(const FaultCheck& check, const std::function<void(int64_t)>& happens) {
  if (check.fault == "stop") have_killed_later();
  return std::jthread([&check, &happens] {
    // In the midst of calls that follow each other.
    std::this_thread::sleep_for(milliseconds(20));
    happens(now_ns());
    if (check.fault == "exit") ::_exit(0);
    ::kill(::getpid(), check.fault == "kill" ? SIGKILL : SIGSTOP);
  });
}

// The victim's call in place of `shape`, for checks of calls that differ.
Shape differing(const FaultCheck& check, const Row& row, Shape shape) {
  if (check.fault == "size") shape.count += 8 * 64;  // in each of up to 64 parts
  if (check.fault == "dtype") shape.dtype = DType::kI32;
  if (check.fault == "root") shape.root = shape.root == 0 ? kVictim : 0;
  if (check.fault == "operation") {
    if (row.has_reduction) {
      shape.by = ReduceOp::kMax;
    } else {
      shape.operation = "all_reduce";
    }
  }
  return shape;
}

std::string problem_of(const FaultCheck& check, const Row& row, bool is_victim,
                       const Status& status, Clock::duration taken) {
  if (status.ok()) return "no error";
  if (taken > kHang) return "the error came late";
  const std::string_view text = status.message();
  const auto says = [&](std::string_view word) {
    return !word.empty() && text.find(word) != std::string_view::npos;
  };
  // Of a call whose place another one has taken either is a name.
  const bool is_named =
      std::ranges::any_of(row.calls, says) || (check.fault == "operation" && says("all_reduce"));
  if (!is_named) return "the error does not name the call";
  // The victim hears what the others did without it, or sent.
  const bool is_others = check.fault == "delay" || row.name == "send_receive";
  if (is_victim && is_others) return {};
  return says(fmt::format("rank {}", kVictim)) ? "" : "the error does not name the rank";
}

}  // namespace

std::string FaultCheck::name() const { return fmt::format("{}/{}/{}", fault, operation, bytes); }

Result<FaultCheck> FaultCheck::read(std::string_view name) {
  for (const std::string_view fault : kFaults) {
    for (const Row& row : kRows) {
      const std::string head = fmt::format("{}/{}/", fault, row.name);
      if (!name.starts_with(head)) continue;
      const std::string bytes(name.substr(head.size()));
      return FaultCheck{std::string(fault), std::string(row.name), std::atoll(bytes.c_str())};
    }
  }
  return invalid_argument("no check of a fault is called \"{}\"", name);
}

std::vector<FaultCheck> fault_checks(const std::vector<int64_t>& sizes) {
  std::vector<FaultCheck> checks;
  for (const std::string_view fault : kFaults) {
    for (const Row& row : kRows) {
      for (const int64_t bytes : row.has_array ? sizes : std::vector<int64_t>{0}) {
        if (!makes_sense(fault, row, bytes)) continue;
        checks.push_back({std::string(fault), std::string(row.name), bytes});
      }
    }
  }
  return checks;
}

FaultReport run_fault_check(ProcessGroup& world, const FaultCheck& check,
                            const std::function<void(int64_t at_ns)>& happens) {
  const Row* const row = row_of(check.operation);
  const bool is_victim = world.rank() == kVictim;
  Shape shape;
  shape.count = std::max<int64_t>(1, check.bytes / dtype_bytes(shape.dtype));
  shape.root = check.bytes > kSmallBytes ? kVictim : 0;
  // The others may hear of the victim's end while they are still in the first call.
  if (is_victim || !check.ends_victim()) {
    if (Status status = row->run(world, shape, {}); !status.ok()) {
      return {"before anything happened: " + status.to_string(), {}, 0};
    }
  }
  Status status;
  std::jthread end;
  auto begin = Clock::now();
  if (check.ends_victim()) {
    if (is_victim) end = lose_this_rank(check, happens);
    const Timeout timeout = check.fault == "stop" ? Timeout(kDeadline) : Timeout();
    do {
      begin = Clock::now();
      status = row->run(world, shape, timeout);
    } while (status.ok());
  } else {
    if (is_victim && check.fault == "delay") std::this_thread::sleep_for(kDelay);
    begin = Clock::now();
    if (is_victim) happens(now_ns());
    const Shape own = is_victim ? differing(check, *row, shape) : shape;
    const Row* const called = own.operation.empty() ? row : row_of(own.operation);
    status = called->run(world, own, check.fault == "delay" ? Timeout(kDeadline) : Timeout());
  }
  const int64_t at = now_ns();
  return {problem_of(check, *row, is_victim, status, Clock::now() - begin), status.to_string(), at};
}

}  // namespace hekla::process_group
