// SPDX-License-Identifier: Apache-2.0
// Loads and stores a few elements apart in the lanes, as of complex numbers: whole vectors of
// memory and shuffles instead of an instruction for each lane.
#include <algorithm>
#include <bit>
#include <map>

#include "backends/cpu/codegen/emit_body.h"

namespace hekla::cpu {

using kernel::Access;
using kernel::Instruction;
using kernel::Op;
using kernel::Value;

namespace {

constexpr int64_t kMostLoadStride = 4;
constexpr int64_t kMostGroupStride = 16;

}  // namespace

// Vectors of memory from the lowest element to the highest and none beyond them; null where one
// instruction for each lane is as good. Strides below zero run backwards, as of the mirrored half
// of a real transform.
llvm::Value* BodyEmitter::load_strided(llvm::Type* element, llvm::Value* first, int64_t stride,
                                       llvm::Align align) {
  const int64_t step = stride < 0 ? -stride : stride;
  if (step < 2 || step > kMostLoadStride || lanes_ < 4) return nullptr;
  auto* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes_));
  const int64_t last = (lanes_ - 1) * step;
  const int64_t lowest = stride < 0 ? -last : 0;  // from the first lane's element
  llvm::Value* value = nullptr;
  std::vector<int> order(static_cast<size_t>(lanes_));
  for (int64_t part = 0; part < step; ++part) {
    const int64_t begin = std::min<int64_t>(part * lanes_, last + 1 - lanes_);
    llvm::Value* here = b_.CreateAlignedLoad(
        type, b_.CreateConstInBoundsGEP1_64(element, first, static_cast<uint64_t>(lowest + begin)),
        align);
    // Lanes that were found stay; those of this part come from it.
    for (int lane = 0; lane < lanes_; ++lane) {
      const int64_t place = lane * stride - lowest;
      const int64_t at = place - begin;
      const bool is_here = place >= part * lanes_ && at >= 0 && at < lanes_;
      order[static_cast<size_t>(lane)] = static_cast<int>(value == nullptr ? (is_here ? at : 0)
                                                          : is_here        ? lanes_ + at
                                                                           : lane);
    }
    value = value == nullptr ? b_.CreateShuffleVector(here, order)
                             : b_.CreateShuffleVector(value, here, order);
  }
  return value;
}

// Loads or stores `stride` elements apart in the lanes, of which as many lie side by side: whole
// vectors of memory, taken apart or put together in registers.
void BodyEmitter::find_groups(Op op, int32_t region) {
  std::map<std::pair<int32_t, int64_t>, std::vector<Value>> by_place;  // operand, stride
  for (Value v : f_.region(region).instructions) {
    const Instruction& inst = f_[v];
    if (inst.op != op || !is_emitted(v)) continue;
    const Access access = kernel::unpack_access(inst.immediate);
    const LaneShape shape = analysis_.shape(inst.arguments[0]);
    const auto stride = static_cast<uint64_t>(shape.stride);
    if (access.bytes < 4 || shape.kind != LaneKind::kAffine || shape.stride < 2 ||
        shape.stride > kMostGroupStride || !std::has_single_bit(stride)) {
      continue;
    }
    by_place[{access.operand, shape.stride}].push_back(v);
  }
  const kernel::IndexAnalysis& index = analysis_.index();
  const auto type = [&](Value v) {
    return op == Op::kLoad ? f_[v].type : f_.type(f_[v].arguments[1]);
  };
  for (auto& [place, members] : by_place) {
    const auto size = static_cast<size_t>(place.second);
    while (members.size() >= size) {
      // Those a constant distance from the first one of what is left.
      std::vector<Value> near, others;
      const auto first = index.terms(f_[members[0]].arguments[0]);
      for (const Value v : members) {
        const auto terms = index.terms(f_[v].arguments[0]);
        const bool is_near = std::equal(terms.begin(), terms.end(), first.begin(), first.end()) &&
                             type(v) == type(members[0]);
        (is_near ? near : others).push_back(v);
      }
      find_runs(std::move(near), size);
      members = std::move(others);
    }
  }
}

// Whether an instruction, or the body of a loop, has this operation on an operand.
bool BodyEmitter::touches(Value v, Op op, int32_t operand) const {
  const Instruction& inst = f_[v];
  if (inst.op == op) return kernel::unpack_access(inst.immediate).operand == operand;
  if (inst.op != Op::kFor) return false;
  const std::vector<Value>& body = f_.region(static_cast<int32_t>(inst.immediate)).instructions;
  return std::any_of(body.begin(), body.end(), [&](Value w) { return touches(w, op, operand); });
}

// Whether members may be one access: loads where the first of them stands, stores where the last
// one does. Between them nothing stores what is loaded or sees what is stored.
bool BodyEmitter::may_group(const std::vector<Value>& members) const {
  const Instruction& first = f_[members[0]];
  const int32_t operand = kernel::unpack_access(first.immediate).operand;
  const kernel::KernelOperand& known = code_.kernel.operands[static_cast<size_t>(operand)];
  if (first.op == Op::kLoad ? !known.is_written : !known.is_read && first.region == 0) return true;
  size_t seen = 0;
  for (const Value v : f_.region(first.region).instructions) {
    if (std::find(members.begin(), members.end(), v) != members.end()) {
      if (++seen == members.size()) break;
    } else if (seen != 0 && (touches(v, Op::kStore, operand) ||
                             (first.op == Op::kStore && touches(v, Op::kLoad, operand)))) {
      return false;
    }
  }
  return true;
}

