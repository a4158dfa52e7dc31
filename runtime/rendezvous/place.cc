// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/place.h"

#include <netdb.h>
#include <sys/socket.h>

#include <charconv>
#include <cstdlib>
#include <memory>
#include <vector>

#include "runtime/base/hash.h"
#include "runtime/base/host.h"

namespace hekla::rendezvous {
namespace {

// Ports that systems do not give away by themselves: the last 4,096, as JAX takes them for Slurm's
// and Open MPI's jobs.
constexpr int kPorts = 4096;
constexpr int kFirstPort = 65536 - kPorts;

std::optional<int64_t> as_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  return value;
}

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  std::string text(const char* name) const {
    const char* const value = environment_(name);
    return value == nullptr ? "" : value;
  }
  bool has(const char* name) const { return !text(name).empty(); }
  Result<int> number(const char* name) const {
    const std::optional<int64_t> value = as_number(text(name));
    if (value && *value >= 0 && *value < 1 << 24) return static_cast<int>(*value);
    return invalid_argument("{}={} is not a number", name, text(name));
  }
  Result<int> number_or(const char* name, int fallback) const {
    return has(name) ? number(name) : Result<int>(fallback);
  }

 private:
  const Environment& environment_;
};

Status check_place(const Place& place) {
  const auto in_range = [](int rank, int size) { return rank >= 0 && rank < size; };
  if (!in_range(place.rank, place.size)) {
    return invalid_argument("{}: rank {} of {} processes", place.source, place.rank, place.size);
  }
  if (!in_range(place.local_rank, place.local_size)) {
    return invalid_argument("{}: local rank {} of {} on this machine", place.source,
                            place.local_rank, place.local_size);
  }
  return ok_status();
}

Result<Place> of_torchrun(const Variables& variables) {
  Place place;
  const bool is_torch = variables.has("TORCHELASTIC_USE_AGENT_STORE");
  place.source = variables.has("HEKLA_LAUNCH") ? "hekla launch"
                 : is_torch                    ? "torchrun"
                                               : "environment";
  if (!variables.has("RANK")) {
    return invalid_argument("WORLD_SIZE={} needs RANK", variables.text("WORLD_SIZE"));
  }
  HEKLA_ASSIGN_OR_RETURN(place.rank, variables.number("RANK"));
  HEKLA_ASSIGN_OR_RETURN(place.size, variables.number("WORLD_SIZE"));
  HEKLA_ASSIGN_OR_RETURN(place.local_rank, variables.number_or("LOCAL_RANK", 0));
  HEKLA_ASSIGN_OR_RETURN(place.local_size,
                         variables.number_or("LOCAL_WORLD_SIZE", place.local_rank + 1));
  HEKLA_ASSIGN_OR_RETURN(place.node, variables.number_or("GROUP_RANK", 0));
  HEKLA_ASSIGN_OR_RETURN(place.nodes, variables.number_or("GROUP_WORLD_SIZE", place.node + 1));
  place.address = variables.text("MASTER_ADDR");
  HEKLA_ASSIGN_OR_RETURN(place.port, variables.number_or("MASTER_PORT", 0));
  if (is_torch) {
    // MASTER_PORT is the agent's own: another one that all ranks of this attempt come to.
    const std::string attempt = fmt::format("{}:{}:{}", place.address, place.port,
                                            variables.text("TORCHELASTIC_RESTART_COUNT"));
    place.port = kFirstPort + static_cast<int>(fnv1a(attempt) % kPorts);
  }
  return place;
}

// "3744956416.0;tcp://10.0.0.7,192.168.1.7:40951" or with tcp6://[...].
std::string address_of_mpirun(std::string_view uri) {
  for (const std::string_view scheme : {"tcp6://[", "tcp://"}) {
    const size_t at = uri.find(scheme);
    if (at == uri.npos) continue;
    const std::string_view rest = uri.substr(at + scheme.size());
    const std::string_view ends = scheme.ends_with('[') ? ",]" : ",:";
    return std::string(rest.substr(0, rest.find_first_of(ends)));
  }
  return {};
}

Result<Place> of_open_mpi(const Variables& variables) {
  Place place;
  place.source = "mpirun";
  HEKLA_ASSIGN_OR_RETURN(place.rank, variables.number("OMPI_COMM_WORLD_RANK"));
  HEKLA_ASSIGN_OR_RETURN(place.size, variables.number("OMPI_COMM_WORLD_SIZE"));
  HEKLA_ASSIGN_OR_RETURN(place.local_rank, variables.number("OMPI_COMM_WORLD_LOCAL_RANK"));
  HEKLA_ASSIGN_OR_RETURN(place.local_size, variables.number("OMPI_COMM_WORLD_LOCAL_SIZE"));
  // It does not say which of the machines this is where they have different numbers of ranks.
  place.nodes = (place.size + place.local_size - 1) / std::max(1, place.local_size);
  place.node = place.rank / std::max(1, place.local_size);
  const std::string uri = variables.text("OMPI_MCA_orte_hnp_uri");
  place.address =
      variables.has("MASTER_ADDR") ? variables.text("MASTER_ADDR") : address_of_mpirun(uri);
  const std::optional<int64_t> job = as_number(std::string_view(uri).substr(0, uri.find('.')));
  const int derived = job ? kFirstPort + static_cast<int>(*job % kPorts) : 0;
  HEKLA_ASSIGN_OR_RETURN(place.port, variables.number_or("MASTER_PORT", derived));
  return place;
}

