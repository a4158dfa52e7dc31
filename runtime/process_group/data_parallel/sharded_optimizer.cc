// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/data_parallel/sharded_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/copy_bytes.h"

namespace hekla::process_group {
namespace {

Result<Elements> zeros(DType dtype, int64_t count) {
  HEKLA_ASSIGN_OR_RETURN(HostArray made, HostArray::allocate(dtype, {count}));
  auto kept = std::make_shared<HostArray>(std::move(made));
  return Elements{kept->mutable_data(), dtype, count, kept};
}

}  // namespace

Result<std::unique_ptr<ShardedOptimizer>> ShardedOptimizer::create(
    std::shared_ptr<ProcessGroup> group, std::vector<Parameter> parameters,
    const ShardOptions& options) {
  for (const Parameter& one : parameters) {
    const Status wrong = check_reduction(options.by, one.dtype);
    if (wrong.ok()) continue;
    group->refuse("shards of parameters", wrong);
    return wrong.with_context("parameter " + one.name);
  }
  ProcessGroup* const own = group.get();
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<Buckets> buckets,
                         Buckets::create(
                             group, std::move(parameters), options.sizes,
                             [own, options](size_t, const Elements& memory) {
                               const int64_t count = memory.count / own->size();
                               return own->reduce_scatter(memory.part(own->rank() * count, count),
                                                          memory, options.by, options.timeout);
                             },
                             options.timeout));
  std::unique_ptr<ShardedOptimizer> made(
      new ShardedOptimizer(std::move(group), std::move(buckets), options));
  if (const Status status = made->allocate(); !status.ok()) {
    own->refuse("shards of parameters", status);
    return status;
  }
  return made;
}

ShardedOptimizer::ShardedOptimizer(std::shared_ptr<ProcessGroup> group,
                                   std::unique_ptr<Buckets> buckets, const ShardOptions& options)
    : group_(std::move(group)),
      buckets_(std::move(buckets)),
      options_(options),
      place_(buckets_->parameters().size()) {
  const std::vector<Bucket>& layout = buckets_->layout();
  for (size_t b = 0; b < layout.size(); ++b) {
    for (const Bucket::Place& place : layout[b].places) {
      place_[static_cast<size_t>(place.parameter)] = {b, place.first};
    }
  }
}

Status ShardedOptimizer::allocate() {
  for (size_t b = 0; b < buckets_->layout().size(); ++b) {
    const Bucket& bucket = buckets_->layout()[b];
    const int64_t all = buckets_->memory(b).count, each = all / group_->size();
    Part part;
    HEKLA_ASSIGN_OR_RETURN(part.parameters, zeros(bucket.dtype, all));
    part.first = std::min(bucket.count, each * group_->rank());
    part.count = std::min(each, bucket.count - part.first);
    for (const DType wanted : options_.states) {
      const DType dtype = wanted == DType::kInvalid ? bucket.dtype : wanted;
      HEKLA_ASSIGN_OR_RETURN(Elements state, zeros(dtype, part.count));
      part.states.push_back(std::move(state));
    }
    parts_.push_back(std::move(part));
  }
  return ok_status();
}

Result<Elements> ShardedOptimizer::parameter(int i) const {
  if (i < 0 || i >= static_cast<int>(place_.size())) {
    return invalid_argument("parameter {} of {}", i, place_.size());
  }
  const auto at = static_cast<size_t>(i);
  const auto [bucket, first] = place_[at];
  return parts_[bucket].parameters.part(first, buckets_->parameters()[at].count);
}

Status ShardedOptimizer::broadcast_parameters(int root) {
  std::vector<Work> works;
  for (const Part& part : parts_) {
    works.push_back(group_->broadcast(part.parameters, root, options_.timeout));
  }
  return Work::all("broadcast of parameters", works).wait();
}

Status ShardedOptimizer::update_shard(size_t bucket, const Update& update) {
  const Part& part = parts_[bucket];
  const Elements gradients = buckets_->memory(bucket);
  return update({steps_, part.parameters.part(part.first, part.count),
                 gradients.part(part.first, part.count), part.states});
}

