// SPDX-License-Identifier: Apache-2.0
#include "tools/run_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "runtime/client/open.h"
#include "runtime/npy/npy.h"
#include "tools/run/case_file.h"
#include "tools/run/compare_by_op.h"
#include "tools/run/describe.h"
#include "tools/run/exit_codes.h"
#include "tools/run/program_inputs.h"
#include "tools/run/run_all.h"
#include "tools/run/run_program.h"

namespace hekla::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Settings {
  std::string program;
  std::string case_folder;
  std::string all_folder;
  std::vector<std::string> devices;
  std::vector<std::string> inputs;
  std::optional<uint64_t> random_seed;
  std::vector<std::string> expected;
  std::optional<double> rtol;
  std::optional<double> atol;
  std::string output_folder;
  std::string compare_with;
  std::vector<std::string> client_options;
  std::vector<std::string> compiler_options;
  int repeat = 1;
  int64_t replicas = 1;
  int64_t partitions = 1;
  double timeout_seconds = 600;
  bool with_stats = false;
  bool whole_only = false;
  bool as_json = false;
};

// "x.npy", or "x.npy:bf16" for a type that numpy cannot name.
Result<HostArray> read_array(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon != std::string::npos) {
    if (const std::optional<DType> dtype = dtype_from_name(text.substr(colon + 1))) {
      return runtime::read_npy(text.substr(0, colon), dtype);
    }
  }
  return runtime::read_npy(text);
}

class RunCommand {
 public:
  explicit RunCommand(const Settings& settings) : settings_(settings) {}

  int run() {
    int code = execute();
    if (settings_.as_json) {
      report_["status"] = code == 0 ? "ok" : code == kCheckFailed ? "failed" : "error";
      report_["message"] = message_;
      fmt::print("{}\n", report_.dump(2, ' ', false, Json::error_handler_t::replace));
    } else if (code != 0 && !message_.empty()) {
      fmt::print(stderr, "hekla: {}\n", message_);
    }
    return code;
  }

 private:
  int fail(int code, std::string message) {
    if (message_.empty()) message_ = std::move(message);
    return code;
  }
  int fail(int code, const Status& status) { return fail(code, status.to_string()); }

  int execute() {
    if (Status status = read_request(); !status.ok()) return fail(kBadInput, status);
    runtime::Options options;
    for (const std::string& text : settings_.client_options) {
      auto option = runtime::parse_option(text);
      if (!option.ok()) return fail(kBadInput, option.status());
      options.push_back(*std::move(option));
    }
    for (const std::string& text : settings_.compiler_options) {
      const size_t at = text.find('=');
      if (at == std::string::npos) {
        return fail(kBadInput, fmt::format("--option takes NAME=VALUE, not '{}'", text));
      }
      request_.compiler_options.emplace_back(text.substr(0, at), text.substr(at + 1));
    }
    Result<runtime::Client> client =
        runtime::open_client(settings_.devices.empty() ? "" : settings_.devices.front(), options);
    if (!client.ok()) return fail(kDeviceError, client.status());
    report_["device"] = client->plugin().name();
    report_["platform"] = client->platform();
    report_["device_kind"] = client->addressable_devices().front().kind();
    const RunResult result = run_program(*client, request_);
    if (!result.status.ok()) return fail(exit_code_of(result), result.status);
    report_times(result);
    if (int code = report_outputs(result); code != 0) return code;
    int code = check_outputs(result.outputs.front());
    if (!settings_.compare_with.empty()) code = std::max(code, compare_with_other(*client, result));
    if (settings_.with_stats) print_stats(*client, result);
    return code;
  }

  Status read_request() {
    if (!settings_.case_folder.empty()) {
      HEKLA_ASSIGN_OR_RETURN(Case read, read_case(settings_.case_folder));
      report_["program"] = read.name;
      request_.program = std::move(read.program);
      request_.inputs = std::move(read.inputs);
      expected_ = std::move(read.outputs);
    } else {
      report_["program"] = settings_.program;
      HEKLA_ASSIGN_OR_RETURN(request_.program, read_file(settings_.program));
    }
    for (const std::string& text : settings_.inputs) {
      HEKLA_ASSIGN_OR_RETURN(HostArray array, read_array(text));
      request_.inputs.push_back(std::move(array));
    }
    if (settings_.random_seed) {
      HEKLA_ASSIGN_OR_RETURN(std::vector<ParameterShape> shapes,
                             parameter_shapes(request_.program));
      HEKLA_ASSIGN_OR_RETURN(std::vector<HostArray> random,
                             random_inputs(shapes, *settings_.random_seed));
      // Files come first; the parameters behind them are made.
      for (size_t i = request_.inputs.size(); i < random.size(); ++i) {
        request_.inputs.push_back(std::move(random[i]));
      }
    }
    for (const std::string& text : settings_.expected) {
      ExpectedResult expected;
      HEKLA_ASSIGN_OR_RETURN(expected.array, read_array(text));
      expected.tolerance = default_tolerance(expected.array.dtype());
      expected_.push_back(std::move(expected));
    }
    for (ExpectedResult& expected : expected_) {
      if (settings_.rtol) expected.tolerance.rtol = *settings_.rtol;
      if (settings_.atol) expected.tolerance.atol = *settings_.atol;
    }
    request_.repeat = settings_.repeat;
    request_.replicas = settings_.replicas;
    request_.partitions = settings_.partitions;
    return ok_status();
  }

