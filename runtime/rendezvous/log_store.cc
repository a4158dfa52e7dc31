// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/log_store.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/host.h"
#include "runtime/base/protobuf_wire.h"
#include "runtime/rendezvous/file_store.h"

namespace hekla::rendezvous {
namespace {

using std::chrono::milliseconds;

// How long a call of the service may wait: callers look after their own deadlines in between.
constexpr milliseconds kSlice(1000);
// Between looks at a service that gives errors.
constexpr milliseconds kPause(20);

// Fields of an entry: 1 what changes, 2 name, 3 value, 4 random, so that an author knows it again.
constexpr uint32_t kChangeField = 1, kNameField = 2, kValueField = 3, kAuthorField = 4;

bool is_absent(const Status& status) {
  return status.code() == StatusCode::kNotFound || status.code() == StatusCode::kDeadlineExceeded;
}

}  // namespace

Result<std::unique_ptr<LogStore>> LogStore::open(std::shared_ptr<KeyValueStore> service,
                                                 std::string prefix) {
  const std::string probe = fmt::format("{}/probe/{}", prefix, random_hex(8));
  HEKLA_RETURN_IF_ERROR(service->put(probe, "1"));
  if (service->put(probe, "2").ok()) {
    return failed_precondition(
        "the key-value service takes a second value for the key {}; a store needs one that refuses",
        probe);
  }
  return std::unique_ptr<LogStore>(new LogStore(std::move(service), std::move(prefix)));
}

std::string LogStore::key_of(uint64_t number) const {
  return fmt::format("{}/{}", prefix_, number);
}

Result<LogStore::Entry> LogStore::read_entry(std::string_view text) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> fields, wire::parse_fields(text));
  Entry entry;
  for (const wire::Field& field : fields) {
    if (field.number == kChangeField) {
      if (field.value < 1 || field.value > static_cast<uint64_t>(Change::kLeave)) {
        return data_loss("an entry of the store has the change {}", field.value);
      }
      entry.change = static_cast<Change>(field.value);
    }
    if (field.number == kNameField) entry.name = field.bytes;
    if (field.number == kValueField) entry.value = field.bytes;
  }
  return entry;
}

Result<std::optional<std::string>> LogStore::look(uint64_t number) {
  Result<std::string> text = service_->try_get(key_of(number));
  if (text.status().code() == StatusCode::kUnimplemented) {
    text = service_->get(key_of(number), milliseconds(1));
  }
  if (text.ok()) return std::optional(*std::move(text));
  if (is_absent(text.status())) return std::optional<std::string>();
  return Status(StatusCode::kUnavailable, text.status().to_string());
}

Status LogStore::apply(uint64_t number, std::string_view text) {
  HEKLA_ASSIGN_OR_RETURN(const Entry entry, read_entry(text));
  const std::lock_guard lock(mutex_);
  if (count_ != number) return ok_status();  // another thread was first
  ++count_;
  switch (entry.change) {
    case Change::kSet:
      return values_.set(entry.name, entry.value);
    case Change::kRemove:
      return values_.remove(entry.name);
    case Change::kRemoveAll:
      return values_.remove_all(entry.name);
    case Change::kJoin:
      return values_.join(entry.name);
    case Change::kLeave:
      return values_.leave(entry.name);
  }
  return ok_status();
}

Result<uint64_t> LogStore::catch_up() {
  while (true) {
    const uint64_t number = ticket();
    HEKLA_ASSIGN_OR_RETURN(const std::optional<std::string> text, look(number));
    if (!text) return number;
    HEKLA_RETURN_IF_ERROR(apply(number, *text));
  }
}

Status LogStore::change(
    const std::function<Result<std::optional<Entry>>(LocalStore& values)>& decide) {
  while (true) {
    HEKLA_RETURN_IF_ERROR(catch_up().status());
    uint64_t number = 0;
    std::optional<Entry> entry;
    {
      const std::lock_guard lock(mutex_);
      number = count_;
      HEKLA_ASSIGN_OR_RETURN(entry, decide(values_));
    }
    if (!entry) return ok_status();
    wire::Writer writer;
    writer.varint(kChangeField, static_cast<uint64_t>(entry->change));
    writer.bytes(kNameField, entry->name);
    writer.bytes(kValueField, entry->value);
    writer.bytes(kAuthorField, random_hex(8));
    const Status put = service_->put(key_of(number), writer.text());
    if (put.ok()) return apply(number, writer.text());
    // Refused because it is taken, by another one or by a put of ours whose answer was lost; or
    // the service does not work.
    HEKLA_ASSIGN_OR_RETURN(const std::optional<std::string> there, look(number));
    if (!there) return Status(StatusCode::kUnavailable, put.to_string());
    HEKLA_RETURN_IF_ERROR(apply(number, *there));
    if (*there == writer.text()) return ok_status();
  }
}

