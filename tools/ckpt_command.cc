// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt_command.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "runtime/checkpoint/commit/manager_lock.h"
#include "runtime/checkpoint/commit/recovery.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/restore/verify.h"
#include "tools/ckpt/bench.h"
#include "tools/ckpt/convert.h"
#include "tools/ckpt/diff.h"
#include "tools/ckpt/inspect.h"
#include "tools/ckpt/progress.h"
#include "tools/ckpt/repair.h"
#include "tools/ckpt/step_parts.h"

namespace hekla::tools {
namespace {

using nlohmann::json;

constexpr int kDifferent = 1, kCorrupt = 2, kNotCommitted = 3, kOtherError = 4;

// Paths and texts of the file system may be of any bytes; JSON may not.
std::string dump(const json& value) {
  return value.dump(2, ' ', false, json::error_handler_t::replace);
}

int code_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return 0;
    case StatusCode::kDataLoss:
      return kCorrupt;
    case StatusCode::kNotFound:
      return kNotCommitted;
    default:
      return kOtherError;
  }
}

// What a subcommand says at its end: text for people or JSON, and the exit status.
struct Answer {
  std::string text;
  json data;
  int code = 0;
};

struct Arguments {
  std::string path, second, tensors, to, from, mesh;
  std::vector<std::string> specs;
  bool as_json = false, sharding = false, meta = false, full = false, ulp = false;
  bool dry_run = false, scrub = false;
  uint64_t rate = 0;  // bytes per second; 0: as fast as it goes
  int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 4u));
  uint64_t max_shard = 5'000'000'000;
  int64_t step = 0;
  uint64_t size = uint64_t{1} << 30;
  int ranks = 1, repeat = 3;
  uint64_t chunk = 0;
  int gzip = 0;
  std::string mode = "both";
};

using Command = std::function<Result<Answer>(const Arguments&)>;

Io& io() { return posix_io(); }

Result<std::regex> pattern(const std::string& text) {
  try {
    return std::regex(text);
  } catch (const std::regex_error& error) {
    return invalid_argument("--tensor '{}' is no regular expression: {}", text, error.what());
  }
}

Result<Answer> list(const Arguments& arguments) {
  HEKLA_ASSIGN_OR_RETURN(json steps, list_json(io(), arguments.path));
  return Answer{list_text(steps), {{"steps", steps}}, 0};
}

Result<Answer> inspect(const Arguments& arguments) {
  HEKLA_ASSIGN_OR_RETURN(const std::regex tensors, pattern(arguments.tensors));
  HEKLA_ASSIGN_OR_RETURN(const StepPointer step, open_step(io(), arguments.path));
  HEKLA_ASSIGN_OR_RETURN(const checkpoint::StepIndex index, read_step_index(io(), *step));
  return Answer{inspect_text(*step, index, tensors, arguments.sharding),
                inspect_json(*step, index, tensors), 0};
}

Result<Answer> verify_one(const std::string& folder, const Arguments& arguments) {
  checkpoint::VerifyOptions options;
  options.payload = !arguments.meta;
  options.reader.threads = arguments.scrub ? 1 : arguments.threads;
  options.reader.bandwidth_limit = static_cast<int64_t>(arguments.rate);
  if (arguments.rate > 0) options.reader.item_bytes = int64_t{1} << 20;  // small steps
  options.max_problems = 1000;
  std::unique_ptr<Progress> progress;
  std::mutex mutex;
  options.progress = [&](int64_t done, int64_t total) {
    const std::lock_guard lock(mutex);
    if (progress == nullptr) progress = std::make_unique<Progress>("verify", total);
    progress->add(done - progress->done());
  };
  HEKLA_ASSIGN_OR_RETURN(const checkpoint::VerifyReport report,
                         checkpoint::verify_step(io(), folder, options));
  Answer answer;
  json problems = json::array();
  for (const checkpoint::Problem& problem : report.problems) {
    answer.text += fmt::format("corrupt: {}: {}\n", problem.file, problem.what);
    problems.push_back({{"file", problem.file}, {"what", problem.what}});
  }
  answer.data = {{"folder", folder},        {"ok", problems.empty()}, {"files", report.files},
                 {"blocks", report.blocks}, {"bytes", report.bytes},  {"payload", options.payload},
                 {"problems", problems}};
  answer.code = report.problems.empty() ? 0 : kCorrupt;
  if (report.problems.empty()) {
    answer.text = fmt::format("{} is as it was written: {} files, {}{}\n", folder, report.files,
                              size_text(report.bytes), options.payload ? "" : " (not the payload)");
  }
  return answer;
}

