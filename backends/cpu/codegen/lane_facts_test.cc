// SPDX-License-Identifier: Apache-2.0
// What LaneAnalysis says of random kernels, held to what they compute.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/compiler/kernel/testing/observed_values.h"
#include "backends/cpu/codegen/lane_analysis.h"

namespace hekla::cpu {
namespace {

using kernel::Function;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;
using kernel::testing::ObservedValues;
using kernel::testing::TestKernel;

struct Claims {
  int uniform = 0, affine = 0, known = 0, natural = 0, resolved = 0, slopes = 0;
};

int64_t sum_in(ScalarType type, int64_t x, int64_t y) {
  const uint64_t sum = static_cast<uint64_t>(x) + static_cast<uint64_t>(y);
  return type == ScalarType::kI64 ? static_cast<int64_t>(sum)
                                  : static_cast<int32_t>(static_cast<uint32_t>(sum));
}

// Iterations of the loops around a value.
size_t depth_of(const Function& f, Value v) {
  size_t depth = 0;
  for (int32_t r = f[v].region; r > 0; r = f.region(r).parent) ++depth;
  return depth;
}

class Check {
 public:
  Check(const TestKernel& test, const ObservedValues& observed, Claims& claims)
      : test_(test), f_(test.kernel.body), observed_(observed), claims_(claims) {}

  void check(int lane_dimension, int block) {
    const LaneAnalysis lanes(test_.kernel, lane_dimension, block);
    for (size_t i = 0; i < f_.size(); ++i) {
      const auto v = static_cast<Value>(i);
      const kernel::Instruction& inst = f_[v];
      if (inst.op == Op::kStore || inst.op == Op::kFor || inst.op == Op::kConstant ||
          is_float(inst.type)) {
        continue;
      }
      check_lanes(lanes, v, block);
      check_values(lanes, v);
      check_slopes(lanes, v);
    }
  }

 private:
  std::string say(Value v, const LaneAnalysis& lanes) const {
    return fmt::format("%{}, lanes along dimension {}, of\n{}", v, lanes.lane_dimension(),
                       to_string(test_.kernel));
  }

  // From lane to lane of vectors that start at multiples of `block`.
  void check_lanes(const LaneAnalysis& lanes, Value v, int block) {
    const LaneShape shape = lanes.shape(v);
    if (shape.kind == LaneKind::kVarying || lanes.lane_dimension() < 0) return;
    ++(shape.kind == LaneKind::kUniform ? claims_.uniform : claims_.affine);
    const auto dimension = static_cast<size_t>(lanes.lane_dimension());
    for (const auto& [position, value] : observed_.of(v)) {
      if (block > 1 && (position[dimension] + 1) % block == 0) continue;
      ObservedValues::Position next = position;
      ++next[dimension];
      const auto it = observed_.of(v).find(next);
      if (it == observed_.of(v).end()) continue;
      EXPECT_EQ(sum_in(f_.type(v), value, shape.stride), it->second) << say(v, lanes);
    }
  }

  void check_values(const LaneAnalysis& lanes, Value v) {
    const int known = lanes.known(v);
    claims_.known += known >= 0;
    const bool is_natural = lanes.index().bounds(v).low >= 0;
    claims_.natural += is_natural ? 1 : 0;
    const Value resolved = lanes.resolved(v);
    claims_.resolved += resolved != v ? 1 : 0;
    const size_t parts = test_.kernel.grid.size() + depth_of(f_, resolved);
    for (const auto& [position, value] : observed_.of(v)) {
      if (known >= 0) {
        EXPECT_EQ(known, value != 0) << say(v, lanes);
      }
      if (is_natural) {
        EXPECT_GE(value, 0) << say(v, lanes);
      }
      if (resolved == v || f_[resolved].op == Op::kConstant) continue;
      const ObservedValues::Position outer(position.begin(),
                                           position.begin() + static_cast<ptrdiff_t>(parts));
      const auto it = observed_.of(resolved).find(outer);
      ASSERT_NE(it, observed_.of(resolved).end()) << say(v, lanes);
      EXPECT_EQ(it->second, value) << say(v, lanes);
    }
    if (lanes.level(v) == Level::kPoint) return;
    // Once a call, or once a row.
    const size_t rank = test_.kernel.grid.size();
    for (size_t d = 0; d < rank; ++d) {
      if (lanes.level(v) == Level::kRow && static_cast<int>(d) != lanes.lane_dimension()) continue;
      observed_.for_pairs(
          v, d, 1, [&](int64_t here, int64_t there) { EXPECT_EQ(here, there) << say(v, lanes); });
    }
  }

  void check_slopes(const LaneAnalysis& lanes, Value v) {
    for (size_t d = 0; d < test_.kernel.grid.size(); ++d) {
      const auto slope = lanes.index().slope_of_dimension(v, static_cast<int>(d));
      if (!slope) continue;
      ++claims_.slopes;
      observed_.for_pairs(v, d, 1, [&](int64_t here, int64_t there) {
        EXPECT_EQ(sum_in(f_.type(v), here, *slope), there) << say(v, lanes);
      });
    }
  }

  const TestKernel& test_;
  const Function& f_;
  const ObservedValues& observed_;
  Claims& claims_;
};

TEST(LaneFacts, HoldForRandomKernels) {
#ifdef HEKLA_SANITIZED
  constexpr uint64_t kCount = 40;
#else
  constexpr uint64_t kCount = 400;
#endif
  Claims claims;
  for (uint64_t seed = 1; seed <= kCount && !::testing::Test::HasFailure(); ++seed) {
    kernel::testing::RandomOptions options;
    options.max_points = 60;
    const TestKernel test = kernel::testing::random_kernel(seed, options);
    const ObservedValues observed(test);
    Check check(test, observed, claims);
    for (int d = -1; d < static_cast<int>(test.kernel.grid.size()); ++d) {
      for (const int block : {1, 4, 8}) check.check(d, block);
    }
  }
  // The test means something.
  constexpr int kFew = static_cast<int>(kCount);
  EXPECT_GT(claims.uniform, kFew);
  EXPECT_GT(claims.affine, kFew);
  EXPECT_GT(claims.known, kFew / 10);
  EXPECT_GT(claims.natural, kFew);
  EXPECT_GT(claims.resolved, 0);
  EXPECT_GT(claims.slopes, kFew);
}

}  // namespace
}  // namespace hekla::cpu
