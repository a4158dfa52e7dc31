// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/testing/random_kernel.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <set>

#include "backends/compiler/kernel/interpreter.h"
#include "backends/compiler/kernel/row_access.h"
#include "backends/compiler/kernel/testing/observed_values.h"

namespace hekla::kernel::testing {
namespace {

TEST(RandomKernel, IsWellTypedAndStaysInItsOperands) {
  std::set<Op> ops;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomOptions options;
    options.fma = true;
    options.teams = seed % 2 == 1;
    const TestKernel test = random_kernel(seed, options);
    ASSERT_TRUE(verify(test.kernel.body).ok())
        << seed << ": " << verify(test.kernel.body).message();
    Buffers buffers = test.contents;
    const Status status = interpret(test.kernel, spans(buffers));
    ASSERT_TRUE(status.ok()) << seed << ": " << status.message();
    EXPECT_NE(difference(test, test.contents, buffers), "") << seed << " computes nothing";
    for (size_t v = 0; v < test.kernel.body.size(); ++v) {
      ops.insert(test.kernel.body[static_cast<Value>(v)].op);
    }
  }
  // Those of matrix units want a device's shapes and whole teams: sums_kernel.h of Vulkan's code
  // generator makes kernels of them, and attention's tests.
  const auto is_left_out = [](Op op) { return is_sums_op(op) || op == Op::kTeamStoreWide; };
  for (int i = 0; i <= static_cast<int>(kLastOp); ++i) {
    const auto op = static_cast<Op>(i);
    EXPECT_NE(ops.contains(op), is_left_out(op)) << op_name(op);
  }
}

TEST(RandomKernel, KeepsToItsOptions) {
  RandomOptions options;
  options.i64 = options.f64 = options.narrow_loads = options.narrow_stores = false;
  options.division_and_square_root = false;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const TestKernel test = random_kernel(seed, options);
    for (size_t v = 0; v < test.kernel.body.size(); ++v) {
      const Instruction& inst = test.kernel.body[static_cast<Value>(v)];
      EXPECT_NE(inst.type, ScalarType::kI64);
      EXPECT_NE(inst.type, ScalarType::kF64);
      EXPECT_TRUE(inst.op != Op::kDiv && inst.op != Op::kSqrt && inst.op != Op::kFma);
    }
    for (const Element& element : test.elements) EXPECT_EQ(element.bytes, 4);
  }
}

TEST(RandomKernel, IsTheSameForASeed) {
  EXPECT_EQ(to_string(random_kernel(7).kernel), to_string(random_kernel(7).kernel));
  EXPECT_NE(to_string(random_kernel(7).kernel), to_string(random_kernel(8).kernel));
}

// Rows that row_access.h finds in random kernels hold all that their points touch.
TEST(RandomKernel, TouchesItsRowsAlone) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    RandomOptions options;
    options.max_points = 60;
    const TestKernel test = random_kernel(seed, options);
    const Function& f = test.kernel.body;
    const int64_t points = test.kernel.points();
    std::optional<ObservedValues> observed;
    for (int64_t rows = 2; rows <= points; ++rows) {
      const auto bytes = points % rows == 0 ? row_bytes(test.kernel, rows) : std::nullopt;
      if (!bytes) continue;
      if (!observed) observed.emplace(test);
      for (Value v = 0; v < static_cast<Value>(f.size()); ++v) {
        if (f[v].op != Op::kLoad && f[v].op != Op::kStore) continue;
        const Access access = unpack_access(f[v].immediate);
        const int64_t row_size = (*bytes)[static_cast<size_t>(access.operand)];
        if (row_size == 0) continue;
        ++found;
        for (const auto& [position, element] : observed->of(f[v].arguments[0])) {
          int64_t point = 0;
          for (size_t d = 0; d < test.kernel.grid.size(); ++d) {
            point = point * test.kernel.grid[d] + position[d];
          }
          const int64_t row = point / (points / rows);
          EXPECT_EQ(element * access.bytes / row_size, row)
              << "%" << v << ", " << rows << " rows, seed " << seed << "\n"
              << to_string(test.kernel);
        }
      }
    }
  }
  EXPECT_GT(found, 300);
}

TEST(OpKernel, EveryCaseRuns) {
  for (const OpCase& c : all_op_cases()) {
    const TestKernel test = op_kernel({c});
    ASSERT_TRUE(verify(test.kernel.body).ok()) << to_string(c);
    Buffers buffers = test.contents;
    const Status status = interpret(test.kernel, spans(buffers));
    EXPECT_TRUE(status.ok()) << to_string(c) << ": " << status.message();
  }
}

TEST(Difference, NamesTheElementAndTakesNansAsEqual) {
  const TestKernel test = op_kernel({{Op::kAdd, ScalarType::kF32, ScalarType::kF32}});
  Buffers a = test.contents;
  ASSERT_TRUE(interpret(test.kernel, spans(a)).ok());
  Buffers b = a;
  const uint32_t quiet = 0x7fc00000, other = 0xffc12345;
  std::memcpy(&a[3][40], &quiet, 4);
  std::memcpy(&b[3][40], &other, 4);
  EXPECT_EQ(difference(test, a, b), "");
  b[3][1] ^= std::byte{1};
  EXPECT_NE(difference(test, a, b).find("f32 add), element 0:"), std::string::npos)
      << difference(test, a, b);
}

}  // namespace
}  // namespace hekla::kernel::testing
