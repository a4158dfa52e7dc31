// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/manager/step_agreement.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "runtime/base/async/thread.h"

namespace hekla::checkpoint {
namespace {

// How often a rank looks whether somebody asks, where the store does not say so by itself.
constexpr std::chrono::milliseconds kLook(50);

}  // namespace

StepAgreement::StepAgreement(rendezvous::Group& group, std::string name,
                             std::chrono::nanoseconds deadline)
    : group_(group), name_(std::move(name)), deadline_(deadline) {
  if (group_.world() > 1) {
    watcher_ = start_thread([this](std::stop_token stop) { watch(std::move(stop)); });
  }
}

std::string StepAgreement::key(std::string_view what) const {
  return fmt::format("{}/{}/{}", name_, round_, what);
}

void StepAgreement::request() {
  std::string request_key;
  {
    const std::lock_guard lock(mutex_);
    if (is_wanted_ || is_requested_) return;
    is_wanted_ = true;
    if (group_.world() == 1) {
      is_requested_ = true;
      agreed_ = step_ + 1;
      return;
    }
    request_key = group_.key(key("request"));
  }
  // Wakes all watches, this rank's too; should it fail, this rank's watch tries again.
  static_cast<void>(group_.store().set(request_key, "yes"));
}

bool StepAgreement::is_requested() const {
  const std::lock_guard lock(mutex_);
  return is_requested_ || is_wanted_;
}

Result<bool> StepAgreement::reached(int64_t step) {
  std::unique_lock lock(mutex_);
  step_ = step;
  // Behind its answer a rank may be behind the agreed step: it has to know first.
  changed_.wait(lock, watcher_.get_stop_token(),
                [&] { return !answered_ || step <= *answered_ || agreed_ || !status_.ok(); });
  if (!status_.ok()) return status_;
  if (!agreed_ || step < *agreed_) return false;
  ++round_;
  is_wanted_ = is_requested_ = false;
  answered_.reset();
  agreed_.reset();
  changed_.notify_all();
  return true;
}

void StepAgreement::watch(std::stop_token stop) {
  rendezvous::Store& store = group_.store();
  const auto fail = [&](const Status& status) {
    const std::lock_guard lock(mutex_);
    status_ = status.with_context(fmt::format("agreeing upon a step ({})", name_));
    changed_.notify_all();
  };
  while (!stop.stop_requested()) {
    bool asks = false;
    std::string request_key, prefix;
    {
      std::unique_lock lock(mutex_);
      // After its answer this round is over for the watch, until the training has come to it.
      if (agreed_) {
        changed_.wait(lock, stop, [&] { return !agreed_; });
        continue;
      }
      asks = is_wanted_;
      request_key = group_.key(key("request"));
      prefix = key("at/");
    }
    const uint64_t ticket = store.ticket();
    if (asks) {
      if (const Status status = store.set(request_key, "yes"); !status.ok()) return fail(status);
    }
    const Result<std::optional<std::string>> requested = store.get(request_key);
    if (!requested.ok()) return fail(requested.status());
    if (!*requested) {
      std::unique_lock lock(mutex_);
      // A request of this process wakes at once, one of another within the time of a look.
      if (is_wanted_) continue;
      lock.unlock();
      store.wait_change(ticket, Deadline::in(kLook));
      continue;
    }
    int64_t answer = 0;
    {
      const std::lock_guard lock(mutex_);
      is_requested_ = true;
      answered_ = answer = step_;
    }
    if (const Status status = store.set(group_.key(fmt::format("{}{}", prefix, group_.rank())),
                                        std::to_string(answer));
        !status.ok()) {
      return fail(status);
    }
    rendezvous::Group::Wait wait;
    wait.what = "the steps that the ranks have come to";
    wait.deadline = Deadline::in(deadline_);
    wait.stop = stop;
    const Result<rendezvous::Group::Waited> waited = group_.wait_ranks(prefix, wait);
    if (!waited.ok()) {
      if (!stop.stop_requested()) fail(waited.status());
      return;
    }
    int64_t greatest = -1;
    for (const auto& [rank, text] : waited->values) {
      int64_t said = -1;
      std::from_chars(text.data(), text.data() + text.size(), said);
      greatest = std::max(greatest, said);
    }
    int64_t round = 0;
    {
      const std::lock_guard lock(mutex_);
      agreed_ = greatest + 1;
      round = round_;
      changed_.notify_all();
    }
    // All ranks have answered in this round, so none looks at the one before.
    if (group_.is_coordinator() && round > 0) {
      static_cast<void>(store.remove_all(group_.key(fmt::format("{}/{}/", name_, round - 1))));
    }
  }
}

}  // namespace hekla::checkpoint
