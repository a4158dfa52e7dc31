// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/data_parallel/buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "runtime/process_group/objects.h"

namespace hekla::process_group {
namespace {

Status check(const std::vector<Parameter>& parameters, const BucketSizes& sizes) {
  if (sizes.first < 1 || sizes.others < 1) {
    return invalid_argument("buckets of {} and {} bytes", sizes.first, sizes.others);
  }
  for (const Parameter& one : parameters) {
    const bool is_known = one.dtype != DType::kInvalid && static_cast<int>(one.dtype) < kDTypeCount;
    if (!is_known) return invalid_argument("parameter {} without a dtype", one.name);
    HEKLA_RETURN_IF_ERROR(checked_bytes(one.dtype, std::vector<int64_t>{one.count})
                              .status()
                              .with_context("parameter " + one.name));
  }
  return ok_status();
}

// A line for each parameter, after one of what else must agree.
std::string description(const std::vector<Parameter>& parameters, const BucketSizes& sizes) {
  std::string text = fmt::format("buckets of {} and {} bytes", sizes.first, sizes.others);
  for (const Parameter& one : parameters) {
    text += fmt::format("\n{}[{}] {}", dtype_name(one.dtype), one.count, one.name);
  }
  return text;
}

// The first line that differs.
std::string difference(std::string_view a, std::string_view b) {
  for (int line = 0;; ++line) {
    const std::string_view of_a = a.substr(0, a.find('\n')), of_b = b.substr(0, b.find('\n'));
    if (of_a != of_b || a.empty() || b.empty()) {
      return fmt::format("{}\"{}\" and \"{}\"",
                         line == 0 ? "" : fmt::format("parameter {}: ", line - 1), of_a, of_b);
    }
    a.remove_prefix(std::min(a.size(), of_a.size() + 1));
    b.remove_prefix(std::min(b.size(), of_b.size() + 1));
  }
}

constexpr std::string_view kCreation = "buckets of parameters";

// What a rank can say without the others, who hear of it where something is wrong.
Status check_alone(ProcessGroup& group, const std::vector<Parameter>& parameters,
                   const BucketSizes& sizes) {
  HEKLA_RETURN_IF_ERROR(group.check_may_wait(kCreation));
  const Status wrong = check(parameters, sizes);
  if (!wrong.ok()) group.refuse(kCreation, wrong);
  return wrong;
}

Status compare(ProcessGroup& group, const std::vector<Parameter>& parameters,
               const BucketSizes& sizes, Timeout timeout) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                         all_gather_objects(group, description(parameters, sizes), timeout));
  // The same pair of ranks on all.
  for (size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] == texts[0]) continue;
    return failed_precondition("parameters of ranks 0 and {} of group {} differ: {}", r,
                               group.name(), difference(texts[0], texts[r]));
  }
  return ok_status();
}

}  // namespace

Status agree_on_parameters(ProcessGroup& group, const std::vector<Parameter>& parameters,
                           const BucketSizes& sizes, Timeout timeout) {
  HEKLA_RETURN_IF_ERROR(check_alone(group, parameters, sizes));
  return compare(group, parameters, sizes, timeout);
}

std::vector<Bucket> bucket_layout(const std::vector<Parameter>& parameters,
                                  const BucketSizes& sizes) {
  std::vector<Bucket> all;
  std::map<DType, size_t> open;  // bucket by dtype
  for (int i = static_cast<int>(parameters.size()) - 1; i >= 0; --i) {
    const Parameter& one = parameters[static_cast<size_t>(i)];
    const int64_t width = dtype_bytes(one.dtype);
    auto found = open.find(one.dtype);
    if (found != open.end()) {
      const Bucket& bucket = all[found->second];
      const int64_t most = found->second == 0 ? sizes.first : sizes.others;
      if (bucket.count > 0 && (bucket.count + one.count) * width > most) {
        open.erase(found);
        found = open.end();
      }
    }
    if (found == open.end()) {
      found = open.emplace(one.dtype, all.size()).first;
      all.push_back({one.dtype, {}, 0});
    }
    Bucket& bucket = all[found->second];
    bucket.places.push_back({i, bucket.count});
    bucket.count += one.count;
  }
  // Of several dtypes some are open for longer.
  std::stable_sort(all.begin(), all.end(), [](const Bucket& a, const Bucket& b) {
    return a.places.back().parameter > b.places.back().parameter;
  });
  return all;
}

Buckets::Buckets(std::shared_ptr<ProcessGroup> group, std::vector<Parameter> parameters,
                 const BucketSizes& sizes, Start start)
    : group_(std::move(group)),
      parameters_(std::move(parameters)),
      layout_(bucket_layout(parameters_, sizes)),
      start_(std::move(start)),
      place_(parameters_.size()) {
  for (size_t b = 0; b < layout_.size(); ++b) {
    for (const Bucket::Place& place : layout_[b].places) {
      place_[static_cast<size_t>(place.parameter)] = {b, place.first};
    }
  }
  reset();
}

