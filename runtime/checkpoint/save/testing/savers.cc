// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/save/testing/savers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/base/io/file.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/recovery.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/restore/step_reader.h"
#include "runtime/rendezvous/store.h"

namespace hekla::checkpoint::testing {

SaverOptions small_options() {
  SaverOptions options;
  options.writer.threads = 2;
  options.writer.item_bytes = int64_t{1} << 20;
  options.writer.staging_bytes = int64_t{3} << 20;
  options.commit.plan_deadline = std::chrono::seconds(30);
  options.commit.allocate_deadline = std::chrono::seconds(30);
  options.commit.write_deadline = std::chrono::seconds(30);
  return options;
}

Status ElsewhereSource::read(int64_t offset, std::span<std::byte> into, std::stop_token) {
  if (!into.empty()) std::memcpy(into.data(), array_.data() + offset, into.size());
  return ok_status();
}

std::shared_ptr<ArraySource> mutable_copy(const HostArray& array) {
  const auto bytes =
      std::make_shared<std::vector<std::byte>>(array.bytes().begin(), array.bytes().end());
  return mutable_source(bytes->data(), static_cast<int64_t>(bytes->size()), bytes);
}

checkpoint::State state_of(const State& values, int rank, int world, const MakeSource& make) {
  checkpoint::State state;
  for (size_t t = 0; t < values.tensors.size(); ++t) {
    StateTensor tensor;
    tensor.info = values.tensors[t];
    const Sharding sharding = *parse_sharding(tensor.info.spec);
    std::vector<int32_t> rank_of_position(static_cast<size_t>(device_count(sharding.mesh)));
    for (size_t i = 0; i < rank_of_position.size(); ++i) {
      rank_of_position[i] = static_cast<int32_t>(i) % world;
    }
    tensor.boxes = *held_boxes(sharding, tensor.info.shape, rank_of_position);
    for (const HeldBox& held : *tensor.boxes) {
      if (std::find(held.ranks.begin(), held.ranks.end(), rank) == held.ranks.end()) continue;
      tensor.arrays.push_back({held.box, {}, make(part_of(values.values[t], held.box))});
    }
    state.tensors.push_back(std::move(tensor));
  }
  return state;
}

void expect_step(Io& io, const std::string& root, int64_t step, const State& values) {
  StepReaderOptions options;
  options.verify = Verify::kFull;
  const auto reader = StepReader::open(io, join_path(root, step_name(step)), options);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  ASSERT_EQ((*reader)->tensors().size(), values.tensors.size());
  for (size_t t = 0; t < values.tensors.size(); ++t) {
    const auto tensor = (*reader)->tensor(values.tensors[t].name);
    ASSERT_TRUE(tensor.ok());
    const auto array = tensor->read();
    ASSERT_TRUE(array.ok()) << array.status().to_string();
    EXPECT_TRUE(array->identical(values.values[t])) << values.tensors[t].name;
  }
}

void save(Saver& saver, int64_t step, checkpoint::State state) {
  const auto handle = saver.save(step, std::move(state));
  ASSERT_TRUE(handle.ok()) << handle.status().to_string();
  const Status status = (*handle)->wait();
  ASSERT_TRUE(status.ok()) << status.to_string();
  const SaveProgress progress = (*handle)->progress();
  EXPECT_EQ(progress.bytes_done, progress.bytes_total);
  EXPECT_EQ(saver.pool().staging().in_use(), 0);
}

void with_savers(Io& io, const std::string& root, int world, const SaverOptions& options,
                 const std::function<void(int rank, Saver&)>& body) {
  const auto store = std::make_shared<rendezvous::LocalStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const auto group =
          rendezvous::Group::form(store, rank, world, Deadline::in(std::chrono::seconds(30)));
      ASSERT_TRUE(group.ok());
      const auto info = open_root(io, root);
      ASSERT_TRUE(info.ok()) << info.status().to_string();
      const auto saver = Saver::create(io, **group, root, info->run_uuid, options);
      ASSERT_TRUE(saver.ok());
      body(rank, **saver);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

PowerCuts check_power_cuts(const MemoryIo& disk, const std::string& root, int64_t from,
                           int64_t every, const State& first, const State& second) {
  PowerCuts cuts;
  int64_t seen = 0;
  const int64_t last = disk.journal_size();
  for_each_power_cut(disk, from, 1, 9, [&](const PowerCutPoint& point, MemoryIo& after) {
    // Each is verified as a whole, which takes its time.
    if (++seen % every != 0 && point.changes < last - 3) return true;
    EXPECT_TRUE(recover(after, root).ok());
    const int64_t newest = *newest_step(after, root);
    EXPECT_TRUE(newest == 1 || newest == 2);
    (newest == 1 ? cuts.old_steps : cuts.new_steps) += 1;
    expect_step(after, root, newest, newest == 1 ? first : second);
    return !::testing::Test::HasFailure();
  });
  return cuts;
}

}  // namespace hekla::checkpoint::testing
