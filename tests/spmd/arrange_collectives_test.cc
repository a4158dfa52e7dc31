// SPDX-License-Identifier: Apache-2.0
// Fewer collectives, the same bits: programs as users write them in manual computations, on four
// devices of the lock-step evaluator before and after.
#include "backends/compiler/spmd/arrange_collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "backends/compiler/spmd/report.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::spmd {
namespace {

constexpr int64_t kDevices = 4;
constexpr char kAll[] = "dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>";
constexpr char kPairs[] = "dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>";

std::string all_reduce(const std::string& result, const std::string& operand,
                       const std::string& groups = kAll, const std::string& fold = "add",
                       const std::string& element = "f32") {
  static int channel = 0;
  return fmt::format(
      "%{0} = \"stablehlo.all_reduce\"(%{1}) <{{replica_groups = {2}, channel_handle = "
      "#stablehlo.channel_handle<handle = {3}, type = 1>, use_global_device_ids}}> ({{\n"
      "^bb0(%x: tensor<{4}>, %y: tensor<{4}>):\n%s = stablehlo.{5} %x, %y : tensor<{4}>\n"
      "stablehlo.return %s : tensor<{4}>\n}}) : (tensor<6x{4}>) -> tensor<6x{4}>\n",
      result, operand, groups, ++channel, element, fold);
}

std::string all_gather(const std::string& result, const std::string& operand) {
  return fmt::format(
      "%{} = \"stablehlo.all_gather\"(%{}) <{{all_gather_dim = 0 : i64, replica_groups = {}, "
      "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}}> "
      ": (tensor<6xf32>) -> tensor<24xf32>\n",
      result, operand, kAll);
}

std::string negate(const std::string& result, const std::string& operand) {
  return fmt::format("%{} = stablehlo.negate %{} : tensor<6xf32>\n", result, operand);
}
std::string add(const std::string& result, const std::string& a, const std::string& b) {
  return fmt::format("%{} = stablehlo.add %{}, %{} : tensor<6xf32>\n", result, a, b);
}

// A loop of `trips` passes that carries %w, unchanged, and %v: `body` makes %r of both.
std::string loop(const std::string& result, int trips, const std::string& begin,
                 const std::string& body, const std::string& depth = "") {
  return fmt::format(
      "%n{3} = stablehlo.constant dense<{0}> : tensor<i32>\n"
      "%z{3} = stablehlo.constant dense<0> : tensor<i32>\n"
      "%loop{3}:3 = \"stablehlo.while\"(%z{3}, %a, %{1}) ({{\n"
      "^bb0(%i: tensor<i32>, %w: tensor<6xf32>, %v: tensor<6xf32>):\n"
      "%c = stablehlo.compare LT, %i, %n{3} : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
      "stablehlo.return %c : tensor<i1>\n}}, {{\n"
      "^bb0(%i: tensor<i32>, %w: tensor<6xf32>, %v: tensor<6xf32>):\n{2}"
      "%one = stablehlo.constant dense<1> : tensor<i32>\n"
      "%j = stablehlo.add %i, %one : tensor<i32>\n"
      "stablehlo.return %j, %w, %r : tensor<i32>, tensor<6xf32>, tensor<6xf32>\n"
      "}}) : (tensor<i32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<i32>, tensor<6xf32>, "
      "tensor<6xf32>)\n%{4} = stablehlo.negate %loop{3}#2 : tensor<6xf32>\n",
      trips, begin, body, depth, result);
}

std::unique_ptr<ir::Module> read(const std::string& body, const std::string& results, int count,
                                 const std::string& type = "tensor<6xf32>") {
  std::string types = type;
  for (int i = 1; i < count; ++i) types += ", " + type;
  auto module = stablehlo::read_program(
      fmt::format("func.func public @main(%a: tensor<6xf32>, %b: tensor<6xf32>) -> ({0}) {{\n{1}"
                  "return {2} : {0}\n}}",
                  types, body, results));
  if (!module.ok()) die_of_bad_result(module.status());
  return *std::move(module);
}

// Sums of these depend on their order.
std::vector<std::vector<HostArray>> arguments() {
  std::vector<std::vector<HostArray>> all;
  for (int64_t device = 0; device < kDevices; ++device) {
    std::vector<HostArray> own;
    for (int k = 0; k < 2; ++k) {
      HostArray array(DType::kF32, {6});
      for (int i = 0; i < 6; ++i) {
        array.mutable_as<float>()[i] =
            std::ldexp(1.0F + static_cast<float>(i) / 7.0F, static_cast<int>(device) * 9 - 3 * k);
      }
      own.push_back(std::move(array));
    }
    all.push_back(std::move(own));
  }
  return all;
}

std::vector<std::vector<HostArray>> run(const ir::Module& module) {
  auto results = reference::evaluate_devices(module, arguments(), {1, kDevices});
  EXPECT_TRUE(results.ok()) << results.status().to_string();
  return results.ok() ? *std::move(results) : std::vector<std::vector<HostArray>>();
}

// Arranged, its results have the bits that they had.
PartitionCounts arrange(ir::Module& module, const PartitionSchedule& schedule) {
  const auto before = run(module);
  PartitionCounts counts;
  arrange_collectives(module, schedule, counts);
  const Status status = ir::verify(module);
  EXPECT_TRUE(status.ok()) << status.to_string();
  const auto after = run(module);
  EXPECT_EQ(before.size(), after.size());
  for (size_t device = 0; device < std::min(before.size(), after.size()); ++device) {
    for (size_t i = 0; i < before[device].size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(before[device][i].bytes(), after[device][i].bytes()))
          << "device " << device << ", result " << i;
    }
  }
  return counts;
}

