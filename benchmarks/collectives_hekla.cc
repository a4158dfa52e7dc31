// SPDX-License-Identifier: Apache-2.0
// A rank of collectives.py: hekla::process_group. After the arguments that all have: options of the
// group, NAME=VALUE.
#include <fmt/core.h>

#include <map>
#include <memory>
#include <string>

#include "benchmarks/collectives_sides.h"
#include "runtime/process_group/process_group.h"
#include "runtime/rendezvous/store_key_values.h"

namespace hekla::benchmarks {
namespace {

void must(const Status& status) {
  if (!status.ok()) give_up(status.to_string());
}

void set(process_group::Options& options, const std::string& word) {
  const std::map<std::string, int64_t*> numbers = {
      {"early_pieces", &options.early_pieces},
      {"flat_bytes", &options.flat_bytes},
      {"segment_bytes", &options.segment_bytes},
      {"shared_flat_bytes", &options.shared_flat_bytes},
      {"shared_slot_bytes", &options.shared_slot_bytes},
      {"shared_stream_bytes", &options.shared_stream_bytes},
      {"stream_piece_bytes", &options.stream_piece_bytes}};
  const size_t at = word.find('=');
  const std::string name = word.substr(0, at);
  const std::string value = at == std::string::npos ? "" : word.substr(at + 1);
  if (name == "shared_memory") {
    options.shared_memory = value;
  } else if (name == "direct_receive") {
    options.direct_receive = value == "on";
  } else if (name == "ranks_per_host") {
    options.ranks_per_host = std::atoi(value.c_str());
  } else if (const auto found = numbers.find(name); found != numbers.end()) {
    *found->second = std::atoll(value.c_str());
  } else {
    give_up(fmt::format("no option {} of a group", word));
  }
}

int run(int count, char** words) {
  const Arguments arguments = arguments_of(words);
  auto store = rendezvous::open_store("file:" + arguments.folder);
  if (!store.ok()) give_up(store.status().to_string());
  process_group::Options options;
  for (int i = 6; i < count; ++i) set(options, words[i]);
  auto made = process_group::ProcessGroup::create(
      std::make_shared<rendezvous::StoreKeyValues>(*store, "bench/"), arguments.rank,
      arguments.size, options);
  if (!made.ok()) give_up(made.status().to_string());
  process_group::ProcessGroup& group = **made;
  // The arrays stay for as long as the group, so it sends from them as it does from Python's.
  const auto kept = [](const float* data) {
    return std::shared_ptr<const void>(std::shared_ptr<void>(), data);
  };
  const auto array = [&](float* data, int64_t count) {
    return process_group::Elements{data, DType::kF32, count, kept(data)};
  };
  const auto input = [&](const float* data, int64_t count) {
    return process_group::ConstElements(data, DType::kF32, count, kept(data));
  };
  const std::string& op = arguments.operation;
  const int64_t size = arguments.size, rank = arguments.rank;
  const Call call = [&](float* out, const float* in, int64_t count) {
    const int64_t part = count / size;
    if (op == "all_reduce") {
      must(group.all_reduce(array(out, count), input(in, count)).wait());
    } else if (op == "all_gather") {
      must(group.all_gather(array(out, part * size), input(in + rank * part, part)).wait());
    } else if (op == "reduce_scatter") {
      must(group.reduce_scatter(array(out, part), input(in, part * size)).wait());
    } else if (op == "broadcast") {
      must(group.broadcast(array(out, count), 0).wait());
    } else {
      must(group.barrier().wait());
    }
  };
  measure(arguments, call, [&](int64_t own) {
    must(group.broadcast({&own, DType::kI64, 1}, 0).wait());
    return own;
  });
  return 0;
}

}  // namespace
}  // namespace hekla::benchmarks

int main(int count, char** words) {
  if (count < 6) return 2;
  return hekla::benchmarks::run(count, words);
}
