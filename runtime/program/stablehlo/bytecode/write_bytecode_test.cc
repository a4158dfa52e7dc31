// SPDX-License-Identifier: Apache-2.0
// What was written reads back as the same program: every artifact, at the newest version of VHLO
// and at older ones, or a refusal that names the version that is needed. tests/jax/test_bytecode.py
// holds the same files to MLIR's own reader.
#include "runtime/program/stablehlo/bytecode/write_bytecode.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/program/ir/verify.h"
#include "runtime/program/sharding/text.h"
#include "runtime/program/stablehlo/bytecode/bytecode_builder.h"
#include "runtime/program/stablehlo/bytecode/raw_module.h"
#include "runtime/program/stablehlo/bytecode/vhlo_to_ir.h"
#include "runtime/program/stablehlo/testing/artifacts.h"
#include "runtime/program/stablehlo/testing/sample_modules.h"
#include "runtime/program/stablehlo/text/compare.h"
#include "runtime/program/stablehlo/text/text_reader.h"

namespace hekla::stablehlo {
namespace {

std::unique_ptr<ir::Module> read(std::string_view bytes) {
  Result<RawModule> raw = read_bytecode(bytes);
  if (!raw.ok()) die_of_bad_result(raw.status());
  Result<std::unique_ptr<ir::Module>> module = vhlo_to_ir(*raw, nullptr);
  if (!module.ok()) die_of_bad_result(module.status());
  return *std::move(module);
}

// The locations of all operations, in order.
std::string locations(const ir::Module& module) {
  std::string text;
  for (const auto& function : module.functions) {
    ir::walk(function->body(),
             [&](const ir::Operation& op) { text += ir::location_string(op.location()) + "\n"; });
  }
  return text;
}

bool has_unknown_operations(const ir::Module& module) {
  bool found = false;
  for (const auto& function : module.functions) {
    ir::walk(function->body(), [&](const ir::Operation& op) {
      found |= op.code() == ir::OpCode::kUnknown || op.name().starts_with("check.");
    });
  }
  return found;
}

class Written : public ::testing::TestWithParam<std::string> {};

TEST_P(Written, ReadsBackAsTheSameProgram) {
  const std::string bytes = testing::read_artifact(GetParam() + ".mlirbc");
  const std::unique_ptr<ir::Module> module = read(bytes);
  const Result<std::string> written = write_bytecode(*module);
  if (has_unknown_operations(*module)) {
    EXPECT_EQ(written.status().code(), StatusCode::kUnimplemented);
    return;
  }
  ASSERT_TRUE(written.ok()) << written.status().to_string();
  const std::unique_ptr<ir::Module> again = read(*written);
  EXPECT_EQ(first_difference(*module, *again).value_or(""), "");
  EXPECT_EQ(locations(*module), locations(*again));
}

TEST_P(Written, AnOlderVersionSaysTheSameOrNamesWhatItLacks) {
  const std::string bytes = testing::read_artifact(GetParam() + ".mlirbc");
  const std::unique_ptr<ir::Module> module = read(bytes);
  if (has_unknown_operations(*module)) return;
  bool was_written = false;
  for (int minor : {0, 1, 4, 5, 8, 9, 11, 13, 16, 17, 20}) {
    const Result<std::string> written = write_bytecode(*module, {1, minor, 0});
    if (!written.ok()) {
      EXPECT_FALSE(was_written) << "1." << minor << " but not older";
      EXPECT_EQ(written.status().code(), StatusCode::kUnimplemented);
      EXPECT_NE(written.status().message().find("needs VHLO 1."), std::string::npos)
          << written.status().to_string();
      continue;
    }
    was_written = true;
    EXPECT_EQ(first_difference(*module, *read(*written)).value_or(""), "") << "1." << minor;
  }
  EXPECT_TRUE(was_written);
}

INSTANTIATE_TEST_SUITE_P(Artifacts, Written,
                         ::testing::ValuesIn(testing::artifact_names(".mlirbc")),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

TEST(WriteBytecode, ShardyHasItsOwnEncoding) {
  // Every attribute and part; the last lists need the codes for partial sums and their kind.
  ir::Module module;
  for (const char* text :
       {"#sdy.mesh<[\"x\"=2, \"y\"=2], device_ids=[3, 2, 1, 0]>",
        "#sdy.mesh<[], device_ids=[0]>",
        "#sdy.sharding<@mesh, [{\"x\", \"y\":(1)2, ?}p2, {}, {?}], replicated={\"z\"}>",
        "#sdy.sharding<@\"a mesh\", [{}], replicated={\"x\"}, unreduced={\"y\":(1)2}>",
        "#sdy.sharding<mesh<[\"a\"=2]>, [{\"a\"}p0], unreduced={\"b\"}, reduction_kind=1>",
        "#sdy.sharding<@m, [], reduction_kind=0>",
        "#sdy.sharding_per_value<[]>",
        "#sdy.sharding_per_value<[<@mesh, [{}]>, <mesh<[], device_ids=[3]>, []>]>",
        "#sdy.sharding_per_value<[<@m, [{}]>, <@m, [], unreduced={\"y\"}>]>",
        "#sdy.sharding_per_value<[<@m, [{}]>, <@m, [], reduction_kind=2>]>",
        "#sdy<manual_axes{\"x\", \"y\"}>",
        "#sdy.op_sharding_rule<([i, jk], [z_1z], [])->([ij]) {i=4, j=4, k=2} reduction={k} "
        "need_replication={i, z_2} permutation={j} blocked_propagation={z}, custom>",
        "#sdy<axis_ref_list{\"x\", \"y\":(1)2}>",
        "#sdy<list_of_axis_ref_lists[{\"x\"}, {}]>",
        "#sdy<all_to_all_param{\"x\"}: 0->1>",
        "#sdy<all_to_all_param_list[{\"x\"}: 0->1, {\"y\", \"z\"}: 2->0]>",
        "#sdy<mesh_axis\"x\"=4>",
        "#sdy<sub_axis_info(1)2>",
        "#sdy<axis_ref\"x\":(1)2>",
        "#sdy<dimension_sharding{\"x\":(1)2, ?}p2>",
        "#sdy<dim_mapping iz_3>",
        "#sdy<tensor_mapping[iz_3, j]>"}) {
    Result<sharding::Attribute> value = sharding::parse_attribute(text);
    ASSERT_TRUE(value.ok()) << value.status().to_string();
    module.attributes.set(text, ir::ShardingValue{*std::move(value)});
  }
  module.meshes.push_back({"grid", {{{"x", 2}, {"y", 4}}, {}}, {}});
  const Result<std::string> written = write_bytecode(module);
  ASSERT_TRUE(written.ok()) << written.status().to_string();
  const std::unique_ptr<ir::Module> again = read(*written);
  EXPECT_EQ(first_difference(module, *again).value_or(""), "");
  EXPECT_EQ(write_bytecode(module, {1, 10, 0}).status().code(), StatusCode::kUnimplemented);
  // The names of the attributes here are their texts; a program holds none.
  const std::unique_ptr<ir::Module> program =
      read(testing::read_artifact("shard_map_partial.mlirbc"));
  const Result<std::string> bytes = write_bytecode(*program);
  ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
  EXPECT_EQ(bytes->find("#sdy"), std::string::npos);
  module.attributes = {};
  module.attributes.set("a", ir::ShardingValue{sharding::DimensionSharding{{}, true, -1}});
  EXPECT_EQ(write_bytecode(module).status().message(),
            "bytecode: dimension sharding {?}p-1 has a priority below 0");
}

// Where the recorded programs for partitioning are.
TEST(WriteBytecode, RecordedShardedProgramsReadBack) {
  const std::filesystem::path folder = testing::artifact_path("spmd/README.md").parent_path();
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "no recorded programs here";
  int programs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".mlirbc") continue;
    const std::string name = "spmd/" + entry.path().filename().string();
    const std::string bytes = testing::read_artifact(name);
    const std::unique_ptr<ir::Module> module = read(bytes);
    const Status fits = ir::verify(*module);
    EXPECT_TRUE(fits.ok()) << name << ": " << fits.to_string();
    const Result<std::string> written = write_bytecode(*module);
    ASSERT_TRUE(written.ok()) << name << ": " << written.status().to_string();
    EXPECT_EQ(first_difference(*module, *read(*written)).value_or(""), "") << name;
    EXPECT_EQ(written->find("#sdy"), std::string::npos) << name;
    ++programs;
  }
  EXPECT_GE(programs, 33);
}

TEST(WriteBytecode, ShardyInAssemblySyntaxIsReadToo) {
  BytecodeBuilder b;
  OpSpec op{"sdy.mesh"};
  op.properties = {{"mesh", b.attribute_text("sdy", "#sdy.mesh<[\"x\"=2]>")},
                   {"sym_name", b.builtin_string("grid")}};
  const std::unique_ptr<ir::Module> module = read(b.finish(b.module({op})));
  ASSERT_EQ(module->meshes.size(), 1u);
  EXPECT_EQ(module->meshes[0].value, (sharding::Mesh{{{"x", 2}}, {}}));
  BytecodeBuilder bad;
  op.properties = {{"mesh", bad.attribute_text("sdy", "#sdy.mesh<[x]>")},
                   {"sym_name", bad.builtin_string("grid")}};
  const std::string bytes = bad.finish(bad.module({op}));
  const Result<RawModule> raw = read_bytecode(bytes);
  ASSERT_TRUE(raw.ok());
  EXPECT_NE(vhlo_to_ir(*raw).status().message().find(
                "sharding text at 11: expected a name in double quotes, found 'x]>'"),
            std::string::npos)
      << vhlo_to_ir(*raw).status().to_string();
}

// In every artifact: what Shardy attached is values, and nothing keeps it as text.
TEST_P(Written, HasNoShardingAsText) {
  const std::unique_ptr<ir::Module> module = read(testing::read_artifact(GetParam() + ".mlirbc"));
  const auto look = [](const ir::AttributeMap& map) {
    for (const auto& [name, value] : map) {
      const auto* opaque = value.get<ir::OpaqueValue>();
      EXPECT_TRUE(opaque == nullptr || !opaque->text.starts_with("#sdy")) << opaque->text;
      if (name == "sdy.sharding") {
        EXPECT_NE(value.get<ir::ShardingValue>(), nullptr);
      }
      if (name == "mhlo.sharding") {
        EXPECT_NE(value.get<ir::HloShardingValue>(), nullptr);
      }
    }
  };
  for (const auto& function : module->functions) {
    for (const ir::AttributeMap& map : function->argument_attributes) look(map);
    for (const ir::AttributeMap& map : function->result_attributes) look(map);
    ir::walk(function->body(), [&](const ir::Operation& op) { look(op.attributes()); });
  }
}

// The sum over groups by the axes of a mesh: in VHLO 1.16 as they are, before as lists.
TEST(WriteBytecode, GroupsByTheAxesOfAMesh) {
  const auto with_groups = [](std::string_view groups) {
    const std::string text = fmt::format(
        R"(module @g {{
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
    %r = "stablehlo.all_reduce"(%a) ({{
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }}) {{replica_groups = {}}} : (tensor<4xf32>) -> tensor<4xf32>
    return %r : tensor<4xf32>
  }}
}})",
        groups);
    Result<std::unique_ptr<ir::Module>> module = read_text(text);
    if (!module.ok()) die_of_bad_result(module.status());
    return *std::move(module);
  };
  const auto by_axes = [](std::string_view mesh, std::string_view axes) {
    return fmt::format("#stablehlo.replica_group_mesh_axes<mesh = {}, axes = [{}]>", mesh, axes);
  };
  const std::string x = "#stablehlo.axis_ref<name = \"x\">",
                    y = "#stablehlo.axis_ref<name = \"y\">";
  const std::string part = "#stablehlo.axis_ref<name = \"y\", sub_axis_info = (2)2>";
  const std::string own =
      "#stablehlo.mesh<axes = [#stablehlo.mesh_axis<name = \"x\", size = 2>, "
      "#stablehlo.mesh_axis<name = \"y\", size = 4>]";
  const std::string turned =
      own + ", device_ids = dense<[7, 6, 5, 4, 3, 2, 1, 0]> : tensor<8xi64>>";
  struct Case {
    std::string by_axes, as_lists;
  };
  for (const Case& each : std::vector<Case>{
           {by_axes("@mesh", y), "dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>"},
           {by_axes(own + ">", x), "dense<[[0, 4], [1, 5], [2, 6], [3, 7]]> : tensor<4x2xi64>"},
           {by_axes(turned, x), "dense<[[7, 3], [6, 2], [5, 1], [4, 0]]> : tensor<4x2xi64>"},
           {by_axes("@mesh", part), "dense<[[0, 1], [2, 3], [4, 5], [6, 7]]> : tensor<4x2xi64>"}}) {
    SCOPED_TRACE(each.by_axes);
    const std::unique_ptr<ir::Module> module = with_groups(each.by_axes);
    for (const int minor : {16, 20}) {
      const Result<std::string> written = write_bytecode(*module, {1, minor, 0});
      ASSERT_TRUE(written.ok()) << written.status().to_string();
      EXPECT_EQ(first_difference(*module, *read(*written)).value_or(""), "");
    }
    // Before 1.11 there is no mesh in the module either.
    const Result<std::string> older = write_bytecode(*module, {1, 15, 0});
    ASSERT_TRUE(older.ok()) << older.status().to_string();
    EXPECT_EQ(first_difference(*with_groups(each.as_lists), *read(*older)).value_or(""), "");
  }
  const Status refused = write_bytecode(*with_groups(by_axes("@absent", y)), {1, 15, 0}).status();
  EXPECT_NE(refused.message().find("there is no mesh @absent"), std::string::npos)
      << refused.to_string();
}

TEST(WriteBytecode, VersionsOutsideOfWhatIsWrittenAreRefused) {
  const ir::Module empty;
  for (const VhloVersion version : {VhloVersion{0, 19, 0}, {1, 20, 1}, {2, 0, 0}}) {
    EXPECT_EQ(write_bytecode(empty, version).status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace hekla::stablehlo
