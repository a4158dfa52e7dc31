// SPDX-License-Identifier: Apache-2.0
// Gang: what the launches of one program on several devices have in common.
//
// The C API layer makes one for each call of Execute over several devices; every Launch of it holds
// it. The first error of any of them aborts all: back ends look at aborted() between steps, and
// what waits (for inputs, for peers) is woken by on_abort. Each launch then ends with status(),
// which names the device where it began. Thread-safe; callbacks run without a lock held.
//
// A device that waits for others of its launch, at a collective of the program, waits for
// GangOptions::warning_seconds before the log says who is missing, and for deadline_seconds before
// the launch ends; so does one that has its inputs, for those that lack theirs (gang_inputs.h).
// Devices that compute, or wait for inputs or for their host, wait for nobody of the gang: however
// long they take, only those who wait for them count the time. A gang over devices of several
// processes that meet in the program has a link (gang_link.h): its first error ends it on all.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/pjrt/gang_link.h"
#include "backends/pjrt/post_order.h"
#include "runtime/base/async/completion.h"
#include "runtime/base/status.h"

namespace hekla::pjrt {

// Of a client.
struct GangOptions {
  int64_t warning_seconds = 10;  // 0: no warning
  int64_t deadline_seconds = 0;  // 0: none
};

// What messages call a launch and its devices; by replica * partition_count + partition, those of
// other processes too.
struct GangNames {
  std::string program;
  std::vector<std::string> devices;
};

class Gang {
 public:
  Gang() = default;  // without names; its devices wait for each other without limit
  Gang(const GangOptions& options, std::shared_ptr<const GangNames> names)
      : options_(options), names_(std::move(names)) {}
  // Of one launch of a device of `whole`, which ends with it. `order`: of the device's launches.
  static std::shared_ptr<Gang> of_one_device(const std::shared_ptr<Gang>& whole,
                                             std::shared_ptr<PostOrder> order,
                                             std::shared_ptr<const GangNames> names);
  Gang(const Gang&) = delete;
  Gang& operator=(const Gang&) = delete;

  const GangOptions& options() const { return options_; }
  const std::shared_ptr<const GangNames>& names() const { return names_; }  // null: none

  // What this launch of one device has in common with others; null: it is of all its devices.
  const std::shared_ptr<Gang>& whole() const { return whole_; }

  // To the other processes; null where all devices that meet are this one's. Set, if at all, before
  // the gang is shared.
  const std::shared_ptr<GangLink>& link() const { return whole_ ? whole_->link_ : link_; }
  void set_link(std::shared_ptr<GangLink> link) { link_ = std::move(link); }

  // The first error counts, later ones are ignored; not to be called with ok.
  void abort(Status status);
  // Becomes true once; stays as long as the gang.
  const std::atomic<bool>& aborted() const { return aborted_; }
  bool is_aborted() const { return aborted_.load(std::memory_order_acquire); }
  // Ok while nothing has failed.
  Status status() const;
  // Runs once when the gang is aborted, on the thread that aborts it, at once where it is already;
  // never, and destroyed with the gang, where all goes well. It must be short.
  void on_abort(std::function<void(const Status&)> callback);

  // Done when all of `parts` are, with the first error, or when the gang is aborted, with its
  // error.
  CompletionRef all_or_abort(std::vector<CompletionRef> parts);

  // Calls `post`, which gives the launches to their devices, when all of `parts` are done or the
  // gang is aborted; at once where that is now. One gang's at a time, in the whole process: two
  // that came to two devices in different orders would wait for each other. With a link not before
  // those of earlier gangs, for one device not before those of its earlier gangs of the same whole.
  void post_when(std::vector<CompletionRef> parts, std::function<void()> post);

  // Of a whole: no launch of the device comes any more, and none is under way. Once per device.
  void leave(int64_t device);
  // Of a whole: runs for each device that leaves, for those that have at once; it may hear of one
  // twice. Called once; the callback must be short.
  void on_leave(std::function<void(int64_t device)> callback);

  // What a back end shares among the launches of this gang, or of its whole: made by the first that
  // asks. All ask for the same type.
  template <typename T>
  std::shared_ptr<T> shared_state(const std::function<std::shared_ptr<T>()>& make) {
    if (whole_ != nullptr) return whole_->shared_state(make);
    const std::lock_guard lock(state_mutex_);
    if (state_ == nullptr) state_ = make();
    return std::static_pointer_cast<T>(state_);
  }

 private:
  Gang(const GangOptions& options, std::shared_ptr<const GangNames> names,
       std::shared_ptr<Gang> whole, std::shared_ptr<PostOrder> order)
      : options_(options),
        names_(std::move(names)),
        whole_(std::move(whole)),
        order_(std::move(order)) {}
  void end(const Status& status);

  const GangOptions options_{0, 0};
  const std::shared_ptr<const GangNames> names_;  // shared with the executable
  const std::shared_ptr<Gang> whole_;             // shared with the communicator
  const std::shared_ptr<PostOrder> order_;        // shared with the device's other launches
  std::shared_ptr<GangLink> link_;                // shared with who meets there
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  Status status_;                                              // guarded by mutex_
  std::vector<std::function<void(const Status&)>> callbacks_;  // guarded by mutex_
  std::vector<std::weak_ptr<Gang>> parts_;                     // of a whole; guarded by mutex_
  std::vector<int64_t> left_;                                  // the same, as below
  std::function<void(int64_t)> leave_callback_;
  std::mutex state_mutex_;       // of its own: making may abort
  std::shared_ptr<void> state_;  // guarded by state_mutex_
};
using GangRef = std::shared_ptr<Gang>;

}  // namespace hekla::pjrt
