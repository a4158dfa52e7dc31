// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/io/file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "runtime/base/host.h"

namespace hekla {
namespace {

StatusCode code_of(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EFBIG:
      return StatusCode::kResourceExhausted;
    case EACCES:
    case EPERM:
    case EROFS:
      return StatusCode::kPermissionDenied;
    case ENOENT:
    case ENOTDIR:
      return StatusCode::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return StatusCode::kAlreadyExists;
    case ESTALE:
    case ETIMEDOUT:
    case EHOSTDOWN:
      return StatusCode::kUnavailable;
    case EOPNOTSUPP:
    case ENOSYS:
    case ENOLCK:
      return StatusCode::kUnimplemented;
    default:
      return StatusCode::kInternal;
  }
}

template <typename Call>
auto retried(const Call& call) {
  auto result = call();
  while (result == -EINTR) result = call();
  return result;
}

}  // namespace

Status io_error(int error, std::string_view call, std::string_view path) {
  return Status(code_of(error), fmt::format("{} of {}: {} (errno {})", call, path,
                                            std::generic_category().message(error), error));
}

std::string join_path(std::string_view folder, std::string_view name) {
  std::string path(folder);
  if (!path.empty() && path.back() != '/') path += '/';
  return path.append(name);
}

std::string parent_path(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(path.substr(0, std::max<size_t>(slash, 1)));
}

Result<File> File::open(Io& io, std::string path, int flags, int mode) {
  const int fd = retried([&] { return io.open(path, flags, mode); });
  if (fd < 0) return io_error(-fd, "open", path);
  File file;
  file.io_ = &io;
  file.fd_ = fd;
  file.path_ = std::move(path);
  return file;
}

File& File::operator=(File&& other) noexcept {
  if (this == &other) return *this;
  reset();
  io_ = other.io_;
  fd_ = std::exchange(other.fd_, -1);
  path_ = std::move(other.path_);
  return *this;
}

void File::reset() {
  if (fd_ >= 0) io_->close(std::exchange(fd_, -1));
}

Status File::write(std::span<const std::byte> bytes, int64_t offset) const {
  while (!bytes.empty()) {
    const int64_t moved = retried(
        [&] { return io_->pwrite(fd_, bytes.data(), static_cast<int64_t>(bytes.size()), offset); });
    // A write that moves nothing and has no error would go round for ever.
    if (moved <= 0) {
      return error(moved == 0 ? EIO : static_cast<int>(-moved),
                   fmt::format("pwrite of {} bytes at offset {}", bytes.size(), offset));
    }
    bytes = bytes.subspan(static_cast<size_t>(moved));
    offset += moved;
  }
  return ok_status();
}

Status File::read(std::span<std::byte> bytes, int64_t offset) const {
  while (!bytes.empty()) {
    const int64_t moved = retried(
        [&] { return io_->pread(fd_, bytes.data(), static_cast<int64_t>(bytes.size()), offset); });
    if (moved < 0) {
      return error(static_cast<int>(-moved),
                   fmt::format("pread of {} bytes at offset {}", bytes.size(), offset));
    }
    if (moved == 0) {
      return data_loss("{} ends at {}: {} more bytes are missing there", path_, offset,
                       bytes.size());
    }
    bytes = bytes.subspan(static_cast<size_t>(moved));
    offset += moved;
  }
  return ok_status();
}

Status File::allocate(int64_t bytes) const {
  if (bytes == 0) return ok_status();
  const int status = retried([&] { return io_->fallocate(fd_, bytes); });
  if (status == -EOPNOTSUPP || status == -ENOSYS) return truncate(bytes);
  if (status < 0) return error(-status, fmt::format("fallocate of {} bytes", bytes));
  return ok_status();
}

Status File::truncate(int64_t bytes) const {
  const int status = retried([&] { return io_->truncate(fd_, bytes); });
  return status < 0 ? error(-status, fmt::format("truncate to {} bytes", bytes)) : ok_status();
}

Result<FileInfo> File::info() const {
  FileInfo info;
  const int status = io_->fstat(fd_, &info);
  if (status < 0) return error(-status, "fstat");
  return info;
}

Status File::sync() const {
  // Not retried after EINTR either: whether the first try lost pages is unknown.
  const int status = io_->fsync(fd_);
  return status < 0 ? error(-status, "fsync") : ok_status();
}

Status File::sync_data() const {
  const int status = io_->fdatasync(fd_);
  return status < 0 ? error(-status, "fdatasync") : ok_status();
}

Status File::close() {
  if (fd_ < 0) return ok_status();
  const int status = io_->close(std::exchange(fd_, -1));
  return status < 0 ? error(-status, "close") : ok_status();
}

Result<bool> File::try_lock(LockKind kind) const {
  const int status = retried([&] { return io_->lock(fd_, kind); });
  if (status == -EWOULDBLOCK || status == -EACCES) return false;
  if (status < 0) return error(-status, "flock");
  return true;
}

