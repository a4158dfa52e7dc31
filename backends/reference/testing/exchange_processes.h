// SPDX-License-Identifier: Apache-2.0
// ExchangeProcesses: for tests, the exchanges of one launch as several processes have them, in one.
//
// What one hands over reaches the other at once and on the same thread, as copies.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/pjrt/gang_link.h"
#include "backends/reference/device_exchange.h"

namespace hekla::reference {

class ExchangeProcesses {
 public:
  // `process_of`: by device; processes are numbered without gaps.
  ExchangeProcesses(const ir::DeviceGrid& grid, std::vector<int> process_of,
                    const WaitLimits& limits = {},
                    DeviceExchange::Matching matching = DeviceExchange::Matching::kBySite)
      : process_of_(std::move(process_of)) {
    const int count = 1 + *std::ranges::max_element(process_of_);
    losses_.resize(static_cast<size_t>(count));
    for (int process = 0; process < count; ++process) {
      exchanges_.push_back(std::make_unique<DeviceExchange>(
          grid, limits, std::make_shared<Link>(this, process), matching));
    }
  }

  DeviceExchange& process(int number) { return *exchanges_[static_cast<size_t>(number)]; }
  DeviceExchange& of(int64_t device) { return process(process_of_[static_cast<size_t>(device)]); }
  // As a gang does it where one of them fails.
  void abort(const Status& status) {
    for (const auto& exchange : exchanges_) exchange->abort(status);
  }
  // As a communicator hears of it.
  void lose(int number, const Status& why) {
    losses_[static_cast<size_t>(number)] = why;
    for (size_t other = 0; other < exchanges_.size(); ++other) {
      if (static_cast<int>(other) != number) exchanges_[other]->deliver(number, "", {});
    }
  }
  // Sees each message that is handed over; set before there are any.
  std::function<void(int from, int to, size_t blocks)> on_message;

 private:
  class Link final : public pjrt::GangLink {
   public:
    Link(ExchangeProcesses* all, int own) : all_(all), own_(own) {}
    int own_process() const override { return own_; }
    int process_of(int64_t device) const override {
      return all_->process_of_[static_cast<size_t>(device)];
    }
    void listen(Handler) override {}
    void send(int process, std::string head, std::vector<HostArray> blocks) override {
      if (all_->on_message) all_->on_message(own_, process, blocks.size());
      for (HostArray& block : blocks) {
        HostArray copy(DType::kUI8, {block.size_bytes()});
        if (block.size_bytes() > 0) {
          std::memcpy(copy.mutable_data(), block.data(), static_cast<size_t>(block.size_bytes()));
        }
        block = std::move(copy);
      }
      all_->process(process).deliver(own_, head, std::move(blocks));
    }
    void finish() override {
      for (size_t process = 0; process < all_->exchanges_.size(); ++process) {
        if (static_cast<int>(process) != own_) all_->exchanges_[process]->deliver(own_, "", {});
      }
    }
    CompletionRef flushed() override { return Completion::ready(); }
    Status loss_of(int process) const override {
      return all_->losses_[static_cast<size_t>(process)];
    }
    std::string describe(int) const override { return "is only played"; }
    void post_in_order(const CompletionRef&, std::function<void()> post) override { post(); }

   private:
    ExchangeProcesses* const all_;
    const int own_;
  };

  const std::vector<int> process_of_;
  std::vector<Status> losses_;  // by process
  std::vector<std::unique_ptr<DeviceExchange>> exchanges_;
};

}  // namespace hekla::reference
