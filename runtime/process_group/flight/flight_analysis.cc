// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/flight/flight_analysis.h"

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "runtime/base/host.h"
#include "runtime/base/log.h"
#include "runtime/rendezvous/group.h"

namespace hekla::process_group {
namespace {

constexpr std::string_view kEnds = "ends-";  // and the host's name
constexpr std::string_view kAttempt = "attempt-";
constexpr const char* kSuffix = ".flight";

class FlightAnalysis {
 public:
  FlightAnalysis(const std::vector<FlightRecord>& records, const std::vector<FlightEnd>& ends)
      : records_(records), ends_(ends) {
    for (size_t i = 0; i < records_.size(); ++i) {
      for (const FlightRecord::Group& group : records_[i].groups) {
        Group& known = groups_[group.id];
        known.name = group.name;
        known.size = std::max(known.size, group.size);
        known.members[group.rank] = i;
      }
    }
  }

  FlightFindings run() {
    for (size_t i = 0; i < records_.size(); ++i) {
      found_.ranks.push_back(fmt::format("{} (pid {} on {}): {}; {}", name(i), records_[i].pid,
                                         records_[i].host, state(i), last_call(i)));
    }
    find_dead();
    for (const auto& [id, group] : groups_) find_differing(id, group);
    for (const auto& [id, group] : groups_) find_missing(id, group);
    find_receives();
    find_circle();
    find_first_error();
    return std::move(found_);
  }

 private:
  using Entry = FlightRecord::Entry;
  struct Group {
    std::string name;
    int size = 1;
    std::map<int, size_t> members;  // of which there is a record, by rank
  };

  std::string name(size_t i) const {
    const FlightRecord& record = records_[i];
    return record.rank < 0 ? fmt::format("process {}", record.pid)
                           : fmt::format("rank {}", record.rank);
  }
  std::string text(const Entry& entry) const {
    const auto group = groups_.find(entry.group);
    return entry.to_string(group == groups_.end() ? "?" : group->second.name);
  }

  const FlightEnd* end_of(size_t i) const {
    const int rank = records_[i].rank;
    const auto found = std::find_if(ends_.begin(), ends_.end(),
                                    [&](const FlightEnd& end) { return end.rank == rank; });
    return rank < 0 || found == ends_.end() ? nullptr : &*found;
  }
  bool is_running(size_t i) const {
    const FlightRecord& record = records_[i];
    return !record.has_ended && end_of(i) == nullptr && is_near(i) &&
           (::kill(static_cast<pid_t>(record.pid), 0) == 0 || errno == EPERM);
  }
  // Its pid means the same here.
  bool is_near(size_t i) const {
    return records_[i].boot == boot_id() && records_[i].pid_space == flight::pid_space();
  }
  // By itself and not as a program ends.
  bool has_died(size_t i) const {
    const FlightEnd* const end = end_of(i);
    if (end != nullptr) return !end->was_told && !end->how.starts_with("exit code");
    // Whether a process of another machine runs nobody can tell here. One without groups may have
    // left by _exit, which leaves no mark.
    return !records_[i].has_ended && !records_[i].has_no_groups && is_near(i) && !is_running(i);
  }
  std::string state(size_t i) const {
    if (const FlightEnd* const end = end_of(i); end != nullptr) {
      return fmt::format("ended with {}{}", end->how,
                         end->was_told ? ", as the launcher told it" : "");
    }
    if (records_[i].has_ended) return "has ended";
    if (is_running(i)) return "runs";
    if (has_died(i)) return "has died";
    return is_near(i) ? "has ended" : "may run, on another machine or in another container";
  }
  // The first call that it has not come out of, of those that somebody waits for where there are
  // any; else null.
  const Entry* open_call(size_t i) const {
    const Entry* open = nullptr;
    for (const Entry& entry : records_[i].calls) {
      if (!entry.is_open()) continue;
      if (entry.is_waited_for) return &entry;
      if (open == nullptr) open = &entry;
    }
    return open;
  }
  std::string last_call(size_t i) const {
    if (const Entry* const open = open_call(i); open != nullptr) return "in " + text(*open);
    if (records_[i].calls.empty()) return "no call";
    const Entry& last = records_[i].calls.back();
    return fmt::format("last {}, {}", text(last),
                       last.state == flight::State::kFailed ? "failed" : "done");
  }
  std::string doing(size_t i) const {
    if (has_died(i)) return "which has died";
    if (const Entry* const open = open_call(i); open != nullptr)
      return "which is in " + text(*open);
    const FlightEnd* const end = end_of(i);
    if (end != nullptr && !end->was_told) return "which has ended with " + end->how;
    const bool is_gone = records_[i].has_ended || (is_near(i) && !is_running(i));
    return is_gone ? "which has ended" : "which is in no call";
  }

