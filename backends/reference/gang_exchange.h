// SPDX-License-Identifier: Apache-2.0
// GangMember: a launch's part in the exchange of its gang, for every backend whose steps run in the
// evaluator.
//
// All launches of a gang share one exchange. The gang's abort reaches those that wait there, and a
// launch that ends tells the exchange, so that nobody waits for it; where the gang is one of
// several processes, it ends when all that its devices brought is on its way. Launches of one
// device each share the exchange of their whole (backends/pjrt/communicator.h), which they leave
// only with an error. Owned by the launch; one thread at a time.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "backends/pjrt/backend.h"
#include "backends/reference/device_exchange.h"
#include "runtime/program/ir/device_groups.h"

namespace hekla::reference {

class GangMember {
 public:
  GangMember() = default;  // of no gang
  // `launch_count`: of the gang, in this process. `grid`: of the program.
  GangMember(const pjrt::Launch& launch, size_t launch_count, const ir::DeviceGrid& grid)
      : device_(launch.replica * grid.partitions + launch.partition) {
    if (launch.gang == nullptr) return;
    gang_ = launch.gang;
    is_of_one_device_ = launch.gang->whole() != nullptr;
    pjrt::Gang& gang = is_of_one_device_ ? *launch.gang->whole() : *launch.gang;
    exchange_ = gang.shared_state<DeviceExchange>([&] {
      WaitLimits limits;
      limits.warn_after = std::chrono::seconds(gang.options().warning_seconds);
      limits.deadline = std::chrono::seconds(gang.options().deadline_seconds);
      if (gang.names() != nullptr) {
        limits.program = gang.names()->program;
        limits.devices = gang.names()->devices;
      }
      auto exchange =
          std::make_shared<DeviceExchange>(grid, std::move(limits), gang.link(),
                                           is_of_one_device_ ? DeviceExchange::Matching::kByOrder
                                                             : DeviceExchange::Matching::kBySite);
      gang.on_abort([weak = std::weak_ptr(exchange)](const Status& status) {
        if (const auto alive = weak.lock()) alive->abort(status);
      });
      if (is_of_one_device_) {
        gang.on_leave([weak = std::weak_ptr(exchange)](int64_t device) {
          if (const auto alive = weak.lock()) alive->leave(device);
        });
      }
      if (gang.link() != nullptr) {
        gang.link()->listen([weak = std::weak_ptr(exchange)](int from, const std::string& head,
                                                             std::vector<HostArray> blocks) {
          if (const auto alive = weak.lock()) alive->deliver(from, head, std::move(blocks));
        });
      } else if (!is_of_one_device_ && static_cast<int64_t>(launch_count) < grid.size()) {
        exchange->abort(internal_error(
            "{} of the launch's {} devices are this process's, and there is no way to the others",
            launch_count, grid.size()));
      }
      return exchange;
    });
  }

  // Null without a gang: a launch of one device.
  DeviceExchange* exchange() const { return exchange_.get(); }

  // The launch's program runs from now on.
  void begin() {
    if (exchange_ != nullptr) exchange_->begin(device_);
  }
  // What the launch ends with, given what its steps ended with: one that ends well may have left
  // messages behind. Before anybody hears of the end.
  Status ends_with(Status status) {
    if (exchange_ == nullptr || !status.ok()) return status;
    status = is_of_one_device_ ? exchange_->status() : exchange_->finish(device_, status);
    // The process may end as soon as it hears of the launch's end.
    const pjrt::GangRef gang = gang_.lock();
    if (status.ok() && gang != nullptr && gang->link() != nullptr) {
      static_cast<void>(gang->all_or_abort({gang->link()->flushed()})->await());
    }
    return status;
  }
  // After the end was told: the gang, which knows the device's name, hears of an error first.
  void ended(const Status& status) {
    if (exchange_ == nullptr || status.ok()) return;
    static_cast<void>(exchange_->finish(device_, status));
  }

 private:
  std::weak_ptr<pjrt::Gang> gang_;  // lives while the launch does; may hold what holds this
  std::shared_ptr<DeviceExchange> exchange_;
  int64_t device_ = 0;
  bool is_of_one_device_ = false;
};

}  // namespace hekla::reference
