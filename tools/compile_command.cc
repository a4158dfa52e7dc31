// SPDX-License-Identifier: Apache-2.0
#include "tools/compile_command.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/spmd/partition_program.h"
#include "backends/compiler/spmd/report.h"
#include "backends/compiler/spmd/sharding_picture.h"
#include "runtime/base/status.h"
#include "runtime/client/open.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/bytecode/raw_module.h"
#include "runtime/program/stablehlo/bytecode/vhlo_json.h"
#include "runtime/program/stablehlo/bytecode/write_bytecode.h"
#include "runtime/program/stablehlo/read_program.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::tools {
namespace {

constexpr const char* kStages[] = {"vhlo-json",   "stablehlo", "bytecode",         "ir",
                                   "partitioned", "shardings", "sharding-picture", "collectives"};
// Made by a device: its plugin shows them.
constexpr const char* kDeviceStages[] = {"plan",          "kernels", "schedules", "implementations",
                                         "llvm",          "asm",     "spirv-asm", "spirv",
                                         "pipeline-stats"};
// Of Vulkan devices alone.
constexpr const char* kVulkanStages[] = {"spirv-asm", "spirv", "pipeline-stats"};
// What is also there as JSON.
constexpr const char* kJsonStages[] = {"plan",      "kernels",     "implementations",
                                       "shardings", "collectives", "pipeline-stats"};

struct Options {
  std::string file;
  std::string stage;
  std::string output;
  std::string device;
  std::string vhlo;
  std::vector<std::string> compiler_options;
  int64_t devices = 0;
  bool skip_verifier = false;
  bool as_json = false;
  bool with_disassembly = false;
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
  // A reader of `path` sees the old file or the whole new one. Devices, pipes and links are written
  // into: what is at their names is not ours to replace.
  std::error_code ignored;
  const std::filesystem::file_status old = std::filesystem::symlink_status(path, ignored);
  const bool is_replaced = !std::filesystem::exists(old) || std::filesystem::is_regular_file(old);
  const std::string written = is_replaced ? path + ".partial" : path;
  std::ofstream stream(written, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  if (!stream || (is_replaced && std::rename(written.c_str(), path.c_str()) != 0)) {
    const std::string reason = std::strerror(errno);
    if (is_replaced) std::remove(written.c_str());
    return data_loss("{} could not be written: {}", path, reason);
  }
  return ok_status();
}

bool is_device_stage(std::string_view stage) {
  return std::find(std::begin(kDeviceStages), std::end(kDeviceStages), stage) !=
         std::end(kDeviceStages);
}

// The modules of all kernels, each a file of its own: what a program reads is one module.
Result<std::string> write_spirv(const runtime::Executable& executable, const std::string& folder) {
  if (folder.empty()) {
    return invalid_argument("--emit spirv writes a file per kernel: give a folder with --output");
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return invalid_argument("{}: {}", folder, error.message());
  HEKLA_ASSIGN_OR_RETURN(const auto statistics, executable.statistics());
  int64_t kernels = 0;
  for (const auto& [name, value] : statistics) {
    if (name == "kernels") kernels = value;
  }
  for (int64_t i = 0; i < kernels; ++i) {
    HEKLA_ASSIGN_OR_RETURN(const std::string words,
                           executable.artefact("spirv:" + std::to_string(i)));
    HEKLA_RETURN_IF_ERROR(write_output(fmt::format("{}/kernel_{}.spv", folder, i), words));
  }
  return fmt::format("{} kernels in {}\n", kernels, folder);
}

Result<std::string> emit_by_device(const Options& options, const std::string& program) {
  const bool is_vulkan = std::find(std::begin(kVulkanStages), std::end(kVulkanStages),
                                   options.stage) != std::end(kVulkanStages);
  const std::string name = !options.device.empty() ? options.device : is_vulkan ? "vulkan" : "cpu";
  HEKLA_ASSIGN_OR_RETURN(const runtime::Client client, runtime::open_client(name));
  runtime::CompileOptions compile;
  for (const std::string& option : options.compiler_options) {
    const size_t at = option.find('=');
    if (at == std::string::npos) {
      return invalid_argument("--option takes NAME=VALUE, not '{}'", option);
    }
    compile.overrides.emplace_back(option.substr(0, at), option.substr(at + 1));
  }
  HEKLA_ASSIGN_OR_RETURN(const runtime::Executable executable,
                         client.compile(program, compile, stablehlo::program_format(program)));
  if (options.stage == "spirv") return write_spirv(executable, options.output);
  const std::string form = options.with_disassembly ? "pipeline-disassembly" : options.stage;
  return executable.artefact(options.as_json ? form + ":json" : form);
}

Result<stablehlo::VhloVersion> parse_version(const std::string& text) {
  stablehlo::VhloVersion version;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%d.%d.%d%c", &version.major, &version.minor, &version.patch,
                  &rest) != 3) {
    return invalid_argument("--vhlo takes a version such as 1.17.0, not '{}'", text);
  }
  return version;
}

// The program of one device of a program over partitions, or what it sends to others.
Result<std::string> emit_partitioned(const Options& options, const ir::Module& module) {
  if (module.entry() == nullptr || module.entry()->is_declaration()) {
    return invalid_argument("the program has no entry: no @main and not one public function");
  }
  int64_t devices = options.devices;
  if (devices == 0) {
    const auto* said = module.attributes.get("mhlo.num_partitions").get<ir::IntegerValue>();
    if (said == nullptr) {
      return invalid_argument(
          "the program does not say over how many partitions it is: give --devices");
    }
    devices = said->value;
  }
  if (devices < 1 || devices > sharding::kMaxDevices) {
    return invalid_argument("a program over {} devices; there may be 1 to {}", devices,
                            sharding::kMaxDevices);
  }
  spmd::ShardingTrace trace;
  HEKLA_ASSIGN_OR_RETURN(const spmd::OneDeviceProgram program,
                         spmd::partition_program(module, {.partitions = devices,
                                                          .may_choose_parameters = {true},
                                                          .may_choose_results = {true},
                                                          .trace = &trace}));
  if (options.stage == "shardings") {
    return options.as_json ? spmd::to_json(trace) : spmd::to_text(trace);
  }
  if (options.stage == "sharding-picture") return spmd::to_svg(trace);
  if (options.stage == "partitioned") return stablehlo::print_module(*program.module);
  const std::unique_ptr<ir::Module> flat = ir::clone_module(*program.module);
  HEKLA_RETURN_IF_ERROR(passes::inline_calls(*flat));
  HEKLA_ASSIGN_OR_RETURN(const spmd::CollectiveReport report,
                         spmd::report_collectives(*flat, {1, devices}));
  return options.as_json ? spmd::to_json(report) : spmd::to_text(report);
}

Result<std::string> emit(const Options& options) {
  if (options.as_json && std::find(std::begin(kJsonStages), std::end(kJsonStages), options.stage) ==
                             std::end(kJsonStages)) {
    return invalid_argument("--json is there for --emit {}, not for {}",
                            fmt::join(kJsonStages, ", "), options.stage);
  }
  if (options.with_disassembly && options.stage != "pipeline-stats") {
    return invalid_argument("--disassembly is there for --emit pipeline-stats, not for {}",
                            options.stage);
  }
  HEKLA_ASSIGN_OR_RETURN(std::string bytes, read_file(options.file));
  if (is_device_stage(options.stage)) return emit_by_device(options, bytes);
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
  if (options.stage == "partitioned" || options.stage == "shardings" ||
      options.stage == "sharding-picture" || options.stage == "collectives") {
    return emit_partitioned(options, *module);
  }
  if (options.stage == "bytecode") {
    stablehlo::VhloVersion target = stablehlo::kNewestVhlo;
    if (!options.vhlo.empty()) {
      HEKLA_ASSIGN_OR_RETURN(target, parse_version(options.vhlo));
    }
    return stablehlo::write_bytecode(*module, target);
  }
  return stablehlo::print_module(*module, {.with_locations = true, .max_elements = 16});
}

Status compile(const Options& options) {
  Result<std::string> text = emit(options);
  if (!text.ok()) return text.status().with_context(options.file);
  return write_output(options.stage == "spirv" ? "" : options.output, *text);
}

}  // namespace

