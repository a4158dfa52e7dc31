// SPDX-License-Identifier: Apache-2.0
// Collectives: what a device of a launch brings to an exchange, and what it makes of what the
// others brought.
//
// One Collectives serves one evaluate() call and one thread, or one that begins and then, for good,
// the device's communication lane. A reduction folds the members'
// operands from the left in the order of the group, in the type of its region: all members compute
// the same values in the same order, so all results of a group have the same bits.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "backends/reference/datum.h"
#include "backends/reference/device_exchange.h"
#include "backends/reference/evaluator.h"
#include "backends/reference/operation_trace.h"
#include "backends/reference/plan.h"

namespace hekla::reference {

class Interpreter;

// Whether the groups or pairs of a collective fit a launch on `grid`.
Status check_collective(const ir::Operation& op, const ir::Module& module,
                        const ir::DeviceGrid& grid);

class Collectives {
 public:
  Collectives(const ir::Module& module, const EvaluateOptions& options);

  // A collective that has begun. Borrows the step and the Collectives.
  struct Pending;

  // Brings the operands of `step` to the exchange; does not wait.
  Result<Pending> begin(const Step& step, std::vector<Datum>& operands);
  // Waits for the others. `frame` has the values that the region of the operation captures.
  Result<std::vector<Datum>> finish(const Pending& pending, Interpreter& interpreter,
                                    std::vector<Datum>& frame,
                                    DeviceExchange::Thread thread = DeviceExchange::Thread::kMain);

 private:
  // This device's part in an operation.
  struct Role {
    std::vector<int64_t> members;  // empty: in no group
    size_t position = 0;
    bool has_pairs = false;
    std::optional<int64_t> source;
    std::optional<int64_t> target;
  };

  Result<const Role*> role_of(const ir::Operation& op);
  // Bytes of the operands.
  static int64_t bytes_of(const Pending& pending);
  // The devices that it meets, and how much it brings.
  void describe(const Pending& pending, OperationTrace& trace) const;
  Result<std::vector<Datum>> finish_waiting(const Pending& pending, Interpreter& interpreter,
                                            std::vector<Datum>& frame,
                                            DeviceExchange::Thread thread, int64_t& waited_ns);
  Result<std::vector<Datum>> receive(const Pending& pending, DeviceExchange::Thread thread,
                                     int64_t& waited_ns);
  Result<std::vector<Datum>> combine(const Pending& pending, Interpreter& interpreter,
                                     std::vector<Datum>& frame, DeviceExchange::Thread thread,
                                     int64_t& waited_ns);

  const ir::Module& module_;
  std::unique_ptr<DeviceExchange> own_;  // of one device, where the caller gave none
  DeviceExchange* exchange_;
  int64_t device_ = 0;
  const int traced_device_;  // LaunchContext::device
  pjrt::CollectiveCounters* const counters_;
  std::unordered_map<const ir::Operation*, Role> roles_;
};

struct Collectives::Pending {
  const Step* step = nullptr;
  const Role* role = nullptr;
  DeviceExchange::Site site;
  std::optional<DeviceExchange::Ticket> ticket;  // of a member of a group
  std::vector<Dims> shapes;                      // of the operands
};

// What async_start makes: a collective under way, with the values that its region captures, or the
// results of an operation that needs no other device.
struct Future {
  std::optional<Collectives::Pending> pending;
  std::vector<Datum> frame;
  std::vector<Datum> results;
};

}  // namespace hekla::reference