// Of node `node` in "4(x2),3".
std::optional<int> tasks_on(std::string_view list, int node) {
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    const size_t open = entry.find("(x");
    const std::optional<int64_t> tasks = as_number(entry.substr(0, open));
    std::optional<int64_t> times = 1;
    if (open != entry.npos && entry.ends_with(')')) {
      times = as_number(entry.substr(open + 2, entry.size() - open - 3));
    }
    if (!tasks || !times) return {};
    if (node < *times) return static_cast<int>(*tasks);
    node -= static_cast<int>(*times);
  }
  return {};
}

Result<Place> of_slurm(const Variables& variables) {
  Place place;
  place.source = "srun";
  const bool has_step = variables.has("SLURM_STEP_NUM_TASKS");
  HEKLA_ASSIGN_OR_RETURN(place.rank, variables.number("SLURM_PROCID"));
  HEKLA_ASSIGN_OR_RETURN(place.size,
                         variables.number(has_step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS"));
  HEKLA_ASSIGN_OR_RETURN(place.local_rank, variables.number("SLURM_LOCALID"));
  HEKLA_ASSIGN_OR_RETURN(place.node, variables.number_or("SLURM_NODEID", 0));
  HEKLA_ASSIGN_OR_RETURN(place.nodes, variables.number_or("SLURM_STEP_NUM_NODES", place.node + 1));
  place.local_size = tasks_on(variables.text("SLURM_STEP_TASKS_PER_NODE"), place.node)
                         .value_or(place.local_rank + 1);
  place.address = variables.has("MASTER_ADDR") ? variables.text("MASTER_ADDR")
                                               : first_host(variables.text("SLURM_STEP_NODELIST"));
  HEKLA_ASSIGN_OR_RETURN(const int job, variables.number("SLURM_JOB_ID"));
  HEKLA_ASSIGN_OR_RETURN(place.port, variables.number_or("MASTER_PORT", kFirstPort + job % kPorts));
  return place;
}

// Pod NAME-INDEX of an indexed job; with a subdomain its machine has a full name.
Result<Place> of_kubernetes(const Variables& variables,
                            const std::function<std::string()>& full_name) {
  Place place;
  place.source = "Kubernetes";
  if (!variables.has("WORLD_SIZE")) {
    return invalid_argument(
        "JOB_COMPLETION_INDEX={} says that this is a pod of an indexed job, but Kubernetes does "
        "not say of how many: set WORLD_SIZE in the pod's template to the job's completions",
        variables.text("JOB_COMPLETION_INDEX"));
  }
  HEKLA_ASSIGN_OR_RETURN(place.rank, variables.number("JOB_COMPLETION_INDEX"));
  HEKLA_ASSIGN_OR_RETURN(place.size, variables.number("WORLD_SIZE"));
  place.node = place.rank;
  place.nodes = place.size;
  place.address = variables.text("MASTER_ADDR");
  if (place.address.empty()) {
    const std::string name = full_name();
    const std::string suffix = fmt::format("-{}", place.rank);
    const std::string host = name.substr(0, name.find('.'));
    if (host.ends_with(suffix)) {
      place.address = host.substr(0, host.size() - suffix.size()) + "-0" + name.substr(host.size());
    }
  }
  HEKLA_ASSIGN_OR_RETURN(place.port, variables.number_or("MASTER_PORT", kFirstPort));
  return place;
}

std::string own_full_name() {
  addrinfo hints = {};
  hints.ai_flags = AI_CANONNAME;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host_name().c_str(), nullptr, &hints, &found) != 0) return host_name();
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  return found->ai_canonname == nullptr ? host_name() : found->ai_canonname;
}

}  // namespace

std::string first_host(std::string_view list) {
  const size_t end = list.find_first_of(",[");
  std::string host(list.substr(0, end));
  if (end == list.npos || list[end] == ',') return host;
  const std::string_view numbers = list.substr(end + 1);
  host += numbers.substr(0, numbers.find_first_of(",-]"));
  // What stands after the numbers, as in "rack[1-2]-gpu".
  const size_t close = numbers.find(']');
  if (close == numbers.npos) return {};
  const std::string_view rest = numbers.substr(close + 1);
  return host + std::string(rest.substr(0, rest.find(',')));
}

Result<Place> find_place(const Environment& environment,
                         const std::function<std::string()>& full_name) {
  const Variables variables(environment);
  Result<Place> place = Place{};
  if (variables.has("JOB_COMPLETION_INDEX") && !variables.has("RANK")) {
    place = of_kubernetes(variables, full_name);
  } else if (variables.has("WORLD_SIZE")) {
    place = of_torchrun(variables);
  } else if (variables.has("OMPI_COMM_WORLD_RANK")) {
    place = of_open_mpi(variables);
  } else if (variables.has("SLURM_PROCID") && variables.has("SLURM_STEP_NODELIST")) {
    // A batch script is no step: it is alone.
    place = of_slurm(variables);
  } else {
    place->source = "alone";
  }
  if (!place.ok()) return place;
  HEKLA_RETURN_IF_ERROR(check_place(*place));
  place->store = variables.text("HEKLA_STORE");
  return place;
}

Result<Place> find_place() {
  return find_place([](const char* name) { return std::getenv(name); }, own_full_name);
}

}  // namespace hekla::rendezvous
