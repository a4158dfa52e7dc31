// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/file_store.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "runtime/base/host.h"

namespace hekla::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// File names: kind, then the key with everything but letters, digits, '_', '-' and '.' as %XX.
constexpr std::string_view kKey = "key-";
constexpr std::string_view kMember = "member-";
constexpr std::string_view kLock = "lock";
// A folder of its own, so that values under way wake nobody.
constexpr std::string_view kTemporary = "tmp";

// File systems allow 255 bytes.
constexpr size_t kMaxName = 240;

// A member of another machine without a heartbeat for 30 s is lost.
constexpr LeaseTimes kTimes = {seconds(5), seconds(30)};
// The lock is held for microseconds: this long means that its holder was stopped.
constexpr seconds kLockPatience(20);
constexpr milliseconds kLookEvery(50);
constexpr seconds kOldTemporary(3600);

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

std::string escaped(std::string_view key) {
  std::string text;
  for (const char c : key) {
    if (is_plain(c)) {
      text += c;
    } else {
      text += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return text;
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// nullopt for a name that escaped() does not make.
std::optional<std::string> unescaped(std::string_view name) {
  std::string key;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '%') {
      key += name[i];
      continue;
    }
    if (i + 2 >= name.size() || digit(name[i + 1]) < 0 || digit(name[i + 2]) < 0) return {};
    key += static_cast<char>(digit(name[i + 1]) * 16 + digit(name[i + 2]));
    i += 2;
  }
  return key;
}

}  // namespace

Result<std::unique_ptr<FileStore>> FileStore::open(Io& io, std::string folder) {
  HEKLA_RETURN_IF_ERROR(make_folders(io, join_path(folder, kTemporary)));
  std::unique_ptr<FileStore> store(new FileStore(io, std::move(folder)));
  store->inotify_ = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (store->inotify_ >= 0) {
    // Without a watch (limits of the machine, folders in memory) looking every 50 ms remains.
    ::inotify_add_watch(store->inotify_, store->folder_.c_str(),
                        IN_MOVED_TO | IN_CREATE | IN_DELETE);
  }
  store->drop_old_temporaries();
  return store;
}

FileStore::~FileStore() {
  if (inotify_ >= 0) ::close(inotify_);
}

Status FileStore::check(std::string_view key) {
  HEKLA_RETURN_IF_ERROR(check_key(key));
  if (escaped(key).size() > kMaxName) {
    return invalid_argument("the key {} is too long for a file name", key);
  }
  return ok_status();
}

std::string FileStore::path_of(std::string_view kind, std::string_view key) const {
  return join_path(folder_, std::string(kind) + escaped(key));
}

std::string FileStore::temporary_path() const {
  return join_path(join_path(folder_, kTemporary), random_hex(12));
}

void FileStore::drop_old_temporaries() {
  const std::string folder = join_path(folder_, kTemporary);
  std::vector<DirectoryEntry> entries;
  if (io_.list(folder, &entries) < 0) return;
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  for (const DirectoryEntry& entry : entries) {
    const std::string path = join_path(folder, entry.name);
    FileInfo info;
    const int64_t age_ns = std::chrono::nanoseconds(kOldTemporary).count();
    if (io_.stat(path, &info) == 0 && now - info.modified_ns > age_ns) io_.unlink(path);
  }
}

Result<std::string> FileStore::write_temporary(std::string_view value) {
  const std::string path = temporary_path();
  HEKLA_ASSIGN_OR_RETURN(File file, File::open(io_, path, O_WRONLY | O_CREAT | O_EXCL));
  Status status = file.write(std::as_bytes(std::span(value.data(), value.size())), 0);
  if (status.ok()) status = file.close();
  if (!status.ok()) {
    io_.unlink(path);
    return status;
  }
  return path;
}

Status FileStore::put(std::string_view key, std::string_view value) {
  HEKLA_ASSIGN_OR_RETURN(const std::string temporary, write_temporary(value));
  Status status = rename_path(io_, temporary, path_of(kKey, key));
  if (!status.ok()) io_.unlink(temporary);
  return status;
}

Result<File> FileStore::lock() {
  HEKLA_ASSIGN_OR_RETURN(File file, File::open(io_, join_path(folder_, kLock), O_RDWR | O_CREAT));
  const Deadline deadline = Deadline::in(kLockPatience);
  for (auto pause = std::chrono::microseconds(50);;
       pause = std::min<std::chrono::microseconds>(pause * 2, milliseconds(5))) {
    HEKLA_ASSIGN_OR_RETURN(const bool locked, file.try_lock(LockKind::kExclusive));
    if (locked) return file;
    if (deadline.expired()) {
      return unavailable("{} is held for {} s: is a process that holds it stopped?", file.path(),
                         kLockPatience.count());
    }
    std::this_thread::sleep_for(pause);
  }
}

Status FileStore::set(std::string_view key, std::string_view value) {
  HEKLA_RETURN_IF_ERROR(check_value(key, value));
  HEKLA_RETURN_IF_ERROR(check(key));
  HEKLA_ASSIGN_OR_RETURN(const File held, lock());
  return put(key, value);
}

Result<std::optional<std::string>> FileStore::get(std::string_view key) {
  HEKLA_RETURN_IF_ERROR(check(key));
  // Opened by name and never changed after that: no lock is needed to read one value.
  Result<std::string> text =
      read_file(io_, path_of(kKey, key), static_cast<int64_t>(kMaxValueBytes));
  if (text.ok()) return std::optional<std::string>(*std::move(text));
  if (text.status().code() == StatusCode::kNotFound) return std::optional<std::string>();
  return text.status();
}

