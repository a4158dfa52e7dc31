// SPDX-License-Identifier: Apache-2.0
// The container and its IR on files assembled by hand: what real senders do not write any more, or
// not yet.
#include <gtest/gtest.h>

#include <functional>

#include <nlohmann/json.hpp>

#include "runtime/program/stablehlo/bytecode/bytecode_builder.h"
#include "runtime/program/stablehlo/bytecode/op_properties.h"
#include "runtime/program/stablehlo/bytecode/raw_module.h"
#include "runtime/program/stablehlo/bytecode/vhlo_json.h"
#include "runtime/program/stablehlo/bytecode/vhlo_to_ir.h"
#include "runtime/program/stablehlo/testing/sample_modules.h"

namespace hekla::stablehlo {
namespace {

using nlohmann::json;

json decode(const std::string& bytes) {
  Result<RawModule> module = read_bytecode(bytes);
  if (!module.ok()) return module.status().to_string();
  Result<std::string> text = vhlo_json(*module);
  return text.ok() ? json::parse(*text) : json(text.status().to_string());
}

json main_ops(const std::string& bytes) {
  json decoded = decode(bytes);
  if (decoded.is_string()) return decoded;
  return decoded["module"]["regions"][0][0]["ops"][0]["regions"][0][0]["ops"];
}

// A module of main(tensor<2xf32>) = x + x, byte by byte after the format's description, not by the
// builder.
constexpr unsigned char kAddFile[] = {
    0x4d, 0x4c, 0xef, 0x52, 0x0d, 0x65, 0x78, 0x61, 0x6d, 0x70, 0x6c, 0x65, 0x00,        // header
    0x01, 0x19, 0x05, 0x01, 0x09, 0x09, 0x01, 0x03, 0x07, 0x03, 0x07, 0x0f, 0x13, 0x17,  // names
    0x03, 0x21, 0x0b, 0x07, 0x01, 0x03, 0x07, 0x03, 0x09, 0x0b, 0x0b, 0x0b, 0x0b, 0x03, 0x07, 0x07,
    0x13, 0x17,  // offsets
    0x02, 0x27, 0x1f, 0x1d, 0x0d, 0x1d, 0x0f, 0x23, 0x05, 0x03, 0x01, 0x09, 0x29, 0x03, 0x09, 0x01,
    0x11, 0x03, 0x03, 0x03, 0x03,  // attributes and types
    0x04, 0x4b, 0x05, 0x01, 0x50, 0x01, 0x01, 0x07, 0x04, 0x3b, 0x03, 0x01, 0x05, 0x03, 0x50, 0x01,
    0x03, 0x07, 0x04, 0x27, 0x03, 0x05, 0x0b, 0x03, 0x05, 0x00, 0x05, 0x06, 0x01, 0x03, 0x03, 0x05,
    0x01, 0x01, 0x07, 0x04, 0x01, 0x03, 0x03,  // IR
    0x06, 0x03, 0x01, 0x05, 0x01,              // resources
    0x00, 0x79, 0x11, 0x03, 0x0b, 0x15, 0x0f, 0x11, 0x0b, 0x0f, 0x11, 0x62, 0x75, 0x69, 0x6c, 0x74,
    0x69, 0x6e, 0x00, 0x6d, 0x6f, 0x64, 0x75, 0x6c, 0x65, 0x00, 0x76, 0x68, 0x6c, 0x6f, 0x00, 0x66,
    0x75, 0x6e, 0x63, 0x5f, 0x76, 0x31, 0x00, 0x61, 0x64, 0x64, 0x5f, 0x76, 0x31, 0x00, 0x72, 0x65,
    0x74, 0x75, 0x72, 0x6e, 0x5f, 0x76, 0x31, 0x00, 0x6d, 0x61, 0x69, 0x6e, 0x00, 0x00,  // strings
    0x08, 0x15, 0x05, 0x05, 0x01, 0x01, 0x0b, 0x09, 0x07, 0x09, 0x03, 0x05};  // properties

TEST(Bytecode, ReadsTheWorkedExample) {
  const json decoded =
      decode(std::string(reinterpret_cast<const char*>(kAddFile), sizeof kAddFile));
  ASSERT_TRUE(decoded.is_object()) << decoded;
  EXPECT_EQ(decoded["container_version"], 6);
  EXPECT_EQ(decoded["producer"], "example");
  EXPECT_EQ(decoded["dialects"], json({"builtin", "vhlo"}));
  EXPECT_EQ(decoded["attributes"], 5);
  EXPECT_EQ(decoded["types"], 3);
  EXPECT_EQ(decoded["values"], 2);
  EXPECT_EQ(decoded["module"], json::parse(R"({
    "op": "builtin.module",
    "regions": [[{"ops": [{
      "op": "vhlo.func_v1",
      "props": {
        "arg_attrs": {"array": []},
        "function_type": {"type_value": "(tensor<2xf32>) -> tensor<2xf32>"},
        "res_attrs": {"array": []},
        "sym_name": {"str": "main"},
        "sym_visibility": {"str": ""}},
      "regions": [[{
        "args": [[0, "tensor<2xf32>"]],
        "ops": [
          {"op": "vhlo.add_v1", "operands": [0, 0], "results": [[1, "tensor<2xf32>"]]},
          {"op": "vhlo.return_v1", "operands": [1]}]}]]}]}]]})"));
}

class ContainerVersion : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, ContainerVersion, ::testing::Range(0, 7));

TEST_P(ContainerVersion, SaysTheSame) {
  const json decoded = decode(testing::loop_module(static_cast<uint64_t>(GetParam())));
  ASSERT_TRUE(decoded.is_object()) << decoded;
  EXPECT_EQ(decoded["container_version"], GetParam());
  EXPECT_EQ(decoded["values"], 10);
  EXPECT_EQ(decoded["module"]["regions"][0][0]["ops"][0]["regions"], json::parse(R"([[{
    "args": [[0, "tensor<2xf32>"]],
    "ops": [
      {"op": "vhlo.constant_v1", "results": [[1, "tensor<2xf32>"]],
       "props": {"value": {"tensor": "tensor<2xf32>", "hex": "0000803f0000803f"}},
       "attrs": {"note": {"str": "one"}}},
      {"op": "vhlo.while_v1", "operands": [1], "results": [[2, "tensor<2xf32>"]],
       "regions": [
         [{"args": [[3, "tensor<2xf32>"]],
           "ops": [{"op": "vhlo.compare_v1", "operands": [3, 0], "results": [[4, "tensor<2xi1>"]],
                    "props": {"compare_type": {"enum": "FLOAT", "kind": "ComparisonTypeV1"},
                              "comparison_direction":
                                  {"enum": "LT", "kind": "ComparisonDirectionV1"}}},
                   {"op": "vhlo.return_v1", "operands": [4]}]}],
         [{"args": [[5, "tensor<2xf32>"]], "ops": [{"op": "vhlo.return_v1", "operands": [5]}]}]]},
      {"op": "vhlo.while_v1", "operands": [2], "results": [[6, "tensor<2xf32>"]],
       "regions": [
         [{"args": [[7, "tensor<2xf32>"]],
           "ops": [{"op": "vhlo.compare_v1", "operands": [7, 7], "results": [[8, "tensor<2xi1>"]],
                    "props": {"compare_type": {"enum": "FLOAT", "kind": "ComparisonTypeV1"},
                              "comparison_direction":
                                  {"enum": "LT", "kind": "ComparisonDirectionV1"}}},
                   {"op": "vhlo.return_v1", "operands": [8]}]}],
         [{"args": [[9, "tensor<2xf32>"]], "ops": [{"op": "vhlo.return_v1", "operands": [9]}]}]]},
      {"op": "vhlo.return_v1", "operands": [6]}]}]])"));
}

