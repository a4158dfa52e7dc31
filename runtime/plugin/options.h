// SPDX-License-Identifier: Apache-2.0
// Client create options: names with typed values, as PJRT_Client_Create takes them.
//
// As text an option is NAME=VALUE or NAME:TYPE=VALUE with TYPE string, int, ints, float or bool.
// Without a type the value decides: an integer, a comma-separated list of integers, a number,
// true or false, anything else is a string. Values and functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "plugin_api/pjrt_c_api.h"
#include "runtime/base/status.h"

namespace hekla::runtime {

using OptionValue = std::variant<std::string, int64_t, std::vector<int64_t>, float, bool>;
using Options = std::vector<std::pair<std::string, OptionValue>>;

// INVALID_ARGUMENT: no name, an unknown type, or a value that is not of the type.
Result<std::pair<std::string, OptionValue>> parse_option(std::string_view text);
// Options separated by semicolons or white space.
Result<Options> parse_options(std::string_view text);
// HEKLA_CLIENT_OPTIONS; empty when it is not set.
Result<Options> options_from_environment();
// Later ones win; the order of first appearance stays.
Options merge_options(Options base, const Options& over);

// The value as a user would write it.
std::string option_text(const OptionValue& value);

// The C form of `options`, which must outlive it.
std::vector<PJRT_NamedValue> to_named_values(const Options& options);
// The value of a C entry; a type that this version does not know becomes the string "?".
std::pair<std::string, OptionValue> from_named_value(const PJRT_NamedValue& value);

}  // namespace hekla::runtime
