// SPDX-License-Identifier: Apache-2.0
// FlightRecorder: the calls of this process to its groups, written into a file that is mapped into
// memory as they are made, begin and end. What was written stays when the process is killed;
// flight_analysis.h says what a run's files mean.
//
// One for the process, where HEKLA_FLIGHT_DIR names a folder, as `hekla launch` does; it lives
// until the process ends. A call costs some ten stores and no system call. Thread-safe; of two
// threads that are a whole ring of calls apart one may spoil an entry.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/status.h"
#include "runtime/process_group/flight/flight_file.h"

namespace hekla::process_group {

class FlightRecorder {
 public:
  // Null: there is none, or it could not be made, which the log says.
  static FlightRecorder* of_process();
  // A new file in a folder, which is made. Errors are those of files.
  static Result<std::unique_ptr<FlightRecorder>> create(const std::string& folder, int rank,
                                                        int size);
  // The file says that the process ended by itself.
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  void add_group(uint64_t id, const std::string& name, int rank, int size);
  // The number of the call, for the two below. `call` of messages: dtype and count, `root` is the
  // other rank and `sequence` the tag.
  uint64_t made(flight::Kind kind, uint64_t group, uint64_t sequence, const Call& call);
  void began(uint64_t number);
  void ended(uint64_t number, const Status& status);

 private:
  explicit FlightRecorder(flight::File* file) : file_(file) {}
  // Null where it has been overwritten.
  flight::Entry* entry(uint64_t number);

  flight::File* const file_;  // mapped
};

}  // namespace hekla::process_group
