// SPDX-License-Identifier: Apache-2.0
#include "tools/compile_command.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "backends/compiler/ir/dump.h"
#include "backends/compiler/ir/verify.h"
#include "backends/compiler/stablehlo/bytecode/raw_module.h"
#include "backends/compiler/stablehlo/bytecode/vhlo_json.h"
#include "backends/compiler/stablehlo/read_program.h"
#include "backends/compiler/stablehlo/text/print.h"
#include "runtime/base/status.h"

namespace hekla::tools {
namespace {

constexpr std::string_view kLaterStages[] = {"kernels", "plan", "spirv", "llvm"};

struct Options {
  std::string file;
  std::string stage;
  std::string output;
  bool skip_verifier = false;
};

Result<std::string> read_file(const std::string& path) {
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream.is_open() || stream.bad()) {
    return not_found("{}: {}", path, errno != 0 ? std::strerror(errno) : "cannot be read");
  }
  return bytes;
}

Status write_output(const std::string& path, const std::string& text) {
  if (path.empty()) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
        std::fflush(stdout) != 0) {
      return data_loss("the output could not be written: {}", std::strerror(errno));
    }
    return ok_status();
  }
  // A reader of `path` sees the old file or the whole new one.
  const std::string partial = path + ".partial";
  std::ofstream stream(partial, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  if (!stream || std::rename(partial.c_str(), path.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    std::remove(partial.c_str());
    return data_loss("{} could not be written: {}", path, reason);
  }
  return ok_status();
}

Result<std::string> emit(const Options& options) {
  for (std::string_view stage : kLaterStages) {
    if (options.stage == stage) {
      return unimplemented(
          "the stage '{}' does not exist yet; --emit takes vhlo-json, stablehlo and ir", stage);
    }
  }
  HEKLA_ASSIGN_OR_RETURN(std::string bytes, read_file(options.file));
  if (options.stage == "vhlo-json") {
    if (!stablehlo::is_bytecode(bytes)) {
      return invalid_argument(
          "{} is not MLIR bytecode; vhlo-json shows bytecode artifacts only, --emit stablehlo and "
          "ir take text too",
          options.file);
    }
    HEKLA_ASSIGN_OR_RETURN(stablehlo::RawModule raw, stablehlo::read_bytecode(bytes));
    HEKLA_ASSIGN_OR_RETURN(std::string json, stablehlo::vhlo_json(raw));
    return json + "\n";
  }
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Module> module, stablehlo::read_program(bytes));
  if (!options.skip_verifier) HEKLA_RETURN_IF_ERROR(ir::verify(*module));
  if (options.stage == "ir") return ir::dump(*module);
  return stablehlo::print_module(*module, {});
}

Status compile(const Options& options) {
  Result<std::string> text = emit(options);
  if (!text.ok()) return text.status().with_context(options.file);
  return write_output(options.output, *text);
}

}  // namespace

void add_compile_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "compile", "Show a StableHLO program (bytecode or text) at a stage of the compiler");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "The program")->required();
  command
      ->add_option("--emit", options->stage,
                   "vhlo-json: the artifact as it was sent; stablehlo: text; ir: the graph with "
                   "canonical attributes and locations (kernels, plan, spirv and llvm are to come)")
      ->required()
      ->check(CLI::IsMember({"vhlo-json", "stablehlo", "ir", "kernels", "plan", "spirv", "llvm"}));
  command->add_option("--output", options->output, "Write to this file instead of stdout");
  command->add_flag("--skip-verifier", options->skip_verifier,
                    "Show stablehlo and ir of programs that break StableHLO's constraints too");
  command->callback([options, &exit_code] {
    const Status status = compile(*options);
    if (!status.ok()) fmt::print(stderr, "hekla compile: {}\n", status.to_string());
    exit_code = status.ok() ? 0 : 1;
  });
}

}  // namespace hekla::tools
