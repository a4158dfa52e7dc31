// SPDX-License-Identifier: Apache-2.0
// ScriptedIo: file calls that fail where a test says.
//
// Passes every call on to another Io unless a rule matches: then the n-th matching call fails with
// an errno, moves half of its bytes, or kills the process. Thread-safe; the order of calls of
// several threads is as it happens. For tests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/io/io.h"

namespace hekla {

enum class IoCall {
  kOpen,
  kClose,
  kPread,
  kPwrite,
  kFallocate,
  kTruncate,
  kFsync,
  kFdatasync,
  kWriteBehind,
  kDropCache,
  kLock,
  kStat,
  kFstat,
  kMkdir,
  kRmdir,
  kRename,
  kLink,
  kUnlink,
  kList,
  kSpace,
};

std::string_view io_call_name(IoCall call);

struct FaultRule {
  enum class Action {
    kFail,      // minus `error`, nothing done
    kShort,     // pread and pwrite: half of the bytes, at least one; others as without a rule
    kKill,      // SIGKILL instead of the call
    kTornKill,  // pwrite: half of the bytes; others: all of the call; then SIGKILL
    kCorrupt,   // pread and pwrite: all bytes, one bit of the middle one flipped; others as without
  };
  std::optional<IoCall> call;  // every call when unset
  std::string path;            // part of the (first) path; empty: any
  // Calls that leave files and folders as they are (pread, stat, list, lock ...) do not match.
  bool changes_only = false;
  int64_t first = 1;  // the first matching call that is met, from 1
  int64_t count = 1;  // and how many from there on
  Action action = Action::kFail;
  int error = 5;  // EIO
};

class ScriptedIo final : public Io {
 public:
  // `under` must outlive it.
  explicit ScriptedIo(Io& under) : under_(under) {}

  // Called on the calling thread before each call; set before the first one.
  std::function<void(IoCall call)> before_call;

  void add(FaultRule rule);
  void clear();
  // Since the start; `changes`: those that may change a file or folder.
  int64_t calls() const;
  int64_t changes() const;
  // How often a rule was met.
  int64_t faults() const;
  // Descriptors opened and not closed.
  int64_t open_files() const;

  int open(const std::string& path, int flags, int mode) override;
  int close(int fd) override;
  int64_t pread(int fd, void* data, int64_t bytes, int64_t offset) override;
  int64_t pwrite(int fd, const void* data, int64_t bytes, int64_t offset) override;
  int fallocate(int fd, int64_t bytes) override;
  int truncate(int fd, int64_t bytes) override;
  int fsync(int fd) override;
  int fdatasync(int fd) override;
  int write_behind(int fd, int64_t offset, int64_t bytes, bool wait) override;
  int drop_cache(int fd, int64_t offset, int64_t bytes) override;
  int lock(int fd, LockKind kind) override;
  int direct_alignment(int fd, int64_t* memory, int64_t* offset) override;
  int stat(const std::string& path, FileInfo* info) override;
  int fstat(int fd, FileInfo* info) override;
  int mkdir(const std::string& path, int mode) override;
  int rmdir(const std::string& path) override;
  int rename(const std::string& from, const std::string& to) override;
  int link(const std::string& from, const std::string& to) override;
  int unlink(const std::string& path) override;
  int list(const std::string& path, std::vector<DirectoryEntry>* entries) override;
  int space(const std::string& path, FileSystemSpace* space) override;

 private:
  struct State {
    FaultRule rule;
    int64_t matched = 0;
  };
  // The rule that this call meets, if any.
  std::optional<FaultRule> meet(IoCall call, const std::string& path, bool changes);
  std::string path_of(int fd) const;
  template <typename Call>
  int run(IoCall call, const std::string& path, bool changes, const Call& pass_on);

  Io& under_;
  mutable std::mutex mutex_;
  std::vector<State> rules_;                      // guarded by mutex_
  std::map<int, std::string> paths_;              // of open descriptors; guarded by mutex_
  int64_t calls_ = 0, changes_ = 0, faults_ = 0;  // guarded by mutex_
};

}  // namespace hekla
