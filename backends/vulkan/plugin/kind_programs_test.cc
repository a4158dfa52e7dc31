// SPDX-License-Identifier: Apache-2.0
// Programs for devices of several kinds, which are made up: nothing runs.
#include "backends/vulkan/plugin/kind_programs.h"

#include <gtest/gtest.h>

#include "backends/vulkan/codegen/generate.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::vulkan {
namespace {

Target gpu(const std::string& name) {
  Target made;
  made.device = name;
  made.int64 = made.storage_8 = made.storage_16 = true;
  made.subgroup_size = 32;
  made.max_workgroup_invocations = made.max_workgroup_size_x = 1024;
  made.max_shared_memory_bytes = 48 << 10;
  return made;
}

pjrt::CompileRequest request_of(const std::string& text) {
  pjrt::CompileRequest request;
  auto module = stablehlo::read_program(text);
  if (!module.ok()) die_of_bad_result(module.status());
  request.module = *std::move(module);
  return request;
}

// A sum over rows, which teams share memory for.
const char kSums[] = R"(func.func public @main(%a: tensor<64x4096xf32>) -> tensor<64xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [1] : (tensor<64x4096xf32>, tensor<f32>) -> tensor<64xf32>
  return %r : tensor<64xf32>
})";

TEST(CommonTarget, IsWhatEachOfThemCanDo) {
  Target small = gpu("small");
  small.max_shared_memory_bytes = 32 << 10;
  small.max_workgroup_invocations = 256;
  Target cpu = gpu("cpu");
  cpu.is_cpu = true;
  cpu.max_loop_iterations = 65535;
  cpu.max_workgroup_size_x = 512;
  cpu.max_allocation_bytes = 2000;
  small.max_allocation_bytes = 3000;
  small.max_buffer_bytes = 4000;
  const std::vector<Target> one_order = {gpu("big"), small, cpu};
  const std::vector<Target> other_order = {cpu, small, gpu("big")};
  for (const std::vector<Target>& all : {one_order, other_order}) {
    const Target common = common_target(all);
    EXPECT_TRUE(common.is_cpu);
    EXPECT_EQ(common.max_loop_iterations, 65535);
    EXPECT_EQ(common.max_allocation_bytes, 2000);
    EXPECT_EQ(common.max_buffer_bytes, 4000);
    EXPECT_EQ(common.max_shared_memory_bytes, 32U << 10);
    EXPECT_EQ(common.max_workgroup_invocations, 256U);
    EXPECT_EQ(common.max_workgroup_size_x, 512U);
    for (const Target& each : all) {
      EXPECT_LE(team_points(common), team_points(each));
      EXPECT_LE(team_words(common), team_words(each));
    }
  }
  EXPECT_EQ(common_target(std::vector{gpu("big"), gpu("big")}).max_loop_iterations, 0);
}

// Plans name types of operands; which shape multiplies them is each device's own affair.
TEST(CommonTarget, HasMatrixTypesOfOtherShapes) {
  Target ada = gpu("ada"), rdna = gpu("rdna");
  ada.matrix_shapes = {{DType::kF16, DType::kF32, 16, 8, 16},
                       {DType::kI8, DType::kI32, 16, 8, 32},
                       {DType::kBF16, DType::kF32, 16, 16, 16}};
  rdna.matrix_shapes = {{DType::kF16, DType::kF32, 16, 16, 16},
                        {DType::kI8, DType::kUI32, 16, 16, 16}};
  for (const std::vector<Target>& all : {std::vector{ada, rdna}, {rdna, ada}}) {
    const Target common = common_target(all);
    EXPECT_EQ(common.matrix_shapes.size(), 2u);
    EXPECT_NE(matrix_shape(common, DType::kF16), nullptr);
    EXPECT_NE(matrix_shape(common, DType::kI8), nullptr);
  }
}

// Whose kernels the one plan of devices that meet asks for.
TEST(KindPrograms, DevicesThatMeetHaveKernelsForEachKind) {
  Target small = gpu("small");
  small.max_shared_memory_bytes = 4 << 10;
  small.max_workgroup_invocations = small.max_workgroup_size_x = 128;
  for (const std::vector<Target>& targets : {std::vector{gpu("big"), small}, {small, gpu("big")}}) {
    pjrt::CompileRequest request = request_of(kSums);
    request.has_collectives = true;
    request.partition_count = 2;
    auto made = KindPrograms::compile(
        request,
        {.targets = targets, .memory_limits = {1 << 30, 1 << 30}, .fail_on_fallback = true});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_EQ((*made)->devices(), (std::vector<size_t>{0, 1}));
    EXPECT_EQ((*(*made)->of(0))->plan, (*(*made)->of(1))->plan);
    EXPECT_NE(*(*made)->of(0), *(*made)->of(1));
  }
}

TEST(KindPrograms, WhatADeviceCannotDoFailsWhereItIsAskedForAlone) {
  Target weak = gpu("weak");
  weak.max_module_bytes = 1;  // no kernel at all
  const KindPrograms::Options options = {.targets = {weak, gpu("big"), gpu("big"), weak},
                                         .memory_limits = std::vector<int64_t>(4, 1 << 30),
                                         .fail_on_fallback = true};
  pjrt::CompileRequest request = request_of(kSums);
  request.devices = {2, 1};
  auto made = KindPrograms::compile(request, options);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ((*made)->devices(), std::vector<size_t>{2});
  EXPECT_EQ(*(*made)->of(1), (*made)->first());
  EXPECT_EQ(*(*made)->of(2), (*made)->first());
  // It may be launched on the others.
  EXPECT_EQ((*made)->of(3).status().code(), StatusCode::kUnimplemented);
  for (const std::vector<int>& devices : {std::vector{1, 3}, {}}) {
    request.devices = devices;
    EXPECT_EQ(KindPrograms::compile(request, options).status().code(), StatusCode::kUnimplemented);
  }
}

// A device that ends loops takes as many updates at once as its loops reach.
TEST(KindPrograms, ScattersInOrderStayOnDevicesThatEndLoops) {
  Target cpu = gpu("cpu");
  cpu.is_cpu = true;
  cpu.max_loop_iterations = 65535;
  for (const char* count : {"10000", "16384", "65536", "200000"}) {
    const std::string n = count;
    const pjrt::CompileRequest request = request_of(
        "func.func public @main(%a: tensor<9xf32>, %i: tensor<" + n + "x1xi32>, %u: tensor<" + n +
        R"(xf32>) -> tensor<9xf32> {
  %r = "stablehlo.scatter"(%a, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<9xf32>, tensor<)" +
        n + "x1xi32>, tensor<" + n + R"(xf32>) -> tensor<9xf32>
  return %r : tensor<9xf32>
})");
    const auto made = KindPrograms::compile(
        request, {.targets = {cpu}, .memory_limits = {1 << 30}, .fail_on_fallback = true});
    EXPECT_TRUE(made.ok()) << n << made.status().to_string();
  }
}

}  // namespace
}  // namespace hekla::vulkan
