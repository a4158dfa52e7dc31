// SPDX-License-Identifier: Apache-2.0
// Io: every file call of the checkpoint, behind one interface.
//
// The thin calls of the kernel and nothing more: a value >= 0 or minus an errno, no retry, no
// message. What retries and speaks is in file.h. One interface for all calls lets a test fail, cut
// short or kill at any of them (ScriptedIo) and play a power cut (MemoryIo). Implementations may
// be called from several threads at once; descriptors are theirs, not to be mixed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hekla {

enum class FileKind { kRegular, kDirectory, kOther };

struct FileInfo {
  FileKind kind = FileKind::kOther;
  int64_t size = 0;    // bytes
  uint64_t inode = 0;  // with `device`: which file this is, whatever its name
  uint64_t device = 0;
  int64_t modified_ns = 0;  // since 1970, by the file system's clock
};

struct DirectoryEntry {
  std::string name;  // never "." or ".."
  FileKind kind = FileKind::kOther;
};

struct FileSystemSpace {
  int64_t free_bytes = 0;  // for this user
  int64_t total_bytes = 0;
};

enum class LockKind { kShared, kExclusive, kNone };

class Io {
 public:
  virtual ~Io() = default;

  // `flags` and `mode` of open(2), O_CLOEXEC is added; a descriptor, or minus an errno.
  virtual int open(const std::string& path, int flags, int mode) = 0;
  // The descriptor is gone whatever the result.
  virtual int close(int fd) = 0;
  // Bytes moved, which may be fewer than asked for.
  virtual int64_t pread(int fd, void* data, int64_t bytes, int64_t offset) = 0;
  virtual int64_t pwrite(int fd, const void* data, int64_t bytes, int64_t offset) = 0;
  // Space for [0, bytes), the file at least this long; -EOPNOTSUPP where there is no such thing.
  virtual int fallocate(int fd, int64_t bytes) = 0;
  virtual int truncate(int fd, int64_t bytes) = 0;
  virtual int fsync(int fd) = 0;
  virtual int fdatasync(int fd) = 0;
  // Starts writing a range of the page cache to the device; `wait`: until it is there. No promise
  // of durability: fdatasync gives that.
  virtual int write_behind(int fd, int64_t offset, int64_t bytes, bool wait) = 0;
  // Clean pages of the range need not stay in the page cache.
  virtual int drop_cache(int fd, int64_t offset, int64_t bytes) = 0;
  // flock(2) without waiting: -EWOULDBLOCK when somebody holds it. Goes with the open file, so the
  // death of the process frees it.
  virtual int lock(int fd, LockKind kind) = 0;
  // What memory addresses and offsets of direct transfers must be multiples of; >= 1.
  virtual int direct_alignment(int fd, int64_t* memory, int64_t* offset) = 0;

  virtual int stat(const std::string& path, FileInfo* info) = 0;  // does not follow links
  virtual int fstat(int fd, FileInfo* info) = 0;
  virtual int mkdir(const std::string& path, int mode) = 0;
  virtual int rmdir(const std::string& path) = 0;
  virtual int rename(const std::string& from, const std::string& to) = 0;
  // A second name for a file; -EEXIST when `to` exists: the exclusive create of a whole file.
  virtual int link(const std::string& from, const std::string& to) = 0;
  virtual int unlink(const std::string& path) = 0;
  // Appends the folder's entries, in no order.
  virtual int list(const std::string& path, std::vector<DirectoryEntry>* entries) = 0;
  virtual int space(const std::string& path, FileSystemSpace* space) = 0;
};

// The kernel's calls. One for the whole process; no state.
Io& posix_io();

}  // namespace hekla