  // A program that a plugin refuses as wrong is bad input; everything else is the device's.
  static int exit_code_of(const RunResult& result) {
    if (is_failed_assertion(result.status)) return kCheckFailed;
    const bool is_argument_error = result.status.code() == StatusCode::kInvalidArgument;
    return is_argument_error && result.stage != RunStage::kRead ? kBadInput : kDeviceError;
  }

  void report_times(const RunResult& result) {
    std::vector<double> sorted = result.launch_seconds;
    std::sort(sorted.begin(), sorted.end());
    report_["compile_seconds"] = result.compile_seconds;
    report_["run_seconds"] = sorted[sorted.size() / 2];
    report_["launch_seconds"] = result.launch_seconds;
    if (settings_.as_json) return;
    fmt::print("{}: compiled in {:.3f} s, ", report_["device"].get<std::string>(),
               result.compile_seconds);
    if (sorted.size() == 1) {
      fmt::print("ran in {:.4f} s\n", sorted[0]);
    } else {
      fmt::print("ran {} times: first {:.4f} s, median {:.4f} s, best {:.4f} s\n", sorted.size(),
                 result.launch_seconds[0], sorted[sorted.size() / 2], sorted[0]);
    }
  }

  int report_outputs(const RunResult& result) {
    std::error_code error;
    if (!settings_.output_folder.empty()) {
      fs::create_directories(settings_.output_folder, error);
      if (error) {
        return fail(kBadInput, fmt::format("{}: {}", settings_.output_folder, error.message()));
      }
    }
    report_["outputs"] = Json::array();
    for (size_t d = 0; d < result.outputs.size(); ++d) {
      for (size_t i = 0; i < result.outputs[d].size(); ++i) {
        const HostArray& array = result.outputs[d][i];
        if (array.dtype() == DType::kInvalid) continue;  // a token
        const std::string label = result.outputs.size() == 1
                                      ? fmt::format("output {}", i)
                                      : fmt::format("device {} output {}", d, i);
        if (!settings_.as_json) fmt::print("{}: {}\n", label, describe(array));
        if (d == 0) {
          const ArrayStats stats = array_stats(array);
          report_["outputs"].push_back({{"index", i},
                                        {"dtype", dtype_name(array.dtype())},
                                        {"shape", array.dims()},
                                        {"min", stats.min},
                                        {"max", stats.max},
                                        {"mean", stats.mean},
                                        {"nans", stats.nans}});
        }
        if (settings_.output_folder.empty()) continue;
        const std::string name = result.outputs.size() == 1
                                     ? fmt::format("output_{}.npy", i)
                                     : fmt::format("output_{}_device_{}.npy", i, d);
        if (Status status =
                runtime::write_npy((fs::path(settings_.output_folder) / name).string(), array);
            !status.ok()) {
          return fail(kDeviceError, status);
        }
      }
    }
    return 0;
  }

