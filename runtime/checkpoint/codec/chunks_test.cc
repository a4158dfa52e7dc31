// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/chunks.h"

#include <gtest/gtest.h>

#include <random>

namespace hekla::checkpoint {
namespace {

// Every byte of a piece is in one chunk, and HDF5's chunk at that place has it.
void check(DType dtype, const Dims& size) {
  const ChunkGrid grid = ChunkGrid::choose(dtype, size);
  const Dims dims = stored_dims(dtype, size);
  const int64_t bytes = stored_bytes(dtype, element_count(size));
  ASSERT_EQ(grid.shape().size(), dims.size());
  int64_t full = grid.element_bytes(), chunks = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    ASSERT_LE(grid.shape()[d], dims[d]);
    full *= grid.shape()[d];
    chunks *= (dims[d] + grid.shape()[d] - 1) / grid.shape()[d];
  }
  ASSERT_EQ(full, grid.full_bytes());
  ASSERT_LE(full, kMaxChunkBytes);
  ASSERT_EQ(chunks, grid.chunks());
  int64_t next = 0;
  for (int64_t k = 0; k < grid.chunks(); ++k) {
    ASSERT_EQ(grid.begin(k), next);
    next = grid.end(k);
    ASSERT_GT(next, grid.begin(k));
    ASSERT_LE(next - grid.begin(k), full);
    ASSERT_EQ(grid.chunk_of(grid.begin(k)), k);
    ASSERT_EQ(grid.chunk_of(next - 1), k);
    int64_t at = 0;
    const Dims start = grid.start(k);
    for (size_t d = 0; d < dims.size(); ++d) {
      ASSERT_EQ(start[d] % grid.shape()[d], 0);
      at = at * dims[d] + start[d];
    }
    ASSERT_EQ(at * grid.element_bytes(), grid.begin(k));
    // Packed elements are not cut.
    if (stored_bits(dtype) < 8) {
      ASSERT_EQ(grid.begin(k) % 3, 0);
    }
  }
  ASSERT_EQ(next, bytes);
  EXPECT_TRUE(ChunkGrid::make(dtype, size, grid.shape()).ok());
}

TEST(ChunkGrid, CutsAnyPieceIntoSlabs) {
  check(DType::kF32, {1});
  check(DType::kF32, {1 << 20});
  check(DType::kF32, {3, (1 << 20) + 1});
  check(DType::kF64, {1, 1, 300000});
  check(DType::kC128, {7, 70000});
  check(DType::kI4, {1 << 22});
  check(DType::kF6E2M3FN, {4100, 1023});
  std::mt19937_64 random(3);
  for (int i = 0; i < 300; ++i) {
    Dims size(1 + random() % 4);
    int64_t elements = 1;
    for (int64_t& dim : size) {
      dim = 1 + static_cast<int64_t>(random() % (random() % 4 == 0 ? 4000 : 20));
      elements *= dim;
    }
    if (elements > 40'000'000) continue;
    const DType dtypes[] = {DType::kF32, DType::kBF16, DType::kI8, DType::kI2, DType::kF6E3M2FN};
    check(dtypes[random() % 5], size);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(ChunkGrid, RefusesWhatIsNoSlab) {
  const auto code = [](DType dtype, const Dims& size, Dims shape) {
    return ChunkGrid::make(dtype, size, std::move(shape)).status().code();
  };
  EXPECT_EQ(code(DType::kF32, {8, 8}, {2, 8}), StatusCode::kOk);
  EXPECT_EQ(code(DType::kF32, {8, 8}, {1, 4}), StatusCode::kOk);
  for (const Dims& shape : {Dims{}, Dims{8}, Dims{2, 4}, Dims{0, 8}, Dims{9, 8}, Dims{-1, 8},
                            Dims{8, 8, 1}, Dims{2, INT64_MAX}}) {
    EXPECT_EQ(code(DType::kF32, {8, 8}, shape), StatusCode::kDataLoss);
  }
  EXPECT_EQ(code(DType::kF32, {1 << 20}, {1 << 20}), StatusCode::kDataLoss);  // 4 MiB
  EXPECT_EQ(code(DType::kF32, {INT64_MAX / 8, 2}, {INT64_MAX / 8, 2}), StatusCode::kDataLoss);
  EXPECT_EQ(code(DType::kI4, {100}, {10}), StatusCode::kDataLoss);  // 10 bytes are cut elements
}

}  // namespace
}  // namespace hekla::checkpoint
