// SPDX-License-Identifier: Apache-2.0
// The real programs compiled for recorded devices (snapshot/testing/recorded), without any device:
// what is planned and generated keeps within what each of them says of itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <glslang/SPIRV/spirv.hpp>

#include "backends/compiler/plan/visit.h"
#include "backends/vulkan/codegen/generate.h"
#include "backends/vulkan/device/plan.h"
#include "backends/vulkan/plugin/compile.h"
#include "runtime/base/testing/instrumented.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::vulkan {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> recorded_devices() {
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::directory_iterator(HEKLA_SOURCE_DIR "/backends/vulkan/snapshot/testing/recorded")) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> real_programs() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(HEKLA_SOURCE_DIR "/tests/programs")) {
    const fs::path program = entry.path() / "program.mlirbc";
    if (fs::exists(program)) files.push_back(program);
  }
  std::sort(files.begin(), files.end());
  return files;
}

// What a module asks of a device.
struct Needs {
  std::set<spv::Capability> capabilities;
  uint32_t invocations = 1;  // of a workgroup
  uint64_t shared_bytes = 0;
};

Needs needs_of(std::span<const uint32_t> words) {
  Needs needs;
  std::map<uint32_t, uint64_t> bytes, constants;  // of types; of integers
  std::map<uint32_t, uint32_t> pointees;
  constexpr size_t kHeader = 5;
  for (size_t at = kHeader; at < words.size(); at += words[at] >> spv::WordCountShift) {
    const uint32_t* operand = &words[at + 1];
    switch (static_cast<spv::Op>(words[at] & spv::OpCodeMask)) {
      case spv::OpCapability:
        needs.capabilities.insert(static_cast<spv::Capability>(operand[0]));
        break;
      case spv::OpExecutionMode:
        if (operand[1] == spv::ExecutionModeLocalSize) {
          needs.invocations = operand[2] * operand[3] * operand[4];
        }
        break;
      case spv::OpTypeInt:
      case spv::OpTypeFloat:
        bytes[operand[0]] = operand[1] / 8;
        break;
      case spv::OpConstant:
        constants[operand[1]] = operand[2];
        break;
      case spv::OpTypeVector:
        bytes[operand[0]] = bytes[operand[1]] * operand[2];
        break;
      case spv::OpTypeArray:
        bytes[operand[0]] = bytes[operand[1]] * constants[operand[2]];
        break;
      case spv::OpTypePointer:
        pointees[operand[0]] = operand[2];
        break;
      case spv::OpVariable:
        if (operand[2] == spv::StorageClassWorkgroup) {
          needs.shared_bytes += bytes[pointees[operand[0]]];
        }
        break;
      default:
        break;
    }
  }
  return needs;
}

// Whether a kernel keeps within what the device says of itself.
void expect_within(const KernelCode& kernel, const DeviceSnapshot& snapshot) {
  SCOPED_TRACE(kernel.name);
  const Features& f = snapshot.features;
  const auto& operations = snapshot.subgroup.operations;
  const bool has_bf16_matrices = f.bf16 && f.cooperative_matrix && f.bf16_cooperative_matrix;
  const std::map<spv::Capability, bool> has = {
      {spv::CapabilityInt64, f.i64},
      {spv::CapabilityFloat64, f.f64},
      {spv::CapabilityInt16, f.i16},
      {spv::CapabilityInt8, f.i8},
      {spv::CapabilityFloat16, f.f16},
      {spv::CapabilityStorageBuffer8BitAccess, f.storage_8},
      {spv::CapabilityStorageBuffer16BitAccess, f.storage_16},
      {spv::CapabilityGroupNonUniformShuffle,
       std::count(operations.begin(), operations.end(), "shuffle") > 0},
      {spv::CapabilitySignedZeroInfNanPreserve,
       snapshot.float_controls.signed_zero_inf_nan_preserve[1] ||
           snapshot.float_controls.signed_zero_inf_nan_preserve[2]},
      {spv::CapabilityDenormPreserve,
       snapshot.float_controls.denorm_preserve[1] || snapshot.float_controls.denorm_preserve[2]},
      {spv::CapabilityRoundingModeRTE,
       snapshot.float_controls.rounding_rte[1] || snapshot.float_controls.rounding_rte[2]},
      {spv::CapabilityShader, true},
      {spv::CapabilityGroupNonUniform, true},
      {spv::CapabilityPhysicalStorageBufferAddresses, true},
      {spv::CapabilityVulkanMemoryModelKHR, f.vulkan_memory_model},
      {static_cast<spv::Capability>(6022), f.cooperative_matrix},  // CooperativeMatrixKHR
      {static_cast<spv::Capability>(5116), f.bf16},                // BFloat16TypeKHR
      {static_cast<spv::Capability>(5118), has_bf16_matrices},     // and its CooperativeMatrix
  };
  const Needs needs = needs_of(kernel.words);
  EXPECT_LE(needs.invocations, snapshot.limits.max_workgroup_invocations);
  EXPECT_LE(needs.shared_bytes, snapshot.limits.max_shared_memory_bytes);
  for (const spv::Capability capability : needs.capabilities) {
    const auto at = has.find(capability);
    EXPECT_TRUE(at != has.end() && at->second) << "capability " << capability;
  }
  if (kernel.subgroup_size != 0) {
    EXPECT_TRUE(f.subgroup_size_control && f.compute_full_subgroups);
    EXPECT_GE(kernel.subgroup_size, snapshot.subgroup.min_size);
    EXPECT_LE(kernel.subgroup_size, snapshot.subgroup.max_size);
    EXPECT_EQ(needs.invocations % kernel.subgroup_size, 0u);
  }
}

