// SPDX-License-Identifier: Apache-2.0
#include "tools/train/train_demo.h"

#include <fmt/format.h>
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/restore/step_reader.h"
#include "tools/run/child_process.h"
#include "tools/run/exit_codes.h"
#include "tools/run/run_all.h"
#include "tools/train/training.h"

namespace hekla::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Row {
  std::string device;
  std::string status = "ok";  // "FAILED", "error"
  std::string message;
  int exit_code = 0;
  int64_t steps = 0;
  int64_t killed_after = 0;  // the newest step that was committed when the child was killed
  int64_t resumed_from = 0;
  double accuracy = 0;
  double seconds = 0;  // of the uninterrupted run
  double blocked_seconds = 0;
  int64_t saved = 0;
  bool is_identical = false;
};

// The last event of a kind in a child's output; null if there is none.
Json last_event(std::string_view output, std::string_view kind) {
  Json found;
  while (!output.empty()) {
    const size_t end = output.find('\n');
    if (end == output.npos) break;  // half a line
    const Json line = Json::parse(output.substr(0, end), nullptr, /*allow_exceptions=*/false);
    if (line.is_object() && line.value("event", "") == kind) found = line;
    output.remove_prefix(end + 1);
  }
  return found;
}

class Demo {
 public:
  Demo(const TrainDemoRequest& request, const Training& training, std::string root)
      : request_(request), root_(std::move(root)) {
    epochs_ = request.epochs > 0 ? request.epochs : training.epochs;
    steps_ = epochs_ * training.steps_per_epoch;
    min_accuracy_ =
        request.min_accuracy.value_or(epochs_ >= training.epochs ? training.accuracy : 0);
  }

  Row run(const std::string& device) {
    Row row;
    row.device = device;
    row.steps = steps_;
    const Status status = run(row);
    if (status.ok()) return row;
    row.message = status.message();
    row.status = row.exit_code == kCheckFailed ? "FAILED" : "error";
    if (row.exit_code == 0) row.exit_code = kDeviceError;
    return row;
  }

 private:
  using StopWhen = std::function<bool(std::string_view)>;

  void say(const Row& row, const std::string& text) const {
    if (request_.as_json) return;
    fmt::print("{}: {}\n", row.device, text);
    std::fflush(stdout);
  }

  ChildResult child(const Row& row, const std::string& root, const StopWhen& stop_when) const {
    std::vector<std::string> words = {"/proc/self/exe", "train",
                                      request_.folder,  "--json",
                                      "--device",       row.device,
                                      "--root",         root,
                                      "--epochs",       std::to_string(epochs_)};
    if (request_.save_every > 0) {
      words.insert(words.end(), {"--save-every", std::to_string(request_.save_every)});
    }
    for (const std::string& option : request_.client_options) {
      words.insert(words.end(), {"--client-option", option});
    }
    const auto limit =
        std::chrono::milliseconds(static_cast<int64_t>(request_.timeout_seconds * 1e3));
    return run_child(words, {{"HEKLA_PROBE", "0"}}, limit, stop_when);
  }

  Status ended_well(Row& row, const ChildResult& child, const char* what) const {
    if (!child.started) return internal_error("{}: the child process did not start", what);
    if (child.timed_out) {
      return Status(StatusCode::kDeadlineExceeded,
                    fmt::format("{}: not done after {} s", what, request_.timeout_seconds));
    }
    if (child.signal != 0) {
      return internal_error("{}: signal {} ({}): {}", what, child.signal, strsignal(child.signal),
                            child.errors);
    }
    if (child.exit_code != 0) {
      row.exit_code = child.exit_code;
      return internal_error("{}: {}", what, child.errors);
    }
    return ok_status();
  }

  // Kills a training when a step at `kill_at` or later is committed; false: it ended before.
  Result<bool> kill_one(Row& row, const std::string& root, int64_t kill_at) const {
    const ChildResult killed = child(row, root, [&](std::string_view output) {
      const Json saved = last_event(output, "saved");
      return !saved.is_null() && saved.value("step", int64_t{0}) >= kill_at;
    });
    if (!killed.was_stopped) {
      HEKLA_RETURN_IF_ERROR(ended_well(row, killed, "the run to be killed"));
      return false;
    }
    row.killed_after = last_event(killed.output, "saved").value("step", int64_t{0});
    // It may have reached its end between the output and the signal.
    HEKLA_ASSIGN_OR_RETURN(const int64_t newest, checkpoint::newest_step(posix_io(), root));
    return killed.signal == SIGKILL && newest < steps_;
  }

