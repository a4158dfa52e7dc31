// SPDX-License-Identifier: Apache-2.0
// A rank of collectives.py: hekla::process_group. After the arguments that all have: shared_memory,
// ranks_per_host, and sizes of shared memory that are to be forced.
#include <cstring>
#include <memory>
#include <span>

#include "benchmarks/collectives_sides.h"
#include "runtime/process_group/process_group.h"
#include "runtime/rendezvous/store_key_values.h"

namespace hekla::benchmarks {
namespace {

void must(const Status& status) {
  if (!status.ok()) give_up(status.to_string());
}

int run(int count, char** words, const std::string& memory) {
  const Arguments arguments = arguments_of(words);
  auto store = rendezvous::open_store("file:" + arguments.folder);
  if (!store.ok()) give_up(store.status().to_string());
  process_group::Options options;
  options.shared_memory = memory;
  const auto word = [&](int i) { return i < count ? words[i] : nullptr; };
  if (word(7) != nullptr) options.ranks_per_host = std::atoi(word(7));
  if (word(9) != nullptr) {
    options.shared_flat_bytes = std::atoll(word(8));
    options.shared_slot_bytes = std::atoll(word(9));
  }
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
  return hekla::benchmarks::run(count, words, count > 6 ? words[6] : "auto");
}