Status LogStore::set(std::string_view key, std::string_view value) {
  HEKLA_RETURN_IF_ERROR(check_value(key, value));
  return change([&](LocalStore&) -> Result<std::optional<Entry>> {
    return std::optional(Entry{Change::kSet, std::string(key), std::string(value)});
  });
}

Result<std::optional<std::string>> LogStore::get(std::string_view key) {
  HEKLA_RETURN_IF_ERROR(check_key(key));
  HEKLA_RETURN_IF_ERROR(catch_up().status());
  const std::lock_guard lock(mutex_);
  return values_.get(key);
}

Result<int64_t> LogStore::add(std::string_view key, int64_t delta) {
  HEKLA_RETURN_IF_ERROR(check_key(key));
  std::string sum;
  HEKLA_RETURN_IF_ERROR(change([&](LocalStore& values) -> Result<std::optional<Entry>> {
    HEKLA_ASSIGN_OR_RETURN(const std::optional<std::string> now, values.get(key));
    HEKLA_ASSIGN_OR_RETURN(sum, sum_text(key, now.value_or("0"), delta));
    return std::optional(Entry{Change::kSet, std::string(key), sum});
  }));
  return parse_number(key, sum);
}

Result<Store::Swap> LogStore::compare_set(std::string_view key,
                                          std::optional<std::string_view> expected,
                                          std::string_view desired) {
  HEKLA_RETURN_IF_ERROR(check_value(key, desired));
  Swap swap;
  HEKLA_RETURN_IF_ERROR(change([&](LocalStore& values) -> Result<std::optional<Entry>> {
    HEKLA_ASSIGN_OR_RETURN(std::optional<std::string> now, values.get(key));
    const bool equal = now.has_value() == expected.has_value() && (!now || *now == *expected);
    if (!equal) {
      swap = {false, std::move(now)};
      return std::optional<Entry>();
    }
    swap = {true, std::string(desired)};
    return std::optional(Entry{Change::kSet, std::string(key), std::string(desired)});
  }));
  return swap;
}

Status LogStore::remove(std::string_view key) {
  HEKLA_RETURN_IF_ERROR(check_key(key));
  return change([&](LocalStore& values) -> Result<std::optional<Entry>> {
    HEKLA_ASSIGN_OR_RETURN(const std::optional<std::string> now, values.get(key));
    if (!now) return std::optional<Entry>();
    return std::optional(Entry{Change::kRemove, std::string(key), ""});
  });
}

Result<std::map<std::string, std::string>> LogStore::get_all(std::string_view prefix) {
  HEKLA_RETURN_IF_ERROR(catch_up().status());
  const std::lock_guard lock(mutex_);
  return values_.get_all(prefix);
}

Status LogStore::remove_all(std::string_view prefix) {
  return change([&](LocalStore& values) -> Result<std::optional<Entry>> {
    HEKLA_ASSIGN_OR_RETURN(const auto now, values.get_all(prefix));
    if (now.empty()) return std::optional<Entry>();
    return std::optional(Entry{Change::kRemoveAll, std::string(prefix), ""});
  });
}

Status LogStore::join(std::string_view member) {
  HEKLA_RETURN_IF_ERROR(check_key(member));
  return change([&](LocalStore& values) -> Result<std::optional<Entry>> {
    // Only asks whether the name is free: the entry is what joins.
    HEKLA_RETURN_IF_ERROR(values.join(member));
    HEKLA_RETURN_IF_ERROR(values.leave(member));
    return std::optional(Entry{Change::kJoin, std::string(member), ""});
  });
}

Status LogStore::leave(std::string_view member) {
  HEKLA_RETURN_IF_ERROR(check_key(member));
  return change([&](LocalStore&) -> Result<std::optional<Entry>> {
    return std::optional(Entry{Change::kLeave, std::string(member), ""});
  });
}

Result<bool> LogStore::is_lost(std::string_view member) {
  HEKLA_RETURN_IF_ERROR(check_key(member));
  return false;
}

uint64_t LogStore::ticket() {
  const std::lock_guard lock(mutex_);
  return count_;
}

void LogStore::wait_change(uint64_t ticket_before, Deadline deadline) {
  const uint64_t number = ticket();
  if (number > ticket_before) return;
  const auto left =
      std::chrono::ceil<milliseconds>(std::min<std::chrono::nanoseconds>(deadline.left(), kSlice));
  const Result<std::string> text = service_->get(key_of(number), std::max(left, milliseconds(1)));
  if (text.ok()) {
    static_cast<void>(apply(number, *text));
  } else if (!is_absent(text.status())) {
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(deadline.left(), kPause));
  }
}

}  // namespace hekla::rendezvous
