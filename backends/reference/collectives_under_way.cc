// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/collectives_under_way.h"

#include <system_error>
#include <utility>
#include <vector>

#include "backends/reference/device_exchange.h"
#include "backends/reference/interpreter.h"
#include "backends/reference/memory_arrays.h"

namespace hekla::reference {

struct CollectivesUnderWay::Collective {
  Collective(const ir::Module& program, std::span<const std::span<std::byte>> memory,
             EvaluateOptions all_options)
      : options(std::move(all_options)),
        interpreter(program, options),
        results(memory.begin(), memory.end()) {}

  int64_t device() const {
    return options.replica_id * options.exchange->grid().partitions + options.partition_id;
  }

  const EvaluateOptions options;
  Interpreter interpreter;  // of the starting thread first, then of the lane
  Frame frame;
  Collectives::Pending pending;
  const std::vector<std::span<std::byte>> results;
  const CompletionRef done = Completion::make();
};

CollectivesUnderWay::~CollectivesUnderWay() {
  for (const auto& [number, one] : all_) {
    if (!one->done->is_done()) one->options.exchange->call_off_lane(one->device());
  }
  for (const auto& [number, one] : all_) static_cast<void>(one->done->await());
}

Status CollectivesUnderWay::start(int32_t number, const ir::Module& program,
                                  std::span<const std::span<std::byte>> arguments,
                                  std::span<const std::span<std::byte>> results,
                                  EvaluateOptions options) {
  if (all_.contains(number)) return internal_error("collective {} is under way already", number);
  HEKLA_ASSIGN_OR_RETURN(std::vector<HostArray> arrays, arrays_on(program, arguments, results));
  std::vector<Datum> data;
  for (HostArray& array : arrays) {
    extend_narrow_integers(array);
    data.emplace_back(std::move(array));
  }
  options.result_memory.clear();
  auto one = std::make_shared<Collective>(program, results, std::move(options));
  HEKLA_ASSIGN_OR_RETURN(one->pending, one->interpreter.begin_collective(
                                           *program.entry(), std::move(data), one->frame));
  if (lane_ == nullptr || one->options.exchange == nullptr) {
    one->done->complete(finish(*one, /*is_on_lane=*/false));
  } else {
    try {
      lane_->post([one] { one->done->complete(finish(*one, /*is_on_lane=*/true)); });
    } catch (const std::system_error& error) {
      return resource_exhausted("no thread for a device's collectives: {}", error.what());
    }
  }
  all_.emplace(number, std::move(one));
  return ok_status();
}

Status CollectivesUnderWay::finish(Collective& collective, bool is_on_lane) {
  HEKLA_ASSIGN_OR_RETURN(
      std::vector<Datum> values,
      collective.interpreter.finish_collective(
          collective.pending, collective.frame,
          is_on_lane ? DeviceExchange::Thread::kLane : DeviceExchange::Thread::kMain));
  std::vector<HostArray> arrays;
  for (Datum& value : values) arrays.push_back(std::move(value.array));
  return copy_out(arrays, collective.results);
}

Status CollectivesUnderWay::await(int32_t number) {
  const auto it = all_.find(number);
  if (it == all_.end()) return internal_error("collective {} is not under way", number);
  const std::shared_ptr<Collective> one = std::move(it->second);
  all_.erase(it);
  if (one->done->is_done()) return one->done->status();
  DeviceExchange& exchange = *one->options.exchange;
  exchange.set_waits_for_lane(one->device(), true);
  Status status = one->done->await();
  exchange.set_waits_for_lane(one->device(), false);
  return status;
}

}  // namespace hekla::reference
