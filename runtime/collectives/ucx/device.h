// SPDX-License-Identifier: Apache-2.0
// Device: UCX on the interface of one address and on the machine's InfiniBand ports, and the thread
// that takes what comes for its pairs. Thread-safe; its pairs go first.
#pragma once

#include <ucp/api/ucp.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace hekla::collectives::carrier {

class Pair;

class Device {
 public:
  // Throws std::runtime_error: what UCX or the system says. The thread inherits the caller's
  // signal mask.
  explicit Device(const std::string& address);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  ucp_context_h context() const { return context_; }
  // From now on it is served; throws std::runtime_error.
  void add(std::shared_ptr<Pair> pair);
  void remove(const Pair& pair);

 private:
  void serve();

  ucp_context_h context_ = nullptr;
  int events_ = -1, stop_ = -1;  // epoll's, and the descriptor that ends the thread
  std::mutex mutex_;
  std::map<int, std::shared_ptr<Pair>> pairs_;  // guarded by mutex_; by descriptor
  std::thread thread_;
};

}  // namespace hekla::collectives::carrier
