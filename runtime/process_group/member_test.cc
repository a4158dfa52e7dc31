// SPDX-License-Identifier: Apache-2.0
// What real transports seldom show: other orders of messages of several ranks, and silence.
#include "runtime/process_group/member.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "runtime/process_group/testing/silent_transport.h"

namespace hekla::process_group {
namespace {

Head head_of(Head::Kind kind, uint64_t sequence, const Member& member) {
  Head head;
  head.kind = kind;
  head.group = member.id();
  head.sequence = sequence;
  return head;
}

// Rank 0 has come to the first call with all others, gone on and failed in the second, and the
// word of that overtakes what rank 1 sends for the first.
TEST(Member, CallsBeforeTheOneThatFailedComeToTheirEnd) {
  Hub hub(std::make_unique<SilentTransport>(2, 3));
  Member member(hub, "test", {0, 1, 2}, 2);
  Call call;
  const Work first = member.start("first", [&](uint64_t sequence) {
    return member.meet(sequence, call, Deadline::never()).status();
  });
  const Work second = member.start("second", [&](uint64_t sequence) {
    return member.meet(sequence, call, Deadline::never()).status();
  });
  member.deliver(0, head_of(Head::Kind::kCall, 0, member), {});
  Head abort = head_of(Head::Kind::kAbort, 1, member);
  abort.step = static_cast<uint64_t>(StatusCode::kFailedPrecondition);
  abort.text = "the second differs";
  member.deliver(0, std::move(abort), {});
  EXPECT_FALSE(first.wait(std::chrono::milliseconds(20)).ok());
  EXPECT_FALSE(first.test());
  member.deliver(1, head_of(Head::Kind::kCall, 0, member), {});
  EXPECT_TRUE(first.wait().ok()) << first.error().to_string();
  EXPECT_EQ(second.wait().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(member.start("third", nullptr).wait().code(), StatusCode::kFailedPrecondition);
}

// Rank 2 waits for a piece of rank 0's, which itself waits for rank 1, which is stopped.
TEST(Member, WhoGivesNoSignOfLifeIsNamedAtTheDeadline) {
  auto transport = std::make_unique<SilentTransport>(2, 3);
  transport->silent = 1;
  Hub hub(std::move(transport));
  Member member(hub, "test", {0, 1, 2}, 2);
  const Work work = member.start("a call", [&](uint64_t sequence) {
    return member.take(sequence, Call(), 0, 0, Deadline::in(std::chrono::milliseconds(10)))
        .status();
  });
  const Status status = work.wait();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  for (const char* text : {"waits in vain for rank 0 (process 0)",
                           "rank 1 (process 1) has given no sign of life for 2.0 s"}) {
    EXPECT_NE(status.message().find(text), std::string::npos) << status.to_string();
  }
}

}  // namespace
}  // namespace hekla::process_group