  void find_dead() {
    for (size_t i = 0; i < records_.size(); ++i) {
      if (!has_died(i)) continue;
      const FlightEnd* const end = end_of(i);
      const Entry* const open = open_call(i);
      found_.findings.push_back(
          fmt::format("{} died{}{}", name(i), end == nullptr ? "" : " of " + end->how,
                      open != nullptr             ? ", in " + text(*open)
                      : records_[i].calls.empty() ? std::string(", before its first call")
                                                  : ", after " + text(records_[i].calls.back())));
    }
  }

  static const Entry* collective(const FlightRecord& record, uint64_t group, uint64_t sequence) {
    for (const Entry& entry : record.calls) {
      if (entry.kind == flight::Kind::kCollective && entry.group == group &&
          entry.sequence == sequence) {
        return &entry;
      }
    }
    return nullptr;
  }

  void find_differing(uint64_t id, const Group& group) {
    std::map<uint64_t, std::map<int, Call>> calls;
    for (const auto& [rank, i] : group.members) {
      for (const Entry& entry : records_[i].calls) {
        if (entry.kind == flight::Kind::kCollective && entry.group == id) {
          calls[entry.sequence].emplace(rank, entry.call);
        }
      }
    }
    for (const auto& [sequence, all] : calls) {
      const Call& first = all.begin()->second;
      if (std::all_of(all.begin(), all.end(),
                      [&](const auto& one) { return one.second == first; })) {
        continue;
      }
      found_.findings.push_back(fmt::format("call {} of group {} differs: {}", sequence, group.name,
                                            who_calls_what(all)));
      return;
    }
  }

  // The first call that some ranks came to and others did not.
  void find_missing(uint64_t id, const Group& group) {
    std::optional<uint64_t> stuck;
    for (const auto& [rank, i] : group.members) {
      for (const Entry& entry : records_[i].calls) {
        const bool is_stuck = entry.kind == flight::Kind::kCollective && entry.group == id &&
                              entry.state != flight::State::kDone;
        if (is_stuck && (!stuck || entry.sequence < *stuck)) stuck = entry.sequence;
      }
    }
    if (!stuck) return;
    std::vector<int> there, absent;
    const Entry* call = nullptr;
    for (int rank = 0; rank < group.size; ++rank) {
      const auto member = group.members.find(rank);
      const Entry* const own = member == group.members.end()
                                   ? nullptr
                                   : collective(records_[member->second], id, *stuck);
      if (own != nullptr) call = own;
      (own != nullptr ? there : absent).push_back(rank);
    }
    if (absent.empty() || call == nullptr) return;
    std::string who;
    constexpr size_t kNamed = 8;
    for (size_t k = 0; k < std::min(kNamed, absent.size()); ++k) {
      who += fmt::format("{}{}", k == 0 ? "" : "; ", missing(id, group, absent[k], there));
    }
    if (absent.size() > kNamed) who += fmt::format("; {} more", absent.size() - kNamed);
    found_.findings.push_back(fmt::format("{}: rank{} {} {} for {}", text(*call),
                                          there.size() == 1 ? "" : "s",
                                          rendezvous::rank_list(there),
                                          !call->is_open()    ? "waited"
                                          : there.size() == 1 ? "waits"
                                                              : "wait",
                                          who));
  }

