// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/store_key_values.h"

namespace hekla::rendezvous {

Result<std::string> StoreKeyValues::get(std::string_view key, std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::in(timeout);
  for (;;) {
    const uint64_t ticket = store_->ticket();
    Result<std::string> value = try_get(key);
    if (value.ok() || value.status().code() != StatusCode::kNotFound) return value;
    if (deadline.expired()) {
      return deadline_exceeded("no value of {}{} within {} ms", prefix_, key, timeout.count());
    }
    store_->wait_change(ticket, deadline);
  }
}

Result<std::string> StoreKeyValues::try_get(std::string_view key) {
  const std::string whole = prefix_ + std::string(key);
  HEKLA_ASSIGN_OR_RETURN(std::optional<std::string> value, store_->get(whole));
  if (!value) return not_found("no value of {}", whole);
  return *std::move(value);
}

Status StoreKeyValues::put(std::string_view key, std::string_view value) {
  const std::string whole = prefix_ + std::string(key);
  HEKLA_ASSIGN_OR_RETURN(const Store::Swap swap, store_->compare_set(whole, std::nullopt, value));
  return swap.swapped ? ok_status() : already_exists("{} has a value", whole);
}

}  // namespace hekla::rendezvous
