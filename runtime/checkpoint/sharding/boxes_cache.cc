// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/sharding/boxes_cache.h"

#include <algorithm>
#include <vector>

namespace hekla::checkpoint {
namespace {

// Everything is written behind its length, so that different questions have different keys.
void add(std::string* key, int64_t value) {
  key->append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void add(std::string* key, std::span<const int64_t> values) {
  add(key, static_cast<int64_t>(values.size()));
  key->append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}
void add(std::string* key, const std::string& text) {
  add(key, static_cast<int64_t>(text.size()));
  *key += text;
}

}  // namespace

template <typename Make>
Result<std::shared_ptr<const HeldBoxes>> BoxesCache::find(const Make& make) {
  ++questions_;
  if (const auto known = known_.find(key_); known != known_.end()) {
    known->second.asked = questions_;
    return known->second.boxes;
  }
  HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<const HeldBoxes> boxes, make());
  if (known_.size() >= limit_) {
    std::vector<uint64_t> times;
    for (const auto& [key, known] : known_) times.push_back(known.asked);
    const auto middle = times.begin() + static_cast<int64_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    std::erase_if(
        known_, [newest_out = *middle](const auto& one) { return one.second.asked <= newest_out; });
  }
  known_[key_] = {boxes, questions_};
  return boxes;
}

Result<std::shared_ptr<const HeldBoxes>> BoxesCache::get(
    const Sharding& sharding, const Dims& shape, std::span<const int32_t> rank_of_position) {
  key_ = "s";
  add(&key_, static_cast<int64_t>(sharding.mesh.axes.size()));
  for (const sharding::Axis& axis : sharding.mesh.axes) {
    add(&key_, axis.name);
    add(&key_, axis.size);
  }
  add(&key_, sharding.mesh.device_ids);
  add(&key_, static_cast<int64_t>(sharding.spec.dims.size()));
  for (const std::vector<std::string>& names : sharding.spec.dims) {
    add(&key_, static_cast<int64_t>(names.size()));
    for (const std::string& name : names) add(&key_, name);
  }
  add(&key_, static_cast<int64_t>(sharding.spec.replicated.size()));
  for (const std::string& name : sharding.spec.replicated) add(&key_, name);
  add(&key_, shape);
  add(&key_, static_cast<int64_t>(rank_of_position.size()));
  for (const int32_t rank : rank_of_position) add(&key_, int64_t{rank});
  return find([&] { return held_boxes(sharding, shape, rank_of_position); });
}

Result<std::shared_ptr<const HeldBoxes>> BoxesCache::get(std::span<const Holding> holdings,
                                                         const Dims& shape) {
  key_ = "h";
  add(&key_, shape);
  for (const Holding& holding : holdings) {
    add(&key_, int64_t{holding.rank});
    add(&key_, holding.box.start);
    add(&key_, holding.box.size);
  }
  return find([&] { return held_boxes(holdings, shape); });
}

}  // namespace hekla::checkpoint