PartitionSchedule only(bool merge, bool hoist, int64_t combine) {
  PartitionSchedule schedule;
  schedule.merge_collectives = merge;
  schedule.hoist_collectives = hoist;
  schedule.combine_bytes = combine;
  return schedule;
}

// Kinds and numbers of operands of the collectives, in the order of the program.
std::string collectives(const ir::Module& module) {
  const auto report = report_collectives(module, {1, kDevices});
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  std::string text;
  for (const Collective& one : report->collectives) {
    text += fmt::format("{}{} {} x{}", text.empty() ? "" : ", ",
                        ir::op_name(one.code).substr(sizeof("stablehlo.") - 1), one.operands.size(),
                        one.runs);
  }
  return text;
}

TEST(MergeCollectives, EqualOnesAreOne) {
  const auto module = read(all_gather("p", "a") + all_gather("q", "a") + all_gather("r", "b"),
                           "%p, %q, %r", 3, "tensor<24xf32>");
  EXPECT_EQ(arrange(*module, only(true, false, 0)).merged, 1);
  EXPECT_EQ(collectives(*module), "all_gather 1 x1, all_gather 1 x1");
}

TEST(MergeCollectives, WhatIsMadeOfEqualOnesIsEqualToo) {
  const auto module = read(all_reduce("p", "a") + all_reduce("q", "a") + negate("s", "p") +
                               negate("t", "q") + all_reduce("u", "s") + all_reduce("v", "t"),
                           "%u, %v", 2);
  EXPECT_EQ(arrange(*module, only(true, false, 0)).merged, 2);
  EXPECT_EQ(collectives(*module), "all_reduce 1 x1, all_reduce 1 x1");
}

TEST(MergeCollectives, OtherGroupsAndFoldsAreOthers) {
  const auto module = read(
      all_reduce("p", "a") + all_reduce("q", "a", kPairs) + all_reduce("r", "a", kAll, "maximum"),
      "%p, %q, %r", 3);
  EXPECT_EQ(arrange(*module, only(true, false, 0)).merged, 0);
}

