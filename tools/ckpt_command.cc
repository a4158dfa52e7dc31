// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt_command.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tools/ckpt/convert.h"
#include "tools/ckpt/diff.h"
#include "tools/ckpt/inspect.h"
#include "tools/ckpt/progress.h"
#include "tools/ckpt/repair.h"
#include "tools/ckpt/step_parts.h"
#include "tools/ckpt/verify.h"

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
  bool dry_run = false;
  int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 4u));
  uint64_t max_shard = 5'000'000'000;
  int64_t step = 0;
};

using Command = std::function<Result<Answer>(const Arguments&)>;

checkpoint::Io& io() { return checkpoint::posix_io(); }

Result<std::regex> pattern(const std::string& text) {
  try {
    return std::regex(text);
  } catch (const std::regex_error& error) {
    return invalid_argument("--tensor '{}' is no regular expression: {}", text, error.what());
  }
}

Result<StepReader> open_step(const std::string& path) {
  HEKLA_ASSIGN_OR_RETURN(std::string folder, find_step(io(), path));
  return StepReader::open(io(), std::move(folder));
}

Result<Answer> list(const Arguments& arguments) {
  HEKLA_ASSIGN_OR_RETURN(json steps, list_json(io(), arguments.path));
  return Answer{list_text(steps), {{"steps", steps}}, 0};
}

Result<Answer> inspect(const Arguments& arguments) {
  HEKLA_ASSIGN_OR_RETURN(const std::regex tensors, pattern(arguments.tensors));
  HEKLA_ASSIGN_OR_RETURN(const StepReader step, open_step(arguments.path));
  return Answer{inspect_text(step, tensors, arguments.sharding), inspect_json(step, tensors), 0};
}

Result<Answer> verify(const Arguments& arguments) {
  HEKLA_ASSIGN_OR_RETURN(const std::string folder, find_step(io(), arguments.path));
  VerifyOptions options;
  options.payload = !arguments.meta;
  options.threads = arguments.threads;
  HEKLA_ASSIGN_OR_RETURN(const VerifyReport report, verify_step(io(), folder, options));
  Answer answer;
  json damages = json::array();
  for (const Damage& damage : report.damages) {
    json entry = {{"file", damage.file}, {"what", damage.what}};
    answer.text += "corrupt: ";
    if (damage.tensor.empty()) {
      answer.text += damage.what + "\n";
    } else {
      entry.update({{"tensor", damage.tensor},
                    {"box", damage.box},
                    {"block", damage.block},
                    {"offset", damage.offset}});
      answer.text +=
          fmt::format("{}: tensor '{}' {}, block {} at offset {}: {}\n", damage.file, damage.tensor,
                      damage.box, damage.block, damage.offset, damage.what);
    }
    damages.push_back(std::move(entry));
  }
  answer.data = {{"folder", folder},           {"step", report.step},
                 {"ok", damages.empty()},      {"files", report.files},
                 {"tensors", report.tensors},  {"blocks", report.blocks},
                 {"payload", options.payload}, {"damages", damages}};
  answer.code = report.damages.empty() ? 0 : kCorrupt;
  if (report.damages.empty()) {
    answer.text = fmt::format(
        "{}: step {} is as it was written: {} files, {} tensors{}\n", folder, report.step,
        report.files, report.tensors,
        options.payload ? fmt::format(", {} blocks", report.blocks) : " (payload not read)");
  }
  return answer;
}

Result<Answer> diff(const Arguments& arguments) {
  HEKLA_ASSIGN_OR_RETURN(const std::regex tensors, pattern(arguments.tensors));
  HEKLA_ASSIGN_OR_RETURN(StepReader a, open_step(arguments.path));
  HEKLA_ASSIGN_OR_RETURN(StepReader b, open_step(arguments.second));
  HEKLA_ASSIGN_OR_RETURN(const DiffReport report, diff_steps(a, b, tensors));
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
  HEKLA_ASSIGN_OR_RETURN(StepReader step, open_step(arguments.path));
  HEKLA_ASSIGN_OR_RETURN(
      const Conversion done,
      to_safetensors(step, arguments.second, static_cast<int64_t>(arguments.max_shard)));
  return converted(done);
}

Result<Answer> consolidate_step(const Arguments& arguments) {
  HEKLA_ASSIGN_OR_RETURN(StepReader step, open_step(arguments.path));
  HEKLA_ASSIGN_OR_RETURN(const Conversion done, consolidate(step, arguments.second));
  return converted(done);
}

Result<Answer> reshard_step(const Arguments& arguments) {
  HEKLA_ASSIGN_OR_RETURN(StepReader step, open_step(arguments.path));
  HEKLA_ASSIGN_OR_RETURN(
      const Conversion done,
      reshard(step, arguments.second, Resharding{arguments.mesh, arguments.specs}));
  return converted(done);
}

Result<Answer> repair(const Arguments& arguments) {
  HEKLA_ASSIGN_OR_RETURN(const RepairReport report,
                         repair_run(io(), arguments.path, arguments.dry_run));
  Answer answer;
  for (const std::string& line : report.done) {
    answer.text += fmt::format("{}{}\n", arguments.dry_run ? "would have " : "", line);
  }
  for (const std::string& line : report.left) answer.text += "left as it is: " + line + "\n";
  if (answer.text.empty()) answer.text = "nothing to repair\n";
  answer.data = {{"done", report.done}, {"left", report.left}, {"dry_run", arguments.dry_run}};
  answer.code = report.left.empty() ? 0 : kCorrupt;
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

  sub = adder.add("diff", "what differs between two steps", "A", "B", diff);
  sub->add_option("--tensor", adder.arguments().tensors, "regular expression: these tensors alone");
  sub->add_flag("--ulp", adder.arguments().ulp, "also in units of the last place");

  adder.add("consolidate", "one plain HDF5 file with whole tensors", "STEP", "OUT.h5",
            consolidate_step);

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

  sub = adder.add("repair", "index and view of each step rebuilt from its shards where damaged",
                  "ROOT", nullptr, repair);
  sub->add_flag("--dry-run", adder.arguments().dry_run, "say what would be done");
}

}  // namespace hekla::tools
