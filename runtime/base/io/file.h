// SPDX-License-Identifier: Apache-2.0
// Files over Io that retry what may be retried and say what went wrong.
//
// Every error names the call, the file, the offset where there is one, and the errno; whoever knows
// step, phase and rank adds them. Codes: ENOSPC, EDQUOT, EMFILE, ENFILE RESOURCE_EXHAUSTED ·
// EACCES, EPERM, EROFS PERMISSION_DENIED · ENOENT, ENOTDIR NOT_FOUND · EEXIST, ENOTEMPTY
// ALREADY_EXISTS · ESTALE, ETIMEDOUT, EHOSTDOWN UNAVAILABLE · the rest INTERNAL.
//
// A failed sync is final: the kernel may have dropped the pages and marked them clean, so that a
// second one succeeds falsely. Nothing here syncs twice after a failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/io/io.h"
#include "runtime/base/status.h"

namespace hekla {

// "pwrite of 4096 bytes at offset 8192 of /run/data/shard-00000.h5: No space left on device
// (errno 28)". `error` > 0.
Status io_error(int error, std::string_view call, std::string_view path);

std::string join_path(std::string_view folder, std::string_view name);
// The part before the last '/', "." when there is none.
std::string parent_path(std::string_view path);

// An open file; closes itself, without a word, when close() was not called. One thread at a time
// but for read and write, which may be called from several.
class File {
 public:
  static Result<File> open(Io& io, std::string path, int flags, int mode = 0644);

  File() = default;
  File(File&& other) noexcept { *this = std::move(other); }
  File& operator=(File&& other) noexcept;
  ~File() { reset(); }

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  // The file was renamed; for messages.
  void moved_to(std::string path) { path_ = std::move(path); }

  // All of `bytes`, or an error; short writes and EINTR are carried on.
  Status write(std::span<const std::byte> bytes, int64_t offset) const;
  // All of `bytes`; DATA_LOSS, with the sizes, when the file ends before.
  Status read(std::span<std::byte> bytes, int64_t offset) const;
  // Space for [0, bytes) and that size. File systems without fallocate: the size alone.
  Status allocate(int64_t bytes) const;
  Status truncate(int64_t bytes) const;
  Result<FileInfo> info() const;
  Status sync() const;       // data and everything about the file
  Status sync_data() const;  // data, and what is needed to read them back
  Status close();
  // True: held by this open file now. False: somebody else holds it. UNIMPLEMENTED: no locks here.
  Result<bool> try_lock(LockKind kind) const;

 private:
  void reset();
  Status error(int code, std::string_view call) const { return io_error(code, call, path_); }

  Io* io_ = nullptr;
  int fd_ = -1;
  std::string path_;
};

// The whole file; RESOURCE_EXHAUSTED when it is longer than `max_bytes`.
Result<std::string> read_file(Io& io, const std::string& path, int64_t max_bytes);
// A new file, synced; ALREADY_EXISTS when there is one. The folder is not synced. What was begun is
// removed on failure.
Status create_file(Io& io, const std::string& path, std::string_view text);
// DATA_LOSS unless the disk, past the page cache where that can be, gives back this text.
Status expect_text(Io& io, const std::string& path, std::string_view text);
// Readers see the old or the new text, whatever happens; a temporary name beside it is used. The
// file is synced, the folder is not.
Status replace_file(Io& io, const std::string& path, std::string_view text);

Result<FileInfo> stat_file(Io& io, const std::string& path);
// nullopt when there is nothing of that name.
Result<std::optional<FileInfo>> find_file(Io& io, const std::string& path);
Status sync_folder(Io& io, const std::string& path);
Status make_folder(Io& io, const std::string& path);
// With parents; what exists is fine. New entries are synced.
Status make_folders(Io& io, const std::string& path);
Status rename_path(Io& io, const std::string& from, const std::string& to);
Status unlink_file(Io& io, const std::string& path);
// Sorted by name.
Result<std::vector<DirectoryEntry>> list_folder(Io& io, const std::string& path);
// A folder and all below it, or a file; nothing there is fine. Does not follow links.
Status remove_tree(Io& io, const std::string& path);

}  // namespace hekla
