// SPDX-License-Identifier: Apache-2.0
// What a flight recorder writes (flight_recorder.h), in the order of its file: a head, groups, a
// ring of calls. The file outlives its process, however that ends.
//
// Read from files that another process may be writing or has been killed while it wrote: nothing in
// them is believed. Plain values; one version of Hekla reads its own files only.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/process_group/call.h"

namespace hekla::process_group {

namespace flight {

inline constexpr uint64_t kMark = 0x0133'5447'4c46'4b48;  // "HKFLGT3", version
inline constexpr int kGroups = 256;
inline constexpr int kCalls = 4096;  // the newest are kept

enum class Kind : uint8_t { kCollective, kSend, kReceive, kRefused };
enum class Stage : uint32_t { kRuns, kHasEnded, kHasNoGroups };
enum class State : uint8_t { kWaiting, kRunning, kDone, kFailed };

struct Head {
  uint64_t mark;
  int64_t pid;
  int32_t rank, size;            // of the run, as launchers say; -1: nobody has
  std::atomic<uint32_t> groups;  // that have been written
  std::atomic<Stage> stage;
  std::atomic<uint64_t> calls;  // that have been made
  char host[64], boot[64];
  uint64_t pid_space;  // in which pid means something: the inode of its namespace
};

struct Group {
  uint64_t id;
  int32_t rank, size;  // size 0: it is being written
  char name[80];
};

struct Entry {
  std::atomic<uint64_t> number;  // of the call, from 1 on; 0: it is being written
  uint64_t group;
  uint64_t sequence;            // of messages the tag
  int64_t made_ms, changed_ms;  // since 1970
  int64_t count;
  uint64_t factor, detail;
  int32_t root;  // of messages the other rank, -1: any
  Kind kind;
  Operation operation;
  DType dtype;
  ReduceOp reduce;
  std::atomic<State> state;
  uint8_t code;
  std::atomic<uint8_t> waiters;  // that wait for its end
  char text[181];                // what it failed with, its beginning
};
static_assert(sizeof(Entry) == 256);

// Of this process; 0 where it cannot be told.
uint64_t pid_space();

struct File {
  Head head;
  Group groups[kGroups];
  Entry calls[kCalls];
};

}  // namespace flight

// A recorder's file, checked.
struct FlightRecord {
  struct Group {
    uint64_t id = 0;
    int rank = 0, size = 1;
    std::string name;
  };
  struct Entry {
    uint64_t number = 0, group = 0, sequence = 0;
    int64_t made_ms = 0, changed_ms = 0;
    flight::Kind kind = flight::Kind::kCollective;
    flight::State state = flight::State::kDone;
    Call call;  // of messages dtype and count; `root` is the other rank
    std::string error;
    bool is_waited_for = false;  // by somebody, in Work::wait

    bool is_open() const {
      return state == flight::State::kWaiting || state == flight::State::kRunning;
    }
    // "call 3 of group world, all_reduce(sum) of f32[8]", "receive of f32[2] from rank 1 with tag 0
    // of group world"; `group`: its name.
    std::string to_string(const std::string& group) const;
  };
  std::string path, host, boot;
  int64_t pid = 0;
  int rank = -1, size = -1;
  uint64_t pid_space = 0;
  bool has_ended = false;      // it ended by itself, by exit or the end of main
  bool has_no_groups = false;  // it has left all that it had
  std::vector<Group> groups;
  std::vector<Entry> calls;  // the newest last
  uint64_t calls_made = 0;

  // DATA_LOSS: it is none, or another version's.
  static Result<FlightRecord> read(const std::string& path);
};

}  // namespace hekla::process_group
