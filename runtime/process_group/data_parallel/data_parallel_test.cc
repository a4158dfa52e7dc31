// SPDX-License-Identifier: Apache-2.0
// Training of one model by several ranks, processes and threads, against one that has the whole
// batch; what one rank does wrong.
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "runtime/process_group/data_parallel/gradient_buckets.h"
#include "runtime/process_group/data_parallel/sharded_optimizer.h"
#include "runtime/process_group/testing/ranks.h"

namespace hekla::process_group {
namespace {

bool says(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string::npos;
}

// A network of one hidden layer, in floats: w1[kHidden, kIn], b1, w2[kHidden], b2, and one
// parameter that has no elements.
constexpr int kIn = 5, kHidden = 7, kBatch = 24, kSteps = 8;
constexpr std::array<int64_t, 5> kCounts = {kHidden * kIn, kHidden, 0, kHidden, 1};
using Arrays = std::vector<std::vector<float>>;

std::vector<Parameter> parameters() {
  std::vector<Parameter> all;
  for (size_t i = 0; i < kCounts.size(); ++i) {
    all.push_back({"p" + std::to_string(i), DType::kF32, kCounts[i]});
  }
  return all;
}

float noise(uint32_t seed) {
  seed = (seed + 1) * 2654435761U;
  seed ^= seed >> 15;
  return static_cast<float>(static_cast<int32_t>(seed * 2246822519U)) * 0x1p-32F;
}

Arrays initial() {
  Arrays all;
  uint32_t seed = 1;
  for (const int64_t count : kCounts) {
    all.emplace_back();
    for (int64_t i = 0; i < count; ++i) all.back().push_back(noise(seed++));
  }
  return all;
}

// Of the mean loss of samples [first, first + count); returns that.
float gradients_of(const Arrays& p, int step, int first, int count, Arrays& g) {
  g.clear();
  for (const int64_t size : kCounts) g.emplace_back(static_cast<size_t>(size), 0.0F);
  float loss = 0;
  for (int s = first; s < first + count; ++s) {
    std::array<float, kIn> x;
    for (int i = 0; i < kIn; ++i) {
      x[static_cast<size_t>(i)] =
          noise(static_cast<uint32_t>((step * kBatch + s) * kIn + i) + 9999);
    }
    const float wanted = std::sin(3 * x[0]) + x[1] * x[2];
    std::array<float, kHidden> h;
    float y = p[4][0];
    for (size_t k = 0; k < kHidden; ++k) {
      float sum = p[1][k];
      for (size_t i = 0; i < kIn; ++i) sum += p[0][k * kIn + i] * x[i];
      h[k] = std::tanh(sum);
      y += p[3][k] * h[k];
    }
    const float error = (y - wanted) / static_cast<float>(count);
    loss += error * (y - wanted) / 2;
    g[4][0] += error;
    for (size_t k = 0; k < kHidden; ++k) {
      g[3][k] += error * h[k];
      const float inner = error * p[3][k] * (1 - h[k] * h[k]);
      g[1][k] += inner;
      for (size_t i = 0; i < kIn; ++i) g[0][k * kIn + i] += inner * x[i];
    }
  }
  return loss;
}

// An element of Adam.
void adam(int64_t step, float& p, float g, float& m, float& v) {
  m = 0.9F * m + 0.1F * g;
  v = 0.99F * v + 0.01F * g * g;
  const float by = 1 / (1 - std::pow(0.9F, static_cast<float>(step)));
  p -= 0.05F * m * by / (std::sqrt(v) + 1e-6F);
}

// One process that has the batch, in `shards` parts whose gradients are averaged in their order.
struct Training {
  Arrays p = initial(), m, v;
  std::vector<float> losses;

