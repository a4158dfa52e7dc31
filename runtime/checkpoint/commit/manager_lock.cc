// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/commit/manager_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>

#include "runtime/base/async/thread.h"
#include "runtime/base/host.h"
#include "runtime/base/io/file.h"
#include "runtime/checkpoint/commit/names.h"

namespace hekla::checkpoint {
namespace {

constexpr int64_t kMaxText = 4096;
constexpr int kSilentPeriods = 3;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

struct ManagerLock::State {
  File file;
  std::string text;  // boot id, then who
  std::atomic<bool> stolen{false};
  std::jthread heart;

  Result<std::string> read() const {
    HEKLA_ASSIGN_OR_RETURN(const FileInfo info, file.info());
    std::string there(static_cast<size_t>(std::min(info.size, kMaxText)), '\0');
    HEKLA_RETURN_IF_ERROR(
        file.read(std::as_writable_bytes(std::span(there.data(), there.size())), 0));
    return there;
  }
  bool beat() {
    const Result<std::string> there = read();
    if (there.ok() && *there != text) stolen = true;
    if (!stolen) static_cast<void>(file.write(bytes_of(text), 0));
    return !stolen;
  }
  ~State() {
    heart = {};
    // An empty LOCK belongs to nobody; the file stays, so that all lock the same one.
    if (file.is_open() && !stolen) static_cast<void>(file.truncate(0));
  }
};

ManagerLock::ManagerLock() = default;
ManagerLock::ManagerLock(ManagerLock&&) noexcept = default;
ManagerLock& ManagerLock::operator=(ManagerLock&&) noexcept = default;
ManagerLock::~ManagerLock() = default;

bool ManagerLock::is_held() const { return state_ != nullptr && !state_->stolen; }

Result<ManagerLock> ManagerLock::acquire(Io& io, const std::string& root,
                                         std::chrono::nanoseconds period) {
  auto state = std::make_unique<State>();
  HEKLA_ASSIGN_OR_RETURN(File file, File::open(io, join_path(root, kLockFile), O_RDWR | O_CREAT));
  state->file = std::move(file);
  const Result<bool> locked = state->file.try_lock(LockKind::kExclusive);
  const bool has_locks = locked.ok();
  if (!has_locks && locked.status().code() != StatusCode::kUnimplemented) return locked.status();
  const Result<std::string> there = state->read();
  const std::string holder =
      there.ok() && there->find('\n') != std::string::npos
          ? there->substr(there->find('\n') + 1, there->size() - there->find('\n') - 2)
          : "unknown";
  const auto busy = [&] {
    Status status =
        already_exists("{} is held by another manager ({})", state->file.path(), holder);
    state->file = File();  // its line is not ours to erase
    return status;
  };
  if (has_locks && !*locked) return busy();
  if (!there.ok()) return there.status();
  const bool same_machine = has_locks && !boot_id().empty() && there->starts_with(boot_id() + "\n");
  if (!there->empty() && !same_machine) {
    const std::string probe = join_path(root, fmt::format("{}.{}.new", kLockFile, random_hex(6)));
    HEKLA_ASSIGN_OR_RETURN(const File now, File::open(io, probe, O_WRONLY | O_CREAT | O_EXCL));
    const Result<FileInfo> fresh = now.info(), last = state->file.info();
    io.unlink(probe);
    HEKLA_RETURN_IF_ERROR(fresh.status());
    HEKLA_RETURN_IF_ERROR(last.status());
    if (fresh->modified_ns - last->modified_ns <= kSilentPeriods * period.count()) return busy();
  }
  state->text =
      fmt::format("{}\n{} on {}, process {}\n", boot_id(), random_hex(8), host_name(), ::getpid());
  HEKLA_RETURN_IF_ERROR(state->file.truncate(0));
  HEKLA_RETURN_IF_ERROR(state->file.write(bytes_of(state->text), 0));
  state->heart = start_heartbeat(period, [state = state.get()] { return state->beat(); });
  ManagerLock lock;
  lock.state_ = std::move(state);
  return lock;
}

}  // namespace hekla::checkpoint
