// SPDX-License-Identifier: Apache-2.0
// What is the network's own; what any engine promises is in transport_test.cc.
#include "runtime/collectives/network_transport.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>

#include "runtime/base/async/thread.h"
#include "runtime/base/host.h"
#include "runtime/collectives/carrier_library.h"
#include "runtime/collectives/frame.h"
#include "runtime/collectives/network_address.h"
#include "runtime/collectives/network_card.h"
#include "runtime/collectives/testing/processes.h"

namespace hekla::collectives {
namespace {

using std::chrono::milliseconds;

class NetworkTransports : public testing::TestWithParam<CarrierKind> {
 protected:
  void SetUp() override {
    const Result<const carrier::Table*> carrier = carrier_table(GetParam());
    if (!carrier.ok()) GTEST_SKIP() << carrier.status().message();
    options.carrier = *carrier;
    options.address = "127.0.0.1";
    options.beat = milliseconds(10);
    options.patience = milliseconds(400);
  }
  std::unique_ptr<NetworkTransport> make(int rank, Ear& ear) const {
    return *NetworkTransport::create(rank, 2, {1 - rank}, ear.events(), options);
  }

  NetworkOptions options;
};

// What knows how Gloo writes on a connection.
class GlooTransports : public NetworkTransports {};

std::string carrier_name(const testing::TestParamInfo<CarrierKind>& info) {
  return info.param == CarrierKind::kGloo ? "Gloo" : "Ucx";
}
INSTANTIATE_TEST_SUITE_P(Carriers, NetworkTransports, testing::Values(CarrierKind::kGloo),
                         carrier_name);
#ifdef HEKLA_WITH_UCX
INSTANTIATE_TEST_SUITE_P(Ucx, NetworkTransports, testing::Values(CarrierKind::kUcx), carrier_name);
#endif
INSTANTIATE_TEST_SUITE_P(Carriers, GlooTransports, testing::Values(CarrierKind::kGloo),
                         carrier_name);

TEST_P(NetworkTransports, CardsAreChecked) {
  Ear ears[2];
  const auto first = make(0, ears[0]);
  const auto second = make(1, ears[1]);
  const NetworkCard card = *NetworkCard::read(second->card());
  const auto refuse = [&](void (*change)(NetworkCard&)) {
    NetworkCard other = card;
    change(other);
    return first->connect(1, other.text()).code();
  };
  EXPECT_EQ(first->connect(1, "nonsense").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(first->connect(0, second->card()).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(first->connect(2, second->card()).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refuse([](NetworkCard& c) { c.size = 3; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(refuse([](NetworkCard& c) { c.rank = 0; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(refuse([](NetworkCard& c) { c.names.clear(); }), StatusCode::kInvalidArgument);
  EXPECT_EQ(refuse([](NetworkCard& c) { c.token = "short"; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(refuse([](NetworkCard& c) { c.engine = "Gloo 9"; }), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(refuse([](NetworkCard&) {}) == StatusCode::kOk);
}

TEST_P(NetworkTransports, AddressesThatLeadNowhereLoseTheProcess) {
  std::mt19937 random(1);
  for (int round = 0; round < 4; ++round) {
    Ear ears[2];
    const auto first = make(0, ears[0]);
    const auto second = make(1, ears[1]);
    NetworkCard card = *NetworkCard::read(second->card());
    std::string& name = card.names[0];
    if (round == 0) {
      name = "elsewhere";
    } else {
      for (char& byte : name) byte = static_cast<char>(random());
    }
    ASSERT_TRUE(first->connect(1, card.text()).ok());
    const Status why = ears[0].wait_for_loss(1);
    EXPECT_EQ(why.code(), StatusCode::kUnavailable);
    EXPECT_TRUE(contains(why, "cannot be reached from 127.0.0.1")) << why.to_string();
  }
}

TEST_P(NetworkTransports, WhoHasNotReadTheCardIsRefused) {
  Ear ears[2];
  const auto first = make(0, ears[0]);
  const auto second = make(1, ears[1]);
  NetworkCard wrong = *NetworkCard::read(second->card());
  wrong.token[0] ^= 1;
  ASSERT_TRUE(first->connect(1, wrong.text()).ok());
  ASSERT_TRUE(second->connect(0, first->card()).ok());
  const Status why = ears[1].wait_for_loss(0);
  EXPECT_EQ(why.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(contains(why, "something that is not process 0")) << why.to_string();
  EXPECT_FALSE(ears[0].wait_for_loss(1).ok());
}

TEST_P(NetworkTransports, WhoDoesNotAnswerIsLost) {
  Ear ears[2];
  const auto first = make(0, ears[0]);
  const auto second = make(1, ears[1]);
  ASSERT_TRUE(first->connect(1, second->card()).ok());
  const Status why = ears[0].wait_for_loss(1);
  EXPECT_TRUE(contains(why, "does not answer") || contains(why, "cannot be reached"))
      << why.to_string();
}

// Gloo's own head: bytes, kind (1: data for a posted buffer), channel, offset, length, offset
// there.
std::string gloo_head(uint64_t bytes, uint64_t kind, uint64_t channel, uint64_t length) {
  const uint64_t words[6] = {bytes, kind, channel, 0, length, 0};
  return {reinterpret_cast<const char*>(words), sizeof(words)};
}

// Somebody who connects to the ports of both before they meet, says something, and stays or resets.
TEST_P(GlooTransports, AStrangerAtThePortDoesNoHarm) {
  std::string noise(4096, '\0');
  std::mt19937 random(1);
  for (char& byte : noise) byte = static_cast<char>(random());
  const std::string sayings[] = {
      "",
      "GET /index.html HTTP/1.1\r\nHost: somebody.else.example\r\n\r\n",
      noise,
      std::string(4096, '\0'),
      gloo_head(48 + 8, 1, 0, 8) + "12345678",          // data that nobody waits for
      gloo_head(48, 2, 0, 8) + gloo_head(48, 3, 0, 8),  // notes about data
      gloo_head(48, 3, 0, 1) + gloo_head(1 << 20, 1, 0, 1 << 20),
  };
  for (const std::string& saying : sayings) {
    for (const bool resets : {false, true}) {
      Ear ears[2];
      const std::unique_ptr<NetworkTransport> both[2] = {make(0, ears[0]), make(1, ears[1])};
      int strangers[2] = {};
      for (int p = 0; p < 2; ++p) {
        const NetworkCard card = *NetworkCard::read(both[p]->card());
        sockaddr_storage address = {};
        std::memcpy(&address, card.names.at(1 - p).data(), sizeof(address));
        strangers[p] = ::socket(AF_INET, SOCK_STREAM, 0);
        ASSERT_EQ(
            ::connect(strangers[p], reinterpret_cast<sockaddr*>(&address), sizeof(sockaddr_in)), 0);
        ASSERT_EQ(::send(strangers[p], saying.data(), saying.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(saying.size()));
        const linger at_once = {1, 0};
        ::setsockopt(strangers[p], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        if (resets) ::close(strangers[p]);
      }
      std::this_thread::sleep_for(milliseconds(30));
      for (int p = 0; p < 2; ++p) ASSERT_TRUE(both[p]->connect(1 - p, both[1 - p]->card()).ok());
      for (int p = 0; p < 2; ++p) {
        const Status why = ears[p].wait_for_loss(1 - p);
        EXPECT_FALSE(why.ok());
        EXPECT_TRUE(contains(why, fmt::format("process {}", 1 - p))) << why.to_string();
        if (!resets) ::close(strangers[p]);
      }
    }
  }
}

// A process that says what it likes by the same library: the second of two.
class NetworkFoe {
 public:
  NetworkFoe(const NetworkOptions& options, std::unique_ptr<NetworkTransport> meets)
      : carrier_(*options.carrier), first_(std::move(meets)), bytes_(1 << 17) {
    const SignalsBlocked blocked;
    device_ = carrier_.open("127.0.0.1", &error_);
    char name[carrier::kMaxNameBytes];
    size_t size = 0;
    pair_ = carrier_.make_pair(device_, 5000, name, &size, &error_);
    const NetworkCard theirs = *NetworkCard::read(first_->card());
    const NetworkCard own{
        carrier_.description(),        host_name(), "127.0.0.1", random_hex(16), 4711, 1, 2,
        {{0, std::string(name, size)}}};
    EXPECT_TRUE(first_->connect(1, own.text()).ok());
    const std::string& to = theirs.names.at(1);
    EXPECT_TRUE(carrier_.connect(pair_, to.data(), to.size(), &error_)) << error_.text;
    buffer_ = carrier_.make_buffer(pair_, bytes_.data(), bytes_.size(), &error_);
    received_ = carrier_.make_buffer(pair_, taken_.data(), taken_.size(), &error_);
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(carrier_.receive(received_, 0, 0, kRoom, &error_));
    const int64_t rank = 1;
    std::string hello = theirs.token;
    hello.append(reinterpret_cast<const char*>(&rank), sizeof(rank));
    say(1, hello, 0);
  }
  ~NetworkFoe() {
    ::signal(SIGPIPE, pipe_signal_);
    carrier_.free_buffer(buffer_);
    carrier_.free_buffer(received_);
    carrier_.free_pair(pair_);
    carrier_.close(device_);
  }
  void say(uint16_t kind, const std::string& payload, uint64_t messages, uint32_t claimed = 0) {
    EXPECT_TRUE(try_to_say(kind, payload, messages, claimed)) << error_.text;
  }
  bool try_to_say(uint16_t kind, const std::string& payload, uint64_t messages,
                  uint32_t claimed = 0) {
    const auto size = claimed != 0 ? claimed : static_cast<uint32_t>(payload.size());
    const uint64_t pieces = 0;
    std::string piece(reinterpret_cast<const char*>(&kind), sizeof(kind));
    piece.append(2, '\0');
    piece.append(reinterpret_cast<const char*>(&size), sizeof(size));
    piece.append(reinterpret_cast<const char*>(&pieces), sizeof(pieces));
    piece.append(reinterpret_cast<const char*>(&messages), sizeof(messages));
    piece += payload;
    std::memcpy(bytes_.data(), piece.data(), piece.size());
    return carrier_.send(buffer_, 0, 0, piece.size(), &error_) &&
           carrier_.last_sent(buffer_, kSentMs, &error_) == carrier::kDone;
  }

 private:
  static constexpr size_t kRoom = 65536 + 24;
  // What is half sent when the other side closes is never told.
  static constexpr int64_t kSentMs = 2000;
  // Whoever it talks to may have closed the connection.
  void (*const pipe_signal_)(int) = ::signal(SIGPIPE, SIG_IGN);
  const carrier::Table& carrier_;
  const std::unique_ptr<NetworkTransport> first_;
  carrier::Error error_;
  void *device_ = nullptr, *pair_ = nullptr, *buffer_ = nullptr, *received_ = nullptr;
  std::vector<char> bytes_;
  std::vector<char> taken_ = std::vector<char>(kRoom);
};

TEST_P(NetworkTransports, NonsenseLosesWhoSendsIt) {
  const auto lost_for = [&](auto says) {
    Ear ear;
    NetworkFoe foe(options, make(0, ear));
    says(foe);
    const Status why = ear.wait_for_loss(1);
    EXPECT_EQ(why.code(), StatusCode::kDataLoss) << why.to_string();
    EXPECT_TRUE(contains(why, "process 1 (pid 4711")) << why.to_string();
  };
  lost_for([](NetworkFoe& foe) { foe.say(77, "", 0); });                      // the kind
  lost_for([](NetworkFoe& foe) { foe.say(3, "", 9); });                       // the count
  lost_for([](NetworkFoe& foe) { foe.say(2, "x", 0, 1 << 30); });             // the size
  lost_for([](NetworkFoe& foe) { foe.say(2, std::string(64, '\xab'), 0); });  // no frame
  lost_for([](NetworkFoe& foe) { foe.say(1, std::string(40, 'x'), 0); });     // a second hello
}

// While a block is under way other signs of life do not count.
TEST_P(NetworkTransports, ABlockThatNeverComesLosesWhoAnnouncedIt) {
  options.silence = milliseconds(200);
  Ear ear;
  NetworkFoe foe(options, make(0, ear));
  foe.say(2, *frame_of({"head", {*HostArray::allocate(DType::kUI8, {1 << 20})}}), 0);
  const auto begin = std::chrono::steady_clock::now();
  bool is_heard = true;
  while (!ear.has_lost(1) && std::chrono::steady_clock::now() < begin + std::chrono::seconds(5)) {
    is_heard = is_heard && foe.try_to_say(3, "", 0);
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_TRUE(ear.has_lost(1)) << "signs of life went on";
  const Status why = ear.wait_for_loss(1);
  EXPECT_EQ(why.code(), StatusCode::kDeadlineExceeded) << why.to_string();
  EXPECT_TRUE(contains(why, "no sign of life")) << why.to_string();
}

// Large blocks alone, and only those that somebody has a place for.
TEST_P(NetworkTransports, BlocksComeStraightIntoTheirPlaces) {
  Ear ears[2];
  constexpr int64_t kBytes = 3 << 20;
  HostArray memory(DType::kUI8, {kBytes});
  std::atomic<int> asked = 0;
  std::atomic<bool> is_let_go = false;
  Transport::Events events = ears[0].events();
  events.place = [&](int from, const Message& begun, int64_t bytes) -> std::shared_ptr<void> {
    EXPECT_EQ(from, 1);
    EXPECT_EQ(begun.head, "head");
    ++asked;
    if (bytes != kBytes) return nullptr;
    return {memory.mutable_data(), [&](void*) { is_let_go = true; }};
  };
  const auto first = *NetworkTransport::create(0, 2, {1}, std::move(events), options);
  const auto second = make(1, ears[1]);
  ASSERT_TRUE(first->connect(1, second->card()).ok());
  ASSERT_TRUE(second->connect(0, first->card()).ok());
  std::vector<HostArray> blocks;
  for (const int64_t bytes : {int64_t{100}, kBytes, kBytes + 1}) {
    blocks.emplace_back(DType::kUI8, Dims{bytes});
    std::memset(blocks.back().mutable_data(), static_cast<int>(bytes % 251),
                static_cast<size_t>(bytes));
  }
  second->send(0, {"head", blocks}, nullptr);
  {
    const std::vector<Message> got = ears[0].wait_for(1, 1);
    ASSERT_EQ(got.size(), 1U);
    ASSERT_EQ(got[0].blocks.size(), 3U);
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(got[0].blocks[i].identical(blocks[i])) << i;
    EXPECT_EQ(got[0].blocks[1].data(), memory.data());
    EXPECT_EQ(asked, 2);
    EXPECT_FALSE(is_let_go);
  }
  ears[0].forget();
  EXPECT_TRUE(is_let_go);
}

TEST_P(NetworkTransports, WhoIsAbandonedWritesNoMore) {
  Ear ear;
  HostArray memory(DType::kUI8, {1 << 20});
  const CompletionRef asked = Completion::make(), let_go = Completion::make();
  Transport::Events events = ear.events();
  events.place = [&](int, const Message&, int64_t) -> std::shared_ptr<void> {
    asked->complete(ok_status());
    return {memory.mutable_data(), [let_go](void*) { let_go->complete(ok_status()); }};
  };
  auto made = *NetworkTransport::create(0, 2, {1}, std::move(events), options);
  NetworkTransport& first = *made;
  NetworkFoe foe(options, std::move(made));
  foe.say(2, *frame_of({"head", {*HostArray::allocate(DType::kUI8, {1 << 20})}}), 0);
  ASSERT_TRUE(asked->await_until(Deadline::in(std::chrono::seconds(20))));
  first.abandon(1, deadline_exceeded("it does not finish"));
  EXPECT_TRUE(let_go->await_until(Deadline::in(std::chrono::seconds(5))));
  const Status why = ear.wait_for_loss(1);
  EXPECT_EQ(why.code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(contains(why, "it does not finish")) << why.to_string();
}

TEST(NetworkAddress, IsOneOfThisMachine) {
  EXPECT_EQ(*own_network_address("lo", ""), "127.0.0.1");
  EXPECT_EQ(*own_network_address("127.0.0.1", "elsewhere:1"), "127.0.0.1");
  EXPECT_EQ(*own_network_address("", "127.0.0.1:4000"), "127.0.0.1");
  EXPECT_FALSE(own_network_address("", "")->empty());
  const Status wrong = own_network_address("no-such-interface", "").status();
  EXPECT_EQ(wrong.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(contains(wrong, "lo 127.0.0.1")) << wrong.to_string();
  EXPECT_EQ(own_network_address("192.0.2.7", "").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(own_network_address("", "no-such-host.invalid:1").status().code(),
            StatusCode::kUnavailable);
}

}  // namespace
}  // namespace hekla::collectives