  std::string missing(uint64_t id, const Group& group, int rank, const std::vector<int>& there) {
    const auto member = group.members.find(rank);
    if (member == group.members.end()) {
      return fmt::format("rank {}, of which there is no record here", rank);
    }
    for (const int waiter : there) waits_.emplace(group.members.at(waiter), member->second);
    const Entry* last = nullptr;
    for (const Entry& entry : records_[member->second].calls) {
      if (entry.kind == flight::Kind::kCollective && entry.group == id) last = &entry;
    }
    return fmt::format("rank {}, {}, {}", rank,
                       last == nullptr ? "which has made no call there"
                                       : fmt::format("whose last there is call {}, {}",
                                                     last->sequence, last->call.to_string()),
                       doing(member->second));
  }

  // Those that somebody waits for: others may be there early, for what comes later. What nobody can
  // send any more is said of both.
  void find_receives() {
    for (size_t i = 0; i < records_.size(); ++i) {
      for (const Entry& entry : records_[i].calls) {
        if (entry.kind != flight::Kind::kReceive || !entry.is_open()) continue;
        const auto group = groups_.find(entry.group);
        if (group == groups_.end()) continue;
        const auto sender = group->second.members.find(entry.call.root);
        const bool has_sender = entry.call.root >= 0 && sender != group->second.members.end();
        const bool is_lost = has_sender && !is_running(sender->second) && is_near(sender->second);
        if (!entry.is_waited_for && !is_lost) continue;
        if (has_sender) {
          waits_.emplace(i, sender->second);
          found_.findings.push_back(
              fmt::format("{} waits in {}, {}", name(i), text(entry), doing(sender->second)));
        } else {
          found_.findings.push_back(fmt::format("{} waits in {}", name(i), text(entry)));
        }
        break;
      }
    }
  }

  void find_circle() {
    std::vector<size_t> path;
    std::set<size_t> seen;
    const auto walk = [&](const auto& self, size_t i) -> bool {
      const auto begin = std::find(path.begin(), path.end(), i);
      if (begin != path.end()) {
        path.erase(path.begin(), begin);
        return true;
      }
      if (!seen.insert(i).second) return false;
      path.push_back(i);
      for (auto edge = waits_.lower_bound({i, 0}); edge != waits_.end() && edge->first == i;
           ++edge) {
        if (edge->second != i && self(self, edge->second)) return true;
      }
      path.pop_back();
      return false;
    };
    for (size_t i = 0; i < records_.size(); ++i) {
      path.clear();
      if (!walk(walk, i)) continue;
      std::string who;
      for (const size_t one : path) who += fmt::format("{} waits for ", name(one));
      found_.findings.push_back(who + name(path.front()) + ": none of them can go on");
      return;
    }
  }

  // Whether some rank is in the call that was refused, or failed in it; all may have refused it.
  bool has_stopped_others(const Entry& refusal) const {
    for (const FlightRecord& record : records_) {
      const Entry* const call = collective(record, refusal.group, refusal.sequence);
      if (call != nullptr && call->state != flight::State::kDone) return true;
    }
    return false;
  }

  void find_first_error() {
    const Entry* first = nullptr;
    size_t owner = 0;
    for (size_t i = 0; i < records_.size(); ++i) {
      for (const Entry& entry : records_[i].calls) {
        if (entry.state != flight::State::kFailed) continue;
        const bool is_refusal = entry.kind == flight::Kind::kRefused;
        if (is_refusal && !has_stopped_others(entry)) continue;
        // Of the same millisecond a refusal, which the others fail of.
        const bool is_later =
            first != nullptr && (first->changed_ms < entry.changed_ms ||
                                 (first->changed_ms == entry.changed_ms && !is_refusal));
        if (is_later) continue;
        first = &entry;
        owner = i;
      }
    }
    if (first == nullptr) return;
    found_.findings.push_back(
        fmt::format("the first error, {}'s {}: {}", name(owner), text(*first), first->error));
  }

