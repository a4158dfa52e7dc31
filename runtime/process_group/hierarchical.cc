// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/hierarchical.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "runtime/base/staging.h"
#include "runtime/process_group/slices.h"

namespace hekla::process_group {
namespace {

using Round = Exchange::Round;

// Of a lane: small enough that hosts soon have something to do, enough for what a message costs. On
// a link of 1 Gbit/s and lanes of 4 MiB sizes from 64 to 256 KiB were alike, 1 MiB a fifth slower;
// where links are as fast as memory 256 KiB of 64 MiB were slower than 1 MiB by half.
constexpr int64_t kLeastPieceBytes = int64_t{128} << 10;
constexpr int64_t kPiecesOfALane = 16;

// Elements that are reduced together.
struct Lane {
  int number;
  Slice slice;
  std::vector<int> owners;  // who does so, by host
  Elements out;             // where this rank wants the result; without memory: nowhere
};

std::vector<int> without(std::vector<int> ranks, int rank) {
  ranks.erase(std::remove(ranks.begin(), ranks.end(), rank), ranks.end());
  return ranks;
}

// A reduction on one rank.
class Reducer {
 public:
  Reducer(Exchange& exchange, const ConstElements& in, const Reduction& by, std::vector<Lane> lanes)
      : exchange_(exchange),
        layout_(exchange.layout()),
        host_(layout_.host(exchange.rank())),
        in_(in),
        by_(by),
        partial_bytes_(partial_bytes(by, in.dtype)),
        lanes_(std::move(lanes)) {}

  // Gets each piece of a result that this rank has made.
  using Deliver = std::function<Status(const Lane&, int64_t k, const ConstElements&)>;

  bool is_owner(const Lane& lane) const {
    return lane.owners[static_cast<size_t>(host_)] == exchange_.rank();
  }
  int host() const { return host_; }
  bool is_last_host() const { return host_ + 1 == layout_.hosts(); }

  // By the end of it the results of this rank's lanes have been made and delivered, if it is on the
  // last host.
  Status run(const Deliver& deliver) {
    const auto ranks = static_cast<size_t>(exchange_.size());
    HEKLA_RETURN_IF_ERROR(
        exchange_.begin(std::vector<ConstElements>(ranks), std::vector<int64_t>(ranks)));
    HEKLA_RETURN_IF_ERROR(for_pieces([&](const Lane& lane, int64_t k) -> Status {
      if (is_owner(lane)) return ok_status();
      return exchange_.send({lane.owners[static_cast<size_t>(host_)]}, Round::kOnHost, lane.number,
                            k, input(lane, k));
    }));
    return for_pieces([&](const Lane& lane, int64_t k) -> Status {
      return is_owner(lane) ? fold_piece(lane, k, deliver) : ok_status();
    });
  }

  Exchange::Piece piece(const Lane& lane, int64_t k) const {
    return exchange_.piece(lane.slice.count, k, piece_bytes(lane));
  }
  int64_t piece_count(const Lane& lane) const {
    return exchange_.piece_count(lane.slice.count, piece_bytes(lane));
  }
  // What rank `from` sends as a piece of the result, where this rank wants it.
  Result<Elements> take_result(const Lane& lane, int64_t k, int from) const {
    const Elements at = place(lane, k);
    HEKLA_ASSIGN_OR_RETURN(const HostArray block,
                           exchange_.take(from, Round::kResults, lane.number, k, at.size_bytes()));
    exchange_.deliver(block, at);
    return at;
  }
  // All pieces, first ones first, so that the ranks of a host and the hosts get theirs in turn.
  Status for_pieces(const std::function<Status(const Lane&, int64_t k)>& each) const {
    int64_t most = 0;
    for (const Lane& lane : lanes_) most = std::max(most, piece_count(lane));
    for (int64_t k = 0; k < most; ++k) {
      for (const Lane& lane : lanes_) {
        if (k < piece_count(lane)) HEKLA_RETURN_IF_ERROR(each(lane, k));
      }
    }
    return ok_status();
  }

 private:
  int64_t piece_bytes(const Lane& lane) const {
    return std::max(kLeastPieceBytes, lane.slice.count * dtype_bytes(in_.dtype) / kPiecesOfALane);
  }
  Elements place(const Lane& lane, int64_t k) const {
    if (lane.out.data == nullptr) return {};
    const auto [first, count] = piece(lane, k);
    return lane.out.part(first, count);
  }
  ConstElements input(const Lane& lane, int64_t k) const {
    const auto [first, count] = piece(lane, k);
    return in_.part(lane.slice.first + first, count);
  }

