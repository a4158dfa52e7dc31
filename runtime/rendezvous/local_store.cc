// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <set>

#include "runtime/rendezvous/file_store.h"
#include "runtime/rendezvous/store.h"
#include "runtime/rendezvous/tcp_store.h"

namespace hekla::rendezvous {

Status Store::check_key(std::string_view key) {
  if (key.empty() || key.size() > kMaxKeyBytes) {
    return invalid_argument("a key of {} bytes in the store: 1 to {} are allowed ({})", key.size(),
                            kMaxKeyBytes, key.substr(0, 40));
  }
  return ok_status();
}

Status Store::check_value(std::string_view key, std::string_view value) {
  HEKLA_RETURN_IF_ERROR(check_key(key));
  if (value.size() > kMaxValueBytes) {
    return invalid_argument("the value of {} has {} bytes; the store's limit is {}", key,
                            value.size(), kMaxValueBytes);
  }
  return ok_status();
}

struct LocalStore::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string, std::less<>> values;
  std::set<std::string, std::less<>> members;
  std::set<std::string, std::less<>> lost;
  uint64_t changes = 0;

  void change() {
    ++changes;
    changed.notify_all();
  }
};

LocalStore::LocalStore() : state_(std::make_unique<State>()) {}
LocalStore::~LocalStore() = default;

void LocalStore::lose(std::string_view member) {
  const std::lock_guard lock(state_->mutex);
  if (state_->members.erase(std::string(member)) != 0) state_->lost.emplace(member);
  state_->change();
}

Status LocalStore::set(std::string_view key, std::string_view value) {
  HEKLA_RETURN_IF_ERROR(check_value(key, value));
  const std::lock_guard lock(state_->mutex);
  state_->values.insert_or_assign(std::string(key), std::string(value));
  state_->change();
  return ok_status();
}

Result<std::optional<std::string>> LocalStore::get(std::string_view key) {
  HEKLA_RETURN_IF_ERROR(check_key(key));
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->values.find(key);
  if (found == state_->values.end()) return std::optional<std::string>();
  return std::optional<std::string>(found->second);
}

Result<int64_t> LocalStore::add(std::string_view key, int64_t delta) {
  HEKLA_RETURN_IF_ERROR(check_key(key));
  const std::lock_guard lock(state_->mutex);
  std::string& text = state_->values.try_emplace(std::string(key), "0").first->second;
  HEKLA_ASSIGN_OR_RETURN(text, sum_text(key, text, delta));
  state_->change();
  return parse_number(key, text);
}

Result<Store::Swap> LocalStore::compare_set(std::string_view key,
                                            std::optional<std::string_view> expected,
                                            std::string_view desired) {
  HEKLA_RETURN_IF_ERROR(check_value(key, desired));
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->values.find(key);
  std::optional<std::string> now;
  if (found != state_->values.end()) now = found->second;
  const bool equal = now.has_value() == expected.has_value() && (!now || *now == *expected);
  if (!equal) return Swap{false, std::move(now)};
  state_->values.insert_or_assign(std::string(key), std::string(desired));
  state_->change();
  return Swap{true, std::string(desired)};
}

Status LocalStore::remove(std::string_view key) {
  HEKLA_RETURN_IF_ERROR(check_key(key));
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->values.find(key);
  if (found != state_->values.end()) state_->values.erase(found);
  state_->change();
  return ok_status();
}

Result<std::map<std::string, std::string>> LocalStore::get_all(std::string_view prefix) {
  const std::lock_guard lock(state_->mutex);
  std::map<std::string, std::string> found;
  for (auto it = state_->values.lower_bound(prefix);
       it != state_->values.end() && it->first.starts_with(prefix); ++it) {
    found.emplace(it->first, it->second);
  }
  return found;
}

Status LocalStore::remove_all(std::string_view prefix) {
  const std::lock_guard lock(state_->mutex);
  std::erase_if(state_->values, [&](const auto& entry) { return entry.first.starts_with(prefix); });
  state_->change();
  return ok_status();
}

Status LocalStore::join(std::string_view member) {
  HEKLA_RETURN_IF_ERROR(check_key(member));
  const std::lock_guard lock(state_->mutex);
  if (!state_->members.emplace(member).second) {
    return already_exists("the store has a live member {}", member);
  }
  state_->lost.erase(std::string(member));
  return ok_status();
}

Status LocalStore::leave(std::string_view member) {
  const std::lock_guard lock(state_->mutex);
  state_->members.erase(std::string(member));
  state_->lost.erase(std::string(member));
  return ok_status();
}

Result<bool> LocalStore::is_lost(std::string_view member) {
  const std::lock_guard lock(state_->mutex);
  return state_->lost.count(member) != 0;
}

uint64_t LocalStore::ticket() {
  const std::lock_guard lock(state_->mutex);
  return state_->changes;
}

void LocalStore::wait_change(uint64_t ticket, Deadline deadline) {
  std::unique_lock lock(state_->mutex);
  const auto changed = [&] { return state_->changes != ticket; };
  if (deadline.time() == Deadline::Clock::time_point::max()) {
    state_->changed.wait(lock, changed);
  } else {
    state_->changed.wait_until(lock, deadline.time(), changed);
  }
}

Result<int64_t> parse_number(std::string_view key, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return failed_precondition("the value of {} in the store is not a number", key);
  }
  return value;
}

Result<std::string> sum_text(std::string_view key, std::string_view text, int64_t delta) {
  HEKLA_ASSIGN_OR_RETURN(const int64_t value, parse_number(key, text));
  int64_t sum = 0;
  if (__builtin_add_overflow(value, delta, &sum)) {
    return out_of_range("{} + {} of {} in the store", value, delta, key);
  }
  return std::to_string(sum);
}

Result<std::shared_ptr<Store>> open_store(std::string_view address, Deadline deadline) {
  if (address == "local:") return std::shared_ptr<Store>(std::make_shared<LocalStore>());
  if (address.starts_with("file:") && address.size() > 5) {
    HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<FileStore> store,
                           FileStore::open(posix_io(), std::string(address.substr(5))));
    return std::shared_ptr<Store>(std::move(store));
  }
  if (address.starts_with("tcp:")) {
    std::string_view rest = address.substr(4);
    const size_t at = rest.find('@');
    const std::string token(at == rest.npos ? std::string_view() : rest.substr(0, at));
    if (at != rest.npos) rest.remove_prefix(at + 1);
    // An address of IPv6 has colons of its own, and may stand in brackets.
    const size_t colon = rest.rfind(':');
    int port = 0;
    const char* const end = rest.data() + rest.size();
    const bool is_whole = colon != rest.npos && colon > 0;
    if (is_whole && std::from_chars(rest.data() + colon + 1, end, port).ptr == end && port > 0 &&
        port < 65536) {
      std::string_view host = rest.substr(0, colon);
      if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
      HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<TcpStore> store,
                             TcpStore::connect(std::string(host), port, token, deadline));
      return std::shared_ptr<Store>(std::move(store));
    }
  }
  // A token is nobody's business.
  return invalid_argument(
      "no store \"{}\": file:DIR, tcp:[TOKEN@]HOST:PORT or local: are known (HEKLA_STORE)",
      address.substr(address.rfind('@') + 1));
}

}  // namespace hekla::rendezvous