Result<std::string> read_file(Io& io, const std::string& path, int64_t max_bytes) {
  HEKLA_ASSIGN_OR_RETURN(File file, File::open(io, path, O_RDONLY));
  HEKLA_ASSIGN_OR_RETURN(const FileInfo info, file.info());
  if (info.kind != FileKind::kRegular) return invalid_argument("{} is not a file", path);
  if (info.size > max_bytes) {
    return resource_exhausted("{} has {} bytes, more than the limit {}", path, info.size,
                              max_bytes);
  }
  std::string text(static_cast<size_t>(info.size), '\0');
  HEKLA_RETURN_IF_ERROR(file.read(std::as_writable_bytes(std::span(text.data(), text.size())), 0));
  return text;
}

Status create_file(Io& io, const std::string& path, std::string_view text) {
  HEKLA_ASSIGN_OR_RETURN(File file, File::open(io, path, O_WRONLY | O_CREAT | O_EXCL));
  Status status = file.write(std::as_bytes(std::span(text.data(), text.size())), 0);
  if (status.ok()) status = file.sync();
  if (status.ok()) status = file.close();
  if (!status.ok()) io.unlink(path);
  return status;
}

Status expect_text(Io& io, const std::string& path, std::string_view text) {
  const auto size = static_cast<int64_t>(text.size());
  {
    HEKLA_ASSIGN_OR_RETURN(const File file, File::open(io, path, O_RDONLY));
    io.drop_cache(file.fd(), 0, size);  // synced pages are clean
  }
  Result<std::string> found = read_file(io, path, std::max<int64_t>(1, size));
  if (found.ok() && *found == text) return ok_status();
  const Status why = found.ok() ? data_loss("{} is not what was written", path) : found.status();
  return why.with_context("read back after it was written");
}

Status replace_file(Io& io, const std::string& path, std::string_view text) {
  const std::string temporary = fmt::format("{}.{}.new", path, random_hex(8));
  HEKLA_RETURN_IF_ERROR(create_file(io, temporary, text));
  Status status = rename_path(io, temporary, path);
  if (!status.ok()) io.unlink(temporary);
  return status;
}

Result<FileInfo> stat_file(Io& io, const std::string& path) {
  FileInfo info;
  const int status = io.stat(path, &info);
  if (status < 0) return io_error(-status, "stat", path);
  return info;
}

Result<std::optional<FileInfo>> find_file(Io& io, const std::string& path) {
  FileInfo info;
  const int status = io.stat(path, &info);
  if (status == -ENOENT || status == -ENOTDIR) return std::optional<FileInfo>();
  if (status < 0) return io_error(-status, "stat", path);
  return std::optional<FileInfo>(info);
}

Status sync_folder(Io& io, const std::string& path) {
  HEKLA_ASSIGN_OR_RETURN(File folder, File::open(io, path, O_RDONLY | O_DIRECTORY));
  // Some network and user-space file systems have no sync of a folder and say EINVAL: their renames
  // are as durable as they get.
  const int status = io.fsync(folder.fd());
  if (status < 0 && status != -EINVAL) return io_error(-status, "fsync", path);
  return folder.close();
}

Status make_folder(Io& io, const std::string& path) {
  const int status = io.mkdir(path, 0755);
  return status < 0 ? io_error(-status, "mkdir", path) : ok_status();
}

Status make_folders(Io& io, const std::string& path) {
  HEKLA_ASSIGN_OR_RETURN(const std::optional<FileInfo> found, find_file(io, path));
  if (found) return ok_status();  // a link to a folder is fine; a file shows at the first use
  const std::string parent = parent_path(path);
  if (parent != path) HEKLA_RETURN_IF_ERROR(make_folders(io, parent));
  const int status = io.mkdir(path, 0755);
  if (status == -EEXIST) return ok_status();  // another process was faster
  if (status < 0) return io_error(-status, "mkdir", path);
  return sync_folder(io, parent);
}

Status rename_path(Io& io, const std::string& from, const std::string& to) {
  const int status = io.rename(from, to);
  if (status < 0) return io_error(-status, fmt::format("rename to {}", to), from);
  return ok_status();
}

Status unlink_file(Io& io, const std::string& path) {
  const int status = io.unlink(path);
  return status < 0 ? io_error(-status, "unlink", path) : ok_status();
}

Result<std::vector<DirectoryEntry>> list_folder(Io& io, const std::string& path) {
  std::vector<DirectoryEntry> entries;
  const int status = io.list(path, &entries);
  if (status < 0) return io_error(-status, "list", path);
  std::sort(entries.begin(), entries.end(),
            [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.name < b.name; });
  return entries;
}

Status remove_tree(Io& io, const std::string& path) {
  HEKLA_ASSIGN_OR_RETURN(const std::optional<FileInfo> found, find_file(io, path));
  if (!found) return ok_status();
  const auto gone = [](int status) { return status == 0 || status == -ENOENT; };
  if (found->kind != FileKind::kDirectory) {
    const int status = io.unlink(path);
    return gone(status) ? ok_status() : io_error(-status, "unlink", path);
  }
  HEKLA_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, list_folder(io, path));
  for (const DirectoryEntry& entry : entries) {
    const std::string child = join_path(path, entry.name);
    if (entry.kind == FileKind::kDirectory) {
      HEKLA_RETURN_IF_ERROR(remove_tree(io, child));
    } else if (const int status = io.unlink(child); !gone(status)) {
      return io_error(-status, "unlink", child);
    }
  }
  const int status = io.rmdir(path);
  return gone(status) ? ok_status() : io_error(-status, "rmdir", path);
}

}  // namespace hekla
