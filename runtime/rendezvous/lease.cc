// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/lease.h"

#include <fcntl.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "runtime/base/async/thread.h"
#include "runtime/base/host.h"
#include "runtime/base/io/file.h"

namespace hekla::rendezvous {
namespace {

constexpr int64_t kMaxText = 4096;
// Somebody may look at a new file between its making and its locking, or sweep it away.
constexpr int kTries = 5;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

struct Lease::State {
  Io* io = nullptr;
  File file;
  std::string text;
  std::jthread heart;
};

Lease::Lease() = default;
Lease::Lease(Lease&&) noexcept = default;

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    static_cast<void>(release());
    state_ = std::move(other.state_);
  }
  return *this;
}

Lease::~Lease() { static_cast<void>(release()); }

Result<Lease> Lease::hold(Io& io, std::string path, std::string_view text,
                          const LeaseTimes& times) {
  HEKLA_ASSIGN_OR_RETURN(const LeaseState before, lease_state(io, path, times));
  if (before == LeaseState::kLive || before == LeaseState::kFresh) {
    const Result<std::string> owner = read_lease(io, path);
    return already_exists("{} belongs to a live process ({})", path, owner.ok() ? *owner : "?");
  }
  Lease lease;
  lease.state_ = std::make_unique<State>();
  State& state = *lease.state_;
  state.io = &io;
  state.text = fmt::format("{}\n{}\n", boot_id(), text);
  Status status;
  for (int i = 0; i < kTries; ++i) {
    const std::string temporary = fmt::format("{}.{}.new", path, random_hex(6));
    HEKLA_ASSIGN_OR_RETURN(state.file, File::open(io, temporary, O_RDWR | O_CREAT | O_EXCL));
    status = state.file.write(bytes_of(state.text), 0);
    bool locked = true;
    if (status.ok()) {
      const Result<bool> tried = state.file.try_lock(LockKind::kExclusive);
      // Without locks the heartbeat alone speaks.
      locked = tried.ok() ? *tried : tried.status().code() == StatusCode::kUnimplemented;
      if (!tried.ok() && !locked) status = tried.status();
    }
    if (status.ok() && locked) {
      const int renamed = io.rename(temporary, path);
      if (renamed == 0) {
        state.file.moved_to(std::move(path));
        state.heart = start_heartbeat(times.period, [&state] {
          // The same bytes again: what counts is the time of change. A failure shows as silence.
          static_cast<void>(state.file.write(bytes_of(state.text), 0));
          return true;
        });
        return lease;
      }
      if (renamed != -ENOENT) status = io_error(-renamed, "rename to " + path, temporary);
    }
    io.unlink(temporary);
    if (!status.ok()) break;
  }
  state.file = File();
  lease.state_.reset();
  return status.ok() ? unavailable("{}: somebody removes the new lease again and again", path)
                     : status;
}

Status Lease::release() {
  if (state_ == nullptr) return ok_status();
  const std::unique_ptr<State> state = std::move(state_);
  // The name first: who still finds the file finds it locked.
  const int status = state->io->unlink(state->file.path());
  return status == 0 || status == -ENOENT ? ok_status()
                                          : io_error(-status, "unlink", state->file.path());
}

Result<std::string> read_lease(Io& io, const std::string& path) {
  HEKLA_ASSIGN_OR_RETURN(const std::string text, read_file(io, path, kMaxText));
  const size_t begin = text.find('\n');
  if (begin == std::string::npos) return std::string();
  return text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
}

Result<LeaseState> lease_state(Io& io, const std::string& path, const LeaseTimes& times) {
  Result<File> opened = File::open(io, path, O_RDONLY);
  if (!opened.ok()) {
    if (opened.status().code() == StatusCode::kNotFound) return LeaseState::kNone;
    return opened.status();
  }
  const Result<bool> free = opened->try_lock(LockKind::kShared);
  const bool has_locks = free.ok();
  if (!has_locks && free.status().code() != StatusCode::kUnimplemented) return free.status();
  if (has_locks && !*free) return LeaseState::kLive;
  HEKLA_ASSIGN_OR_RETURN(const FileInfo info, opened->info());
  const Result<std::string> text = read_file(io, path, kMaxText);
  const bool same_machine =
      text.ok() && !boot_id().empty() && text->substr(0, text->find('\n')) == boot_id();
  if (!(has_locks && same_machine)) {
    // How long ago was the last heartbeat, by the clock of the file system?
    const std::string probe = fmt::format("{}.{}.new", path, random_hex(6));
    const Result<File> now = File::open(io, probe, O_WRONLY | O_CREAT | O_EXCL);
    if (!now.ok()) return LeaseState::kFresh;
    const Result<FileInfo> fresh = now->info();
    io.unlink(probe);
    if (!fresh.ok()) return fresh.status();
    if (fresh->modified_ns - info.modified_ns <= times.silence.count()) return LeaseState::kFresh;
  }
  // Given up, or taken by a successor, since the first look?
  HEKLA_ASSIGN_OR_RETURN(const std::optional<FileInfo> still, find_file(io, path));
  if (!still) return LeaseState::kNone;
  return still->inode == info.inode ? LeaseState::kDead : LeaseState::kFresh;
}

}  // namespace hekla::rendezvous
