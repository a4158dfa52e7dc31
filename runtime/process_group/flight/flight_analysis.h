// SPDX-License-Identifier: Apache-2.0
// explain_flight: what the flight records of a run say: who waits in which call for whom, which
// calls differ, who died. Pure but for the files that it reads.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/process_group/flight/flight_file.h"

namespace hekla::process_group {

// How a rank of the run ended, as its launcher saw it.
struct FlightEnd {
  int rank = -1;
  bool was_told = false;  // by the launcher, to end
  std::string how;        // "signal 9 (Killed)", "exit code 0"
};

struct FlightFindings {
  std::vector<std::string> ranks;     // a line each: how it is, its last call
  std::vector<std::string> findings;  // what is to blame first
  std::string to_string() const;
};

FlightFindings analyse_flight(const std::vector<FlightRecord>& records,
                              const std::vector<FlightEnd>& ends);

// Of a folder of records, or of the last attempt in a folder that a launcher has filled.
// NOT_FOUND: there are none.
Result<FlightFindings> explain_flight(const std::string& folder);

// For a launcher: the folder of an attempt, what its records say, and a line for each rank that
// ends.
std::string flight_folder(const std::string& folder, int64_t attempt);
Result<FlightFindings> explain_attempt(const std::string& folder);
void note_flight_end(const std::string& folder, const FlightEnd& end);
// Removes what earlier launches have left in the attempts of a folder, else it would be taken for
// this one's: what recorders and launchers write, no more. `is_shared`: launchers of other machines
// write there now, so that this machine's alone goes.
void clear_flight(const std::string& folder, bool is_shared);

}  // namespace hekla::process_group
