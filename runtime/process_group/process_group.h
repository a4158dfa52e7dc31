// SPDX-License-Identifier: Apache-2.0
// ProcessGroup: collectives and messages between the processes of a run, as torch.distributed has
// them, over any transport (runtime/collectives).
//
//   auto group = *ProcessGroup::create(store, rank, size);
//   std::vector<float> x = ...;
//   HEKLA_RETURN_IF_ERROR(group->all_reduce(elements(std::span(x))).wait());
//
// Every call returns at once with a Work. Collectives of a group run one after the other in the
// order of the calls, which must be the same on all ranks: each rank tells each other what it calls
// before data move, and where that differs the call fails on all ranks with FAILED_PRECONDITION,
// which names ranks and calls; no memory has been written then. Messages from rank to rank are
// matched by ranks and tag, in the order in which they were sent, and do not wait for collectives.
//
// Sums have one order, that of the ranks (reduction.h): the same bits on all ranks and in each run,
// whatever the size of a call and the options.
//
// Every call has a deadline. A collective that fails when it has begun (a deadline, a lost process,
// calls that differ) ends the group for good on all ranks, since nobody knows who was in step: all
// calls under way and later ones get the first error, which names rank and call. A call that is
// refused for its arguments (INVALID_ARGUMENT) has not begun and changes nothing where all ranks
// refuse it; where others have made it, it fails there at once with the rank and the reason. A
// refused send fails at its receiver.
//
// Zero elements and groups of one rank are like any others. Output may be the input, or a rank's
// own part of the other of the two where one has parts. Thread-safe; where several threads make
// collective calls they must see to their order themselves.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/base/async/deadline.h"
#include "runtime/base/status.h"
#include "runtime/process_group/call.h"
#include "runtime/process_group/elements.h"
#include "runtime/process_group/reduction.h"
#include "runtime/process_group/work.h"
#include "runtime/rendezvous/key_value_store.h"

namespace hekla::process_group {

class Coalesced;
class Exchange;
class Hub;
struct CoalescedParts;
class Member;

struct Options {
  std::string name = "world";  // for messages, and for the keys in the store
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);  // of a call that names none
  // A backend (backend_registry.h), and what collectives::ProcessTransportOptions says of those of
  // Hekla.
  std::string engine = "auto";
  std::string address, coordinator;
  std::chrono::nanoseconds silence = std::chrono::seconds(60);
  // Parts of at most this many bytes travel with the call; reductions of arrays that small are done
  // by all ranks, larger ones by each for its part. The same on all ranks.
  int64_t flat_bytes = int64_t{32} << 10;
  int64_t segment_bytes = int64_t{1} << 20;  // larger parts travel in pieces
  // So many pieces of each part are sent before the other ranks have come to the call, with which
  // they wait on the receiver. Each rank may have its own.
  int64_t early_pieces = 1;
  // Large pieces that only go into the output are received straight into it, where the transport
  // can (over networks). Each rank may have its own.
  bool direct_receive = true;
  // Other pieces of at least that size are written past the caches, which do not keep results of
  // several. Each rank may have its own.
  int64_t stream_piece_bytes = int64_t{1} << 20;

  // How collectives go between processes of one host: "auto": through memory that all ranks share,
  // where they are on one host, it can be had and `engine` is "auto" or "shm", else by messages,
  // with the reason in the log; "on": so, or the group cannot be made; "off": by messages. The same
  // on all ranks, as the next two.
  std::string shared_memory = "auto";
  int64_t shared_flat_bytes = int64_t{16} << 10;  // arrays of at most that size come with the call
  // Of the pieces of larger ones, of which each rank has eight. Less than 0: 256 KiB for up to
  // eight ranks, less for more, but at least 64 KiB.
  int64_t shared_slot_bytes = -1;
  // Results of at least that size are written past the caches, which would not keep them anyway.
  // Each rank may have its own.
  int64_t shared_stream_bytes = int64_t{8} << 20;
  // For how long who waits for another rank spins before it sleeps; less than 0: for 50 us, or 2 us
  // where there are more ranks than cores.
  std::chrono::nanoseconds shared_spin = std::chrono::nanoseconds(-1);

