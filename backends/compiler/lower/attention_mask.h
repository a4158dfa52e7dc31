// SPDX-License-Identifier: Apache-2.0
// Which blocks of scores a mask leaves nothing of: causal masks, windows and lengths, as
// comparisons of indices with each other and with numbers of a team. Blocks are asked for by the
// indices that they have; what is not understood may be anything.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "backends/compiler/lower/attention.h"
#include "backends/compiler/lower/kernel_maker.h"

namespace hekla::lower {

// Logits that are `low` where `mask` is not `present`.
struct LogitMask {
  const ir::Value* mask = nullptr;
  WeightDims dims;  // of the mask
  bool present = true;
  double low = 0;
};
// Of logits with these dimensions. nullopt: no mask, or none with a number far below others.
std::optional<LogitMask> find_logit_mask(const ir::Value& logits, const WeightDims& dims);

// The exponentials that a value is a multiple of, so that it is zero where they are: those of
// logits with a mask.
struct MaskedWeights {
  LogitMask mask;
  const ir::Value* shift = nullptr;  // what is subtracted from these logits
  WeightDims shift_dims;
};
std::optional<MaskedWeights> find_masked_weights(const ir::Value& value, const WeightDims& dims);

// Below this exponentials of f32 are zero.
inline constexpr double kVanishing = -104;

// The indices of a block, by dimension of the space: from `low` to `high`.
struct BlockRange {
  std::vector<Value> low, high;
};

class MaskEvaluator {
 public:
  // `is_single`: whether a dimension has one index for the whole team, which the range gives.
  MaskEvaluator(KernelMaker& k, std::function<bool(size_t)> is_single)
      : k_(k), is_single_(std::move(is_single)) {}

  // Whether the mask may be present somewhere in a block; a constant `true` where nothing is known.
  Value may_be_present(const LogitMask& mask, const BlockRange& range);

 private:
  // Whether a condition may be true somewhere, and false.
  struct Truth {
    Value may_be_true, may_be_false;
  };
  struct Interval {
    Value low, high;
  };
  Truth truth(const ir::Value& value, const WeightDims& dims, const BlockRange& range, int depth);
  Truth compared(const ir::Operation& op, const WeightDims& dims, const BlockRange& range,
                 int depth);
  std::optional<Interval> interval(const ir::Value& value, const WeightDims& dims,
                                   const BlockRange& range, int depth, bool is_added_to = false);

  KernelMaker& k_;
  const std::function<bool(size_t)> is_single_;
  // Conditions that are still looked at: those that several use are looked at for each of them.
  int left_ = 256;
};

}  // namespace hekla::lower
