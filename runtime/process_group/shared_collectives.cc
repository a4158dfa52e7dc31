// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/shared_collectives.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/copy_bytes.h"
#include "runtime/process_group/slices.h"

namespace hekla::process_group {
namespace {

// Rounds that a rank writes before it reads what the others have written in the first of them.
constexpr uint64_t kAhead = 1;
static_assert(kAhead < kSlots);

// A slot as parts for each of the other ranks, of whole lines of the cache.
int64_t share_bytes(const SharedCall& call) {
  return std::max<int64_t>(64, call.slot_bytes() / (call.size() - 1) / 64 * 64);
}
int64_t share_at(const SharedCall& call, int from, int to) {
  return (to - from - 1 + call.size()) % call.size() * share_bytes(call);
}

uint64_t rounds_of(int64_t count, int64_t at_once) {
  return static_cast<uint64_t>((count + at_once - 1) / at_once);
}

// What of a slice goes in round k.
Slice piece_of(const Slice& slice, uint64_t k, int64_t at_once) {
  const int64_t before = std::min(slice.count, static_cast<int64_t>(k) * at_once);
  return {slice.first + before, std::min(at_once, slice.count - before)};
}

// The elements of all ranks at one place.
class Inputs {
 public:
  explicit Inputs(int size) : many_(size > kFew ? static_cast<size_t>(size) : 0), size_(size) {}
  const std::byte*& operator[](int rank) {
    return size_ > kFew ? many_[static_cast<size_t>(rank)] : few_[rank];
  }
  std::span<const std::byte* const> all() const {
    return {size_ > kFew ? many_.data() : few_, static_cast<size_t>(size_)};
  }

 private:
  static constexpr int kFew = 16;
  const std::byte* few_[kFew];
  std::vector<const std::byte*> many_;
  const int size_;
};

// Folds what all have brought from element `first` on.
void fold_brought(const SharedCall& call, const Elements& out, const ConstElements& own,
                  int64_t first, const Reduction& by) {
  if (out.count == 0) return;
  Inputs inputs(call.size());
  for (int r = 0; r < call.size(); ++r) {
    inputs[r] = r == call.rank() ? own.bytes() : call.brought(r) + first * dtype_bytes(out.dtype);
  }
  reduce(by, out.dtype, out.count, inputs.all(), out.bytes());
}

// Each rank folds its slice of `in` as it comes, piece by piece. The result goes into `out`, where
// there is one, and to the others where `shares` says so; in `gathers` those of the others are
// taken into their slices of `whole`.
struct Reduce {
  SharedCall& call;
  const ConstElements& in;
  const Reduction& by;
  std::vector<Slice> slices;      // of in, by rank
  const Elements* out = nullptr;  // of the rank's own slice
  bool shares = false;
  const Elements* gathers = nullptr;
  bool is_gathered = false;  // by anybody
  int64_t at_once = 1;

  Status give(uint64_t k) {
    HEKLA_ASSIGN_OR_RETURN(std::byte* const slot, call.open_slot(0, k));
    for (int i = 1; i < call.size(); ++i) {
      const int p = (call.rank() + i) % call.size();
      const auto [first, count] = piece_of(slices[static_cast<size_t>(p)], k, at_once);
      const ConstElements piece = in.part(first, count);
      copy_bytes(slot + share_at(call, call.rank(), p), piece.data, piece.size_bytes());
    }
    call.written(0, k);
    return ok_status();
  }

  Status fold(uint64_t k) {
    const Slice own = slices[static_cast<size_t>(call.rank())];
    const auto [first, count] = piece_of(own, k, at_once);
    HEKLA_RETURN_IF_ERROR(call.await_all(0, k));
    std::byte* slot = nullptr;
    if (shares) {
      HEKLA_ASSIGN_OR_RETURN(slot, call.open_slot(1, k));
    }
    if (count > 0 && (out != nullptr || shares)) {
      Inputs inputs(call.size());
      for (int r = 0; r < call.size(); ++r) {
        inputs[r] = r == call.rank() ? in.part(first, count).bytes()
                                     : call.slot(0, k, r) + share_at(call, r, call.rank());
      }
      const Elements piece = out != nullptr ? out->part(first - own.first, count) : Elements();
      reduce(by, in.dtype, count, inputs.all(), shares ? slot : piece.bytes());
      if (shares && out != nullptr) {
        call.copy_out(piece.bytes(), slot, piece.size_bytes(), in.size_bytes());
      }
    }
    if (shares) call.written(1, k);
    call.read(0, k + 1);
    return ok_status();
  }

