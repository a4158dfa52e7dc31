// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "runtime/base/io/io.h"

namespace hekla {
namespace {

// Memory and offset alignment that every Linux file system accepts for direct I/O.
constexpr int64_t kSafeAlignment = 4096;

template <typename T>
T result(T value) {
  return value < 0 ? static_cast<T>(-errno) : value;
}

FileKind kind_of_mode(mode_t mode) {
  if (S_ISREG(mode)) return FileKind::kRegular;
  return S_ISDIR(mode) ? FileKind::kDirectory : FileKind::kOther;
}

void fill(const struct stat& from, FileInfo* info) {
  info->kind = kind_of_mode(from.st_mode);
  info->size = from.st_size;
  info->inode = from.st_ino;
  info->device = from.st_dev;
  info->modified_ns = int64_t{from.st_mtim.tv_sec} * 1'000'000'000 + from.st_mtim.tv_nsec;
}

class PosixIo final : public Io {
 public:
  int open(const std::string& path, int flags, int mode) override {
    return result(::open(path.c_str(), flags | O_CLOEXEC, mode));
  }
  int close(int fd) override {
    // Linux has freed the descriptor when it says EINTR, and what was written is not in doubt:
    // that is fsync's to say.
    const int status = result(::close(fd));
    return status == -EINTR ? 0 : status;
  }
  int64_t pread(int fd, void* data, int64_t bytes, int64_t offset) override {
    return result(int64_t{::pread(fd, data, static_cast<size_t>(bytes), offset)});
  }
  int64_t pwrite(int fd, const void* data, int64_t bytes, int64_t offset) override {
    return result(int64_t{::pwrite(fd, data, static_cast<size_t>(bytes), offset)});
  }
  int fallocate(int fd, int64_t bytes) override { return result(::fallocate(fd, 0, 0, bytes)); }
  int truncate(int fd, int64_t bytes) override { return result(::ftruncate(fd, bytes)); }
  int fsync(int fd) override { return result(::fsync(fd)); }
  int fdatasync(int fd) override { return result(::fdatasync(fd)); }
  int write_behind(int fd, int64_t offset, int64_t bytes, bool wait) override {
    const unsigned flags =
        wait ? SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER
             : SYNC_FILE_RANGE_WRITE;
    return result(::sync_file_range(fd, offset, bytes, flags));
  }
  int drop_cache(int fd, int64_t offset, int64_t bytes) override {
    return -::posix_fadvise(fd, offset, bytes, POSIX_FADV_DONTNEED);
  }
  int lock(int fd, LockKind kind) override {
    const int operation = kind == LockKind::kShared      ? LOCK_SH
                          : kind == LockKind::kExclusive ? LOCK_EX
                                                         : LOCK_UN;
    return result(::flock(fd, operation | LOCK_NB));
  }
  int direct_alignment(int fd, int64_t* memory, int64_t* offset) override {
    *memory = *offset = kSafeAlignment;
#ifdef STATX_DIOALIGN
    struct statx info = {};
    if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
        (info.stx_mask & STATX_DIOALIGN) != 0 && info.stx_dio_mem_align > 0) {
      *memory = info.stx_dio_mem_align;
      *offset = info.stx_dio_offset_align;
    }
#else
    (void)fd;
#endif
    return 0;
  }
  int stat(const std::string& path, FileInfo* info) override {
    struct stat found = {};
    if (::lstat(path.c_str(), &found) != 0) return -errno;
    fill(found, info);
    return 0;
  }
  int fstat(int fd, FileInfo* info) override {
    struct stat found = {};
    if (::fstat(fd, &found) != 0) return -errno;
    fill(found, info);
    return 0;
  }
  int mkdir(const std::string& path, int mode) override {
    return result(::mkdir(path.c_str(), static_cast<mode_t>(mode)));
  }
  int rmdir(const std::string& path) override { return result(::rmdir(path.c_str())); }
  int rename(const std::string& from, const std::string& to) override {
    return result(::rename(from.c_str(), to.c_str()));
  }
  int link(const std::string& from, const std::string& to) override {
    return result(::link(from.c_str(), to.c_str()));
  }
  int unlink(const std::string& path) override { return result(::unlink(path.c_str())); }
  int list(const std::string& path, std::vector<DirectoryEntry>* entries) override {
    DIR* directory = ::opendir(path.c_str());
    if (directory == nullptr) return -errno;
    int status = 0;
    while (true) {
      errno = 0;
      const dirent* entry = ::readdir(directory);
      if (entry == nullptr) {
        status = -errno;
        break;
      }
      if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
      FileKind kind = FileKind::kOther;
      if (entry->d_type == DT_REG) {
        kind = FileKind::kRegular;
      } else if (entry->d_type == DT_DIR) {
        kind = FileKind::kDirectory;
      } else if (entry->d_type == DT_UNKNOWN) {
        struct stat info = {};
        if (::fstatat(::dirfd(directory), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0) {
          kind = kind_of_mode(info.st_mode);
        }
      }
      entries->push_back({entry->d_name, kind});
    }
    ::closedir(directory);
    return status;
  }
  int space(const std::string& path, FileSystemSpace* space) override {
    struct statvfs info = {};
    if (::statvfs(path.c_str(), &info) != 0) return -errno;
    space->free_bytes = static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
    space->total_bytes = static_cast<int64_t>(info.f_blocks) * static_cast<int64_t>(info.f_frsize);
    return 0;
  }
};

}  // namespace

Io& posix_io() {
  static PosixIo io;
  return io;
}

}  // namespace hekla