// Every step of a run, slowly; each is kept from deletion while it is looked at.
Result<Answer> scrub(const Arguments& arguments) {
  HEKLA_ASSIGN_OR_RETURN(const auto entries, checkpoint::list_steps(io(), arguments.path));
  Answer answer;
  json steps = json::array();
  for (const checkpoint::StepEntry& entry : entries) {
    Result<checkpoint::StepLease> lease =
        checkpoint::StepLease::acquire(io(), arguments.path, entry.step);
    const bool is_gone = lease.status().code() == StatusCode::kNotFound &&
                         entry.status.code() != StatusCode::kNotFound;
    if (is_gone) continue;  // deleted since
    Result<Answer> one = verify_one(entry.path, arguments);
    if (!one.ok()) {
      const int code = code_of(one.status());
      one = Answer{fmt::format("{}: {}\n", entry.path, one.status().to_string()),
                   {{"folder", entry.path}, {"ok", false}, {"error", one.status().to_string()}},
                   code == kNotCommitted ? kCorrupt : code};
    }
    answer.text += one->text;
    answer.code = std::max(answer.code, one->code);
    steps.push_back(std::move(one->data));
  }
  if (steps.empty()) return not_found("{} has no step", arguments.path);
  answer.data = {{"ok", answer.code == 0}, {"steps", std::move(steps)}};
  return answer;
}

Result<Answer> verify(const Arguments& arguments) {
  if (arguments.scrub) return scrub(arguments);
  HEKLA_ASSIGN_OR_RETURN(const std::string folder, find_step(io(), arguments.path));
  return verify_one(folder, arguments);
}

Result<Answer> diff(const Arguments& arguments) {
  HEKLA_ASSIGN_OR_RETURN(const std::regex tensors, pattern(arguments.tensors));
  HEKLA_ASSIGN_OR_RETURN(const StepPointer a, open_step(io(), arguments.path));
  HEKLA_ASSIGN_OR_RETURN(const StepPointer b, open_step(io(), arguments.second));
  HEKLA_ASSIGN_OR_RETURN(const DiffReport report, diff_steps(io(), *a, *b, tensors));
  Answer answer;
  json differences = json::array();
  for (const TensorDifference& one : report.differences) {
    json entry = {{"tensor", one.tensor}, {"what", one.what}};
    answer.text += fmt::format("{}: {}", one.tensor, one.what);
    if (one.different > 0) {
      entry.update({{"different", one.different},
                    {"elements", one.elements},
                    {"first", one.first},
                    {"max_absolute", one.max_absolute},
                    {"max_ulp", one.max_ulp}});
      answer.text +=
          fmt::format(": {} of {} elements differ, the first is number {}, by at most {:g}",
                      one.different, one.elements, one.first, one.max_absolute);
      if (arguments.ulp) answer.text += fmt::format(", {:g} ulp", one.max_ulp);
    }
    answer.text += "\n";
    differences.push_back(std::move(entry));
  }
  answer.data = {
      {"compared", report.compared}, {"equal", differences.empty()}, {"differences", differences}};
  answer.code = report.differences.empty() ? 0 : kDifferent;
  if (report.differences.empty()) {
    answer.text = fmt::format("{} tensors are equal\n", report.compared);
  }
  return answer;
}

Answer converted(const Conversion& done) {
  Answer answer;
  for (const std::string& name : done.as_bytes) {
    answer.text += fmt::format(
        "note: safetensors has no dtype for '{}': written as bytes, described in the metadata\n",
        name);
  }
  for (const std::string& file : done.files) answer.text += fmt::format("wrote {}\n", file);
  answer.text += fmt::format("{} tensors, {}\n", done.tensors, size_text(done.bytes));
  answer.data = {{"files", done.files},
                 {"tensors", done.tensors},
                 {"bytes", done.bytes},
                 {"as_bytes", done.as_bytes}};
  return answer;
}

