// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/communicator.h"

#include <fmt/ranges.h>

#include <utility>

namespace hekla::pjrt {
namespace {

constexpr const char* kProgramName = "launches of single devices";

std::vector<std::shared_ptr<PostOrder>> make_orders(size_t count) {
  std::vector<std::shared_ptr<PostOrder>> orders(count);
  for (auto& order : orders) order = std::make_shared<PostOrder>();
  return orders;
}

}  // namespace

Communicator::Communicator(const GangOptions& options, const GangNames& names,
                           const std::shared_ptr<GangNetwork>& network,
                           const GangProgramRef& program)
    : whole_(std::make_shared<Gang>(
          options, std::make_shared<const GangNames>(GangNames{kProgramName, names.devices}))),
      orders_(make_orders(names.devices.size())) {
  if (network == nullptr || program == nullptr) return;
  auto all = std::make_shared<GangProgram>(*program);
  all->name = kProgramName;
  all->signature = "any";  // what meets is compared when it does
  all->communicator = fmt::format("{}: {}", names.program, fmt::join(names.devices, ","));
  network->begin(whole_, std::move(all));
}

Communicator::~Communicator() {
  if (whole_->link() != nullptr && !whole_->is_aborted()) whole_->link()->finish();
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
