// SPDX-License-Identifier: Apache-2.0
// The greatest or the least of many floats by the integers that their bits are: three instructions
// for each, where a maximum that keeps NaN and orders zeros takes seven, and 16-bit floats are not
// converted. Pure; on one Builder, nothing fails.
//
// Kept are, of all bits, the greatest signed, the least and the greatest unsigned number. Positive
// floats ascend as signed numbers and lie above all negative ones; those ascend, as unsigned
// numbers, with their magnitude. So any order of the floats gives the same bits; a NaN among them
// gives the quiet one without a payload.
#pragma once

#include <optional>
#include <span>

#include "backends/compiler/lower/emitter.h"

namespace hekla::lower {

class Extremes {
 public:
  // nullopt: the reducer is not a maximum or minimum of floats in kF32.
  static std::optional<Extremes> of(const ir::Block& reducer, DType dtype);

  // How the state of a reduction is carried: so many elements of this type.
  static constexpr size_t kStates = 3;
  static constexpr DType kStateType = DType::kI32;
  // Of one element.
  Elements start(Builder& b, const Element& x) const;
  Elements add(Builder& b, std::span<const Element> state, const Element& x) const;
  Element result(Builder& b, std::span<const Element> state) const;

 private:
  Extremes(ir::OpCode code, DType dtype) : code_(code), dtype_(dtype) {}
  Value bits(Builder& b, const Element& x) const;

  ir::OpCode code_;
  DType dtype_;
};

}  // namespace hekla::lower
