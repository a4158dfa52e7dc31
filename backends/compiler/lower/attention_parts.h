// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention.h and scores.h have in common: points of a space of scores, whose
// dimensions are those of a product's operand that is computed where it is used, and elements of
// the operands there. Used by one thread.
#pragma once

#include <string>
#include <vector>

#include "backends/compiler/lower/attention.h"
#include "backends/compiler/lower/kernel_maker.h"

namespace hekla::lower {

inline int64_t blocks_of(int64_t size, int64_t block) { return (size + block - 1) / block; }

// One operand of a product: what each of its dimensions is.
struct OperandDims {
  enum class Kind : uint8_t { kBatch, kDepth, kOwn };
  struct Dim {
    Kind kind = Kind::kOwn;
    size_t number = 0;  // of the batching dimensions, of the contracting ones, or of the free ones
    size_t result = 0;  // of the result's dimension, but for contracting ones
  };
  std::vector<Dim> dims;
  Dims depth, own;  // sizes of the contracting dimensions, and of the free ones
};
OperandDims operand_dims(const ir::Operation& product, size_t side);

// The largest number of an element that a kernel of scores computes: of what it loads, and of what
// is not only moved; `members`, which it computes point by point, have none.
int64_t largest_of_scores(const std::vector<const ir::Value*>& operands, int64_t largest,
                          const std::unordered_set<const ir::Operation*>& members,
                          const InMemory& in_memory);

class ScoreKernel {
 public:
  ScoreKernel(const ScoreKernel&) = delete;
  ScoreKernel& operator=(const ScoreKernel&) = delete;

 protected:
  // An index for each dimension of the space.
  using Places = std::vector<Value>;

  ScoreKernel(std::string name, const std::vector<int64_t>& grid, int64_t largest,
              const InMemory& in_memory, Dims shape)
      : k_(std::move(name), grid, largest, in_memory), shape_(std::move(shape)) {}
  ~ScoreKernel() = default;

  Builder& b() { return k_.b(); }
  Element number(double value) {
    return {b().real(kernel::ScalarType::kF32, value), kernel::kNoValue};
  }
  Value sum(Value base, int64_t offset) { return b().add(base, k_.index(offset)); }
  Value scaled(Value index, int64_t factor) { return b().mul(index, k_.index(factor)); }
  Value is_below(Value index, int64_t size) {
    return b().binary(kernel::Op::kLtS, index, k_.index(size));
  }

  // Indices of dimensions of these sizes from one row-major number.
  std::vector<Value> split(Value index, const Dims& sizes);
  // `places` with those of `dims` from their row-major number.
  Places with(const Places& places, const std::vector<size_t>& dims, Value number);
  int64_t count(const std::vector<size_t>& dims) const;

  // The element of a value with these dimensions.
  Point point_of(const WeightDims& dims, const Places& places);
  Element f32(const ir::Value& value, const Point& point, Value is_there);
  // Where an element of an operand of an inner product is, and of the other operand of a product
  // whose operand `weights_side` is the space: of numbers along the depth and its own dimensions.
  Point score_point(const InnerProduct& product, size_t side, const Places& places, Value depth);
  Point value_point(const ir::Operation& product, size_t weights_side, const Places& places,
                    Value own);
  // An element of an operand of an inner product; `is_uneven`: there are some behind the last of
  // the depth, which are zero.
  Element score_operand(const InnerProduct& product, size_t side, const Places& places, Value depth,
                        bool is_uneven);
  // An element of the other operand of a product whose operand `weights_side` is the space.
  Element value_operand(const ir::Operation& product, size_t weights_side, const Places& places,
                        Value own, bool own_is_uneven, Value is_there);
  // Where an element of that product is.
  Point result_point(const ir::Operation& product, size_t weights_side, const Places& places,
                     Value own);

  // Words of shared memory as f32.
  void put(const kernel::TeamMemory& memory, Value place, const Element& element);
  Value get(const kernel::TeamMemory& memory, Value place);

  // The greater one; a NaN is no greater than anything.
  Value greater(Value x, Value y) { return b().select(b().binary(kernel::Op::kLt, x, y), y, x); }
  Value exponential(Value x);
  // What is subtracted from logits of which this one is the greatest, so that what is infinite
  // stays so where there is no other.
  Value shift_of(Value greatest);

  // Where `condition` holds, which may be a constant.
  void store_where(Value condition, const ir::Value& to, const Point& point, const Element& value);

  // An index of shared memory.
  Value word(Value index);

  KernelMaker k_;
  const Dims shape_;  // of the space
};

}  // namespace hekla::lower
