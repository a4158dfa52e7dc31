// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/flight/flight_recorder.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <new>

#include "runtime/base/hash.h"
#include "runtime/base/host.h"
#include "runtime/base/log.h"
#include "runtime/rendezvous/place.h"

namespace hekla::process_group {
namespace {

// To a few milliseconds, which costs as many nanoseconds.
int64_t flight_clock_ms() {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

template <size_t kRoom>
void put_text(char (&into)[kRoom], const std::string& text) {
  std::memset(into, 0, kRoom);
  std::memcpy(into, text.data(), std::min(text.size(), kRoom - 1));
}

// The recorder of the process. Locked while it forks, so that the child finds it free.
struct ProcessRecorder {
  std::mutex mutex;
  bool is_made = false;  // or could not be; guarded by mutex, as the next
  FlightRecorder* recorder = nullptr;
};

ProcessRecorder& process_recorder() {
  static auto* const own = new ProcessRecorder();
  return *own;
}

std::unique_ptr<FlightRecorder> recorder_of_environment() {
  const char* const folder = std::getenv("HEKLA_FLIGHT_DIR");
  if (folder == nullptr || *folder == '\0') return nullptr;
  const Result<rendezvous::Place> place = rendezvous::find_place();
  const bool is_told = place.ok() && place->source != "alone";
  auto made =
      FlightRecorder::create(folder, is_told ? place->rank : -1, is_told ? place->size : -1);
  if (made.ok()) return *std::move(made);
  log_message(LogLevel::kWarning, "calls of process groups are not recorded: {}",
              made.status().message());
  return nullptr;
}

}  // namespace

FlightRecorder* FlightRecorder::of_process() {
  // Before the first lock, and once for this process and its children.
  [[maybe_unused]] static const bool is_ready = [] {
    static_cast<void>(process_recorder());
    ::pthread_atfork([] { process_recorder().mutex.lock(); },
                     [] { process_recorder().mutex.unlock(); }, forget_in_child);
    return std::atexit(end_process) == 0;
  }();
  ProcessRecorder& own = process_recorder();
  const std::lock_guard lock(own.mutex);
  if (!own.is_made) own.recorder = recorder_of_environment().release();
  own.is_made = true;
  return own.recorder;
}

void FlightRecorder::end_process() {
  ProcessRecorder& own = process_recorder();
  const std::lock_guard lock(own.mutex);
  if (own.recorder != nullptr) own.recorder->mark(flight::Stage::kHasEnded);
}

void FlightRecorder::forget_in_child() {
  ProcessRecorder& own = process_recorder();
  if (own.recorder != nullptr) {
    // Groups of the parent's keep the recorder and may write: into memory of the child's alone. If
    // there is none, into a mapping that is gone, which ends the child and not the parent's record.
    flight::File* const file = own.recorder->file_;
    ::munmap(file, sizeof(flight::File));
    ::mmap(file, sizeof(flight::File), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  }
  own.recorder = nullptr;
  own.is_made = false;
  own.mutex.unlock();
}

Result<std::unique_ptr<FlightRecorder>> FlightRecorder::create(const std::string& folder, int rank,
                                                               int size) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return unavailable("folder {}: {}", folder, error.message());
  const std::string path =
      fmt::format("{}/{}-{}-{}.flight", folder, rank < 0 ? "rank" : fmt::format("rank{}", rank),
                  host_name(), ::getpid());
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return unavailable("{}: {}", path, ::strerror(errno));
  // Space is taken now, so that no write to the memory finds a full disk.
  const int full = ::posix_fallocate(fd, 0, sizeof(flight::File));
  void* const memory =
      full != 0 ? MAP_FAILED
                : ::mmap(nullptr, sizeof(flight::File), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int why = full != 0 ? full : errno;
  ::close(fd);
  if (memory == MAP_FAILED) {
    ::unlink(path.c_str());
    return unavailable("{} of {} bytes: {}", path, sizeof(flight::File), ::strerror(why));
  }
  auto* const file = new (memory) flight::File;  // NOLINT: lives in the mapping, zeros already
  file->head.pid = ::getpid();
  file->head.rank = rank;
  file->head.size = size;
  put_text(file->head.host, host_name());
  put_text(file->head.boot, boot_id());
  file->head.pid_space = flight::pid_space();
  file->head.mark = flight::kMark;
  return std::unique_ptr<FlightRecorder>(new FlightRecorder(file));
}

FlightRecorder::~FlightRecorder() {
  // The mapping stays: threads of groups may still write.
  if (file_->head.pid == ::getpid()) mark(flight::Stage::kHasEnded);
}

void FlightRecorder::mark(flight::Stage stage) {
  // Groups that live until the last static is destroyed are removed after the end.
  if (file_->head.stage.load() != flight::Stage::kHasEnded) file_->head.stage.store(stage);
}

uint64_t FlightRecorder::add_group(uint64_t id, const std::string& name, int rank, int size) {
  const std::lock_guard lock(mutex_);
  const int use = ++uses_[id];
  const std::string own_name = use == 1 ? name : fmt::format("{}#{}", name, use);
  const uint64_t own = use == 1 ? id : fnv1a(fmt::format("{} {}", id, use));
  ++open_;
  mark(flight::Stage::kRuns);
  size_t at = is_open_.size();
  if (at < flight::kGroups) {
    is_open_.push_back(true);
  } else {
    // The place of one that is closed, the oldest first; what is left of its calls loses its name.
    size_t looked = 0;
    for (at = next_; looked < is_open_.size() && is_open_[at]; ++looked) {
      at = (at + 1) % is_open_.size();
    }
    if (looked == is_open_.size()) return own;  // its calls are without a name
    next_ = (at + 1) % is_open_.size();
    is_open_[at] = true;
  }
  flight::Group& group = file_->groups[at];
  const std::atomic_ref<int32_t> size_in_file(group.size);
  size_in_file.store(0);
  put_text(group.name, own_name);
  group.id = own;
  group.rank = rank;
  size_in_file.store(size, std::memory_order_release);
  file_->head.groups.store(static_cast<uint32_t>(is_open_.size()));
  return own;
}

void FlightRecorder::remove_group(uint64_t id) {
  const std::lock_guard lock(mutex_);
  for (size_t at = 0; at < is_open_.size(); ++at) {
    if (file_->groups[at].id == id) is_open_[at] = false;
  }
  if (--open_ == 0) mark(flight::Stage::kHasNoGroups);
}

uint64_t FlightRecorder::made(flight::Kind kind, uint64_t group, uint64_t sequence,
                              const Call& call) {
  const uint64_t number = file_->head.calls.fetch_add(1, std::memory_order_relaxed) + 1;
  flight::Entry& entry = file_->calls[number % flight::kCalls];
  entry.number.store(0, std::memory_order_release);
  entry.group = group;
  entry.sequence = sequence;
  entry.made_ms = entry.changed_ms = flight_clock_ms();
  entry.count = call.count;
  entry.factor = call.factor;
  entry.detail = call.detail;
  entry.root = call.root;
  entry.kind = kind;
  entry.operation = call.operation;
  entry.dtype = call.dtype;
  entry.reduce = call.reduce;
  entry.state.store(flight::State::kWaiting, std::memory_order_relaxed);
  entry.code = 0;
  entry.waiters.store(0, std::memory_order_relaxed);
  entry.number.store(number, std::memory_order_release);
  return number;
}

flight::Entry* FlightRecorder::entry(uint64_t number) {
  flight::Entry& entry = file_->calls[number % flight::kCalls];
  return entry.number.load(std::memory_order_relaxed) == number ? &entry : nullptr;
}

void FlightRecorder::began(uint64_t number) {
  if (flight::Entry* const own = entry(number); own != nullptr) {
    own->state.store(flight::State::kRunning, std::memory_order_relaxed);
  }
}

void FlightRecorder::waits(uint64_t number, int more) {
  if (flight::Entry* const own = entry(number); own != nullptr) {
    own->waiters.fetch_add(static_cast<uint8_t>(more), std::memory_order_relaxed);
  }
}

void FlightRecorder::ended(uint64_t number, const Status& status) {
  flight::Entry* const own = entry(number);
  // A message whose deadline was over may still be sent.
  if (own == nullptr || own->state.load(std::memory_order_relaxed) >= flight::State::kDone) return;
  own->changed_ms = flight_clock_ms();
  if (!status.ok()) {
    own->code = static_cast<uint8_t>(status.code());
    put_text(own->text, status.message());
  }
  own->state.store(status.ok() ? flight::State::kDone : flight::State::kFailed,
                   std::memory_order_release);
}

}  // namespace hekla::process_group
