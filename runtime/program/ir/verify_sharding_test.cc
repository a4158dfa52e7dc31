// SPDX-License-Identifier: Apache-2.0
// Shardings that do not fit are refused by `verify`, with what they stand at, its type and why.
#include <gtest/gtest.h>

#include "runtime/program/ir/typed_attributes.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/text/print.h"
#include "runtime/program/stablehlo/text/text_reader.h"

namespace hekla::ir {
namespace {

std::unique_ptr<Module> read(const std::string& text) {
  Result<std::unique_ptr<Module>> module = stablehlo::read_text(text);
  if (!module.ok()) die_of_bad_result(module.status());
  return *std::move(module);
}

// A function of one argument and one result, with what stands behind each and in between.
std::string program(const std::string& argument, const std::string& result = "",
                    const std::string& body = "%r = stablehlo.negate %a : tensor<8x4xf32>") {
  return R"(module @test {
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  sdy.mesh @one = <[], device_ids=[3]>
  sdy.mesh @none = <[]>
  func.func public @main(%a: tensor<8x4xf32> )" +
         argument + ") -> (tensor<8x4xf32> " + result + ") {\n    " + body +
         "\n    return %r : tensor<8x4xf32>\n  }\n}";
}
std::string error(const std::string& text) { return verify(*read(text)).message(); }
std::string sdy(const std::string& sharding) {
  return "{sdy.sharding = #sdy.sharding<" + sharding + ">}";
}
std::string hlo(const std::string& sharding) { return "{mhlo.sharding = \"" + sharding + "\"}"; }

TEST(VerifySharding, WhatFitsIsTaken) {
  for (const std::string& fine :
       {sdy(R"(@mesh, [{"x", "y"}, {}])"), sdy(R"(@mesh, [{"y":(2)2}, {"y":(1)2, ?}p1])"),
        sdy(R"(@mesh, [{?}, {}], replicated={"x"}, unreduced={"y"})"), sdy("@one, []"),
        sdy("@none, [{}, {}]"), sdy(R"(mesh<["z"=3]>, [{"z"}, {}])"), hlo("{devices=[2,4]<=[8]}"),
        hlo("{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}"), hlo("{maximal device=5}"),
        hlo("{replicated}"), hlo("{{devices=[2,1]<=[2]}}"),
        // Of a newer XLA: whoever partitions refuses it.
        hlo("{mesh[x=2], [{x}, {}]}")}) {
    EXPECT_EQ(error(program(fine, fine)), "") << fine;
  }
}

TEST(VerifySharding, ArgumentsAndResultsAreNamedWithTypeAndReason) {
  EXPECT_EQ(error(program(sdy(R"(@mesh, [{"x"}])"))),
            "function @main, argument 0: sdy.sharding <@mesh, [{\"x\"}]> does not fit "
            "tensor<8x4xf32>: a sharding of 1 dimensions for a tensor of 2");
  EXPECT_EQ(error(program("", sdy("@nowhere, [{}, {}]"))),
            "function @main, result 0: sdy.sharding <@nowhere, [{}, {}]> does not fit "
            "tensor<8x4xf32>: the module has no mesh @nowhere");
  EXPECT_EQ(error(program(hlo("{devices=[2]<=[2]}"))),
            "function @main, argument 0: mhlo.sharding {devices=[2]<=[2]} does not fit "
            "tensor<8x4xf32>: a sharding of 1 dimensions for a tensor of 2");
  const std::pair<std::string, std::string> cases[] = {
      {sdy(R"(@mesh, [{"z"}, {}])"), "uses axis \"z\", which mesh"},
      {sdy(R"(@mesh, [{"x"}, {"x"}])"), "they overlap"},
      {sdy(R"(@mesh, [{"y":(1)3}, {}])"), "does not divide axis \"y\" of 4"},
      {sdy("@one, [{}, {}]"), "the whole tensor is on one device"},
      {sdy(R"(mesh<["z"=0]>, [{"z"}, {}])"), "has size 0"},
      {hlo("{devices=[2,"), "mhlo.sharding \"{devices=[2,\" does not fit"},
      {hlo("{devices=[2,4]<=[9]}"), "does not fit tensor<8x4xf32>"},
      {hlo("{{replicated}, {replicated}}"), "2 shardings for 1 arrays"},
      {"{mhlo.sharding = 1 : i32}", "mhlo.sharding is no string"},
      {"{sdy.sharding = \"x\"}", "its sdy.sharding is no tensor's"},
      {"{sdy.sharding = #sdy<manual_axes{\"x\"}>}", "its sdy.sharding is no tensor's"},
  };
  for (const auto& [wrong, reason] : cases) {
    EXPECT_NE(error(program(wrong)).find(reason), std::string::npos)
        << wrong << ": " << error(program(wrong));
  }
}

TEST(VerifySharding, OperationsAreNamedWithTheirPlace) {
  const std::string constraint = error(
      program("", "", R"(%r = sdy.sharding_constraint %a <@mesh, [{"z"}, {}]> : tensor<8x4xf32>)"));
  EXPECT_EQ(constraint.find("sdy.sharding_constraint at "), 0U) << constraint;
  EXPECT_NE(constraint.find("does not fit tensor<8x4xf32>"), std::string::npos) << constraint;
  const auto negate = [](const std::string& attribute) {
    return error(program("", "", "%r = stablehlo.negate %a " + attribute + " : tensor<8x4xf32>"));
  };
  EXPECT_EQ(negate("{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {\"y\"}]>]>}"), "");
  EXPECT_NE(negate("{sdy.sharding = #sdy.sharding_per_value<[]>}")
                .find("sdy.sharding has 0 shardings for 1 results"),
            std::string::npos);
  EXPECT_NE(negate("{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}]>]>}")
                .find("result 0: sdy.sharding <@mesh, [{}]> does not fit tensor<8x4xf32>"),
            std::string::npos);
  EXPECT_NE(negate("{mhlo.sharding = \"{devices=[2,1,1]<=[2]}\"}").find("stablehlo.negate at "),
            std::string::npos);
}

TEST(VerifySharding, WhatHasNoResultsMayRunOnOneDevice) {
  const auto call = [](const std::string& sharding) {
    return error(program("", "",
                         "stablehlo.custom_call @tell(%a) {has_side_effect = true, sdy.sharding = "
                         "#sdy.sharding_per_value<[<" +
                             sharding +
                             ">]>} : (tensor<8x4xf32>) -> ()\n"
                             "    %r = stablehlo.negate %a : tensor<8x4xf32>"));
  };
  EXPECT_EQ(call("@one, []"), "");
  EXPECT_NE(call("@mesh, [{}]").find("1 shardings for 0 results"), std::string::npos);
}

TEST(VerifySharding, MeshesMeanSomethingAndHaveOneName) {
  EXPECT_NE(
      error("module {\n  sdy.mesh @m = <[\"x\"=2, \"x\"=2]>\n}").find("mesh @m: axes 0 and 1"),
      std::string::npos);
  EXPECT_NE(error("module {\n  sdy.mesh @m = <[\"x\"=2]>\n  sdy.mesh @m = <[\"x\"=2]>\n}")
                .find("mesh @m is defined twice"),
            std::string::npos);
}

TEST(VerifySharding, ManualComputationsHaveTheShapesOfOneDevice) {
  const auto manual = [](const std::string& in, const std::string& axes, const std::string& local) {
    return error(program("", "",
                         "%r = sdy.manual_computation(%a) in_shardings=" + in +
                             " out_shardings=" + in + " manual_axes={" + axes + "} (%b: tensor<" +
                             local + "xf32>) {\n      sdy.return %b : " + "tensor<" + local +
                             "xf32>\n    } : (tensor<8x4xf32>) -> tensor<8x4xf32>"));
  };
  EXPECT_EQ(manual(R"([<@mesh, [{"x"}, {"y"}]>])", R"("x", "y")", "4x1"), "");
  // Axes that are not manual cut nothing here, and parts of uneven cuts are rounded up.
  EXPECT_EQ(manual(R"([<@mesh, [{"x", "y"}, {}]>])", R"("x")", "4x4"), "");
  EXPECT_EQ(manual(R"([<mesh<["z"=3]>, [{"z"}, {}]>])", R"("z")", "3x4"), "");
  const std::string other = manual(R"([<@mesh, [{"x"}, {}]>])", R"("x")", "8x4");
  EXPECT_NE(other.find("operand 0 is tensor<8x4xf32> inside, which is not tensor<8x4xf32> cut by "
                       "the manual axes {\"x\"}"),
            std::string::npos)
      << other;
  EXPECT_NE(other.find("result 0 is tensor<8x4xf32> inside"), std::string::npos) << other;
  EXPECT_NE(manual(R"([<@mesh, [{"x"}, {}]>])", R"("w")", "8x4").find("manual axis \"w\""),
            std::string::npos);
  EXPECT_NE(manual("[]", R"("x")", "8x4").find("in_shardings has 0 shardings for 1 operands"),
            std::string::npos);
}

TEST(TypedAttributes, ShardingsOfOtherSpellingsAreWrittenAsTheyWere) {
  // An OpSharding as bytes, text with what has no meaning, and what cannot be read.
  std::string bytes;
  for (const char c :
       sharding::encode_op_sharding(*sharding::parse_hlo_sharding("{devices=[2,1]<=[2]}"))) {
    bytes += fmt::format("\\{:02X}", static_cast<unsigned char>(c));
  }
  const std::string spellings[] = {bytes, "{devices=[2,1]0,1 metadata={op_name=\\22a\\22}}",
                                   "{ devices = [2,1]<=[2] }"};
  for (const std::string& spelling : spellings) {
    const std::unique_ptr<Module> module = read(program(hlo(spelling)));
    const Attribute& attribute = module->find("main")->argument_attributes[0].get("mhlo.sharding");
    const auto* typed = attribute.get<HloShardingValue>();
    ASSERT_NE(typed, nullptr) << spelling;
    EXPECT_EQ(canonical(typed->value),
              canonical(*sharding::parse_hlo_sharding("{devices=[2,1]<=[2]}")));
    const std::string text = stablehlo::print_module(*module);
    EXPECT_EQ(read(text)->find("main")->argument_attributes[0].get("mhlo.sharding"), attribute)
        << text;
  }
  const std::unique_ptr<Module> odd = read(program(hlo("{mesh[x=2], [{x}, {}]}")));
  const Attribute& kept = odd->find("main")->argument_attributes[0].get("mhlo.sharding");
  EXPECT_NE(kept.get<StringValue>(), nullptr);
  EXPECT_EQ(hlo_sharding_of(kept).status().code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace hekla::ir
