// SPDX-License-Identifier: Apache-2.0
// Parts of programs with attention, as text, and values for them. In texts $H heads, $T queries, $S
// keys, $D elements of a query and $W of a value stand for sizes.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/program/ir/ir.h"

namespace hekla::testing {

struct Sizes {
  int heads, queries, keys, depth, width;
};

// Each name, everywhere, by its value; in their order.
std::string replaced(std::string text,
                     const std::vector<std::pair<std::string, std::string>>& names);

// What is done to scores %x of [H, T, S], f32: %s, a quarter of them.
extern const char* const kScaled;
// Columns above the diagonal are -infinity; the first rows have but one or two left.
extern const char* const kCausal;
// softmax(%s) over the last of three dimensions, as JAX writes it: %w of [H, T, S].
extern const char* const kSoftmax;

// Elements of a floating-point type.
std::vector<float> floats(std::span<const std::byte> bytes, DType dtype);

void set_float(HostArray& array, int64_t i, double value);

// Inputs of a program, the same ones each time: multiples of 1/64 between -2 and 2, or 0 and 1
// where the type has no fraction.
std::vector<HostArray> drawn(const ir::Module& module);

}  // namespace hekla::testing