  const std::vector<FlightRecord>& records_;
  const std::vector<FlightEnd>& ends_;
  std::map<uint64_t, Group> groups_;
  std::set<std::pair<size_t, size_t>> waits_;  // who for whom
  FlightFindings found_;
};

int64_t attempt_of(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  int64_t number = -1;
  if (!name.starts_with(kAttempt)) return -1;
  std::from_chars(name.data() + kAttempt.size(), name.data() + name.size(), number);
  return number;
}

// "RANK TOLD HOW" on a line each; what makes no sense is left out.
void read_ends(const std::string& path, std::vector<FlightEnd>& ends) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    FlightEnd end;
    if (words >> end.rank >> end.was_told && std::getline(words >> std::ws, end.how)) {
      ends.push_back(std::move(end));
    }
  }
}

// That wrote the file: RANK-HOST-PID.flight or ends-HOST; empty: it is neither.
std::string host_of(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (name.starts_with(kEnds)) return name.substr(kEnds.size());
  const std::string stem = path.stem().string();
  const size_t first = stem.find('-'), last = stem.rfind('-');
  const bool is_record = path.extension() == kSuffix && stem.starts_with("rank") && first != last;
  return is_record ? stem.substr(first + 1, last - first - 1) : "";
}

}  // namespace

std::string FlightFindings::to_string() const {
  std::string text;
  for (const std::string& line : findings) text += line + "\n";
  if (findings.empty()) text += "no rank waits for another, none has died, no call has failed\n";
  for (const std::string& line : ranks) text += "  " + line + "\n";
  return text;
}

FlightFindings analyse_flight(const std::vector<FlightRecord>& records,
                              const std::vector<FlightEnd>& ends) {
  return FlightAnalysis(records, ends).run();
}

std::string flight_folder(const std::string& folder, int64_t attempt) {
  return fmt::format("{}/{}{}", folder, kAttempt, attempt);
}

void note_flight_end(const std::string& folder, const FlightEnd& end) {
  std::ofstream file(fmt::format("{}/{}{}", folder, kEnds, host_name()), std::ios::app);
  file << fmt::format("{} {} {}\n", end.rank, end.was_told ? 1 : 0, end.how);
}

void clear_flight(const std::string& folder, bool is_shared) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (const auto& attempt : fs::directory_iterator(folder, ignored)) {
    if (attempt_of(attempt.path()) < 0) continue;
    std::vector<fs::path> old;
    for (const auto& entry : fs::directory_iterator(attempt.path(), ignored)) {
      const std::string host = host_of(entry.path());
      if (!host.empty() && (!is_shared || host == host_name())) old.push_back(entry.path());
    }
    for (const fs::path& path : old) fs::remove(path, ignored);
    fs::remove(attempt.path(), ignored);  // where it is empty
  }
}

Result<FlightFindings> explain_flight(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::string chosen = folder;
  int64_t newest = -1;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (attempt_of(entry.path()) <= newest) continue;
    newest = attempt_of(entry.path());
    chosen = entry.path().string();
  }
  return explain_attempt(chosen);
}

Result<FlightFindings> explain_attempt(const std::string& folder) {
  std::error_code error;
  std::vector<FlightRecord> records;
  std::vector<FlightEnd> ends;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == kSuffix) paths.push_back(entry.path().string());
    if (name.starts_with(kEnds)) read_ends(entry.path().string(), ends);
  }
  if (error) return not_found("flight records in {}: {}", folder, error.message());
  for (const std::string& path : paths) {
    Result<FlightRecord> record = FlightRecord::read(path);
    if (record.ok()) records.push_back(*std::move(record));
    if (!record.ok()) log_message(LogLevel::kWarning, "{}", record.status().message());
  }
  if (records.empty()) {
    return not_found(
        "no flight records in {}: processes write them into HEKLA_FLIGHT_DIR, which hekla launch "
        "sets, when they make their first process group",
        folder);
  }
  std::sort(records.begin(), records.end(), [](const FlightRecord& a, const FlightRecord& b) {
    return std::pair(a.rank, a.pid) < std::pair(b.rank, b.pid);
  });
  return analyse_flight(records, ends);
}

}  // namespace hekla::process_group
