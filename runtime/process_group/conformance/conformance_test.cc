// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/conformance/conformance.h"

#include <gtest/gtest.h>

#include <atomic>

#include "runtime/base/testing/instrumented.h"
#include "runtime/process_group/testing/ranks.h"

namespace hekla::process_group {
namespace {

// All types in small sizes (a few where code is instrumented), each way in which it may be done.
TEST(Conformance, EverythingIsAsTheReferenceHasIt) {
  struct Way {
    const char* memory;
    int64_t flat, segment;
    int ranks_per_host = -1;
  };
  for (const auto& [memory, flat, segment, ranks_per_host] : {Way{"off", 32 << 10, 1 << 20},
                                                              {"off", 0, 100},
                                                              {"off", 20, 100, 2},
                                                              {"on", 32 << 10, 1 << 20},
                                                              {"on", 0, 1},
                                                              {"on", 100, 300}}) {
    Options options;
    options.shared_memory = memory;
    options.ranks_per_host = ranks_per_host;
    options.flat_bytes = options.shared_flat_bytes = flat;
    options.segment_bytes = options.shared_slot_bytes = segment;
    std::atomic<size_t> count = 0;
    on_ranks(
        3,
        [&](ProcessGroup& group) {
          ConformanceOptions wanted;
          wanted.sizes = {0, 16, 28, 400};
          if (testing::kInstrumented) {
            wanted.dtypes = {DType::kI1, DType::kBF16, DType::kF32, DType::kC128};
          }
          for (const CheckResult& result : run_conformance(group, wanted, nullptr)) {
            EXPECT_EQ(result.problem, "") << result.name << " on rank " << group.rank();
            ++count;
          }
        },
        options);
    EXPECT_GT(count, testing::sweep(3000U, 600U));
  }
}

// A suite that cannot fail is none.
TEST(Conformance, WrongResultsAreSeen) {
  const HostArray a = conformance_input(DType::kBF16, 100, 0, "x");
  const HostArray b = conformance_input(DType::kBF16, 100, 1, "x");
  EXPECT_FALSE(a.identical(b));
  EXPECT_NE(difference(a, b), "");
  EXPECT_EQ(difference(a, a), "");
  const HostArray sum = reference_reduce(ReduceOp::kSum, {a, b});
  EXPECT_NE(difference(sum, reference_reduce(ReduceOp::kMax, {a, b})), "");
}

}  // namespace
}  // namespace hekla::process_group
