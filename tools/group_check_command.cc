// SPDX-License-Identifier: Apache-2.0
#include "tools/group_check_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "runtime/collectives/carrier_library.h"
#include "runtime/collectives/process_transport.h"
#include "runtime/process_group/backend_registry.h"
#include "runtime/process_group/conformance/conformance.h"
#include "tools/group_check_ranks.h"
#include "tools/group_fault_check.h"
#include "tools/run/exit_codes.h"

namespace hekla::tools {
namespace {

using Json = nlohmann::json;

// What a rank writes: {"checks": N, "problems": [{"name", "problem"}]}, or {"error"}.
int run_rank(const GroupCheckArguments& arguments) {
  const auto say = [](const Json& json) {
    fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
    const bool is_well = json.contains("problems") && json["problems"].empty();
    return is_well ? 0 : kCheckFailed;
  };
  process_group::ConformanceOptions wanted;
  if (!arguments.sizes.empty()) wanted.sizes = arguments.sizes;
  if (arguments.large) wanted.sizes.push_back(int64_t{64} << 20);
  for (const std::string& name : arguments.dtypes) {
    wanted.dtypes.push_back(dtype_from_name(name).value_or(DType::kInvalid));
  }
  wanted.filter = arguments.filter;
  wanted.timeout = std::chrono::milliseconds(static_cast<int64_t>(arguments.timeout * 1000));
  const auto world = join_group(arguments);
  if (!world.ok()) return say({{"error", world.status().to_string()}});
  Json problems = Json::array();
  const auto results = process_group::run_conformance(**world, wanted, nullptr);
  for (const auto& [name, problem] : results) {
    if (!problem.empty()) problems.push_back({{"name", name}, {"problem", problem}});
  }
  return say({{"checks", results.size()}, {"problems", problems}});
}

// One line of the table.
struct Row {
  Part part;
  size_t checks = 0;  // of all ranks
  std::vector<std::string> problems;
  double seconds = 0;
};

Json json_of(const Row& row) {
  Json json = {{"transport", row.part.transport}, {"shared_memory", row.part.shared_memory},
               {"ranks", row.part.ranks},         {"checks", row.checks},
               {"problems", row.problems},        {"seconds", std::round(row.seconds * 10) / 10}};
  if (!row.part.dtype.empty()) json["dtype"] = row.part.dtype;
  return json;
}

// What a recorded part must have been run with to stand for one that is wanted.
std::string conditions(const GroupCheckArguments& arguments) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {}", fmt::join(arguments.sizes, ","),
                     arguments.large, arguments.filter, arguments.flat_bytes,
                     arguments.segment_bytes, arguments.early_pieces, arguments.direct_receive,
                     arguments.shared_flat_bytes, arguments.shared_slot_bytes,
                     arguments.ranks_per_host);
}

// Parts without problems of a file that earlier runs have written. A last line that was cut off,
// by a run that was killed, is none, and is ended.
std::vector<Row> recorded(const GroupCheckArguments& arguments) {
  std::vector<Row> rows;
  std::ifstream file(arguments.record);
  for (std::string line; std::getline(file, line);) {
    if (file.eof()) std::ofstream(arguments.record, std::ios::app) << '\n';
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object() || json.value("of", "") != conditions(arguments)) continue;
    if (json.contains("problems") && !json["problems"].empty()) continue;
    rows.push_back({{json.value("transport", ""), json.value("shared_memory", ""),
                     json.value("ranks", 0), json.value("dtype", "")},
                    json.value("checks", size_t{0}),
                    {},
                    json.value("seconds", 0.0)});
  }
  return rows;
}

// Whether it is in the file.
bool record(const GroupCheckArguments& arguments, const Row& row) {
  Json json = json_of(row);
  json["of"] = conditions(arguments);
  std::ofstream file(arguments.record, std::ios::app);
  file << json.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  return file.good();
}

void read_rank(const ChildResult& child, int rank, Row& row) {
  const Json json = Json::parse(child.output, nullptr, false);
  const auto complain = [&](const std::string& text) {
    row.problems.push_back(fmt::format("rank {}: {}", rank, text));
  };
  if (child.timed_out) return complain("did not end in time");
  if (child.signal != 0) return complain(fmt::format("died of signal {}", child.signal));
  if (!json.is_object()) return complain("said nothing that could be read: " + child.errors);
  if (json.contains("error")) return complain(json["error"].get<std::string>());
  row.checks += json["checks"].get<size_t>();
  for (const Json& problem : json["problems"]) {
    complain(problem["name"].get<std::string>() + ": " + problem["problem"].get<std::string>());
  }
}

