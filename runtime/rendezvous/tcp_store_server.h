// SPDX-License-Identifier: Apache-2.0
// TcpStoreServer: a store that processes of several machines reach over TCP (tcp_store.h).
//
// Hosted by a launcher, or by rank 0 of a run. One thread serves all; values are in its memory and
// go with it. A member lives as long as the connection of the process that joined: the kernel ends
// that with the process. Who does not say the token first is not served, and dropped after some
// seconds; of such there are few at a time, so strangers that connect leave room for others. What
// is said is not encrypted. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "runtime/base/status.h"

namespace hekla::rendezvous {

class TcpStoreServer {
 public:
  // Listens on `host` ("" all addresses, of IPv6 and IPv4) and `port`, 0 for any that is free.
  // INVALID_ARGUMENT: no such host; ALREADY_EXISTS: the port is taken; UNAVAILABLE: sockets cannot
  // be had.
  static Result<std::unique_ptr<TcpStoreServer>> start(const std::string& host, int port,
                                                       std::string token);
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  int port() const { return port_; }
  // Of this server alone; random.
  const std::string& id() const { return id_; }

 private:
  class Loop;
  TcpStoreServer();

  std::unique_ptr<Loop> loop_;
  int port_ = 0;
  std::string id_;
  std::jthread thread_;  // last: runs the loop
};

}  // namespace hekla::rendezvous