// The attribute `payload` of a dialect, as the value of a discardable attribute of a `return`.
json attribute_of(const std::string& dialect, std::string payload,
                  const std::function<void(BytecodeBuilder&)>& prepare = {}) {
  BytecodeBuilder b;
  if (prepare) prepare(b);
  OpSpec op{"vhlo.return_v1"};
  op.attributes = {{"a", b.attribute(dialect, std::move(payload))}};
  json ops = main_ops(b.finish(b.module_with_main(BlockSpec{{}, {op}}, {})));
  return ops.is_array() ? ops[0]["attrs"]["a"] : ops;
}

TEST(Bytecode, ReadsBuiltinAttributesInAnySlot) {
  const auto types = [](BytecodeBuilder& b) {
    b.type("builtin", varint(0) + varint(32 << 2));                // 0: i32
    b.type("builtin", varint(0) + varint(64 << 2 | 2));            // 1: ui64
    b.type("builtin", varint(5));                                  // 2: f32
    b.type("builtin", varint(13) + svarints({2, 3}) + varint(0));  // 3
    b.string("text");                                              // 0
  };
  EXPECT_EQ(attribute_of("builtin", varint(7)), json::parse(R"({"unit": true, "builtin": true})"));
  EXPECT_EQ(attribute_of("builtin", varint(8) + varint(0) + svarint(-5), types),
            json::parse(R"({"int": -5, "type": "i32", "builtin": true})"));
  EXPECT_EQ(attribute_of("builtin", varint(8) + varint(1) + svarint(-1), types),
            json::parse(R"({"int": 18446744073709551615, "type": "ui64", "builtin": true})"));
  EXPECT_EQ(attribute_of("builtin", varint(3) + varint(0) + varint(2), types),
            json::parse(R"({"str": "text", "builtin": true})"));
  EXPECT_EQ(attribute_of("builtin", varint(6) + varint(3), types),
            json::parse(R"({"type_value": "tensor<2x3xi32>", "builtin": true})"));
  EXPECT_EQ(attribute_of("builtin", varint(18) + varint(3) + blob(std::string("\1\0\0\0", 4)),
                         types)["hex"],
            "010000000100000001000000010000000100000001000000");
}