Result<Answer> convert(const Arguments& arguments) {
  if (arguments.from == "safetensors") {
    HEKLA_ASSIGN_OR_RETURN(
        const Conversion done,
        from_safetensors(io(), arguments.path, arguments.second, arguments.step));
    return converted(done);
  }
  HEKLA_ASSIGN_OR_RETURN(const StepPointer step, open_step(io(), arguments.path));
  HEKLA_ASSIGN_OR_RETURN(
      const Conversion done,
      to_safetensors(*step, arguments.second, static_cast<int64_t>(arguments.max_shard)));
  return converted(done);
}

Result<Answer> consolidate_step(const Arguments& arguments) {
  HEKLA_ASSIGN_OR_RETURN(const StepPointer step, open_step(io(), arguments.path));
  HEKLA_ASSIGN_OR_RETURN(const Conversion done,
                         consolidate(*step, arguments.second,
                                     {static_cast<int64_t>(arguments.chunk), arguments.gzip}));
  return converted(done);
}

Result<Answer> reshard_step(const Arguments& arguments) {
  HEKLA_ASSIGN_OR_RETURN(const StepPointer step, open_step(io(), arguments.path));
  HEKLA_ASSIGN_OR_RETURN(
      const Conversion done,
      reshard(*step, arguments.second, Resharding{arguments.mesh, arguments.specs}));
  return converted(done);
}

void add_recovery(const checkpoint::RecoveryReport& report, std::vector<std::string>& done) {
  for (const int64_t step : report.adopted) {
    done.push_back(fmt::format("adopted the finished save of step {}", step));
  }
  for (const int64_t step : report.restored) {
    done.push_back(fmt::format("brought back step {}", step));
  }
  for (const std::string& entry : report.quarantined) done.push_back("put aside " + entry);
  for (const std::string& entry : report.deleted) done.push_back("deleted " + entry);
}

Answer put_in_order(const std::vector<std::string>& done, const std::vector<std::string>& left,
                    bool dry_run) {
  Answer answer;
  for (const std::string& line : done) {
    answer.text += fmt::format("{}{}\n", dry_run ? "would have " : "", line);
  }
  for (const std::string& line : left) answer.text += "left as it is: " + line + "\n";
  if (answer.text.empty()) answer.text = "nothing to do\n";
  answer.data = {{"done", done}, {"left", left}, {"dry_run", dry_run}};
  return answer;
}

// Whoever changes a run's folder holds its lock; who only looks does not.
Result<checkpoint::ManagerLock> lock_run(const Arguments& arguments) {
  if (arguments.dry_run) return checkpoint::ManagerLock();
  return checkpoint::ManagerLock::acquire(io(), arguments.path);
}

Result<Answer> collect_garbage(const Arguments& arguments) {
  HEKLA_RETURN_IF_ERROR(list_folder(io(), arguments.path).status());
  HEKLA_ASSIGN_OR_RETURN(const checkpoint::ManagerLock lock, lock_run(arguments));
  checkpoint::RecoveryOptions options;
  options.dry_run = arguments.dry_run;
  HEKLA_ASSIGN_OR_RETURN(const checkpoint::RecoveryReport report,
                         checkpoint::recover(io(), arguments.path, options));
  std::vector<std::string> done;
  add_recovery(report, done);
  return put_in_order(done, report.left, arguments.dry_run);
}

Result<Answer> repair(const Arguments& arguments) {
  HEKLA_RETURN_IF_ERROR(list_folder(io(), arguments.path).status());
  HEKLA_ASSIGN_OR_RETURN(const checkpoint::ManagerLock lock, lock_run(arguments));
  // First what can be made again: recovery puts steps aside that lack a file.
  HEKLA_ASSIGN_OR_RETURN(RepairReport report, repair_run(io(), arguments.path, arguments.dry_run));
  const bool is_whole = report.left.empty();
  if (!arguments.dry_run) {
    HEKLA_ASSIGN_OR_RETURN(const checkpoint::RecoveryReport recovered,
                           checkpoint::recover(io(), arguments.path));
    add_recovery(recovered, report.done);
    report.left.insert(report.left.end(), recovered.left.begin(), recovered.left.end());
  }
  Answer answer = put_in_order(report.done, report.left, arguments.dry_run);
  answer.code = is_whole ? 0 : kCorrupt;
  return answer;
}

