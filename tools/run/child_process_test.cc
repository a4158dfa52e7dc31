// SPDX-License-Identifier: Apache-2.0
#include "tools/run/child_process.h"

#include <gtest/gtest.h>

namespace hekla::tools {
namespace {

using std::chrono::milliseconds;

TEST(ChildProcess, GivesOutputErrorsAndStatus) {
  const ChildResult result = run_child({"/bin/sh", "-c", "echo out; echo err $WORD >&2; exit 3"},
                                       {{"WORD", "x"}}, milliseconds(20000));
  EXPECT_TRUE(result.started);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(result.errors, "err x\n");
}

TEST(ChildProcess, ReadsMoreThanAPipeHolds) {
  const ChildResult result =
      run_child({"/bin/sh", "-c", "head -c 1000000 /dev/zero"}, {}, milliseconds(20000));
  EXPECT_EQ(result.output.size(), 1000000u);
}

TEST(ChildProcess, EndsAtItsLimitWithAllItStarted) {
  const ChildResult result =
      run_child({"/bin/sh", "-c", "sleep 1000 & sleep 1000"}, {}, milliseconds(200));
  EXPECT_TRUE(result.timed_out);
}

TEST(ChildProcess, ReportsSignalsAndMissingPrograms) {
  EXPECT_EQ(run_child({"/bin/sh", "-c", "kill -ABRT $$"}, {}, milliseconds(20000)).signal, 6);
  EXPECT_FALSE(run_child({"/nonexistent"}, {}, milliseconds(1000)).started);
}

TEST(ChildProcess, StopsWhenItsOutputSaysSo) {
  const ChildResult result =
      run_child({"/bin/sh", "-c", "echo one; echo two; sleep 1000"}, {}, milliseconds(20000),
                [](std::string_view output) { return output.find("two") != output.npos; });
  EXPECT_TRUE(result.was_stopped);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.signal, 9);
  EXPECT_EQ(result.output, "one\ntwo\n");
}

}  // namespace
}  // namespace hekla::tools
