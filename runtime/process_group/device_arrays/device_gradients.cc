// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/device_arrays/device_gradients.h"

#include <fmt/format.h>

#include <utility>

namespace hekla::process_group {
namespace {

std::vector<Parameter> described(const std::vector<DeviceParameter>& parameters) {
  std::vector<Parameter> all;
  for (const DeviceParameter& one : parameters) {
    all.push_back({one.name, one.place.dtype, element_count(one.place.dims)});
  }
  return all;
}

}  // namespace

Result<std::unique_ptr<DeviceGradients>> DeviceGradients::create(
    std::shared_ptr<DeviceGroup> group, std::vector<DeviceParameter> parameters,
    const GradientOptions& options) {
  if (group == nullptr) return invalid_argument("gradients without a group of device arrays");
  ProcessGroup& parent = *group->parent();
  for (const DeviceParameter& one : parameters) {
    Status wrong = checked_bytes(one.place.dtype, one.place.dims).status();
    if (wrong.ok()) wrong = check_reduction(options.by, one.place.dtype);
    if (wrong.ok()) continue;
    parent.refuse("buckets of gradients on devices", wrong);
    return wrong.with_context("parameter " + one.name);
  }
  const std::vector<Parameter> all = described(parameters);
  HEKLA_RETURN_IF_ERROR(agree_on_parameters(parent, all, options.sizes, options.timeout));
  return std::unique_ptr<DeviceGradients>(new DeviceGradients(
      std::move(group), std::move(parameters), bucket_layout(all, options.sizes), options));
}

DeviceGradients::DeviceGradients(std::shared_ptr<DeviceGroup> group,
                                 std::vector<DeviceParameter> parameters,
                                 std::vector<Bucket> layout, const GradientOptions& options)
    : group_(std::move(group)),
      parameters_(std::move(parameters)),
      layout_(std::move(layout)),
      options_(options),
      bucket_of_(parameters_.size()) {
  for (size_t b = 0; b < layout_.size(); ++b) {
    for (const Bucket::Place& place : layout_[b].places) {
      bucket_of_[static_cast<size_t>(place.parameter)] = b;
    }
  }
  reset();
}

Status DeviceGradients::check(int parameter, const DeviceArray& gradient) const {
  if (parameter < 0 || parameter >= static_cast<int>(parameters_.size())) {
    return invalid_argument("parameter {} of {}", parameter, parameters_.size());
  }
  const DeviceParameter& one = parameters_[static_cast<size_t>(parameter)];
  if (gradient == nullptr || gradient->is_empty()) {
    return invalid_argument("the gradient of parameter {}, {}, is an empty buffer", parameter,
                            one.name);
  }
  if (gradient->dtype() == one.place.dtype && gradient->dims() == one.place.dims) {
    return ok_status();
  }
  return invalid_argument("the gradient of parameter {}, {}, is {} where {} belongs", parameter,
                          one.name, gradient->shape(),
                          shape_string(one.place.dtype, one.place.dims));
}

Status DeviceGradients::ready(int parameter, DeviceArray gradient, bool donate) {
  HEKLA_RETURN_IF_ERROR(check(parameter, gradient));
  HEKLA_RETURN_IF_ERROR(group_->check_may_wait("a bucket of gradients"));
  const auto at = static_cast<size_t>(parameter);
  const std::lock_guard lock(mutex_);
  Gradient& own = gradients_[at];
  if (own.has_come) {
    return invalid_argument("the gradient of parameter {}, {}, has come twice in a step", parameter,
                            parameters_[at].name);
  }
  own = {std::move(gradient), donate, true};
  --missing_[bucket_of_[at]];
  start_full();
  return ok_status();
}

void DeviceGradients::start_full() {
  while (works_.size() < layout_.size() && missing_[works_.size()] == 0) {
    // No block is open on this thread, which has been checked.
    static_cast<void>(group_->begin_coalescing());
    for (const Bucket::Place& place : layout_[works_.size()].places) {
      const auto at = static_cast<size_t>(place.parameter);
      Gradient& own = gradients_[at];
      sums_[at] = group_->all_reduce(std::move(own.array), options_.by,
                                     {.timeout = options_.timeout, .donate = own.is_donated});
    }
    works_.push_back(group_->end_coalescing(options_.timeout));
    static_cast<void>(works_.back().test());  // it is to run while others come
  }
}

Status DeviceGradients::complete() {
  std::string names;
  int count = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (gradients_[i].has_come) continue;
    constexpr int kNamed = 4;
    if (count++ < kNamed) names += (names.empty() ? "" : ", ") + parameters_[i].name;
  }
  if (count == 0) return ok_status();
  Status why = failed_precondition("no gradient has come of {} of {} parameters: {}{}", count,
                                   parameters_.size(), names, count > 4 ? ", .." : "");
  for (size_t i = 0; i < parameters_.size() && options_.missing_is_zero; ++i) {
    if (gradients_[i].has_come) continue;
    const DevicePlace& place = parameters_[i].place;
    Result<HostArray> zeros = HostArray::allocate(place.dtype, place.dims);
    Result<runtime::Buffer> buffer =
        zeros.ok() ? place.client.to_device(*zeros, place.memory) : zeros.status();
    why = buffer.status().with_context("zeros for parameter " + parameters_[i].name);
    if (!buffer.ok()) break;
    gradients_[i] = {std::make_shared<runtime::Buffer>(*std::move(buffer)), true, true};
    --missing_[bucket_of_[i]];
  }
  start_full();
  if (!why.ok()) group_->refuse(fmt::format("that of bucket {}", works_.size()), why);
  return why.ok() ? why : why.with_context("group " + group_->name());
}

Result<std::vector<runtime::Buffer>> DeviceGradients::finish() {
  HEKLA_RETURN_IF_ERROR(group_->check_may_wait("the end of a step"));
  const std::lock_guard lock(mutex_);
  Status first = complete();
  for (const DeviceWork& work : works_) {
    const Status status = work.wait();
    if (first.ok()) first = status;
  }
  std::vector<runtime::Buffer> averages;
  for (size_t i = 0; i < sums_.size() && first.ok(); ++i) {
    Result<runtime::Buffer> average = sums_[i]->result();
    first = average.status();
    if (average.ok()) averages.push_back(*std::move(average));
  }
  reset();
  if (!first.ok()) return first;
  return averages;
}

void DeviceGradients::abandon(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (works_.size() < layout_.size()) {
    group_->refuse(fmt::format("that of bucket {}", works_.size()), why);
  }
  for (const DeviceWork& work : works_) static_cast<void>(work.wait());  // `why` is the first error
  reset();
}

void DeviceGradients::reset() {
  gradients_.assign(parameters_.size(), {});
  sums_.assign(parameters_.size(), std::nullopt);
  missing_.clear();
  for (const Bucket& bucket : layout_) missing_.push_back(bucket.places.size());
  works_.clear();
}

}  // namespace hekla::process_group
