// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/exchange.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "runtime/base/copy_bytes.h"
#include "runtime/base/staging.h"
#include "runtime/process_group/hierarchical.h"
#include "runtime/process_group/shared_collectives.h"
#include "runtime/process_group/slices.h"

namespace hekla::process_group {
namespace {

bool is_same(const ConstElements& a, const ConstElements& b) {
  return a.data == b.data && a.count == b.count;
}

// How much later than the call's deadline a wait for another rank's pieces ends, which that sends
// when all have come to the call, or makes of others' elements: whoever waits for the late one
// itself names it first.
constexpr std::chrono::milliseconds kGrace(100);

Status check_piece(const HostArray& block, int from, int64_t bytes) {
  if (block.size_bytes() == bytes) return ok_status();
  return data_loss("rank {} sent {} bytes where {} belong", from, block.size_bytes(), bytes);
}

}  // namespace

Exchange::Exchange(Member& member, const Options& options, uint64_t sequence, const Call& call,
                   Deadline deadline)
    : member_(member),
      options_(options),
      sequence_(sequence),
      call_(call),
      deadline_(deadline),
      width_(std::max<int64_t>(1, dtype_bytes(call.dtype))) {}

std::optional<SharedCall> Exchange::shared() const {
  GroupMemory* const memory = member_.memory();
  if (memory == nullptr) return {};
  return std::optional<SharedCall>(std::in_place, member_, *memory, options_, sequence_, call_,
                                   deadline_);
}

uint64_t Exchange::step_of(Round round, int lane, int64_t k) {
  return static_cast<uint64_t>(round) << 60 | static_cast<uint64_t>(lane) << 36 |
         static_cast<uint64_t>(k);
}

void Exchange::post(int to, Head::Kind kind, uint64_t step, int64_t part, const HostArray& block,
                    bool is_callers) {
  Head head;
  head.kind = kind;
  head.sequence = sequence_;
  head.step = step;
  head.part = part;
  head.call = call_;
  CompletionRef sent;
  if (is_callers) sending_.emplace_back(to, sent = Completion::make());
  std::vector<HostArray> blocks;
  if (block.size_bytes() > 0) blocks.push_back(block);
  member_.post(to, std::move(head), std::move(blocks), std::move(sent));
}

int64_t Exchange::most_elements(int64_t most_bytes) const {
  return std::max<int64_t>(1, std::min(options_.segment_bytes, most_bytes) / width_);
}

int64_t Exchange::piece_count(int64_t count, int64_t most_bytes) const {
  if (count * width_ <= options_.flat_bytes) return count == 0 ? 0 : 1;
  const int64_t most = most_elements(most_bytes);
  return (count + most - 1) / most;
}

Exchange::Piece Exchange::piece(int64_t count, int64_t k, int64_t most_bytes) const {
  if (count * width_ <= options_.flat_bytes) return {0, count};
  const int64_t most = most_elements(most_bytes);
  return {k * most, std::min(most, count - k * most)};
}

Status Exchange::begin(const std::vector<ConstElements>& parts,
                       const std::vector<int64_t>& expected) {
  expected_ = expected;
  // Ranks begin with their neighbours, so that not all send to rank 0 first.
  std::vector<int> others;
  for (int i = 1; i < size(); ++i) others.push_back((rank() + i) % size());
  HostArray block;
  const ConstElements* has = nullptr;
  int64_t pieces = 0;
  for (const int p : others) {
    const ConstElements& part = parts[static_cast<size_t>(p)];
    const bool rides = is_flat(part) && part.count > 0;
    if (rides && (has == nullptr || !is_same(*has, part))) {
      HEKLA_ASSIGN_OR_RETURN(block, block_of(part, is_flat(part)));
      has = &part;
    }
    if (!rides) pieces = std::max(pieces, piece_count(part.count));
    post(p, Head::Kind::kCall, 0, part.count, rides ? block : HostArray(), false);
  }
  const int64_t early = std::min<int64_t>(pieces, options_.early_pieces);
  HEKLA_RETURN_IF_ERROR(send_pieces(parts, others, 0, early));
  HEKLA_ASSIGN_OR_RETURN(std::vector<Mail> mails, member_.meet(sequence_, call_, deadline_));
  ridden_.resize(mails.size());
  for (const int p : others) {
    Mail& mail = mails[static_cast<size_t>(p)];
    const int64_t count = expected_[static_cast<size_t>(p)];
    if (mail.head.part != count) {
      return failed_precondition(
          "call {}, {}: rank {} has {} elements for rank {}, which expects {}", sequence_,
          call_.to_string(), p, mail.head.part, rank(), count);
    }
    if (count == 0 || count * width_ > options_.flat_bytes) continue;
    if (mail.blocks.size() != 1) return data_loss("rank {} sent a call without its part", p);
    HEKLA_RETURN_IF_ERROR(check_piece(mail.blocks[0], p, count * width_));
    ridden_[static_cast<size_t>(p)] = std::move(mail.blocks[0]);
  }
  return send_pieces(parts, others, early, pieces);
}

Status Exchange::send_pieces(const std::vector<ConstElements>& parts, const std::vector<int>& to,
                             int64_t begin, int64_t end) {
  for (int64_t k = begin; k < end; ++k) {
    ConstElements last;
    HostArray piece_block;
    bool has_block = false;
    for (const int p : to) {
      const ConstElements& part = parts[static_cast<size_t>(p)];
      if (is_flat(part) || k >= piece_count(part.count)) continue;
      const auto [first, count] = piece(part.count, k);
      const ConstElements now = part.part(first, count);
      if (!has_block || !is_same(last, now)) {
        HEKLA_ASSIGN_OR_RETURN(piece_block, block_of(now, is_flat(now)));
        last = now;
        has_block = true;
      }
      post(p, Head::Kind::kData, step_of(Round::kParts, 0, k), 0, piece_block,
           now.owner != nullptr);
    }
  }
  return ok_status();
}

Result<HostArray> Exchange::take(int from, Round round, int lane, int64_t k, int64_t bytes) {
  const Deadline until = deadline_.is_never() ? deadline_ : Deadline::at(deadline_.time() + kGrace);
  HEKLA_ASSIGN_OR_RETURN(HostArray block,
                         member_.take(sequence_, call_, step_of(round, lane, k), from, until));
  HEKLA_RETURN_IF_ERROR(check_piece(block, from, bytes));
  return block;
}

Result<HostArray> Exchange::take(int from, int64_t k) {
  const int64_t count = expected_[static_cast<size_t>(from)];
  if (count * width_ <= options_.flat_bytes) return ridden_[static_cast<size_t>(from)];
  return take(from, Round::kParts, 0, k, piece(count, k).count * width_);
}

Status Exchange::send(const std::vector<int>& to, Round round, int lane, int64_t k,
                      const ConstElements& piece) {
  if (to.empty()) return ok_status();
  HEKLA_ASSIGN_OR_RETURN(const HostArray block, block_of(piece, is_flat(piece)));
  for (const int p : to) {
    post(p, Head::Kind::kData, step_of(round, lane, k), 0, block, piece.owner != nullptr);
  }
  return ok_status();
}

Status Exchange::send_result(const std::vector<int>& to, int64_t k, const ConstElements& piece) {
  return send(to, Round::kResults, 0, k, piece);
}

Result<HostArray> Exchange::take_result(int from, int64_t count, int64_t k) {
  return take(from, Round::kResults, 0, k, piece(count, k).count * width_);
}

Status Exchange::finish() {
  for (const auto& [to, sent] : sending_) {
    if (!sent->await_until(deadline_)) {
      return deadline_exceeded("call {}, {}: {} does not take what is sent to it", sequence_,
                               call_.to_string(), member_.describe(to));
    }
    HEKLA_RETURN_IF_ERROR(sent->status().with_context(
        fmt::format("call {}, {}: rank {} is gone", sequence_, call_.to_string(), to)));
  }
  return ok_status();
}

void Exchange::expect(int from, Round round, int lane, const Elements& to) {
  if (!options_.direct_receive || is_flat(to)) return;
  DirectReceives& receives = member_.direct_receives(call_);
  for (int64_t k = 0; k < piece_count(to.count); ++k) {
    const auto [first, count] = piece(to.count, k);
    const Elements now = to.part(first, count);
    receives.expect(from, step_of(round, lane, k),
                    {now.bytes(), static_cast<size_t>(now.size_bytes())});
  }
}

void Exchange::deliver(const void* from, const Elements& to) const {
  if (from == to.data) return;
  const auto distance = std::abs(static_cast<const std::byte*>(from) - to.bytes());
  if (distance < to.size_bytes()) return move_bytes(to.data, from, to.size_bytes());
  if (to.size_bytes() >= options_.stream_piece_bytes) {
    return stream_bytes(to.data, from, to.size_bytes());
  }
  copy_bytes(to.data, from, to.size_bytes());
}

bool are_apart(const std::vector<ConstElements>& in, const std::vector<Elements>& out, int rank) {
  const std::byte *begin = nullptr, *end = nullptr;
  for (const ConstElements& part : in) {
    if (part.count == 0) continue;
    const std::byte* const last = part.bytes() + part.size_bytes();
    begin = begin == nullptr ? part.bytes() : std::min(begin, part.bytes());
    end = end == nullptr ? last : std::max(end, last);
  }
  for (size_t p = 0; p < out.size() && begin != nullptr; ++p) {
    if (static_cast<int>(p) == rank || out[p].count == 0) continue;
    if (out[p].bytes() < end && begin < out[p].bytes() + out[p].size_bytes()) return false;
  }
  return true;
}

namespace {

// Folds piece k of what all ranks have for this one.
Status fold_piece_of_all(Exchange& exchange, const ConstElements& own, const Reduction& by,
                         int64_t k, std::byte* out) {
  std::vector<HostArray> blocks(static_cast<size_t>(exchange.size()));
  std::vector<const std::byte*> inputs(blocks.size());
  const auto [first, count] = exchange.piece(own.count, k);
  for (int r = 0; r < exchange.size(); ++r) {
    const auto at = static_cast<size_t>(r);
    if (r == exchange.rank()) {
      inputs[at] = own.part(first, count).bytes();
      continue;
    }
    HEKLA_ASSIGN_OR_RETURN(blocks[at], exchange.take(r, k));
    inputs[at] = blocks[at].data();
  }
  reduce(by, own.dtype, count, inputs, out);
  return ok_status();
}

Status fold_all(Exchange& exchange, const Elements& out, const ConstElements& own,
                const Reduction& by) {
  for (int64_t k = 0; k < exchange.piece_count(own.count); ++k) {
    const auto [first, count] = exchange.piece(own.count, k);
    HEKLA_RETURN_IF_ERROR(fold_piece_of_all(exchange, own, by, k, out.part(first, count).bytes()));
  }
  return ok_status();
}

std::vector<int> others_of(const Exchange& exchange) {
  std::vector<int> others;
  for (int i = 1; i < exchange.size(); ++i) {
    others.push_back((exchange.rank() + i) % exchange.size());
  }
  return others;
}

// Each rank reduces its slice and sends it to those in `to`; `out` takes all slices of the result
// where this rank is one of the receivers, else nothing is written.
Status reduce_by_slices(Exchange& exchange, const Elements* out, const ConstElements& in,
                        const Reduction& by, const std::vector<int>& to) {
  const auto ranks = static_cast<size_t>(exchange.size());
  const Slice own = slice_of(in.count, exchange.size(), exchange.rank());
  std::vector<ConstElements> parts(ranks);
  for (int p = 0; p < exchange.size(); ++p) {
    const Slice slice = slice_of(in.count, exchange.size(), p);
    parts[static_cast<size_t>(p)] = in.part(slice.first, slice.count);
  }
  // Of a slice only what its owner has received is written, in place too.
  for (int p = 0; p < exchange.size() && out != nullptr; ++p) {
    if (p == exchange.rank()) continue;
    const Slice slice = slice_of(in.count, exchange.size(), p);
    exchange.expect(p, Exchange::Round::kResults, 0, out->part(slice.first, slice.count));
  }
  HEKLA_RETURN_IF_ERROR(exchange.begin(parts, std::vector<int64_t>(ranks, own.count)));
  const ConstElements mine = in.part(own.first, own.count);
  for (int64_t k = 0; k < exchange.piece_count(own.count); ++k) {
    const auto [first, count] = exchange.piece(own.count, k);
    if (out != nullptr) {
      const Elements result = out->part(own.first + first, count);
      HEKLA_RETURN_IF_ERROR(fold_piece_of_all(exchange, mine, by, k, result.bytes()));
      HEKLA_RETURN_IF_ERROR(exchange.send_result(to, k, result));
      continue;
    }
    HEKLA_ASSIGN_OR_RETURN(HostArray result, Staging::allocate(in.dtype, {count}));
    HEKLA_RETURN_IF_ERROR(fold_piece_of_all(exchange, mine, by, k, result.mutable_data()));
    HEKLA_RETURN_IF_ERROR(exchange.send_result(to, k, elements(std::as_const(result))));
  }
  if (out == nullptr) return ok_status();
  for (const int p : others_of(exchange)) {
    const Slice slice = slice_of(in.count, exchange.size(), p);
    for (int64_t k = 0; k < exchange.piece_count(slice.count); ++k) {
      HEKLA_ASSIGN_OR_RETURN(const HostArray block, exchange.take_result(p, slice.count, k));
      const auto [first, count] = exchange.piece(slice.count, k);
      exchange.deliver(block, out->part(slice.first + first, count));
    }
  }
  return ok_status();
}

// Whether a reduction of that many elements for each who folds some goes from host to host: where
// fewer bytes leave a host then. `has_results`: that go to all, too.
bool is_hierarchical(const Exchange& exchange, const ConstElements& x, const Reduction& by,
                     bool has_results) {
  const HostLayout& layout = exchange.layout();
  if (!layout.has_levels() || !layout.is_in_rows() || exchange.is_flat(x)) return false;
  if (exchange.is_layout_forced()) return true;
  const auto partial =
      static_cast<double>(partial_bytes(by, x.dtype)) / static_cast<double>(dtype_bytes(x.dtype));
  // A host in the midst passes results on as well.
  const double leaving = partial + (has_results && layout.hosts() > 2 ? 1 : 0);
  return (has_results ? 2 : 1) * layout.most_leaving() > leaving;
}

}  // namespace

Status run_barrier(Exchange& exchange) {
  if (auto shared = exchange.shared()) return shared_barrier(*shared);
  const auto ranks = static_cast<size_t>(exchange.size());
  return exchange.begin(std::vector<ConstElements>(ranks), std::vector<int64_t>(ranks));
}

Status run_all_reduce(Exchange& exchange, const Elements& out, const ConstElements& in,
                      const Reduction& by) {
  if (auto shared = exchange.shared()) return shared_all_reduce(*shared, out, in, by);
  if (is_hierarchical(exchange, in, by, true)) {
    return hierarchical_all_reduce(exchange, out, in, by);
  }
  if (!exchange.is_flat(in)) return reduce_by_slices(exchange, &out, in, by, others_of(exchange));
  const auto ranks = static_cast<size_t>(exchange.size());
  HEKLA_RETURN_IF_ERROR(
      exchange.begin(std::vector<ConstElements>(ranks, in), std::vector<int64_t>(ranks, in.count)));
  return fold_all(exchange, out, in, by);
}

Status run_reduce(Exchange& exchange, const Elements& out, const ConstElements& in, int root,
                  const Reduction& by) {
  if (auto shared = exchange.shared()) return shared_reduce(*shared, out, in, root, by);
  if (is_hierarchical(exchange, in, by, false)) {
    return hierarchical_reduce(exchange, out, in, root, by);
  }
  const bool is_root = exchange.rank() == root;
  if (!exchange.is_flat(in)) {
    return reduce_by_slices(exchange, is_root ? &out : nullptr, in, by,
                            is_root ? std::vector<int>() : std::vector<int>{root});
  }
  const auto ranks = static_cast<size_t>(exchange.size());
  std::vector<ConstElements> parts(ranks);
  parts[static_cast<size_t>(root)] = in;
  HEKLA_RETURN_IF_ERROR(exchange.begin(parts, std::vector<int64_t>(ranks, is_root ? in.count : 0)));
  return is_root ? fold_all(exchange, out, in, by) : ok_status();
}

Status run_reduce_scatter(Exchange& exchange, const Elements& out, const ConstElements& in,
                          const Reduction& by) {
  if (auto shared = exchange.shared()) return shared_reduce_scatter(*shared, out, in, by);
  if (is_hierarchical(exchange, out, by, false)) {
    return hierarchical_reduce_scatter(exchange, out, in, by);
  }
  const auto ranks = static_cast<size_t>(exchange.size());
  std::vector<ConstElements> parts(ranks);
  for (size_t p = 0; p < ranks; ++p) {
    parts[p] = in.part(static_cast<int64_t>(p) * out.count, out.count);
  }
  HEKLA_RETURN_IF_ERROR(exchange.begin(parts, std::vector<int64_t>(ranks, out.count)));
  return fold_all(exchange, out, parts[static_cast<size_t>(exchange.rank())], by);
}

Status run_spread(Exchange& exchange, const std::vector<Elements>& out, const ConstElements& in) {
  if (exchange.layout().has_levels() && !exchange.shared()) {
    return hierarchical_spread(exchange, out, in);
  }
  return run_moves(exchange, out, std::vector<ConstElements>(out.size(), in));
}

Status run_moves(Exchange& exchange, const std::vector<Elements>& out,
                 const std::vector<ConstElements>& in) {
  if (auto shared = exchange.shared()) return shared_moves(*shared, out, in);
  std::vector<int64_t> expected;
  for (const Elements& part : out) expected.push_back(part.count);
  const auto expect_all = [&] {
    for (const int p : others_of(exchange)) {
      exchange.expect(p, Exchange::Round::kParts, 0, out[static_cast<size_t>(p)]);
    }
  };
  const bool is_apart = are_apart(in, out, exchange.rank());
  if (is_apart) expect_all();
  HEKLA_RETURN_IF_ERROR(exchange.begin(in, expected));
  // First of all: what comes from others may lie on it.
  const auto own = static_cast<size_t>(exchange.rank());
  exchange.deliver(in[own].data, out[own]);
  if (!is_apart) expect_all();
  for (const int p : others_of(exchange)) {
    const Elements& part = out[static_cast<size_t>(p)];
    for (int64_t k = 0; k < exchange.piece_count(part.count); ++k) {
      HEKLA_ASSIGN_OR_RETURN(const HostArray block, exchange.take(p, k));
      const auto [first, count] = exchange.piece(part.count, k);
      exchange.deliver(block, part.part(first, count));
    }
  }
  return ok_status();
}

}  // namespace hekla::process_group
