// SPDX-License-Identifier: Apache-2.0
// SharedMemory: the transport between processes of one machine (shared_segment.h).
//
// A sender copies a message into its ring in the receiver's memory, the receiver out of it, both a
// piece at a time and at once. Short messages are copied by the caller where there is room, all
// others by a thread, so that nobody waits for a peer; another thread receives, which also shows
// that this process lives and looks whether the others do. A dead process is seen by the kernel's
// word (pidfd), within a beat; one that is stopped by its silence.
#pragma once

#include <memory>
#include <thread>

#include "runtime/base/memory_room.h"
#include "runtime/collectives/transport.h"

namespace hekla::collectives {

struct SharedMemoryOptions {
  // From each process to each; a power of two. Less where all would take more than a quarter of
  // `room`; rings take memory as they are written.
  uint64_t ring_bytes = uint64_t{1} << 20;
  // A death is seen by it, and told to others: both within 100 ms.
  std::chrono::nanoseconds beat = std::chrono::milliseconds(25);
  // Time in which this process does not run itself does not count; 0: for ever.
  std::chrono::nanoseconds silence = std::chrono::seconds(60);
  MemoryRoom room = memory_room();
};

class SharedMemory final : public Transport {
 public:
  // Process `rank` of `size`; nobody is connected. UNAVAILABLE: no memory to share, or less than
  // the shortest rings take;
  // RESOURCE_EXHAUSTED: no threads.
  static Result<std::unique_ptr<SharedMemory>> create(int rank, int size, Events events,
                                                      const SharedMemoryOptions& options = {});
  ~SharedMemory() override;

  // How the others find this process; bytes for a store.
  std::string card() const;
  // From now on there are messages to and from it. Ok again where it is connected or was.
  // FAILED_PRECONDITION: it cannot be reached, for a reason in words; INVALID_ARGUMENT, DATA_LOSS:
  // the card is wrong.
  Status connect(int process, std::string_view card);

  int rank() const override;
  int size() const override;
  std::string name(int process) const override;
  Status status(int process) const override;
  std::chrono::nanoseconds silent_for(int process) const override;
  void send(int process, Message message, CompletionRef sent) override;

 private:
  struct Peer;
  struct State;
  explicit SharedMemory(std::shared_ptr<State> state) : state_(std::move(state)) {}

  const std::shared_ptr<State> state_;  // shared with the threads, which may outlive this object
  std::jthread receiver_, sender_;
};

}  // namespace hekla::collectives