  Status fold_piece(const Lane& lane, int64_t k, const Deliver& deliver) {
    const auto [first, count] = piece(lane, k);
    const std::vector<int>& ranks = layout_.on(host_);
    std::vector<HostArray> blocks(ranks.size());
    std::vector<const std::byte*> inputs(ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] == exchange_.rank()) {
        inputs[i] = input(lane, k).bytes();
        continue;
      }
      HEKLA_ASSIGN_OR_RETURN(blocks[i], exchange_.take(ranks[i], Round::kOnHost, lane.number, k,
                                                       count * dtype_bytes(in_.dtype)));
      inputs[i] = blocks[i].data();
    }
    HostArray before;
    if (host_ > 0) {
      const int from = lane.owners[static_cast<size_t>(host_) - 1];
      HEKLA_ASSIGN_OR_RETURN(
          before, exchange_.take(from, Round::kPartials, lane.number, k, count * partial_bytes_));
    }
    const std::byte* const folded = host_ > 0 ? before.data() : nullptr;
    if (is_last_host()) {
      const Elements out = place(lane, k);
      HostArray scratch;
      if (out.data == nullptr) {
        HEKLA_ASSIGN_OR_RETURN(scratch, Staging::allocate(in_.dtype, {count}));
      }
      reduce_rest(by_, in_.dtype, count, folded, inputs, exchange_.size(),
                  out.data == nullptr ? scratch.mutable_data() : out.bytes());
      return deliver(lane, k, out.data == nullptr ? elements(std::as_const(scratch)) : out);
    }
    HEKLA_ASSIGN_OR_RETURN(HostArray partials,
                           Staging::allocate(DType::kUI8, {count * partial_bytes_}));
    reduce_partly(by_, in_.dtype, count, folded, inputs, partials.mutable_data());
    return exchange_.send({lane.owners[static_cast<size_t>(host_) + 1]}, Round::kPartials,
                          lane.number, k, elements(std::as_const(partials)));
  }

  Exchange& exchange_;
  const HostLayout& layout_;
  const int host_;
  const ConstElements in_;
  const Reduction by_;
  const int64_t partial_bytes_;
  const std::vector<Lane> lanes_;
};

// The elements in as many slices as a host has ranks at most.
std::vector<Lane> slices_of(const HostLayout& layout, int64_t count, const Elements& out) {
  const int lanes = layout.most_on_a_host();
  std::vector<Lane> all;
  for (int i = 0; i < lanes; ++i) {
    const Slice slice = slice_of(count, lanes, i);
    all.push_back({i, slice, {}, out.data == nullptr ? out : out.part(slice.first, slice.count)});
    for (int h = 0; h < layout.hosts(); ++h) all.back().owners.push_back(layout.worker(h, i));
  }
  return all;
}

// Each lane's result goes to one rank.
Status reduce_to_receivers(Exchange& exchange, Reducer& reducer,
                           const std::function<int(const Lane&)>& receiver_of) {
  HEKLA_RETURN_IF_ERROR(
      reducer.run([&](const Lane& lane, int64_t k, const ConstElements& piece) -> Status {
        const int receiver = receiver_of(lane);
        if (receiver == exchange.rank()) return ok_status();
        return exchange.send({receiver}, Round::kResults, lane.number, k, piece);
      }));
  return reducer.for_pieces([&](const Lane& lane, int64_t k) -> Status {
    const int from = lane.owners.back();
    if (receiver_of(lane) != exchange.rank() || from == exchange.rank()) return ok_status();
    return reducer.take_result(lane, k, from).status();
  });
}

}  // namespace

Status hierarchical_all_reduce(Exchange& exchange, const Elements& out, const ConstElements& in,
                               const Reduction& by) {
  const HostLayout& layout = exchange.layout();
  Reducer reducer(exchange, in, by, slices_of(layout, in.count, out));
  const auto host = static_cast<size_t>(reducer.host());
  // To the host before and to the others on this one.
  const auto pass_on = [&](const Lane& lane, int64_t k, const ConstElements& piece) -> Status {
    std::vector<int> to = without(layout.on(reducer.host()), exchange.rank());
    if (host > 0) to.insert(to.begin(), lane.owners[host - 1]);
    return exchange.send(to, Round::kResults, lane.number, k, piece);
  };
  HEKLA_RETURN_IF_ERROR(reducer.run(pass_on));
  if (!reducer.is_last_host()) {
    HEKLA_RETURN_IF_ERROR(reducer.for_pieces([&](const Lane& lane, int64_t k) -> Status {
      if (!reducer.is_owner(lane)) return ok_status();
      HEKLA_ASSIGN_OR_RETURN(const Elements piece,
                             reducer.take_result(lane, k, lane.owners[host + 1]));
      return pass_on(lane, k, piece);
    }));
  }
  return reducer.for_pieces([&](const Lane& lane, int64_t k) -> Status {
    if (reducer.is_owner(lane)) return ok_status();
    return reducer.take_result(lane, k, lane.owners[host]).status();
  });
}

