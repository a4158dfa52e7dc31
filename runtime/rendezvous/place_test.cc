// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/place.h"

#include <gtest/gtest.h>

#include <map>

namespace hekla::rendezvous {
namespace {

using Set = std::map<std::string, std::string>;

Result<Place> place_of(const Set& set, const std::string& full_name = "machine") {
  return find_place(
      [&](const char* name) {
        const auto found = set.find(name);
        return found == set.end() ? nullptr : found->second.c_str();
      },
      [&] { return full_name; });
}

std::string text_of(const Result<Place>& place) {
  if (!place.ok()) return place.status().to_string();
  return fmt::format("{}: {}/{} {}/{} {}/{} {}:{}", place->source, place->rank, place->size,
                     place->local_rank, place->local_size, place->node, place->nodes,
                     place->address, place->port);
}

TEST(Place, Alone) {
  EXPECT_EQ(text_of(place_of({})), "alone: 0/1 0/1 0/1 :0");
  // A batch script of Slurm, which is no step.
  EXPECT_EQ(text_of(place_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}})),
            "alone: 0/1 0/1 0/1 :0");
}

TEST(Place, OfTheLauncher) {
  Set set = {{"RANK", "5"},
             {"WORLD_SIZE", "8"},
             {"LOCAL_RANK", "1"},
             {"GROUP_RANK", "1"},
             {"GROUP_WORLD_SIZE", "2"},
             {"LOCAL_WORLD_SIZE", "4"},
             {"MASTER_ADDR", "red"},
             {"MASTER_PORT", "2950"},
             {"HEKLA_LAUNCH", "1"},
             {"HEKLA_STORE", "tcp:x@red:1"}};
  EXPECT_EQ(text_of(place_of(set)), "hekla launch: 5/8 1/4 1/2 red:2950");
  EXPECT_EQ(place_of(set)->store, "tcp:x@red:1");
  set.erase("HEKLA_LAUNCH");
  EXPECT_EQ(text_of(place_of(set)), "environment: 5/8 1/4 1/2 red:2950");
  // torchrun's own store listens on its port.
  set["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  const Place first = *place_of(set);
  EXPECT_EQ(first.source, "torchrun");
  EXPECT_GE(first.port, 61440);
  set["RANK"] = "0";
  EXPECT_EQ(place_of(set)->port, first.port);
  set["TORCHELASTIC_RESTART_COUNT"] = "1";
  EXPECT_NE(place_of(set)->port, first.port);
}

TEST(Place, OfOpenMpi) {
  Set set = {{"OMPI_COMM_WORLD_RANK", "3"},
             {"OMPI_COMM_WORLD_SIZE", "4"},
             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
             {"OMPI_MCA_orte_hnp_uri", "8193.0;tcp://10.1.2.3,192.168.1.7:40951"}};
  EXPECT_EQ(text_of(place_of(set)), "mpirun: 3/4 1/2 1/2 10.1.2.3:61441");
  set["OMPI_MCA_orte_hnp_uri"] = "8193.0;tcp6://[fe80::1,fe80::2]:40951";
  EXPECT_EQ(place_of(set)->address, "fe80::1");
}

TEST(Place, OfSlurm) {
  const Set set = {{"SLURM_PROCID", "8"},
                   {"SLURM_NTASKS", "11"},
                   {"SLURM_LOCALID", "0"},
                   {"SLURM_NODEID", "2"},
                   {"SLURM_STEP_NUM_NODES", "3"},
                   {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                   {"SLURM_STEP_NODELIST", "gpu[007-009]"},
                   {"SLURM_JOB_ID", "4097"}};
  EXPECT_EQ(text_of(place_of(set)), "srun: 8/11 0/3 2/3 gpu007:61441");
  EXPECT_EQ(first_host("blue"), "blue");
  EXPECT_EQ(first_host("blue,red[1-2]"), "blue");
  EXPECT_EQ(first_host("gpu[12,14-20],cpu1"), "gpu12");
  EXPECT_EQ(first_host("rack[1-2]-gpu,x"), "rack1-gpu");
  EXPECT_EQ(first_host(""), "");
  EXPECT_EQ(first_host("x[1"), "");
}

TEST(Place, OfKubernetes) {
  Set set = {{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}};
  EXPECT_EQ(text_of(place_of(set, "train-2.train.default.svc.cluster.local")),
            "Kubernetes: 2/3 0/1 2/3 train-0.train.default.svc.cluster.local:61440");
  set.erase("WORLD_SIZE");
  EXPECT_NE(text_of(place_of(set)).find("set WORLD_SIZE in the pod's template"), std::string::npos);
}

TEST(Place, WhatMakesNoSenseIsNamed) {
  EXPECT_EQ(text_of(place_of({{"WORLD_SIZE", "2"}})), "INVALID_ARGUMENT: WORLD_SIZE=2 needs RANK");
  EXPECT_EQ(text_of(place_of({{"WORLD_SIZE", "2"}, {"RANK", "2"}})),
            "INVALID_ARGUMENT: environment: rank 2 of 2 processes");
  EXPECT_EQ(text_of(place_of({{"WORLD_SIZE", "two"}, {"RANK", "0"}})),
            "INVALID_ARGUMENT: WORLD_SIZE=two is not a number");
  EXPECT_EQ(text_of(place_of({{"OMPI_COMM_WORLD_RANK", "0"}})),
            "INVALID_ARGUMENT: OMPI_COMM_WORLD_SIZE= is not a number");
}

}  // namespace
}  // namespace hekla::rendezvous
