// SPDX-License-Identifier: Apache-2.0
// For tests: functions in forked copies of this process, to die there or to be told apart.
//
// A child that runs longer than its limit is ended by SIGALRM, so that no test hangs. It leaves
// without destructors and without the test framework's report.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace hekla {

// Runs body() in a child, which exits with what it returns.
template <typename Body>
pid_t start_child(const Body& body, unsigned limit_s = 120) {
  const pid_t child = ::fork();
  if (child < 0) std::abort();
  if (child == 0) {
    ::alarm(limit_s);
    ::_exit(body());
  }
  return child;
}

// Of how wait(2) says that it ended: its exit code, or minus the signal that ended it.
inline int exit_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Waits until it has ended.
inline int wait_for_child(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) std::abort();
  return exit_of(status);
}

template <typename Body>
int run_child(const Body& body, unsigned limit_s = 120) {
  return wait_for_child(start_child(body, limit_s));
}

}  // namespace hekla