  Status gather(uint64_t k) {
    if (gathers == nullptr) return ok_status();
    for (int i = 1; i < call.size(); ++i) {
      const int p = (call.rank() + i) % call.size();
      const auto [first, count] = piece_of(slices[static_cast<size_t>(p)], k, at_once);
      if (count == 0) continue;
      HEKLA_RETURN_IF_ERROR(call.await(1, k, p));
      const Elements piece = gathers->part(first, count);
      call.copy_out(piece.bytes(), call.slot(1, k, p), piece.size_bytes(), in.size_bytes());
    }
    call.read(1, k + 1);
    return ok_status();
  }

  Status run() {
    at_once = share_bytes(call) / dtype_bytes(in.dtype);
    int64_t most = 0;
    for (const Slice& slice : slices) most = std::max(most, slice.count);
    const uint64_t rounds = rounds_of(most, at_once);
    call.begin_rounds(0, rounds);
    if (is_gathered) {
      call.begin_rounds(1, rounds);
      if (gathers == nullptr) call.read(1, rounds);
    }
    call.announce();
    uint64_t given = 0;
    if (rounds > 0) HEKLA_RETURN_IF_ERROR(give(given++));
    HEKLA_RETURN_IF_ERROR(call.meet());
    for (uint64_t k = 0; k < rounds; ++k) {
      while (given < rounds && given <= k + kAhead) HEKLA_RETURN_IF_ERROR(give(given++));
      HEKLA_RETURN_IF_ERROR(fold(k));
      if (k > 0) HEKLA_RETURN_IF_ERROR(gather(k - 1));
    }
    return rounds > 0 ? gather(rounds - 1) : ok_status();
  }
};

std::vector<Slice> slices_of(int64_t count, int size) {
  std::vector<Slice> slices;
  for (int r = 0; r < size; ++r) slices.push_back(slice_of(count, size, r));
  return slices;
}

bool lies_on(const ConstElements& a, const ConstElements& b) {
  if (a.count == 0 || b.count == 0) return false;
  return a.bytes() < b.bytes() + b.size_bytes() && b.bytes() < a.bytes() + a.size_bytes();
}

// Whether a part that goes out may be written over before it is gone. The same place in both is
// written when it has been sent.
bool is_overwritten(const SharedCall& call, const std::vector<Elements>& out,
                    const std::vector<ConstElements>& in) {
  const auto own = static_cast<size_t>(call.rank());
  for (size_t p = 0; p < in.size(); ++p) {
    if (p == own) continue;
    for (size_t q = 0; q < out.size(); ++q) {
      const bool is_same = in[p].data == out[q].data && in[p].count == out[q].count;
      if (is_same && (p == q || (q == own && in[own].data == out[own].data))) continue;
      if (lies_on(in[p], out[q])) return true;
    }
  }
  return false;
}

// What moves between ranks, in rounds.
struct Moves {
  SharedCall& call;
  const std::vector<Elements>& out;
  std::vector<ConstElements> in;
  bool is_same_to_all;
  int64_t width;
  int64_t at_once = 1;    // elements
  int64_t out_bytes = 0;  // of all parts

  Status give(uint64_t k) {
    HEKLA_ASSIGN_OR_RETURN(std::byte* const slot, call.open_slot(0, k));
    for (int i = 1; i < call.size(); ++i) {
      const int p = (call.rank() + i) % call.size();
      const ConstElements& part = in[static_cast<size_t>(p)];
      const auto [first, count] = piece_of({0, part.count}, k, at_once);
      if (count == 0) continue;
      const ConstElements piece = part.part(first, count);
      copy_bytes(slot + (is_same_to_all ? 0 : share_at(call, call.rank(), p)), piece.data,
                 piece.size_bytes());
      if (is_same_to_all) break;
    }
    call.written(0, k);
    return ok_status();
  }

