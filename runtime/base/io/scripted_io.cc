// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/io/scripted_io.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace hekla {
namespace {

[[noreturn]] void die_now() {
  while (true) ::kill(::getpid(), SIGKILL);
}

// Actions that only transfers know.
bool passes(const FaultRule& rule) {
  return rule.action == FaultRule::Action::kShort || rule.action == FaultRule::Action::kCorrupt;
}

int64_t half_of(int64_t bytes) { return bytes < 2 ? bytes : bytes / 2; }

}  // namespace

std::string_view io_call_name(IoCall call) {
  switch (call) {
    case IoCall::kOpen:
      return "open";
    case IoCall::kClose:
      return "close";
    case IoCall::kPread:
      return "pread";
    case IoCall::kPwrite:
      return "pwrite";
    case IoCall::kFallocate:
      return "fallocate";
    case IoCall::kTruncate:
      return "truncate";
    case IoCall::kFsync:
      return "fsync";
    case IoCall::kFdatasync:
      return "fdatasync";
    case IoCall::kWriteBehind:
      return "write_behind";
    case IoCall::kDropCache:
      return "drop_cache";
    case IoCall::kLock:
      return "lock";
    case IoCall::kStat:
      return "stat";
    case IoCall::kFstat:
      return "fstat";
    case IoCall::kMkdir:
      return "mkdir";
    case IoCall::kRmdir:
      return "rmdir";
    case IoCall::kRename:
      return "rename";
    case IoCall::kLink:
      return "link";
    case IoCall::kUnlink:
      return "unlink";
    case IoCall::kList:
      return "list";
    case IoCall::kSpace:
      return "space";
  }
  return "unknown";
}

void ScriptedIo::add(FaultRule rule) {
  const std::lock_guard lock(mutex_);
  rules_.push_back({std::move(rule)});
}

void ScriptedIo::clear() {
  const std::lock_guard lock(mutex_);
  rules_.clear();
}

int64_t ScriptedIo::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

int64_t ScriptedIo::changes() const {
  const std::lock_guard lock(mutex_);
  return changes_;
}

int64_t ScriptedIo::faults() const {
  const std::lock_guard lock(mutex_);
  return faults_;
}

int64_t ScriptedIo::open_files() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(paths_.size());
}

std::optional<FaultRule> ScriptedIo::meet(IoCall call, const std::string& path, bool changes) {
  if (before_call) before_call(call);
  const std::lock_guard lock(mutex_);
  ++calls_;
  if (changes) ++changes_;
  std::optional<FaultRule> met;
  for (State& state : rules_) {
    const FaultRule& rule = state.rule;
    if ((rule.call && *rule.call != call) || (rule.changes_only && !changes)) continue;
    if (path.find(rule.path) == std::string::npos) continue;
    ++state.matched;
    if (!met && state.matched >= rule.first && state.matched - rule.first < rule.count) met = rule;
  }
  if (met) ++faults_;
  return met;
}

std::string ScriptedIo::path_of(int fd) const {
  const std::lock_guard lock(mutex_);
  const auto found = paths_.find(fd);
  return found == paths_.end() ? std::string() : found->second;
}

template <typename Call>
int ScriptedIo::run(IoCall call, const std::string& path, bool changes, const Call& pass_on) {
  const std::optional<FaultRule> rule = meet(call, path, changes);
  if (!rule || passes(*rule)) return pass_on();
  if (rule->action == FaultRule::Action::kFail) return -rule->error;
  if (rule->action == FaultRule::Action::kTornKill) pass_on();
  die_now();
}

int ScriptedIo::open(const std::string& path, int flags, int mode) {
  return run(IoCall::kOpen, path, (flags & (O_CREAT | O_TRUNC)) != 0, [&] {
    const int fd = under_.open(path, flags, mode);
    if (fd >= 0) {
      const std::lock_guard lock(mutex_);
      paths_[fd] = path;
    }
    return fd;
  });
}

int ScriptedIo::close(int fd) {
  const std::string path = path_of(fd);
  {
    // Before the kernel may give the number to another thread's open.
    const std::lock_guard lock(mutex_);
    paths_.erase(fd);
  }
  const std::optional<FaultRule> rule = meet(IoCall::kClose, path, true);
  if (rule && rule->action == FaultRule::Action::kKill) die_now();
  const int status = under_.close(fd);  // gone even when it fails
  if (!rule || passes(*rule)) return status;
  if (rule->action == FaultRule::Action::kFail) return -rule->error;
  die_now();
}

