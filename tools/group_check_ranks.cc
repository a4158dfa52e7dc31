// SPDX-License-Identifier: Apache-2.0
#include "tools/group_check_ranks.h"

#include <filesystem>
#include <thread>
#include <utility>

#include "runtime/base/host.h"
#include "runtime/collectives/process_transport.h"
#include "runtime/process_group/backend_registry.h"
#include "runtime/process_group/init.h"
#include "runtime/rendezvous/store_key_values.h"

namespace hekla::tools {

Result<std::shared_ptr<process_group::ProcessGroup>> join_group(
    const GroupCheckArguments& arguments) {
  process_group::Options options;
  options.engine = arguments.transports.empty() ? "auto" : arguments.transports[0];
  const auto backend = process_group::find_backend(options.engine);
  if (backend.ok() && collectives::is_network_alone(backend->name)) options.address = "lo";
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(arguments.timeout * 1000));
  options.flat_bytes = arguments.flat_bytes;
  options.segment_bytes = arguments.segment_bytes;
  options.early_pieces = arguments.early_pieces;
  options.direct_receive = arguments.direct_receive == "on";
  if (!arguments.shared_memory.empty()) options.shared_memory = arguments.shared_memory[0];
  options.shared_flat_bytes = arguments.shared_flat_bytes;
  options.shared_slot_bytes = arguments.shared_slot_bytes;
  options.ranks_per_host = arguments.ranks_per_host;
  if (!arguments.init.empty()) return process_group::init_process_group(arguments.init, options);
  HEKLA_ASSIGN_OR_RETURN(auto store, rendezvous::open_store(arguments.store));
  return process_group::ProcessGroup::create(
      std::make_shared<rendezvous::StoreKeyValues>(std::move(store), "group-check/"),
      arguments.rank, arguments.ranks[0], options);
}

std::vector<ChildResult> run_ranks(const GroupCheckArguments& arguments, const Part& part) {
  const int ranks = part.ranks;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("hekla-group-check-" + random_hex(8));
  std::vector<std::string> words = {"/proc/self/exe", "group-check"};
  const auto add = [&](const char* name, std::string value) {
    words.insert(words.end(), {name, std::move(value)});
  };
  add("--ranks", std::to_string(ranks));
  add("--transport", part.transport);
  add("--shared-memory", part.shared_memory);
  add("--store", "file:" + folder.string());
  add("--filter", arguments.filter);
  add("--timeout", std::to_string(arguments.timeout));
  add("--flat-bytes", std::to_string(arguments.flat_bytes));
  add("--segment-bytes", std::to_string(arguments.segment_bytes));
  add("--early-pieces", std::to_string(arguments.early_pieces));
  add("--direct-receive", arguments.direct_receive);
  add("--shared-flat-bytes", std::to_string(arguments.shared_flat_bytes));
  add("--shared-slot-bytes", std::to_string(arguments.shared_slot_bytes));
  add("--ranks-per-host", std::to_string(arguments.ranks_per_host));
  if (!part.fault.empty()) add("--fault", part.fault);
  if (arguments.large) words.push_back("--large");
  for (const int64_t size : arguments.sizes) {
    words.insert(words.end(), {"--sizes", std::to_string(size)});
  }
  std::vector<std::string> dtypes = arguments.dtypes;
  if (!part.dtype.empty()) dtypes = {part.dtype};
  for (const std::string& dtype : dtypes) words.insert(words.end(), {"--dtype", dtype});
  std::vector<ChildResult> results(static_cast<size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        std::vector<std::string> own = words;
        own.insert(own.end(), {"--rank", std::to_string(rank)});
        const auto limit = std::chrono::milliseconds(static_cast<int64_t>(arguments.limit * 1000));
        results[static_cast<size_t>(rank)] = run_child(own, {}, limit);
      });
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return results;
}

}  // namespace hekla::tools
