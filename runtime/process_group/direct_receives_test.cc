// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/direct_receives.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <thread>

#include "runtime/process_group/member.h"
#include "runtime/process_group/testing/silent_transport.h"
#include "runtime/process_group/testing/ways.h"

namespace hekla::process_group {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(DirectReceives, APieceIsClaimedOnceAndBySize) {
  DirectReceives receives;
  std::array<std::byte, 8> memory;
  receives.expect(1, 7, memory);
  EXPECT_EQ(receives.claim(2, 7, 8), nullptr);
  EXPECT_EQ(receives.claim(1, 6, 8), nullptr);
  EXPECT_EQ(receives.claim(1, 7, 9), nullptr);
  EXPECT_EQ(receives.claim(1, 7, 8).get(), memory.data());
  EXPECT_EQ(receives.claim(1, 7, 8), nullptr);
  EXPECT_EQ(receives.claimed(), 1);
}

TEST(DirectReceives, TheEndWaitsForWhatIsClaimed) {
  std::shared_ptr<void> last;
  std::array<std::byte, 8> memory;
  {
    DirectReceives receives;
    receives.expect(1, 0, memory);
    receives.expect(2, 0, memory);
    receives.expect(2, 1, memory);
    std::shared_ptr<void> first = receives.claim(1, 0, 8);
    last = receives.claim(2, 0, 8);
    receives.close();
    EXPECT_EQ(receives.claim(2, 1, 8), nullptr);
    EXPECT_EQ(receives.senders(), (std::vector<int>{1, 2}));
    EXPECT_FALSE(receives.wait_for_one(milliseconds(1)));
    std::thread other([&] { first.reset(); });
    EXPECT_TRUE(receives.wait_for_one(seconds(20)) || receives.senders().size() == 1);
    other.join();
    EXPECT_EQ(receives.senders(), (std::vector<int>{2}));
  }
  last.reset();  // after the object
}

Head data_head(const Member& member, uint64_t sequence, uint64_t step) {
  Head head;
  head.kind = Head::Kind::kData;
  head.group = member.id();
  head.sequence = sequence;
  head.step = step;
  return head;
}

// Not before all ranks have come with the same call: until then a caller's memory stays as it is.
TEST(DirectReceives, AMemberGivesPlacesWhenAllRanksAgree) {
  Hub hub(std::make_unique<SilentTransport>(2, 3));
  Member member(hub, "test", {0, 1, 2}, 2);
  std::array<std::byte, 8> memory;
  const auto place = [&](uint64_t sequence, uint64_t step) {
    return member.place(0, data_head(member, sequence, step), 8);
  };
  const auto call_of = [&](uint64_t sequence) {
    Head head = data_head(member, sequence, 0);
    head.kind = Head::Kind::kCall;
    return head;
  };
  EXPECT_EQ(place(0, 1), nullptr);  // no call
  const CompletionRef expected = Completion::make(), seen = Completion::make();
  const Work work = member.start("first", [&](uint64_t sequence) -> Status {
    DirectReceives& receives = member.direct_receives(Call());
    receives.expect(0, 1, memory);
    receives.expect(0, 2, memory);
    expected->complete(ok_status());
    HEKLA_RETURN_IF_ERROR(member.meet(sequence, Call(), Deadline::never()).status());
    static_cast<void>(seen->await());
    return ok_status();
  });
  ASSERT_TRUE(expected->await().ok());
  EXPECT_EQ(place(0, 1), nullptr);  // nobody else has come
  member.deliver(0, call_of(0), {});
  EXPECT_EQ(place(0, 1), nullptr);  // not all have
  member.deliver(1, call_of(0), {});
  EXPECT_EQ(place(1, 1), nullptr);  // another call
  EXPECT_EQ(place(0, 1).get(), memory.data());
  EXPECT_EQ(place(0, 1), nullptr);
  std::shared_ptr<void> second = place(0, 2);
  EXPECT_EQ(second.get(), memory.data());
  seen->complete(ok_status());
  EXPECT_FALSE(work.wait(milliseconds(50)).ok());  // what is claimed may still be written
  EXPECT_FALSE(work.test());
  second.reset();
  EXPECT_TRUE(work.wait().ok());
}

// Over a network, in pieces above and below the size from which they have a connection's blocks,
// whether in place or not, with the bits of messages that are copied.
TEST(DirectReceives, ResultsAreThoseOfCopies) {
  constexpr int64_t kCount = 90'001;
  for (const int ranks_per_host : {0, 2}) {
    for (const int64_t segment : {int64_t{16} << 10, int64_t{100} << 10, int64_t{1} << 20}) {
      std::vector<std::string> bits[2];
      for (const bool is_direct : {false, true}) {
        Options options;
        options.engine = "gloo";
        options.address = "lo";
        options.shared_memory = "off";
        options.ranks_per_host = ranks_per_host;
        options.segment_bytes = segment;
        options.direct_receive = is_direct;
        constexpr int kRanks = 3;
        bits[is_direct].resize(kRanks);
        on_ranks(
            kRanks,
            [&](ProcessGroup& group) {
              std::string& all = bits[is_direct][static_cast<size_t>(group.rank())];
              const auto wait = [&](const Work& work, const std::vector<float>& x) {
                const Status status = work.wait();
                EXPECT_TRUE(status.ok()) << status.to_string();
                all += bytes_of(x);
              };
              for (int turn = 0; turn < 2; ++turn) {
                const std::vector<float> own = noise(kCount, 10 * turn + group.rank());
                const std::span<const float> in(own);
                std::vector<float> x = own, sum(own.size());
                std::vector<float> wide(own.size() * kRanks), turned = noise(kCount * kRanks, turn);
                wait(group.all_reduce(elements(std::span(x))), x);
                wait(group.all_reduce(elements(std::span(sum)), elements(in)), sum);
                wait(group.all_gather(elements(std::span(wide)), elements(in)), wide);
                wait(group.all_to_all(elements(std::span(turned)), elements(std::span(turned))),
                     turned);
                wait(group.all_to_all(elements(std::span(wide)),
                                      ConstElements(elements(std::span(turned)))),
                     wide);
                wait(group.broadcast(elements(std::span(x)), turn), x);
                wait(group.gather(
                         elements(group.rank() == turn ? std::span(wide) : std::span<float>()),
                         elements(in), turn),
                     wide);
                wait(group.scatter(elements(std::span(sum)),
                                   group.rank() == turn ? elements(std::span<const float>(turned))
                                                        : ConstElements(nullptr, DType::kF32, 0),
                                   turn),
                     sum);
              }
            },
            options);
      }
      EXPECT_TRUE(bits[0] == bits[1]) << ranks_per_host << " " << segment;
      EXPECT_FALSE(bits[0][0].empty());
    }
  }
}

// In the midst of what it sends a rank is stopped: the other one's call ends soon after its
// deadline, and its memory is its own again though a block of it was half there.
TEST(DirectReceivesFaults, WhoIsStoppedInTheMidstKeepsNobodysMemory) {
  Options options;
  options.engine = "gloo";
  options.address = "lo";
  options.shared_memory = "off";
  const std::vector<int> exits = on_processes(
      2,
      [](ProcessGroup& group) {
        const pid_t self = ::getpid();
        if (group.rank() == 1) {
          // Stopped while calls follow each other, and killed when the other one has given up.
          start_child([self] {
            ::usleep(300'000);
            ::kill(self, SIGSTOP);
            ::sleep(4);
            ::kill(self, SIGKILL);
            return 0;
          });
        }
        for (;;) {
          auto wide = std::make_unique<std::vector<float>>(16 << 20);
          const std::vector<float> own(wide->size() / 2, 1);
          const auto begin = std::chrono::steady_clock::now();
          const Status status = group
                                    .all_gather(elements(std::span(*wide)),
                                                elements(std::span<const float>(own)), seconds(1))
                                    .wait();
          if (status.ok()) continue;
          wide.reset();
          if (!says(status, "rank 1")) return 1;
          return std::chrono::steady_clock::now() - begin < milliseconds(2600) ? 0 : 2;
        }
      },
      options);
  EXPECT_EQ(exits, (std::vector<int>{0, -SIGKILL}));
}

}  // namespace
}  // namespace hekla::process_group