int64_t ScriptedIo::pread(int fd, void* data, int64_t bytes, int64_t offset) {
  const std::optional<FaultRule> rule = meet(IoCall::kPread, path_of(fd), false);
  if (!rule) return under_.pread(fd, data, bytes, offset);
  if (rule->action == FaultRule::Action::kFail) return -rule->error;
  if (rule->action == FaultRule::Action::kShort) {
    return under_.pread(fd, data, half_of(bytes), offset);
  }
  if (rule->action == FaultRule::Action::kCorrupt) {
    const int64_t moved = under_.pread(fd, data, bytes, offset);
    if (moved > 0) static_cast<std::byte*>(data)[moved / 2] ^= std::byte{1};
    return moved;
  }
  die_now();
}

int64_t ScriptedIo::pwrite(int fd, const void* data, int64_t bytes, int64_t offset) {
  const std::optional<FaultRule> rule = meet(IoCall::kPwrite, path_of(fd), true);
  if (!rule) return under_.pwrite(fd, data, bytes, offset);
  switch (rule->action) {
    case FaultRule::Action::kFail:
      return -rule->error;
    case FaultRule::Action::kShort:
      return under_.pwrite(fd, data, half_of(bytes), offset);
    case FaultRule::Action::kTornKill:
      under_.pwrite(fd, data, half_of(bytes), offset);
      break;
    case FaultRule::Action::kCorrupt: {
      // Aligned as direct I/O wants it.
      constexpr size_t kPage = 4096;
      std::vector<std::byte> copy(static_cast<size_t>(bytes) + kPage);
      const auto address = reinterpret_cast<uintptr_t>(copy.data());
      std::byte* const from = copy.data() + (kPage - address % kPage);
      if (bytes > 0) {
        std::memcpy(from, data, static_cast<size_t>(bytes));
        from[bytes / 2] ^= std::byte{1};
      }
      return under_.pwrite(fd, from, bytes, offset);
    }
    case FaultRule::Action::kKill:
      break;
  }
  die_now();
}

int ScriptedIo::fallocate(int fd, int64_t bytes) {
  return run(IoCall::kFallocate, path_of(fd), true, [&] { return under_.fallocate(fd, bytes); });
}

int ScriptedIo::truncate(int fd, int64_t bytes) {
  return run(IoCall::kTruncate, path_of(fd), true, [&] { return under_.truncate(fd, bytes); });
}

int ScriptedIo::fsync(int fd) {
  return run(IoCall::kFsync, path_of(fd), true, [&] { return under_.fsync(fd); });
}

int ScriptedIo::fdatasync(int fd) {
  return run(IoCall::kFdatasync, path_of(fd), true, [&] { return under_.fdatasync(fd); });
}

int ScriptedIo::write_behind(int fd, int64_t offset, int64_t bytes, bool wait) {
  return run(IoCall::kWriteBehind, path_of(fd), true,
             [&] { return under_.write_behind(fd, offset, bytes, wait); });
}

int ScriptedIo::drop_cache(int fd, int64_t offset, int64_t bytes) {
  return run(IoCall::kDropCache, path_of(fd), false,
             [&] { return under_.drop_cache(fd, offset, bytes); });
}

int ScriptedIo::lock(int fd, LockKind kind) {
  return run(IoCall::kLock, path_of(fd), false, [&] { return under_.lock(fd, kind); });
}

int ScriptedIo::direct_alignment(int fd, int64_t* memory, int64_t* offset) {
  return under_.direct_alignment(fd, memory, offset);
}

int ScriptedIo::stat(const std::string& path, FileInfo* info) {
  return run(IoCall::kStat, path, false, [&] { return under_.stat(path, info); });
}

int ScriptedIo::fstat(int fd, FileInfo* info) {
  return run(IoCall::kFstat, path_of(fd), false, [&] { return under_.fstat(fd, info); });
}

int ScriptedIo::mkdir(const std::string& path, int mode) {
  return run(IoCall::kMkdir, path, true, [&] { return under_.mkdir(path, mode); });
}

int ScriptedIo::rmdir(const std::string& path) {
  return run(IoCall::kRmdir, path, true, [&] { return under_.rmdir(path); });
}

int ScriptedIo::rename(const std::string& from, const std::string& to) {
  return run(IoCall::kRename, from, true, [&] { return under_.rename(from, to); });
}

int ScriptedIo::link(const std::string& from, const std::string& to) {
  return run(IoCall::kLink, from, true, [&] { return under_.link(from, to); });
}

int ScriptedIo::unlink(const std::string& path) {
  return run(IoCall::kUnlink, path, true, [&] { return under_.unlink(path); });
}

int ScriptedIo::list(const std::string& path, std::vector<DirectoryEntry>* entries) {
  return run(IoCall::kList, path, false, [&] { return under_.list(path, entries); });
}

int ScriptedIo::space(const std::string& path, FileSystemSpace* space) {
  return run(IoCall::kSpace, path, false, [&] { return under_.space(path, space); });
}

}  // namespace hekla
