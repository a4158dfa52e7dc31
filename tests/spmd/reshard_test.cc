// SPDX-License-Identifier: Apache-2.0
// Arrays get from any tiling to any other, on all devices in lock-step, and by few bytes. What is
// not a partition's own is garbage on the way in and not looked at on the way out.
#include "backends/compiler/spmd/reshard.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <random>

#include "backends/compiler/spmd/report.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/sharding/testing/random_sharding.h"
#include "tests/spmd/boxes.h"

namespace hekla::spmd {
namespace {

using ir::GraphBuilder;
using ir::OpCode;
using sharding::Box;
using sharding::testing::draw;

constexpr int32_t kGarbage = -77777;

sharding::Mesh random_mesh(std::mt19937_64& random) {
  constexpr int64_t kSizes[] = {1, 2, 2, 3, 4, 5, 6, 8};
  sharding::Mesh mesh;
  int64_t count = 1;
  for (const char* name : {"a", "b", "c"}) {
    const int64_t size = kSizes[draw(random, 0, 7)];
    if (count * size > 12) continue;
    count *= size;
    mesh.axes.push_back({name, size});
  }
  if (mesh.axes.empty()) mesh.axes.push_back({"a", 1});
  if (draw(random, 0, 2) == 0) {
    mesh.device_ids.resize(static_cast<size_t>(count));
    std::iota(mesh.device_ids.begin(), mesh.device_ids.end(), 0);
    std::shuffle(mesh.device_ids.begin(), mesh.device_ids.end(), random);
  }
  return mesh;
}

Tiling random_tiling(std::mt19937_64& random, const PrimeMesh& mesh, size_t rank) {
  Tiling tiling = Tiling::replicated(rank);
  Axes axes(static_cast<size_t>(mesh.axis_count()));
  std::iota(axes.begin(), axes.end(), 0);
  std::shuffle(axes.begin(), axes.end(), random);
  for (int axis : axes) {
    const int64_t place = draw(random, 0, static_cast<int64_t>(rank) + 1);
    if (place < static_cast<int64_t>(rank)) {
      tiling.dims[static_cast<size_t>(place)].push_back(axis);
    } else if (draw(random, 0, 3) == 0) {
      tiling.partial.push_back(axis);
    }
  }
  std::sort(tiling.partial.begin(), tiling.partial.end());
  return tiling;
}

// By partition; partial sums are of the whole box.
std::vector<Box> boxes_of(const PrimeMesh& mesh, Tiling tiling, const Dims& whole) {
  tiling.partial.clear();
  return spmd::boxes_of(mesh.to_hlo(tiling), mesh.partitions(), whole);
}

struct Case {
  const PrimeMesh& mesh;
  Tiling from, to;
  Dims whole;
  int64_t replicas = 1;