TEST(Bytecode, KeepsAttributesOfOtherDialects) {
  const json value = attribute_of("mpmd", varint(3) + "whatever it is");
  EXPECT_TRUE(value.contains("text")) << value;
  BytecodeBuilder b;
  OpSpec op{"vhlo.return_v1"};
  op.attributes = {{"a", b.attribute_text("builtin", "affine_map<(d0) -> (d0)>")}};
  EXPECT_EQ(main_ops(b.finish(b.module_with_main(BlockSpec{{}, {op}}, {})))[0]["attrs"]["a"],
            json::parse(R"({"text": "affine_map<(d0) -> (d0)>"})"));
}

TEST(Bytecode, ReadsShardyInItsText) {
  const auto axes = [](BytecodeBuilder& b) {
    b.string("x");                                                             // string 0
    b.string("y");                                                             // string 1
    b.string("mesh");                                                          // string 2
    b.attribute("sdy", varint(3) + svarint(1) + svarint(2));                   // 0: :(1)2
    b.attribute("sdy", varint(4) + varint(0) + varint(0));                     // 1: "x"
    b.attribute("sdy", varint(4) + varint(1) + varint(0 << 1 | 1));            // 2: "y":(1)2
    b.attribute("sdy", varint(5) + refs({1, 2}) + '\0' + varint(2 << 1 | 1));  // 3: open, p2
    b.attribute("sdy", varint(5) + refs({}) + '\1' + varint(0));               // 4: {}
    b.attribute("sdy", varint(5) + refs({}) + '\0' + varint(0));               // 5: {?}
    b.attribute("builtin", varint(2) + varint(2));                             // 6: mesh
    b.attribute("builtin", varint(4) + varint(6));                             // 7: @mesh
    b.attribute("sdy", varint(1) + varint(0) + svarint(4));                    // 8: "x"=4
    b.attribute("sdy", varint(2) + refs({8}) + svarints({3, 2, 1, 0}));        // 9: a mesh
    b.attribute("sdy", varint(2) + refs({}) + svarints({3}));                  // 10: one device
    b.attribute("sdy", varint(6) + varint(7) + refs({4}) + refs({}));          // 11
  };
  const auto text = [&](const std::string& payload) { return attribute_of("sdy", payload, axes); };
  EXPECT_EQ(text(varint(6) + varint(7) + refs({3, 4, 5}) + refs({}))["text"],
            "#sdy.sharding<@mesh, [{\"x\", \"y\":(1)2, ?}p2, {}, {?}]>");
  EXPECT_EQ(text(varint(15) + varint(7) + refs({4}) + refs({1}) + refs({2}))["text"],
            "#sdy.sharding<@mesh, [{}], replicated={\"x\"}, unreduced={\"y\":(1)2}>");
  EXPECT_EQ(text(varint(2) + refs({8}) + svarints({1, 0, 3, 2}))["text"],
            "#sdy.mesh<[\"x\"=4], device_ids=[1, 0, 3, 2]>");
  EXPECT_EQ(text(varint(11) + refs({1, 2}))["text"], "#sdy<axis_ref_list{\"x\", \"y\":(1)2}>");
  EXPECT_EQ(text(varint(7) + refs({11, 11}))["text"],
            "#sdy.sharding_per_value<[<@mesh, [{}]>, <@mesh, [{}]>]>");
}

