// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/testing/sample_modules.h"

#include <limits>
#include <map>

#include "runtime/program/ir/op_code.h"
#include "runtime/program/stablehlo/bytecode/bytecode_builder.h"
#include "runtime/program/stablehlo/bytecode/op_properties.h"

namespace hekla::stablehlo::testing {
namespace {

constexpr int64_t kDynamic = std::numeric_limits<int64_t>::min();

// main(types...) { return }, the return with the given attributes.
std::string file_of(BytecodeBuilder& b, const std::vector<uint32_t>& types,
                    const std::vector<uint32_t>& attributes) {
  OpSpec op{"vhlo.return_v1"};
  for (uint32_t attribute : attributes) {
    op.attributes.emplace_back("a" + std::to_string(attribute), attribute);
  }
  return b.finish(b.module_with_main(BlockSpec{types, {op}}, {}));
}

std::string vhlo_types() {
  BytecodeBuilder b;
  std::vector<uint32_t> types;
  const auto add = [&](std::string payload) {
    types.push_back(b.type("vhlo", std::move(payload)));
    return types.back();
  };
  const uint32_t f32 = add(varint(4));
  const uint32_t i8 = add(varint(11));
  for (uint64_t code : {0,  2,  3,  5,  6,  7,  9,  10, 12, 13, 14, 15, 16, 17, 18, 19,
                        22, 26, 27, 28, 29, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40}) {
    add(varint(code));
  }
  const uint32_t complex = add(varint(1) + varint(f32));
  const uint32_t tensor = add(varint(20) + svarints({2, 3}) + varint(complex));
  const uint32_t bounds = b.attribute("vhlo", varint(18) + svarints({8, kDynamic}));
  add(varint(21) + varint(bounds) + svarints({kDynamic, 3}) + varint(f32));
  add(varint(8) + refs({tensor, f32}) + refs({tensor}));
  add(varint(23) + refs({tensor, f32}));
  const std::string scale = svarint(0x3fe0000000000000);
  add(varint(24) + varint(1) + varint(i8) + varint(f32) + scale + svarint(3) + svarint(-128) +
      svarint(127));
  add(varint(25) + varint(f32));
  add(varint(30) + varint(1) + varint(i8) + varint(f32) + varint(1) + svarint(-127) + svarint(127) +
      varint(2) + scale + scale + svarints({0, -5}));
  add(varint(41) + svarints({4}) + varint(f32));
  add(varint(42) + refs({tensor}));
  return file_of(b, types, {});
}

std::string builtin_types() {
  BytecodeBuilder b;
  std::vector<uint32_t> types;
  const auto add = [&](std::string payload) {
    types.push_back(b.type("builtin", std::move(payload)));
    return types.back();
  };
  const uint32_t f32 = add(varint(5));
  for (uint64_t code : {1, 3, 4, 6, 12, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32}) {
    add(varint(code));
  }
  for (uint64_t width : {1, 2, 4, 8, 16, 32, 64}) {
    add(varint(0) + varint(width << 2));
    if (width > 1) add(varint(0) + varint(width << 2 | 2));
  }
  const uint32_t tensor = add(varint(13) + svarints({2, kDynamic}) + varint(f32));
  const uint32_t bounds = b.attribute("stablehlo", varint(13) + svarints({kDynamic, 8}));
  add(varint(14) + varint(bounds) + svarints({2, kDynamic}) + varint(f32));
  add(varint(9) + varint(f32));
  add(varint(2) + refs({tensor}) + refs({f32}));
  add(varint(15) + refs({tensor, tensor}));
  add(varint(18) + varint(f32));
  types.push_back(b.type("stablehlo", varint(0)));
  types.push_back(b.type("stablehlo", varint(1) + refs({tensor})));
  return file_of(b, types, {});
}

std::string attributes_of_all_dialects() {
  BytecodeBuilder b;
  std::vector<uint32_t> all;
  const auto add = [&](std::string_view dialect, std::string payload) {
    all.push_back(b.attribute(dialect, std::move(payload)));
    return all.back();
  };
  const uint32_t i32 = b.type("builtin", varint(0) + varint(32 << 2));
  const uint32_t f32 = b.type("builtin", varint(5));
  const uint32_t tensor = b.type("builtin", varint(13) + svarints({2}) + varint(i32));
  const uint32_t text = add("builtin", varint(2) + varint(b.string("x")));
  const uint32_t symbol = add("builtin", varint(4) + varint(text));
  add("builtin", varint(0) + refs({text, symbol}));
  add("builtin", varint(1) + varint(1) + varint(text) + varint(symbol));
  add("builtin", varint(3) + varint(0) + varint(i32));
  add("builtin", varint(5) + varint(text) + refs({text}));
  add("builtin", varint(6) + varint(tensor));
  add("builtin", varint(7));
  add("builtin", varint(8) + varint(i32) + svarint(-7));
  add("builtin", varint(9) + varint(f32) + svarint(0x3f800000));
  const uint32_t line = add("builtin", varint(11) + varint(text) + varint(3) + varint(4));
  const uint32_t range = add("builtin", varint(22) + varint(text) + varint(4) + varint(1) +
                                            varint(2) + varint(3) + varint(4));
  add("builtin", varint(10) + varint(line) + varint(range));
  add("builtin", varint(12) + refs({line, range}));
  add("builtin", varint(14) + varint(text) + varint(line));
  const uint32_t handle = b.resource("blob", std::string(8, '\1'));
  add("builtin", varint(16) + varint(tensor) + varint(handle));
  add("builtin", varint(17) + varint(f32) + varint(1) + blob(std::string(4, '\2')));
  add("builtin", varint(18) + varint(tensor) + blob(std::string(4, '\3')));
  all.push_back(b.attribute_text("builtin", "affine_map<(d0) -> (d0)>"));

  const uint32_t i64 = b.type("vhlo", varint(14));
  const uint32_t vhlo_text = add("vhlo", varint(14) + varint(0));
  for (uint64_t code : {3, 4, 5, 7, 11, 12, 16, 19}) add("vhlo", varint(code) + varint(0));
  add("vhlo", varint(13) + varint(1));
  add("vhlo", varint(2) + varint(1));
  add("vhlo", varint(6) + varint(1) + varint(vhlo_text) + varint(vhlo_text));
  add("vhlo", varint(8) + varint(b.vhlo_f32()) + svarint(0x7fc00000));
  add("vhlo", varint(9) + varint(i64) + svarint(-1));
  add("vhlo", varint(10) + svarints({0}) + svarint(1) + svarints({2, 3}));
  const uint32_t ids =
      add("vhlo", varint(15) + varint(b.vhlo_tensor({2}, i64)) + blob(std::string(16, '\0')));
  add("vhlo", varint(17) + varint(i64));
  const uint32_t mode = add("vhlo", varint(19) + varint(2));
  add("vhlo", varint(20) + svarint(1) + svarint(2) + svarint(3) + varint(mode));
  const uint32_t sub = add("vhlo", varint(21) + svarint(1) + svarint(2));
  const uint32_t ref = add("vhlo", varint(22) + varint(vhlo_text) + varint(1) + varint(sub));
  const uint32_t ref_list = add("vhlo", varint(1) + refs({ref}));
  add("vhlo", varint(23) + varint(vhlo_text) + varint(ref_list));
  const uint32_t axis = add("vhlo", varint(24) + varint(vhlo_text) + svarint(2));
  const uint32_t axes = add("vhlo", varint(1) + refs({axis}));
  add("vhlo", varint(25) + varint(axes) + varint(ids << 1 | 1));

  add("stablehlo", varint(1) + svarint(1) + svarint(0));
  add("stablehlo", varint(2) + varint(0));
  add("stablehlo", varint(4) + svarint(0) + svarint(1) + svarints({2}) + svarint(0) + svarint(1) +
                       svarints({2}) + svarint(0) + svarint(1) + svarints({2}));
  add("stablehlo", varint(5) + svarints({0}) + svarints({0}) + svarints({1}) + svarints({2}));
  for (uint64_t code : {7, 11}) {
    add("stablehlo", varint(code) + svarints({0}) + svarints({1}) + svarints({}) + svarints({}) +
                         svarints({0}) + svarint(1));
  }
  add("stablehlo", varint(14) + svarints({}) + svarint(0) + svarints({}));
  add("stablehlo", varint(15) + varint(f32) + varint(f32) + varint(f32) + svarint(1) + svarint(1) +
                       svarint(1) + std::string(1, '\1'));
  const uint32_t native_mode = add("stablehlo", varint(16) + varint(1));
  add("stablehlo", varint(17) + svarint(0) + svarint(0) + svarint(0) + varint(native_mode));

  const uint32_t sdy_sub = add("sdy", varint(3) + svarint(1) + svarint(2));
  const uint32_t sdy_ref = add("sdy", varint(4) + varint(0) + varint(sdy_sub << 1 | 1));
  const uint32_t sdy_axis = add("sdy", varint(1) + varint(0) + svarint(4));
  const uint32_t mesh = add("sdy", varint(2) + refs({sdy_axis}) + svarints({3, 2, 1, 0}));
  add("sdy", varint(0) + refs({text}));
  const uint32_t dimension =
      add("sdy", varint(5) + refs({sdy_ref}) + std::string(1, '\0') + varint(2 << 1 | 1));
  const uint32_t sharding = add("sdy", varint(6) + varint(symbol) + refs({dimension}) + refs({}));
  add("sdy", varint(6) + varint(mesh) + refs({dimension}) + refs({sdy_ref}));
  add("sdy", varint(7) + refs({sharding, sharding}));
  const uint32_t mapping = add("sdy", varint(8) + svarints({0, 20}));
  const uint32_t operand = add("sdy", varint(9) + refs({mapping}));
  add("sdy", varint(10) + svarints({2, 3}) + refs({operand}) + refs({operand}) + svarints({0}) +
                 svarints({1}) + svarints({}) + svarints({0}) + std::string(1, '\1'));
  const uint32_t sdy_list = add("sdy", varint(11) + refs({sdy_ref}));
  add("sdy", varint(12) + refs({sdy_list}));
  const uint32_t parameter = add("sdy", varint(13) + refs({sdy_ref}) + svarint(0) + svarint(1));
  add("sdy", varint(14) + refs({parameter}));
  const uint32_t unreduced =
      add("sdy", varint(15) + varint(symbol) + refs({dimension}) + refs({}) + refs({sdy_ref}));
  add("sdy", varint(16) + refs({unreduced}));
  add("sdy", varint(17) + varint(symbol) + refs({}) + refs({}) + refs({}) + svarint(1));
  return file_of(b, {}, all);
}

// Every operation of the IR in the given dialect and version, with all its declared attributes.
std::string operations(const std::string& prefix, const std::string& suffix) {
  BytecodeBuilder b;
  const uint32_t i64 = b.type("vhlo", varint(14));
  const uint32_t f32 = b.vhlo_f32();
  const uint32_t tensor = b.vhlo_tensor({2}, f32);
  const uint32_t list = b.attribute(
      "vhlo", varint(15) + varint(b.vhlo_tensor({2}, i64)) + blob(std::string(16, '\0')));
  const uint32_t data = b.attribute("vhlo", varint(15) + varint(tensor) + blob("\1\2\3\4"));
  const uint32_t integer = b.attribute("vhlo", varint(9) + varint(i64) + svarint(1));
  const uint32_t boolean = b.attribute("vhlo", varint(2) + varint(1));
  const uint32_t text = b.vhlo_string("name");
  const uint32_t array = b.attribute("vhlo", varint(1) + varint(0));
  const auto value_of = [&](std::string_view name) {
    if (name == "value") return data;
    if (name.starts_with("is_") || name.starts_with("has_") || name.starts_with("use_") ||
        name.starts_with("indices_are") || name.starts_with("unique_")) {
      return boolean;
    }
    if (name.ends_with("_config") || name == "callee" || name == "name" ||
        name == "decomposition" || name == "call_target_name") {
      return name == "precision_config" ? array : text;
    }
    if (name == "called_computations" || name.ends_with("layouts") || name.ends_with("aliases")) {
      return array;
    }
    if (name.ends_with("dims") || name.ends_with("dimensions") || name.ends_with("strides")) {
      return list;
    }
    return integer;
  };
  BlockSpec body{{tensor}, {}};
  for (int code = 1;; ++code) {
    const std::string_view name = ir::op_name(static_cast<ir::OpCode>(code));
    if (!name.starts_with("stablehlo.")) break;
    OpSpec op{prefix + std::string(name.substr(10)) + suffix, {0}, {tensor}};
    const std::vector<DeclaredAttributes> declared = op_properties(op.name);
    if (declared.empty()) continue;
    for (const DeclaredAttribute& attribute : declared.front()) {
      op.properties.push_back(
          {std::string(attribute.name), value_of(attribute.name), attribute.is_optional});
    }
    body.ops.push_back(std::move(op));
  }
  return b.finish(b.module_with_main(std::move(body), {}));
}

}  // namespace

std::string loop_module(uint64_t version) {
  BytecodeBuilder b(version);
  const uint32_t f32x2 = b.vhlo_tensor({2}, b.vhlo_f32());
  const uint32_t i1 = b.type("vhlo", varint(0));
  const uint32_t i1x2 = b.vhlo_tensor({2}, i1);
  OpSpec constant{"vhlo.constant_v1", {}, {f32x2}};
  constant.properties = {
      {"value", b.attribute("vhlo", varint(15) + varint(f32x2) + blob({"\0\0\x80\x3f", 4}))}};
  constant.attributes = {{"note", b.vhlo_string("one")}};
  OpSpec compare{"vhlo.compare_v1", {3, 0}, {i1x2}};  // its own argument, the function's
  compare.properties = {{"compare_type", b.attribute("vhlo", varint(4) + varint(1))},
                        {"comparison_direction", b.attribute("vhlo", varint(3) + varint(5))}};
  OpSpec loop{"vhlo.while_v1", {1}, {f32x2}};
  loop.is_isolated = false;
  loop.regions = {{BlockSpec{{f32x2}, {compare, {"vhlo.return_v1", {4}}}}},
                  {BlockSpec{{f32x2}, {{"vhlo.return_v1", {3}}}}}};
  OpSpec isolated = loop;  // captures nothing, so its numbers begin at 0
  isolated.is_isolated = true;
  isolated.operands = {2};
  isolated.regions[0][0].ops[0].operands = {0, 0};
  isolated.regions[0][0].ops[1].operands = {1};
  isolated.regions[1][0].ops[0].operands = {0};
  OpSpec module = b.module_with_main(
      BlockSpec{{f32x2}, {constant, loop, isolated, {"vhlo.return_v1", {3}}}}, {f32x2});
  // Four values now stand in the function; the capturing region's numbers follow them.
  module.regions[0][0].ops[0].regions[0][0].ops[1].regions[0][0].ops[0].operands = {4, 0};
  module.regions[0][0].ops[0].regions[0][0].ops[1].regions[0][0].ops[1].operands = {5};
  module.regions[0][0].ops[0].regions[0][0].ops[1].regions[1][0].ops[0].operands = {4};
  return b.finish(module);
}

std::vector<std::pair<std::string, std::string>> sample_modules() {
  std::vector<std::pair<std::string, std::string>> modules;
  for (uint64_t version = 0; version <= 6; ++version) {
    modules.emplace_back("loops_" + std::to_string(version), loop_module(version));
  }
  modules.emplace_back("vhlo_types", vhlo_types());
  modules.emplace_back("builtin_types", builtin_types());
  modules.emplace_back("attributes", attributes_of_all_dialects());
  modules.emplace_back("vhlo_v1", operations("vhlo.", "_v1"));
  modules.emplace_back("vhlo_v2", operations("vhlo.", "_v2"));
  modules.emplace_back("native", operations("stablehlo.", ""));
  return modules;
}

}  // namespace hekla::stablehlo::testing
