// SPDX-License-Identifier: Apache-2.0
// random_programs: random StableHLO programs on every device against the reference evaluator.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "runtime/base/hash.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/text/print.h"
#include "tests/random/check.h"
#include "tests/random/generate.h"
#include "tests/random/partitions.h"
#include "tests/random/random.h"
#include "tests/random/schedule_table.h"

namespace hekla::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Where a crash or a hang happened; read by the signal handler.
volatile uint64_t current_seed = 0;
volatile int current_device = 0;
// Where drivers compile on a busy machine half a minute becomes two.
constexpr unsigned kSecondsPerProgram = 300;

void say_where(int signal) {
  char text[160];
  const int length =
      std::snprintf(text, sizeof(text), "\nsignal %d (%s) in seed %llu, device %d of the list\n",
                    signal, signal == SIGALRM ? "out of time" : "crash",
                    static_cast<unsigned long long>(current_seed), current_device);
  if (write(STDERR_FILENO, text, static_cast<size_t>(length)) < 0) _exit(4);
  _exit(3);
}

struct Settings {
  uint64_t seed = 1;
  int64_t count = 300;
  std::vector<std::string> devices = {"cpu", "vulkan"};
  // 0: mixed_sizes().
  GenerateOptions generate{0, 0};
  double seconds = 0;
  int64_t stop_after = 5;
  bool no_shrink = false;
  bool print = false;
  bool all_forms = false;
  bool all_drawn = false;
  bool partitions = false;
  bool small_limits = false;
  std::string matrix_pieces = "false";
  bool show_schedules = false;
  bool require_schedules = false;
  std::string out_folder;
  std::string json_file;
  std::vector<std::string> files;
};

struct Counts {
  int64_t programs = 0;
  int64_t operations = 0;
  std::map<std::string, int64_t> by_op;
  std::map<std::string, int64_t> by_dtype;
};

void count(const ir::Module& module, Counts& counts) {
  ++counts.programs;
  for (const auto& function : module.functions) {
    ir::walk(function->body(), [&](const ir::Operation& op) {
      if (ir::is_terminator(op.code())) return;
      ++counts.operations;
      ++counts.by_op[std::string(op.name())];
      for (const ir::Type& type : op.result_types()) {
        if (type.is_tensor()) ++counts.by_dtype[std::string(dtype_name(type.dtype()))];
      }
    });
  }
}

class Run {
 public:
  explicit Run(const Settings& settings) : settings_(settings) {}

