// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/coalesced.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "runtime/base/copy_bytes.h"
#include "runtime/base/hash.h"

namespace hekla::process_group {
namespace {

constexpr int64_t kAlign = 16;  // of each part, for the loops over elements

int64_t room(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// What a member expects of a rank.
int64_t expected_bytes(const CoalescedParts& parts, size_t rank) {
  return parts.by ? parts.out.size_bytes() : parts.from[rank].size_bytes();
}

struct Side {
  HostArray memory;
  std::vector<int64_t> first;  // byte of each rank's part, and of the end
  Elements part(size_t rank) {
    return Elements{memory.mutable_data(), DType::kUI8, memory.size()}.part(
        first[rank], first[rank + 1] - first[rank]);
  }
};

// `bytes_of(member, rank)` of each, none for this rank itself.
template <typename BytesOf>
Result<Side> side_of(size_t members, size_t ranks, size_t self, const BytesOf& bytes_of) {
  Side side;
  int64_t all = 0;
  for (size_t r = 0; r < ranks; ++r) {
    side.first.push_back(all);
    for (size_t m = 0; r != self && m < members; ++m) all += room(bytes_of(m, r));
  }
  side.first.push_back(all);
  HEKLA_ASSIGN_OR_RETURN(side.memory, HostArray::allocate(DType::kUI8, {all}));
  return side;
}

void take(const CoalescedParts& parts, const std::vector<const std::byte*>& incoming, size_t self) {
  if (parts.by) {
    if (parts.out.count == 0) return;
    std::vector<const std::byte*> inputs = incoming;
    inputs[self] = parts.own.bytes();
    reduce(*parts.by, parts.out.dtype, parts.out.count, inputs, parts.out.bytes());
    return;
  }
  const Elements& own = parts.from[self];
  move_bytes(own.data, parts.to[self].data, own.size_bytes());
  for (size_t r = 0; r < incoming.size(); ++r) {
    if (r != self) copy_bytes(parts.from[r].bytes(), incoming[r], parts.from[r].size_bytes());
  }
}

// All members as one exchange of bytes.
Status run_moves_of(Exchange& exchange, const std::vector<CoalescedParts>& members) {
  const auto ranks = static_cast<size_t>(exchange.size());
  const auto self = static_cast<size_t>(exchange.rank());
  HEKLA_ASSIGN_OR_RETURN(Side out, side_of(members.size(), ranks, self, [&](size_t m, size_t r) {
                           return members[m].to[r].size_bytes();
                         }));
  HEKLA_ASSIGN_OR_RETURN(Side in, side_of(members.size(), ranks, self, [&](size_t m, size_t r) {
                           return expected_bytes(members[m], r);
                         }));
  std::vector<ConstElements> to;
  std::vector<Elements> from;
  for (size_t r = 0; r < ranks; ++r) {
    const Elements part = out.part(r);
    std::byte* at = part.bytes();
    for (size_t m = 0; r != self && m < members.size(); ++m) {
      const ConstElements& own = members[m].to[r];
      copy_bytes(at, own.data, own.size_bytes());
      at += room(own.size_bytes());
    }
    to.push_back(part);
    from.push_back(in.part(r));
  }
  HEKLA_RETURN_IF_ERROR(run_moves(exchange, from, to));
  std::vector<const std::byte*> incoming;
  for (const Elements& part : from) incoming.push_back(part.bytes());
  for (const CoalescedParts& member : members) {
    take(member, incoming, self);
    for (size_t r = 0; r < ranks; ++r) {
      if (r != self) incoming[r] += room(expected_bytes(member, r));
    }
  }
  return ok_status();
}

// all_reduces of one kind as one.
Status run_sums_of(Exchange& exchange, const std::vector<CoalescedParts>& members) {
  int64_t count = 0;
  for (const CoalescedParts& member : members) count += member.out.count;
  HEKLA_ASSIGN_OR_RETURN(HostArray memory,
                         HostArray::allocate(members[0].out.dtype, {count}, false));
  const Elements all = elements(memory);
  std::byte* at = all.bytes();
  for (const CoalescedParts& member : members) {
    copy_bytes(at, member.own.data, member.own.size_bytes());
    at += member.own.size_bytes();
  }
  HEKLA_RETURN_IF_ERROR(run_all_reduce(exchange, all, all, *members[0].by));
  at = all.bytes();
  for (const CoalescedParts& member : members) {
    copy_bytes(member.out.bytes(), at, member.out.size_bytes());
    at += member.out.size_bytes();
  }
  return ok_status();
}

uint64_t signature(const Call& call, uint64_t before) {
  return fnv1a(fmt::format("{} {} {} {} {} {} {} {}", before, static_cast<int>(call.operation),
                           static_cast<int>(call.dtype), static_cast<int>(call.reduce), call.root,
                           call.count, call.factor, call.detail));
}

bool is_small(const Coalesced::Member& member, int64_t most_bytes) {
  return !member.parts.to.empty() &&
         member.call.count <= most_bytes / std::max<int64_t>(1, dtype_bytes(member.call.dtype));
}

}  // namespace

Work Coalesced::add(Member member) {
  member.state = std::make_shared<Work::State>();
  member.state->collective = member.call;
  member.state->is_held = true;
  members_.push_back(std::move(member));
  return Work(members_.back().state);
}

std::vector<Coalesced::Pack> Coalesced::packs(int64_t most_bytes) const {
  // All small all_reduces of a kind, all other small ones, and each large one.
  using Kind = std::tuple<int, DType, ReduceOp, uint64_t>;
  std::vector<std::vector<size_t>> groups;
  std::map<Kind, size_t> open;
  for (size_t i = 0; i < members_.size(); ++i) {
    const Call& call = members_[i].call;
    if (!is_small(members_[i], most_bytes)) {
      groups.push_back({i});
      continue;
    }
    const bool is_sum = call.operation == Operation::kAllReduce;
    const Kind kind = is_sum ? Kind{1, call.dtype, call.reduce, call.factor} : Kind{};
    const auto [found, is_new] = open.emplace(kind, groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(i);
  }
  std::vector<Pack> all;
  for (const std::vector<size_t>& group : groups) {
    const Member& first = members_[group[0]];
    if (group.size() == 1) {
      all.push_back({first.call, first.run, group});
      continue;
    }
    std::vector<CoalescedParts> parts;
    Pack pack{first.call, {}, group};
    pack.call.detail = 0;
    int64_t count = 0;
    for (const size_t i : group) {
      pack.call.detail = signature(members_[i].call, pack.call.detail);
      count += members_[i].call.count;
      parts.push_back(members_[i].parts);
    }
    if (first.call.operation == Operation::kAllReduce) {
      pack.call.count = count;
      pack.run = [parts = std::move(parts)](Exchange& exchange) {
        return run_sums_of(exchange, parts);
      };
    } else {
      pack.call.operation = Operation::kCoalesced;
      pack.call.dtype = DType::kUI8;
      pack.call.reduce = ReduceOp::kSum;
      pack.call.factor = 0;
      pack.call.root = -1;
      pack.call.count = static_cast<int64_t>(group.size());
      pack.run = [parts = std::move(parts)](Exchange& exchange) {
        return run_moves_of(exchange, parts);
      };
    }
    all.push_back(std::move(pack));
  }
  return all;
}

std::string Coalesced::to_string() const {
  constexpr size_t kNamed = 4;
  std::string text = fmt::format("{} calls at once", members_.size() + points_.size());
  for (size_t i = 0; i < std::min(kNamed, members_.size()); ++i) {
    text += (i == 0 ? ": " : ", ") + members_[i].call.to_string();
  }
  if (members_.size() > kNamed) text += ", ..";
  return text;
}

}  // namespace hekla::process_group