  // The own part goes along with what is given of it, as long as that is in the cache; at once
  // where what comes from others may lie on it.
  bool keeps_along() const {
    const auto own = static_cast<size_t>(call.rank());
    if (!is_same_to_all || !any(in)) return false;
    return std::none_of(out.begin(), out.end(),
                        [&](const Elements& part) { return lies_on(in[own], part); });
  }
  void keep(uint64_t k) {
    const auto own = static_cast<size_t>(call.rank());
    const auto [first, count] = piece_of({0, out[own].count}, k, at_once);
    call.copy_out(out[own].part(first, count).bytes(), in[own].part(first, count).data,
                  count * width, out_bytes);
  }

  Status take(uint64_t k) {
    for (int i = 1; i < call.size(); ++i) {
      const int p = (call.rank() + i) % call.size();
      const Elements& part = out[static_cast<size_t>(p)];
      const auto [first, count] = piece_of({0, part.count}, k, at_once);
      if (count == 0) continue;
      HEKLA_RETURN_IF_ERROR(call.await(0, k, p));
      const Elements piece = part.part(first, count);
      call.copy_out(piece.bytes(),
                    call.slot(0, k, p) + (is_same_to_all ? 0 : share_at(call, p, call.rank())),
                    piece.size_bytes(), out_bytes);
    }
    call.read(0, k + 1);
    return ok_status();
  }

  bool any(const auto& parts) const {
    for (size_t p = 0; p < parts.size(); ++p) {
      if (p != static_cast<size_t>(call.rank()) && parts[p].count > 0) return true;
    }
    return false;
  }

