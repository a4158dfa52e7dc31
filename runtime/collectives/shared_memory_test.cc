// SPDX-License-Identifier: Apache-2.0
// What is shared memory's own; what any engine promises is in transport_test.cc.
#include "runtime/collectives/shared_memory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "runtime/collectives/shared_segment.h"
#include "runtime/collectives/testing/processes.h"

namespace hekla::collectives {
namespace {

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

TEST(SharedMemory, RingsAreShorterWhereMemoryIs) {
  const auto ring_of = [](int size, int64_t limit, int64_t left) -> Result<uint64_t> {
    Ear ear;
    SharedMemoryOptions options;
    options.room.limit = {limit, "the control group's /small"};
    options.room.left = {left, "the control group's /small"};
    HEKLA_ASSIGN_OR_RETURN(const auto memory, SharedMemory::create(0, size, ear.events(), options));
    HEKLA_ASSIGN_OR_RETURN(const SegmentCard card, SegmentCard::read(memory->card()));
    return card.ring_bytes;
  };
  constexpr int64_t kMega = 1 << 20, kGiga = 1 << 30;
  EXPECT_EQ(*ring_of(4, kGiga, kGiga), 1U << 20);
  // All 64 would take 64 MiB of the 32 that are a quarter.
  EXPECT_EQ(*ring_of(8, 128 * kMega, 128 * kMega), 256U << 10);
  // Those to this process alone: eight in 1 MiB.
  EXPECT_EQ(*ring_of(8, 4 * kMega, 4 * kMega), 64U << 10);
  EXPECT_EQ(*ring_of(8, kGiga, kMega), 64U << 10);
  const Status none = ring_of(8, kGiga, 10000).status();
  EXPECT_EQ(none.code(), StatusCode::kUnavailable) << none.to_string();
  EXPECT_NE(none.message().find("the control group's /small"), std::string::npos)
      << none.to_string();
}

// Messages far longer than the rings.
TEST(SharedMemory, ShortRingsCarryLongMessages) {
  SharedMemoryOptions options;
  options.room.limit = options.room.left = {int64_t{128} << 10, "the control group's /small"};
  Ear ears[2];
  auto first = *SharedMemory::create(0, 2, ears[0].events(), options);
  auto second = *SharedMemory::create(1, 2, ears[1].events());
  ASSERT_TRUE(first->connect(1, second->card()).ok());
  ASSERT_TRUE(second->connect(0, first->card()).ok());
  HostArray block(DType::kUI8, {1 << 20});
  std::fill_n(block.mutable_data(), block.size_bytes(), std::byte{7});
  second->send(0, {"long", {block}}, nullptr);
  const std::vector<Message> come = ears[0].wait_for(1, 1);
  ASSERT_EQ(come.size(), 1U);
  ASSERT_EQ(come[0].blocks.size(), 1U);
  EXPECT_EQ(come[0].blocks[0].size_bytes(), block.size_bytes());
  EXPECT_TRUE(
      std::equal(block.data(), block.data() + block.size_bytes(), come[0].blocks[0].data()));
}

size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("hekla processes") != std::string::npos;
  }
  return count;
}

TEST(SharedMemory, NoMappingIsLeft) {
  Ear ears[2];
  {
    auto first = *SharedMemory::create(0, 2, ears[0].events());
    auto second = *SharedMemory::create(1, 2, ears[1].events());
    ASSERT_TRUE(first->connect(1, second->card()).ok());
    EXPECT_GT(shared_mappings(), 0U);
  }
  EXPECT_EQ(shared_mappings(), 0U);
}

}  // namespace
}  // namespace hekla::collectives
