// SPDX-License-Identifier: Apache-2.0
#include "runtime/collectives/network_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

namespace hekla::collectives {
namespace {

// Of a block that is kept for documentation: it is nobody's, so the default route leads there. No
// packet is sent.
constexpr const char* kFarAway = "192.0.2.1";
constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kAnyPort = "9";

std::string numeric(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* bytes =
      address->sa_family == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
          : &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return ::inet_ntop(address->sa_family, bytes, text, sizeof(text)) == nullptr ? "" : text;
}

bool is_link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

struct InterfaceAddress {
  std::string interface, address;
  bool is_loopback = false, is_v4 = false;
};

// Of interfaces that are up; IPv4 first, since two machines that have both have that in common.
std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0 ||
        is_link_local(one->ifa_addr)) {
      continue;
    }
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    found.push_back({one->ifa_name, numeric(one->ifa_addr), (one->ifa_flags & IFF_LOOPBACK) != 0,
                     family == AF_INET});
  }
  ::freeifaddrs(list);
  std::stable_partition(found.begin(), found.end(), [](const auto& one) { return one.is_v4; });
  return found;
}

struct Resolved {
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list{nullptr, &::freeaddrinfo};
  std::string problem;
};

Resolved resolve(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  Resolved resolved;
  const int error = ::getaddrinfo(host.c_str(), kAnyPort, &hints, &list);
  resolved.list.reset(error == 0 ? list : nullptr);
  if (error != 0) resolved.problem = ::gai_strerror(error);
  return resolved;
}

// The address that packets to `to` would leave from.
std::optional<std::string> source_address(const addrinfo& to) {
  const int file = ::socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (file < 0) return std::nullopt;
  sockaddr_storage own = {};
  socklen_t size = sizeof(own);
  const bool is_known = ::connect(file, to.ai_addr, to.ai_addrlen) == 0 &&
                        ::getsockname(file, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  ::close(file);
  if (!is_known) return std::nullopt;
  return numeric(reinterpret_cast<const sockaddr*>(&own));
}

Result<std::string> route_to(const std::string& host) {
  const Resolved resolved = resolve(host);
  for (const addrinfo* one = resolved.list.get(); one != nullptr; one = one->ai_next) {
    if (std::optional<std::string> own = source_address(*one)) return *std::move(own);
  }
  return unavailable("no route from this machine to {}: {}", host,
                     resolved.problem.empty() ? std::strerror(errno) : resolved.problem);
}

Result<std::string> own_address_named(std::string_view wanted) {
  const std::vector<InterfaceAddress> all = interface_addresses();
  for (const InterfaceAddress& one : all) {
    if (one.interface == wanted || one.address == wanted) return one.address;
  }
  const Resolved resolved = resolve(std::string(wanted));
  for (const addrinfo* one = resolved.list.get(); one != nullptr; one = one->ai_next) {
    const std::string address = numeric(one->ai_addr);
    for (const InterfaceAddress& own : all) {
      if (own.address == address) return address;
    }
  }
  std::string there_is;
  for (const InterfaceAddress& one : all) {
    there_is += fmt::format("{}{} {}", there_is.empty() ? "" : ", ", one.interface, one.address);
  }
  return invalid_argument("'{}' is no interface, address or name of this machine, which has {}",
                          wanted, there_is.empty() ? "none" : there_is);
}

std::string host_of(std::string_view coordinator) {
  if (coordinator.starts_with('[')) {
    return std::string(coordinator.substr(1, coordinator.find(']') - 1));
  }
  const size_t colon = coordinator.find(':');
  // More than one: an address of IPv6 without a port.
  if (colon == std::string_view::npos ||
      coordinator.find(':', colon + 1) != std::string_view::npos) {
    return std::string(coordinator);
  }
  return std::string(coordinator.substr(0, colon));
}

}  // namespace

Result<std::string> own_network_address(std::string_view wanted, std::string_view coordinator) {
  if (!wanted.empty()) return own_address_named(wanted);
  if (!coordinator.empty()) return route_to(host_of(coordinator));
  if (Result<std::string> own = route_to(kFarAway); own.ok()) return own;
  for (const InterfaceAddress& one : interface_addresses()) {
    if (!one.is_loopback) return one.address;
  }
  return std::string(kLoopback);
}

}  // namespace hekla::collectives
