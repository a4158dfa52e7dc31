// SPDX-License-Identifier: Apache-2.0
#include "tools/compile_command.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "runtime/program/stablehlo/read_program.h"
#include "runtime/program/stablehlo/testing/sample_modules.h"
#include "runtime/program/stablehlo/text/compare.h"

namespace hekla::tools {
namespace {

struct Outcome {
  int exit_code = 0;
  std::string out;
  std::string err;
};

Outcome run(const std::vector<std::string>& arguments) {
  CLI::App app("hekla");
  Outcome outcome;
  add_compile_command(app, outcome.exit_code);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  reversed.emplace_back("compile");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  app.parse(reversed);
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.err = ::testing::internal::GetCapturedStderr();
  return outcome;
}

class CompileCommand : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return ::testing::TempDir() + name; }
  std::string file(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  static std::string contents(const std::string& name) {
    std::ifstream stream(name, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
};

constexpr const char* kProgram =
    "module {\n"
    "  func.func @main(%arg0: tensor<2xf32>) -> (tensor<2xf32>) {\n"
    "    %0 = stablehlo.add %arg0, %arg0 : tensor<2xf32>\n"
    "    return %0 : tensor<2xf32>\n"
    "  }\n"
    "}\n";

TEST_F(CompileCommand, PrintsTextOfText) {
  const Outcome outcome = run({file("add.mlir", kProgram), "--emit", "stablehlo"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, kProgram);
}

TEST_F(CompileCommand, WritesTextOfBytecodeThatReadsBack) {
  const std::string bytes = stablehlo::testing::loop_module(6);
  const std::string input = file("loop.mlirbc", bytes);
  const std::string output = path("loop.mlir");
  // The sample makes no sense as a program.
  EXPECT_EQ(run({input, "--emit", "stablehlo"}).exit_code, 1);
  const Outcome outcome =
      run({input, "--emit", "stablehlo", "--output", output, "--skip-verifier"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  const auto before = stablehlo::read_program(bytes);
  const auto after = stablehlo::read_program(contents(output));
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ(stablehlo::first_difference(**before, **after), std::nullopt);
}

// Such as /dev/null, which root could replace by a file.
TEST_F(CompileCommand, WritesIntoPipesAndLinksAndReplacesNone) {
  const std::string pipe = path("pipe"), target = path("target.mlir"), link = path("link.mlir");
  for (const std::string& old : {pipe, target, link}) std::filesystem::remove(old);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  const std::string input = file("add.mlir", kProgram);
  const Outcome piped = run({input, "--emit", "stablehlo", "--output", pipe});
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  std::string text(4096, '\0');
  const ssize_t count = read(reader, text.data(), text.size());
  close(reader);
  ASSERT_GE(count, 0);
  EXPECT_EQ(text.substr(0, static_cast<size_t>(count)), kProgram);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));

  std::filesystem::create_symlink(target, link);
  const Outcome linked = run({input, "--emit", "stablehlo", "--output", link});
  EXPECT_EQ(linked.exit_code, 0) << linked.err;
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(contents(target), kProgram);
}

TEST_F(CompileCommand, ShowsThePlanAndItsKernels) {
  for (const char* device : {"cpu", "vulkan"}) {
    const Outcome plan = run({file("add.mlir", kProgram), "--emit", "plan", "--device", device});
    EXPECT_EQ(plan.exit_code, 0) << plan.err;
    EXPECT_NE(plan.out.find("kernel 0 add grid"), std::string::npos) << plan.out;
    const Outcome kernels =
        run({file("add.mlir", kProgram), "--emit", "kernels", "--device", device});
    EXPECT_EQ(kernels.exit_code, 0) << kernels.err;
    EXPECT_NE(kernels.out.find("add f32("), std::string::npos) << kernels.out;
  }
}

// Products are packed code on the CPU and a kernel on Vulkan devices: each shows its own.
TEST_F(CompileCommand, ShowsThePlanOfTheDeviceThatIsNamed) {
  const std::string product = file("dot.mlir",
                                   "func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {\n"
                                   "  %y = stablehlo.dot_general %x, %x, contracting_dims = [1] x "
                                   "[0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> "
                                   "tensor<64x64xf32>\n  return %y : tensor<64x64xf32>\n}\n");
  const Outcome cpu = run({product, "--emit", "plan"});
  EXPECT_NE(cpu.out.find("contraction"), std::string::npos) << cpu.out << cpu.err;
  const Outcome vulkan = run({product, "--emit", "plan", "--device", "vulkan"});
  EXPECT_NE(vulkan.out.find("kernel 0 dot_general"), std::string::npos) << vulkan.out << vulkan.err;
}

// Compiler options, by way of one that another kind of device prefers.
TEST_F(CompileCommand, TakesCompilerOptions) {
  const std::string sum =
      file("sum.mlir",
           "func.func @main(%x: tensor<64xf32>, %i: tensor<f32>) -> tensor<f32> {\n"
           "  %y = stablehlo.reduce(%x init: %i) applies stablehlo.add across dimensions = [0] : "
           "(tensor<64xf32>, tensor<f32>) -> tensor<f32>\n  return %y : tensor<f32>\n}\n");
  const auto shown = [&](const std::string& option) {
    return run({sum, "--emit", "implementations", "--device", "vulkan", "--option", option});
  };
  const Outcome trees = shown("hekla_tree_reductions=true");
  EXPECT_NE(trees.out.find("trees of points: taken"), std::string::npos) << trees.out << trees.err;
  EXPECT_NE(trees.out.find("teams of a workgroup: taken"), std::string::npos) << trees.out;
  const Outcome ordered = shown("hekla_tree_reductions=false");
  EXPECT_NE(ordered.out.find("trees of points: the device takes elements in their order"),
            std::string::npos)
      << ordered.out << ordered.err;
  EXPECT_EQ(shown("hekla_tree_reductions").exit_code, 1);
}

// Ways to do a product, each with its reason: limits and values.
TEST_F(CompileCommand, ShowsInWhichWaysAStepMayBeDone) {
  const std::string product = file("small.mlir",
                                   "func.func @main(%x: tensor<8x16xf32>) -> tensor<8x8xf32> {\n"
                                   "  %y = stablehlo.dot_general %x, %x, contracting_dims = [1] x "
                                   "[1] : (tensor<8x16xf32>, tensor<8x16xf32>) -> "
                                   "tensor<8x8xf32>\n  return %y : tensor<8x8xf32>\n}\n");
  const Outcome cpu = run({product, "--emit", "implementations", "--device", "cpu"});
  const std::string title =
      "stablehlo.dot_general tensor<8x16xf32>, tensor<8x16xf32> -> tensor<8x8xf32>, f32_f32_f32\n";
  EXPECT_NE(cpu.out.find(title + "  contraction step: 1024 multiply-adds, fewer than 16384\n"
                                 "  kernel of loops: taken\n"),
            std::string::npos)
      << cpu.out << cpu.err;
  EXPECT_NE(cpu.out.find("kernel 0 dot_general grid [1, 8]\n  segments: "), std::string::npos)
      << cpu.out;
  const Outcome vulkan = run({product, "--emit", "implementations", "--device", "vulkan"});
  EXPECT_NE(vulkan.out.find(title + "  contraction step: the device has none\n"), std::string::npos)
      << vulkan.out << vulkan.err;
  EXPECT_NE(vulkan.out.find("  tile in shared memory: "), std::string::npos) << vulkan.out;
}

// The same as the text, for programs: on both devices, and through loops and branches.
TEST_F(CompileCommand, ShowsPlanKernelsAndImplementationsAsJson) {
  const std::string loop =
      file("loop.mlir",
           "func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {\n"
           "  %one = stablehlo.constant dense<1> : tensor<i32>\n"
           "  %r:2 = stablehlo.while(%i = %n, %a = %x) : tensor<i32>, tensor<4xf32>\n"
           "    cond {\n"
           "      %c = stablehlo.compare GT, %i, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
           "      stablehlo.return %c : tensor<i1>\n"
           "    } do {\n"
           "      %j = stablehlo.subtract %i, %one : tensor<i32>\n"
           "      %b = stablehlo.add %a, %a : tensor<4xf32>\n"
           "      stablehlo.return %j, %b : tensor<i32>, tensor<4xf32>\n"
           "    }\n"
           "  return %r#1 : tensor<4xf32>\n"
           "}\n");
  for (const char* device : {"cpu", "vulkan"}) {
    const auto shown = [&](const char* stage, bool as_json) {
      std::vector<std::string> words = {loop, "--emit", stage, "--device", device};
      if (as_json) words.emplace_back("--json");
      const Outcome outcome = run(words);
      EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
      return outcome.out;
    };
    const auto plan = nlohmann::json::parse(shown("plan", true));
    EXPECT_EQ(plan["inputs"], nlohmann::json({16, 4}));
    EXPECT_EQ(plan["outputs"][0]["bytes"], 16);
    // Each step of the text is there, with as many of each kind.
    std::map<std::string, size_t> kinds;
    int64_t slices = 0;
    const std::function<void(const nlohmann::json&)> visit = [&](const nlohmann::json& steps) {
      for (const auto& step : steps) {
        ++kinds[step["kind"]];
        EXPECT_NE(shown("plan", false).find(step["text"]), std::string::npos) << step["text"];
        slices += static_cast<int64_t>(step["reads"].size() + step["writes"].size());
        for (const auto& list : step["lists"]) visit(list);
      }
    };
    visit(plan["steps"]);
    EXPECT_EQ(kinds["while"], 1u) << plan;
    EXPECT_GE(kinds["kernel"], 2u) << plan;
    EXPECT_GT(slices, 4) << plan;
    const auto kernels = nlohmann::json::parse(shown("kernels", true));
    ASSERT_FALSE(kernels.empty());
    for (const auto& kernel : kernels) {
      EXPECT_NE(shown("kernels", false).find(kernel["code"]), std::string::npos) << kernel;
      EXPECT_TRUE(kernel["grid"].is_array() && !kernel["operands"].empty()) << kernel;
    }
    const std::string text = shown("implementations", false);
    const auto decisions = nlohmann::json::parse(shown("implementations", true));
    ASSERT_FALSE(decisions.empty());
    for (const auto& decision : decisions) {
      EXPECT_NE(text.find(decision["step"]), std::string::npos) << decision;
      for (const auto& way : decision["implementations"]) {
        EXPECT_EQ(way["is_taken"], way["refusal"].is_null()) << way;
      }
    }
  }
  const Outcome refused = run({loop, "--emit", "asm", "--json"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(
      refused.err.find("--json is there for --emit plan, kernels, implementations, shardings, "
                       "collectives, pipeline-stats, not for asm"),
      std::string::npos)
      << refused.err;
}

// Parameter and result are cut apart in a loop: what each device sends is known by hand.
TEST_F(CompileCommand, ShowsTheProgramOfOneDeviceAndItsCollectives) {
  const std::string text = R"(module @exchange attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["x"=4]>
  func.func @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %three = stablehlo.constant dense<3> : tensor<i32>
    %r = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%b: tensor<2x4xf32>) {
      %l:2 = stablehlo.while(%i = %zero, %c = %b) : tensor<i32>, tensor<2x4xf32>
        cond {
          %p = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1>
        } do {
          %d = "stablehlo.collective_permute"(%c) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, source_target_pairs = dense<[[0, 1], [1, 2], [2, 0], [3, 3]]> : tensor<4x2xi64>}> : (tensor<2x4xf32>) -> tensor<2x4xf32>
          %j = stablehlo.add %i, %one : tensor<i32>
          stablehlo.return %j, %d : tensor<i32>, tensor<2x4xf32>
        }
      %s = "stablehlo.all_reduce"(%l#1) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 0>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %z = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %z : tensor<f32>
      }) : (tensor<2x4xf32>) -> tensor<2x4xf32>
      sdy.return %s : tensor<2x4xf32>
    } : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %r : tensor<8x4xf32>
  }
}
)";
  const std::string program = file("exchange.mlir", text);
  const Outcome local = run({program, "--emit", "partitioned"});
  EXPECT_EQ(local.exit_code, 0) << local.err;
  EXPECT_NE(local.out.find("(%arg0: tensor<2x4xf32>) -> (tensor<2x4xf32>)"), std::string::npos)
      << local.out;
  EXPECT_TRUE(stablehlo::read_program(local.out).ok()) << local.out;
  const Outcome table = run({program, "--emit", "collectives", "--devices", "4"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  // 32 bytes by three of four devices, three times; 2 * 32 / 2 once.
  for (const char* line :
       {"stablehlo.collective_permute tensor<2x4xf32> transfers of 3, 3 runs, 72 bytes, ",
        "stablehlo.all_reduce tensor<2x4xf32> groups of 2, 1 run, 32 bytes, ",
        "all stablehlo.collective_permute: 1 in the program, 3 runs, 72 bytes\n",
        "each of 4 devices sends 104 bytes in 4 runs of collectives\n"}) {
    EXPECT_NE(table.out.find(line), std::string::npos) << line << table.out;
  }
  const Outcome shown = run({program, "--emit", "collectives", "--json"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  const auto json = nlohmann::json::parse(shown.out);
  EXPECT_EQ(json["devices"], 4);
  EXPECT_EQ(json["bytes"], 104);
  EXPECT_EQ(json["kinds"]["stablehlo.all_reduce"]["bytes"], 32);
  EXPECT_EQ(json["collectives"][0]["runs"], 3);
  EXPECT_EQ(json["collectives"][0]["is_counted"], true);
  EXPECT_EQ(json["collectives"][1]["operands"], nlohmann::json({"tensor<2x4xf32>"}));

  EXPECT_NE(run({file("add.mlir", kProgram), "--emit", "collectives"}).err.find("give --devices"),
            std::string::npos);
  for (const char* devices : {"-1", "100000000"}) {
    EXPECT_NE(run({program, "--emit", "partitioned", "--devices", devices})
                  .err.find("devices; there may be 1 to"),
              std::string::npos);
  }
  // The mesh has four devices.
  EXPECT_EQ(run({program, "--emit", "partitioned", "--devices", "2"}).exit_code, 1);
}

// A product whose contracted dimension is cut: each device has an addend.
TEST_F(CompileCommand, ShowsHowArraysLieAndWhyCollectivesAreThere) {
  const std::string text = R"(module @product attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["x"=4]>
  func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}, %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
    %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %s = stablehlo.tanh %r : tensor<8x8xf32>
    return %s : tensor<8x8xf32>
  }
}
)";
  const std::string program = file("product.mlir", text);
  const Outcome shown = run({program, "--emit", "shardings"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  for (const char* line :
       {"parameter 0: tensor<8x8xf32> as <@mesh, [{}, {\"x\"}]>, tensor<8x2xf32> a device\n",
        ": tensor<8x8xf32> whole\n"
        "    stablehlo.all_reduce of tensor<8x8xf32>, groups of 4: 384 bytes\n",
        "result 0: tensor<8x8xf32> whole\n"}) {
    EXPECT_NE(shown.out.find(line), std::string::npos) << line << shown.out;
  }
  const auto json = nlohmann::json::parse(run({program, "--emit", "shardings", "--json"}).out);
  EXPECT_EQ(json[1]["arrays"][0]["local"], "tensor<2x8xf32>");
  EXPECT_EQ(json[2]["what"], "stablehlo.dot_general");
  EXPECT_EQ(json[2]["collectives"][0]["bytes"], 384);
  const std::string picture = run({program, "--emit", "sharding-picture"}).out;
  EXPECT_EQ(picture.find("<svg xmlns="), 0U);
  EXPECT_NE(picture.find("parameter 1"), std::string::npos);
  EXPECT_NE(picture.find("as &lt;@mesh, [{&quot;x&quot;}, {}]&gt;"), std::string::npos);
  // Four blocks of each of the two parameters; the product and the result are whole.
  size_t blocks = 0;
  for (size_t at = 0; (at = picture.find("<rect x=", at)) != std::string::npos; ++at) ++blocks;
  EXPECT_EQ(blocks, 8U);
}

// A body over one axis of two is cut along the other one; an operation without a rule says so.
TEST_F(CompileCommand, ShowsBodiesOfManualComputationsAndWhatIsComputedWhole) {
  const std::string text = R"(module @manual attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}) -> tensor<8x8xf32> {
    %r = "sdy.manual_computation"(%a) ({
    ^bb0(%p: tensor<4x8xf32>):
      %t = stablehlo.tanh %p : tensor<4x8xf32>
      "sdy.return"(%t) : (tensor<4x8xf32>) -> ()
    }) {in_shardings = #sdy.sharding_per_value<[<@mesh, [{"x", ?}, {?}]>]>, manual_axes = #sdy<manual_axes{"x"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"x", ?}, {?}]>]>} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %w = stablehlo.custom_call @nobody_knows(%r) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %w : tensor<8x8xf32>
  }
}
)";
  const Outcome shown = run({file("manual.mlir", text), "--emit", "shardings"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  for (const char* line :
       {": tensor<4x8xf32> as <@mesh, [{}, {\"y\"}]>, tensor<4x4xf32> a device\n",
        ": tensor<8x8xf32> as <@mesh, [{\"x\"}, {\"y\"}]>, tensor<4x4xf32> a device\n",
        "; computed whole: it has no sharding rule\n"}) {
    EXPECT_NE(shown.out.find(line), std::string::npos) << line << shown.out;
  }
  EXPECT_NE(shown.err.find("gathers whole arrays for stablehlo.custom_call"), std::string::npos)
      << shown.err;
}

TEST_F(CompileCommand, WritesBytecodeOfAVersion) {
  const std::string output = path("add.mlirbc");
  EXPECT_EQ(
      run({file("add.mlir", kProgram), "--emit", "bytecode", "--vhlo", "1.9.0", "--output", output})
          .exit_code,
      0);
  const std::string bytes = contents(output);
  EXPECT_NE(bytes.find("StableHLO_v1.9.0"), std::string::npos);
  const auto before = stablehlo::read_program(kProgram);
  const auto after = stablehlo::read_program(bytes);
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ(stablehlo::first_difference(**before, **after), std::nullopt);
}

// What a device made of it, through its plugin.
TEST_F(CompileCommand, ShowsTheCodeOfDevices) {
  for (const auto& [form, wanted] :
       {std::pair("llvm", "; kernel 0 add\n"), std::pair("asm", "# kernel 0 add\n"),
        std::pair("spirv-asm", "OpEntryPoint GLCompute")}) {
    const Outcome outcome = run({file("add.mlir", kProgram), "--emit", form});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find(wanted), std::string::npos) << form << "\n" << outcome.out;
  }
  const Outcome files =
      run({file("add.mlir", kProgram), "--emit", "spirv", "--output", path("modules")});
  EXPECT_EQ(files.exit_code, 0) << files.err;
  std::ifstream stream(path("modules/kernel_0.spv"), std::ios::binary);
  std::string magic(4, '\0');
  stream.read(magic.data(), 4);
  EXPECT_EQ(magic, "\x03\x02\x23\x07");
}

// Software drivers tell nothing of their pipelines; those of GPUs do (the stage absent-gpus).
TEST_F(CompileCommand, SaysThatADriverTellsNothingOfItsPipelines) {
  setenv("HEKLA_VULKAN_MASK", "pipeline_statistics", 1);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--json"}, {"--disassembly"}, {"--disassembly", "--json"}}) {
    std::vector<std::string> arguments = {file("add.mlir", kProgram), "--emit", "pipeline-stats"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_NE(outcome.err.find("tells nothing of its pipelines"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  unsetenv("HEKLA_VULKAN_MASK");
}

TEST_F(CompileCommand, SaysWhatIsWrong) {
  const struct {
    std::vector<std::string> arguments;
    std::string reason;
  } kCases[] = {
      {{path("nowhere.mlir"), "--emit", "stablehlo"}, "nowhere.mlir: cannot be opened"},
      {{file("bad.mlir", "module {\n  func }"), "--emit", "stablehlo"}, "bad.mlir: text 2:8: "},
      {{file("add.mlir", kProgram), "--emit", "vhlo-json"}, "this is not MLIR bytecode"},
      {{file("add.mlir", kProgram), "--emit", "spirv"}, "give a folder with --output"},
      {{file("add.mlir", kProgram), "--emit", "kernels", "--disassembly"},
       "--disassembly is there for --emit pipeline-stats"},
      {{file("add.mlir", kProgram), "--emit", "bytecode", "--vhlo", "1.9"}, "such as 1.17.0"},
      {{file("add.mlir", kProgram), "--emit", "bytecode", "--vhlo", "0.9.0"}, "is not written"},
      {{file("add.mlir", kProgram), "--emit", "llvm", "--device", "reference"},
       "shows no form 'llvm'"},
      {{file("add.mlir", kProgram), "--emit", "stablehlo", "--output", path("no/where")},
       "could not be written"},
  };
  for (const auto& [arguments, reason] : kCases) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 1) << reason;
    EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace hekla::tools
