// SPDX-License-Identifier: Apache-2.0
// Communicator: the devices of one assignment for a client that launches them one by one.
//
// PyTorch/XLA runs each device from a thread or a process of its own: it calls Execute for one
// device at a time, with an executable for each, and the programs of two devices may differ. Such
// launches are no gang of all devices. What they have in common is the order in which each device
// comes to collectives: the n-th of a group, and the n-th message of a sender to a receiver,
// counted on each device over all its launches, belong together, as in the communicators of MPI and
// NCCL. What meets must be the same operation with the same types; else all devices hear of it.
//
// The first error ends a communicator for good, since nobody knows who was in step: launches under
// way end with it, and later ones are refused. Programs without collectives have nothing to do with
// it.
//
// Owned by the client, which makes one for the first launch that needs it; launches share its
// whole and may outlive it. From then on a device whose launches have all ended comes no more: who
// waits for it on this process ends with an error, and so do those of other processes once no
// device of this one comes. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/pjrt/gang.h"
#include "backends/pjrt/gang_network.h"

namespace hekla::pjrt {

class Communicator {
 public:
  // `names`: of all devices, with what tells communicators over the same ones apart in place of the
  // program. `program`: of an executable over them that `network` has connected; both null where
  // all are this process's.
  Communicator(const GangOptions& options, const GangNames& names,
               const std::shared_ptr<GangNetwork>& network, const GangProgramRef& program);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // For the next launch of a device, by its number. The error that ended the communicator.
  Result<GangRef> gang_for(size_t device, const std::shared_ptr<const GangNames>& names);

 private:
  const GangRef whole_;
  // By device; shared with its launches, so that the last of them takes it along.
  std::vector<std::shared_ptr<PostOrder>> orders_;
};

}  // namespace hekla::pjrt
