// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/group.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/base/host.h"

namespace hekla::rendezvous {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

// Forming: each rank writes its own id under kJoin; rank 0 answers with a record that lists the ids
// it saw and an epoch; each rank that finds its own id there agrees; when all have agreed to the
// same record, rank 0 says go. Ids of processes of an earlier life are overwritten by the new ones,
// or not, and then nobody agrees for them.
constexpr std::string_view kJoin = "join/";
constexpr std::string_view kRecord = "group";
constexpr std::string_view kAgree = "agree/";
constexpr std::string_view kGo = "go";
// How long a wait sleeps when nothing changes; death of a rank is seen as fast.
constexpr milliseconds kLook(20);

Status missing_ranks(std::string_view what, const std::vector<int>& missing, int world) {
  return deadline_exceeded("{}: no word from rank {} (of {} ranks) before the deadline", what,
                           rank_list(missing), world);
}

std::optional<int> number_of(const char* text) {
  if (text == nullptr) return {};
  int value = 0;
  const char* end = text + std::string_view(text).size();
  const auto [at, error] = std::from_chars(text, end, value);
  if (error != std::errc() || at != end) return {};
  return value;
}

struct Record {
  std::string epoch;
  std::vector<std::string> ids;
};

std::string text_of(const Record& record) {
  return Json{{"epoch", record.epoch}, {"ids", record.ids}}.dump();
}

std::optional<Record> record_of(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("epoch") || !json["epoch"].is_string() ||
      !json.contains("ids") || !json["ids"].is_array()) {
    return {};
  }
  Record record{json["epoch"].get<std::string>(), {}};
  for (const Json& id : json["ids"]) {
    if (!id.is_string()) return {};
    record.ids.push_back(id.get<std::string>());
  }
  return record;
}

std::string member_name(std::string_view epoch, int rank) {
  return fmt::format("{}/rank{}", epoch, rank);
}

// With many ranks looking costs more, so it is done less often: 1,000 ranks about once a second.
std::chrono::nanoseconds look_interval(size_t ranks) { return kLook * (1 + ranks / 16); }

Deadline look_again(Deadline deadline, size_t ranks) {
  return Deadline::in(std::min(deadline.left(), look_interval(ranks)));
}

}  // namespace

std::string rank_list(const std::vector<int>& ranks) {
  constexpr size_t kMaxParts = 16;
  std::string text;
  size_t parts = 0;
  for (size_t i = 0; i < ranks.size(); ++parts) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (parts == kMaxParts) return text + fmt::format(" and {} more", ranks.size() - i);
    if (!text.empty()) text += ", ";
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

std::unique_ptr<Group> Group::alone() {
  return std::unique_ptr<Group>(new Group(std::make_shared<LocalStore>(), 0, 1, random_hex(8)));
}

Result<std::unique_ptr<Group>> Group::from_environment(Deadline deadline) {
  const char* world_text = std::getenv("WORLD_SIZE");
  if (world_text == nullptr) return alone();
  const std::optional<int> world = number_of(world_text);
  if (!world) return invalid_argument("WORLD_SIZE={} is not a number", world_text);
  if (*world == 1) return alone();
  const char* rank_text = std::getenv("RANK");
  const std::optional<int> rank = number_of(rank_text);
  if (!rank) {
    return invalid_argument("WORLD_SIZE={} needs RANK, a number, not \"{}\"", *world,
                            rank_text == nullptr ? "" : rank_text);
  }
  const char* address = std::getenv("HEKLA_STORE");
  if (address == nullptr) {
    return invalid_argument(
        "WORLD_SIZE={} needs HEKLA_STORE, where the processes agree: file:DIR, a folder that all "
        "of them see",
        *world);
  }
  HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<Store> store, open_store(address));
  return form(std::move(store), *rank, *world, deadline);
}

