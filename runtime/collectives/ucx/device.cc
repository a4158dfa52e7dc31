// SPDX-License-Identifier: Apache-2.0
#include "runtime/collectives/ucx/device.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "runtime/collectives/ucx/pair.h"

namespace hekla::collectives::carrier {
namespace {

// UCX is loaded into programs of others: it takes their signals for faults and writes to their
// standard output about what callers hear of as errors. What the user asks of it by its own
// variables holds.
void tame_ucx() {
  static const bool is_tame = [] {
    if (std::getenv("UCX_ERROR_SIGNALS") == nullptr) {
      for (unsigned i = 0; i < ucs_global_opts.error_signals.count; ++i) {
        ucs_debug_disable_signal(ucs_global_opts.error_signals.signals[i]);
      }
    }
    if (std::getenv("UCX_LOG_LEVEL") == nullptr) {
      ucs_global_opts.log_component.log_level = UCS_LOG_LEVEL_FATAL;
    }
    return true;
  }();
  static_cast<void>(is_tame);
}

std::string interface_of(const std::string& address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) throw std::runtime_error(std::strerror(errno));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(all, ::freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    std::array<char, INET6_ADDRSTRLEN> text = {};
    const int family = one->ifa_addr->sa_family;
    const void* bytes = nullptr;
    if (family == AF_INET) bytes = &reinterpret_cast<sockaddr_in*>(one->ifa_addr)->sin_addr;
    if (family == AF_INET6) bytes = &reinterpret_cast<sockaddr_in6*>(one->ifa_addr)->sin6_addr;
    if (bytes != nullptr && ::inet_ntop(family, bytes, text.data(), text.size()) != nullptr &&
        address == text.data()) {
      return one->ifa_name;
    }
  }
  throw std::runtime_error("no interface has the address " + address);
}

// As UCX names them: "lo,mlx5_0:1".
std::string network_devices(const std::string& address) {
  std::string names = interface_of(address);
  std::error_code none;
  for (const auto& card : std::filesystem::directory_iterator("/sys/class/infiniband", none)) {
    for (const auto& port : std::filesystem::directory_iterator(card.path() / "ports", none)) {
      names += "," + card.path().filename().string() + ":" + port.path().filename().string();
    }
  }
  return names;
}

// In a child that is forked while UCX is in use its locks are held and its threads are not there.
std::atomic<int> g_open_devices = 0;
std::atomic<bool> g_is_unusable = false;

void refuse_in_forked_children() {
  static const int registered = ::pthread_atfork(
      nullptr, nullptr, [] { g_is_unusable = g_is_unusable || g_open_devices > 0; });
  static_cast<void>(registered);
  if (!g_is_unusable) return;
  throw std::runtime_error(
      "UCX was in use when this process was forked and cannot be used in it: start a new program "
      "instead, or fork before");
}

void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) throw std::runtime_error(std::string(what) + ucs_status_string(status));
}

// Whether what a program sets of a transport is called as in the environment ("TCP_CONN_NB") or
// without the transport's name. UCX passes over a name that it does not know.
bool takes_full_names() {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return major > 1 || minor >= 17;
}

ucp_context_h open_context(const std::string& address) {
  ucp_config_t* config = nullptr;
  check(ucp_config_read(nullptr, nullptr, &config), "its configuration: ");
  const std::unique_ptr<ucp_config_t, void (*)(ucp_config_t*)> owned(config, ucp_config_release);
  const auto set = [&](const std::string& name, const std::string& value) {
    if (std::getenv(("UCX_" + name).c_str()) != nullptr) return;
    check(ucp_config_modify(config, name.c_str(), value.c_str()), name.c_str());
  };
  set("NET_DEVICES", network_devices(address));
  // Its shared memory does not notice processes that die; ours is used within a machine.
  set("TLS", "^shm,self");
  const auto set_tcp = [&](const std::string& name, const char* value) {
    const std::string full = "TCP_" + name;
    if (std::getenv(("UCX_" + full).c_str()) != nullptr) return;
    set(takes_full_names() ? full : name, value);
  };
  if (address.find(':') != std::string::npos) set_tcp("AF_PRIO", "inet6,inet");
  // Where a connection that was made by a connect that blocks is lost before the endpoint is, UCX
  // both hands the endpoint out and frees it, and ends the process.
  set_tcp("CONN_NB", "y");
  ucp_params_t parameters = {};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  parameters.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  parameters.mt_workers_shared = 1;
  ucp_context_h context = nullptr;
  check(ucp_init(&parameters, config, &context), "");
  return context;
}

void watch(int events, int descriptor) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  if (::epoll_ctl(events, EPOLL_CTL_ADD, descriptor, &event) != 0) {
    throw std::runtime_error(std::string("epoll_ctl: ") + std::strerror(errno));
  }
}

}  // namespace

Device::Device(const std::string& address) {
  refuse_in_forked_children();
  tame_ucx();
  ++g_open_devices;
  try {
    context_ = open_context(address);
    events_ = ::epoll_create1(EPOLL_CLOEXEC);
    stop_ = ::eventfd(0, EFD_CLOEXEC);
    if (events_ < 0 || stop_ < 0) throw std::runtime_error(std::strerror(errno));
    watch(events_, stop_);
    thread_ = std::thread([this] { serve(); });
  } catch (...) {
    if (events_ >= 0) ::close(events_);
    if (stop_ >= 0) ::close(stop_);
    if (context_ != nullptr) ucp_cleanup(context_);
    --g_open_devices;
    throw;
  }
}

Device::~Device() {
  const uint64_t one = 1;
  static_cast<void>(::write(stop_, &one, sizeof(one)) == sizeof(one));
  thread_.join();
  ::close(events_);
  ::close(stop_);
  ucp_cleanup(context_);
  --g_open_devices;
}

void Device::add(std::shared_ptr<Pair> pair) {
  const std::lock_guard lock(mutex_);
  const int descriptor = pair->descriptor();
  pairs_[descriptor] = std::move(pair);
  try {
    watch(events_, descriptor);
  } catch (...) {
    pairs_.erase(descriptor);
    throw;
  }
}

void Device::remove(const Pair& pair) {
  const std::lock_guard lock(mutex_);
  epoll_event event = {};
  ::epoll_ctl(events_, EPOLL_CTL_DEL, pair.descriptor(), &event);
  pairs_.erase(pair.descriptor());
}

void Device::serve() {
  std::array<epoll_event, 16> events;
  for (;;) {
    const int count = ::epoll_wait(events_, events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const int descriptor = events[static_cast<size_t>(i)].data.fd;
      if (descriptor == stop_) return;
      std::shared_ptr<Pair> pair;
      {
        const std::lock_guard lock(mutex_);
        const auto found = pairs_.find(descriptor);
        if (found != pairs_.end()) pair = found->second;
      }
      if (pair != nullptr) pair->serve();
    }
  }
}

}  // namespace hekla::collectives::carrier