  Status run(Row& row) {
    const std::string whole = (fs::path(root_) / "uninterrupted").string();
    say(row, fmt::format("training {} steps without interruption", steps_));
    const ChildResult first = child(row, whole, nullptr);
    HEKLA_RETURN_IF_ERROR(ended_well(row, first, "the uninterrupted run"));
    const Json end = last_event(first.output, "end");
    row.accuracy = end.value("accuracy", 0.0);
    row.seconds = end.value("seconds", 0.0);
    row.blocked_seconds = end.value("blocked_seconds", 0.0);
    row.saved = end.value("saved", int64_t{0});
    say(row, fmt::format("{} checkpoints, {:.2f} s, accuracy {:.4f}", row.saved, row.seconds,
                         row.accuracy));

    // On a fast device the end may come before the signal: then earlier.
    std::string root;
    bool was_killed = false;
    for (int attempt = 0; attempt < 4 && !was_killed; ++attempt) {
      root = (fs::path(root_) / fmt::format("interrupted-{}", attempt)).string();
      HEKLA_ASSIGN_OR_RETURN(was_killed, kill_one(row, root, steps_ >> (attempt + 1)));
    }
    if (!was_killed) {
      row.exit_code = kCheckFailed;
      return internal_error("each run ended before it could be killed; give more epochs");
    }
    say(row, fmt::format("killed (SIGKILL) with step {} committed", row.killed_after));

    const ChildResult second = child(row, root, nullptr);
    HEKLA_RETURN_IF_ERROR(ended_well(row, second, "the resumed run"));
    const Json started = last_event(second.output, "started");
    row.resumed_from = started.value("step", int64_t{0});
    const double accuracy = last_event(second.output, "end").value("accuracy", 0.0);
    say(row, fmt::format("resumed from step {}, accuracy {:.4f}", row.resumed_from, accuracy));

    row.exit_code = kCheckFailed;
    if (!started.value("resumed", false) || row.resumed_from < row.killed_after) {
      return internal_error("step {} was committed, the run resumed from {}", row.killed_after,
                            row.resumed_from);
    }
    HEKLA_RETURN_IF_ERROR(compare(whole, root));
    row.is_identical = true;
    if (accuracy != row.accuracy) {
      return internal_error("accuracy {} resumed, {} uninterrupted", accuracy, row.accuracy);
    }
    if (row.accuracy < min_accuracy_) {
      return internal_error("accuracy {:.4f} on the test examples, {} expected", row.accuracy,
                            min_accuracy_);
    }
    row.exit_code = 0;
    say(row, "the last step has the same bits as that of the uninterrupted run");
    return ok_status();
  }

  // Of the last steps of two roots.
  Status compare(const std::string& whole, const std::string& resumed) const {
    std::shared_ptr<const checkpoint::StepReader> steps[2];
    for (int i = 0; i < 2; ++i) {
      const std::string& root = i == 0 ? whole : resumed;
      checkpoint::StepReaderOptions options;
      options.verify = checkpoint::Verify::kFull;
      HEKLA_ASSIGN_OR_RETURN(
          steps[i], checkpoint::StepReader::open(
                        posix_io(), join_path(root, checkpoint::step_name(steps_)), options));
    }
    const auto tensors = steps[0]->tensors();
    if (tensors.empty() || tensors.size() != steps[1]->tensors().size()) {
      return internal_error("{} and {} tensors", tensors.size(), steps[1]->tensors().size());
    }
    for (const checkpoint::LazyTensor& tensor : tensors) {
      HEKLA_ASSIGN_OR_RETURN(const auto other, steps[1]->tensor(tensor.info().name));
      HEKLA_ASSIGN_OR_RETURN(const HostArray want, tensor.read());
      HEKLA_ASSIGN_OR_RETURN(const HostArray got, other.read());
      if (!got.identical(want)) {
        return internal_error("{} has other bits after the kill than without it",
                              tensor.info().name);
      }
    }
    return ok_status();
  }

  const TrainDemoRequest& request_;
  const std::string root_;
  int64_t epochs_ = 0;
  int64_t steps_ = 0;
  double min_accuracy_ = 0;
};

Json to_json(const Row& row) {
  return {{"device", row.device},
          {"status", row.status},
          {"message", row.message},
          {"exit_code", row.exit_code},
          {"steps", row.steps},
          {"killed_after", row.killed_after},
          {"resumed_from", row.resumed_from},
          {"identical", row.is_identical},
          {"accuracy", row.accuracy},
          {"checkpoints", row.saved},
          {"blocked_seconds", row.blocked_seconds},
          {"seconds", row.seconds}};
}

// The folder of one device below `base`, or a temporary one.
Result<std::string> make_root(const std::string& base, const std::string& device) {
  std::error_code error;
  if (base.empty()) {
    const fs::path temporary = fs::temp_directory_path(error);
    std::string path = (temporary / "hekla-train-XXXXXX").string();
    if (error || ::mkdtemp(path.data()) == nullptr) {
      return internal_error("{} cannot be made: {}", path, std::strerror(errno));
    }
    return path;
  }
  const fs::path path = fs::path(base) / fs::path(device).filename();
  // A training of before would be resumed.
  if (fs::exists(path, error)) return invalid_argument("{} is there already", path.string());
  fs::create_directories(path, error);
  if (error) return invalid_argument("{}: {}", path.string(), error.message());
  return path.string();
}

}  // namespace

int train_demo(const TrainDemoRequest& request) {
  const Result<Training> training = read_training(request.folder);
  if (!training.ok()) {
    fmt::print(stderr, "hekla: {}\n", training.status().message());
    return kBadInput;
  }
  const std::vector<std::string> devices = chosen_devices(request.devices);
  if (devices.empty()) return kDeviceError;
  int exit_code = 0;
  Json list = Json::array();
  for (const std::string& device : devices) {
    const Result<std::string> root = make_root(request.root, device);
    if (!root.ok()) {
      fmt::print(stderr, "hekla: {}\n", root.status().message());
      return kBadInput;
    }
    const Row row = Demo(request, *training, *root).run(device);
    std::error_code error;
    if (request.root.empty()) fs::remove_all(*root, error);
    if (!request.as_json && row.exit_code != 0) {
      fmt::print("{}: {}: {}\n", row.device, row.status, row.message);
    }
    list.push_back(to_json(row));
    // Wrong bits tell more than a device that is missing.
    if (row.exit_code == kCheckFailed || exit_code == 0) exit_code = row.exit_code;
  }
  if (request.as_json) {
    fmt::print("{}\n", list.dump(2, ' ', false, Json::error_handler_t::replace));
  }
  return exit_code;
}

}  // namespace hekla::tools
