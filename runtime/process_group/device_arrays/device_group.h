// SPDX-License-Identifier: Apache-2.0
// DeviceGroup: the calls of a process group on device buffers of any PJRT client, each rank with
// its own plugin.
//
//   auto group = *ProcessGroup::create(store, rank, size);
//   auto devices = *DeviceGroup::create(group);            // collective
//   const auto x = std::make_shared<runtime::Buffer>(*client.to_device(array, device));
//   HEKLA_ASSIGN_OR_RETURN(runtime::Buffer sum, devices->all_reduce(x).result());
//
// Where the plugin says that the device's memory is the host's (PJRT_Buffer_IsOnCpu, and an
// address) and the buffer is dense, row-major and of whole bytes, the group reads and writes that
// memory itself. Elsewhere the elements go through one host array: of a buffer in another layout,
// of types below eight bits, of a device with memory of its own.
//
// Every call returns at once. A call waits for its input's contents by itself: calls go in the
// order in which they were made, messages among themselves. A DeviceGroup is a group of its own
// over the connections of the one that it was made of, so calls on host arrays there do not get in
// between.
//
// Inputs are values: the call keeps what the buffer held when it was called, by an external
// reference, until it has ended. The buffer may be freed, its owner may go; a launch that would
// consume it works on a copy. (Plugins of others may refuse such a launch; where they know no
// references, or their memory is not the host's, the call itself waits for the contents and copies
// them.) With `donate` the buffer is freed by the call, and all_reduce, reduce on the root and
// broadcast write into its memory where that is the host's and nobody else refers to it. Results
// are new buffers in the memory of the input, complete when the call has ended.
//
// Between begin_coalescing and end_coalescing calls of a thread go together, as those of a
// ProcessGroup do: when the block ends and the inputs of all are there, small ones as one exchange.
//
// What this rank refuses (INVALID_ARGUMENT: an empty, freed or donated buffer, dimensions that do
// not divide; UNIMPLEMENTED: tokens, bounded dimensions), a launch that failed to compute an input,
// contents that do not come before the deadline: the others hear of it in that call, with rank and
// reason. All else is as process_group.h says, and errors name the call, its shape and the device.
// Thread-safe, as the group is.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/client/client.h"
#include "runtime/process_group/process_group.h"

namespace hekla::process_group {

class DeviceQueue;

// Shared with the calls that use it.
using DeviceArray = std::shared_ptr<const runtime::Buffer>;

// Where and what a result is that no array of this rank says. Keeps the client alive.
struct DevicePlace {
  // In the device's default memory.
  static Result<DevicePlace> on(const runtime::Client& client, const runtime::Device& device,
                                DType dtype, Dims dims);
  // INVALID_ARGUMENT: an empty buffer.
  static Result<DevicePlace> like(const runtime::Buffer& buffer);

  runtime::Client client;
  runtime::Memory memory;
  DType dtype = DType::kInvalid;
  Dims dims;
};

// A call under way. A handle: copies are the same call; it may be dropped, the call goes on.
// Thread-safe.
class [[nodiscard]] DeviceWork {
 public:
  // Waits until the call has ended, which its deadline sees to: what it ended with.
  // FAILED_PRECONDITION: it belongs to a block that has not ended yet.
  Status wait() const;
  // The same, or DEADLINE_EXCEEDED when it has not ended by then; it then goes on.
  Status wait(std::chrono::nanoseconds timeout) const;
  bool test() const;     // whether it has ended
  Status error() const;  // ok as long as it has not
  // Called once when it has ended, at once where it has, else on a thread of the group: brief, and
  // not the place to destroy the group or to wait.
  void then(std::function<void(const Status&)> callback) const;
  // Waits, and gives the result, once; empty of calls that have none on this rank.
  // FAILED_PRECONDITION: it has been given.
  Result<runtime::Buffer> result() const;
  int source() const;  // as Work's
  const std::string& call() const;

  struct State;
  explicit DeviceWork(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;  // shared with those that do the work
};

struct DeviceGroupOptions {
  // "auto": as above; "off": through host arrays always. Each rank may have its own.
  std::string host_memory = "auto";
  // all_reduce, broadcast and reduce of more bytes than that go in parts of so many, one after the
  // other: where device memory is not the host's, a part is copied while others are on their way.
  // 0: never. The same on all ranks, as it says which calls the group gets.
  int64_t part_bytes = int64_t{4} << 20;
};

struct DeviceCallOptions {
  Timeout timeout = {};  // of the whole call, with the wait for its input; empty: the group's
  bool donate = false;
};

// How the elements of calls went, since the group was made.
struct DeviceCounts {
  int64_t read_in_place = 0, read_copied = 0;        // inputs
  int64_t written_in_place = 0, written_copied = 0;  // results
  int64_t reused = 0;                                // of those in place: in a donated input
  int64_t parts = 0;                                 // of calls that went in parts
};

class DeviceGroup {
 public:
  // Collective over `group`, which is kept; INVALID_ARGUMENT for options that are none.
  static Result<std::unique_ptr<DeviceGroup>> create(std::shared_ptr<ProcessGroup> group,
                                                     const DeviceGroupOptions& options = {},
                                                     Timeout timeout = {});
  // shutdown(). Not from a callback of a DeviceWork.
  ~DeviceGroup();
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  const std::string& name() const { return group_->name(); }
  Status status() const { return group_->status(); }
  DeviceCounts counts() const;

