// SPDX-License-Identifier: Apache-2.0
#include "tools/train_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tools/run/exit_codes.h"
#include "tools/train/train.h"
#include "tools/train/train_demo.h"

namespace hekla::tools {
namespace {

using Json = nlohmann::json;

void print_event(const Json& event) {
  const auto kind = event["event"].get<std::string>();
  if (kind == "started") {
    fmt::print("step {} of {}{}\n", event["step"].get<int64_t>(), event["steps"].get<int64_t>(),
               event["resumed"].get<bool>() ? ", from a checkpoint" : "");
  } else if (kind == "saved") {
    fmt::print("step {} is saved\n", event["step"].get<int64_t>());
  } else if (kind == "epoch") {
    fmt::print("epoch {} of {}: step {}, loss {:.4f}\n", event["epoch"].get<int64_t>(),
               event["epochs"].get<int64_t>(), event["step"].get<int64_t>(),
               event["loss"].get<double>());
  } else {
    fmt::print(
        "accuracy {:.4f} on the test examples; {} checkpoints, {:.1f} ms in save; {:.2f} s\n",
        event["accuracy"].get<double>(), event["saved"].get<int64_t>(),
        event["blocked_seconds"].get<double>() * 1e3, event["seconds"].get<double>());
  }
}

int run_train(const TrainRequest& settings, bool as_json) {
  TrainRequest request = settings;
  request.report = [as_json](const Json& event) {
    if (as_json) {
      fmt::print("{}\n", event.dump(-1, ' ', false, Json::error_handler_t::replace));
    } else {
      print_event(event);
    }
    std::fflush(stdout);
  };
  const TrainResult result = train(request);
  if (result.status.ok()) return 0;
  fmt::print(stderr, "hekla: {}\n", result.status.message());
  return result.stage == TrainStage::kInput ? kBadInput : kDeviceError;
}

void add_train(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "train",
      "Train a stored training step on a device with checkpoints; resumes from the newest");
  auto request = std::make_shared<TrainRequest>();
  auto as_json = std::make_shared<bool>(false);
  command->add_option("folder", request->folder, "A case folder with training.json")->required();
  command->add_option("--root", request->root, "The folder of the checkpoints")->required();
  command->add_option("--device", request->device, "A device or a plugin's path");
  command->add_option("--client-option", request->client_options, "NAME=VALUE for the plugin");
  command->add_option("--epochs", request->epochs, "Instead of the stored number")
      ->check(CLI::Range(1, 1'000'000));
  command->add_option("--save-every", request->save_every, "Steps from save to save (one epoch)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", *as_json, "Print JSON, one event a line");
  command->callback([request, as_json, &exit_code] { exit_code = run_train(*request, *as_json); });
}

void add_train_demo(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "train-demo",
      "On each device: train with checkpoints, kill half-way, resume; same bits? good enough?");
  auto request = std::make_shared<TrainDemoRequest>();
  command->add_option("folder", request->folder, "A case folder with training.json")->required();
  command->add_option("--device", request->devices, "Only these devices");
  command->add_option("--client-option", request->client_options, "NAME=VALUE for the plugin");
  command->add_option("--root", request->root, "Keep the checkpoints in this folder");
  command
      ->add_option("--epochs", request->epochs,
                   "Instead of the stored number; the accuracy is asked of no fewer")
      ->check(CLI::Range(1, 1'000'000));
  command->add_option("--save-every", request->save_every, "Steps from save to save (one epoch)")
      ->check(CLI::PositiveNumber);
  command->add_option("--min-accuracy", request->min_accuracy, "Instead of the stored one")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--timeout", request->timeout_seconds, "Seconds per training")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", request->as_json, "Print JSON");
  command->callback([request, &exit_code] { exit_code = train_demo(*request); });
}

}  // namespace

void add_train_commands(CLI::App& app, int& exit_code) {
  add_train(app, exit_code);
  add_train_demo(app, exit_code);
}

}  // namespace hekla::tools
