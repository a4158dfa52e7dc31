// SPDX-License-Identifier: Apache-2.0
// What a process holds of its system, for tests that nothing stays behind.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "runtime/base/async/deadline.h"

namespace hekla::runtime {

// Longer than anything in these tests takes that comes to an end.
inline constexpr std::chrono::seconds kPatience(60);

struct Holdings {
  int64_t threads = 0, files = 0, shared = 0;
  bool is_within(const Holdings& other) const {
    return threads <= other.threads && files <= other.files && shared <= other.shared;
  }
};

inline int64_t entries_of(const char* folder) {
  std::error_code error;
  int64_t count = 0;
  for (auto at = std::filesystem::directory_iterator(folder, error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    ++count;
  }
  return count;
}

// What the open files are: "/dev/null, socket:[4711]".
inline std::string files_held() {
  std::error_code error;
  std::string names;
  for (auto at = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    const std::filesystem::path file = std::filesystem::read_symlink(at->path(), error);
    names += (names.empty() ? "" : ", ") + (error ? "gone" : file.string());
    error.clear();
  }
  return names;
}

// Of /dev/shm those that this project's names stand on: others' come and go.
inline int64_t own_shared_memory() {
  std::error_code error;
  int64_t count = 0;
  for (auto at = std::filesystem::directory_iterator("/dev/shm", error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    count += at->path().filename().string().find(fmt::format("{}", getpid())) != std::string::npos;
  }
  return count;
}

inline Holdings holdings() {
  return {entries_of("/proc/self/task"), entries_of("/proc/self/fd"), own_shared_memory()};
}

// What is held when it has come down to `before`, or patience has ended: threads that end are gone
// a moment later.
inline Holdings settled_within(const Holdings& before) {
  const Deadline deadline = Deadline::in(kPatience);
  while (!holdings().is_within(before) && !deadline.expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return holdings();
}

inline void expect_within(const Holdings& before) {
  const Holdings now = settled_within(before);
  EXPECT_LE(now.threads, before.threads);
  EXPECT_LE(now.files, before.files);
  EXPECT_LE(now.shared, before.shared);
}

}  // namespace hekla::runtime
