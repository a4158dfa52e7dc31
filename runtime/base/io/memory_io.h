// SPDX-License-Identifier: Apache-2.0
// MemoryIo: a file system in memory that remembers every change, to play power cuts.
//
// It behaves like a local disk while it runs. Its journal knows which changes a sync made durable;
// after_power_cut() builds the file system that a machine may find after losing power at some
// point: durable changes are there, each other one was kept, dropped, or (a write) torn in half,
// in any combination. The rules are the strict ones of POSIX: what a file holds is durable after
// fsync or fdatasync of it, a name after fsync of its folder, and nothing orders the rest. A rename
// within a folder is one change.
//
// Also bounded space, refusal of O_DIRECT, and a clock that a test moves. Thread-safe. For tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/io/io.h"

namespace hekla {

class MemoryIo final : public Io {
 public:
  enum class Fate : char { kDropped, kKept, kTorn };

  MemoryIo();

  // Sum of file sizes above which writes fail with ENOSPC; < 0: none.
  void set_capacity(int64_t bytes);
  void set_direct_allowed(bool allowed);
  // Moves the file system's clock forward.
  void advance(int64_t ns);

  // Changes so far: power may be cut before the first, after the last, or between two.
  int64_t journal_size() const;
  // Of the first `changes` ones, how many no sync has made durable.
  int64_t pending(int64_t changes) const;
  // The disk after the power went when `changes` were made; one fate per pending change, in order.
  std::unique_ptr<MemoryIo> after_power_cut(int64_t changes, const std::vector<Fate>& fates) const;
  // All names and bytes, and nothing else, as one number.
  uint64_t fingerprint() const;

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
  struct Node {
    FileKind kind = FileKind::kRegular;
    std::vector<std::byte> bytes;             // of a file
    std::map<std::string, uint64_t> entries;  // of a folder
    int64_t modified_ns = 0;
  };
  struct NameChange {
    uint64_t folder = 0;
    std::string name;
    uint64_t node = 0;  // 0: the name is gone
  };
  struct Change {
    enum class Kind { kMake, kWrite, kResize, kNames, kSync } kind = Kind::kMake;
    uint64_t node = 0;  // but for kNames
    FileKind made = FileKind::kRegular;
    int64_t offset = 0;            // kWrite; kResize: the new size
    std::vector<std::byte> bytes;  // kWrite
    std::vector<NameChange> names;
  };
  struct Open {
    uint64_t node = 0;
    int flags = 0;
    LockKind lock = LockKind::kNone;
  };

  // All below want mutex_ held.
  int find(const std::string& path, uint64_t* node) const;
  int find_parent(const std::string& path, uint64_t* folder, std::string* name) const;
  void apply(const Change& change);
  void record(Change change);
  int change_names(std::vector<NameChange> names);
  void forget_if_unused(uint64_t node);
  void describe(uint64_t node, FileInfo* info) const;
  int64_t now() const;
  int64_t used() const;
  int resize(uint64_t node, int64_t bytes);
  std::vector<bool> durable(int64_t changes) const;

  mutable std::mutex mutex_;
  std::map<uint64_t, Node> nodes_;
  std::map<int, Open> open_;
  std::vector<Change> journal_;
  uint64_t next_node_ = 2;
  int64_t capacity_ = -1;
  int64_t clock_offset_ns_ = 0;
  bool direct_allowed_ = true;
};

struct PowerCutPoint {
  int64_t changes = 0;
  std::vector<MemoryIo::Fate> fates;
};

// Calls `check` with every different disk that a power cut after `from` changes or more can leave:
// all combinations of fates where few changes are pending; none, all, all but one, just one, each
// torn, and `random_cuts` more, drawn from `seed`, where there are many. Stops when `check` says
// false. The number of disks tried.
int64_t for_each_power_cut(const MemoryIo& disk, int64_t from, int64_t random_cuts, uint64_t seed,
                           const std::function<bool(const PowerCutPoint&, MemoryIo&)>& check);

}  // namespace hekla