Row run_part(const GroupCheckArguments& arguments, const Part& part) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<ChildResult> results = run_ranks(arguments, part);
  Row row{part, 0, {}};
  for (int rank = 0; rank < part.ranks; ++rank) {
    read_rank(results[static_cast<size_t>(rank)], rank, row);
  }
  row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return row;
}

// `left`: parts after it.
void print_row(std::FILE* table, const Row& row, bool is_known, size_t left) {
  constexpr size_t kShown = 20;
  const Part& part = row.part;
  std::string end =
      row.problems.empty() ? "all right" : fmt::format("{} problems", row.problems.size());
  if (!part.dtype.empty()) {
    end += fmt::format("  {:.1f} s{}, {} parts left", row.seconds, is_known ? " before" : "", left);
  }
  fmt::print(table, "{:<5} {:<8} {} rank{} {}{}  {:>7} results  {}\n", part.transport,
             part.shared_memory == "off" ? "messages" : "memory", part.ranks,
             part.ranks == 1 ? " " : "s", part.dtype.empty() ? "" : " ",
             part.dtype.empty() ? "" : fmt::format("{:<15}", part.dtype), row.checks, end);
  for (size_t i = 0; i < row.problems.size() && i < kShown; ++i) {
    fmt::print(table, "  {}\n", row.problems[i]);
  }
  std::fflush(table);
}

int group_check(const GroupCheckArguments& arguments) {
  for (const std::string& name : arguments.dtypes) {
    if (dtype_from_name(name)) continue;
    fmt::print(stderr, "hekla group-check: no dtype \"{}\": names are those of StableHLO\n", name);
    return kBadInput;
  }
  if (!arguments.fault.empty()) return run_fault_rank(arguments);
  if (arguments.rank >= 0 || !arguments.init.empty()) return run_rank(arguments);
  std::vector<std::string> transports = arguments.transports;
  if (const Status libraries = process_group::backend_libraries(); !libraries.ok()) {
    fmt::print(stderr, "hekla group-check: {}\n", libraries.message());
    // To check all is to check those as well.
    if (transports.empty()) return kBadInput;
  }
  if (transports.empty()) {
    transports = {"shm"};
    using collectives::CarrierKind;
    for (const auto& [name, kind] :
         {std::pair("gloo", CarrierKind::kGloo), std::pair("ucx", CarrierKind::kUcx)}) {
      const Status carrier = collectives::carrier_table(kind).status();
      if (carrier.ok()) transports.emplace_back(name);
      // UCX is an option of the build.
      if (!carrier.ok() && kind == CarrierKind::kGloo) {
        fmt::print(stderr, "{} is not checked: {}\n", name, carrier.message());
      }
    }
    for (const std::string& name : process_group::backend_names()) {
      if (std::ranges::find(collectives::kProcessEngines, name) ==
          collectives::kProcessEngines.end()) {
        transports.push_back(name);
      }
    }
  }
  for (const std::string& name : transports) {
    if (const Status found = process_group::find_backend(name).status(); !found.ok()) {
      fmt::print(stderr, "hekla group-check: {}\n", found.message());
      return kBadInput;
    }
  }
  std::vector<std::string> dtypes = {""};
  if (!arguments.record.empty()) {
    dtypes = arguments.dtypes;
    for (int i = 1; arguments.dtypes.empty() && i < kDTypeCount; ++i) {
      dtypes.emplace_back(dtype_name(static_cast<DType>(i)));
    }
  }
  std::vector<Part> parts;
  for (const std::string& transport : transports) {
    std::vector<std::string> memory = arguments.shared_memory;
    // Over others what goes between hosts; what is asked for is done.
    if (memory.empty()) memory = {"off"};
    const auto backend = process_group::find_backend(transport);
    const bool has_memory = backend.ok() && (backend->name == "shm" || backend->name == "auto");
    if (arguments.shared_memory.empty() && has_memory) memory = {"on", "off"};
    for (const std::string& one : memory) {
      for (const int ranks : arguments.ranks) {
        for (const std::string& dtype : dtypes) parts.push_back({transport, one, ranks, dtype});
      }
    }
  }
  if (arguments.faults) return check_faults(arguments, parts);
  const std::vector<Row> done = recorded(arguments);
  size_t checks = 0, problems = 0;
  Json rows = Json::array();
  // With --json the table is progress.
  std::FILE* const table = arguments.json ? stderr : stdout;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto known = std::find_if(done.begin(), done.end(),
                                    [&](const Row& row) { return row.part == parts[i]; });
    const bool is_known = known != done.end();
    const Row row = is_known ? *known : run_part(arguments, parts[i]);
    checks += row.checks;
    problems += row.problems.size();
    rows.push_back(json_of(row));
    if (!is_known && !arguments.record.empty() && !record(arguments, row)) {
      fmt::print(stderr, "hekla group-check: {} cannot be written\n", arguments.record);
      return kBadInput;
    }
    if (!arguments.json || !arguments.record.empty()) {
      print_row(table, row, is_known, arguments.record.empty() ? 0 : parts.size() - 1 - i);
    }
  }
  if (arguments.json) {
    const Json all = {{"checks", checks}, {"problems", problems}, {"runs", rows}};
    fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{} results, {} problems\n", checks, problems);
  }
  if (checks == 0 && problems == 0) {
    fmt::print(stderr, "hekla group-check: no check's name contains \"{}\"\n", arguments.filter);
    return kBadInput;
  }
  return problems == 0 ? 0 : kCheckFailed;
}

}  // namespace

