// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/process_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/process_group/backend_registry.h"
#include "runtime/process_group/coalesced.h"
#include "runtime/process_group/exchange.h"
#include "runtime/process_group/group_meeting.h"
#include "runtime/process_group/hub.h"
#include "runtime/process_group/member.h"
#include "runtime/rendezvous/group.h"

namespace hekla::process_group {
namespace {

Status check_elements(const ConstElements& x) {
  if (x.dtype == DType::kInvalid || static_cast<int>(x.dtype) >= kDTypeCount) {
    return invalid_argument("elements without a dtype");
  }
  constexpr int64_t kMost = int64_t{1} << 56;  // that the size fits
  if (x.count < 0 || x.count > kMost) return invalid_argument("{} elements", x.count);
  if (x.count > 0 && x.data == nullptr) {
    return invalid_argument("{}[{}] without memory", dtype_name(x.dtype), x.count);
  }
  return ok_status();
}

Status check_pair(const ConstElements& out, const ConstElements& in, int64_t out_parts,
                  int64_t in_parts) {
  HEKLA_RETURN_IF_ERROR(check_elements(out));
  HEKLA_RETURN_IF_ERROR(check_elements(in));
  if (out.dtype != in.dtype) {
    return invalid_argument("input of {} and output of {}", dtype_name(in.dtype),
                            dtype_name(out.dtype));
  }
  // Both hold the same elements for each part.
  if (out.count % out_parts != 0 || in.count % in_parts != 0 ||
      out.count / out_parts != in.count / in_parts) {
    return invalid_argument("an input of {} elements in {} parts and an output of {} in {}",
                            in.count, in_parts, out.count, out_parts);
  }
  return ok_status();
}

bool overlap(const ConstElements& a, const ConstElements& b) {
  // What is no memory is another check's to say.
  if (!check_elements(a).ok() || !check_elements(b).ok() || a.count == 0 || b.count == 0) {
    return false;
  }
  return a.bytes() < b.bytes() + b.size_bytes() && b.bytes() < a.bytes() + a.size_bytes();
}

// Reductions write while they still read: only over what they have read.
Status check_overlap(const Elements& out, const ConstElements& in, const ConstElements& own) {
  if (!overlap(out, in) || out.data == own.data) return ok_status();
  return invalid_argument(
      "the output overlaps the input; it may only be the part of it that it replaces");
}

// What is written while it may still be read is sent as a copy.
ConstElements apart_from(const Elements& out, ConstElements in) {
  if (overlap(out, in)) in.owner.reset();
  return in;
}

Status check_splits(const std::vector<int64_t>& splits, int64_t count, int size,
                    std::string_view what) {
  if (static_cast<int>(splits.size()) != size) {
    return invalid_argument("{} {} splits for {} ranks", splits.size(), what, size);
  }
  int64_t left = count;
  for (const int64_t split : splits) {
    if (split < 0 || split > left) {
      return invalid_argument("{} splits that are not parts of {} elements", what, count);
    }
    left -= split;
  }
  if (left == 0) return ok_status();
  return invalid_argument("{} splits make {} of {} elements", what, count - left, count);
}

template <typename E>
std::vector<E> parts_of(const E& x, const std::vector<int64_t>& splits) {
  std::vector<E> parts;
  int64_t first = 0;
  for (const int64_t split : splits) {
    parts.push_back(x.part(first, split));
    first += split;
  }
  return parts;
}

template <typename E>
std::vector<E> equal_parts(const E& x, int size) {
  return parts_of(x, std::vector<int64_t>(static_cast<size_t>(size), x.count / size));
}

template <typename E>
std::vector<E> at(int size, int rank, const E& x) {
  std::vector<E> parts(static_cast<size_t>(size));
  parts[static_cast<size_t>(rank)] = x;
  return parts;
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Status check_options(const Options& options, int rank, int size) {
  if (size < 1 || rank < 0 || rank >= size) {
    return invalid_argument("rank {} of {} processes", rank, size);
  }
  if (options.flat_bytes < 0 || options.segment_bytes < 1) {
    return invalid_argument("flat_bytes of {} and segment_bytes of {}", options.flat_bytes,
                            options.segment_bytes);
  }
  if (options.early_pieces < 0) return invalid_argument("early_pieces of {}", options.early_pieces);
  if (options.shared_memory != "auto" && options.shared_memory != "on" &&
      options.shared_memory != "off") {
    return invalid_argument("shared_memory \"{}\", which is \"auto\", \"on\" or \"off\"",
                            options.shared_memory);
  }
  constexpr int64_t kMost = int64_t{1} << 40;
  if (options.shared_flat_bytes < 0 || options.shared_flat_bytes > kMost ||
      options.shared_slot_bytes == 0 || options.shared_slot_bytes > kMost) {
    return invalid_argument("shared_flat_bytes of {} and shared_slot_bytes of {}",
                            options.shared_flat_bytes, options.shared_slot_bytes);
  }
  return ok_status();
}

Options chosen(Options options, int size) {
  if (options.shared_spin.count() < 0) {
    const bool has_cores = size <= ::sysconf(_SC_NPROCESSORS_ONLN);  // not those of this rank alone
    options.shared_spin = std::chrono::microseconds(has_cores ? 50 : 2);
  }
  return options;
}

bool wants_memory(const Options& options, int size) {
  if (size < 2 || options.shared_memory == "off") return false;
  if (options.shared_memory == "on") return true;
  const Result<Backend> backend = find_backend(options.engine);
  return backend.ok() && (backend->name == "auto" || backend->name == "shm");
}

}  // namespace

Result<std::shared_ptr<ProcessGroup>> ProcessGroup::create(
    std::shared_ptr<rendezvous::KeyValueStore> store, int rank, int size, const Options& options) {
  HEKLA_RETURN_IF_ERROR(check_options(options, rank, size));
  const Deadline deadline = Deadline::in(options.timeout);
  HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<Hub> hub,
                         Hub::create(std::move(store), rank, size, options, deadline));
  std::shared_ptr<ProcessGroup> group(
      new ProcessGroup(std::move(hub), options, all_ranks(size), rank));
  HEKLA_RETURN_IF_ERROR(group->meet(deadline));
  return group;
}

Status ProcessGroup::meet(Deadline deadline) {
  if (!wants_memory(options_, size())) return barrier(deadline.left()).wait();
  GroupMeeting meeting;
  const Work work = start(call_of(Operation::kBarrier, DType::kInvalid, 0), ok_status(),
                          deadline.left(), [&](Exchange& exchange) -> Status {
                            HEKLA_ASSIGN_OR_RETURN(meeting, meet_in_memory(exchange, options_));
                            return ok_status();
                          });
  HEKLA_RETURN_IF_ERROR(work.wait());
  if (meeting.memory != nullptr) {
    member_->share(std::move(meeting.memory));
    return ok_status();
  }
  if (options_.shared_memory == "on") {
    return failed_precondition("the ranks of group {} share no memory: {}", name(), meeting.reason);
  }
  if (options_.ranks_per_host < 0) member_->set_layout(std::move(meeting.layout));
  const HostLayout& layout = member_->layout();
  if (rank() == 0) {
    log_message(
        LogLevel::kInfo, "collectives of group {} go by messages{}: {}", name(),
        layout.has_levels() ? fmt::format(" within and between {} hosts", layout.hosts()) : "",
        meeting.reason);
  }
  return ok_status();
}

ProcessGroup::ProcessGroup(std::shared_ptr<Hub> hub, const Options& options,
                           std::vector<int> processes, int rank)
    : hub_(std::move(hub)),
      options_(chosen(options, static_cast<int>(processes.size()))),
      detail_(
          fnv1a(fmt::format("{} {} {} {} {} {} {}", options.ranks_per_host, options.flat_bytes,
                            options.segment_bytes, options.shared_memory, options.shared_flat_bytes,
                            options.shared_slot_bytes, options.coalesced_bytes))),
      member_(std::make_shared<Member>(*hub_, options_.name, std::move(processes), rank)) {
  if (options_.ranks_per_host > 0) {
    member_->set_layout(HostLayout::of_rows(size(), options_.ranks_per_host));
  }
  hub_->add(member_->id(), member_);
}

ProcessGroup::~ProcessGroup() {
  shutdown();
  member_->await_sent(deadline_of({}));
  for (const auto& [thread, block] : blocks_) {
    for (const Coalesced::Member& member : block->members()) {
      member.state->is_held = false;
      member.state->done.complete(cancelled("rank {} has shut group {} down", rank(), name()));
    }
  }
  hub_->remove(member_->id());
}

int ProcessGroup::rank() const { return member_->rank(); }
int ProcessGroup::size() const { return member_->size(); }
const std::string& ProcessGroup::name() const { return member_->name(); }
const std::vector<int>& ProcessGroup::global_ranks() const { return member_->processes(); }
uint64_t ProcessGroup::sequence() const { return member_->sequence(); }
Status ProcessGroup::status() const { return member_->status(); }
void ProcessGroup::shutdown() { member_->shutdown(); }

void ProcessGroup::abort(std::string_view reason) {
  member_->fail(cancelled("rank {} has aborted group {}: {}", rank(), name(), reason));
}

void ProcessGroup::refuse(std::string_view call, const Status& why) {
  if (Coalesced* const own = block(); own != nullptr) return own->refuse(why.with_context(call));
  member_->refuse(call, why);
}

void ProcessGroup::refuse_send(int to, uint64_t tag, const Status& why) {
  if (check_root(to).ok()) member_->refuse_send(to, tag, why);
}

Deadline ProcessGroup::deadline_of(Timeout timeout) const {
  return Deadline::in(timeout.value_or(options_.timeout));
}

Status ProcessGroup::check_part(const std::vector<int>& ranks) const {
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool is_set = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  if (!ranks.empty() && is_set && sorted.front() >= 0 && sorted.back() < size()) return ok_status();
  return invalid_argument("ranks {} as a part of group {} of {}", rendezvous::rank_list(sorted),
                          name(), size());
}

Status ProcessGroup::check_root(int root) const {
  if (root >= 0 && root < size()) return ok_status();
  return invalid_argument("rank {} in a group of {}", root, size());
}

Call ProcessGroup::call_of(Operation operation, DType dtype, int64_t count, int root) const {
  Call call;
  call.operation = operation;
  call.dtype = dtype;
  call.count = count;
  call.root = root;
  call.detail = detail_;
  call.refused = member_->refused();
  return call;
}

Coalesced* ProcessGroup::block() {
  if (block_count_.load() == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(std::this_thread::get_id());
  return found == blocks_.end() ? nullptr : found->second.get();
}

void ProcessGroup::add_to_block(const Work& point) {
  if (Coalesced* const own = block(); own != nullptr) own->add(point);
}

Status ProcessGroup::begin_coalescing() {
  const std::lock_guard lock(mutex_);
  auto& own = blocks_[std::this_thread::get_id()];
  if (own != nullptr) {
    return failed_precondition("calls of group {} are being coalesced already", name());
  }
  own = std::make_unique<Coalesced>();
  ++block_count_;
  return ok_status();
}

Status ProcessGroup::check_may_wait(std::string_view call) {
  Coalesced* const own = block();
  if (own == nullptr) return ok_status();
  Status why = failed_precondition(
      "{} waits and so has no place between begin_coalescing and end_coalescing of group {}", call,
      name());
  own->refuse(why);
  return why;
}

Work ProcessGroup::end_coalescing(Timeout timeout) {
  std::unique_ptr<Coalesced> own;
  {
    const std::lock_guard lock(mutex_);
    auto node = blocks_.extract(std::this_thread::get_id());
    if (!node.empty()) {
      own = std::move(node.mapped());
      --block_count_;
    }
  }
  if (own == nullptr) {
    return Work("coalesced calls",
                failed_precondition("no calls of group {} are being coalesced", name()));
  }
  const std::string text = own->to_string();
  for (const Coalesced::Member& member : own->members()) member.state->is_held = false;
  if (!own->refused().ok()) {
    const Status& why = own->refused();
    member_->refuse(text, why);
    for (const Coalesced::Member& member : own->members()) member.state->done.complete(why);
    return Work(text, why.with_context(text + " on group " + name()));
  }
  std::vector<Work> works = own->points();
  for (Coalesced::Pack& pack : own->packs(options_.coalesced_bytes)) {
    pack.call.refused = member_->refused();
    works.push_back(start(pack.call, ok_status(), timeout, std::move(pack.run)));
    std::vector<std::shared_ptr<Work::State>> states;
    for (const size_t i : pack.members) states.push_back(own->members()[i].state);
    works.back().then([states, text](const Status& status) {
      for (const auto& state : states) state->done.complete(status.with_context(text));
    });
  }
  return Work::all(text, works);
}

Work ProcessGroup::start(Call call, const Status& refused, Timeout timeout,
                         std::function<Status(Exchange&)> run,
                         const std::function<CoalescedParts()>& parts) {
  if (Coalesced* const own = block(); own != nullptr) {
    if (refused.ok()) {
      return own->add({call, parts ? parts() : CoalescedParts(), std::move(run), nullptr});
    }
    own->refuse(refused.with_context(call.to_string()));
    return Work(call.to_string(), refused.with_context(call.to_string() + " on group " + name()));
  }
  if (!refused.ok()) {
    const std::string text = call.to_string();
    member_->refuse(text, refused);
    return Work(text, refused.with_context(text + " on group " + name()));
  }
  Member* const member = member_.get();
  const Deadline deadline = deadline_of(timeout);
  return member->start(call, deadline,
                       [this, member, call, deadline, run = std::move(run)](uint64_t number) {
                         Exchange exchange(*member, options_, number, call, deadline);
                         HEKLA_RETURN_IF_ERROR(run(exchange));
                         return exchange.finish();
                       });
}

namespace {

Call with_reduction(Call call, const Reduction& by) {
  call.reduce = by.op;
  call.factor = by.op == ReduceOp::kPremulSum ? std::bit_cast<uint64_t>(by.factor) : 0;
  return call;
}

Status first_of(std::initializer_list<Status> all) {
  for (const Status& one : all) HEKLA_RETURN_IF_ERROR(one);
  return ok_status();
}

}  // namespace

Work ProcessGroup::broadcast(Elements x, int root, Timeout timeout) {
  return start(
      call_of(Operation::kBroadcast, x.dtype, x.count, root),
      first_of({check_elements(x), check_root(root)}), timeout,
      [x, root](Exchange& exchange) {
        const auto ranks = static_cast<size_t>(exchange.size());
        if (exchange.rank() == root) {
          return run_spread(exchange, std::vector<Elements>(ranks, x.part(0, 0)), x);
        }
        return run_spread(exchange, at(exchange.size(), root, x), {});
      },
      [&, ranks = static_cast<size_t>(size())]() -> CoalescedParts {
        if (rank() != root) return {std::vector<ConstElements>(ranks), at(size(), root, x)};
        return {std::vector<ConstElements>(ranks, x), std::vector<Elements>(ranks, x.part(0, 0))};
      });
}

Work ProcessGroup::all_reduce(Elements x, Reduction by, Timeout timeout) {
  return all_reduce(x, ConstElements(x), by, timeout);
}

Work ProcessGroup::all_reduce(Elements out, ConstElements in, Reduction by, Timeout timeout) {
  return start(
      with_reduction(call_of(Operation::kAllReduce, in.dtype, in.count), by),
      first_of(
          {check_pair(out, in, 1, 1), check_reduction(by, in.dtype), check_overlap(out, in, in)}),
      timeout, [out, in, by](Exchange& exchange) { return run_all_reduce(exchange, out, in, by); },
      [&]() -> CoalescedParts {
        const auto ranks = static_cast<size_t>(size());
        return {std::vector<ConstElements>(ranks, in), {}, by, out, in};
      });
}

Work ProcessGroup::reduce(Elements x, int root, Reduction by, Timeout timeout) {
  return reduce(x, ConstElements(x), root, by, timeout);
}

Work ProcessGroup::reduce(Elements out, ConstElements in, int root, Reduction by, Timeout timeout) {
  const bool is_root = rank() == root;
  return start(
      with_reduction(call_of(Operation::kReduce, in.dtype, in.count, root), by),
      first_of({check_root(root), is_root ? check_pair(out, in, 1, 1) : check_elements(in),
                check_reduction(by, in.dtype), is_root ? check_overlap(out, in, in) : ok_status()}),
      timeout,
      [out, in, root, by](Exchange& exchange) { return run_reduce(exchange, out, in, root, by); },
      [&]() -> CoalescedParts {
        const Elements none = {nullptr, in.dtype, 0};
        return {at(size(), root, in), {}, by, is_root ? out : none, in};
      });
}

Work ProcessGroup::all_gather(Elements out, ConstElements in, Timeout timeout) {
  return start(
      call_of(Operation::kAllGather, in.dtype, in.count), check_pair(out, in, size(), 1), timeout,
      [out, in = apart_from(out, in)](Exchange& exchange) {
        return run_spread(exchange, equal_parts(out, exchange.size()), in);
      },
      [&]() -> CoalescedParts {
        return {std::vector<ConstElements>(static_cast<size_t>(size()), in),
                equal_parts(out, size())};
      });
}

Work ProcessGroup::all_gather(std::vector<Elements> out, ConstElements in, Timeout timeout) {
  Status refused = check_elements(in);
  if (refused.ok() && static_cast<int>(out.size()) != size()) {
    refused = invalid_argument("{} parts for {} ranks", out.size(), size());
  }
  Call call = call_of(Operation::kAllGatherUneven, in.dtype, 0);
  for (const Elements& part : out) {
    if (refused.ok()) refused = check_elements(part);
    if (refused.ok() && part.dtype != in.dtype) {
      refused = invalid_argument("input of {} and output of {}", dtype_name(in.dtype),
                                 dtype_name(part.dtype));
    }
    if (!refused.ok()) break;
    call.count += part.count;
    call.detail = fnv1a(fmt::format("{} {}", call.detail, part.count));
    in = apart_from(part, in);
  }
  if (refused.ok() && out[static_cast<size_t>(rank())].count != in.count) {
    refused = invalid_argument("an input of {} elements and a place for {}", in.count,
                               out[static_cast<size_t>(rank())].count);
  }
  return start(call, refused, timeout, [out = std::move(out), in](Exchange& exchange) {
    return run_spread(exchange, out, in);
  });
}

Work ProcessGroup::gather(Elements out, ConstElements in, int root, Timeout timeout) {
  const bool is_root = rank() == root;
  return start(
      call_of(Operation::kGather, in.dtype, in.count, root),
      first_of({check_root(root), is_root ? check_pair(out, in, size(), 1) : check_elements(in)}),
      timeout,
      [out, in = apart_from(out, in), root, is_root](Exchange& exchange) {
        return run_moves(exchange,
                         is_root ? equal_parts(out, exchange.size())
                                 : std::vector<Elements>(static_cast<size_t>(exchange.size())),
                         at(exchange.size(), root, in));
      },
      [&]() -> CoalescedParts {
        return {at(size(), root, in), is_root ? equal_parts(out, size())
                                              : std::vector<Elements>(static_cast<size_t>(size()))};
      });
}

Work ProcessGroup::scatter(Elements out, ConstElements in, int root, Timeout timeout) {
  const bool is_root = rank() == root;
  return start(
      call_of(Operation::kScatter, out.dtype, out.count, root),
      first_of({check_root(root), is_root ? check_pair(out, in, 1, size()) : check_elements(out)}),
      timeout,
      [out, in = apart_from(out, in), root, is_root](Exchange& exchange) {
        return run_moves(exchange, at(exchange.size(), root, out),
                         is_root
                             ? equal_parts(in, exchange.size())
                             : std::vector<ConstElements>(static_cast<size_t>(exchange.size())));
      },
      [&]() -> CoalescedParts {
        return {is_root ? equal_parts(in, size())
                        : std::vector<ConstElements>(static_cast<size_t>(size())),
                at(size(), root, out)};
      });
}

Work ProcessGroup::reduce_scatter(Elements out, ConstElements in, Reduction by, Timeout timeout) {
  Status refused = first_of({check_pair(out, in, 1, size()), check_reduction(by, in.dtype)});
  if (refused.ok()) {
    refused = check_overlap(out, in, in.part(rank() * out.count, out.count));
  }
  return start(
      with_reduction(call_of(Operation::kReduceScatter, out.dtype, out.count), by), refused,
      timeout,
      [out, in, by](Exchange& exchange) { return run_reduce_scatter(exchange, out, in, by); },
      [&]() -> CoalescedParts {
        const std::vector<ConstElements> to = equal_parts(in, size());
        return {to, {}, by, out, to[static_cast<size_t>(rank())]};
      });
}

Work ProcessGroup::all_to_all(Elements out, ConstElements in, Timeout timeout) {
  const Status refused = check_pair(out, in, size(), size());
  const Call call = call_of(Operation::kAllToAll, in.dtype, in.count);
  if (!refused.ok()) return start(call, refused, timeout, nullptr);
  const std::vector<int64_t> splits(static_cast<size_t>(size()), in.count / size());
  return all_to_all(out, in, splits, splits, timeout);
}

Work ProcessGroup::all_to_all(Elements out, ConstElements in, std::vector<int64_t> out_splits,
                              std::vector<int64_t> in_splits, Timeout timeout) {
  Status refused = first_of({check_elements(out), check_elements(in),
                             check_splits(out_splits, out.count, size(), "output"),
                             check_splits(in_splits, in.count, size(), "input")});
  const auto self = static_cast<size_t>(rank());
  if (refused.ok() && out.dtype != in.dtype) {
    refused = invalid_argument("input of {} and output of {}", dtype_name(in.dtype),
                               dtype_name(out.dtype));
  }
  if (refused.ok() && out_splits[self] != in_splits[self]) {
    refused = invalid_argument("the rank's own part has {} elements going out and {} coming in",
                               in_splits[self], out_splits[self]);
  }
  return start(call_of(Operation::kAllToAll, in.dtype, 0), refused, timeout,
               [out, in = apart_from(out, in), out_splits, in_splits](Exchange& exchange) {
                 return run_moves(exchange, parts_of(out, out_splits), parts_of(in, in_splits));
               });
}

Work ProcessGroup::barrier(Timeout timeout) {
  return start(call_of(Operation::kBarrier, DType::kInvalid, 0), ok_status(), timeout,
               [](Exchange& exchange) { return run_barrier(exchange); });
}

Status ProcessGroup::monitored_barrier(Timeout timeout) {
  HEKLA_RETURN_IF_ERROR(check_may_wait("monitored_barrier"));
  return barrier(timeout).wait();
}

Work ProcessGroup::send(ConstElements x, int to, uint64_t tag, Timeout timeout) {
  const Status refused = first_of({check_elements(x), check_root(to)});
  if (!refused.ok()) {
    refuse_send(to, tag, refused);
    const Work work("send", refused.with_context("send on group " + name()));
    add_to_block(work);
    return work;
  }
  Work work = member_->send(std::move(x), to, tag, deadline_of(timeout));
  add_to_block(work);
  return work;
}

Work ProcessGroup::receive(Elements x, int from, uint64_t tag, Timeout timeout) {
  const Status refused =
      first_of({check_elements(x), from == kAnyRank ? ok_status() : check_root(from)});
  if (!refused.ok()) {
    const Work work("receive", refused.with_context("receive on group " + name()));
    add_to_block(work);
    return work;
  }
  Work work = member_->receive(std::move(x), from, tag, deadline_of(timeout));
  add_to_block(work);
  return work;
}

Work ProcessGroup::batch(const std::vector<Point>& points, Timeout timeout) {
  std::vector<Work> works;
  for (const Point& point : points) {
    works.push_back(point.is_send ? send(point.out, point.rank, point.tag, timeout)
                                  : receive(point.in, point.rank, point.tag, timeout));
  }
  return Work::all(fmt::format("a batch of {} messages", points.size()), works);
}

Result<std::shared_ptr<ProcessGroup>> ProcessGroup::make_group(std::string name,
                                                               const std::vector<int>& ranks,
                                                               Deadline deadline,
                                                               Timeout timeout) const {
  const auto self = std::find(ranks.begin(), ranks.end(), rank());
  if (self == ranks.end()) return std::shared_ptr<ProcessGroup>();
  std::vector<int> processes;
  for (const int r : ranks) processes.push_back(global_ranks()[static_cast<size_t>(r)]);
  Options options = options_;
  options.name = std::move(name);
  options.timeout = timeout.value_or(options.timeout);
  std::shared_ptr<ProcessGroup> group(new ProcessGroup(hub_, options, std::move(processes),
                                                       static_cast<int>(self - ranks.begin())));
  if (wants_memory(options, group->size())) HEKLA_RETURN_IF_ERROR(group->meet(deadline));
  return group;
}

Result<std::shared_ptr<ProcessGroup>> ProcessGroup::new_group(const std::vector<int>& ranks,
                                                              Timeout timeout) {
  HEKLA_RETURN_IF_ERROR(check_may_wait("new_group"));
  const Status refused = check_part(ranks);
  Call call = call_of(Operation::kNewGroup, DType::kInvalid, 0);
  call.detail = fnv1a(fmt::format("{} {}", call.detail, fmt::join(ranks, ",")));
  uint64_t number = 0;
  const Deadline deadline = deadline_of(timeout);
  const Work work = start(call, refused, timeout, [&number](Exchange& exchange) {
    number = exchange.sequence();
    return run_barrier(exchange);
  });
  HEKLA_RETURN_IF_ERROR(work.wait());
  return make_group(fmt::format("{}/{}", name(), number), ranks, deadline);
}

Result<std::shared_ptr<ProcessGroup>> ProcessGroup::subgroup(std::string_view name,
                                                             const std::vector<int>& ranks,
                                                             Timeout timeout) {
  HEKLA_RETURN_IF_ERROR(check_part(ranks));
  if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) {
    return invalid_argument("rank {} of group {} is none of those that make the group {}", rank(),
                            this->name(), name);
  }
  // Quoted, so that it is none of new_group's and split's. What comes late for a group that has
  // been left must not reach the next one of its name.
  std::string own = fmt::format("{}/{:?}", this->name(), name);
  int uses = 0;
  {
    const std::lock_guard lock(mutex_);
    uses = ++subgroups_[fmt::format("{} {}", own, fmt::join(ranks, ","))];
  }
  if (uses > 1) own += fmt::format("#{}", uses);
  return make_group(std::move(own), ranks, deadline_of(timeout), timeout);
}

Result<std::shared_ptr<ProcessGroup>> ProcessGroup::split(int64_t color, int64_t key,
                                                          Timeout timeout) {
  HEKLA_RETURN_IF_ERROR(check_may_wait("split"));
  // Of each rank; the number of the call as well, which is the same on all.
  const int64_t own[] = {color, key};
  std::vector<int64_t> all(2 * static_cast<size_t>(size()));
  uint64_t number = 0;
  const Deadline deadline = deadline_of(timeout);
  const ConstElements in(own, DType::kI64, 2);
  const Elements out = elements(std::span(all));
  const Work work = start(call_of(Operation::kAllGather, DType::kI64, 2), ok_status(), timeout,
                          [&](Exchange& exchange) {
                            number = exchange.sequence();
                            return run_spread(exchange, equal_parts(out, exchange.size()), in);
                          });
  HEKLA_RETURN_IF_ERROR(work.wait());
  if (color < 0) return std::shared_ptr<ProcessGroup>();
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    if (all[2 * static_cast<size_t>(r)] == color) ranks.push_back(r);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return all[2 * static_cast<size_t>(a) + 1] < all[2 * static_cast<size_t>(b) + 1];
  });
  return make_group(fmt::format("{}/{}.{}", name(), number, color), ranks, deadline);
}

}  // namespace hekla::process_group
