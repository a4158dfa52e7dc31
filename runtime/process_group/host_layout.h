// SPDX-License-Identifier: Apache-2.0
// HostLayout: which ranks of a group are on one host. A plain value, the same on all ranks.
#pragma once

#include <algorithm>
#include <vector>

namespace hekla::process_group {

struct HostLayout {
  std::vector<int> host_of;                // by rank; empty: not known
  std::vector<std::vector<int>> ranks_of;  // by host, ascending; hosts in the order of their first

  // `hosts`: of each rank a number that stands for its host.
  static HostLayout of(const std::vector<int>& hosts) {
    HostLayout layout;
    std::vector<int> seen;
    for (const int host : hosts) {
      const auto found = std::find(seen.begin(), seen.end(), host);
      if (found == seen.end()) layout.ranks_of.emplace_back();
      const auto number = static_cast<size_t>(found - seen.begin());
      if (found == seen.end()) seen.push_back(host);
      layout.ranks_of[number].push_back(static_cast<int>(layout.host_of.size()));
      layout.host_of.push_back(static_cast<int>(number));
    }
    return layout;
  }
  // Each `ranks_per_host` ranks in a row on one host.
  static HostLayout of_rows(int size, int ranks_per_host) {
    std::vector<int> hosts;
    for (int r = 0; r < size; ++r) hosts.push_back(r / ranks_per_host);
    return of(hosts);
  }

  int hosts() const { return static_cast<int>(ranks_of.size()); }
  const std::vector<int>& on(int host) const { return ranks_of[static_cast<size_t>(host)]; }
  int host(int rank) const { return host_of[static_cast<size_t>(rank)]; }
  int most_on_a_host() const {
    size_t most = 0;
    for (const std::vector<int>& ranks : ranks_of) most = std::max(most, ranks.size());
    return static_cast<int>(most);
  }
  // Several hosts, and one at least has several ranks.
  bool has_levels() const { return hosts() > 1 && hosts() < static_cast<int>(host_of.size()); }
  // The ranks of each host follow each other.
  bool is_in_rows() const { return std::is_sorted(host_of.begin(), host_of.end()); }
  // Of a byte that each rank has for all, in parts for each, how many leave the host that most
  // leave, where each rank sends to each other.
  double most_leaving() const {
    double most = 0;
    const auto all = static_cast<double>(host_of.size());
    for (const std::vector<int>& ranks : ranks_of) {
      const auto own = static_cast<double>(ranks.size());
      most = std::max(most, own * (all - own) / all);
    }
    return most;
  }
  // Of the ranks of a host, the one that does work number i of what they share.
  int worker(int host, int i) const {
    const std::vector<int>& ranks = on(host);
    return ranks[static_cast<size_t>(i) % ranks.size()];
  }
  // Who on a host stands for a rank: itself, where that is its own.
  int proxy(int host, int rank) const {
    const std::vector<int>& own = on(this->host(rank));
    return worker(host, static_cast<int>(std::find(own.begin(), own.end(), rank) - own.begin()));
  }
};

}  // namespace hekla::process_group