Result<Answer> run_bench(const Arguments& arguments) {
  BenchOptions options;
  options.bytes = static_cast<int64_t>(arguments.size);
  options.ranks = arguments.ranks;
  options.repeat = arguments.repeat;
  options.write = arguments.mode != "restore";
  options.read = arguments.mode != "save";
  HEKLA_ASSIGN_OR_RETURN(const BenchReport report, bench(io(), arguments.path, options));
  Answer answer;
  const auto bytes = static_cast<double>(report.bytes);
  answer.data = {{"bytes", report.bytes}, {"ranks", options.ranks}, {"rounds", options.repeat}};
  const auto line = [&](const char* name, const char* raw_name, double seconds, double raw,
                        double cpu, double spread) {
    if (seconds == 0) return;
    answer.data[name] = {{"seconds", seconds},
                         {"raw_seconds", raw},
                         {"bytes_per_second", bytes / seconds},
                         {"share_of_raw", raw / seconds},
                         {"cpu_seconds_per_gb", cpu / bytes * 1e9},
                         {"longest_over_shortest", spread}};
    answer.text += fmt::format(
        "{:<8} {:.2f} GB/s, {} {:.2f} GB/s: {:.0f} %; {:.3f} s of processor per GB; longest round "
        "{:.2f} of the shortest\n",
        name, bytes / seconds / 1e9, raw_name, bytes / raw / 1e9, 100 * raw / seconds,
        cpu / bytes * 1e9, spread);
  };
  line("save", "raw write", report.save, report.raw_write, report.save_cpu, report.spread_save);
  line("restore", "raw read", report.restore, report.raw_read, report.restore_cpu,
       report.spread_restore);
  return answer;
}

class Adder {
 public:
  Adder(CLI::App& group, int& exit_code) : group_(group), exit_code_(exit_code) {}

  // A subcommand with --json; `second` and `path` name the positional arguments.
  CLI::App* add(const char* name, const char* help, const char* path, const char* second,
                Command command) {
    CLI::App* app = group_.add_subcommand(name, help);
    auto arguments = std::make_shared<Arguments>();
    current_ = arguments.get();
    app->add_option(path, arguments->path)->required();
    if (second != nullptr) app->add_option(second, arguments->second)->required();
    app->add_flag("--json", arguments->as_json, "print one JSON object");
    app->callback([arguments, command = std::move(command), &exit_code = exit_code_] {
      const Result<Answer> answer = command(*arguments);
      if (!answer.ok()) {
        fmt::print(stderr, "hekla ckpt: {}\n", answer.status().to_string());
        if (arguments->as_json) {
          fmt::print("{}\n", dump({{"error", answer.status().to_string()}}));
        }
        exit_code = code_of(answer.status());
        return;
      }
      fmt::print("{}", arguments->as_json ? dump(answer->data) + "\n" : answer->text);
      exit_code = answer->code;
    });
    return app;
  }
  Arguments& arguments() { return *current_; }  // of the last subcommand

 private:
  CLI::App& group_;
  int& exit_code_;
  Arguments* current_ = nullptr;
};

}  // namespace