// As jaxlib 0.10.2 and 0.11.2 write them: flags are bytes, lists stand in their places.
TEST(Bytecode, ReadsNativeGroupsByMeshAxes) {
  const std::string no(1, '\0'), yes(1, '\1');
  const auto parts = [&](BytecodeBuilder& b) {
    b.string("x");                                                       // string 0
    b.string("y");                                                       // string 1
    b.attribute("stablehlo", varint(21) + varint(0) + svarint(2));       // 0: x, 2
    b.attribute("stablehlo", varint(21) + varint(1) + svarint(4));       // 1: y, 4
    b.attribute("builtin", varint(0) + refs({0, 1}));                    // 2: both
    b.attribute("stablehlo", varint(22) + varint(2) + no);               // 3: the mesh
    b.attribute("stablehlo", varint(20) + varint(0) + no);               // 4: x
    b.attribute("stablehlo", varint(19) + svarint(1) + svarint(2));      // 5: (1)2
    b.attribute("stablehlo", varint(20) + varint(1) + yes + varint(5));  // 6: y:(1)2
  };
  const std::string mesh =
      "#stablehlo.mesh<axes = [#stablehlo.mesh_axis<name = \"x\", size = 2>, "
      "#stablehlo.mesh_axis<name = \"y\", size = 4>]>";
  const std::string y = "#stablehlo.axis_ref<name = \"y\", sub_axis_info = (1)2>";
  const auto text = [&](const std::string& payload) {
    return attribute_of("stablehlo", payload, parts)["text"];
  };
  EXPECT_EQ(text(varint(18) + varint(3) + refs({6})),
            "#stablehlo.replica_group_mesh_axes<mesh = " + mesh + ", axes = [" + y + "]>");
  EXPECT_EQ(text(varint(18) + varint(3) + refs({4, 6})),
            "#stablehlo.replica_group_mesh_axes<mesh = " + mesh +
                ", axes = [#stablehlo.axis_ref<name = \"x\">, " + y + "]>");
}

TEST(Bytecode, ReadsResourcesAndSmallFloats) {
  BytecodeBuilder b;
  const uint32_t i32 = b.type("builtin", varint(0) + varint(32 << 2));
  const uint32_t tensor = b.type("builtin", varint(13) + svarints({2}) + varint(i32));
  const uint32_t handle = b.resource("data", std::string("\1\0\0\0\2\0\0\0", 8));
  const uint32_t vhlo_i32 = b.type("vhlo", varint(13));
  OpSpec constant{"vhlo.constant_v1", {}, {b.vhlo_tensor({2}, vhlo_i32)}};
  constant.properties = {
      {"value", b.attribute("builtin", varint(16) + varint(tensor) + varint(handle))}};
  OpSpec other{"vhlo.return_v1"};
  other.attributes = {
      {"t", b.attribute("builtin", varint(6) + varint(b.type("builtin", varint(32))))}};
  const json ops = main_ops(b.finish(b.module_with_main(BlockSpec{{}, {constant, other}}, {})));
  ASSERT_TRUE(ops.is_array()) << ops;
  EXPECT_EQ(ops[0]["props"]["value"]["text"], "dense_resource<data> : tensor<2xi32>");
  EXPECT_EQ(ops[1]["attrs"]["t"]["type_value"], "f8E8M0FNU");
}

TEST(Bytecode, ReadsEveryTypeAttributeAndOperation) {
  for (const auto& [name, bytes] : testing::sample_modules()) {
    const json decoded = decode(bytes);
    EXPECT_TRUE(decoded.is_object()) << name << ": " << decoded;
    Result<RawModule> raw = read_bytecode(bytes);
    ASSERT_TRUE(raw.ok());
    Result<std::unique_ptr<ir::Module>> module = vhlo_to_ir(*raw);
    EXPECT_TRUE(module.ok()) << name << ": " << module.status().to_string();
  }
}

// The table of VHLO's operations and the list of the IR's operations name the same things.
TEST(Bytecode, KnowsEveryOperationInVhlo) {
  for (int code = 1;; ++code) {
    const std::string name(ir::op_name(static_cast<ir::OpCode>(code)));
    if (!name.starts_with("stablehlo.")) break;
    EXPECT_FALSE(op_properties("vhlo." + name.substr(10) + "_v1").empty()) << name;
  }
}

}  // namespace
}  // namespace hekla::stablehlo
