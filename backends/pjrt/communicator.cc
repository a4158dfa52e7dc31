// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/communicator.h"

#include <fmt/ranges.h>

#include <utility>

namespace hekla::pjrt {
namespace {

constexpr const char* kProgramName = "launches of single devices";

// Shared by the devices of this process: the last one that leaves says so to the other processes.
struct OwnDevices {
  explicit OwnDevices(GangRef gang) : whole(std::move(gang)) {}
  OwnDevices(const OwnDevices&) = delete;
  OwnDevices& operator=(const OwnDevices&) = delete;
  ~OwnDevices() {
    if (whole->link() != nullptr && !whole->is_aborted()) whole->link()->finish();
  }
  const GangRef whole;
};

std::vector<std::shared_ptr<PostOrder>> make_orders(const GangRef& whole, size_t count) {
  const auto own = std::make_shared<const OwnDevices>(whole);
  std::vector<std::shared_ptr<PostOrder>> orders;
  for (size_t device = 0; device < count; ++device) {
    const auto number = static_cast<int64_t>(device);
    if (whole->link() != nullptr && !whole->link()->is_own(number)) {
      orders.push_back(std::make_shared<PostOrder>());
      continue;
    }
    orders.emplace_back(new PostOrder, [own, number](PostOrder* order) {
      delete order;
      own->whole->leave(number);
    });
  }
  return orders;
}

}  // namespace

Communicator::Communicator(const GangOptions& options, const GangNames& names,
                           const std::shared_ptr<GangNetwork>& network,
                           const GangProgramRef& program)
    : whole_(std::make_shared<Gang>(
          options, std::make_shared<const GangNames>(GangNames{kProgramName, names.devices}))) {
  if (network != nullptr && program != nullptr) {
    auto all = std::make_shared<GangProgram>(*program);
    all->name = kProgramName;
    all->signature = "any";  // what meets is compared when it does
    all->communicator = fmt::format("{}: {}", names.program, fmt::join(names.devices, ","));
    network->begin(whole_, std::move(all));
  }
  orders_ = make_orders(whole_, names.devices.size());
}

Result<GangRef> Communicator::gang_for(size_t device,
                                       const std::shared_ptr<const GangNames>& names) {
  if (whole_->is_aborted()) {
    return whole_->status().with_context(fmt::format(
        "{} on {}: an earlier launch of these {} devices, which meet in collectives, "
        "has failed, and they are no longer in step; make new clients, in all processes",
        names->program, names->devices[device], orders_.size()));
  }
  return Gang::of_one_device(whole_, orders_[device], names);
}

}  // namespace hekla::pjrt
