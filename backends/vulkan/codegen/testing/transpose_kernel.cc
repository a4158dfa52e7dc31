// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/testing/transpose_kernel.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "backends/compiler/kernel/builder.h"

namespace hekla::vulkan::testing {

using kernel::Access;
using kernel::Builder;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;

kernel::testing::TestKernel transpose_kernel(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  const size_t rank = 2 + random() % 3;
  std::vector<int64_t> grid(rank, 1);
  int64_t points = 1;
  for (int64_t& size : grid) {
    const int64_t most = std::max<int64_t>(1, std::min<int64_t>(140, 40'000 / points));
    size = 1 + pick(static_cast<uint64_t>(most));
    if (pick(3) == 0) size = std::min<int64_t>(most, 32 * (1 + pick(3)));
    if (pick(4) == 0) size = std::min<int64_t>(most, 1 + pick(8));
    points *= size;
  }
  std::shuffle(grid.begin(), grid.end(), random);
  Builder b(static_cast<int>(rank), ScalarType::kI32);
  for (size_t d = 0; d < rank; ++d) b.set_grid_size(static_cast<int>(d), grid[d]);
  const auto place = [&](const std::vector<size_t>& order) {
    Value at = b.index(0);
    for (const size_t d : order) {
      at = b.add(b.mul(at, b.index(grid[d])), b.grid_index(static_cast<int>(d)));
    }
    return at;
  };
  kernel::testing::TestKernel test;
  const auto add_operand = [&](ScalarType type, int64_t bytes, bool is_read) {
    test.kernel.operands.push_back({points * bytes, is_read, !is_read, false});
    test.elements.push_back({type, static_cast<uint8_t>(bytes)});
    test.labels.emplace_back(is_read ? "operand" : "result");
    test.contents.emplace_back(static_cast<size_t>(points * bytes));
    if (!is_read) return;
    for (auto& byte : test.contents.back()) {
      byte = static_cast<std::decay_t<decltype(byte)>>(random() & 0xff);
    }
  };
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  const Value own = place(order);
  const auto count = static_cast<int32_t>(1 + pick(4));
  const auto bytes_of_result = int64_t{1} << pick(3);
  Value sum = b.integer(ScalarType::kI32, 17);
  for (int32_t i = 0; i < count; ++i) {
    const int64_t bytes = int64_t{1} << pick(4);
    const ScalarType type = bytes == 8 ? ScalarType::kI64 : ScalarType::kI32;
    std::shuffle(order.begin(), order.end(), random);
    const Access access{i, static_cast<uint8_t>(bytes), bytes < 4 && pick(2) == 0};
    Value x = b.load(type, access, place(order));
    if (bytes == 8) {
      x = b.binary(Op::kXor, b.convert(Op::kTruncate, ScalarType::kI32, x),
                   b.convert(Op::kTruncate, ScalarType::kI32,
                             b.binary(Op::kShrU, x, b.integer(ScalarType::kI64, 32))));
    }
    sum = b.add(b.mul(sum, b.integer(ScalarType::kI32, 31)), x);
    add_operand(type, bytes, true);
  }
  b.store({count, static_cast<uint8_t>(bytes_of_result)}, own, sum);
  add_operand(ScalarType::kI32, bytes_of_result, false);
  b.store({count + 1, 4}, own, b.binary(Op::kShrU, sum, b.integer(ScalarType::kI32, 1)));
  add_operand(ScalarType::kI32, 4, false);
  test.kernel.name = "transpose";
  test.kernel.grid = grid;
  test.kernel.body = b.finish();
  return test;
}

}  // namespace hekla::vulkan::testing
