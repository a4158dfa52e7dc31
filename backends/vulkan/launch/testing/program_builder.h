// SPDX-License-Identifier: Apache-2.0
// ProgramBuilder: launch programs of a few steps, for tests. Kernels and constants come as steps
// ask for them; one thread.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/compiler/kernel/builder.h"
#include "backends/vulkan/launch/launch_program.h"
#include "backends/vulkan/launch/testing/count_groups.comp.h"
#include "backends/vulkan/launch/testing/multiply_add.comp.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::vulkan::testing {

inline plan::Slice input(int32_t index, int64_t bytes, int64_t offset = 0) {
  return {plan::Slice::Space::kInput, index, offset, bytes};
}
inline plan::Slice output(int32_t index, int64_t bytes, int64_t offset = 0) {
  return {plan::Slice::Space::kOutput, index, offset, bytes};
}
inline plan::Slice arena(int64_t offset, int64_t bytes) {
  return {plan::Slice::Space::kArena, 0, offset, bytes};
}

class ProgramBuilder {
 public:
  using Slice = plan::Slice;
  using Words = std::vector<uint32_t>;

  plan::LaunchPlan plan;
  std::vector<DeviceKernel> kernels;

  // Inputs and outputs by their bytes.
  ProgramBuilder(std::vector<int64_t> inputs, std::vector<int64_t> outputs,
                 int64_t arena_bytes = 0) {
    plan.input_bytes = std::move(inputs);
    plan.output_bytes = std::move(outputs);
    plan.output_input.assign(plan.output_bytes.size(), -1);
    plan.arenas = {arena_bytes};
  }

  Slice constant(const Words& words) {
    const auto bytes = static_cast<int64_t>(words.size() * sizeof(uint32_t));
    for (size_t i = 0; i < plan.constants.size(); ++i) {
      if (plan.constants[i].size_bytes() == bytes &&
          std::equal(words.begin(), words.end(), plan.constants[i].as<uint32_t>())) {
        return {Slice::Space::kConstant, static_cast<int32_t>(i), 0, bytes};
      }
    }
    HostArray array(DType::kUI32, {static_cast<int64_t>(words.size())});
    std::copy(words.begin(), words.end(), array.mutable_as<uint32_t>());
    plan.constants.push_back(std::move(array));
    return {Slice::Space::kConstant, static_cast<int32_t>(plan.constants.size()) - 1, 0, bytes};
  }

  // to = factor * a + b on words. An `interpreted` one has no code for the device.
  plan::Step multiply_add(const Slice& a, const Slice& b, const Slice& to, uint32_t factor,
                          bool interpreted = false) {
    const auto n = static_cast<uint32_t>(to.bytes / 4);
    const Slice parameters = constant({n, factor});
    const std::string name = interpreted ? "interpreted" : "multiply_add";
    for (size_t i = 0; i < plan.kernels.size(); ++i) {
      if (plan.kernels[i].name == name && plan.kernels[i].operands[2].bytes == to.bytes) {
        return {plan::KernelStep{static_cast<int32_t>(i), {a, b, to, parameters}}};
      }
    }
    constexpr kernel::ScalarType kI32 = kernel::ScalarType::kI32;
    kernel::Builder body(1, kI32);
    const kernel::Value i = body.grid_index(0);
    const kernel::Value product =
        body.mul(body.load(kI32, {0, 4}, i), body.load(kI32, {3, 4}, body.index(1)));
    body.store({2, 4}, i, body.add(product, body.load(kI32, {1, 4}, i)));
    DeviceKernel code;
    code.code.name = name;
    if (!interpreted) {
      code.code.words.assign(std::begin(kmultiply_add_spirv), std::end(kmultiply_add_spirv));
    }
    code.groups = {(n + 63) / 64, 1, 1};
    return add_kernel(name, {n}, body.finish(), std::move(code), {a, b, to, parameters},
                      {{to.bytes, true, false, true},
                       {to.bytes, true, false, true},
                       {to.bytes, false, true},
                       {8, true, false}});
  }

  // Adds 1 to each word of `counts`, one for each group.
  plan::Step count_groups(const Slice& counts, const std::array<uint32_t, 3>& groups) {
    kernel::Builder body(1, kernel::ScalarType::kI32);
    DeviceKernel code;
    code.code.words.assign(std::begin(kcount_groups_spirv), std::end(kcount_groups_spirv));
    code.groups = groups;
    return add_kernel("count", {counts.bytes / 4}, body.finish(), std::move(code), {counts},
                      {{counts.bytes, true, true}});
  }

  // The word repeats over `to`.
  plan::Step fill(const Slice& to, uint32_t word) {
    return {plan::CopyStep{constant(Words(static_cast<size_t>(to.bytes / 4), word)), to}};
  }

  // A function of StableHLO on the host.
  static plan::Step host(std::string name, const std::string& program, std::vector<Slice> inputs,
                         std::vector<Slice> outputs) {
    plan::HostStep step;
    step.name = std::move(name);
    step.program = stablehlo::read_program(program).value();
    step.inputs = std::move(inputs);
    step.outputs = std::move(outputs);
    return {std::move(step)};
  }

  std::shared_ptr<const LaunchProgram> build() const {
    auto program = std::make_shared<LaunchProgram>();
    program->name = "test";
    program->plan = std::make_shared<const plan::LaunchPlan>(plan);
    program->kernels = kernels;
    return program;
  }

 private:
  plan::Step add_kernel(std::string name, std::vector<int64_t> grid, kernel::Function body,
                        DeviceKernel code, std::vector<Slice> operands,
                        std::vector<kernel::KernelOperand> about) {
    kernel::Kernel kernel;
    kernel.name = std::move(name);
    kernel.grid = std::move(grid);
    kernel.operands = std::move(about);
    kernel.body = std::move(body);
    plan.kernels.push_back(std::move(kernel));
    kernels.push_back(std::move(code));
    return {plan::KernelStep{static_cast<int32_t>(kernels.size()) - 1, std::move(operands)}};
  }
};

}  // namespace hekla::vulkan::testing
