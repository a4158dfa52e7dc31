// SPDX-License-Identifier: Apache-2.0
// DeviceGradients: gradients on devices of a model that every rank has, averaged over the ranks of
// a group while the backward pass makes them; what data_parallel/gradient_buckets.h is for host
// arrays.
//
//   auto gradients = *DeviceGradients::create(devices, {{"w1", place}, ...}, {});
//   for each step:
//     for each parameter, as its gradient has been launched: gradients->ready(i, buffer);
//     HEKLA_ASSIGN_OR_RETURN(std::vector<runtime::Buffer> averages, gradients->finish());
//
// A bucket is a block of calls of the group (DeviceGroup::begin_coalescing), made as soon as it is
// full and those before it have gone: large gradients are reduced where they lie, small ones as one
// exchange. Nothing waits for the contents of a gradient but the group's queue. Bits depend on the
// ranks' gradients alone, not on the sizes of buckets. Parameters are registered in the order in
// which a model uses them, see buckets.h. Thread-safe but for finish and abandon, which end a step.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/process_group/data_parallel/gradient_buckets.h"
#include "runtime/process_group/device_arrays/device_group.h"

namespace hekla::process_group {

struct DeviceParameter {
  std::string name;   // for messages
  DevicePlace place;  // of its gradients
};

class DeviceGradients {
 public:
  // Collective over the group that `group` was made of; errors as those of Buckets::create.
  static Result<std::unique_ptr<DeviceGradients>> create(std::shared_ptr<DeviceGroup> group,
                                                         std::vector<DeviceParameter> parameters,
                                                         const GradientOptions& options);

  // The gradient of a parameter, which may still be computed; with `donate` it is freed, and its
  // average may lie where it did. INVALID_ARGUMENT: another dtype or shape than the parameter's, it
  // has come already, or there is no such parameter. FAILED_PRECONDITION: this thread's calls are
  // being coalesced.
  Status ready(int parameter, DeviceArray gradient, bool donate = false);
  // Waits for all: the averages, by parameter, or the first error. Then the next step may begin, on
  // all ranks alike.
  Result<std::vector<runtime::Buffer>> finish();
  // In place of finish, where this rank's gradients are not to be had: the others' fails with
  // `why`. Then the next step may begin, where all ranks have done so.
  void abandon(const Status& why);
  size_t bucket_count() const { return layout_.size(); }

 private:
  DeviceGradients(std::shared_ptr<DeviceGroup> group, std::vector<DeviceParameter> parameters,
                  std::vector<Bucket> layout, const GradientOptions& options);
  Status check(int parameter, const DeviceArray& gradient) const;
  // These need the lock.
  Status complete();
  void start_full();
  void reset();

  struct Gradient {
    DeviceArray array;  // come, and not gone yet
    bool is_donated = false;
    bool has_come = false;
  };

  const std::shared_ptr<DeviceGroup> group_;
  const std::vector<DeviceParameter> parameters_;
  const std::vector<Bucket> layout_;
  const GradientOptions options_;
  std::vector<size_t> bucket_of_;  // by parameter
  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Gradient> gradients_;              // by parameter
  std::vector<std::optional<DeviceWork>> sums_;  // the same, of those that have gone
  std::vector<size_t> missing_;                  // by bucket
  std::vector<DeviceWork> works_;                // of the buckets that have gone, the first ones
};

}  // namespace hekla::process_group
