// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/testing/contraction_kernel.h"

#include <cstring>
#include <random>

#include "backends/compiler/kernel/builder.h"

namespace hekla::vulkan::testing {

using kernel::Access;
using kernel::Builder;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;

ContractionShape random_contraction(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  ContractionShape s;
  s.batch = 1 + pick(3) / 2;
  s.rows = 1 + pick(150);
  s.columns = 1 + pick(200);
  s.depth = 1 + pick(70);
  if (pick(2) == 0) s.depth = 16 * (1 + pick(4));
  if (pick(3) == 0) s.columns = 64 * (1 + pick(3));
  s.tile_rows = std::min<int64_t>(s.rows, pick(3) == 0 ? 1 : 8);
  s.is_float = pick(3) != 0;
  s.is_narrow = !s.is_float && pick(2) == 0;
  s.is_transposed = pick(3) == 0;
  s.is_nested = pick(4) == 0;
  if (s.is_nested) s.depth = (s.depth + 3) / 4 * 4;
  return s;
}

kernel::testing::TestKernel contraction_kernel(const ContractionShape& s, uint64_t seed) {
  const ScalarType type = s.is_float ? ScalarType::kF32 : ScalarType::kI32;
  const int64_t groups = (s.rows + s.tile_rows - 1) / s.tile_rows;
  Builder b(3, ScalarType::kI32);
  b.set_grid_size(0, s.batch);
  b.set_grid_size(1, groups);
  b.set_grid_size(2, s.columns);
  const Value batch = b.grid_index(0), column = b.grid_index(2);
  std::vector<Value> rows;
  for (int64_t i = 0; i < s.tile_rows; ++i) {
    Value row = b.add(b.mul(b.grid_index(1), b.index(s.tile_rows)), b.index(i));
    const Value last = b.index(s.rows - 1);
    rows.push_back(b.select(b.binary(Op::kLtS, last, row), last, row));
  }
  const Access left{0, 4, false}, bias{2, 4, false}, out{3, 4, false};
  const Access right{1, static_cast<uint8_t>(s.is_narrow ? 2 : 4), s.is_narrow};
  const auto step = [&](Value k, const std::vector<Value>& sums) {
    const Value across =
        s.is_transposed
            ? b.add(b.mul(b.add(b.mul(batch, b.index(s.columns)), column), b.index(s.depth)), k)
            : b.add(b.mul(b.add(b.mul(batch, b.index(s.depth)), k), b.index(s.columns)), column);
    const Value y = b.load(type, right, across);
    std::vector<Value> next;
    for (size_t i = 0; i < rows.size(); ++i) {
      const Value line = b.add(b.mul(batch, b.index(s.rows)), rows[i]);
      const Value x = b.load(type, left, b.add(b.mul(line, b.index(s.depth)), k));
      next.push_back(b.add(sums[i], b.mul(x, y)));
    }
    return next;
  };
  std::vector<Value> sums(rows.size(), b.load(type, bias, column));
  if (s.is_nested) {
    sums = b.loop(b.index(s.depth / 4), sums, [&](Value outer, const std::vector<Value>& carried) {
      return b.loop(b.index(4), carried, [&](Value inner, const std::vector<Value>& now) {
        return step(b.add(b.mul(outer, b.index(4)), inner), now);
      });
    });
  } else {
    sums = b.loop(b.index(s.depth), sums, step);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const Value line = b.add(b.mul(batch, b.index(s.rows)), rows[i]);
    b.store(out, b.add(b.mul(line, b.index(s.columns)), column), sums[i]);
  }

  kernel::testing::TestKernel test;
  test.kernel.name = "contraction";
  test.kernel.grid = {s.batch, groups, s.columns};
  test.kernel.body = b.finish();
  const int64_t elements[] = {s.batch * s.rows * s.depth, s.batch * s.depth * s.columns, s.columns,
                              s.batch * s.rows * s.columns};
  std::mt19937_64 random(seed);
  for (int i = 0; i < 4; ++i) {
    const uint8_t bytes = i == 1 ? right.bytes : uint8_t{4};
    test.kernel.operands.push_back({elements[i] * bytes, i < 3, i == 3, false});
    test.elements.push_back({type, bytes});
    test.labels.emplace_back(i < 3 ? "input" : "output");
    std::vector<std::byte>& memory = test.contents.emplace_back();
    for (int64_t e = 0; e < elements[i]; ++e) {
      const float f = static_cast<float>(random() % 2000) / 1000.0F - 1.0F;
      uint32_t bits = static_cast<uint32_t>(random() % 2001) - 1000;
      if (s.is_float) std::memcpy(&bits, &f, sizeof(bits));
      const auto* from = reinterpret_cast<const std::byte*>(&bits);
      memory.insert(memory.end(), from, from + bytes);
    }
  }
  return test;
}

}  // namespace hekla::vulkan::testing