  // How many ranks a host has, where not all share one memory: large reductions, gathers and
  // broadcasts then cross from host to host once (hierarchical.h) where that is less. Less than 0:
  // as it is, if the group may share memory (shared_memory, engine); 0: all ranks send to each
  // other; else as if every so many ranks in a row had a host, and always so. The same on all
  // ranks.
  int ranks_per_host = -1;

  // Of calls that go together those of at most that size go as one. The same on all ranks.
  int64_t coalesced_bytes = int64_t{256} << 10;
};

using Timeout = std::optional<std::chrono::nanoseconds>;

class ProcessGroup {
 public:
  static constexpr int kAnyRank = -1;

  // Waits until all `size` processes have called with the same store; no longer than the timeout.
  // Errors name who has not, or the engine that cannot be had.
  static Result<std::shared_ptr<ProcessGroup>> create(
      std::shared_ptr<rendezvous::KeyValueStore> store, int rank, int size,
      const Options& options = {});
  // shutdown(), and waits until what was sent arrives, no longer than the timeout, or a second
  // after a failure: a root may be the first to end. Not from a callback of a Work.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const;
  int size() const;
  const std::string& name() const;
  const std::vector<int>& global_ranks() const;  // those of its first ancestor, by rank
  std::chrono::nanoseconds timeout() const { return options_.timeout; }  // of calls that name none
  uint64_t sequence() const;  // collective calls that have been made
  Status status() const;      // why the group has ended; ok: it has not

  // The root's elements to all.
  Work broadcast(Elements x, int root, Timeout timeout = {});
  Work all_reduce(Elements x, Reduction by = ReduceOp::kSum, Timeout timeout = {});
  Work all_reduce(Elements out, ConstElements in, Reduction by = ReduceOp::kSum,
                  Timeout timeout = {});
  // Into the root's x; the others' stay as they are.
  Work reduce(Elements x, int root, Reduction by = ReduceOp::kSum, Timeout timeout = {});
  // `out` counts on the root alone.
  Work reduce(Elements out, ConstElements in, int root, Reduction by = ReduceOp::kSum,
              Timeout timeout = {});
  // `out` has size() parts like `in`, by rank.
  Work all_gather(Elements out, ConstElements in, Timeout timeout = {});
  // The same with parts of any sizes, those of the ranks, which all ranks must know.
  Work all_gather(std::vector<Elements> out, ConstElements in, Timeout timeout = {});
  // `out` counts on the root alone.
  Work gather(Elements out, ConstElements in, int root, Timeout timeout = {});
  // `in` counts on the root alone and has size() parts like `out`.
  Work scatter(Elements out, ConstElements in, int root, Timeout timeout = {});
  // `in` has size() parts like `out`.
  Work reduce_scatter(Elements out, ConstElements in, Reduction by = ReduceOp::kSum,
                      Timeout timeout = {});
  // Part r of `in` goes to rank r, part r of `out` comes from it: equal parts, or as long as the
  // splits say.
  Work all_to_all(Elements out, ConstElements in, Timeout timeout = {});
  Work all_to_all(Elements out, ConstElements in, std::vector<int64_t> out_splits,
                  std::vector<int64_t> in_splits, Timeout timeout = {});
  // Done when all ranks have called.
  Work barrier(Timeout timeout = {});
  // Waits for it; the error names all ranks that have not come.
  Status monitored_barrier(Timeout timeout = {});

  // Messages to and from other ranks; a receiver that expects another dtype or count than was sent
  // gets FAILED_PRECONDITION. send is done when the elements are on their way.
  Work send(ConstElements x, int to, uint64_t tag = 0, Timeout timeout = {});
  Work receive(Elements x, int from = kAnyRank, uint64_t tag = 0, Timeout timeout = {});
  struct Point {
    static Point send(ConstElements x, int to, uint64_t tag = 0) { return {true, x, {}, to, tag}; }
    static Point receive(Elements x, int from, uint64_t tag = 0) {
      return {false, {}, x, from, tag};
    }
    bool is_send;
    ConstElements out;
    Elements in;
    int rank;
    uint64_t tag;
  };
  // All of them, in any order.
  Work batch(const std::vector<Point>& points, Timeout timeout = {});

