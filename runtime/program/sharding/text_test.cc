// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/sharding/text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime/program/sharding/testing/random_sharding.h"
#include "runtime/program/stablehlo/testing/artifacts.h"

namespace hekla::sharding {
namespace {

// As Shardy of jaxlib 0.10.2 prints them; but for dim_mapping, which it cannot read.
constexpr const char* kAttributes[] = {
    "#sdy.mesh<[]>",
    "#sdy.mesh<[], device_ids=[0]>",
    "#sdy.mesh<[\"x\"=2, \"y\"=4]>",
    "#sdy.mesh<[\"x\"=2, \"y\"=2], device_ids=[3, 2, 1, 0]>",
    "#sdy.sharding<@mesh, []>",
    "#sdy.sharding<@mesh, [{\"x\", \"y\":(1)2, ?}p2, {}, {?}]>",
    "#sdy.sharding<@mesh, [{}], replicated={\"x\"}, unreduced={\"y\":(1)2}>",
    "#sdy.sharding<@mesh, [{}], unreduced={\"x\", \"y\"}>",
    "#sdy.sharding<mesh<[\"a\"=2, \"b\"=3], device_ids=[5, 4, 3, 2, 1, 0]>, [{\"b\"}p0]>",
    "#sdy.sharding<mesh<[], device_ids=[3]>, []>",
    "#sdy.sharding<@\"a mesh\", [{\"an axis\"}]>",
    "#sdy.sharding_per_value<[]>",
    "#sdy.sharding_per_value<[<@mesh, [{}]>, <@maximal_mesh_0, []>]>",
    "#sdy<manual_axes{}>",
    "#sdy<manual_axes{\"x\", \"y\"}>",
    "#sdy.op_sharding_rule<()->() {}>",
    "#sdy.op_sharding_rule<([i, j])->([k, l], [m], []) {i=4, j=4, k=4, l=4, m=4}, custom>",
    // Parentheses: two literals that are one text.
    ("#sdy.op_sharding_rule<([i, jk], [z_1z])->([ij]) {i=4, j=4, k=2} reduction={k} "
     "need_replication={i, z_2} permutation={j} blocked_propagation={z}>"),
    "#sdy<axis_ref_list{\"x\", \"y\":(1)2}>",
    "#sdy<list_of_axis_ref_lists[{\"x\"}, {}]>",
    "#sdy<all_to_all_param{\"x\"}: 0->1>",
    "#sdy<mesh_axis\"x\"=4>",
    "#sdy<sub_axis_info(1)2>",
    "#sdy<axis_ref\"x\":(1)2>",
    "#sdy<dimension_sharding{\"x\":(1)2, ?}p2>",
    "#sdy<dim_mapping iz_3>",
    "#sdy<tensor_mapping[iz_3, j]>",
    "#sdy<tensor_mapping[]>",
    "#sdy<all_to_all_param_list[{\"x\"}: 0->1, {\"y\", \"z\"}: 2->0]>",
};

// The end of what begins with the bracket at `start`; quotes and arrows are minded.
size_t end_of_brackets(std::string_view text, size_t start) {
  int depth = 0;
  for (size_t i = start; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') i = text.find('"', i + 1);
    if (c == '<' || c == '[' || c == '{' || c == '(') ++depth;
    if (c == ']' || c == '}' || c == ')' || (c == '>' && text[i - 1] != '-')) {
      if (--depth == 0) return i + 1;
    }
  }
  return text.size();
}

// What Shardy wrote into a program, and how many pieces of each form.
struct Counts {
  int attributes = 0;  // #sdy...
  int bodies = 0;      // <@mesh, ...>
  int meshes = 0;      // sdy.mesh @m = <...>
  int manual = 0;      // manual_axes={...}
};

void expect_same(std::string_view text, const Result<std::string>& again) {
  ASSERT_TRUE(again.ok()) << text << ": " << again.status().to_string();
  EXPECT_EQ(*again, text);
}

template <typename T>
Result<std::string> written(const Result<T>& value) {
  if (!value.ok()) return value.status();
  return to_text(*value);
}

void check_program(std::string_view text, Counts& counts) {
  for (size_t at = 0; (at = text.find("#sdy", at)) != std::string_view::npos; ++at) {
    const std::string_view piece = text.substr(at, end_of_brackets(text, text.find('<', at)) - at);
    const Result<Attribute> value = parse_attribute(piece);
    ASSERT_TRUE(value.ok()) << piece << ": " << value.status().to_string();
    EXPECT_EQ(attribute_text(*value), piece);
    ++counts.attributes;
  }
  for (size_t at = 0; (at = text.find("<@", at)) != std::string_view::npos; ++at) {
    const std::string_view piece = text.substr(at, end_of_brackets(text, at) - at);
    if (piece.find('[') == std::string_view::npos) continue;  // another dialect's symbol
    expect_same(piece, written(parse_sharding(piece)));
    ++counts.bodies;
  }
  for (size_t at = 0; (at = text.find("sdy.mesh @", at)) != std::string_view::npos; ++at) {
    const size_t start = text.find('<', at);
    const std::string_view piece = text.substr(start, end_of_brackets(text, start) - start);
    const Result<Mesh> mesh = parse_mesh(piece);
    expect_same(piece, written(mesh));
    EXPECT_TRUE(mesh.ok() && check(*mesh).ok()) << piece;
    ++counts.meshes;
  }
  for (size_t at = 0; (at = text.find("manual_axes={", at)) != std::string_view::npos; ++at) {
    const size_t start = at + 12;
    const std::string_view piece = text.substr(start, end_of_brackets(text, start) - start);
    expect_same(piece, written(parse_manual_axes(piece)));
    ++counts.manual;
  }
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

TEST(ShardingText, EveryAttributeIsPrintedAsItWasRead) {
  for (const char* text : kAttributes) {
    const Result<Attribute> value = parse_attribute(text);
    ASSERT_TRUE(value.ok()) << text << ": " << value.status().to_string();
    EXPECT_EQ(attribute_text(*value), text);
  }
}

TEST(ShardingText, ProgramsArePrintedAsTheyWereRead) {
  Counts counts;
  for (const std::string& name : stablehlo::testing::artifact_names(".mlir")) {
    check_program(stablehlo::testing::read_artifact(name + ".mlir"), counts);
  }
  EXPECT_GE(counts.attributes, 14);
  EXPECT_GE(counts.bodies, 45);
  EXPECT_GE(counts.meshes, 5);
  EXPECT_GE(counts.manual, 3);
  // The recorded programs for partitioning, after Shardy's propagation, where they are.
  const std::filesystem::path folder =
      stablehlo::testing::artifact_path("spmd/README.md").parent_path();
  if (!std::filesystem::is_directory(folder)) return;
  Counts recorded;
  int programs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".mlir") continue;
    ++programs;
    check_program(read_file(entry.path()), recorded);
  }
  EXPECT_GE(programs, 33);
  EXPECT_GE(recorded.meshes, 34);
  EXPECT_GE(recorded.manual, 3);
  EXPECT_GE(recorded.attributes, 3279);
  EXPECT_GE(recorded.bodies, 3655);
  std::printf("%d programs: %d attributes, %d shardings, %d meshes, %d manual axes\n", programs,
              recorded.attributes, recorded.bodies, recorded.meshes, recorded.manual);
}

TEST(ShardingText, BlanksCommentsAndEscapesAreRead) {
  const Result<TensorSharding> sharding = parse_sharding(
      "< @ mesh ,\n[ { \"\\78\\22\" : ( 1 ) 2 , ? } p 3 ] // all\n, /* none */ "
      "replicated = { } >");
  // A symbol is one token.
  EXPECT_FALSE(sharding.ok());
  const Result<TensorSharding> fine = parse_sharding(
      "< @mesh ,\n[ { \"\\78\\22\" : ( 1 ) 2 , ? } p 3 ] // all\n, /* none */ "
      "replicated = { } >");
  ASSERT_TRUE(fine.ok()) << fine.status().to_string();
  EXPECT_EQ(to_text(*fine), "<@mesh, [{\"x\\22\":(1)2, ?}p3]>");
}

TEST(ShardingText, AnyNamesSurvive) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  for (const std::string& name : {all, std::string(), std::string("a-b"), std::string("1")}) {
    TensorSharding sharding{name, {{{{name, SubAxis{1, 2}}}, false, {}}}, {}, {}, {}};
    const Result<TensorSharding> again = parse_sharding(to_text(sharding));
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(*again, sharding);
  }
}

