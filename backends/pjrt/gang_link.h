// SPDX-License-Identifier: Apache-2.0
// GangLink: what a gang of several processes has to reach its devices of the others.
//
// Made by GangNetwork for one launch, or for all of a communicator, and held by its Gang. Messages
// to one process arrive in the order of the calls; what they say is the business of those who meet
// (backends/reference). An end of the gang here or elsewhere is told by the network itself, as is
// the loss of a process. All calls are thread-safe and none waits for another process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/async/completion.h"
#include "runtime/base/host_array.h"
#include "runtime/base/status.h"

namespace hekla::pjrt {

class GangLink {
 public:
  // Blocks are as they were sent, but of dtype ui8 and one dimension. An empty head: the process
  // has finished, and nothing more comes from it.
  using Handler = std::function<void(int from, std::string head, std::vector<HostArray> blocks)>;

  virtual ~GangLink() = default;

  virtual int own_process() const = 0;
  // By replica * partition_count + partition.
  virtual int process_of(int64_t device) const = 0;
  bool is_own(int64_t device) const { return process_of(device) == own_process(); }

  // What comes for this launch goes to `handler`, what has come first of all. Called once.
  virtual void listen(Handler handler) = 0;
  // `head` is not empty.
  virtual void send(int process, std::string head, std::vector<HostArray> blocks) = 0;
  // The launch has ended well on all devices of this process: it sends nothing more, and whether it
  // lives is nobody's concern any more.
  virtual void finish() = 0;
  // Done when the word that this process has finished is on its way, after all that it has sent,
  // whatever becomes of this process; at once where there is none yet.
  virtual CompletionRef flushed() = 0;
  // Why a process is lost; ok: it is not.
  virtual Status loss_of(int process) const = 0;
  // What is known of another process's part in the launch: "has not launched it yet".
  virtual std::string describe(int process) const = 0;
  // Calls `post` when `ready` is done and those of all earlier launches of this client's gangs of
  // several processes have been called: all processes launch in one order, so devices that come
  // to their launches in this order meet.
  virtual void post_in_order(const CompletionRef& ready, std::function<void()> post) = 0;
};

}  // namespace hekla::pjrt