// Groups of `size` consecutive elements among members whose indices differ by constants.
void BodyEmitter::find_runs(std::vector<Value> members, size_t size) {
  const auto constant = [&](Value v) { return analysis_.index().constant(f_[v].arguments[0]); };
  std::sort(members.begin(), members.end(),
            [&](Value a, Value b) { return constant(a) < constant(b); });
  // Of two stores to one element the order would matter.
  const auto same = [&](Value a, Value b) { return constant(a) == constant(b); };
  if (std::adjacent_find(members.begin(), members.end(), same) != members.end()) return;
  for (size_t begin = 0, end = 1; begin < members.size(); begin = end++) {
    while (end < members.size() && end - begin < size &&
           constant(members[end]) == constant(members[end - 1]) + 1) {
      ++end;
    }
    if (end - begin < size) continue;
    Group group;
    group.members.assign(members.begin() + static_cast<std::ptrdiff_t>(begin),
                         members.begin() + static_cast<std::ptrdiff_t>(end));
    group.region = f_[members[begin]].region;
    if (!may_group(group.members)) continue;
    for (const Value v : group.members) {
      group_number_[static_cast<size_t>(v)] = static_cast<int>(groups_.size());
    }
    groups_.push_back(std::move(group));
  }
}

// Null: none, or not for the lanes as they are.
BodyEmitter::Group* BodyEmitter::group_of(Value v) {
  const int number = group_number_[static_cast<size_t>(v)];
  if (number < 0 || mask_ != nullptr || lanes_ < 2) return nullptr;
  return &groups_[static_cast<size_t>(number)];
}

// Element i * n + k of the result is lane i of value k, of n.
std::vector<llvm::Value*> BodyEmitter::interleave(const std::vector<llvm::Value*>& values) {
  if (values.size() == 1) return values;
  std::vector<llvm::Value*> even, odd;
  for (size_t i = 0; i < values.size(); ++i) (i % 2 == 0 ? even : odd).push_back(values[i]);
  even = interleave(even);
  odd = interleave(odd);
  std::vector<llvm::Value*> all;
  for (size_t i = 0; i < even.size(); ++i) {
    for (int half = 0; half < 2; ++half) {
      std::vector<int> order(static_cast<size_t>(lanes_));
      for (int p = 0; p < lanes_; ++p) {
        order[static_cast<size_t>(p)] = half * lanes_ / 2 + p / 2 + (p % 2) * lanes_;
      }
      all.push_back(b_.CreateShuffleVector(even[i], odd[i], order));
    }
  }
  return all;
}

// The other way: value k has the elements k, k + n, ... of memory in its lanes.
std::vector<llvm::Value*> BodyEmitter::deinterleave(const std::vector<llvm::Value*>& values) {
  if (values.size() == 1) return values;
  std::vector<llvm::Value*> halves[2];
  for (size_t i = 0; i < values.size(); i += 2) {
    for (int odd = 0; odd < 2; ++odd) {
      std::vector<int> order(static_cast<size_t>(lanes_));
      for (int p = 0; p < lanes_; ++p) order[static_cast<size_t>(p)] = 2 * p + odd;
      halves[odd].push_back(b_.CreateShuffleVector(values[i], values[i + 1], order));
    }
  }
  const std::vector<llvm::Value*> even = deinterleave(halves[0]), odd = deinterleave(halves[1]);
  std::vector<llvm::Value*> all;
  for (size_t i = 0; i < even.size(); ++i) {
    all.push_back(even[i]);
    all.push_back(odd[i]);
  }
  return all;
}

// The first load of a group reads for all. Null: it is in none.
llvm::Value* BodyEmitter::load_in_group(Value v, const Access& access, llvm::Type* element) {
  Group* const group = group_of(v);
  if (group == nullptr) return nullptr;
  const auto at = std::find(group->members.begin(), group->members.end(), v);
  const auto number = at - group->members.begin();
  if (group->values.empty()) {
    auto* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes_));
    llvm::Value* here = first_pointer(access, element, f_[v].arguments[0]);
    std::vector<llvm::Value*> all;
    for (size_t i = 0; i < group->members.size(); ++i) {
      const int64_t offset = static_cast<int64_t>(i) * lanes_ - number;
      llvm::Value* from =
          b_.CreateConstInBoundsGEP1_64(element, here, static_cast<uint64_t>(offset));
      all.push_back(b_.CreateAlignedLoad(type, from, llvm::Align(access.bytes)));
    }
    group->values = deinterleave(all);
  }
  return group->values[static_cast<size_t>(number)];
}

// Whether the store waits for, or went with, others of its group: element i * n + k of memory is
// lane i of value k, of n.
bool BodyEmitter::store_in_group(Value v, llvm::Value* value, const Access& access) {
  Group* const group = group_of(v);
  if (group == nullptr) return false;
  group->values.resize(group->members.size());
  const auto at = std::find(group->members.begin(), group->members.end(), v);
  group->values[static_cast<size_t>(at - group->members.begin())] = value;
  if (++group->count < group->members.size()) return true;
  group->count = 0;
  llvm::Type* element = value->getType()->getScalarType();
  llvm::Value* first = first_pointer(access, element, f_[group->members[0]].arguments[0]);
  const std::vector<llvm::Value*> all = interleave(group->values);
  for (size_t i = 0; i < all.size(); ++i) {
    const uint64_t offset = i * static_cast<uint64_t>(lanes_);
    put(all[i], b_.CreateConstInBoundsGEP1_64(element, first, offset), llvm::Align(access.bytes));
  }
  return true;
}

}  // namespace hekla::cpu
