// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/counted_loop.h"

namespace hekla::vulkan::codegen {

CountedLoop::CountedLoop(Bits first) : m_(&first.module()), width_(first.width()) {
  spv::Builder& b = m_->builder();
  before_ = b.getBuildPoint();
  head_ = &b.makeNewBlock();
  body_ = &b.makeNewBlock();
  next_ = &b.makeNewBlock();
  merge_ = &b.makeNewBlock();
  b.createBranch(head_);
  b.setBuildPoint(head_);
  carry(m_->uint_type(width_), first.id());
}

spv::Id CountedLoop::carry(spv::Id type, spv::Id initial) {
  phis_.push_back(m_->phi(type));
  Module::add_incoming(phis_.back(), initial, before_);
  return phis_.back()->getResultId();
}

void CountedLoop::begin_body(Flag goes_on, unsigned control) {
  spv::Builder& b = m_->builder();
  b.createLoopMerge(merge_, next_, control, {});
  b.createConditionalBranch(goes_on.id, body_, merge_);
  b.setBuildPoint(body_);
}

void CountedLoop::end(std::span<const spv::Id> following) {
  spv::Builder& b = m_->builder();
  b.createBranch(next_);
  b.setBuildPoint(next_);
  Module::add_incoming(phis_[0], (iteration() + 1).id(), next_);
  for (size_t i = 0; i < following.size(); ++i) {
    Module::add_incoming(phis_[i + 1], following[i], next_);
  }
  b.createBranch(head_);
  b.setBuildPoint(merge_);
}

}  // namespace hekla::vulkan::codegen
