// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/hierarchical.h"

#include <gtest/gtest.h>

#include <atomic>

#include "runtime/process_group/conformance/conformance.h"
#include "runtime/process_group/host_layout.h"
#include "runtime/process_group/testing/ranks.h"

namespace hekla::process_group {
namespace {

TEST(HostLayout, WhoIsWhere) {
  const HostLayout rows = HostLayout::of_rows(5, 2);
  EXPECT_EQ(rows.hosts(), 3);
  EXPECT_EQ(rows.on(1), (std::vector<int>{2, 3}));
  EXPECT_EQ(rows.most_on_a_host(), 2);
  EXPECT_TRUE(rows.has_levels());
  EXPECT_TRUE(rows.is_in_rows());
  EXPECT_EQ(rows.proxy(0, 3), 1);
  EXPECT_EQ(rows.proxy(1, 3), 3);
  EXPECT_EQ(rows.proxy(2, 3), 4);
  // Any numbers stand for hosts.
  const HostLayout mixed = HostLayout::of({7, 3, 7, 3, 3});
  EXPECT_EQ(mixed.host_of, (std::vector<int>{0, 1, 0, 1, 1}));
  EXPECT_TRUE(mixed.has_levels());
  EXPECT_FALSE(mixed.is_in_rows());
  EXPECT_FALSE(HostLayout::of({1, 1, 1}).has_levels());
  EXPECT_FALSE(HostLayout::of({1, 2, 3}).has_levels());
  EXPECT_FALSE(HostLayout().has_levels());
  EXPECT_EQ(HostLayout::of_rows(8, 4).most_leaving(), 2);    // four ranks, half of each one's
  EXPECT_EQ(HostLayout::of_rows(5, 2).most_leaving(), 1.2);  // two, three fifths
}

// Hosts with as many ranks, a last one with fewer, one whose ranks have several lanes each, in one
// piece and in many.
TEST(Hierarchical, EverythingIsAsTheReferenceHasIt) {
  struct Case {
    int ranks, per_host;
    int64_t segment;
  };
  for (const auto& [ranks, per_host, segment] :
       {Case{4, 2, 1 << 20}, {5, 2, 100}, {4, 3, 300}, {7, 3, 1 << 20}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {} on a host", ranks, per_host));
    Options options;
    options.shared_memory = "off";
    options.flat_bytes = 0;
    options.segment_bytes = segment;
    options.ranks_per_host = per_host;
    std::atomic<size_t> count = 0;
    on_ranks(
        ranks,
        [&](ProcessGroup& group) {
          ConformanceOptions wanted;
          wanted.sizes = {0, 28, 1200};
          wanted.dtypes = {DType::kF32, DType::kI64};
          for (const CheckResult& result : run_conformance(group, wanted, nullptr)) {
            EXPECT_EQ(result.problem, "") << result.name << " on rank " << group.rank();
            ++count;
          }
        },
        options);
    EXPECT_GT(count, 500U);
  }
}

}  // namespace
}  // namespace hekla::process_group