class RecordedDevice : public ::testing::TestWithParam<fs::path> {};

TEST_P(RecordedDevice, RealProgramsKeepWithinItsLimits) {
  const Result<DeviceSnapshot> recorded = snapshot_from_json(read_file(GetParam()));
  ASSERT_TRUE(recorded.ok()) << recorded.status().to_string();
  DeviceSnapshot snapshot = *recorded;
  EXPECT_FALSE(snapshot.name.empty());
  EXPECT_GE(snapshot.limits.max_workgroup_invocations, 128u);
  const Result<DevicePlan> plan = plan_device(snapshot, {});
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  snapshot.features = plan->features;
  const Target target = make_target(snapshot);
  const std::vector<fs::path> programs = real_programs();
  EXPECT_EQ(programs.size(), 9u);
  // Instrumented, a device takes every third program, the next device the next ones.
  const std::vector<fs::path> devices = recorded_devices();
  auto number = std::find(devices.begin(), devices.end(), GetParam()) - devices.begin();
  for (const fs::path& path : programs) {
    if (number++ % testing::sweep(1, 3) != 0) continue;
    SCOPED_TRACE(path.parent_path().filename());
    Result<std::unique_ptr<ir::Module>> module = stablehlo::read_program(read_file(path));
    ASSERT_TRUE(module.ok()) << module.status().to_string();
    ASSERT_TRUE(ir::verify(**module).ok());
    pjrt::CompileRequest request;
    request.module = std::move(*module);
    const auto program = compile_program(request, target, int64_t{1} << 30);
    ASSERT_TRUE(program.ok()) << program.status().to_string();
    for (const plan::Step& step : (*program)->plan->steps) {
      EXPECT_FALSE(plan::holds<plan::HostStep>(step)) << "all of it has kernels";
    }
    EXPECT_GT((*program)->kernels.size(), 0u);
    for (const DeviceKernel& made : (*program)->kernels) {
      const KernelCode& kernel = made.code;
      SCOPED_TRACE(kernel.name);
      EXPECT_FALSE(made.is_interpreted());
      EXPECT_EQ(validate(kernel.words).message(), "");
      expect_within(kernel, snapshot);
    }
  }
}

// Of each type that has matrices somewhere: on them where the device lists them, else by loops.
TEST_P(RecordedDevice, ProductsKeepWithinItsLimits) {
  const Result<DeviceSnapshot> recorded = snapshot_from_json(read_file(GetParam()));
  ASSERT_TRUE(recorded.ok()) << recorded.status().to_string();
  DeviceSnapshot snapshot = *recorded;
  snapshot.type = DeviceType::kDiscrete;
  const Result<DevicePlan> plan = plan_device(snapshot, {});
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  snapshot.features = plan->features;
  const Target target = make_target(snapshot);
  const auto& matrices = snapshot.cooperative_matrices;
  for (const char* type : {"bf16", "f16", "i8", "ui8"}) {
    SCOPED_TRACE(type);
    const bool is_listed =
        snapshot.features.cooperative_matrix &&
        std::any_of(matrices.begin(), matrices.end(), [&](const CooperativeMatrixShape& m) {
          return m.a == type && m.b == type && m.result.ends_with("32");
        });
    const std::string sums = type[0] == 'u' ? "ui32" : type[0] == 'i' ? "i32" : type;
    for (const char* size : {"4096", "160"}) {
      const std::string n = size;
      const std::string x = "tensor<" + n + "x" + n + "x" + type + ">";
      const std::string r = "tensor<" + n + "x" + n + "x" + sums + ">";
      Result<std::unique_ptr<ir::Module>> module = stablehlo::read_program(
          "func.func @main(%x: " + x + ", %y: " + x + ") -> " + r +
          " {\n  %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (" + x + ", " +
          x + ") -> " + r + "\n  return %r : " + r + "\n}\n");
      ASSERT_TRUE(module.ok()) << module.status().to_string();
      pjrt::CompileRequest request;
      request.module = std::move(*module);
      const auto program = compile_program(request, target, int64_t{1} << 30);
      ASSERT_TRUE(program.ok()) << program.status().to_string();
      EXPECT_EQ((*program)->contractions.size(), is_listed ? 1u : 0u);
      EXPECT_EQ((*program)->kernels.size(), is_listed ? 0u : 1u);
      for (const DeviceKernel& made : (*program)->contractions) {
        expect_within(made.code, snapshot);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RecordedDevice, ::testing::ValuesIn(recorded_devices()),
                         [](const auto& info) { return info.param.stem().string(); });

TEST(RecordedDevices, AreThere) { EXPECT_GE(recorded_devices().size(), 8u); }

}  // namespace
}  // namespace hekla::vulkan
