// SPDX-License-Identifier: Apache-2.0
// CountedLoop: a loop of a shader, its blocks and the phis at its head: an iteration that counts up
// by one, and whatever else goes round. Of this folder alone. One thread, one module.
#pragma once

#include <span>
#include <vector>

#include "backends/vulkan/codegen/bits.h"

namespace hekla::vulkan::codegen {

class CountedLoop {
 public:
  // Afterwards the build point is in the loop's head, which is for carry() and what decides.
  explicit CountedLoop(Bits first);

  // The same in the loop's head, in its body and behind the loop.
  Bits iteration() const { return {m_, width_, phis_[0]->getResultId()}; }
  spv::Id carried(size_t i) const { return phis_[i + 1]->getResultId(); }

  // One more value that goes round, which is `initial` at first.
  spv::Id carry(spv::Id type, spv::Id initial);
  // Afterwards the build point is in the loop's body.
  void begin_body(Flag goes_on, unsigned control);
  // What each carried value is in the next iteration. Afterwards the build point is behind the
  // loop.
  void end(std::span<const spv::Id> following = {});

 private:
  Module* m_;
  int width_;
  spv::Block* before_;
  spv::Block* head_;
  spv::Block* body_;
  spv::Block* next_;
  spv::Block* merge_;
  std::vector<spv::Instruction*> phis_;  // the iteration's, then those of the carried values
};

}  // namespace hekla::vulkan::codegen
