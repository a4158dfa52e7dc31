// SPDX-License-Identifier: Apache-2.0
// ShardedOptimizer: an optimizer step whose state is divided among the ranks of a group (ZeRO, its
// first stage): gradients are reduced and scattered, each rank updates its shard of the parameters,
// which are then gathered.
//
//   auto optimizer = *ShardedOptimizer::create(group, {{"w1", DType::kF32, 4096}, ...}, options);
//   write the parameters into optimizer->parameter(i), and make them those of rank 0:
//   HEKLA_RETURN_IF_ERROR(optimizer->broadcast_parameters(0));
//   for each step:
//     as with GradientBuckets: gradient(i), ready(i)
//     HEKLA_RETURN_IF_ERROR(optimizer->step(update));    // parameter(i) is the new one
//
// `update` gets flat pieces of parameters, gradients and state, and treats each element by itself:
// then the result has the bits of one process that has all of them, whatever buckets, ranks and
// sizes. Sizes need not be multiples of the ranks.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/process_group/data_parallel/buckets.h"

namespace hekla::process_group {

struct ShardOptions {
  BucketSizes sizes;
  Reduction by = ReduceOp::kAvg;
  Timeout timeout;  // of each call; none: the group's
  bool missing_is_zero = false;
  // One array of state of that dtype for each, as long as the parameters and zeros at first;
  // kInvalid: of the parameter's.
  std::vector<DType> states;
};

class ShardedOptimizer {
 public:
  // This rank's part of a bucket. All arrays have as many elements, none where there are more ranks
  // than elements.
  struct Shard {
    int64_t step;  // from 1 on
    Elements parameters;
    ConstElements gradients;
    std::span<const Elements> states;
  };
  using Update = std::function<Status(const Shard&)>;

  // Collective; errors as those of Buckets::create.
  static Result<std::unique_ptr<ShardedOptimizer>> create(std::shared_ptr<ProcessGroup> group,
                                                          std::vector<Parameter> parameters,
                                                          const ShardOptions& options);

  // Their memory, which stays where it is; zeros at first. INVALID_ARGUMENT: there is none.
  Result<Elements> parameter(int i) const;
  Result<Elements> gradient(int i) const { return buckets_->array(i); }
  // Collective.
  Status broadcast_parameters(int root);

  // The gradient is written, and left alone until `step`. Thread-safe.
  Status ready(int i) { return buckets_->ready(i); }
  // Collective. A bucket's parameters are on their way while the next one's gradients are awaited.
  // What `update` ends with ends the step on all ranks; after an error parameters are of both
  // steps. Gradients are undefined then.
  Status step(const Update& update);
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }  // that there have been, for one that goes on

  // Collective: an array of state, whole, by parameter; for checkpoints that any number of ranks
  // goes on with. INVALID_ARGUMENT: there is none.
  Result<std::vector<HostArray>> gather_state(size_t which);
  // Takes this rank's part of that. INVALID_ARGUMENT: other dtypes or sizes.
  Status set_state(size_t which, const std::vector<HostArray>& arrays);
  int64_t state_bytes() const;  // on this rank
  size_t bucket_count() const { return parts_.size(); }

 private:
  struct Part {
    Elements parameters;           // all, as long as the bucket's gradients
    int64_t first = 0, count = 0;  // this rank's
    std::vector<Elements> states;
  };
  ShardedOptimizer(std::shared_ptr<ProcessGroup> group, std::unique_ptr<Buckets> buckets,
                   const ShardOptions& options);
  Status allocate();
  Status update_shard(size_t bucket, const Update& update);

  const std::shared_ptr<ProcessGroup> group_;
  const std::unique_ptr<Buckets> buckets_;
  const ShardOptions options_;
  std::vector<Part> parts_;                        // by bucket
  std::vector<std::pair<size_t, int64_t>> place_;  // bucket and element, by parameter
  int64_t steps_ = 0;
};

}  // namespace hekla::process_group