  int check_outputs(const std::vector<HostArray>& outputs) {
    if (expected_.empty()) return 0;
    if (outputs.size() != expected_.size()) {
      return fail(kCheckFailed, fmt::format("the program has {} outputs; {} are expected",
                                            outputs.size(), expected_.size()));
    }
    int code = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      code = std::max(code, report_comparison(i, tools::compare(outputs[i], expected_[i]), "want"));
    }
    return code;
  }

  int report_comparison(size_t i, const Comparison& comparison, std::string_view against) {
    max_error_ = std::max(max_error_, comparison.max_error);
    worst_ratio_ = std::max(worst_ratio_, comparison.worst_ratio);
    // JSON has no infinity; a large number still says that the limit is passed.
    const auto finite = [](double x) { return std::isfinite(x) ? x : 1e308; };
    report_["max_error"] = finite(max_error_);
    report_["worst_ratio"] = finite(worst_ratio_);
    if (i < report_["outputs"].size()) {
      report_["outputs"][i]["max_error"] = finite(comparison.max_error);
      report_["outputs"][i]["mismatches"] = comparison.mismatches;
      report_["outputs"][i]["passed"] = comparison.passed;
    }
    if (comparison.passed) {
      if (!settings_.as_json) {
        fmt::print("output {}: as expected; max error {:.3g} ({:.1f} % of the limit)\n", i,
                   comparison.max_error, comparison.worst_ratio * 100);
      }
      return 0;
    }
    const std::string text = fmt::format(
        "output {} differs: {}{}{}", i, comparison.first_difference,
        comparison.mismatches > 1
            ? fmt::format(" ({} of {} elements differ, max error {:.3g})", comparison.mismatches,
                          comparison.compared, comparison.max_error)
            : "",
        against == "want" ? "" : fmt::format("; want is {}", against));
    if (!settings_.as_json && !message_.empty()) fmt::print(stderr, "hekla: {}\n", text);
    return fail(kCheckFailed, text);
  }

  // The same program with the same inputs on another device.
  int compare_with_other(const runtime::Client& client, const RunResult& result) {
    Result<runtime::Client> other = runtime::open_client(settings_.compare_with);
    if (!other.ok()) return fail(kDeviceError, other.status());
    RunRequest request = request_;
    request.repeat = 1;
    const RunResult reference = run_program(*other, request);
    if (!reference.status.ok()) {
      return fail(exit_code_of(reference), reference.status.with_context(settings_.compare_with));
    }
    int code = 0;
    for (size_t d = 0; d < result.outputs.size(); ++d) {
      for (size_t i = 0; i < result.outputs[d].size(); ++i) {
        const HostArray& got = result.outputs[d][i];
        if (got.dtype() == DType::kInvalid) continue;
        Tolerance tolerance = default_tolerance(got.dtype());
        if (settings_.rtol) tolerance.rtol = *settings_.rtol;
        if (settings_.atol) tolerance.atol = *settings_.atol;
        if (d >= reference.outputs.size() || i >= reference.outputs[d].size()) {
          return fail(kCheckFailed, fmt::format("{} gives fewer outputs", settings_.compare_with));
        }
        code = std::max(
            code, report_comparison(i, tools::compare(got, reference.outputs[d][i], tolerance),
                                    settings_.compare_with));
      }
    }
    if (settings_.whole_only || request_.replicas * request_.partitions != 1) return code;
    return std::max(code, compare_operations(client, *other));
  }

  // Each operation by itself, on the other device's operands.
  int compare_operations(const runtime::Client& client, const runtime::Client& other) {
    const Result<OpComparison> found = compare_by_op(request_.program, request_.inputs, client,
                                                     other, settings_.rtol, settings_.atol);
    if (!found.ok())
      return fail(kDeviceError, found.status().with_context("operation by operation"));
    report_["operations_compared"] = found->operations;
    report_["operations_skipped"] = found->skipped;
    report_["first_operation_that_differs"] = found->difference;
    if (!found->difference.empty()) {
      if (!settings_.as_json && !message_.empty()) {
        fmt::print(stderr, "hekla: first operation that differs: {}\n", found->difference);
      }
      return fail(kCheckFailed, "first operation that differs: " + found->difference);
    }
    if (!settings_.as_json) {
      fmt::print("{} operations, each as on {}{}\n", found->operations, settings_.compare_with,
                 found->skipped == 0 ? "" : fmt::format("; {} skipped", found->skipped));
    }
    return 0;
  }

  void print_stats(const runtime::Client& client, const RunResult& result) {
    int64_t input_bytes = 0;
    for (const HostArray& array : request_.inputs) input_bytes += array.size_bytes();
    report_["program_bytes"] = request_.program.size();
    report_["input_bytes"] = input_bytes;
    for (const auto& [name, value] : result.statistics) report_["executable"][name] = value;
    Result<runtime::MemoryStats> memory = client.addressable_devices().front().memory_stats();
    if (memory.ok()) {
      report_["bytes_in_use"] = memory->bytes_in_use;
      if (memory->peak_bytes_in_use) report_["peak_bytes_in_use"] = *memory->peak_bytes_in_use;
    }
    const auto counters = client.addressable_devices().front().counters();
    for (const auto& [name, value] : counters) report_["counters"][name] = value;
    if (settings_.as_json) return;
    fmt::print("plugin {}, C API 0.{}, platform {}\n", client.plugin().path(),
               client.plugin().api_minor(), client.platform());
    fmt::print("program {} bytes, inputs {} bytes\n", request_.program.size(), input_bytes);
    std::string counts;
    for (const auto& [name, value] : result.statistics) {
      std::string words = name;
      std::replace(words.begin(), words.end(), '_', ' ');
      counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", value, words);
    }
    fmt::print("executable: {}\n", counts.empty() ? "the plugin shows none" : counts);
    if (memory.ok()) {
      fmt::print("device memory: {} bytes in use{}\n", memory->bytes_in_use,
                 memory->peak_bytes_in_use
                     ? fmt::format(", {} at the peak", *memory->peak_bytes_in_use)
                     : "");
    } else {
      fmt::print("device memory: {}\n", memory.status().message());
    }
    for (const auto& [name, value] : counters) fmt::print("{}: {}\n", name, value);
  }

  const Settings& settings_;
  RunRequest request_;
  std::vector<ExpectedResult> expected_;
  Json report_ = Json::object();
  std::string message_;
  double max_error_ = 0;
  double worst_ratio_ = 0;
};