void add_group_check_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<GroupCheckArguments>();
  CLI::App* command = app.add_subcommand(
      "group-check",
      "Check every operation of process groups by types, sizes and groups, over each transport");
  command->add_option("--ranks", arguments->ranks, "numbers of processes; 1 to 8 when left out")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  command
      ->add_option(
          "--transport", arguments->transports,
          "shm, gloo, or another backend, see HEKLA_GROUP_BACKENDS; all that there are when "
          "left out")
      ->delimiter(',');
  command
      ->add_option("--sizes", arguments->sizes,
                   "bytes of the arrays; 0,1,7,4096,1048576 when left out")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--large,--full", arguments->large,
                    "64 MiB as well: with nothing else left out or chosen the whole matrix, hours "
                    "of a small machine");
  command->add_option("--dtype", arguments->dtypes, "StableHLO's names; all when left out");
  command->add_option("--filter", arguments->filter, "only checks whose names contain this");
  command->add_option("--timeout", arguments->timeout, "seconds for each call")
      ->check(CLI::PositiveNumber);
  command->add_option("--limit", arguments->limit, "seconds for each number of processes")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--flat-bytes", arguments->flat_bytes,
                   "parts of at most this size travel with the call")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--segment-bytes", arguments->segment_bytes, "larger ones travel in such pieces")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--early-pieces", arguments->early_pieces,
                   "so many of them are sent before the other ranks have come to the call")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--direct-receive", arguments->direct_receive,
                   "on: over networks pieces come straight into outputs where they can")
      ->check(CLI::IsMember({"on", "off"}));
  command
      ->add_option("--shared-memory", arguments->shared_memory,
                   "on: collectives go through memory that the ranks share; off: by messages; both "
                   "when left out, over Gloo messages alone")
      ->delimiter(',')
      ->check(CLI::IsMember({"auto", "on", "off"}));
  command
      ->add_option("--shared-flat-bytes", arguments->shared_flat_bytes,
                   "arrays of at most this size come with the call in shared memory")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--shared-slot-bytes", arguments->shared_slot_bytes,
                   "larger ones go through it in such pieces; -1: as the number of ranks says")
      ->check(CLI::PositiveNumber | CLI::IsMember({-1}));
  command->add_option(
      "--ranks-per-host", arguments->ranks_per_host,
      "by messages as if every so many ranks in a row had a host of their own: "
      "larger arrays cross from host to host once; 0: all ranks send to each other");
  command->add_flag("--json", arguments->json, "print one JSON document");
  command->add_option("--record", arguments->record,
                      "run each dtype by itself, which tells how far it is, and add a line to this "
                      "file for each part that is done; parts that it has as right are not run "
                      "again");
  command->add_option("--init", arguments->init,
                      "be one rank of a run that others have started: env://, tcp://HOST:PORT, "
                      "file://DIR; over the first transport, prints JSON");
  command
      ->add_flag(
          "--faults", arguments->faults,
          "instead of results: what ranks hear, and how soon, of one that is killed, ends, is "
          "stopped, late, or calls something else; --sizes is 64,4194304 when left out")
      ->excludes("--dtype", "--record", "--init");
  command->add_option("--rank", arguments->rank)->group("");
  command->add_option("--fault", arguments->fault)->group("");
  command->add_option("--store", arguments->store)->group("");
  command->callback([arguments, &exit_code] { exit_code = group_check(*arguments); });
}

}  // namespace hekla::tools
