// SPDX-License-Identifier: Apache-2.0
// GangNetwork: launches whose devices are in several processes, and how those hear of each other.
//
// All processes launch the same programs with collectives over the same processes in the same
// order. So launches are numbered for each set of processes, and a message says which it belongs
// to; what comes for a launch that is yet to come waits for it. Each process tells the others what
// it launches: where that is another program, the launch ends on all of them with
// FAILED_PRECONDITION, which names both. The first error of any device ends the launch on all
// processes, as it does within one, and so does the loss of a process (runtime/collectives) that
// has not ended its part. The launches of a communicator together are like one launch without end.
//
// Owned by the client. Makes itself known in the client's store when it is made; reaches for
// processes of other machines when all are (meet), for those of its own when the first program is
// compiled that needs them. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/pjrt/client_options.h"
#include "backends/pjrt/gang.h"
#include "backends/pjrt/post_order.h"
#include "backends/pjrt/processes.h"
#include "runtime/collectives/process_transport.h"

namespace hekla::pjrt {

// What an executable tells of itself; immutable.
struct GangProgram {
  std::string name;
  std::string signature;        // equal for equal programs, on all processes
  std::vector<int> process_of;  // by replica * partition_count + partition
  std::vector<int> processes;   // those, sorted
  // Empty: a launch, numbered among those over the same processes. Else the whole of a communicator
  // (communicator.h), by its devices: it is begun once on each process, the loss of one is the
  // handler's to judge, and launches of single devices of it may differ.
  std::string communicator = {};
};
using GangProgramRef = std::shared_ptr<const GangProgram>;

struct GangNetworkOptions {
  int64_t silence_seconds = 60;    // 0: for ever
  std::string transport = "auto";  // as ProcessTransportOptions has it, and these
  std::string address, coordinator;
};
OptionTable gang_network_option_table(GangNetworkOptions& options);

class GangNetwork : public std::enable_shared_from_this<GangNetwork> {
 public:
  // Does not wait and does not fail: what is wrong is connect's to say.
  static std::shared_ptr<GangNetwork> create(std::shared_ptr<KeyValueStore> store,
                                             std::string platform, const ProcessOptions& process,
                                             const GangNetworkOptions& options);
  ~GangNetwork();
  GangNetwork(const GangNetwork&) = delete;
  GangNetwork& operator=(const GangNetwork&) = delete;

  // When all have been made: see ProcessTransport::meet.
  void meet();
  // Reaches the processes of a program, waiting two minutes at most for one that has not made its
  // client. The error names the process that cannot be reached, and why.
  Status connect(const GangProgram& program);
  // The next launch of `program`, which is connected: gives the gang its link, and ends it where
  // it cannot succeed. One thread at a time, in the order of the launches.
  void begin(const GangRef& gang, const GangProgramRef& program);

 private:
  class Link;
  struct Inbox;
  // The processes, and the communicator if it is one.
  using LineKey = std::pair<std::vector<int>, std::string>;
  // Launches over one set of processes, or a communicator's whole.
  struct Line {
    uint64_t next = 0;  // the number of the next launch here
    std::map<uint64_t, std::shared_ptr<Inbox>> inboxes;
  };
  explicit GangNetwork(const ProcessOptions& process);
  void received(int from, collectives::Message message);
  void lost(int process, const Status& why);
  // Null: the launch has ended here.
  std::shared_ptr<Inbox> inbox_of(const LineKey& key, uint64_t number, bool begins);
  void forget(const LineKey& key, uint64_t number);
  // The process is gone, for a communicator.
  static void leave(Inbox& inbox, int process);

  const ProcessOptions process_;
  const std::shared_ptr<PostOrder> order_;  // shared with what waits for its turn
  Status start_;                            // why there is no transport
  mutable std::mutex mutex_;
  std::map<LineKey, Line> lines_;             // guarded by mutex_; of sorted processes
  std::map<int, std::string> last_launched_;  // guarded by mutex_; programs by process
  std::unique_ptr<collectives::ProcessTransport> transport_;  // last: its events use the rest
};

}  // namespace hekla::pjrt
