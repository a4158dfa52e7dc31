// SPDX-License-Identifier: Apache-2.0
// Held boxes that were asked for before: states have many tensors of few shapes and shardings, and
// ask again at every save.
//
// One thread at a time. Bounded: beyond `limit` different questions the oldest half is forgotten;
// boxes that were given out stay valid.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "runtime/base/status.h"
#include "runtime/checkpoint/sharding/mesh.h"

namespace hekla::checkpoint {

class BoxesCache {
 public:
  explicit BoxesCache(size_t limit = 100'000) : limit_(limit) {}

  // held_boxes of mesh.h, with its errors; what fails is not kept.
  Result<std::shared_ptr<const HeldBoxes>> get(const Sharding& sharding, const Dims& shape,
                                               std::span<const int32_t> rank_of_position = {});
  Result<std::shared_ptr<const HeldBoxes>> get(std::span<const Holding> holdings,
                                               const Dims& shape);

  size_t size() const { return known_.size(); }

 private:
  struct Known {
    std::shared_ptr<const HeldBoxes> boxes;
    uint64_t asked = 0;  // when last
  };
  template <typename Make>
  Result<std::shared_ptr<const HeldBoxes>> find(const Make& make);

  size_t limit_;
  uint64_t questions_ = 0;
  std::string key_;  // of the question at hand; kept to be filled without allocating
  std::unordered_map<std::string, Known> known_;
};

}  // namespace hekla::checkpoint
