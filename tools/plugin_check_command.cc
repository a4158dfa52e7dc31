// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_check_command.h"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "plugin_api/conformance/conformance.h"
#include "tools/run/exit_codes.h"

namespace hekla::tools {
namespace {

struct Arguments {
  std::string library;
  std::vector<std::string> options;
  std::string filter = "*";
  double timeout = 60.0;
  int jobs = 2;
  bool json = false;
  bool list = false;
  std::string run_one;
  int result_fd = -1;
};

int plugin_check(const Arguments& arguments) {
  if (arguments.list) {
    std::fputs(conformance::format_list().c_str(), stdout);
    return 0;
  }
  if (arguments.library.empty()) {
    std::fputs("hekla plugin-check: name a plugin library, or use --list\n", stderr);
    return kBadInput;
  }
  conformance::Options options;
  for (const std::string& option : arguments.options) {
    const size_t equals = option.find('=');
    if (equals == 0 || equals == std::string::npos) {
      std::fprintf(stderr, "hekla plugin-check: --option wants key=value, got \"%s\"\n",
                   option.c_str());
      return kBadInput;
    }
    options.create_options.emplace_back(option.substr(0, equals), option.substr(equals + 1));
  }
  options.filter = arguments.filter;
  options.timeout_seconds = arguments.timeout;
  options.jobs = arguments.jobs;
  if (!arguments.run_one.empty()) {
    if (arguments.result_fd >= 0) {
      conformance::run_one_and_exit(arguments.library, arguments.run_one, options,
                                    arguments.result_fd);
    }
    // Without a pipe: for a debugger.
    const auto result = conformance::run_one(arguments.library, arguments.run_one, options);
    std::printf("%s\n", conformance::format_row(result).c_str());
    return conformance::conforms({result}) ? 0 : 1;
  }
  const std::string description = conformance::describe(arguments.library, options);
  if (!arguments.json) {
    std::printf("%s\n%s\n\n", arguments.library.c_str(), description.c_str());
    std::fflush(stdout);
  }
  const auto results =
      conformance::run_all(arguments.library, options, [&](const conformance::Result& result) {
        if (arguments.json) return;
        std::printf("%s\n", conformance::format_row(result).c_str());
        std::fflush(stdout);
      });
  if (arguments.json) {
    std::fputs(conformance::format_json(arguments.library, description, results).c_str(), stdout);
  } else {
    std::printf("\n%s\n", conformance::format_summary(results).c_str());
  }
  if (results.empty()) {
    std::fprintf(stderr, "hekla plugin-check: no check matches \"%s\"; --list shows all\n",
                 arguments.filter.c_str());
    return kBadInput;
  }
  return conformance::conforms(results) ? 0 : kCheckFailed;
}

}  // namespace

void add_plugin_check_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("plugin-check", "Run the conformance suite against a PJRT plugin library");
  command->add_option("library", arguments->library, "the plugin's shared library");
  command
      ->add_option("--option", arguments->options,
                   "client create option key=value (may be repeated)")
      ->allow_extra_args(false);
  command->add_option("--filter", arguments->filter,
                      "globs of check names, separated by commas: 'execute-*,compile-*'");
  command->add_option("--timeout", arguments->timeout, "seconds for each check")
      ->check(CLI::PositiveNumber);
  command->add_option("--jobs", arguments->jobs, "checks that run at the same time")
      ->check(CLI::Range(1, 64));
  command->add_flag("--json", arguments->json, "print one JSON document");
  command->add_flag("--list", arguments->list, "print the checks and their promises");
  command->add_option("--run-one", arguments->run_one, "run one check in this process")->group("");
  command->add_option("--result-fd", arguments->result_fd)->group("");
  command->callback([arguments, &exit_code] { exit_code = plugin_check(*arguments); });
}

}  // namespace hekla::tools