void add_compile_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "compile",
      "Show a program (StableHLO as bytecode or text, HLO as protobuf) at a stage of the compiler");
  auto options = std::make_shared<Options>();
  std::vector<std::string> stages(std::begin(kStages), std::end(kStages));
  stages.insert(stages.end(), std::begin(kDeviceStages), std::end(kDeviceStages));
  command->add_option("FILE", options->file, "The program")->required();
  command
      ->add_option(
          "--emit", options->stage,
          "vhlo-json: the artifact as it was sent; stablehlo: the program as text that any "
          "StableHLO tool reads; bytecode: the program as a portable artifact; ir: the graph with "
          "canonical attributes and locations; partitioned: of a program over several devices, the "
          "one that each runs; shardings: how the arrays of each operation lie on them, and its "
          "collectives; sharding-picture: how the arrays lie, as an SVG; collectives: what it "
          "sends to the others, and how many bytes; plan: "
          "the steps of a launch on the device; kernels: the scalar code of its kernels; llvm, "
          "asm: "
          "what the CPU "
          "device makes of them; spirv-asm, and spirv as files: what the Vulkan device does; "
          "pipeline-stats: what the Vulkan driver tells of each kernel's pipeline, registers, "
          "spills, occupancy; "
          "schedules: how a device runs each kernel; implementations: in which ways it may do each "
          "step, and why not in the others")
      ->required()
      ->check(CLI::IsMember(stages));
  command->add_option("--output", options->output,
                      "Write to this file instead of stdout; a folder for spirv");
  command->add_option("--device", options->device,
                      "Whose plan and code: a device's name or a plugin's path; unset: vulkan for "
                      "spirv and pipeline-stats, else cpu");
  command->add_option(
      "--devices", options->devices,
      "Over how many devices partitioned, shardings, sharding-picture and collectives cut the "
      "program; unset: as "
      "it says (mhlo.num_partitions)");
  command->add_option("--vhlo", options->vhlo,
                      "The version of VHLO that --emit bytecode writes, 1.0.0 to 1.20.0; unset: "
                      "the newest");
  command->add_option("--option", options->compiler_options,
                      "NAME=VALUE of a compiler option (docs/options.md), for what a device makes");
  command->add_flag(
      "--json", options->as_json,
      "Print plan, kernels, implementations, shardings, collectives or pipeline-stats as JSON: "
      "steps "
      "with their slices and inner steps, kernels with grid, operands and code, each way with its "
      "refusal, how each operation's arrays lie, each collective with its runs and bytes, each "
      "pipeline with its statistics");
  command->add_flag("--disassembly", options->with_disassembly,
                    "Behind what pipeline-stats says of a kernel its code as the driver compiled "
                    "it, in each form that the driver shows");
  command->add_flag("--skip-verifier", options->skip_verifier,
                    "Show programs that break StableHLO's constraints too");
  command->callback([options, &exit_code] {
    const Status status = compile(*options);
    if (!status.ok()) fmt::print(stderr, "hekla compile: {}\n", status.to_string());
    exit_code = status.ok() ? 0 : 1;
  });
}

}  // namespace hekla::tools
