// SPDX-License-Identifier: Apache-2.0
// CollectivesUnderWay: the collectives that one launch of a device has started and not ended yet,
// on memory, for the back ends whose plans have start and done steps.
//
// A start brings the operands to the exchange and returns; the device's communication lane, a
// thread, waits for the peers and writes the results, in the order of the starts, while the launch
// goes on. One thread at a time starts and awaits: the launch's. The memory of a collective stays
// the launch's until its await has returned or this object is gone.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "backends/reference/evaluator.h"
#include "runtime/base/async/completion.h"
#include "runtime/base/async/serial_queue.h"

namespace hekla::reference {

class CollectivesUnderWay {
 public:
  // `lane` outlives this object; null where the launch has no peers: what is started has then ended
  // when start() returns.
  explicit CollectivesUnderWay(SerialQueue* lane) : lane_(lane) {}
  CollectivesUnderWay(const CollectivesUnderWay&) = delete;
  CollectivesUnderWay& operator=(const CollectivesUnderWay&) = delete;
  // What was not awaited is called off: peers may never come. Waits until the lane has let go.
  ~CollectivesUnderWay();

  // Begins `program`, one collective by itself, which outlives this object. Arguments and results
  // as for evaluate_in_memory; a result may have an argument's memory, since what is brought to the
  // exchange is a copy. Else they do not overlap. `number` names it until it is awaited;
  // `options.exchange` is the same in all calls. Errors that need no peer.
  Status start(int32_t number, const ir::Module& program,
               std::span<const std::span<std::byte>> arguments,
               std::span<const std::span<std::byte>> results, EvaluateOptions options);
  // Waits until the results are there.
  Status await(int32_t number);

 private:
  struct Collective;
  static Status finish(Collective& collective, bool is_on_lane);

  SerialQueue* const lane_;
  std::map<int32_t, std::shared_ptr<Collective>> all_;
};

}  // namespace hekla::reference
