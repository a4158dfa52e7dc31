// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/gather_scatter.h"

#include <gtest/gtest.h>

#include "backends/reference/kernels/test_arrays.h"

namespace hekla::reference {
namespace {

// A random configuration that both ops can use: the operand's dimensions are window, collapsed
// (inserted) or batching; names are those of gather.
struct Case {
  Dims operand_dims, indices_dims, result_dims;  // result of gather, updates of scatter
  GatherConfig config;
};

Case random_case(Random& random) {
  Case c;
  const int64_t rank = pick(random, 1, 4);
  Dims window_sizes, batch_dims, batching_at;
  for (int64_t i = pick(random, 0, 2); i > 0; --i) batch_dims.push_back(pick(random, 1, 4));
  for (int64_t d = 0; d < rank; ++d) {
    c.operand_dims.push_back(pick(random, 1, 6));
    int64_t kind = pick(random, 0, 2);
    if (kind == 2 && c.config.operand_batching_dims.size() < batch_dims.size()) {
      const int64_t b = static_cast<int64_t>(c.config.operand_batching_dims.size());
      batch_dims[b] = c.operand_dims[d];
      c.config.operand_batching_dims.push_back(d);
      batching_at.push_back(b);
      c.config.slice_sizes.push_back(1);
    } else if (kind == 1) {
      c.config.collapsed_slice_dims.push_back(d);
      c.config.slice_sizes.push_back(1);
    } else {
      c.config.slice_sizes.push_back(pick(random, 1, c.operand_dims[d]));
      window_sizes.push_back(c.config.slice_sizes.back());
    }
  }
  for (int64_t d : random_permutation(random, rank)) {
    const Dims& batching = c.config.operand_batching_dims;
    if (std::find(batching.begin(), batching.end(), d) == batching.end() &&
        pick(random, 0, 2) != 0) {
      c.config.start_index_map.push_back(d);
    }
  }
  const int64_t indexed = static_cast<int64_t>(c.config.start_index_map.size());
  c.indices_dims = batch_dims;
  c.config.index_vector_dim = pick(random, 0, static_cast<int64_t>(batch_dims.size()));
  if (indexed == 1 && pick(random, 0, 1) != 0) {
    c.config.index_vector_dim = static_cast<int64_t>(batch_dims.size());
  } else {
    c.indices_dims.insert(c.indices_dims.begin() + c.config.index_vector_dim, indexed);
  }
  for (int64_t b : batching_at) {
    c.config.start_indices_batching_dims.push_back(b >= c.config.index_vector_dim ? b + 1 : b);
  }
  const int64_t result_rank = static_cast<int64_t>(batch_dims.size() + window_sizes.size());
  Dims order = random_permutation(random, result_rank);
  c.config.offset_dims.assign(order.begin(),
                              order.begin() + static_cast<ptrdiff_t>(window_sizes.size()));
  std::sort(c.config.offset_dims.begin(), c.config.offset_dims.end());
  size_t w = 0, b = 0;
  for (int64_t d = 0; d < result_rank; ++d) {
    const Dims& offsets = c.config.offset_dims;
    const bool is_window = std::find(offsets.begin(), offsets.end(), d) != offsets.end();
    c.result_dims.push_back(is_window ? window_sizes[w++] : batch_dims[b++]);
  }
  return c;
}

// The operand index of one result index, and whether the whole window lies inside. Start indices
// are clamped when asked.
Dims operand_index(const Case& c, const HostArray& indices, const Dims& index, bool clamp,
                   bool& is_inside) {
  const GatherConfig& g = c.config;
  const auto contains = [](const Dims& dims, int64_t d) {
    return std::find(dims.begin(), dims.end(), d) != dims.end();
  };
  Dims batch, offset;
  for (size_t d = 0; d < index.size(); ++d) {
    (contains(g.offset_dims, static_cast<int64_t>(d)) ? offset : batch).push_back(index[d]);
  }
  Dims start(c.operand_dims.size(), 0);
  is_inside = true;
  for (size_t k = 0; k < g.start_index_map.size(); ++k) {
    Dims from = batch;
    if (c.indices_dims.size() > batch.size()) {
      from.insert(from.begin() + g.index_vector_dim, static_cast<int64_t>(k));
    }
    const int64_t d = g.start_index_map[k];
    start[d] = at(indices, from);
    const int64_t last = c.operand_dims[d] - g.slice_sizes[d];
    is_inside = is_inside && start[d] >= 0 && start[d] <= last;
    if (clamp) start[d] = std::clamp<int64_t>(start[d], 0, last);
  }
  for (size_t i = 0; i < g.operand_batching_dims.size(); ++i) {
    const int64_t d = g.start_indices_batching_dims[i];
    start[g.operand_batching_dims[i]] = batch[d > g.index_vector_dim ? d - 1 : d];
  }
  size_t next = 0;
  for (size_t d = 0; d < start.size(); ++d) {
    const int64_t dim = static_cast<int64_t>(d);
    if (contains(g.collapsed_slice_dims, dim) || contains(g.operand_batching_dims, dim)) continue;
    start[d] += offset[next++];
  }
  return start;
}

TEST(Gather, AgreesWithTheSpecificationIndexByIndex) {
  Random random(7);
  for (int round = 0; round < 500; ++round) {
    const Case c = random_case(random);
    const HostArray operand = random_i32(random, c.operand_dims, -1000, 1000);
    const HostArray indices = random_i32(random, c.indices_dims, -2, 7);
    const Result<HostArray> result = gather(operand, indices, c.config);
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    ASSERT_EQ(result->dims(), c.result_dims);
    for (const Dims& index : all_indices(c.result_dims)) {
      bool is_inside = false;
      ASSERT_EQ(at(*result, index), at(operand, operand_index(c, indices, index, true, is_inside)))
          << "round " << round;
    }
  }
}

TEST(Scatter, AgreesWithTheSpecificationIndexByIndex) {
  Random random(8);
  for (int round = 0; round < 500; ++round) {
    const Case c = random_case(random);
    const std::vector<HostArray> inputs = {random_i32(random, c.operand_dims),
                                           random_i32(random, c.operand_dims)};
    const std::vector<HostArray> updates = {random_i32(random, c.result_dims),
                                            random_i32(random, c.result_dims)};
    const HostArray indices = random_i32(random, c.indices_dims, -1, 4);
    ScatterConfig config{c.config.offset_dims,           c.config.collapsed_slice_dims,
                         c.config.operand_batching_dims, c.config.start_indices_batching_dims,
                         c.config.start_index_map,       c.config.index_vector_dim};
    LambdaFunction<int32_t> body(DType::kI32, 4, DType::kI32, 2, [](const auto& in, auto& out) {
      out[0] = in[0] + in[2];
      out[1] = std::max(in[1], in[3]);
    });
    const Result<std::vector<HostArray>> results = scatter(inputs, indices, updates, config, body);
    ASSERT_TRUE(results.ok()) << results.status().to_string();
    std::vector<HostArray> expected = inputs;
    for (const Dims& index : all_indices(c.result_dims)) {
      bool is_inside = false;
      const Dims to = operand_index(c, indices, index, false, is_inside);
      if (!is_inside) continue;
      expected[0].mutable_as<int32_t>()[flat(c.operand_dims, to)] += at(updates[0], index);
      int32_t& largest = expected[1].mutable_as<int32_t>()[flat(c.operand_dims, to)];
      largest = std::max(largest, at(updates[1], index));
    }
    ASSERT_TRUE((*results)[0].identical(expected[0])) << "round " << round;
    ASSERT_TRUE((*results)[1].identical(expected[1])) << "round " << round;
  }
}

TEST(Scatter, AppliesDuplicatesInOrder) {
  const HostArray input(DType::kI32, {3});
  const HostArray indices = HostArray::from<uint64_t>(
      DType::kUI64, {5, 1}, std::vector<uint64_t>{1, 2, 1, ~uint64_t{0}, 1});
  const HostArray updates =
      HostArray::from<int32_t>(DType::kI32, {5}, std::vector<int32_t>{5, 6, 7, 8, 9});
  LambdaFunction<int32_t> last(DType::kI32, 2, DType::kI32, 1,
                               [](const auto& in, auto& out) { out[0] = 10 * in[0] + in[1]; });
  const ScatterConfig config{{}, {0}, {}, {}, {0}, 1};
  const HostArray result = scatter({&input, 1}, indices, {&updates, 1}, config, last).value()[0];
  EXPECT_EQ(result.as<int32_t>()[0], 0);
  EXPECT_EQ(result.as<int32_t>()[1], 579);
  EXPECT_EQ(result.as<int32_t>()[2], 6);
}

TEST(Gather, UnsignedAndNarrowIndicesClampWithoutOverflow) {
  HostArray operand(DType::kI32, {300});
  for (int i = 0; i < 300; ++i) operand.mutable_as<int32_t>()[i] = i;
  const GatherConfig config{{}, {0}, {}, {}, {0}, 1, {1}};
  const HostArray u64 =
      HostArray::from<uint64_t>(DType::kUI64, {2, 1}, std::vector<uint64_t>{~uint64_t{0}, 3});
  const HostArray a = gather(operand, u64, config).value();
  EXPECT_EQ(a.as<int32_t>()[0], 299);
  EXPECT_EQ(a.as<int32_t>()[1], 3);
  const HostArray i8 = HostArray::from<int8_t>(DType::kI8, {2, 1}, std::vector<int8_t>{-128, 127});
  const HostArray b = gather(operand, i8, config).value();
  EXPECT_EQ(b.as<int32_t>()[0], 0);
  EXPECT_EQ(b.as<int32_t>()[1], 127);
}

TEST(TorchIndexSelect, PicksAlongADimensionWithinBatches) {
  Random random(9);
  const HostArray operand = random_i32(random, {2, 3, 5, 2});
  const HostArray index = random_i32(random, {2, 4}, 0, 4);
  const HostArray result = torch_index_select(operand, index, 2, 1).value();
  ASSERT_EQ(result.dims(), (Dims{2, 3, 4, 2}));
  for (const Dims& i : all_indices(result.dims())) {
    ASSERT_EQ(at(result, i), at(operand, {i[0], i[1], at(index, {i[0], i[2]}), i[3]}));
  }
}

}  // namespace
}  // namespace hekla::reference
