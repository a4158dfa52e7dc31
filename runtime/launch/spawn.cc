// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/host.h"
#include "runtime/launch/rank_process.h"
#include "runtime/process_group/flight/flight_recorder.h"
#include "runtime/rendezvous/tcp_store_server.h"

namespace hekla::launch {
namespace {

constexpr std::chrono::milliseconds kLookPause(5);

constexpr int kNoRun = 127;     // what a copy ends with that never came to `body`
constexpr int kThrown = 1;      // out of which an exception came
constexpr int kNoExitCode = 1;  // whose code is none that a process can end with

struct Copy {
  pid_t pid = -1;
  int pipe = -1;  // brings HEKLA_STORE
  bool has_ended = false;
};

// What the copy ends with.
int be_rank(int rank, int count, int pipe, pid_t parent, const std::function<int(int)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) return kNoRun;
  std::string store;
  char bytes[256];
  for (ssize_t got = 0; (got = ::read(pipe, bytes, sizeof(bytes))) != 0;) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return kNoRun;
    store.append(bytes, static_cast<size_t>(got));
  }
  ::close(pipe);
  if (store.empty()) return kNoRun;
  const std::string own = std::to_string(rank), all = std::to_string(count);
  for (const auto& [name, value] : {std::pair<const char*, std::string>{"RANK", own},
                                    {"LOCAL_RANK", own},
                                    {"WORLD_SIZE", all},
                                    {"LOCAL_WORLD_SIZE", all},
                                    {"GROUP_RANK", "0"},
                                    {"GROUP_WORLD_SIZE", "1"},
                                    {"ROLE_RANK", own},
                                    {"ROLE_WORLD_SIZE", all},
                                    {"ROLE_NAME", "default"},
                                    {"MASTER_ADDR", "127.0.0.1"},
                                    {"HEKLA_LAUNCH", "1"},
                                    {"HEKLA_STORE", store}}) {
    ::setenv(name, value.c_str(), 1);
  }
  try {
    const int code = body(rank);
    if (code >= 0 && code <= 255) return code;
    std::fprintf(stderr, "spawn: rank %d returns %d, which is no exit code\n", rank, code);
    return kNoExitCode;
  } catch (const std::exception& thrown) {  // must not reach what the parent does after spawn
    std::fprintf(stderr, "spawn: rank %d throws: %s\n", rank, thrown.what());
  } catch (...) {
    std::fprintf(stderr, "spawn: rank %d throws\n", rank);
  }
  return kThrown;
}

// SIGKILL and wait for those that are left.
void end_copies(std::vector<Copy>& copies) {
  for (Copy& copy : copies) {
    if (copy.pipe >= 0) ::close(std::exchange(copy.pipe, -1));
    if (copy.has_ended) continue;
    ::kill(copy.pid, SIGKILL);
    while (::waitpid(copy.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    copy.has_ended = true;
  }
}

Status tell_store(std::vector<Copy>& copies, const std::string& store) {
  for (Copy& copy : copies) {
    // A copy that has died already does not take it: its end is seen.
    if (::write(copy.pipe, store.data(), store.size()) < 0 && errno != EPIPE) {
      return unavailable("rank's pipe: errno {}", errno);
    }
    ::close(std::exchange(copy.pipe, -1));
  }
  return ok_status();
}

Status watch_copies(std::vector<Copy>& copies, std::chrono::milliseconds grace) {
  using WatchClock = std::chrono::steady_clock;
  std::optional<WatchClock::time_point> kill_at;
  Status first;
  for (size_t left = copies.size(); left > 0;) {
    // Of several at once the one that was killed: the others may have ended because of it.
    std::optional<size_t> failed;
    std::string how;
    bool was_killed = false;
    for (size_t rank = 0; rank < copies.size(); ++rank) {
      int status = 0;
      if (copies[rank].has_ended) continue;
      const pid_t ended = ::waitpid(copies[rank].pid, &status, WNOHANG);
      if (ended == 0 || (ended < 0 && errno == EINTR)) continue;
      copies[rank].has_ended = true;
      --left;
      const ProcessEnd end = WIFSIGNALED(status) ? ProcessEnd{0, WTERMSIG(status)}
                                                 : ProcessEnd{WEXITSTATUS(status), 0};
      if (ended > 0 && end.is_well()) continue;
      if (failed && (was_killed || ended < 0 || end.signal == 0)) continue;
      failed = rank;
      was_killed = ended > 0 && end.signal != 0;
      // Where SIGCHLD is ignored, or something else in this process has waited for the copy.
      how = ended > 0 ? end.to_string() : "an end that this process could not wait for";
    }
    if (failed && first.ok()) {
      first = Status(StatusCode::kAborted, fmt::format("rank {} of {} failed first, with {}",
                                                       *failed, copies.size(), how));
      kill_at = WatchClock::now() + grace;
      for (const Copy& copy : copies) {
        if (!copy.has_ended) ::kill(copy.pid, SIGTERM);
      }
    }
    if (kill_at && WatchClock::now() >= *kill_at) {
      end_copies(copies);
      return first;
    }
    if (left > 0) std::this_thread::sleep_for(kLookPause);
  }
  return first;
}

}  // namespace

Status spawn(int count, const std::function<int(int rank)>& body, const SpawnOptions& options) {
  if (count < 1 || body == nullptr) return invalid_argument("{} ranks to spawn", count);
  std::fflush(nullptr);  // else what is buffered comes once from each copy
  std::vector<Copy> copies;
  const pid_t parent = ::getpid();
  // All before the store's thread is there.
  for (int rank = 0; rank < count; ++rank) {
    int pipe[2];
    const bool has_pipe = ::pipe2(pipe, O_CLOEXEC) == 0;
    const pid_t pid = has_pipe ? ::fork() : -1;
    if (pid == 0) {
      ::close(pipe[1]);
      for (const Copy& other : copies) ::close(other.pipe);
      const int code = be_rank(rank, count, pipe[0], parent, body);
      std::fflush(nullptr);
      process_group::FlightRecorder::end_process();
      ::_exit(code);
    }
    if (pid < 0) {
      const int error = errno;
      if (has_pipe) {
        ::close(pipe[0]);
        ::close(pipe[1]);
      }
      end_copies(copies);
      return unavailable("rank {} of {} cannot be forked: errno {}", rank, count, error);
    }
    ::close(pipe[0]);
    copies.push_back({pid, pipe[1]});
  }
  const std::string token = random_hex(16);
  const auto server = rendezvous::TcpStoreServer::start("127.0.0.1", 0, token);
  Status status = server.status();
  if (status.ok()) {
    struct sigaction ignore = {}, before = {};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &ignore, &before);
    status = tell_store(copies, fmt::format("tcp:{}@127.0.0.1:{}", token, (*server)->port()));
    ::sigaction(SIGPIPE, &before, nullptr);
  }
  if (status.ok()) return watch_copies(copies, options.grace);
  end_copies(copies);
  return status;
}

}  // namespace hekla::launch
