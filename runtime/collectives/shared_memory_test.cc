// SPDX-License-Identifier: Apache-2.0
// Processes are objects of one process here where they live to the end, and forked ones where they
// do not.
#include "runtime/collectives/shared_memory.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <condition_variable>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/base/host.h"
#include "runtime/base/testing/child.h"
#include "runtime/collectives/shared_segment.h"

namespace hekla::collectives {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kSoon{20};

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
            }};
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

struct Processes {
  explicit Processes(int size, const SharedMemoryOptions& options = {}) : ears(8) {
    for (int p = 0; p < size; ++p) {
      auto one = SharedMemory::create(p, size, ears[static_cast<size_t>(p)].events(), options);
      EXPECT_TRUE(one.ok()) << one.status().to_string();
      all.push_back(*std::move(one));
    }
    for (int p = 0; p < size; ++p) {
      for (int q = 0; q < size; ++q) {
        if (p == q) continue;
        const Status status = all[static_cast<size_t>(p)]->connect(q, card(q));
        EXPECT_TRUE(status.ok()) << status.to_string();
      }
    }
  }
  std::string card(int p) const { return all[static_cast<size_t>(p)]->card(); }

  std::vector<Ear> ears;
  std::vector<std::unique_ptr<SharedMemory>> all;
};

const std::vector<int64_t> kSizes = {0, 1, 7, 4096, (1 << 20) + 3};

HostArray pattern(int64_t bytes, int from, int to) {
  HostArray array(DType::kUI8, {bytes});
  uint8_t* const values = array.mutable_as<uint8_t>();
  for (int64_t i = 0; i < bytes; ++i) {
    values[i] = static_cast<uint8_t>(i * 7 + i / 253 + 3 * from + 11 * to);
  }
  return array;
}

class SharedMemorySizes : public testing::TestWithParam<uint64_t> {};

