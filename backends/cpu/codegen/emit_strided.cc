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
constexpr int64_t kMostStoreStride = 16;

}  // namespace

// Vectors of memory from the first element to the last and none beyond them.
llvm::Value* BodyEmitter::load_strided(llvm::Type* element, llvm::Value* first, int64_t stride,
                                       llvm::Align align) {
  if (stride < 2 || stride > kMostLoadStride || lanes_ < 4) return nullptr;
  auto* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes_));
  const int64_t last = (lanes_ - 1) * stride;
  llvm::Value* value = nullptr;
  std::vector<int> order(static_cast<size_t>(lanes_));
  for (int64_t part = 0; part < stride; ++part) {
    const int64_t begin = std::min<int64_t>(part * lanes_, last + 1 - lanes_);
    llvm::Value* here = b_.CreateAlignedLoad(
        type, b_.CreateConstInBoundsGEP1_64(element, first, static_cast<uint64_t>(begin)), align);
    // Lanes that were found stay; those of this part come from it.
    for (int lane = 0; lane < lanes_; ++lane) {
      const int64_t at = lane * stride - begin;
      const bool is_here = lane * stride >= part * lanes_ && at >= 0 && at < lanes_;
      order[static_cast<size_t>(lane)] = static_cast<int>(value == nullptr ? (is_here ? at : 0)
                                                          : is_here        ? lanes_ + at
                                                                           : lane);
    }
    value = value == nullptr ? b_.CreateShuffleVector(here, order)
                             : b_.CreateShuffleVector(value, here, order);
  }
  return value;
}

// Stores of the body that together fill memory without gaps, by the number of the group; see
// put_group.
void BodyEmitter::find_store_groups() {
  const kernel::IndexAnalysis& index = analysis_.index();
  const auto place_of = [&](Value store) { return f_[store].arguments[0]; };
  std::map<std::pair<int32_t, int64_t>, std::vector<Value>> by_place;  // operand, stride
  for (Value v : f_.body().instructions) {
    const Instruction& inst = f_[v];
    if (inst.op != Op::kStore || !is_emitted(v)) continue;
    const Access access = kernel::unpack_access(inst.immediate);
    const LaneShape shape = analysis_.shape(inst.arguments[0]);
    const auto stride = static_cast<uint64_t>(shape.stride);
    if (access.bytes < 4 || shape.kind != LaneKind::kAffine || shape.stride < 2 ||
        shape.stride > kMostStoreStride || !std::has_single_bit(stride) ||
        code_.kernel.operands[static_cast<size_t>(access.operand)].is_read) {
      continue;
    }
    by_place[{access.operand, shape.stride}].push_back(v);
  }
  for (auto& [place, stores] : by_place) {
    const auto size = static_cast<size_t>(place.second);
    while (stores.size() >= size) {
      // Those beside the first one of what is left.
      std::vector<Value> beside, others;
      for (const Value store : stores) {
        const auto terms = index.terms(place_of(store)), first = index.terms(place_of(stores[0]));
        const bool is_beside =
            std::equal(terms.begin(), terms.end(), first.begin(), first.end()) &&
            f_.type(f_[store].arguments[1]) == f_.type(f_[stores[0]].arguments[1]);
        (is_beside ? beside : others).push_back(store);
      }
      const auto constant = [&](Value store) { return index.constant(place_of(store)); };
      std::sort(beside.begin(), beside.end(),
                [&](Value a, Value b) { return constant(a) < constant(b); });
      bool is_run = beside.size() == size;
      for (size_t i = 1; i < beside.size(); ++i) {
        is_run &= constant(beside[i]) == constant(beside[0]) + static_cast<int64_t>(i);
      }
      if (is_run) {
        StoreGroup group;
        for (const Value store : beside) {
          group.stores.push_back(store);
          store_group_[static_cast<size_t>(store)] = static_cast<int>(store_groups_.size());
        }
        store_groups_.push_back(std::move(group));
      }
      stores = std::move(others);
    }
  }
}

// Element i * n + k of memory is lane i of value k, of n.
void BodyEmitter::put_group(const std::vector<llvm::Value*>& values, llvm::Value* first,
                            llvm::Align align) {
  const std::vector<llvm::Value*> all = interleave(values);
  llvm::Type* element = values[0]->getType()->getScalarType();
  for (size_t i = 0; i < all.size(); ++i) {
    const uint64_t at = i * static_cast<uint64_t>(lanes_);
    put(all[i], b_.CreateConstInBoundsGEP1_64(element, first, at), align);
  }
}

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

// Whether the store waits for, or went with, others of its group.
bool BodyEmitter::store_in_group(Value v, llvm::Value* value, const Access& access) {
  const int number = store_group_[static_cast<size_t>(v)];
  if (number < 0 || mask_ != nullptr || lanes_ < 2) return false;
  StoreGroup& group = store_groups_[static_cast<size_t>(number)];
  group.values.resize(group.stores.size());
  const auto at = std::find(group.stores.begin(), group.stores.end(), v) - group.stores.begin();
  group.values[static_cast<size_t>(at)] = value;
  if (++group.count < group.stores.size()) return true;
  group.count = 0;
  llvm::Value* first = element_pointer(access, value->getType()->getScalarType(),
                                       scalar(f_[group.stores[0]].arguments[0]));
  put_group(group.values, first, llvm::Align(access.bytes));
  return true;
}

}  // namespace hekla::cpu