void add_ckpt_command(CLI::App& app, int& exit_code) {
  CLI::App* group = app.add_subcommand("ckpt", "checkpoints: list, verify, compare, convert");
  group->require_subcommand(1);
  group->footer(
      "STEP is the folder of a step, or a run's root folder: then its newest step.\n"
      "Exit status: 0 well; 1 a difference was found; 2 corrupt; 3 not committed or not there; "
      "4 any other error; 64 wrong usage.");
  Adder adder(*group, exit_code);

  adder.add("ls", "the steps of a run", "ROOT", nullptr, list);

  CLI::App* sub =
      adder.add("inspect", "tensors, shapes, specs and pieces of a step", "STEP", nullptr, inspect);
  sub->add_option("--tensor", adder.arguments().tensors, "regular expression: these tensors alone");
  sub->add_flag("--sharding", adder.arguments().sharding, "boxes and pictures of them");

  sub = adder.add("verify", "compares every digest of a step", "STEP", nullptr, verify);
  auto* meta = sub->add_flag("--meta", adder.arguments().meta, "metadata alone, no payload");
  sub->add_flag("--full", adder.arguments().full, "payload too (the default)")->excludes(meta);
  sub->add_option("-j,--threads", adder.arguments().threads, "threads that read and hash")
      ->check(CLI::Range(1, 256));
  auto* rate =
      sub->add_option("--rate", adder.arguments().rate, "at most so many bytes a second: 50MB")
          ->transform(CLI::AsSizeValue(true));
  sub->add_flag("--scrub", adder.arguments().scrub,
                "every step of the run ROOT, by one thread; for the background, give a --rate")
      ->needs(rate);

  sub = adder.add("diff", "what differs between two steps", "A", "B", diff);
  sub->add_option("--tensor", adder.arguments().tensors, "regular expression: these tensors alone");
  sub->add_flag("--ulp", adder.arguments().ulp, "also in units of the last place");

  sub = adder.add("consolidate", "one plain HDF5 file with whole tensors", "STEP", "OUT.h5",
                  consolidate_step);
  sub->add_option("--chunk", adder.arguments().chunk,
                  "tensors of 64 KiB and more in chunks of at most so many bytes, 4KiB to 1MiB")
      ->transform(CLI::AsSizeValue(false));
  sub->add_option("--gzip", adder.arguments().gzip,
                  "level 1 to 9: chunks (of 1 MiB without --chunk) through shuffle and deflate, "
                  "which every reader of HDF5 knows")
      ->check(CLI::Range(1, 9));

  sub = adder.add("convert", "a step to safetensors, or safetensors to a step", "FROM", "TO",
                  convert);
  auto* forms = sub->add_option_group("form");
  forms->require_option(1);
  const CLI::IsMember known({"safetensors"});
  forms->add_option("--to", adder.arguments().to, "the form to write")->check(known);
  forms->add_option("--from", adder.arguments().from, "the form to read")->check(known);
  sub->add_option("--max-shard", adder.arguments().max_shard, "bytes of one file, with unit: 5GB")
      ->transform(CLI::AsSizeValue(true));
  sub->add_option("--step", adder.arguments().step, "number of the step that is written")
      ->check(CLI::Range(int64_t{0}, int64_t{999'999'999'999}));

  sub = adder.add("reshard", "the same step, cut for another mesh", "STEP", "OUT", reshard_step);
  sub->add_option("--mesh", adder.arguments().mesh, "(data:2,model:4)")->required();
  sub->add_option("--spec", adder.arguments().specs,
                  "(data,None), or PATTERN=(data,None) for some tensors; may come several times");

  sub = adder.add("gc", "what dead saves and deletions left: finished, adopted or put aside",
                  "ROOT", nullptr, collect_garbage);
  sub->add_flag("--dry-run", adder.arguments().dry_run, "say what would be done");

  sub = adder.add("bench", "what the disk gives, and what of it saves and restores reach", "DIR",
                  nullptr, run_bench);
  sub->add_option("--size", adder.arguments().size, "bytes of the state, with unit: 4GB")
      ->transform(CLI::AsSizeValue(true));
  sub->add_option("--ranks", adder.arguments().ranks, "threads that save as ranks of a group")
      ->check(CLI::Range(1, 64));
  sub->add_option("--repeat", adder.arguments().repeat, "rounds; the best counts")
      ->check(CLI::Range(1, 1000));
  sub->add_option("--mode", adder.arguments().mode, "what is measured")
      ->check(CLI::IsMember({"save", "restore", "both"}));

  sub = adder.add("repair",
                  "index and view of each step made again from its shards where damaged; then gc",
                  "ROOT", nullptr, repair);
  sub->add_flag("--dry-run", adder.arguments().dry_run, "say what would be done");
}

}  // namespace hekla::tools
