// SPDX-License-Identifier: Apache-2.0
// For tests: processes of a group over any engine, as objects of one process where they live to the
// end, and forked where they do not.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "runtime/collectives/transport.h"

namespace hekla::collectives {

inline constexpr std::chrono::seconds kSoon{20};

// What a process has heard.
class Ear {
 public:
  Transport::Events events() {
    return {[this](int from, Message message) {
              const std::lock_guard lock(mutex_);
              messages_[from].push_back(std::move(message));
              changed_.notify_all();
            },
            [this](int process, const Status& why) {
              const std::lock_guard lock(mutex_);
              EXPECT_TRUE(lost_.emplace(process, why).second) << "lost twice";
              changed_.notify_all();
            },
            {}};
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    messages_.clear();
  }
  std::vector<Message> wait_for(int from, size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kSoon, [&] { return messages_[from].size() >= count; });
    return messages_[from];
  }
  Status wait_for_loss(int process) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kSoon, [&] { return lost_.contains(process); });
    return lost_[process];
  }
  bool has_lost(int process) {
    const std::lock_guard lock(mutex_);
    return lost_.contains(process);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::vector<Message>> messages_;  // guarded by mutex_
  std::map<int, Status> lost_;                    // guarded by mutex_
};

// A process of a group: its transport, how others find it, and how it finds them.
struct Member {
  std::unique_ptr<Transport> transport;
  std::function<std::string()> card;
  std::function<Status(int process, std::string_view card)> connect;
};

struct Timing {
  std::chrono::nanoseconds beat = std::chrono::milliseconds(50);
  std::chrono::nanoseconds silence = std::chrono::seconds(60);
};

using MakeMember =
    std::function<Member(int rank, int size, Transport::Events events, const Timing& timing)>;

struct Processes {
  Processes(const MakeMember& make, int size) : ears(8) {
    for (int p = 0; p < size; ++p) {
      all.push_back(make(p, size, ears[static_cast<size_t>(p)].events(), {}));
    }
    for (int p = 0; p < size; ++p) {
      for (int q = 0; q < size; ++q) {
        if (p == q) continue;
        const Status status =
            all[static_cast<size_t>(p)].connect(q, all[static_cast<size_t>(q)].card());
        EXPECT_TRUE(status.ok()) << status.to_string();
      }
    }
  }
  Transport& operator[](int p) const { return *all[static_cast<size_t>(p)].transport; }

  std::vector<Ear> ears;
  std::vector<Member> all;
};

inline HostArray pattern(int64_t bytes, int from, int to) {
  HostArray array(DType::kUI8, {bytes});
  uint8_t* const values = array.mutable_as<uint8_t>();
  for (int64_t i = 0; i < bytes; ++i) {
    values[i] = static_cast<uint8_t>(i * 7 + i / 253 + 3 * from + 11 * to);
  }
  return array;
}

// Cards of forked processes, in memory that they share.
class Board {
 public:
  static constexpr size_t kBytes = 4096;
  Board() {
    void* const at =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) std::abort();
    shared_ = new (at) Shared;
  }
  void put(int process, const std::string& text) {
    Slot& slot = shared_->slots[process];
    std::memcpy(slot.text, text.data(), text.size());
    slot.size = static_cast<uint32_t>(text.size());
  }
  std::string get(int process) const {
    const Slot& slot = shared_->slots[process];
    while (slot.size == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return {slot.text, slot.size};
  }
  void arrive() { ++shared_->arrived; }
  void wait_until_arrived(uint32_t count) const {
    while (shared_->arrived < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  struct Slot {
    std::atomic<uint32_t> size{0};
    char text[kBytes];
  };
  struct Shared {
    Slot slots[8];
    std::atomic<uint32_t> arrived{0};
  };
  Shared* shared_;
};

// Starts as process `rank` of `size` and waits until all have.
inline Member join(const MakeMember& make, Board& board, int rank, int size, Ear& ear,
                   const Timing& timing = {}) {
  Member made = make(rank, size, ear.events(), timing);
  board.put(rank, made.card());
  for (int p = 0; p < size; ++p) {
    if (p != rank && !made.connect(p, board.get(p)).ok()) std::abort();
  }
  board.arrive();
  board.wait_until_arrived(static_cast<uint32_t>(size));
  return made;
}

inline bool contains(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string::npos;
}

inline size_t open_files() {
  size_t count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

}  // namespace hekla::collectives
