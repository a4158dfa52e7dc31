// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdlib>
#include <optional>

namespace hekla::runtime {
namespace {

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::optional<std::vector<int64_t>> parse_integers(std::string_view text) {
  std::vector<int64_t> values;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::optional<int64_t> value = parse_number<int64_t>(text.substr(0, comma));
    if (!value) return std::nullopt;
    values.push_back(*value);
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
  }
  return values;
}

std::optional<bool> parse_bool(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

OptionValue guess(std::string_view text) {
  if (auto value = parse_number<int64_t>(text)) return *value;
  if (auto value = parse_bool(text)) return *value;
  if (text.find(',') != std::string_view::npos) {
    if (auto values = parse_integers(text)) return *values;
  }
  if (auto value = parse_number<float>(text)) return *value;
  return std::string(text);
}

std::optional<OptionValue> parse_as(std::string_view type, std::string_view text) {
  const auto wrap = [](auto parsed) -> std::optional<OptionValue> {
    if (!parsed) return std::nullopt;
    return OptionValue(std::move(*parsed));
  };
  if (type == "string") return OptionValue(std::string(text));
  if (type == "int") return wrap(parse_number<int64_t>(text));
  if (type == "ints") return wrap(parse_integers(text));
  if (type == "float") return wrap(parse_number<float>(text));
  if (type == "bool") return wrap(parse_bool(text));
  return std::nullopt;
}

}  // namespace

Result<std::pair<std::string, OptionValue>> parse_option(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return invalid_argument("client option '{}' is not NAME=VALUE or NAME:TYPE=VALUE", text);
  }
  std::string_view name = text.substr(0, equals);
  const std::string_view value = text.substr(equals + 1);
  const size_t colon = name.rfind(':');
  if (colon == std::string_view::npos) return std::make_pair(std::string(name), guess(value));
  const std::string_view type = name.substr(colon + 1);
  name = name.substr(0, colon);
  std::optional<OptionValue> parsed = parse_as(type, value);
  if (name.empty() || !parsed) {
    return invalid_argument(
        "client option '{}': '{}' is no value of type '{}' (types: string, int, ints, float, bool)",
        text, value, type);
  }
  return std::make_pair(std::string(name), *std::move(parsed));
}

Result<Options> parse_options(std::string_view text) {
  constexpr std::string_view kSeparators = "; \t\n";
  Options options;
  size_t start = 0;
  while ((start = text.find_first_not_of(kSeparators, start)) != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(kSeparators, start), text.size());
    HEKLA_ASSIGN_OR_RETURN(auto option, parse_option(text.substr(start, end - start)));
    options.push_back(std::move(option));
    start = end;
  }
  return options;
}

Result<Options> options_from_environment() {
  const char* text = std::getenv("HEKLA_CLIENT_OPTIONS");
  if (text == nullptr) return Options();
  Result<Options> options = parse_options(text);
  if (!options.ok()) return options.status().with_context("HEKLA_CLIENT_OPTIONS");
  return options;
}

Options merge_options(Options base, const Options& over) {
  for (const auto& option : over) {
    bool is_new = true;
    for (auto& old : base) {
      if (old.first == option.first) {
        old.second = option.second;
        is_new = false;
      }
    }
    if (is_new) base.push_back(option);
  }
  return base;
}

std::string option_text(const OptionValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<int64_t>(&value)) return fmt::format("{}", *number);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    return fmt::format("{}", fmt::join(*list, ","));
  }
  if (const auto* number = std::get_if<float>(&value)) return fmt::format("{}", *number);
  return std::get<bool>(value) ? "true" : "false";
}

std::vector<PJRT_NamedValue> to_named_values(const Options& options) {
  std::vector<PJRT_NamedValue> values;
  for (const auto& [name, option] : options) {
    PJRT_NamedValue value = {};
    value.struct_size = PJRT_STRUCT_SIZE(PJRT_NamedValue, value_size);
    value.name = name.c_str();
    value.name_size = name.size();
    value.value_size = 1;
    if (const auto* text = std::get_if<std::string>(&option)) {
      value.type = PJRT_NamedValue_kString;
      value.string_value = text->c_str();
      value.value_size = text->size();
    } else if (const auto* number = std::get_if<int64_t>(&option)) {
      value.type = PJRT_NamedValue_kInt64;
      value.int64_value = *number;
    } else if (const auto* list = std::get_if<std::vector<int64_t>>(&option)) {
      value.type = PJRT_NamedValue_kInt64List;
      value.int64_array_value = list->data();
      value.value_size = list->size();
    } else if (const auto* real = std::get_if<float>(&option)) {
      value.type = PJRT_NamedValue_kFloat;
      value.float_value = *real;
    } else {
      value.type = PJRT_NamedValue_kBool;
      value.bool_value = std::get<bool>(option);
    }
    values.push_back(value);
  }
  return values;
}

std::pair<std::string, OptionValue> from_named_value(const PJRT_NamedValue& value) {
  std::string name(value.name == nullptr ? "" : value.name,
                   value.name == nullptr ? 0 : value.name_size);
  switch (value.type) {
    case PJRT_NamedValue_kString:
      return {std::move(name), value.string_value == nullptr
                                   ? std::string()
                                   : std::string(value.string_value, value.value_size)};
    case PJRT_NamedValue_kInt64:
      return {std::move(name), value.int64_value};
    case PJRT_NamedValue_kInt64List: {
      const int64_t* first = value.int64_array_value;
      const size_t size = first == nullptr ? 0 : value.value_size;
      return {std::move(name), std::vector<int64_t>(first, first + size)};
    }
    case PJRT_NamedValue_kFloat:
      return {std::move(name), value.float_value};
    case PJRT_NamedValue_kBool:
      return {std::move(name), value.bool_value};
  }
  return {std::move(name), std::string("?")};
}

}  // namespace hekla::runtime
