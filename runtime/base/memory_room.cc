// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/memory_room.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

namespace hekla {
namespace {

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::optional<int64_t> number_of(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return {};
  return value;
}

// "max", as no file at all, is no number.
std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return number_of(word);
}

// The sum of the values of those names, of lines "name value" or "name: value kB".
int64_t sum_in(const std::string& path, const std::vector<std::string>& names) {
  std::ifstream file(path);
  int64_t sum = 0;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() < 2 || std::find(names.begin(), names.end(), words[0]) == names.end()) {
      continue;
    }
    sum += number_of(words[1]).value_or(0);
  }
  return sum;
}

void bind(MemoryRoom::Bound& bound, int64_t bytes, const std::string& whose) {
  if (bytes < bound.bytes) bound = {std::max<int64_t>(0, bytes), whose};
}

// How the files of a version of control groups are called.
struct Version {
  const char* limit;
  const char* used;
  std::vector<std::string> of_files;  // of memory.stat, what of `used` is of files
};
const Version kFirst = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
const Version kSecond = {"memory.max", "memory.current", {"inactive_file", "active_file"}};

void read_group(const std::string& folder, const Version& version, const std::string& name,
                MemoryRoom& room) {
  const auto limit = number_in(folder + "/" + version.limit);
  // Version 1 has no word for no limit but the largest number of pages.
  constexpr int64_t kNone = int64_t{1} << 60;
  if (!limit || *limit >= kNone) return;
  const std::string whose = "the control group's " + name;
  bind(room.limit, *limit, whose);
  const int64_t used = number_in(folder + "/" + version.used).value_or(0);
  const int64_t of_files = sum_in(folder + "/memory.stat", version.of_files);
  bind(room.left, *limit - std::max<int64_t>(0, used - of_files), whose);
}

// This process's group in the hierarchy that has memory: of version 1, and of version 2.
struct OwnGroups {
  std::optional<std::string> first, second;
};

OwnGroups own_groups(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  OwnGroups groups;
  for (std::string line; std::getline(file, line);) {  // "4:memory:/jobs/7", "0::/jobs/7"
    const size_t one = line.find(':');
    const size_t two = one == std::string::npos ? one : line.find(':', one + 1);
    if (two == std::string::npos) continue;
    const std::string controllers = "," + line.substr(one + 1, two - one - 1) + ",";
    const std::string path = line.substr(two + 1);
    if (controllers == ",,") groups.second = path;
    if (controllers.find(",memory,") != std::string::npos) groups.first = path;
  }
  return groups;
}

// From the own group up to what is mounted, each of which has a limit of its own.
void read_groups(const std::string& mounted_at, std::string mounted, const std::string& own,
                 const Version& version, MemoryRoom& room) {
  if (mounted == "/") mounted.clear();
  // In a container the mount may begin at a group that the path does not name: it is the own one.
  std::string below;
  if (own.starts_with(mounted + "/")) below = own.substr(mounted.size());
  while (!below.empty() && below.back() == '/') below.pop_back();
  for (;;) {
    read_group(mounted_at + below, version, below.empty() ? "/" : below, room);
    if (below.empty()) return;
    below.erase(below.rfind('/'));
  }
}

}  // namespace

MemoryRoom memory_room(const std::string& root) {
  MemoryRoom room;
  const std::string meminfo = root + "/proc/meminfo";
  constexpr int64_t kKilo = 1024;
  const std::string host = "the host's";
  if (const int64_t all = sum_in(meminfo, {"MemTotal:"}); all > 0) {
    bind(room.limit, all * kKilo, host);
  } else if (const int64_t pages = ::sysconf(_SC_PHYS_PAGES); pages > 0) {
    bind(room.limit, pages * ::sysconf(_SC_PAGESIZE), host);
  }
  if (const int64_t left = sum_in(meminfo, {"MemAvailable:"}); left > 0) {
    bind(room.left, left * kKilo, host);
  }
  const OwnGroups groups = own_groups(root);
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    // number parent device root mounted-at options [tags] - type source options
    const std::vector<std::string> words = words_of(line);
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const std::string& type = dash[1];
    const bool has_memory = ("," + dash[3] + ",").find(",memory,") != std::string::npos;
    if (type == "cgroup2" && groups.second) {
      read_groups(root + words[4], words[3], *groups.second, kSecond, room);
    } else if (type == "cgroup" && has_memory && groups.first) {
      read_groups(root + words[4], words[3], *groups.first, kFirst, room);
    }
  }
  return room;
}

}  // namespace hekla