  // Calls that this thread makes between the two go together, when the second is made: what is
  // small as one exchange, small all_reduces of one kind as one. The same calls in one order on all
  // ranks. Their works, and the one of all, may not be waited for before; none of a block is made
  // where one is refused. Messages go at once. FAILED_PRECONDITION: inside of such a block already.
  // What waits for itself (groups, objects, buckets) has no place in it, and refuses the block. The
  // time that collectives have is end_coalescing's.
  Status begin_coalescing();
  Work end_coalescing(Timeout timeout = {});
  // For what makes collectives and waits for them: FAILED_PRECONDITION where this thread is in a
  // block, of which nothing is made then.
  Status check_may_wait(std::string_view call);

  // All of them wait; new_group and split are collective over this group, and fail in a block. A
  // group of some of the ranks, in that order, that shares the transport; null on the others.
  Result<std::shared_ptr<ProcessGroup>> new_group(const std::vector<int>& ranks,
                                                  Timeout timeout = {});
  // The same for which those ranks alone call, all with one name, which the same ranks may use
  // again and others may not; each brings its options. INVALID_ARGUMENT: this rank is none of them.
  Result<std::shared_ptr<ProcessGroup>> subgroup(std::string_view name,
                                                 const std::vector<int>& ranks,
                                                 Timeout timeout = {});
  // Ranks of one color make a group, ordered by key, then by rank; null for a negative color.
  Result<std::shared_ptr<ProcessGroup>> split(int64_t color, int64_t key, Timeout timeout = {});

  // For callers that check arguments themselves: a collective, of which `call` says for messages
  // what it would have been, that they do not make. The same as one that is refused here, also in a
  // block.
  void refuse(std::string_view call, const Status& why);
  // The same of a message, whose receiver hears of it.
  void refuse_send(int to, uint64_t tag, const Status& why);
  // Ends the group on all ranks: CANCELLED, with the reason.
  void abort(std::string_view reason);
  // Leaves: calls under way end with CANCELLED, and the others hear of it where they still wait for
  // this rank.
  void shutdown();

 private:
  ProcessGroup(std::shared_ptr<Hub> hub, const Options& options, std::vector<int> processes,
               int rank);
  // Null where this process is none of the ranks, which are this group's.
  Result<std::shared_ptr<ProcessGroup>> make_group(std::string name, const std::vector<int>& ranks,
                                                   Deadline deadline, Timeout timeout = {}) const;
  // The first call, where there is one: all ranks have come, and share memory if they are to.
  Status meet(Deadline deadline);
  // Checks that stand in each call; `run` gets what it needs to exchange.
  Work start(Call call, const Status& refused, Timeout timeout,
             std::function<Status(Exchange&)> run,
             const std::function<CoalescedParts()>& parts = nullptr);
  // The block that this thread is in, or null.
  Coalesced* block();
  void add_to_block(const Work& point);
  Call call_of(Operation operation, DType dtype, int64_t count, int root = -1) const;
  Status check_root(int root) const;
  Status check_part(const std::vector<int>& ranks) const;
  Deadline deadline_of(Timeout timeout) const;

  const std::shared_ptr<Hub> hub_;  // shared with the groups that came from one
  const Options options_;
  const uint64_t detail_;                 // of each call: the options that must be the same
  const std::shared_ptr<Member> member_;  // shared with the hub's events
  std::mutex mutex_;
  std::map<std::string, int> subgroups_;  // how often by name and ranks; guarded by mutex_
  std::map<std::thread::id, std::unique_ptr<Coalesced>> blocks_;  // by thread; guarded by mutex_
  std::atomic<int> block_count_ = 0;
};

}  // namespace hekla::process_group