Status hierarchical_reduce(Exchange& exchange, const Elements& out, const ConstElements& in,
                           int root, const Reduction& by) {
  const bool is_root = exchange.rank() == root;
  Reducer reducer(exchange, in, by,
                  slices_of(exchange.layout(), in.count, is_root ? out : Elements()));
  return reduce_to_receivers(exchange, reducer, [root](const Lane&) { return root; });
}

Status hierarchical_reduce_scatter(Exchange& exchange, const Elements& out, const ConstElements& in,
                                   const Reduction& by) {
  const HostLayout& layout = exchange.layout();
  // Each rank's part is a lane, which is its own on its host.
  std::vector<Lane> lanes;
  for (int r = 0; r < exchange.size(); ++r) {
    lanes.push_back({r, {r * out.count, out.count}, {}, r == exchange.rank() ? out : Elements()});
    for (int h = 0; h < layout.hosts(); ++h) lanes.back().owners.push_back(layout.proxy(h, r));
  }
  Reducer reducer(exchange, in, by, std::move(lanes));
  return reduce_to_receivers(exchange, reducer, [](const Lane& lane) { return lane.number; });
}

Status hierarchical_spread(Exchange& exchange, const std::vector<Elements>& out,
                           const ConstElements& in) {
  const HostLayout& layout = exchange.layout();
  const int own = exchange.rank(), size = exchange.size();
  const int host = layout.host(own);
  // Whom p's elements reach from p itself.
  const auto is_direct = [&](const ConstElements& x, int p, int to) {
    return exchange.is_flat(x) || layout.proxy(layout.host(to), p) == to ||
           layout.host(to) == layout.host(p);
  };
  std::vector<ConstElements> parts(static_cast<size_t>(size));
  std::vector<int64_t> expected(static_cast<size_t>(size));
  for (int p = 0; p < size; ++p) {
    const auto at = static_cast<size_t>(p);
    if (is_direct(in, own, p)) parts[at] = in;
    if (is_direct(out[at], p, own)) expected[at] = out[at].count;
  }
  // Few of them share memory with what is sent: those wait for begin(), which copies it.
  const auto expect_all = [&] {
    for (int p = 0; p < size; ++p) {
      const Elements& part = out[static_cast<size_t>(p)];
      if (p == own) continue;
      if (is_direct(part, p, own)) {
        exchange.expect(p, Round::kParts, 0, part);
      } else {
        exchange.expect(layout.proxy(host, p), Round::kResults, p, part);
      }
    }
  };
  const bool is_apart = are_apart({in}, out, own);
  if (is_apart) expect_all();
  HEKLA_RETURN_IF_ERROR(exchange.begin(parts, expected));
  // First of all: what comes from others may lie on it.
  exchange.deliver(in.data, out[static_cast<size_t>(own)]);
  if (!is_apart) expect_all();
  // What others on this host wait for comes first, so that no two proxies wait for each other.
  enum class Turn { kAsProxy, kDirect, kFromProxy };
  const auto turn_of = [&](int p) {
    const Elements& part = out[static_cast<size_t>(p)];
    if (!is_direct(part, p, own)) return Turn::kFromProxy;
    const bool is_far = layout.host(p) != host && !exchange.is_flat(part);
    return is_far ? Turn::kAsProxy : Turn::kDirect;
  };
  const std::vector<int> neighbours = without(layout.on(host), own);
  for (const Turn turn : {Turn::kAsProxy, Turn::kDirect, Turn::kFromProxy}) {
    for (int i = 1; i < size; ++i) {
      const int p = (own + i) % size;
      if (turn_of(p) != turn) continue;
      const Elements& part = out[static_cast<size_t>(p)];
      for (int64_t k = 0; k < exchange.piece_count(part.count); ++k) {
        const auto [first, count] = exchange.piece(part.count, k);
        const Elements at = part.part(first, count);
        HEKLA_ASSIGN_OR_RETURN(
            const HostArray block,
            turn != Turn::kFromProxy
                ? exchange.take(p, k)
                : exchange.take(layout.proxy(host, p), Round::kResults, p, k, at.size_bytes()));
        exchange.deliver(block, at);
        if (turn == Turn::kAsProxy) {
          HEKLA_RETURN_IF_ERROR(exchange.send(neighbours, Round::kResults, p, k, at));
        }
      }
    }
  }
  return ok_status();
}

}  // namespace hekla::process_group