  DeviceWork all_reduce(DeviceArray x, Reduction by = ReduceOp::kSum,
                        const DeviceCallOptions& options = {});
  // The root's x; the others' says shape and place, or they name these.
  DeviceWork broadcast(DeviceArray x, int root, const DeviceCallOptions& options = {});
  DeviceWork broadcast(const DevicePlace& place, int root, const DeviceCallOptions& options = {});
  // The result is the root's.
  DeviceWork reduce(DeviceArray x, int root, Reduction by = ReduceOp::kSum,
                    const DeviceCallOptions& options = {});
  // With a first dimension more, of size().
  DeviceWork all_gather(DeviceArray x, const DeviceCallOptions& options = {});
  DeviceWork gather(DeviceArray x, int root, const DeviceCallOptions& options = {});
  // `place` says what each rank gets; x counts on the root alone and has a first dimension more.
  DeviceWork scatter(const DevicePlace& place, DeviceArray x, int root,
                     const DeviceCallOptions& options = {});
  // The first dimension of x in size() equal parts, of which this rank's is the result.
  DeviceWork reduce_scatter(DeviceArray x, Reduction by = ReduceOp::kSum,
                            const DeviceCallOptions& options = {});
  // Part r of the first dimension goes to rank r, part r of the result comes from it: equal parts,
  // or as long as is said.
  DeviceWork all_to_all(DeviceArray x, const DeviceCallOptions& options = {});
  DeviceWork all_to_all(DeviceArray x, std::vector<int64_t> out_rows, std::vector<int64_t> in_rows,
                        const DeviceCallOptions& options = {});
  DeviceWork send(DeviceArray x, int to, uint64_t tag = 0, const DeviceCallOptions& options = {});
  DeviceWork receive(const DevicePlace& place, int from = ProcessGroup::kAnyRank, uint64_t tag = 0,
                     const DeviceCallOptions& options = {});
  // Done when all ranks have called, and so after all calls before.
  DeviceWork barrier(const DeviceCallOptions& options = {});

  // Collectives that this thread calls between the two go together: the group gets them when the
  // second has been called and the inputs of all are there. The same calls in one order on all
  // ranks. None of them is made where one is refused, or where the contents of an input fail.
  // Inputs are held from their call on, as outside of a block; messages go at once. The work of all
  // is done when each is, and has no result of its own. FAILED_PRECONDITION: inside of such a block
  // already, or in none; works that are waited for before it has ended.
  Status begin_coalescing();
  DeviceWork end_coalescing(Timeout timeout = {});
  // FAILED_PRECONDITION where this thread is in a block, of which nothing is made then.
  Status check_may_wait(std::string_view call);

  // Takes the place of a collective that this rank does not make: the others' fails with `why`.
  void refuse(std::string_view call, const Status& why);
  // Ends the group on all ranks: CANCELLED, with the reason.
  void abort(std::string_view reason);
  // Leaves: calls that have not ended end with CANCELLED.
  void shutdown();
  const std::shared_ptr<ProcessGroup>& parent() const { return parent_; }

 private:
  struct Call;  // what is asked for
  DeviceGroup(std::shared_ptr<ProcessGroup> parent, std::shared_ptr<ProcessGroup> group,
              const DeviceGroupOptions& options);
  DeviceWork start(Call call, const DeviceCallOptions& options);
  // The block that this thread is in, or null.
  DeviceWork::State* block();
  Status prepare(const Call& call, bool donates, DeviceWork::State& state);
  Status check_rows(const DeviceArray& x) const;

  const std::shared_ptr<ProcessGroup> parent_;  // whose connections these are
  const std::shared_ptr<ProcessGroup> group_;
  const bool may_be_direct_;
  const int64_t part_bytes_;
  std::mutex mutex_;
  // By thread; guarded by mutex_.
  std::map<std::thread::id, std::shared_ptr<DeviceWork::State>> blocks_;
  std::atomic<int> block_count_ = 0;
  const std::unique_ptr<DeviceQueue> queue_;  // last: uses the rest
};

}  // namespace hekla::process_group