  int run() {
    if (settings_.print) return print();
    for (const std::string& name : settings_.devices) {
      auto device = open_device(name, settings_.partitions ? kMostPartitions : 1);
      if (!device.ok()) {
        fmt::print(stderr, "{}: {}\n", name, device.status().to_string());
        return 3;
      }
      devices_.push_back(std::move(*device));
    }
    for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGALRM}) {
      std::signal(signal, say_where);
    }
    if (!settings_.files.empty()) return run_files();
    for (int64_t i = 0; i < settings_.count; ++i) {
      const double so_far = seconds();
      if (settings_.seconds > 0 && so_far > settings_.seconds) break;
      const uint64_t seed = settings_.seed + static_cast<uint64_t>(i);
      current_seed = seed;
      RandomProgram made = make(seed);
      if (const Status status = ir::verify(*made.module); !status.ok()) {
        fmt::print("seed {}: the generator made a program that does not verify: {}\n{}\n", seed,
                   status.message(), stablehlo::print_module(*made.module));
        return 2;
      }
      count(*made.module, counts_);
      CheckOptions options;
      options.schedule_seed = seed;
      options.small_limits = settings_.small_limits || seed % 3 == 0;
      options.matrix_pieces = settings_.matrix_pieces;
      if (seed % 4 > 0) options.tree_reductions = seed % 4 != 3;
      if (settings_.all_drawn) options.schedule_seed |= 1;
      options.recompute_parts = seed % 5 > 0;
      if (settings_.partitions) {
        options.ring_products = seed % 2 == 0;
        for (const char* form : {kMergeCollectives, kHoistCollectives, kCombineCollectives}) {
          options.forms.emplace_back(form);
        }
      }
      if (!settings_.all_forms) {
        Random random(seed);
        options.forms = {settings_.all_drawn ? kDrawnSchedules : random.pick(options.forms)};
      }
      check_program({made.module, std::move(made.inputs)}, fmt::format("seed {}", seed), options);
      progress(i + 1);
      if (static_cast<int64_t>(findings_.size()) >= settings_.stop_after) break;
    }
    return finish();
  }

 private:
  GenerateOptions sizes_of(uint64_t seed) const {
    GenerateOptions options = mixed_sizes(seed);
    options.loops = settings_.generate.loops;
    options.attention = settings_.generate.attention;
    options.edits = settings_.generate.edits;
    if (options.attention) options.max_elements = 20'000;
    if (settings_.generate.ops != 0) options.ops = settings_.generate.ops;
    if (settings_.generate.max_elements != 0) {
      options.max_elements = settings_.generate.max_elements;
    }
    return options;
  }
  RandomProgram make(uint64_t seed) const {
    RandomProgram made = random_program(seed, sizes_of(seed));
    if (settings_.partitions) shard_program(*made.module, seed);
    return made;
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  int print() {
    for (int64_t i = 0; i < settings_.count; ++i) {
      const uint64_t seed = settings_.seed + static_cast<uint64_t>(i);
      RandomProgram made = make(seed);
      fmt::print("{}\n", to_text({made.module, std::move(made.inputs)}));
    }
    return 0;
  }

  int run_files() {
    for (const std::string& file : settings_.files) {
      std::ifstream stream(file);
      std::stringstream text;
      text << stream.rdbuf();
      const Result<Program> program = from_text(text.str());
      if (!stream || !program.ok()) {
        fmt::print(stderr, "{}: {}\n", file,
                   program.ok() ? "cannot be read" : program.status().to_string());
        return 2;
      }
      count(*program->module, counts_);
      CheckOptions options;
      options.small_limits = settings_.small_limits;
      options.matrix_pieces = settings_.matrix_pieces;
      const Result<CheckOptions> chosen = options_in(text.str(), options);
      if (!chosen.ok()) {
        fmt::print(stderr, "{}: {}\n", file, chosen.status().to_string());
        return 2;
      }
      check_program(*program, file, *chosen);
    }
    return finish();
  }

  void check_program(const Program& program, const std::string& label,
                     const CheckOptions& options) {
    for (size_t d = 0; d < devices_.size(); ++d) {
      Device& device = *devices_[d];
      current_device = static_cast<int>(d);
      alarm(kSecondsPerProgram);
      const auto result = check(program, device, options, &digest_);
      alarm(0);
      if (!result.ok()) {
        add_finding(label, {"evaluator", Finding::Kind::kError, result.status().to_string(), {}},
                    program, options);
        return;
      }
      if (!result->has_value()) continue;
      Program small = program;
      if (!settings_.no_shrink) small = shrink(program, **result, device, options);
      add_finding(label, **result, small, options);
    }
  }

  void add_finding(const std::string& label, const Finding& finding, const Program& small,
                   const CheckOptions& options) {
    if (is_terminal_) fmt::print(stderr, "\r\033[K");
    const std::string text = to_comment(options) + to_text(small);
    fmt::print("{}, {}, {}: {}\n", label, finding.device, kind_name(finding.kind), finding.text);
    std::string file;
    if (!settings_.out_folder.empty()) {
      std::filesystem::create_directories(settings_.out_folder);
      std::string name = label + "_" + finding.device;
      for (char& c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
      }
      file = settings_.out_folder + "/" + name + ".mlir";
      std::ofstream(file) << text;
    }
    constexpr size_t kMostText = 3000;
    fmt::print("{}\n", file.empty() || text.size() < kMostText ? text : file);
    std::fflush(stdout);
    findings_.push_back({{"program", label},
                         {"device", finding.device},
                         {"kind", std::string(kind_name(finding.kind))},
                         {"what", finding.text},
                         {"text", text}});
  }

  void progress(int64_t done) {
    if (Clock::now() - last_progress_ < std::chrono::seconds(is_terminal_ ? 1 : 20)) return;
    last_progress_ = Clock::now();
    fmt::print(stderr, "{}{} of {} programs, {} findings, {:.0f} s{}", is_terminal_ ? "\r" : "",
               done, settings_.count, findings_.size(), seconds(), is_terminal_ ? "" : "\n");
  }

  nlohmann::json schedules_json() const {
    nlohmann::json json = nlohmann::json::object();
    for (const auto& device : devices_) json[device->name()] = device->schedules();
    return json;
  }

  int finish() {
    if (is_terminal_) fmt::print(stderr, "\r\033[K");
    fmt::print(
        "{} programs with {} operations ({} kinds, {} element types) on {}: {} findings, "
        "{:.1f} s, digest {:016x}\n",
        counts_.programs, counts_.operations, counts_.by_op.size(), counts_.by_dtype.size(),
        fmt::join(settings_.devices, ", "), findings_.size(), seconds(), digest_);
    if (!settings_.json_file.empty()) {
      const nlohmann::json json = {{"seed", settings_.seed},
                                   {"programs", counts_.programs},
                                   {"operations", counts_.operations},
                                   {"by_operation", counts_.by_op},
                                   {"by_element_type", counts_.by_dtype},
                                   {"devices", settings_.devices},
                                   {"seconds", seconds()},
                                   {"digest", fmt::format("{:016x}", digest_)},
                                   {"schedules", schedules_json()},
                                   {"findings", findings_}};
      std::ofstream(settings_.json_file) << json.dump(1) << "\n";
    }
    bool is_complete = true;
    for (const auto& device : devices_) {
      const ScheduleTable table = schedule_table(device->schedules());
      const std::vector<std::string> missing = missing_pairs(device->name(), table);
      if (settings_.show_schedules || settings_.require_schedules) {
        fmt::print("\nkernels by family and schedule on {}:\n{}", device->name(), to_text(table));
      }
      if (!settings_.require_schedules || missing.empty()) continue;
      fmt::print("not exercised: {}\n", fmt::join(missing, "; "));
      is_complete = false;
    }
    return findings_.empty() && is_complete ? 0 : 1;
  }

  const Settings settings_;
  const Clock::time_point start_ = Clock::now();
  const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  Clock::time_point last_progress_ = start_;
  std::vector<std::unique_ptr<Device>> devices_;
  Counts counts_;
  uint64_t digest_ = kFnv1aBasis;
  std::vector<nlohmann::json> findings_;
};

}  // namespace
}  // namespace hekla::testing