  Status run(uint64_t rounds) {
    call.begin_rounds(0, rounds);
    const auto own = static_cast<size_t>(call.rank());
    const bool gives = any(in), takes = any(out), keeps = keeps_along();
    for (const Elements& part : out) out_bytes += part.size_bytes();
    if (!keeps) move_bytes(out[own].data, in[own].data, out[own].size_bytes());
    if (!takes) call.read(0, rounds);
    uint64_t given = 0;
    for (uint64_t k = 0; k < rounds; ++k) {
      while (gives && given < rounds && given <= k + kAhead) {
        HEKLA_RETURN_IF_ERROR(give(given));
        if (keeps) keep(given);
        ++given;
      }
      if (takes) HEKLA_RETURN_IF_ERROR(take(k));
    }
    return ok_status();
  }
};

// The elements of the largest part of any rank, which its splits say; checked between all pairs.
Status meet_splits(SharedCall& call, const std::vector<Elements>& out,
                   const std::vector<ConstElements>& in, int64_t at_once) {
  uint64_t rounds = 0;
  for (int p = 0; p < call.size(); ++p) {
    const int64_t count = in[static_cast<size_t>(p)].count;
    std::memcpy(call.brings() + static_cast<size_t>(p) * sizeof(count), &count, sizeof(count));
    if (p != call.rank()) rounds = std::max(rounds, rounds_of(count, at_once));
  }
  call.announce(rounds);
  HEKLA_RETURN_IF_ERROR(call.meet());
  for (int p = 0; p < call.size(); ++p) {
    if (p == call.rank()) continue;
    int64_t count = 0;
    std::memcpy(&count, call.brought(p) + static_cast<size_t>(call.rank()) * sizeof(count),
                sizeof(count));
    const int64_t expected = out[static_cast<size_t>(p)].count;
    if (count == expected) continue;
    return failed_precondition("{}: rank {} has {} elements for rank {}, which expects {}",
                               call.text(), p, count, call.rank(), expected);
  }
  return ok_status();
}

// What comes along with the calls: one part for all, or one for each.
Status flat_moves(SharedCall& call, const std::vector<Elements>& out,
                  const std::vector<ConstElements>& in, bool is_same_to_all, int64_t bytes) {
  for (int p = 0; p < call.size(); ++p) {
    const ConstElements& part = in[static_cast<size_t>(p)];
    if (p == call.rank() || part.count == 0) continue;
    copy_bytes(call.brings() + (is_same_to_all ? 0 : p * bytes), part.data, part.size_bytes());
    if (is_same_to_all) break;
  }
  call.announce();
  HEKLA_RETURN_IF_ERROR(call.meet());
  const auto own = static_cast<size_t>(call.rank());
  move_bytes(out[own].data, in[own].data, out[own].size_bytes());
  for (int p = 0; p < call.size(); ++p) {
    const Elements& part = out[static_cast<size_t>(p)];
    if (p == call.rank() || part.count == 0) continue;
    copy_bytes(part.bytes(), call.brought(p) + (is_same_to_all ? 0 : call.rank() * bytes),
               part.size_bytes());
  }
  return ok_status();
}

}  // namespace

Status shared_all_reduce(SharedCall& call, const Elements& out, const ConstElements& in,
                         const Reduction& by) {
  if (in.size_bytes() <= call.flat_bytes()) {
    copy_bytes(call.brings(), in.data, in.size_bytes());
    call.announce();
    HEKLA_RETURN_IF_ERROR(call.meet());
    fold_brought(call, out, in, 0, by);
    return ok_status();
  }
  Reduce reduce{call, in, by, slices_of(in.count, call.size())};
  const Slice own = reduce.slices[static_cast<size_t>(call.rank())];
  const Elements result = out.part(own.first, own.count);
  reduce.out = &result;
  reduce.shares = reduce.is_gathered = true;
  reduce.gathers = &out;
  return reduce.run();
}

Status shared_reduce(SharedCall& call, const Elements& out, const ConstElements& in, int root,
                     const Reduction& by) {
  const bool is_root = call.rank() == root;
  if (in.size_bytes() <= call.flat_bytes()) {
    if (!is_root) copy_bytes(call.brings(), in.data, in.size_bytes());
    call.announce();
    HEKLA_RETURN_IF_ERROR(call.meet());
    if (is_root) fold_brought(call, out, in, 0, by);
    return ok_status();
  }
  Reduce reduce{call, in, by, slices_of(in.count, call.size())};
  const Slice own = reduce.slices[static_cast<size_t>(call.rank())];
  const Elements result = is_root ? out.part(own.first, own.count) : Elements();
  reduce.out = is_root ? &result : nullptr;
  reduce.shares = !is_root;
  reduce.is_gathered = true;
  reduce.gathers = is_root ? &out : nullptr;
  return reduce.run();
}

Status shared_reduce_scatter(SharedCall& call, const Elements& out, const ConstElements& in,
                             const Reduction& by) {
  const int64_t first = call.rank() * out.count;
  if (in.size_bytes() <= call.flat_bytes()) {
    copy_bytes(call.brings(), in.data, in.size_bytes());
    call.announce();
    HEKLA_RETURN_IF_ERROR(call.meet());
    fold_brought(call, out, in.part(first, out.count), first, by);
    return ok_status();
  }
  Reduce reduce{call, in, by};
  for (int r = 0; r < call.size(); ++r) reduce.slices.push_back({r * out.count, out.count});
  reduce.out = &out;
  return reduce.run();
}

Status shared_moves(SharedCall& call, const std::vector<Elements>& out,
                    const std::vector<ConstElements>& in) {
  const Operation operation = call.call().operation;
  const int64_t width = dtype_bytes(call.call().dtype);
  const int64_t bytes = call.call().count * width;  // of a part; of all_to_all none
  const bool is_same_to_all = operation == Operation::kBroadcast ||
                              operation == Operation::kAllGather || operation == Operation::kGather;
  const bool has_splits = operation == Operation::kAllToAll ||
                          operation == Operation::kAllGatherUneven ||
                          operation == Operation::kCoalesced;
  if (!has_splits && bytes <= call.flat_bytes() / (is_same_to_all ? 1 : call.size())) {
    return flat_moves(call, out, in, is_same_to_all, bytes);
  }
  Moves moves{call, out, in, is_same_to_all, width};
  moves.at_once = (is_same_to_all ? call.slot_bytes() : share_bytes(call)) / width;
  std::vector<HostArray> copies;
  if (is_overwritten(call, out, in)) {
    for (ConstElements& part : moves.in) {
      HEKLA_ASSIGN_OR_RETURN(HostArray kept, block_of(part, true));
      part.data = kept.data();
      copies.push_back(std::move(kept));
    }
  }
  uint64_t rounds = rounds_of(call.call().count, moves.at_once);
  if (has_splits) {
    HEKLA_RETURN_IF_ERROR(meet_splits(call, out, in, moves.at_once));
    rounds = call.most_rounds();
  } else {
    call.announce();
    HEKLA_RETURN_IF_ERROR(call.meet());
  }
  return moves.run(rounds);
}

Status shared_barrier(SharedCall& call) {
  call.announce();
  return call.meet();
}

}  // namespace hekla::process_group