int run(const Settings& settings) {
  const int sources =
      !settings.program.empty() + !settings.case_folder.empty() + !settings.all_folder.empty();
  if (sources != 1) {
    fmt::print(stderr, "hekla run: give one of PROGRAM, --case and --all; see --help\n");
    return kBadInput;
  }
  if (!settings.all_folder.empty() && !settings.compiler_options.empty()) {
    fmt::print(stderr, "hekla run: --option goes with one program, not with --all\n");
    return kBadInput;
  }
  if (!settings.all_folder.empty()) {
    RunAllRequest request;
    request.folder = settings.all_folder;
    request.devices = settings.devices;
    request.client_options = settings.client_options;
    request.repeat = settings.repeat;
    request.timeout_seconds = settings.timeout_seconds;
    request.as_json = settings.as_json;
    return run_all(request);
  }
  if (settings.devices.size() > 1) {
    fmt::print(stderr, "hekla run: several devices go with --all only\n");
    return kBadInput;
  }
  return RunCommand(settings).run();
}

}  // namespace

void add_run_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("run", "Run a program, show its results and compare them");
  auto s = std::make_shared<Settings>();
  command->add_option("program", s->program, "MLIR bytecode or text, or an HloModuleProto");
  command->add_option("--case", s->case_folder, "A folder with a case.json: program and results");
  command->add_option("--all", s->all_folder, "Every case folder below this one, as a table");
  command->add_option("--device", s->devices,
                      "vulkan, cpu, reference, another plugin's name, or the path of a plugin; "
                      "unset: PJRT_DEVICE, or the best there is");
  command->add_option(
      "--input", s->inputs,
      "Inputs in order: FILE.npy, or FILE.npy:DTYPE for types without a numpy name");
  command->add_option("--random", s->random_seed, "Make the missing inputs from this seed");
  command->add_option("--expect", s->expected, "Results in order, FILE.npy or FILE.npy:DTYPE");
  command->add_option("--rtol", s->rtol, "Relative tolerance (default: by dtype)");
  command->add_option("--atol", s->atol, "Absolute tolerance (default: by dtype)");
  command->add_option("--output", s->output_folder, "Write output_N.npy into this folder");
  command->add_option("--compare", s->compare_with,
                      "Compare with another device: the results, then each operation by itself "
                      "on that device's operands; the first that differs is named");
  command->add_flag("--whole", s->whole_only, "With --compare: the results alone");
  command->add_option("--repeat", s->repeat, "Launches")->check(CLI::Range(1, 1000000));
  command->add_option("--replicas", s->replicas, "Replicas, each with the same inputs")
      ->check(CLI::Range(1, 4096));
  command->add_option("--partitions", s->partitions, "Partitions, each with the same inputs")
      ->check(CLI::Range(1, 4096));
  command->add_option("--client-option", s->client_options, "NAME=VALUE for the plugin");
  command->add_option("--option", s->compiler_options, "NAME=VALUE for the compilation");
  command->add_option("--timeout", s->timeout_seconds, "Seconds per program of --all")
      ->check(CLI::PositiveNumber);
  command->add_flag(
      "--stats", s->with_stats,
      "Show kernels, host steps, bytes, cache hits, submissions and the device's memory");
  command->add_flag("--json", s->as_json, "Print JSON");
  command->footer(
      "A result passes if |got - want| <= atol + rtol * |want|; NaN equals NaN. Exit status: 0 ok, "
      "1 a result or an assertion failed, 2 bad input, 3 device or launch error.");
  command->callback([s, &exit_code] { exit_code = run(*s); });
}

}  // namespace hekla::tools
