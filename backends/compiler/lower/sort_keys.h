// SPDX-License-Identifier: Apache-2.0
// What a sort's comparator compares: keys, one number per element each, the first one first. Of
// comparators of this form alone: a total order of the keys, ascending or descending each, as those
// that JAX writes for any number of keys are. Pure.
#pragma once

#include <optional>
#include <vector>

#include "backends/compiler/lower/emitter.h"

namespace hekla::lower {

struct SortKey {
  // Of the comparator's region: the key of its even arguments, those of the element that would be
  // first.
  const ir::Value* value = nullptr;
  DType dtype = DType::kI32;  // no complex one
  bool is_descending = false;
};

// Empty: the comparator has another form. Floats are compared by their total order.
std::vector<SortKey> sort_keys(const ir::Block& comparator);

// The key as a number of dtype_bits(key.dtype) bits that has the same order unsigned: kI64 for 64
// bits, else kI32. `element`: of each operand of the sort. nullopt: it has no scalar form.
std::optional<Value> ordered_key(Emitter& emitter, const ir::Block& comparator, const SortKey& key,
                                 const Elements& element);

}  // namespace hekla::lower
