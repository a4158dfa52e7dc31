// SPDX-License-Identifier: Apache-2.0
// Reading of an operation's attributes after verification: what is absent has its default value.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/program/ir/ir.h"

namespace hekla::ir {

// Empty when absent.
std::vector<int64_t> int_list(const Operation& op, std::string_view name);
std::vector<bool> bool_list(const Operation& op, std::string_view name);
int64_t int_value(const Operation& op, std::string_view name, int64_t fallback = 0);
bool bool_value(const Operation& op, std::string_view name);
// The word of an enumeration or the text of a string; empty when absent.
std::string text_value(const Operation& op, std::string_view name);
double float_value(const Operation& op, std::string_view name, double fallback = 0);
// `padding`; empty when absent.
std::vector<std::array<int64_t, 2>> padding_of(const Operation& op);

// What a constant makes this value; null when something else does.
const DenseValue* constant_value(const Value& value);
// Whether a constant makes all its elements of one number.
bool is_one_number(const Value& value);
// The number of an i32 or i64 constant of rank 0; nullopt of all else.
std::optional<int64_t> constant_integer(const Value& value);

}  // namespace hekla::ir
