// SPDX-License-Identifier: Apache-2.0
// The conformance suite for PJRT plugins: named checks of behaviour that clients rely on, each run
// against a plugin library in a child process with a time limit.
//
// A check has a one-sentence promise and names the behaviour's topic. run_all() starts one child
// per check, so a plugin that aborts, hangs or corrupts memory costs one row of the table and
// nothing else. The child runs run_one(). Nothing here includes more than the C API headers and the
// standard library, and nothing throws out of these functions. run_all() calls back on the caller's
// thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hekla::conformance {

enum class Outcome {
  kPass,
  kFail,        // the promise is broken; detail says how
  kNotOffered,  // the plugin declines what the API lets it decline; detail says how
  kCrashed,     // the child died of a signal or left without a result
  kTimedOut,
};

// "pass", "FAIL", "not offered", "CRASHED", "TIMED OUT".
std::string_view outcome_name(Outcome outcome);

struct CheckInfo {
  std::string name;      // lower case with hyphens
  std::string group;     // topic: "table", "client", "execute", ...
  std::string sections;  // of the PJRT plugin guide
  std::string promise;   // one sentence
};

struct Result {
  std::string name;
  Outcome outcome = Outcome::kFail;
  std::string detail;    // reason of anything but a plain pass; may be a remark on a pass
  std::string output;    // end of what the plugin printed, for crashes and time-outs
  double seconds = 0.0;  // wall time of the child
};

struct Options {
  // Passed to PJRT_Client_Create. Digits become an int64 value, true and false a bool, the rest
  // text.
  std::vector<std::pair<std::string, std::string>> create_options;
  std::string filter = "*";  // glob over check names; several separated by commas
  double timeout_seconds = 60.0;
  int jobs = 1;  // children at the same time
  // The command that runs one check: it is started with these words, then
  // "LIB --run-one NAME --result-fd N" and the create options as "--option key=value". Empty: this
  // program with the word "plugin-check".
  std::vector<std::string> child_command;
};

// All checks in the order in which they run.
std::vector<CheckInfo> list();

// Whether a name matches the comma-separated globs of a filter.
bool matches(std::string_view filter, std::string_view name);

// Runs one check in this process; the library stays loaded. An unknown name is a failure.
Result run_one(const std::string& library, const std::string& name, const Options& options);

// The body of the child process: runs the check, writes the result to a file descriptor and leaves
// the process; does not return.
[[noreturn]] void run_one_and_exit(const std::string& library, const std::string& name,
                                   const Options& options, int result_fd);

// For programs that start themselves as children: when the arguments are those of a child (see
// Options::child_command, with the word "plugin-check"), runs the check and does not return.
void run_if_child(int argc, char** argv);

// Runs every check that the filter matches, in order; `progress` (may be empty) sees each result.
std::vector<Result> run_all(const std::string& library, const Options& options,
                            const std::function<void(const Result&)>& progress);

// One line about the library for the head of a report: API version, table size, platform, devices;
// found by a child process, so that it works for libraries that crash.
std::string describe(const std::string& library, const Options& options);

// Whether nothing failed, crashed or timed out.
bool conforms(const std::vector<Result>& results);

std::string format_row(const Result& result);
std::string format_summary(const std::vector<Result>& results);
std::string format_json(const std::string& library, const std::string& description,
                        const std::vector<Result>& results);
// Markdown: a table of the checks of each group.
std::string format_list();

}  // namespace hekla::conformance
