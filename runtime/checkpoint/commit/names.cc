// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/commit/names.h"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/base/host.h"

namespace hekla::checkpoint {
namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kOld = ".old-";
constexpr size_t kDigits = 12;

std::optional<int64_t> digits(std::string_view text) {
  if (text.size() != kDigits) return {};
  int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return {};
    value = value * 10 + (c - '0');
  }
  return value;
}

std::optional<StepAndNonce> parse(std::string_view prefix, std::string_view name) {
  if (!name.starts_with(prefix)) return {};
  name.remove_prefix(prefix.size());
  const std::optional<int64_t> step = digits(name.substr(0, kDigits));
  if (!step || name.size() < kDigits + 2 || name[kDigits] != '-') return {};
  const std::string_view nonce = name.substr(kDigits + 1);
  const bool is_hex = std::all_of(nonce.begin(), nonce.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (!is_hex) return {};
  return StepAndNonce{*step, std::string(nonce)};
}

}  // namespace

std::string step_name(int64_t step) { return fmt::format("{}{:012}", kStep, step); }

std::string temporary_name(int64_t step, std::string_view nonce) {
  return fmt::format("{}{:012}-{}", kTemporary, step, nonce);
}

std::string old_name(int64_t step, std::string_view nonce) {
  return fmt::format("{}{:012}-{}", kOld, step, nonce);
}

std::string owner_name(std::string_view nonce) { return fmt::format("{}{}", kOwnerPrefix, nonce); }

std::string trash_name() { return fmt::format("{}{}", kTrashPrefix, random_hex(8)); }

std::string bad_name(std::string_view name) {
  return fmt::format("{}{}-{}", kBadPrefix, name, random_hex(4));
}

std::optional<int64_t> parse_step_name(std::string_view name) {
  if (!name.starts_with(kStep)) return {};
  return digits(name.substr(kStep.size()));
}

std::optional<StepAndNonce> parse_temporary_name(std::string_view name) {
  return parse(kTemporary, name);
}

std::optional<StepAndNonce> parse_old_name(std::string_view name) { return parse(kOld, name); }

}  // namespace hekla::checkpoint
