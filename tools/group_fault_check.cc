// SPDX-License-Identifier: Apache-2.0
#include "tools/group_fault_check.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/process_group/conformance/faults.h"
#include "tools/run/exit_codes.h"

namespace hekla::tools {
namespace {

using Json = nlohmann::json;
using process_group::FaultCheck;

constexpr size_t kVictim = 1;

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// What came of a check.
struct Outcome {
  Part part;
  FaultCheck check;
  double most_ms = 0;  // from the fault to the last rank's error
  std::vector<std::string> problems;
};

Json json_of(const Outcome& outcome) {
  const Part& part = outcome.part;
  return {{"transport", part.transport},
          {"shared_memory", part.shared_memory},
          {"ranks", part.ranks},
          {"check", outcome.check.name()},
          {"milliseconds", outcome.most_ms},
          {"problems", outcome.problems}};
}

// The lines that a rank has printed, by what they have.
std::optional<Json> line_with(const ChildResult& child, const char* what) {
  size_t at = 0;
  while (at < child.output.size()) {
    const size_t end = std::min(child.output.find('\n', at), child.output.size());
    Json json = Json::parse(child.output.substr(at, end - at), nullptr, false);
    if (json.is_object() && json.contains(what)) return json;
    at = end + 1;
  }
  return {};
}

Outcome run(const GroupCheckArguments& arguments, Part part, const FaultCheck& check) {
  part.fault = check.name();
  const std::vector<ChildResult> ranks = run_ranks(arguments, part);
  Outcome outcome{part, check, 0, {}};
  const auto complain = [&](size_t rank, const std::string& text) {
    outcome.problems.push_back(fmt::format("rank {}: {}", rank, text));
  };
  const std::optional<Json> happens = line_with(ranks[kVictim], "happens");
  if (!happens) complain(kVictim, "nothing happened to it: " + ranks[kVictim].output);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const ChildResult& child = ranks[rank];
    if (child.timed_out) {
      complain(rank, "did not end in time");
      continue;
    }
    if (rank == kVictim && check.ends_victim()) continue;
    const std::optional<Json> heard = line_with(child, "heard");
    if (child.signal != 0 || !heard) {
      complain(rank, child.signal != 0 ? fmt::format("died of signal {}", child.signal)
                                       : "said nothing: " + child.output + child.errors);
      continue;
    }
    const auto problem = (*heard)["problem"].get<std::string>();
    if (!problem.empty()) complain(rank, problem + ": " + (*heard)["heard"].get<std::string>());
    if (!happens) continue;
    const auto since = (*heard)["at"].get<int64_t>() - (*happens)["happens"].get<int64_t>();
    outcome.most_ms = std::max(outcome.most_ms, static_cast<double>(since) * 1e-6);
  }
  return outcome;
}

// Of one fault by one way.
void print_rows(std::FILE* table, const std::vector<Outcome>& outcomes) {
  if (outcomes.empty()) return;
  std::vector<std::pair<double, std::string>> times;
  size_t problems = 0;
  for (const Outcome& one : outcomes) {
    times.emplace_back(one.most_ms, fmt::format("{}/{}", one.check.operation, one.check.bytes));
    problems += one.problems.empty() ? 0 : 1;
  }
  std::sort(times.begin(), times.end());
  const Part& part = outcomes[0].part;
  fmt::print(
      table,
      "{:<5} {:<8} {} ranks  {:<9} {:>3} checks  median {:>7.1f} ms  most {:>7.1f} ms ({})  {}\n",
      part.transport, part.shared_memory == "off" ? "messages" : "memory", part.ranks,
      outcomes[0].check.fault, times.size(), times[times.size() / 2].first, times.back().first,
      times.back().second, problems == 0 ? "all right" : fmt::format("{} wrong", problems));
  for (const Outcome& one : outcomes) {
    for (const std::string& problem : one.problems) {
      fmt::print(table, "  {}: {}\n", one.check.name(), problem);
    }
  }
  std::fflush(table);
}

}  // namespace

int run_fault_rank(const GroupCheckArguments& arguments) {
  const auto say = [](const Json& json) {
    fmt::print("{}\n", text_of(json));
    std::fflush(stdout);
  };
  const auto fail = [&](const Status& why) {
    say({{"heard", why.to_string()}, {"problem", "no check was run"}, {"at", 0}});
    return kCheckFailed;
  };
  const auto check = FaultCheck::read(arguments.fault);
  if (!check.ok()) return fail(check.status());
  const auto world = join_group(arguments);
  if (!world.ok()) return fail(world.status());
  const process_group::FaultReport report =
      process_group::run_fault_check(**world, *check, [&](int64_t at_ns) {
        say({{"happens", at_ns}});
      });
  say({{"heard", report.heard}, {"problem", report.problem}, {"at", report.at_ns}});
  return report.problem.empty() ? 0 : kCheckFailed;
}

int check_faults(const GroupCheckArguments& arguments, const std::vector<Part>& parts) {
  std::vector<int64_t> sizes = arguments.sizes;
  if (sizes.empty()) sizes = {64, 4 << 20};
  std::FILE* const table = arguments.json ? stderr : stdout;
  size_t checks = 0, wrong = 0;
  Json rows = Json::array();
  for (const Part& part : parts) {
    if (part.ranks < 2) continue;
    std::vector<Outcome> of_fault;
    for (const FaultCheck& check : process_group::fault_checks(sizes)) {
      if (check.name().find(arguments.filter) == std::string::npos) continue;
      if (!of_fault.empty() && of_fault.back().check.fault != check.fault) {
        print_rows(table, std::exchange(of_fault, {}));
      }
      of_fault.push_back(run(arguments, part, check));
      ++checks;
      if (!of_fault.back().problems.empty()) ++wrong;
      rows.push_back(json_of(of_fault.back()));
    }
    print_rows(table, of_fault);
  }
  if (arguments.json) {
    const Json all = {{"checks", checks}, {"wrong", wrong}, {"runs", rows}};
    fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{} checks, {} wrong\n", checks, wrong);
  }
  if (checks == 0) {
    fmt::print(stderr, "hekla group-check: no check's name contains \"{}\"\n", arguments.filter);
    return kBadInput;
  }
  return wrong == 0 ? 0 : kCheckFailed;
}

}  // namespace hekla::tools
