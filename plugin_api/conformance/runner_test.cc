// SPDX-License-Identifier: Apache-2.0
// The runner stays alive and says what happened, whatever a plugin does to its process.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "plugin_api/conformance/conformance.h"

namespace hekla::conformance {
namespace {

std::string broken(const std::string& name) {
  return std::string(HEKLA_BROKEN_PLUGINS) + "/broken_" + name + ".so";
}

Result run(const std::string& library, const std::string& check, double timeout = 30) {
  Options options;
  options.filter = check;
  options.timeout_seconds = timeout;
  const auto results = run_all(library, options, {});
  EXPECT_EQ(results.size(), 1u);
  return results.empty() ? Result{} : results[0];
}

TEST(Runner, ReportsAMissingLibrary) {
  const Result result = run("/no/such/library.so", "client-create");
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_NE(result.detail.find("/no/such/library.so"), std::string::npos) << result.detail;
}

TEST(Runner, ReportsAMissingSymbol) {
  const Result result = run(broken("no_symbol"), "client-create");
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_NE(result.detail.find("GetPjrtApi"), std::string::npos) << result.detail;
}

TEST(Runner, ReportsANullTable) {
  const Result result = run(broken("null_table"), "version-struct");
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_NE(result.detail.find("null"), std::string::npos) << result.detail;
}

TEST(Runner, ReportsATooOldVersion) {
  const Result result = run(broken("old"), "version-struct");
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_NE(result.detail.find("28"), std::string::npos) << result.detail;
}

TEST(Runner, ReportsATableThatIsTooShortForItsVersion) {
  const Result result = run(broken("short_table"), "version-struct");
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_NE(result.detail.find("1144"), std::string::npos) << result.detail;
}

TEST(Runner, NamesANullSlotThatClientsCall) {
  const Result result = run(broken("null_slot"), "every-slot-filled");
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_NE(result.detail.find("PJRT_Buffer_IsOnCpu"), std::string::npos) << result.detail;
  EXPECT_EQ(result.detail.find("PJRT_Client_Load"), std::string::npos) << result.detail;
}

TEST(Runner, EndsAHangingPlugin) {
  const Result result = run(broken("hangs"), "client-create", 0.5);
  EXPECT_EQ(result.outcome, Outcome::kTimedOut);
  EXPECT_LT(result.seconds, 20.0);
}

TEST(Runner, SurvivesAnAbortAndKeepsTheLastWords) {
  const Result result = run(broken("aborts"), "client-create");
  EXPECT_EQ(result.outcome, Outcome::kCrashed);
  EXPECT_NE(result.detail.find("signal 6"), std::string::npos) << result.detail;
  EXPECT_NE(result.output.find("words before the end"), std::string::npos) << result.output;
}

TEST(Runner, NoticesAnExitWithoutResult) {
  const Result result = run(broken("exits"), "client-create");
  EXPECT_EQ(result.outcome, Outcome::kCrashed);
  EXPECT_NE(result.detail.find("no result"), std::string::npos) << result.detail;
}

TEST(Runner, NoticesAnExceptionFromThePlugin) {
  const Result result = run(broken("throws"), "client-create");
  EXPECT_NE(result.outcome, Outcome::kPass);
  EXPECT_NE(result.outcome, Outcome::kNotOffered);
}

TEST(Runner, APluginThatOnlyRefusesFailsTheSuiteButNoChildCrashes) {
  Options options;
  options.jobs = 2;
  const auto results = run_all(broken("unimplemented"), options, {});
  ASSERT_EQ(results.size(), list().size());
  EXPECT_FALSE(conforms(results));
  for (const Result& result : results) {
    EXPECT_NE(result.outcome, Outcome::kCrashed) << format_row(result);
    EXPECT_NE(result.outcome, Outcome::kTimedOut) << format_row(result);
    EXPECT_FALSE(result.outcome != Outcome::kPass && result.detail.empty()) << result.name;
  }
}

TEST(Runner, DescribesALibraryThatAborts) {
  Options options;
  EXPECT_NE(describe(broken("aborts"), options).find("signal 6"), std::string::npos);
}

TEST(Runner, ReportsAProgramThatCannotBeStarted) {
  Options options;
  options.filter = "client-create";
  options.child_command = {"/no/such/program"};
  const auto results = run_all(broken("unimplemented"), options, {});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_FALSE(conforms(results));
  EXPECT_FALSE(results[0].detail.empty());
}

TEST(Runner, UnknownCheckIsAFailure) {
  EXPECT_EQ(run_one(broken("unimplemented"), "no-such-check", {}).outcome, Outcome::kFail);
}

TEST(Runner, CallsBackInOrder) {
  Options options;
  options.filter = "plugin-*,error-destroy-null,version-struct";
  options.jobs = 3;
  std::vector<std::string> seen;
  const auto results = run_all(broken("unimplemented"), options,
                               [&](const Result& result) { seen.push_back(result.name); });
  ASSERT_EQ(seen.size(), results.size());
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], results[i].name);
}

TEST(List, NamesAreUniqueAndPromisesAreSentences) {
  std::set<std::string> names;
  for (const CheckInfo& info : list()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(info.promise.back(), '.') << info.name;
  }
  EXPECT_GT(names.size(), 200u);
}

TEST(List, StandsInTheDocumentation) {
  std::ifstream file(std::string(HEKLA_SOURCE_DIR) + "/docs/plugin_conformance.md");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_NE(text.find(format_list()), std::string::npos)
      << "put the output of `hekla plugin-check --list` at the end of docs/plugin_conformance.md";
}

TEST(Filter, Globs) {
  EXPECT_TRUE(matches("*", "execute-add"));
  EXPECT_TRUE(matches("compile-*,execute-*", "execute-add"));
  EXPECT_TRUE(matches("exec?te-add", "execute-add"));
  EXPECT_FALSE(matches("execute", "execute-add"));
  EXPECT_FALSE(matches("", "execute-add"));
}

TEST(Report, JsonEscapesWhatAPluginPrints) {
  Result result{"name", Outcome::kCrashed, "a \"quote\"\n", "\x01\xff", 0.25};
  const std::string text = format_json("lib", "description", {result});
  EXPECT_NE(text.find("a \\\"quote\\\"\\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\\u0001\\u00ff"), std::string::npos) << text;
  EXPECT_NE(text.find("\"crashed\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"conforms\": false"), std::string::npos) << text;
}

}  // namespace
}  // namespace hekla::conformance

int main(int argc, char** argv) {
  hekla::conformance::run_if_child(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