TEST(ShardingText, RandomShardingsSurvive) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 2000; ++i) {
    testing::Sample sample = testing::random_sample(random, true, true);
    if (i % 4 == 0) sample.sharding.mesh = sample.mesh;
    if (!sample.shape.empty() && i % 2 == 0) {
      sample.sharding.dimensions[0].is_open = true;
      sample.sharding.dimensions[0].priority = i;
    }
    const Attribute all[] = {sample.mesh, sample.sharding, sample.manual,
                             ShardingList{{sample.sharding, sample.sharding}}};
    for (const Attribute& value : all) {
      const Result<Attribute> again = parse_attribute(attribute_text(value));
      ASSERT_TRUE(again.ok()) << attribute_text(value) << again.status().to_string();
      ASSERT_EQ(*again, value);
    }
  }
}

TEST(ShardingText, ErrorsSayWhereAndWhat) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "sharding text at 0: expected '#sdy', found the end"},
      {"#sdy.nothing<>", "sharding text at 5: there is no attribute #sdy.nothing"},
      {"#sdy<nothing>", "sharding text at 5: there is no attribute #sdy<nothing>"},
      {"#sdy.sharding<@mesh>", "sharding text at 19: expected ',', found '>'"},
      {"#sdy.sharding<mesh, []>", "sharding text at 18: expected '<', found ', []>'"},
      {"#sdy.sharding<\"m\", []>",
       "sharding text at 14: expected @name of a mesh or mesh<...>, found '\"m\", []>'"},
      {"#sdy.sharding<@m, [{?, \"x\"}]>",
       "sharding text at 21: expected '}' behind '?', found ', \"x\"}]>'"},
      {"#sdy.sharding<@m, [{x}]>",
       "sharding text at 20: expected a name in double quotes, found 'x}]>'"},
      {"#sdy.sharding<@m, [{\"x\":2}]>", "sharding text at 24: expected '(', found '2}]>'"},
      {"#sdy.sharding<@m, [], replicated={}, replicated={}>",
       "sharding text at 36: expected replicated or unreduced axes, each once"},
      {"#sdy.sharding<@m, [{\"x}]>", "sharding text at 20: a name without closing quotes"},
      {"#sdy.sharding<@m, [{\"\\q\"}]>", "sharding text at 21: an unknown escape in a name"},
      {"#sdy.mesh<[\"x\"=99999999999999999999]>", "sharding text at 15: a number beyond 64 bits"},
      {"#sdy.mesh<[\"x\"=2]> ,", "sharding text at 19: expected the end, found ','"},
      {"#sdy.op_sharding_rule<([])->() {}>", ""},
      {"#sdy.op_sharding_rule<([a])->() {}>",
       "sharding text at 24: expected a factor, i to z, found 'a])->() {}>'"},
      {"#sdy.op_sharding_rule<([z_0])->() {}>", "sharding text at 24: there is no factor z_0"},
      {"#sdy.op_sharding_rule<()->() {j=1}>",
       "sharding text at 30: sizes of factors are listed in order: i, j, ..."},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(parse_attribute(text).status().message(), expected) << text;
  }
  // Every beginning of a good text is an error, not a crash.
  for (const std::string whole : kAttributes) {
    for (size_t length = 0; length < whole.size(); ++length) {
      EXPECT_EQ(parse_attribute(whole.substr(0, length)).status().code(),
                StatusCode::kInvalidArgument)
          << whole.substr(0, length);
    }
  }
}

}  // namespace
}  // namespace hekla::sharding
