// SPDX-License-Identifier: Apache-2.0
#include "runtime/collectives/process_transport.h"

#include <gtest/gtest.h>

#include "runtime/base/protobuf_wire.h"
#include "runtime/collectives/carrier_library.h"
#include "runtime/collectives/shared_segment.h"
#include "runtime/collectives/testing/processes.h"
#include "runtime/rendezvous/testing/put_once.h"

namespace hekla::collectives {
namespace {

using Store = rendezvous::testing::PutOnce;

std::unique_ptr<ProcessTransport> process(const std::shared_ptr<Store>& store, int rank, Ear& ear,
                                          const std::string& engine) {
  ProcessTransportOptions options;
  options.engine = engine;
  options.address = "lo";
  return *ProcessTransport::create(store, "run", rank, 2, ear.events(), options);
}

Result<const carrier::Table*> gloo() { return carrier_table(CarrierKind::kGloo); }

class ProcessTransports : public testing::TestWithParam<const char*> {};

TEST_P(ProcessTransports, MeetOnOneMachine) {
  const std::string engine = GetParam();
  const auto carrier =
      carrier_table(engine == "ucx" ? CarrierKind::kUcx : CarrierKind::kGloo).status();
  if ((engine == "gloo" || engine == "ucx") && !carrier.ok()) GTEST_SKIP() << carrier.message();
  const auto store = std::make_shared<Store>();
  for (int generation = 0; generation < 2; ++generation) {
    Ear ears[2];
    std::unique_ptr<ProcessTransport> both[2];
    for (int p = 0; p < 2; ++p) both[p] = process(store, p, ears[p], engine);
    EXPECT_EQ(both[0]->status(1).code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(both[0]->name(1), "process 1");
    for (const auto& one : both) one->meet();
    for (int p = 0; p < 2; ++p) ASSERT_TRUE(both[p]->connect(1 - p).ok());
    for (int p = 0; p < 2; ++p) {
      both[p]->send(1 - p, {"hello", {pattern(100000, p, 1 - p)}}, nullptr);
    }
    for (int p = 0; p < 2; ++p) {
      const std::vector<Message> told = ears[p].wait_for(1 - p, 1);
      ASSERT_EQ(told.size(), 1U);
      EXPECT_TRUE(told[0].blocks[0].identical(pattern(100000, 1 - p, p)));
    }
    both[1].reset();
    EXPECT_TRUE(contains(ears[0].wait_for_loss(1), "has ended"));
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, ProcessTransports,
                         testing::Values("auto", "auto_ucx", "shm", "gloo"));
#ifdef HEKLA_WITH_UCX
INSTANTIATE_TEST_SUITE_P(Ucx, ProcessTransports, testing::Values("ucx"));
#endif

TEST(ProcessTransport, EnginesThatDifferAreNamed) {
  const auto store = std::make_shared<Store>();
  Ear ears[2];
  const auto first = process(store, 0, ears[0], "auto");
  const auto second = process(store, 1, ears[1], "shm");
  const Status status = first->connect(1);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(contains(status, "process 1")) << status.to_string();
  EXPECT_TRUE(contains(status, "through 'shm' and process 0 through 'auto'")) << status.to_string();
}

// Process 1 as it would be on another machine: its memory is elsewhere.
TEST(ProcessTransport, ThoseOfAnotherMachineMeetOnTheNetwork) {
  if (!gloo().ok()) GTEST_SKIP() << gloo().status().message();
  const auto store = std::make_shared<Store>();
  Ear ears[2];
  const auto first = process(store, 0, ears[0], "auto");
  auto second_memory = *SharedMemory::create(1, 2, ears[1].events());
  SegmentCard memory = *SegmentCard::read(second_memory->card());
  memory.boot_id = "elsewhere";
  NetworkOptions options;
  options.carrier = *gloo();
  options.address = "127.0.0.1";
  const auto second = *NetworkTransport::create(1, 2, {0}, ears[1].events(), options);
  wire::Writer card;
  card.bytes(1, "auto");
  card.bytes(2, "green");
  card.bytes(3, memory.text());
  ASSERT_TRUE(store->put("run/process/0/1", card.text()).ok());
  ASSERT_TRUE(store->put("run/network/0/1", second->card()).ok());
  first->meet();
  ASSERT_TRUE(first->connect(1).ok());
  ASSERT_TRUE(second->connect(0, *store->try_get("run/network/0/0")).ok());
  second->send(0, {"from afar", {}}, nullptr);
  EXPECT_EQ(ears[0].wait_for(1, 1).size(), 1U);
  // Where shared memory alone is allowed, they do not.
  const auto other = std::make_shared<Store>();
  const auto near_only = process(other, 0, ears[0], "shm");
  wire::Writer shared;
  shared.bytes(1, "shm");
  shared.bytes(3, memory.text());
  ASSERT_TRUE(other->put("run/process/0/1", shared.text()).ok());
  EXPECT_TRUE(contains(near_only->connect(1), "runs on another machine"));
}

// Whoever has no engine says so, and nobody waits for it.
TEST(ProcessTransport, WhoHasNoEngineIsNamedAtOnce) {
  if (!gloo().ok()) GTEST_SKIP() << gloo().status().message();
  const auto store = std::make_shared<Store>();
  Ear ears[2];
  ProcessTransportOptions options;
  options.engine = "gloo";
  options.address = "no-such-interface";
  EXPECT_FALSE(ProcessTransport::create(store, "run", 1, 2, ears[1].events(), options).ok());
  const auto first = process(store, 0, ears[0], "gloo");
  first->meet();
  const Status status = first->connect(1);
  EXPECT_TRUE(contains(status, "process 1: it says: 'no-such-interface' is no interface"))
      << status.to_string();
}

TEST(ProcessTransport, CardsThatAreNoneAreErrors) {
  const auto store = std::make_shared<Store>();
  Ear ear;
  const auto first = process(store, 0, ear, "auto");
  ASSERT_TRUE(store->put("run/process/0/1", "nonsense").ok());
  const Status status = first->connect(1);
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(contains(status, "process 1")) << status.to_string();
}

}  // namespace
}  // namespace hekla::collectives