Result<std::unique_ptr<Group>> Group::form(std::shared_ptr<Store> store, int rank, int world,
                                           Deadline deadline) {
  if (world < 1 || rank < 0 || rank >= world) {
    return invalid_argument("rank {} of {} ranks", rank, world);
  }
  const std::string id = random_hex(8);
  const auto join_key = [](int r) { return fmt::format("{}{}", kJoin, r); };
  HEKLA_RETURN_IF_ERROR(store->set(join_key(rank), id));

  Record agreed;    // what this rank has agreed to
  Record proposed;  // rank 0: what it last wrote
  std::vector<int> missing;
  std::vector<std::string> old_epochs;  // whose keys nobody wants any more
  if (rank == 0) {
    HEKLA_ASSIGN_OR_RETURN(const std::optional<std::string> text, store->get(kRecord));
    if (const auto record = text ? record_of(*text) : std::nullopt; record) {
      old_epochs.push_back(record->epoch);
    }
  }
  while (true) {
    const uint64_t ticket = store->ticket();
    if (rank == 0) {
      HEKLA_ASSIGN_OR_RETURN(const auto joined, store->get_all(kJoin));
      std::vector<std::string> ids(static_cast<size_t>(world));
      missing.clear();
      for (int r = 0; r < world; ++r) {
        const auto found = joined.find(join_key(r));
        if (found == joined.end()) {
          missing.push_back(r);
        } else {
          ids[static_cast<size_t>(r)] = found->second;
        }
      }
      if (ids[0] != id && !ids[0].empty()) {
        return already_exists("another process joined the store as rank 0 of {}", world);
      }
      if (missing.empty() && ids != proposed.ids) {
        proposed = {random_hex(8), ids};
        old_epochs.push_back(proposed.epoch);
        HEKLA_RETURN_IF_ERROR(store->set(kRecord, text_of(proposed)));
      }
    }
    HEKLA_ASSIGN_OR_RETURN(const std::optional<std::string> text, store->get(kRecord));
    const std::optional<Record> record = text ? record_of(*text) : std::nullopt;
    if (record && record->epoch != agreed.epoch &&
        record->ids.size() == static_cast<size_t>(world) &&
        record->ids[static_cast<size_t>(rank)] == id) {
      if (world > 1) HEKLA_RETURN_IF_ERROR(store->join(member_name(record->epoch, rank)));
      HEKLA_RETURN_IF_ERROR(store->set(fmt::format("{}/{}{}", record->epoch, kAgree, rank), "yes"));
      if (!agreed.epoch.empty()) {
        HEKLA_RETURN_IF_ERROR(store->leave(member_name(agreed.epoch, rank)));
      }
      agreed = *record;
    }
    if (!agreed.epoch.empty()) {
      const std::string go = fmt::format("{}/{}", agreed.epoch, kGo);
      if (rank == 0) {
        HEKLA_ASSIGN_OR_RETURN(const auto yes,
                               store->get_all(fmt::format("{}/{}", agreed.epoch, kAgree)));
        if (yes.size() == static_cast<size_t>(world)) HEKLA_RETURN_IF_ERROR(store->set(go, "go"));
        missing.clear();
        for (int r = 0; r < world; ++r) {
          if (yes.count(fmt::format("{}/{}{}", agreed.epoch, kAgree, r)) == 0) missing.push_back(r);
        }
      } else {
        missing = {0};
      }
      HEKLA_ASSIGN_OR_RETURN(const std::optional<std::string> gone, store->get(go));
      if (gone) break;
    } else if (rank != 0) {
      missing = {0};
    }
    if (deadline.expired()) {
      if (missing.empty()) missing.push_back(0);
      return missing_ranks("forming a group", missing, world);
    }
    store->wait_change(ticket, look_again(deadline, static_cast<size_t>(world)));
  }
  if (rank == 0) {
    for (const std::string& epoch : old_epochs) {
      if (epoch != agreed.epoch) HEKLA_RETURN_IF_ERROR(store->remove_all(epoch + "/"));
    }
  }
  return std::unique_ptr<Group>(new Group(std::move(store), rank, world, agreed.epoch));
}

Group::~Group() {
  if (world_ > 1) static_cast<void>(store_->leave(member(rank_)));
}

std::string Group::key(std::string_view name) const { return fmt::format("{}/{}", epoch_, name); }

std::string Group::member(int rank) const { return member_name(epoch_, rank); }

Result<std::vector<int>> Group::lost() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_ && world_ > 1; ++rank) {
    if (rank == rank_) continue;
    HEKLA_ASSIGN_OR_RETURN(const bool is_lost, store_->is_lost(member(rank)));
    if (is_lost) ranks.push_back(rank);
  }
  return ranks;
}

Result<Group::Waited> Group::wait_ranks(std::string_view prefix, const Wait& wait) const {
  std::map<int, std::string> keys;
  for (int rank = 0; rank < world_; ++rank) keys[rank] = fmt::format("{}{}", prefix, rank);
  return wait_for(keys, wait);
}

Result<Group::Waited> Group::wait_key(std::string_view name, int owner, const Wait& wait) const {
  return wait_for({{owner, std::string(name)}}, wait);
}

Result<Group::Waited> Group::wait_for(const std::map<int, std::string>& keys,
                                      const Wait& wait) const {
  Waited waited;
  Deadline next_report = Deadline::in(wait.report_every);
  Deadline next_roll_call = Deadline::in(kLook);
  bool is_noticed = wait.notice_key.empty();
  while (true) {
    const uint64_t ticket = store_->ticket();
    const bool roll_call = wait.mind_lost && next_roll_call.expired();
    std::vector<int> missing, dead;
    for (const auto& [rank, name] : keys) {
      if (waited.values.count(rank) != 0) continue;
      // Deaths before values: a rank that died after its word has still given it.
      bool is_lost = false;
      if (roll_call && rank != rank_) {
        HEKLA_ASSIGN_OR_RETURN(is_lost, store_->is_lost(member(rank)));
      }
      HEKLA_ASSIGN_OR_RETURN(std::optional<std::string> value, store_->get(key(name)));
      if (value) {
        waited.values.emplace(rank, *std::move(value));
        continue;
      }
      missing.push_back(rank);
      if (is_lost) dead.push_back(rank);
    }
    if (missing.empty()) return waited;
    if (roll_call) next_roll_call = Deadline::in(look_interval(missing.size()));
    if (!wait.stop_key.empty()) {
      HEKLA_ASSIGN_OR_RETURN(waited.stopped, store_->get(key(wait.stop_key)));
      if (waited.stopped) return waited;
    }
    if (!is_noticed) {
      HEKLA_ASSIGN_OR_RETURN(const std::optional<std::string> word,
                             store_->get(key(wait.notice_key)));
      is_noticed = word.has_value();
      if (is_noticed) wait.notice();
    }
    if (!dead.empty()) {
      return unavailable("{}: rank {} (of {} ranks) died", wait.what, rank_list(dead), world_);
    }
    if (wait.stop.stop_requested()) return cancelled("{}: waiting was cancelled", wait.what);
    if (wait.deadline.expired()) return missing_ranks(wait.what, missing, world_);
    if (wait.report && next_report.expired()) {
      wait.report(missing);
      next_report = Deadline::in(wait.report_every);
    }
    store_->wait_change(ticket, look_again(wait.deadline, missing.size()));
  }
}

}  // namespace hekla::rendezvous
