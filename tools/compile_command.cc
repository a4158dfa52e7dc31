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
#include <vector>

#include <CLI/CLI.hpp>

#include "backends/compiler/compile.h"
#include "backends/compiler/ir/dump.h"
#include "backends/compiler/ir/verify.h"
#include "backends/compiler/stablehlo/bytecode/raw_module.h"
#include "backends/compiler/stablehlo/bytecode/vhlo_json.h"
#include "backends/compiler/stablehlo/read_program.h"
#include "backends/compiler/stablehlo/text/print.h"
#include "runtime/base/status.h"

namespace hekla::tools {
namespace {

constexpr const char* kStages[] = {"vhlo-json", "stablehlo", "ir", "plan", "kernels"};
constexpr const char* kLaterStages[] = {"spirv", "llvm"};

struct Options {
  std::string file;
  std::string stage;
  std::string output;
  bool skip_verifier = false;
};

Result<std::string> read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) return not_found("cannot be opened: {}", std::strerror(errno));
  std::string bytes;
  char block[1 << 16];
  while (const size_t count = std::fread(block, 1, sizeof(block), file.get())) {
    bytes.append(block, count);
  }
  if (std::ferror(file.get()) != 0) return not_found("cannot be read: {}", std::strerror(errno));
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
      return unimplemented("the stage '{}' does not exist yet; --emit takes {}", stage,
                           fmt::join(kStages, ", "));
    }
  }
  HEKLA_ASSIGN_OR_RETURN(std::string bytes, read_file(options.file));
  if (options.stage == "vhlo-json") {
    if (!stablehlo::is_bytecode(bytes)) {
      return invalid_argument(
          "this is not MLIR bytecode; vhlo-json shows bytecode artifacts only, the other stages "
          "take text too");
    }
    HEKLA_ASSIGN_OR_RETURN(stablehlo::RawModule raw, stablehlo::read_bytecode(bytes));
    HEKLA_ASSIGN_OR_RETURN(std::string json, stablehlo::vhlo_json(raw));
    return json + "\n";
  }
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Module> module, stablehlo::read_program(bytes));
  if (!options.skip_verifier) HEKLA_RETURN_IF_ERROR(ir::verify(*module));
  if (options.stage == "stablehlo") return stablehlo::print_module(*module);
  if (options.stage == "ir") return ir::dump(*module);
  HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<const plan::LaunchPlan> plan,
                         compile_program(std::shared_ptr<const ir::Module>(std::move(module))));
  if (options.stage == "plan") return plan::to_string(*plan);
  std::string text;
  for (size_t i = 0; i < plan->kernels.size(); ++i) {
    const kernel::Kernel& kernel = plan->kernels[i];
    text += fmt::format("kernel {} {}: {}\n", i, kernel.name, kernel::to_string(kernel));
  }
  return text;
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
  std::vector<std::string> stages(std::begin(kStages), std::end(kStages));
  stages.insert(stages.end(), std::begin(kLaterStages), std::end(kLaterStages));
  command->add_option("FILE", options->file, "The program")->required();
  command
      ->add_option(
          "--emit", options->stage,
          "vhlo-json: the artifact as it was sent; stablehlo: the program as text that any "
          "StableHLO tool reads; ir: the graph with canonical attributes and locations; plan: the "
          "steps of a launch; kernels: the scalar code of each kernel (spirv and llvm are to come)")
      ->required()
      ->check(CLI::IsMember(stages));
  command->add_option("--output", options->output, "Write to this file instead of stdout");
  command->add_flag("--skip-verifier", options->skip_verifier,
                    "Show programs that break StableHLO's constraints too");
  command->callback([options, &exit_code] {
    const Status status = compile(*options);
    if (!status.ok()) fmt::print(stderr, "hekla compile: {}\n", status.to_string());
    exit_code = status.ok() ? 0 : 1;
  });
}

}  // namespace hekla::tools
