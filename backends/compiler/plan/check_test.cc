// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/check.h"

#include <gtest/gtest.h>

#include "runtime/program/stablehlo/read_program.h"

namespace hekla::plan {
namespace {

using Space = Slice::Space;

Slice input(int32_t index, int64_t bytes, int64_t offset = 0) {
  return {Space::kInput, index, offset, bytes};
}
Slice arena(int64_t offset, int64_t bytes) { return {Space::kArena, 0, offset, bytes}; }

HostStep subtract(Slice lhs, Slice rhs, Slice out) {
  HostStep step;
  step.name = "subtract";
  step.program = stablehlo::read_program(R"(
      func.func @main(%x: tensor<1xi32>, %y: tensor<1xi32>) -> tensor<1xi32> {
        %0 = stablehlo.subtract %x, %y : tensor<1xi32>
        return %0 : tensor<1xi32>
      })")
                     .value();
  step.inputs = {lhs, rhs};
  step.outputs = {out};
  return step;
}

// Memory of each kind and a kernel that reads 4 bytes and writes 4.
LaunchPlan sound() {
  LaunchPlan plan;
  plan.kernels.resize(1);
  plan.kernels[0].name = "k";
  plan.kernels[0].operands = {{4, true, false}, {4, false, true}};
  plan.input_bytes = {100, 64};
  plan.output_bytes = {100, 8};
  plan.output_input = {0, -1};
  plan.arenas = {1000};
  plan.constants.emplace_back(DType::kI32, Dims{4});
  plan.steps = {{KernelStep{0, {input(0, 4, 96), arena(996, 4)}}},
                {CopyStep{{Space::kConstant, 0, 0, 16}, arena(0, 16)}},
                {CopyStep{arena(8, 8), arena(8, 8)}},  // the same, which is nothing
                {subtract(arena(0, 4), arena(4, 4), {Space::kOutput, 1, 4, 4})},
                {KernelStep{0, {{Space::kLaunch, 0, kPartitionOffset, 4}, arena(4, 4)}}},
                {RepeatStep{0, {{KernelStep{0, {arena(0, 4), arena(4, 4)}}}}}},
                {WhileStep{{}, arena(3, 1), {}}},
                {BranchStep{arena(4, 4), {{}}}},
                {BranchStep{arena(5, 1), {{}, {}}}},
                {RowsStep{2, {{KernelStep{0, {arena(0, 4), arena(4, 4)}}}}, 2, {arena(4, 4)}}}};
  return plan;
}

TEST(Check, NamesStepAndReason) {
  EXPECT_TRUE(check(sound()).ok()) << check(sound()).to_string();
  const auto expect = [&](auto change, const char* part) {
    LaunchPlan plan = sound();
    change(plan);
    const Status status = check(plan);
    EXPECT_EQ(status.code(), StatusCode::kInternal) << part;
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  const auto read = [](LaunchPlan& plan, Slice slice) {
    plan.steps = {{KernelStep{0, {slice, arena(0, 4)}}}};
  };
  const auto write = [](LaunchPlan& plan, Slice slice) {
    plan.steps = {{KernelStep{0, {arena(0, 4), slice}}}};
  };
  const auto one = [](Step step) {
    return [step = std::move(step)](LaunchPlan& plan) { plan.steps = {step}; };
  };
  // Memory.
  expect([&](auto& p) { read(p, input(2, 4)); }, "input 2 [4] is not there");
  expect([&](auto& p) { read(p, input(-1, 4)); }, "is not there");
  expect([&](auto& p) { read(p, {Space::kArena, 1, 0, 4}); }, "is not there");
  expect([&](auto& p) { read(p, {Space::kConstant, 1, 0, 4}); }, "is not there");
  expect([&](auto& p) { read(p, input(0, 4, 98)); }, "input 0 +98 [4] is outside");
  expect([&](auto& p) { read(p, input(0, 4, INT64_MAX)); }, "outside");
  expect([&](auto& p) { read(p, input(0, 4, -4)); }, "outside");
  expect([&](auto& p) { read(p, input(0, 8)); }, "input 0 [8] stands for 4 bytes");
  expect([&](auto& p) { write(p, input(0, 4)); }, "may not be written");
  expect([&](auto& p) { write(p, {Space::kConstant, 0, 0, 4}); }, "may not be written");
  expect([&](auto& p) { write(p, {Space::kLaunch, 0, 4, 4}); }, "partition of the device [4] may");
  expect([&](auto& p) { read(p, {Space::kLaunch, 0, 12, 4}); }, "is outside of its 12 bytes");
  expect([](auto& p) { p.arenas = {999}; }, "step 0: kernel 0 k");
  expect([](auto& p) { p.arenas = {-1}; }, "less than no bytes");
  expect([](auto& p) { p.arenas = {1, -1}; }, "less than no bytes");
  expect([](auto& p) { p.arenas = {1, INT64_MAX}; }, "more bytes than can be counted");
  expect([](auto& p) { p.output_input.pop_back(); }, "2 outputs, 1 of them");
  expect([](auto& p) { p.output_input[1] = 1; }, "output 1 cannot take");
  expect([](auto& p) { p.output_input[0] = 7; }, "output 0 cannot take");
  expect(
      [](auto& p) {
        p.output_bytes.push_back(100);
        p.output_input.push_back(0);
      },
      "output 2 cannot take the memory of input 0");
  // Steps.
  expect(one({KernelStep{1, {}}}), "there is no kernel 1");
  expect(one({KernelStep{-1, {}}}), "there is no kernel -1");
  expect(one({KernelStep{0, {arena(0, 4)}}}), "has 2 operands, 1 are given");
  expect(one({ContractionStep{}}), "there is no contraction 0");
  expect(one({TransformStep{}}), "there is no transform: radices  for 1");
  const auto transform = [&](Slice from, Slice roots, Slice to, int64_t lines = 2) {
    TransformStep step{{}, from, roots, to};
    step.transform.outer = lines;
    step.transform.size = step.transform.from_size = step.transform.to_size = 4;
    step.transform.radices = {4};
    return one({step});
  };
  LaunchPlan with_transform = sound();
  transform(arena(0, 64), {Space::kConstant, 0, 8, 8}, arena(64, 64))(with_transform);
  EXPECT_TRUE(check(with_transform).ok()) << check(with_transform).to_string();
  expect(transform(arena(0, 64), arena(200, 8), arena(60, 64)),
         "at arena +60 [64] beside arena +0 [64]");
  expect(transform(arena(0, 64), arena(120, 8), arena(64, 64)), "beside arena +120 [8]");
  // Output 0 takes the memory of input 0.
  expect(transform(input(0, 64), arena(0, 8), {Space::kOutput, 0, 0, 64}), "beside input 0 [64]");
  expect(transform(arena(0, 64), arena(200, 8), arena(64, 64), 3), "stands for 96 bytes");
  expect(transform(arena(0, 64), arena(200, 8), arena(64, 64), int64_t{1} << 60),
         "takes more than 2^62 bytes");
  expect(one({CopyStep{arena(0, 4), arena(8, 8)}}), "stands for");
  expect(one({CopyStep{arena(0, 8), arena(4, 8)}}), "overlap");
  expect(one({HostStep{}}), "has no program");
  expect(
      [&](auto& p) {
        HostStep step = subtract(arena(0, 4), arena(4, 4), arena(8, 4));
        step.inputs.pop_back();
        p.steps = {{std::move(step)}};
      },
      "gives 1 for 2 inputs");
  expect(one({WhileStep{{}, arena(0, 4), {}}}), "stands for 1 bytes");
  expect(one({RepeatStep{-1, {}}}), "-1 iterations");
  expect(one({RepeatStep{3, {{CopyStep{}}, {KernelStep{7, {}}}}}}), "step 0: step 1");
  expect(one({BranchStep{arena(0, 4), {}}}), "among 0 branches");
  expect(one({BranchStep{arena(2, 4), {{}}}}), "cannot choose");
  expect(one({BranchStep{arena(0, 1), {{}, {}, {}}}}), "among 3 branches");
  expect(one({BranchStep{arena(0, 1), {{}, {{KernelStep{7, {}}}}}}}), "no kernel 7");
  expect(one({RowsStep{2, {{CopyStep{}}}, 0, {}}}), "a step that is no kernel");
  expect(one({RowsStep{2, {{ContractionStep{}}}, 0, {}}}), "there is no contraction 0");
  expect(
      [](auto& p) {
        kernel::Contraction product;
        product.rows = {{3, 1, 0, 1}};
        product.lhs_elements = product.out_elements = 3;
        product.rhs_elements = 1;
        p.contractions = {product};
        const ContractionStep step{0, arena(0, 12), arena(16, 4), arena(32, 12),
                                   kernel::RowsOf::kOutByRows};
        p.steps = {{RowsStep{2, {{step}}, 0, {}}}};
      },
      "contraction 0 has no 2 rows");
  const auto led = [](kernel::RowsOf of, bool comes_first) {
    return [of, comes_first](auto& p) {
      kernel::Contraction product;
      product.rows = {{2, 1, 0, 1}};
      product.lhs_elements = product.out_elements = 2;
      product.rhs_elements = 1;
      p.contractions = {product};
      const Step leader{ContractionStep{0, arena(0, 8), arena(16, 4), arena(32, 8), of, true}};
      const Step kernel{KernelStep{0, {arena(32, 4), arena(64, 4)}}};
      p.steps = {{RowsStep{2, {comes_first ? leader : kernel, comes_first ? kernel : leader}}}};
    };
  };
  LaunchPlan with_leader = sound();
  led(kernel::RowsOf::kOutByRows, true)(with_leader);
  EXPECT_TRUE(check(with_leader).ok()) << check(with_leader).to_string();
  expect(led(kernel::RowsOf::kOutByRows, false), "is not the first");
  expect(led(kernel::RowsOf::kLhs, true), "rows are not those of its result");
  expect([](auto& p) { p.row_scratch_bytes = 1001; }, "scratch of 1001 bytes in");
  expect(one({RowsStep{3, {}, 0, {arena(0, 4)}}}), "no scratch of 3 rows");
  expect(one({RowsStep{2, {}, 0, {input(0, 4)}}}), "no scratch");
  expect(one({RowsStep{2, {{KernelStep{5, {}}}}, 0, {}}}), "there is no kernel 5");
}

StartStep started(int32_t number, Slice lhs, Slice rhs, Slice out) {
  const HostStep host = subtract(lhs, rhs, out);
  return {number, host.name, host.program, host.inputs, host.outputs};
}
Step ended(const StartStep& of) { return {DoneStep{of.number, of.inputs, of.outputs}}; }
Step copied(Slice from, Slice to) { return {CopyStep{from, to}}; }

TEST(Check, WhatIsUnderWayIsLeftAlone) {
  const StartStep a = started(0, arena(0, 4), arena(4, 4), arena(8, 4));
  const StartStep b = started(1, arena(4, 4), arena(0, 4), arena(64, 4));
  const auto check_steps = [](Steps steps) {
    LaunchPlan plan = sound();
    plan.steps = std::move(steps);
    return check(plan);
  };
  const auto expect = [&](Steps steps, const char* part) {
    const Status status = check_steps(std::move(steps));
    EXPECT_EQ(status.code(), StatusCode::kInternal) << part;
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  // Others may read what it reads, and be under way beside it; its number is free after its end.
  const Status sound_one = check_steps({{a},
                                        copied(arena(0, 8), arena(16, 8)),
                                        {b},
                                        ended(a),
                                        {RepeatStep{2, {{a}, ended(a)}}},
                                        ended(b),
                                        copied(arena(64, 4), arena(0, 4)),
                                        {a},
                                        ended(a)});
  EXPECT_TRUE(sound_one.ok()) << sound_one.to_string();

  expect({{a}, copied(arena(16, 4), arena(4, 4)), ended(a)}, "is written beside arena +4 [4]");
  expect({{a}, copied(arena(16, 8), arena(60, 8)), copied(arena(16, 2), arena(2, 2)), ended(a)},
         "step 2: copy: arena +2 [2] is written beside arena +0 [4]");
  expect({{a}, copied(arena(8, 4), arena(32, 4)), ended(a)}, "is used beside arena +8 [4]");
  expect({{a}, copied(arena(32, 4), arena(8, 4)), ended(a)}, "is used beside");
  expect({{a}, {RepeatStep{2, {{WhileStep{{}, arena(9, 1), {}}}}}}, ended(a)},
         "arena +9 [1] is used");
  expect({{a}, {BranchStep{arena(32, 4), {{copied(arena(16, 4), arena(0, 4))}}}}, ended(a)},
         "is written beside");
  expect({{a}, {started(1, arena(16, 4), arena(20, 4), arena(4, 4))}, ended(a)},
         "is written beside");
  // An output that may be the input's memory.
  const StartStep reads_input = started(0, input(0, 4, 8), input(1, 4), arena(0, 4));
  const auto output = [](int64_t offset) { return Slice{Space::kOutput, 0, offset, 4}; };
  expect({{reads_input}, copied(arena(16, 4), output(8)), ended(reads_input)}, "output 0 +8 [4]");
  EXPECT_TRUE(
      check_steps({{reads_input}, copied(arena(16, 4), output(12)), ended(reads_input)}).ok());
  // Pairs.
  expect({{a}}, "start 0 is never awaited");
  expect({{a}, {RepeatStep{1, {ended(a)}}}}, "done 0 without its start");
  expect({ended(a)}, "done 0 without its start");
  expect({{a}, {a}, ended(a), ended(a)}, "step 1: start 0 while it is under way");
  expect({{a}, {DoneStep{0, b.inputs, a.outputs}}}, "names other slices");
  expect({{started(0, arena(0, 4), arena(4, 4), arena(2, 4))}}, "has its result at arena +2 [4]");
  expect({{StartStep{}}, {DoneStep{}}}, "has no program");
}

}  // namespace
}  // namespace hekla::plan
