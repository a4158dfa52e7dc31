// SPDX-License-Identifier: Apache-2.0
// GradientBuckets: gradients of a model that every rank has, averaged over the ranks of a group
// while the backward pass makes them.
//
//   auto buckets = *GradientBuckets::create(group, {{"w1", DType::kF32, 4096}, ...}, {});
//   for each step:
//     for each parameter, as backward comes to it: write its gradient into buckets->gradient(i);
//                                                  HEKLA_RETURN_IF_ERROR(buckets->ready(i));
//     HEKLA_RETURN_IF_ERROR(buckets->finish());    // gradient(i) is the average of all ranks
//
// A bucket goes as soon as it is full and those before it have gone, on threads of the group's.
// Bits depend on the ranks' gradients alone: not on the sizes of buckets, not on when what came.
// Where gradients are accumulated over some passes, `ready` belongs to the last.
#pragma once

#include <memory>
#include <vector>

#include "runtime/process_group/data_parallel/buckets.h"

namespace hekla::process_group {

struct GradientOptions {
  BucketSizes sizes;
  Reduction by = ReduceOp::kAvg;
  Timeout timeout;  // of a bucket's call; none: the group's
  // What has not come in a step counts as zeros; else it is an error, which names it.
  bool missing_is_zero = false;
};

class GradientBuckets {
 public:
  // Collective; errors as those of Buckets::create.
  static Result<std::unique_ptr<GradientBuckets>> create(std::shared_ptr<ProcessGroup> group,
                                                         std::vector<Parameter> parameters,
                                                         const GradientOptions& options);

  // Its memory, which stays where it is; zeros at first. INVALID_ARGUMENT: there is none.
  Result<Elements> gradient(int parameter) const { return buckets_->array(parameter); }
  // It is written, and left alone until `finish`. Thread-safe.
  Status ready(int parameter) { return buckets_->ready(parameter); }
  // Waits for all; the first error. Then the next step may begin, on all ranks alike.
  Status finish();
  size_t bucket_count() const { return buckets_->layout().size(); }

 private:
  GradientBuckets(std::unique_ptr<Buckets> buckets, const GradientOptions& options)
      : buckets_(std::move(buckets)), options_(options) {}
  const std::unique_ptr<Buckets> buckets_;
  const GradientOptions options_;
};

}  // namespace hekla::process_group
