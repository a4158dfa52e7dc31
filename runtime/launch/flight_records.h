// SPDX-License-Identifier: Apache-2.0
// FlightRecords: where the ranks of a launch record their calls to process groups
// (runtime/process_group/flight), and what that says when an attempt has failed.
//
// Owned and used by the thread that launches.
#pragma once

#include <cstdint>
#include <string>

namespace hekla::launch {

class FlightRecords {
 public:
  // `folder`: kept, without what earlier launches left there; empty: one of this object's, which
  // goes with it. `is_shared`: launchers of other machines may write to the folder now.
  FlightRecords(const std::string& folder, bool is_shared);
  ~FlightRecords();
  FlightRecords(const FlightRecords&) = delete;
  FlightRecords& operator=(const FlightRecords&) = delete;

  // HEKLA_FLIGHT_DIR of an attempt's ranks, made; empty where it cannot be made, which is said.
  std::string begin(int64_t attempt);
  // Says what the records of the attempt say; nothing where there are none.
  void explain(int64_t attempt) const;

 private:
  const bool is_kept_;
  std::string folder_;
};

}  // namespace hekla::launch