int main(int argc, char** argv) {
  hekla::testing::Settings settings;
  CLI::App app(
      "Random StableHLO programs on every device against the reference evaluator.\n"
      "Each operation must agree within the tolerance of docs/numerics.md on the operands that "
      "the\n"
      "device computed; results must have the same bits fused and with all values stored, and in\n"
      "another launch, without fusion or without memory reuse (one of these in rotation, "
      "--all-forms:\n"
      "each). A program that differs is shrunk and printed with its inputs; kept under\n"
      "tests/random/regressions it stays a test. Exit status: 0 all agree, 1 a finding, 2 bad "
      "input,\n3 no device, a crash or a hang (the seed is named).");
  app.add_option("--seed", settings.seed, "The first seed; program k has seed + k")
      ->capture_default_str();
  app.add_option("--count", settings.count, "How many programs")->capture_default_str();
  app.add_option("--seconds", settings.seconds, "Stop after so long; 0: when all are done");
  app.add_option("--devices", settings.devices, "Plugins by name")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  app.add_option("--ops", settings.generate.ops,
                 "Operations of a program, about; unset: mixed, as sizes are");
  app.add_option("--max-elements", settings.generate.max_elements,
                 "Of an array, about; unset: mixed, 400, 4,000 and 60,000");
  app.add_option("--stop-after", settings.stop_after, "Findings")->capture_default_str();
  app.add_flag("--no-shrink", settings.no_shrink, "Print differing programs as they are");
  app.add_flag("--loops", settings.generate.loops,
               "Mostly operations whose kernels have loops: those that schedules differ for");
  app.add_flag("--attention", settings.generate.attention, "An attention each, of any layout");
  app.add_flag("--edits", settings.generate.edits,
               "A loop each that changes parts of arrays, with branches and loops in it");
  app.add_flag("--all-drawn", settings.all_drawn, "Draw the schedules of all forms");
  app.add_flag("--small-limits", settings.small_limits,
               "Small arrays go the ways of large ones in all programs, not in a third of them");
  app.add_option("--matrix-pieces", settings.matrix_pieces,
                 "hekla_matrix_pieces of all programs, for devices with such units")
      ->check(CLI::IsMember({"true", "all", "f16", "false"}))
      ->capture_default_str();
  app.add_flag("--partitions", settings.partitions,
               "Cut the programs by random shardings over meshes of 1 to 8 logical devices");
  app.add_flag("--schedules", settings.show_schedules,
               "Print which schedules ran which families of operations");
  app.add_flag("--require-schedules", settings.require_schedules,
               "Fail when a schedule that a device may choose for a family was not exercised");
  app.add_flag("--all-forms", settings.all_forms, "All forms of each program, not one in rotation");
  app.add_flag("--print", settings.print, "Print the programs and run nothing");
  app.add_option("--out", settings.out_folder, "Folder for the texts of differing programs");
  app.add_option("--json", settings.json_file, "File for counts and findings");
  app.add_option("files", settings.files, "Programs with @inputs to check in all forms instead");
  CLI11_PARSE(app, argc, argv);
  // Kernels that nobody will see again have no place in the user's cache.
  setenv("HEKLA_CACHE_DIR", "", /*replace=*/0);
  return hekla::testing::Run(settings).run();
}