TEST(HoistCollectives, WhatIsTheSameEachTimeRunsOnceInFront) {
  // Of what is carried unchanged, by way of an operation; and in a loop of a loop.
  const std::string inner = negate("m", "w") + all_reduce("g", "m") + add("r", "g", "v");
  const auto module = read(loop("l", 3, "b", inner), "%l", 1);
  EXPECT_EQ(collectives(*module), "all_reduce 1 x3");
  EXPECT_EQ(arrange(*module, only(false, true, 0)).hoisted, 1);
  EXPECT_EQ(collectives(*module), "all_reduce 1 x1");
  const auto nested =
      read(loop("l", 2, "b", loop("k", 3, "b", inner, "1") + add("r", "k", "v")), "%l", 1);
  EXPECT_EQ(collectives(*nested), "all_reduce 1 x6");
  EXPECT_EQ(arrange(*nested, only(false, true, 0)).hoisted, 2);
  EXPECT_EQ(collectives(*nested), "all_reduce 1 x1");
}

TEST(HoistCollectives, WhatOthersNeedGoesWithThem) {
  const auto module = read(
      loop("l", 2, "b",
           all_reduce("g", "a") + negate("m", "g") + all_reduce("h", "m") + add("r", "h", "v")),
      "%l", 1);
  arrange(*module, only(false, true, 0));
  EXPECT_EQ(collectives(*module), "all_reduce 1 x1, all_reduce 1 x1");
}

TEST(HoistCollectives, LoopsWithoutAPassGiveWhatTheyGave) {
  const auto module = read(loop("l", 0, "b", all_reduce("g", "w") + add("r", "g", "v")), "%l", 1);
  EXPECT_EQ(arrange(*module, only(false, true, 0)).hoisted, 1);
}

TEST(HoistCollectives, AsFarAsItsMemoryGoes) {
  // Results of 24, 96 and 24 bytes; the third needs the second.
  const auto program = [] {
    return read(loop("l", 2, "b",
                     all_reduce("f", "a") + all_gather("g", "b") +
                         "%m = stablehlo.slice %g [6:12] : (tensor<24xf32>) -> tensor<6xf32>\n" +
                         all_reduce("h", "m") + add("s", "f", "h") + add("r", "s", "v")),
                "%l", 1);
  };
  const std::vector<std::pair<int64_t, int64_t>> kMoved = {{0, 0},   {23, 0},  {24, 1}, {119, 1},
                                                           {120, 2}, {143, 2}, {144, 3}};
  for (const auto& [limit, moved] : kMoved) {
    PartitionSchedule schedule = only(false, true, 0);
    schedule.hoist_bytes = limit;
    EXPECT_EQ(arrange(*program(), schedule).hoisted, moved) << limit;
  }
}

TEST(HoistCollectives, WhatGoesWithThemTakesMemoryWhereTheLoopGoesOnAskingForIt) {
  // Sums of 24 bytes, of a value of 24 bytes that the second program's loop adds, too.
  const auto program = [](bool is_asked_for) {
    return read(loop("l", 2, "b",
                     negate("m", "w") + negate("k", "m") + all_reduce("g", "k") +
                         add("s", "g", is_asked_for ? "k" : "v") + add("r", "s", "v")),
                "%l", 1);
  };
  const std::vector<std::pair<int64_t, int64_t>> kMoved = {{23, 0}, {24, 1}};
  const std::vector<std::pair<int64_t, int64_t>> kMovedAlso = {{24, 0}, {47, 0}, {48, 1}};
  for (const bool is_asked_for : {false, true}) {
    for (const auto& [limit, moved] : is_asked_for ? kMovedAlso : kMoved) {
      PartitionSchedule schedule = only(false, true, 0);
      schedule.hoist_bytes = limit;
      EXPECT_EQ(arrange(*program(is_asked_for), schedule).hoisted, moved) << limit;
    }
  }
}

TEST(HoistCollectives, WhatChangesStays) {
  const auto module = read(loop("l", 3, "b", all_reduce("r", "v")), "%l", 1);
  EXPECT_EQ(arrange(*module, only(false, true, 0)).hoisted, 0);
  EXPECT_EQ(collectives(*module), "all_reduce 1 x3");
}

