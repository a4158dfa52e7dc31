// SPDX-License-Identifier: Apache-2.0
// Place: which process of a run this is, and where the run's first process is found, from what the
// program that started it has set: our launcher or torchrun (RANK, WORLD_SIZE, ...), Open MPI's
// mpirun, Slurm's srun, an indexed job of Kubernetes. Pure but for the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace hekla::rendezvous {

struct Place {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among those of this machine
  int node = 0, nodes = 1;
  // Where rank 0 may listen, and the others reach it; empty, 0: nobody has said.
  std::string address;
  int port = 0;
  std::string store;   // HEKLA_STORE, where it is set
  std::string source;  // "hekla launch", "torchrun", "mpirun", "srun", "Kubernetes", "environment",
                       // or "alone"
};

// Looks a variable up; null: it is not set.
using Environment = std::function<const char*(const char* name)>;

// `full_name`: of this machine in the domain name system, asked for where a place needs it.
// INVALID_ARGUMENT: a variable is missing or makes no sense, named.
Result<Place> find_place(const Environment& environment,
                         const std::function<std::string()>& full_name);
// Of this process.
Result<Place> find_place();

// The first name of Slurm's short form: "gpu[007-009,12],cpu1" is gpu007. Empty: there is none.
std::string first_host(std::string_view list);

}  // namespace hekla::rendezvous
