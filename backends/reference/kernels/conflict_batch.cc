// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/conflict_batch.h"

#include <algorithm>
#include <limits>

#include "backends/reference/kernels/dispatch.h"

namespace hekla::reference {

Result<ConflictBatch> ConflictBatch::create(const ReducerRegion& region,
                                            std::span<HostArray> targets,
                                            std::span<const HostArray> updates) {
  HEKLA_ASSIGN_OR_RETURN(HostArray marks,
                         HostArray::allocate(DType::kUI32, targets.front().dims()));
  return ConflictBatch(region, targets, updates, std::move(marks));
}

ConflictBatch::ConflictBatch(const ReducerRegion& region, std::span<HostArray> targets,
                             std::span<const HostArray> updates, HostArray marks)
    : region_(&region), marks_(std::move(marks)), mark_(marks_.mutable_as<uint32_t>()) {
  for (size_t i = 0; i < targets.size(); ++i) {
    targets_.push_back(targets[i].mutable_data());
    updates_.push_back(updates[i].data());
    const size_t bytes = static_cast<size_t>(kRegionBlock * dtype_bytes(region.dtype(i)));
    left_.emplace_back(bytes);
    right_.emplace_back(bytes);
    out_.emplace_back(bytes);
  }
}

Status ConflictBatch::add(int64_t at, int64_t from) {
  if (mark_[at] == round_ || static_cast<int64_t>(at_.size()) == kRegionBlock) {
    HEKLA_RETURN_IF_ERROR(flush());
  }
  mark_[at] = round_;
  at_.push_back(at);
  from_.push_back(from);
  return ok_status();
}

Status ConflictBatch::flush() {
  const size_t count = at_.size();
  if (count == 0) return ok_status();
  std::vector<const std::byte*> left, right;
  std::vector<std::byte*> out;
  for (size_t i = 0; i < targets_.size(); ++i) {
    visit_element_size(region_->dtype(i), [&](auto type) {
      using T = typename decltype(type)::type;
      T* l = reinterpret_cast<T*>(left_[i].data());
      T* r = reinterpret_cast<T*>(right_[i].data());
      for (size_t j = 0; j < count; ++j) {
        l[j] = reinterpret_cast<const T*>(targets_[i])[at_[j]];
        r[j] = reinterpret_cast<const T*>(updates_[i])[from_[j]];
      }
    });
    left.push_back(left_[i].data());
    right.push_back(right_[i].data());
    out.push_back(out_[i].data());
  }
  HEKLA_RETURN_IF_ERROR(region_->combine(static_cast<int64_t>(count), left, right, out));
  for (size_t i = 0; i < targets_.size(); ++i) {
    visit_element_size(region_->dtype(i), [&](auto type) {
      using T = typename decltype(type)::type;
      const T* o = reinterpret_cast<const T*>(out_[i].data());
      for (size_t j = 0; j < count; ++j) reinterpret_cast<T*>(targets_[i])[at_[j]] = o[j];
    });
  }
  at_.clear();
  from_.clear();
  if (round_ == std::numeric_limits<uint32_t>::max()) {
    std::fill_n(mark_, marks_.size(), 0);
    round_ = 0;
  }
  ++round_;
  return ok_status();
}

}  // namespace hekla::reference