  explicit Training(int shards, int steps = kSteps) {
    for (const int64_t count : kCounts) m.emplace_back(static_cast<size_t>(count), 0.0F);
    v = m;
    for (int step = 0; step < steps; ++step) {
      Arrays sum, g;
      float loss = 0;
      for (int s = 0; s < shards; ++s) {
        loss += gradients_of(p, step, s * (kBatch / shards), kBatch / shards, g);
        if (s == 0) sum = g;
        for (size_t i = 0; s > 0 && i < g.size(); ++i) {
          for (size_t j = 0; j < g[i].size(); ++j) sum[i][j] += g[i][j];
        }
      }
      losses.push_back(loss / static_cast<float>(shards));
      for (size_t i = 0; i < p.size(); ++i) {
        for (size_t j = 0; j < p[i].size(); ++j) {
          adam(step + 1, p[i][j], sum[i][j] / static_cast<float>(shards), m[i][j], v[i][j]);
        }
      }
    }
  }
};

std::string bytes_of(const Arrays& arrays) {
  std::string all;
  for (const auto& one : arrays) {
    all.append(reinterpret_cast<const char*>(one.data()), one.size() * sizeof(float));
  }
  return all;
}

void copy(const Elements& to, const std::vector<float>& from) {
  ASSERT_EQ(to.count, static_cast<int64_t>(from.size()));
  if (to.count > 0) std::memcpy(to.data, from.data(), from.size() * sizeof(float));
}
void copy(std::vector<float>& to, const Elements& from) {
  to.resize(static_cast<size_t>(from.count));
  if (from.count > 0) std::memcpy(to.data(), from.data, to.size() * sizeof(float));
}

// Which gradient comes next: in reverse order, or in another one on each rank.
int in_turn(int k, int rank, bool is_mixed) {
  const int count = static_cast<int>(kCounts.size());
  return is_mixed ? (k * 3 + rank) % count : count - 1 - k;
}

// What a rank has in the end; the loss of each step is that of the whole batch.
struct Outcome {
  Arrays p;
  std::vector<float> losses;
  Status status;
};

Outcome train_with_buckets(const std::shared_ptr<ProcessGroup>& group, const BucketSizes& sizes,
                           bool is_mixed) {
  Outcome out;
  GradientOptions options;
  options.sizes = sizes;
  auto made = GradientBuckets::create(group, parameters(), options);
  if (!made.ok()) return {{}, {}, made.status()};
  GradientBuckets& buckets = **made;
  Arrays m, v, g;
  out.p = initial();
  for (const int64_t count : kCounts) m.emplace_back(static_cast<size_t>(count), 0.0F);
  v = m;
  const int each = kBatch / group->size();
  for (int step = 0; step < kSteps; ++step) {
    float loss = gradients_of(out.p, step, group->rank() * each, each, g);
    for (int k = 0; k < static_cast<int>(kCounts.size()); ++k) {
      const int i = in_turn(k, group->rank(), is_mixed);
      copy(*buckets.gradient(i), g[static_cast<size_t>(i)]);
      out.status = buckets.ready(i);
      if (!out.status.ok()) return out;
    }
    const Work mean = group->all_reduce({&loss, DType::kF32, 1}, ReduceOp::kAvg);
    out.status = buckets.finish();
    if (out.status.ok()) out.status = mean.wait();
    if (!out.status.ok()) return out;
    out.losses.push_back(loss);
    for (size_t i = 0; i < out.p.size(); ++i) {
      copy(g[i], *buckets.gradient(static_cast<int>(i)));
      for (size_t j = 0; j < g[i].size(); ++j) {
        adam(step + 1, out.p[i][j], g[i][j], m[i][j], v[i][j]);
      }
    }
  }
  return out;
}

Status adam_of_shard(const ShardedOptimizer::Shard& shard) {
  auto* const p = static_cast<float*>(shard.parameters.data);
  const auto* const g = static_cast<const float*>(shard.gradients.data);
  auto* const m = static_cast<float*>(shard.states[0].data);
  auto* const v = static_cast<float*>(shard.states[1].data);
  for (int64_t i = 0; i < shard.parameters.count; ++i) adam(shard.step, p[i], g[i], m[i], v[i]);
  return ok_status();
}

ShardOptions shard_options(const BucketSizes& sizes) {
  ShardOptions options;
  options.sizes = sizes;
  options.states = {DType::kInvalid, DType::kF32};
  return options;
}

Status step_of(ShardedOptimizer& optimizer, const ProcessGroup& group, int step, bool is_mixed) {
  Arrays p(kCounts.size()), g;
  for (size_t i = 0; i < p.size(); ++i) copy(p[i], *optimizer.parameter(static_cast<int>(i)));
  const int each = kBatch / group.size();
  gradients_of(p, step, group.rank() * each, each, g);
  for (int k = 0; k < static_cast<int>(kCounts.size()); ++k) {
    const int i = in_turn(k, group.rank(), is_mixed);
    copy(*optimizer.gradient(i), g[static_cast<size_t>(i)]);
    HEKLA_RETURN_IF_ERROR(optimizer.ready(i));
  }
  return optimizer.step(adam_of_shard);
}

Status set_initial(ShardedOptimizer& optimizer, int rank) {
  const Arrays p = initial();
  for (size_t i = 0; rank == 1 && i < p.size(); ++i) {
    copy(*optimizer.parameter(static_cast<int>(i)), p[i]);
  }
  return optimizer.broadcast_parameters(1);
}

Outcome train_with_shards(const std::shared_ptr<ProcessGroup>& group, const BucketSizes& sizes,
                          bool is_mixed) {
  auto made = ShardedOptimizer::create(group, parameters(), shard_options(sizes));
  if (!made.ok()) return {{}, {}, made.status()};
  Outcome out;
  out.status = set_initial(**made, group->rank());
  for (int step = 0; out.status.ok() && step < kSteps; ++step) {
    out.status = step_of(**made, *group, step, is_mixed);
  }
  out.p.resize(kCounts.size());
  for (size_t i = 0; i < out.p.size(); ++i)
    copy(out.p[i], *(*made)->parameter(static_cast<int>(i)));
  return out;
}

// Groups of threads are shared with what they make.
using SharedBody = std::function<void(const std::shared_ptr<ProcessGroup>&)>;
void on_shared(int size, const SharedBody& body) {
  on_ranks(size, [&](ProcessGroup& group) {
    body(std::shared_ptr<ProcessGroup>(&group, [](ProcessGroup*) {}));
  });
}

using Train = Outcome (*)(const std::shared_ptr<ProcessGroup>&, const BucketSizes&, bool);

// Processes that leave their bytes in a file.
std::vector<std::string> trained_by_processes(int size, Train train, const BucketSizes& sizes,
                                              bool is_mixed, const Options& options) {
  const TemporaryFolder folder;
  const auto exits = on_processes(
      size,
      [&](ProcessGroup& group) {
        const std::shared_ptr<ProcessGroup> shared(&group, [](ProcessGroup*) {});
        const Outcome out = train(shared, sizes, is_mixed);
        if (!out.status.ok()) return 1;
        std::ofstream(folder.file(std::to_string(group.rank())), std::ios::binary)
            << bytes_of(out.p) << bytes_of({out.losses});
        return 0;
      },
      options);
  std::vector<std::string> all;
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_EQ(exits[static_cast<size_t>(rank)], 0);
    std::ifstream file(folder.file(std::to_string(rank)), std::ios::binary);
    all.emplace_back((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  }
  return all;
}

TEST(DataParallel, ProcessesGetTheParametersOfOne) {
  const Training whole(1);
  for (const int ranks : {2, 4}) {
    const Training one(ranks);
    // It is the training of the whole batch.
    for (size_t s = 0; s < kSteps; ++s) EXPECT_NEAR(one.losses[s], whole.losses[s], 2e-6F);
    EXPECT_LT(whole.losses.back(), whole.losses.front());
    for (const char* const memory : {"off", "on"}) {
      Options options;
      options.shared_memory = memory;
      // A bucket for each array, some, one of all; as they come, and in any order.
      for (const BucketSizes sizes : {BucketSizes{1, 1}, {8, 100}, {1 << 20, 1 << 20}}) {
        const bool is_mixed = sizes.first == 8;
        for (const std::string& bytes :
             trained_by_processes(ranks, train_with_buckets, sizes, is_mixed, options)) {
          EXPECT_TRUE(bytes == bytes_of(one.p) + bytes_of({one.losses})) << ranks << memory;
        }
        for (const std::string& bytes :
             trained_by_processes(ranks, train_with_shards, sizes, is_mixed, options)) {
          EXPECT_TRUE(bytes == bytes_of(one.p)) << ranks << memory << sizes.first;
        }
      }
    }
  }
}

// Saved by four ranks, gone on with by three.
TEST(DataParallel, StateIsDividedAndGoesOnWithOtherRanks) {
  std::vector<HostArray> states[2];
  std::atomic<int64_t> bytes = 0;
  on_shared(4, [&](const std::shared_ptr<ProcessGroup>& group) {
    auto optimizer = *ShardedOptimizer::create(group, parameters(), shard_options({1, 64}));
    bytes += optimizer->state_bytes();
    ASSERT_TRUE(set_initial(*optimizer, group->rank()).ok());
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(step_of(*optimizer, *group, step, false).ok());
    }
    for (size_t which = 0; which < 2; ++which) {
      auto state = optimizer->gather_state(which);
      ASSERT_TRUE(state.ok()) << state.status().to_string();
      if (group->rank() == 3) states[which] = *std::move(state);
    }
    EXPECT_FALSE(optimizer->gather_state(2).ok());
  });
  int64_t count = 0;
  for (const int64_t one : kCounts) count += one;
  EXPECT_EQ(bytes, 2 * 4 * count);
  const Training one(4, 3);
  for (size_t i = 0; i < kCounts.size(); ++i) {
    ASSERT_EQ(states[0][i].size(), kCounts[i]);
    for (size_t j = 0; j < one.m[i].size(); ++j) {
      EXPECT_EQ(states[0][i].as<float>()[j], one.m[i][j]);
      EXPECT_EQ(states[1][i].as<float>()[j], one.v[i][j]);
    }
  }
  on_shared(3, [&](const std::shared_ptr<ProcessGroup>& group) {
    auto optimizer = *ShardedOptimizer::create(group, parameters(), shard_options({1, 1 << 20}));
    for (size_t which = 0; which < 2; ++which) {
      ASSERT_TRUE(optimizer->set_state(which, states[which]).ok());
      const auto again = optimizer->gather_state(which);
      ASSERT_TRUE(again.ok());
      for (size_t i = 0; i < kCounts.size(); ++i) {
        EXPECT_TRUE((*again)[i].identical(states[which][i])) << i;
      }
    }
    std::vector<HostArray> wrong = states[0];
    wrong[1] = HostArray(DType::kF32, {3});
    EXPECT_TRUE(says(optimizer->set_state(0, wrong), "parameter p1: f32[3] where f32[7]"));
  });
}

TEST(DataParallel, BucketsAreFilledFromTheEnd) {
  const std::vector<Parameter> all = {{"a", DType::kF32, 10}, {"b", DType::kF64, 2},
                                      {"c", DType::kF32, 1},  {"d", DType::kF32, 100},
                                      {"e", DType::kF64, 1},  {"f", DType::kF32, 4}};
  std::string text;
  for (const Bucket& bucket : bucket_layout(all, {16, 64})) {
    text += fmt::format("{}[{}]", dtype_name(bucket.dtype), bucket.count);
    for (const auto& [i, first] : bucket.places) {
      text += fmt::format(" {}@{}", all[static_cast<size_t>(i)].name, first);
    }
    text += "; ";
  }
  EXPECT_EQ(text, "f32[4] f@0; f32[100] d@0; f64[3] e@0 b@1; f32[11] c@0 a@1; ");
}

TEST(DataParallel, WhatOneRankDoesWrongIsNamedOnAll) {
  // Other parameters.
  on_shared(3, [](const std::shared_ptr<ProcessGroup>& group) {
    auto own = parameters();
    if (group->rank() == 1) own[3].count = 8;
    const Status status = GradientBuckets::create(group, own, {}).status();
    EXPECT_TRUE(says(status,
                     "parameters of ranks 0 and 1 of group world differ: parameter 3: "
                     "\"f32[7] p3\" and \"f32[8] p3\""))
        << status.to_string();
  });
  on_shared(2, [](const std::shared_ptr<ProcessGroup>& group) {
    auto own = parameters();
    if (group->rank() == 1) own[3].dtype = DType::kInvalid;
    const Status status = ShardedOptimizer::create(group, own, {}).status();
    EXPECT_TRUE(says(status, group->rank() == 1 ? "p3" : "rank 1 has refused it"))
        << status.to_string();
  });
  // A gradient that does not come, and one that comes twice.
  for (const bool is_sharded : {false, true}) {
    on_shared(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      GradientOptions options;
      options.sizes = {1, 1};
      std::unique_ptr<GradientBuckets> buckets;
      std::unique_ptr<ShardedOptimizer> optimizer;
      if (is_sharded) {
        optimizer = *ShardedOptimizer::create(group, parameters(), shard_options({1, 1}));
      } else {
        buckets = *GradientBuckets::create(group, parameters(), options);
      }
      const auto ready = [&](int i) {
        return is_sharded ? optimizer->ready(i) : buckets->ready(i);
      };
      for (int i = 0; i < 5; ++i) {
        if (group->rank() == 1 && i == 1) continue;
        EXPECT_TRUE(ready(i).ok());
        EXPECT_TRUE(says(ready(i), "p" + std::to_string(i) + ", has come twice"));
      }
      EXPECT_EQ(ready(5).code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(ready(-1).code(), StatusCode::kInvalidArgument);
      const Status status = is_sharded ? optimizer->step(adam_of_shard) : buckets->finish();
      EXPECT_TRUE(says(status, "no gradient has come of 1 of 5 parameters: p1"))
          << status.to_string();
      EXPECT_TRUE(group->rank() == 1 || says(status, "rank 1 has refused it"))
          << status.to_string();
    });
  }
  // An update that fails.
  on_shared(2, [](const std::shared_ptr<ProcessGroup>& group) {
    auto optimizer = *ShardedOptimizer::create(group, parameters(), shard_options({1, 1}));
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(optimizer->ready(i).ok());
    int calls = 0;
    const Status status = optimizer->step([&](const ShardedOptimizer::Shard&) {
      return group->rank() == 1 && ++calls == 2 ? data_loss("a wrong number") : ok_status();
    });
    EXPECT_TRUE(says(status, "a wrong number")) << status.to_string();
    EXPECT_TRUE(group->rank() == 1 || says(status, "rank 1 has refused it")) << status.to_string();
  });
  // Bits of floats.
  on_shared(2, [](const std::shared_ptr<ProcessGroup>& group) {
    GradientOptions options;
    options.by = ReduceOp::kBitXor;
    EXPECT_TRUE(
        says(GradientBuckets::create(group, parameters(), options).status(), "bxor of f32"));
    EXPECT_TRUE(group->barrier().wait().ok());
  });
}

TEST(DataParallel, WhatDoesNotComeMayCountAsZeros) {
  on_shared(2, [](const std::shared_ptr<ProcessGroup>& group) {
    GradientOptions options;
    options.missing_is_zero = true;
    options.sizes = {1, 1};
    options.by = ReduceOp::kSum;
    auto buckets = *GradientBuckets::create(group, parameters(), options);
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 5; ++i) {
        const Elements g = *buckets->gradient(i);
        std::fill_n(static_cast<float*>(g.data), g.count, 3.0F);
        if (i % 2 != group->rank()) continue;
        EXPECT_TRUE(buckets->ready(i).ok());
      }
      ASSERT_TRUE(buckets->finish().ok());
      for (const int i : {0, 1, 4}) {
        EXPECT_EQ(static_cast<float*>(buckets->gradient(i)->data)[0], 3.0F);
      }
    }
  });
}

TEST(DataParallel, ARankThatDiesIsNamed) {
  const auto exits = on_processes(3, [](ProcessGroup& group) {
    const std::shared_ptr<ProcessGroup> shared(&group, [](ProcessGroup*) {});
    auto buckets = *GradientBuckets::create(shared, parameters(), {});
    if (group.rank() == 2) return ::raise(SIGKILL);
    for (int i = 4; i >= 0; --i) static_cast<void>(buckets->ready(i));
    const Status status = buckets->finish();
    return says(status, "rank 2 of group world is gone") ? 0 : 1;
  });
  EXPECT_EQ(exits, (std::vector<int>{0, 0, -SIGKILL}));
}

}  // namespace
}  // namespace hekla::process_group