Result<int64_t> FileStore::add(std::string_view key, int64_t delta) {
  HEKLA_RETURN_IF_ERROR(check(key));
  HEKLA_ASSIGN_OR_RETURN(const File held, lock());
  HEKLA_ASSIGN_OR_RETURN(const std::optional<std::string> now, get(key));
  HEKLA_ASSIGN_OR_RETURN(const std::string sum, sum_text(key, now.value_or("0"), delta));
  HEKLA_RETURN_IF_ERROR(put(key, sum));
  return parse_number(key, sum);
}

Result<Store::Swap> FileStore::compare_set(std::string_view key,
                                           std::optional<std::string_view> expected,
                                           std::string_view desired) {
  HEKLA_RETURN_IF_ERROR(check_value(key, desired));
  HEKLA_RETURN_IF_ERROR(check(key));
  if (!expected) {
    HEKLA_ASSIGN_OR_RETURN(const std::string temporary, write_temporary(desired));
    const int status = io_.link(temporary, path_of(kKey, key));
    io_.unlink(temporary);
    if (status == 0) return Swap{true, std::string(desired)};
    if (status == -EEXIST) {
      HEKLA_ASSIGN_OR_RETURN(std::optional<std::string> now, get(key));
      return Swap{false, std::move(now)};
    }
    const bool has_links = status != -EPERM && status != -EOPNOTSUPP && status != -ENOSYS;
    if (has_links) return io_error(-status, "link", path_of(kKey, key));
  }
  HEKLA_ASSIGN_OR_RETURN(const File held, lock());
  HEKLA_ASSIGN_OR_RETURN(std::optional<std::string> now, get(key));
  const bool is_equal = now.has_value() == expected.has_value() && (!now || *now == *expected);
  if (!is_equal) return Swap{false, std::move(now)};
  HEKLA_RETURN_IF_ERROR(put(key, desired));
  return Swap{true, std::string(desired)};
}

Status FileStore::remove(std::string_view key) {
  HEKLA_RETURN_IF_ERROR(check(key));
  HEKLA_ASSIGN_OR_RETURN(const File held, lock());
  const std::string path = path_of(kKey, key);
  const int status = io_.unlink(path);
  return status == 0 || status == -ENOENT ? ok_status() : io_error(-status, "unlink", path);
}

Result<std::map<std::string, std::string>> FileStore::get_all(std::string_view prefix) {
  std::vector<DirectoryEntry> entries;
  if (const int status = io_.list(folder_, &entries); status < 0) {
    return io_error(-status, "list", folder_);
  }
  const std::string wanted = std::string(kKey) + escaped(prefix);
  std::map<std::string, std::string> found;
  for (const DirectoryEntry& entry : entries) {
    if (!entry.name.starts_with(wanted)) continue;
    const std::optional<std::string> key = unescaped(entry.name.substr(kKey.size()));
    if (!key || !check(*key).ok()) continue;
    HEKLA_ASSIGN_OR_RETURN(std::optional<std::string> value, get(*key));
    if (value) found.emplace(*key, *std::move(value));
  }
  return found;
}

Status FileStore::remove_all(std::string_view prefix) {
  HEKLA_ASSIGN_OR_RETURN(const File held, lock());
  std::vector<DirectoryEntry> entries;
  if (const int status = io_.list(folder_, &entries); status < 0) {
    return io_error(-status, "list", folder_);
  }
  const std::string wanted = std::string(kKey) + escaped(prefix);
  for (const DirectoryEntry& entry : entries) {
    if (!entry.name.starts_with(wanted)) continue;
    const std::string path = join_path(folder_, entry.name);
    const int status = io_.unlink(path);
    if (status != 0 && status != -ENOENT) return io_error(-status, "unlink", path);
  }
  return ok_status();
}

Status FileStore::join(std::string_view member) {
  HEKLA_RETURN_IF_ERROR(check(member));
  HEKLA_ASSIGN_OR_RETURN(const File held, lock());
  HEKLA_ASSIGN_OR_RETURN(Lease lease,
                         Lease::hold(io_, path_of(kMember, member), host_name(), kTimes));
  const std::lock_guard guard(mutex_);
  members_.insert_or_assign(std::string(member), std::move(lease));
  return ok_status();
}

Status FileStore::leave(std::string_view member) {
  HEKLA_RETURN_IF_ERROR(check(member));
  HEKLA_ASSIGN_OR_RETURN(const File held, lock());
  const std::lock_guard guard(mutex_);
  const auto found = members_.find(std::string(member));
  if (found == members_.end()) return ok_status();
  const Status status = found->second.release();
  members_.erase(found);
  return status;
}

Result<bool> FileStore::is_lost(std::string_view member) {
  HEKLA_RETURN_IF_ERROR(check(member));
  HEKLA_ASSIGN_OR_RETURN(const LeaseState state,
                         lease_state(io_, path_of(kMember, member), kTimes));
  return state == LeaseState::kDead;
}

uint64_t FileStore::ticket() {
  const std::lock_guard lock(mutex_);
  return changes_;
}

void FileStore::wait_change(uint64_t ticket, Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (changes_ != ticket) return;
  }
  const auto left = std::min<std::chrono::nanoseconds>(deadline.left(), kLookEvery);
  const auto wait_ms = static_cast<int>(std::chrono::ceil<milliseconds>(left).count());
  pollfd entry = {inotify_, POLLIN, 0};
  if (::poll(&entry, 1, wait_ms) <= 0) return;
  char events[4096];
  while (::read(inotify_, events, sizeof(events)) > 0) {
  }
  const std::lock_guard lock(mutex_);
  ++changes_;
}

}  // namespace hekla::rendezvous
