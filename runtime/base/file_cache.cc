// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/file_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "runtime/base/log.h"
#include "runtime/base/sha256.h"

namespace hekla {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'H', 'K', 'L', 'C', 'A', 'C', 'H', '1'};
constexpr std::string_view kSuffix = ".entry";
constexpr std::string_view kTemporary = ".writing-";
// A temporary file this old belongs to a process that died.
constexpr auto kStale = std::chrono::hours(1);
constexpr size_t kDigestSize = 64;

// Of one entry's file: header, key, bytes.
struct Header {
  char magic[8];
  uint64_t key_size;
  uint64_t size;
  char digest[kDigestSize];
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string digest_of(std::string_view key, std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes_of(key));
  hash.update(bytes);
  return hash.hex();
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

bool write_all(int descriptor, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(descriptor, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

bool read_all(int descriptor, void* data, size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::read(descriptor, at, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

std::string default_cache_folder() {
  if (const char* own = std::getenv("HEKLA_CACHE_DIR")) return own;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return (fs::path(cache) / "hekla").string();
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return (fs::path(home) / ".cache" / "hekla").string();
  }
  return "";
}

Result<std::unique_ptr<FileCache>> FileCache::open(std::string folder, int64_t max_bytes) {
  if (folder.empty()) return invalid_argument("a file cache needs a folder");
  std::error_code error;
  const fs::path path(folder);
  if (!fs::is_directory(path, error)) {
    fs::create_directories(path, error);
    if (!error) ::chmod(folder.c_str(), S_IRWXU);
  }
  if (error || ::access(folder.c_str(), R_OK | W_OK | X_OK) != 0) {
    const std::string reason = error ? error.message() : std::strerror(errno);
    return Status(StatusCode::kPermissionDenied,
                  fmt::format("the cache folder {} cannot be written: {}; HEKLA_CACHE_DIR names "
                              "another one",
                              folder, reason));
  }
  return std::unique_ptr<FileCache>(new FileCache(std::move(folder), max_bytes));
}

std::string FileCache::path_of(std::string_view key) const {
  return (fs::path(folder_) / (sha256_hex(bytes_of(key)) + std::string(kSuffix))).string();
}

std::optional<std::vector<std::byte>> FileCache::load(std::string_view key) {
  const std::string path = path_of(key);
  File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info = {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) {
    ++misses_;
    return std::nullopt;
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  Header header = {};
  const auto check = [&]() -> std::optional<std::vector<std::byte>> {
    if (size < sizeof(header) || !read_all(file.get(), &header, sizeof(header))) return {};
    if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) return {};
    const uint64_t rest = size - sizeof(header);
    if (header.key_size != key.size() || header.key_size > rest ||
        header.size != rest - header.key_size) {
      return {};
    }
    std::string stored_key(key.size(), '\0');
    std::vector<std::byte> bytes(header.size);
    if (!read_all(file.get(), stored_key.data(), stored_key.size()) || stored_key != key) return {};
    if (!read_all(file.get(), bytes.data(), bytes.size())) return {};
    if (digest_of(key, bytes) != std::string_view(header.digest, kDigestSize)) return {};
    return bytes;
  };
  std::optional<std::vector<std::byte>> bytes = check();
  if (!bytes) {
    log_message(LogLevel::kWarning, "the cache file {} is damaged; it is removed", path);
    ::unlink(path.c_str());
    ++corrupt_;
    ++misses_;
    return std::nullopt;
  }
  ::futimens(file.get(), nullptr);  // used now
  ++hits_;
  return bytes;
}

Status FileCache::store(std::string_view key, std::span<const std::byte> bytes) {
  const auto total = static_cast<int64_t>(sizeof(Header) + key.size() + bytes.size());
  if (total > max_bytes_) {
    return resource_exhausted("an entry of {} bytes does not fit into the cache {} of {} bytes",
                              total, folder_, max_bytes_);
  }
  static std::atomic<uint64_t> counter{0};
  const std::string path = path_of(key);
  const std::string temporary =
      (fs::path(folder_) / fmt::format("{}{}-{}", kTemporary, ::getpid(), ++counter)).string();
  const auto failed = [&](const char* what) {
    const std::string reason = std::strerror(errno);
    ::unlink(temporary.c_str());
    return internal_error("{} {}: {}", what, temporary, reason);
  };
  {
    File file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (file.get() < 0) return failed("creating the cache file");
    Header header = {};
    std::memcpy(header.magic, kMagic, sizeof(kMagic));
    header.key_size = key.size();
    header.size = bytes.size();
    std::memcpy(header.digest, digest_of(key, bytes).data(), kDigestSize);
    if (!write_all(file.get(), &header, sizeof(header)) ||
        !write_all(file.get(), key.data(), key.size()) ||
        !write_all(file.get(), bytes.data(), bytes.size())) {
      return failed("writing the cache file");
    }
    // Not synced, which takes longer than compiling a small program: what a power cut leaves of a
    // file does not check and is made again.
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) return failed("renaming the cache file");
  if (known_bytes_.fetch_add(total) + total > max_bytes_) sweep();
  return ok_status();
}

void FileCache::sweep() {
  struct Entry {
    fs::file_time_type used;
    int64_t bytes;
    fs::path path;
  };
  std::lock_guard lock(sweep_mutex_);
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;  // another process may remove files meanwhile
    const fs::file_time_type used = at->last_write_time(gone);
    const uintmax_t bytes = gone ? 0 : at->file_size(gone);
    if (gone) continue;
    const std::string name = at->path().filename().string();
    if (name.starts_with(kTemporary)) {
      if (now - used > kStale) fs::remove(at->path(), gone);
      continue;
    }
    if (!name.ends_with(kSuffix)) continue;
    total += static_cast<int64_t>(bytes);
    entries.push_back({used, static_cast<int64_t>(bytes), at->path()});
  }
  if (total > max_bytes_) {
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.used < b.used; });
    // Below the limit by a tenth, so that not every store sweeps.
    const int64_t goal = max_bytes_ - max_bytes_ / 10;
    for (const Entry& entry : entries) {
      if (total <= goal) break;
      std::error_code gone;
      if (fs::remove(entry.path, gone)) ++evictions_;
      total -= entry.bytes;
    }
  }
  known_bytes_ = total;
}

FileCache::Stats FileCache::stats() const { return {hits_, misses_, corrupt_, evictions_}; }

}  // namespace hekla