  std::string text() const {
    return fmt::format("{} to {} of {} elements", mesh.to_text(from), mesh.to_text(to),
                       fmt::join(whole, "x"));
  }
};

// Element i of the whole array is 1000 + i. Partial sums have other addends on each group of
// devices.
std::vector<HostArray> parts_of(const Case& test) {
  const std::vector<Box> boxes = boxes_of(test.mesh, test.from, test.whole);
  const Dims local = local_shape(test.mesh, test.from, test.whole);
  std::vector<HostArray> parts(boxes.size());
  int32_t salt = 0;
  for (const std::vector<int64_t>& row : test.mesh.groups(test.from.partial)) {
    ++salt;
    int32_t rest = 0;
    for (size_t i = row.size(); i-- > 0;) {
      const int32_t addend = i > 0 ? salt * 10 + static_cast<int32_t>(i) : 0;
      rest += addend;
      HostArray part(DType::kI32, local);
      std::fill_n(part.mutable_as<int32_t>(), element_count(local), kGarbage);
      for_each(boxes[static_cast<size_t>(row[i])], local, test.whole, [&](int64_t at, int64_t in) {
        part.mutable_as<int32_t>()[at] = i > 0 ? addend : 1000 + static_cast<int32_t>(in) - rest;
      });
      parts[static_cast<size_t>(row[i])] = std::move(part);
    }
  }
  return parts;
}

// Empty, or what is wrong.
std::string check(const Case& test, const std::vector<std::vector<HostArray>>& results) {
  const std::vector<Box> boxes = boxes_of(test.mesh, test.to, test.whole);
  const Dims local = local_shape(test.mesh, test.to, test.whole);
  std::string wrong;
  for (int64_t replica = 0; replica < test.replicas; ++replica) {
    for (const std::vector<int64_t>& row : test.mesh.groups(test.to.partial)) {
      std::vector<int32_t> sums(static_cast<size_t>(element_count(local)));
      for (int64_t partition : row) {
        const HostArray& part =
            results[static_cast<size_t>(replica * test.mesh.partitions() + partition)][0];
        if (part.dims() != local) return "the part has another shape";
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += part.as<int32_t>()[i];
      }
      for_each(boxes[static_cast<size_t>(row[0])], local, test.whole, [&](int64_t at, int64_t in) {
        const int32_t sum = sums[static_cast<size_t>(at)];
        if (sum != 1000 + in && wrong.empty()) {
          wrong = fmt::format("partition {}, element {}: {}", row[0], in, sum);
        }
      });
    }
  }
  return wrong;
}

std::string run(const Case& test, CollectiveReport* report = nullptr) {
  Resharder resharder(test.replicas, test.mesh.partitions(), &test.mesh);
  ir::Module module;
  const ir::Type type =
      ir::Type::tensor(DType::kI32, local_shape(test.mesh, test.from, test.whole));
  Status status =
      ir::add_function(module, "main", {type}, [&](GraphBuilder& g, const GraphBuilder::Values& x) {
        return GraphBuilder::Values{resharder.reshard(g, x[0], test.from, test.to, test.whole)};
      });
  if (status.ok()) status = ir::verify(module);
  if (!status.ok()) return status.to_string();
  const auto found = report_collectives(module, {test.replicas, test.mesh.partitions()});
  if (!found.ok()) return found.status().to_string();
  const double planned = resharder.reshard_bytes(test.from, test.to, test.whole, DType::kI32);
  if (std::abs(planned - found->total().bytes) > 0.01) {
    return fmt::format("{} bytes were planned and {} are sent", planned, found->total().bytes);
  }
  if (report != nullptr) *report = *found;
  std::vector<std::vector<HostArray>> arguments;
  for (int64_t replica = 0; replica < test.replicas; ++replica) {
    for (HostArray& part : parts_of(test)) arguments.push_back({std::move(part)});
  }
  const auto results = reference::evaluate_devices(module, std::move(arguments),
                                                   {test.replicas, test.mesh.partitions()});
  return results.ok() ? check(test, *results) : results.status().to_string();
}

TEST(Reshard, AnyTilingBecomesAnyOther) {
  std::mt19937_64 random(11);
  int uneven = 0, summed = 0, made_partial = 0;
  std::map<OpCode, int> kinds;
  for (int i = 0; i < 600; ++i) {
    const PrimeMesh mesh(random_mesh(random));
    const auto rank = static_cast<size_t>(draw(random, i % 20 == 0 ? 0 : 1, 3));
    Case test{mesh, random_tiling(random, mesh, rank), random_tiling(random, mesh, rank), {}};
    for (size_t d = 0; d < rank; ++d) {
      const int64_t parts = std::lcm(mesh.parts(test.from.dims[d]), mesh.parts(test.to.dims[d]));
      const int64_t kind = draw(random, 0, 9);
      test.whole.push_back(kind == 0   ? draw(random, 0, 2)
                           : kind <= 6 ? parts * draw(random, 1, 2)
                                       : draw(random, 1, 2 * parts + 3));
    }
    test.replicas = i % 10 == 0 ? 2 : 1;
    uneven += !is_even(mesh, test.from, test.whole) || !is_even(mesh, test.to, test.whole);
    summed += !test.from.partial.empty();
    made_partial += !test.to.partial.empty();
    CollectiveReport report;
    EXPECT_EQ(run(test, &report), "") << "case " << i << ": " << test.text();
    for (const Collective& one : report.collectives) ++kinds[one.code];
  }
  EXPECT_GT(uneven, 100);
  EXPECT_GT(summed, 100);
  EXPECT_GT(made_partial, 100);
  for (OpCode kind : {OpCode::kAllGather, OpCode::kAllReduce, OpCode::kAllToAll,
                      OpCode::kCollectivePermute, OpCode::kReduceScatter}) {
    EXPECT_GT(kinds[kind], 20) << ir::op_name(kind);
  }
}

// Axes: 0 is x of two parts, 1 and 2 are y of four.
Tiling tiling(const std::string& text) {
  Tiling found;
  found.dims.emplace_back();
  Axes* axes = &found.dims.back();
  for (char letter : text) {
    if (letter == ',') axes = &found.dims.emplace_back();
    if (letter == '+') axes = &found.partial;
    if (letter == 'x') axes->push_back(0);
    if (letter == 'y') axes->insert(axes->end(), {1, 2});
  }
  return found;
}

// Reshards of f32[64, 64]. No device can do with less than it lacks of its new part; Shardy's own
// way is measured with jaxlib 0.10.2.
TEST(Reshard, MovesFewBytes) {
  const PrimeMesh mesh({{{"x", 2}, {"y", 4}}, {}});
  struct Row {
    const char *from, *to;
    double least, shardy, bytes;
    size_t collectives;
  };
  const Row rows[] = {
      {"x,", ",", 8192, 8192, 8192, 1},
      {"xy,", "y,", 3584, 3584, 3584, 2},
      {"xy,", "yx,", 1536, 1536, 1536, 1},
      {"x,", ",x", 4096, 4096, 4096, 1},
      {"x,y", "y,x", 1536, 2048, 2048, 2},
      {"x,y", ",xy", 1792, 2560, 2560, 2},
      {"x,y", "yx,", 1792, 3072, 2560, 2},
      {"x,", "y,", 2048, 3072, 2048, 1},
      {"x,", ",y", 2048, 2048, 2048, 1},
      {"xy,", ",yx", 1792, 3328, 1792, 1},
      {"xy,", "y,x", 1792, 2560, 2560, 2},
      {",", "yx,", 0, 0, 0, 0},
      {",", "y,x", 0, 0, 0, 0},
      {"x,y", ",", 14336, 14336, 14336, 1},
      {"xy,", ",", 14336, 14336, 14336, 1},
      {"x,y", "x,", 6144, 6144, 6144, 1},
      // Partial sums: a reduce_scatter takes half of what an all_reduce does.
      {",+y", ",", 24576, 24576, 24576, 1},
      {",+y", "y,", 12288, 12288, 12288, 1},
      {"x,+y", "xy,", 6144, 6144, 6144, 1},
      {",+xy", ",yx", 14336, 14336, 14336, 1},
      {",+xy", "x,", 14336, 20480, 20480, 2},
  };
  for (const Row& row : rows) {
    Case test{mesh, tiling(row.from), tiling(row.to), {64, 64}};
    CollectiveReport report;
    ASSERT_EQ(run(test, &report), "") << test.text();
    const double bytes = report.total().bytes;
    EXPECT_EQ(bytes, row.bytes) << test.text() << "\n" << to_text(report);
    EXPECT_GE(bytes, row.least) << test.text();
    EXPECT_LE(bytes, row.shardy) << test.text();
    EXPECT_EQ(report.collectives.size(), row.collectives) << test.text() << "\n" << to_text(report);
  }
}

// What a meshful of axes costs to plan is bounded.
TEST(Reshard, PlansOfManyAxesAreFound) {
  std::mt19937_64 random(3);
  const PrimeMesh mesh({{{"a", 16}, {"b", 8}, {"c", 6}}, {}});
  ReshardPlanner planner(&mesh);
  for (int i = 0; i < 20; ++i) {
    const Tiling from = random_tiling(random, mesh, 4);
    const Tiling to = random_tiling(random, mesh, 4);
    const Dims whole(4, 768);
    const ReshardPlan& plan = planner.plan(from, to, whole);
    ASSERT_FALSE(plan.steps.empty());
    EXPECT_TRUE(plan.steps.back().to == to);
    EXPECT_EQ(&planner.plan(from, to, whole), &plan);
  }
}

// A value of each device, folded over axes: by `code` over y, and over none.
std::vector<std::vector<HostArray>> folded(OpCode code) {
  const PrimeMesh mesh({{{"x", 2}, {"y", 3}}, {}});
  Resharder resharder(1, 6, &mesh);
  ir::Module module;
  const Status status =
      ir::add_function(module, "main", {ir::Type::tensor(DType::kI32, {2})},
                       [&](GraphBuilder& g, const GraphBuilder::Values& x) {
                         return GraphBuilder::Values{resharder.combine(g, x[0], {1}, code),
                                                     resharder.sum_over(g, x[0], {})};
                       });
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(ir::verify(module).ok()) << ir::verify(module).to_string();
  std::vector<std::vector<HostArray>> arguments;
  constexpr int32_t kValues[6][2] = {{3, 6}, {9, 1}, {9, 2}, {4, 4}, {4, 8}, {1, 8}};
  for (const auto& values : kValues) {
    HostArray array(DType::kI32, {2});
    std::copy(std::begin(values), std::end(values), array.mutable_as<int32_t>());
    arguments.push_back({array});
  }
  auto results = reference::evaluate_devices(module, std::move(arguments), {1, 6});
  EXPECT_TRUE(results.ok()) << results.status().to_string();
  return results.ok() ? *std::move(results) : std::vector<std::vector<HostArray>>();
}

std::vector<int32_t> elements(const HostArray& array) {
  return {array.as<int32_t>(), array.as<int32_t>() + array.size()};
}

TEST(Reshard, ValuesAreFoldedOverAxes) {
  const std::tuple<OpCode, std::vector<int32_t>, std::vector<int32_t>> folds[] = {
      {OpCode::kAdd, {21, 9}, {9, 20}},   {OpCode::kMaximum, {9, 6}, {4, 8}},
      {OpCode::kMinimum, {3, 1}, {1, 4}}, {OpCode::kMultiply, {243, 12}, {16, 256}},
      {OpCode::kOr, {11, 7}, {5, 12}},    {OpCode::kAnd, {1, 0}, {0, 0}},
  };
  for (const auto& [code, first, second] : folds) {
    const auto results = folded(code);
    ASSERT_EQ(results.size(), 6U);
    for (size_t device = 0; device < 6; ++device) {
      EXPECT_EQ(elements(results[device][0]), device < 3 ? first : second) << ir::op_name(code);
    }
    EXPECT_EQ(elements(results[1][1]), (std::vector<int32_t>{9, 1}));
  }
}

}  // namespace
}  // namespace hekla::spmd