TEST_P(SharedMemorySizes, MessagesArriveWholeAndInOrder) {
  for (int size = 1; size <= 4; ++size) {
    SharedMemoryOptions options;
    options.ring_bytes = GetParam();
    Processes processes(size, options);
    std::vector<CompletionRef> all_sent;
    for (int round = 0; round < 2; ++round) {
      for (int p = 0; p < size; ++p) {
        for (int q = 0; q < size; ++q) {
          if (p == q) continue;
          for (const int64_t bytes : kSizes) {
            all_sent.push_back(Completion::make());
            processes.all[static_cast<size_t>(p)]->send(
                q, {std::to_string(bytes), {pattern(bytes, p, q), pattern(bytes / 2, q, p)}},
                all_sent.back());
          }
        }
      }
    }
    for (const CompletionRef& sent : all_sent) EXPECT_TRUE(sent->await().ok());
    for (int p = 0; p < size; ++p) {
      for (int q = 0; q < size; ++q) {
        if (p == q) continue;
        const auto messages = processes.ears[static_cast<size_t>(q)].wait_for(p, 2 * kSizes.size());
        ASSERT_EQ(messages.size(), 2 * kSizes.size());
        for (size_t m = 0; m < messages.size(); ++m) {
          const int64_t bytes = kSizes[m % kSizes.size()];
          EXPECT_EQ(messages[m].head, std::to_string(bytes));
          ASSERT_EQ(messages[m].blocks.size(), 2U);
          EXPECT_TRUE(messages[m].blocks[0].identical(pattern(bytes, p, q)));
          EXPECT_TRUE(messages[m].blocks[1].identical(pattern(bytes / 2, q, p)));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rings, SharedMemorySizes,
                         testing::Values(uint64_t{4096}, uint64_t{1} << 20));

TEST(SharedMemory, SeveralThreadsSend) {
  Processes processes(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        processes.all[0]->send(1, {std::to_string(t), {pattern(i * 37, t, i)}}, nullptr);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto messages = processes.ears[1].wait_for(0, 800);
  ASSERT_EQ(messages.size(), 800U);
  std::vector<int> next(4);
  for (const Message& message : messages) {
    const int t = std::stoi(message.head);
    const int i = next[static_cast<size_t>(t)]++;
    EXPECT_TRUE(message.blocks[0].identical(pattern(i * 37, t, i)));
  }
}

TEST(SharedMemory, WhoLeavesIsNamedAndItsMessagesArrive) {
  Processes processes(3);
  const CompletionRef sent = Completion::make();
  processes.all[1]->send(0, {"last", {pattern(3 << 20, 1, 0)}}, sent);
  ASSERT_TRUE(sent->await().ok());
  processes.all[1].reset();
  const Status why = processes.ears[0].wait_for_loss(1);
  EXPECT_EQ(why.code(), StatusCode::kUnavailable);
  EXPECT_EQ(why.message(),
            fmt::format("process 1 (pid {} on {}) has ended", ::getpid(), host_name()));
  EXPECT_EQ(processes.ears[0].wait_for(1, 1).size(), 1U);
  EXPECT_FALSE(processes.ears[2].wait_for_loss(1).ok());
  EXPECT_EQ(processes.all[0]->status(1).message(), why.message());
  // The others go on.
  EXPECT_TRUE(processes.all[0]->status(2).ok());
  const CompletionRef to_lost = Completion::make();
  processes.all[0]->send(1, {"who hears?", {}}, to_lost);
  EXPECT_EQ(to_lost->await().message(), why.message());
  processes.all[0]->send(2, {"still", {}}, nullptr);
  EXPECT_EQ(processes.ears[2].wait_for(0, 1).size(), 1U);
}

TEST(SharedMemory, WhatNobodyTakesDoesNotHoldUpTheSenderOrItsEnd) {
  Ear ears[2];
  auto first = *SharedMemory::create(0, 2, ears[0].events());
  auto second = *SharedMemory::create(1, 2, ears[1].events());
  // The second does not know the first, so it takes nothing.
  ASSERT_TRUE(first->connect(1, second->card()).ok());
  const CompletionRef sent = Completion::make();
  first->send(1, {"much", {pattern(5 << 20, 0, 1)}}, sent);
  EXPECT_FALSE(sent->is_done());
  EXPECT_EQ(second->status(0).code(), StatusCode::kFailedPrecondition);
  first.reset();
  EXPECT_EQ(sent->await().code(), StatusCode::kCancelled);
}

// A process that writes what it likes: the second of two.
struct Foe {
  Foe() {
    first = *SharedMemory::create(0, 2, ear.events());
    own = *SharedSegment::create(1, 2, 4096);
    EXPECT_TRUE(first->connect(1, own.card().text()).ok());
    seen = *SharedSegment::open(*SegmentCard::read(first->card()), 0, 1, 2);
    ring = seen.ring(1);
  }
  Ear ear;
  std::unique_ptr<SharedMemory> first;
  SharedSegment own, seen;
  Ring ring;
};

TEST(SharedMemory, NonsenseLosesWhoWroteIt) {
  {
    Foe foe;
    foe.ring.head->written = foe.ring.size + 1;
    EXPECT_EQ(foe.ear.wait_for_loss(1).code(), StatusCode::kDataLoss);
    EXPECT_EQ(foe.ring.head->is_closed, 1U);
  }
  {
    Foe foe;
    std::fill_n(foe.ring.bytes, 64, std::byte{0xab});
    foe.ring.head->written = 64;
    const Status why = foe.ear.wait_for_loss(1);
    EXPECT_EQ(why.code(), StatusCode::kDataLoss);
    EXPECT_NE(why.message().find("process 1"), std::string::npos);
  }
  {
    Foe foe;  // has read more than there was
    foe.own.ring(0).head->read = 9;
    foe.first->send(1, {"hello", {}}, nullptr);
    EXPECT_EQ(foe.ear.wait_for_loss(1).code(), StatusCode::kDataLoss);
  }
}

TEST(SharedMemory, WhoHasBeenGivenUpHearsOfIt) {
  Foe foe;
  foe.own.ring(0).head->is_closed = 1;
  const Status why = foe.ear.wait_for_loss(1);
  EXPECT_NE(why.message().find("has given up on this process"), std::string::npos)
      << why.to_string();
}

TEST(SharedMemory, CardsAreChecked) {
  Ear ears[2];
  auto first = *SharedMemory::create(0, 2, ears[0].events());
  auto second = *SharedMemory::create(1, 2, ears[1].events());
  SegmentCard card = *SegmentCard::read(second->card());
  const auto refuse = [&](void (*change)(SegmentCard&)) {
    SegmentCard other = card;
    change(other);
    return first->connect(1, other.text());
  };
  EXPECT_EQ(first->connect(1, "nonsense").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(first->connect(0, second->card()).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(first->connect(2, second->card()).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refuse([](SegmentCard& c) { c.ring_bytes = 4097; }).code(),
            StatusCode::kInvalidArgument);
  const Status far = refuse([](SegmentCard& c) {
    c.boot_id = "elsewhere";
    c.host = "green";
  });
  EXPECT_EQ(far.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(far.message().find("runs on another machine, green"), std::string::npos);
  const Status apart = refuse([](SegmentCard& c) { c.pid_namespace = "pid:[1]"; });
  EXPECT_NE(apart.message().find("in another container"), std::string::npos);
  const Status gone = refuse([](SegmentCard& c) { c.pid = 0x7ffffff0; });
  EXPECT_NE(gone.message().find("cannot be opened"), std::string::npos);
  EXPECT_EQ(refuse([](SegmentCard& c) { c.token[1] ^= 1; }).code(), StatusCode::kDataLoss);
  EXPECT_EQ(refuse([](SegmentCard& c) { c.ring_bytes *= 2; }).code(), StatusCode::kDataLoss);
  EXPECT_EQ(refuse([](SegmentCard& c) { c.file = 0; }).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(refuse([](SegmentCard&) {}).ok());
}

size_t open_files() {
  size_t count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("hekla processes") != std::string::npos;
  }
  return count;
}

TEST(SharedMemory, NothingIsLeft) {
  const size_t files = open_files();
  { Processes processes(3); }
  EXPECT_EQ(open_files(), files);
  EXPECT_EQ(shared_mappings(), 0U);
}

// A transport that its own event destroys.
TEST(SharedMemory, AnEventMayEndIt) {
  Ear ear;
  const CompletionRef gone = Completion::make();
  struct Owner {
    std::mutex mutex;  // what the kernel orders between processes no checker sees
    std::unique_ptr<SharedMemory> first;
  };
  const auto owner = std::make_shared<Owner>();  // the event may outlive the test
  Transport::Events events;
  events.received = [owner, gone](int, const Message&) {
    const std::lock_guard lock(owner->mutex);
    owner->first.reset();
    gone->complete(ok_status());
  };
  events.lost = [](int, const Status&) {};
  auto second = *SharedMemory::create(1, 2, ear.events());
  {
    const std::lock_guard lock(owner->mutex);
    owner->first = *SharedMemory::create(0, 2, std::move(events));
    ASSERT_TRUE(owner->first->connect(1, second->card()).ok());
    ASSERT_TRUE(second->connect(0, owner->first->card()).ok());
  }
  second->send(0, {"end", {}}, nullptr);
  EXPECT_TRUE(gone->await().ok());
  EXPECT_FALSE(ear.wait_for_loss(0).ok());
}

// Cards of forked processes, in memory that they share.
class Board {
 public:
  static constexpr size_t kBytes = 512;
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
    while (slot.size == 0) std::this_thread::sleep_for(milliseconds(1));
    return {slot.text, slot.size};
  }
  void arrive() { ++shared_->arrived; }
  void wait_until_arrived(uint32_t count) const {
    while (shared_->arrived < count) std::this_thread::sleep_for(milliseconds(1));
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
std::unique_ptr<SharedMemory> join(Board& board, int rank, int size, Ear& ear,
                                   const SharedMemoryOptions& options = {}) {
  auto made = *SharedMemory::create(rank, size, ear.events(), options);
  board.put(rank, made->card());
  for (int p = 0; p < size; ++p) {
    if (p != rank && !made->connect(p, board.get(p)).ok()) std::abort();
  }
  board.arrive();
  board.wait_until_arrived(static_cast<uint32_t>(size));
  return made;
}

bool contains(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string::npos;
}

TEST(SharedMemoryFaults, AKilledProcessIsNamedOnAllOthersSoon) {
  Board board;
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank) {
    children.push_back(start_child([&, rank] {
      Ear ear;
      const auto transport = join(board, rank, 3, ear);
      // Its last words come first; what is sent to it then is nobody's.
      if (rank == 2) {
        for (int p = 0; p < 2; ++p) {
          const CompletionRef sent = Completion::make();
          transport->send(p, {"last", {pattern(4096, 2, p)}}, sent);
          static_cast<void>(sent->await());
        }
        ::raise(SIGKILL);
      }
      const CompletionRef sent = Completion::make();
      transport->send(2, {"much", {pattern(8 << 20, rank, 2)}}, sent);
      const auto begin = std::chrono::steady_clock::now();
      const Status why = ear.wait_for_loss(2);
      if (!contains(why, "process 2 (pid ") || !contains(why, "has died")) return 1;
      if (std::chrono::steady_clock::now() - begin > seconds(5)) return 2;
      if (sent->await().ok() || ear.wait_for(2, 1).size() != 1) return 3;
      if (!transport->status(1 - rank).ok()) return 4;
      // Not before the other has seen the same.
      board.arrive();
      board.wait_until_arrived(5);
      return 0;
    }));
  }
  EXPECT_EQ(wait_for_child(children[0]), 0);
  EXPECT_EQ(wait_for_child(children[1]), 0);
  EXPECT_EQ(wait_for_child(children[2]), -SIGKILL);
}

TEST(SharedMemoryFaults, AStoppedProcessIsNamedAndHearsOfItLater) {
  Board board;
  SharedMemoryOptions options;
  options.beat = milliseconds(10);
  options.silence = milliseconds(300);
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.push_back(start_child([&, rank] {
      Ear ear;
      const auto transport = join(board, rank, 2, ear, options);
      if (rank == 1) ::raise(SIGSTOP);
      const Status why = ear.wait_for_loss(1 - rank);
      if (rank == 1) return contains(why, "has given up on this process") ? 0 : 1;
      if (why.code() != StatusCode::kDeadlineExceeded) return 2;
      if (!contains(why, "process 1 (pid ") || !contains(why, "no sign of life")) return 3;
      ::kill(static_cast<pid_t>(SegmentCard::read(board.get(1))->pid), SIGCONT);
      board.arrive();
      std::this_thread::sleep_for(milliseconds(200));
      return 0;
    }));
  }
  EXPECT_EQ(wait_for_child(children[0]), 0);
  EXPECT_EQ(wait_for_child(children[1]), 0);
}

}  // namespace
}  // namespace hekla::collectives
