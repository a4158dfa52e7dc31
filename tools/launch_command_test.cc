// SPDX-License-Identifier: Apache-2.0
#include "tools/launch_command.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tools/run/exit_codes.h"

namespace hekla::tools {
namespace {

struct Said {
  int exit_code = 0;
  std::string errors;
};

// Options that are no words of the command's are thrown.
Said launch(const std::vector<std::string>& arguments) {
  CLI::App app("hekla");
  Said said;
  add_launch_command(app, said.exit_code);
  std::vector<std::string> reversed = {"true"};
  reversed.insert(reversed.end(), arguments.rbegin(), arguments.rend());
  reversed.emplace_back("launch");
  ::testing::internal::CaptureStderr();
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    said = {-1, error.what()};
  }
  said.errors += ::testing::internal::GetCapturedStderr();
  return said;
}

TEST(LaunchCommand, NumbersOfMachinesAreNumbers) {
  for (const char* nodes :
       {"99999999999", "1:99999999999", "0", "-1", "2:1", "2x", ":2", "2:", ""}) {
    const Said said = launch({"--rdzv", "127.0.0.1:4711", "--run-id", "none", "--nnodes", nodes});
    EXPECT_EQ(said.exit_code, kBadInput) << nodes;
    EXPECT_NE(said.errors.find("a number of machines, or MIN:MAX"), said.errors.npos)
        << nodes << ": " << said.errors;
  }
  EXPECT_NE(launch({"--nnodes", "2"}).errors.find("needs --rdzv HOST:PORT"), std::string::npos);
}

TEST(LaunchCommand, TimesThatNoClockCountsAreRefused) {
  for (const char* option : {"--join-timeout", "--last-call", "--grace", "--silence"}) {
    for (const char* seconds : {"1e16", "1e10", "-1", "nan"}) {
      const Said said = launch({option, seconds});
      EXPECT_EQ(said.exit_code, -1) << option << " " << seconds;
      EXPECT_NE(said.errors.find(option), said.errors.npos) << said.errors;
    }
  }
}

TEST(LaunchCommand, ARunOnSeveralMachinesNeedsASecret) {
  const Said said = launch({"--rdzv", "127.0.0.1:4711", "--nnodes", "1:2", "--join-timeout", "1"});
  EXPECT_EQ(said.exit_code, kBadInput);
  EXPECT_NE(said.errors.find("--run-id"), said.errors.npos) << said.errors;
}

}  // namespace
}  // namespace hekla::tools
