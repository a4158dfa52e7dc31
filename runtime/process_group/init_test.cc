// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/init.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "runtime/base/io/temporary_folder.h"
#include "runtime/rendezvous/tcp_store_server.h"

namespace hekla::process_group {
namespace {

using rendezvous::Place;

// All ranks find each other by a method and sum their ranks.
void meet(const std::string& method, const Place& place, const Options& options = {}) {
  constexpr int kRanks = 3;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Place own = place;
      own.rank = rank;
      own.size = kRanks;
      const auto group = init_process_group(method, own, options);
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      std::vector<int32_t> x = {rank};
      ASSERT_TRUE((*group)->all_reduce(elements(std::span(x))).wait().ok());
      EXPECT_EQ(x[0], 3);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

int free_port() { return (*rendezvous::TcpStoreServer::start("127.0.0.1", 0, ""))->port(); }

TEST(Init, EachMethodFindsAllRanks) {
  const TemporaryFolder folder;
  meet("file://" + folder.file("store"), {});
  meet(fmt::format("tcp://127.0.0.1:{}", free_port()), {});
  // What a launcher says: a store of its own, or an address.
  const auto server = *rendezvous::TcpStoreServer::start("127.0.0.1", 0, "secret");
  Place launched;
  launched.store = fmt::format("tcp:secret@127.0.0.1:{}", server->port());
  meet("env://", launched);
  Place addressed;
  addressed.address = "127.0.0.1";
  addressed.port = free_port();
  meet("env://", addressed);
}

// The store and, by a backend of streams, each connection.
TEST(Init, AddressesMayBeOfIpv6) {
  if (const auto tried = rendezvous::TcpStoreServer::start("::1", 0, ""); !tried.ok()) {
    GTEST_SKIP() << "no loopback of IPv6: " << tried.status().to_string();
  }
  Options options;
  options.timeout = std::chrono::seconds(60);
  std::vector<std::string> engines = {"auto"};
  if (std::filesystem::exists(HEKLA_BINARY_DIR "/lib/hekla/libhekla_gloo.so")) {
    engines.emplace_back("gloo");
  }
  for (const std::string& engine : engines) {
    const auto server = *rendezvous::TcpStoreServer::start("::1", 0, "secret");
    options.engine = engine;
    options.shared_memory = engine == "auto" ? "auto" : "off";
    options.address = engine == "auto" ? "" : "::1";
    meet(fmt::format("tcp://[::1]:{}", free_port()), {}, options);
    Place launched;
    launched.store = fmt::format("tcp:secret@[::1]:{}", server->port());
    meet("env://", launched, options);
    // As MASTER_ADDR has it, without brackets; own addresses are those of the route there.
    Place addressed;
    addressed.address = "::1";
    addressed.port = free_port();
    options.address.clear();
    meet("env://", addressed, options);
  }
}

TEST(Init, TheAddressMaySayRankAndSize) {
  const TemporaryFolder folder;
  const auto group =
      init_process_group("file://" + folder.file("store") + "?rank=0&world_size=1", Place{}, {});
  ASSERT_TRUE(group.ok()) << group.status().to_string();
  EXPECT_EQ((*group)->size(), 1);
}

TEST(Init, WhatCannotBeMeantIsSaid) {
  const auto refused = [](const std::string& method, int rank, int size) {
    Place place;
    place.rank = rank;
    place.size = size;
    const auto group = init_process_group(method, place, {});
    EXPECT_EQ(group.status().code(), StatusCode::kInvalidArgument) << method;
    return group.status().message();
  };
  EXPECT_NE(refused("mpi://", 0, 1).find("tcp://HOST:PORT and file://DIR are known"),
            std::string::npos);
  EXPECT_NE(refused("env://", 0, 2).find("set MASTER_ADDR and MASTER_PORT, or HEKLA_STORE"),
            std::string::npos);
  refused("tcp://127.0.0.1", 0, 2);
  refused("tcp://127.0.0.1:x", 0, 2);
  refused("tcp://127.0.0.1:1?rank=2&world_size=2", 0, 2);
  refused("file://", 0, 1);
  refused("file:///no/folder?size=3", 0, 1);
  refused("file:///no/folder?rank=", 0, 1);
}

}  // namespace
}  // namespace hekla::process_group