Result<std::unique_ptr<Buckets>> Buckets::create(std::shared_ptr<ProcessGroup> group,
                                                 std::vector<Parameter> parameters,
                                                 const BucketSizes& sizes, Start start,
                                                 Timeout timeout) {
  ProcessGroup& own = *group;
  HEKLA_RETURN_IF_ERROR(check_alone(own, parameters, sizes));
  std::unique_ptr<Buckets> made(
      new Buckets(std::move(group), std::move(parameters), sizes, std::move(start)));
  for (const Bucket& bucket : made->layout_) {
    const int64_t ranks = own.size();
    const int64_t count = (bucket.count + ranks - 1) / ranks * ranks;
    Result<HostArray> memory = HostArray::allocate(bucket.dtype, {count});
    if (!memory.ok()) {
      own.refuse(kCreation, memory.status());
      return memory.status();
    }
    auto kept = std::make_shared<HostArray>(*std::move(memory));
    const Elements all{kept->mutable_data(), bucket.dtype, count, kept};
    made->memory_.push_back(all);
  }
  HEKLA_RETURN_IF_ERROR(compare(own, made->parameters_, sizes, timeout));
  return made;
}

Result<Elements> Buckets::array(int parameter) const {
  if (parameter < 0 || parameter >= static_cast<int>(parameters_.size())) {
    return invalid_argument("parameter {} of {}", parameter, parameters_.size());
  }
  const auto at = static_cast<size_t>(parameter);
  const auto [bucket, first] = place_[at];
  return memory_[bucket].part(first, parameters_[at].count);
}

Status Buckets::check_missing(int parameter) const {
  if (parameter < 0 || parameter >= static_cast<int>(parameters_.size())) {
    return invalid_argument("parameter {} of {}", parameter, parameters_.size());
  }
  const auto at = static_cast<size_t>(parameter);
  if (stages_[at] != Stage::kCome) return ok_status();
  return invalid_argument("the gradient of parameter {}, {}, has come twice in a step", parameter,
                          parameters_[at].name);
}

Status Buckets::claim(int parameter) {
  const std::lock_guard lock(mutex_);
  HEKLA_RETURN_IF_ERROR(check_missing(parameter));
  Stage& stage = stages_[static_cast<size_t>(parameter)];
  if (stage == Stage::kClaimed) {
    return invalid_argument("the gradient of parameter {}, {}, comes twice in a step", parameter,
                            parameters_[static_cast<size_t>(parameter)].name);
  }
  stage = Stage::kClaimed;
  return ok_status();
}

Status Buckets::ready(int parameter) {
  const std::lock_guard lock(mutex_);
  HEKLA_RETURN_IF_ERROR(check_missing(parameter));
  const auto at = static_cast<size_t>(parameter);
  stages_[at] = Stage::kCome;
  --missing_[place_[at].first];
  start_full();
  return ok_status();
}

void Buckets::start_full() {
  while (works_.size() < layout_.size() && missing_[works_.size()] == 0) {
    const size_t bucket = works_.size();
    works_.push_back(start_(bucket, memory_[bucket]));
    static_cast<void>(works_.back().test());  // it is to run while others come
  }
}

Status Buckets::complete(bool missing_is_zero) {
  const std::lock_guard lock(mutex_);
  std::string names;
  int count = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (stages_[i] == Stage::kCome) continue;
    constexpr int kNamed = 4;
    if (count++ < kNamed) names += (names.empty() ? "" : ", ") + parameters_[i].name;
  }
  if (count == 0) return ok_status();
  if (!missing_is_zero) {
    const Status why =
        failed_precondition("no gradient has come of {} of {} parameters: {}{}", count,
                            parameters_.size(), names, count > 4 ? ", .." : "");
    group_->refuse(fmt::format("that of bucket {}", works_.size()), why);
    return why.with_context("group " + group_->name());
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (stages_[i] == Stage::kCome) continue;
    const auto [bucket, first] = place_[i];
    const Elements zeros = memory_[bucket].part(first, parameters_[i].count);
    if (zeros.count > 0) std::memset(zeros.data, 0, static_cast<size_t>(zeros.size_bytes()));
    stages_[i] = Stage::kCome;
    --missing_[bucket];
  }
  start_full();
  return ok_status();
}

void Buckets::abandon(const Status& why, bool goes_on) {
  std::vector<Work> works;
  {
    const std::lock_guard lock(mutex_);
    works = works_;
    if (goes_on || works.size() < layout_.size()) {
      group_->refuse(fmt::format("that of bucket {}", works.size()), why);
    }
  }
  for (const Work& work : works) static_cast<void>(work.wait());  // `why` is the first error
  reset();
}

size_t Buckets::gone() {
  const std::lock_guard lock(mutex_);
  return works_.size();
}

Status Buckets::wait(size_t bucket) {
  const Work work = [&] {
    const std::lock_guard lock(mutex_);
    return works_[bucket];
  }();
  return work.wait();
}

void Buckets::reset() {
  const std::lock_guard lock(mutex_);
  stages_.assign(parameters_.size(), Stage::kMissing);
  missing_.clear();
  for (const Bucket& bucket : layout_) missing_.push_back(bucket.places.size());
  works_.clear();
}

}  // namespace hekla::process_group
