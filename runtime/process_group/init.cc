// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/init.h"

#include <charconv>
#include <string>
#include <utility>

#include "runtime/rendezvous/store_key_values.h"
#include "runtime/rendezvous/tcp_store_server.h"

namespace hekla::process_group {
namespace {

// "?rank=1&world_size=4" of an address, into the place; what is left of the address.
Result<std::string_view> take_query(std::string_view method, rendezvous::Place& place) {
  const size_t mark = method.find('?');
  if (mark == method.npos) return method;
  std::string_view query = method.substr(mark + 1);
  while (!query.empty()) {
    const std::string_view entry = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), entry.size() + 1));
    const size_t equals = entry.find('=');
    const std::string_view name = entry.substr(0, equals);
    int* const into = name == "rank" ? &place.rank : name == "world_size" ? &place.size : nullptr;
    const char* const end = entry.data() + entry.size();
    if (into == nullptr || equals == entry.npos || equals + 1 == entry.size() ||
        std::from_chars(entry.data() + equals + 1, end, *into).ptr != end) {
      return invalid_argument("{}: after '?' stand rank=R and world_size=N, joined by '&'", method);
    }
  }
  return method.substr(0, mark);
}

}  // namespace

Result<std::shared_ptr<ProcessGroup>> init_process_group(std::string_view method,
                                                         const Options& options) {
  HEKLA_ASSIGN_OR_RETURN(rendezvous::Place place, rendezvous::find_place());
  return init_process_group(method, std::move(place), options);
}

Result<std::shared_ptr<ProcessGroup>> init_process_group(std::string_view method,
                                                         rendezvous::Place place,
                                                         const Options& options) {
  const Deadline deadline = Deadline::in(options.timeout);
  HEKLA_ASSIGN_OR_RETURN(const std::string_view rest, take_query(method, place));
  if (place.size < 1 || place.rank < 0 || place.rank >= place.size) {
    return invalid_argument("{}: rank {} of {} processes", method, place.rank, place.size);
  }
  std::string address;
  bool is_hosted = false;  // by rank 0
  if (rest == "env://") {
    if (place.size == 1) {
      address = "local:";
    } else if (!place.store.empty()) {
      address = place.store;
    } else if (!place.address.empty() && place.port > 0) {
      address = fmt::format("tcp:{}:{}", place.address, place.port);
      is_hosted = true;
    } else {
      return invalid_argument(
          "env://: {} processes ({}), and nothing says where they meet: set MASTER_ADDR and "
          "MASTER_PORT, or HEKLA_STORE",
          place.size, place.source);
    }
  } else if (rest.starts_with("tcp://")) {
    address = "tcp:" + std::string(rest.substr(6));
    is_hosted = true;
  } else if (rest.starts_with("file://") && rest.size() > 7) {
    address = "file:" + std::string(rest.substr(7));
  } else {
    return invalid_argument(
        "no way \"{}\" to a process group: env://, tcp://HOST:PORT and "
        "file://DIR are known",
        method);
  }
  // Serves until all have come, which the end of create says.
  std::unique_ptr<rendezvous::TcpStoreServer> server;
  if (is_hosted && place.rank == 0) {
    const size_t colon = address.rfind(':');
    int port = 0;
    const char* const end = address.data() + address.size();
    if (std::from_chars(address.data() + colon + 1, end, port).ptr != end || port < 1 ||
        port > 65535) {
      return invalid_argument("{}: tcp://HOST:PORT has a port", method);
    }
    HEKLA_ASSIGN_OR_RETURN(server, rendezvous::TcpStoreServer::start("", port, ""));
  }
  HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<rendezvous::Store> store,
                         rendezvous::open_store(address, deadline));
  Options own = options;
  own.timeout = deadline.left();
  if (own.coordinator.empty() && !place.address.empty()) own.coordinator = place.address;
  return ProcessGroup::create(
      std::make_shared<rendezvous::StoreKeyValues>(std::move(store), "init/"), place.rank,
      place.size, own);
}

}  // namespace hekla::process_group