TEST(CombineCollectives, SmallOnesOfAKindAreOne) {
  const auto module = read(all_reduce("p", "a") + negate("m", "a") + all_reduce("q", "m") +
                               all_reduce("o", "b", kPairs) + all_reduce("r", "b"),
                           "%p, %q, %r, %o", 4);
  EXPECT_EQ(arrange(*module, only(false, false, 1000)).combined, 2);
  EXPECT_EQ(collectives(*module), "all_reduce 1 x1, all_reduce 3 x1");
  const auto gathers =
      read(all_gather("p", "a") + all_gather("q", "b"), "%p, %q", 2, "tensor<24xf32>");
  EXPECT_EQ(arrange(*gathers, only(false, false, 1000)).combined, 1);
  EXPECT_EQ(collectives(*gathers), "all_gather 2 x1");
}

TEST(CombineCollectives, TheyComeFromAllTheirPlaces) {
  const auto at = [](std::string text, int line) {
    text.pop_back();
    return fmt::format("{} loc(\"model.py\":{}:1)\n", text, line);
  };
  const auto module = read(at(all_reduce("p", "a"), 3) + at(all_reduce("q", "b"), 7), "%p, %q", 2);
  arrange(*module, only(false, false, 1000));
  const auto report = report_collectives(*module, {1, kDevices});
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->collectives.size(), 1U);
  EXPECT_EQ(report->collectives[0].locations,
            (std::vector<std::string>{"model.py:3:1", "model.py:7:1"}));
  EXPECT_NE(to_text(*report).find("model.py:3:1; model.py:7:1"), std::string::npos);
}

TEST(CombineCollectives, OnesThatNeedEachOtherAreNot) {
  const auto module =
      read(all_reduce("p", "a") + negate("m", "p") + all_reduce("q", "m") + all_reduce("r", "b"),
           "%p, %q, %r", 3);
  EXPECT_EQ(arrange(*module, only(false, false, 1000)).combined, 1);
  EXPECT_EQ(collectives(*module), "all_reduce 1 x1, all_reduce 2 x1");
}

TEST(CombineCollectives, UpToTheLimit) {
  const auto program = [] {
    return read(all_reduce("p", "a") + all_reduce("q", "b", kAll, "maximum") + negate("m", "a") +
                    all_reduce("r", "m") + all_reduce("s", "b"),
                "%p, %q, %r, %s", 4);
  };
  // Of 24 bytes each.
  for (const auto& [limit, combined] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 0}, {23, 0}, {47, 0}, {48, 1}, {71, 1}, {72, 2}}) {
    const auto module = program();
    EXPECT_EQ(arrange(*module, only(false, false, limit)).combined, combined) << limit;
  }
}

TEST(CombineCollectives, NotAcrossLoopsButInThem) {
  const std::string body =
      all_reduce("g", "v") + negate("m", "w") + all_reduce("h", "m") + add("r", "g", "h");
  const auto module =
      read(all_reduce("p", "a") + loop("l", 2, "b", body) + all_reduce("q", "b"), "%p, %l, %q", 3);
  EXPECT_EQ(arrange(*module, only(false, false, 1000)).combined, 1);
  EXPECT_EQ(collectives(*module), "all_reduce 1 x1, all_reduce 2 x2, all_reduce 1 x1");
}

TEST(ArrangeCollectives, MovedOutOfALoopTheyMeetTheirEquals) {
  const auto module =
      read(all_reduce("p", "a") + loop("l", 2, "b", all_reduce("g", "w") + add("r", "g", "v")),
           "%p, %l", 2);
  const PartitionCounts counts = arrange(*module, {});
  EXPECT_EQ(counts.hoisted, 1);
  EXPECT_EQ(counts.merged, 1);
  EXPECT_EQ(collectives(*module), "all_reduce 1 x1");
}

}  // namespace
}  // namespace hekla::spmd
