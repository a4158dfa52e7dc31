// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/bytecode/vhlo_to_ir.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/bytecode/bytecode_builder.h"
#include "runtime/program/stablehlo/testing/artifacts.h"
#include "runtime/program/stablehlo/text/compare.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::stablehlo {
namespace {

Result<std::unique_ptr<ir::Module>> convert(std::string_view bytes) {
  HEKLA_ASSIGN_OR_RETURN(RawModule raw, read_bytecode(bytes));
  return vhlo_to_ir(raw);
}

std::string printed(const std::string& bytes) {
  Result<std::unique_ptr<ir::Module>> module = convert(bytes);
  return module.ok() ? print_module(**module) : module.status().to_string();
}

// The lines of main's body.
std::string body_of(const std::string& bytes) {
  const std::string text = printed(bytes);
  const size_t main = text.find("\n  func.func");
  if (main == std::string::npos) return text;
  const size_t begin = text.find('\n', main + 1) + 1;
  return text.substr(begin, text.rfind("    return") - begin);
}

std::vector<std::string> names_with_version(bool has_version) {
  std::vector<std::string> names;
  for (const std::string& name : testing::artifact_names(".mlirbc")) {
    if ((name.find('.') != std::string::npos) == has_version) names.push_back(name);
  }
  return names;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
  return name;
}

class Artifact : public ::testing::TestWithParam<std::string> {
 protected:
  static std::string bytes(const std::string& name) {
    return testing::read_artifact(name + ".mlirbc");
  }
};
INSTANTIATE_TEST_SUITE_P(All, Artifact, ::testing::ValuesIn(testing::artifact_names(".mlirbc")),
                         test_name);

TEST_P(Artifact, BecomesAValidProgram) {
  Result<std::unique_ptr<ir::Module>> module = convert(bytes(GetParam()));
  ASSERT_TRUE(module.ok()) << module.status().to_string();
  const Status status = ir::verify(**module);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_NE((*module)->entry(), nullptr);
}

class OldArtifact : public Artifact {};
INSTANTIATE_TEST_SUITE_P(All, OldArtifact, ::testing::ValuesIn(names_with_version(true)),
                         test_name);

// The same program for an older VHLO: other container, other op versions, attributes left out.
TEST_P(OldArtifact, IsTheSameProgramAsTheNewest) {
  Result<std::unique_ptr<ir::Module>> old = convert(bytes(GetParam()));
  Result<std::unique_ptr<ir::Module>> newest =
      convert(bytes(GetParam().substr(0, GetParam().find('.'))));
  ASSERT_TRUE(old.ok() && newest.ok());
  EXPECT_EQ(first_difference(**old, **newest, {.constants_by_value = true}).value_or(""), "");
}

// Every VHLO from 0.9 on that a sender may still write, by one program at least.
TEST(OldArtifacts, AreOfManyVersions) {
  std::set<std::string> versions;
  for (const std::string& name : names_with_version(true)) {
    versions.insert(name.substr(name.find('.') + 1));
  }
  for (const char* version : {"v0.9.0", "v0.11.0", "v0.12.0", "v0.14.0", "v0.17.0", "v1.0.0",
                              "v1.4.0", "v1.8.0", "v1.13.7"}) {
    EXPECT_TRUE(versions.contains(version)) << version;
  }
}

struct Vhlo : BytecodeBuilder {
  using BytecodeBuilder::BytecodeBuilder;
  uint32_t i64 = type("vhlo", varint(14));
  uint32_t f32 = vhlo_f32();
  uint32_t scalar = vhlo_tensor({}, f32);
  uint32_t vector = vhlo_tensor({4}, f32);
  uint32_t integer(int64_t value) {
    return attribute("vhlo", varint(9) + varint(i64) + svarint(value));
  }
  uint32_t boolean(bool value) { return attribute("vhlo", varint(2) + varint(value)); }
  uint32_t tensor(const std::vector<int64_t>& dims, const std::vector<int64_t>& values) {
    std::string bytes;
    for (int64_t value : values) bytes.append(reinterpret_cast<const char*>(&value), 8);
    return attribute("vhlo", varint(15) + varint(vhlo_tensor(dims, i64)) + blob(bytes));
  }
  std::string main_with(OpSpec op) {
    return finish(module_with_main(BlockSpec{{vector}, {std::move(op), {"vhlo.return_v1"}}}, {}));
  }
};

TEST(VhloToIr, CollectivesKeepWhatIsNotDefault) {
  const auto gather = [](int64_t channel, bool ids, const char* name) {
    Vhlo b;
    OpSpec op{name, {0}, {b.vector}};
    op.properties = {{"all_gather_dim", b.integer(0)},
                     {"channel_id", b.integer(channel)},
                     {"replica_groups", b.tensor({1, 1}, {0})},
                     {"use_global_device_ids", b.boolean(ids)}};
    return body_of(b.main_with(op));
  };
  const std::string plain =
      "    %0 = \"stablehlo.all_gather\"(%arg0) {all_gather_dim = 0 : i64, replica_groups = "
      "dense<[[0]]> : tensor<1x1xi64>} : (tensor<4xf32>) -> tensor<4xf32>\n";
  EXPECT_EQ(gather(0, false, "vhlo.all_gather_v1"), plain);
  EXPECT_EQ(gather(0, false, "vhlo.all_gather_v2"), plain);
  EXPECT_EQ(gather(3, true, "vhlo.all_gather_v2"),
            "    %0 = \"stablehlo.all_gather\"(%arg0) {all_gather_dim = 0 : i64, channel_handle = "
            "#stablehlo.channel_handle<handle = 3, type = 0>, replica_groups = dense<[[0]]> : "
            "tensor<1x1xi64>, use_global_device_ids} : (tensor<4xf32>) -> tensor<4xf32>\n");
}

TEST(VhloToIr, ListsAreExpandedAndDefaultsLeftOut) {
  Vhlo b;
  OpSpec op{"vhlo.slice_v1", {0}, {b.vector}};
  op.properties = {{"limit_indices", b.tensor({1}, {4})},
                   {"start_indices", b.tensor({1}, {0})},
                   {"strides", b.tensor({1}, {1})}};
  EXPECT_EQ(body_of(b.main_with(op)),
            "    %0 = stablehlo.slice %arg0 [0:4] : (tensor<4xf32>) -> tensor<4xf32>\n");
  Vhlo c;
  OpSpec window{"vhlo.select_and_scatter_v1", {0, 0, 0}, {c.vector}};
  window.properties = {{"padding", c.tensor({1, 2}, {0})},
                       {"window_dimensions", c.tensor({2}, {3})},  // a splat
                       {"window_strides", c.tensor({2}, {1})}};
  EXPECT_NE(body_of(c.main_with(window)).find("{window_dimensions = array<i64: 3, 3>} :"),
            std::string::npos);
}

TEST(VhloToIr, CustomCallsOfEveryVersion) {
  const auto call = [](bool has_tilings, uint64_t api_version) {
    Vhlo b;
    const uint32_t none = b.attribute("vhlo", varint(1) + varint(0));
    OpSpec op{has_tilings ? "vhlo.custom_call_v2" : "vhlo.custom_call_v1", {0}, {b.vector}};
    op.properties = {
        {"api_version", b.attribute("vhlo", varint(5) + varint(api_version))},
        {"backend_config", b.vhlo_string("")},
        {"call_target_name", b.vhlo_string("f")},
        {"called_computations", b.attribute("vhlo", varint(1) + refs({b.vhlo_string("main")}))},
        {"has_side_effect", b.boolean(false)},
        {"operand_layouts", none},
        {"output_operand_aliases",
         b.attribute("vhlo",
                     varint(1) + refs({b.attribute("vhlo", varint(10) + svarints({}) + svarint(0) +
                                                               svarints({}))}))},
        {"result_layouts", none}};
    if (has_tilings) op.properties.push_back({"result_tilings", none});
    return body_of(b.main_with(op));
  };
  const std::string expected =
      "    %0 = stablehlo.custom_call @f(%arg0) {called_computations = [@main], "
      "output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], "
      "operand_index = 0, operand_tuple_indices = []>]} : (tensor<4xf32>) -> tensor<4xf32>\n";
  EXPECT_EQ(call(false, 1), expected);
  EXPECT_EQ(call(true, 1), expected);
  EXPECT_NE(call(true, 4).find("api_version = 4 : i32"), std::string::npos);
}

TEST(VhloToIr, DotAlgorithms) {
  const auto dot = [](bool has_algorithm) {
    Vhlo b;
    const uint32_t none = b.attribute("vhlo", varint(17) + varint(b.type("vhlo", varint(33))));
    const uint32_t tf32 = b.attribute("vhlo", varint(17) + varint(b.type("vhlo", varint(34))));
    const uint32_t one = b.integer(1);
    const uint32_t empty = b.tensor({0}, {});
    const uint32_t zero = b.tensor({1}, {0});
    OpSpec op{"vhlo.dot_general_v2", {0, 0}, {b.scalar}};
    op.properties = {{"accumulation_type", has_algorithm ? tf32 : none},
                     {"allow_imprecise_accumulation", has_algorithm ? b.boolean(true) : none},
                     {"lhs_batching_dimensions", empty},
                     {"lhs_component_count", has_algorithm ? one : none},
                     {"lhs_contracting_dimensions", zero},
                     {"lhs_precision_type", has_algorithm ? tf32 : none},
                     {"num_primitive_operations", has_algorithm ? one : none},
                     {"precision_config", b.attribute("vhlo", varint(1) + varint(0))},
                     {"rhs_batching_dimensions", empty},
                     {"rhs_component_count", has_algorithm ? one : none},
                     {"rhs_contracting_dimensions", zero},
                     {"rhs_precision_type", has_algorithm ? tf32 : none}};
    return body_of(b.main_with(op));
  };
  const std::string plain =
      "    %0 = stablehlo.dot_general %arg0, %arg0, contracting_dims = [0] x [0]";
  const std::string types = " : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>\n";
  EXPECT_EQ(dot(false), plain + types);
  EXPECT_EQ(dot(true),
            plain +
                ", algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, "
                "accumulation_type = tf32, lhs_component_count = 1, rhs_component_count = 1, "
                "num_primitive_operations = 1, allow_imprecise_accumulation = true>" +
                types);
}

TEST(VhloToIr, CastsAreIdentities) {
  const auto cast = [](int64_t size) {
    Vhlo b;
    const uint32_t f32 = b.type("builtin", varint(5));
    const uint32_t tensor = b.type("builtin", varint(13) + svarints({size}) + varint(f32));
    BlockSpec body{{b.vector},
                   {{"builtin.unrealized_conversion_cast", {0}, {tensor}},
                    {"vhlo.abs_v1", {1}, {b.vector}},
                    {"vhlo.return_v1"}}};
    return b.finish(b.module_with_main(body, {}));
  };
  EXPECT_EQ(body_of(cast(4)), "    %0 = stablehlo.abs %arg0 : tensor<4xf32>\n");
  EXPECT_NE(printed(cast(5)).find("turns tensor<4xf32> into tensor<5xf32>"), std::string::npos);
}

TEST(VhloToIr, UnknownOperationsKeepTheirName) {
  Vhlo b;
  OpSpec op{"mpmd.transfer", {0}, {b.vector}};
  op.attributes = {{"where", b.builtin_string("there")}};
  EXPECT_EQ(body_of(b.main_with(op)),
            "    %0 = \"mpmd.transfer\"(%arg0) {where = \"there\"} : (tensor<4xf32>) -> "
            "tensor<4xf32>\n");
  Vhlo c;
  EXPECT_EQ(body_of(c.main_with({"vhlo.abs_v9", {0}, {c.vector}})),
            "    %0 = \"vhlo.abs_v9\"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>\n");
}

TEST(VhloToIr, IntegersWiderThan64BitsAreNamed) {
  Vhlo b;
  OpSpec op{"vhlo.abs_v1", {0}, {b.vector}};
  const uint32_t i128 = b.type("builtin", varint(0) + varint(128 << 2));
  op.attributes = {{"wide", b.attribute("builtin", varint(8) + varint(i128) + varint(2) +
                                                       svarint(1) + svarint(1))}};
  EXPECT_NE(printed(b.main_with(op)).find("integers of 128 bits are not supported"),
            std::string::npos);
}

TEST(VhloToIr, Meshes) {
  BytecodeBuilder b;
  const uint32_t x = b.attribute("sdy", varint(1) + varint(b.string("x")) + svarint(2));
  const uint32_t y = b.attribute("sdy", varint(1) + varint(b.string("y")) + svarint(1));
  const uint32_t mesh = b.attribute("sdy", varint(2) + refs({x, y}) + svarints({1, 0}));
  OpSpec op{"sdy.mesh"};
  op.properties = {{"mesh", mesh}, {"sym_name", b.builtin_string("grid")}};
  OpSpec module = b.module_with_main(BlockSpec{{}, {{"vhlo.return_v1"}}}, {});
  auto& ops = module.regions[0][0].ops;
  ops.insert(ops.begin(), op);
  EXPECT_NE(
      printed(b.finish(module)).find("sdy.mesh @grid = <[\"x\"=2, \"y\"=1], device_ids=[1, 0]>\n"),
      std::string::npos);
}

// Native StableHLO, in the form of writers with and without the newest attributes.
TEST(VhloToIr, NativeStableHlo) {
  const auto file = [](bool is_new) {
    BytecodeBuilder b;
    const uint32_t f32 = b.type("builtin", varint(5));
    const uint32_t tensor = b.type("builtin", varint(13) + svarints({4}) + varint(f32));
    const uint32_t i1 = b.type("builtin", varint(0) + varint(1 << 2));
    const uint32_t predicate = b.type("builtin", varint(13) + svarints({4}) + varint(i1));
    const uint32_t function = b.type("builtin", varint(2) + refs({tensor}) + refs({}));
    OpSpec compare{"stablehlo.compare", {0, 0}, {predicate}};
    compare.properties = {
        {"compare_type", b.attribute("stablehlo", varint(3) + varint(1)), true},
        {"comparison_direction", b.attribute("stablehlo", varint(2) + varint(5))}};
    OpSpec exponential{"stablehlo.exponential", {0}, {tensor}};
    if (is_new) exponential.properties = {{"result_accuracy", 0, true, true}};
    OpSpec reduce{"stablehlo.all_reduce", {0}, {tensor}};
    reduce.properties = {
        {"channel_handle", b.attribute("stablehlo", varint(1) + svarint(1) + svarint(1)), true},
        {"replica_groups", b.attribute("builtin", varint(7))},
        {"use_global_device_ids", b.attribute("builtin", varint(7)), true}};
    OpSpec main{"func.func"};
    main.properties = {{"arg_attrs", 0, true, true},
                       {"function_type", b.attribute("builtin", varint(6) + varint(function))}};
    if (is_new) main.properties.push_back({"no_inline", 0, true, true});
    main.properties.push_back({"res_attrs", 0, true, true});
    main.properties.push_back({"sym_name", b.builtin_string("main")});
    main.properties.push_back({"sym_visibility", b.builtin_string("public"), true});
    main.regions = {{BlockSpec{{tensor}, {compare, exponential, reduce, {"func.return"}}}}};
    return b.finish(b.module({main}));
  };
  EXPECT_EQ(body_of(file(true)),
            "    %0 = stablehlo.compare LT, %arg0, %arg0, FLOAT : (tensor<4xf32>, tensor<4xf32>) "
            "-> tensor<4xi1>\n"
            "    %1 = stablehlo.exponential %arg0 : tensor<4xf32>\n"
            "    %2 = \"stablehlo.all_reduce\"(%arg0) {channel_handle = "
            "#stablehlo.channel_handle<handle = 1, type = 0>, replica_groups, "
            "use_global_device_ids} : (tensor<4xf32>) -> tensor<4xf32>\n");
  EXPECT_EQ(body_of(file(false)), body_of(file(true)));
  EXPECT_NE(printed(file(true)).find("func.func public @main(%arg0: tensor<4xf32>) {"),
            std::string::npos);
}

}  // namespace
}  // namespace hekla::stablehlo
