// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/options.h"

#include <gtest/gtest.h>

namespace hekla::runtime {
namespace {

OptionValue value_of(std::string_view text) {
  auto option = parse_option(text);
  EXPECT_TRUE(option.ok()) << text;
  return option.ok() ? option->second : OptionValue(std::string("?"));
}

TEST(Options, TheValueDecidesTheType) {
  EXPECT_EQ(value_of("a=4"), OptionValue(int64_t{4}));
  EXPECT_EQ(value_of("a=-4"), OptionValue(int64_t{-4}));
  EXPECT_EQ(value_of("a=1,2,3"), OptionValue(std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(value_of("a=1.5"), OptionValue(1.5f));
  EXPECT_EQ(value_of("a=true"), OptionValue(true));
  EXPECT_EQ(value_of("a="), OptionValue(std::string()));
  EXPECT_EQ(value_of("a=b=c"), OptionValue(std::string("b=c")));
  EXPECT_EQ(value_of("a=1,x"), OptionValue(std::string("1,x")));
}

TEST(Options, ANamedTypeDecides) {
  EXPECT_EQ(value_of("a:string=4"), OptionValue(std::string("4")));
  EXPECT_EQ(value_of("a:ints=4"), OptionValue(std::vector<int64_t>{4}));
  EXPECT_EQ(value_of("a:float=4"), OptionValue(4.0f));
  EXPECT_EQ(value_of("a:ints="), OptionValue(std::vector<int64_t>{}));
}

TEST(Options, WhatIsNoOptionIsRefused) {
  for (const char* text : {"", "a", "=1", "a:int=x", "a:what=1", ":int=1", "a:bool=1"}) {
    EXPECT_EQ(parse_option(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(Options, SurviveTheTripThroughTheCApi) {
  const Options options = {{"s", std::string("text")},
                           {"i", int64_t{5}},
                           {"l", std::vector<int64_t>{1, 2}},
                           {"f", 0.5f},
                           {"b", true}};
  Options back;
  for (const PJRT_NamedValue& value : to_named_values(options)) {
    EXPECT_EQ(value.name[value.name_size], '\0');
    back.push_back(from_named_value(value));
  }
  EXPECT_EQ(back, options);
}

TEST(Options, LaterOnesWin) {
  auto base = parse_options(" a=1; b=2\tc=x ");
  ASSERT_TRUE(base.ok());
  const Options merged = merge_options(*base, {{"b", true}, {"d", int64_t{4}}});
  ASSERT_EQ(merged.size(), 4u);
  EXPECT_EQ(merged[1].second, OptionValue(true));
  EXPECT_EQ(merged[3].first, "d");
}

}  // namespace
}  // namespace hekla::runtime
