// SPDX-License-Identifier: Apache-2.0
// The ranks of `hekla group-check`: processes of this program, each of which finds its group by the
// arguments that all of them get. run_ranks blocks, with a thread for each rank; the rest is one
// thread's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/process_group/process_group.h"
#include "tools/run/child_process.h"

namespace hekla::tools {

struct GroupCheckArguments {
  std::vector<int> ranks = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<std::string> transports;  // empty: all that there are
  std::vector<int64_t> sizes;
  bool large = false;
  std::vector<std::string> dtypes;
  std::string filter;
  double timeout = 60;
  double limit = 3600;
  int64_t flat_bytes = process_group::Options().flat_bytes;
  int64_t segment_bytes = process_group::Options().segment_bytes;
  int64_t early_pieces = process_group::Options().early_pieces;
  std::string direct_receive = "on";
  std::vector<std::string> shared_memory;
  int64_t shared_flat_bytes = process_group::Options().shared_flat_bytes;
  int64_t shared_slot_bytes = process_group::Options().shared_slot_bytes;
  int ranks_per_host = process_group::Options().ranks_per_host;
  bool json = false;
  std::string init;
  std::string record;
  bool faults = false;
  // Of a rank.
  int rank = -1;
  std::string store;
  std::string fault;
};

// What is run at once, by processes of its own.
struct Part {
  std::string transport, shared_memory;
  int ranks = 0;
  std::string dtype = {};  // empty: all that are chosen
  std::string fault = {};  // empty: none, but results
  bool operator==(const Part&) const = default;
};

// The group that this rank is in; errors are those of the store and of ProcessGroup::create.
Result<std::shared_ptr<process_group::ProcessGroup>> join_group(
    const GroupCheckArguments& arguments);
// Runs all ranks of a part until they have ended; by rank.
std::vector<ChildResult> run_ranks(const GroupCheckArguments& arguments, const Part& part);

}  // namespace hekla::tools