Status ShardedOptimizer::step(const Update& update) {
  Status first = buckets_->complete(options_.missing_is_zero);
  if (first.ok()) ++steps_;
  const size_t gone = buckets_->gone();
  std::vector<Work> gathers;
  for (size_t b = 0; b < gone; ++b) {
    const Status reduced = buckets_->wait(b);
    if (first.ok()) first = reduced;
    if (!first.ok()) continue;
    first = update_shard(b, update);
    if (!first.ok()) {
      group_->refuse(fmt::format("all_gather of the parameters of bucket {}", b), first);
      continue;
    }
    const Elements all = parts_[b].parameters;
    const int64_t each = all.count / group_->size();
    gathers.push_back(
        group_->all_gather(all, all.part(each * group_->rank(), each), options_.timeout));
    static_cast<void>(gathers.back().test());  // it is to run while others are awaited
  }
  for (const Work& gather : gathers) {
    const Status status = gather.wait();
    if (first.ok()) first = status;
  }
  buckets_->reset();
  return first;
}

Result<std::vector<HostArray>> ShardedOptimizer::gather_state(size_t which) {
  if (which >= options_.states.size()) {
    const Status refused = invalid_argument("state {} of {}", which, options_.states.size());
    group_->refuse("all_gather of state", refused);
    return refused;
  }
  // All before the first call: what cannot be had is then one call that this rank does not make.
  std::vector<Elements> whole;
  for (const Part& part : parts_) {
    Result<Elements> gathered = zeros(part.states[which].dtype, part.parameters.count);
    if (!gathered.ok()) {
      group_->refuse("all_gather of state", gathered.status());
      return gathered.status();
    }
    whole.push_back(*std::move(gathered));
  }
  std::vector<Work> works;
  for (size_t b = 0; b < parts_.size(); ++b) {
    const Elements& state = parts_[b].states[which];
    const int64_t each = whole[b].count / group_->size();
    const Elements own = whole[b].part(each * group_->rank(), each);
    copy_bytes(own.data, state.data, state.size_bytes());
    works.push_back(group_->all_gather(whole[b], own, options_.timeout));
  }
  HEKLA_RETURN_IF_ERROR(Work::all("all_gather of state", works).wait());
  std::vector<HostArray> arrays;
  for (size_t i = 0; i < place_.size(); ++i) {
    const auto [bucket, first] = place_[i];
    const Elements from = whole[bucket].part(first, buckets_->parameters()[i].count);
    HEKLA_ASSIGN_OR_RETURN(HostArray array, HostArray::allocate(from.dtype, {from.count}, false));
    copy_bytes(array.mutable_data(), from.data, from.size_bytes());
    arrays.push_back(std::move(array));
  }
  return arrays;
}

Status ShardedOptimizer::set_state(size_t which, const std::vector<HostArray>& arrays) {
  if (which >= options_.states.size() || arrays.size() != place_.size()) {
    return invalid_argument("state {} of {}, of {} parameters where there are {}", which,
                            options_.states.size(), arrays.size(), place_.size());
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Elements& state = parts_[place_[i].first].states[which];
    const Parameter& parameter = buckets_->parameters()[i];
    if (arrays[i].dtype() == state.dtype && arrays[i].size() == parameter.count) continue;
    return invalid_argument("state {} of parameter {}: {} where {}[{}] belongs", which,
                            parameter.name, arrays[i].shape(), dtype_name(state.dtype),
                            parameter.count);
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    const auto [bucket, first] = place_[i];
    const Part& part = parts_[bucket];
    // What of the parameter is in this rank's part.
    const int64_t begin = std::max(first, part.first);
    const int64_t end = std::min(first + arrays[i].size(), part.first + part.count);
    if (begin >= end) continue;
    const Elements to = part.states[which].part(begin - part.first, end - begin);
    copy_bytes(to.data, arrays[i].data() + (begin - first) * dtype_bytes(to.dtype),
               to.size_bytes());
  }
  return ok_status();
}

int64_t ShardedOptimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const Part& part : parts_) {
    for (const Elements& state : part.states) bytes += state.size_bytes();
  }
  return bytes;
}

}  // namespace hekla::process_group
