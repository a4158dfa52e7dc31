// SPDX-License-Identifier: Apache-2.0
// Transport: messages between the processes of a group, and who of them is still there.
//
// A message is a head, a few bytes that say what it is, and blocks, arrays whose bytes are carried
// as they are. Messages to one process arrive whole and in the order in which they were sent; what
// they mean, and how collectives are made of them, is the caller's (backends/pjrt/gang_network.h).
//
// A process is lost when it has died, has left, has given no sign of life for
// Options::silence, or has written what no process of ours would: once, for good, and with a reason
// that names it. Whoever is lost hears nothing any more and is told so, should it still be there.
// Losing one process leaves the others as they are.
//
// Engines: shared_memory.h between processes of one machine, network_transport.h between machines,
// process_transport.h of both. Thread-safe. Nothing here waits for another process but what says
// so.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/async/completion.h"
#include "runtime/base/host_array.h"
#include "runtime/base/status.h"

namespace hekla::collectives {

struct Message {
  static constexpr size_t kMaxHeadBytes = size_t{1} << 20;
  static constexpr size_t kMaxBlocks = size_t{1} << 16;
  static constexpr int64_t kMaxBlockBytes = int64_t{1} << 40;

  std::string head;
  // Any dtype and size, empty ones too; they arrive as ui8[bytes].
  std::vector<HostArray> blocks;
};

class Transport {
 public:
  // Called on the transport's threads, one after the other and without its locks; they may send,
  // and must not block.
  struct Events {
    std::function<void(int from, Message message)> received;
    std::function<void(int process, const Status& why)> lost;
    // Where the next block of a message goes of which all before it has come: memory of `bytes`
    // bytes, of which nobody else keeps a reference and which may be written until the block is
    // let go; null: where the transport likes. May be empty; engines ask for large blocks, or
    // never.
    std::function<std::shared_ptr<void>(int from, const Message& begun, int64_t bytes)> place;
  };

  // Leaves: all messages that were sent have been handed over or are given up, and no event is
  // under way or comes later, unless it is an event of its own that destroys it.
  virtual ~Transport() = default;

  virtual int rank() const = 0;  // this process
  virtual int size() const = 0;  // of the group
  // "process 1 (pid 4711 on blue)", or "process 1" of one that is not known yet.
  virtual std::string name(int process) const = 0;
  // Ok from its connection on until it is lost; before it, FAILED_PRECONDITION.
  virtual Status status(int process) const = 0;
  // How long nothing has shown that the process lives, while this one ran; zero where it is not
  // known. Who is stopped is told by it long before it is lost.
  virtual std::chrono::nanoseconds silent_for(int /*process*/) const {
    return std::chrono::nanoseconds(0);
  }

  // Returns at once. `sent`, which may be null, is completed when the message is on its way and
  // arrives even if this process ends, or with the reason why the other is lost. The blocks are
  // read until then; nobody writes them.
  virtual void send(int process, Message message, CompletionRef sent) = 0;

  // Loses a process for what this one says of it, soon: what it sends goes nowhere any more, and
  // memory of `place` is let go. For engines that ask for places.
  virtual void abandon(int /*process*/, const Status& /*why*/) {}
};

}  // namespace hekla::collectives
