// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/data_parallel/gradient_buckets.h"

#include <utility>

namespace hekla::process_group {

Result<std::unique_ptr<GradientBuckets>> GradientBuckets::create(
    std::shared_ptr<ProcessGroup> group, std::vector<Parameter> parameters,
    const GradientOptions& options) {
  for (const Parameter& one : parameters) {
    const Status wrong = check_reduction(options.by, one.dtype);
    if (wrong.ok()) continue;
    group->refuse("buckets of gradients", wrong);
    return wrong.with_context("parameter " + one.name);
  }
  ProcessGroup* const own = group.get();
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<Buckets> buckets,
                         Buckets::create(
                             std::move(group), std::move(parameters), options.sizes,
                             [own, options](size_t, const Elements& memory) {
                               return own->all_reduce(memory, options.by, options.timeout);
                             },
                             options.timeout));
  return std::unique_ptr<GradientBuckets>(new GradientBuckets(std::move(buckets), options));
}

Status GradientBuckets::finish() {
  Status first = buckets_->complete(options_.missing_is_zero);
  const size_t gone = buckets_->gone();
  for (size_t b = 0; b < gone; ++b) {
    const Status status = buckets_->wait(b);
    if (first.ok()) first = status;
  }
  buckets_->reset();
  return first;
}

}  // namespace hekla::process_group
