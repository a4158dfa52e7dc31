// SPDX-License-Identifier: Apache-2.0
// Signals: those that a launcher takes over, as something to read, and SIGPIPE as an error of
// write, as long as this lives. Of the main thread, before it starts others.
#pragma once

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace hekla::launch {

class Signals {
 public:
  Signals() {
    sigset_t wanted;
    ::sigemptyset(&wanted);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&wanted, number);
    ::pthread_sigmask(SIG_BLOCK, &wanted, &before_);
    pipe_before_ = ::signal(SIGPIPE, SIG_IGN);
    file_ = ::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() {
    if (file_ >= 0) ::close(file_);
    ::signal(SIGPIPE, pipe_before_);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  int file() const { return file_; }
  // The last one but SIGCHLD that has come; 0: none.
  int take() const {
    int last = 0;
    signalfd_siginfo info = {};
    while (::read(file_, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo != SIGCHLD) last = static_cast<int>(info.ssi_signo);
    }
    has_come_ = has_come_ || last != 0;
    return last;
  }
  // take() has had one.
  bool has_come() const { return has_come_; }

 private:
  sigset_t before_;
  void (*pipe_before_)(int);
  int file_ = -1;
  mutable bool has_come_ = false;
};

}  // namespace hekla::launch
