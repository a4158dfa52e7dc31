// SPDX-License-Identifier: Apache-2.0
// FlightRecorder: the calls of this process to its groups, written into a file that is mapped into
// memory as they are made, begin and end. What was written stays when the process is killed;
// flight_analysis.h says what a run's files mean.
//
// One for the process, where HEKLA_FLIGHT_DIR names a folder, as `hekla launch` does; it is never
// destroyed, since threads of groups may write until the process is gone. A forked child has a file
// of its own, and what it does to groups of its parent's is not recorded. A call costs some ten
// stores and no system call. Thread-safe; of two threads that are a whole ring of calls apart one
// may spoil an entry.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/process_group/flight/flight_file.h"

namespace hekla::process_group {

class FlightRecorder {
 public:
  // Null: there is none, or it could not be made, which the log says.
  static FlightRecorder* of_process();
  // That the process ends by itself, for those that end it with _exit.
  static void end_process();
  // A new file in a folder, which is made. Errors are those of files.
  static Result<std::unique_ptr<FlightRecorder>> create(const std::string& folder, int rank,
                                                        int size);
  // The file says that the process ended by itself; not where that is another process's.
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // The id of its calls here: another one for each group of this process's with that id, one after
  // the other, whose calls are counted from 0 again. When all groups have been removed a process
  // that is gone has not died of a call.
  uint64_t add_group(uint64_t id, const std::string& name, int rank, int size);
  void remove_group(uint64_t id);
  // The number of the call, for the two below. `call` of messages: dtype and count, `root` is the
  // other rank and `sequence` the tag. Of one that is refused only that it was: it ends at once.
  uint64_t made(flight::Kind kind, uint64_t group, uint64_t sequence, const Call& call);
  void began(uint64_t number);
  void ended(uint64_t number, const Status& status);
  // One more or one less waits for its end.
  void waits(uint64_t number, int more);

 private:
  explicit FlightRecorder(flight::File* file) : file_(file) {}
  // Null where it has been overwritten.
  flight::Entry* entry(uint64_t number);
  void mark(flight::Stage stage);
  static void forget_in_child();

  flight::File* const file_;  // mapped
  std::mutex mutex_;
  std::map<uint64_t, int> uses_;  // of ids given; guarded by mutex_, as the next three
  std::vector<bool> is_open_;     // the groups in the file, by place
  size_t next_ = 0;               // place to look at first for one whose group is closed
  int open_ = 0;                  // groups, those that found no place as well
};

}  // namespace hekla::process_group
